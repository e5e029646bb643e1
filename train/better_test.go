package train

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/preview"
)

// The better candidate reaches the target, if either does, and is the faster one if both do. Of two
// that miss it, it is the more precise one, and of equal ones the first.
func TestTheBetterOfTwo(t *testing.T) {
	at := func(p1, pK float64, us int) Candidate {
		return Candidate{K: 5, Precision1: p1, PrecisionK: pK, Time: time.Duration(us) * time.Microsecond}
	}
	const faster, only, precise = "both reach the target, and it is faster", "only it reaches the target", "neither reaches the target, and it is more precise"
	for name, row := range map[string]struct {
		x, y   Candidate
		target float64
		first  bool
		why    string
	}{
		"the faster of two that reach it":      {at(.9996, .999, 10), at(1, 1, 20), 0, true, faster},
		"the slower of two that reach it":      {at(1, 1, 30), at(.9996, .999, 20), 0, false, faster},
		"one that is printed as the target":    {at(.99946, .99796, 10), at(1, 1, 20), 0, true, faster},
		"the only one, though slower":          {at(.9995, .998, 90), at(.977, .971, 20), 0, true, only},
		"one that misses it at the second k":   {at(1, .9, 10), at(.9995, .998, 20), 0, false, only},
		"a target of P@k only":                 {at(.5, .9, 10), at(.9995, .998, 20), .9, true, faster},
		"the more precise of two that miss it": {at(.98, .98, 90), at(.977, .971, 20), 0, true, precise},
		"the less precise of two that miss it": {at(.97, .97, 10), at(.977, .971, 20), 0, false, precise},
		"equal ones":                           {at(1, 1, 10), at(1, 1, 10), 0, true, faster},
	} {
		want := row.x
		if !row.first {
			want = row.y
		}
		if found, why := better(row.x, row.y, row.target); found != want || why != row.why {
			t.Errorf("%s: found %v and %q, expected %v and %q", name, found, why, want, row.why)
		}
	}
}

// An index pays if it takes less than half of the time of the exact search.
func TestAnIndexPays(t *testing.T) {
	for us, pays := range map[int]bool{49: true, 50: false, 120: false} {
		c := &Comparison{Candidates: []Candidate{{Precision1: 1, PrecisionK: 1, Time: time.Duration(us)}, {Precision1: 1, PrecisionK: 1, Time: 100}}}
		if c.choose(0); c.Pays != pays {
			t.Errorf("%d of 100: found that it pays: %v, expected %v", us, c.Pays, pays)
		}
	}
}

// A screen and a preview of one layer are compared with the exact search, each with the precision of
// its own file. What does not fit is refused.
func TestBetter(t *testing.T) {
	const labels, dim, n = 300, 16, 1200
	ctx, r := context.Background(), rand.New(rand.NewPCG(4, 2))
	weights, states := make([]float32, labels*dim), make([]float32, n*dim)
	for i := range weights {
		weights[i] = float32(r.NormFloat64())
	}
	for i := range states {
		states[i] = weights[i/dim%20*dim+i%dim] + float32(.3*r.NormFloat64())
	}
	contexts := l2s.Float32(states, dim)
	layer, err := l2s.New(l2s.Float32(weights, dim), nil)
	if err != nil {
		t.Fatal(err)
	}
	opt := DefaultOptions()
	opt.Clusters, opt.AnyPrecision = 20, true
	screen, _, err := Run(ctx, layer, contexts, opt)
	if err != nil {
		t.Fatal(err)
	}
	v, err := preview.Make(ctx, layer, l2s.Float32(states, layer.Dim()), preview.Options{Precision1: .1, PrecisionK: .1, LeastOwn: .01})
	if err != nil {
		t.Fatal(err)
	}
	rounds := 0
	c, err := Better(ctx, layer, contexts, []*l2s.Index{screen, v}, BetterOptions{Target: .1, Progress: func(done, of int) {
		if rounds++; done > of {
			t.Errorf("found %d of %d rounds", done, of)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Candidates) != 3 || c.Candidates[0].Index != screen || c.Candidates[1].Index != v || c.Candidates[2].Index != nil || rounds == 0 {
		t.Errorf("found %v, expected the screen, the preview and the exact search, and progress", c)
	}
	for i, x := range c.Candidates {
		if x.K != opt.K || !(x.Time > 0) {
			t.Errorf("candidate %d: found k = %d and a time of %v, expected %d and more than 0", i, x.K, x.Time, opt.K)
		}
		if x.Index == nil {
			continue
		}
		if steps, at := x.Index.Steps(); x.Precision1 != steps[at].Precision1.Value || x.PrecisionK != steps[at].PrecisionK.Value || x.Own != steps[at].Own.Value {
			t.Errorf("candidate %d: found %v, expected the figures of the file, %v", i, x, steps[at])
		}
	}
	if c.Best != c.Candidates[0] && c.Best != c.Candidates[1] || c.Why == "" {
		t.Errorf("found the best %v, because %q, expected one of the two with a reason", c.Best, c.Why)
	}

	other, err := l2s.New(l2s.Float32(weights[dim:], dim), nil)
	if err != nil {
		t.Fatal(err)
	}
	bad := append([]float32(nil), states...)
	bad[7*dim] = float32(math.NaN())
	done, stop := context.WithCancel(ctx)
	stop()
	for name, row := range map[string]struct {
		ctx      context.Context
		layer    *l2s.Layer
		contexts l2s.Matrix
		among    []*l2s.Index
		want     string
	}{
		"no index":          {ctx, layer, contexts, nil, "found no index, expected one or more"},
		"a nil index":       {ctx, layer, contexts, []*l2s.Index{screen, nil}, "index 1: found nil, expected a screen or a preview"},
		"another layer":     {ctx, other, contexts, []*l2s.Index{screen}, "index 0: "},
		"another dimension": {ctx, layer, l2s.Float32(states, 1), []*l2s.Index{screen}, "of dimension 1, expected one or more of "},
		"a context of NaN":  {ctx, layer, l2s.Float32(bad[:400*dim], dim), []*l2s.Index{screen}, "row 7: "},
		"an interrupt":      {done, layer, contexts, []*l2s.Index{screen}, context.Canceled.Error()},
	} {
		if c, err := Better(row.ctx, row.layer, row.contexts, row.among, BetterOptions{}); c != nil || err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: found %v and %v, expected an error with %q", name, c, err, row.want)
		}
	}
	if _, err := Better(done, layer, contexts, []*l2s.Index{screen}, BetterOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("found %v, expected the error of the context", err)
	}
}
