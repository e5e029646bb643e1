package llamacpp

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/hybridgroup/yzma/pkg/llama"

	"github.com/learning-to-screen/l2s/llamacpp/internal/threadpool"
)

// Hook is a context of llama.cpp that computes hidden states and leaves out the head. It is for
// one goroutine.
type Hook struct {
	number  uintptr
	model   llama.Model
	ctx     llama.Context
	dim     int
	outputs int // of a decode, at most
	batch   int // tokens of a decode, at most
	arch    string
	trusted bool // the head is known to be applied to the states
	states  []float32
	pool    *threadpool.Pool // nil if llama.cpp has threads of its own
	// The state of the callback: its task and its observations.
	whole     bool // llama.cpp must compute the head, too
	headAsked bool
}

// NewHook is llama.InitFromModel for a context that computes hidden states. It sets, of the
// parameters, the callback; no embeddings, no offload of operations or of the cache, no pooling and
// no samplers of the backend, since states are read on the CPU; and one cache for all sequences
// (KVUnified), so that states come in the order of the batch: NCtx is the room of all sequences
// together. Load the model with NGpuLayers = 0.
//
// It returns an error for a model that states cannot be had of. Close releases the
// context, not the model.
func NewHook(model llama.Model, params llama.ContextParams) (*Hook, error) {
	if err := base.load(); err != nil {
		return nil, err
	}
	arch, _ := llama.ModelMetaValStr(model, "general.architecture")
	switch {
	case llama.ModelHasEncoder(model):
		return nil, fmt.Errorf("llamacpp: architecture %q: found an encoder, expected a decoder alone", arch)
	case llama.ModelIsDiffusion(model):
		return nil, fmt.Errorf("llamacpp: architecture %q: found a diffusion model, expected one that decodes from left to right", arch)
	}
	k := &Hook{number: lastHook.Add(1), model: model, arch: arch, trusted: known[arch], dim: int(llama.ModelNEmbdOut(model))}
	params.CbEval, params.CbEvalUserData = base.evaluated, k.number
	params.Embeddings, params.OpOffload, params.Offload_kqv, params.KVUnified = 0, 0, 0, 1
	params.PoolingType, params.Samplers, params.NSamplers = llama.PoolingTypeNone, 0, 0
	hooks.Store(k.number, k) // llama.cpp may warm the context up
	takeLog()
	ctx, err := llama.InitFromModel(model, params)
	if err != nil {
		hooks.Delete(k.number)
		return nil, fmt.Errorf("llamacpp: llama.cpp made no context: %s", reason(err))
	}
	k.ctx, k.batch = ctx, int(llama.NBatch(ctx))
	if k.outputs = int(params.NOutputsMax); k.outputs == 0 {
		k.outputs = k.batch
	}
	return k, nil
}

// reason returns the log of llama.cpp, or the error if the log is empty.
func reason(err error) string {
	if s := takeLog(); s != "" {
		return s
	}
	return err.Error()
}

// Close releases the context.
func (k *Hook) Close() {
	if k.ctx != 0 {
		llama.Free(k.ctx)
		hooks.Delete(k.number)
		k.ctx = 0
	}
}

// Context is the context of llama.cpp, for yzma's functions on its memory. Its logits are
// stale.
func (k *Hook) Context() llama.Context { return k.ctx }

// Dim returns d, the dimension of a state.
func (k *Hook) Dim() int { return k.dim }

// Decode runs llama.Decode on a batch and returns the hidden states of its outputs, n x d, in the
// order of the batch: of the tokens whose Logits are set, or of the last token if the batch has no
// Logits (llama.BatchGetOne). They are valid until the next decode. Few outputs are better: for
// each one llama.cpp copies 4 bytes per label.
//
// It returns an error, and no states, if the batch does not fit, if llama.cpp fails or computes
// its head, and if the model's architecture is not known and [Hook.Check] has not passed.
func (k *Hook) Decode(b llama.Batch) ([]float32, error) {
	if !k.trusted {
		return nil, fmt.Errorf("llamacpp: architecture %q: found one that this package does not know, expected a Check of a head before", k.arch)
	}
	return k.decode(b)
}

func (k *Hook) decode(b llama.Batch) ([]float32, error) {
	if k.ctx == 0 {
		return nil, errors.New("llamacpp: found a hook that is closed")
	}
	want := 1
	if b.Logits != nil {
		want = 0
		for _, on := range unsafe.Slice(b.Logits, b.NTokens) {
			if on != 0 {
				want++
			}
		}
	}
	// With such a batch llama.cpp would end the program.
	switch {
	case b.NTokens < 1 || int(b.NTokens) > k.batch:
		return nil, fmt.Errorf("llamacpp: found a batch of %d tokens, expected 1 to %d", b.NTokens, k.batch)
	case want > k.outputs:
		return nil, fmt.Errorf("llamacpp: found a batch with %d outputs, expected at most %d", want, k.outputs)
	}
	k.states, k.headAsked = k.states[:0], false
	takeLog()
	if k.pool != nil {
		k.pool.Lock()
		defer k.pool.Unlock()
	}
	status, err := llama.Decode(k.ctx, b)
	switch {
	case err != nil:
		return nil, fmt.Errorf("llamacpp: %w", err)
	case status == 1:
		return nil, fmt.Errorf("llamacpp: found no room for %d more tokens, expected a context above %d tokens", b.NTokens, llama.NCtx(k.ctx))
	case status != 0:
		return nil, fmt.Errorf("llamacpp: llama.cpp did not decode the batch (status %d): %s", status, reason(errors.New("it gave no reason")))
	case k.headAsked && !k.whole:
		return nil, errors.New("llamacpp: found that llama.cpp computes its head, expected it to stop before: load the model with NGpuLayers = 0, and without BLAS")
	case len(k.states) != want*k.dim:
		return nil, fmt.Errorf("llamacpp: architecture %q: found %d numbers of hidden states, expected %d states of %d", k.arch, len(k.states), want, k.dim)
	}
	return k.states, nil
}
