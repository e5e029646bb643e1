package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/command/cmdline"
	"github.com/learning-to-screen/l2s/internal/command/layerfile"
	"github.com/learning-to-screen/l2s/internal/ground/atomicfile"
	"github.com/learning-to-screen/l2s/internal/ground/jsonscan"
	"github.com/learning-to-screen/l2s/internal/ground/precision"
	"github.com/learning-to-screen/l2s/internal/ground/progress"
	"github.com/learning-to-screen/l2s/internal/ground/stage"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/preview"
	"github.com/learning-to-screen/l2s/train"
)

// trainResult is the JSON of l2s train.
type trainResult struct {
	Out  string `json:"out"`
	Kind string `json:"kind"`
	screenResult
	K        int `json:"k"`
	Contexts int `json:"contexts"`
	// LeftOut of the contexts to measure on are contexts of training, on which nothing is measured.
	LeftOut   int      `json:"left_out,omitempty"`
	Decisions []string `json:"decisions,omitempty"` // the decisions of the run, and their reasons
	Warnings  []string `json:"warnings,omitempty"`  // reasons to doubt the result
	// TailError is the error of the log of the sum over all labels by the tail (root mean
	// square), at temperature 1.
	TailError float64            `json:"tail_error,omitempty"`
	Seconds   map[string]float64 `json:"seconds"` // of each stage, and in all
	Threads   int                `json:"threads"`
	Level     string             `json:"level"`
}

func trainVerb(f *flags) action {
	f.layerAndContexts(true, func() int { return 1 })
	r := &trainRun{
		f:          f,
		out:        f.needs("out"),
		validation: f.severalSources("validation"),
		target:     f.share("target", 0),
		budget: f.number("budget", 0, "a finite number, at least 1", func(x float64) bool {
			return x >= 1 && !math.IsInf(x, 0)
		}),
		always:  custom(f, "always", nil, parseAlways),
		labels:  f.text("labels"),
		options: f.text("options"),
		any:     f.boolean("any-precision"),
		threads: f.threads(),
		kind: custom(f, "kind", kindAuto, func(s string) (string, error) {
			if s != kindAuto && s != kindScreen && s != kindPreview {
				return "", fmt.Errorf("expected %s, %s or %s", kindAuto, kindScreen, kindPreview)
			}
			return s, nil
		}),
	}
	f.before = r.check
	return r.run
}

// trainRun is a run of training as its flags describe it.
type trainRun struct {
	f                    *flags
	validation           *[]string
	out, labels, options *string
	target, budget       *float64
	always               *[]alwaysPart
	any                  *bool
	threads              *int
	kind                 *string
	inFile, all          train.Options // the options of the file, without the flags and with them
	outputs              []cmdline.Output
}

// commonOptions are the options of a run without flags and file: the defaults, with a tail.
func commonOptions() train.Options {
	o, tail := train.DefaultOptions(), train.DefaultTailOptions()
	o.Tail = &tail
	return o
}

// readOptions returns the options of the flags and the file.
func (r *trainRun) readOptions() (o train.Options, err error) {
	o = commonOptions()
	o.Tail.Temperatures = nil // the defaults depend on the layer: see complete
	if *r.options != "" {
		text, err := readSmall(*r.options)
		if err != nil {
			return o, err
		}
		if err := decodeOptions(text, &o); err != nil {
			return o, fmt.Errorf("%s: options: %w", *r.options, err)
		}
	}
	r.inFile = o
	if r.f.given("target") {
		o.Target, o.Budget = *r.target, 0
	}
	if r.f.given("budget") {
		o.Budget = *r.budget
	}
	o.Threads, o.Checkpoint, o.AnyPrecision = *r.threads, *r.out+partialSuffix, *r.any
	switch {
	case r.f.given("target") && r.f.given("budget"):
		return o, r.f.wrongUse("--target and --budget exclude each other: give one of them")
	case r.f.given("budget") && o.Budget < float64(o.K):
		return o, r.f.wrongUse("--budget %v cannot hold the %d labels of an answer", o.Budget, o.K)
	}
	return o, r.checkAlways(o.Budget, leastAlways(*r.always))
}

