package screen_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// What the tests of this package share: models, layers and contexts to ask,
// and the definition of the answer in plain loops.

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x736372)) }

// instance is a layer, a screen for it and contexts.
type instance struct {
	layer    *softmax.Layer
	model    *screen.Model
	config   screen.Config
	contexts []float32
	n        int
}

// shape says what an instance is like.
type shape struct {
	labels, dim, clusters, contexts int
	groups                          int     // 0: a flat screen; at most clusters
	overlap                         bool    // groups have lists of clusters
	probe, exact                    float64 // margins
	shells                          int     // cosines that cut clusters
	paired                          int     // percentage of the pairs of clusters that have sets
	keep                            int     // percentage of the labels in a set
	ties                            bool
	scale                           int // every other context is times 2^scale
	always                          []uint32
	seed                            uint64
}

func drawShape(t *rapid.T) shape {
	s := shape{
		labels:   rapid.IntRange(1, 90).Draw(t, "labels"),
		dim:      rapid.IntRange(1, 40).Draw(t, "dim"),
		clusters: rapid.IntRange(1, 12).Draw(t, "clusters"),
		contexts: rapid.IntRange(1, 20).Draw(t, "contexts"),
		keep:     rapid.SampledFrom([]int{0, 5, 30, 70, 95, 100}).Draw(t, "percentage kept"),
		ties:     rapid.Bool().Draw(t, "ties"),
		seed:     rapid.Uint64().Draw(t, "seed"),
	}
	if rapid.Bool().Draw(t, "two levels") {
		s.groups = rapid.IntRange(1, s.clusters).Draw(t, "groups")
		s.overlap = rapid.Bool().Draw(t, "overlap")
	}
	if rapid.Bool().Draw(t, "margins") {
		leads := []float64{0, 0.5, 2.5, 1e300}
		s.probe = rapid.SampledFrom(leads).Draw(t, "probe margin")
		s.exact = rapid.SampledFrom(leads).Draw(t, "exact margin")
		s.paired = rapid.SampledFrom([]int{0, 40, 100}).Draw(t, "percentage of pairs")
	}
	s.shells = rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "cosines of shells")
	s.always = rapid.SliceOfN(rapid.Uint32Range(0, uint32(s.labels-1)), 0, 3).Draw(t, "always")
	return s
}

type failer interface {
	Helper()
	Fatal(...any)
}

// drawHardShape also draws contexts that the envelope of the int8 search does
// not cover.
func drawHardShape(t *rapid.T) shape {
	s := drawShape(t)
	s.scale = rapid.SampledFrom([]int{0, 0, 80, -80}).Draw(t, "scale")
	return s
}

// instance makes the instance of the shape. With ties, elements are small
// integers, so that equal logits and equal clusters abound.
func (s shape) instance(t failer) *instance {
	t.Helper()
	r := newRand(s.seed)
	fill := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			if s.ties {
				x[i] = float32(r.IntN(3) - 1)
			} else {
				x[i] = float32(r.NormFloat64())
			}
		}
		return x
	}
	layer, err := softmax.NewLayer(kernels.Float32Rows(fill(s.labels*s.dim), s.dim), fill(s.labels))
	if err != nil {
		t.Fatal(err)
	}
	sets := make([][]uint32, s.clusters*(1+s.shells))
	for c := range sets {
		for id := range s.labels {
			if r.IntN(100) < s.keep {
				sets[c] = append(sets[c], uint32(id))
			}
		}
	}
	in := &instance{layer: layer, n: s.contexts, config: screen.Config{
		Dim: s.dim, Labels: s.labels, Clusters: fill(s.clusters * s.dim), Sets: sets, Always: s.always,
		Fingerprint: layer.Fingerprint(), ProbeMargin: s.probe, ExactMargin: s.exact,
	}}
	for range s.shells {
		in.config.Shells = append(in.config.Shells, r.Float64()-0.3)
	}
	slices.Sort(in.config.Shells)
	slices.Reverse(in.config.Shells)
	if s.groups > 0 {
		in.config.Groups = fill(s.groups * s.dim)
		in.config.GroupSizes = make([]int, s.groups)
	}
	for a := range in.config.GroupSizes {
		if !s.overlap {
			break
		}
		// Each group has a cluster of its own choice, and any of the others.
		own := r.IntN(s.clusters)
		for c := range s.clusters {
			if c == own || r.IntN(3) == 0 {
				in.config.GroupSizes[a]++
				in.config.GroupClusters = append(in.config.GroupClusters, uint32(c))
			}
		}
	}
	if s.groups > 0 && !s.overlap {
		// Ragged: each group has a cluster, the others go anywhere.
		for c := range s.clusters {
			if c >= s.groups {
				c = r.IntN(s.groups)
			}
			in.config.GroupSizes[c]++
		}
	}
	in.contexts = fill(s.contexts * s.dim)
	for i := range in.contexts {
		if i/s.dim%2 == 1 {
			in.contexts[i] = float32(math.Ldexp(float64(in.contexts[i]), s.scale))
		}
	}
	for second := range sets {
		for first := range second {
			if first/s.clusters != second/s.clusters || r.IntN(100) >= s.paired {
				continue
			}
			p := screen.Pair{First: first, Second: second}
			for id := range s.labels {
				if r.IntN(100) < s.keep {
					p.Set = append(p.Set, uint32(id))
				}
			}
			in.config.Pairs = append(in.config.Pairs, p)
		}
	}
	slices.SortFunc(in.config.Pairs, func(a, b screen.Pair) int {
		return cmp.Or(a.First-b.First, a.Second-b.Second)
	})
	if in.model, err = screen.NewModel(in.config); err != nil {
		t.Fatal(err)
	}
	return in
}

