package router

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

// config has what New takes.
type config struct {
	Dim      int
	Clusters []float32
	Shells   []float64
}

// shape has the sizes of a router and of contexts.
type shape struct {
	dim, clusters, shells, contexts int
	ties                            bool
	scale                           int // contexts are times 2^scale
	seed                            uint64
}

func (s shape) make() (c config, contexts [][]float32) {
	r := rand.New(rand.NewPCG(s.seed, 1))
	numbers := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			if x[i] = float32(r.NormFloat64()); s.ties {
				x[i] = float32(r.IntN(3) - 1)
			}
		}
		return x
	}
	c = config{Dim: s.dim, Clusters: numbers(s.clusters * s.dim), Shells: s.cosines(r)}
	for range s.contexts {
		h := numbers(s.dim)
		for i := range h {
			h[i] = float32(math.Ldexp(float64(h[i]), s.scale))
		}
		contexts = append(contexts, h)
	}
	return c, contexts
}

func (s shape) cosines(r *rand.Rand) (shells []float64) {
	for range s.shells {
		shells = append(shells, r.Float64()-0.3)
	}
	slices.Sort(shells)
	slices.Reverse(shells)
	return shells
}

func drawShape(t *rapid.T) shape {
	return shape{
		dim: rapid.IntRange(1, 40).Draw(t, "dim"), clusters: rapid.IntRange(1, 30).Draw(t, "clusters"),
		shells: rapid.IntRange(0, 3).Draw(t, "shells"), contexts: rapid.IntRange(1, 9).Draw(t, "contexts"),
		ties: rapid.Bool().Draw(t, "ties"), scale: rapid.SampledFrom([]int{0, 0, 80, -80}).Draw(t, "scale"), seed: rapid.Uint64().Draw(t, "seed"),
	}
}

// find returns the expected result for a context, by plain loops.
func find(c config, h []float32) (f Found) {
	product := func(t int) float64 { return kernels.RefDot(c.Clusters[t*c.Dim:(t+1)*c.Dim], h) }
	f = Found{Cosine: 1}
	for t := range len(c.Clusters) / c.Dim {
		if product(t) > product(f.Cluster) {
			f.Cluster = t
		}
	}
	v := c.Clusters[f.Cluster*c.Dim : (f.Cluster+1)*c.Dim]
	if lengths := math.Sqrt(kernels.RefDot(v, v)) * math.Sqrt(kernels.RefDot(h, h)); lengths > 0 {
		f.Cosine = product(f.Cluster) / lengths
	}
	return f
}

// cellOf is the cell of a context by the words of Router.
func cellOf(c config, f Found) int {
	shell := 0
	for _, cut := range c.Shells {
		if f.Cosine < cut {
			shell++
		}
	}
	return shell*(len(c.Clusters)/c.Dim) + f.Cluster
}

func newRouter(t interface{ Fatal(...any) }, c config) *Router {
	r, err := New(c.Dim, c.Clusters, c.Shells)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func queries(t interface{ Fatal(...any) }, contexts [][]float32) (qs []*exact.Query) {
	for _, h := range contexts {
		q := exact.NewQuery(len(h))
		if err := q.Set(h); err != nil {
			t.Fatal(err)
		}
		qs = append(qs, q)
	}
	return qs
}

// A router finds the best clusters of contexts, for one as for many, and their cells.
func checkCells(t *rapid.T) {
	c, contexts := drawShape(t).make()
	r := newRouter(t, c)
	n := len(c.Clusters) / c.Dim
	if r.Clusters() != n || r.Cells() != n*(1+len(c.Shells)) {
		t.Fatalf("found %d clusters, %d cells", r.Clusters(), r.Cells())
	}
	s, found, qs := r.NewSearcher(), make([]Found, len(contexts)), queries(t, contexts)
	if err := s.Find(found, qs, true); err != nil {
		t.Fatal(err)
	}
	for i, h := range contexts {
		var one [1]Found
		if err := s.Find(one[:], qs[i:i+1], true); err != nil {
			t.Fatal(err)
		}
		if want := find(c, h); found[i] != want || one[0] != want {
			t.Fatalf("context %d: found %+v among many, %+v alone, expected %+v", i, found[i], one[0], want)
		}
		cell := r.Cell(found[i])
		if want := cellOf(c, found[i]); cell != want {
			t.Fatalf("context %d: found cell %d, expected %d", i, cell, want)
		}
		if of := r.ClusterOf(cell); of != found[i].Cluster {
			t.Fatalf("context %d: found cell %d to be of cluster %d, expected %d", i, cell, of, found[i].Cluster)
		}
	}
}

func TestCellsAreTheirDefinition(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) { rapid.Check(t, checkCells) })
}

