package train

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
)

// A bound leaves the best labels in each set, and gives to other sets what the largest
// ones may not have.
func TestBoundedSetsHoldTheBestLabelsOfTheirCluster(t *testing.T) {
	s, _ := clustersOf(t, 3000, 5)
	d := newTestData(t, s, 5)
	c := &clusters{levels{clusters: 4}, make([]float32, 4*s.dim), make([]uint32, d.n), nil}
	for i := range c.cluster {
		c.cluster[i] = uint32(i % 13 / 4) // clusters of three sizes
	}
	for _, geometry := range []float64{0, 20} {
		opt := SetOptions{Geometry: geometry, Always: []uint32{2, 9}}
		choose := func(largest int) *ranking {
			opt.Largest = largest
			sets, err := chooseSets(t.Context(), d, s.layer, c, &opt, 40)
			if err != nil {
				t.Fatal(err)
			}
			return sets.ranked
		}
		free := choose(0)
		all := free.take(float64(s.layer.Labels())).sets // every label of worth
		for _, largest := range []int{5, 41, 60, s.layer.Labels()} {
			bounded := choose(largest)
			for _, budget := range []float64{5, 40} {
				sets, before := bounded.take(budget), free.take(budget)
				cut := 0
				for i, set := range sets.sets {
					if len(set) > largest {
						t.Errorf("geometry %v, largest %d, budget %v: set %d has %d labels", geometry, largest, budget, i, len(set))
					}
					if n := len(before.sets[i]); n > largest {
						cut += n - largest
					} else if len(set) < n {
						t.Errorf("geometry %v, largest %d, budget %v: set %d has %d labels, expected at least %d, as without a bound", geometry, largest, budget, i, len(set), n)
					}
					for _, id := range set {
						if _, ok := slices.BinarySearch(all[i], id); !ok {
							t.Errorf("geometry %v, largest %d: label %d of set %d is none of the labels of worth", geometry, largest, id, i)
						}
					}
				}
				if cut == 0 && !slices.EqualFunc(sets.sets, before.sets, slices.Equal) {
					t.Errorf("geometry %v, largest %d, budget %v: the sets differ, though none was larger", geometry, largest, budget)
				}
				if sets.mean > budget {
					t.Errorf("geometry %v, largest %d: found L-bar %v above the budget %v", geometry, largest, sets.mean, budget)
				}
			}
		}
	}
}

// No set of a screen is larger than Largest, whatever kind of set it is, and the budget
// is used as far as without the bound.
func TestRunBoundsEverySet(t *testing.T) {
	s, _ := clustersOf(t, 4000, 6)
	for name, change := range map[string]func(*Options){
		"learned":          func(*Options) {},
		"k-means":          func(o *Options) { o.KMeansOnly = true },
		"counts alone":     func(o *Options) { o.Geometry = 0 },
		"pairs and shells": func(o *Options) { o.ProbeShare, o.Shells = 0.4, []float64{0.4, 0.1} },
		"groups":           func(o *Options) { o.SetLevels(3, 2); o.ProbeShare = 0.3 },
		"overlap":          func(o *Options) { o.SetOverlap(6, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			o := testOptions()
			o.Clusters, o.Budget = 6, 30
			change(&o)
			largestOf := func() (largest int, mean float64) {
				m, r, err := Run(t.Context(), s.layer, s.contexts, o)
				if err != nil {
					t.Fatal(err)
				}
				for i := range m.Clusters() * (1 + len(m.Shells())) {
					largest = max(largest, len(m.Candidates(i)))
				}
				for _, p := range m.Pairs() {
					largest = max(largest, len(p.Set))
				}
				return largest, r.MeanCandidates
			}
			free, mean := largestOf()
			o.Largest = 34
			bounded, after := largestOf()
			if free <= o.Largest || bounded > o.Largest {
				t.Errorf("the largest set has %d labels, without a bound %d: expected at most %d, and more without", bounded, free, o.Largest)
			}
			if after < 0.95*mean || after > o.Budget {
				t.Errorf("found L-bar %.2f, without a bound %.2f: expected about as much, and at most %v", after, mean, o.Budget)
			}
		})
	}
}

// The screens of several budgets are those of each budget alone, and a tight bound leaves
// no budget unused: pairs and shells get what the largest sets may not have.
func TestBoundedScreensDoNotDependOnOtherBudgets(t *testing.T) {
	// Some clusters of contexts are narrow and others wide, so that sets differ in size.
	const labels, dim, n = 1200, 12, 3000
	r := rand.New(rand.NewPCG(4, 1))
	normal := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	layer, err := softmax.NewLayer(kernels.Float32Rows(normal(labels*dim), dim), nil)
	if err != nil {
		t.Fatal(err)
	}
	centres, contexts := normal(8*dim), normal(n*dim)
	for i := range contexts {
		c := i / dim % 8
		contexts[i] = centres[c*dim+i%dim] + float32(0.1*float64(1+c*c/4))*contexts[i]
	}
	o := testOptions()
	o.Clusters, o.KMeansOnly, o.Measure = 12, true, false
	o.Budget, o.Largest, o.ProbeShare = 40, 40, 0.5
	for name, shells := range map[string][]float64{"pairs": nil, "pairs and shells": {0.4, 0.1}} {
		t.Run(name, func(t *testing.T) {
			o.Shells = shells
			alone, record, err := Run(t.Context(), layer, contexts, o)
			if err != nil {
				t.Fatal(err)
			}
			if record.MeanCandidates < 0.95*o.Budget {
				t.Errorf("found L-bar %.1f, expected nearly the budget, %v", record.MeanCandidates, o.Budget)
			}
			bound := o
			bound.Largest = 60
			one, _, err := Run(t.Context(), layer, contexts, bound)
			if err != nil {
				t.Fatal(err)
			}
			several, _, err := RunBudgets(t.Context(), layer, contexts, bound, []float64{40, 60})
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(encode(t, one), encode(t, several[0])) {
				t.Error("the screen of a budget differs if another budget stands beside it")
			}
			bound.Largest = labels // bounds nothing
			wide, _, err := Run(t.Context(), layer, contexts, bound)
			if err != nil {
				t.Fatal(err)
			}
			bound.Largest = 0
			free, _, err := Run(t.Context(), layer, contexts, bound)
			if err != nil {
				t.Fatal(err)
			}
			for i := range free.Clusters() * (1 + len(shells)) {
				if !slices.Equal(wide.Candidates(i), free.Candidates(i)) {
					t.Errorf("set %d differs with a bound of all labels", i)
				}
			}
			if !reflect.DeepEqual(wide.Pairs(), free.Pairs()) {
				t.Error("the sets of pairs differ with a bound of all labels")
			}
			if bytes.Equal(encode(t, one), encode(t, alone)) {
				t.Error("the bounds 40 and 60 give the same screen")
			}
		})
	}
}
