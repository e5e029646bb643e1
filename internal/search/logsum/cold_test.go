package logsum_test

import (
	"math"
	"testing"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/logsum"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/tests/synthetic"
	"github.com/learning-to-screen/l2s/train"
)

// At low temperatures the best labels have all the weight: a sum over allowed labels, which the exact
// layer gives, has their logits, not the centres of their intervals.
func TestColdSumsOverAllowedLabels(t *testing.T) {
	const dim, n, ask, temperature = 24, 3000, 100, 0.01
	d := synthetic.Structured(2000, dim, 30, n+ask, 1)
	opt, tails := train.DefaultOptions(), train.DefaultTailOptions()
	opt.Tail, opt.Clusters, opt.Iterations = &tails, 20, 0
	x, _, err := train.Run(t.Context(), d.Layer, l2s.Float32(d.Contexts[:n*dim], dim), opt)
	if err != nil {
		t.Fatal(err)
	}
	s, err := screening.NewSearcher((*engine.Index)(x).Screen(), d.Exact, logsum.OverTail(screening.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	allowed := bitset.New(2000)
	for id := range uint32(1500) {
		allowed.Add(id)
	}
	logits, best := make([]float64, 2000), make([]exact.Prediction, 2)
	for i := range ask {
		h := d.Context(n + i)
		d.Exact.Weights().RefScan(logits, d.Exact.Bias(), h)
		terms := make([]float64, 1500)
		for id := range terms {
			terms[id] = logits[id] / temperature
		}
		a, err := s.Search(best, h, exact.Request{LogSum: true, Temperature: temperature, Allowed: allowed})
		if err != nil {
			t.Fatal(err)
		}
		if want := kernels.LogSumExp(terms); math.Abs(a.LogSum-want) > 0.05 {
			t.Errorf("context %d: found the log-sum %v, expected %v", i, a.LogSum, want)
		}
	}
}
