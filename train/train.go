package train

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// trainer is what all steps of a run share.
type trainer struct {
	contexts  []float32 // n x dim, or more where only names the n that count
	only      []uint32  // ascending; nil for all
	n, dim    int
	universe  int      // L
	labels    []uint32 // n x k
	k         int
	seedValue uint64
	threads   int
	report    *reporter

	checkpoint *checkpoint
}

// row is h_i.
func (t *trainer) row(i uint32) []float32 {
	if t.only != nil {
		i = t.only[i]
	}
	return t.contexts[int(i)*t.dim : (int(i)+1)*t.dim]
}

// labelsOf are the k labels of context i, best first.
func (t *trainer) labelsOf(i uint32) []uint32 {
	return t.labels[int(i)*t.k : (int(i)+1)*t.k]
}

// assignChunk is the number of contexts a goroutine takes at a time where each
// costs about a microsecond.
const assignChunk = 256

// rank counts the labels of the given contexts in each cluster and orders the
// items of the knapsack. nb, unless nil, says where else contexts count.
func (t *trainer) rank(ctx context.Context, contexts, cluster []uint32, nb *neighbours, opt *Options) (*ranking, error) {
	own := newPartition(contexts, cluster, opt.Clusters)
	p := own
	if nb != nil {
		p = nb.partition(contexts, nb.temperature(t, opt.Spread), opt.Clusters)
	}
	c, err := countLabels(ctx, p, t.labels, t.k, t.universe, t.threads)
	if err != nil {
		return nil, err
	}
	c.total, c.sizes = len(contexts), own.sizes()
	if opt.Smoothing > 0 || nb != nil {
		return rankSmoothed(ctx, c, opt.Groups, opt.Smoothing, opt.Lambda, opt.always(), t.threads)
	}
	return rank(c, opt.Lambda, opt.always()), nil
}

// figures are P@1, P@k and L-bar of candidate sets on some contexts. The true
// labels of a context that are in its set are exactly those that the screen
// returns, so that both precisions are shares of labels.
type figures struct {
	precision1, precisionK, meanCandidates float64
	hits                                   int // labels in their sets
}

func (t *trainer) measure(m *membership, contexts, cluster []uint32) figures {
	var first, all, size int
	for _, i := range contexts {
		c := int(cluster[i])
		size += m.sizes[c]
		for j, s := range t.labelsOf(i) {
			if m.has(c, s) {
				all++
				if j == 0 {
					first++
				}
			}
		}
	}
	n := float64(len(contexts))
	return figures{float64(first) / n, float64(all) / (n * float64(t.k)), float64(size) / n, all}
}

func (f figures) text(k int) string {
	return fmt.Sprintf("P@1 %.4f P@%d %.4f L-bar %.1f", f.precision1, k, f.precisionK, f.meanCandidates)
}

// Run learns a screen for the layer from contexts, N x layer.Dim() row-major,
// which are only read and may be a memory-mapped file: Algorithm 1 of the
// paper, see the package's documentation for the steps. It returns the screen
// and the record that is also inside it.
//
// Errors: options out of their range (see [Options]), contexts that are not
// whole rows, a NaN or Inf (the context is named), a learning rate so high
// that V overflows. When ctx is cancelled it returns within a fraction of a
// second an error for which errors.Is with ctx.Err() holds.
func Run(ctx context.Context, layer *softmax.Layer, contexts []float32, opt Options) (*screen.Model, *Record, error) {
	models, records, err := RunBudgets(ctx, layer, contexts, opt, []float64{opt.Budget})
	if err != nil {
		return nil, nil, err
	}
	return models[0], records[0], nil
}

// RunBudgets is [Run] for several budgets at once. It returns a screen for each
// with its record, in the order given.
//
// The labels and k-means do not depend on a budget and are computed once. V is
// learned once, for opt.Budget; the sets of each screen are then those that the
// knapsack gives for its budget with this V. So the screen for opt.Budget is
// that of Run, byte for byte, and without learning the others are too; with
// learning they have sets as good as any for their V, but a V that was learned
// for another price of a candidate. The sets for a smaller budget are subsets
// of those for a larger one.
//
// Errors are those of Run, for each of the budgets.
func RunBudgets(ctx context.Context, layer *softmax.Layer, contexts []float32, opt Options, budgets []float64) (models []*screen.Model, records []*Record, err error) {
	err = guard(func() (err error) {
		models, records, err = runBudgets(ctx, layer, contexts, opt, budgets)
		return err
	})
	return models, records, err
}

