package main

import (
	"cmp"
	"context"
	"encoding/json"
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

// curveResult is the JSON of l2s curve. Times are microseconds a query,
// medians.
type curveResult struct {
	K        int          `json:"k"`
	Contexts int          `json:"contexts"` // that precision was measured on
	Queries  int          `json:"queries"`  // different contexts that were timed
	Labels   int          `json:"labels"`
	Dim      int          `json:"dim"`
	DenseF32 float64      `json:"dense_f32_us"`
	Exact    float64      `json:"exact_us"`
	Screens  []curvePoint `json:"screens"` // by method, clusters and candidates
	Level    string       `json:"level"`
}

// curvePoint are the figures of one screen.
type curvePoint struct {
	File string `json:"file"`
	// Method is how the clusters came about: k-means, l2s, or unknown where the
	// screen has no record of it.
	Method        string             `json:"method"`
	Clusters      int                `json:"clusters"`
	Groups        int                `json:"groups"`         // 0 on one level
	AvgCandidates float64            `json:"avg_candidates"` // L-bar
	RowsScanned   float64            `json:"rows_scanned"`   // L-bar, and the vectors that find the cluster
	Precision     map[string]float64 `json:"precision"`
	Screened      float64            `json:"screened_us"`
	Speedup       float64            `json:"speedup"` // dense_f32_us / screened_us
}

const (
	methodKMeans  = "k-means"
	methodL2S     = "l2s"
	methodUnknown = "unknown"
)

// methodOf reads from the record of a screen how its clusters came about.
func methodOf(m *screen.Model) string {
	var r train.Record
	switch err := json.Unmarshal(m.Record(), &r); {
	case err != nil || r.Contexts == 0:
		return methodUnknown
	case len(r.Alternations) == 0:
		return methodKMeans
	}
	return methodL2S
}

func runCurve(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := newFlags("curve", description{
		purpose: fmt.Sprintf(`Compare screens of one layer on context vectors that they were not trained on:
P@1 and P@k against the mean number of candidates, and against the time of a
query, as a table and as a picture. Rows are the candidates and the vectors that
find the cluster. Screens by k-means alone and learned ones
stand side by side.

Times are measured as l2s bench does it, all screens in turn, on one thread;
%d of the contexts must be different. Run it on an idle machine.`, leastContexts),
		usage: "m.l2s... --weights SRC --bias SRC --contexts H.npy [flags]",
		notes: sourceNote,
		example: `l2s train --weights W.npy --bias b.npy --contexts H.npy --budget 50,100,150 --out m.l2s
l2s train --weights W.npy --bias b.npy --contexts H.npy --budget 50,100,150 --out k.l2s --kmeans-only
l2s curve m-*.l2s k-*.l2s --weights W.npy --bias b.npy --contexts test.npy --png curve.png`,
	}, stdout, stderr)
	lf, src := f.layer(), f.contexts()
	k := f.whole("k", 5, 1, "measure P@1 and P@`K`, and time queries for the K best")
	svg := f.text("svg", "draw the curves to a `FILE`, as SVG")
	png := f.text("png", "draw the curves to a `FILE`, as PNG")
	threads := f.whole("threads", 0, 0, "measure precision on `N` threads, 0 for all CPUs")
	quiet := f.boolean("quiet", "show no progress")
	asJSON := f.json()
	var paths []string
	if err := f.parseList(args, "screen files", &paths); err != nil {
		return err
	}
	inputs := append([]string{*lf.weights, *lf.bias, *src}, paths...)
	if err := checkReplaces(f, "--svg", *svg, inputs...); err != nil {
		return err
	}
	if err := checkReplaces(f, "--png", *png, inputs...); err != nil {
		return err
	}
	if *svg != "" && *svg == *png {
		return f.wrongUse("--svg and --png name the same file %s", *svg)
	}
	l, err := lf.open()
	if err != nil {
		return err
	}
	defer l.close()
	if err := checkK(*k, l); err != nil {
		return err
	}
	var models []*screen.Model
	for _, path := range paths {
		m, err := loadScreenFor(path, l)
		if err != nil {
			return err
		}
		models = append(models, m)
	}
	c, err := openContexts(*src, l)
	if err != nil {
		return err
	}
	defer c.close()
	rows := different(c.rows, c.dim)
	if len(rows) < leastContexts {
		return fmt.Errorf("%s: found %d different contexts, expected at least %d", c.name, len(rows), leastContexts)
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
	r, err := curve(ctx, paths, models, l, c.rows, rows, *k, *threads, p)
	if err != nil {
		return err
	}
	for format, file := range pictures {
		if err := drawCurve(file, format, r); err != nil {
			return err
		}
		if err := file.Commit(); err != nil {
			return err
		}
	}
	if *asJSON {
		return printJSON(stdout, r)
	}
	return write(stdout, r.String())
}

// curve measures the screens with progress on p: precision on all contexts,
// times on the different ones.
func curve(ctx context.Context, paths []string, models []*screen.Model, l *layer, contexts []float32, rows [][]float32, k, threads int, p *progress.Printer) (*curveResult, error) {
	r := &curveResult{K: k, Contexts: len(contexts) / l.Dim(), Labels: l.Labels(), Dim: l.Dim(), Level: kernels.Level()}
	dst := make([]softmax.Prediction, k)
	q := softmax.NewQuery(l.Dim())
	dense := func(i int) {
		must(q.Set(rows[i]))
		l.TopKFloat32(dst, q)
	}
	methods := []func(int){dense, exactQuery(l, rows, dst)}
	p.Start("eval", "contexts", len(models)*r.Contexts)
	for i, m := range models {
		e, err := screen.Evaluate(ctx, m, l.Layer, contexts, screen.EvaluateOptions{
			K: slices.Compact([]int{1, k}), Threads: threads, Progress: func(done, _ int) { p.Set(i*r.Contexts + done) },
		})
		if err != nil {
			return nil, err
		}
		point := curvePoint{
			File: paths[i], Method: methodOf(m), Clusters: m.Clusters(), Groups: m.Groups(),
			AvgCandidates: e.MeanCandidates, RowsScanned: e.MeanRouting + e.MeanCandidates, Precision: map[string]float64{},
		}
		for _, at := range e.AtK {
			point.Precision[strconv.Itoa(at.K)] = at.Precision
		}
		r.Screens = append(r.Screens, point)
		s, err := screen.NewSearcher(m, l.Layer)
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
	r.DenseF32, r.Exact = micros(times[0].Median()), micros(times[1].Median())
	r.Queries = len(rows)
	for i := range r.Screens {
		t := times[i+2]
		r.Queries = min(r.Queries, t.Queries())
		r.Screens[i].Screened = micros(t.Median())
		r.Screens[i].Speedup = round(r.DenseF32 / r.Screens[i].Screened)
	}
	slices.SortStableFunc(r.Screens, func(a, b curvePoint) int {
		return cmp.Or(cmp.Compare(a.Method, b.Method), cmp.Compare(a.Clusters, b.Clusters), cmp.Compare(a.Groups, b.Groups), cmp.Compare(a.AvgCandidates, b.AvgCandidates))
	})
	return r, nil
}

func (r *curveResult) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s contexts, %s labels, one thread, level %s\n\n", progress.Count(r.Contexts), progress.Count(r.Labels), r.Level)
	width := len("screen")
	for _, s := range r.Screens {
		width = max(width, len(s.File))
	}
	fmt.Fprintf(&b, "%-*s  method   clusters     L-bar      rows     P@1", width, "screen")
	if r.K > 1 {
		fmt.Fprintf(&b, "  %6s", fmt.Sprintf("P@%d", r.K))
	}
	b.WriteString("     median   against dense\n")
	for _, s := range r.Screens {
		fmt.Fprintf(&b, "%-*s  %-7s  %8d  %8.1f  %8.1f  %6.4f", width, s.File, s.Method, s.Clusters, s.AvgCandidates, s.RowsScanned, s.Precision["1"])
		if r.K > 1 {
			fmt.Fprintf(&b, "  %6.4f", s.Precision[strconv.Itoa(r.K)])
		}
		fmt.Fprintf(&b, "  %6.2f us   %12.1fx\n", s.Screened, s.Speedup)
	}
	fmt.Fprintf(&b, "\nFor the same contexts the dense float32 scan takes %.2f us, the exact layer %.2f us.\n", r.DenseF32, r.Exact)
	return b.String()
}
