package seq2seq

import (
	"cmp"
	"slices"

	"github.com/learning-to-screen/l2s/benchmarks/internal/lstm"
	"github.com/learning-to-screen/l2s/internal/grow"
)

// Source is a sentence as the encoder of a model leaves it. It does not change: any number of
// decoders of that model, and of hypotheses, may share it.
type Source struct {
	m      *Model
	keys   []float32 // n x d: A' y_s for each word, and for </s>
	values []float32 // n x d: C y_s
	state  []float32 // of all layers, after </s>
}

// encodeRows is the number of rows that the encoder's layers process together, unless a single time
// step has more. It bounds the memory that a long sentence takes, and changes nothing else.
const encodeRows = 256

// Encode reads sentences, each the words of the source vocabulary without the </s> that Encode
// adds. A sentence without words is </s> alone. There is no limit to the length; the memory of a
// Source grows with it. Encode panics if a word is not in the vocabulary.
//
// Sentences that are read together share the loads of the weights.
func (m *Model) Encode(sentences [][]uint32) []*Source {
	// In order of length the sentences that continue at a time step are the first ones.
	order := make([]int, len(sentences))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(sentences[b]), len(sentences[a])) })

	enc, d := &m.encoder, m.Dim()
	outputs := make([][]float32, len(sentences)) // y: a row of d for each word, and for </s>
	for i, sentence := range sentences {
		outputs[i] = make([]float32, 0, (len(sentence)+1)*d)
	}
	var (
		streams = enc.stack.NewStreams(len(sentences))
		tokens  []uint32 // of some time steps
		active  []int    // sentences at each of these steps
		x       []float32
	)
	advance := func() {
		x = grow.Slice(x, len(tokens)*enc.stack.In())
		enc.embeddings.Rows(x, tokens)
		y := streams.Run(x, active)
		for _, n := range active {
			for _, i := range order[:n] {
				outputs[i] = append(outputs[i], y[:d]...)
				y = y[d:]
			}
		}
		tokens, active = tokens[:0], active[:0]
	}
	going := len(sentences)
	for t := 0; ; t++ {
		for going > 0 && len(sentences[order[going-1]]) < t {
			going--
		}
		if going == 0 {
			break
		}
		for _, i := range order[:going] {
			if t < len(sentences[i]) {
				tokens = append(tokens, sentences[i][t])
			} else {
				tokens = append(tokens, enc.end)
			}
		}
		if active = append(active, going); len(tokens)+going > encodeRows {
			advance()
		}
	}
	if len(active) > 0 {
		advance()
	}
	sources := make([]*Source, len(sentences))
	for at, i := range order {
		y := outputs[i]
		s := &Source{m: m, keys: make([]float32, len(y)), values: make([]float32, len(y)), state: make([]float32, enc.stack.StateLen())}
		streams.Save(s.state, at)
		lstm.Products(s.keys, m.attnKeys, nil, y, d, len(y)/d)
		lstm.Products(s.values, m.attnValues, nil, y, d, len(y)/d)
		sources[i] = s
	}
	return sources
}
