// Package router finds the cells of contexts. A context h belongs to the cluster z(h) =
// argmax_t v_t.h (Eq. 2 of "Learning to Screen for Fast Softmax Inference on Large Vocabulary
// Neural Networks"). A cell is a part of a cluster, or lies between two of them, with
// candidates of its own: the rule stands here alone. Products are computed in the reference
// arithmetic; ties go to the lower cluster.
package router

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/learning-to-screen/l2s/internal/grow"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
)

// Config is what a Router is made of. Its slices are kept, not copied.
type Config struct {
	Dim      int       // d, at least 1
	Clusters []float32 // V: r rows of Dim elements, row-major, r >= 1
	Rule
}

// Rule says which cells there are, see screen.Config. The zero value has one for each cluster.
//
// Contexts far from the vector of their cluster have labels that are hard to foresee,
// and contexts near it do not: shells keep them apart. Contexts between two clusters
// have the labels of neither, but of the border: pairs are for them.
type Rule struct {
	// Shells are descending cosines, above -1 and below 1. Cell j r + t is for cluster t in
	// shell j.
	Shells []float64
	// Pairs are pairs of these cells, of two clusters in one shell, ascending.
	Pairs []Pair
	// PairMargin is the lead below which a context belongs to a pair: finite, not negative.
	PairMargin float64
}

// Pair is a pair of cells, First below Second.
type Pair struct{ First, Second uint32 }

// MaxShells is the largest number of cosines of Rule.Shells.
const MaxShells = 16

// Router holds the vectors of clusters and the rule. It is immutable and safe for use by
// many goroutines.
type Router struct {
	layer   *softmax.Layer // V as a layer without bias
	packed  *softmax.Packed
	lengths []float64 // ||v_t||

	r    int // the number of clusters
	rule Rule
	// The pairs of first cell t are those from starts[t] to starts[t+1]; seconds are
	// their second cells, ascending for each first one.
	starts, seconds []uint32
}

// New returns the router of c. An error names the field, what was found and what was
// expected.
func New(c Config) (*Router, error) {
	if c.Dim < 1 {
		return nil, fmt.Errorf("dim: found %d, expected at least 1", c.Dim)
	}
	if len(c.Clusters) == 0 || len(c.Clusters)%c.Dim != 0 {
		return nil, fmt.Errorf("clusters: found %d elements, expected a positive multiple of dim %d", len(c.Clusters), c.Dim)
	}
	rows := kernels.Float32Rows(c.Clusters, c.Dim)
	if i, j, found := rows.NotFinite(); found {
		return nil, fmt.Errorf("clusters: found %v at row %d, column %d, expected finite numbers", c.Clusters[i*c.Dim+j], i, j)
	}
	layer, err := softmax.NewLayer(rows, nil)
	if err != nil {
		return nil, fmt.Errorf("clusters: %w", err)
	}
	n := layer.Labels()
	r := &Router{layer: layer, r: n, lengths: make([]float64, n)}
	for t := range r.lengths {
		r.lengths[t] = length(c.Clusters[t*c.Dim : (t+1)*c.Dim])
	}
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i)
	}
	if r.packed, err = layer.Pack(ids, []int{0, n}); err != nil {
		return nil, fmt.Errorf("clusters: %w", err)
	}
	return r.With(c.Rule)
}

