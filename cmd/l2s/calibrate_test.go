package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/screen"
)

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
		t.Errorf("found margins %v and %v in the file, expected those of %v, not both 0", m.ProbeMargin(), m.ExactMargin(), o)
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

	t.Run("no screen that is mostly the exact layer", func(t *testing.T) {
		limit := number(t, o, "calibrated", "exact_share") / 2
		r := l2s(t, dir, joined(high, "--exact-limit", strconv.FormatFloat(limit, 'f', 6, 64), "--out", "mostly.l2s")...)
		if r.code != 1 || !strings.Contains(r.stderr, "takes the exact layer for") {
			t.Errorf("found exit status %d and\n%s", r.code, r.stderr)
		}
		if _, err := os.Stat(at("mostly.l2s")); err == nil {
			t.Error("found a screen, expected none")
		}
	})
	t.Run("neither threads nor time leave a trace", func(t *testing.T) {
		succeed(t, dir, joined(args, "--threads", "1", "--out", "again.l2s")...)
		if !bytes.Equal(readFile(t, at("again.l2s")), readFile(t, at("out.l2s"))) {
			t.Error("found different bytes, expected the same")
		}
	})
	t.Run("nor does the level", func(t *testing.T) {
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
	t.Run("a screen that is calibrated can be again", func(t *testing.T) {
		in := bytes.Clone(readFile(t, at("out.l2s")))
		writeFile(t, at("in.l2s"), in)
		text := succeed(t, dir, joined("calibrate", "in.l2s", args[2:], "--out", "again.l2s")...)
		if !strings.Contains(text, "margins of the input are replaced") || o["replaced_margins"] != false {
			t.Errorf("found %v before, and no word of the margins that are replaced in\n%s", o["replaced_margins"], text)
		}
		if !bytes.Equal(readFile(t, at("again.l2s")), in) {
			t.Error("found different bytes, expected the same")
		}
	})
	t.Run("a target reached without margins", func(t *testing.T) {
		text := succeed(t, dir, joined(goodCalibrate, "--target", "0.5", "--out", "low.l2s")...)
		low, err := screen.Load(at("low.l2s"))
		if err != nil {
			t.Fatal(err)
		}
		if low.ProbeMargin() != 0 || low.ExactMargin() != 0 || !strings.Contains(text, "reached without margins") {
			t.Errorf("found margins %v and %v, and\n%s", low.ProbeMargin(), low.ExactMargin(), text)
		}
	})
	t.Run("a report for people", func(t *testing.T) {
		r := l2s(t, dir, joined(args, "--quiet=false", "--out", "x.l2s")...)
		for _, want := range []string{"x.l2s: P@5 of at least", "below a lead of ", "plain ", "calibrated "} {
			if !strings.Contains(r.stdout, want) {
				t.Errorf("found no %q in\n%s", want, r.stdout)
			}
		}
		if !strings.Contains(r.stderr, "labels: 1,200 contexts") || !strings.Contains(r.stderr, "route: 1,200 contexts") {
			t.Errorf("found no progress of both stages in\n%s", r.stderr)
		}
		text := succeed(t, dir, "inspect", "x.l2s")
		for _, want := range []string{"margins ", "calibrated ", "training "} {
			if !strings.Contains(text, want) {
				t.Errorf("inspect: found no %q in\n%s", want, text)
			}
		}
		o := object(t, dir, "inspect", "x.l2s", "--json")
		if number(t, o, "probe_margin") != m.ProbeMargin() || number(t, o, "record", "calibration", "exact_margin") != m.ExactMargin() {
			t.Errorf("inspect: found %v, expected the margins of the file", o)
		}
	})
}
