package parallel

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Every element is in one chunk of one worker, for any numbers.
func TestEachTakesEveryElementOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 300).Draw(t, "n")
		chunk := rapid.IntRange(1, 50).Draw(t, "chunk")
		threads := rapid.IntRange(0, 9).Draw(t, "threads")
		times := make([]int, n)
		busy := make([]atomic.Int32, Threads(threads, n))
		var done atomic.Int64
		err := Each(context.Background(), threads, n, chunk, func(m int) { done.Add(int64(m)) }, func(worker, lo, hi int) error {
			if busy[worker].Add(1) != 1 {
				return fmt.Errorf("worker %d has two chunks at once", worker)
			}
			defer busy[worker].Add(-1)
			if lo%chunk != 0 || hi != min(lo+chunk, n) {
				return fmt.Errorf("found the chunk [%d, %d)", lo, hi)
			}
			for i := lo; i < hi; i++ {
				times[i]++
			}
			return nil
		})
		if err != nil || int(done.Load()) != n {
			t.Fatalf("%d elements are told of, want %d; %v", done.Load(), n, err)
		}
		for i, m := range times {
			if m != 1 {
				t.Fatalf("element %d: taken %d times", i, m)
			}
		}
	})
}

// If several chunks fail, Each reports the lowest, even if a higher one fails first.
func TestEachReturnsTheErrorOfTheLowestChunk(t *testing.T) {
	for _, threads := range []int{1, 2, 3, 7} {
		higher := make(chan struct{})
		var once sync.Once
		err := Each(context.Background(), threads, 100, 1, nil, func(_, i, _ int) error {
			switch {
			case i == 41 && threads > 1:
				<-higher // 42 has been begun, and has failed
				return errors.New("41")
			case i == 41:
				return errors.New("41")
			case i > 41:
				once.Do(func() { close(higher) })
				return errors.New("higher")
			}
			return nil
		})
		if err == nil || err.Error() != "41" {
			t.Errorf("%d threads: found %v, want the error of chunk 41", threads, err)
		}
	}
}

func TestEachStopsWhenCancelled(t *testing.T) {
	before := runtime.NumGoroutine()
	for _, threads := range []int{1, 2, 7} {
		ctx, cancel := context.WithCancel(context.Background())
		var done atomic.Int64
		err := Each(ctx, threads, 1<<30, 1, nil, func(int, int, int) error {
			if n := done.Add(1); n == 10 {
				cancel()
			} else if n > 10 { // begun before the end of the tenth
				<-ctx.Done()
			}
			return nil
		})
		if !errors.Is(err, context.Canceled) || err.Error() != "interrupted: context canceled" {
			t.Errorf("%d threads: found %v after %d chunks", threads, err, done.Load())
		}
		if most := int64(10 + threads); done.Load() > most {
			t.Errorf("%d threads: found %d chunks, want at most %d", threads, done.Load(), most)
		}
	}
	// A goroutine is counted until the runtime has taken it down, a moment after its end.
	for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

// A cancellation after the last chunk is no error.
func TestEachThatIsDoneIsNotInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	if err := Each(ctx, 1, 3, 3, nil, func(int, int, int) error { cancel(); return nil }); err != nil {
		t.Errorf("cancelled in the last chunk: found %v", err)
	}
	if err := Each(ctx, 1, 0, 3, nil, nil); err != nil {
		t.Errorf("cancelled before no work: found %v", err)
	}
	if err := Each(ctx, 1, 1, 3, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before work: found %v", err)
	}
}

// Calls come one at a time, with sums that grow, some hundred of them, and end
// at the total.
func TestCounter(t *testing.T) {
	for _, total := range []int{1, 7, 100, 12345} {
		var inside atomic.Int32
		calls, last := 0, 0
		count := Counter(total, func(done int) {
			if inside.Add(1) != 1 {
				t.Error("two calls at once")
			}
			defer inside.Add(-1)
			if done <= last {
				t.Errorf("found %d after %d", done, last)
			}
			calls, last = calls+1, done
		})
		if err := Each(context.Background(), 4, total, 1, count, func(int, int, int) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if last != total || calls > 101 || calls < min(total, 95) {
			t.Errorf("of %d: found %d calls, the last with %d", total, calls, last)
		}
	}
}

func TestThreads(t *testing.T) {
	for _, c := range []struct{ threads, n, want int }{
		{1, 10, 1}, {4, 10, 4}, {40, 10, 10}, {3, 0, 1}, {0, 1, 1}, {0, 1 << 30, runtime.GOMAXPROCS(0)},
	} {
		if got := Threads(c.threads, c.n); got != c.want {
			t.Errorf("Threads(%d, %d) = %d, want %d", c.threads, c.n, got, c.want)
		}
	}
}