// checkAlways returns an error if --budget is smaller than the number of ids of --always.
func (r *trainRun) checkAlways(budget float64, ids int) error {
	if r.f.given("budget") && budget < float64(ids) {
		return r.f.wrongUse("--budget %v cannot hold the %d ids of --always", budget, ids)
	}
	return nil
}

// decodeOptions reads a JSON object over the given options.
func decodeOptions(text []byte, o *train.Options) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(o); err != nil {
		var outer struct{ Record, Options json.RawMessage }
		switch json.Unmarshal(text, &outer); {
		case err == io.EOF:
			return errors.New("found nothing, expected a JSON object")
		case outer.Record != nil:
			return errors.New("found the output of l2s inspect --json, expected its object record.options")
		case outer.Options != nil:
			return errors.New("found a record, expected the object in it under options")
		}
		if e := (*json.UnmarshalTypeError)(nil); errors.As(err, &e) {
			kinds := map[reflect.Kind]string{reflect.Float64: "a number", reflect.Slice: "a list", reflect.Struct: "an object", reflect.String: "a string", reflect.Bool: "true or false"}
			return fmt.Errorf("%s: found a JSON %s, expected %s", cmp.Or(e.Field, "all"), e.Value, cmp.Or(kinds[e.Type.Kind()], "a whole number in range"))
		}
		return err
	}
	if _, more := d.Token(); more != io.EOF {
		return errors.New("found more text after the JSON object")
	}
	if string(bytes.TrimSpace(text)) == "null" { // which changes nothing
		return errors.New("found null, expected a JSON object")
	}
	v, err := jsonscan.Parse(text)
	if err != nil {
		return err
	}
	return checkNames(v)
}

// checkNames refuses duplicate names, and names with other than small letters: Go's
// decoder takes both.
func checkNames(v jsonscan.Value) error {
	if v[0] != '{' {
		return nil
	}
	return v.Object(func(name []byte, v jsonscan.Value) error {
		if n := string(name); strings.Trim(n, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
			return fmt.Errorf("found the name %q, expected small letters", n)
		}
		return checkNames(v)
	})
}

// mostOptions bounds the file of --options, in bytes.
const mostOptions = 1 << 20

// readSmall reads a regular file, which no read waits for, of at most mostOptions bytes.
func readSmall(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: errors.Unwrap(err)}
	}
	found := ""
	switch mode := info.Mode(); {
	case info.IsDir():
		found = "a folder"
	case mode&os.ModeNamedPipe != 0:
		found = "a pipe"
	case !mode.IsRegular():
		found = "a device"
	case info.Size() > mostOptions:
		found = fmt.Sprintf("%d bytes", info.Size())
	}
	if found != "" {
		return nil, fmt.Errorf("%s: found %s, expected a regular file of at most %d bytes", path, found, mostOptions)
	}
	return os.ReadFile(path)
}

// check checks the flags and the outputs.
func (r *trainRun) check(ctx context.Context) (err error) {
	if r.all, err = r.readOptions(); err != nil {
		return err
	}
	for _, name := range []string{"always", "budget", "labels", "options"} {
		if !r.f.given(name) {
			continue
		}
		switch *r.kind {
		case kindPreview:
			return r.f.wrongUse("--%s is for a screen, found --kind %s", name, kindPreview)
		case kindAuto:
			*r.kind = kindScreen
		}
	}
	if *r.validation, err = layerfile.Expand(*r.validation); err != nil {
		return err
	}
	r.outputs = []cmdline.Output{{Flag: "--out", Path: *r.out}}
	for _, file := range stage.Files(r.all.Checkpoint) {
		r.outputs = append(r.outputs, cmdline.Output{Flag: "--out", Path: file, What: "where the state of the run is kept"})
	}
	sources := append([]string{*r.labels, *r.options}, *r.validation...)
	for _, part := range *r.always {
		sources = append(sources, part.file)
	}
	return checkOutputs(ctx, r.f, r.outputs, sources...)
}

