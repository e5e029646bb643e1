package tune

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/synthetic"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/train"
)

// byRows measures nothing: a row takes a nanosecond warm, and two cold.
func byRows(_ context.Context, screens []*screen.Model) ([]Cost, error) {
	costs := make([]Cost, len(screens))
	for i, m := range screens {
		ns := m.MeanSetSize() + float64(m.Clusters())
		costs[i] = Cost{time.Duration(1000 * ns), time.Duration(2000 * ns)}
	}
	return costs, nil
}

func testOptions() Options {
	o := Options{Train: train.DefaultOptions(), Target: 0.9, Refine: true, Measure: byRows}
	o.Train.Iterations, o.Train.HeldOut, o.Train.KMeansIterations = 2, 0.2, 5
	o.Forms, o.Budgets = []Form{Flat(4), Flat(12), Levels(3, 4)}, []float64{3, 10, 20, 40, 80}
	return o
}

func testData() *synthetic.Data { return synthetic.Structured(300, 12, 10, 1500, 1) }

func TestRunRecommendsTheFastestThatReachesTheTarget(t *testing.T) {
	d := testData()
	for _, target := range []float64{0.5, 0.9, 0.97} {
		for _, cold := range []bool{false, true} {
			o := testOptions()
			o.Target, o.Cold = target, cold
			forms := map[string]int{}
			last, steps := Step{}, 0
			o.Done = func(form string, screens []Screen, now Step) {
				forms[form] = len(screens)
				steps++
				if now.Done != steps || now.Forms < now.Done || now.Share <= 0 || now.Share > 1 || (now.Share == 1) != (now.Done == now.Forms) {
					t.Errorf("%s: found %+v after %+v, expected step %d", form, now, last, steps)
				}
				last = now
			}
			found, err := Run(t.Context(), d.Layer, d.Contexts, o)
			if err != nil {
				t.Fatal(err)
			}
			if last.Share != 1 || last.Forms != len(forms) {
				t.Errorf("found %+v after the last of %d forms", last, len(forms))
			}
			best := found.Screens[found.Best]
			if !found.Reached || best.precision() < target {
				t.Errorf("target %v: found %v, reached %v", target, best.precision(), found.Reached)
			}
			for _, s := range found.Screens {
				if s.precision() >= target && float64(s.Warm)*sameTime < float64(best.Warm) {
					t.Errorf("target %v: found %s with budget %v recommended, but %s with %v is faster", target, best.Form, best.Record.Options.Budget, s.Form, s.Record.Options.Budget)
				}
				if s.Record.Options.Budget == 3 {
					t.Error("found a screen for a budget of 3, expected none below k")
				}
				if s.Rows <= s.Record.Unseen.MeanCandidates {
					t.Errorf("%s: found %v rows, expected more than the %v candidates", s.Form, s.Rows, s.Record.Unseen.MeanCandidates)
				}
			}
			for _, name := range []string{"4", "12", "3x4"} {
				if forms[name] == 0 {
					t.Errorf("found the forms %v, expected %s among them", forms, name)
				}
			}
			if refined := forms[best.Form+"-learned"] + forms[best.Form+"-probe"] + forms[best.Form+"-shells"]; len(forms) != 6 && refined == 0 {
				t.Errorf("found the forms %v, expected three refinements", forms)
			}
		}
	}
}

// The record of a screen makes it again.
func TestScreensAreThoseOfTheirRecords(t *testing.T) {
	d := testData()
	found, err := Run(t.Context(), d.Layer, d.Contexts, testOptions())
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, s := range found.Screens {
		if seen[s.Form] {
			continue
		}
		seen[s.Form] = true
		o := s.Record.Options
		budget := o.Budget
		if s.Record.LearnedFor > 0 {
			o.Budget = s.Record.LearnedFor
		}
		models, _, err := train.RunBudgets(t.Context(), d.Layer, d.Contexts, o, []float64{budget})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(models[0].ClusterWeights(), s.ClusterWeights()) {
			t.Errorf("%s: found other clusters by its record", s.Form)
		}
		for c := range s.Clusters() {
			if !slices.Equal(models[0].Candidates(c), s.Candidates(c)) {
				t.Errorf("%s: found another set %d by its record", s.Form, c)
			}
		}
	}
}

