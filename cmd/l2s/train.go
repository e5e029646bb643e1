package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/learning-to-screen/l2s/internal/atomicfile"
	"github.com/learning-to-screen/l2s/internal/layerfile"
	"github.com/learning-to-screen/l2s/internal/progress"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/train"
)

// trainResult is the JSON of l2s train.
type trainResult struct {
	Out       string  `json:"out"`
	Clusters  int     `json:"clusters"`
	Dim       int     `json:"dim"`
	Labels    int     `json:"labels"`
	K         int     `json:"k"`
	Contexts  int     `json:"contexts"`
	Budget    float64 `json:"budget"`
	Seed      uint64  `json:"seed"`
	Estimator string  `json:"estimator,omitempty"` // none without learning
	// LearnedFor is the budget that the clusters were learned for, where it is
	// not that of this screen.
	LearnedFor float64 `json:"learned_for,omitempty"`
	// MeanCandidates and TrainingPrecision are those of the screen on the
	// contexts that it was trained on.
	MeanCandidates    float64            `json:"mean_candidates"`
	TrainingPrecision map[string]float64 `json:"training_precision"`
	// HeldOut are figures on contexts that a screen made as this one is was not
	// trained on, see train.Record.Unseen.
	HeldOut *heldOut `json:"held_out,omitempty"`
	// Warnings say what should make one think twice.
	Warnings []string           `json:"warnings,omitempty"`
	Seconds  map[string]float64 `json:"seconds"` // of each stage, and in all
	Threads  int                `json:"threads"`
	Level    string             `json:"level"`
}

// trainResults is the JSON of l2s train with several budgets.
type trainResults struct {
	Screens []trainResult `json:"screens"`
}

type heldOut struct {
	Contexts       int                `json:"contexts"`
	MeanCandidates float64            `json:"mean_candidates"`
	Precision      map[string]float64 `json:"precision"`
	// Deviation is the standard error of P@k.
	Deviation float64 `json:"deviation"`
}

