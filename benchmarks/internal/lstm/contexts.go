package lstm

import (
	"context"
	"iter"
)

// chunkLen is the number of tokens that a layer processes together: their input products share one
// pass over the weights, which stay in the cache during that time.
const chunkLen = 64

// Contexts reads a token stream from the zero state and calls f for each token, in order, with the
// context vector after it, which [State.Step] computes in the same arithmetic. The slice that f
// gets is valid during the call.
//
// Contexts returns the first error of the token stream or of f, or the error of
// ctx once it is done; f may then not have seen all tokens that were read. It
// panics if a token is not below Vocab.
func (m *Model) Contexts(ctx context.Context, tokens iter.Seq2[uint32, error], f func(h []float32) error) error {
	streams, x, d := m.stack.NewStreams(1), make([]float32, chunkLen*m.stack.in), m.Dim()
	var chunk []uint32
	active := make([]int, chunkLen) // one stream
	for t := range active {
		active[t] = 1
	}
	flush := func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := len(chunk)
		m.encoder.Rows(x, chunk)
		rows := streams.Run(x[:n*m.stack.in], active[:n])
		for i := range n {
			if err := f(rows[i*d : (i+1)*d : (i+1)*d]); err != nil {
				return err
			}
		}
		chunk = chunk[:0]
		return ctx.Err()
	}
	for token, err := range tokens {
		if err != nil {
			return err
		}
		if chunk = append(chunk, token); len(chunk) == chunkLen {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}
