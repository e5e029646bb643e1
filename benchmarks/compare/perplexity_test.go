package main

import (
	"context"
	"math"
	"reflect"
	"testing"

	"github.com/learning-to-screen/l2s/benchmarks/internal/measure"
	"github.com/learning-to-screen/l2s/benchmarks/internal/methods"
	"github.com/learning-to-screen/l2s/benchmarks/internal/perplexity"
	"github.com/learning-to-screen/l2s/benchmarks/internal/points"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/tests/synthetic"
	"github.com/learning-to-screen/l2s/train"
)

func TestTheFastestSettingThatIsPreciseEnoughIsChosen(t *testing.T) {
	c := func(name string, p5, us float64) *contestant {
		return &contestant{method: fake{name: name}, p5: p5, turn: &measure.Turn{Micros: []float64{us}}}
	}
	slow, fast, poor, worse := c("A", 0.99, 20), c("A", 0.98, 10), c("A", 0.5, 1), c("A", 0.4, 0.5)
	other := c("B", 1, 0.1)
	for _, x := range []struct {
		list []*contestant
		want *contestant
	}{
		{[]*contestant{slow, fast, poor, other}, fast},
		{[]*contestant{poor, other, fast, slow}, fast},
		{[]*contestant{worse, poor, other}, poor},
		{[]*contestant{poor, worse}, poor},
		{[]*contestant{other}, nil},
	} {
		if got := chosen(x.list, "A"); got != x.want {
			t.Errorf("chose %+v, want %+v", got, x.want)
		}
	}
}

func TestThePerplexitiesOfALayer(t *testing.T) {
	d := synthetic.Structured(300, 16, 12, 2000, 1)
	text := &perplexity.Text{Name: "made", Layer: d.Exact, Contexts: d.Contexts[:500*16]}
	s, best := exact.NewSearcher(d.Exact), make([]exact.Prediction, 1)
	for i := range 500 {
		if _, err := s.TopK(best, d.Context(i)); err != nil {
			t.Fatal(err)
		}
		text.Next = append(text.Next, best[0].ID)
	}
	labels, err := train.Labels(context.Background(), d.Layer, d.Contexts, topK, train.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	in := &methods.Input{Layer: d.Exact, Contexts: d.Contexts, Labels: labels, K: topK, Seed: 1}
	var list []*contestant
	for _, m := range []methods.Method{methods.FGD{M: 8, EfConstruction: 40}, methods.AdaptiveSoftmax{Cutoffs: []int{50}}, methods.L2S{}} {
		x, err := m.Build(context.Background(), in)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, &contestant{method: m, setting: x.Settings()[len(x.Settings())-1], p5: 1, turn: &measure.Turn{Micros: []float64{1}}})
	}
	table, err := perplexities(context.Background(), text, d.Contexts[500*16:], list, 4, 1, sweeps[points.Quick], 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i, r := range table {
		names = append(names, r.Method)
		want := 4
		if i == 0 || i == len(table)-1 { // the layer, and the tail of the screen
			want = 0
		}
		if r.Rank != want {
			t.Errorf("%s: rank %d, want %d", r.Method, r.Rank, want)
		}
		// The next word is always among the best, which all of them score exactly.
		if off := r.Perplexity / table[0].Perplexity; off < 0.5 || off > 2 {
			t.Errorf("%s: perplexity %v, where the exact one is %v", r.Method, r.Perplexity, table[0].Perplexity)
		}
	}
	// The regression is nearer to the truth than a tail of rank 4.
	exact, lowRank, regression := table[0].Perplexity, table[len(table)-2].Perplexity, table[len(table)-1].Perplexity
	if off := math.Abs(math.Log(regression / exact)); off > 0.02 || off > math.Abs(math.Log(lowRank/exact)) {
		t.Errorf("perplexity %v with the regression, %v with low rank, %v by the layer, want the regression within 2%% and nearer", regression, lowRank, exact)
	}
	if want := []string{"Exact", "SVD-softmax", "Adaptive-softmax", "FGD", "l2s", "l2s, with its tail"}; !reflect.DeepEqual(names, want) {
		t.Errorf("rows %v, want %v", names, want)
	}
}