func runTrain(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o := train.DefaultOptions()
	f := newFlags("train", description{
		purpose: `Learn a screen for a softmax layer from context vectors: r clusters of
contexts, and for each the set of labels worth looking at.

The exact best k labels of every context are found first; spherical k-means
then gives the clusters, a knapsack the sets. Learning alternates between the
two: gradient descent on the clusters, the knapsack on the sets.

With --clusters R/G a query finds one of R clusters through G groups: it scans the
vectors of the groups, and those of the clusters in the list of the best group.
Many small clusters then cost little. The lists are learned as the sets are, from
the clusters that contexts have; a cluster is in --overlap of them on average. As
many groups as the root of 2R serve well, as in 512/32. The defaults are then
--smoothing 20 and --lambda 0.00003. With --clusters GxR each of G groups has R
clusters of its own, and --spread is 0.3.

With --tail regression it also learns, for each cluster, what the labels outside
its set weigh together, for probabilities over all labels: see l2s topk
--logprobs.

Where the contexts of a cluster lie, and how far they spread, gives every label a
chance to be among the best of one of them, whether the cluster has met it or not.
The counts are smoothed towards that: with few contexts, or many clusters, counts
alone starve. --geometry 0 leaves it out.

A fiftieth of the contexts is kept as held-out contexts: the figures of the screen on them
stand beside those on the contexts of training, and where the two, or anything
else, should make one think twice, a warning says so and what to do.

With --probe-share X the share X of the contexts, those that lie closest
between two clusters, look at the candidates of both; --budget counts them.`,
		usage: "(--head MODEL | --weights SRC --bias SRC) --contexts H.npy --out m.l2s [flags]",
		notes: sourceNote + `

The contexts must be the states that the layer is applied to. A warning says where
they do not look so: where the model's last normalisation stands beside the head,
by what it leaves of a state's length; else if for most contexts one label has all of
the probability, or if all labels have about the same.

More contexts give a better screen: some hundred thousand of the kind that the
layer meets in use. The screen is for this layer alone.

With several budgets one run writes a screen for each: --out m.l2s becomes
m-50.l2s, m-100.l2s. The clusters are learned for one budget, --learn-for, and
the sets are chosen for each. l2s curve compares the screens.

The state of the run is kept beside the output, in FILE.partial and
FILE.partial-labels, after the labels, k-means and each alternation, until the
screen is written. After an interrupt the same command continues from there and
writes the screen that it would have written, byte for byte. A state left by a
run with other flags, another layer or other contexts is refused; --restart
discards it. Files of another kind with these names are never removed. The labels
alone, if k-means or learning did not end, serve a run with other flags too.`,
		advanced: "always estimator gamma geometry iterations k kmeans-batch kmeans-iterations lambda learn-for learning-rate multiplier overlap patience probe-share smoothing spread tail tail-contexts tail-rank",
		example: `l2s train --weights lm.safetensors:decoder.weight --bias lm.safetensors:decoder.bias \
    --contexts train.npy --out m.l2s --clusters 100 --budget 150`,
	}, stdout, stderr)
	lf, src := f.layer(), f.contexts()
	out := f.needs("out", "screen `FILE` to write")
	clusters := custom(f, "clusters", shape{clusters: o.Clusters}, strconv.Itoa(o.Clusters), "number `R` of clusters, or R/G: found through G groups, or GxR", parseClusters)
	overlap := f.real("overlap", 2, 1, "number `X` of lists that a cluster of R/G is in on average")
	budgets := f.reals("budget", o.Budget, 1, "mean number `B` of candidates a context, or several: 50,100,150")
	learnFor := f.real("learn-for", 0, 1, "budget `B` that clusters are learned for; default: the middle one of --budget")
	k := f.whole("k", o.K, 1, "learn from the `N` best labels of each context")
	lambda := f.real("lambda", o.Lambda, 0, "cost `X` of a candidate in vain; a missed label costs 1")
	smoothing := f.real("smoothing", o.Smoothing, 0, "contexts `X` that a cluster's surroundings count for in its set")
	geometry := f.real("geometry", o.Geometry, 0, "contexts `X` that the geometry of a cluster counts for, 0: none")
	spread := f.number("spread", o.Spread, "a number, 0 to 0.5", "mean share `X` of a context that counts in clusters near its own", func(x float64) bool { return x >= 0 && x <= 0.5 })
	probeShare := f.number("probe-share", o.ProbeShare, "a number, at least 0 and below 1", "share `X` of the contexts that look at the candidates of two clusters", func(x float64) bool { return x >= 0 && x < 1 })
	rate := f.real("learning-rate", o.LearningRate, 1e-9, "first step size `X` of learning; it falls to 0")
	multiplier := f.real("multiplier", o.Multiplier, 0, "price `X` of a candidate while learning; 0 is the paper's loss")
	gamma := f.real("gamma", o.Gamma, 0, "weight `X` of exceeding the budget while learning")
	iterations := f.whole("iterations", o.Iterations, 0, "number `N` of alternations, T")
	patience := f.whole("patience", o.Patience, 0, "stop after `N` alternations without a new best, 0 for never")
	kmeansIterations := f.whole("kmeans-iterations", o.KMeansIterations, 1, "iterations `N` of k-means, at most")
	kmeansBatch := f.whole("kmeans-batch", o.KMeansBatch, 0, "contexts `N` of an iteration of k-means, 0 for all")
	kmeansOnly := f.boolean("kmeans-only", "stop after spherical k-means and one knapsack, without learning")
	estimator := custom(f, "estimator", o.Estimator, "expected", "gradient estimator `NAME`, gumbel-st or expected", parseEstimator)
	always := custom(f, "always", nil, "", "label `IDS` that every set holds, with commas between them", func(s string) ([]int, error) { return wholeList(s, 0) })
	labels := f.text("labels", "take the labels from a `FILE` of l2s labels or l2s merge")
	restart := f.boolean("restart", "discard what an interrupted run has left, and start anew")
	tailRank := f.whole("tail-rank", 0, 0, "rank `N` of a stand-in for W outside the sets, for log-probabilities; 0: none")
	tail := custom(f, "tail", false, "none", "`KIND` of estimate outside the sets, regression or none", parseTail)
	tailContexts := f.text("tail-contexts", "contexts `SRC` for --tail, best of other text; default: --contexts")
	seed := f.seed(o.Seed)
	threads := f.threads("run")
	quiet := f.boolean("quiet", "show no progress")
	asJSON := f.json()
	if err := f.parse(args, nil); err != nil {
		return err
	}
	switch c := *clusters; {
	case c.lists:
		o.SetOverlap(c.clusters, c.groups)
		if f.given("overlap") {
			o.Overlap = *overlap
		}
		if o.Overlap > float64(c.groups) {
			return f.wrongUse("--overlap %v needs as many groups, but --clusters has %d", o.Overlap, c.groups)
		}
	case f.given("overlap"):
		return f.wrongUse("--overlap is for --clusters R/G")
	case c.groups > 0:
		o.SetLevels(c.groups, c.clusters/c.groups)
	default:
		o.Clusters = c.clusters
	}
	if f.given("lambda") {
		o.Lambda = *lambda
	}
	if f.given("smoothing") {
		o.Smoothing = *smoothing
	}
	if f.given("spread") {
		o.Spread = *spread
	}
	o.ProbeShare = *probeShare
	o.Geometry = *geometry
	o.K, o.Gamma, o.Iterations = *k, *gamma, *iterations
	o.LearningRate, o.Multiplier, o.Patience = *rate, *multiplier, *patience
	o.KMeansIterations, o.KMeansBatch = *kmeansIterations, *kmeansBatch
	least := (*budgets)[0]
	if o.Budget = *learnFor; !f.given("learn-for") {
		o.Budget = (*budgets)[len(*budgets)/2]
	}
	o.KMeansOnly, o.Estimator, o.Seed, o.Threads = *kmeansOnly, *estimator, *seed, *threads
	o.TailRank = *tailRank
	if *tailContexts != "" && !*tail {
		return f.wrongUse("--tail-contexts is for --tail regression")
	}
	if *tail {
		options := train.DefaultTailOptions()
		o.Tail = &options
	}
	for _, b := range []struct {
		flag  string
		value float64
	}{{"--budget", least}, {"--learn-for", o.Budget}} {
		if b.value < float64(o.K) {
			return f.wrongUse("%s %v cannot hold --k %d candidates: raise the one or lower the other", b.flag, b.value, o.K)
		}
		if float64(len(*always)) > b.value {
			return f.wrongUse("%s %v cannot hold the %d ids of --always", b.flag, b.value, len(*always))
		}
	}
	outs := budgetFiles(*out, *budgets)
	o.Checkpoint = *out + partialSuffix
	outputs := trainOutputs(outs, o.Checkpoint)
	if err := checkOutputs(f, outputs, slices.Concat(lf.files(), *src, []string{*labels, *tailContexts})...); err != nil {
		return err
	}
	in, err := openInputs(ctx, lf, nil, *src, o.K, openContexts)
	if err != nil {
		return err
	}
	defer in.close(&err)
	l, c := in.layer, in.contexts
	if o.Tail != nil { // as temperatures of w.h + b
		for i := range o.Tail.Temperatures {
			o.Tail.Temperatures[i] *= l.temperature()
		}
	}
	if most := min(l.Labels(), l.Dim()); o.TailRank > most {
		return fmt.Errorf("%s: found %d labels of dimension %d, expected --tail-rank of at most %d, found %d", l.name, l.Labels(), l.Dim(), most, o.TailRank)
	}
	for _, id := range *always {
		row := id
		if ids := l.ids(); ids != nil {
			if row = slices.Index(ids, uint32(id)); row < 0 {
				return fmt.Errorf("%s: found no label %d in the draft head, expected it for --always", l.name, id)
			}
		}
		if row >= l.Labels() {
			return fmt.Errorf("%s: found %d labels, expected more than %d, an id of --always", l.name, l.Labels(), id)
		}
		o.Always = append(o.Always, uint32(row))
	}
	if c.n < o.Clusters {
		return fmt.Errorf("%s: found %d contexts, expected at least one for each of %d clusters", c.name, c.n, o.Clusters)
	}
	if *tailContexts != "" {
		src, err := openSources([]string{*tailContexts})
		if err != nil {
			return err
		}
		others, err := openContexts(ctx, src, l)
		if err != nil {
			return err
		}
		defer others.close()
		o.TailContexts = others.rows
	}
	if err := checkWritable(outputs); err != nil {
		return err
	}
	release, err := atomicfile.Hold(o.Checkpoint)
	if errors.Is(err, atomicfile.ErrHeld) {
		return fmt.Errorf("%w: wait for its end, or give another --out", err)
	}
	if err != nil {
		return err
	}
	defer release()

	if why := layerfile.Unnormed(l.head, c.rows); why != "" {
		say(stderr, "l2s train: warning: "+c.name, "the contexts do not look like those that the layer is applied to: "+why)
	}
	p := f.printer(*quiet)
	defer p.Close()
	if *labels != "" {
		if o.Labels, err = readLabels(ctx, *labels, l, c, o.K, o.Threads, p); err != nil {
			return err
		}
	}
	if *restart { // after all else that can be wrong has been found out
		if err := train.RemoveCheckpoint(o.Checkpoint); err != nil {
			return err
		}
	}
	models, records, seconds, err := trainScreens(ctx, l, c.rows, o, *budgets, p)
	if err != nil {
		return explainInterrupt(err, o.Checkpoint)
	}
	var r trainResults
	for i, m := range models {
		if err := m.Save(outs[i]); err != nil {
			return err
		}
		r.Screens = append(r.Screens, newTrainResult(outs[i], m, records[i], o, seconds))
	}
	if err := train.RemoveCheckpoint(o.Checkpoint); err != nil {
		return err
	}
	switch {
	case *asJSON && len(r.Screens) == 1:
		return printJSON(stdout, r.Screens[0])
	case *asJSON:
		return printJSON(stdout, r)
	}
	return write(stdout, r.String())
}

