package screening_test

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/exact"
	"github.com/learning-to-screen/l2s/internal/screening"
	"github.com/learning-to-screen/l2s/internal/simdtest"
)

func evaluate(t failer, in *instance, opt screening.EvaluateOptions) *screening.Evaluation {
	t.Helper()
	e, err := screening.Evaluate(context.Background(), in.model, in.layer, in.contexts, opt)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// checkEvaluate: P@k is the share of true labels among the candidates, and 1 if the exact layer
// answers; L-bar is the mean number of candidates. A rung of the ladder has the figures of a
// searcher with that budget.
func checkEvaluate(t *rapid.T) {
	in := drawShape(t).instance(t)
	ks := rapid.SliceOfN(rapid.IntRange(1, in.config.Labels), 1, 3).Draw(t, "k")
	set := drawSettings(t, in)
	opt := screening.EvaluateOptions{K: ks, Threads: rapid.IntRange(0, 3).Draw(t, "threads"), Searcher: set.options()}
	want := &screening.Evaluation{Contexts: in.n, Routing: in.clusters(), Budget: in.model.Budget()}
	for _, rung := range in.model.Ladder() {
		if set.budget != 0 && rung.Budget <= set.budget {
			want.Budget = rung.Budget
		}
	}
	n := float64(in.n)
	var sizes []int
	for i := range in.n {
		f := in.find(in.context(i))
		sizes = append(sizes, len(in.candidates(f.cell, set, 0)))
	}
	for _, k := range ks {
		inside, scored := 0, 0
		p := screening.Precision{K: k}
		for i := range in.n {
			h := in.context(i)
			among, source := in.answer(h, k, &exact.Request{}, set)
			scored += len(among)
			inside += common(in.truth(h, k), idsOf(among[:min(k, len(among))]))
			if source == exact.FromLayer {
				p.Exact++
			}
		}
		p.Precision, p.MeanScored = float64(inside)/(n*float64(k)), float64(scored)/n
		want.AtK = append(want.AtK, p)
	}
	want.MeanCandidates, want.P99Candidates, want.MaxCandidates = spread(sizes)
	got := evaluate(t, in, opt)
	ladder := got.Ladder
	got.Ladder = nil
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	in.checkLadder(t, ladder, slices.Max(ks))
}

// spread is the mean of sizes, the least that is enough for 99% of them, and the largest.
func spread(sizes []int) (mean float64, p99, largest int) {
	for _, size := range sizes {
		mean += float64(size) / float64(len(sizes))
	}
	mean = math.Round(mean*float64(len(sizes))) / float64(len(sizes))
	for ; ; p99++ {
		within := 0
		for _, size := range sizes {
			if size <= p99 {
				within++
			}
		}
		if 100*within >= 99*len(sizes) {
			return mean, p99, slices.Max(sizes)
		}
	}
}

// checkLadder compares rungs that were measured with the answers of searchers with these budgets.
func (in *instance) checkLadder(t *rapid.T, ladder []screening.Rung, k int) {
	own := in.model.Ladder()
	if len(ladder) != len(own) {
		t.Fatalf("found %d rungs, expected %d", len(ladder), len(own))
	}
	for j, rung := range ladder {
		s, err := screening.NewSearcher(in.model, in.layer, screening.Options{Budget: rung.Budget})
		if err != nil {
			t.Fatal(err)
		}
		want := screening.Rung{Budget: own[j].Budget, Share: own[j].Share}
		var sizes []int
		for i := range in.n {
			before := s.Stats().Candidates
			topK(t, s, 1, in.context(i))
			sizes = append(sizes, int(s.Stats().Candidates-before))
		}
		want.MeanCandidates, want.P99Candidates, want.MaxCandidates = spread(sizes)
		for _, e := range []struct {
			k    int
			got  screening.Estimate
			want *screening.Estimate
		}{{1, rung.Precision1, &want.Precision1}, {k, rung.PrecisionK, &want.PrecisionK}} {
			hits := 0
			for i := range in.n {
				hits += common(in.truth(in.context(i), e.k), idsOf(topK(t, s, e.k, in.context(i))))
			}
			if p := float64(hits) / float64(in.n*e.k); math.Abs(e.got.Value-p) > 1e-12 {
				t.Fatalf("budget %v: found P@%d of %v, a searcher with it has %v", rung.Budget, e.k, e.got.Value, p)
			}
			if !(0 <= e.got.Low && e.got.Low <= e.got.Value && e.got.Value <= e.got.High && e.got.High <= 1) {
				t.Fatalf("budget %v: found P@%d of %+v, expected numbers from 0 to 1 in order", rung.Budget, e.k, e.got)
			}
			*e.want = e.got
		}
		if rung != want {
			t.Fatalf("found %+v, expected %+v", rung, want)
		}
	}
}

func TestPrecisionIsTheShareOfTrueLabelsAmongTheCandidates(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) { rapid.Check(t, checkEvaluate) })
}

