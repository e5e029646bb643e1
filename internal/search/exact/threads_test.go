package exact_test

import (
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

// sharedLayer is a layer whose scans are shared, and contexts for it.
func sharedLayer(t *testing.T) (w, contexts []float32, dim int) {
	const labels, d, n = 6_000, 48, 8
	t.Cleanup(exact.ShareAll())
	r := newRand(21)
	w, contexts = make([]float32, labels*d), make([]float32, n*d)
	for i := range w {
		w[i] = float32(r.NormFloat64())
	}
	for i := range contexts {
		contexts[i] = float32(r.NormFloat64())
	}
	for i := range d { // and labels with large logits, or the first pass leaves all labels
		for c := range n {
			w[(c*701+7)*d+i] += contexts[c*d+i]
		}
	}
	return w, contexts, d
}

// question is a request for the k best labels.
type question struct {
	k int
	exact.Request
}

func sharedRequests() []question {
	few := bitset.New(6_000)
	for id := range uint32(50) {
		few.Add(100 * id)
	}
	return []question{
		{k: 1},
		{k: 40},
		{k: 300},
		{300, exact.Request{Within: 2}},
		{6_000, exact.Request{Within: 0.5}},
		{5, exact.Request{LogSum: true}},
		{5, exact.Request{Allowed: few}},
		{5, exact.Request{Among: exact.Only(allIDs(400))}},
		{1, exact.Request{Biases: []exact.Bias{{ID: 5_999, Add: 300}}}},
		{0, exact.Request{LogSum: true, Temperature: 2}},
	}
}

// Any number of threads, and any number of goroutines that search, have the answers of one.
func TestThreadsDoNotShow(t *testing.T) {
	w, contexts, dim := sharedLayer(t)
	one, many := newLayer(t, w, nil, dim), newLayer(t, w, nil, dim)
	simdtest.EachLevel(t, func(t *testing.T) {
		for _, threads := range []int{2, 5} {
			if many.SetThreads(threads); threads == 5 {
				many.LendThreads(threads, onGoroutines(threads))
			}
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() {
					got, want := exact.NewSearcher(many), exact.NewSearcher(one)
					for _, req := range sharedRequests() {
						a, b := make([]exact.Prediction, req.k), make([]exact.Prediction, req.k)
						for at := 0; at < len(contexts); at += dim {
							x, errX := got.Search(a, contexts[at:at+dim], req.Request)
							y, errY := want.Search(b, contexts[at:at+dim], req.Request)
							if errX != nil || errY != nil || x != y || !slices.Equal(a, b) {
								t.Errorf("%d threads, %+v: found %v, %v, %v, expected %v, %v, %v", threads, req, x, a, errX, y, b, errY)
								return
							}
						}
					}
				})
			}
			all.Wait()
		}
		many.SetThreads(1)
	})
}

func TestSearchesOnThreadsDoNotAllocate(t *testing.T) {
	w, contexts, dim := sharedLayer(t)
	l := newLayer(t, w, nil, dim)
	l.SetThreads(3)
	s := exact.NewSearcher(l)
	for _, req := range sharedRequests() {
		dst := make([]exact.Prediction, req.k)
		f := func() {
			if _, err := s.Search(dst, contexts[:dim], req.Request); err != nil {
				t.Fatal(err)
			}
		}
		if f(); simdtest.AllocsPerRun(20, f) != 0 {
			t.Errorf("%+v: found allocations, expected none", req)
		}
	}
}

// A label that is not there is a panic where it was asked for, on any number of threads.
func TestAWrongLabelPanicsInTheCaller(t *testing.T) {
	w, contexts, dim := sharedLayer(t)
	l := newLayer(t, w, nil, dim)
	l.SetThreads(3)
	ids := allIDs(400)
	ids[399] = 6_000
	defer func() {
		if recover() == nil {
			t.Error("found no panic, expected one")
		}
	}()
	req, dst, answers := exact.Request{Among: exact.Only(ids)}, make([]exact.Prediction, 1), make([]exact.Answer, 1)
	_ = exact.NewSearcher(l).Find(dst, answers, []*exact.Query{newQuery(t, contexts[:dim])}, &req)
}

// The threads of a layer that is gone, or that has others, are gone.
func TestHelpersEnd(t *testing.T) {
	before := runtime.NumGoroutine()
	func() {
		l := newLayer(t, make([]float32, 8), nil, 2)
		l.SetThreads(math.MaxInt)
		if n := runtime.NumGoroutine() - before; n > 255 {
			t.Errorf("found %d threads in addition to the caller's, expected at most 255", n)
		}
		l.SetThreads(5)
	}()
	for range 200 { // cleanups run some time after the collection
		if runtime.GC(); runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("found %d goroutines, expected the %d of before", runtime.NumGoroutine(), before)
}

// A pool that makes none or one of its calls gives the same answers as a pool that makes all.
func TestThreadsThatAreNotLent(t *testing.T) {
	w, contexts, dim := sharedLayer(t)
	one, many := newLayer(t, w, nil, dim), newLayer(t, w, nil, dim)
	for _, all := range []func(work func(int)){func(func(int)) {}, func(work func(int)) { work(2) }} {
		many.LendThreads(3, all)
		got, want := exact.NewSearcher(many), exact.NewSearcher(one)
		for _, req := range sharedRequests() {
			a, b := make([]exact.Prediction, req.k), make([]exact.Prediction, req.k)
			x, errX := got.Search(a, contexts[:dim], req.Request)
			y, errY := want.Search(b, contexts[:dim], req.Request)
			if errX != nil || errY != nil || x != y || !slices.Equal(a, b) {
				t.Errorf("%+v: found %v, %v, %v, expected %v, %v, %v", req, x, a, errX, y, b, errY)
			}
		}
	}
}

// onGoroutines lends n goroutines.
func onGoroutines(n int) func(work func(worker int)) {
	return func(work func(worker int)) {
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() { work(i) })
		}
		all.Wait()
	}
}
