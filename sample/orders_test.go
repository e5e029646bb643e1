package sample_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sort"
	"testing"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
	"github.com/learning-to-screen/l2s/internal/tests/synthetic"
	"github.com/learning-to-screen/l2s/sample"
	"github.com/learning-to-screen/l2s/train"
)

// everyOrder returns the orders of all processors: the temperature and the truncations in each of
// their 24 orders, after the biases and then the penalties, and after the penalties and then the
// biases. The place of the mask among the edits changes nothing.
func everyOrder() (all [][]sample.Step) {
	var extend func(done, rest []sample.Step)
	extend = func(done, rest []sample.Step) {
		if len(rest) == 0 {
			all = append(all, done)
		}
		for i, s := range rest {
			extend(append(slices.Clone(done), s), slices.Delete(slices.Clone(rest), i, i+1))
		}
	}
	later := []sample.Step{sample.Temperature, sample.TopK, sample.TopP, sample.MinP}
	extend([]sample.Step{sample.Mask, sample.Bias, sample.Penalties}, later)
	extend([]sample.Step{sample.Penalties, sample.Mask, sample.Bias}, later)
	return all
}

// crossed is a layer, a context and edits, each of which changes the distribution.
func crossed(t *testing.T) (l *l2s.Layer, h []float32, e sample.Edits) {
	const labels, dim = 40, 8
	l = newLayer(t, 1, labels, dim)
	h = normals(newRand(2), dim, 1.1)
	x, best := make([]float64, labels), make([]uint32, labels)
	(*engine.Layer)(l).Exact().Weights().RefScan(x, (*engine.Layer)(l).Exact().Bias(), h)
	for id := range best {
		best[id] = uint32(id)
	}
	sort.Slice(best, func(i, j int) bool { return x[best[i]] > x[best[j]] })
	return l, h, sample.Edits{
		Banned:  setOf(labels, best[1]),
		Biases:  []l2s.Bias{{ID: best[2], Add: 1.2}, {ID: best[30], Add: 6.5}, {ID: best[39], Add: 10}}, // far ones to the front
		History: []uint32{best[2], best[0], best[0], best[3], best[30], best[39]},
	}
}

// settings are chosen such that in every order each processor, and its place, matters in
// one of them: a truncation leaves others nothing to cut in some orders.
var settings = []struct {
	topK                    int
	topP, minP, temperature float64
}{{10, 0.75, 0.2, 1.6}, {6, 0.85, 0.15, 0.6}, {12, 0.5, 0.1, 1.6}, {5, 0.9, 0.04, 0.6}, {12, 0.85, 0.3, 0.6}}

// variation is the total variation of two distributions.
func variation(p, q []float64) float64 {
	sum := 0.0
	for i := range p {
		sum += math.Abs(p[i] - q[i])
	}
	return sum / 2
}

// swapped returns the order with two neighbours exchanged. It reports false if that changes no
// distribution.
func swapped(order []sample.Step, i int) (_ []sample.Step, matters bool) {
	order = slices.Clone(order)
	a, b := order[i], order[i+1]
	order[i], order[i+1] = b, a
	switch {
	case a == sample.Mask || b == sample.Mask:
		return order, false
	case a <= sample.Penalties && b > sample.Penalties: // the edits come first
		return order, false
	case a == sample.TopK || b == sample.TopK:
		return order, a == sample.TopP || b == sample.TopP
	}
	return order, true
}

