package llamacpp

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/hybridgroup/yzma/pkg/llama"

	l2sengine "github.com/learning-to-screen/l2s/internal/search/engine"
)

// UnlikeError is the error of a head whose logits are not llama.cpp's.
type UnlikeError struct {
	Architecture string
	Token        uint32
	Ours, Theirs float64 // the logits of the token
	Tolerance    float64 // the difference that quantisation explains
}

func (e *UnlikeError) Error() string {
	return fmt.Sprintf("llamacpp: architecture %q: token %d has the logit %g by this head and %g by llama.cpp, expected a difference of at most %.2g, which its quantisation explains: the head is not applied to the state that is read", e.Architecture, e.Token, e.Ours, e.Theirs, e.Tolerance)
}

const (
	checkedStates = 4
	checkedTop    = 64  // labels with the largest logits of llama.cpp
	checkedOthers = 256 // labels apart from each other in the vocabulary
)

// Check lets llama.cpp compute its own head for a few tokens, and compares its logits with the
// logits of x. llama.cpp rounds h for its product, to blocks of 8-bit numbers or to bfloat16, and x
// does not, so that a logit may differ by the sum of these roundings: the tolerance is eight
// standard deviations of the sum. A larger difference is an *[UnlikeError].
//
// Afterwards states are handed out for an architecture that is not known. Check empties the
// memory of the context.
func (k *Hook) Check(x *Head) error {
	if x.Dim() != k.dim {
		return fmt.Errorf("llamacpp: found a head of dimension %d, expected the model's, %d", x.Dim(), k.dim)
	}
	memory, err := llama.GetMemory(k.ctx)
	if err != nil {
		return fmt.Errorf("llamacpp: %w", err)
	}
	llama.MemoryClear(memory, true)
	k.whole = true
	defer func() {
		k.whole = false
		llama.MemoryClear(memory, true)
	}()
	labels := int(llama.VocabNTokens(llama.ModelGetVocab(k.model)))
	for i := range checkedStates {
		token := []llama.Token{llama.Token((2*i + 1) * labels / (2 * checkedStates))}
		h, err := k.decode(llama.BatchGetOne(token))
		if err != nil {
			return err
		}
		if !k.headAsked {
			return fmt.Errorf("llamacpp: architecture %q: found no node result_output, expected the logits of llama.cpp", k.arch)
		}
		theirs, err := llama.GetLogitsIth(k.ctx, -1, labels)
		if err != nil || len(theirs) != labels {
			return errors.New("llamacpp: found no logits of llama.cpp, expected some to compare with")
		}
		if err := k.compare(x, h, theirs); err != nil {
			return err
		}
	}
	k.trusted = true
	return nil
}

func (k *Hook) compare(x *Head, h, theirs []float32) error {
	n := min(x.Labels(), len(theirs))
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i)
	}
	slices.SortFunc(ids, func(a, b uint32) int {
		switch {
		case theirs[a] > theirs[b]:
			return -1
		case theirs[a] < theirs[b]:
			return 1
		}
		return int(a) - int(b)
	})
	asked := slices.Clone(ids[:min(checkedTop, n)])
	for i := range checkedOthers {
		asked = append(asked, uint32(i*n/checkedOthers))
	}
	slices.Sort(asked)
	asked = slices.Compact(asked)
	ours := make([]float64, len(asked))
	if err := x.Logits(ours, h, asked...); err != nil {
		return err
	}
	layer := (*l2sengine.Layer)(x.layer)
	return layer.Read(func() error {
		row, rows := make([]float32, k.dim), layer.Exact().Weights()
		for i, id := range asked {
			rows.Widen(row, int(id))
			tolerance := layer.Exact().Scale() * roundings(row, h)
			if d := math.Abs(ours[i] - float64(theirs[id])); !(d <= tolerance+1e-4*(1+math.Abs(ours[i]))) {
				return &UnlikeError{k.arch, id, ours[i], float64(theirs[id]), tolerance}
			}
		}
		return nil
	})
}

// roundings returns the tolerance for the roundings in a logit of llama.cpp. The coarsest form of h
// is of blocks of 256 numbers of 8 bits with a common step; its scale may be float16.
func roundings(row, h []float32) float64 {
	const block = 256
	variance, sum := 0.0, 0.0
	for i := 0; i < len(h); i += block {
		end := min(i+block, len(h))
		largest, squares := 0.0, 0.0
		for j := i; j < end; j++ {
			largest = max(largest, math.Abs(float64(h[j])))
			squares += float64(row[j]) * float64(row[j])
			sum += math.Abs(float64(row[j]) * float64(h[j]))
		}
		step := largest / 127
		variance += squares * step * step / 12
	}
	return 8*math.Sqrt(variance) + sum/1024
}