func (in *instance) context(i int) []float32 {
	d := in.config.Dim
	return in.contexts[i*d : (i+1)*d]
}

func (in *instance) searcher(t failer, opts ...screen.Option) *screen.Searcher {
	t.Helper()
	s, err := screen.NewSearcher(in.model, in.layer, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// cluster is z(h): the largest v_t.h, the lowest of equals; with groups, among
// the clusters of the group of the largest u_a.h.
func (in *instance) cluster(h []float32) int {
	return in.find(h).cluster
}

// found is what routing is to find out about a context.
type found struct {
	cluster     int
	set         []uint32
	joined      []uint32 // the sets of its one cluster, or of its two, in shell 0
	rows        int      // scanned to find the set
	both, exact bool
}

// find routes h as Config and Stats say.
func (in *instance) find(h []float32) found {
	cluster, second, lead, rows := in.route(h)
	shell := in.clusters() * in.shell(h, cluster)
	f := found{cluster: cluster, set: in.candidates(shell + cluster), rows: rows}
	if second >= 0 {
		f.exact = lead < in.config.ExactMargin
		f.both = lead < in.config.ProbeMargin && !f.exact
	}
	f.joined = in.candidates(cluster)
	if f.both {
		union := func(a, b int) []uint32 {
			ids := append(slices.Clone(in.candidates(a)), in.candidates(b)...)
			slices.Sort(ids)
			return slices.Compact(ids)
		}
		f.joined, f.set = union(cluster, second), union(shell+cluster, shell+second)
	}
	for _, p := range in.config.Pairs {
		if f.both && p.First == shell+min(cluster, second) && p.Second == shell+max(cluster, second) {
			f.set = in.always(p.Set)
		}
	}
	return f
}

// clusters is r.
func (in *instance) clusters() int { return len(in.config.Clusters) / in.config.Dim }

// shell is how many of the cosines that cut clusters are above the one of h and its
// cluster. A zero vector has the cosine 1.
func (in *instance) shell(h []float32, cluster int) (n int) {
	d := in.config.Dim
	v := in.config.Clusters[cluster*d : (cluster+1)*d]
	lengths := math.Sqrt(kernels.RefDot(v, v)) * math.Sqrt(kernels.RefDot(h, h))
	for _, cut := range in.config.Shells {
		if lengths > 0 && kernels.RefDot(v, h)/lengths < cut {
			n++
		}
	}
	return n
}

// route returns the cluster of h, the second best, -1 if there is no other, the
// lead of the first, and the number of rows scanned for them.
func (in *instance) route(h []float32) (cluster, second int, lead float64, rows int) {
	d := in.config.Dim
	// The two best of some of the rows.
	two := func(rows []float32, some []uint32) (best, second int, lead float64) {
		best, second = int(some[0]), -1
		score := func(t int) float64 { return kernels.RefDot(rows[t*d:(t+1)*d], h) }
		for _, id := range some[1:] {
			t := int(id)
			switch {
			case score(t) > score(best):
				best, second = t, best
			case second < 0 || score(t) > score(second):
				second = t
			}
		}
		if second >= 0 {
			lead = score(best) - score(second)
		}
		return best, second, lead
	}
	sizes, lists := in.config.GroupSizes, in.config.GroupClusters
	if lists == nil {
		lists = numbered(in.clusters())
	}
	if sizes == nil {
		cluster, second, lead = two(in.config.Clusters, lists)
		return cluster, second, lead, len(lists)
	}
	group, _, _ := two(in.config.Groups, numbered(len(sizes)))
	first := 0
	for _, size := range sizes[:group] {
		first += size
	}
	cluster, second, lead = two(in.config.Clusters, lists[first:first+sizes[group]])
	return cluster, second, lead, len(sizes) + sizes[group]
}

// numbered are the numbers below n.
func numbered(n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i)
	}
	return ids
}

// candidates is the set of cluster or cell t as the configuration gives it.
func (in *instance) candidates(t int) []uint32 { return in.always(in.config.Sets[t]) }

