package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/learning-to-screen/l2s/cmd/l2s/internal/timing"
	"github.com/learning-to-screen/l2s/internal/atomicfile"
	"github.com/learning-to-screen/l2s/internal/progress"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
	"github.com/learning-to-screen/l2s/train"
)

// curveResult is the JSON of l2s curve. Times are microseconds a query, as in
// benchResult.
type curveResult struct {
	K              int          `json:"k"`
	Contexts       int          `json:"contexts"` // that precision was measured on
	Queries        int          `json:"queries"`  // different contexts that were timed
	Labels         int          `json:"labels"`
	Dim            int          `json:"dim"`
	DenseF32       float64      `json:"dense_f32_us"`
	DenseF32Median float64      `json:"dense_f32_median_us"`
	DenseF32P99    float64      `json:"dense_f32_p99_us"`
	Exact          float64      `json:"exact_us"`
	ExactMedian    float64      `json:"exact_median_us"`
	ExactP99       float64      `json:"exact_p99_us"`
	Screens        []curvePoint `json:"screens"` // by method, clusters, margins and candidates
	Level          string       `json:"level"`
	Warnings       []string     `json:"warnings,omitempty"` // what makes the times doubtful
}

// curvePoint are the figures of one screen.
type curvePoint struct {
	File string `json:"file"`
	// Method is how the clusters came about: k-means, l2s, or unknown if the
	// screen has no record of it.
	Method   string  `json:"method"`
	Clusters int     `json:"clusters"`
	Groups   int     `json:"groups"`            // 0 on one level
	Overlap  float64 `json:"overlap,omitempty"` // as in inspectResult
	Largest  int     `json:"largest,omitempty"` // the bound of --largest
	// Shells are the shares of the contexts beyond each shell, of --shells.
	Shells         []float64 `json:"shells,omitempty"`
	ProbeMargin    float64   `json:"probe_margin"`
	ExactMargin    float64   `json:"exact_margin"`
	Budget         float64   `json:"budget,omitempty"`      // that the sets were chosen for; none without a record
	LearnedFor     float64   `json:"learned_for,omitempty"` // as in trainResult
	MeanCandidates float64   `json:"mean_candidates"`
	// P99Candidates and MaxCandidates are of the contexts, as in evalResult.
	P99Candidates int `json:"p99_candidates"`
	MaxCandidates int `json:"max_candidates"`
	// TrainedOn says that the screen was trained on some of the contexts, as in evalResult.
	TrainedOn *train.Overlap `json:"trained_on,omitempty"`
	// RowsScanned is the mean number of rows a query for k labels scans: the
	// vectors that find the cluster, and the candidates, or all labels if the
	// exact layer answers.
	RowsScanned   float64            `json:"rows_scanned"`
	ProbeShare    float64            `json:"probe_share"` // of contexts with the candidates of two clusters
	ExactShare    float64            `json:"exact_share"` // of contexts that the exact layer answers for k labels
	Precision     map[string]float64 `json:"precision"`
	Screened      float64            `json:"screened_us"`
	Median        float64            `json:"screened_median_us"`
	P99           float64            `json:"screened_p99_us"`
	Speedup       float64            `json:"speedup"`        // dense_f32_us / screened_us
	SpeedupMedian float64            `json:"speedup_median"` // the same of the medians
	// Cold are times of queries that find other data in the caches, as in benchResult.
	Cold []coldTimes `json:"cold,omitempty"`

	family float64 // the budget that its clusters were learned for, if screens of others share them
}

// order is the order of screens in the table and the legend. Screens that differ in
// their number of candidates alone are one series.
func (p curvePoint) order(q curvePoint) int {
	return cmp.Or(
		cmp.Compare(p.Method, q.Method), cmp.Compare(p.Clusters, q.Clusters), cmp.Compare(p.Groups, q.Groups), cmp.Compare(sign(p.Overlap), sign(q.Overlap)),
		cmp.Compare(sign(p.ProbeMargin), sign(q.ProbeMargin)), cmp.Compare(sign(p.ExactMargin), sign(q.ExactMargin)),
		cmp.Compare(p.family, q.family), slices.Compare(p.Shells, q.Shells), cmp.Compare(p.Largest, q.Largest),
	)
}

