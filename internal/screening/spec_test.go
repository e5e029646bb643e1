package screening_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/exact"
	"github.com/learning-to-screen/l2s/internal/kernels"
	"github.com/learning-to-screen/l2s/internal/screening"
)

// The common parts of the tests of this package: models, layers and contexts to ask, and the
// definition of the answer in plain loops.

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x736372)) }

// instance is a layer, a screen for it and contexts.
type instance struct {
	layer    *exact.Layer
	model    *screening.Model
	config   screening.Config
	contexts []float32
	n        int
}

// shape has the sizes and options of an instance.
type shape struct {
	labels, dim, clusters, contexts int
	shells                          int // cosines that cut clusters
	keep                            int // percentage of the labels in a list
	rungs                           int // budgets; 0 for a model without a ladder
	always                          int // ids in every list
	tail                            []float64
	ties                            bool
	scale                           int // every other context is times 2^scale
	seed                            uint64
}

func drawShape(t *rapid.T) shape {
	s := shape{
		labels:   rapid.IntRange(1, 90).Draw(t, "labels"),
		dim:      rapid.IntRange(1, 40).Draw(t, "dim"),
		clusters: rapid.IntRange(1, 12).Draw(t, "clusters"),
		contexts: rapid.IntRange(1, 20).Draw(t, "contexts"),
		shells:   rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "cosines of shells"),
		keep:     rapid.SampledFrom([]int{0, 5, 30, 70, 95, 100}).Draw(t, "percentage kept"),
		rungs:    rapid.IntRange(0, 5).Draw(t, "budgets"),
		ties:     rapid.Bool().Draw(t, "ties"),
		seed:     rapid.Uint64().Draw(t, "seed"),
	}
	s.always = rapid.IntRange(0, min(3, s.labels)).Draw(t, "always")
	if rapid.Bool().Draw(t, "tail") {
		s.tail = []float64{1}
	}
	return s
}

// drawHardShape also draws contexts that the envelope of the int8 search does
// not cover.
func drawHardShape(t *rapid.T) shape {
	s := drawShape(t)
	s.scale = rapid.SampledFrom([]int{0, 0, 80, -80}).Draw(t, "scale")
	return s
}

type failer interface {
	Helper()
	Fatal(...any)
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
	layer, err := exact.NewLayer(kernels.Float32Rows(fill(s.labels*s.dim), s.dim), fill(s.labels))
	if err != nil {
		t.Fatal(err)
	}
	in := &instance{layer: layer, n: s.contexts, config: screening.Config{
		Dim: s.dim, Labels: s.labels, Clusters: fill(s.clusters * s.dim), Always: s.always,
		Fingerprint: layer.Fingerprint(),
	}}
	c := &in.config
	for range s.shells {
		c.Shells = append(c.Shells, r.Float64()-0.3)
	}
	slices.Sort(c.Shells)
	slices.Reverse(c.Shells)
	cells := s.clusters * (1 + s.shells)
	always := r.Perm(s.labels)[:s.always]
	slices.Sort(always)
	plain := r.IntN(4) == 0 // lists without shares
	for range cells {
		c.Lists = append(c.Lists, s.list(r, always, plain))
	}
	budget, share := 0.0, uint16(math.MaxUint16)
	for range s.rungs {
		budget += 0.5 + 10*r.Float64()
		share = uint16(r.IntN(int(share) + 1))
		c.Ladder = append(c.Ladder, screening.Rung{Budget: budget, Share: share})
	}
	if s.rungs > 0 && r.IntN(2) == 0 {
		c.Budget = c.Ladder[r.IntN(s.rungs)].Budget
	}
	in.contexts = fill(s.contexts * s.dim)
	for i := range in.contexts {
		if i/s.dim%2 == 1 {
			in.contexts[i] = float32(math.Ldexp(float64(in.contexts[i]), s.scale))
		}
	}
	if s.tail != nil {
		c.Tail = in.newTail(t, r, s.tail)
	}
	if in.model, err = screening.NewModel(*c); err != nil {
		t.Fatal(err)
	}
	return in
}

// list returns a list of some labels with shares, many of which are equal.
func (s shape) list(r *rand.Rand, always []int, plain bool) (l screening.List) {
	type ranked struct {
		id    uint32
		share uint16
	}
	var others []ranked
	for id := range s.labels {
		if !slices.Contains(always, id) && r.IntN(100) < s.keep {
			others = append(others, ranked{uint32(id), uint16(13107 * r.IntN(6))})
		}
	}
	for _, id := range always {
		l.IDs, l.Shares = append(l.IDs, uint32(id)), append(l.Shares, math.MaxUint16)
	}
	if !plain { // else they ascend
		slices.SortStableFunc(others, func(a, b ranked) int { return int(b.share) - int(a.share) })
	}
	for _, x := range others {
		l.IDs, l.Shares = append(l.IDs, x.id), append(l.Shares, x.share)
	}
	if plain {
		l.Shares = nil
	}
	return l
}

