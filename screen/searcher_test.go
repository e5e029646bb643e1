package screen_test

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/simd"
	"github.com/learning-to-screen/l2s/internal/simdtest"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// checkScreened is what a screen promises. The answer is the best of the
// candidate set; it equals the full layer's, ids and logits, whenever the
// true labels are in the set; and the share of true labels that it finds is
// the share of them in the set.
func checkScreened(t *rapid.T) {
	in := drawHardShape(t).instance(t)
	k := rapid.IntRange(1, in.config.Labels).Draw(t, "k")
	usual, short := in.searcher(t), in.searcher(t, screen.Short())
	for i := range in.n {
		h := in.context(i)
		cluster := in.cluster(h)
		if got, err := usual.Cluster(h); err != nil || got != cluster {
			t.Fatalf("context %d: cluster %d, %v, want %d", i, got, err, cluster)
		}
		f, truth := in.find(h), in.truth(h, k)
		set := f.set
		if f.exact {
			if got := topK(t, short, k, h); !slices.Equal(got, truth) {
				t.Fatalf("context %d: got %v, want those of the exact layer, %v", i, got, truth)
			}
			continue
		}
		inside := common(truth, set)

		got := topK(t, short, k, h)
		if want := in.ranked(h, set); !slices.Equal(got, want[:min(k, len(want))]) {
			t.Fatalf("context %d: got %v, want the best %d of %v", i, got, k, want)
		}
		if inside == k && !slices.Equal(got, truth) {
			t.Fatalf("context %d: all true labels are in the set: got %v, want %v", i, got, truth)
		}
		if found := common(truth, idsOf(got)); found != inside {
			t.Fatalf("context %d: found %d of %d true labels, %d are in the set", i, found, k, inside)
		}
		if len(set) < k {
			if got := topK(t, usual, k, h); !slices.Equal(got, truth) {
				t.Fatalf("context %d: %d candidates: got %v, want those of the exact layer, %v", i, len(set), got, truth)
			}
		} else if again := topK(t, usual, k, h); !slices.Equal(again, got) {
			t.Fatalf("context %d: %v with Short, %v without", i, got, again)
		}
	}
}

func TestScreenedTopKIsTheFullTopKWithinTheSet(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) { rapid.Check(t, checkScreened) })
}

// A context is counted once: as answered by the exact layer, or from the set of one
// cluster, or from those of two.
func TestStatsCountHowAContextIsAnswered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawHardShape(t).instance(t)
		k := rapid.IntRange(1, in.config.Labels).Draw(t, "k")
		s := in.searcher(t)
		var want screen.Stats
		for i := range in.n {
			f := in.find(in.context(i))
			topK(t, s, k, in.context(i))
			want.Queries++
			want.Routing += uint64(f.rows)
			want.Candidates += uint64(len(f.set))
			switch {
			case f.exact || len(f.set) < k:
				want.Exact++
			case f.both:
				want.Probes++
			}
			if got := s.Stats(); got != want {
				t.Fatalf("context %d: found %+v, expected %+v", i, got, want)
			}
		}
	})
}

func FuzzScreenedTopK(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkScreened)) }

func TestAnswersHaveTheSameBitsOnEveryLevel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawHardShape(t).instance(t)
		k := rapid.IntRange(1, in.config.Labels).Draw(t, "k")
		var first string
		for _, level := range simd.Available() {
			restore := simd.Set(level)
			s := in.searcher(t)
			got := ""
			for i := range in.n {
				h := in.context(i)
				for _, p := range topK(t, s, k, h) {
					got += fmt.Sprintf("%d %x ", p.ID, math.Float64bits(p.Logit))
				}
				ids, logp, err := s.LogProbs(nil, h)
				if err != nil {
					t.Fatal(err)
				}
				for j, x := range logp {
					got += fmt.Sprintf("%d %x ", ids[j], math.Float64bits(x))
				}
				one, err := s.LogProb(h, uint32(i%in.config.Labels))
				if err != nil {
					t.Fatal(err)
				}
				sum, err := s.LogPartition(h)
				if err != nil {
					t.Fatal(err)
				}
				got += fmt.Sprintf("%x %x ", math.Float64bits(one), math.Float64bits(sum))
			}
			restore()
			if first == "" {
				first = got
			}
			if got != first {
				t.Fatalf("%s: %s\nwant %s", level, got, first)
			}
		}
	})
}

