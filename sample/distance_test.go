package sample_test

import (
	"math"
	"math/rand/v2"
	"sort"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/sample"
)

// exactly is a searcher without an index.
func exactly(t interface{ Fatal(...any) }, l *l2s.Layer) *l2s.Searcher {
	s, err := l2s.NewSearcher(l, nil, l2s.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A draw over a layer that keeps only labels within a distance of the best keeps the labels of the
// definition, with their probabilities, with any edits of the best. The token is the one up to
// which the probabilities, in the order of the labels, exceed the random number of the seed.
func TestDrawsWithinADistanceAreThoseOfTheDefinition(t *testing.T) {
	const labels, dim = 1500, 8
	l := newLayer(t, 71, labels, dim)
	best := make([]l2s.Prediction, 5)
	search := exactly(t, l)
	rapid.Check(t, func(t *rapid.T) {
		h := normals(newRand(rapid.Uint64().Draw(t, "context")), dim, rapid.SampledFrom([]float64{0.001, 0.05, 0.7, 3}).Draw(t, "scale"))
		r := newRand(rapid.Uint64().Draw(t, "edits"))
		o, e := sample.DefaultOptions(), sample.Edits{Banned: setOf(labels)}
		o.Order = orders[rapid.IntRange(0, len(orders)-1).Draw(t, "order")].steps
		o.Seed = rapid.Uint64().Draw(t, "seed")
		o.Temperature = rapid.SampledFrom([]float64{0, 0.1, 0.8, 1, 5}).Draw(t, "temperature")
		o.TopK = rapid.SampledFrom([]int{0, 0, 1, 5, 40, 700}).Draw(t, "top-k")
		o.TopP = rapid.SampledFrom([]float64{1, 1, 0.9}).Draw(t, "top-p")
		o.MinP = rapid.SampledFrom([]float64{1e-9, 0.001, 0.05, 0.5, 1}).Draw(t, "min-p")
		o.Repetition = rapid.SampledFrom([]float64{1, 1.1, 3, 100, 0.8}).Draw(t, "repetition")
		o.Presence = rapid.SampledFrom([]float64{0, 0.5, 30, -0.5}).Draw(t, "presence")
		for id := range uint32(labels) {
			if r.IntN(300) == 0 {
				e.Biases = append(e.Biases, l2s.Bias{ID: id, Add: float32(4 * r.NormFloat64())})
			}
		}
		for range rapid.SampledFrom([]int{0, 20, 2000}).Draw(t, "history") {
			e.History = append(e.History, uint32(r.IntN(labels)))
		}
		if rapid.Bool().Draw(t, "the best is in the history") {
			if _, err := search.TopK(best, h); err != nil {
				t.Fatal(err)
			}
			for _, p := range best[:r.IntN(len(best)+1)] {
				e.History = append(e.History, p.ID)
			}
		}
		for range rapid.SampledFrom([]int{0, 20, 1000}).Draw(t, "banned") {
			e.Banned.Add(uint32(r.IntN(labels)))
		}
		s, err := sample.New(l, nil, o)
		if err != nil {
			t.Fatal(err)
		}
		token, err := s.Draw(h, e)
		if err != nil {
			t.Fatal(err)
		}
		want := definition(l, h, o, e)
		found, ok := s.Distribution(nil)
		if !ok { // a nucleus in front, drawn from another way: TestDrawsByIntervalsHaveTheDistribution
			t.Skip("no distribution")
		}
		kept := 0
		for _, p := range found {
			if kept++; !(math.Abs(math.Exp(p.Logit)-want[p.ID]) < 1e-9) {
				t.Fatalf("%+v: found label %d of the probability %v, expected %v", o, p.ID, math.Exp(p.Logit), want[p.ID])
			}
		}
		order := []uint32{}
		for id, p := range want {
			if p > 0 {
				order = append(order, uint32(id))
			}
		}
		if len(order) != kept {
			t.Fatalf("%+v: found %d labels, expected %d", o, kept, len(order))
		}
		at := rand.New(rand.NewPCG(o.Seed, 0x6c3273)).Float64()
		if o.Temperature == 0 {
			if token.ID != order[0] {
				t.Fatalf("%+v: found label %d, expected %d", o, token.ID, order[0])
			}
			return
		}
		rank := map[uint32]int{}
		for i, p := range found { // equal logits have the order of the search
			rank[p.ID] = i
		}
		sort.Slice(order, func(i, j int) bool { return rank[order[i]] < rank[order[j]] })
		before := 0.0
		for _, id := range order {
			if id == token.ID {
				break
			}
			before += want[id]
		}
		if after := before + want[token.ID]; at < before-1e-9 || at > after+1e-9 {
			t.Fatalf("%+v: found label %d, from %v to %v, expected the one at %v", o, token.ID, before, after, at)
		}
	})
}