// sign is 1 for a number that is not 0.
func sign(x float64) int {
	if x > 0 {
		return 1
	}
	return 0
}

// findFamilies finds out which screens share learned clusters. The one that they
// were learned for belongs to them; a screen with clusters of its own belongs to
// all others of that kind.
func findFamilies(points []curvePoint) {
	for i := range points {
		p := &points[i]
		if p.Method != methodL2S {
			continue
		}
		p.family = p.LearnedFor
		for _, q := range points {
			if p.LearnedFor == 0 && q.Method == methodL2S && q.Clusters == p.Clusters && q.Groups == p.Groups && sign(q.Overlap) == sign(p.Overlap) && q.LearnedFor == p.Budget &&
				slices.Equal(q.Shells, p.Shells) && q.Largest == p.Largest {
				p.family = q.LearnedFor
			}
		}
	}
}

const (
	methodKMeans  = "k-means"
	methodL2S     = "l2s"
	methodUnknown = "unknown"
)

// readRecord takes from the record of a screen how its clusters came about.
func (p *curvePoint) readRecord(m *screen.Model) {
	var r train.Record
	if err := json.Unmarshal(m.Record(), &r); err != nil || r.Contexts == 0 {
		p.Method = methodUnknown
		return
	}
	p.Method = methodKMeans
	p.Budget, p.LearnedFor, p.Largest, p.Shells = r.Options.Budget, r.LearnedFor, r.Options.Largest, r.Options.Shells
	if len(r.Alternations) > 0 {
		p.Method = methodL2S
	}
}

func runCurve(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	f := newFlags("curve", description{
		purpose: fmt.Sprintf(`Compare screens of one layer on context vectors that they were not trained on:
P@1 and P@k against the mean number of candidates, and against the time of a
query, as a table and as a picture. Most is the largest number of candidates that a
context has. Rows are the vectors that find the cluster and the candidates, or all
labels if the exact layer answers. Screens by k-means alone and learned ones stand side
by side.

Times are measured as l2s bench does it, all screens in turn, on one thread;
%d of the contexts must be different. Run it on an idle machine. With --cold 8,64 a
second table has the medians of queries before each of which so many MiB of other
memory are read. With --pack N the copies of the candidate sets of a screen may take
N MiB, as with l2s bench.`, leastContexts),
		usage: "m.l2s... (--head MODEL | --weights SRC --bias SRC) --contexts H.npy [flags]",
		notes: sourceNote,
		example: `l2s train --head model --contexts H.npy --clusters 100 --budget 50,100 --out m.l2s
l2s train --head model --contexts H.npy --clusters 100 --budget 50,100 --kmeans-only --out k.l2s
l2s curve m-*.l2s k-*.l2s --head model --contexts test.npy --png curve.png`,
	}, stdout, stderr)
	lf, src := f.layer(), f.contexts()
	k := f.whole("k", 5, 1, "measure P@1 and P@`K`, and time queries for the K best")
	svg := f.text("svg", "draw the curves to a `FILE`, as SVG")
	png := f.text("png", "draw the curves to a `FILE`, as PNG")
	coldMiB, opts := f.cold(), f.pack()
	threads := f.threads("measure precision")
	quiet := f.boolean("quiet", "show no progress")
	asJSON := f.json()
	var paths []string
	if err := f.parseList(args, "screen files", &paths); err != nil {
		return err
	}
	if *svg == "" && *png == "" {
		if err := checkStdout(stdout); err != nil {
			return err
		}
	}
	inputs := slices.Concat(lf.files(), *src, paths)
	if err := checkOutputs(f, []output{{flag: "--svg", path: *svg}, {flag: "--png", path: *png}}, inputs...); err != nil {
		return err
	}
	in, err := openInputs(ctx, lf, paths, *src, *k, openContexts)
	if err != nil {
		return err
	}
	defer in.close(&err)
	l, models, c := in.layer, in.screens, in.contexts
	rows, err := enoughDifferent(c)
	if err != nil {
		return err
	}
	trained := map[string]*train.Overlap{} // by path
	for i, m := range models {
		if trained[paths[i]], err = noteTraining(ctx, f, paths[i], m, c, *threads); err != nil {
			return err
		}
	}
	// Pictures that cannot be written are found before the long work.
	pictures := map[string]*atomicfile.File{}
	for format, path := range map[string]string{"svg": *svg, "png": *png} {
		if path == "" {
			continue
		}
		file, err := atomicfile.Create(path)
		if err != nil {
			return err
		}
		defer file.Abort()
		pictures[format] = file
	}

	p := f.printer(*quiet)
	defer p.Close()
	r, err := curve(ctx, paths, models, l, c.rows, rows, *k, *threads, *coldMiB, p, *opts...)
	if r == nil {
		return err
	}
	interrupted := err // before all cold queries were measured
	for i := range r.Screens {
		r.Screens[i].TrainedOn = trained[r.Screens[i].File]
	}
	var undrawn error // which costs the pictures, not the figures
	for format, file := range pictures {
		err := drawCurve(file, format, r)
		if err == nil {
			err = file.Commit()
		}
		undrawn = errors.Join(undrawn, err)
	}
	if *asJSON {
		err = printJSON(stdout, r)
	} else {
		err = write(stdout, r.String())
	}
	return cmp.Or(err, undrawn, interrupted)
}

