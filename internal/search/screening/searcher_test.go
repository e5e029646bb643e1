package screening_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/simd"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/logsum"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/search/tail"
	"github.com/learning-to-screen/l2s/internal/tests/screentest"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

// batched returns the searcher of batches over an instance.
func batched(t screentest.Failer, in *screentest.Instance, o ...screening.Options) *engine.Searcher {
	t.Helper()
	options := engine.Options{}
	if len(o) > 0 {
		options = engine.Options{Budget: o[0].Budget, Copies: o[0].Copies, Observers: o[0].Observers}
	}
	s, err := engine.NewSearcher(engine.Over(in.Layer), engine.OfScreen(in.Model), options)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func draws(t *rapid.T) screentest.Draw {
	return func(label string, low, high int) int { return rapid.IntRange(low, high).Draw(t, label) }
}

// A context is counted once: as answered by the exact layer, or from its candidates.
func TestStatsCountHowAContextIsAnswered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := screentest.DrawHardShape(draws(t)).Instance(t)
		k := rapid.IntRange(1, in.Config.Labels).Draw(t, "k")
		set := screentest.DrawSettings(draws(t), in)
		s := in.Searcher(t, set.Options())
		var want screening.Stats
		for i := range in.N {
			h, budget := in.Context(i), screentest.DrawBudget(draws(t), in)
			whole := rapid.IntRange(0, 4).Draw(t, "exact") == 0
			screentest.Search(t, s, k, h, exact.Request{Budget: budget, Exact: whole})
			want.Queries++
			if whole {
				want.Exact++
			} else {
				f := in.Find(h)
				n := len(in.Candidates(f.Cell, set, budget))
				want.Routing += uint64(in.Clusters())
				want.Candidates += uint64(n)
				if n < k {
					want.Exact++
					want.Lacking++
				}
			}
			if _, err := logsum.LogProb(s, h, 0, 1); err != nil && !errors.Is(err, logsum.ErrNoTail) { // is not counted
				t.Fatal(err)
			}
			if got := s.Stats(); got != want {
				t.Fatalf("context %d: found %+v, expected %+v", i, got, want)
			}
		}
	})
}

// checkRequests: the answer to a request is the one of its definition, for one context as for many,
// bit for bit, and so are the counts. The log-sum differs by at most the width of the int8
// intervals from the sum over the labels that the answer was chosen among. A request does not
// change the next one.
func checkRequests(t *rapid.T) {
	in := screentest.DrawHardShape(draws(t)).Instance(t)
	if err := in.Finish(draws(t)); err != nil {
		t.Fatal(err)
	}
	set := screentest.DrawSettings(draws(t), in)
	single, batch := in.Searcher(t, set.Options()), batched(t, in, set.Copied(1<<40))
	// Several batches of different sizes: scratch of one must not show in the next.
	for _, n := range []int{in.N, rapid.IntRange(0, in.N).Draw(t, "second batch")} {
		k, req := screentest.DrawRequest(draws(t), in)
		dst, answers := make([]exact.Prediction, n*k), make([]exact.Answer, n)
		if err := batch.SearchBatch(dst, answers, in.Contexts[:n*in.Config.Dim], &req); err != nil {
			t.Fatal(err)
		}
		one := make([]exact.Prediction, k)
		for i, a := range answers {
			h, got := in.Context(i), dst[i*k:(i+1)*k]
			among, source := in.Answer(h, k, &req, set)
			want := among[:min(k, len(among))]
			for req.Within > 0 && len(want) > 0 && want[len(want)-1].Logit < want[0].Logit-req.Within {
				want = want[:len(want)-1]
			}
			if !slices.Equal(got[:a.Count], want) || a.Source != source {
				t.Fatalf("context %d of %d: got %v of %+v, want %v from %v", i, n, got[:a.Count], a, want, source)
			}
			for _, p := range got[a.Count:] {
				if req.Within == 0 && p != (exact.Prediction{}) {
					t.Fatalf("context %d of %d: written after a short answer", i, n)
				}
			}
			if alone, err := single.Search(one, h, req); err != nil || alone != a || !slices.Equal(one[:a.Count], got[:a.Count]) {
				t.Fatalf("context %d of %d: %+v %v alone, %v, %+v %v in a batch", i, n, alone, one, err, a, got)
			}
			checkSum(t, in, h, among, &req, a.LogSum)
		}
		alone := single.Stats()
		if got, want := batch.Stats(), (engine.Stats{Queries: alone.Queries, Looked: alone.Routing, Scored: alone.Candidates, Exact: alone.Exact, Fallback: alone.Lacking}); got != want {
			t.Fatalf("stats %+v, want %+v", got, want)
		}
		plain := exact.Request{LogSum: true}
		for i := range n {
			fresh := in.Searcher(t, set.Options())
			want, wantAnswer := screentest.Search(t, fresh, 1, in.Context(i), plain)
			if got, a := screentest.Search(t, single, 1, in.Context(i), plain); !slices.Equal(got, want) || a != wantAnswer {
				t.Fatalf("context %d, after other requests: got %v, %+v, want %v, %+v", i, got, a, want, wantAnswer)
			}
			if i == 2 {
				break
			}
		}
		single, batch = in.Searcher(t, set.Options()), batched(t, in, set.Copied(-1))
	}
}