// checkLogProbs compares with a softmax in plain float64, and the sum with 1.
func checkLogProbs(t *rapid.T) {
	in := drawShape(t).instance(t)
	d := in.config.Dim
	for _, s := range []struct {
		*screen.Searcher
		tolerance float64
	}{{in.searcher(t), 1e-11}, {in.searcher(t, screen.Float32()), 1e-3}} {
		var buf []float64
		for i := range in.n {
			h := in.context(i)
			cluster, err := s.Cluster(h)
			if err != nil {
				t.Fatal(err)
			}
			ids, logp, err := s.LogProbs(buf, h)
			if err != nil {
				t.Fatal(err)
			}
			buf = logp
			want := in.candidates(cluster)
			if in.config.ProbeMargin > 0 {
				want = in.find(h).wide
			}
			if !slices.Equal(ids, want) || len(logp) != len(want) {
				t.Fatalf("context %d: ids %v and %d values, want ids %v", i, ids, len(logp), want)
			}
			logits, sum := make([]float64, len(ids)), 0.0
			for j, id := range ids {
				logits[j] = float64(in.layer.Bias()[id])
				for e := range h {
					logits[j] += float64(in.layer.Weights()[int(id)*d+e]) * float64(h[e])
				}
				sum += math.Exp(logits[j])
			}
			total := 0.0
			for j := range ids {
				total += math.Exp(logp[j])
				if want := logits[j] - math.Log(sum); math.Abs(logp[j]-want) > s.tolerance {
					t.Fatalf("context %d, id %d: %v, want %v", i, ids[j], logp[j], want)
				}
			}
			if len(ids) > 0 && math.Abs(total-1) > 1e-12 {
				t.Fatalf("context %d: probabilities of the set sum to %v", i, total)
			}
		}
	}
}

func TestLogProbsAreTheSoftmaxOverTheSet(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) { rapid.Check(t, checkLogProbs) })
}

func TestLogProbsUseTheMemoryGiven(t *testing.T) {
	in := ordinary(t)
	s := in.searcher(t)
	dst := make([]float64, 0, in.model.LargestSet())
	_, logp, err := s.LogProbs(dst, in.context(0))
	if err != nil {
		t.Fatal(err)
	}
	if &logp[0] != &dst[:1][0] {
		t.Error("other memory, although dst has room for the largest set")
	}
	if _, logp, err = s.LogProbs(nil, in.context(0)); err != nil || len(logp) == 0 {
		t.Errorf("without memory: %d values, %v", len(logp), err)
	}
}

// checkFloat32 bounds what Float32 may differ by: each logit by the rounding
// of its sum, the choice by no more than near-ties.
func checkFloat32(t *rapid.T) {
	s := drawShape(t)
	s.clusters, s.groups = 1, min(s.groups, 1) // the choice of the cluster itself may fall either way
	in := s.instance(t)
	k := rapid.IntRange(1, in.config.Labels).Draw(t, "k")
	searcher := in.searcher(t, screen.Float32())
	d := in.config.Dim
	for i := range in.n {
		h := in.context(i)
		got := topK(t, searcher, k, h)
		want := in.truth(h, k)
		if set := in.candidates(0); len(set) >= k {
			want = in.ranked(h, set)[:k]
		}
		for j, p := range got {
			size, exact := math.Abs(float64(in.layer.Bias()[p.ID])), in.ranked(h, []uint32{p.ID})[0].Logit
			for e := range h {
				size += math.Abs(float64(in.layer.Weights()[int(p.ID)*d+e]) * float64(h[e]))
			}
			tolerance := float64(d+2) * 0x1p-24 * size
			if math.Abs(p.Logit-exact) > tolerance {
				t.Fatalf("context %d: id %d has logit %v, want %v within %v", i, p.ID, p.Logit, exact, tolerance)
			}
			if float64(float32(p.Logit)) != p.Logit {
				t.Fatalf("context %d: logit %v is no float32", i, p.Logit)
			}
			if j > 0 && (p.Logit > got[j-1].Logit || p.Logit == got[j-1].Logit && p.ID < got[j-1].ID) {
				t.Fatalf("context %d: %v comes after %v", i, p, got[j-1])
			}
			if math.Abs(p.Logit-want[j].Logit) > 1e-3 {
				t.Fatalf("context %d: rank %d has logit %v, want %v", i, j, p.Logit, want[j].Logit)
			}
		}
	}
}

