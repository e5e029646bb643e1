package main

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/command/cmdline"
	"github.com/learning-to-screen/l2s/internal/ground/progress"
	"github.com/learning-to-screen/l2s/internal/search/dense"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/watch/timing"
	"github.com/learning-to-screen/l2s/kernels"
)

// benchResult is the JSON of l2s bench. Times are microseconds a query: the mean of a block of
// queries, the median over the blocks. Medians and 99th percentiles are over single queries.
type benchResult struct {
	DenseF32       float64 `json:"dense_f32_us"` // float32 scan of all labels and top-k
	DenseF32Median float64 `json:"dense_f32_median_us"`
	DenseF32P99    float64 `json:"dense_f32_p99_us"`
	Exact          float64 `json:"exact_us"` // the exact layer
	ExactMedian    float64 `json:"exact_median_us"`
	ExactP99       float64 `json:"exact_p99_us"`
	Screened       float64 `json:"screened_us"` // the screen
	ScreenedMedian float64 `json:"screened_median_us"`
	ScreenedP99    float64 `json:"screened_p99_us"`
	Speedup        float64 `json:"speedup"`        // dense_f32_us / screened_us
	SpeedupMedian  float64 `json:"speedup_median"` // the ratio of the medians
	// The log-probability of a label: by a screen with a tail, 0 without one, and by a float32 scan
	// and a log-sum-exp over all labels.
	LogProb      float64 `json:"log_prob_us,omitempty"`
	DenseLogProb float64 `json:"dense_log_prob_us,omitempty"`
	Copies       int64   `json:"copies_bytes"`     // the copied candidates
	AllCopies    int64   `json:"all_copies_bytes"` // all candidates within the budget
	Kind         string  `json:"kind"`             // screen or preview
	CPU          string  `json:"cpu"`
	Level        string  `json:"level"`
	K            int     `json:"k"`
	Queries      int     `json:"queries"` // different contexts that were queried
	// Cold are the times of queries that find other data in the caches, as between the steps of a
	// decoder.
	Cold     []coldTimes `json:"cold,omitempty"`
	Steps    []stepTime  `json:"steps,omitempty"`    // of a query by the exact layer, and by the screen or the preview
	Warnings []string    `json:"warnings,omitempty"` // reasons to doubt the times

	given float64 // the least share of the time of a method that the thread had a CPU
}

// coldTimes are the median times of single queries, in microseconds, and a 99th percentile, with
// MiB of other memory read before each.
type coldTimes struct {
	MiB         int     `json:"mib"`
	DenseF32    float64 `json:"dense_f32_us"`
	Exact       float64 `json:"exact_us"`
	Screened    float64 `json:"screened_us"`
	ScreenedP99 float64 `json:"screened_p99_us"`
}

// measuredBench is the JSON of l2s bench: the times, and the precision at these times.
type measuredBench struct {
	*benchResult
	// Precision is P@1 and P@k of the screen, by their k, on the first of the
	// contexts queried: a speedup is worth nothing without it.
	Precision map[string]float64 `json:"precision"`
	Measured  int                `json:"precision_contexts"`
}

const (
	leastContexts     = 1000    // different contexts; with fewer a CPU repeats the same work, which is faster
	mostContexts      = 1 << 17 // the largest number of different contexts
	precisionContexts = 5000    // the largest number of contexts that measure the precision
	mostCold          = 1 << 10 // MiB that are read between two queries
)