// checkEdits: edits and distances cost no precision. An answer with edits, or of the labels within a
// distance, is exact wherever a plain answer of as many labels is, or of one more if the distance
// ends it before k: the candidates that edits take away or lower uncover no label that a screen
// did not look at.
func checkEdits(t *rapid.T) {
	in := screentest.DrawHardShape(draws(t)).Instance(t)
	set := screentest.DrawSettings(draws(t), in)
	s, whole := in.Searcher(t, set.Options()), exact.NewSearcher(in.Layer)
	k, req := screentest.DrawRequest(draws(t), in)
	k, req.LogSum = max(k, 1), false
	right := func(k int, h []float32, req exact.Request) ([]exact.Prediction, exact.Answer, bool) {
		t.Helper()
		got, a := screentest.Search(t, s, k, h, req)
		want := make([]exact.Prediction, k)
		b, err := whole.Search(want, h, req)
		if err != nil {
			t.Fatal(err)
		}
		return got, a, slices.Equal(got, want[:b.Count])
	}
	for i := range in.N {
		h := in.Context(i)
		got, a, ok := right(k, h, req)
		if ok {
			continue
		}
		plain := min(k, a.Count+1)
		if _, _, ok := right(plain, h, exact.Request{Budget: req.Budget}); ok {
			t.Fatalf("context %d: found %v from the %v, which is not exact, but a plain answer of %d labels is", i, got, a.Source, plain)
		}
		if k > a.Count && plain > in.Config.K {
			t.Fatalf("context %d: found %v from the %v within %v, which is not exact, and the model has figures of %d labels only", i, got, a.Source, req.Within, in.Config.K)
		}
	}
}

func TestEditsAndDistancesCostNoPrecision(t *testing.T) { rapid.Check(t, checkEdits) }

// checkSum compares the log-sum of an answer with the sum over the labels that it was chosen among.
func checkSum(t *rapid.T, in *screentest.Instance, h []float32, among []exact.Prediction, req *exact.Request, got float64) {
	if !req.LogSum || len(among) == 0 {
		if !math.IsInf(got, -1) {
			t.Fatalf("log-sum: got %v of no labels or without being asked, want -Inf", got)
		}
		return
	}
	logits, bound, largest, d := []float64{}, 0.0, 0.0, in.Config.Dim
	for _, p := range among {
		var w2, h2 float64
		for j, x := range in.Weights()[int(p.ID)*d : (int(p.ID)+1)*d] {
			w2 += float64(x) * float64(x)
			h2 += float64(h[j]) * float64(h[j])
		}
		logits = append(logits, p.Logit)
		bound, largest = max(bound, in.Layer.Scale()*math.Sqrt(w2*h2)), max(largest, math.Abs(p.Logit))
	}
	// Twice 2/127 of the norms is more than two roundings to int8 lose.
	want := kernels.LogSumExp(logits)
	if off := math.Abs(got - want); off > 2*math.Sqrt(float64(d))/127*bound+1e-5*(1+largest) {
		t.Fatalf("log-sum: got %v, want %v within the error of int8, found %v off", got, want, off)
	}
}

