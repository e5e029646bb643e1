package train

import (
	"context"
	"slices"

	"github.com/learning-to-screen/l2s/softmax"
)

// With SetOptions.Shells the contexts of a cluster are cut into shells, by the cosine with
// its vector. A cluster in a shell is a cell, and cells are to the knapsack what clusters
// are. Contexts far from all clusters have labels that are hard to foresee: their shares
// are low, and of many labels. Contexts near a cluster have few labels. So at the same
// budget far contexts get larger sets and near ones smaller sets.
//
// The shares in a cell are the counts on its contexts, smoothed towards the shares of a
// geometry of the shell, whose contexts spread further than those of the cluster, and
// towards the shares in the whole cluster.

// shellWeight is the number of contexts that the shares in the whole cluster count for
// beside the contexts of a cell.
const shellWeight = 100

// shells are the cosines that cut clusters, and the shells of the contexts of a view.
type shells struct {
	cosines []float64 // descending, see screen.Config.Shells
	shell   []uint32  // of each context
}

// findShells lets these shares of all contexts lie beyond the shells. It returns nil if no
// cosine cuts, as if all contexts have the same.
func findShells(ctx context.Context, d *data, c *clusters, shares []float64) (*shells, error) {
	cosines, err := c.cosines(ctx, d)
	if err != nil {
		return nil, err
	}
	sorted := slices.Clone(cosines)
	slices.Sort(sorted)
	s := &shells{}
	for _, share := range shares {
		// A cut has contexts on both sides, and is another than the one before.
		if x := sorted[int(float64(share*float64(d.n)))]; x > sorted[0] && x > -1 && x < 1 && (len(s.cosines) == 0 || x < s.cosines[len(s.cosines)-1]) {
			s.cosines = append(s.cosines, x)
		}
	}
	if len(s.cosines) == 0 {
		return nil, nil
	}
	s.place(cosines)
	return s, nil
}

// findShellsWithin finds the shells of contexts for given cosines.
func findShellsWithin(ctx context.Context, d *data, c *clusters, cuts []float64) (*shells, error) {
	cosines, err := c.cosines(ctx, d)
	if err != nil {
		return nil, err
	}
	s := &shells{cosines: cuts}
	s.place(cosines)
	return s, nil
}

// place finds the shells of the contexts with these cosines.
func (s *shells) place(cosines []float64) {
	s.shell = make([]uint32, len(cosines))
	for i, x := range cosines {
		for _, cut := range s.cosines {
			if x < cut {
				s.shell[i]++
			}
		}
	}
}

// cosines returns the cosine of each context with the vector of its best cluster.
func (c *clusters) cosines(ctx context.Context, d *data) ([]float64, error) {
	r, err := c.newRouter(d.dim)
	if err != nil {
		return nil, err
	}
	cosines := make([]float64, d.n)
	err = d.eachRoute(ctx, r, 1, d.report.stage(StageShells, 0, d.n), func(_, i int, best []softmax.Prediction) {
		cosines[i] = r.Cosine(d.row(uint32(i)), best[0])
	})
	return cosines, err
}

// list returns the cosines, nil without shells.
func (s *shells) list() []float64 {
	if s == nil {
		return nil
	}
	return s.cosines
}

// cells returns the cells as clusters: they have the contexts, but no vectors.
func (s *shells) cells(c *clusters) *clusters {
	n := 1 + len(s.cosines)
	return &clusters{levels: levels{c.clusters * n, c.groups * n}, cluster: s.cellsOf(c.clusters, c.cluster)}
}

// cellsOf returns the cell of each context, given its cluster.
func (s *shells) cellsOf(clusters int, cluster []uint32) []uint32 {
	cells := make([]uint32, len(cluster))
	for i, t := range cluster {
		cells[i] = s.shell[i]*uint32(clusters) + t
	}
	return cells
}

// inShells is what shares in cells are sought by, given the shares in the clusters.
func (g *geometry) inShells(ctx context.Context, c *clusters, s *shells, nb *neighbours, parents [][]labelShare, opt *SetOptions) (*sharesOf, error) {
	of := &sharesOf{parents: parents, weight: shellWeight}
	if nb != nil {
		nb = s.neighbours(c.clusters, nb)
	}
	contexts := g.data.all()
	var err error
	if of.counts, of.parts, err = countClusters(ctx, g.data, contexts, s.cells(c), nb, opt); err != nil {
		return nil, err
	}
	done := g.report.part(StageGeometry, "variances in shells", "labels", g.universe*(1+len(s.cosines)))
	shells := newPartition(contexts, s.shell, 1+len(s.cosines))
	for j := range shells.clusters() {
		spread, err := g.findVariance(ctx, shells.members(j), c.cluster, done)
		if err != nil {
			return nil, err
		}
		of.spread = append(of.spread, spread)
	}
	return of, nil
}

// neighbours are neighbours of contexts by cells: those of the shell of the context.
func (s *shells) neighbours(clusters int, nb *neighbours) *neighbours {
	ids := make([]uint32, len(nb.ids))
	for x, t := range nb.ids {
		ids[x] = s.shell[x/near]*uint32(clusters) + t
	}
	return &neighbours{ids, nb.gaps}
}
