package train

import (
	"context"
	"fmt"
	"math"

	"github.com/learning-to-screen/l2s/internal/codes/encode"
	"github.com/learning-to-screen/l2s/internal/ground/precision"
	"github.com/learning-to-screen/l2s/internal/ground/progress"
	"github.com/learning-to-screen/l2s/internal/ground/stage"
	"github.com/learning-to-screen/l2s/internal/search/router"
	"github.com/learning-to-screen/l2s/train/internal/kmeans"
	"github.com/learning-to-screen/l2s/train/internal/learn"
)

// shape is the number of clusters of a screen, of alternations of learning, and its shells.
type shape struct {
	clusters, iterations int
	shells               []float64
}

// The constants that decide the shape.
const (
	usualClusters = 150
	// contextsPerCluster is the least number of contexts of a cluster, on average.
	contextsPerCluster = 50
	// leastToLearn is the number of contexts of a cluster above which learning is worth its time:
	// it uses the labels of contexts of training, and gains nothing with few of them.
	leastToLearn = 1000
	// perLabel contexts of each label, or wellServed, make a good screen. With a quarter of
	// them a user should know.
	perLabel   = 10
	wellServed = 100000
)

// usualShells are the shares of contexts beyond each shell.
var usualShells = []float64{0.4, 0.1}

// shape returns the shape that the options ask for, or the shape that the number of contexts
// decides.
func (t *trainer) shape() shape {
	o := t.opt
	if o.Clusters > 0 {
		return shape{clusters: o.Clusters, iterations: o.Iterations, shells: o.Shells}
	}
	if advised := min(perLabel*t.Labels, wellServed); t.N < advised/4 {
		t.warn("%d contexts are few for %d labels, %d are advised: more find more labels of other text, and tell the precision better", t.N, t.Labels, advised)
	}
	f := shape{clusters: min(max(t.N/contextsPerCluster, 1), usualClusters, t.pool.N)}
	if o.Geometry > 0 {
		f.shells = usualShells
	}
	how := "found by k-means"
	if t.N/f.clusters < leastToLearn {
		how = fmt.Sprintf("found by k-means alone: training the vectors helps from %s contexts in each on", progress.Count(leastToLearn))
	} else if f.iterations = o.Iterations; f.iterations > 0 {
		how = fmt.Sprintf("found by k-means and trained: that helps from %s contexts in each on", progress.Count(leastToLearn))
	}
	t.decide("%s clusters, %s contexts in each, %s", progress.Count(f.clusters), progress.Count(t.N/f.clusters), how)
	return f
}

// attempt is a shape with its clusters, and its lists for held-out contexts.
type attempt struct {
	shape
	kmeans      []kmeans.Iteration
	learning    *learn.Course
	router      *router.Router // of the clusters alone
	found, held []router.Found // of all contexts, and of the held-out ones
	made        *built         // without these; nil if there are none
}

// of is where the attempt finds these contexts.
func (x *attempt) of(ids []uint32) []router.Found {
	part := make([]router.Found, len(ids))
	for j, i := range ids {
		part[j] = x.found[i]
	}
	return part
}

// attempt finds the clusters of the shape, and the lists that held-out contexts measure.
func (t *trainer) attempt(ctx context.Context) (x *attempt, err error) {
	x = &attempt{shape: t.shape()}
	v, history, course, err := t.vectors(ctx, x.shape)
	if err != nil {
		return nil, err
	}
	x.kmeans, x.learning = history, course
	encode.Round4(v, t.Dim) // half the bytes of every query, and cells that serve as well
	if x.router, x.found, err = t.RouteTo(ctx, v, nil, t.Report.Stage(stage.Assign, 0, t.N)); err != nil || t.held.N == 0 {
		return x, err
	}
	if t.validation == nil {
		x.held = x.of(t.heldIDs)
	} else if _, x.held, err = t.held.RouteTo(ctx, v, nil, t.Report.Stage(stage.Assign, 0, t.held.N)); err != nil {
		return nil, err
	}
	b, err := newBuilder(ctx, t.pool, t.layer, t.opt, stage.Measure, x.router, x.of(t.poolIDs))
	if err != nil {
		return nil, err
	}
	x.made, err = b.build(ctx, x.shape, t.mostBudget())
	return x, err
}

// decide records a decision.
func (t *trainer) decide(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	t.record.Decisions = append(t.record.Decisions, line)
	t.Report.Message(line)
}

// allowed are the parts of best labels, and of all K, that the target allows to miss.
func (t *trainer) allowed() (first, all float64) {
	if t.opt.Target > 0 {
		return 1, 1 - t.opt.Target
	}
	return 1 - (precision.Target1 - precision.Printed), 1 - (precision.TargetK - precision.Printed)
}

// mostBudget is the largest budget of a ladder.
func (t *trainer) mostBudget() float64 {
	most := min(max(8*math.Sqrt(float64(t.Labels)), 100), float64(t.Labels)/2)
	return max(most, t.leastBudget(), t.opt.Budget)
}

// leastBudget returns the smallest budget, unless there are more certain candidates.
func (t *trainer) leastBudget() float64 {
	k, always := t.K, len(t.opt.always())
	return min(float64(max(2*k, k+always)), float64(t.Labels))
}
