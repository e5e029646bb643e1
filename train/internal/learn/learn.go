// Package learn learns the vectors of clusters, from where k-means leaves them: the loop of
// Algorithm 1 of the paper.
package learn

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/stage"
	"github.com/learning-to-screen/l2s/internal/search/router"
	"github.com/learning-to-screen/l2s/train/internal/corpus"
	"github.com/learning-to-screen/l2s/train/internal/rng"
	"github.com/learning-to-screen/l2s/train/internal/shares"
)

// ErrDiverged means that learning has led to vectors that are no clusters.
var ErrDiverged = errors.New("learning diverged, give a lower learning rate or multiplier")

// perCluster bounds the contexts of a cluster, on average, that are learned from.
const perCluster = 3000

// Options are the options of learning V; train.LearningOptions describes each.
type Options struct {
	Budget        float64
	Lambda        float64
	Estimator     string
	Gamma         float64
	Multiplier    float64
	EpochFraction float64
	BatchSize     int
	Rate          float64
	Confidence    float64
}

// The estimators of the gradient: GumbelST samples, Expected takes the expectation.
const (
	GumbelST = "gumbel-st"
	Expected = "expected"
)

// Alternation are the figures of one alternation on the held-out contexts, with sets by
// the counts of the others: L-bar, P@1 and P@k.
type Alternation struct {
	// Loss is the mean loss (Equation 6) over the contexts learned from, at
	// the clusters sampled. 0 for k-means.
	Loss           float64 `json:"loss"`
	MeanCandidates float64 `json:"mean_candidates"`
	Precision1     float64 `json:"precision_1"`
	PrecisionK     float64 `json:"precision_k"`
}

// Course is how learning went.
type Course struct {
	// Scale is the factor by which the unit vectors of k-means were multiplied
	// before learning.
	Scale float64 `json:"scale"`
	// Alternations holds the state after k-means, first, and after each
	// alternation.
	Alternations []Alternation `json:"alternations"`
	// Best is the index in Alternations of the vectors that Run returns.
	Best int `json:"best"`
}

// Run learns from the contexts of pool, or from evenly spaced ones if there are many, and returns
// the vectors that serve the contexts held out best, or the contexts of pool if none are held out.
// v are the vectors of k-means, which are only read. The ids of always, ascending, are in every
// set.
func Run(ctx context.Context, pool, held *corpus.Corpus, v []float32, iterations int, always []uint32, opt *Options) ([]float32, *Course, error) {
	pool = pool.Spaced(perCluster * (len(v) / pool.Dim))
	if held.N == 0 {
		held = pool
	}
	best, now := slices.Clone(v), slices.Clone(v)
	course, highest := &Course{Scale: scaleFor(pool, v, opt.Confidence)}, -1.0
	for i, x := range v {
		now[i] = float32(course.Scale * float64(x))
	}
	l := newLearner(pool, now, opt)
	steps := max(1, int(math.Ceil(float64(opt.EpochFraction*float64(pool.N))/float64(len(l.batch)))))
	l.steps = iterations * steps
	loss := 0.0
	for iteration := 0; ; iteration++ {
		// V fixed: the candidate sets, from the pool alone.
		taken, table, err := l.sets(ctx, always, iteration)
		if err != nil {
			return nil, nil, err
		}
		a, err := l.measure(ctx, held, table)
		if err != nil {
			return nil, nil, err
		}
		a.Loss = loss
		course.Alternations = append(course.Alternations, a)
		if a.PrecisionK > highest {
			highest, course.Best = a.PrecisionK, iteration
			copy(best, now)
		}
		pool.Report.Message(fmt.Sprintf("alternation %d of %d: P@1 %.4f P@%d %.4f candidates %.1f", iteration, iterations, a.Precision1, pool.K, a.PrecisionK, a.MeanCandidates))
		if iteration == iterations {
			return best, course, nil
		}
		// The sets fixed: V.
		done := pool.Report.Stage(stage.Learn, iteration+1, steps*len(l.batch))
		if loss, err = l.learn(ctx, taken, table, steps, done); err != nil {
			return nil, nil, err
		}
	}
}

