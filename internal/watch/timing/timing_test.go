package timing

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"
)

// times returns the Times of these durations, in any order.
func times(d ...time.Duration) Times {
	slices.Sort(d)
	return Times{sorted: d}
}

func TestQuantileIsTheLeastTimeThatCoversTheShare(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(100 - i) // 100 ... 1
	}
	for _, c := range []struct {
		times Times
		p     float64
		want  time.Duration
	}{
		{times(hundred...), 0, 1},
		{times(hundred...), 0.005, 1},
		{times(hundred...), 0.5, 50},
		{times(hundred...), 0.99, 99},
		{times(hundred...), 0.991, 100},
		{times(hundred...), 1, 100},
		{times(7), 0.5, 7},
		{times(7), 0.99, 7},
		{times(3, 9), 0.5, 3},
		{times(3, 9), 0.99, 9},
		{times(3, 5, 9), 0.5, 5},
	} {
		if got := c.times.Quantile(c.p); got != c.want {
			t.Errorf("%v of %v: found %v, expected %v", c.p, c.times.sorted, got, c.want)
		}
	}
	if m := times(4, 1, 9).Median(); m != 4 {
		t.Errorf("median: found %v, expected 4ns", m)
	}
}

// One query in ten takes a thousand times as long: the mean shows it, the median
// does not. A block of a busy machine moves neither.
func TestMeanCountsTheQueriesThatTakeLong(t *testing.T) {
	for _, c := range []struct {
		means []float64
		want  time.Duration
	}{
		{[]float64{7}, 7},
		{[]float64{7, 9}, 8},
		{[]float64{1, 2, 1000}, 2},
		{[]float64{1, 2, 4, 1000}, 3},
	} {
		if got := (Times{means: c.means}).Mean(); got != c.want {
			t.Errorf("blocks of %v: found %v, expected %v", c.means, got, c.want)
		}
	}
	const long = 3 * time.Millisecond
	calls := 0
	got, err := Measure(context.Background(), 1, []func(int){func(int) {
		if calls++; calls%10 == 0 {
			time.Sleep(long)
		}
	}}, Options{Rounds: 3, Block: 1, Least: 60})
	if err != nil {
		t.Fatal(err)
	}
	// Each block of 20 has two that are long.
	if mean := got[0].Mean(); mean < long/10 {
		t.Errorf("found a mean of %v, expected at least %v", mean, long/10)
	}
}

// record returns a method that notes the contexts that it gets.
func record(into *[]int) func(i int) { return func(i int) { *into = append(*into, i) } }

func TestContextsComeInTurn(t *testing.T) {
	const n = 7
	var a, b []int
	_, err := Measure(context.Background(), n, []func(int){record(&a), record(&b)}, Options{Rounds: 3, Block: 50 * time.Microsecond, Least: 30})
	if err != nil {
		t.Fatal(err)
	}
	for name, asked := range map[string][]int{"first": a, "second": b} {
		for at, i := range asked {
			if i != at%n {
				t.Fatalf("%s method: query %d was for context %d, expected %d", name, at, i, at%n)
			}
		}
		if len(asked) < n {
			t.Errorf("%s method: found %d queries, expected every context at least once", name, len(asked))
		}
	}
}

func TestEveryMethodHasTheLeastNumberOfQueries(t *testing.T) {
	slow := func(int) { time.Sleep(20 * time.Microsecond) }
	for _, least := range []int{0, 1, 10, 11} {
		got, err := Measure(context.Background(), 3, []func(int){slow, func(int) {}}, Options{Rounds: 5, Block: time.Microsecond, Least: least})
		if err != nil {
			t.Fatal(err)
		}
		for i, times := range got {
			if times.Queries() < max(least, 5) { // at least one per round
				t.Errorf("method %d: found %d queries, expected at least %d", i, times.Queries(), max(least, 5))
			}
			if !slices.IsSorted(times.sorted) {
				t.Errorf("method %d: found times that are not sorted", i)
			}
		}
	}
}