func TestAnswersAreTheirDefinition(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) { rapid.Check(t, checkRequests) })
}

func FuzzAnswersAreTheirDefinition(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkRequests)) }

// A request that names the labels to choose among is answered by the layer.
func TestARequestThatNamesItsLabelsIsForTheLayer(t *testing.T) {
	in := screentest.Ordinary(t)
	s, whole := in.Searcher(t), exact.NewSearcher(in.Layer)
	for i := range in.N {
		req := exact.Request{Among: exact.Only([]uint32{40, 7, 52, 61, 80}), LogSum: true}
		var got, want [3]exact.Prediction
		a, err := s.Search(got[:], in.Context(i), req)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := whole.Search(want[:], in.Context(i), req); err != nil || got != want || a != b {
			t.Fatalf("context %d: got %v %v, want %v %v, %v", i, got, a, want, b, err)
		}
	}
	if got := s.Stats(); got.Exact != uint64(in.N) || got.Queries != got.Exact {
		t.Errorf("stats %+v, want %d exact answers", got, in.N)
	}
}

func TestAnswersHaveTheSameBitsOnEveryLevel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := screentest.DrawHardShape(draws(t)).Instance(t)
		k, req := screentest.DrawRequest(draws(t), in)
		var first string
		for _, level := range simd.Available() {
			restore := simd.Set(level)
			s := in.Searcher(t)
			got := ""
			for i := range in.N {
				labels, a := screentest.Search(t, s, k, in.Context(i), req)
				for _, p := range labels {
					got += fmt.Sprintf("%d %x ", p.ID, math.Float64bits(p.Logit))
				}
				got += fmt.Sprintf("%x ", math.Float64bits(a.LogSum))
				if in.Config.Tail != nil {
					got += fmt.Sprintf("%x ", math.Float64bits(screentest.LogProb(t, s, in.Context(i), i%in.Config.Labels)))
				}
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

// plane has four labels at the corners of a square and two clusters, right
// and up. The lists are of the ids always, and the ids of the cells.
func plane(t testing.TB, lists [][]uint32, always ...uint32) *screentest.Instance {
	t.Helper()
	layer, err := exact.NewLayer(kernels.Float32Rows([]float32{1, 0, 0, 1, -1, 0, 0, -1}, 2), nil)
	if err != nil {
		t.Fatal(err)
	}
	in := &screentest.Instance{Layer: layer, Config: screening.Config{
		Dim: 2, Labels: 4, Clusters: []float32{1, 0, 0, 1}, Always: len(always),
	}}
	for _, ids := range lists {
		in.Config.Lists = append(in.Config.Lists, screening.List{IDs: slices.Concat(always, ids)})
	}
	if in.Model, err = screening.NewModel(in.Config); err != nil {
		t.Fatal(err)
	}
	return in
}

func TestTopKByCase(t *testing.T) {
	right, up, diagonal, zero := []float32{3, 1}, []float32{1, 3}, []float32{2, 2}, []float32{0, 0}
	p := func(id uint32, logit float64) exact.Prediction { return exact.Prediction{ID: id, Logit: logit} }
	for _, c := range []struct {
		name   string
		sets   [][]uint32
		always []uint32
		h      []float32
		k      int
		want   []exact.Prediction
		stats  screening.Stats
	}{
		{"the set of the right cluster", [][]uint32{{0, 2}, {1, 3}}, nil, right, 1,
			[]exact.Prediction{p(0, 3)}, screening.Stats{Queries: 1, Candidates: 2}},
		{"the set of the upper cluster", [][]uint32{{0, 2}, {1, 3}}, nil, up, 1,
			[]exact.Prediction{p(1, 3)}, screening.Stats{Queries: 1, Candidates: 2}},
		{"k is the size of the set", [][]uint32{{2, 3}, {}}, nil, right, 2,
			[]exact.Prediction{p(3, -1), p(2, -3)}, screening.Stats{Queries: 1, Candidates: 2}},
		{"a true label outside is missed", [][]uint32{{1, 2}, {}}, nil, right, 1,
			[]exact.Prediction{p(1, 1)}, screening.Stats{Queries: 1, Candidates: 2}},
		{"equal clusters: the lower", [][]uint32{{2}, {3}}, nil, diagonal, 1,
			[]exact.Prediction{p(2, -2)}, screening.Stats{Queries: 1, Candidates: 1}},
		{"equal logits: the lower ids", [][]uint32{{1, 2, 3}, {}}, nil, zero, 2,
			[]exact.Prediction{p(1, 0), p(2, 0)}, screening.Stats{Queries: 1, Candidates: 3}},
		{"always ids are candidates", [][]uint32{{2}, {}}, []uint32{1, 3}, right, 2,
			[]exact.Prediction{p(1, 1), p(3, -1)}, screening.Stats{Queries: 1, Candidates: 3}},
		{"always ids fill an empty set", [][]uint32{{0}, {}}, []uint32{2}, up, 1,
			[]exact.Prediction{p(2, -1)}, screening.Stats{Queries: 1, Candidates: 1}},
		{"an empty set: the exact layer", [][]uint32{{0}, {}}, nil, up, 2,
			[]exact.Prediction{p(1, 3), p(0, 1)}, screening.Stats{Queries: 1, Exact: 1, Lacking: 1}},
		{"a small set: the exact layer", [][]uint32{{2, 3}, {}}, nil, right, 3,
			[]exact.Prediction{p(0, 3), p(1, 1), p(3, -1)}, screening.Stats{Queries: 1, Candidates: 2, Exact: 1, Lacking: 1}},
		{"k is L", [][]uint32{{}, {0, 1, 2, 3}}, nil, up, 4,
			[]exact.Prediction{p(1, 3), p(0, 1), p(2, -1), p(3, -3)}, screening.Stats{Queries: 1, Candidates: 4}},
	} {
		c.stats.Routing = 2 // both clusters
		t.Run(c.name, func(t *testing.T) {
			s := plane(t, c.sets, c.always...).Searcher(t)
			if got := screentest.TopK(t, s, c.k, c.h); !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
			if got := s.Stats(); got != c.stats {
				t.Errorf("stats %+v, want %+v", got, c.stats)
			}
		})
	}
}

// A screen of two clusters and four labels, whose candidates of the right cluster are 0, 2 and 3.
func TestEditsByCase(t *testing.T) {
	right := []float32{3, 1} // logits 3, 1, -3, -1
	only := func(ids ...uint32) *bitset.Set {
		s := bitset.New(4)
		for _, id := range ids {
			s.Add(id)
		}
		return s
	}
	for _, c := range []struct {
		name   string
		req    exact.Request
		k      int
		want   []uint32
		source exact.Source
	}{
		{"a label that is no candidate is banned", exact.Request{Banned: only(1)}, 1, []uint32{0}, exact.FromSet},
		{"a candidate below the answer is banned", exact.Request{Banned: only(2)}, 1, []uint32{0}, exact.FromSet},
		{"the best is banned: the next one is no candidate", exact.Request{Banned: only(0)}, 1, []uint32{1}, exact.FromLayer},
		{"the best is not allowed", exact.Request{Allowed: only(1, 2, 3)}, 1, []uint32{1}, exact.FromLayer},
		{"the best is allowed", exact.Request{Allowed: only(0, 2)}, 1, []uint32{0}, exact.FromSet},
		{"the second is banned", exact.Request{Banned: only(3)}, 2, []uint32{0, 1}, exact.FromLayer},
		{"the best is lowered, and stays above the next candidate", exact.Request{Biases: []exact.Bias{{ID: 0, Add: -3}}}, 1, []uint32{1}, exact.FromLayer},
		{"a bias below 0 changes no place", exact.Request{Biases: []exact.Bias{{ID: 2, Add: -3}}}, 1, []uint32{0}, exact.FromSet},
		{"another label is raised above the best", exact.Request{Biases: []exact.Bias{{ID: 1, Add: 7}}}, 1, []uint32{1}, exact.FromSet},
		{"the best is banned, and another label raised above it", exact.Request{Banned: only(0), Biases: []exact.Bias{{ID: 1, Add: 7}}}, 1, []uint32{1}, exact.FromSet},
		{"one label is within the distance, of two with figures", exact.Request{Within: 1}, 4, []uint32{0}, exact.FromSet},
		{"two labels are within the distance, one of them no candidate", exact.Request{Within: 4}, 4, []uint32{0, 1, 3}, exact.FromLayer},
		{"all candidates are within the distance", exact.Request{Within: 9}, 4, []uint32{0, 1, 3, 2}, exact.FromLayer},
		{"as many labels as are wanted are within the distance", exact.Request{Within: 9}, 1, []uint32{0}, exact.FromSet},
		{"no label is left", exact.Request{Banned: only(0, 1, 2, 3)}, 1, nil, exact.FromLayer},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := plane(t, [][]uint32{{0, 2, 3}, {}})
			in.Config.K = 2
			var err error
			if in.Model, err = screening.NewModel(in.Config); err != nil {
				t.Fatal(err)
			}
			got, a := screentest.Search(t, in.Searcher(t), c.k, right, c.req)
			if ids := screentest.IDsOf(got); !slices.Equal(ids, c.want) || a.Source != c.source {
				t.Errorf("found %v from the %v, want %v from the %v", ids, a.Source, c.want, c.source)
			}
		})
	}
}

