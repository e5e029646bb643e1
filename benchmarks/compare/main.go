// Command compare measures every method of package methods on one softmax layer and its contexts:
// the tables and figures of "Learning to Screen for Fast Softmax Inference on Large Vocabulary
// Neural Networks" (Section 4 and the appendix), on the layer and contexts that it is given.
//
// The layer is the head of a language model (--lm), the head of make demo (--demo), or any head in
// files (--weights, --bias, --contexts). Every method is built, then all settings of all methods
// answer the same contexts in turns, on one thread, in one run. Times are medians over the rounds,
// speedups are ratios to the dense float32 scan within the round, and precision is as in the paper:
// the share of the exact k best labels that are among the k of the answer.
//
// All points go to points.json in the folder --out, and the page of package report goes next to it.
// After an interrupt the points are of the complete rounds; the exit status is then 130.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/benchmarks/internal/command"
	"github.com/learning-to-screen/l2s/benchmarks/internal/measure"
	"github.com/learning-to-screen/l2s/benchmarks/internal/methods"
	"github.com/learning-to-screen/l2s/benchmarks/internal/perplexity"
	"github.com/learning-to-screen/l2s/benchmarks/internal/points"
	"github.com/learning-to-screen/l2s/benchmarks/internal/report"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/progress"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/watch/evaluate"
	"github.com/learning-to-screen/l2s/internal/watch/timing"
	"github.com/learning-to-screen/l2s/train"
)

// topK is the k of the queries that are timed.
const topK = 5

func main() { command.Main("compare", run) }

// run runs the comparison that the arguments describe.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("compare", flag.ContinueOnError)
	f.SetOutput(stderr)
	var src sourceFlags
	f.StringVar(&src.lm, "lm", "../../shared/data/ptb-small", "`folder` of a language model: model.safetensors, vocab.txt, *train.txt, *test.txt")
	f.BoolVar(&src.demo, "demo", false, "take the language model of make demo, in lm/model")
	f.StringVar(&src.weights, "weights", "", "softmax weights W, labels x dim: file.npy, file.npz:name or file.safetensors:tensor")
	f.StringVar(&src.bias, "bias", "", "softmax bias b likewise, or none")
	f.StringVar(&src.contexts, "contexts", "", "contexts to learn from, one per row, in the same form")
	f.StringVar(&src.testContexts, "test-contexts", "", "contexts to measure, likewise (default: the last tenth of --contexts, kept out of the learning)")
	f.StringVar(&src.cache, "cache", "../bin/compare", "`folder` that keeps the contexts of --lm for the next run")
	f.Uint64Var(&src.seed, "seed", 1, "seed of all random choices")
	quick := f.Bool("quick", false, "take few settings and contexts: less than two minutes")
	full := f.Bool("full", false, "take more settings, and learn from all contexts")
	rounds := f.Int("rounds", 0, "`number` of rounds (default: as in the sweep)")
	mib := f.Int("cold", coldMiB, "`MiB` of other memory that are read before a query with cold caches")
	out := f.String("out", "results/ptb-small", "`folder` to write to")
	rank := f.Int("rank", 20, "`rank` of the tail outside the candidates, for the perplexities")
	least := f.Float64("least", 0, "fail unless the screen that is trained without options reaches this `P@5` and scans less than half of the rows")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("found the argument %q, expected flags only", f.Arg(0))
	}
	f.Visit(func(given *flag.Flag) {
		switch given.Name {
		case "lm":
			src.lmGiven = true
		case "weights", "bias", "contexts", "test-contexts":
			src.filesGiven = true
		}
	})
	if err := src.check(); err != nil {
		return err
	}
	s := sweeps[points.Reduced]
	switch {
	case *quick && *full:
		return errors.New("--quick and --full exclude each other: give one of them")
	case *quick:
		s = sweeps[points.Quick]
	case *full:
		s = sweeps[points.Full]
	}
	if *rounds < 0 {
		return fmt.Errorf("--rounds: found %d, expected at least 1", *rounds)
	} else if *rounds > 0 {
		s.rounds = *rounds
	}
	if s.mib = *mib; s.mib < 1 {
		return fmt.Errorf("--cold: found %d MiB, expected at least 1", s.mib)
	}
	if *rank < 1 {
		return fmt.Errorf("--rank: found %d, expected at least 1", *rank)
	}
	if err := os.MkdirAll(*out, 0o777); err != nil {
		return err
	}

	p := progress.New(stderr)
	defer p.Close()
	if methods.Sgemv == nil {
		p.Line("OpenBLAS is left out: build with -tags openblas (Debian: libopenblas-dev and pkg-config)")
	}
	data, err := src.open(ctx, s.train, s.test, p)
	if err != nil {
		return err
	}
	defer data.close()
	file, err := compare(ctx, data, s, *rank, src.seed, p)
	if err != nil {
		return err
	}
	path := filepath.Join(*out, "points.json")
	if err := file.Save(path); err != nil {
		return err
	}
	if err := report.Page(filepath.Join(*out, "figures.md"), "", *out); err != nil {
		return err
	}
	p.Line(fmt.Sprintf("%s: %d points in %s; the page of them is figures.md next to it", path, len(file.Points), progress.Duration(time.Duration(file.Seconds*1e9))))
	if err := report.Summary(stdout, file); err != nil {
		return err
	}
	if !file.Complete {
		return fmt.Errorf("%d of %d rounds are kept: %w", file.Rounds, s.rounds, context.Cause(ctx))
	}
	return checkLeast(file, *least)
}

