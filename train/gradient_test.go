package train

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s/internal/simdtest"
	"github.com/learning-to-screen/l2s/train/internal/rng"
)

// batchObjective is what one step of the learner descends, written down as in
// the paper, in plain float64 arithmetic, as a function of V: for the batch
// of all n contexts, in their given order,
//
//	1/n ( sum_i sum_t p_it (l_it + mu |c_t|) + gamma max(0, L-bar - B) )
//
// with p the softmax of v_t.h_i + g_it (g zero for the expected loss), and
// L-bar = past sizeDecay + (1 - sizeDecay) m, m the mean over the batch of
// sum_t p_it |c_t|. over says which branch of the maximum is meant.
// With groups, v is U before V, and p_it the softmax of log P(t|h_i) + g_it with
// P(t|h) the product of the softmax over the groups and that within the group.
func batchObjective(t *data, v []float64, groups int, sets [][]uint32, ids []uint32, noise [][]float64, opt *Options, mu, past float64, over bool) float64 {
	r := len(sets)
	loss, size := 0.0, 0.0
	for i, id := range ids {
		z := make([]float64, groups+r)
		for c := range z {
			for j, x := range t.row(id) {
				z[c] += v[c*t.dim+j] * float64(x)
			}
		}
		if groups > 0 {
			upper, lower := naiveSoftmax(z[:groups]), z[groups:]
			for a, p := range upper {
				part := lower[a*r/groups : (a+1)*r/groups]
				for c, q := range naiveSoftmax(part) {
					part[c] = math.Log(p * q)
				}
			}
			z = lower
		}
		for c := range z {
			z[c] += noise[i][c]
		}
		for c, p := range naiveSoftmax(z) {
			hits := 0
			for _, y := range t.labelsOf(id) {
				for _, s := range sets[c] {
					if s == y {
						hits++
					}
				}
			}
			loss += p * (float64(t.k-hits) + opt.Lambda*float64(len(sets[c])-hits) + mu*float64(len(sets[c])))
			size += p * float64(len(sets[c]))
		}
	}
	n := float64(len(ids))
	if over {
		loss += opt.Gamma * (sizeDecay*past + (1-sizeDecay)*size/n - opt.Budget)
	}
	return loss / n
}

// One step of plain gradient descent at rate 1 moves V by the gradient, which
// central differences of the objective must match in every element.
func TestGradientIsThatOfTheObjective(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) {
		for _, estimator := range []Estimator{GumbelST, Expected} {
			for _, over := range []bool{false, true} {
				for _, groups := range []int{0, 1, 2, 3, 6} {
					t.Run(fmt.Sprintf("%v over budget %v, %d groups", estimator, over, groups), func(t *testing.T) {
						checkGradient(t, estimator, over, groups)
					})
				}
			}
		}
	})
}

func checkGradient(t *testing.T, estimator Estimator, over bool, groups int) {
	const r = 6
	tr := newTestData(t, newSynthetic(t, 3, 24, 5, 40, 4, 0.5), 5)
	random := rand.New(rand.NewPCG(9, 9))
	sets := make([][]uint32, r)
	for c := range sets {
		for s := range 40 {
			if random.IntN(r+1) <= c { // sets of different sizes
				sets[c] = append(sets[c], uint32(s))
			}
		}
	}
	v := make([]float32, (groups+r)*tr.dim)
	for i := range v {
		v[i] = float32(random.NormFloat64())
		if i < groups*tr.dim {
			v[i] /= 4 // no group is negligible
		}
	}
	opt := testOptions()
	opt.Clusters, opt.Groups, opt.BatchSize, opt.Estimator = r, groups, tr.n, estimator
	opt.Optimizer, opt.Momentum, opt.LearningRate = Momentum, 0, 1
	opt.Lambda, opt.Gamma, opt.Budget, opt.Multiplier = 0.02, 1000, 8, 0.5
	fixed := &candidateSets{sets: sets, multiplier: 0.06}
	if over {
		fixed.mean = 100 // of the past: the moving average keeps near it
	}
	l := newLearner(tr, opt.levels(), append([]float32(nil), v...), ascending(tr.n), opt.Budget, &opt.LearningOptions)
	l.steps = math.MaxInt
	if _, err := l.learn(t.Context(), fixed, newLossTable(newMembership(sets, 40), tr.k, opt.Lambda), 1, nil); err != nil {
		t.Fatal(err)
	}
	if over != (l.meanSize > opt.Budget) {
		t.Fatalf("L-bar is %v against a budget of %v: not the branch to be tested", l.meanSize, opt.Budget)
	}

	noise := make([][]float64, tr.n)
	for i := range noise {
		noise[i] = make([]float64, r)
		if estimator == GumbelST {
			g := rng.New(tr.seed, rng.Gumbel, uint64(i))
			for c := range noise[i] {
				noise[i][c] = -math.Log(exponential(&g))
			}
		}
	}
	at := make([]float64, len(v))
	for i, x := range v {
		at[i] = float64(x)
	}
	objective := func() float64 {
		return batchObjective(tr, at, groups, sets, l.batch, noise, &opt, opt.Multiplier*fixed.multiplier, fixed.mean, over)
	}
	largest := 0.0
	for i := range at {
		const step = 1e-4
		x := at[i]
		at[i] = x + step
		up := objective()
		at[i] = x - step
		down := objective()
		at[i] = x
		want := (up - down) / (2 * step)
		got := x - l.optimizer.v[i]
		largest = max(largest, math.Abs(want))
		if math.Abs(got-want) > 1e-6*(1+math.Abs(want)) {
			t.Errorf("element %d: found %v, want %v", i, got, want)
		}
	}
	if largest < 1e-3 {
		t.Errorf("the gradient vanishes: its largest element is %v", largest)
	}
}