func TestOneClusterAndOneLabel(t *testing.T) {
	layer, err := exact.NewLayer(kernels.Float32Rows([]float32{2}, 1), []float32{1})
	if err != nil {
		t.Fatal(err)
	}
	m, err := screening.NewModel(screening.Config{Dim: 1, Labels: 1, Clusters: []float32{-5}, Lists: []screening.List{{IDs: []uint32{0}}}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := screening.NewSearcher(m, layer, screening.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := screentest.TopK(t, s, 1, []float32{3}); !slices.Equal(got, []exact.Prediction{{ID: 0, Logit: 7}}) {
		t.Errorf("got %v", got)
	}
}

func TestSearcherRefuses(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	in := plane(t, [][]uint32{{0, 1}, {2, 3}})
	s := in.Searcher(t)
	for _, c := range []struct {
		name string
		k    int
		h    []float32
		want string
	}{
		{"k 0", 0, []float32{1, 2}, "l2s: k: found 0, expected 1 to the 4 labels"},
		{"k above L", 5, []float32{1, 2}, "l2s: k: found 5, expected 1 to the 4 labels"},
		{"no context", 1, nil, "l2s: context: found 0 elements, expected 2"},
		{"long context", 1, []float32{1, 2, 3}, "l2s: context: found 3 elements, expected 2"},
		{"NaN", 1, []float32{1, nan}, "l2s: context: found NaN at element 1, expected finite numbers"},
		{"Inf", 1, []float32{inf, 1}, "l2s: context: found +Inf at element 0, expected finite numbers"},
		{"-Inf", 1, []float32{1, -inf}, "l2s: context: found -Inf at element 1, expected finite numbers"},
	} {
		untouched := exact.Prediction{ID: 77, Logit: 7}
		dst := slices.Repeat([]exact.Prediction{untouched}, c.k)
		if n, err := s.TopK(dst, c.h); err == nil || err.Error() != c.want || n != 0 {
			t.Errorf("%s: %d, error %v, want %s", c.name, n, err, c.want)
		}
		for _, p := range dst {
			if p != untouched {
				t.Errorf("%s: dst was written", c.name)
			}
		}
	}
	if got := s.Stats(); got != (screening.Stats{}) {
		t.Errorf("refused queries were counted: %+v", got)
	}
}

func TestBatchesAreRefused(t *testing.T) {
	nan := float32(math.NaN())
	s := batched(t, plane(t, [][]uint32{{0, 1}, {2, 3}}))
	for _, c := range []struct {
		name     string
		dst, n   int
		contexts []float32
		kind     error
		want     string
	}{
		{"k 0", 0, 1, []float32{1, 2}, exact.ErrRequest, "l2s: k: found 0, expected 1 to the 4 labels"},
		{"k above L", 5, 1, []float32{1, 2}, exact.ErrRequest, "l2s: k: found 5, expected 1 to the 4 labels"},
		{"ragged contexts", 2, 2, []float32{1, 2, 3}, exact.ErrContext, "l2s: contexts: found 3 elements, expected dimension 2 for each of 2 answers"},
		{"odd dst", 3, 2, []float32{1, 2, 3, 4}, exact.ErrRequest, "l2s: dst: found room for 3 labels, expected the same number for each of 2 contexts"},
		{"room without contexts", 1, 0, nil, exact.ErrRequest, "l2s: dst: found room for 1 labels, expected the same number for each of 0 contexts"},
		{"NaN in the last row", 2, 2, []float32{1, 2, 3, nan}, exact.ErrContext, "l2s: contexts: row 1: found NaN at element 1, expected finite numbers"},
	} {
		dst, answers := make([]exact.Prediction, c.dst), make([]exact.Answer, c.n)
		if err := s.SearchBatch(dst, answers, c.contexts, &exact.Request{}); err == nil || err.Error() != c.want || !errors.Is(err, c.kind) {
			t.Errorf("%s: error %v, want %s", c.name, err, c.want)
		}
		for _, p := range dst {
			if p != (exact.Prediction{}) {
				t.Errorf("%s: dst was written", c.name)
			}
		}
	}
	if got := s.Stats(); got != (engine.Stats{}) {
		t.Errorf("refused batches were counted: %+v", got)
	}
	if err := s.SearchBatch(nil, nil, nil, &exact.Request{}); err != nil {
		t.Errorf("an empty batch: %v", err)
	}
}

// A log-sum that the request does not want is -Inf, as from the exact layer.
func TestLogSumUnasked(t *testing.T) {
	s := plane(t, [][]uint32{{0, 1}, {2, 3}}).Searcher(t)
	for _, k := range []int{1, 3} { // from the set, and from the layer
		a, err := s.Search(make([]exact.Prediction, k), []float32{1, 2}, exact.Request{})
		if err != nil || !math.IsInf(a.LogSum, -1) {
			t.Errorf("k = %d: found log-sum %v and error %v, expected -Inf", k, a.LogSum, err)
		}
	}
}

// Ids of a list that the layer does not have are an error, and nothing is counted.
func TestListsOfLabelsAreChecked(t *testing.T) {
	s := plane(t, [][]uint32{{0, 1}, {2, 3}}).Searcher(t)
	req := exact.Request{Among: exact.Only([]uint32{0, 4})}
	_, err := s.Search(make([]exact.Prediction, 1), []float32{1, 2}, req)
	if !errors.Is(err, exact.ErrRequest) || err.Error() != "l2s: ids[1]: found label 4, expected one below the 4 labels" {
		t.Errorf("found error %v, expected one about label 4", err)
	}
	if got := s.Stats(); got != (screening.Stats{}) {
		t.Errorf("refused requests were counted: %+v", got)
	}
}

// A bias that was forgotten, or is one too many, is a frequent reason for another fingerprint.
func TestAnotherBiasIsNamed(t *testing.T) {
	layer := func(bias []float32) *exact.Layer {
		l, err := exact.NewLayer(kernels.Float32Rows([]float32{1, 2, 3, 4}, 2), bias)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	none, some, others := layer(nil), layer([]float32{0, 1}), layer([]float32{2, 1})
	for _, c := range []struct {
		name     string
		made, of *exact.Layer
		want     string
	}{
		{"forgotten", some, none, "with a bias, which this one lacks: was it forgotten?"},
		{"one too many", none, some, "with these weights and without a bias: leave the bias out"},
		{"another one", some, others, "the model was made for another layer"},
	} {
		m, err := screening.NewModel(screening.Config{Dim: 2, Labels: 2, Clusters: []float32{1, 1}, Lists: []screening.List{{IDs: []uint32{0}}}, Fingerprint: c.made.Fingerprint()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = screening.NewSearcher(m, c.of, screening.Options{}); err == nil || !strings.HasSuffix(err.Error(), c.want) || !errors.Is(err, exact.ErrLayer) {
			t.Errorf("%s: found %v, expected an error that ends in %q", c.name, err, c.want)
		}
	}
}

func TestNewSearcherRefusesAnotherLayer(t *testing.T) {
	layer := func(w []float32, dim int) *exact.Layer {
		l, err := exact.NewLayer(kernels.Float32Rows(w, dim), nil)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	own := layer([]float32{1, 2, 3, 4}, 2)
	changed := layer([]float32{1, 2, 3, 5}, 2)
	config := screening.Config{Dim: 2, Labels: 2, Clusters: []float32{1, 1}, Lists: []screening.List{{IDs: []uint32{0}}}}
	unbound, err := screening.NewModel(config)
	if err != nil {
		t.Fatal(err)
	}
	config.Fingerprint = own.Fingerprint()
	bound, err := screening.NewModel(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		model *screening.Model
		layer *exact.Layer
		want  string
	}{
		{"its own layer", bound, own, ""},
		{"a layer of its shape, without a fingerprint", unbound, changed, ""},
		{"another dimension", unbound, layer([]float32{1, 2}, 1), "l2s: index: found a screen for 2 labels x 2, expected the layer's 2 x 1"},
		{"another number of labels", unbound, layer(make([]float32, 6), 2), "l2s: index: found a screen for 2 labels x 2, expected the layer's 3 x 2"},
		{"another layer of its shape", bound, changed, fmt.Sprintf(
			"l2s: screen: fingerprint: found %x, expected the layer's, %x: the model was made for another layer, or for these weights with a bias, which this one lacks: was it forgotten?", own.Fingerprint(), changed.Fingerprint())},
	} {
		s, err := screening.NewSearcher(c.model, c.layer, screening.Options{})
		switch {
		case c.want == "" && (err != nil || s == nil):
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || err.Error() != c.want || s != nil || !errors.Is(err, exact.ErrLayer)):
			t.Errorf("%s: error %v, want %s", c.name, err, c.want)
		}
	}
}

func TestQueriesDoNotAllocate(t *testing.T) {
	t.Run("flat", func(t *testing.T) { checkAllocations(t, screentest.Ordinary(t)) })
	t.Run("without copies", func(t *testing.T) { checkAllocations(t, screentest.Ordinary(t), screening.Options{Copies: -1}) })
	t.Run("observed", func(t *testing.T) {
		checkAllocations(t, screentest.Ordinary(t), screening.Options{Observers: []screening.Observer{&wishes{Wish: screening.Sees | screening.Places}}})
	})
	t.Run("shells and a tail", func(t *testing.T) { checkAllocations(t, screentest.Shelled(t)) })
	t.Run("log-sums over the tail", func(t *testing.T) { checkAllocations(t, screentest.Tailed(t), logsum.OverTail(screening.Options{})) })
}

// checkAllocations: nothing is allocated once scratch has grown, and a budget was asked for.
func checkAllocations(t *testing.T, in *screentest.Instance, o ...screening.Options) {
	const k = 5
	banned := bitset.New(in.Config.Labels)
	for id := uint32(0); id < 300; id += 7 {
		banned.Add(id)
	}
	ladder := in.Model.Ladder()
	biases := []exact.Bias{{ID: 3, Add: 2}, {ID: 200, Add: -1}}
	simdtest.EachLevel(t, func(t *testing.T) {
		s, several := in.Searcher(t, o...), batched(t, in, o...)
		batch, answers := make([]exact.Prediction, 100*k), make([]exact.Answer, 100)
		all := make([]exact.Prediction, in.Config.Labels)
		i := 0
		next := func() []float32 { i = (i + 1) % in.N; return in.Context(i) }
		one := func(req exact.Request) func() error {
			return func() error { var p [k]exact.Prediction; _, err := s.Search(p[:], next(), req); return err }
		}
		many := func(req exact.Request) func() error {
			return func() error { return several.SearchBatch(batch, answers, in.Contexts[:100*in.Config.Dim], &req) }
		}
		asks := map[string]func() error{
			"TopK":                   func() error { var p [k]exact.Prediction; _, err := s.TopK(p[:], next()); return err },
			"TopK of all of L":       func() error { _, err := s.TopK(all, next()); return err },
			"a log-sum":              one(exact.Request{LogSum: true}),
			"a temperature":          one(exact.Request{LogSum: true, Temperature: 0.8}),
			"a budget":               one(exact.Request{Budget: ladder[1].Budget}),
			"a budget and a log-sum": one(exact.Request{Budget: ladder[2].Budget, LogSum: true}),
			"the exact layer":        one(exact.Request{Exact: true}),
			"banned labels":          one(exact.Request{Banned: banned}),
			"biases and a budget":    one(exact.Request{Biases: biases, Budget: ladder[1].Budget}),
			"all edits":              one(exact.Request{LogSum: true, Banned: banned, Biases: biases}),
			"SearchBatch":            many(exact.Request{LogSum: true}),
			"SearchBatch with edits": many(exact.Request{LogSum: true, Banned: banned, Biases: biases}),
		}
		if in.Config.Tail != nil {
			asks["LogProb"] = func() error { _, err := logsum.LogProb(s, next(), 7, 1); return err }
			asks["LogSum"] = func() error { _, err := logsum.LogSum(s, next(), 1, 0.9); return err }
			var rest tail.Rest
			asks["Head"] = func() error { _, _, err := logsum.HeadOf(s, next(), 0, &rest); rest.At(1, 0.9); return err }
		}
		for name, f := range asks {
			warm, runs := in.N, 50 // scratch grows to the largest list
			if strings.HasPrefix(name, "SearchBatch") {
				warm, runs = 1, 3 // all calls are for the same 100 contexts
			}
			var err error
			for range warm {
				err = f()
			}
			if n := simdtest.AllocsPerRun(runs, func() { err = f() }); n != 0 || err != nil {
				t.Errorf("%s: %v allocations a call, %v", name, n, err)
			}
		}
	})
}

func TestNotEvenTheFirstQueryAllocates(t *testing.T) {
	// The scratch has the size of the lists if they are larger, otherwise of the clusters.
	many := screentest.Shape{Labels: 300, Dim: 24, Clusters: 80, Contexts: 30, Keep: 4, Seed: 8}.Instance(t)
	simdtest.EachLevel(t, func(t *testing.T) {
		for kind, in := range map[string]*screentest.Instance{"large lists": screentest.Ordinary(t), "many clusters": many, "shells": screentest.Shelled(t)} {
			const runs = 20
			var fresh []*screening.Searcher
			for range runs + 1 { // AllocsPerRun makes one call more
				fresh = append(fresh, in.Searcher(t))
			}
			i := 0
			if n := simdtest.AllocsPerRun(runs, func() {
				var p [2]exact.Prediction
				if _, err := fresh[i].TopK(p[:], in.Context(i)); err != nil {
					t.Fatal(err)
				}
				i++
			}); n != 0 {
				t.Errorf("%s: %v allocations", kind, n)
			}
		}
	})
}

func TestManyGoroutinesShareOneModel(t *testing.T) {
	in := screentest.Ordinary(t)
	const k = 5
	var want []exact.Prediction
	first := in.Searcher(t)
	for i := range in.N {
		want = append(want, screentest.TopK(t, first, k, in.Context(i))...)
	}
	var wg sync.WaitGroup
	for g := range 8 {
		s := in.Searcher(t)
		wg.Add(1)
		go func() {
			defer wg.Done()
			got := make([]exact.Prediction, in.N*k)
			for round := range 2 {
				for i := range in.N {
					at := (i*7 + g*31) % in.N // goroutines ask for different contexts
					if _, err := s.TopK(got[at*k:(at+1)*k], in.Context(at)); err != nil {
						t.Error(err)
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
