package main

import (
	"cmp"
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
	"time"

	"github.com/learning-to-screen/l2s/cmd/l2s/internal/timing"
	"github.com/learning-to-screen/l2s/internal/cold"
	"github.com/learning-to-screen/l2s/internal/progress"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
	"github.com/learning-to-screen/l2s/train"
	"github.com/learning-to-screen/l2s/train/tune"
)

// tuneResult is the JSON of l2s tune.
type tuneResult struct {
	Out      string  `json:"out,omitempty"`
	K        int     `json:"k"`
	Target   float64 `json:"target"`
	By       string  `json:"by"` // warm or cold: the time that counts
	Contexts int     `json:"contexts"`
	HeldOut  int     `json:"held_out"` // of them
	Labels   int     `json:"labels"`
	Dim      int     `json:"dim"`
	// Trained is the number of all screens, and Screens are the screens whose times
	// were measured, the fastest first.
	Trained int         `json:"trained"`
	Screens []tunePoint `json:"screens"`
	// Recommended is one of them, and Reached says whether it reaches the target.
	Recommended tunePoint `json:"recommended"`
	Reached     bool      `json:"reached"`
	// Command trains the recommended screen again.
	Command string `json:"command"`
	// Of the dense scan, which takes turns with the screens, the mean and the median time,
	// with warm caches.
	DenseF32       float64 `json:"dense_f32_us"`
	DenseF32Median float64 `json:"dense_f32_median_us"`
	Seconds        float64 `json:"seconds"`
	Level          string  `json:"level"`
	// Warnings say what makes the times doubtful.
	Warnings []string `json:"warnings,omitempty"`

	busy string // a note, if other programs ran
}

// tunePoint are the figures of one screen. Times are microseconds a query, as in
// benchResult.
type tunePoint struct {
	Clusters int     `json:"clusters"`
	Groups   int     `json:"groups"`            // 0 on one level
	Overlap  float64 `json:"overlap,omitempty"` // as in curvePoint
	Method   string  `json:"method"`            // as in curvePoint
	Probes   float64 `json:"probe_share"`
	// Shells are the shares of the contexts beyond each shell.
	Shells []float64 `json:"shells,omitempty"`
	Budget float64   `json:"budget"`
	// Flags are the flags with which l2s train makes the same screen.
	Flags          string             `json:"flags"`
	Precision      map[string]float64 `json:"precision"` // on held-out contexts
	Deviation      float64            `json:"deviation"` // standard error of P@k
	MeanCandidates float64            `json:"mean_candidates"`
	Rows           float64            `json:"rows_scanned"`
	Warm           float64            `json:"warm_us"`
	Cold           float64            `json:"cold_us"`
	Bytes          int64              `json:"bytes"`
	// Frontier says that no other screen is as fast and at least as precise.
	Frontier bool `json:"frontier"`
}

const (
	byWarm = "warm"
	byCold = "cold"
	// defaultTarget is the P@k that a screen is chosen for.
	defaultTarget = 0.99
	// coldMiB is what is read between two queries.
	coldMiB = 8
	// tuneState is the name of the state of a run that writes no screen.
	tuneState = "tune.l2s"
)