func runBudgets(ctx context.Context, layer *softmax.Layer, contexts []float32, opt Options, budgets []float64) ([]*screen.Model, []*Record, error) {
	n, err := contextCount(layer, contexts)
	if err != nil {
		return nil, nil, err
	}
	for _, budget := range append([]float64{opt.Budget}, budgets...) {
		o := opt
		o.Budget = budget
		if err := o.check(n, layer.Labels(), layer.Dim()); err != nil {
			return nil, nil, err
		}
	}
	t := &trainer{
		contexts: contexts, n: n, dim: layer.Dim(), universe: layer.Labels(), k: opt.K,
		seedValue: opt.Seed, threads: threadCount(opt.Threads), report: &reporter{call: opt.Progress},
	}
	var left *state // by a run that was interrupted
	if t.checkpoint, left, err = openCheckpoint(ctx, t, layer, &opt); err != nil {
		return nil, nil, err
	}
	if err := t.findLabels(ctx, layer, opt.Labels); err != nil {
		return nil, nil, err
	}
	record := &Record{Options: opt.recorded(), Contexts: n}
	v, cluster, err := t.startClusters(ctx, left, &opt, record)
	if err != nil {
		return nil, nil, err
	}
	if !opt.KMeansOnly && opt.Iterations > 0 {
		if v, err = t.alternate(ctx, v, cluster, left, &opt, record); err != nil {
			return nil, nil, err
		}
		if _, err = t.route(ctx, v, cluster, &opt, t.report.stage(StageAssign, 0, n)); err != nil {
			return nil, nil, err
		}
	}
	return t.finish(ctx, layer, v, cluster, &opt, budgets, record)
}

// findLabels takes the labels that are given, or those that an interrupted run
// left, or computes them.
func (t *trainer) findLabels(ctx context.Context, layer *softmax.Layer, given []uint32) (err error) {
	if given != nil {
		return t.useLabels(ctx, given)
	}
	if t.labels, err = t.checkpoint.labels(ctx); err != nil || t.labels != nil {
		return err
	}
	if t.labels, err = topLabels(ctx, layer, t.contexts, t.n, t.k, t.threads, t.report); err != nil {
		return err
	}
	return t.checkpoint.saveLabels(t.labels)
}

// startClusters returns the V of k-means and the cluster of each context, or
// the V that an interrupted run left.
func (t *trainer) startClusters(ctx context.Context, left *state, opt *Options, record *Record) (v []float32, cluster []uint32, err error) {
	if left == nil {
		if v, cluster, err = t.cluster(ctx, opt, record); err != nil {
			return nil, nil, err
		}
		return v, cluster, t.checkpoint.saveKMeans(v, record)
	}
	after := "k-means"
	if left.Iteration > 0 {
		after = fmt.Sprintf("alternation %d of %d", left.Iteration, opt.Iterations)
	}
	t.report.message("continuing after " + after)
	*record = left.Record
	v, cluster = make([]float32, len(left.v)), make([]uint32, t.n)
	narrow(v, left.v)
	if left.Iteration == 0 {
		_, err = t.route(ctx, v, cluster, opt, t.report.stage(StageAssign, 0, t.n))
	}
	return v, cluster, err
}

// alternate runs the loop of Algorithm 1 from the clusters of k-means, and
// returns the V that did best on the contexts held out. cluster is its scratch
// and holds the clusters of k-means at the start. Where left is the state
// after an alternation, it goes on from there.
func (t *trainer) alternate(ctx context.Context, v []float32, cluster []uint32, left *state, opt *Options, record *Record) ([]float32, error) {
	pool, judges := holdOut(t.n, opt.HeldOut)
	record.HeldOut = len(judges)
	if len(judges) == 0 {
		judges = pool
	}
	resumed := left != nil && left.Iteration > 0
	if !resumed {
		if err := t.scale(ctx, v, cluster, opt, record); err != nil {
			return nil, err
		}
	}
	best, bestHits := slices.Clone(v), -1
	l := newLearner(t, opt, v, pool)
	steps := max(1, int(math.Ceil(float64(opt.EpochFraction*float64(len(pool)))/float64(len(l.batch)))))
	l.steps = opt.Iterations * steps

	loss, start := 0.0, 0
	if resumed {
		left.restore(l)
		narrow(best, left.best)
		bestHits, start = left.BestHits, left.Iteration
	}
	for iteration := start; ; iteration++ {
		// V fixed: the candidate sets, from the contexts of training alone.
		if iteration > 0 {
			if _, err := t.route(ctx, v, cluster, opt, t.report.stage(StageAssign, iteration, t.n)); err != nil {
				return nil, err
			}
		}
		ranked, err := t.rank(ctx, pool, cluster, nil, opt)
		if err != nil {
			return nil, err
		}
		sets := ranked.take(opt.Budget)
		table := newLossTable(newMembership(sets.sets, t.universe), t.k, opt.Lambda)
		if !resumed || iteration > start { // else it is in the record
			f := t.measure(table.membership, judges, cluster)
			record.Alternations = append(record.Alternations, Alternation{
				Loss: loss, MeanCandidates: f.meanCandidates, Precision1: f.precision1, PrecisionK: f.precisionK,
			})
			if f.hits > bestHits {
				bestHits, record.Best = f.hits, iteration
				copy(best, v)
			}
			if iteration > 0 {
				if err := t.checkpoint.saveAlternation(iteration, l, best, bestHits, record); err != nil {
					return nil, err
				}
			}
			t.report.message(fmt.Sprintf("alternation %d of %d: %s", iteration, opt.Iterations, f.text(t.k)))
		}
		if iteration == opt.Iterations {
			return best, nil
		}
		if opt.Patience > 0 && iteration-record.Best >= opt.Patience {
			t.report.message(fmt.Sprintf("stopped: alternation %d is still the best", record.Best))
			return best, nil
		}
		// The sets fixed: V.
		done := t.report.stage(StageLearn, iteration+1, steps*len(l.batch))
		if loss, err = l.learn(ctx, sets, table, steps, done); err != nil {
			return nil, err
		}
	}
}