// always is a set with the ids that are in every one.
func (in *instance) always(set []uint32) []uint32 {
	ids := append(slices.Clone(set), in.config.Always...)
	slices.Sort(ids)
	return slices.Compact(ids)
}

// weights returns W, row-major.
func (in *instance) weights() []float32 {
	w, ok := in.layer.Weights().AsFloat32()
	if !ok {
		panic("the layer is not of float32")
	}
	return w
}

// ranked returns the ids by descending logit, ties by the lower id.
func (in *instance) ranked(h []float32, ids []uint32) []softmax.Prediction {
	return in.edited(h, ids, &softmax.Request{})
}

// edited is ranked with the edits of a request.
func (in *instance) edited(h []float32, ids []uint32, req *softmax.Request) []softmax.Prediction {
	d, w := in.config.Dim, in.weights()
	p := []softmax.Prediction{}
	for _, id := range ids {
		if req.Allowed != nil && !req.Allowed.Has(id) || req.Banned != nil && req.Banned.Has(id) {
			continue
		}
		logit := kernels.RefDot(w[int(id)*d:(int(id)+1)*d], h) + float64(in.layer.Bias()[id])
		for _, b := range req.Biases {
			if b.ID == id {
				logit += float64(b.Add)
			}
		}
		p = append(p, softmax.Prediction{ID: id, Logit: logit})
	}
	slices.SortStableFunc(p, func(a, b softmax.Prediction) int {
		switch {
		case a.Logit > b.Logit:
			return -1
		case a.Logit < b.Logit:
			return 1
		}
		return int(a.ID) - int(b.ID)
	})
	return p
}

// truth returns the k best of all labels.
func (in *instance) truth(h []float32, k int) []softmax.Prediction {
	return in.ranked(h, in.all())[:k]
}

// all are the ids of all labels.
func (in *instance) all() []uint32 {
	all := make([]uint32, in.config.Labels)
	for i := range all {
		all[i] = uint32(i)
	}
	return all
}

// answer is the answer to a request by its definition: the labels that it is
// chosen among, by descending edited logit, and where they come from.
func (in *instance) answer(h []float32, req *softmax.Request, short bool) ([]softmax.Prediction, softmax.Source) {
	f := in.find(h)
	set, source := slices.Clone(f.set), softmax.FromSet
	if f.both {
		source = softmax.FromTwoSets
	}
	for _, b := range req.Biases {
		if !slices.Contains(set, b.ID) {
			set = append(set, b.ID)
		}
	}
	among := in.edited(h, set, req)
	if f.exact || len(among) < req.K && !short {
		return in.edited(h, in.all(), req), softmax.FromLayer
	}
	return among, source
}

// common returns how many of the predictions have an id that is listed.
func common(p []softmax.Prediction, ids []uint32) int {
	n := 0
	for _, x := range p {
		if slices.Contains(ids, x.ID) {
			n++
		}
	}
	return n
}

func idsOf(p []softmax.Prediction) []uint32 {
	var ids []uint32
	for _, x := range p {
		ids = append(ids, x.ID)
	}
	return ids
}

func topK(t failer, s *screen.Searcher, k int, h []float32) []softmax.Prediction {
	t.Helper()
	dst := make([]softmax.Prediction, k)
	n, err := s.TopK(dst, h)
	if err != nil {
		t.Fatal(err)
	}
	return dst[:n]
}

// ordinary is an instance of moderate size without oddities.
func ordinary(t testing.TB) *instance {
	return shape{labels: 300, dim: 24, clusters: 9, contexts: 200, keep: 20, seed: 1, always: []uint32{7, 299}}.instance(t)
}

// grouped is ordinary with 36 clusters on two levels.
func grouped(t testing.TB) *instance {
	return shape{labels: 300, dim: 24, clusters: 36, groups: 6, contexts: 200, keep: 20, seed: 1, always: []uint32{7, 299}}.instance(t)
}

// tailed is ordinary with a regression of the tail.
func tailed(t testing.TB) *instance {
	return shape{labels: 300, dim: 24, clusters: 9, contexts: 200, keep: 20, seed: 1}.instance(t).withRegression(t)
}

// probing is ordinary with margins that some contexts are below.
func probing(t testing.TB) *instance {
	return shape{labels: 300, dim: 24, clusters: 9, contexts: 200, keep: 20, probe: 3, exact: 0.5, seed: 1}.instance(t)
}

// shelled is paired with clusters that are cut into three shells.
func shelled(t testing.TB) *instance {
	return shape{labels: 300, dim: 24, clusters: 9, contexts: 200, keep: 20, shells: 2, probe: 3, exact: 0.5, paired: 80, seed: 1}.instance(t)
}

// paired is probing with sets for most pairs.
func paired(t testing.TB) *instance {
	return shape{labels: 300, dim: 24, clusters: 9, contexts: 200, keep: 20, probe: 3, exact: 0.5, paired: 80, seed: 1}.instance(t)
}
