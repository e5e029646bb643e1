// Package router finds the cells of contexts. A context h belongs to the cluster z(h) =
// argmax_t v_t.h (Eq. 2 of "Learning to Screen for Fast Softmax Inference on Large Vocabulary
// Neural Networks"). A cell is a shell of a cluster, with candidates of its own: only this package
// knows the rule. Products are computed in the reference arithmetic; ties go to the lower cluster.
package router

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// MaxShells is the largest number of cosines of shells.
const MaxShells = 16

// Router holds the vectors of clusters and the cosines of shells. It is immutable and safe for use
// by many goroutines.
//
// Contexts far from the vector of their cluster have labels that are hard to foresee, and contexts
// near it do not: shells keep them apart. Cell j r + t is for cluster t in shell j. Without
// cosines each cluster is a cell.
type Router struct {
	layer   *exact.Layer // V as a layer without bias
	packed  *exact.Packed
	lengths []float64 // ||v_t||

	r      int // the number of clusters
	shells []float64
}

// New returns the router of V, r rows of dim elements, row-major, r >= 1, and of descending cosines,
// above -1 and below 1. It keeps both slices. An error names the field, the value found and the
// value expected.
func New(dim int, clusters []float32, shells []float64) (*Router, error) {
	if dim < 1 {
		return nil, fmt.Errorf("dim: found %d, expected at least 1", dim)
	}
	if len(clusters) == 0 || len(clusters)%dim != 0 {
		return nil, fmt.Errorf("clusters: found %d elements, expected a positive multiple of dim %d", len(clusters), dim)
	}
	rows := kernels.Float32Rows(clusters, dim)
	if i, j, found := kernels.FirstNotFinite(rows); found {
		return nil, fmt.Errorf("clusters: found %v at row %d, column %d, expected finite numbers", clusters[i*dim+j], i, j)
	}
	layer, err := exact.NewLayer(rows, nil)
	if err != nil {
		return nil, fmt.Errorf("clusters: %w", err)
	}
	n := layer.Labels()
	r := &Router{layer: layer, r: n, lengths: make([]float64, n)}
	ids := make([]uint32, n)
	for t := range ids {
		ids[t], r.lengths[t] = uint32(t), length(clusters[t*dim:(t+1)*dim])
	}
	if r.packed, err = layer.Pack(ids, []int{0, n}); err != nil {
		return nil, fmt.Errorf("clusters: %w", err)
	}
	return r.With(shells)
}

// With returns the router of the same vectors with other shells.
func (r *Router) With(shells []float64) (*Router, error) {
	if len(shells) > MaxShells {
		return nil, fmt.Errorf("shells: found %d cosines, expected at most %d", len(shells), MaxShells)
	}
	for i, x := range shells {
		if !(x > -1 && x < 1) || i > 0 && x >= shells[i-1] {
			return nil, fmt.Errorf("shells: found cosine %v at position %d, expected descending numbers above -1 and below 1", x, i)
		}
	}
	with := *r
	with.shells = shells
	return &with, nil
}

func length(x []float32) float64 { return math.Sqrt(kernels.RefDot(x, x)) }

// Clusters returns r, the number of clusters.
func (r *Router) Clusters() int { return r.r }

// Cells returns the number of cells.
func (r *Router) Cells() int { return r.r * (1 + len(r.shells)) }

// ClusterOf returns the cluster that a cell is a part of.
func (r *Router) ClusterOf(cell int) int { return cell % r.r }

// Vectors returns V, r x dim, row-major. It must not be changed.
func (r *Router) Vectors() []float32 {
	x, _ := kernels.AsFloat32(r.layer.Weights())
	return x
}

// Shells returns the cosines of shells. They must not be changed.
func (r *Router) Shells() []float64 { return r.shells }

// Found is the result of routing a context h.
type Found struct {
	Cluster int // z(h)
	// Cosine is the cosine of h and v_z: 1 if one of them is zero.
	Cosine float64
}

// Cell returns the cell of a context.
func (r *Router) Cell(f Found) int {
	cell := f.Cluster
	for _, end := range r.shells {
		if f.Cosine < end {
			cell += r.r
		}
	}
	return cell
}