// run makes the screen.
func (r *trainRun) run(ctx context.Context, in *inputs) (_ fmt.Stringer, err error) {
	o, p := r.all, r.f.progress
	if err := r.complete(ctx, in, &o); err != nil {
		return nil, err
	}
	if len(*r.validation) > 0 {
		others, err := layerfile.OpenContexts(*r.validation)
		if err != nil {
			return nil, err
		}
		defer others.Close()
		if err := others.Fit(in.layer.Layer, in.layer.name); err != nil {
			return nil, err
		}
		if o.Validation, err = others.All(ctx); err != nil {
			return nil, err
		}
	}
	if err := cmdline.CheckWritable(r.outputs); err != nil {
		return nil, err
	}
	release, err := atomicfile.Hold(o.Checkpoint) // another run must neither change nor remove it
	if errors.Is(err, atomicfile.ErrHeld) {
		err = fmt.Errorf("%w: wait for its end, or give another --out", err)
	}
	if err != nil {
		return nil, err
	}
	defer release()
	if why := layerfile.Unnormed(in.layer.Layer, in.rows); why != "" {
		r.f.warn(in.contexts.Name(), "the contexts do not look like those that the layer is applied to: %s", why)
	}
	if *r.labels != "" {
		if o.Labels, err = readLabels(ctx, *r.labels, in, o.K, o.Threads, p); err != nil {
			return nil, err
		}
	}
	start := time.Now()
	var first *l2s.Index
	var noPreview error
	kind := *r.kind
	if kind == kindAuto && (in.layer.Labels() < preview.LeastLabels || len(in.rows)/in.layer.Dim() < leastContextsOfPreview) {
		kind = kindScreen
	}
	if kind != kindScreen {
		if kind == kindAuto {
			first = keptPreview(*r.out, o.Checkpoint, in.layer)
		}
		if first == nil {
			first, noPreview = makePreview(ctx, in.layer, in.rows, o.K, preview.Options{HeldOut: o.Validation, Precision1: o.Target, PrecisionK: o.Target, Threads: o.Threads}, p)
		}
		if noPreview != nil && (kind == kindPreview || !errors.Is(noPreview, preview.ErrTarget)) {
			return nil, noPreview
		}
		if kind == kindPreview {
			return r.savePreview(ctx, first, nil, in, nil, start)
		}
		p.Line("preview: " + rungText(first, noPreview))
		least1, leastK := precision.Targets(o.Target)
		if n := len(in.rows) / in.layer.Dim(); first != nil && n < fewForAScreen && n < in.layer.Labels()/4 && previewReaches(first, least1, leastK) {
			why := fmt.Sprintf("a preview is written, which reaches the target; no screen is trained, since %s contexts are few for %s labels (--kind screen trains one)", progress.Count(n), progress.Count(in.layer.Labels()))
			p.Line(why)
			return r.savePreview(ctx, first, nil, in, []string{why}, start)
		}
		if first != nil { // an interrupt of the training leaves it
			if err := first.Save(*r.out); err != nil {
				return nil, err
			}
			p.Line(fmt.Sprintf("%s holds the preview; a screen is trained and compared with it (--kind preview ends here)", *r.out))
		}
	}
	previewed := time.Since(start)
	m, record, seconds, err := trainScreen(ctx, in.layer, in.rows, o, p)
	if errors.Is(err, train.ErrTarget) && first != nil {
		if err := train.RemoveCheckpoint(o.Checkpoint); err != nil {
			return nil, err
		}
		why := fmt.Sprintf("a preview is written, since no screen is precise enough: %v", err)
		p.Line(why)
		return r.savePreview(ctx, first, nil, in, []string{why}, start)
	}
	if err != nil {
		err = explainInterrupt(err, o.Checkpoint)
		if kept := (interruptedError{}); first != nil && errors.As(err, &kept) {
			kept.note += "; " + *r.out + " holds the preview"
			err = kept
		}
		return nil, err
	}
	among := []*l2s.Index{m}
	if first != nil {
		among = append(among, first)
	}
	found, err := compare(ctx, in.layer, in.rows, o.Target, p, among...)
	if err != nil {
		return nil, explainInterrupt(err, o.Checkpoint)
	}
	if kind == kindAuto {
		seconds[kindPreview] = round(previewed.Seconds())
		seconds["total"] = round(time.Since(start).Seconds())
		why := decision(found, noPreview)
		p.Line(why)
		record.Decisions = append(record.Decisions, why)
		if found.Best.Index == first {
			if err := train.RemoveCheckpoint(o.Checkpoint); err != nil {
				return nil, err
			}
			return r.savePreview(ctx, first, found, in, []string{why}, start)
		}
	}
	if why := slow(found); why != "" {
		record.Warnings = append(record.Warnings, why)
		if !*r.f.quiet { // else all are printed below
			r.f.warn(*r.out, "%s", why)
		}
	}
	r.noteName(kindScreen)
	if err := m.Save(*r.out); err != nil {
		return nil, err
	}
	if err := train.RemoveCheckpoint(o.Checkpoint); err != nil {
		return nil, err
	}
	if *r.f.quiet { // else the run has printed them
		for _, w := range record.Warnings {
			r.f.warn(*r.out, "%s", w)
		}
	}
	return newTrainResult(*r.out, m, record, o, seconds), nil
}

