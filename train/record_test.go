package train

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/files/labelfile"
)

// A record knows the contexts of its run in their order, and no others.
func TestTrainedOn(t *testing.T) {
	s := newSynthetic(t, 7, 300, 8, 60, 5, 0.3)
	_, r, err := runOver(t.Context(), s.layer, s.contexts, testOptions())
	if err != nil {
		t.Fatal(err)
	}
	others := slices.Clone(s.contexts)
	others[5]++
	broken := slices.Clone(s.contexts)
	broken[5*s.dim] = float32(math.NaN())
	for _, c := range []struct {
		name     string
		record   *Record
		contexts []float32
		dim      int
		want     bool
		fault    string
	}{
		{"all", r, s.contexts, s.dim, true, ""},
		{"half", r, s.contexts[:s.n/2*s.dim], s.dim, false, ""},
		{"another one among them", r, others, s.dim, false, ""},
		{"no record", &Record{}, s.contexts, s.dim, false, ""},
		{"no rows", r, s.contexts, 7, false, "expected rows of 7"},
		{"no dimension", r, s.contexts, 0, false, "expected rows of 0"},
		{"a NaN", r, broken, s.dim, false, "context 5: found NaN"},
	} {
		got, err := labelfile.SameContexts(t.Context(), c.contexts, c.dim, c.record.Contexts, c.record.ContextsDigest, 0)
		if got != c.want || (err != nil) != (c.fault != "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: found %v, %v, expected %v, %q", c.name, got, err, c.want, c.fault)
		}
	}
}