// With returns the router of the same vectors with another rule.
func (r *Router) With(rule Rule) (*Router, error) {
	if len(rule.Shells) > MaxShells {
		return nil, fmt.Errorf("shells: found %d cosines, expected at most %d", len(rule.Shells), MaxShells)
	}
	for i, x := range rule.Shells {
		if !(x > -1 && x < 1) || i > 0 && x >= rule.Shells[i-1] {
			return nil, fmt.Errorf("shells: found cosine %v at position %d, expected descending numbers above -1 and below 1", x, i)
		}
	}
	if x := rule.PairMargin; !(x >= 0) || math.IsInf(x, 1) || math.Signbit(x) {
		return nil, fmt.Errorf("pair margin: found %v, expected a finite number that is not negative", x)
	}
	with := *r
	with.rule, with.starts, with.seconds = rule, nil, nil
	if len(rule.Pairs) == 0 {
		return &with, nil
	}
	cells := r.r * (1 + len(rule.Shells))
	if uint64(len(rule.Pairs))+uint64(cells) > math.MaxUint32 {
		return nil, fmt.Errorf("pairs: found %d, expected at most %d", len(rule.Pairs), math.MaxUint32-uint64(cells))
	}
	with.starts, with.seconds = make([]uint32, cells+1), make([]uint32, len(rule.Pairs))
	for i, p := range rule.Pairs {
		switch {
		case p.First >= p.Second || int64(p.Second) >= int64(cells):
			return nil, fmt.Errorf("pairs: found cells %d and %d at position %d, expected two ascending below %d", p.First, p.Second, i, cells)
		case int(p.First)/r.r != int(p.Second)/r.r:
			return nil, fmt.Errorf("pairs: found cells %d and %d at position %d, expected two of one shell of %d clusters", p.First, p.Second, i, r.r)
		case i > 0 && rule.Pairs[i-1].compare(p) >= 0:
			return nil, fmt.Errorf("pairs: found cells %d and %d after %d and %d at position %d, expected ascending, distinct pairs", p.First, p.Second, rule.Pairs[i-1].First, rule.Pairs[i-1].Second, i)
		}
		with.starts[p.First+1]++
		with.seconds[i] = p.Second
	}
	for t := range cells {
		with.starts[t+1] += with.starts[t]
	}
	return &with, nil
}

func (p Pair) compare(o Pair) int {
	return cmp.Or(cmp.Compare(p.First, o.First), cmp.Compare(p.Second, o.Second))
}

func length(x []float32) float64 { return math.Sqrt(kernels.RefDot(x, x)) }

// Clusters returns r, the number of clusters.
func (r *Router) Clusters() int { return r.r }

// Dim returns the dimension of a context.
func (r *Router) Dim() int { return r.layer.Dim() }

// Cells returns the number of cells.
func (r *Router) Cells() int { return r.ClusterCells() + len(r.rule.Pairs) }

// ClusterCells returns the number of cells that are no pairs: these come behind.
func (r *Router) ClusterCells() int { return r.r * (1 + len(r.rule.Shells)) }

// ClusterOf returns the cluster that a cell is a part of, of a pair the first one.
func (r *Router) ClusterOf(cell int) int {
	if n := r.ClusterCells(); cell >= n {
		cell = int(r.rule.Pairs[cell-n].First)
	}
	return cell % r.r
}

// Vectors returns V, r x dim, row-major. It must not be changed.
func (r *Router) Vectors() []float32 {
	x, _ := r.layer.Weights().AsFloat32()
	return x
}

// Rule returns the rule. Its slices must not be changed.
func (r *Router) Rule() Rule { return r.rule }

// Found is what routing finds about a context h.
type Found struct {
	Cluster int // z(h)
	Second  int // the second best; the same if there is one cluster
	// Lead is v_z.h - v_y.h, y the second best: +Inf if there is none.
	Lead float64
	// Cosine is the cosine of h and v_z: 1 if one of them is zero.
	Cosine float64
}

// Cell returns the cell of a context. It reports false if its lead is below the margin of
// pairs, but its two clusters have no cell together, so that its cell is the cluster's.
func (r *Router) Cell(f Found) (cell int, met bool) {
	shell := 0
	for _, cut := range r.rule.Shells {
		if f.Cosine < cut {
			shell += r.r
		}
	}
	cell = shell + f.Cluster
	if r.starts == nil || !(f.Lead < r.rule.PairMargin) {
		return cell, true
	}
	a, b := min(f.Cluster, f.Second)+shell, max(f.Cluster, f.Second)+shell
	start := int(r.starts[a])
	if at, ok := slices.BinarySearch(r.seconds[start:r.starts[a+1]], uint32(b)); ok {
		return len(r.starts) - 1 + start + at, true
	}
	return cell, false
}

// Need says what is to be found beyond what the rule asks for.
type Need struct {
	Lead   bool    // Second and Lead
	Cosine bool    // Cosine; without it there may be another one in the same shell and on the same side of Floor
	Floor  float64 // -1 for none
}

// All is the need of all that Found says.
var All = Need{Lead: true, Cosine: true, Floor: -1}