func runTune(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	start := time.Now()
	f := newFlags("tune", description{
		purpose: fmt.Sprintf(`Find the clusters and the budget with which a screen is fastest at a precision.

The command labels the contexts once. It trains screens of several shapes by k-means,
each for many budgets, and measures their precision on held-out contexts. With the
best shape it tries a second probe, shells and learning too. Last, all screens take turns at
answering queries, on one thread: with warm caches, and with %d MiB of other data read
before each query.

The table has the frontier: the screens for which no other screen is as fast and at
least as precise. Of the screens that reach --target, and are at most 3%% slower than the
fastest of these, the most precise is recommended, with the command of l2s train that
makes it again, byte for byte. --out writes it. Run the command on an idle machine: a
note says if other programs ran while times were measured.`, coldMiB),
		usage: "(--head MODEL | --weights SRC --bias SRC) --contexts H.npy [--target P] [--out m.l2s]",
		notes: sourceNote + fmt.Sprintf(`

The screen is chosen on the held-out contexts, so its precision on them is a little
too high: measure it on others by l2s eval, or let l2s calibrate set its margins.

The state of the run is kept beside the output in FILE.partial, FILE.partial-labels
and FILE.partial-SHAPE until the run ends; without --out in files of %s.partial.
After an interrupt the same command continues from there; --restart discards it.`, tuneState),
		advanced: "always budget clusters held-out k kmeans-only largest probe-share seed",
		example: `l2s tune --weights lm.safetensors:decoder.weight --bias lm.safetensors:decoder.bias \
    --contexts train.npy --target 0.99 --out m.l2s`,
	}, stdout, stderr)
	lf, src := f.layer(), f.contexts()
	out := f.text("out", "screen `FILE` to write: the one that is recommended")
	target := f.share("target", defaultTarget, "precision `P`@k on held-out contexts to reach")
	by := f.by("time that counts: `CACHES` warm or cold")
	clusters := custom(f, "clusters", nil, "auto", "clusters to try, a `LIST` of R, R/G and GxR, or auto", parseShapes)
	budgets := custom(f, "budget", nil, "auto", "budgets to try, a `LIST`, or auto", parseBudgets)
	k := f.whole("k", train.DefaultOptions().K, 1, "learn from the `N` best labels of each context")
	kmeansOnly := f.boolean("kmeans-only", "try no second probe and no learning")
	probeShare := f.probeShare(0)
	largest := f.whole("largest", 0, 0, "the most candidates `N` of one set, 0 for no bound")
	heldOut := f.heldOut(0, "by the contexts")
	always := f.always()
	labels := f.text("labels", "take the labels from a `FILE` of l2s labels or l2s merge")
	restart := f.boolean("restart", "discard what an interrupted run has left, and start anew")
	seed := f.seed(train.DefaultOptions().Seed)
	threads := f.threads("train")
	quiet := f.boolean("quiet", "show no progress")
	asJSON := f.json()
	if err := f.parse(args, nil); err != nil {
		return err
	}
	if *out == "" && f.given("out") {
		return f.wrongUse("--out: found an empty name, expected a file")
	}
	if err := checkStdout(stdout); err != nil {
		return err
	}
	o := tune.Options{Train: train.DefaultOptions(), Target: *target, Cold: *by == byCold, Refine: !*kmeansOnly}
	o.Train.K, o.Train.ProbeShare, o.Train.HeldOut, o.Train.Seed, o.Train.Threads = *k, *probeShare, *heldOut, *seed, *threads
	o.Train.Largest = *largest
	o.Train.Checkpoint = tuneState + partialSuffix
	if *out != "" {
		o.Train.Checkpoint = *out + partialSuffix
	}
	sources := slices.Concat(lf.files(), *src, always.files(), []string{*labels})
	t := tuning{Options: o, sources: sources, clusters: *clusters, budgets: *budgets, restart: *restart, labels: *labels, p: f.printer(*quiet)}
	defer t.p.Close()
	if err := checkOutputs(f, t.outputs(*out, 0), sources...); err != nil {
		return err
	}
	in, err := openInputs(ctx, lf, nil, *src, *k, openContexts)
	if err != nil {
		return err
	}
	defer in.close(&err)
	if t.Train.Always, err = always.read(ctx, in.layer); err != nil {
		return err
	}
	warnOfContexts(f, in)
	found, err := t.run(ctx, f, in, *out)
	defer t.letGo()
	if err != nil {
		return err
	}
	r := newTuneResult(*out, *by, found, in, &t)
	r.Command = trainCommand(lf, *src, *labels, *out, r.Recommended.Flags)
	if *out != "" && found.Reached {
		if err := found.Screens[found.Best].Save(*out); err != nil {
			return err
		}
	}
	r.Seconds = round(time.Since(start).Seconds())
	t.p.Close()
	if *asJSON {
		err = printJSON(stdout, r)
	} else {
		err = write(stdout, r.String())
	}
	if err != nil { // the state is what is left of the work
		return err
	}
	if err := t.end(); err != nil {
		return err
	}
	if *out != "" && !found.Reached {
		return notReached(in.contexts.name, found, o.Target)
	}
	return nil
}