// keptPreview returns the preview that an interrupted run has left in the file of --out, next to its
// checkpoint, nil if there is none.
func keptPreview(out, checkpoint string, l *layer) *l2s.Index {
	if !slices.ContainsFunc(stage.Files(checkpoint), func(file string) bool { _, err := os.Stat(file); return err == nil }) || !isPreview(out) {
		return nil
	}
	m, err := l2s.Load(out)
	if err != nil || m.Labels() != l.Labels() || m.Dim() != l.Dim() || m.Fingerprint() != l.Fingerprint() {
		return nil
	}
	return m
}

// savePreview writes a preview to the file of --out, and compares it with the exact search, unless
// that is done.
func (r *trainRun) savePreview(ctx context.Context, v *l2s.Index, done *train.Comparison, in *inputs, decisions []string, start time.Time) (fmt.Stringer, error) {
	r.noteName(kindPreview)
	err := v.Save(*r.out)
	if err == nil && done == nil {
		if done, err = compare(ctx, in.layer, in.rows, r.all.Target, r.f.progress, v); ctx.Err() != nil {
			return nil, interruptedError{err, *r.out + " holds the preview"}
		}
	}
	if err != nil {
		return nil, err
	}
	of, err := previewResultOf((*engine.Index)(v).Preview(), *r.out)
	if err != nil {
		return nil, err
	}
	var warnings []string
	for _, why := range []string{previewWarning(v, r.all.Target), slow(done)} {
		if why != "" {
			warnings = append(warnings, why)
			r.f.warn(*r.out, "%s", why)
		}
	}
	return previewTrained{kindPreview, of, len(in.rows) / in.layer.Dim(), decisions, warnings, map[string]float64{"total": round(time.Since(start).Seconds())}, kernels.Level()}, nil
}

// endings are the usual ends of the names of files.
var endings = map[string]string{kindScreen: ".l2s", kindPreview: ".l2p"}

// noteName tells that a file has the usual name of the other kind.
func (r *trainRun) noteName(kind string) {
	for other, end := range endings {
		if other != kind && filepath.Ext(*r.out) == end {
			r.f.note(*r.out, "this file is a %s, whose usual name ends in %s", kind, endings[kind])
		}
	}
}

// complete completes the options from the layer.
func (r *trainRun) complete(ctx context.Context, in *inputs, o *train.Options) (err error) {
	l := in.layer
	if o.Tail != nil && o.Tail.Temperatures == nil { // as temperatures of w.h + b
		for _, x := range train.DefaultTailOptions().Temperatures {
			o.Tail.Temperatures = append(o.Tail.Temperatures, x*l.rawTemperature())
		}
	}
	if o.K == train.DefaultOptions().K {
		o.K = min(o.K, l.Labels())
	}
	if len(*r.always) > 0 {
		if o.Always, err = r.f.readAlways(ctx, "--always", *r.always, l); err != nil {
			return err
		}
	}
	if file := *o; *r.options != "" {
		file.Target, file.Budget, file.Always = r.inFile.Target, r.inFile.Budget, r.inFile.Always
		if err := file.Check(len(in.rows)/l.Dim(), l.Labels()); err != nil {
			return fmt.Errorf("%s: options: %w", *r.options, err)
		}
	}
	return r.checkAlways(o.Budget, len(o.Always))
}

// partialSuffix ends the name of the file that keeps the work of an interrupted run.
const partialSuffix = ".partial"

