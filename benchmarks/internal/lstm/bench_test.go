package lstm

import (
	"context"
	"testing"
)

// benchModel has the shape of the model of the demo.
func benchModel(b *testing.B) *Model { return newSpec(1, 20000, 200, 200, 2, true).read(b, "F16") }

func perToken(b *testing.B, tokens int) {
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(tokens), "us/token")
}

func BenchmarkStep(b *testing.B) {
	m := benchModel(b)
	st, tokens := m.NewState(), randomTokens(1, 1000, m.Vocab())
	for b.Loop() {
		for _, token := range tokens {
			st.Step(token)
		}
	}
	perToken(b, len(tokens))
}

func BenchmarkContexts(b *testing.B) {
	m := benchModel(b)
	tokens := randomTokens(1, 5000, m.Vocab())
	for b.Loop() {
		if err := m.Contexts(context.Background(), stream(tokens, nil), func([]float32) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
	perToken(b, len(tokens))
}
