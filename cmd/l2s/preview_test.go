package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
	"github.com/learning-to-screen/l2s/preview"
	"github.com/learning-to-screen/l2s/train"
)

// A preview answers in the verbs that ask for labels, as a screen does.
func TestVerbsTakeAPreview(t *testing.T) {
	simdtest.Long(t)
	dir := files(t)
	made := object(t, dir, joined("train", layerArgs(), "--contexts", "H.npy", "--kind", "preview", "--out", "m.l2p", "--json", "--quiet")...)
	if made["kind"] != "preview" || number(t, made, "labels") != tinyLabels || number(t, made, "contexts") != tinyTrain {
		t.Errorf("found %v, expected a preview of %d labels from %d contexts", made, tinyLabels, tinyTrain)
	}
	m, err := l2s.Load(filepath.Join(dir, "m.l2p"))
	if err != nil {
		t.Fatal(err)
	}
	p := (*engine.Index)(m).Preview().Parts()
	rungs, normal := p.Rungs, p.Normal

	// A target that the default misses is a warning, on the screen and in the JSON.
	for target, want := range map[float64]bool{0.9: false, 2: true} {
		var stderr bytes.Buffer
		out := filepath.Join(dir, "w.l2p")
		r := &trainRun{f: newFlags("train", io.Discard, &stderr), out: &out, all: train.Options{Target: target}}
		rows := make([]float32, 10*m.Dim())
		of, err := l2s.Open(filepath.Join(dir, "W.npy"), l2s.OpenOptions{Bias: filepath.Join(dir, "b.npy")})
		if err != nil {
			t.Fatal(err)
		}
		made, err := r.savePreview(t.Context(), m, nil, &inputs{layer: &layer{Layer: of}, rows: rows}, nil, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		const warning = "no budget reaches the target"
		if list := made.(previewTrained).Warnings; strings.Contains(stderr.String(), warning) != want || slices.ContainsFunc(list, func(w string) bool { return strings.HasPrefix(w, warning) }) != want {
			t.Errorf("target %v: found the warnings %q and %q, expected one: %v", target, list, stderr.String(), want)
		}
	}
	if list := made["warnings"]; list != nil {
		t.Errorf("found the warnings %v, expected none", list)
	}

	// With a budget the largest rung answers, and exact answers come from the layer.
	exact := succeed(t, dir, joined("topk", "m.l2p", testArgs(), "--budget", "exact", "--quiet")...)
	if want := succeed(t, dir, joined("topk", "m.l2s", testArgs(), "--budget", "exact", "--quiet")...); exact != want {
		t.Error("found other exact answers by a preview than by a screen")
	}
	same := 0
	lines, all := strings.Split(succeed(t, dir, joined("topk", "m.l2p", testArgs(), "--quiet")...), "\n"), strings.Split(exact, "\n")
	for i, line := range lines {
		if line == all[i] {
			same++
		}
	}
	e := object(t, dir, joined("eval", "m.l2p", testArgs(), "--json", "--quiet")...)
	expectFields(t, e, "kind", "precision", "looked", "mean_scored", "exact_answers", "budget", "labels", "dim", "contexts", "level")
	if got := number(t, e, "budget"); got != rungs[normal].Kept {
		t.Errorf("found the budget %v, expected the default one, %v", got, rungs[normal].Kept)
	}
	// The least number of contexts whose five labels are all found.
	p5, n := number(t, e, "precision", "5"), number(t, e, "contexts")
	if found := float64(same-1) / n; found > p5+1e-9 || found < 1-5*(1-p5)-1e-9 {
		t.Errorf("found the exact answer to %v of the contexts, and P@5 of %v", found, p5)
	}
	expectIn(t, succeed(t, dir, joined("eval", "m.l2p", testArgs(), "--quiet")...), "looked at", "P@1", "P@5")

	b := object(t, dir, joined("bench", "m.l2p", testArgs(), "--json", "--quiet")...)
	if b["kind"] != "preview" || number(t, b, "screened_us") <= 0 || number(t, b, "precision", "5") <= 0 {
		t.Errorf("found %v, expected times and the precision of a preview", b)
	}
	expectSteps(t, b, map[string][]string{
		"exact":   {"quantise", "scan", "rank"},
		"preview": {"quantise", "coordinates", "preview", "exact logits", "exact answers"},
	})
	if text := succeed(t, dir, joined("bench", "m.l2p", testArgs(), "--quiet")...); !strings.Contains(text, "\npreview ") || !strings.Contains(text, "\npreview     quantise ") || strings.Contains(text, "Copies") {
		t.Errorf("found %q, expected a line of the preview and no copies", text)
	}
	for _, row := range []struct {
		args []any
		code int
		want string
	}{
		{[]any{"bench", "m.l2p", testArgs(), "--pack", "1"}, 1, "m.l2p: found a preview, expected a screen for --pack"},
		{[]any{"eval", "m.l2p", testArgs(), "--targets", "T.npy"}, 1, "m.l2p: found a preview, expected a screen for --targets"},
		{[]any{"topk", "m.l2p", testArgs(), "--budget", "0.001"}, 0, "the smallest budget of the preview"},
		{[]any{"train", trainArgs(), "--kind", "preview", "--out", "x.l2p"}, 2, "--options is for a screen, found --kind preview"},
		{[]any{"train", trainArgs(), "--kind", "tree", "--out", "x.l2p"}, 2, "expected auto, screen or preview"},
	} {
		if r := invoke(t, dir, joined(row.args...)...); r.code != row.code || !strings.Contains(r.stderr, row.want) {
			t.Errorf("%v: found the exit status %d and %q, expected %d and %q", row.args, r.code, r.stderr, row.code, row.want)
		}
	}
}

// For a large layer train makes both, and tells the reason for the one that it writes. A layer with
// few labels gets a screen.
func TestTrainChooses(t *testing.T) {
	simdtest.Long(t)
	dir := t.TempDir()
	const d = 8
	r := rand.New(rand.NewPCG(1, 2))
	write := func(name string, n int) {
		x := make([]float32, n*d)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		if err := tensorfile.WriteNPY(filepath.Join(dir, name), x, n, d); err != nil {
			t.Fatal(err)
		}
	}
	write("W.npy", preview.LeastLabels)
	write("H.npy", preview.LeastLabels/4)
	write("few.npy", leastContextsOfPreview)
	args := []string{"train", "--weights", "W.npy", "--bias", "none", "--contexts", "H.npy", "--out", "m"}
	run := invoke(t, dir, args...)
	if run.code != 0 {
		t.Fatal(run.stderr)
	}
	wrote := "screen"
	if isPreview(filepath.Join(dir, "m")) {
		wrote = "preview"
	}
	expectIn(t, run.stderr, "preview: P@1 ", "a "+wrote+" is written, ")
	few := slices.Clone(args)
	few[slices.Index(few, "H.npy")] = "few.npy"
	if run := invoke(t, dir, append(few, "--target", "0.5")...); run.code != 0 || !isPreview(filepath.Join(dir, "m")) || !strings.Contains(run.stderr, "no screen is trained, since 1,000 contexts are few") {
		t.Errorf("found the exit status %d and\n%s\nexpected a preview without a comparison", run.code, run.stderr)
	}
	run = invoke(t, dir, append(args, "--kind", "screen")...)
	if _, err := l2s.Load(filepath.Join(dir, "m")); run.code != 0 || err != nil || strings.Contains(run.stderr, "preview") {
		t.Errorf("found %v and\n%s\nexpected a screen, and no preview", err, run.stderr)
	}

	dir = files(t)
	if o := object(t, dir, joined("train", trainArgs(), "--out", "new.l2s", "--json")...); o["kind"] != "screen" {
		t.Errorf("found a %v for %d labels, expected a screen", o["kind"], tinyLabels)
	}
}

// After an interrupt the next run takes the preview that is in the file, next to a checkpoint, if it
// is a preview of the layer.
func TestAPreviewIsKeptForTheNextRun(t *testing.T) {
	dir := t.TempDir()
	of := func(seed uint64) *layer {
		r := rand.New(rand.NewPCG(seed, 1))
		x := make([]float32, 300*8)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		l, err := l2s.New(l2s.Float32(x, 8), nil)
		if err != nil {
			t.Fatal(err)
		}
		return &layer{Layer: l}
	}
	mine, states := of(1), make([]float32, 300*8)
	for i := range states {
		states[i] = float32(math.Sin(float64(i * i)))
	}
	m, err := preview.Make(t.Context(), mine.Layer, l2s.Float32(states, mine.Layer.Dim()), preview.Options{})
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "m.l2s")
	if err := m.Save(out); err != nil {
		t.Fatal(err)
	}
	checkpoint := out + partialSuffix
	if keptPreview(out, checkpoint, mine) != nil {
		t.Error("found a preview of a run that has ended, expected none")
	}
	writeFile(t, checkpoint, []byte("state"))
	if kept := keptPreview(out, checkpoint, mine); kept == nil || kept.Fingerprint() != mine.Fingerprint() {
		t.Error("found no preview, expected the one in the file")
	}
	if keptPreview(out, checkpoint, of(2)) != nil {
		t.Error("found the preview of another layer, expected none")
	}
	writeFile(t, out, []byte("no preview"))
	if keptPreview(out, checkpoint, mine) != nil {
		t.Error("found a preview in another file, expected none")
	}
}