func TestMethodsTakeTurnsInBlocks(t *testing.T) {
	const rounds = 4
	var order []byte
	measuring := false
	method := func(name byte) func(int) {
		return func(int) {
			if measuring && (len(order) == 0 || order[len(order)-1] != name) {
				order = append(order, name)
			}
		}
	}
	_, err := Measure(context.Background(), 5, []func(int){method('a'), method('b'), method('c')}, Options{
		Rounds: rounds, Block: time.Microsecond, Least: 20,
		Progress: func(round, _ int) { measuring = true },
	})
	if err != nil {
		t.Fatal(err)
	}
	if string(order) != "abcabcabcabc" {
		t.Errorf("found the order %s, expected abc %d times", order, rounds)
	}
}

// The function before a query gets the context of the query, runs once per query, and is in no
// time.
func TestWhatGoesBeforeAQueryIsNoPartOfItsTime(t *testing.T) {
	const n, long = 7, 2 * time.Millisecond
	var asked, before []int
	got, err := Measure(context.Background(), n, []func(int){record(&asked)}, Options{
		Rounds: 2, Block: time.Microsecond, Least: 20,
		Before: func(i int) { before = append(before, i); time.Sleep(long) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(asked, before) {
		t.Errorf("found the queries %v, but before them %v", asked, before)
	}
	if found := got[0].Queries(); found != 20 {
		t.Errorf("found %d times, expected one for each of 20 queries", found)
	}
	// A query may be interrupted, but not all of them.
	if least := got[0].sorted[0]; least >= long {
		t.Errorf("found at least %v for each query, expected less than the work before it, %v", least, long)
	}
	if mean := got[0].means[0]; mean >= float64(long) {
		t.Errorf("found a mean of %v ns, expected less than the work before a query, %v", mean, long)
	}
}

// A query that takes long must show in its quantile, and queries that are not timed in no quantile.
func TestEachQueryIsTimedByItself(t *testing.T) {
	const long = 3 * time.Millisecond
	calls := 0
	counting := false
	got, err := Measure(context.Background(), 1, []func(int){func(int) {
		if !counting {
			return
		}
		// A round is one query to warm up and at least 19 timed ones: the first and the last of
		// each 20 are long.
		if calls++; calls%20 == 1 || calls%20 == 0 {
			time.Sleep(long)
		}
	}}, Options{Rounds: 1, Block: 1, Least: 19, Progress: func(int, int) { counting = true }})
	if err != nil {
		t.Fatal(err)
	}
	timed := got[0]
	warm := int(warmUp*float64(timed.Queries())) + 1
	wantLong := 0
	for call := 1; call <= timed.Queries()+warm; call++ {
		if call > warm && (call%20 == 1 || call%20 == 0) {
			wantLong++
		}
	}
	found := 0
	for _, d := range timed.sorted {
		if d >= long {
			found++
		}
	}
	// More may be long if the machine is busy, fewer never.
	if found < wantLong || wantLong == 0 {
		t.Errorf("found %d queries of at least %v among %d, expected at least %d", found, long, timed.Queries(), wantLong)
	}
	if calls != timed.Queries()+warm {
		t.Errorf("found %d calls, expected %d to warm up and %d timed", calls, warm, timed.Queries())
	}
}

func TestProgressGoesFromNoneToAll(t *testing.T) {
	var rounds []int
	_, err := Measure(context.Background(), 1, []func(int){func(int) {}}, Options{
		Rounds: 3, Block: 1, Progress: func(round, of int) {
			if of != 3 {
				t.Errorf("found %d rounds in all, expected 3", of)
			}
			rounds = append(rounds, round)
		},
	})
	if err != nil || !slices.Equal(rounds, []int{0, 1, 2, 3}) {
		t.Errorf("found %v, %v, expected 0 to 3", rounds, err)
	}
}

func TestMeasureStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	rounds := 0
	_, err := Measure(ctx, 1, []func(int){func(int) {}}, Options{
		Rounds: 1000, Block: 1, Progress: func(round, _ int) {
			if rounds = round; round == 2 {
				cancel()
			}
		},
	})
	if !errors.Is(err, context.Canceled) || rounds != 2 {
		t.Errorf("found error %v after round %d, expected it to be canceled in round 2", err, rounds)
	}
}

func TestMeasureStopsBetweenTwoQueriesThatAreApart(t *testing.T) {
	const last = 10
	for name, least := range map[string]int{"in the warm-up": 1000, "in a turn": 20} {
		ctx, cancel := context.WithCancel(context.Background())
		before := 0
		_, err := Measure(ctx, 1, []func(int){func(int) {}}, Options{
			Rounds: 1, Block: 1, Least: least, Before: func(int) {
				if before++; before == last {
					cancel()
				}
			},
		})
		if !errors.Is(err, context.Canceled) || before != last {
			t.Errorf("%s: found error %v after %d queries, expected it to be canceled after %d", name, err, before, last)
		}
	}
}

// Contexts of two kinds, one in four of which takes long by the second method: the difference is the
// mean over the contexts. A disturbance of some rounds moves nothing.
func TestPartsAreMeansOfContextsAndMediansOfRounds(t *testing.T) {
	const n, long, rounds = 8, 4 * time.Millisecond, 5
	asked := make([][]int, 2)
	calls := 0
	work := func(method int) func(i int) {
		return func(i int) {
			asked[method] = append(asked[method], i)
			if calls++; calls%37 == 0 {
				time.Sleep(20 * long)
			}
			if method == 1 && i%4 == 0 {
				time.Sleep(long)
			}
		}
	}
	var progress []int
	got, err := Parts(context.Background(), n, []func(int){work(0), work(1)}, Options{Rounds: rounds, Block: 1, Progress: func(round, _ int) { progress = append(progress, round) }})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[1]-got[0] < long/5 {
		t.Errorf("found %v, expected a difference of a quarter of %v", got, long)
	}
	if !slices.Equal(progress, []int{0, 1, 2, 3, 4, 5}) {
		t.Errorf("found the progress %v, expected 0 to %d", progress, rounds)
	}
	for method, list := range asked {
		for i := range n {
			found := 0
			for _, x := range list {
				if x == i {
					found++
				}
			}
			if found < rounds {
				t.Errorf("method %d: found context %d %d times, expected each in all %d rounds", method, i, found, rounds)
			}
		}
	}
}

func TestPartsAreSpreadOverTheContexts(t *testing.T) {
	var asked []int
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	_, err := Parts(ctx, 1000, []func(int){func(i int) { asked = append(asked, i) }, func(int) { time.Sleep(time.Millisecond) }}, Options{Rounds: 1, Block: 1})
	if err != nil || len(asked) < fewestContexts || slices.Max(asked)-slices.Min(asked) < 900 {
		t.Errorf("found %v and the contexts %v, expected %d from all of the 1,000", err, asked, fewestContexts)
	}
	cancel()
	if _, err := Parts(ctx, 9, []func(int){func(int) {}}, Options{Rounds: 9, Block: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("found error %v, expected it to be canceled", err)
	}
}

// A query that waits takes time on the clock, and little of the CPU, where the system tells it.
func TestWhatTheThreadWasGiven(t *testing.T) {
	if _, told := threadTime(); !told {
		t.Skip("this system does not tell the CPU time of a thread")
	}
	times, err := Measure(context.Background(), 1, []func(int){func(int) { time.Sleep(2 * time.Millisecond) }}, Options{Rounds: 3, Block: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if x := times[0]; x.Given() > 0.5 || x.CPU() > x.Mean()/2 {
		t.Errorf("found a share of %v, and %v of %v, expected less than half", x.Given(), x.CPU(), x.Mean())
	}
}

// The CPU time of a thread grows with its work, not with the ticks of the system.
func TestTheTimeOfAThread(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, told := threadTime()
	if !told {
		t.Skip("this system does not tell the CPU time of a thread")
	}
	for i := range 20 {
		for j := range 1000 {
			sink.Add(uint32(j))
		}
		now, _ := threadTime()
		if now <= before {
			t.Fatalf("found %v after %d turns of work, and %v before the last, expected more", now, i+1, before)
		}
		before = now
	}
}