func TestFloat32IsWithinRounding(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) { rapid.Check(t, checkFloat32) })
}

// plane has four labels at the corners of a square and two clusters, right
// and up.
func plane(t testing.TB, sets [][]uint32, always ...uint32) *instance {
	t.Helper()
	layer, err := softmax.NewLayer([]float32{1, 0, 0, 1, -1, 0, 0, -1}, nil, 2)
	if err != nil {
		t.Fatal(err)
	}
	in := &instance{layer: layer, config: screen.Config{
		Dim: 2, Labels: 4, Clusters: []float32{1, 0, 0, 1}, Sets: sets, Always: always,
	}}
	if in.model, err = screen.NewModel(in.config); err != nil {
		t.Fatal(err)
	}
	return in
}

func TestTopKByCase(t *testing.T) {
	right, up, diagonal, zero := []float32{3, 1}, []float32{1, 3}, []float32{2, 2}, []float32{0, 0}
	p := func(id uint32, logit float64) softmax.Prediction { return softmax.Prediction{ID: id, Logit: logit} }
	for _, c := range []struct {
		name   string
		sets   [][]uint32
		always []uint32
		short  bool
		h      []float32
		k      int
		want   []softmax.Prediction
		stats  screen.Stats
	}{
		{"the set of the right cluster", [][]uint32{{0, 2}, {1, 3}}, nil, false, right, 1,
			[]softmax.Prediction{p(0, 3)}, screen.Stats{Queries: 1, Candidates: 2}},
		{"the set of the upper cluster", [][]uint32{{0, 2}, {1, 3}}, nil, false, up, 1,
			[]softmax.Prediction{p(1, 3)}, screen.Stats{Queries: 1, Candidates: 2}},
		{"k is the size of the set", [][]uint32{{2, 3}, {}}, nil, false, right, 2,
			[]softmax.Prediction{p(3, -1), p(2, -3)}, screen.Stats{Queries: 1, Candidates: 2}},
		{"a true label outside is missed", [][]uint32{{1, 2}, {}}, nil, false, right, 1,
			[]softmax.Prediction{p(1, 1)}, screen.Stats{Queries: 1, Candidates: 2}},
		{"equal clusters: the lower", [][]uint32{{2}, {3}}, nil, false, diagonal, 1,
			[]softmax.Prediction{p(2, -2)}, screen.Stats{Queries: 1, Candidates: 1}},
		{"equal logits: the lower ids", [][]uint32{{1, 2, 3}, {}}, nil, false, zero, 2,
			[]softmax.Prediction{p(1, 0), p(2, 0)}, screen.Stats{Queries: 1, Candidates: 3}},
		{"always ids are candidates", [][]uint32{{2}, {}}, []uint32{3, 1}, false, right, 2,
			[]softmax.Prediction{p(1, 1), p(3, -1)}, screen.Stats{Queries: 1, Candidates: 3}},
		{"always ids fill an empty set", [][]uint32{{0}, {}}, []uint32{2}, false, up, 1,
			[]softmax.Prediction{p(2, -1)}, screen.Stats{Queries: 1, Candidates: 1}},
		{"an empty set: the exact layer", [][]uint32{{0}, {}}, nil, false, up, 2,
			[]softmax.Prediction{p(1, 3), p(0, 1)}, screen.Stats{Queries: 1, Exact: 1}},
		{"an empty set, short", [][]uint32{{0}, {}}, nil, true, up, 2,
			[]softmax.Prediction{}, screen.Stats{Queries: 1, Short: 1}},
		{"a small set: the exact layer", [][]uint32{{2, 3}, {}}, nil, false, right, 3,
			[]softmax.Prediction{p(0, 3), p(1, 1), p(3, -1)}, screen.Stats{Queries: 1, Candidates: 2, Exact: 1}},
		{"a small set, short", [][]uint32{{2, 3}, {}}, nil, true, right, 3,
			[]softmax.Prediction{p(3, -1), p(2, -3)}, screen.Stats{Queries: 1, Candidates: 2, Short: 1}},
		{"k is L", [][]uint32{{}, {0, 1, 2, 3}}, nil, false, up, 4,
			[]softmax.Prediction{p(1, 3), p(0, 1), p(2, -1), p(3, -3)}, screen.Stats{Queries: 1, Candidates: 4}},
	} {
		c.stats.Routing = 2 // both clusters
		t.Run(c.name, func(t *testing.T) {
			for _, mode := range [][]screen.Option{nil, {screen.Float32()}} {
				if c.short {
					mode = append(mode, screen.Short())
				}
				s := plane(t, c.sets, c.always...).searcher(t, mode...)
				if got := topK(t, s, c.k, c.h); !slices.Equal(got, c.want) {
					t.Errorf("got %v, want %v", got, c.want)
				}
				if got := s.Stats(); got != c.stats {
					t.Errorf("stats %+v, want %+v", got, c.stats)
				}
			}
		})
	}
}