// shape is how many clusters there are, and in how many groups, 0 for none. With
// lists the groups overlap.
type shape struct {
	clusters, groups int
	lists            bool
}

// parseClusters reads R, R/G or GxR, the R of which are those of one group.
func parseClusters(s string) (shape, error) {
	bad := errors.New("expected a whole number, at least 1, or R/G with G at most R, or GxR")
	first, second, lists := strings.Cut(s, "/")
	two := lists
	if !lists {
		first, second, two = strings.Cut(s, "x")
	}
	a, err := parseWhole(first, 1)
	if err != nil || a > math.MaxInt32 {
		return shape{}, bad
	}
	if !two {
		return shape{clusters: a}, nil
	}
	b, err := parseWhole(second, 1)
	switch {
	case err != nil || lists && b > a || !lists && b > math.MaxInt32/a:
		return shape{}, bad
	case lists:
		return shape{a, b, true}, nil
	}
	return shape{clusters: a * b, groups: a}, nil
}

// budgetFiles returns the name of the screen for each budget: out where there
// is one budget, and else out with the budget before its extension.
func budgetFiles(out string, budgets []float64) []string {
	if len(budgets) == 1 {
		return []string{out}
	}
	var names []string
	extension := filepath.Ext(out)
	if extension == filepath.Base(out) { // of a hidden file without one
		extension = ""
	}
	for _, b := range budgets {
		names = append(names, strings.TrimSuffix(out, extension)+"-"+strconv.FormatFloat(b, 'f', -1, 64)+extension)
	}
	return names
}