// Searcher finds the clusters of contexts. It belongs to one goroutine. Its memory grows to what
// the largest search needs, and stays.
type Searcher struct {
	// What every query reads, side by side.
	r       *Router
	by      *softmax.Searcher
	req     softmax.Request // for the best two
	best    []softmax.Prediction
	answers []softmax.Answer
	one     [1]softmax.Answer
	two     [2]softmax.Prediction
}

// NewSearcher returns a searcher.
func (r *Router) NewSearcher() *Searcher {
	s := &Searcher{r: r, by: softmax.NewSearcher(r.layer), req: softmax.Request{K: min(2, r.r)}}
	s.best, s.answers = s.two[:s.req.K], s.one[:]
	if r.packed != nil {
		s.req.Among = r.packed.List(0)
	}
	return s
}

// Find writes what is needed of the contexts of the queries to dst, of their number. What neither need nor
// the rule asks for may be left out. It returns an error if a query has no context of the router's dimension.
func (s *Searcher) Find(dst []Found, qs []*softmax.Query, need Need) error {
	r, k := s.r, s.req.K
	if len(qs) == 1 && !need.Lead && !need.Cosine && r.starts == nil {
		if id, low, high, ok := s.by.Nearest(qs[0], &s.req); ok {
			dst[0] = Found{Cluster: int(id), Cosine: r.inShell(qs[0], need.Floor, id, low, high)}
			return nil
		}
	}
	if len(qs) != len(s.answers) {
		s.best, s.answers = grow.Slice(s.best, k*len(qs)), grow.Slice(s.answers, len(qs))
	}
	if err := s.by.Find(s.best, s.answers, qs, &s.req); err != nil {
		return err
	}
	for i, q := range qs {
		best := s.best[i*k : (i+1)*k]
		f := Found{Cluster: int(best[0].ID), Second: int(best[0].ID), Lead: math.Inf(1)}
		if k > 1 {
			f.Second, f.Lead = int(best[1].ID), best[0].Logit-best[1].Logit
		}
		if need.Cosine {
			f.Cosine = r.cosine(q.Vector(), best[0])
		} else {
			f.Cosine = r.inShell(q, need.Floor, best[0].ID, best[0].Logit, best[0].Logit)
		}
		dst[i] = f
	}
	return nil
}

// inShell is a cosine in the shell of the query's context, and on its side of floor. The product of the context with
// the vector of its best cluster is at least low and at most high. Most contexts are so far from the borders of shells
// that bounds of lengths and products tell, which takes no exact product.
func (r *Router) inShell(q *softmax.Query, floor float64, best uint32, low, high float64) float64 {
	if len(r.rule.Shells) == 0 && floor <= -1 {
		return 0
	}
	shortest, longest := q.Length() // or NaN
	if low < 0 {
		shortest, longest = longest, shortest
	}
	const rounding = 1e-12
	least, most := low/(r.lengths[best]*longest)-rounding, high/(r.lengths[best]*shortest)+rounding
	told := (low >= 0) == (high >= 0) && most-least < 1 && (least < floor) == (most < floor) // or NaN
	for _, cut := range r.rule.Shells {
		told = told && (least < cut) == (most < cut)
	}
	if told {
		return least
	}
	h := q.Vector()
	if low < high {
		low = kernels.RefDot(r.Vectors()[int(best)*len(h):int(best+1)*len(h)], h)
	}
	return r.cosine(h, softmax.Prediction{ID: best, Logit: low})
}

// cosine is that of h and the vector of its best cluster, with the same bits on every CPU.
func (r *Router) cosine(h []float32, best softmax.Prediction) float64 {
	lengths := r.lengths[best.ID] * length(h)
	if lengths == 0 {
		return 1
	}
	return best.Logit / lengths
}

// AddLines adds what says where the packed vectors are, some of their codes, and what one search writes.
func (s *Searcher) AddLines(l *kernels.Lines) {
	kernels.AddLines(l, math.MaxInt, unsafe.Slice(s, 1))
	kernels.AddLines(l, 1, unsafe.Slice(s.by, 1)) // says which layer is searched
	kernels.AddLines(l, math.MaxInt, unsafe.Slice(s.r, 1))
	if s.r.packed != nil {
		s.r.packed.AddLines(l)
	}
}
