package softmax_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/simdtest"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
)

// viewed is a layer whose logits differ in few directions of its contexts, as those of language models
// do: direction j of a context has the deviation 1/(1+j/4)^decay.
func viewed(t testing.TB, labels, dim, n int, decay float64) (l *softmax.Layer, contexts []float32) {
	r := newRand(uint64(labels))
	w, bias := gaussian(r, labels*dim), gaussian(r, labels)
	contexts = gaussian(r, n*dim)
	for i := range contexts {
		contexts[i] *= float32(math.Pow(1+float64(i%dim)/4, -decay))
	}
	return newLayer(t, w, bias, dim), contexts
}

func gaussian(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

func newView(t failer, l *softmax.Layer, contexts []float32, deviations float64) *softmax.View {
	t.Helper()
	v, err := softmax.NewViewAt(l, contexts, deviations)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Whatever the request, the answer of a view is the exact one among the labels that it left, or
// among all of the request.
func TestAnswersOfAViewAreExactAmongWhatItLeaves(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			l, h := drawLayer(t)
			contexts := gaussian(newRand(rapid.Uint64().Draw(t, "contexts seed")), 256*l.Dim())
			v, err := softmax.NewViewAt(l, contexts, rapid.Float64Range(0.01, 10).Draw(t, "deviations"))
			if err != nil {
				return // numbers too large
			}
			s, w := v.NewSearcher(), wide(l)
			for range 3 {
				req, among := drawRequest(t, l)
				dst := make([]softmax.Prediction, req.K)
				a, err := s.Search(dst, h, req)
				if err != nil {
					t.Fatal(err)
				}
				if a.Source == softmax.FromSet {
					if among = slices.Clone(s.Left()); req.LogSum || req.Among.Some() {
						t.Fatalf("%+v: found an answer from a set, expected one from the layer", req)
					}
				}
				all := definition(l, w, h, among, &req)
				if want := all[:min(req.K, len(all))]; !slices.Equal(dst[:a.Count], want) {
					t.Fatalf("found %v %v, expected %v", a, dst, want)
				}
				checkSum(t, l, w, h, &req, all, a.LogSum)
			}
		})
	})
}

// With all coordinates and wide intervals nothing is missed, though most labels are left out; with ties
// as in the exact search.
func TestAViewOfAllCoordinatesMissesNothing(t *testing.T) {
	l, contexts := viewed(t, 3000, 16, 400, 0)
	w := wide(l)
	copy(w[2000*16:], w[:500*16]) // 500 rows are there twice
	l = newLayer(t, w, make([]float32, 3000), 16)
	v, exact := newView(t, l, contexts, 40), softmax.NewSearcher(l)
	s, left := v.NewSearcher(), 0
	for at := 0; at < len(contexts); at += 16 {
		h := contexts[at : at+16]
		if got, want := topK(t, s, 4, h), topK(t, exact, 4, h); !slices.Equal(got, want) {
			t.Fatalf("found %v, expected %v", got, want)
		}
		left += len(s.Left())
	}
	if mean := left / 400; mean > 300 {
		t.Errorf("found %d labels left of 3,000, expected a tenth at most", mean)
	}
}

// Contexts like those that a view was made from find their best labels, among a few that it leaves, and
// with fewer deviations among fewer.
func TestAViewMissesLittle(t *testing.T) {
	const labels, dim, n, k = 4000, 96, 3000, 5
	l, contexts := viewed(t, labels, dim, n, 1)
	exact := softmax.NewSearcher(l)
	before := labels
	for _, deviations := range []float64{5, 2} {
		s := newView(t, l, contexts[:2000*dim], deviations).NewSearcher()
		missed, left := 0, 0
		for at := 2000 * dim; at < len(contexts); at += dim {
			h := contexts[at : at+dim]
			got := topK(t, s, k, h)
			for _, p := range topK(t, exact, k, h) {
				if !slices.Contains(got, p) {
					missed++
				}
			}
			left += len(s.Left())
		}
		if share := float64(missed) / (1000 * k); deviations == 5 && share > 0.0005 || share > 0.1 {
			t.Errorf("%v deviations: missed a share of %v", deviations, share)
		}
		if mean := left / 1000; mean > labels/10 || mean >= before {
			t.Errorf("%v deviations: found %d labels left of %d, before %d", deviations, mean, labels, before)
		} else {
			before = mean
		}
	}
}

// A view and its answers have the same bits on every level, on any number of threads, and for one
// context or many.
func TestLevelsAndThreadsDoNotShowInAView(t *testing.T) {
	defer softmax.ShareAll()()
	const labels, dim, n, k = 2500, 70, 600, 7
	l, contexts := viewed(t, labels, dim, n, 1)
	banned, err := bitset.FromIDs(labels, allIDs(50))
	if err != nil {
		t.Fatal(err)
	}
	req := softmax.Request{K: k, Banned: banned, Biases: []softmax.Bias{{ID: 60, Add: 3}}}
	var want []softmax.Prediction
	var bytes int64
	simdtest.EachLevel(t, func(t *testing.T) {
		v := newView(t, l, contexts, 4)
		for _, threads := range []int{1, 3} {
			l.SetThreads(threads)
			dst, answers := make([]softmax.Prediction, n*k), make([]softmax.Answer, n)
			if err := v.NewSearcher().SearchBatch(dst, answers, contexts, req); err != nil {
				t.Fatal(err)
			}
			s := v.NewSearcher()
			for i, a := range answers {
				one := make([]softmax.Prediction, k)
				alone, err := s.Search(one, contexts[i*dim:(i+1)*dim], req)
				if err != nil || alone != a || !slices.Equal(one, dst[i*k:(i+1)*k]) {
					t.Fatalf("context %d: alone %v %v, %v, together %v %v", i, alone, one, err, a, dst[i*k:(i+1)*k])
				}
				// The labels that are left show the bits of the view.
				for _, id := range s.Left() {
					dst = append(dst, softmax.Prediction{ID: id})
				}
			}
			if want == nil {
				want, bytes = dst, v.Bytes()
			}
			if !slices.Equal(dst, want) || v.Bytes() != bytes {
				t.Errorf("%d threads: found other labels or another size than before", threads)
			}
		}
		l.SetThreads(1)
	})
}

