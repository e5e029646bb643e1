package lstm

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/kernels"
)

// draw draws an index with probability softmax(logits), by the inverse of
// the distribution function. probs is scratch of the same length.
func draw(logits []float32, probs []float64, rng *rand.Rand) (uint32, error) {
	for i, x := range logits {
		if x-x != 0 {
			return 0, fmt.Errorf("lstm: logits: found %v for word %d, expected finite numbers", x, i)
		}
		probs[i] = float64(x)
	}
	kernels.Softmax(probs, probs)
	u, sum, last := rng.Float64(), 0.0, 0
	for i, p := range probs {
		if sum += p; u < sum {
			return uint32(i), nil
		}
		if p > 0 {
			last = i
		}
	}
	return uint32(last), nil // the sum was rounded to below u
}

// newRand returns the random numbers of one stream. Seeds and streams are
// mixed, as PCG takes its seeds for a state: near states are near for a while.
func newRand(seed uint64, stream int) *rand.Rand {
	return rand.New(rand.NewPCG(mix(seed), mix(seed^mix(uint64(stream)))))
}

// mix is a bijection on 64 bits in which each bit of x changes about half of
// the result: the finaliser of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

const (
	// streamLen is the number of tokens that Generate draws before it starts
	// again from the zero state. It fixes what is generated.
	streamLen = 512
	// groupLen is the number of streams that advance together, so that the
	// softmax weights are read once for all of them. It changes speed alone.
	groupLen = 16
)

// GenerateOptions says what [Model.Generate] generates, and how.
type GenerateOptions struct {
	Start   uint32 // the first token that a stream reads: the id of <eos>
	Seed    uint64
	Threads int // 0 is GOMAXPROCS; the result does not depend on it
}

// Generate lets the model write n tokens and calls f with them and the
// context vector after each (len(tokens) x Dim), in order and piece by piece.
// The slices are the callee's to keep.
//
// The tokens come in streams of 512. Each starts from the zero state, reads
// opt.Start as its first token and then the words that it draws from the
// softmax at temperature 1, with random numbers of its own. So a token depends
// on the model, Start, Seed and its position alone, not on n, on the number of
// threads or on the CPU: a shorter run is the beginning of a longer one.
//
// f runs on the caller's goroutine. Generate returns the first error of f,
// or that of ctx once it is done, or an error if the logits are not finite
// or the options make no sense.
func (m *Model) Generate(ctx context.Context, n int, opt GenerateOptions, f func(tokens []uint32, contexts []float32) error) error {
	if n < 0 {
		return fmt.Errorf("lstm: tokens to generate: found %d, expected 0 or more", n)
	}
	if uint64(opt.Start) >= uint64(m.Vocab()) {
		return fmt.Errorf("lstm: start token: found %d, expected less than %d, the size of the vocabulary", opt.Start, m.Vocab())
	}
	if opt.Threads < 0 {
		return fmt.Errorf("lstm: threads: found %d, expected 0 or more", opt.Threads)
	}
	streams := (n + streamLen - 1) / streamLen
	threads := parallel.Threads(opt.Threads, streams)
	group := min((streams+threads-1)/threads, groupLen) // streams of a group
	if n == 0 {
		return ctx.Err()
	}
	size := group * streamLen // tokens of a group

	type piece struct {
		tokens   []uint32
		contexts []float32
	}
	return parallel.InOrder(ctx, (n+size-1)/size, threads, func() func(context.Context, int) (piece, error) {
		g := newGenerator(m, opt, group)
		return func(ctx context.Context, i int) (piece, error) {
			tokens, contexts, err := g.run(ctx, i*group, min(size, n-i*size))
			return piece{tokens, contexts}, err
		}
	}, func(p piece) error { return f(p.tokens, p.contexts) })
}

// generator advances a group of streams together.
type generator struct {
	m      *Model
	opt    GenerateOptions
	s      *Streams
	x      []float32 // group x e: the embeddings of next
	rngs   []*rand.Rand
	next   []uint32  // the token that each stream reads next
	logits []float32 // group x V
	probs  []float64 // V
}

func newGenerator(m *Model, opt GenerateOptions, group int) *generator {
	return &generator{
		m: m, opt: opt,
		s:      m.stack.NewStreams(group),
		x:      make([]float32, group*m.stack.in),
		rngs:   make([]*rand.Rand, group),
		next:   make([]uint32, group),
		logits: make([]float32, group*m.Vocab()),
		probs:  make([]float64, m.Vocab()),
	}
}

// run generates n tokens, the streams from first on.
func (g *generator) run(ctx context.Context, first, n int) (tokens []uint32, contexts []float32, err error) {
	d, v := g.m.Dim(), g.m.Vocab()
	tokens, contexts = make([]uint32, n), make([]float32, n*d)
	g.s.Reset()
	for s := range g.next {
		g.next[s] = g.opt.Start
		g.rngs[s] = newRand(g.opt.Seed, first+s)
	}
	for t := range min(n, streamLen) {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		// Only the last stream can be the shorter one: those at work come first.
		active := (n - t + streamLen - 1) / streamLen
		g.m.encoder.Rows(g.x, g.next[:active])
		top := g.s.Step(g.x, active)
		for s := range active {
			tokens[s*streamLen+t] = g.next[s]
			copy(contexts[(s*streamLen+t)*d:], top[s*d:(s+1)*d])
		}
		Products(g.logits, g.m.logits(), g.m.decoderBias, top, active)
		for s := range active {
			if g.next[s], err = draw(g.logits[s*v:(s+1)*v], g.probs, g.rngs[s]); err != nil {
				return nil, nil, err
			}
		}
	}
	return tokens, contexts, nil
}
