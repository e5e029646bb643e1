package train

// levels is the shape of the clusters: on one level if groups is 0, else in
// that many groups of equally many clusters. The weights of two levels are one
// array: the vectors U of the groups and behind them V, of the clusters. The
// clusters of a group are neighbours.
type levels struct{ clusters, groups int }

// rows is the number of vectors.
func (l levels) rows() int { return l.groups + l.clusters }

// split returns U, nil on one level, and V.
func (l levels) split(weights []float32, dim int) (u, v []float32) {
	n := l.groups * dim
	if n == 0 {
		return nil, weights
	}
	return weights[:n:n], weights[n:]
}

// top is the number of vectors of the upper level, or of the only one.
func (l levels) top() int {
	if l.groups > 0 {
		return l.groups
	}
	return l.clusters
}

// perGroup is the number of clusters in a group; on one level all are in one.
func (l levels) perGroup() int { return l.clusters / max(1, l.groups) }

// groupSizes are the numbers of clusters in the groups, nil on one level.
func (l levels) groupSizes() []int {
	if l.groups == 0 {
		return nil
	}
	sizes := make([]int, l.groups)
	for a := range sizes {
		sizes[a] = l.perGroup()
	}
	return sizes
}

// clusters are vectors, and the contexts that are theirs.
type clusters struct {
	levels
	weights []float32    // rows x dim
	cluster []uint32     // of each context
	through *overlapping // unless nil, the groups through which the clusters are found
}

// routing returns what the router is made of: U, V, and of the groups the numbers
// of clusters and the lists, see router.New.
func (c *clusters) routing(dim int) (u, v []float32, sizes []int, lists []uint32) {
	if o := c.through; o != nil {
		return o.vectors, c.weights, o.sizes, o.lists
	}
	u, v = c.split(c.weights, dim)
	return u, v, c.groupSizes(), nil
}