// An interrupted eval of a preview prints no result, and the budget is the one that was taken.
func TestEvalOfAPreviewIsInterrupted(t *testing.T) {
	simdtest.Long(t)
	dir := files(t)
	succeed(t, dir, joined("train", layerArgs(), "--contexts", "H.npy", "--kind", "preview", "--out", "m.l2p", "--quiet")...)
	m, err := l2s.Load(filepath.Join(dir, "m.l2p"))
	if err != nil {
		t.Fatal(err)
	}
	steps, _ := m.Steps()
	last := steps[len(steps)-1].Budget
	if o := object(t, dir, joined("eval", "m.l2p", testArgs(), "--budget", fmt.Sprint(last+1000), "--json", "--quiet")...); number(t, o, "budget") != last {
		t.Errorf("found the budget %v, expected the largest, %v", o["budget"], last)
	}
	in := &inputs{index: m, preview: (*engine.Index)(m).Preview(), path: "m.l2p"}
	l, err := l2s.Open(filepath.Join(dir, "W.npy"), l2s.OpenOptions{Bias: filepath.Join(dir, "b.npy"), Copy: true})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	in.layer = &layer{l, "W.npy", (*engine.Layer)(l).Head()}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	f := newFlags("eval", io.Discard, io.Discard)
	act := evalVerb(f)
	in.rows = make([]float32, 100*l.Dim())
	if r, err := act(ctx, in); r != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("found the result %v and the error %v, expected no result", r, err)
	}
}

