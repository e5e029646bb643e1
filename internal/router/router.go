// Package router finds the clusters of contexts: z(h) = argmax_t v_t.h (Eq. 2 of
// "Learning to Screen for Fast Softmax Inference on Large Vocabulary Neural
// Networks"), flat or through groups. A screen answers by it and train learns by
// it, so that both agree on the cluster of every context.
//
// Groups have vectors u_a of their own, and z(h) is sought among the clusters of
// the group of the largest u_a.h alone. Either each cluster is in one group, or
// groups have lists of clusters, which may overlap. Products are computed in the
// reference arithmetic; ties go to the lower group and cluster.
package router

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/learning-to-screen/l2s/internal/grow"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
)

// Router holds the vectors of clusters and groups. It is immutable and safe for
// use by many goroutines.
type Router struct {
	clusters *softmax.Layer // V as a layer without bias
	groups   *softmax.Layer // U likewise; nil if there is one level
	starts   []int          // the clusters of group a are starts[a], ..., starts[a+1]-1; flat: 0 and r
	lists    []uint32       // unless nil, the clusters of group a are those at these places of it
	lengths  []float64      // ||v_t||

	packedClusters, packedGroups *softmax.Packed // the vectors as queries scan them; nil for as they are
}

// New returns the router for the vectors of clusters, r x dim, and of groups, g x
// dim, both row-major and kept; sizes are the numbers of clusters in the groups.
// lists, which is kept too, holds the clusters of group 0, then of group 1,
// and so on, in each ascending and distinct; if it is nil, the clusters of a group
// are neighbours, and each is in one group. Without groups the router is flat.
// dim is at least 1. An error names what was found and what was expected.
func New(clusters, groups []float32, sizes []int, lists []uint32, dim int) (*Router, error) {
	if len(clusters) == 0 || len(clusters)%dim != 0 {
		return nil, fmt.Errorf("clusters: found %d elements, expected a positive multiple of dim %d", len(clusters), dim)
	}
	v, err := vectors("clusters", clusters, dim)
	if err != nil {
		return nil, err
	}
	r := &Router{clusters: v, starts: []int{0, v.Labels()}, lengths: make([]float64, v.Labels())}
	for t := range r.lengths {
		r.lengths[t] = length(clusters[t*dim : (t+1)*dim])
	}
	if len(groups) == 0 && len(sizes) == 0 {
		if lists != nil {
			return nil, fmt.Errorf("group clusters: found %d without groups, expected none", len(lists))
		}
		return r, r.pack()
	}
	if len(groups) == 0 || len(groups)%dim != 0 {
		return nil, fmt.Errorf("groups: found %d elements, expected a positive multiple of dim %d", len(groups), dim)
	}
	if r.groups, err = vectors("groups", groups, dim); err != nil {
		return nil, err
	}
	n := r.groups.Labels()
	if len(sizes) != n {
		return nil, fmt.Errorf("group sizes: found %d, expected one for each of %d groups", len(sizes), n)
	}
	if lists != nil {
		r.lists = lists
		if err := r.list(sizes); err != nil {
			return nil, err
		}
		return r, r.pack()
	}
	r.starts = make([]int, n+1)
	for a, size := range sizes {
		if left := v.Labels() - r.starts[a]; size < 1 || size > left {
			return nil, fmt.Errorf("group sizes: group %d: found %d clusters, expected 1 to the %d that are left of %d", a, size, left, v.Labels())
		}
		r.starts[a+1] = r.starts[a] + size
	}
	if found := r.starts[n]; found != v.Labels() {
		return nil, fmt.Errorf("group sizes: found %d clusters in all, expected %d", found, v.Labels())
	}
	return r, r.pack()
}

// maxPacked is the number of vectors up to which they are scanned packed if all of them
// are: among more a layer has a first pass over smaller codes.
const maxPacked = 2000

// pack packs the clusters of each group, and the groups.
func (r *Router) pack() (err error) {
	if r.groups != nil && r.groups.Labels() < maxPacked {
		if r.packedGroups, err = r.groups.Pack(ascending(r.groups.Labels()), []int{0, r.groups.Labels()}); err != nil {
			return err
		}
	}
	ids := r.lists
	if ids == nil {
		ids = ascending(r.Clusters())
	}
	if r.groups != nil || r.Clusters() < maxPacked {
		r.packedClusters, err = r.clusters.Pack(ids, r.starts)
	}
	return err
}