// Every processor acts, in its place, in every order, over a layer and over a screen.
func TestDrawsInEveryOrderHaveTheDistribution(t *testing.T) {
	simdtest.Long(t)
	const far = 0.03 // a total variation that the probabilities of tokens show
	n := max(draws()/20, 1000)
	near := 0.01 + 1.5/math.Sqrt(float64(n))
	l, h, e := crossed(t)
	m := screenNear(t, l, h, 36)
	for _, order := range everyOrder() {
		left, moved := make([]float64, len(order)), make([]float64, len(order)) // the largest changes
		for i, set := range settings {
			o := sample.DefaultOptions()
			o.TopK, o.TopP, o.MinP, o.Temperature = set.topK, set.topP, set.minP, set.temperature
			o.Order, o.Repetition, o.Presence, o.Frequency, o.Seed = order, 1.4, 0.4, 0.3, 3
			want := definition(l, h, o, e)
			other := func(order []sample.Step) float64 {
				o := o
				o.Order = order
				return variation(want, definition(l, h, o, e))
			}
			for _, without := range []sample.Options{
				{Repetition: 1, Presence: o.Presence, Frequency: o.Frequency}, {Repetition: o.Repetition, Frequency: o.Frequency}, {Repetition: o.Repetition, Presence: o.Presence},
			} {
				other := o
				other.Repetition, other.Presence, other.Frequency = without.Repetition, without.Presence, without.Frequency
				if variation(want, definition(l, h, other, e)) < far {
					t.Errorf("%v, setting %d: does not show whether every penalty acts", order, i)
				}
			}
			for i := range order {
				left[i] = max(left[i], other(slices.Delete(slices.Clone(order), i, i+1)))
				if i+1 < len(order) {
					swap, _ := swapped(order, i)
					moved[i] = max(moved[i], other(swap))
				}
			}
			for _, over := range []struct {
				name   string
				make   func() (*sample.Sampler, error)
				within float64 // of a log-probability
			}{
				{"layer", func() (*sample.Sampler, error) { return sample.New(l, nil, o) }, 1e-9},
				{"screen", func() (*sample.Sampler, error) { return sample.New(l, m, o) }, 1e-3},
			} {
				t.Run(fmt.Sprint(over.name, order, i), func(t *testing.T) {
					s, err := over.make()
					if err != nil {
						t.Fatal(err)
					}
					drawn := make([]float64, l.Labels())
					for range n {
						token, err := s.Draw(h, e)
						if err != nil {
							t.Fatal(err)
						}
						drawn[token.ID] += 1 / float64(n)
						if want := math.Log(want[token.ID]); !(math.Abs(token.LogProb-want) <= over.within) {
							t.Fatalf("found %+v, expected a log-probability of %v", token, want)
						}
					}
					if d := variation(drawn, want); d > near {
						t.Errorf("the draws are %.3f away from the distribution, expected at most %.3f", d, near)
					}
					if over.name == "screen" && s.Stats().Layer > 0 {
						t.Errorf("stats %+v, expected that the screen answers", s.Stats())
					}
				})
			}
		}
		for i, step := range order {
			if left[i] < far {
				t.Errorf("%v: no setting shows whether %v acts", order, step)
			}
			if i+1 < len(order) {
				if _, matters := swapped(order, i); matters && moved[i] < far {
					t.Errorf("%v: no setting shows which of %v and %v comes first", order, step, order[i+1])
				}
			}
		}
	}
}

// Over a screen whose set has the labels that a truncation keeps, every processor gives the
// distribution of its definition, in every order that other programs use.
func TestTruncationsOverAScreenHaveTheDistribution(t *testing.T) {
	simdtest.Long(t)
	l, h, _ := crossed(t)
	m := screenNear(t, l, h, 36)
	for _, order := range orders {
		for _, c := range configurations(l.Labels()) {
			o := sample.DefaultOptions()
			o.Order, o.Seed, o.TopP = order.steps, 3, 0.93
			c.change(&o)
			t.Run(order.name+"/"+c.name, func(t *testing.T) {
				s, err := sample.New(l, m, o)
				st := follow(t, s, err, l, h, o, c.edits)
				if asked := c.edits.Allowed != nil || o.Temperature > 2 || o.Typical < 1 && o.TopK == 0; !asked && st.Layer > 0 {
					t.Errorf("stats %+v, expected that the screen answers", st)
				}
			})
		}
	}
}

// screenNear returns a screen of one cluster, whose set holds the labels best of h, with a tail
// that contexts near h have fitted.
func screenNear(t *testing.T, l *l2s.Layer, h []float32, labels int) *l2s.Index {
	t.Helper()
	best := make([]l2s.Prediction, labels)
	if _, err := exactly(t, l).TopK(best, h); err != nil {
		t.Fatal(err)
	}
	c := screening.Config{Dim: l.Dim(), Labels: l.Labels(), Clusters: h, Lists: make([]screening.List, 1)}
	for _, p := range best {
		c.Lists[0].IDs = append(c.Lists[0].IDs, p.ID)
	}
	slices.Sort(c.Lists[0].IDs)
	m, err := synthetic.Screen(c)
	if err != nil {
		t.Fatal(err)
	}
	contexts := normals(newRand(6), 1000*l.Dim(), 0.2)
	for i := range contexts {
		contexts[i] += h[i%l.Dim()]
	}
	opt := train.DefaultTailOptions()
	opt.Temperatures, opt.Share, opt.PerCluster = []float64{0.6, 1, 1.6}, 1, 3000
	fitted, _, err := train.FitTail(context.Background(), l, m, contexts, opt, train.RunOptions{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	return fitted
}