// curve measures the screens with progress on p: precision on all contexts,
// times on the different ones, cold ones after each of coldMiB too. If it is interrupted
// in the cold ones, it returns the others beside the error.
func curve(ctx context.Context, paths []string, models []*screen.Model, l *layer, contexts []float32, rows [][]float32, k, threads int, coldMiB []int, p *progress.Printer, opts ...screen.Option) (*curveResult, error) {
	r := &curveResult{K: k, Contexts: len(contexts) / l.Dim(), Labels: l.Labels(), Dim: l.Dim(), Level: kernels.Level()}
	dst := make([]softmax.Prediction, k)
	methods := []func(int){denseQuery(l, rows, dst), exactQuery(l, rows, dst)}
	p.Start("eval", "contexts", len(models)*r.Contexts)
	for i, m := range models {
		e, err := screen.Evaluate(ctx, m, l.Layer, contexts, screen.EvaluateOptions{
			K: slices.Compact([]int{1, k}), Threads: threads, Progress: func(done, _ int) { p.Set(i*r.Contexts + done) },
		})
		if err != nil {
			return nil, err
		}
		point := curvePoint{
			File: paths[i], Clusters: m.Clusters(), Groups: m.Groups(), Overlap: overlapOf(m), ProbeMargin: m.ProbeMargin(), ExactMargin: m.ExactMargin(),
			MeanCandidates: e.MeanCandidates, P99Candidates: e.P99Candidates, MaxCandidates: e.MaxCandidates, Precision: map[string]float64{}, ProbeShare: float64(e.Probes) / float64(e.Contexts),
		}
		point.readRecord(m)
		last := e.AtK[len(e.AtK)-1]
		point.RowsScanned, point.ExactShare = e.MeanRouting+last.MeanScored, float64(last.Exact)/float64(e.Contexts)
		for _, at := range e.AtK {
			point.Precision[strconv.Itoa(at.K)] = at.Precision
		}
		r.Screens = append(r.Screens, point)
		s, err := screen.NewSearcher(m, l.Layer, opts...)
		if err != nil {
			return nil, err
		}
		methods = append(methods, screenedQuery(s, rows, dst))
	}
	p.End()
	p.Start("bench", "rounds", benchRounds)
	times, err := timing.Measure(ctx, len(rows), methods, timing.Options{
		Rounds: benchRounds, Block: benchBlock, Least: leastContexts, Progress: func(round, _ int) { p.Set(round) },
	})
	if err != nil {
		return nil, err
	}
	p.EndWith(fmt.Sprintf("%d rounds", benchRounds))
	r.DenseF32, r.DenseF32Median, r.DenseF32P99 = microsOf(times[0])
	r.Exact, r.ExactMedian, r.ExactP99 = microsOf(times[1])
	r.Warnings = warnings(r.busyNote())
	r.Queries = len(rows)
	for i := range r.Screens {
		t := times[i+2]
		r.Queries = min(r.Queries, t.Queries())
		r.Screens[i].Screened, r.Screens[i].Median, r.Screens[i].P99 = microsOf(t)
		r.Screens[i].Speedup = round(r.DenseF32 / r.Screens[i].Screened)
		r.Screens[i].SpeedupMedian = round(r.DenseF32Median / r.Screens[i].Median)
	}
	var interrupted error
	for _, mib := range coldMiB {
		times, err := timeCold(ctx, methods, rows, mib, p)
		if interrupted = inCold(ctx, err, mib); interrupted != nil {
			r.Warnings = append(r.Warnings, missingCold(mib))
			break
		} else if err != nil {
			return nil, err
		}
		for i := range r.Screens {
			r.Screens[i].Cold = append(r.Screens[i].Cold, newColdTimes(mib, times[0], times[1], times[i+2]))
		}
	}
	findFamilies(r.Screens)
	slices.SortStableFunc(r.Screens, func(a, b curvePoint) int {
		return cmp.Or(a.order(b), cmp.Compare(a.MeanCandidates, b.MeanCandidates))
	})
	return r, interrupted
}

