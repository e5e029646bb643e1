package train

import (
	"context"
	"slices"

	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/router"
	"github.com/learning-to-screen/l2s/train/internal/corpus"
	"github.com/learning-to-screen/l2s/train/internal/ladder"
	"github.com/learning-to-screen/l2s/train/internal/shares"
)

// builder makes ranked lists for contexts whose clusters are found.
type builder struct {
	*corpus.Corpus
	opt      *Options
	stage    string         // that progress is of
	router   *router.Router // of clusters alone
	found    []router.Found
	geometry *shares.Geometry // nil if only the counts are used
	clusters [][]shares.Label // the shares in the clusters
	plain    *built           // of clusters alone
}

// newBuilder finds the shares of labels in the clusters. Progress is of the stage.
func newBuilder(ctx context.Context, c *corpus.Corpus, layer *exact.Layer, opt *Options, stage string, r *router.Router, found []router.Found) (b *builder, err error) {
	b = &builder{Corpus: c, opt: opt, stage: stage, router: r, found: found}
	cluster := cellsOf(r, found)
	if opt.Geometry == 0 {
		b.clusters, err = shares.ByCounts(ctx, c, corpus.NewPartition(cluster, r.Clusters()))
		return b, err
	}
	if b.geometry, err = shares.NewGeometry(ctx, c, layer, stage, cluster, r.Clusters()); err != nil {
		return nil, err
	}
	b.clusters, err = b.geometry.Clusters(ctx, opt.Geometry)
	return b, err
}

// built are ranked lists, and the rule that leads to them.
type built struct {
	router *router.Router
	cells  []uint32 // of the contexts that they are made of
	lists  *ladder.Lists
}

// build makes the lists of clusters, or of their cells in the shells of a shape. They are as
// long as the budget most needs.
func (b *builder) build(ctx context.Context, shape shape, most float64) (_ *built, err error) {
	cosines := b.cosines(shape.shells)
	if b.plain == nil {
		if b.plain, err = b.rank(ctx, b.router, cellsOf(b.router, b.found), b.clusters); err != nil {
			return nil, err
		}
	}
	if len(cosines) == 0 {
		return b.plain, nil
	}
	r, err := b.router.With(cosines)
	if err != nil {
		return nil, err
	}
	cells := cellsOf(r, b.found)
	in, err := b.geometry.Shells(ctx, cells, 1+len(cosines), b.clusters, b.opt.Geometry, b.plain.keepAbove(most))
	if err != nil {
		return nil, err
	}
	return b.rank(ctx, r, cells, in)
}

// rank ranks the shares in the cells of contexts.
func (b *builder) rank(ctx context.Context, r *router.Router, cells []uint32, in [][]shares.Label) (*built, error) {
	sizes := corpus.NewPartition(cells, len(in)).Sizes()
	lists, err := ladder.New(ctx, b.Threads, in, sizes, b.opt.always(), b.K)
	return &built{r, cells, lists}, err
}

// keepAbove returns the test of the shares that lists of smaller cells include for budgets up to
// most: lists of all labels of many cells would be long.
func (m *built) keepAbove(most float64) func(share float64) bool {
	least, _ := m.lists.Threshold(float64(slack * most))
	return func(share float64) bool { return ladder.ShareOf(share) >= least }
}

// slack is a multiple of the largest budget: lists for that multiple would have labels down to the
// least share in lists of smaller cells.
const slack = 2

// cosines returns the cuts of shells, with these shares of the contexts outside them. A cut has
// contexts on both sides, and differs from the previous one.
func (b *builder) cosines(shares []float64) (cuts []float64) {
	if len(shares) == 0 {
		return nil
	}
	sorted := make([]float64, b.N)
	for i, f := range b.found {
		sorted[i] = f.Cosine
	}
	slices.Sort(sorted)
	for _, share := range shares {
		if x := sorted[int(float64(share*float64(b.N)))]; x > sorted[0] && x > -1 && x < 1 && (len(cuts) == 0 || x < cuts[len(cuts)-1]) {
			cuts = append(cuts, x)
		}
	}
	return cuts
}

// cellsOf are the cells of contexts.
func cellsOf(r *router.Router, found []router.Found) []uint32 {
	cells := make([]uint32, len(found))
	for i, f := range found {
		cells[i] = uint32(r.Cell(f))
	}
	return cells
}
