// Command previews measures an idea that l2s does not have: that queries of a screen look at previews of the
// candidates, some coordinates in which logits differ most over contexts, before their codes. A line for each
// number of coordinates says how its fastest setting compares with the screen, in turns on one thread, warm and after
// other memory was read.
//
//	go run ./previews --head MODEL --contexts H.npy --test-contexts T.npy --screen m.l2s
//	go run ./previews --made 10000x1500
//
// Both sides have the lists of one screen, with its shells and pairs, and the same contexts. The screen has the
// smallest budget of its ladder that reaches P@1 and P@5; if none does, what the largest has is the aim, less .0002.
// The other side has this budget or the next larger one, several numbers of coordinates, and several rules
// for what the previews leave: some number of labels (m=), intervals in proportion to the length of the
// coordinates (f=), or to the length of what the context has outside them (g=); and copies of the previews for
// each list, or one table of all labels. Of each number of coordinates the
// settings that reach the same precision are timed, and the one whose smaller ratio is the largest is timed once more,
// for the table, beside the screen without copies of its candidates and with up to 1 GiB of them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/learning-to-screen/l2s/benchmarks/internal/layers"
	"github.com/learning-to-screen/l2s/benchmarks/internal/measure"
	"github.com/learning-to-screen/l2s/benchmarks/internal/methods"
	"github.com/learning-to-screen/l2s/benchmarks/internal/points"
	"github.com/learning-to-screen/l2s/head"
	"github.com/learning-to-screen/l2s/internal/cold"
	"github.com/learning-to-screen/l2s/internal/layerfile"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
	"github.com/learning-to-screen/l2s/train"
)

const (
	topK = 5
	// slack is what the precision may be below that of the largest budget where no budget reaches the aim.
	slack = 0.0002
)

// options are the arguments.
type options struct {
	head, bias, contexts, test string
	made, screen               string
	trained, tested            int // contexts of a made layer
	widths                     []int
	p1, p5                     float64
	rounds, mib                int
	json                       bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "previews:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("previews", flag.ContinueOnError)
	f.SetOutput(stderr)
	var o options
	f.StringVar(&o.head, "head", "../../shared/data/llm-65k", "`head` of a model, as l2s --head takes it")
	f.StringVar(&o.bias, "bias", "", "its bias, `file` or none, if it is not beside the head")
	f.StringVar(&o.contexts, "contexts", "", "contexts to learn from, `file` (default: contexts_train.npy in the folder of the head)")
	f.StringVar(&o.test, "test-contexts", "", "contexts to measure, `file` (default: contexts_test.npy there)")
	f.StringVar(&o.made, "made", "", "make a layer of `LABELSxDIM` and its contexts instead")
	f.IntVar(&o.trained, "learn", 20000, "with --made: `number` of contexts to learn from")
	f.IntVar(&o.tested, "measure", 4000, "with --made: `number` of contexts to measure")
	f.StringVar(&o.screen, "screen", "", "screen `file`; if it is not there, the screen that l2s train makes is written to it")
	widths := f.String("widths", "32,48,64,96,128", "`numbers` of coordinates")
	f.Float64Var(&o.p1, "p1", 0.9997, "`P@1` to reach")
	f.Float64Var(&o.p5, "p5", 0.999, "`P@5` to reach")
	f.IntVar(&o.rounds, "rounds", 41, "`number` of rounds")
	f.IntVar(&o.mib, "cold", 8, "`MiB` of other memory that are read before a query with cold caches")
	f.BoolVar(&o.json, "json", false, "print JSON")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("found the argument %q, expected flags only", f.Arg(0))
	}
	for text := range strings.SplitSeq(*widths, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("--widths: found %q, expected numbers of at least 1", *widths)
		}
		o.widths = append(o.widths, n)
	}
	if o.rounds < 1 || o.mib < 1 || o.trained < 1 || o.tested < 1 {
		return fmt.Errorf("--rounds, --cold, --learn, --measure: found %d, %d, %d and %d, expected at least 1", o.rounds, o.mib, o.trained, o.tested)
	}
	r, err := compare(ctx, o, stderr)
	if err != nil {
		return err
	}
	if o.json {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	return r.print(stdout)
}

