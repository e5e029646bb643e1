// Package timing measures the times of queries, on one thread, by the compared methods.
//
// The cost of a query is the mean: if some queries take another path, such as the exact layer, the
// median shows one path only. The time of a method is the mean over a block, and the median of the
// blocks, which short disturbances of the machine do not move. Quantiles of single queries are
// given, too.
//
// The methods take turns in short blocks, so that a disturbance of the machine slows all of them
// down. Each query is timed by itself, and one reading of the clock is part of every figure. Each
// block begins with queries that are not timed, which bring the method's data back to the caches.
package timing

import (
	"context"
	"math"
	"runtime"
	"slices"
	"time"
)

// Options give the length of a measurement.
type Options struct {
	// Rounds is the number of turns of each method, at least 1.
	Rounds int
	// Block is the approximate time of a turn.
	Block time.Duration
	// Least is the least number of timed queries of each method.
	Least int
	// Before, unless nil, is called before each query, with its context, and is not timed.
	Before func(i int)
	// Progress, unless nil, is called before each round and after the last.
	Progress func(round, rounds int)
}

// Times are the times of the queries of one method.
type Times struct {
	sorted []time.Duration
	means  []float64 // of the blocks, in nanoseconds a query, ascending
	cpus   []float64 // the means less the time that the thread had no CPU, ascending
}

// Given returns the share of the time of the blocks that the thread had a CPU: nearly 1 on an idle machine,
// and 1 if the system does not tell it. A median of short queries is right where it is small, but one of
// queries that are longer than a turn of the scheduler has the turns of other programs in it.
func (t Times) Given() float64 { return float64(t.CPU()) / float64(max(t.Mean(), 1)) }

// Queries returns the number of queries timed.
func (t Times) Queries() int { return len(t.sorted) }

// Mean returns the mean time of a query in a block, the median over the blocks.
func (t Times) Mean() time.Duration { return medianOf(t.means) }

// CPU returns the mean CPU time of a query in a block, the median over the blocks; the time on the clock
// if the system does not tell it.
func (t Times) CPU() time.Duration { return medianOf(t.cpus) }

// medianOf returns the median of nanoseconds in ascending order.
func medianOf(sorted []float64) time.Duration {
	n := len(sorted)
	return time.Duration(math.Round((sorted[(n-1)/2] + sorted[n/2]) / 2))
}

// Median returns the median time of a query.
func (t Times) Median() time.Duration { return t.Quantile(0.5) }

// Quantile returns the least time that at least a share p of the queries, p
// within 0 and 1, does not exceed.
func (t Times) Quantile(p float64) time.Duration {
	at := int(math.Ceil(p*float64(len(t.sorted)))) - 1
	return t.sorted[min(max(at, 0), len(t.sorted)-1)]
}

const (
	maxQueries = 1 << 21 // bounds the memory for the times of one method
	warmUp     = 0.1     // the share of a block before the timed queries
)

// Measure lets each method answer the contexts 0 to n-1 in turn, again from 0 after the last, and
// returns the times of each. A method must not allocate, or the collector is part of its time.
// It runs on the caller's goroutine, locked to its thread, and returns the error of ctx.
func Measure(ctx context.Context, n int, methods []func(i int), opt Options) ([]Times, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	turns := make([]turn, len(methods))
	for i, query := range methods {
		t := &turns[i]
		*t = turn{n: n, query: query, before: opt.Before}
		// Queries for about the time of a block give the time of one query.
		start, queries := time.Now(), 0
		for queries == 0 || time.Since(start) < opt.Block && ctx.Err() == nil {
			t.ask()
			queries++
		}
		each := max(time.Since(start)/time.Duration(queries), 1)
		t.block = int(min(float64(opt.Block)/float64(each), float64(maxQueries/opt.Rounds)))
		t.block = max(t.block, (opt.Least+opt.Rounds-1)/opt.Rounds, 1)
		t.Times = Times{sorted: make([]time.Duration, 0, opt.Rounds*t.block), means: make([]float64, 0, opt.Rounds)}
	}
	runtime.GC()
	for round := range opt.Rounds {
		if opt.Progress != nil {
			opt.Progress(round, opt.Rounds)
		}
		for i := range turns {
			if turns[i].run(ctx); ctx.Err() != nil {
				return nil, ctx.Err()
			}
		}
	}
	if opt.Progress != nil {
		opt.Progress(opt.Rounds, opt.Rounds)
	}
	times := make([]Times, len(turns))
	for i, t := range turns {
		slices.Sort(t.sorted)
		slices.Sort(t.means)
		slices.Sort(t.cpus)
		times[i] = t.Times
	}
	return times, nil
}

// turn is one method on its way through the contexts.
type turn struct {
	Times   // not sorted yet
	n, next int
	query   func(i int)
	before  func(i int) // nil for none
	block   int
}

// ask answers the next context, and returns the time that this takes.
func (t *turn) ask() time.Duration {
	if t.before != nil {
		t.before(t.next)
	}
	_ = time.Now() // so that the clock itself is not cold
	start := time.Now()
	t.query(t.next)
	took := time.Since(start)
	t.next = (t.next + 1) % t.n
	return took
}

// run times a block, and stops between two queries when ctx is done.
func (t *turn) run(ctx context.Context) {
	sum, warm := time.Duration(0), int(warmUp*float64(t.block))+1
	start := time.Now()
	cpu, told := threadTime()
	for i := range warm + t.block {
		if ctx.Err() != nil {
			return
		}
		if took := t.ask(); i >= warm {
			t.sorted = append(t.sorted, took)
			sum += took
		}
	}
	mean, share := float64(sum)/float64(t.block), 1.0
	if now, _ := threadTime(); told {
		share = min(float64(now-cpu)/float64(max(time.Since(start), 1)), 1)
	}
	t.means, t.cpus = append(t.means, mean), append(t.cpus, mean*share)
}