// notReached is the error of a run that should write a screen of a precision that no
// screen has.
func notReached(contexts string, found *tune.Result, target float64) error {
	best := found.Screens[found.Best].Record
	larger := "larger budgets"
	if best.Options.Largest != 0 {
		larger = "larger budgets, with a larger --largest,"
	}
	return fmt.Errorf("%s: found no screen with P@%d of %v on held-out contexts, expected one: the best has %.4f, with %s; more contexts, %s or more clusters help",
		contexts, best.Options.K, target, best.Unseen.PrecisionK, trainFlags(best), larger)
}

// tuning is a run of package tune.
type tuning struct {
	tune.Options
	clusters []shape // the forms to try, nil for the forms that suit the contexts
	budgets  []float64
	labels   string // file of labels, empty for none
	restart  bool
	sources  []string // that no output may replace
	release  func()   // of the state, nil while it is not held
	dense    denseTimes
	p        *progress.Printer
}

// denseTimes are times of the dense scan, whose work is the same for every context.
type denseTimes struct {
	mean, median float64 // microseconds, with warm caches
	busy         string  // the note of a measurement that other programs disturbed
}

// forms returns the forms to try on n contexts.
func (t *tuning) forms(n int) (forms []tune.Form) {
	if t.clusters == nil {
		return tune.Forms(n)
	}
	for _, c := range t.clusters {
		forms = append(forms, c.form())
	}
	return forms
}

// outputs returns the files that a run on n contexts may write.
func (t *tuning) outputs(out string, n int) (all []output) {
	if out != "" {
		all = append(all, output{flag: "--out", path: out})
	}
	for _, file := range tune.CheckpointFiles(t.Train.Checkpoint, t.forms(n)) {
		all = append(all, output{"--out", file, "where the state of the run is kept"})
	}
	return all
}

// run finds the screen.
func (t *tuning) run(ctx context.Context, f *flags, in *inputs, out string) (*tune.Result, error) {
	l, c := in.layer, in.contexts
	if t.Forms = t.forms(c.n); t.Budgets == nil {
		t.Budgets = t.budgets
	}
	for _, s := range t.clusters {
		if c.n < s.clusters {
			return nil, fmt.Errorf("%s: found %d contexts, expected at least one for each of %d clusters", c.name, c.n, s.clusters)
		}
	}
	if t.Budgets == nil {
		t.Budgets = tune.Budgets(l.Labels(), max(t.Train.K, len(t.Train.Always)))
	}
	labels := float64(max(t.Train.K, len(t.Train.Always))) // that a set must hold
	if largest := float64(t.Train.Largest); largest != 0 {
		least := math.Inf(1) // of those that hold the labels
		for _, b := range t.Budgets {
			if b >= labels {
				least = min(least, b)
			}
		}
		if largest < least && !math.IsInf(least, 1) {
			return nil, f.wrongUse("--largest %v is less than %v, the least budget to try: raise it", largest, least)
		}
		t.Budgets = slices.DeleteFunc(slices.Clone(t.Budgets), func(b float64) bool { return b > largest })
	}
	for _, b := range t.budgets {
		if b < labels && slices.Max(t.budgets) >= labels { // else there is an error
			say(f.stderr, "l2s "+f.verb+": note", fmt.Sprintf("--budget %v is left out: it cannot hold %v labels, by --k and --always", b, labels))
		}
	}
	if t.Train.HeldOut == 0 {
		t.Train.HeldOut = shareHeldOut(c.n)
	}
	rows, err := enoughDifferent(c)
	if err != nil {
		return nil, err
	}
	outputs := t.outputs(out, c.n)
	if err := checkOutputs(f, outputs, t.sources...); err != nil {
		return nil, err
	}
	if err := checkWritable(outputs); err != nil {
		return nil, err
	}
	if t.release, err = holdState(t.Train.Checkpoint); err != nil {
		return nil, err
	}
	if t.labels != "" {
		if t.Train.Labels, err = readLabels(ctx, t.labels, l, c, t.Train.K, t.Train.Threads, t.p); err != nil {
			return nil, err
		}
	}
	if t.restart {
		if err := t.end(); err != nil {
			return nil, err
		}
	}
	t.Measure = func(ctx context.Context, screens []*screen.Model) ([]tune.Cost, error) {
		costs, dense, err := measureCosts(ctx, screens, l, rows, t.Train.K, t.p)
		dense.busy = cmp.Or(dense.busy, t.dense.busy) // the first times choose what is refined
		t.dense = dense
		return costs, err
	}
	var names []string
	for _, form := range t.Forms {
		names = append(names, shapeName(form.Name))
	}
	then := ""
	if t.Refine {
		then = "; then, for the best of them, a second probe, shells and learning"
	}
	t.p.Line(fmt.Sprintf("%d shapes to try: %s%s", len(names), strings.Join(names, ", "), then))
	says := &tuneProgress{p: t.p}
	t.Progress, t.Done = says.report, says.done
	t.Train.Progress = func(r train.Progress) { says.report("", r) }
	found, err := tune.Run(ctx, l.Layer, c.rows, t.Options)
	if err != nil {
		return nil, t.explainInterrupt(err)
	}
	return found, nil
}