// Result is what a run found.
type Result struct {
	Machine points.Machine `json:"machine"`
	Level   string         `json:"level"`
	Layer   points.Layer   `json:"layer"`
	// Reached is false if no budget of the screen reaches the aims.
	Reached  bool   `json:"reached"`
	Contexts int    `json:"contexts"` // that were measured
	ColdMiB  int    `json:"cold_mib"`
	Screen   Side   `json:"screen"`
	Packing  []Side `json:"packing"`  // the screen with other bounds for copies
	Previews []Side `json:"previews"` // one for each number of coordinates
}

// Side is one way to answer.
type Side struct {
	Setting string `json:"setting"`
	Width   int    `json:"width,omitempty"` // the number of coordinates
	// Candidates is the mean number of candidates.
	Candidates float64 `json:"candidates"`
	P1         float64 `json:"p1"`
	P5         float64 `json:"p5"`
	// Warm and Cold are times, and how often those of the screen contain them. There are none if the
	// precision is not reached.
	Warm *points.Timing `json:"warm,omitempty"`
	Cold *points.Timing `json:"cold,omitempty"`
}

func (r *Result) print(w io.Writer) error {
	fmt.Fprintf(w, "%s, %d x %d, level %s, %d contexts, one thread; cold: after %d MiB\n", r.Layer.Name, r.Layer.Labels, r.Layer.Dim, r.Level, r.Contexts, r.ColdMiB)
	if !r.Reached {
		fmt.Fprintln(w, "The screen reaches the precision with no budget: the aim is that of its largest.")
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tcandidates\tP@1\tP@5\twarm, us\tratio\tcold, us\tratio\t")
	for _, s := range slices.Concat([]Side{r.Screen}, r.Packing, r.Previews) {
		fmt.Fprintf(t, "%s\t%.0f\t%.4f\t%.4f\t", s.Setting, s.Candidates, s.P1, s.P5)
		for _, x := range []*points.Timing{s.Warm, s.Cold} {
			if x == nil {
				fmt.Fprint(t, "-\t-\t")
			} else {
				fmt.Fprintf(t, "%.2f\t%.2f\t", x.Micros, x.Speedup)
			}
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// source is a layer with contexts.
type source struct {
	name        string
	layer       *softmax.Layer
	learn, test []float32
}

func open(o options) (s source, err error) {
	if o.made != "" {
		labels, dim, err := parseShape(o.made)
		if err != nil {
			return s, err
		}
		m := newMade(labels, dim, 1)
		s.name = "made up"
		s.learn, _ = m.contexts(o.trained, 1)
		s.test, _ = m.contexts(o.tested, 2)
		s.layer, err = m.layer()
		return s, err
	}
	s.name = filepath.Base(o.head)
	if s.layer, _, err = layerfile.Open(o.head, head.Options{Bias: o.bias, Copy: true}); err != nil {
		return s, err
	}
	for _, c := range []struct {
		src, name string
		rows      *[]float32
	}{{o.contexts, "contexts_train.npy", &s.learn}, {o.test, "contexts_test.npy", &s.test}} {
		if c.src == "" {
			c.src = filepath.Join(o.head, c.name)
		}
		if *c.rows, _, err = layers.ReadRows(c.src, s.layer.Dim()); err != nil {
			return s, err
		}
	}
	return s, nil
}

// screenOf returns the screen in the file, or trains one.
func screenOf(ctx context.Context, s source, file string, note func(string, ...any)) (*screen.Model, error) {
	if file != "" {
		if m, err := screen.Load(file); !errors.Is(err, os.ErrNotExist) {
			return m, err
		}
	}
	note("training on %d contexts", len(s.learn)/s.layer.Dim())
	m, _, err := train.Run(ctx, s.layer, s.learn, train.DefaultOptions())
	if err == nil && file != "" {
		err = m.Save(file)
	}
	return m, err
}

// mostPacked is the larger bound of the copies of candidates, in bytes.
const mostPacked = 1 << 30

// packing is a screen with another bound for the copies of candidates.
type packing struct {
	methods.Screened
	layer *softmax.Layer
	bytes int64
}

func (p packing) Params() string {
	return fmt.Sprintf("%s, Pack(%d MiB)", p.Screened.Params(), p.bytes>>20)
}

func (p packing) Searcher() methods.Searcher {
	s, err := screen.NewSearcher(p.Model, p.layer, screen.Budget(p.Budget), screen.Pack(p.bytes))
	if err != nil {
		panic(err) // the screen was made for the layer
	}
	return searcher{s}
}

// searcher is a searcher of package screen as one of the methods.
type searcher struct{ *screen.Searcher }

func (s searcher) TopK(dst []softmax.Prediction, h []float32) int {
	n, err := s.Searcher.TopK(dst, h)
	if err != nil {
		panic(err)
	}
	return n
}

// contestant is a setting that is measured.
type contestant struct {
	side       Side
	setting    methods.Setting
	warm, cold *measure.Turn
}

// compare measures both sides.
func compare(ctx context.Context, o options, stderr io.Writer) (*Result, error) {
	start := time.Now()
	note := func(format string, args ...any) {
		fmt.Fprintf(stderr, "%4.0f s: "+format+"\n", append([]any{time.Since(start).Seconds()}, args...)...)
	}
	s, err := open(o)
	if err != nil {
		return nil, err
	}
	d := s.layer.Dim()
	r := &Result{
		Machine: points.Here(), Level: kernels.Level(), Contexts: len(s.test) / d, ColdMiB: o.mib,
		Layer: points.Layer{Name: s.name, Labels: s.layer.Labels(), Dim: d},
	}
	m, err := screenOf(ctx, s, o.screen, note)
	if err != nil {
		return nil, err
	}
	note("labels of %d contexts", r.Contexts)
	want, err := train.Labels(ctx, s.layer, s.test, topK, train.LabelOptions{})
	if err != nil {
		return nil, err
	}
	e, err := screen.Evaluate(ctx, m, s.layer, s.test, screen.EvaluateOptions{K: []int{topK}})
	if err != nil {
		return nil, err
	}
	rung, p1, p5, reached := aim(e.Ladder, o.p1, o.p5)
	r.Reached = reached
	ours, err := methods.NewScreened(s.layer, m, e.Ladder[rung].Budget)
	if err != nil {
		return nil, err
	}
	x := e.Ladder[rung]
	note("the screen: %s, %.0f candidates, P@1 %.4f, P@5 %.4f; previews of %d labels", ours.Params(), x.MeanCandidates, x.Precision1.Value, x.PrecisionK.Value, s.layer.Labels())
	tests := slices.Collect(slices.Chunk(s.test, d))
	base := &contestant{side: Side{Setting: ours.Params(), Candidates: x.MeanCandidates, P1: x.Precision1.Value, P5: x.PrecisionK.Value}, setting: ours}
	widest, err := methods.NewPreviews(ctx, s.layer, m, s.learn, slices.Max(o.widths))
	if err != nil {
		return nil, err
	}
	note("widths %v", o.widths)
	var finals []*contestant
	for _, width := range o.widths {
		p, err := widest.First(width, s.learn)
		if err != nil {
			return nil, err
		}
		list, best, err := reaching(ctx, p, e.Ladder[rung:min(rung+2, len(e.Ladder))], width, tests, want, p1, p5)
		if err != nil {
			return nil, err
		}
		if len(list) == 0 {
			r.Previews = append(r.Previews, best)
			continue
		}
		fastest := 0
		if len(list) > 1 {
			contest(ctx, base, list, tests, max(o.rounds/4, 3), o.mib)
			for i, c := range list {
				if c.worse() > list[fastest].worse() {
					fastest = i
				}
			}
		}
		for _, c := range list {
			t := c.side
			if c.warm != nil {
				note("%s, %.0f candidates: P@1 %.4f, P@5 %.4f, ratios %.2f and %.2f", t.Setting, t.Candidates, t.P1, t.P5, c.warm.Median(), c.cold.Median())
			}
		}
		finals = append(finals, list[fastest])
	}
	for _, bytes := range []int64{0, mostPacked} { // what copies are worth to the screen itself
		c := &contestant{side: base.side, setting: packing{ours, s.layer, bytes}}
		c.side.Setting = c.setting.Params()
		finals = append(finals, c)
	}
	contest(ctx, base, finals, tests, o.rounds, o.mib)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.Screen = base.timed()
	for _, c := range finals {
		if c.side.Width > 0 {
			r.Previews = append(r.Previews, c.timed())
		} else {
			r.Packing = append(r.Packing, c.timed())
		}
	}
	slices.SortStableFunc(r.Previews, func(a, b Side) int { return a.Width - b.Width })
	return r, nil
}

// aim returns the first budget of a ladder that reaches both precisions. If none does it lowers them to what the
// last reaches, less the slack, and returns the first that reaches that.
func aim(ladder []screen.Rung, p1, p5 float64) (rung int, to1, to5 float64, reached bool) {
	last := ladder[len(ladder)-1]
	reaches := func(x screen.Rung) bool { return x.Precision1.Value >= p1 && x.PrecisionK.Value >= p5 }
	if reached = slices.ContainsFunc(ladder, reaches); !reached {
		p1, p5 = min(p1, last.Precision1.Value-slack), min(p5, last.PrecisionK.Value-slack)
	}
	return slices.IndexFunc(ladder, reaches), p1, p5, reached
}

// rules are what a width is measured with, each kind from the one that leaves the fewest labels.
var rules = [][]methods.Rule{
	{{Best: 16}, {Best: 24}, {Best: 32}, {Best: 48}, {Best: 64}, {Best: 96}, {Best: 128}, {Best: 192}, {Best: 256}},
	{{Factor: 0.05}, {Factor: 0.1}, {Factor: 0.15}, {Factor: 0.2}, {Factor: 0.25}, {Factor: 0.3}, {Factor: 0.4}, {Factor: 0.5}, {Factor: 0.7}},
	{{Factor: 0.05, Length: true}, {Factor: 0.1, Length: true}, {Factor: 0.15, Length: true}, {Factor: 0.2, Length: true}, {Factor: 0.25, Length: true}, {Factor: 0.3, Length: true}, {Factor: 0.4, Length: true}, {Factor: 0.5, Length: true}, {Factor: 0.7, Length: true}},
}

// reaching returns, for some budgets and each kind of rule, the first rule that reaches both precisions; and the most precise
// of all that do not.
func reaching(ctx context.Context, p *methods.Previews, ladder []screen.Rung, width int, tests [][]float32, want []uint32, p1, p5 float64) (list []*contestant, best Side, err error) {
	for _, x := range ladder {
		for _, kind := range rules {
			for _, rule := range kind {
				s, err := p.Setting(x.Budget, rule, true)
				if err != nil {
					return nil, best, err
				}
				c := &contestant{side: Side{Setting: s.Params(), Width: width, Candidates: x.MeanCandidates}, setting: s}
				if c.side.P1, c.side.P5, err = measure.Precision(ctx, s, tests, want, topK); err != nil {
					return nil, best, err
				}
				if c.side.P1 >= p1 && c.side.P5 >= p5 {
					list = append(list, c)
					gathered := *c // gives the same answers
					if gathered.setting, err = p.Setting(x.Budget, rule, false); err != nil {
						return nil, best, err
					}
					if gathered.side.Setting = gathered.setting.Params(); gathered.side.Setting != c.side.Setting {
						list = append(list, &gathered)
					}
					break
				}
				if c.side.P1+c.side.P5 > best.P1+best.P5 {
					best = c.side
				}
				runtime.GC() // releases the tables, which are not on Go's heap
			}
		}
	}
	return list, best, nil
}

// contest times the settings beside the screen.
func contest(ctx context.Context, base *contestant, list []*contestant, tests [][]float32, rounds, mib int) {
	other := cold.NewBuffer(mib)
	var warm, colds []*measure.Turn
	for _, c := range append([]*contestant{base}, list...) {
		sr, dst := c.setting.Searcher(), make([]softmax.Prediction, topK)
		query := func(i int) int { sr.TopK(dst, tests[i]); return 1 }
		c.warm = &measure.Turn{Query: query, Block: 64}
		c.cold = &measure.Turn{Query: query, Before: func(i int) { other.Read(tests[i]) }, Block: 64}
		warm, colds = append(warm, c.warm), append(colds, c.cold)
	}
	quiet := func(int) {}
	measure.InTurns(ctx, warm[0], warm[1:], len(tests), rounds, 5*time.Millisecond, 1, quiet)
	measure.InTurns(ctx, colds[0], colds[1:], len(tests), rounds, time.Nanosecond, 1, quiet)
}

// worse is the smaller of the two ratios.
func (c *contestant) worse() float64 { return min(c.warm.Median(), c.cold.Median()) }

func (c *contestant) timed() Side {
	s, warm, cold := c.side, c.warm.Timing(), c.cold.Timing()
	s.Warm, s.Cold = &warm, &cold
	return s
}