// newTail returns a tail for the instance with random coefficients.
func (in *instance) newTail(t failer, r *rand.Rand, temperatures []float64) *screening.Tail {
	t.Helper()
	clusters := in.clusters()
	c := screening.TailConfig{
		Share: uint16(13107 * r.IntN(6)), Clusters: clusters, Temperatures: temperatures, Levels: []float64{0.5, 0.9},
	}
	normal := func(n int, scale float64) (x []float32) {
		for range n {
			x = append(x, float32(scale*r.NormFloat64()))
		}
		return x
	}
	rows := len(temperatures) * clusters
	c.Intercepts = normal(rows, 2)
	c.Slopes = normal(rows*in.config.Dim, 0.1)
	c.Directions = normal((1+r.IntN(3))*in.config.Dim, 0.3)
	c.Squares = normal(2*rows, 0.1)
	for range rows {
		w := float32(r.Float64())
		c.Widths = append(c.Widths, w, 2*w)
	}
	c.Ranges = screening.Everything(clusters, len(temperatures))
	tail, err := screening.NewTail(c)
	if err != nil {
		t.Fatal(err)
	}
	return tail
}

func (in *instance) context(i int) []float32 {
	d := in.layer.Dim()
	return in.contexts[i*d : (i+1)*d]
}

func (in *instance) searcher(t failer, o ...screening.Options) *screening.Searcher {
	t.Helper()
	s, err := screening.NewSearcher(in.model, in.layer, append(o, screening.Options{})[0])
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// clusters is r.
func (in *instance) clusters() int { return len(in.config.Clusters) / in.config.Dim }

// weights returns W, row-major.
func (in *instance) weights() []float32 {
	w, ok := kernels.AsFloat32(in.layer.Weights())
	if !ok {
		panic("the layer is not of float32")
	}
	return w
}

// found has the expected results for a context.
type found struct{ cluster, cell int }

// find finds the cell of h as Config describes.
func (in *instance) find(h []float32) (f found) {
	c, d := in.config, in.config.Dim
	score := func(t int) float64 { return kernels.RefDot(c.Clusters[t*d:(t+1)*d], h) }
	for t := range in.clusters() {
		if score(t) > score(f.cluster) {
			f.cluster = t
		}
	}
	v := c.Clusters[f.cluster*d : (f.cluster+1)*d]
	lengths, shell := math.Sqrt(kernels.RefDot(v, v))*math.Sqrt(kernels.RefDot(h, h)), 0
	for _, cut := range c.Shells {
		if lengths > 0 && score(f.cluster)/lengths < cut {
			shell += in.clusters()
		}
	}
	f.cell = shell + f.cluster
	return f
}

// atLeast is the ids of a list of at least that share.
func (in *instance) atLeast(cell int, share uint16) (ids []uint32) {
	l := in.config.Lists[cell]
	for i, id := range l.IDs {
		if l.Shares == nil || l.Shares[i] >= share {
			ids = append(ids, id)
		}
	}
	return ids
}

// settings are the settings in the options of a searcher.
type settings struct {
	overTail bool
	budget   float64 // 0: the model's
}

func drawSettings(t *rapid.T, in *instance) settings {
	return settings{budget: drawBudget(t, in)}
}

// drawBudget draws a budget that the model has, one between two, one above all, or 0.
func drawBudget(t *rapid.T, in *instance) float64 {
	if rapid.Bool().Draw(t, "no budget") {
		return 0
	}
	rung := rapid.SampledFrom(in.model.Ladder()).Draw(t, "rung")
	return rung.Budget * rapid.SampledFrom([]float64{1, 1.01, 1e9}).Draw(t, "times")
}

func (s settings) options() screening.Options {
	return screening.Options{Budget: s.budget, OverTail: s.overTail}
}

func (s settings) copied(bytes int64) screening.Options {
	o := s.options()
	o.Copies = bytes
	return o
}

// candidates are the candidates of a cell for a request with a budget, 0 for none.
func (in *instance) candidates(cell int, s settings, budget float64) []uint32 {
	if budget == 0 {
		budget = s.budget
	}
	share := uint16(0) // of a model without a ladder
	for i, rung := range in.config.Ladder {
		switch {
		case budget != 0 && rung.Budget <= budget, budget == 0 && rung.Budget == in.config.Budget:
			share = rung.Share
		case budget == 0 && in.config.Budget == 0 && i == len(in.config.Ladder)-1:
			share = rung.Share
		}
	}
	return in.atLeast(cell, share)
}

// ranked returns the ids by descending logit, ties by the lower id.
func (in *instance) ranked(h []float32, ids []uint32) []exact.Prediction {
	return in.edited(h, ids, &exact.Request{})
}

// logits are the logits of the ids, in their order.
func (in *instance) logits(h []float32, ids []uint32) (x []float64) {
	d, w := in.config.Dim, in.weights()
	for _, id := range ids {
		x = append(x, kernels.RefDot(w[int(id)*d:(int(id)+1)*d], h)+float64(in.layer.Bias()[id]))
	}
	return x
}

// edited is ranked with the edits of a request.
func (in *instance) edited(h []float32, ids []uint32, req *exact.Request) []exact.Prediction {
	p := []exact.Prediction{}
	for i, x := range in.logits(h, ids) {
		if req.Allowed != nil && !req.Allowed.Has(ids[i]) || req.Banned != nil && req.Banned.Has(ids[i]) {
			continue
		}
		for _, b := range req.Biases {
			if b.ID == ids[i] {
				x += float64(b.Add)
			}
		}
		p = append(p, exact.Prediction{ID: ids[i], Logit: x})
	}
	slices.SortStableFunc(p, func(a, b exact.Prediction) int {
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
func (in *instance) truth(h []float32, k int) []exact.Prediction {
	return in.ranked(h, allIDs(in.config.Labels))[:k]
}

// allIDs are the ids of n labels.
func allIDs(n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i)
	}
	return ids
}

// answer is the answer to a request for k labels by its definition: the labels that it is
// chosen among, by descending edited logit, and where they come from.
func (in *instance) answer(h []float32, k int, req *exact.Request, s settings) ([]exact.Prediction, exact.Source) {
	f := in.find(h)
	set := slices.Clone(in.candidates(f.cell, s, req.Budget))
	none := len(set) == 0
	for _, b := range req.Biases {
		if !slices.Contains(set, b.ID) {
			set = append(set, b.ID)
		}
	}
	among := in.edited(h, set, req)
	// Few candidates are enough if the request has a distance, unless there are none.
	lacking := len(among) < k && (req.Within == 0 || len(among) == 0)
	if none || req.Exact || lacking {
		return in.edited(h, allIDs(in.config.Labels), req), exact.FromLayer
	}
	return among, exact.FromSet
}

// common returns the number of predictions with a listed id.
func common(p []exact.Prediction, ids []uint32) int {
	n := 0
	for _, x := range p {
		if slices.Contains(ids, x.ID) {
			n++
		}
	}
	return n
}

func idsOf(p []exact.Prediction) []uint32 {
	var ids []uint32
	for _, x := range p {
		ids = append(ids, x.ID)
	}
	return ids
}

func topK(t failer, s *screening.Searcher, k int, h []float32) []exact.Prediction {
	t.Helper()
	dst := make([]exact.Prediction, k)
	n, err := s.TopK(dst, h)
	if err != nil {
		t.Fatal(err)
	}
	return dst[:n]
}

func search(t failer, s *screening.Searcher, k int, h []float32, req exact.Request) ([]exact.Prediction, exact.Answer) {
	t.Helper()
	dst := make([]exact.Prediction, k)
	a, err := s.Search(dst, h, req)
	if err != nil {
		t.Fatal(err)
	}
	return dst[:a.Count], a
}

func logProb(t failer, s *screening.Searcher, h []float32, id int) float64 {
	t.Helper()
	p, err := s.LogProb(h, uint32(id), 1)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ordinary is of moderate size and without oddities.
var ordinaryShape = shape{labels: 300, dim: 24, clusters: 9, contexts: 200, keep: 40, rungs: 4, always: 2, seed: 1}

func ordinary(t testing.TB) *instance { return ordinaryShape.instance(t) }

// shelled is ordinary with clusters that are cut into three shells, and a tail.
func shelled(t testing.TB) *instance {
	s := ordinaryShape
	s.shells, s.tail = 2, []float64{1}
	return s.instance(t)
}

// tailed is ordinary with a tail.
func tailed(t testing.TB) *instance {
	s := ordinaryShape
	s.tail = []float64{1}
	return s.instance(t)
}