// letGo lets other runs have the state.
func (t *tuning) letGo() {
	if t.release != nil {
		t.release()
	}
}

// end removes the state of the run.
func (t *tuning) end() error { return tune.RemoveCheckpoint(t.Train.Checkpoint, t.Forms) }

// explainInterrupt adds to the error of a run what can be done with its state.
func (t *tuning) explainInterrupt(err error) error {
	if errors.Is(err, train.ErrCheckpoint) {
		return fmt.Errorf("%w; --restart discards it", err)
	}
	file := train.CheckpointFiles(t.Train.Checkpoint)[1]
	if _, missing := os.Stat(file); missing == nil {
		return interruptedError{err, file + " keeps the labels, and the same command continues from there"}
	}
	for _, file := range tune.CheckpointFiles(t.Train.Checkpoint, t.Forms) {
		if _, missing := os.Stat(file); missing == nil {
			return interruptedError{err, file + " keeps what was done, and the same command continues from there"}
		}
	}
	return err
}

// How many contexts are held out without --held-out: as many as tell 0.99 from 0.995,
// but no more than a fifth.
const (
	wantedHeldOut = 3000
	mostHeldOut   = 0.2
)

func shareHeldOut(contexts int) float64 {
	share := min(max(float64(wantedHeldOut)/float64(contexts), train.DefaultOptions().HeldOut), mostHeldOut)
	short, _ := strconv.ParseFloat(strconv.FormatFloat(share, 'f', 3, 64), 64) // as one types it
	return short
}

// How the costs are measured: rounds of turns of about the time of a block, and at least
// so many queries.
const (
	tuneRounds  = 10
	tuneBlock   = 5 * time.Millisecond
	tuneQueries = 200
	// mostPacked bounds the bytes of the copies of codes that searchers which take turns
	// have together. One searcher may have more.
	mostPacked = 2 << 30
)

// measureCosts measures the times of screens with progress on p. As many of them take
// turns as fit the memory.
func measureCosts(ctx context.Context, screens []*screen.Model, l *layer, rows [][]float32, k int, p *progress.Printer) (costs []tune.Cost, dense denseTimes, err error) {
	packed := make([]int64, len(screens))
	for i, m := range screens {
		packed[i] = packedBytes(m, l)
	}
	sizes := together(packed, mostPacked)
	p.Line(fmt.Sprintf("%d screens take turns at answering queries, on one thread: other programs should rest", len(screens)))
	p.Start("times", "rounds", 2*tuneRounds*len(sizes))
	rounds := 0
	for _, n := range sizes {
		more, now, err := measureTogether(ctx, screens[len(costs):len(costs)+n], l, rows, k, func(round int) { p.Set(rounds + round) })
		if err != nil {
			return nil, dense, err
		}
		costs, rounds = append(costs, more...), rounds+2*tuneRounds
		dense = denseTimes{now.mean, now.median, cmp.Or(dense.busy, now.busy)}
	}
	p.EndWith(fmt.Sprintf("%d screens", len(screens)))
	return costs, dense, nil
}

// packedBytes returns the bytes that copies of the codes of all sets take.
func packedBytes(m *screen.Model, l *layer) int64 {
	starts := []int{0}
	add := func(set []uint32) { starts = append(starts, starts[len(starts)-1]+len(set)) }
	for t := range m.Clusters() {
		add(m.Candidates(t))
	}
	for _, pair := range m.Pairs() {
		add(pair.Set)
	}
	return l.PackedBytes(starts)
}

