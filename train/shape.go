package train

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/learning-to-screen/l2s/internal/kernels"
	"github.com/learning-to-screen/l2s/internal/precision"
	"github.com/learning-to-screen/l2s/internal/progress"
	"github.com/learning-to-screen/l2s/internal/router"
	"github.com/learning-to-screen/l2s/internal/stage"
	"github.com/learning-to-screen/l2s/train/internal/kmeans"
	"github.com/learning-to-screen/l2s/train/internal/ladder"
	"github.com/learning-to-screen/l2s/train/internal/learn"
)

// shape is the number of clusters of a screen, of alternations of learning, and its shells.
type shape struct {
	clusters, iterations int
	shells               []float64
	undecided            bool // the shells are not decided yet
}

func (f shape) String() string {
	if len(f.shells) > 0 {
		return "shells"
	}
	return "clusters alone"
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
	// leastToCut is the number of held-out contexts that can judge shells. With fewer the clusters
	// are not cut.
	leastToCut = 200
)

// cutShells are the shares of contexts of the shells that are tried.
var cutShells = []float64{0.4, 0.1}

// shape returns the shape that the options ask for, or the part of it that the number of contexts
// decides.
func (t *trainer) shape() shape {
	o := t.opt
	if o.Clusters > 0 {
		return shape{clusters: o.Clusters, iterations: o.Iterations, shells: o.Shells}
	}
	if advised := min(perLabel*t.Labels, wellServed); t.N < advised/4 {
		t.warn("%d contexts are few for %d labels, %d are advised: more find more labels of other text, and tell the precision better", t.N, t.Labels, advised)
	}
	return t.shapeOf(min(max(t.N/contextsPerCluster, 1), usualClusters, t.pool.N), "")
}

// shapeOf returns the shape with a number of clusters; its shells are undecided.
func (t *trainer) shapeOf(clusters int, why string) shape {
	f, how := shape{clusters: clusters, undecided: true}, "found by k-means"
	if t.N/clusters < leastToLearn {
		how = fmt.Sprintf("found by k-means alone: training the vectors helps from %s contexts in each on", progress.Count(leastToLearn))
	} else if f.iterations = t.opt.Iterations; f.iterations > 0 {
		how = fmt.Sprintf("found by k-means and trained: that helps from %s contexts in each on", progress.Count(leastToLearn))
	}
	t.decide("%s clusters, %s contexts in each, %s%s", progress.Count(clusters), progress.Count(t.N/clusters), how, why)
	return f
}

// attempt is a shape with its clusters, and its figures on held-out contexts.
type attempt struct {
	shape
	kmeans      []kmeans.Iteration
	learning    *learn.Course
	router      *router.Router // of the clusters alone
	found, held []router.Found // of all contexts, and of the held-out ones
	made        *built         // without these; nil if there are none
	bytes       float64        // that a query at the target reads; infinite if that was not asked
}

// of is where the attempt finds these contexts.
func (x *attempt) of(ids []uint32) []router.Found {
	part := make([]router.Found, len(ids))
	for j, i := range ids {
		part[j] = x.found[i]
	}
	return part
}

// best returns the attempt of the shape that is wanted. If vectors are most of the bytes that a
// query reads, it also tries half the clusters, and returns that attempt if a query reads less.
func (t *trainer) best(ctx context.Context) (*attempt, error) {
	f := t.shape()
	x, err := t.try(ctx, f)
	if err != nil || !f.undecided || f.clusters < 2 || 2*t.vectorBytes(f.clusters) <= x.bytes {
		return x, err
	}
	half, err := t.try(ctx, t.shapeOf(f.clusters/2, fmt.Sprintf("; tried because a query reads %.3g KB of vectors", t.vectorBytes(f.clusters)/1000)))
	if err != nil {
		return nil, err
	}
	if half.bytes < x.bytes {
		x = half
	}
	t.decide("%s clusters are taken", progress.Count(x.clusters))
	return x, nil
}

// try finds the clusters of a shape, and decides the undecided parts of it.
func (t *trainer) try(ctx context.Context, f shape) (x *attempt, err error) {
	x = &attempt{shape: f, bytes: math.Inf(1)}
	v, history, course, err := t.vectors(ctx, f)
	if err != nil {
		return nil, err
	}
	x.kmeans, x.learning = history, course
	kernels.Round4(v, t.Dim) // half the bytes of every query, and cells that serve as well
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
	return x, t.cut(ctx, x, b)
}

// decide records a decision.
func (t *trainer) decide(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	t.record.Decisions = append(t.record.Decisions, line)
	t.Report.Message(line)
}

// cut decides the shells of an undecided shape, by the figures of held-out contexts for screens
// made from the others, and leaves the lists of the shape.
func (t *trainer) cut(ctx context.Context, x *attempt, b *builder) (err error) {
	if !x.undecided {
		x.made, err = b.build(ctx, x.shape, t.mostBudget())
		return err
	}
	f := x.shape
	tries := []shape{f}
	if t.held.N < leastToCut || t.opt.Geometry == 0 {
		t.decide("clusters alone: %d held-out contexts are too few to judge shells by", t.held.N)
	} else {
		f.shells = cutShells
		tries = append(tries, f)
	}
	most := t.mostBudget()
	var figures []string
	for _, try := range tries {
		made, err := b.build(ctx, try, most)
		if err != nil {
			return err
		}
		bytes := math.Inf(1)
		if len(tries) > 1 {
			outcomes := made.lists.Measure(t.held, cellsOf(made.router, x.held))
			bytes = t.bytes(try.clusters, made, outcomes)
			// The next ones need not reach further than the ladder of this.
			budgets := t.budgets(made.lists, outcomes, most)
			most = max(budgets[len(budgets)-1], t.opt.Budget)
			figures = append(figures, fmt.Sprintf("%.3g KB with %s", bytes/1000, try))
		}
		if x.made == nil || bytes < x.bytes {
			x.shape, x.made, x.bytes = try, made, bytes
		}
	}
	if len(tries) > 1 {
		t.decide("%s are taken: near the target precision a query reads %s", x.shape, strings.Join(figures, ", "))
	}
	return nil
}

// bytes returns the mean number of bytes that a query reads to reach the target on held-out
// contexts: the codes of vectors and of candidates. It is the geometric mean over four times, twice
// and once the misses that the target allows, since the number of held-out labels that a good
// screen misses is small.
func (t *trainer) bytes(clusters int, made *built, outcomes []precision.Outcome) float64 {
	sum := 0.0
	const steps = 3
	for i := range steps {
		candidates := t.candidates(made.lists, outcomes, float64(int(1)<<i))
		sum += kernels.Log(t.vectorBytes(clusters) + float64(candidates*float64(t.Dim+16)))
	}
	return kernels.Exp(sum / steps)
}

// vectorBytes returns the bytes of the vectors of clusters.
func (t *trainer) vectorBytes(clusters int) float64 { return float64(clusters * (t.Dim/2 + 16)) }

// candidates returns the mean number of candidates at which the missed labels are at most times the
// labels that the target allows, and the number of the longest lists if more labels are missed.
func (t *trainer) candidates(l *ladder.Lists, outcomes []precision.Outcome, times float64) float64 {
	_, allowed := t.allowed()
	most := t.mostBudget()
	for budget := max(l.Least(), float64(t.K)); ; budget *= 1.02 {
		share, _ := l.Threshold(min(budget, most))
		if _, all, candidates := l.At(share, outcomes); all <= times*allowed || budget >= most {
			return candidates
		}
	}
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
