package train

import "testing"

// More of anything is more work.
func TestWorkGrowsWithWhatIsAsked(t *testing.T) {
	const contexts, labels, dim = 50000, 30000, 200
	base := func(o *Options) {
		o.SetLevels(10, 10)
		o.KMeansOnly, o.Spread, o.Geometry, o.Iterations = true, 0, 0, 5
	}
	for _, c := range []struct {
		name                  string
		contexts, labels, dim int
		change                func(o *Options)
	}{
		{"contexts", 2 * contexts, labels, dim, func(o *Options) {}},
		{"dimensions", contexts, labels, 2 * dim, func(o *Options) {}},
		{"clusters", contexts, labels, dim, func(o *Options) { o.Clusters = 200 }},
		{"one level", contexts, labels, dim, func(o *Options) { o.Groups = 0 }},
		{"groups that overlap", contexts, labels, dim, func(o *Options) { o.Overlap = 1 }},
		{"learning", contexts, labels, dim, func(o *Options) { o.KMeansOnly = false }},
		{"spread", contexts, labels, dim, func(o *Options) { o.Spread = 0.3 }},
		{"a second probe", contexts, labels, dim, func(o *Options) { o.ProbeShare = 0.5 }},
		{"geometry", contexts, labels, dim, func(o *Options) { o.Geometry = 20 }},
	} {
		less, more := DefaultOptions(), DefaultOptions()
		base(&less)
		base(&more)
		c.change(&more)
		if a, b := less.Work(contexts, labels, dim), more.Work(c.contexts, c.labels, c.dim); a <= 0 || b <= a {
			t.Errorf("%s: found %v after %v, expected more", c.name, b, a)
		}
	}
	o := DefaultOptions()
	few, many := o.Work(contexts, labels, dim), o.Work(contexts, 2*labels, dim)
	o.Shells = []float64{0.4, 0.1}
	if shelled := o.Work(contexts, labels, dim); shelled <= few {
		t.Errorf("found %v with shells after %v, expected more", shelled, few)
	}
	o.Shells, o.Measure = nil, false
	if once := o.Work(contexts, labels, dim); many <= few || once >= few {
		t.Errorf("found %v with geometry, %v for twice the labels and %v without held-out figures, expected more and less", few, many, once)
	}
}
