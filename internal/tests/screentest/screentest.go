// Package screentest holds the common parts of the tests of screens and of their wings: models,
// layers and contexts to ask, and the definition of the answer in plain loops.
package screentest

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/ranking"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/logsum"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/search/tail"
)

func NewRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x736372)) }

// Instance is a layer, a screen for it and contexts.
type Instance struct {
	Layer    *exact.Layer
	Model    *screening.Model
	Config   screening.Config
	Contexts []float32
	N        int
}

// Shape has the sizes and options of an instance.
type Shape struct {
	Labels, Dim, Clusters, Contexts int
	Shells                          int // cosines that cut clusters
	Keep                            int // percentage of the labels in a list
	Rungs                           int // budgets; 0 for a model without a ladder
	Always                          int // ids in every list
	Tail                            []float64
	Ties                            bool
	Scale                           int // every other context is times 2^scale
	Seed                            uint64
}

// Draw draws an integer from low to high, as rapid does for a test.
type Draw func(label string, low, high int) int

func (d Draw) bool(label string) bool { return d(label, 0, 1) == 1 }

func (d Draw) seed(label string) uint64 { return uint64(d(label, 0, math.MaxInt)) }

func oneOf[T any](d Draw, label string, of ...T) T { return of[d(label, 0, len(of)-1)] }

// DrawShape draws a small shape.
func DrawShape(draw Draw) Shape {
	s := Shape{
		Labels:   draw("labels", 1, 90),
		Dim:      draw("dim", 1, 40),
		Clusters: draw("clusters", 1, 12),
		Contexts: draw("contexts", 1, 20),
		Shells:   oneOf(draw, "cosines of shells", 0, 0, 1, 2),
		Keep:     oneOf(draw, "percentage kept", 0, 5, 30, 70, 95, 100),
		Rungs:    draw("budgets", 0, 5),
		Ties:     draw.bool("ties"),
		Seed:     draw.seed("seed"),
	}
	s.Always = draw("always", 0, min(3, s.Labels))
	if draw.bool("tail") {
		s.Tail = []float64{1}
	}
	return s
}

// DrawHardShape also draws contexts that the envelope of the int8 search does
// not cover.
func DrawHardShape(draw Draw) Shape {
	s := DrawShape(draw)
	s.Scale = oneOf(draw, "scale", 0, 0, 80, -80)
	return s
}

type Failer interface {
	Helper()
	Fatal(...any)
}

// Instance makes the instance of the shape. With ties, elements are small
// integers, so that equal logits and equal clusters abound.
func (s Shape) Instance(t Failer) *Instance {
	t.Helper()
	r := NewRand(s.Seed)
	fill := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			if s.Ties {
				x[i] = float32(r.IntN(3) - 1)
			} else {
				x[i] = float32(r.NormFloat64())
			}
		}
		return x
	}
	layer, err := exact.NewLayer(kernels.Float32Rows(fill(s.Labels*s.Dim), s.Dim), fill(s.Labels))
	if err != nil {
		t.Fatal(err)
	}
	in := &Instance{Layer: layer, N: s.Contexts, Config: screening.Config{
		Dim: s.Dim, Labels: s.Labels, Clusters: fill(s.Clusters * s.Dim), Always: s.Always,
		Fingerprint: layer.Fingerprint(),
	}}
	c := &in.Config
	for range s.Shells {
		c.Shells = append(c.Shells, r.Float64()-0.3)
	}
	slices.Sort(c.Shells)
	slices.Reverse(c.Shells)
	cells := s.Clusters * (1 + s.Shells)
	always := r.Perm(s.Labels)[:s.Always]
	slices.Sort(always)
	plain := r.IntN(4) == 0 // lists without shares
	for range cells {
		c.Lists = append(c.Lists, s.list(r, always, plain))
	}
	budget, share := 0.0, uint16(math.MaxUint16)
	for range s.Rungs {
		budget += 0.5 + 10*r.Float64()
		share = uint16(r.IntN(int(share) + 1))
		c.Ladder = append(c.Ladder, screening.Rung{Budget: budget, Share: share})
	}
	if s.Rungs > 0 && r.IntN(2) == 0 {
		c.Budget = c.Ladder[r.IntN(s.Rungs)].Budget
	}
	in.Contexts = fill(s.Contexts * s.Dim)
	for i := range in.Contexts {
		if i/s.Dim%2 == 1 {
			in.Contexts[i] = float32(math.Ldexp(float64(in.Contexts[i]), s.Scale))
		}
	}
	if s.Tail != nil {
		c.Tail = in.newTail(t, r, s.Tail)
	}
	c.K = r.IntN(min(s.Labels, 8) + 1)
	if in.Model, err = screening.NewModel(*c); err != nil {
		t.Fatal(err)
	}
	return in
}