// explainInterrupt adds to the error of a run the use of the checkpoint.
func explainInterrupt(err error, checkpoint string) error {
	if errors.Is(err, train.ErrCheckpoint) {
		return fmt.Errorf("%w; remove %s to start anew", err, strings.Join(stage.Files(checkpoint), " and "))
	}
	if errors.Is(err, train.ErrTarget) {
		return fmt.Errorf("%w; the same command with --any-precision keeps the screen, from the work in %s", err, checkpoint)
	}
	for _, file := range stage.Files(checkpoint) {
		if _, missing := os.Stat(file); missing == nil {
			return interruptedError{err, file + " keeps the work so far, and the same command continues from there"}
		}
	}
	return err
}

// trainScreen trains with progress on p, and returns the seconds of each stage too.
func trainScreen(ctx context.Context, l *layer, rows []float32, o train.Options, p *progress.Printer) (*l2s.Index, *train.Record, map[string]float64, error) {
	start, seconds := time.Now(), map[string]float64{}
	var now train.Progress   // the last report of a bar
	first, since := 0, start // the iteration with which its stage began, and when
	endStage := func() {
		if now.Stage != "" {
			took := time.Since(since)
			seconds[now.Stage] += took.Seconds()
			p.Close()
			p.Line(fmt.Sprintf("%s: %s", now.Stage, progress.Duration(took)))
		}
		since = time.Now()
	}
	o.Progress = func(r train.Progress) {
		switch {
		case strings.HasPrefix(r.Message, stage.KMeans):
			return
		case r.Message != "":
			p.Line(r.Message)
			return
		case r.Stage == stage.Assign && r.Iteration > 0:
			return // between two alternations of learning
		case r.Stage != now.Stage:
			endStage()
		}
		if r.Stage != now.Stage || r.Part != now.Part {
			// One bar for all iterations of a stage, so that the time left is of the stage.
			title, times := r.Stage, 1
			if r.Part != "" {
				title += ": " + r.Part
			}
			switch first = r.Iteration; r.Stage {
			case stage.KMeans:
				times += o.KMeansIterations - first
			case stage.Learn:
				times += o.Iterations - first
			}
			p.Start(title, r.Unit, times*r.Total)
		}
		now = r
		p.Set((r.Iteration-first)*r.Total + r.Done)
	}
	m, record, err := train.Run(ctx, l.Layer, l2s.Float32(rows, l.Dim()), o)
	if err != nil {
		return nil, nil, nil, err
	}
	endStage()
	seconds["total"] = time.Since(start).Seconds()
	for stage, s := range seconds {
		seconds[stage] = round(s)
	}
	return m, record, seconds, nil
}

func newTrainResult(out string, m *l2s.Index, record *train.Record, o train.Options, seconds map[string]float64) trainResult {
	r := trainResult{
		Out: out, Kind: kindScreen, screenResult: screenResultOf((*engine.Index)(m).Screen()), K: o.K, Contexts: record.Contexts, LeftOut: record.LeftOut,
		Decisions: record.Decisions, Warnings: record.Warnings, Seconds: seconds, Threads: cmp.Or(o.Threads, runtime.GOMAXPROCS(0)), Level: kernels.Level(),
	}
	if fit := record.TailFit; fit != nil {
		r.TailError = round(fit.Errors[len(fit.Errors)-1].LogZ)
	}
	return r
}

func (r trainResult) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: a screen of %d clusters from %s contexts, budget %v\n", r.Out, r.Clusters, progress.Count(r.Contexts), r.Budget)
	if table := r.ladderText(); table != "" {
		b.WriteString(table + "\n")
	}
	return b.String() + r.time()
}

// time gives the duration of the run, and of its stages that took a second or more.
func (r trainResult) time() string {
	duration := func(stage string) string { return progress.Duration(time.Duration(r.Seconds[stage] * 1e9)) }
	var parts []string
	if r.Seconds[kindPreview] >= 1 {
		parts = append(parts, "preview "+duration(kindPreview))
	}
	for _, stage := range stage.All() {
		if r.Seconds[stage] >= 1 {
			parts = append(parts, stage+" "+duration(stage))
		}
	}
	s := fmt.Sprintf("%s in all, on %d threads at level %s\n", duration("total"), r.Threads, r.Level)
	if len(parts) > 0 {
		s += "of it: " + strings.Join(parts, ", ") + "\n"
	}
	return s
}
