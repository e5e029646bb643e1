package train

import (
	"slices"
	"strings"
	"testing"
)

func TestAdvice(t *testing.T) {
	good := func() *Record {
		o := DefaultOptions()
		return &Record{
			Options: o, MeanCandidates: o.Budget, Precision1: 0.999, PrecisionK: 0.995,
			Unseen: &Unseen{Contexts: 5000, MeanCandidates: o.Budget, Precision1: 0.998, PrecisionK: 0.99, Deviation: 0.001},
		}
	}
	same := slices.Repeat([]Alternation{{MeanCandidates: 40, Precision1: 0.9, PrecisionK: 0.8}}, repeats)
	for _, c := range []struct {
		name   string
		change func(r *Record)
		want   []string // a part of each
	}{
		{"nothing", func(r *Record) {}, nil},
		{"training far above", func(r *Record) { r.PrecisionK, r.Unseen.PrecisionK = 1, 0.96 }, []string{"more contexts or fewer clusters help"}},
		{"and counts alone", func(r *Record) { r.PrecisionK, r.Unseen.PrecisionK, r.Options.Geometry = 1, 0.96, 0 }, []string{"sets from geometry (--geometry 20)"}},
		{"a gap within the error", func(r *Record) { r.PrecisionK, r.Unseen.PrecisionK, r.Unseen.Deviation = 0.995, 0.97, 0.02 }, []string{"are few"}},
		{"low", func(r *Record) { r.PrecisionK, r.Unseen.PrecisionK = 0.91, 0.9 }, []string{"a larger budget than 150"}},
		{"low, at the end of the counts", func(r *Record) {
			r.PrecisionK, r.Unseen.PrecisionK, r.MeanCandidates, r.Options.Geometry = 0.91, 0.9, 20, 0
		}, []string{"at their end with 20.0 of 150"}},
		{"low, with a tight bound on the sets", func(r *Record) {
			r.PrecisionK, r.Unseen.PrecisionK, r.Options.Largest = 0.91, 0.9, 165
		}, []string{"a larger bound on the sets than 165 (--largest), which is 1.1 times the budget"}},
		{"low, with a wide bound on the sets", func(r *Record) {
			r.PrecisionK, r.Unseen.PrecisionK, r.Options.Largest = 0.91, 0.9, 300
		}, []string{"a larger budget than 150"}},
		{"few held out", func(r *Record) { r.Unseen.Contexts = 100 }, []string{"100 held-out contexts are few"}},
		{"none held out", func(r *Record) { r.Unseen = nil }, []string{"no contexts were held out"}},
		{"not wanted", func(r *Record) { r.Unseen, r.Options.Measure = nil, false }, nil},
		{"not wanted, and low", func(r *Record) { r.Unseen, r.Options.Measure, r.PrecisionK = nil, false, 0.9 }, []string{"on the contexts of training"}},
		{"k-means kept", func(r *Record) { r.Alternations = make([]Alternation, 3) }, []string{"learning gained nothing"}},
		{"repeating", func(r *Record) { r.Alternations, r.Best = append([]Alternation{{}}, same...), 1 }, []string{"the last 5 alternations have the same figures"}},
	} {
		r := good()
		c.change(r)
		got := r.Advice()
		if len(got) != len(c.want) {
			t.Errorf("%s: found %q, want %d", c.name, got, len(c.want))
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(got[i], want) {
				t.Errorf("%s: found %q, want it to say %q", c.name, got[i], want)
			}
		}
	}
}

// Alternations that change nothing any more end learning.
func TestLearningStopsWhereItRepeats(t *testing.T) {
	s := newSynthetic(t, 3, 600, 6, 60, 5, 0.3)
	o := testOptions()
	o.Clusters, o.Iterations = 1, 30 // every context is of the one cluster, whatever is learned
	_, r, err := Run(t.Context(), s.layer, s.contexts, o)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(r.Alternations); n != repeats+1 && n != repeats {
		t.Errorf("found %d alternations, want it to stop after %d", n-1, repeats)
	}
	if !slices.ContainsFunc(r.Advice(), func(a string) bool { return strings.Contains(a, "have the same figures") }) {
		t.Errorf("found the advice %q, want a word of it", r.Advice())
	}
}