func benchVerb(f *flags) action {
	f.screen, f.previews = true, true
	k := f.whole("k", 5, 1)
	f.layerAndContexts(true, func() int { return *k })
	coldMiB := custom(f, "cold", nil, parseCold)
	copies := custom(f, "pack", 0, parsePack)
	budget := f.budget("l2s bench measures the exact layer, too")
	return func(ctx context.Context, in *inputs) (fmt.Stringer, error) {
		l, p := in.layer, f.progress
		f.noteK(in, *k)
		f.noteBudget(in, *budget)
		opts := l2s.Options{Budget: searcherBudget(*budget), Copies: l2s.CopyLimit(*copies)}
		rows := different(in.rows, l.Dim())
		if len(rows) < leastContexts {
			return nil, fmt.Errorf("%s: found %d different contexts, expected at least %d", in.contexts.Name(), len(rows), leastContexts)
		}
		if _, err := f.noteTraining(ctx, in, 0); err != nil {
			return nil, err
		}
		r := measuredBench{Measured: min(len(rows), precisionContexts)}
		some, ks := slices.Concat(rows[:r.Measured]...), slices.Compact([]int{1, *k})
		if in.preview != nil {
			if f.given("pack") {
				return nil, fmt.Errorf("%s: found a preview, expected a screen for --pack", in.path)
			}
			e, err := evaluatePreview(ctx, in, some, ks, *budget, 0, nil)
			if err != nil {
				return nil, err
			}
			r.Precision = e.Precision
		} else {
			e, err := evaluateScreen(ctx, in.screen, l, some, nil, ks, 0, nil, opts)
			if err != nil {
				return nil, err
			}
			r.Precision = e.Precision
		}
		var err error
		if r.benchResult, err = bench(ctx, in, rows, *k, *budget, p, opts); err != nil {
			return nil, err
		}
		for _, mib := range *coldMiB {
			times, err := benchCold(ctx, in, rows, *k, mib, *budget, p, opts)
			if err != nil && ctx.Err() != nil { // print the measurements so far
				return r.without(err, fmt.Sprintf("the times of --cold from %d on and of the steps are missing", mib))
			} else if err != nil {
				return nil, err
			}
			r.Cold = append(r.Cold, times)
		}
		if r.Steps, err = benchSteps(ctx, in, rows, *k, *budget, p, opts); err != nil && ctx.Err() != nil {
			return r.without(err, "the times of the steps are missing")
		} else if err != nil {
			return nil, err
		}
		return r, nil
	}
}

// without is the result after an interrupt, with the reason for the missing part.
func (r measuredBench) without(err error, missing string) (fmt.Stringer, error) {
	r.Warnings = append(r.Warnings, missing)
	return r, interruptedError{err, missing}
}

// parsePack parses the MiB of copies of codes; 0 means no copies.
func parsePack(s string) (bytes int64, err error) {
	mib, err := parseWhole(s, 0)
	if err == nil && mib > math.MaxInt>>20 {
		err = errTooLarge
	}
	return cmp.Or(int64(mib)<<20, -1), err
}

// parseCold parses the sizes of the memory that is read between two queries.
func parseCold(s string) ([]int, error) {
	list, err := wholeList(s)
	if err != nil || list[len(list)-1] > mostCold {
		return nil, fmt.Errorf("expected whole numbers of 1 to %d with commas between them", mostCold)
	}
	return list, nil
}

// different returns the rows that differ from all rows before them, in order,
// mostContexts at most.
func different(rows []float32, dim int) [][]float32 {
	seed := maphash.MakeSeed()
	seen := map[uint64]bool{}
	var list [][]float32
	for at := 0; at < len(rows) && len(list) < mostContexts; at += dim {
		row := rows[at : at+dim : at+dim]
		sum := maphash.Bytes(seed, unsafe.Slice((*byte)(unsafe.Pointer(&row[0])), 4*dim))
		if !seen[sum] {
			seen[sum] = true
			list = append(list, row)
		}
	}
	return list
}

// A benchmark has benchRounds rounds. In each round each method has a turn of benchBlock. Tests,
// which need no precision, make it shorter.
const benchRounds = 30

var benchBlock = 25 * time.Millisecond

