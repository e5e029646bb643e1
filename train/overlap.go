package train

import (
	"context"
	"fmt"
	"slices"

	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
	"github.com/learning-to-screen/l2s/train/internal/rng"
)

// With KMeansOptions.Overlap the groups are a screen of their own: what a screen
// does for the labels of a layer, they do for the clusters. The layer is V, the one
// label of a context is its best cluster of all, and the list of a group is the set
// of clusters that its contexts have as labels. So a cluster on the border of
// groups is in the lists of all of them, and a context that is led to a group in
// whose list its best cluster is missing gets the next best.
//
// V comes first, learned as if the screen were flat; then the groups, by the loop
// of Algorithm 1 too; then the sets, from the contexts as they are led to clusters.

// overlapping are groups whose lists of clusters overlap.
type overlapping struct {
	vectors []float32 // U, a row for each group
	sizes   []int     // of the lists
	lists   []uint32  // of group 0, of group 1, ..., each ascending
}

// groupContexts is the number of contexts that one alternation learns the groups
// from, if there are as many in two epochs. On 48,000 contexts a tenth of them
// left 2% of contexts outside the list of their group that this number takes in.
const groupContexts = 25000

// groupOptions are the options of the screen that the groups are.
func groupOptions(opt *Options, n int) *Options {
	o := DefaultOptions()
	o.Clusters, o.Budget, o.K = opt.Groups, float64(opt.Overlap*float64(opt.Clusters))/float64(opt.Groups), 1
	o.KMeansIterations, o.KMeansBatch = opt.KMeansIterations, opt.KMeansBatch
	o.HeldOut, o.Measure = opt.HeldOut, opt.Measure
	// A list does not have the one price of a cluster in vain that the paper has for
	// labels: the mean length alone bounds it.
	o.Lambda = 0.00003
	o.EpochFraction = min(2, max(o.EpochFraction, groupContexts/float64(n)))
	return &o
}

// findGroups finds groups with lists for the clusters of a flat screen, which all
// contexts have been given, and leads the contexts to clusters through them. The
// data are all contexts.
func findGroups(ctx context.Context, d *data, c *clusters, opt *Options) error {
	layer, err := softmax.NewLayer(kernels.Float32Rows(c.weights, d.dim), nil)
	if err != nil {
		return fmt.Errorf("groups: %w", err)
	}
	inner := *d
	inner.universe, inner.labels, inner.k, inner.report = c.clusters, slices.Clone(c.cluster), 1, d.report.within(StageGroups)
	random := rng.New(d.seed, rng.Groups, 0)
	inner.seed = random.Next()
	o := groupOptions(opt, d.n)
	found, err := clusterPool(ctx, &inner, o)
	if err != nil {
		return err
	}
	upper, err := learn(ctx, &inner, found, &o.LearningOptions, &o.SetOptions, nil)
	if err != nil {
		return err
	}
	sets, err := chooseSets(ctx, &inner, layer, &upper.clusters, &o.SetOptions, o.Budget)
	if err != nil {
		return err
	}
	c.through = newOverlapping(upper.weights, sets.ranked.take(o.Budget).sets, d.dim)
	if _, err := c.route(ctx, d, d.report.part(StageGroups, StageAssign, "contexts", d.n)); err != nil {
		return err
	}
	d.report.message(c.through.text(inner.labels, c.cluster))
	return nil
}

// newOverlapping returns the groups with these vectors and lists. A group without
// clusters is left out: its contexts go to other groups.
func newOverlapping(vectors []float32, lists [][]uint32, dim int) *overlapping {
	o := &overlapping{}
	for a, list := range lists {
		if len(list) > 0 {
			o.vectors = append(o.vectors, vectors[a*dim:(a+1)*dim]...)
			o.sizes, o.lists = append(o.sizes, len(list)), append(o.lists, list...)
		}
	}
	return o
}

// text says how long the lists are, and how many contexts find the best cluster of
// all.
func (o *overlapping) text(best, led []uint32) string {
	same := 0
	for i, t := range best {
		if led[i] == t {
			same++
		}
	}
	return fmt.Sprintf("%d groups of %.1f clusters: %.1f%% of the contexts are led to their best", len(o.sizes), float64(len(o.lists))/float64(len(o.sizes)), 100*float64(same)/float64(len(best)))
}