func TestRunWithoutAScreenThatReachesTheTarget(t *testing.T) {
	d := testData()
	o := testOptions()
	o.Target, o.Refine, o.Train.Geometry, o.Budgets = 0.99999, false, 0, []float64{5, 6}
	found, err := Run(t.Context(), d.Layer, d.Contexts, o)
	if err != nil {
		t.Fatal(err)
	}
	if found.Reached {
		t.Fatal("found a screen that reaches P@5 of 0.99999 with 6 candidates")
	}
	for _, s := range found.Screens {
		if s.precision() > found.Screens[found.Best].precision() {
			t.Errorf("found %v recommended, but %v is more precise", found.Screens[found.Best].precision(), s.precision())
		}
	}
}

func TestRunRefuses(t *testing.T) {
	d := testData()
	for _, c := range []struct {
		name   string
		change func(o *Options)
		want   string
	}{
		{"no forms", func(o *Options) { o.Forms = nil }, "tune: forms: found none"},
		{"budgets below k", func(o *Options) { o.Budgets = []float64{1, 4.9} }, "tune: budgets: found [1 4.9], expected one of at least 5"},
		{"budgets below the ids of every set", func(o *Options) { o.Budgets, o.Train.Always = []float64{6}, make([]uint32, 7) }, "expected one of at least 7"},
		{"a target of 1", func(o *Options) { o.Target = 1 }, "tune: target: found 1"},
		{"nothing held out", func(o *Options) { o.Train.HeldOut = 0 }, "of which none is held out"},
		{"more clusters than contexts", func(o *Options) { o.Forms = []Form{Flat(2000)} }, "clusters: found 2000"},
		{"an error of the measurement", func(o *Options) {
			o.Measure = func(context.Context, []*screen.Model) ([]Cost, error) { return nil, errors.New("no clock") }
		}, "no clock"},
	} {
		o := testOptions()
		c.change(&o)
		if _, err := Run(t.Context(), d.Layer, d.Contexts, o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: found the error %v, expected %q in it", c.name, err, c.want)
		}
	}
}

// A run that is cancelled keeps its labels and the clusters of its forms. Another one
// goes on from there, whatever it chooses then.
func TestRunContinues(t *testing.T) {
	d := testData()
	o := testOptions()
	o.Train.Checkpoint = filepath.Join(t.TempDir(), "state")
	ctx, cancel := context.WithCancel(t.Context())
	o.Done = func(form string, _ []Screen, _ Step) {
		if strings.HasSuffix(form, "-probe") { // one refinement is done, the other is not
			cancel()
		}
	}
	labelled := false
	o.Train.Progress = func(p train.Progress) { labelled = labelled || p.Stage == train.StageLabels }
	if _, err := Run(ctx, d.Layer, d.Contexts, o); !errors.Is(err, context.Canceled) {
		t.Fatalf("found the error %v, expected the error of the context", err)
	}
	if !labelled {
		t.Error("found no word of the labels")
	}
	files := CheckpointFiles(o.Train.Checkpoint, o.Forms)
	kept := 0
	for _, file := range files {
		if _, err := os.Stat(file); err == nil {
			kept++
		}
	}
	if kept < 2+len(o.Forms) {
		t.Errorf("found %d files of %v, expected the labels and each form", kept, files)
	}
	// Another target, and so another budget to refine for.
	o.Done, o.Target, labelled = nil, 0.6, false
	clustered := map[string]bool{}
	o.Progress = func(form string, p train.Progress) {
		switch p.Stage {
		case train.StageKMeans:
			clustered[form] = true
		case train.StageLabels:
			t.Errorf("found labels as a part of %s, expected them before all forms", form)
		}
	}
	if _, err := Run(t.Context(), d.Layer, d.Contexts, o); err != nil {
		t.Fatal(err)
	}
	if labelled {
		t.Error("found labels computed again, expected those that were kept")
	}
	for _, f := range o.Forms {
		if clustered[f.Name] {
			t.Errorf("found k-means of %s again, expected the clusters that were kept", f.Name)
		}
	}
	if err := RemoveCheckpoint(o.Train.Checkpoint, o.Forms); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(o.Train.Checkpoint + "*"); len(left) > 0 {
		t.Errorf("found %v, expected nothing", left)
	}
}

