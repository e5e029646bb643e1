package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/screening"
	"github.com/learning-to-screen/l2s/screen"
)

func TestCalibrate(t *testing.T) {
	dir := files(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	eval := func(name string) map[string]any {
		return object(t, dir, joined("eval", name, testArgs(), "--k", "5", "--quiet", "--json")...)
	}
	// A screen of few budgets, which do not reach all.
	succeed(t, dir, joined(goodTrain, options(t, `{"budget": 0}`), "--out", "small.l2s")...)
	before, err := screen.Load(at("small.l2s"))
	if err != nil {
		t.Fatal(err)
	}
	calibrate := joined("calibrate", "small.l2s", goodCalibrate[2:], "--target", "0.95")
	o := object(t, dir, joined(calibrate, "--json")...)
	expectFields(t, o, "out", "target", "k", "confidence", "block", "seed", "choosing_contexts", "testing_contexts",
		"budget", "exact_margin", "path", "passed", "p_value", "calibrated", "before", "seconds", "level")
	if n := number(t, o, "choosing_contexts") + number(t, o, "testing_contexts"); n != tinyTest {
		t.Errorf("found %v contexts in all, expected %d", n, tinyTest)
	}
	m, err := screen.Load(at("out.l2s"))
	if err != nil {
		t.Fatal(err)
	}
	if budget := number(t, o, "budget"); m.Budget() != budget || budget >= before.Budget() || (*screening.Model)(m).ExactMargin() != 0 || number(t, o, "exact_margin") != 0 {
		t.Errorf("found budget %v and margin %v in the file, expected the budget %v, below %v, and no margin", m.Budget(), (*screening.Model)(m).ExactMargin(), budget, before.Budget())
	}
	e := eval("out.l2s")
	if p, used := number(t, e, "precision", "5"), number(t, e, "budget"); p < 0.95 || used != m.Budget() {
		t.Errorf("found P@5 %v with budget %v, expected at least 0.95 with %v", p, used, m.Budget())
	}
	if before := number(t, o, "before", "precision"); before < number(t, o, "calibrated", "precision") {
		t.Errorf("found P@5 %v before, expected no less than calibrated with a smaller budget", before)
	}
	// It is the smallest: with one context for a block the next smaller budget does not pass.
	if path, passed := number(t, o, "path"), number(t, o, "passed"); passed >= path || int(path) != len(m.Ladder()) || m.Ladder()[int(path-passed)].Budget != m.Budget() {
		t.Errorf("found budget %v after %v of %v tests passed", m.Budget(), passed, path)
	}

	writeFile(t, at("in.l2s"), readFile(t, at("out.l2s")))
	high := joined(calibrate, "--target", "0.996")
	for _, c := range []struct {
		name string
		args []string
		// The expected result: an error, or the screen of the first run; and the expected outputs.
		fails, same    bool
		stdout, stderr []string
	}{
		{name: "a target that no budget reaches is refused", args: high, fails: true, stderr: []string{"target 0.996 cannot be promised at confidence 0.95"}},
		{name: "unless the exact layer helps, which is asked for", args: joined(high, "--exact-limit", "0.5"), stdout: []string{", and the exact layer below a lead of "}},
		{name: "the number of threads leaves no trace", args: joined(calibrate, "--threads", "1"), same: true},
		{name: "nor does the progress", args: joined(calibrate, "--quiet=false"), same: true,
			stdout: []string{"x.l2s: P@5 of at least 0.95 with confidence 0.95", "  budget ", "before ", "calibrated "},
			stderr: []string{"labels: 1,200 contexts", "route: 1,200 contexts"}},
		{name: "blocks", args: joined(calibrate, "--block", "5"), stdout: []string{"if blocks of 5 contexts are independent"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			os.Remove(at("x.l2s"))
			r := l2s(t, dir, joined(c.args, "--out", "x.l2s")...)
			if (r.code != 0) != c.fails {
				t.Fatalf("found exit status %d, expected a failure: %v; standard error:\n%s", r.code, c.fails, r.stderr)
			}
			expectIn(t, r.stdout, c.stdout...)
			expectIn(t, r.stderr, c.stderr...)
			if _, err := os.Stat(at("x.l2s")); (err != nil) != c.fails {
				t.Errorf("found of the screen %v, expected none: %v", err, c.fails)
			}
			if c.same && !bytes.Equal(readFile(t, at("x.l2s")), readFile(t, at("out.l2s"))) {
				t.Error("found different bytes, expected the same")
			}
		})
	}
	t.Run("the exact layer answers the same share in use as in the test", func(t *testing.T) {
		succeed(t, dir, joined(high, "--exact-limit", "0.5", "--out", "x.l2s")...)
		e := eval("x.l2s")
		if p, n := number(t, e, "precision", "5"), number(t, e, "exact_answers", "5"); p < 0.996 || n == 0 || n > 0.55*tinyTest {
			t.Errorf("found P@5 %v with %v exact answers, expected at least 0.996 with some, of half of the contexts at most", p, n)
		}
	})
	t.Run("a screen that is calibrated can be again", func(t *testing.T) {
		succeed(t, dir, joined("calibrate", "in.l2s", calibrate[2:], "--out", "x.l2s")...)
		x, err := screen.Load(at("x.l2s"))
		if err != nil || x.Budget() != m.Budget() {
			t.Errorf("found budget %v (%v), expected %v", x.Budget(), err, m.Budget())
		}
	})
	t.Run("the level leaves no trace", func(t *testing.T) {
		levels(t, func(t *testing.T, level, env string) {
			cmd := command(t, dir, joined(calibrate, "--out", level+".l2s")...)
			cmd.Env = append(cmd.Env, env)
			if r := finish(t, cmd); r.code != 0 {
				t.Fatal(r.stderr)
			}
			if !bytes.Equal(readFile(t, at(level+".l2s")), readFile(t, at("out.l2s"))) {
				t.Error("found different bytes, expected the same")
			}
		})
	})
	t.Run("inspect shows the promise", func(t *testing.T) {
		if text := succeed(t, dir, "inspect", "out.l2s"); strings.Count(text, "\ncalibrated ") != 1 {
			t.Errorf("found no calibration in\n%s", text)
		}
		o := object(t, dir, "inspect", "out.l2s", "--json")
		if number(t, o, "budget") != m.Budget() || number(t, o, "record", "calibration", "budget") != m.Budget() {
			t.Errorf("found %v, expected the budget of the file", o)
		}
	})
}