// ascending returns the ids 0, ..., n-1.
func ascending(n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i)
	}
	return ids
}

// amongGroups is the set of all groups.
func (r *Router) amongGroups() softmax.Labels {
	if r.packedGroups != nil {
		return r.packedGroups.List(0)
	}
	return softmax.Labels{}
}

// among is the set of the clusters of a group, or of all if there are no groups.
func (r *Router) among(group int) softmax.Labels {
	first, end := r.starts[group], r.starts[group+1]
	switch {
	case r.packedClusters != nil:
		return r.packedClusters.List(group)
	case r.lists != nil:
		return softmax.Only(r.lists[first:end])
	}
	return softmax.Range(first, end)
}

// list cuts the lists into groups of these sizes.
func (r *Router) list(sizes []int) error {
	clusters := r.Clusters()
	r.starts = make([]int, len(sizes)+1)
	for a, size := range sizes {
		start := r.starts[a]
		if left := len(r.lists) - start; size < 1 || size > left {
			return fmt.Errorf("group sizes: group %d: found %d clusters, expected 1 to the %d that are left of %d in the lists", a, size, left, len(r.lists))
		}
		r.starts[a+1] = start + size
		for i, t := range r.lists[start : start+size] {
			if int64(t) >= int64(clusters) {
				return fmt.Errorf("group clusters: group %d: found cluster %d at position %d, expected below %d", a, t, i, clusters)
			}
			if i > 0 && t <= r.lists[start+i-1] {
				return fmt.Errorf("group clusters: group %d: found cluster %d after %d at position %d, expected ascending, distinct clusters", a, t, r.lists[start+i-1], i)
			}
		}
	}
	if end := r.starts[len(sizes)]; end != len(r.lists) {
		return fmt.Errorf("group sizes: found %d clusters in all, expected the %d of the lists", end, len(r.lists))
	}
	return nil
}

