package llamacpp_test

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/llamacpp"
)

// The threads of a model call work once each, with their numbers; threads from n on do not.
func TestAModelLendsItsThreads(t *testing.T) {
	m := open(t, llamacpp.Options{Context: 16, Threads: 3})
	for _, threads := range []int{3, 1, 2, 4} {
		if err := m.SetThreads(threads); err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{1, 2, 4, 9} {
			for range 50 {
				var mu sync.Mutex
				var found []int
				m.Lend(n, func(worker int) {
					mu.Lock()
					found = append(found, worker)
					mu.Unlock()
				})
				slices.Sort(found)
				if want := []int{0, 1, 2, 3}[:min(n, threads)]; !slices.Equal(found, want) {
					t.Fatalf("%d threads, %d lent: found workers %v, expected %v", threads, n, found, want)
				}
			}
		}
	}
	// A search that asks for threads while they are lent, or in use, runs on its own thread alone.
	if err := m.SetThreads(2); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	m.Lend(2, func(int) {
		once.Do(func() {
			inner := 0
			m.Lend(2, func(worker int) { inner += 1 + worker })
			if inner != 1 {
				t.Errorf("found %d, expected one call, with the number 0", inner)
			}
		})
	})
}

// While a model has two threads or more Go has spare processors, which count for no default, and
// then the number that it had before.
func TestAModelHasSpareProcessors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	expect := func(when string, want int) {
		t.Helper()
		if n := runtime.GOMAXPROCS(0); n != want {
			t.Errorf("%s: found GOMAXPROCS %d, expected %d", when, n, want)
		}
	}
	m := open(t, llamacpp.Options{Context: 16, Threads: 2})
	expect("with two threads", 4)
	another, err := llamacpp.Open(gguf, llamacpp.Options{Context: 16}) // two, by default
	if err != nil {
		t.Fatal(err)
	}
	workers := 0
	another.Lend(9, func(worker int) {
		if worker > 0 {
			workers = worker
		}
	})
	if workers != 1 {
		t.Errorf("found a worker %d, expected 1 as the last: two threads by default", workers)
	}
	another.Close()
	expect("with one model left", 4)
	if err := m.SetThreads(1); err != nil {
		t.Fatal(err)
	}
	expect("with one thread", 2)
	if err := m.SetThreads(2); err != nil {
		t.Fatal(err)
	}
	runtime.GOMAXPROCS(3) // by the program
	m.Close()
	expect("after another number of the program", 3)
}

// Searches on the threads of a model have the answers of one thread: between decodes, while another
// goroutine decodes, with another number of threads, and when the model is closed.
func TestSearchesOnTheThreadsOfAModel(t *testing.T) {
	m := open(t, llamacpp.Options{Context: 64, Threads: 2})
	ids := m.Tokens(text, true)[:8]
	states := make([][]float32, len(ids))
	want := make([][]l2s.Prediction, len(ids))
	x := openHead(t, m)
	x.SetThreads(1)
	search := func(h []float32) []l2s.Prediction {
		best := make([]l2s.Prediction, 20)
		if _, err := x.Search(best, h, l2s.Request{}); err != nil {
			t.Error(err)
		}
		return best
	}
	for i, id := range ids {
		states[i] = feed(t, m, 0, id)
		want[i] = search(states[i])
	}
	same := func(when string) {
		t.Helper()
		for i, h := range states {
			if found := search(h); !slices.Equal(found, want[i]) {
				t.Errorf("%s: state %d: found %v, expected %v", when, i, found, want[i])
			}
		}
	}
	for _, n := range []int{2, 3} {
		x.SetThreads(n)
		same("between decodes")
	}
	done := make(chan error)
	go func() {
		var err error
		for range 20 {
			if err == nil {
				_, err = m.Feed(context.Background(), 0, ids[0])
			}
		}
		done <- err
	}()
	same("during decodes")
	same("during decodes")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 4, 2} {
		if err := m.SetThreads(n); err != nil {
			t.Fatal(err)
		}
		same("with other threads of the model")
		feed(t, m, 0, ids[1])
	}
	m.Close()
	same("of a model that is closed")
}