// The group is chosen first: the best of all clusters may be in another.
func TestTheClusterIsOneOfTheBestGroup(t *testing.T) {
	in := plane(t, [][]uint32{{0}, {1}})
	c := in.config
	c.Clusters, c.Sets = []float32{0, 5, 1, 0, -1, 0}, [][]uint32{{0}, {1}, {2}}
	c.Groups, c.GroupSizes = []float32{0, 1, 1, 0}, []int{1, 2}
	var err error
	if in.model, err = screen.NewModel(c); err != nil {
		t.Fatal(err)
	}
	for _, mode := range [][]screen.Option{nil, {screen.Float32()}} {
		s := in.searcher(t, mode...)
		for _, q := range []struct {
			h       []float32
			cluster int
			routing uint64
		}{
			{[]float32{1, 2}, 0, 3},
			{[]float32{3, 2}, 1, 4}, // cluster 0 would be 10, cluster 1 is 3
			{[]float32{-3, -4}, 2, 4},
			{[]float32{2, 2}, 0, 3},  // equal groups: the lower
			{[]float32{0, -1}, 1, 4}, // equal clusters: the lower
		} {
			before := s.Stats()
			if got, err := s.Cluster(q.h); err != nil || got != q.cluster {
				t.Errorf("%v: cluster %d, %v, want %d", q.h, got, err, q.cluster)
			}
			if got := topK(t, s, 1, q.h); got[0].ID != uint32(q.cluster) {
				t.Errorf("%v: found %v, want the label of cluster %d", q.h, got, q.cluster)
			}
			if got := s.Stats().Routing - before.Routing; got != q.routing {
				t.Errorf("%v: %d rows scanned, want %d", q.h, got, q.routing)
			}
		}
	}
}