// The budget of an exact search has the exact answer.
func TestAnExactBudgetGoesPastAView(t *testing.T) {
	l, contexts := viewed(t, 2000, 40, 300, 1)
	s, exact := newView(t, l, contexts, 0.01).NewSearcher(), softmax.NewSearcher(l)
	differ := false
	for at := 0; at < len(contexts); at += 40 {
		h, got := contexts[at:at+40], make([]softmax.Prediction, 5)
		a, err := s.Search(got, h, softmax.Request{K: 5, Budget: softmax.Exact})
		want := topK(t, exact, 5, h)
		if err != nil || a.Source != softmax.FromLayer || !slices.Equal(got, want) {
			t.Fatalf("found %v %v, %v, expected %v", a, got, err, want)
		}
		differ = differ || !slices.Equal(topK(t, s, 5, h), want)
	}
	if !differ {
		t.Error("a view of a hundredth of a deviation missed nothing: the test shows nothing")
	}
}

func TestNewViewRefuses(t *testing.T) {
	l, contexts := viewed(t, 300, 10, 256, 0)
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1))} {
		with := slices.Clone(contexts)
		with[77] = bad
		if _, err := softmax.NewView(l, with); !errors.Is(err, softmax.ErrContext) {
			t.Errorf("%v among the contexts: found %v", bad, err)
		}
	}
	for _, n := range []int{0, 10, 127 * 10, 128*10 - 1, 128*10 + 1} {
		if _, err := softmax.NewView(l, append(contexts, 0)[:n]); !errors.Is(err, softmax.ErrContext) {
			t.Errorf("%d elements: found %v", n, err)
		}
	}
	for _, deviations := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		if _, err := softmax.NewViewAt(l, contexts, deviations); err == nil {
			t.Errorf("%v deviations: found no error", deviations)
		}
	}
	large := newLayer(t, []float32{0x1p50, 1}, nil, 1)
	if _, err := softmax.NewView(large, contexts); err == nil {
		t.Error("a layer without codes: found no error")
	}
}

// Contexts that are all the same, or zero, and rows that are, have a view all the same.
func TestViewsOfLittle(t *testing.T) {
	for _, scale := range []float32{0, 1} {
		contexts := make([]float32, 256*8)
		for i := range contexts {
			contexts[i] = scale * float32(i%8)
		}
		for _, l := range []*softmax.Layer{
			newLayer(t, make([]float32, 100*8), nil, 8),
			newLayer(t, gaussian(newRand(1), 100*8), nil, 8),
			newLayer(t, gaussian(newRand(1), 8), nil, 8),
		} {
			h, k := []float32{1, 2, 3, 4, 5, 6, 7, 8}, min(3, l.Labels())
			s := newView(t, l, contexts, 5).NewSearcher()
			if got, want := topK(t, s, k, h), topK(t, softmax.NewSearcher(l), k, h); scale == 0 && !slices.Equal(got, want) || len(got) != k {
				t.Errorf("found %v, expected %v", got, want)
			}
		}
	}
}

func TestSearchesOfAViewDoNotAllocate(t *testing.T) {
	l, contexts := viewed(t, 3000, 64, 300, 1)
	s, top := newView(t, l, contexts, 5).NewSearcher(), make([]softmax.Prediction, 5)
	at := 0
	f := func() {
		if _, err := s.TopK(top, contexts[at*64:(at+1)*64]); err != nil {
			t.Fatal(err)
		}
		at = (at + 1) % 300
	}
	for range 300 {
		f()
	}
	if n := simdtest.AllocsPerRun(300, f); n != 0 {
		t.Errorf("found %v allocations a search, expected none", n)
	}
}

// A view finds the two best of 1,000 labels, without training.
func ExampleNewView() {
	const labels, dim = 1000, 8
	r := rand.New(rand.NewPCG(1, 2))
	layer, err := softmax.NewLayer(kernels.Float32Rows(gaussian(r, labels*dim), dim), nil)
	if err != nil {
		panic(err)
	}
	contexts := gaussian(r, 4000*dim) // a model's: like those to come
	view, err := softmax.NewView(layer, contexts)
	if err != nil {
		panic(err)
	}
	searcher := view.NewSearcher() // one for each goroutine
	top := make([]softmax.Prediction, 2)
	answer, err := searcher.Search(top, contexts[:dim], softmax.Request{K: 2})
	fmt.Println(len(top), answer.Source, err)
	// Output: 2 set <nil>
}