// The largest element of the relaxed sample must be at t with probability
// P(t|h): the one-hot of the forward pass is a sample of the distribution.
func TestGumbelForwardSamplesTheDistribution(t *testing.T) {
	want := naiveSoftmax([]float64{0.5, -1, 2, 0, 1.5})
	const draws = 40000
	count := make([]int, len(want))
	for i := range draws {
		random := rng.New(7, rng.Gumbel, uint64(i))
		p := append([]float64(nil), want...)
		relaxGumbel(p, &random)
		sum, best := 0.0, 0
		for c, x := range p {
			sum += x
			if x > p[best] {
				best = c
			}
		}
		if math.Abs(sum-1) > 1e-12 {
			t.Fatalf("draw %d: %v sums to %v, want 1", i, p, sum)
		}
		count[best]++
	}
	for c, p := range want {
		got := float64(count[c]) / draws
		if sigma := math.Sqrt(p * (1 - p) / draws); math.Abs(got-p) > 5*sigma {
			t.Errorf("cluster %d: share %v of the samples, want %v within %v", c, got, p, 5*sigma)
		}
	}
}

// The distribution function is compared at many points, in the tail beyond the
// ziggurat too (Kolmogorov and Smirnov: 1.95/sqrt(n) is exceeded once in a
// thousand).
func TestExponentialHasItsDistribution(t *testing.T) {
	const draws = 500000
	x := make([]float64, draws)
	random := rng.New(1, 2, 3)
	for i := range x {
		if x[i] = exponential(&random); x[i] <= 0 {
			t.Fatalf("found %v", x[i])
		}
	}
	slices.Sort(x)
	largest := 0.0
	for i, v := range x {
		largest = max(largest, math.Abs(1-math.Exp(-v)-(float64(i)+0.5)/draws))
	}
	if limit := 1.95 / math.Sqrt(draws); largest > limit {
		t.Errorf("the distribution function is off by %v, limit %v", largest, limit)
	}
	beyond, _ := slices.BinarySearch(x, zigguratEnd)
	tail, want := float64(draws-beyond), draws*math.Exp(-zigguratEnd)
	if math.Abs(tail-want) > 5*math.Sqrt(want) {
		t.Errorf("%v samples beyond %v, want %v", tail, zigguratEnd, want)
	}
	if largest, want := x[draws-1], math.Log(draws); largest < want-3 || largest > want+10 {
		t.Errorf("the largest of %d samples is %v, want near %v", draws, largest, want)
	}
}

func TestOptimizersTakeTheStepsOfTheirRules(t *testing.T) {
	gradients := [][]float64{{1, -2}, {0.5, 4}, {-3, 0}}
	const rate = 0.1
	t.Run("adam", func(t *testing.T) {
		v := []float32{1, 2}
		o := newOptimizer(Adam, 0, v)
		x, m, s := []float64{1, 2}, []float64{0, 0}, []float64{0, 0}
		for step, g := range gradients {
			o.begin()
			o.update(v, 0, g, rate)
			for i := range x {
				m[i] = 0.9*m[i] + 0.1*g[i]
				s[i] = 0.999*s[i] + 0.001*g[i]*g[i]
				mh := m[i] / (1 - math.Pow(0.9, float64(step+1)))
				sh := s[i] / (1 - math.Pow(0.999, float64(step+1)))
				x[i] -= rate * mh / (math.Sqrt(sh) + 1e-8)
				if math.Abs(o.v[i]-x[i]) > 1e-12 || v[i] != float32(o.v[i]) {
					t.Errorf("step %d element %d: found %v and %v, want %v", step, i, o.v[i], v[i], x[i])
				}
			}
		}
	})
	t.Run("momentum", func(t *testing.T) {
		v := []float32{1, 2}
		o := newOptimizer(Momentum, 0.5, v)
		x, m := []float64{1, 2}, []float64{0, 0}
		for step, g := range gradients {
			o.begin()
			o.update(v, 0, g, rate)
			for i := range x {
				m[i] = 0.5*m[i] + g[i]
				x[i] -= rate * m[i]
				if math.Abs(o.v[i]-x[i]) > 1e-12 || v[i] != float32(o.v[i]) {
					t.Errorf("step %d element %d: found %v and %v, want %v", step, i, o.v[i], v[i], x[i])
				}
			}
		}
	})
}