// list returns a list of some labels with shares, many of which are equal.
func (s Shape) list(r *rand.Rand, always []int, plain bool) (l screening.List) {
	type ranked struct {
		id    uint32
		share uint16
	}
	var others []ranked
	for id := range s.Labels {
		if !slices.Contains(always, id) && r.IntN(100) < s.Keep {
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
func (in *Instance) newTail(t Failer, r *rand.Rand, temperatures []float64) *tail.Tail {
	t.Helper()
	clusters := in.Clusters()
	c := tail.Config{
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
	c.Slopes = normal(rows*in.Config.Dim, 0.1)
	c.Directions = normal((1+r.IntN(3))*in.Config.Dim, 0.3)
	c.Squares = normal(2*rows, 0.1)
	for range rows {
		w := float32(r.Float64())
		c.Widths = append(c.Widths, w, 2*w)
	}
	c.Ranges, c.Cosines = Everything(clusters, len(temperatures)), AnyCosine(clusters)
	tail, err := tail.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return tail
}

func (in *Instance) Context(i int) []float32 {
	d := in.Layer.Dim()
	return in.Contexts[i*d : (i+1)*d]
}

func (in *Instance) Searcher(t Failer, o ...screening.Options) *screening.Searcher {
	t.Helper()
	s, err := screening.NewSearcher(in.Model, in.Layer, append(o, screening.Options{})[0])
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Clusters is r.
func (in *Instance) Clusters() int { return len(in.Config.Clusters) / in.Config.Dim }

// Weights returns W, row-major.
func (in *Instance) Weights() []float32 {
	w, ok := kernels.AsFloat32(in.Layer.Weights())
	if !ok {
		panic("the layer is not of float32")
	}
	return w
}

// Found has the expected results for a context.
type Found struct{ Cluster, Cell int }

// Find finds the cell of h as Config describes.
func (in *Instance) Find(h []float32) (f Found) {
	c, d := in.Config, in.Config.Dim
	score := func(t int) float64 { return kernels.RefDot(c.Clusters[t*d:(t+1)*d], h) }
	for t := range in.Clusters() {
		if score(t) > score(f.Cluster) {
			f.Cluster = t
		}
	}
	v := c.Clusters[f.Cluster*d : (f.Cluster+1)*d]
	lengths, shell := math.Sqrt(kernels.RefDot(v, v))*math.Sqrt(kernels.RefDot(h, h)), 0
	for _, cut := range c.Shells {
		if lengths > 0 && score(f.Cluster)/lengths < cut {
			shell += in.Clusters()
		}
	}
	f.Cell = shell + f.Cluster
	return f
}

// AtLeast is the ids of a list of at least that share.
func (in *Instance) AtLeast(cell int, share uint16) (ids []uint32) {
	l := in.Config.Lists[cell]
	for i, id := range l.IDs {
		if l.Shares == nil || l.Shares[i] >= share {
			ids = append(ids, id)
		}
	}
	return ids
}

// Settings are the settings in the options of a searcher.
type Settings struct {
	OverTail bool
	Budget   float64 // 0: the model's
}

func DrawSettings(draw Draw, in *Instance) Settings {
	return Settings{Budget: DrawBudget(draw, in)}
}

// DrawBudget draws a budget that the model has, one between two, one above all, or 0.
func DrawBudget(draw Draw, in *Instance) float64 {
	if draw.bool("no budget") {
		return 0
	}
	rung := oneOf(draw, "rung", in.Model.Ladder()...)
	return rung.Budget * oneOf(draw, "times", 1, 1.01, 1e9)
}

func (s Settings) Options() screening.Options {
	o := screening.Options{Budget: s.Budget}
	if s.OverTail {
		return logsum.OverTail(o)
	}
	return o
}

func (s Settings) Copied(bytes int64) screening.Options {
	o := s.Options()
	o.Copies = bytes
	return o
}

// Candidates are the candidates of a cell for a request with a budget, 0 for none.
func (in *Instance) Candidates(cell int, s Settings, budget float64) []uint32 {
	if budget == 0 {
		budget = s.Budget
	}
	share := uint16(0) // of a model without a ladder
	for i, rung := range in.Config.Ladder {
		switch {
		case budget != 0 && rung.Budget <= budget, budget == 0 && rung.Budget == in.Config.Budget:
			share = rung.Share
		case budget == 0 && in.Config.Budget == 0 && i == len(in.Config.Ladder)-1:
			share = rung.Share
		}
	}
	return in.AtLeast(cell, share)
}

// Ranked returns the ids by descending logit, ties by the lower id.
func (in *Instance) Ranked(h []float32, ids []uint32) []exact.Prediction {
	return in.Edited(h, ids, &exact.Request{})
}

// Logits are the logits of the ids, in their order.
func (in *Instance) Logits(h []float32, ids []uint32) (x []float64) {
	d, w := in.Config.Dim, in.Weights()
	for _, id := range ids {
		v := (kernels.RefDot(w[int(id)*d:(int(id)+1)*d], h) + float64(in.Layer.Bias()[id])) * in.Layer.Scale()
		if in.Layer.SoftCap() != 0 {
			v = kernels.SoftCap(v, in.Layer.SoftCap())
		}
		x = append(x, v)
	}
	return x
}

// Finish gives the layer a scale and a soft cap: none, in half of the draws.
func (in *Instance) Finish(draw Draw) error {
	finals := [][2]float64{{1, 0}, {1, 0}, {1, 0}, {0.125, 0}, {3, 0}, {1, 5}}
	final := finals[draw("scale and cap", 0, len(finals)-1)]
	var err error
	in.Layer, err = in.Layer.Scaled(final[0], final[1])
	return err
}

// Edited is ranked with the edits of a request.
func (in *Instance) Edited(h []float32, ids []uint32, req *exact.Request) []exact.Prediction {
	p := []exact.Prediction{}
	for i, x := range in.Logits(h, ids) {
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

// Truth returns the k best of all labels.
func (in *Instance) Truth(h []float32, k int) []exact.Prediction {
	return in.Ranked(h, AllIDs(in.Config.Labels))[:k]
}

// AllIDs are the ids of n labels.
func AllIDs(n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i)
	}
	return ids
}

// Answer is the answer to a request for k labels by its definition: the labels that it is
// chosen among, by descending edited logit, and where they come from.
func (in *Instance) Answer(h []float32, k int, req *exact.Request, s Settings) ([]exact.Prediction, exact.Source) {
	all := func() ([]exact.Prediction, exact.Source) {
		return in.Edited(h, AllIDs(in.Config.Labels), req), exact.FromLayer
	}
	set := slices.Clone(in.Candidates(in.Find(h).Cell, s, req.Budget))
	if len(set) == 0 || req.Exact {
		return all()
	}
	own := len(set)
	for _, id := range req.Also {
		if !slices.Contains(set, id) {
			set = append(set, id)
		}
	}
	with := slices.Clone(set)
	for _, b := range req.Biases {
		if !slices.Contains(set, b.ID) {
			with = append(with, b.ID)
		}
	}
	among, plain := in.Edited(h, with, req), in.Ranked(h, set)
	count := min(k, len(among)) // of the labels that the answer has
	for req.Within > 0 && count > 0 && among[count-1].Logit < among[0].Logit-req.Within {
		count--
	}
	switch {
	case len(among) == 0, k > 0 && count == 0:
		return all()
	case count == k: // the last one is none after the k best candidates
		if k > 0 && (k > own || ranking.Compare(among[k-1], plain[k-1]) > 0) {
			return all()
		}
	case req.Within == 0 || count >= min(own, in.Config.K):
		return all()
	case plain[count].Logit >= among[0].Logit-req.Within: // one more is within the distance
		return all()
	}
	return among, exact.FromSet
}

// Common returns the number of predictions with a listed id.
func Common(p []exact.Prediction, ids []uint32) int {
	n := 0
	for _, x := range p {
		if slices.Contains(ids, x.ID) {
			n++
		}
	}
	return n
}

func IDsOf(p []exact.Prediction) []uint32 {
	var ids []uint32
	for _, x := range p {
		ids = append(ids, x.ID)
	}
	return ids
}

func TopK(t Failer, s *screening.Searcher, k int, h []float32) []exact.Prediction {
	t.Helper()
	dst := make([]exact.Prediction, k)
	n, err := s.TopK(dst, h)
	if err != nil {
		t.Fatal(err)
	}
	return dst[:n]
}

func Search(t Failer, s *screening.Searcher, k int, h []float32, req exact.Request) ([]exact.Prediction, exact.Answer) {
	t.Helper()
	dst := make([]exact.Prediction, k)
	a, err := s.Search(dst, h, req)
	if err != nil {
		t.Fatal(err)
	}
	return dst[:a.Count], a
}

func LogProb(t Failer, s *screening.Searcher, h []float32, id int) float64 {
	t.Helper()
	p, err := logsum.LogProb(s, h, uint32(id), 1)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Ordinary is of moderate size and without oddities.
var ordinaryShape = Shape{Labels: 300, Dim: 24, Clusters: 9, Contexts: 200, Keep: 40, Rungs: 4, Always: 2, Seed: 1}

func Ordinary(t testing.TB) *Instance { return ordinaryShape.Instance(t) }

// Shelled is ordinary with clusters that are cut into three shells, and a tail.
func Shelled(t testing.TB) *Instance {
	s := ordinaryShape
	s.Shells, s.Tail = 2, []float64{1}
	return s.Instance(t)
}

// Tailed is ordinary with a tail.
func Tailed(t testing.TB) *Instance {
	s := ordinaryShape
	s.Tail = []float64{1}
	return s.Instance(t)
}

// DrawRequest draws a request for the k best labels of the instance's layer.
func DrawRequest(draw Draw, in *Instance) (k int, req exact.Request) {
	n := in.Config.Labels
	r := NewRand(draw.seed("request seed"))
	req.LogSum = draw.bool("log-sum")
	if k = draw("k", 1, n); req.LogSum && r.IntN(4) == 0 {
		k = 0
	}
	set := func(name string) *bitset.Set {
		s, percent := bitset.New(n), oneOf(draw, name, 0, 5, 50, 95, 100)
		for id := range n {
			if r.IntN(100) < percent {
				s.Add(uint32(id))
			}
		}
		return s
	}
	if draw.bool("with allowed labels") {
		req.Allowed = set("allowed")
	}
	if draw.bool("with banned labels") {
		req.Banned = set("banned")
	}
	if draw.bool("with biases") {
		scale := oneOf(draw, "scale of the biases", 1e-3, 1, 100, 1e30)
		for id := range set("biased").All() {
			req.Biases = append(req.Biases, exact.Bias{ID: id, Add: float32(max(-1, min(1, r.NormFloat64())) * scale)})
		}
	}
	if draw.bool("with other labels") {
		for range r.IntN(2 * n) {
			req.Also = append(req.Also, uint32(r.IntN(n)))
		}
	}
	req.Budget, req.Exact = DrawBudget(draw, in), r.IntN(8) == 0
	req.Within = oneOf(draw, "within", 0, 0, 0.5, math.MaxFloat64)
	return k, req
}