// trainOutputs are the screens of a run and the files of its checkpoint.
func trainOutputs(outs []string, checkpoint string) (all []output) {
	for _, out := range outs {
		all = append(all, output{flag: "--out", path: out})
	}
	for _, file := range train.CheckpointFiles(checkpoint) {
		all = append(all, output{"--out", file, "where the state of the run is kept"})
	}
	return all
}

// explainInterrupt adds to the error of a run what the checkpoint is good for.
func explainInterrupt(err error, checkpoint string) error {
	if errors.Is(err, train.ErrCheckpoint) {
		return fmt.Errorf("%w; --restart discards it", err)
	}
	for _, file := range train.CheckpointFiles(checkpoint) {
		if _, missing := os.Stat(file); missing == nil {
			return interruptedError{err, file + " keeps what was done, and the same command continues from there"}
		}
	}
	return err
}

// parseTail reports whether a regression of the tail is wanted.
func parseTail(s string) (bool, error) {
	if s != "regression" && s != "none" {
		return false, fmt.Errorf("expected regression or none")
	}
	return s == "regression", nil
}

func parseEstimator(s string) (e train.Estimator, err error) {
	if e.UnmarshalText([]byte(s)) != nil {
		return 0, fmt.Errorf("expected gumbel-st or expected")
	}
	return e, nil
}