// Find finds the cell, and the cosine if the caller wants it. The bits are the same for one context
// by the short path, for which its query has room, by the long path, and among other contexts.
func TestFindFindsWhatIsNeeded(t *testing.T) {
	check := func(t *rapid.T) {
		shape := drawShape(t)
		c, contexts := shape.make()
		if rapid.Bool().Draw(t, "contexts on the borders of shells") {
			for i, h := range contexts[:min(len(c.Shells), len(contexts))] {
				if x := find(c, h).Cosine; x > -1 && x < 1 {
					c.Shells[i] = x
				}
			}
			slices.Sort(c.Shells)
			slices.Reverse(c.Shells)
			c.Shells = slices.Compact(c.Shells)
		}
		r := newRouter(t, c)
		room, without := queries(t, contexts), queries(t, contexts)
		for i, q := range room {
			q.Reserve(r.Clusters())
			if err := q.Set(contexts[i]); err != nil {
				t.Fatal(err)
			}
		}
		s := r.NewSearcher()
		for i, h := range contexts {
			want := find(c, h)
			wantCell := cellOf(c, want)
			for _, cosine := range []bool{false, true} {
				for _, qs := range [][]*exact.Query{room[i : i+1], without[i : i+1], without} {
					found := make([]Found, len(qs))
					if err := s.Find(found, qs, cosine); err != nil {
						t.Fatal(err)
					}
					f := found[0]
					if len(qs) > 1 {
						f = found[i]
					}
					if cell := r.Cell(f); cell != wantCell || f.Cluster != want.Cluster {
						t.Fatalf("cosine %v: found %+v in cell %d, expected %+v in cell %d", cosine, f, cell, want, wantCell)
					}
					if cosine && f != want {
						t.Fatalf("found %+v, expected %+v", f, want)
					}
				}
			}
		}
	}
	simdtest.EachLevel(t, func(t *testing.T) { rapid.Check(t, check) })
}

// Bounds tell the shell of most contexts, without the cosine.
func TestBoundsTellTheShell(t *testing.T) {
	c, contexts := shape{dim: 24, clusters: 64, contexts: 200, shells: 2}.make()
	simdtest.EachLevel(t, func(t *testing.T) {
		r, told := newRouter(t, c), 0
		s := r.NewSearcher()
		for i, q := range queries(t, contexts) {
			q.Reserve(r.Clusters())
			if err := q.Set(contexts[i]); err != nil {
				t.Fatal(err)
			}
			var one [1]Found
			if err := s.Find(one[:], []*exact.Query{q}, false); err != nil {
				t.Fatal(err)
			}
			if want := find(c, contexts[i]); one[0].Cosine != want.Cosine {
				told++
			}
		}
		if told < len(contexts)/2 {
			t.Errorf("found the cosine of all but %d contexts, expected of fewer than half of %d", told, len(contexts))
		}
	})
}

// Among vectors too long for codes the longer way is the only one.
func TestLongVectorsAreFoundByTheLongerWay(t *testing.T) {
	c, contexts := shape{dim: 3, clusters: 20, contexts: 3}.make()
	for i := range c.Clusters {
		c.Clusters[i] *= 0x1p41
	}
	r := newRouter(t, c)
	found := make([]Found, 3)
	if err := r.NewSearcher().Find(found, queries(t, contexts), true); err != nil {
		t.Fatal(err)
	}
	if r.packed != nil {
		t.Error("found packed vectors, expected none")
	}
	for i, h := range contexts {
		if want := find(c, h); found[i] != want {
			t.Errorf("found %+v, expected %+v", found[i], want)
		}
		q := queries(t, contexts[i:i+1])
		q[0].Reserve(r.Clusters())
		if err := q[0].Set(h); err != nil {
			t.Fatal(err)
		}
		var one [1]Found
		if err := r.NewSearcher().Find(one[:], q, false); err != nil || one[0].Cluster != found[i].Cluster {
			t.Errorf("found %+v, %v by a query with room, expected %+v", one[0], err, found[i])
		}
	}
}

// With gives the vectors other shells, and does not change the first router.
func TestWithKeepsTheVectors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawShape(t)
		b := a
		b.shells = rapid.IntRange(0, 3).Draw(t, "other shells")
		c, contexts := a.make()
		r := newRouter(t, c)
		other := b.cosines(rand.New(rand.NewPCG(b.seed, 2)))
		with, err := r.With(other)
		if err != nil {
			t.Fatal(err)
		}
		if &with.Vectors()[0] != &r.Vectors()[0] || !slices.Equal(r.Vectors(), c.Clusters) {
			t.Fatal("found other vectors, expected the same memory")
		}
		changed := c
		changed.Shells = other
		found := make([]Found, len(contexts))
		if err := with.NewSearcher().Find(found, queries(t, contexts), true); err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			for _, x := range []struct {
				r *Router
				c config
			}{{r, c}, {with, changed}} {
				cell := x.r.Cell(f)
				if want := cellOf(x.c, f); cell != want {
					t.Fatalf("found cell %d, expected %d", cell, want)
				}
			}
		}
		if shells := with.Shells(); !slices.Equal(shells, other) {
			t.Fatalf("found the shells %v, expected %v", shells, other)
		}
	})
}

