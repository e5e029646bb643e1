package train

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

// The defaults serve contexts around 120 centres, where counts alone do not. At full
// size, with L2S_TEST_DEFAULTS=1, the layer has 50,000 labels of dimension 256, and
// there are 100,000 contexts.
func TestDefaultsServeManyCentres(t *testing.T) {
	simdtest.Long(t)
	labels, dim, n := 8000, 64, 20000
	if os.Getenv("L2S_TEST_DEFAULTS") != "" {
		labels, dim, n = 50000, 256, 100000
	}
	s := newSynthetic(t, 1, n, dim, labels, 120, 0.3)
	y, err := labelsOver(t.Context(), s.layer, s.contexts, 5, RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	run := func(change func(o *Options)) (*screening.Model, *Record) {
		o := DefaultOptions()
		o.Labels = y
		change(&o)
		m, r, err := runOver(t.Context(), s.layer, s.contexts, o)
		if err != nil {
			t.Fatal(err)
		}
		last := m.Ladder()[len(m.Ladder())-1]
		t.Logf("%q, %q: P@5 %.4f at most, on %d held-out contexts", r.Decisions, r.Warnings, last.PrecisionK.Value, r.HeldOut)
		return m, r
	}
	m, r := run(func(*Options) {})
	for _, x := range m.Ladder() {
		if x.Budget == m.Budget() && (x.PrecisionK.Value < 0.998 || len(r.Warnings) > 0) {
			t.Errorf("found P@5 %.4f with the defaults, %q, expected at least 0.998", x.PrecisionK.Value, r.Warnings)
		}
	}
	_, r = run(func(o *Options) { o.Clusters, o.Iterations, o.Geometry = 100, 0, 0 })
	if !slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.Contains(w, "no budget reaches the target") }) {
		t.Errorf("found the warnings %q by counts alone, expected contexts that are harder", r.Warnings)
	}
}