// trainScreen trains with progress on p, and returns the seconds of each stage
// too.
func trainScreen(ctx context.Context, l *layer, rows []float32, o train.Options, p *progress.Printer) (*screen.Model, *train.Record, map[string]float64, error) {
	models, records, seconds, err := trainScreens(ctx, l, rows, o, []float64{o.Budget}, p)
	if err != nil {
		return nil, nil, nil, err
	}
	return models[0], records[0], seconds, nil
}

// trainScreens is trainScreen for several budgets.
func trainScreens(ctx context.Context, l *layer, rows []float32, o train.Options, budgets []float64, p *progress.Printer) ([]*screen.Model, []*train.Record, map[string]float64, error) {
	t := &trainProgress{p: p, o: o, n: len(rows) / l.Dim(), seconds: map[string]float64{}, start: time.Now()}
	t.since = t.start
	o.Progress = t.report
	models, records, err := train.RunBudgets(ctx, l.Layer, rows, o, budgets)
	if err != nil {
		return nil, nil, nil, err
	}
	return models, records, t.finish(), nil
}

// trainProgress turns the reports of a run into bars and lines.
type trainProgress struct {
	p       *progress.Printer
	o       train.Options
	n       int // contexts
	seconds map[string]float64
	start   time.Time

	mu        sync.Mutex
	stage     string
	iteration int
	each      int       // contexts of an iteration of k-means
	since     time.Time // of the stage
}

func (t *trainProgress) report(r train.Progress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.Message != "" {
		if strings.HasPrefix(r.Message, train.StageKMeans) {
			return // k-means has its one line at its end
		}
		switch t.stage {
		case train.StageKMeans, train.StageGroups, train.StageMeasure, train.StageSpread, train.StageGeometry, train.StageProbe: // that is now, when its result has been measured
			t.endStage()
			t.stage = ""
		}
		t.p.Line(r.Message)
		return
	}
	if r.Stage != t.stage {
		t.endStage()
		t.stage, t.iteration = r.Stage, -1
	}
	switch r.Stage {
	case train.StageKMeans: // one bar for all iterations
		if t.iteration < 0 {
			t.p.Start("k-means", "contexts", t.o.KMeansIterations*r.Total)
		}
		t.iteration, t.each = r.Iteration, r.Total
		t.p.Set((r.Iteration-1)*r.Total + r.Done)
		return
	case train.StageLearn, train.StageAssign: // the message after them has the figures
		if t.iteration != r.Iteration {
			t.p.Start(fmt.Sprintf("%s %d/%d", r.Stage, r.Iteration, t.o.Iterations), "contexts", r.Total)
		}
	default:
		if t.iteration != r.Iteration {
			of := "contexts"
			if r.Stage == train.StageGeometry {
				of = "clusters"
			}
			t.p.Start(r.Stage, of, r.Total)
		}
	}
	t.iteration = r.Iteration
	t.p.Set(r.Done)
}

