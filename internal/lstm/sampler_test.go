package lstm

import "math/rand/v2"

// sampler draws words from the model's softmax distribution at temperature
// 1. The same seed and the same contexts give the same words; with a [State]
// that starts from the zero state they are the beginning of what
// [Model.Generate] writes with that seed.
type sampler struct {
	m      *Model
	rng    *rand.Rand
	logits []float32
	probs  []float64
}

// newSampler returns a sampler of the words of m.
func newSampler(m *Model, seed uint64) *sampler {
	return &sampler{m: m, rng: newRand(seed, 0), logits: make([]float32, m.Vocab()), probs: make([]float64, m.Vocab())}
}

// next draws the word that follows the context h, Dim elements as
// [State.Step] returns them. It returns an error where the logits are not
// finite.
func (s *sampler) next(h []float32) (uint32, error) {
	Products(s.logits, s.m.logits(), s.m.decoderBias, h, 1)
	return draw(s.logits, s.probs, s.rng)
}
