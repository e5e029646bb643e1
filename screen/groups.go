package screen

import (
	"fmt"

	"github.com/learning-to-screen/l2s/softmax"
)

// groups is the upper level of a screen on two levels.
type groups struct {
	layer   *softmax.Layer // U as a layer without bias: its argmax is the group
	starts  []int          // g + 1; the clusters of group a are starts[a], ..., starts[a+1]-1
	ids     []uint32       // 0, 1, ..., r-1: a group's clusters as ids of V's layer
	largest int            // a group with the most clusters
}

// newGroups returns the groups with vectors u, which it keeps, and sizes, for
// r clusters of dimension dim.
func newGroups(u []float32, sizes []int, dim, r int) (*groups, error) {
	if len(u) == 0 || len(u)%dim != 0 {
		return nil, fmt.Errorf("groups: found %d elements, expected a positive multiple of dim %d", len(u), dim)
	}
	if err := checkFinite(u, dim); err != nil {
		return nil, fmt.Errorf("groups: %w", err)
	}
	n := len(u) / dim
	if len(sizes) != n {
		return nil, fmt.Errorf("group sizes: found %d, expected one for each of %d groups", len(sizes), n)
	}
	g := &groups{starts: make([]int, n+1)}
	for a, size := range sizes {
		if left := r - g.starts[a]; size < 1 || size > left {
			return nil, fmt.Errorf("group sizes: group %d: found %d clusters, expected 1 to the %d that are left of %d", a, size, left, r)
		}
		g.starts[a+1] = g.starts[a] + size
		if size > sizes[g.largest] {
			g.largest = a
		}
	}
	if found := g.starts[n]; found != r {
		return nil, fmt.Errorf("group sizes: found %d clusters in all, expected %d", found, r)
	}
	g.ids = make([]uint32, r)
	for t := range g.ids {
		g.ids[t] = uint32(t)
	}
	layer, err := softmax.NewLayer(u, nil, dim)
	if err != nil {
		return nil, fmt.Errorf("groups: %w", err)
	}
	g.layer = layer
	return g, nil
}

// members returns the clusters of group a.
func (g *groups) members(a int) []uint32 { return g.ids[g.starts[a]:g.starts[a+1]] }

// Groups returns the number of groups of a screen on two levels, 0 for a flat
// one.
func (m *Model) Groups() int {
	if m.groups == nil {
		return 0
	}
	return m.groups.layer.Labels()
}

// GroupWeights returns the vectors of the groups, Groups() x d, row-major, nil
// for a flat screen. It must not be changed.
func (m *Model) GroupWeights() []float32 {
	if m.groups == nil {
		return nil
	}
	return m.groups.layer.Weights()
}

// GroupClusters returns the clusters of group a, 0 <= a < Groups(): first,
// ..., end-1.
func (m *Model) GroupClusters(a int) (first, end int) {
	return m.groups.starts[a], m.groups.starts[a+1]
}

// route returns the cluster of the query's context and the number of rows
// scanned for it: r, or with groups their number and that of the clusters in
// the best one.
func (m *Model) route(q *softmax.Query, float32 bool) (cluster, rows int) {
	g := m.groups
	switch {
	case g == nil && float32:
		return int(m.clusters.ArgmaxFloat32(q)), m.Clusters()
	case g == nil:
		return int(m.clusters.Argmax(q)), m.Clusters()
	case float32:
		return m.within(int(g.layer.ArgmaxFloat32(q)), q, float32)
	}
	return m.within(int(g.layer.Argmax(q)), q, float32)
}

// within is route where the group is known.
func (m *Model) within(group int, q *softmax.Query, float32 bool) (cluster, rows int) {
	var best [1]softmax.Prediction
	ids := m.groups.members(group)
	if float32 {
		m.clusters.TopKOfFloat32(best[:], q, ids)
	} else {
		m.clusters.TopKOf(best[:], q, ids)
	}
	return int(best[0].ID), m.Groups() + len(ids)
}