// endStage says that the stage is over and adds its time to the account.
func (t *trainProgress) endStage() {
	now := time.Now()
	if t.stage != "" {
		t.seconds[t.stage] += now.Sub(t.since).Seconds()
	}
	t.since = now
	switch t.stage {
	case train.StageLabels, train.StageMeasure, train.StageSpread, train.StageGeometry, train.StageProbe, train.StageTail:
		t.p.End()
	case train.StageKMeans:
		t.p.EndWith(fmt.Sprintf("%d iterations over %s contexts", t.iteration, progress.Count(t.each)))
		if t.o.Groups == 0 || t.o.Overlap > 0 {
			t.announce()
		}
	case train.StageGroups:
		t.p.End()
		if t.o.Overlap == 0 {
			t.announce()
		}
	}
}

// announce says what the figures of learning mean, which follow.
func (t *trainProgress) announce() {
	if !t.o.KMeansOnly && t.o.Iterations > 0 {
		t.p.Line("Learning. P@k: share of the exact k best labels that the sets hold, on held-out\ncontexts; candidates: their mean number.")
	}
}

func (t *trainProgress) finish() map[string]float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endStage()
	t.p.Close()
	t.seconds["total"] = time.Since(t.start).Seconds()
	for stage, s := range t.seconds {
		t.seconds[stage] = math.Round(s*1000) / 1000
	}
	return t.seconds
}

// precisions are P@1 and P@k by their k, as JSON has them.
func precisions(k int, first, all float64) map[string]float64 {
	return map[string]float64{"1": first, fmt.Sprint(k): all}
}

func newTrainResult(out string, m *screen.Model, record *train.Record, o train.Options, seconds map[string]float64) trainResult {
	r := trainResult{
		Out: out, Clusters: m.Clusters(), Dim: m.Dim(), Labels: m.Labels(), K: o.K, Contexts: record.Contexts,
		Budget: record.Options.Budget, LearnedFor: record.LearnedFor, Seed: o.Seed, MeanCandidates: record.MeanCandidates,
		TrainingPrecision: precisions(o.K, record.Precision1, record.PrecisionK),
		Seconds:           seconds, Threads: o.Threads, Level: kernels.Level(),
	}
	if r.Threads == 0 {
		r.Threads = runtime.GOMAXPROCS(0)
	}
	if len(record.Alternations) > 0 {
		r.Estimator = o.Estimator.String()
	}
	if u := record.Unseen; u != nil {
		r.HeldOut = &heldOut{u.Contexts, u.MeanCandidates, precisions(o.K, u.Precision1, u.PrecisionK), u.Deviation}
	}
	r.Warnings = record.Advice()
	return r
}

func (r trainResults) String() string {
	var b strings.Builder
	for _, s := range r.Screens {
		b.WriteString(s.figures())
	}
	return b.String() + r.Screens[0].time()
}

func (r trainResult) String() string { return r.figures() + r.time() }

func (r trainResult) figures() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d clusters; %.1f candidates a context on average, budget %v\n", r.Out, r.Clusters, r.MeanCandidates, r.Budget)
	line := func(what string, n int, p map[string]float64) {
		fmt.Fprintf(&b, "  %-18s %11s   P@1 %.4f", what, progress.Count(n), p["1"])
		if r.K > 1 {
			fmt.Fprintf(&b, "   P@%d %.4f", r.K, p[fmt.Sprint(r.K)])
		}
		b.WriteByte('\n')
	}
	line("training contexts", r.Contexts, r.TrainingPrecision)
	if v := r.HeldOut; v != nil {
		line("held-out contexts", v.Contexts, v.Precision)
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(&b, "  warning: %s\n", w)
	}
	return b.String()
}

// time says how long the run took, and its stages that took a second or more.
func (r trainResult) time() string {
	duration := func(stage string) string { return progress.Duration(time.Duration(r.Seconds[stage] * 1e9)) }
	var parts []string
	for _, stage := range train.Stages() {
		if r.Seconds[stage] >= 1 {
			parts = append(parts, stage+" "+duration(stage))
		}
	}
	s := fmt.Sprintf("  %s in all, on %d threads at level %s\n", duration("total"), r.Threads, r.Level)
	if len(parts) > 0 {
		s += "  of it: " + strings.Join(parts, ", ") + "\n"
	}
	return s
}
