package seq2seq

import (
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/benchmarks/internal/lstm"
	"github.com/learning-to-screen/l2s/internal/floats"
	"github.com/learning-to-screen/l2s/internal/grow"
	"github.com/learning-to-screen/l2s/internal/kernels"
)

// Decoder is the state of the decoder for some hypotheses, each the beginning
// of a translation of its source. A goroutine needs its own. Once it has seen
// its largest batch and its longest source it allocates nothing.
type Decoder struct {
	m       *Model
	streams *lstm.Streams
	sources []*Source // of each hypothesis
	spare   []*Source

	x       []float32 // n x e: the embeddings of the words
	context []float32 // n x d: h
	scores  []float32 // of the attention: one per position
	weights []float64
}

// NewDecoder returns a decoder without hypotheses.
func (m *Model) NewDecoder() *Decoder {
	return &Decoder{m: m, streams: m.decoder.stack.NewStreams(0)}
}

// Start begins again, with one hypothesis for each source, in order. No word is read yet: the first
// [Decoder.Step] should be given <s> for each. The sources may be of several sentences, or the same
// one many times. Start panics if one is of another model.
func (d *Decoder) Start(sources []*Source) {
	for _, s := range sources {
		if s.m != d.m {
			panic("seq2seq: source is of another model")
		}
	}
	d.sources = append(d.sources[:0], sources...)
	d.streams.Grow(len(sources))
	for i, s := range sources {
		d.streams.Restore(i, s.state)
	}
}

// Len returns the number of hypotheses.
func (d *Decoder) Len() int { return len(d.sources) }

// Step lets each hypothesis read one word and returns the context vector of each, a row of Dim
// elements in their order: all within [-1, 1], or NaN if the weights are so large that products
// overflow. The slice is valid until the next call. Step panics if there is not one word a
// hypothesis, or a word is not in the target vocabulary.
func (d *Decoder) Step(tokens []uint32) []float32 {
	n, dim := len(d.sources), d.m.Dim()
	if len(tokens) != n {
		panic("seq2seq: number of tokens differs from the number of hypotheses")
	}
	d.x = grow.Slice(d.x, n*d.m.decoder.stack.In())
	d.context = grow.Slice(d.context, n*dim)

	d.m.decoder.embeddings.Rows(d.x, tokens)
	q := d.streams.Step(d.x, n)
	lstm.Products(d.context, d.m.attnQuery, nil, q, dim, n)
	for i, s := range d.sources {
		d.attend(d.context[i*dim:(i+1)*dim], s, q[i*dim:(i+1)*dim])
	}
	for j, x := range d.context {
		d.context[j] = float32(math.Tanh(float64(x)))
	}
	return d.context
}

// attend adds C c to the context of a hypothesis of s, where c is the mean of the outputs
// of s weighted by the softmax of their scores with q. It makes the context NaN if the
// products overflow.
func (d *Decoder) attend(context []float32, s *Source, q []float32) {
	positions := len(s.keys) / len(q)
	d.scores, d.weights = grow.Slice(d.scores, positions), grow.Slice(d.weights, positions)
	floats.Scan(d.scores, s.keys, nil, q)
	var overflow float32 // NaN, or 0
	for p, x := range d.scores {
		overflow += x - x
		d.weights[p] = float64(x)
	}
	if overflow != 0 { // Softmax takes no such scores
		for j := range context {
			context[j] = overflow
		}
		return
	}
	kernels.Softmax(d.weights, d.weights)
	for p, w := range d.weights {
		w := float32(w)
		for j, x := range s.values[p*len(q) : (p+1)*len(q)] {
			context[j] += w * x
		}
	}
}

// Reorder makes hypothesis i continue the former hypothesis parents[i], for all i below
// len(parents), which becomes the number of hypotheses. It panics if there is no such parent.
func (d *Decoder) Reorder(parents []int) {
	for _, p := range parents {
		if p < 0 || p >= len(d.sources) {
			panic("seq2seq: parent is no hypothesis")
		}
	}
	if inOrder(parents) {
		// As where the last hypotheses end: nothing moves.
		d.sources = d.sources[:len(parents)]
		return
	}
	d.spare = slices.Grow(d.spare[:0], len(parents))
	for _, p := range parents {
		d.spare = append(d.spare, d.sources[p])
	}
	d.sources, d.spare = d.spare, d.sources
	d.streams.Reorder(parents)
}

// inOrder reports whether parents is 0, 1, 2 and so on.
func inOrder(parents []int) bool {
	for i, p := range parents {
		if i != p {
			return false
		}
	}
	return true
}
