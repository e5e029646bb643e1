package train

import (
	"testing"

	"pgregory.net/rapid"
)

func TestClustersFor(t *testing.T) {
	for _, c := range []struct {
		name                       string
		contexts, groups, clusters int
	}{
		{"one context", 1, 0, 1},
		{"a few", 550, 0, 5},
		{"the most on one level", 19999, 0, 128},
		{"the least on two", 20000, 16, 16},
		{"in between", 48000, 22, 22},
		{"100,000", 100000, 32, 32},
		{"more than serve", 929589, 32, 32},
	} {
		if groups, clusters := ClustersFor(c.contexts); groups != c.groups || clusters != c.clusters {
			t.Errorf("%s: found %d and %d, expected %d and %d", c.name, groups, clusters, c.groups, c.clusters)
		}
	}
}

func TestLearningServesClustersOfManyContexts(t *testing.T) {
	for _, c := range []struct {
		name               string
		contexts, clusters int
		want               bool
	}{
		{"a language model of 48,000 contexts", 48000, 22 * 22, false},
		{"PTB-Small, the first 100,000", 100000, 32 * 32, false},
		{"the same on 100 clusters", 100000, 100, true},
		{"PTB-Small", 929589, 32 * 32, true},
		{"one context", 1, 1, false},
	} {
		if got := LearningServes(c.contexts, c.clusters); got != c.want {
			t.Errorf("%s: found %v, expected %v", c.name, got, c.want)
		}
	}
}

func TestBudgetFor(t *testing.T) {
	for _, c := range []struct {
		name          string
		labels, least int
		want          float64
	}{
		{"PTB-Small", 10000, 5, 150},
		{"50,000 labels", 50000, 5, 340},
		{"a large vocabulary", 262144, 5, 770},
		{"a tiny layer", 30, 5, 9},
		{"fewer labels than k would have", 3, 3, 3},
		{"many ids always included", 100, 60, 60},
	} {
		if got := BudgetFor(c.labels, c.least); got != c.want {
			t.Errorf("%s: found %v, expected %v", c.name, got, c.want)
		}
	}
}

// Whatever the layer and the contexts, the defaults are options that a run takes.
func TestDefaultsForAnyLayerAreInRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		labels, n := rapid.IntRange(1, 1<<20).Draw(t, "labels"), rapid.IntRange(1, 1<<21).Draw(t, "contexts")
		o := DefaultOptions()
		o.K = min(o.K, labels)
		o.Budget = BudgetFor(labels, o.K)
		if groups, clusters := ClustersFor(n); groups > 0 {
			o.SetLevels(groups, clusters)
		} else {
			o.Clusters = clusters
		}
		if err := o.check(n, labels, 8, nil); err != nil {
			t.Fatal(err)
		}
		if o.Budget > float64(labels) {
			t.Fatalf("found a budget of %v for %d labels", o.Budget, labels)
		}
	})
}
