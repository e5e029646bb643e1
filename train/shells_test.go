package train

import (
	"math/rand/v2"
	"testing"

	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

// Contexts far from their cluster have labels that are hard to foresee. Shells give them
// longer lists, and find more at the same number of candidates.
func TestShellsFindMore(t *testing.T) {
	simdtest.Long(t)
	// Every fourth context is far from its centre.
	scattered := func(n int, seed uint64) synthetic {
		s := clustersOf(t, n, seed)
		r := rand.New(rand.NewPCG(seed, 3))
		for i := 0; i < n; i += 4 {
			for j := range s.dim {
				s.contexts[i*s.dim+j] += float32(1.5 * r.NormFloat64())
			}
		}
		return s
	}
	seen, other := scattered(4000, 1), scattered(4000, 2)
	o := testOptions()
	o.Clusters, o.Budget, o.Iterations = 6, 60, 0
	run := func(o Options) (p, candidates float64) {
		m, _, err := runOver(t.Context(), seen.layer, seen.contexts, o)
		if err != nil {
			t.Fatal(err)
		}
		p, candidates = precisionOf(t, m, other, o.K, o.Budget)
		return p, candidates
	}
	one, rows := run(o)
	o.Shells = []float64{0.25}
	cut, cutRows := run(o)
	if missed, before := 1-cut, 1-one; missed > 0.8*before || cutRows > 1.05*rows {
		t.Errorf("P@5 %.4f at %.1f candidates, without shells %.4f at %.1f: want fewer missed at equally many", cut, cutRows, one, rows)
	}
}
