package train

import (
	"context"
	"fmt"

	"github.com/learning-to-screen/l2s/train/internal/rng"
)

// clustered is what k-means finds.
type clustered struct {
	clusters
	history     []KMeansIteration // of the groups, on two levels
	groupCosine float64           // see Record
}

func (c *clustered) record(r *Record) { r.KMeans, r.GroupCosine = c.history, c.groupCosine }

// findClusters clusters the contexts, or takes the vectors that an interrupted
// run left: from k-means, to which the contexts are then assigned, or from the last
// alternation.
func findClusters(ctx context.Context, d *data, opt *Options, c *checkpoint) (*clustered, error) {
	left := c.state()
	if left == nil {
		found, err := clusterPool(ctx, d, opt)
		if err != nil {
			return nil, err
		}
		return found, c.saveKMeans(found)
	}
	after := "k-means"
	if left.Iteration > 0 {
		after = fmt.Sprintf("alternation %d of %d", left.Iteration, left.Options.Iterations)
	}
	d.report.message("continuing after " + after)
	found := &clustered{
		clusters: clusters{opt.levels(), make([]float32, len(left.v)), make([]uint32, d.n), nil},
		history:  left.Record.KMeans, groupCosine: left.Record.GroupCosine,
	}
	narrow(found.weights, left.v)
	if left.Iteration > 0 {
		return found, nil
	}
	_, err := found.route(ctx, d, d.report.stage(StageAssign, 0, d.n))
	return found, err
}

// clusterPool clusters the contexts, without those that the screen is measured on,
// which it assigns afterwards. If that leaves fewer contexts than clusters it
// takes all.
func clusterPool(ctx context.Context, d *data, opt *Options) (*clustered, error) {
	pool, held := holdOut(d.n, opt.HeldOut)
	if !opt.Measure || len(held) == 0 || len(pool) < opt.Clusters {
		return clusterContexts(ctx, d, &opt.KMeansOptions)
	}
	found, err := clusterContexts(ctx, d.part(pool), &opt.KMeansOptions)
	if err != nil {
		return nil, err
	}
	found.cluster = make([]uint32, d.n)
	_, err = found.route(ctx, d, d.report.stage(StageAssign, 0, d.n))
	return found, err
}

// clusterContexts clusters all contexts by spherical k-means. On two levels
// k-means finds the groups first, and then the clusters of each group among the
// contexts of that group alone: those that a query will look for there.
func clusterContexts(ctx context.Context, d *data, opt *KMeansOptions) (*clustered, error) {
	upper, err := sphericalKMeans(ctx, d, opt.levels().top(), opt.KMeansIterations, opt.KMeansBatch)
	if err != nil {
		return nil, err
	}
	c := &clustered{clusters: clusters{opt.levels(), upper.v, upper.cluster, nil}, history: upper.history}
	if c.groups == 0 {
		return c, nil
	}
	per := c.perGroup()
	groups := newPartition(d.all(), upper.cluster, c.groups)
	c.weights = make([]float32, c.rows()*d.dim)
	u, v := c.split(c.weights, d.dim)
	copy(u, upper.v)
	done := d.report.stage(StageGroups, 0, d.n)
	cosines := 0.0
	for a := range c.groups {
		members := groups.members(a)
		if len(members) == 0 {
			continue // no context, no direction: its clusters stay zero
		}
		random := rng.New(d.seed, rng.Groups, uint64(a))
		part := d.part(members)
		part.seed, part.report = random.Next(), &reporter{}
		lower, err := sphericalKMeans(ctx, part, per, opt.KMeansIterations, opt.KMeansBatch)
		if err != nil {
			return nil, err
		}
		copy(v[a*per*d.dim:], lower.v)
		for j, i := range members {
			c.cluster[i] = uint32(a*per) + lower.cluster[j]
		}
		last := lower.history[len(lower.history)-1]
		cosines += float64(last.Objective * float64(len(members)))
		if done != nil {
			done(len(members))
		}
	}
	c.groupCosine = cosines / float64(d.n)
	return c, nil
}