func TestEvaluateDoesNotDependOnThreads(t *testing.T) {
	in := shape{labels: 60, dim: 8, clusters: 5, contexts: 500, keep: 40, seed: 3}.instance(t)
	want := evaluate(t, in, screening.EvaluateOptions{Threads: 1})
	if want.AtK[1].Precision == 0 || want.AtK[1].Precision == 1 {
		t.Fatalf("nothing to see: %+v", want)
	}
	for threads := range 6 {
		if got := evaluate(t, in, screening.EvaluateOptions{Threads: threads}); !reflect.DeepEqual(got, want) {
			t.Errorf("%d threads: %+v, want %+v", threads, got, want)
		}
	}
}

func TestEvaluateAsksForOneAndFiveByDefault(t *testing.T) {
	for _, c := range []struct {
		labels int
		want   []int
	}{{1, []int{1}}, {3, []int{1, 3}}, {5, []int{1, 5}}, {60, []int{1, 5}}} {
		in := shape{labels: c.labels, dim: 4, clusters: 2, contexts: 3, keep: 100}.instance(t)
		var got []int
		for _, p := range evaluate(t, in, screening.EvaluateOptions{}).AtK {
			got = append(got, p.K)
			if p.Precision != 1 {
				t.Errorf("%d labels, all candidates: P@%d is %v", c.labels, p.K, p.Precision)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%d labels: k %v, want %v", c.labels, got, c.want)
		}
	}
}

func TestEvaluateReportsProgress(t *testing.T) {
	in := shape{labels: 20, dim: 4, clusters: 2, contexts: 333, keep: 50, seed: 4}.instance(t)
	var done []int
	evaluate(t, in, screening.EvaluateOptions{Threads: 3, Progress: func(d, total int) {
		if total != in.n {
			t.Errorf("total %d, want %d", total, in.n)
		}
		done = append(done, d) // calls do not overlap
	}})
	if !slices.IsSorted(done) || len(done) < 2 || done[len(done)-1] != in.n {
		t.Errorf("progress %v, want ascending to %d", done, in.n)
	}
}

func TestEvaluateStopsWithItsContext(t *testing.T) {
	in := shape{labels: 20, dim: 4, clusters: 2, contexts: 1000, keep: 50, seed: 5}.instance(t)
	reason := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	calls := 0
	e, err := screening.Evaluate(ctx, in.model, in.layer, in.contexts, screening.EvaluateOptions{Threads: 2, Progress: func(done, total int) {
		calls++
		cancel(reason)
	}})
	if e != nil || !errors.Is(err, reason) {
		t.Errorf("got %v, %v, want %v", e, err, reason)
	}
	if calls > 2 {
		t.Errorf("%d chunks finished after the end", calls-1)
	}
	// A complete run does not fail if ctx ends later.
	ctx, stop := context.WithCancel(t.Context())
	if _, err := screening.Evaluate(ctx, in.model, in.layer, in.contexts, screening.EvaluateOptions{Progress: func(done, total int) {
		if done == total {
			stop()
		}
	}}); err != nil {
		t.Errorf("complete, then stopped: %v", err)
	}
}

func TestEvaluateRefuses(t *testing.T) {
	in := shape{labels: 20, dim: 4, clusters: 2, contexts: 1000, keep: 50, seed: 6}.instance(t)
	broken := slices.Clone(in.contexts)
	// Row 448 is the first of the work that one goroutine takes while another
	// has yet to reach row 447.
	for _, row := range []int{901, 447, 448, 449} {
		broken[row*4+2] = float32(math.NaN())
	}
	other := shape{labels: 20, dim: 4, clusters: 2, contexts: 1, seed: 7}.instance(t)
	for _, c := range []struct {
		name     string
		model    *screening.Model
		contexts []float32
		opt      screening.EvaluateOptions
		want     string
	}{
		{"no contexts", in.model, nil, screening.EvaluateOptions{}, "screen: contexts: found 0 elements, expected a positive multiple of dimension 4"},
		{"ragged contexts", in.model, in.contexts[:7], screening.EvaluateOptions{}, "screen: contexts: found 7 elements, expected a positive multiple of dimension 4"},
		{"k 0", in.model, in.contexts, screening.EvaluateOptions{K: []int{1, 0}}, "screen: k: found 0, expected 1 to the 20 labels"},
		{"k above L", in.model, in.contexts, screening.EvaluateOptions{K: []int{21}}, "screen: k: found 21, expected 1 to the 20 labels"},
		{"threads", in.model, in.contexts, screening.EvaluateOptions{Threads: -1}, "screen: threads: found -1, expected at least 0"},
		{"NaN: the first row", in.model, broken, screening.EvaluateOptions{Threads: 4}, "screen: contexts: row 447: softmax: context: found NaN at element 2, expected finite numbers"},
		{"another layer", other.model, in.contexts, screening.EvaluateOptions{}, "fingerprint"},
	} {
		for range 5 {
			e, err := screening.Evaluate(t.Context(), c.model, in.layer, c.contexts, c.opt)
			switch {
			case err == nil || e != nil:
				t.Errorf("%s: no error", c.name)
			case c.want == "fingerprint":
				if _, want := screening.NewSearcher(c.model, in.layer, screening.Options{}); want == nil || err.Error() != want.Error() {
					t.Errorf("%s: %v, want %v", c.name, err, want)
				}
			case err.Error() != c.want:
				t.Errorf("%s: %v, want %s", c.name, err, c.want)
			}
		}
	}
}