// contestant is a setting that is measured.
type contestant struct {
	method       methods.Method
	buildSeconds float64
	bytes        int64
	setting      methods.Setting
	turn         *measure.Turn
	cold         *measure.Turn // nil if no cold times are measured
	p1, p5       float64
	rung         screening.Rung // of a screen: its budget, with the figures of the contexts judged
}

// build returns the parameters of the construction, with the decisions of training.
func (c *contestant) build() string {
	if s, ok := c.setting.(methods.Screened); ok {
		return s.Build
	}
	return c.method.Params()
}

// compare builds and measures all that is in the sweep.
func compare(ctx context.Context, data *source, s sweep, rank int, seed uint64, p *progress.Printer) (*points.File, error) {
	start := time.Now()
	layer, d := data.layer, data.layer.Dim()
	if layer.Labels() < topK {
		return nil, fmt.Errorf("%s: found %d labels, expected at least %d", data.name, layer.Labels(), topK)
	}
	if err := data.checkContexts(leastContexts); err != nil {
		return nil, err
	}
	tests := make([][]float32, len(data.test)/d)
	for i := range tests {
		tests[i] = data.test[i*d : (i+1)*d : (i+1)*d]
	}
	// The contexts of the precisions are spread over all that are timed.
	var judged []float32
	n := min(s.precision, len(tests))
	for i := range n {
		judged = append(judged, tests[i*len(tests)/n]...)
	}
	want, err := train.Labels(ctx, (*l2s.Layer)(engine.Over(layer)), judged, topK, train.RunOptions{})
	if err != nil {
		return nil, err
	}
	in, labelSeconds, err := input(ctx, data, seed, p)
	if err != nil {
		return nil, err
	}
	list, err := build(ctx, s.methods(layer.Labels(), len(data.train)/d), in, p)
	if err != nil {
		return nil, err
	}
	if err := judge(ctx, list, layer, judged, want, p); err != nil {
		return nil, err
	}
	var turns []*measure.Turn
	for _, c := range list {
		sr, dst := c.setting.Searcher(), make([]exact.Prediction, topK)
		c.turn = &measure.Turn{
			Query: func(i int) int { sr.TopK(dst, tests[i]); return 1 },
			Block: leastQueries, // which measure may raise
		}
		turns = append(turns, c.turn)
	}
	p.Start("measuring", "rounds", s.rounds)
	rounds := measure.InTurns(ctx, turns[0], turns[1:], len(tests), s.rounds, s.block, seed, p.Set)
	if rounds == 0 {
		return nil, fmt.Errorf("no round is complete: %w", context.Cause(ctx))
	}
	p.End()
	coldRounds := 0
	if rounds == s.rounds && s.cold > 0 {
		coldRounds = measureCold(ctx, list, tests, s.cold, s.mib, seed, p)
	}
	f := &points.File{
		Schema: points.Schema, Sweep: s.name, Complete: rounds == s.rounds && coldRounds == s.cold, Level: kernels.Level(),
		Machine: points.Here(),
		Layer:   points.Layer{Name: data.name, Labels: layer.Labels(), Dim: d},
		K:       topK, Seed: seed,
		TrainContexts: len(data.train) / d, LabelSeconds: measure.Round(labelSeconds, 3),
		TestContexts: len(tests), PrecisionContexts: n, Rounds: rounds, TurnContexts: leastQueries,
	}
	if coldRounds > 0 {
		f.ColdMiB, f.ColdRounds = s.mib, coldRounds
	}
	for _, c := range list {
		f.Points = append(f.Points, c.point())
	}
	curves := f.Points
	f.Points = slices.Concat(curves, clusterTable(curves), kmeansTable(curves))
	if data.text == "" {
		p.Line("the perplexities are left out: the layer has no text, whose words would be the targets; --lm has one")
	}
	if data.text != "" && f.Complete {
		text, err := perplexity.Load(data.dir, data.text, s.words)
		if err != nil {
			return nil, err
		}
		f.Perplexity, err = perplexities(ctx, text, data.tail(), list, rank, s.rounds, s, seed, p)
		if ctx.Err() != nil {
			f.Complete = false // the points are written nevertheless
		} else if err != nil {
			return nil, err
		} else {
			f.Text, f.Tokens = text.Name, len(text.Next)
		}
	}
	f.Seconds = measure.Round(time.Since(start).Seconds(), 3)
	return f, nil
}

