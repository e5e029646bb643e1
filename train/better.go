package train

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/ground/precision"
	"github.com/learning-to-screen/l2s/internal/watch/timing"
)

// BetterOptions are the options of [Better]. The zero value is of use.
type BetterOptions struct {
	// Target is the least P@k of an index, at its own budget, k as it was measured. 0 is P@1 0.9995 and
	// P@k 0.998.
	Target float64
	// Progress, unless nil, gets the rounds that are done, of their number.
	Progress func(done, rounds int)
}

// Candidate is an index as [Better] sees it.
type Candidate struct {
	// Index is nil for the exact search.
	Index *l2s.Index
	// K is the number of labels of a query: the k of the files' precision, 5 if none has measured any.
	K int
	// Precision1 and PrecisionK are P@1 and P@K of the index's own budget, as the index has measured
	// them on held-out contexts. Own is the found share of own states (see [l2s.Step]), 0 for a screen.
	Precision1, PrecisionK, Own float64
	// Time is the mean CPU time of a query for the K best labels, on one thread, with the caches of a loop
	// over queries; on the clock, where the system does not tell it.
	Time time.Duration
}

// Comparison is what [Better] finds.
type Comparison struct {
	// Best is the better index: the faster of those that reach the target, or the most precise if none
	// reaches it. Why is the reason, in words.
	Best Candidate
	Why  string
	// Pays tells whether Best takes less than half of the time of the exact search, which misses no
	// label. If it is false, take the exact search: a nil index.
	Pays bool
	// Candidates are the indexes in the order given, and the exact search.
	Candidates []Candidate
}

// timedContexts is the number of contexts that candidates are timed on.
const timedContexts = 500

// betterTiming is the length of the measurement: each candidate has some turns, and some hundreds
// of queries in all.
var betterTiming = timing.Options{Rounds: 4, Block: 10 * time.Millisecond, Least: timedContexts}

// Better compares indexes of a layer, such as a screen of [Run] and one of preview.Make, with each
// other and with the exact search. It asks all of them about the contexts, in turns, and takes
// their precision from the files' own figures. The times are those of this machine.
//
// Errors: no index, a nil index, indexes that do not belong to the layer or that differ in k,
// contexts of another dimension, a NaN or Inf in a context that it asks about, and the error of ctx.
func Better(ctx context.Context, layer *l2s.Layer, contexts l2s.Matrix, among []*l2s.Index, o BetterOptions) (*Comparison, error) {
	if len(among) == 0 {
		return nil, errors.New("train: found no index, expected one or more")
	}
	n, d := contexts.Rows(), layer.Dim()
	if n == 0 || contexts.Dim() != d {
		return nil, fmt.Errorf("train: contexts: found %d of dimension %d, expected one or more of %d", n, contexts.Dim(), d)
	}
	some := make([][]float32, min(n, timedContexts))
	for i := range some {
		some[i] = make([]float32, d)
		contexts.Row(some[i], i*n/len(some))
	}
	c := &Comparison{Candidates: make([]Candidate, len(among)+1)}
	queries := make([]func(i int), len(c.Candidates))
	k, err := measuredK(among, layer.Labels())
	if err != nil {
		return nil, err
	}
	var failed error
	for i := range c.Candidates {
		x := Candidate{K: k, Precision1: 1, PrecisionK: 1, Own: 1}
		if i < len(among) {
			x.Index = among[i]
			steps, at := x.Index.Steps()
			x.Precision1, x.PrecisionK, x.Own = steps[at].Precision1.Value, steps[at].PrecisionK.Value, steps[at].Own.Value
		}
		s, err := l2s.NewSearcher(layer, x.Index, l2s.Options{})
		if err != nil {
			return nil, fmt.Errorf("train: index %d: %w", i, err)
		}
		dst := make([]l2s.Prediction, k)
		queries[i] = func(j int) {
			if _, err := s.TopK(dst, some[j]); err != nil && failed == nil {
				failed = fmt.Errorf("train: contexts: row %d: %w", j*n/len(some), err)
			}
		}
		c.Candidates[i] = x
	}
	for j := range some { // a context that a search refuses is found before the times
		if queries[len(among)](j); failed != nil {
			return nil, failed
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	opt := betterTiming
	opt.Progress = o.Progress
	times, err := timing.Measure(ctx, len(some), queries, opt)
	if err == nil {
		err = failed
	}
	if err != nil {
		return nil, err
	}
	for i := range times {
		c.Candidates[i].Time = times[i].CPU()
	}
	c.choose(o.Target)
	return c, nil
}

// measuredK returns the k for which indexes have measured their precision. If none has, for lack of
// contexts, it is five.
func measuredK(among []*l2s.Index, labels int) (k int, err error) {
	for i, x := range among {
		if x == nil {
			return 0, fmt.Errorf("train: index %d: found nil, expected a screen or a preview", i)
		}
		of, _ := x.Measured()
		if of != 0 && k != 0 && of != k {
			return 0, fmt.Errorf("train: index %d: found precisions for k = %d, expected k = %d as before", i, of, k)
		}
		k = max(k, of)
	}
	if k == 0 {
		k = DefaultOptions().K
	}
	return min(k, labels), nil
}

// choose finds the best candidate before the last one, which is the exact search.
func (c *Comparison) choose(target float64) {
	last := len(c.Candidates) - 1
	c.Best, c.Why = c.Candidates[0], "there is no other"
	for _, x := range c.Candidates[1:last] {
		c.Best, c.Why = better(c.Best, x, target)
	}
	c.Pays = 2*c.Best.Time < c.Candidates[last].Time
}

// reaches reports whether the precisions, as they are printed, reach a target.
func (x *Candidate) reaches(target float64) bool {
	least1, leastK := precision.Targets(target)
	return x.Precision1 >= least1-precision.Printed && x.PrecisionK >= leastK-precision.Printed
}

// better returns the better of two candidates, x if they are equal, with the reason.
func better(x, y Candidate, target float64) (Candidate, string) {
	mine, other := x.reaches(target), y.reaches(target)
	why, second := "only it reaches the target", other
	switch {
	case mine && other:
		why, second = "both reach the target, and it is faster", y.Time < x.Time
	case mine == other:
		why, second = "neither reaches the target, and it is more precise", x.Precision1+x.PrecisionK < y.Precision1+y.PrecisionK
	}
	if second {
		return y, why
	}
	return x, why
}