// Searcher finds the clusters of contexts. It belongs to one goroutine. Its memory grows to the
// need of the largest search, and stays.
type Searcher struct {
	// The fields that every query reads, next to each other.
	r       *Router
	by      *exact.Searcher
	req     exact.Request // of the list of all clusters
	best    []exact.Prediction
	answers []exact.Answer
	one     [1]exact.Answer
	first   [1]exact.Prediction
}

// NewSearcher returns a searcher.
func (r *Router) NewSearcher() *Searcher {
	s := &Searcher{r: r, by: exact.NewSearcher(r.layer)}
	s.best, s.answers = s.first[:], s.one[:]
	if r.packed != nil {
		s.req.Among = r.packed.List(0)
	}
	return s
}

// Find writes the results for the contexts of the queries to dst, which has an element per query.
// Unless cosine is true, Found.Cosine may be another one of the same shell, which takes less time.
// Find returns an error if a query has no context of the router's dimension.
func (s *Searcher) Find(dst []Found, qs []*exact.Query, cosine bool) error {
	r := s.r
	if len(qs) == 1 && !cosine {
		if id, low, high, ok := s.by.Nearest(qs[0], &s.req); ok {
			dst[0] = Found{Cluster: int(id), Cosine: r.inShell(qs[0], id, low, high)}
			return nil
		}
	}
	if len(qs) != len(s.answers) {
		s.best, s.answers = mem.Grow(s.best, len(qs)), mem.Grow(s.answers, len(qs))
	}
	if err := s.by.Find(s.best, s.answers, qs, &s.req); err != nil {
		return err
	}
	for i, best := range s.best {
		dst[i] = Found{int(best.ID), r.cosine(qs[i].Vector(), best)}
	}
	return nil
}

// inShell is a cosine in the shell of the query's context. The product of the context with the
// vector of its best cluster is at least low and at most high. Most contexts are so far from the
// borders of shells that bounds of lengths and products tell, which takes no exact product.
func (r *Router) inShell(q *exact.Query, best uint32, low, high float64) float64 {
	if len(r.shells) == 0 {
		return 0
	}
	shortest, longest := q.Length() // or NaN
	if low < 0 {
		shortest, longest = longest, shortest
	}
	const rounding = 1e-12
	least, most := low/(r.lengths[best]*longest)-rounding, high/(r.lengths[best]*shortest)+rounding
	told := (low >= 0) == (high >= 0) && most-least < 1 // or NaN
	for _, end := range r.shells {
		told = told && (least < end) == (most < end)
	}
	if told {
		return least
	}
	h := q.Vector()
	if low < high {
		low = kernels.RefDot(r.Vectors()[int(best)*len(h):int(best+1)*len(h)], h)
	}
	return r.cosine(h, exact.Prediction{ID: best, Logit: low})
}

// CosineOf returns the cosine of h and the vector of a cluster, with the same bits on every CPU: 1 if
// one of them is zero.
func (r *Router) CosineOf(cluster int, h []float32) float64 {
	return r.cosine(h, exact.Prediction{ID: uint32(cluster), Logit: kernels.RefDot(r.Vectors()[cluster*len(h):][:len(h)], h)})
}

// cosine returns the cosine of h and the vector of its best cluster, with the same bits on every
// CPU.
func (r *Router) cosine(h []float32, best exact.Prediction) float64 {
	lengths := r.lengths[best.ID] * length(h)
	if lengths == 0 {
		return 1
	}
	return best.Logit / lengths
}

// AddLines adds the memory that locates the packed vectors, some of their codes, and the memory
// that a search writes.
func (s *Searcher) AddLines(l *kernels.Lines) {
	kernels.AddLines(l, math.MaxInt, unsafe.Slice(s, 1))
	kernels.AddLines(l, 1, unsafe.Slice(s.by, 1)) // names the layer that is searched
	kernels.AddLines(l, math.MaxInt, unsafe.Slice(s.r, 1))
	if s.r.packed != nil {
		s.r.packed.AddLines(l)
	}
}
