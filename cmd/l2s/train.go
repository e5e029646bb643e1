package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
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
	// Alternations is the number of alternations of learning, and Kept the one whose
	// clusters are kept: 0 for the clusters of k-means.
	Alternations int `json:"alternations,omitempty"`
	Kept         int `json:"kept_alternation,omitempty"`
	// MeanCandidates and TrainingPrecision are the screen's on the
	// contexts that it was trained on.
	MeanCandidates    float64            `json:"mean_candidates"`
	TrainingPrecision map[string]float64 `json:"training_precision"`
	// HeldOut are figures on contexts that a screen made as this one is was not
	// trained on, see train.Record.Unseen.
	HeldOut *heldOut `json:"held_out,omitempty"`
	// Chosen says which flags were not given, and why they have the value that they have.
	Chosen []string `json:"chosen,omitempty"`
	// Warnings say what should make one think twice.
	Warnings []string           `json:"warnings,omitempty"`
	Seconds  map[string]float64 `json:"seconds"` // of each stage, and in all
	Threads  int                `json:"threads"`
	Level    string             `json:"level"`
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

First the exact best k labels of every context are found. Then spherical k-means gives
the clusters, and a knapsack gives the sets. Learning alternates between the two:
gradient descent on the clusters, the knapsack on the sets.

With --clusters R/G a query finds one of R clusters through G groups: it scans the
vectors of the groups, and the vectors of the clusters in the list of the best group.
Many small clusters then cost little. The lists are learned as the sets are, from
the clusters that contexts have: the list of a context has --overlap times R/G clusters
on average. Groups that few contexts choose have longer lists, and a group that none
chooses is left out. As many groups as the root of 2R serve well, as in 512/32.

With --clusters GxR each of G groups has R clusters of its own. With groups of either
kind the defaults are --smoothing 20 and --lambda 0.00003, with GxR --spread 0.3 too.

With --tail regression the run also learns, for each cluster, what the labels outside
its set weigh together. Probabilities over all labels by the screen need it: l2s topk
--logprobs and l2s eval --targets. It takes one to four times
as long as finding the labels. --tail-contexts names contexts of other text for it,
several as with --contexts, and implies it.

The place of a cluster's contexts, and how far they spread, gives every label a chance
to be among the best of a context, also a label that the cluster has not met. The counts
of labels are smoothed towards these chances, because with few contexts, or many
clusters, the counts are too small. --geometry 0 leaves this out.

Without --clusters the number of contexts decides the clusters, and whether they are
learned: if a cluster has few contexts, learning loses precision, and the run stops after
k-means unless a flag of learning is given (--kmeans-only=false is enough). Without
--budget the number of labels decides the budget. The run prints what was decided.

The share --held-out of the contexts is kept out of the training: the held-out contexts.
The figures of the screen on them are what to expect on others; the figures on the
contexts of training are better. If something looks wrong, a warning says what to do.

With --probe-share X the share X of the contexts, those that lie closest
between two clusters, look at the candidates of both; --budget counts them. Each pair
of clusters that occurs so in training has a set of its own, chosen by the labels of its
contexts and by the labels of the two clusters. The file is larger by these sets.
--pair-weight 0 gives such contexts the sets of both clusters instead.

With --shells 0.4,0.1 the contexts of a cluster are in three shells by how far they lie
from its vector: 0.4 of all contexts lie beyond the first, and 0.1 beyond the second. Each
shell has sets of its own. The labels of far contexts are hard to foresee, so they get
larger sets, and near contexts smaller ones, within the same --budget.

With --largest N no set has more than N labels, since the queries of large sets take long.
Without it the largest set may have three or thirty times the budget, which l2s inspect
shows. Two or three times the budget costs hardly any precision. A query that looks at
two sets, or that the exact layer answers, may still take longer.`,
		usage: "(--head MODEL | --weights SRC --bias SRC) --contexts H.npy --out m.l2s [flags]",
		notes: sourceNote + `

The contexts must be the states that the layer is applied to. A warning says if they
do not look so. If the model's last normalisation stands beside the head, the length
of the states must agree with it. Otherwise the warning comes if for most contexts one
label has all of the probability, or if all labels have about the same.

