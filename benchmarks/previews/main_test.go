package main

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// The probabilities of a made layer are those by which labels are drawn: of the contexts whose best label is
// certain to some degree, this share has the label.
func TestAMadeLayerKnowsItsContexts(t *testing.T) {
	for _, dim := range []int{48, 384} {
		const n = 4000
		m := newMade(500, dim, 1)
		l, err := m.layer()
		if err != nil {
			t.Fatal(err)
		}
		rows, drawn := m.contexts(n, 1)
		s, dst := softmax.NewSearcher(l), make([]softmax.Prediction, 1)
		expected, found := 0.0, 0.0
		for i, label := range drawn {
			a, err := s.Search(dst, rows[i*dim:(i+1)*dim], softmax.Request{K: 1, LogSum: true})
			if err != nil {
				t.Fatal(err)
			}
			expected += math.Exp(dst[0].Logit-a.LogSum) / n
			if dst[0].ID == label {
				found += 1.0 / n
			}
		}
		if math.Abs(found-expected) > 0.02 || expected < 0.3 || expected > 0.95 {
			t.Errorf("%d dimensions: found the label of %.3f of the contexts, expected %.3f", dim, found, expected)
		}
	}
}

// The spectrum of made contexts is that of llm-65k by the share of dimensions, as far as the
// whole of it goes.
func TestMadeContextsHaveTheSpectrum(t *testing.T) {
	const dim, n = 128, 5000
	m := newMade(300, dim, 1)
	rows, _ := m.contexts(n, 1)
	want, found := 0.0, 0.0
	for _, x := range m.root {
		want += x * x
	}
	for _, x := range rows {
		found += float64(x) * float64(x) / n
	}
	if math.Abs(found-want) > 0.1*want {
		t.Errorf("found a variance of %.1f, expected %.1f", found, want)
	}
	for i, x := range fractions {
		if got := along(ofMoments, x); math.Abs(got-ofMoments[i]) > 1e-9 {
			t.Errorf("at %v: found %v, expected %v", x, got, ofMoments[i])
		}
	}
}

func TestTheAimIsLoweredWhereNoBudgetReachesIt(t *testing.T) {
	rung := func(p1, p5 float64) screen.Rung {
		return screen.Rung{Precision1: screen.Estimate{Value: p1}, PrecisionK: screen.Estimate{Value: p5}}
	}
	ladder := []screen.Rung{rung(0.99, 0.98), rung(0.9995, 0.9971), rung(0.9998, 0.9972)}
	for _, c := range []struct {
		p1, p5, to1, to5 float64
		rung             int
		reached          bool
	}{
		{0.99, 0.98, 0.99, 0.98, 0, true},
		{0.9996, 0.997, 0.9996, 0.997, 2, true},
		{0.9997, 0.999, 0.9996, 0.9970, 2, false},
		{0.999, 0.999, 0.999, 0.9970, 1, false},
	} {
		i, to1, to5, reached := aim(ladder, c.p1, c.p5)
		if i != c.rung || reached != c.reached || math.Abs(to1-c.to1) > 1e-9 || math.Abs(to5-c.to5) > 1e-9 {
			t.Errorf("P@1 %v, P@5 %v: found budget %d for %v and %v, %v, expected %+v", c.p1, c.p5, i, to1, to5, reached, c)
		}
	}
}

// A run compares both sides at equal precision, keeps the screen it has trained, and prints a line for each width.
func TestRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.l2s")
	args := []string{"--made", "2000x40", "--learn", "3000", "--measure", "300", "--widths", "4,30", "--rounds", "3", "--p1", ".9", "--p5", ".9", "--screen", file}
	var out bytes.Buffer
	if err := run(t.Context(), append(args, "--json"), &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	var r Result
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if r.Layer.Labels != 2000 || r.Layer.Dim != 40 || r.Contexts != 300 || len(r.Previews) != 2 || len(r.Packing) != 2 || r.Screen.Warm == nil || r.Screen.Cold == nil {
		t.Fatalf("found %+v", r)
	}
	for i, width := range []int{4, 30} {
		s := r.Previews[i]
		if s.Width != width || s.Candidates < r.Screen.Candidates {
			t.Errorf("width %d: found %+v, expected no fewer candidates than %v", width, s, r.Screen.Candidates)
		}
		if s.Warm != nil && (s.P1 < 0.9 || s.P5 < 0.9 || s.Cold == nil || s.Warm.Speedup <= 0) {
			t.Errorf("width %d: found %+v, expected precision and times", width, s)
		}
	}
	if r.Previews[1].Warm == nil {
		t.Error("found no setting of 30 columns that reaches the precision")
	}
	if _, err := screen.Load(file); err != nil {
		t.Error(err)
	}
	out.Reset()
	if err := run(t.Context(), args, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(out.String(), "\n"); lines < 5 || !strings.Contains(out.String(), "w=30") {
		t.Errorf("found\n%s", out.String())
	}
}

func TestBadArguments(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"x", "flags only"},
		{"--widths 4,,5", "--widths"},
		{"--widths 0", "--widths"},
		{"--rounds 0", "--rounds"},
		{"--measure 0", "--measure"},
		{"--made 5", "LABELSxDIM"},
		{"--made 10x5y", "LABELSxDIM"},
		{"--made 1x5", "LABELSxDIM"},
		{"--head nowhere", "nowhere"},
	} {
		if err := run(t.Context(), strings.Fields(c.args), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: found error %v, expected %q in it", c.args, err, c.want)
		}
	}
}
