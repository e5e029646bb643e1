package evaluate_test

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/ground/precision"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/tests/screentest"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
	"github.com/learning-to-screen/l2s/internal/watch/evaluate"
)

func draws(t *rapid.T) screentest.Draw {
	return func(label string, low, high int) int { return rapid.IntRange(low, high).Draw(t, label) }
}

func evaluation(t screentest.Failer, in *screentest.Instance, opt evaluate.Options) *evaluate.Evaluation {
	t.Helper()
	e, err := evaluate.Run(context.Background(), in.Model, in.Layer, in.Contexts, opt)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// checkEvaluate: P@k is the share of true labels among the candidates, and 1 if the exact layer
// answers; L-bar is the mean number of candidates. A rung of the ladder has the figures of a
// searcher with that budget.
func checkEvaluate(t *rapid.T) {
	in := screentest.DrawShape(draws(t)).Instance(t)
	ks := rapid.SliceOfN(rapid.IntRange(1, in.Config.Labels), 1, 3).Draw(t, "k")
	set := screentest.DrawSettings(draws(t), in)
	opt := evaluate.Options{K: ks, Threads: rapid.IntRange(0, 3).Draw(t, "threads"), Searcher: set.Options()}
	want := &evaluate.Evaluation{Contexts: in.N, Routing: in.Clusters(), Budget: in.Model.Budget()}
	for _, rung := range in.Model.Ladder() {
		if set.Budget != 0 && rung.Budget <= set.Budget {
			want.Budget = rung.Budget
		}
	}
	n := float64(in.N)
	var sizes []int
	for i := range in.N {
		f := in.Find(in.Context(i))
		sizes = append(sizes, len(in.Candidates(f.Cell, set, 0)))
	}
	for _, k := range ks {
		inside, scored := 0, 0
		p := evaluate.Precision{K: k}
		for i := range in.N {
			h := in.Context(i)
			among, source := in.Answer(h, k, &exact.Request{}, set)
			scored += len(among)
			inside += screentest.Common(in.Truth(h, k), screentest.IDsOf(among[:min(k, len(among))]))
			if source == exact.FromLayer {
				p.Exact++
			}
		}
		p.Precision, p.MeanScored = float64(inside)/(n*float64(k)), float64(scored)/n
		want.AtK = append(want.AtK, p)
	}
	want.MeanCandidates, want.P99Candidates, want.MaxCandidates = spread(sizes)
	got := evaluation(t, in, opt)
	ladder := got.Ladder
	got.Ladder = nil
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	checkLadder(t, in, ladder, slices.Max(ks))
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
func checkLadder(t *rapid.T, in *screentest.Instance, ladder []screening.Rung, k int) {
	own := in.Model.Ladder()
	if len(ladder) != len(own) {
		t.Fatalf("found %d rungs, expected %d", len(ladder), len(own))
	}
	for j, rung := range ladder {
		s, err := screening.NewSearcher(in.Model, in.Layer, screening.Options{Budget: rung.Budget})
		if err != nil {
			t.Fatal(err)
		}
		want := screening.Rung{Budget: own[j].Budget, Share: own[j].Share}
		var sizes []int
		for i := range in.N {
			before := s.Stats().Candidates
			screentest.TopK(t, s, 1, in.Context(i))
			sizes = append(sizes, int(s.Stats().Candidates-before))
		}
		want.MeanCandidates, want.P99Candidates, want.MaxCandidates = spread(sizes)
		for _, e := range []struct {
			k    int
			got  screening.Estimate
			want *screening.Estimate
		}{{1, rung.Precision1, &want.Precision1}, {k, rung.PrecisionK, &want.PrecisionK}} {
			hits := 0
			for i := range in.N {
				hits += screentest.Common(in.Truth(in.Context(i), e.k), screentest.IDsOf(screentest.TopK(t, s, e.k, in.Context(i))))
			}
			if p := float64(hits) / float64(in.N*e.k); math.Abs(e.got.Value-p) > 1e-12 {
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
	in := screentest.Shape{Labels: 60, Dim: 8, Clusters: 5, Contexts: 500, Keep: 40, Seed: 3}.Instance(t)
	want := evaluation(t, in, evaluate.Options{Threads: 1})
	if want.AtK[1].Precision == 0 || want.AtK[1].Precision == 1 {
		t.Fatalf("nothing to see: %+v", want)
	}
	for threads := range 6 {
		if got := evaluation(t, in, evaluate.Options{Threads: threads}); !reflect.DeepEqual(got, want) {
			t.Errorf("%d threads: %+v, want %+v", threads, got, want)
		}
	}
}

func TestEvaluateAsksForOneAndFiveByDefault(t *testing.T) {
	for _, c := range []struct {
		labels int
		want   []int
	}{{1, []int{1}}, {3, []int{1, 3}}, {5, []int{1, 5}}, {60, []int{1, 5}}} {
		in := screentest.Shape{Labels: c.labels, Dim: 4, Clusters: 2, Contexts: 3, Keep: 100}.Instance(t)
		var got []int
		for _, p := range evaluation(t, in, evaluate.Options{}).AtK {
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
	in := screentest.Shape{Labels: 20, Dim: 4, Clusters: 2, Contexts: 333, Keep: 50, Seed: 4}.Instance(t)
	var done []int
	evaluation(t, in, evaluate.Options{Threads: 3, Progress: func(d, total int) {
		if total != in.N {
			t.Errorf("total %d, want %d", total, in.N)
		}
		done = append(done, d) // calls do not overlap
	}})
	if !slices.IsSorted(done) || len(done) < 2 || done[len(done)-1] != in.N {
		t.Errorf("progress %v, want ascending to %d", done, in.N)
	}
}

func TestEvaluateStopsWithItsContext(t *testing.T) {
	in := screentest.Shape{Labels: 20, Dim: 4, Clusters: 2, Contexts: 1000, Keep: 50, Seed: 5}.Instance(t)
	reason := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	calls := 0
	e, err := evaluate.Run(ctx, in.Model, in.Layer, in.Contexts, evaluate.Options{Threads: 2, Progress: func(done, total int) {
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
	if _, err := evaluate.Run(ctx, in.Model, in.Layer, in.Contexts, evaluate.Options{Progress: func(done, total int) {
		if done == total {
			stop()
		}
	}}); err != nil {
		t.Errorf("complete, then stopped: %v", err)
	}
}

func TestEvaluateRefuses(t *testing.T) {
	in := screentest.Shape{Labels: 20, Dim: 4, Clusters: 2, Contexts: 1000, Keep: 50, Seed: 6}.Instance(t)
	broken := slices.Clone(in.Contexts)
	// Row 448 is the first of the work that one goroutine takes while another
	// has yet to reach row 447.
	for _, row := range []int{901, 447, 448, 449} {
		broken[row*4+2] = float32(math.NaN())
	}
	other := screentest.Shape{Labels: 20, Dim: 4, Clusters: 2, Contexts: 1, Seed: 7}.Instance(t)
	for _, c := range []struct {
		name     string
		model    *screening.Model
		contexts []float32
		opt      evaluate.Options
		want     string
	}{
		{"no contexts", in.Model, nil, evaluate.Options{}, "screen: contexts: found 0 elements, expected a positive multiple of dimension 4"},
		{"ragged contexts", in.Model, in.Contexts[:7], evaluate.Options{}, "screen: contexts: found 7 elements, expected a positive multiple of dimension 4"},
		{"k 0", in.Model, in.Contexts, evaluate.Options{K: []int{1, 0}}, "screen: k: found 0, expected 1 to the 20 labels"},
		{"k above L", in.Model, in.Contexts, evaluate.Options{K: []int{21}}, "screen: k: found 21, expected 1 to the 20 labels"},
		{"threads", in.Model, in.Contexts, evaluate.Options{Threads: -1}, "screen: threads: found -1, expected at least 0"},
		{"NaN: the first row", in.Model, broken, evaluate.Options{Threads: 4}, "screen: contexts: row 447: l2s: context: found NaN at element 2, expected finite numbers"},
		{"another layer", other.Model, in.Contexts, evaluate.Options{}, "fingerprint"},
	} {
		for range 5 {
			e, err := evaluate.Run(t.Context(), c.model, in.Layer, c.contexts, c.opt)
			switch {
			case err == nil || e != nil:
				t.Errorf("%s: no error", c.name)
			case c.want == "fingerprint":
				if _, want := screening.NewSearcher(c.model, in.Layer, screening.Options{}); want == nil || err.Error() != want.Error() {
					t.Errorf("%s: %v, want %v", c.name, err, want)
				}
			case err.Error() != c.want:
				t.Errorf("%s: %v, want %s", c.name, err, c.want)
			}
		}
	}
}

// Outcomes are places in a list, and hits follow from them for every k and every number of
// candidates, as by a plain loop.
func TestOutcomesAreThePlacesOfTheBestLabels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := screentest.DrawShape(draws(t)).Instance(t)
		h := in.Context(0)
		cell := rapid.IntRange(0, in.Model.Cells()-1).Draw(t, "cell")
		list := in.Model.List(cell).IDs
		best := in.Truth(h, rapid.IntRange(1, in.Config.Labels).Draw(t, "best"))
		o := in.Model.Outcome(cell, best)
		for j, p := range best {
			want := int32(slices.Index(list, p.ID) + 1)
			if want == 0 {
				want = math.MaxInt32
			}
			if o.Cell != cell || o.Places[j] != want {
				t.Fatalf("found %+v, expected %d for label %d of %v", o, want, p.ID, list)
			}
		}
		for k := 1; k <= len(best); k++ {
			for n := range len(list) + 1 {
				want := k
				if n >= k {
					want = screentest.Common(best[:k], list[:n])
				}
				if got := o.Hits(k, n); got != want {
					t.Fatalf("found %d of %d labels among %d candidates, expected %d", got, k, n, want)
				}
			}
		}
	})
}

// The figures of a ladder over outcomes equal a plain loop's, and their intervals contain them.
func TestMeasureIsAPlainLoop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := screentest.DrawShape(draws(t)).Instance(t)
		k := rapid.IntRange(1, in.Config.Labels).Draw(t, "k")
		var outcomes []precision.Outcome
		var cells []int
		var best [][]exact.Prediction
		for range rapid.SampledFrom([]int{0, 1, 2, 30, 49, 50, 51, 130}).Draw(t, "contexts") {
			h := in.Context(rapid.IntRange(0, in.N-1).Draw(t, "context"))
			cells, best = append(cells, rapid.IntRange(0, in.Model.Cells()-1).Draw(t, "cell")), append(best, in.Truth(h, k))
			outcomes = append(outcomes, in.Model.Outcome(cells[len(cells)-1], best[len(best)-1]))
		}
		ladder := in.Model.Measure(outcomes, k)
		for i, own := range in.Model.Ladder() {
			got, want := ladder[i], screening.Rung{Budget: own.Budget, Share: own.Share}
			if len(outcomes) > 0 {
				var sizes []int
				missed := [2]int{}
				for j, cell := range cells {
					candidates := in.Candidates(cell, screentest.Settings{Budget: own.Budget}, 0)
					sizes = append(sizes, len(candidates))
					for p, k := range []int{1, k} {
						if len(candidates) >= k {
							missed[p] += k - screentest.Common(best[j][:k], candidates)
						}
					}
				}
				want.MeanCandidates, want.P99Candidates, want.MaxCandidates = spread(sizes)
				n := float64(len(cells))
				want.Precision1, want.PrecisionK = got.Precision1, got.PrecisionK
				want.Precision1.Value, want.PrecisionK.Value = 1-float64(missed[0])/n, 1-float64(missed[1])/(n*float64(k))
			}
			if got != want {
				t.Fatalf("rung %d: found %+v, expected %+v", i, got, want)
			}
			for _, e := range []screening.Estimate{got.Precision1, got.PrecisionK} {
				if !(0 <= e.Low && e.Low <= e.Value && e.Value <= e.High && e.High <= 1) {
					t.Fatalf("rung %d: found %+v, expected numbers from 0 to 1 in order", i, e)
				}
				if n := float64(len(outcomes)); n > 0 && e.Low > max(0, 1-3/n) {
					t.Fatalf("rung %d: found %+v, expected a lower end that %v contexts without a miss allow at most", i, e, n)
				}
			}
		}
	})
}