func TestOneClusterAndOneLabel(t *testing.T) {
	layer, err := softmax.NewLayer([]float32{2}, []float32{1}, 1)
	if err != nil {
		t.Fatal(err)
	}
	m, err := screen.NewModel(screen.Config{Dim: 1, Labels: 1, Clusters: []float32{-5}, Sets: [][]uint32{{0}}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := screen.NewSearcher(m, layer)
	if err != nil {
		t.Fatal(err)
	}
	if got := topK(t, s, 1, []float32{3}); !slices.Equal(got, []softmax.Prediction{{ID: 0, Logit: 7}}) {
		t.Errorf("got %v", got)
	}
	ids, logp, err := s.LogProbs(nil, []float32{3})
	if err != nil || !slices.Equal(ids, []uint32{0}) || !slices.Equal(logp, []float64{0}) {
		t.Errorf("log-probabilities: %v %v %v", ids, logp, err)
	}
}

func TestSearcherRefuses(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	in := plane(t, [][]uint32{{0, 1}, {2, 3}})
	s := in.searcher(t)
	for _, c := range []struct {
		name string
		k    int
		h    []float32
		want string
	}{
		{"k 0", 0, []float32{1, 2}, "screen: k: found 0, expected 1 to the 4 labels"},
		{"k above L", 5, []float32{1, 2}, "screen: k: found 5, expected 1 to the 4 labels"},
		{"no context", 1, nil, "softmax: context: found 0 elements, expected 2"},
		{"long context", 1, []float32{1, 2, 3}, "softmax: context: found 3 elements, expected 2"},
		{"NaN", 1, []float32{1, nan}, "softmax: context: found NaN at element 1, expected finite numbers"},
		{"Inf", 1, []float32{inf, 1}, "softmax: context: found +Inf at element 0, expected finite numbers"},
		{"-Inf", 1, []float32{1, -inf}, "softmax: context: found -Inf at element 1, expected finite numbers"},
	} {
		untouched := softmax.Prediction{ID: 77, Logit: 7}
		dst := slices.Repeat([]softmax.Prediction{untouched}, c.k)
		if n, err := s.TopK(dst, c.h); err == nil || err.Error() != c.want || n != 0 {
			t.Errorf("%s: %d, error %v, want %s", c.name, n, err, c.want)
		}
		for _, p := range dst {
			if p != untouched {
				t.Errorf("%s: dst was written", c.name)
			}
		}
		if c.k != 1 {
			continue
		}
		if _, err := s.Cluster(c.h); err == nil || err.Error() != c.want {
			t.Errorf("%s: Cluster: error %v, want %s", c.name, err, c.want)
		}
		if _, _, err := s.LogProbs(nil, c.h); err == nil || err.Error() != c.want {
			t.Errorf("%s: LogProbs: error %v, want %s", c.name, err, c.want)
		}
	}
	if got := s.Stats(); got != (screen.Stats{}) {
		t.Errorf("refused queries were counted: %+v", got)
	}
}

func TestNewSearcherRefusesAnotherLayer(t *testing.T) {
	layer := func(w []float32, dim int) *softmax.Layer {
		l, err := softmax.NewLayer(w, nil, dim)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	own := layer([]float32{1, 2, 3, 4}, 2)
	changed := layer([]float32{1, 2, 3, 5}, 2)
	config := screen.Config{Dim: 2, Labels: 2, Clusters: []float32{1, 1}, Sets: [][]uint32{{0}}}
	unbound, err := screen.NewModel(config)
	if err != nil {
		t.Fatal(err)
	}
	config.Fingerprint = own.Fingerprint()
	bound, err := screen.NewModel(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		model *screen.Model
		layer *softmax.Layer
		want  string
	}{
		{"its own layer", bound, own, ""},
		{"a layer of its shape, without a fingerprint", unbound, changed, ""},
		{"another dimension", unbound, layer([]float32{1, 2}, 1), "screen: dim: found a layer of dimension 1, expected that of the model, 2"},
		{"another number of labels", unbound, layer(make([]float32, 6), 2), "screen: labels: found a layer of 3 labels, expected those of the model, 2"},
		{"another layer of its shape", bound, changed, fmt.Sprintf(
			"screen: fingerprint: found layer %x, expected %x: the model was made for another layer", changed.Fingerprint(), own.Fingerprint())},
	} {
		s, err := screen.NewSearcher(c.model, c.layer)
		switch {
		case c.want == "" && (err != nil || s == nil):
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || err.Error() != c.want || s != nil):
			t.Errorf("%s: error %v, want %s", c.name, err, c.want)
		}
	}
}

func TestQueriesDoNotAllocate(t *testing.T) {
	t.Run("flat", func(t *testing.T) { checkAllocations(t, ordinary(t)) })
	t.Run("two levels", func(t *testing.T) { checkAllocations(t, grouped(t)) })
	t.Run("margins", func(t *testing.T) { checkAllocations(t, probing(t)) })
	t.Run("tail", func(t *testing.T) { checkAllocations(t, tailed(t)) })
}

func checkAllocations(t *testing.T, in *instance) {
	const k = 5
	simdtest.EachLevel(t, func(t *testing.T) {
		for name, opts := range map[string][]screen.Option{"exact": nil, "float32": {screen.Float32()}} {
			s := in.searcher(t, opts...)
			logp := make([]float64, 2*in.model.LargestSet())
			batch := make([]softmax.Prediction, 100*k)
			all := make([]softmax.Prediction, in.model.LargestSet()+1)
			i := 0
			next := func() []float32 { i = (i + 1) % in.n; return in.context(i) }
			for call, f := range map[string]func() error{
				"TopK":             func() error { var p [k]softmax.Prediction; _, err := s.TopK(p[:], next()); return err },
				"TopK of all of L": func() error { _, err := s.TopK(all, next()); return err },
				"Cluster":          func() error { _, err := s.Cluster(next()); return err },
				"LogProbs":         func() error { _, _, err := s.LogProbs(logp, next()); return err },
				"LogProb":          func() error { _, err := s.LogProb(next(), 7); return err },
				"LogPartition":     func() error { _, err := s.LogPartition(next()); return err },
				"TopKBatch":        func() error { _, err := s.TopKBatch(batch, k, in.contexts[:100*in.config.Dim]); return err },
			} {
				if n := simdtest.AllocsPerRun(50, func() {
					if err := f(); err != nil {
						t.Fatal(err)
					}
				}); n != 0 {
					t.Errorf("%s, %s: %v allocations a call", name, call, n)
				}
			}
		}
	})
}

func TestNotEvenTheFirstQueryAllocates(t *testing.T) {
	// Scratch is for the sets where they are larger, else for the clusters.
	large := ordinary(t)
	many := shape{labels: 300, dim: 24, clusters: 80, contexts: 30, keep: 4, seed: 8}.instance(t)
	groups := shape{labels: 300, dim: 24, clusters: 80, groups: 60, contexts: 30, keep: 4, seed: 8}.instance(t)
	probes := shape{labels: 300, dim: 24, clusters: 9, contexts: 200, keep: 40, probe: 1e300, seed: 8}.instance(t)
	one := shape{labels: 300, dim: 24, clusters: 80, groups: 1, contexts: 30, keep: 4, seed: 8}.instance(t)
	simdtest.EachLevel(t, func(t *testing.T) {
		for name, opts := range map[string][]screen.Option{"exact": nil, "float32": {screen.Float32()}} {
			for kind, in := range map[string]*instance{"large sets": large, "many clusters": many, "many groups": groups, "one group": one, "two sets": probes} {
				const runs = 20
				var fresh []*screen.Searcher
				for range runs + 1 { // AllocsPerRun makes one call more
					fresh = append(fresh, in.searcher(t, opts...))
				}
				i := 0
				if n := simdtest.AllocsPerRun(runs, func() {
					var p [2]softmax.Prediction
					if _, err := fresh[i].TopK(p[:], in.context(i)); err != nil {
						t.Fatal(err)
					}
					i++
				}); n != 0 {
					t.Errorf("%s, %s: %v allocations", name, kind, n)
				}
			}
		}
	})
}

func TestManyGoroutinesShareOneModel(t *testing.T) {
	in := ordinary(t)
	const k = 5
	var want []softmax.Prediction
	first := in.searcher(t)
	for i := range in.n {
		want = append(want, topK(t, first, k, in.context(i))...)
	}
	var wg sync.WaitGroup
	for g := range 8 {
		s := in.searcher(t)
		wg.Add(1)
		go func() {
			defer wg.Done()
			got := make([]softmax.Prediction, in.n*k)
			for round := range 3 {
				if round == 2 {
					if _, err := s.TopKBatch(got, k, in.contexts); err != nil {
						t.Error(err)
					}
				} else {
					for i := range in.n {
						at := (i*7 + g*31) % in.n // goroutines ask for different contexts
						if _, err := s.TopK(got[at*k:(at+1)*k], in.context(at)); err != nil {
							t.Error(err)
						}
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("goroutine %d, round %d: answers differ", g, round)
				}
				clear(got)
			}
		}()
	}
	wg.Wait()
}

func BenchmarkTopKBatch(b *testing.B) {
	// Some 16 contexts of a batch fall into each cluster.
	in := shape{labels: 10000, dim: 200, clusters: 16, contexts: 1024, keep: 3, seed: 2}.instance(b)
	for name, opts := range map[string][]screen.Option{"exact": nil, "float32": {screen.Float32()}} {
		b.Run(name, func(b *testing.B) {
			s := in.searcher(b, opts...)
			const n, k = 256, 5
			dst := make([]softmax.Prediction, n*k)
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.TopKBatch(dst, k, in.contexts[i*n*200:(i+1)*n*200]); err != nil {
					b.Fatal(err)
				}
				i = (i + 1) % (in.n / n)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/context")
		})
	}
}

func BenchmarkTopK(b *testing.B) {
	in := shape{labels: 10000, dim: 200, clusters: 16, contexts: 1024, keep: 3, seed: 2}.instance(b)
	for name, opts := range map[string][]screen.Option{"exact": nil, "float32": {screen.Float32()}} {
		b.Run(name, func(b *testing.B) {
			s := in.searcher(b, opts...)
			var p [5]softmax.Prediction
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.TopK(p[:], in.context(i)); err != nil {
					b.Fatal(err)
				}
				i = (i + 1) % in.n
			}
		})
	}
}