// coldMiB is the default number of MiB read before a query with cold caches: more than the caches
// of a core hold, like the weights of a decoder.
const coldMiB = 8

// measureCold measures the dense scan, and the settings of each method that are the fastest at a
// precision of the report, with cold caches. It returns the number of rounds that are complete;
// after none the settings have no cold times.
func measureCold(ctx context.Context, list []*contestant, tests [][]float32, rounds, mib int, seed uint64, p *progress.Printer) int {
	other := timing.NewBuffer(mib)
	var turns []*measure.Turn
	chosen := fastestSettings(list)
	for _, c := range chosen {
		c.cold = &measure.Turn{Query: c.turn.Query, Before: func(i int) { other.Read(tests[i]) }, Block: leastQueries}
		turns = append(turns, c.cold)
	}
	p.Start("measuring with cold caches", "rounds", rounds)
	done := measure.InTurns(ctx, turns[0], turns[1:], len(tests), rounds, time.Nanosecond, seed, p.Set)
	if done == 0 {
		for _, c := range chosen {
			c.cold = nil
		}
		return 0
	}
	p.EndWith(fmt.Sprintf("%d settings", len(turns)))
	return done
}

// fastestSettings returns the dense scan, which is the first of the list, and of each method the
// settings that are the fastest of a P@5 of the report's, in the order of the list.
func fastestSettings(list []*contestant) []*contestant {
	wanted := map[*contestant]bool{list[0]: true}
	for _, least := range report.Levels {
		best := map[string]*contestant{}
		for _, c := range list {
			if b := best[c.method.Name()]; c.p5 >= least && (b == nil || c.turn.Median() > b.turn.Median()) {
				best[c.method.Name()] = c
			}
		}
		for _, c := range best {
			wanted[c] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(list), func(c *contestant) bool { return !wanted[c] })
}

// leastQueries is the number of queries that a turn has at least, so that the
// times of slow settings too are means over contexts of many kinds.
const leastQueries = 64

// leastContexts is the number of contexts of each kind below which a comparison has no meaning.
const leastContexts = 1000

// input labels the contexts to learn from.
func input(ctx context.Context, data *source, seed uint64, p *progress.Printer) (*methods.Input, float64, error) {
	start := time.Now()
	p.Start("labels", "contexts", len(data.train)/data.layer.Dim())
	labels, err := train.Labels(ctx, (*l2s.Layer)(engine.Over(data.layer)), data.train, topK, train.RunOptions{
		Progress: func(r train.Progress) { p.Set(r.Done) },
	})
	if err != nil {
		return nil, 0, err
	}
	p.End()
	return &methods.Input{Layer: data.layer, Contexts: data.train, Labels: labels, K: topK, Seed: seed}, time.Since(start).Seconds(), nil
}

// build builds the methods, one after the other, and returns their settings.
func build(ctx context.Context, list []methods.Method, in *methods.Input, p *progress.Printer) ([]*contestant, error) {
	var built []*contestant
	for i, m := range list {
		title := strings.TrimSpace(m.Name() + " " + m.Params())
		p.Start(fmt.Sprintf("building %d of %d, %s", i+1, len(list), title), "methods", 0)
		start := time.Now()
		x, err := m.Build(ctx, in)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", title, err)
		}
		seconds := time.Since(start).Seconds()
		settings := x.Settings()
		p.EndWith(fmt.Sprintf("%d settings", len(settings)))
		for _, s := range settings {
			c := &contestant{method: m, buildSeconds: seconds, bytes: x.Bytes(), setting: s}
			// If each setting has an index of its own, it knows the size.
			if sized, ok := s.(interface{ Bytes() int64 }); ok {
				c.bytes = sized.Bytes()
			}
			built = append(built, c)
		}
	}
	return built, nil
}

