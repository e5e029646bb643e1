package train

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/simdtest"
)

// The defaults serve contexts around 400 centres: the clusters and the budget that go by
// the contexts and the labels, where 100 clusters and 150 candidates do not. At full
// size, with L2S_TEST_DEFAULTS=1, the layer has 50,000 labels of dimension 256, and
// there are 100,000 contexts.
func TestDefaultsServeManyCentres(t *testing.T) {
	if simdtest.Race {
		t.Skip("not under the race detector: smaller runs have the same concurrency")
	}
	labels, dim, n := 8000, 64, 20000
	if os.Getenv("L2S_TEST_DEFAULTS") != "" {
		labels, dim, n = 50000, 256, 100000
	}
	s := newSynthetic(t, 1, n, dim, labels, 400, 0.3)
	y, err := Labels(t.Context(), s.layer, s.contexts, 5, LabelOptions{})
	if err != nil {
		t.Fatal(err)
	}
	run := func(change func(o *Options)) *Record {
		o := DefaultOptions()
		o.Labels = y
		change(&o)
		_, r, err := Run(t.Context(), s.layer, s.contexts, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d clusters in %d groups, budget %v: P@1 %.4f P@5 %.4f on %d held-out contexts, %.1f candidates; %q",
			o.Clusters, o.Groups, o.Budget, r.Unseen.Precision1, r.Unseen.PrecisionK, r.Unseen.Contexts, r.Unseen.MeanCandidates, r.Advice())
		return r
	}
	byShape := func(o *Options) {
		if groups, clusters := ClustersFor(n); groups > 0 {
			o.SetLevels(groups, clusters)
		} else {
			o.Clusters = clusters
		}
		o.Budget, o.KMeansOnly = BudgetFor(labels, o.K), !LearningServes(n, o.Clusters)
	}
	if r := run(byShape); r.Unseen.PrecisionK < 0.95 {
		t.Errorf("found P@5 %.4f with the defaults, expected at least 0.95", r.Unseen.PrecisionK)
	}
	counts := run(func(o *Options) { o.KMeansOnly, o.Geometry, o.Budget = true, 0, 100 })
	if counts.Unseen.PrecisionK >= 0.95 {
		t.Errorf("found P@5 %.4f with 100 clusters and 100 candidates by counts, expected contexts that are harder", counts.Unseen.PrecisionK)
	}
	if !slices.ContainsFunc(counts.Advice(), func(a string) bool { return strings.Contains(a, "a larger budget than 100, or more clusters, helps") }) {
		t.Errorf("found the advice %q, expected it to name what to do", counts.Advice())
	}
}
