package seq2seq

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
)

// benchModel has the shape of the real one, except for its vocabularies.
func benchModel(b *testing.B) *Model {
	return newSpec(1, shape{source: 1000, target: 1000, embedSource: 500, embedTarget: 500, dim: 500, layers: 2}, 0.1).load(b)
}

// BenchmarkStep is one step of the decoder for some hypotheses, whose sources
// have 14 words.
func BenchmarkStep(b *testing.B) {
	m := benchModel(b)
	rng := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{1, 5, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			sentences, tokens := make([][]uint32, n), make([]uint32, n)
			for i := range n {
				sentences[i] = randomSentence(rng, 14, 1000)
			}
			d := m.NewDecoder()
			d.Start(m.Encode(sentences))
			for b.Loop() {
				for i := range tokens {
					tokens[i] = uint32(rng.IntN(1000))
				}
				d.Step(tokens)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*n), "us/hypothesis")
		})
	}
}

// BenchmarkEncode is the encoder for some sentences of 14 words.
func BenchmarkEncode(b *testing.B) {
	m := benchModel(b)
	rng := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{1, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			sentences := make([][]uint32, n)
			for i := range n {
				sentences[i] = randomSentence(rng, 14, 1000)
			}
			for b.Loop() {
				m.Encode(sentences)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*n), "us/sentence")
		})
	}
}

// BenchmarkContexts is teacher forcing on one goroutine.
func BenchmarkContexts(b *testing.B) {
	m := benchModel(b)
	pairs := randomPairs(1, groupLen, 24, shape{source: 1000, target: 1000})
	for b.Loop() {
		if err := m.Contexts(context.Background(), pairs, 1, func(Decoded) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(pairs)), "us/pair")
}