// A preview under the usual name of a screen is noted, as a screen under that of a preview is.
func TestAPreviewWithTheNameOfAScreenIsNoted(t *testing.T) {
	simdtest.Long(t)
	dir := files(t)
	for name, noted := range map[string]bool{"p.l2s": true, "p.l2p": false, "p": false} {
		r := invoke(t, dir, joined("train", layerArgs(), "--contexts", "H.npy", "--kind", "preview", "--out", name)...)
		if r.code != 0 || strings.Contains(r.stderr, "this file is a preview, whose usual name ends in .l2p") != noted {
			t.Errorf("%s: found status %d and %q, expected a note: %v", name, r.code, r.stderr, noted)
		}
		if _, err := l2s.Load(filepath.Join(dir, name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A file that does not take less than half of the time of the exact search gets a warning, in the
// result and, also with --quiet, on standard error: of both kinds.
func TestAFileThatDoesNotPayIsAWarning(t *testing.T) {
	simdtest.Long(t)
	screen, err := l2s.Load(filepath.Join(files(t), "m.l2s"))
	if err != nil {
		t.Fatal(err)
	}
	at := func(x *l2s.Index, us int) train.Candidate {
		return train.Candidate{Index: x, K: 5, Time: time.Duration(us) * time.Microsecond}
	}
	t.Setenv(ofTimes, "1")
	warnsOfTimes = true
	defer func() { warnsOfTimes = false }()
	c := &train.Comparison{Best: at(screen, 60), Candidates: []train.Candidate{at(screen, 60), at(nil, 100)}}
	if why, want := slow(c), "take the exact search, which misses no label: it takes 100 us per query, and the screen 60"; why != want {
		t.Errorf("found %q, expected %q", why, want)
	}
	c.Pays = true
	if why := slow(c); why != "" {
		t.Errorf("found %q, expected no warning of a file that pays", why)
	}
	// The exact search of a layer of 300 labels takes a microsecond or two: no preview takes half of
	// that.
	dir := files(t)
	for _, flags := range [][]string{{}, {"--quiet"}} {
		r := invoke(t, dir, joined("train", layerArgs(), "--contexts", "H.npy", "--kind", "preview", "--out", "m.l2p", "--json", flags)...)
		if r.code != 0 || !strings.Contains(r.stdout, "take the exact search") || !strings.Contains(r.stderr, "warning: m.l2p: take the exact search") {
			t.Errorf("%v: found the status %d, %q and %q, expected a warning in both", flags, r.code, r.stdout, r.stderr)
		}
	}
}