More contexts give a better screen: 100,000 or more of the kind that the layer
meets in use. The screen is for this layer alone.

Every set holds the labels of --always, and they count towards the budget. It takes
ids, files and the word specials, with commas between them: 7,@ids.txt,specials. A
file is text with ids between spaces, commas or ends of lines, or a SRC of integers.
specials are the special tokens of the model in the folder that --head names, by its
configuration and its tokenizer's files.

The state of the run is kept beside the output FILE, in FILE.partial and
FILE.partial-labels, after the labels, k-means and each alternation, until the
screen is written. After an interrupt the same command continues from there and
writes the screen that it would have written, byte for byte. A state left by a
run with other flags, another layer or other contexts is refused; --restart
discards it. Files of another kind with these names are never removed. The labels
alone, if k-means or learning did not end, serve a run with other flags too.`,
		advanced: "always estimator gamma geometry held-out iterations k kmeans-batch kmeans-iterations lambda largest learning-rate multiplier overlap pair-weight patience probe-share shells smoothing spread tail tail-contexts",
		example: `l2s train --weights lm.safetensors:decoder.weight --bias lm.safetensors:decoder.bias \
    --contexts train.npy --out m.l2s --clusters 100 --budget 150`,
	}, stdout, stderr)
	lf, src := f.layer(), f.contexts()
	out := f.needs("out", "screen `FILE` to write")
	clusters := custom(f, "clusters", shape{}, "by the contexts", "clusters: `R`, R/G or GxR; see above", parseShape)
	overlap := f.real("overlap", defaultOverlap, 1, "mean length of the lists of R/G, in `X` times R/G clusters")
	budget := custom(f, "budget", 0, "by the labels", "mean candidates `B` of a context", parseReal(1))
	k := f.whole("k", o.K, 1, "learn from the `N` best labels of each context")
	lambda := f.real("lambda", o.Lambda, 0, "cost `X` of a wrong candidate; a missed label costs 1")
	smoothing := f.real("smoothing", o.Smoothing, 0, "contexts `X` that a cluster's surroundings count for in its set")
	geometry := f.real("geometry", o.Geometry, 0, "contexts `X` that the geometry of a cluster counts for, 0: none")
	spread := f.number("spread", o.Spread, "a number, 0 to 0.5", "mean share `X` of a context that counts in clusters near its own", func(x float64) bool { return x >= 0 && x <= 0.5 })
	probeShare := f.number("probe-share", o.ProbeShare, "a number, at least 0 and below 1", "share `X` of the contexts that look at the candidates of two clusters", func(x float64) bool { return x >= 0 && x < 1 })
	pairWeight := f.real("pair-weight", o.PairWeight, 0, "contexts `X` that clusters count for in sets of pairs, 0: none")
	largest := f.whole("largest", 0, 0, "the most candidates `N` of one set, 0 for no bound")
	shells := custom(f, "shells", nil, "none", "shares `X` of the contexts beyond each shell, as 0.4,0.1", parseShells)
	heldOut := f.share("held-out", o.HeldOut, "share `X` of the contexts to keep out of the training")
	rate := f.real("learning-rate", o.LearningRate, 1e-9, "first step size `X` of learning; it falls to 0")
	multiplier := f.real("multiplier", o.Multiplier, 0, "weight `X` of the set sizes in learning; 0 is the paper's loss")
	gamma := f.real("gamma", o.Gamma, 0, "weight `X` of exceeding the budget while learning")
	iterations := f.whole("iterations", o.Iterations, 0, "number `N` of alternations, T")
	patience := f.whole("patience", o.Patience, 0, "stop after `N` alternations without a new best, 0 for never")
	kmeansIterations := f.whole("kmeans-iterations", o.KMeansIterations, 1, "iterations `N` of k-means, at most")
	kmeansBatch := f.whole("kmeans-batch", o.KMeansBatch, 0, "contexts `N` of an iteration of k-means, 0 for all")
	kmeansOnly := f.boolean("kmeans-only", "stop after spherical k-means and one knapsack, without learning")
	estimator := custom(f, "estimator", o.Estimator, "expected", "gradient estimator `NAME`, gumbel-st or expected", parseEstimator)
	always := f.always()
	labels := f.text("labels", "take the labels from a `FILE` of l2s labels or l2s merge")
	restart := f.boolean("restart", "discard what an interrupted run has left, and start anew")
	tail := custom(f, "tail", false, "none", "`KIND` of estimate outside the sets, regression or none", parseTail)
	tailContexts := f.severalSources("tail-contexts", "contexts `SRC` of other text for --tail, which it implies")
	seed := f.seed(o.Seed)
	threads := f.threads("run")
	f.report()
	if err := f.parse(args, nil); err != nil {
		return err
	}
	o.ProbeShare, o.PairWeight, o.HeldOut = *probeShare, *pairWeight, *heldOut
	o.Geometry, o.Shells, o.Largest = *geometry, *shells, *largest
	o.K, o.Gamma, o.Iterations = *k, *gamma, *iterations
	o.LearningRate, o.Multiplier, o.Patience = *rate, *multiplier, *patience
	o.KMeansIterations, o.KMeansBatch = *kmeansIterations, *kmeansBatch
	switch {
	case *shells != nil && *geometry == 0:
		return f.wrongUse("--shells is for a --geometry above 0")
	case f.given("overlap") && !clusters.overlap:
		return f.wrongUse("--overlap is for --clusters R/G")
	case f.given("overlap") && *overlap > float64(clusters.groups):
		return f.wrongUse("--overlap %v needs as many groups, but --clusters has %d", *overlap, clusters.groups)
	}
	o.KMeansOnly, o.Estimator, o.Seed, o.Threads = *kmeansOnly, *estimator, *seed, *threads
	if *tailContexts != nil && f.given("tail") && !*tail {
		return f.wrongUse("--tail-contexts is for --tail regression")
	}
	tailFiles, err := expand(*tailContexts)
	if err != nil {
		return err
	}
	if slices.Contains(tailFiles, stdinSource) {
		return f.wrongUse("--tail-contexts is not for standard input: give files")
	}
	if *tail || *tailContexts != nil {
		options := train.DefaultTailOptions()
		o.Tail = &options
	}
	if *budget != 0 && *budget < float64(o.K) {
		return f.wrongUse("--budget %v cannot hold --k %d candidates: raise the one or lower the other", *budget, o.K)
	}
	// hold returns an error if there is no room for so many ids of --always.
	hold := func(ids int) error {
		if *budget != 0 && *budget < float64(ids) {
			return f.wrongUse("--budget %v cannot hold the %d ids of --always", *budget, ids)
		}
		if *largest != 0 && *largest < ids {
			return f.wrongUse("--largest %d cannot hold the %d ids of --always", *largest, ids)
		}
		return nil
	}
	if err := hold(always.least()); err != nil {
		return err
	}
	if *largest != 0 && *budget > float64(*largest) {
		return f.wrongUse("--largest %d is less than --budget %v: raise the one or lower the other", *largest, *budget)
	}
	o.Checkpoint = *out + partialSuffix
	outputs, sources := trainOutputs(*out, o.Checkpoint), slices.Concat(lf.files(), *src, always.files(), []string{*labels}, tailFiles)
	if err := checkOutputs(ctx, f, outputs, sources...); err != nil {
		return err
	}
	leastLabels := 1 // without --k a layer of fewer labels has fewer
	if f.given("k") {
		leastLabels = o.K
	}
	in, err := openInputs(ctx, lf, nil, *src, leastLabels, openContexts)
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
	o.K = min(o.K, l.Labels())
	if o.Always, err = always.read(ctx, l); err != nil {
		return err
	}
	if err := hold(len(o.Always)); err != nil { // with those in files
		return err
	}
	if tailFiles != nil {
		src, err := openSources(tailFiles)
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
	var chosen []string
	form := *clusters
	if form == (shape{}) {
		form = shapeFor(c.n)
		chosen = append(chosen, fmt.Sprintf("--clusters %s, for %s contexts", form, progress.Count(c.n)))
		if o.Geometry > 0 && !slices.ContainsFunc(learningFlags, f.given) && !train.LearningServes(c.n, form.clusters) {
			o.KMeansOnly = true
			chosen = append(chosen, fmt.Sprintf("--kmeans-only, for %s contexts of %s clusters", progress.Count(c.n), progress.Count(form.clusters)))
		}
	}
	if o.Budget = *budget; o.Budget == 0 {
		o.Budget = train.BudgetFor(l.Labels(), max(o.K, len(o.Always)))
		chosen = append(chosen, fmt.Sprintf("--budget %v, for %s labels", o.Budget, progress.Count(l.Labels())))
		if *largest != 0 && o.Budget > float64(*largest) {
			return f.wrongUse("--largest %d is less than %v, the budget for %d labels: raise it, or give a --budget", *largest, o.Budget, l.Labels())
		}
	}
	without := "" // the flag that leaves learning out
	switch {
	case *kmeansOnly:
		without = "--kmeans-only"
	case *iterations == 0:
		without = "--iterations 0"
	}
	noteUnused(f, without, *probeShare == 0)
	p := f.printer()
	defer p.Close()
	form.set(&o)
	// Groups have defaults of their own, which go behind what is given.
	if f.given("lambda") {
		o.Lambda = *lambda
	}
	if f.given("smoothing") {
		o.Smoothing = *smoothing
	}
	if f.given("spread") {
		o.Spread = *spread
	}
	if f.given("overlap") {
		o.Overlap = *overlap
	}
	if c.n < o.Clusters {
		return fmt.Errorf("%s: found %d contexts, expected at least one for each of %d clusters", c.name, c.n, o.Clusters)
	}
	if err := checkWritable(outputs); err != nil {
		return err
	}
	release, err := holdState(o.Checkpoint)
	if err != nil {
		return err
	}
	defer release()

	warnOfContexts(f, in)
	for _, choice := range chosen {
		p.Line(choice)
	}
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
	m, record, seconds, err := trainScreen(ctx, l, c.rows, o, p)
	if err != nil {
		if errors.Is(err, train.ErrTail) {
			err = fmt.Errorf("%s: %w", c.name, err)
		}
		return explainInterrupt(err, o.Checkpoint)
	}
	if err := m.Save(*out); err != nil {
		return err
	}
	if err := train.RemoveCheckpoint(o.Checkpoint); err != nil {
		return err
	}
	r := newTrainResult(*out, m, record, o, seconds)
	r.Chosen = chosen
	return f.print(r)
}

// defaultOverlap is --overlap without the flag, as [train.Options.SetOverlap] has it.
const defaultOverlap = 2

// partialSuffix ends the name of the file that keeps what an interrupted run has done.
const partialSuffix = ".partial"

// holdState makes the state of a run the caller's until release is called: another run
// must neither change nor remove it.
func holdState(path string) (release func(), err error) {
	release, err = atomicfile.Hold(path)
	if errors.Is(err, atomicfile.ErrHeld) {
		err = fmt.Errorf("%w: wait for its end, or give another --out", err)
	}
	return release, err
}

// warnOfContexts warns of contexts that look like the states of another layer.
func warnOfContexts(f *flags, in *inputs) {
	if why := layerfile.Unnormed(in.layer.head, in.contexts.rows); why != "" {
		say(f.stderr, "l2s "+f.verb+": warning: "+in.contexts.name, "the contexts do not look like those that the layer is applied to: "+why)
	}
}

// learningFlags are flags that say whether and how to learn.
var learningFlags = []string{"estimator", "gamma", "iterations", "kmeans-only", "learning-rate", "multiplier", "patience"}

// noteUnused says which of the flags given have no effect, in a run that does not learn
// without a flag or has no second probe. It is no error: scripts add --kmeans-only to a list of flags.
func noteUnused(f *flags, without string, noProbes bool) {
	var unused []string
	for _, name := range learningFlags {
		if without != "" && !strings.HasPrefix(without, "--"+name) && f.given(name) {
			unused = append(unused, "--"+name+" is for learning, which "+without+" leaves out")
		}
	}
	if noProbes && f.given("pair-weight") {
		unused = append(unused, "--pair-weight is for --probe-share above 0")
	}
	for _, why := range unused {
		say(f.stderr, "l2s "+f.verb+": note", "found a flag without effect: "+why)
	}
}

// trainOutputs are the screen of a run and the files of its checkpoint.
func trainOutputs(out, checkpoint string) []output {
	all := []output{{flag: "--out", path: out}}
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

// parseShells reads the shares of the contexts beyond shells.
func parseShells(s string) ([]float64, error) {
	var list []float64
	last := 1.0
	for _, part := range strings.Split(s, ",") {
		x, err := strconv.ParseFloat(strings.TrimSpace(part), 64)
		if err != nil || !(x > 0 && x < last) || len(list) == screen.MaxShells {
			return nil, fmt.Errorf("expected at most %d numbers above 0 and below 1, the largest first, with commas between them", screen.MaxShells)
		}
		list, last = append(list, x), x
	}
	return list, nil
}

// trainScreen trains with progress on p, and returns the seconds of each stage
// too.
func trainScreen(ctx context.Context, l *layer, rows []float32, o train.Options, p *progress.Printer) (*screen.Model, *train.Record, map[string]float64, error) {
	t := &trainProgress{p: p, o: o, n: len(rows) / l.Dim(), seconds: map[string]float64{}, start: time.Now()}
	t.since = t.start
	o.Progress = t.report
	m, record, err := train.Run(ctx, l.Layer, rows, o)
	if err != nil {
		return nil, nil, nil, err
	}
	return m, record, t.finish(), nil
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
	part      string // of the stage
	parts     bool   // the stage has some
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
		case train.StageKMeans, train.StageGroups, train.StageMeasure, train.StageShells, train.StageSpread, train.StageGeometry, train.StageProbe: // that is now, when its result has been measured
			t.endStage()
			t.stage = ""
		}
		t.p.Line(r.Message)
		return
	}
	if r.Stage != t.stage {
		t.endStage()
		t.stage, t.iteration, t.parts = r.Stage, -1, false
	}
	if r.Part != t.part {
		t.part, t.iteration = r.Part, -1
	}
	t.parts = t.parts || r.Part != ""
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
			t.p.Start(stageTitle(r), r.Unit, r.Total)
		}
	}
	t.iteration = r.Iteration
	t.p.Set(r.Done)
}

// stageTitle is the title of the bar of a stage.
func stageTitle(r train.Progress) string {
	title := r.Stage
	if r.Part != "" {
		title += ": " + r.Part
	}
	if r.Iteration > 0 {
		title += " " + strconv.Itoa(r.Iteration)
	}
	return title
}

// endStage says that the stage is over and adds its time to the account.
func (t *trainProgress) endStage() {
	now := time.Now()
	since := t.since
	t.since = now
	if t.stage == "" { // it is over already
		return
	}
	t.seconds[t.stage] += now.Sub(since).Seconds()
	if t.parts { // the bar is of the last of them
		t.p.Close()
		t.p.Line(fmt.Sprintf("%s: %s", t.stage, progress.Duration(time.Duration(math.Round(t.seconds[t.stage]*1e9)))))
		return
	}
	switch t.stage {
	case train.StageLabels, train.StageMeasure, train.StageShells, train.StageSpread, train.StageGeometry, train.StageProbe, train.StageTail:
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
		Budget: record.Options.Budget, Seed: o.Seed, MeanCandidates: record.MeanCandidates,
		TrainingPrecision: precisions(o.K, record.Precision1, record.PrecisionK),
		Seconds:           seconds, Threads: o.Threads, Level: kernels.Level(),
	}
	if r.Threads == 0 {
		r.Threads = runtime.GOMAXPROCS(0)
	}
	if len(record.Alternations) > 0 {
		r.Estimator = o.Estimator.String()
		r.Alternations, r.Kept = len(record.Alternations)-1, record.Best
	}
	if u := record.Unseen; u != nil {
		r.HeldOut = &heldOut{u.Contexts, u.MeanCandidates, precisions(o.K, u.Precision1, u.PrecisionK), u.Deviation}
	}
	r.Warnings = record.Advice()
	return r
}

func (r trainResult) String() string {
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
	if r.Kept > 0 { // else a warning says so
		fmt.Fprintf(&b, "  alternation %d of %d is kept\n", r.Kept, r.Alternations)
	}
	for _, c := range r.Chosen {
		fmt.Fprintf(&b, "  chosen: %s\n", c)
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(&b, "  warning: %s\n", w)
	}
	return b.String() + r.time()
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