// route returns the clusters of contexts by the present vectors.
func (l *learner) route(ctx context.Context, c *corpus.Corpus, done func(int)) ([]uint32, error) {
	r, err := router.New(l.Dim, l.v, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDiverged, err)
	}
	found, err := c.Route(ctx, r, nil, done)
	cluster := make([]uint32, len(found))
	for i, f := range found {
		cluster[i] = uint32(f.Cluster)
	}
	return cluster, err
}

// sets returns the candidate sets for the present vectors, and their losses.
func (l *learner) sets(ctx context.Context, always []uint32, iteration int) (*candidateSets, *lossTable, error) {
	cluster, err := l.route(ctx, l.Corpus, l.Report.Stage(stage.Assign, iteration, l.N))
	if err != nil {
		return nil, nil, err
	}
	p := corpus.NewPartition(cluster, l.clusters)
	counted, err := shares.ByCounts(ctx, l.Corpus, p)
	if err != nil {
		return nil, nil, err
	}
	taken := rank(counted, p.Sizes(), l.opt.Lambda, always).take(l.opt.Budget)
	return taken, newLossTable(taken.sets, l.Labels, l.K, l.opt.Lambda), nil
}

// measure returns the figures of the sets on contexts.
func (l *learner) measure(ctx context.Context, c *corpus.Corpus, table *lossTable) (Alternation, error) {
	cluster, err := l.route(ctx, c, nil)
	if err != nil {
		return Alternation{}, err
	}
	first, hits, size := 0, 0, 0
	for i, t := range cluster {
		size += table.sizes[t]
		for j, s := range c.LabelsOf(uint32(i)) {
			if table.has(int(t), s) {
				hits++
				if j == 0 {
					first++
				}
			}
		}
	}
	n := float64(c.N)
	return Alternation{MeanCandidates: float64(size) / n, Precision1: float64(first) / n, PrecisionK: float64(hits) / (n * float64(c.K))}, nil
}

const (
	scaleSample = 2000 // contexts that set the scale
	scaleLimit  = 14   // the logarithm of the largest scale tried; the smallest is its inverse
	scaleSteps  = 40   // halvings of that range of logarithms
)

// scaleFor returns the factor on V at which the mean over a sample of contexts
// of max_t P(t|h) is the given confidence. The mean grows with the factor, so
// bisection finds it. If no factor does (one cluster; contexts between two
// equal vectors) it is 1.
func scaleFor(c *corpus.Corpus, v []float32, confidence float64) float64 {
	random := rng.New(c.Seed, rng.Scale, 0)
	sample, buffer := random.Sample(c.N, min(c.N, scaleSample)), c.Buffer()
	r := len(v) / c.Dim
	logits, scaled := make([]float64, len(sample)*r), make([]float64, r)
	for i, id := range sample {
		kernels.Float32Rows(v, c.Dim).RefScan(logits[i*r:(i+1)*r], nil, c.Row(id, buffer))
	}
	mean := func(scale float64) (sum float64) {
		for i := range sample {
			largest := math.Inf(-1)
			for j, x := range logits[i*r : (i+1)*r] {
				scaled[j] = float64(scale * x)
				largest = max(largest, scaled[j])
			}
			sum += kernels.Exp(largest - kernels.LogSumExp(scaled))
		}
		return sum / float64(len(sample))
	}
	lo, hi := -float64(scaleLimit), float64(scaleLimit)
	if mean(kernels.Exp(lo)) >= confidence || mean(kernels.Exp(hi)) <= confidence {
		return 1
	}
	for range scaleSteps {
		if middle := (lo + hi) / 2; mean(kernels.Exp(middle)) < confidence {
			lo = middle
		} else {
			hi = middle
		}
	}
	return kernels.Exp((lo + hi) / 2)
}
