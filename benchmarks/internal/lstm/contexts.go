package lstm

import (
	"context"
	"iter"
)

// chunkLen is the number of tokens that a layer processes together. Their input products share one
// pass over the weights, and the weights of one layer stay in the cache during that time.
const chunkLen = 64

// chunk is a run of consecutive time steps on its way through the layers.
type chunk struct {
	tokens []uint32
	x      []float32 // len(tokens) rows: the output of the layers so far
}

// Contexts reads a token stream from the zero state and calls f for each token, in order, with the
// context vector after it, which [State.Step] computes in the same arithmetic. The slice that f
// gets is valid during the call.
//
// Each layer runs on a goroutine of its own, one chunk of tokens after the layer below. f, and the
// token sequence, run on the caller's.
//
// Contexts returns the first error of the token stream or of f, or the error of
// ctx once it is done; f may then not have seen all tokens that were read. It
// panics if a token is not below Vocab.
func (m *Model) Contexts(ctx context.Context, tokens iter.Seq2[uint32, error], f func(h []float32) error) error {
	in := make(chan *chunk, 1)
	out := in
	for l := range m.stack.layers {
		from, to := out, make(chan *chunk, 1)
		go m.runLayer(l, from, to)
		out = to
	}
	// The layers end before this returns, on every path.
	defer func() {
		for range out {
		}
	}()
	defer close(in)

	var free []*chunk
	for range m.Layers() + 2 { // one at each layer, one to fill, one that waits
		free = append(free, &chunk{x: make([]float32, chunkLen*max(m.stack.in, m.Dim()))})
	}
	flying, d := 0, m.Dim()
	land := func() error {
		c := <-out
		flying--
		for i := range c.tokens {
			if err := f(c.x[i*d : (i+1)*d : (i+1)*d]); err != nil {
				return err
			}
		}
		c.tokens = c.tokens[:0]
		free = append(free, c)
		return ctx.Err()
	}
	launch := func(c *chunk) {
		m.encoder.Rows(c.x, c.tokens)
		in <- c
		flying++
	}

	if err := ctx.Err(); err != nil {
		return err
	}
	next := free[0]
	free = free[1:]
	for token, err := range tokens {
		if err != nil {
			return err
		}
		if next.tokens = append(next.tokens, token); len(next.tokens) < chunkLen {
			continue
		}
		launch(next)
		if len(free) == 0 {
			if err := land(); err != nil {
				return err
			}
		}
		next, free = free[0], free[1:]
	}
	if len(next.tokens) > 0 {
		launch(next)
	}
	for flying > 0 {
		if err := land(); err != nil {
			return err
		}
	}
	return nil
}

// runLayer replaces the rows of each chunk by the outputs of layer l, from
// the zero state on.
func (m *Model) runLayer(l int, from <-chan *chunk, to chan<- *chunk) {
	defer close(to)
	h, c := make([]float32, m.Dim()), make([]float32, m.Dim())
	active := make([]int, chunkLen) // one stream
	for t := range active {
		active[t] = 1
	}
	var gates []float32
	for k := range from {
		gates = m.stack.layers[l].run(k.x, k.x, active[:len(k.tokens)], h, c, gates)
		to <- k
	}
}