// bench measures a screen or a preview against its layer with progress on p.
func bench(ctx context.Context, in *inputs, rows [][]float32, k int, budget float64, p *progress.Printer, opts l2s.Options) (*benchResult, error) {
	l := in.layer
	s, err := l2s.NewSearcher(in.layer.Layer, in.index, opts)
	if err != nil {
		return nil, err
	}
	queries := rivals(l, s, rows, k, budget)
	if in.screen != nil && in.index.HasTail() && l.head.SoftCap() == 0 {
		queries = append(queries, denseLogProb(l, rows), logProb(s, l, rows))
	}
	times, err := takeTurns(ctx, p, "bench", rows, queries, timing.Options{Rounds: benchRounds, Block: benchBlock})
	if err != nil {
		return nil, err
	}
	r := &benchResult{
		Kind: in.index.Kind(), CPU: cmdline.CPU(), Level: kernels.Level(), K: k, Queries: min(len(rows), times[2].Queries()),
	}
	if in.screen != nil {
		r.Copies, r.AllCopies = (*engine.Searcher)(s).Screened().PackedBytes()
	}
	r.DenseF32, r.DenseF32Median, r.DenseF32P99 = microsOf(times[0])
	r.Exact, r.ExactMedian, r.ExactP99 = microsOf(times[1])
	r.given = min(times[0].Given(), times[1].Given(), times[2].Given())
	r.Screened, r.ScreenedMedian, r.ScreenedP99 = microsOf(times[2])
	if len(times) > 3 {
		r.DenseLogProb, r.LogProb = micros(times[3].Mean()), micros(times[4].Mean())
	}
	r.Speedup, r.SpeedupMedian = round(r.DenseF32/r.Screened), round(r.DenseF32Median/r.ScreenedMedian)
	if note := r.busyNote(); note != "" {
		r.Warnings = []string{strings.Join(strings.Fields(note), " ")}
	}
	return r, nil
}

// benchCold measures queries, and reads a buffer of mib MiB before each. That takes most of the
// time, so the turns are fewer and shorter.
func benchCold(ctx context.Context, in *inputs, rows [][]float32, k, mib int, budget float64, p *progress.Printer, opts l2s.Options) (coldTimes, error) {
	s, err := l2s.NewSearcher(in.layer.Layer, in.index, opts)
	if err != nil {
		return coldTimes{}, err
	}
	queries := rivals(in.layer, s, rows, k, budget)
	other := timing.NewBuffer(mib)
	stage := fmt.Sprintf("bench, %d MiB read before each query", mib)
	times, err := takeTurns(ctx, p, stage, rows, queries, timing.Options{
		Rounds: 10, Block: 5 * time.Millisecond, Before: func(i int) { other.Read(rows[i]) },
	})
	if err != nil {
		return coldTimes{}, err
	}
	return coldTimes{
		MiB: mib, DenseF32: micros(times[0].Median()), Exact: micros(times[1].Median()),
		Screened: micros(times[2].Median()), ScreenedP99: micros(times[2].Quantile(0.99)),
	}, nil
}

// takeTurns measures queries for the rows by turns, with progress on p.
func takeTurns(ctx context.Context, p *progress.Printer, stage string, rows [][]float32, queries []func(i int), o timing.Options) ([]timing.Times, error) {
	p.Start(stage, "rounds", o.Rounds)
	o.Least, o.Progress = leastContexts, func(round, _ int) { p.Set(round) }
	times, err := timing.Measure(ctx, len(rows), queries, o)
	if err == nil {
		p.EndWith(fmt.Sprintf("%d rounds", o.Rounds))
	}
	return times, err
}

// rivals returns the functions that find the k best labels of row i: the scan of all labels in
// float32, the exact layer, and the screen or the preview, whose budget may be 0 for its own.
func rivals(l *layer, s *l2s.Searcher, rows [][]float32, k int, budget float64) []func(i int) {
	dst, found, scan := make([]l2s.Prediction, k), make([]exact.Prediction, k), dense.New(l.exact())
	whole, err := l2s.NewSearcher(l.Layer, nil, l2s.Options{})
	must(err)
	return []func(i int){
		func(i int) { scan.TopK(found, rows[i]) },
		topKQuery(whole.TopK, rows, dst),
		topKQuery(func(dst []l2s.Prediction, h []float32) (int, error) {
			a, err := s.Search(dst, h, l2s.Request{Budget: budget})
			return a.Count, err
		}, rows, dst),
	}
}

// topKQuery returns a function that asks a searcher about row i.
func topKQuery(topK func(dst []l2s.Prediction, h []float32) (int, error), rows [][]float32, dst []l2s.Prediction) func(i int) {
	return func(i int) {
		_, err := topK(dst, rows[i])
		must(err)
	}
}

// denseLogProb returns a function that computes the log-probability of a label for row i by a scan
// of all labels in float32.
func denseLogProb(l *layer, rows [][]float32) func(i int) {
	weights, bias, temperature := dense.Weights(l.exact()), l.exact().Bias(), l.rawTemperature()
	narrow, logits := make([]float32, l.Labels()), make([]float64, l.Labels())
	return func(i int) {
		kernels.Scan(narrow, weights, bias, rows[i])
		for j, x := range narrow {
			logits[j] = float64(x) / temperature
		}
		_ = logits[i%len(logits)] - kernels.LogSumExp(logits)
	}
}