// vectors returns the rows as a layer without bias.
func vectors(name string, x []float32, dim int) (*softmax.Layer, error) {
	rows := kernels.Float32Rows(x, dim)
	if i, j, found := rows.NotFinite(); found {
		return nil, fmt.Errorf("%s: found %v at row %d, column %d, expected finite numbers", name, x[i*dim+j], i, j)
	}
	l, err := softmax.NewLayer(rows, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return l, nil
}

// length is ||x||, by the reference arithmetic.
func length(x []float32) float64 { return math.Sqrt(kernels.RefDot(x, x)) }

// Cosine returns the cosine of a context h and the vector of a cluster, which is given
// with its product v_t.h. It has the same bits on every CPU. If one of the two is zero it
// is 1.
func (r *Router) Cosine(h []float32, cluster softmax.Prediction) float64 {
	lengths := r.lengths[cluster.ID] * length(h)
	if lengths == 0 {
		return 1
	}
	return cluster.Logit / lengths
}

// Clusters returns r, the number of clusters.
func (r *Router) Clusters() int { return r.clusters.Labels() }

// Groups returns the number of groups, 0 for a flat router.
func (r *Router) Groups() int {
	if r.groups == nil {
		return 0
	}
	return r.groups.Labels()
}

// Dim returns the dimension of a context.
func (r *Router) Dim() int { return r.clusters.Dim() }

// ClusterVectors returns V, r x dim, row-major. It must not be changed.
func (r *Router) ClusterVectors() []float32 { return elements(r.clusters) }

// GroupVectors returns U, g x dim, row-major, nil for a flat router. It must not
// be changed.
func (r *Router) GroupVectors() []float32 {
	if r.groups == nil {
		return nil
	}
	return elements(r.groups)
}

func elements(l *softmax.Layer) []float32 {
	x, _ := l.Weights().AsFloat32()
	return x
}

// GroupSize returns the number of clusters in group a. In a flat router all clusters
// are in group 0.
func (r *Router) GroupSize(a int) int { return r.starts[a+1] - r.starts[a] }

// GroupClusters returns the lists of the groups, as [New] takes them. It must not be
// changed.
func (r *Router) GroupClusters() []uint32 { return r.lists }

// Searcher finds the clusters of contexts. It is for one goroutine. Its memory
// grows to what the largest search needs, and stays.
type Searcher struct {
	r                *Router
	clusters, groups *softmax.Searcher
	best             []softmax.Prediction
	answers          []softmax.Answer
	one              [1]*softmax.Query
	few              [1]softmax.Answer
}

// NewSearcher returns a searcher.
func (r *Router) NewSearcher() *Searcher {
	s := &Searcher{r: r, clusters: softmax.NewSearcher(r.clusters)}
	if r.groups != nil {
		s.groups = softmax.NewSearcher(r.groups)
	}
	return s
}

// AddLines adds the memory of the searcher and of what it searches, but the vectors.
func (s *Searcher) AddLines(l *kernels.Lines) {
	kernels.AddLines(l, math.MaxInt, unsafe.Slice(s, 1))
	kernels.AddLines(l, math.MaxInt, unsafe.Slice(s.r, 1))
	kernels.AddLines(l, math.MaxInt, s.answers)
	s.r.AddLines(l)
	s.clusters.AddLines(l)
	if s.groups != nil {
		s.groups.AddLines(l)
		kernels.AddLines(l, math.MaxInt, s.best)
		kernels.AddLines(l, math.MaxInt, s.r.starts)
	}
}

// Found says what was found for a context.
type Found struct {
	Count int // clusters written
	Rows  int // vectors of clusters and groups that were scanned
}

// Find writes the k best clusters of each of the contexts to dst, k elements a
// context, and to found how many there are and what they cost: k, or all if there
// are fewer. With groups they are the clusters of the best group. The logit of a
// cluster is v_t.h. It returns an error if a query has no context of the
// router's dimension.
func (s *Searcher) Find(dst []softmax.Prediction, found []Found, k int, qs []*softmax.Query) error {
	s.answers = grow.Slice(s.answers, len(qs))
	r := s.r
	if r.groups == nil && k <= r.Clusters() {
		if err := s.clusters.Find(dst, s.answers, qs, &softmax.Request{K: k, Among: r.among(0)}); err != nil {
			return err
		}
		for i, a := range s.answers {
			found[i] = Found{a.Count, r.Clusters()}
		}
		return nil
	}
	s.best = grow.Slice(s.best, len(qs))
	if r.groups != nil {
		if err := s.groups.Find(s.best, s.answers, qs, &softmax.Request{K: 1, Among: r.amongGroups()}); err != nil {
			return err
		}
	} else {
		clear(s.best)
	}
	for i, q := range qs {
		group := int(s.best[i].ID)
		n, err := s.Within(dst[i*k:(i+1)*k], q, group)
		if err != nil {
			return err
		}
		found[i] = Found{n, r.Groups() + r.GroupSize(group)}
	}
	return nil
}

// Packed returns the lists by which softmax.Direct.Route finds the best cluster: of the groups,
// nil if there are none, and of their clusters. It reports false if that way is not for the
// router.
func (r *Router) Packed() (groups, clusters *softmax.Packed, ok bool) {
	return r.packedGroups, r.packedClusters, r.packedClusters != nil && (r.groups == nil) == (r.packedGroups == nil)
}

// LargestList returns the largest number of vectors of a list of Packed.
func (r *Router) LargestList() int {
	most := r.Groups()
	for a := range len(r.starts) - 1 {
		most = max(most, r.GroupSize(a))
	}
	return most
}

// AddLines adds what says where the lists are, and some of their codes.
func (r *Router) AddLines(l *kernels.Lines) {
	if r.packedClusters != nil {
		r.packedClusters.AddLines(l)
	}
	if r.packedGroups != nil {
		r.packedGroups.AddLines(l)
	}
}

// BestGroups writes the best groups of a context to dst and returns their number:
// the length of dst, or the number of all if there are fewer. A flat router has one, 0.
func (s *Searcher) BestGroups(dst []softmax.Prediction, q *softmax.Query) (int, error) {
	if s.groups == nil {
		dst[0] = softmax.Prediction{}
		return 1, nil
	}
	return s.search(s.groups, dst, q, s.r.amongGroups(), s.r.Groups())
}

// Within writes the best clusters of a group to dst and returns their number:
// the length of dst, or the number of all in the group if there are fewer.
func (s *Searcher) Within(dst []softmax.Prediction, q *softmax.Query, group int) (int, error) {
	return s.search(s.clusters, dst, q, s.r.among(group), s.r.GroupSize(group))
}

// search writes the best of these rows, of which there are size, to dst.
func (s *Searcher) search(by *softmax.Searcher, dst []softmax.Prediction, q *softmax.Query, among softmax.Labels, size int) (int, error) {
	n := min(len(dst), size)
	s.one[0] = q
	err := by.Find(dst[:n], s.few[:], s.one[:], &softmax.Request{K: n, Among: among})
	return s.few[0].Count, err
}