// judge finds the precision of all settings on the contexts judged, whose exact labels are want.
func judge(ctx context.Context, list []*contestant, layer *exact.Layer, judged []float32, want []uint32, p *progress.Printer) error {
	d := layer.Dim()
	contexts := make([][]float32, len(judged)/d)
	for i := range contexts {
		contexts[i] = judged[i*d : (i+1)*d]
	}
	p.Start("precision", "settings", len(list))
	ladders := map[*screening.Model][]screening.Rung{}
	for i, c := range list {
		var err error
		if c.p1, c.p5, err = measure.Precision(ctx, c.setting, contexts, want, topK); err != nil {
			return err
		}
		if s, ok := c.setting.(methods.Screened); ok {
			if ladders[s.Model] == nil {
				e, err := evaluate.Run(ctx, s.Model, layer, judged, evaluate.Options{K: []int{topK}})
				if err != nil {
					return err
				}
				ladders[s.Model] = e.Ladder
			}
			ladder := ladders[s.Model]
			c.rung = ladder[slices.IndexFunc(ladder, func(x screening.Rung) bool { return x.Budget == s.Budget })]
		}
		p.Set(i + 1)
	}
	p.End()
	return nil
}

// point returns the measurements.
func (c *contestant) point() points.Point {
	p := points.Point{
		Method: c.method.Name(), Build: c.build(), Query: c.setting.Params(),
		BuildSeconds: measure.Round(c.buildSeconds, 3), Bytes: c.bytes,
		Timing: c.turn.Timing(), P1: c.p1, P5: c.p5,
	}
	if c.cold != nil {
		t := c.cold.Timing()
		p.Cold = &t
	}
	if s, ok := c.setting.(methods.Screened); ok {
		p.Clusters, p.Budget = s.Model.Clusters(), s.Budget
		p.MeanCandidates = measure.Round(c.rung.MeanCandidates, 2)
		p.RowsScanned = measure.Round(float64(p.Clusters)+c.rung.MeanCandidates, 2)
	}
	return p
}

// checkLeast returns an error unless the screen that package train decides reaches the
// precision while it scans less than half of the rows.
func checkLeast(f *points.File, least float64) error {
	best := 0.0
	for _, p := range f.Of(points.Curves) {
		if p.Method == (methods.L2S{}).Name() && p.RowsScanned < float64(f.Layer.Labels)/2 {
			best = max(best, p.P5)
		}
	}
	if best < least {
		return fmt.Errorf("the best P@5 of l2s is %.4f, expected at least %v", best, least)
	}
	return nil
}