// logProb returns one that asks the screen for it.
func logProb(s *l2s.Searcher, l *layer, rows [][]float32) func(i int) {
	labels := l.Labels()
	return func(i int) {
		_, err := s.LogProb(rows[i], uint32(i%labels), 1)
		must(err)
	}
}

// must is for queries whose arguments have been checked.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// microsOf returns the time of a query, and the median and the 99th percentile of single queries.
func microsOf(t timing.Times) (mean, median, p99 float64) {
	return micros(t.Mean()), micros(t.Median()), micros(t.Quantile(0.99))
}

func micros(d time.Duration) float64 { return round(float64(d) / 1e3) }

// round keeps three decimals.
func round(x float64) float64 { return math.Round(x*1000) / 1000 }

func (r *benchResult) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "top-%d, one thread, times of %s different contexts, level %s\n\n", r.K, progress.Count(r.Queries), r.Level)
	fmt.Fprintf(&b, "                       median         mean          p99   against dense\n")
	line := func(name string, mean, median, p99 float64) {
		fmt.Fprintf(&b, "%-16s  %8.2f us  %8.2f us  %8.2f us   %12.1fx\n", name, median, mean, p99, r.DenseF32Median/median)
	}
	line("dense float32", r.DenseF32, r.DenseF32Median, r.DenseF32P99)
	line("exact layer", r.Exact, r.ExactMedian, r.ExactP99)
	line(r.Kind, r.Screened, r.ScreenedMedian, r.ScreenedP99)
	for i, c := range r.Cold {
		if i == 0 {
			fmt.Fprintf(&b, "\nCold, medians     dense float32  exact layer %12s      its p99   against dense\n", r.Kind)
		}
		fmt.Fprintf(&b, "%5d MiB read    %10.2f us %9.2f us %9.2f us %9.2f us   %12.1fx\n", c.MiB, c.DenseF32, c.Exact, c.Screened, c.ScreenedP99, c.DenseF32/c.Screened)
	}
	if r.LogProb > 0 {
		fmt.Fprintf(&b, "\nLog-probability of a label: %.2f us by the dense scan, %.2f us by the screen, %.1fx.\n", r.DenseLogProb, r.LogProb, r.DenseLogProb/r.LogProb)
	}
	writeSteps(&b, r.Steps)
	const mib = 1 << 20
	b.WriteByte('\n')
	if r.Kind == kindScreen {
		fmt.Fprintf(&b, "Copies of candidates take %.1f MiB; copies of all would take %.1f (--pack %d).\n", float64(r.Copies)/mib, float64(r.AllCopies)/mib, (r.AllCopies+mib-1)/mib)
	}
	b.WriteString(r.busyNote())
	return b.String()
}

// busyNote returns a note that other programs ran during the measurement, and "" if neither the share of
// the time that the thread had a CPU nor the times of the dense scan show any. The dense scan does the
// same work for every context: on an idle machine the mean and the median of its times differ by a few
// percent.
func (r *benchResult) busyNote() string {
	if r.given > 0 && r.given < 0.9 {
		return fmt.Sprintf("The machine was busy: other programs had the CPU for %.0f%% of the time of some queries. The longer\n"+
			"a query, the more of that is in its median: do not compare these times, measure again on an idle machine.\n", 100*(1-r.given))
	}
	if r.DenseF32 <= 1.2*r.DenseF32Median {
		return ""
	}
	return fmt.Sprintf("The machine was busy: the dense scan, whose work is the same for every context, took %.2f us\n"+
		"on average and %.2f us in the median. Compare medians, or measure again on an idle machine.\n", r.DenseF32, r.DenseF32Median)
}

func (r measuredBench) String() string {
	text := fmt.Sprintf("%sThe %s has P@1 %.4f", r.benchResult, r.Kind, r.Precision["1"])
	if r.K > 1 {
		text += fmt.Sprintf(", P@%d %.4f", r.K, r.Precision[strconv.Itoa(r.K)])
	}
	return text + fmt.Sprintf(" on %s contexts.\n", progress.Count(r.Measured))
}