// together divides a list into runs whose sum is at most most, or that are one alone, and
// returns their lengths.
func together(bytes []int64, most int64) (lengths []int) {
	sum := most + 1
	for _, b := range bytes {
		if sum += b; sum > most {
			lengths, sum = append(lengths, 0), b
		}
		lengths[len(lengths)-1]++
	}
	return lengths
}

// measureTogether measures the times of screens, which take turns. The dense scan takes
// turns with them, to find out whether the machine is busy.
func measureTogether(ctx context.Context, screens []*screen.Model, l *layer, rows [][]float32, k int, progress func(round int)) (costs []tune.Cost, dense denseTimes, err error) {
	runtime.GC() // what others had that took turns before
	dst := make([]softmax.Prediction, k)
	var methods []func(int)
	for _, m := range screens {
		s, err := screen.NewSearcher(m, l.Layer)
		if err != nil {
			return nil, dense, err
		}
		methods = append(methods, screenedQuery(s, rows, dst))
	}
	// The turn after the dense scan finds its data in the caches. It is one whose
	// times do not count.
	methods = append(methods, denseQuery(l, rows, dst), methods[0])
	measure := func(from int, before func(int)) ([]timing.Times, error) {
		times, err := timing.Measure(ctx, len(rows), methods, timing.Options{
			Rounds: tuneRounds, Block: tuneBlock, Least: tuneQueries, Before: before, Progress: func(round, _ int) { progress(from + round) },
		})
		if err == nil {
			mean, median, _ := microsOf(times[len(screens)])
			dense.busy = cmp.Or(dense.busy, busyNote(mean, median, chooseAgain))
		}
		return times, err
	}
	warm, err := measure(0, nil)
	if err != nil {
		return nil, dense, err
	}
	dense.mean, dense.median, _ = microsOf(warm[len(screens)])
	other := cold.NewBuffer(coldMiB)
	apart, err := measure(tuneRounds, func(i int) { other.Read(rows[i]) })
	if err != nil {
		return nil, dense, err
	}
	for i := range screens {
		costs = append(costs, tune.Cost{Warm: warm[i].Mean(), Cold: apart[i].Mean()})
	}
	return costs, dense, nil
}

// tuneProgress turns the reports of a run into bars, and a line for each form.
type tuneProgress struct {
	p     *progress.Printer
	now   string
	start time.Time // of the first form
	since time.Time // of the form
}

func (t *tuneProgress) report(form string, r train.Progress) {
	if r.Message != "" {
		return
	}
	stage := stageTitle(r)
	if form != "" {
		stage = form + ": " + stage
	}
	if stage != t.now {
		if t.now == train.StageLabels {
			t.p.End()
		}
		if t.since.IsZero() && form != "" {
			t.since = time.Now()
			if t.start.IsZero() {
				t.start = t.since
			}
		}
		t.p.Start(stage, r.Unit, r.Total)
		t.now = stage
	}
	t.p.Set(r.Done)
}

// shapeName is the name of a form as --clusters takes it.
func shapeName(form string) string { return strings.Replace(form, "-through-", "/", 1) }

func (t *tuneProgress) done(form string, screens []tune.Screen, now tune.Step) {
	first, last := screens[0].Record, screens[len(screens)-1].Record
	t.p.Line(fmt.Sprintf("%s: %d budgets, %v to %v, P@%d %.4f to %.4f, in %s", shapeName(form), len(screens), first.Options.Budget, last.Options.Budget,
		first.Options.K, first.Unseen.PrecisionK, last.Unseen.PrecisionK, progress.Duration(time.Since(t.since))))
	if ahead := now.Forms - now.Done; ahead > 0 {
		left := time.Duration(float64(time.Since(t.start)) * (1 - now.Share) / now.Share)
		t.p.Line(fmt.Sprintf("%d of %d to come, in about %s", ahead, now.Forms, progress.Duration(left)))
	}
	t.p.Close()
	t.since, t.now = time.Time{}, ""
}

// by adds the flag --by.
func (f *flags) by(usage string) *string { return custom(f, "by", byWarm, byWarm, usage, parseBy) }