func (r *curveResult) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s contexts, %s labels, one thread, level %s\n\n", progress.Count(r.Contexts), progress.Count(r.Labels), r.Level)
	width := len("screen")
	for _, s := range r.Screens {
		width = max(width, len(s.File))
	}
	fmt.Fprintf(&b, "%-*s  method   clusters  candidates    most      rows     P@1", width, "screen")
	if r.K > 1 {
		fmt.Fprintf(&b, "  %6s", fmt.Sprintf("P@%d", r.K))
	}
	probes := slices.ContainsFunc(r.Screens, func(s curvePoint) bool { return s.ProbeShare > 0 })
	exact := slices.ContainsFunc(r.Screens, func(s curvePoint) bool { return s.ExactShare > 0 })
	if probes {
		b.WriteString("  2 clusters")
	}
	if exact {
		b.WriteString("    exact")
	}
	b.WriteString("     median       mean        p99   against dense\n")
	for _, s := range r.Screens {
		fmt.Fprintf(&b, "%-*s  %-7s  %8s  %10.1f  %6d  %8.1f  %6.4f", width, s.File, s.Method, shape{s.Clusters, s.Groups, s.Overlap > 0}, s.MeanCandidates, s.MaxCandidates, s.RowsScanned, s.Precision["1"])
		if r.K > 1 {
			fmt.Fprintf(&b, "  %6.4f", s.Precision[strconv.Itoa(r.K)])
		}
		if probes {
			fmt.Fprintf(&b, "  %9.2f%%", 100*s.ProbeShare)
		}
		if exact {
			fmt.Fprintf(&b, "  %6.2f%%", 100*s.ExactShare)
		}
		fmt.Fprintf(&b, "  %6.2f us  %6.2f us  %6.2f us   %12.1fx\n", s.Median, s.Screened, s.P99, r.DenseF32Median/s.Median)
	}
	if len(r.Screens) > 0 && len(r.Screens[0].Cold) > 0 {
		fmt.Fprintf(&b, "\n%-*s", width, "cold")
		for _, c := range r.Screens[0].Cold {
			fmt.Fprintf(&b, "  %8d MiB   against dense", c.MiB)
		}
		b.WriteByte('\n')
		for _, s := range r.Screens {
			fmt.Fprintf(&b, "%-*s", width, s.File)
			for _, c := range s.Cold {
				fmt.Fprintf(&b, "  %9.2f us   %12.1fx", c.Screened, c.DenseF32/c.Screened)
			}
			b.WriteByte('\n')
		}
	}
	fmt.Fprintf(&b, "\nFor the same contexts the median of the dense float32 scan is %.2f us, of the exact layer %.2f us.\n", r.DenseF32Median, r.ExactMedian)
	for _, s := range r.Screens {
		if telling(s.TrainedOn) {
			fmt.Fprintf(&b, "%s: %s: on others its figures are lower.\n", s.File, trainedOn(*s.TrainedOn))
		}
	}
	b.WriteString(r.busyNote())
	return b.String()
}

func (r *curveResult) busyNote() string {
	return busyNote(r.DenseF32, r.DenseF32Median, compareMedians)
}