// A cosine on a cut is in the nearer shell.
func TestBordersOfShells(t *testing.T) {
	r := newRouter(t, config{Dim: 1, Clusters: []float32{1, 2, 3}, Shells: []float64{0.5, -0.5}})
	for _, c := range []struct {
		name string
		f    Found
		cell int
	}{
		{"on the vector", Found{Cluster: 1, Cosine: 1}, 1},
		{"on a cut", Found{Cluster: 1, Cosine: 0.5}, 1},
		{"below it", Found{Cluster: 1, Cosine: 0.4999}, 4},
		{"below both", Found{Cluster: 2, Cosine: -0.6}, 8},
	} {
		if cell := r.Cell(c.f); cell != c.cell {
			t.Errorf("%s: found cell %d, expected %d", c.name, cell, c.cell)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	x := func(n int) []float32 { return make([]float32, n) }
	nan := x(4)
	nan[3] = float32(math.NaN())
	for _, c := range []struct {
		name   string
		config config
		want   string
	}{
		{"no dimension", config{Clusters: x(2)}, "dim: found 0, expected at least 1"},
		{"no cluster", config{Dim: 2}, "clusters: found 0 elements, expected a positive multiple of dim 2"},
		{"part of a cluster", config{Dim: 2, Clusters: x(3)}, "clusters: found 3 elements, expected a positive multiple of dim 2"},
		{"a cluster that is not finite", config{Dim: 2, Clusters: nan}, "clusters: found NaN at row 1, column 1, expected finite numbers"},
		{"too many shells", config{Dim: 2, Clusters: x(4), Shells: make([]float64, 17)}, "shells: found 17 cosines, expected at most 16"},
		{"a cosine of 1", config{Dim: 2, Clusters: x(4), Shells: []float64{1}}, "shells: found cosine 1 at position 0, expected descending numbers above -1 and below 1"},
		{"a cosine of -1", config{Dim: 2, Clusters: x(4), Shells: []float64{0, -1}}, "shells: found cosine -1 at position 1, expected descending"},
		{"a cosine of NaN", config{Dim: 2, Clusters: x(4), Shells: []float64{math.NaN()}}, "shells: found cosine NaN at position 0, expected descending"},
		{"a cosine twice", config{Dim: 2, Clusters: x(4), Shells: []float64{0.5, 0.5}}, "shells: found cosine 0.5 at position 1, expected descending"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if r, err := New(c.config.Dim, c.config.Clusters, c.config.Shells); err == nil || r != nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestFindRefusesAnotherDimension(t *testing.T) {
	r := newRouter(t, config{Dim: 2, Clusters: make([]float32, 4)})
	if err := r.NewSearcher().Find(make([]Found, 1), queries(t, [][]float32{{1, 2, 3}}), true); err == nil {
		t.Error("found no error for a context of three elements, expected one")
	}
}

func TestRoutingDoesNotAllocate(t *testing.T) {
	c, contexts := shape{dim: 24, clusters: 64, contexts: 20, shells: 2}.make()
	flat := c
	flat.Shells = nil
	for name, c := range map[string]config{"flat": flat, "shells": c} {
		r := newRouter(t, c)
		s, qs, found := r.NewSearcher(), queries(t, contexts), make([]Found, 2)
		one, q := make([]Found, 1), []*exact.Query{exact.NewQuery(c.Dim)}
		q[0].Reserve(r.Clusters())
		at := 0
		query := func() {
			at = (at + 2) % 20
			if err := s.Find(found, qs[at:at+2], true); err != nil {
				t.Fatal(err)
			}
			if err := q[0].Set(contexts[at]); err != nil {
				t.Fatal(err)
			}
			if err := s.Find(one, q, false); err != nil {
				t.Fatal(err)
			}
			if cell, want := r.Cell(one[0]), r.Cell(found[0]); cell != want {
				t.Fatal(cell, want)
			}
		}
		for range 20 {
			query()
		}
		if n := simdtest.AllocsPerRun(100, query); n != 0 {
			t.Errorf("%s: found %v allocations, want 0", name, n)
		}
	}
}
