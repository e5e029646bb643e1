package train

import (
	"context"
	"fmt"
	"math"
	"slices"
)

// learned is what the loop of Algorithm 1 gives: the clusters that did best on
// the contexts held out, and the course of it, see Record.
type learned struct {
	clusters
	heldOut           int
	scale, groupScale float64
	alternations      []Alternation
	best              int // of alternations
	bestHits          int // labels of the contexts held out in their sets, with the best
}

func (l *learned) record(r *Record) {
	r.HeldOut, r.Scale, r.GroupScale, r.Alternations, r.Best = l.heldOut, l.scale, l.groupScale, l.alternations, l.best
}

// learn runs the loop of Algorithm 1 from the clusters of k-means, whose memory
// it uses for its own. If a run was interrupted after an alternation it goes
// on from there.
func learn(ctx context.Context, d *data, start *clustered, opt *LearningOptions, sets *SetOptions, c *checkpoint) (*learned, error) {
	pool, judges := holdOut(d.n, opt.HeldOut)
	so := &learned{heldOut: len(judges), bestHits: -1}
	if len(judges) == 0 {
		judges = pool
	}
	now, first := &start.clusters, 0
	left := c.state()
	resumed := left != nil && left.Iteration > 0
	if !resumed {
		var err error
		if so.scale, so.groupScale, err = scaleClusters(ctx, d, now, opt.Confidence); err != nil {
			return nil, err
		}
	}
	so.clusters = clusters{now.levels, slices.Clone(now.weights), now.cluster, nil}
	l := newLearner(d, now.levels, now.weights, pool, sets.Budget, opt)
	steps := max(1, int(math.Ceil(float64(opt.EpochFraction*float64(len(pool)))/float64(len(l.batch)))))
	l.steps = opt.Iterations * steps
	if resumed {
		left.restore(l, so)
		first = left.Iteration
	}
	loss := 0.0
	for iteration := first; ; iteration++ {
		// V fixed: the candidate sets, from the contexts of training alone.
		if iteration > 0 {
			if _, err := now.route(ctx, d, d.report.stage(StageAssign, iteration, d.n)); err != nil {
				return nil, err
			}
		}
		ranked, err := rankLabels(ctx, d, pool, now, nil, sets)
		if err != nil {
			return nil, err
		}
		ranked.bound(sets.Largest)
		taken := ranked.take(sets.Budget)
		table := newLossTable(newMembership(taken.sets, d.universe), d.k, sets.Lambda)
		if !resumed || iteration > first { // else it is on record
			f := table.measure(d, judges, now.cluster)
			so.judge(iteration, loss, f, now.weights)
			if iteration > 0 {
				if err := c.saveAlternation(iteration, l, start, so); err != nil {
					return nil, err
				}
			}
			d.report.message(fmt.Sprintf("alternation %d of %d: %s", iteration, opt.Iterations, f.text(d.k)))
		}
		stop := opt.Patience > 0 && iteration-so.best >= opt.Patience
		if iteration < opt.Iterations && stop {
			d.report.message(fmt.Sprintf("stopped: alternation %d is still the best", so.best))
		}
		repeated := repeating(so.alternations)
		if iteration < opt.Iterations && repeated && !stop {
			d.report.message(fmt.Sprintf("stopped: the last %d alternations have the same figures", repeats))
		}
		if iteration == opt.Iterations || stop || repeated {
			break
		}
		// The sets fixed: V.
		done := d.report.stage(StageLearn, iteration+1, steps*len(l.batch))
		if loss, err = l.learn(ctx, taken, table, steps, done); err != nil {
			return nil, err
		}
	}
	_, err := so.route(ctx, d, d.report.stage(StageAssign, 0, d.n))
	return so, err
}

// judge records an alternation, and keeps its weights if they are the best
// so far.
func (l *learned) judge(iteration int, loss float64, f figures, weights []float32) {
	l.alternations = append(l.alternations, Alternation{
		Loss: loss, MeanCandidates: f.meanCandidates, Precision1: f.precision1, PrecisionK: f.precisionK,
	})
	if f.hits > l.bestHits {
		l.bestHits, l.best = f.hits, iteration
		copy(l.weights, weights)
	}
}