// heldOutBlocks is the number of runs of neighbouring contexts that the
// held-out slice consists of. Neighbours in a text resemble each other:
// whole runs are more like new text than single contexts would be.
const heldOutBlocks = 20

// holdOut splits the contexts into those to learn from and those that choose
// the best alternation, share of them, in evenly spaced runs. Both ascending.
func holdOut(n int, share float64) (pool, held []uint32) {
	size := int(float64(share * float64(n)))
	rest := n - size
	pool, held = make([]uint32, 0, rest), make([]uint32, 0, size)
	blocks := max(1, min(heldOutBlocks, size))
	at := uint32(0)
	for b := 1; b <= blocks; b++ {
		for ; len(pool) < b*rest/blocks; at++ {
			pool = append(pool, at)
		}
		for ; len(held) < b*size/blocks; at++ {
			held = append(held, at)
		}
	}
	return pool, held
}

// finish counts the final sets on all contexts and builds the screens.
func (t *trainer) finish(ctx context.Context, layer *softmax.Layer, v []float32, cluster []uint32, opt *Options, budgets []float64, record *Record) (models []*screen.Model, records []*Record, err error) {
	all := make([]uint32, t.n)
	for i := range all {
		all[i] = uint32(i)
	}
	var nb *neighbours
	if opt.Spread > 0 {
		if nb, err = findNeighbours(ctx, t, v, opt); err != nil {
			return nil, nil, err
		}
	}
	ranked, err := t.rank(ctx, all, cluster, nb, opt)
	if err != nil {
		return nil, nil, err
	}
	var p *probes
	if opt.ProbeShare > 0 {
		if p, err = newProbes(ctx, t, v, cluster, opt); err != nil {
			return nil, nil, err
		}
	}
	var tail *softmax.Tail
	if opt.TailRank > 0 {
		if tail, err = softmax.LowRank(layer, opt.TailRank); err != nil {
			return nil, nil, fmt.Errorf("train: tail: %w", err)
		}
	}
	groups, v := opt.levels(v, t.dim)
	for _, budget := range budgets {
		r := *record
		r.Options.Budget = budget
		if budget != opt.Budget && len(r.Alternations) > 0 {
			r.LearnedFor = opt.Budget
		}
		var sets *candidateSets
		var f figures
		margin := 0.0
		if p != nil {
			sets, margin = p.take(ranked, budget), p.margin
			f = p.measure(t, sets, cluster)
		} else {
			sets = ranked.take(budget)
			f = t.measure(newMembership(sets.sets, t.universe), all, cluster)
		}
		r.MeanCandidates, r.Precision1, r.PrecisionK = f.meanCandidates, f.precision1, f.precisionK
		t.report.message("training contexts: " + f.text(t.k))
		encoded, err := json.Marshal(r)
		if err != nil {
			return nil, nil, fmt.Errorf("train: record: %w", err)
		}
		model, err := screen.NewModel(screen.Config{
			Dim: t.dim, Labels: t.universe, Clusters: v, Groups: groups, GroupSizes: opt.groupSizes(), ProbeMargin: margin,
			Sets: sets.sets, Always: ranked.always, Tail: tail,
			Fingerprint: layer.Fingerprint(), Record: encoded,
		})
		if err != nil {
			return nil, nil, fmt.Errorf("train: %w", err)
		}
		models, records = append(models, model), append(records, &r)
	}
	return models, records, nil
}