// A file of another kind that has the name of a form's state is refused before any work.
func TestAForeignFileIsRefusedFirst(t *testing.T) {
	d := testData()
	o := testOptions()
	o.Train.Checkpoint = filepath.Join(t.TempDir(), "state")
	o.Train.Progress = func(p train.Progress) { t.Errorf("found work on %s, expected none", p.Stage) }
	o.Progress = func(form string, p train.Progress) { t.Errorf("found work on %s of %s, expected none", p.Stage, form) }
	for _, name := range names(o.Forms) {
		path := formCheckpoint(o.Train.Checkpoint, name)
		if err := os.WriteFile(path, []byte("precious"), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Run(t.Context(), d.Layer, d.Contexts, o); err == nil || !strings.Contains(err.Error(), path+": found another kind of file") {
			t.Errorf("%s: found %v, expected the file refused", name, err)
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != "precious" {
			t.Errorf("%s: found %q, %v, expected the file as it was", name, text, err)
		}
		os.Remove(path)
	}
}

// What runs with other forms have left goes with the state, but nothing else.
func TestRemoveCheckpoint(t *testing.T) {
	d := testData()
	o := testOptions()
	o.Train.Checkpoint = filepath.Join(t.TempDir(), "state")
	ctx, cancel := context.WithCancel(t.Context())
	o.Done = func(string, []Screen, Step) { cancel() }
	if _, err := Run(ctx, d.Layer, d.Contexts, o); !errors.Is(err, context.Canceled) {
		t.Fatalf("found the error %v, expected the error of the context", err)
	}
	before, err := filepath.Glob(o.Train.Checkpoint + "*")
	if err != nil || len(before) < 3 {
		t.Fatalf("found %v (%v), expected the labels and a form", before, err)
	}
	own := map[string]string{"state-7": "no state", "state-seven": "nor this", "other-7": "nor this"}
	for name, text := range own {
		if err := os.WriteFile(filepath.Join(filepath.Dir(o.Train.Checkpoint), name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := RemoveCheckpoint(o.Train.Checkpoint, []Form{Flat(5)}); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(filepath.Dir(o.Train.Checkpoint))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if _, kept := own[file.Name()]; !kept {
			t.Errorf("found %s, expected it removed", file.Name())
		}
	}
	if len(files) != len(own) {
		t.Errorf("found %v, expected all of %v", files, own)
	}
}

func TestForms(t *testing.T) {
	for _, c := range []struct {
		contexts int
		want     string
	}{
		{1, "1"}, {500, "25"}, {2000, "64"}, {6000, "64 128 256 16x16"}, {48000, "64 128 256 16x16 24x24 32x32 48x48 512-through-32"}, {929589, "64 128 256 16x16 24x24 32x32 48x48 512-through-32"},
	} {
		var names []string
		for _, f := range Forms(c.contexts) {
			names = append(names, f.Name)
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%d contexts: found %s, expected %s", c.contexts, got, c.want)
		}
	}
}

func TestBudgets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		labels := rapid.IntRange(1, 1<<20).Draw(t, "labels")
		least := rapid.IntRange(1, labels).Draw(t, "least")
		budgets := Budgets(labels, least)
		if len(budgets) == 0 || !slices.IsSorted(budgets) || len(slices.Compact(slices.Clone(budgets))) != len(budgets) {
			t.Fatalf("found %v, expected some, ascending", budgets)
		}
		if budgets[0] < float64(least) || budgets[len(budgets)-1] > float64(labels) {
			t.Fatalf("found %v, expected them within %d and %d", budgets, least, labels)
		}
	})
}

// A screen with twice the rows of another is kept only if it is more precise.
func TestWorthwhile(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		all := make([]Screen, 1+r.IntN(20))
		for i := range all {
			all[i] = Screen{Rows: float64(10 + r.IntN(200)), Record: &train.Record{Unseen: &train.Unseen{PrecisionK: 1 - 0.5*r.Float64()}}}
		}
		kept := worthwhile(all, 0.98)
		if len(kept) == 0 {
			t.Fatal("found none kept")
		}
		best := 0.0
		for _, s := range all {
			best = max(best, s.precision())
		}
		for _, s := range all {
			dropped := !slices.ContainsFunc(kept, func(k Screen) bool { return k.Record == s.Record })
			beaten := slices.ContainsFunc(all, func(q Screen) bool { return q.precision() >= s.precision() && 2*q.Rows <= s.Rows })
			hopeless := s.precision() < min(0.8, best)
			if dropped != (beaten || hopeless) {
				t.Errorf("%v rows, %v: found it dropped: %v, expected %v", s.Rows, s.precision(), dropped, beaten || hopeless)
			}
		}
	}
}