func parseBy(s string) (string, error) {
	if s != byWarm && s != byCold {
		return "", fmt.Errorf("expected %s or %s", byWarm, byCold)
	}
	return s, nil
}

// parseShapes reads several shapes, as parseShape reads one, with commas between them;
// auto is nil.
func parseShapes(s string) (list []shape, err error) {
	if s == auto {
		return nil, nil
	}
	for _, part := range strings.Split(s, ",") {
		c, err := parseShape(strings.TrimSpace(part))
		if err != nil || c == (shape{}) {
			return nil, errors.New("expected auto, or some of R, R/G with G at most R, and GxR, with commas between them")
		}
		if !slices.Contains(list, c) {
			list = append(list, c)
		}
	}
	return list, nil
}

// parseBudgets reads budgets with commas between them; auto is nil.
func parseBudgets(s string) ([]float64, error) {
	if s == auto {
		return nil, nil
	}
	list, err := realList(s, 1)
	if err != nil {
		return nil, fmt.Errorf("%w, or auto", err)
	}
	return list, nil
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

// trainFlags are the flags with which l2s train makes a screen again.
func trainFlags(r *train.Record) string {
	o, d := &r.Options, train.DefaultOptions()
	number := func(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
	text := fmt.Sprintf("--clusters %s --budget %s", shapeOf(o), number(o.Budget))
	add := func(name, value string) { text += " --" + name + " " + value }
	if r.LearnedFor != 0 {
		add("learn-for", number(r.LearnedFor))
	}
	if o.Overlap > 0 && o.Overlap != defaultOverlap {
		add("overlap", number(o.Overlap))
	}
	if o.ProbeShare != 0 {
		add("probe-share", number(o.ProbeShare))
	}
	if len(o.Shells) > 0 {
		var shares []string
		for _, x := range o.Shells {
			shares = append(shares, number(x))
		}
		add("shells", strings.Join(shares, ","))
	}
	if o.Largest != 0 {
		add("largest", strconv.Itoa(o.Largest))
	}
	if o.KMeansOnly {
		text += " --kmeans-only"
	}
	if o.HeldOut != d.HeldOut {
		add("held-out", number(o.HeldOut))
	}
	if o.K != d.K {
		add("k", strconv.Itoa(o.K))
	}
	if o.Seed != d.Seed {
		add("seed", strconv.FormatUint(o.Seed, 10))
	}
	if len(o.Always) > 0 {
		add("always", strings.ReplaceAll(strings.Trim(fmt.Sprint(o.Always), "[]"), " ", ","))
	}
	return text
}

// trainCommand is the command that trains a screen with these flags, as one types it.
// Without out it writes tuned.l2s, or tuned-2.l2s and so on if that is there: no screen of
// before is to be replaced by a command that was copied.
func trainCommand(lf layerFlags, contexts []string, labels, out, flags string) string {
	text := "l2s train"
	add := func(name, value string) {
		if value != "" {
			text += " --" + name + " " + shellQuoted(value)
		}
	}
	add("head", *lf.head)
	add("weights", *lf.weights)
	add("bias", *lf.bias)
	add("ids", *lf.ids)
	for _, source := range contexts {
		add("contexts", source)
	}
	add("labels", labels)
	text += " " + flags
	for i := 1; out == ""; i++ {
		name := "tuned.l2s"
		if i > 1 {
			name = fmt.Sprintf("tuned-%d.l2s", i)
		}
		if _, err := os.Lstat(name); err != nil {
			out = name
		}
	}
	add("out", out)
	return text
}

// shellQuoted returns a word as a shell takes it.
func shellQuoted(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("%+,-./:=@_", r)
	}
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool { return !plain(r) }) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func newTunePoint(s *tune.Screen) tunePoint {
	o, u := &s.Record.Options, s.Record.Unseen
	p := tunePoint{
		Clusters: s.Clusters(), Groups: s.Groups(), Overlap: overlapOf(s.Model), Method: methodKMeans, Probes: o.ProbeShare, Shells: o.Shells, Budget: o.Budget, Flags: trainFlags(s.Record),
		Precision: precisions(o.K, u.Precision1, u.PrecisionK), Deviation: u.Deviation, MeanCandidates: u.MeanCandidates, Rows: s.Rows,
		Warm: micros(s.Warm), Cold: micros(s.Cold), Bytes: s.Bytes, Frontier: s.Frontier,
	}
	if len(s.Record.Alternations) > 0 {
		p.Method = methodL2S
	}
	return p
}

func newTuneResult(out, by string, found *tune.Result, in *inputs, t *tuning) *tuneResult {
	best := found.Screens[found.Best].Record
	r := &tuneResult{
		K: best.Options.K, Target: t.Target, By: by, Contexts: best.Contexts, HeldOut: best.Unseen.Contexts,
		Labels: in.layer.Labels(), Dim: in.layer.Dim(), Trained: found.Trained, Reached: found.Reached, Level: kernels.Level(),
		DenseF32: t.dense.mean, DenseF32Median: t.dense.median, busy: t.dense.busy, Warnings: warnings(t.dense.busy),
	}
	if found.Reached {
		r.Out = out
	}
	for i := range found.Screens {
		r.Screens = append(r.Screens, newTunePoint(&found.Screens[i]))
	}
	r.Recommended = r.Screens[found.Best]
	return r
}

func (r *tuneResult) String() string {
	var b strings.Builder
	at := strconv.Itoa(r.K)
	fmt.Fprintf(&b, "%s labels, %s contexts of training; precision on %s held-out ones\n\n", progress.Count(r.Labels), progress.Count(r.Contexts-r.HeldOut), progress.Count(r.HeldOut))
	fmt.Fprintf(&b, "clusters                 budget     P@1")
	if r.K > 1 {
		fmt.Fprintf(&b, "  %6s", "P@"+at)
	}
	fmt.Fprintf(&b, "  candidates    rows       warm       cold        bytes\n")
	line := func(p tunePoint) {
		name := shape{p.Clusters, p.Groups, p.Overlap > 0}.String()
		if p.Method == methodL2S {
			name += ", learned"
		}
		if p.Probes > 0 {
			name += ", two probes"
		}
		if len(p.Shells) > 0 {
			name += ", shells"
		}
		fmt.Fprintf(&b, "%-23s  %6v  %.4f", name, p.Budget, p.Precision["1"])
		if r.K > 1 {
			fmt.Fprintf(&b, "  %.4f", p.Precision[at])
		}
		fmt.Fprintf(&b, "  %10.1f  %6.1f  %6.2f us  %6.2f us  %11s\n", p.MeanCandidates, p.Rows, p.Warm, p.Cold, progress.Count(int(p.Bytes)))
	}
	for _, p := range r.Screens {
		if p.Frontier || p.Flags == r.Recommended.Flags {
			line(p)
		}
	}
	if measured := len(r.Screens); measured == r.Trained {
		fmt.Fprintf(&b, "\nAll %d screens were measured.\n", measured)
	} else {
		fmt.Fprintf(&b, "\n%d of %d screens were measured: the others scan too many rows, or miss far too much, to be the fastest.\n", measured, r.Trained)
	}
	b.WriteString("Not shown: screens that are no more precise than a screen that is as fast.\n")
	best := r.Recommended
	p := best.Precision[at]
	if r.Reached {
		fmt.Fprintf(&b, "Recommended: of the screens with P@%d of at least %v, and at most 3%% slower than the fastest of these with %s caches,\n"+
			"the most precise: %.4f (within about %.4f) in %.2f us.\n", r.K, r.Target, r.By, p, 2*best.Deviation, map[string]float64{byWarm: best.Warm, byCold: best.Cold}[r.By])
		if p-2*best.Deviation < r.Target {
			fmt.Fprintf(&b, "On other contexts P@%d may be below the target: a higher --target, or more contexts, leaves room.\n", r.K)
		}
	} else {
		fmt.Fprintf(&b, "No screen reaches P@%d of %v: more contexts, larger budgets (--budget) or more clusters help. The most precise has %.4f.\n", r.K, r.Target, p)
	}
	fmt.Fprintf(&b, "  %s\n", r.Command)
	if r.Out != "" {
		fmt.Fprintf(&b, "%s is this screen.\n", r.Out)
	}
	b.WriteString(r.busy)
	return b.String()
}
