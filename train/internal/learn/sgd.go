package learn

import (
	"context"

	"github.com/learning-to-screen/l2s/internal/codes/floats"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
	"github.com/learning-to-screen/l2s/train/internal/corpus"
	"github.com/learning-to-screen/l2s/train/internal/rng"
)

// learner runs stochastic gradient descent on V with the candidate sets fixed.
//
// One step takes a batch of n contexts and descends
//
//	1/n ( sum_i (l_i,t(i) + mu |c_t(i)|)  +  gamma max(0, L-bar - B) )
//
// which is Equation 8 over the batch, divided by n, with the multiplier mu of the knapsack (see
// Options.Multiplier) for the constraint. L-bar is a moving average over the batches, and its new
// part has a gradient: a candidate costs gamma (1 - sizeDecay)/n more, in addition to lambda and
// mu, while L-bar exceeds B.
type learner struct {
	*corpus.Corpus
	opt         *Options
	steps, step int // of all alternations; done
	optimizer   *adam
	clusters    int
	v           []float32 // V as the optimizer wrote it last: clusters x dim

	pool     []uint32  // contexts to learn from, in the order of this epoch
	next     int       // of the pool
	epochs   uint64    // shuffles so far
	batch    []uint32  // contexts of this step
	drawn    uint64    // contexts used so far: the place of each in the noise
	p        []float64 // batch x clusters: P(t|h), or its Gumbel sample
	cost     []float64 // batch x clusters: l_it, then with the price of candidates
	coeff    []float32 // batch x clusters: gradient with respect to the logits
	chosen   []choice
	meanSize float64 // moving average of L-bar
}

// choice is the outcome of the forward pass for one context: its share of
// L-bar and of the loss.
type choice struct{ size, loss float64 }

// sizeDecay is the weight of the past in the moving average of L-bar: it spans
// some twenty batches.
const sizeDecay = 0.95

const (
	gradientTile = 8  // clusters whose gradients one goroutine sums at a time: they stay in the first-level cache
	sampleChunk  = 16 // contexts a goroutine takes at a time
)

func newLearner(c *corpus.Corpus, v []float32, opt *Options) *learner {
	n, clusters := min(opt.BatchSize, c.N), len(v)/c.Dim
	l := &learner{
		Corpus: c, opt: opt, clusters: clusters, optimizer: newAdam(v), v: v,
		pool: corpus.Ascending(c.N), batch: make([]uint32, n),
		p: make([]float64, n*clusters), cost: make([]float64, n*clusters), coeff: make([]float32, n*clusters),
		chosen: make([]choice, n),
	}
	l.shuffle()
	return l
}

func (l *learner) shuffle() {
	random := rng.New(l.Seed, rng.Order, l.epochs)
	random.Shuffle(l.pool)
	l.epochs++
	l.next = 0
}

// draw fills the batch with the next contexts of the pool.
func (l *learner) draw() {
	for n := 0; n < len(l.batch); {
		if l.next == len(l.pool) {
			l.shuffle()
		}
		m := copy(l.batch[n:], l.pool[l.next:])
		n += m
		l.next += m
	}
}

// learn takes steps against the candidate sets and their loss table. It returns the mean loss
// (Equation 6) of the contexts it saw, at the clusters of the forward pass.
func (l *learner) learn(ctx context.Context, sets *candidateSets, table *lossTable, steps int, done func(int)) (float64, error) {
	l.meanSize = sets.mean
	sum := 0.0
	for range steps {
		l.draw()
		if err := l.forward(ctx, table); err != nil {
			return 0, err
		}
		var size, loss float64
		for _, c := range l.chosen {
			size += c.size
			loss += c.loss
		}
		n := float64(len(l.batch))
		sum += loss / n
		l.meanSize = float64(sizeDecay*l.meanSize) + float64((1-sizeDecay)*(size/n))
		price := float64(l.opt.Multiplier * sets.multiplier)
		if l.meanSize > l.opt.Budget {
			price += float64(l.opt.Gamma*(1-sizeDecay)) / n
		}
		if err := l.backward(ctx, table, price); err != nil {
			return 0, err
		}
		l.drawn += uint64(len(l.batch))
		l.step++
		if done != nil {
			done(len(l.batch))
		}
	}
	return sum / float64(steps), nil
}

// forward fills p, cost and chosen for the batch.
func (l *learner) forward(ctx context.Context, table *lossTable) error {
	r := l.clusters
	return parallel.Each(ctx, l.Threads, len(l.batch), sampleChunk, nil, func(_, lo, hi int) error {
		hits, buffer := make([]uint32, r), l.Buffer()
		for i := lo; i < hi; i++ {
			p, cost := l.p[i*r:(i+1)*r], l.cost[i*r:(i+1)*r]
			kernels.Float32Rows(l.v, l.Dim).RefScan(p, nil, l.Row(l.batch[i], buffer))
			kernels.Softmax(p, p)
			if l.opt.Estimator == GumbelST {
				random := rng.New(l.Seed, rng.Gumbel, l.drawn+uint64(i))
				relaxGumbel(p, &random)
			}
			table.losses(cost, hits, l.LabelsOf(l.batch[i]))
			if l.opt.Estimator == GumbelST { // at the cluster of the largest p
				best := 0
				for t, x := range p {
					if x > p[best] {
						best = t
					}
				}
				l.chosen[i] = choice{float64(table.sizes[best]), cost[best]}
				continue
			}
			var mean choice
			for t, x := range p {
				mean.size += float64(x * float64(table.sizes[t]))
				mean.loss += float64(x * cost[t])
			}
			l.chosen[i] = mean
		}
		return nil
	})
}

// backward takes the step, with the price of a candidate in addition to lambda. The gradient of row
// t of V is sum_i C_it h_i, where C_it is the gradient with respect to the logit z_it; each row is
// summed by one goroutine in the order of the batch.
func (l *learner) backward(ctx context.Context, table *lossTable, price float64) error {
	r, n := l.clusters, len(l.batch)
	err := parallel.Each(ctx, l.Threads, n, sampleChunk, nil, func(_, lo, hi int) error {
		for i := lo; i < hi; i++ {
			cost := l.cost[i*r : (i+1)*r]
			if price > 0 {
				for t, size := range table.sizes {
					cost[t] += float64(price * float64(size))
				}
			}
			softmaxGradient(l.coeff[i*r:(i+1)*r], l.p[i*r:(i+1)*r], cost, 1/float64(n))
		}
		return nil
	})
	if err != nil {
		return err
	}
	rate := float64(l.opt.Rate * (1 - float64(l.step)/float64(l.steps)))
	l.optimizer.begin()
	return parallel.Each(ctx, l.Threads, r, gradientTile, nil, func(_, lo, hi int) error {
		gradient, buffer := make([]float64, (hi-lo)*l.Dim), l.Buffer()
		for i, id := range l.batch {
			h := l.Row(id, buffer)
			for t, c := range l.coeff[i*r+lo : i*r+hi] {
				if c != 0 {
					floats.Axpy(gradient[t*l.Dim:(t+1)*l.Dim], c, h)
				}
			}
		}
		l.optimizer.update(l.v, lo*l.Dim, gradient, rate)
		return nil
	})
}
