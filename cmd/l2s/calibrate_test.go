package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/train/calibrate"
)

// Contexts of which a part was trained on void the promise: the command says so, and so does
// the screen.
func TestCalibrateWarnsOfContextsOfTraining(t *testing.T) {
	dir := files(t)
	args := append(joined(goodCalibrate), "--contexts", "H.npy") // besides T.npy
	const about = "the screen was trained on 43% of these contexts"
	r := l2s(t, dir, joined(args, "--json")...)
	if want := "l2s calibrate: warning: T.npy and 1 more: " + about + ": the promise is void"; r.code != 0 || !strings.Contains(r.stderr, want) {
		t.Fatalf("found exit status %d and\n%sexpected %q", r.code, r.stderr, want)
	}
	if share := number(t, parseObject(t, r.stdout), "trained_on", "share"); share < 0.38 || share > 0.48 {
		t.Errorf("found a share of %v, expected about 0.43", share)
	}
	if text := succeed(t, dir, "inspect", "out.l2s"); !strings.Contains(text, "warning: "+about) {
		t.Errorf("found no warning in\n%s", text)
	}
}

func TestCalibrate(t *testing.T) {
	dir := files(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	eval := func(name string) map[string]any {
		return object(t, dir, joined("eval", name, testArgs(), "--k", "5", "--quiet", "--json")...)
	}
	// A screen that misses much, and a target above what it has, so that margins
	// are needed.
	succeed(t, dir, joined("train", trainArgs(), "--budget", "12", "--kmeans-only", "--out", "small.l2s")...)
	plain := number(t, eval("small.l2s"), "precision", "5")
	target := 1 - (1-plain)/3
	high := joined("calibrate", "small.l2s", goodCalibrate[2:], "--target", strconv.FormatFloat(target, 'f', 6, 64))
	args := joined(high, "--exact-limit", "1")

	o := object(t, dir, joined(args, "--json")...)
	expectFields(t, o, "out", "target", "k", "confidence", "exact_cost", "block", "seed", "choosing_contexts", "testing_contexts",
		"probe_margin", "exact_margin", "path", "passed", "p_value", "calibrated", "plain", "replaced_margins", "seconds", "level")
	m, err := screen.Load(at("out.l2s"))
	if err != nil {
		t.Fatal(err)
	}
	if m.ProbeMargin() != number(t, o, "probe_margin") || m.ExactMargin() != number(t, o, "exact_margin") || m.ProbeMargin()+m.ExactMargin() == 0 {
		t.Errorf("found margins %v and %v in the file, expected the margins of %v, not both 0", m.ProbeMargin(), m.ExactMargin(), o)
	}
	if n := number(t, o, "choosing_contexts") + number(t, o, "testing_contexts"); n != tinyTest {
		t.Errorf("found %v contexts in all, expected %d", n, tinyTest)
	}
	e := eval("out.l2s")
	if p := number(t, e, "precision", "5"); p <= plain || p < target {
		t.Errorf("found P@5 %v, expected at least %v, which is more than the %v without margins", p, target, plain)
	}
	if number(t, e, "probes")+number(t, e, "exact_answers", "5") == 0 {
		t.Errorf("found no use of the margins in %v", e)
	}

	limit := strconv.FormatFloat(number(t, o, "calibrated", "exact_share")/2, 'f', 6, 64)
	writeFile(t, at("in.l2s"), readFile(t, at("out.l2s")))
	again := joined("calibrate", "in.l2s", args[2:])
	for _, c := range []struct {
		name string
		args []string
		// What is expected: that it fails, or the screen of the first run or one
		// without margins; and what it says.
		fails, same, without bool
		stdout, stderr       []string
	}{
		{name: "a screen that would mostly be the exact layer is refused", args: joined(high, "--exact-limit", limit), fails: true, stderr: []string{"takes the exact layer for"}},
		{name: "the number of threads leaves no trace", args: joined(args, "--threads", "1"), same: true},
		{name: "nor does the progress", args: joined(args, "--quiet=false"), same: true,
			stdout: []string{"x.l2s: P@5 of at least", "below a lead of ", "plain ", "calibrated "},
			stderr: []string{"labels: 1,200 contexts", "route: 1,200 contexts"}},
		{name: "a screen that is calibrated can be again", args: again, same: true, stdout: []string{"margins of the input are replaced"}},
		{name: "a target is reached without margins", args: joined(goodCalibrate, "--target", "0.5"), without: true, stdout: []string{"reached without margins"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			os.Remove(at("x.l2s"))
			r := l2s(t, dir, joined(c.args, "--out", "x.l2s")...)
			if (r.code != 0) != c.fails {
				t.Fatalf("found exit status %d, expected a failure: %v; standard error:\n%s", r.code, c.fails, r.stderr)
			}
			expectIn(t, r.stdout, c.stdout...)
			expectIn(t, r.stderr, c.stderr...)
			if c.fails {
				if _, err := os.Stat(at("x.l2s")); err == nil {
					t.Error("found a screen, expected none")
				}
				return
			}
			if c.same && !bytes.Equal(readFile(t, at("x.l2s")), readFile(t, at("out.l2s"))) {
				t.Error("found different bytes, expected the same")
			}
			x, err := screen.Load(at("x.l2s"))
			if err != nil {
				t.Fatal(err)
			}
			if got := x.ProbeMargin() == 0 && x.ExactMargin() == 0; got != c.without {
				t.Errorf("found margins %v and %v, expected none: %v", x.ProbeMargin(), x.ExactMargin(), c.without)
			}
		})
	}
	t.Run("the level leaves no trace", func(t *testing.T) {
		levels(t, func(t *testing.T, level, env string) {
			cmd := command(t, dir, joined(args, "--out", level+".l2s")...)
			cmd.Env = append(cmd.Env, env)
			if r := finish(t, cmd); r.code != 0 {
				t.Fatal(r.stderr)
			}
			if !bytes.Equal(readFile(t, at(level+".l2s")), readFile(t, at("out.l2s"))) {
				t.Error("found different bytes, expected the same")
			}
		})
	})
	t.Run("the result tells whether margins were replaced", func(t *testing.T) {
		if o["replaced_margins"] != false || object(t, dir, joined(again, "--out", "x.l2s", "--json")...)["replaced_margins"] != true {
			t.Errorf("found %v for a screen without margins, expected false, and true for one with them", o["replaced_margins"])
		}
	})
	t.Run("inspect shows the margins", func(t *testing.T) {
		text := succeed(t, dir, "inspect", "out.l2s")
		expectIn(t, text, "margins ", "calibrated ", "training ")
		o := object(t, dir, "inspect", "out.l2s", "--json")
		if number(t, o, "probe_margin") != m.ProbeMargin() || number(t, o, "record", "calibration", "exact_margin") != m.ExactMargin() {
			t.Errorf("found %v, expected the margins of the file", o)
		}
	})
}

// Margins that cost much although the screen reaches the target without them come from
// too few contexts.
func TestCalibrateSaysIfContextsAreTooFew(t *testing.T) {
	for _, c := range []struct {
		name                   string
		plain, cost, plainCost float64
		want                   bool
	}{
		{"the target is reached, the margins cost much", 0.996, 28000, 350, true},
		{"the target is reached, the margins cost little", 0.996, 400, 350, false},
		{"the target is not reached without margins", 0.98, 28000, 350, false},
	} {
		found := calibrationText(&calibrate.Calibration{
			Target: 0.99, K: 5, Confidence: 0.95,
			Plain:      calibrate.Figures{Precision: c.plain, Cost: c.plainCost},
			Calibrated: calibrate.Figures{Precision: 0.999, Cost: c.cost},
		})
		if got := strings.Contains(found, "too few to promise it"); got != c.want {
			t.Errorf("%s: found\n%s\nexpected the note: %v", c.name, found, c.want)
		}
	}
}
