package learn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
	"github.com/learning-to-screen/l2s/train/internal/corpus"
	"github.com/learning-to-screen/l2s/train/internal/rng"
	"github.com/learning-to-screen/l2s/train/internal/traintest"
)

// batchObjective is the function that one step of the learner descends, written as in the paper, in
// plain float64 arithmetic, as a function of V: for the batch of all n contexts, in their given
// order,
//
//	1/n ( sum_i sum_t p_it (l_it + mu |c_t|) + gamma max(0, L-bar - B) )
//
// with p the softmax of v_t.h_i + g_it (g zero for the expected loss), and L-bar = past sizeDecay +
// (1 - sizeDecay) m, m the mean over the batch of sum_t p_it |c_t|. over chooses the branch of the
// maximum.
func batchObjective(t *corpus.Corpus, v []float64, sets [][]uint32, ids []uint32, noise [][]float64, opt *Options, mu, past float64, over bool) float64 {
	r := len(sets)
	loss, size := 0.0, 0.0
	for i, id := range ids {
		z := make([]float64, r)
		for c := range z {
			for j, x := range t.Row(id, nil) {
				z[c] += v[c*t.Dim+j] * float64(x)
			}
		}
		for c := range z {
			z[c] += noise[i][c]
		}
		for c, p := range softmax(z) {
			hits := 0
			for _, y := range t.LabelsOf(id) {
				for _, s := range sets[c] {
					if s == y {
						hits++
					}
				}
			}
			loss += p * (float64(t.K-hits) + opt.Lambda*float64(len(sets[c])-hits) + mu*float64(len(sets[c])))
			size += p * float64(len(sets[c]))
		}
	}
	n := float64(len(ids))
	if over {
		loss += opt.Gamma * (sizeDecay*past + (1-sizeDecay)*size/n - opt.Budget)
	}
	return loss / n
}

// The first step of Adam uses the sign of the gradient alone: its mean of gradients must match
// central differences of the objective in every element.
func TestGradientIsThatOfTheObjective(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) {
		for _, gumbel := range []bool{true, false} {
			for _, over := range []bool{false, true} {
				t.Run(fmt.Sprintf("Gumbel %v, over budget %v", gumbel, over), func(t *testing.T) { checkGradient(t, gumbel, over) })
			}
		}
	})
}

func checkGradient(t *testing.T, gumbel, over bool) {
	const r = 6
	tr := traintest.Around(t, 3, 24, 5, 40, 4, 0.5).Corpus(t, 5)
	random := rand.New(rand.NewPCG(9, 9))
	sets := make([][]uint32, r)
	for c := range sets {
		for s := range 40 {
			if random.IntN(r+1) <= c { // sets of different sizes
				sets[c] = append(sets[c], uint32(s))
			}
		}
	}
	v := make([]float32, r*tr.Dim)
	for i := range v {
		v[i] = float32(random.NormFloat64())
	}
	opt := Options{BatchSize: tr.N, Rate: 1, Lambda: 0.02, Gamma: 1000, Budget: 8, Multiplier: 0.5}
	if gumbel {
		opt.Estimator = GumbelST
	}
	fixed := &candidateSets{sets: sets, multiplier: 0.06}
	if over {
		fixed.mean = 100 // of the past: the moving average keeps near it
	}
	l := newLearner(tr, append([]float32(nil), v...), &opt)
	l.steps = math.MaxInt
	if _, err := l.learn(t.Context(), fixed, newLossTable(sets, 40, tr.K, opt.Lambda), 1, nil); err != nil {
		t.Fatal(err)
	}
	if over != (l.meanSize > opt.Budget) {
		t.Fatalf("L-bar is %v against a budget of %v: not the branch to be tested", l.meanSize, opt.Budget)
	}

	noise := make([][]float64, tr.N)
	for i := range noise {
		noise[i] = make([]float64, r)
		if gumbel {
			g := rng.New(tr.Seed, rng.Gumbel, uint64(i))
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
		return batchObjective(tr, at, sets, l.batch, noise, &opt, opt.Multiplier*fixed.multiplier, fixed.mean, over)
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
		got := l.optimizer.first[i] / (1 - adamBeta1)
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
	want := softmax([]float64{0.5, -1, 2, 0, 1.5})
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

// The distribution function is compared at many points, far out
// too (Kolmogorov and Smirnov: 1.95/sqrt(n) is exceeded once in a
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
	const far = 7.7
	beyond, _ := slices.BinarySearch(x, far)
	tail, want := float64(draws-beyond), draws*math.Exp(-far)
	if math.Abs(tail-want) > 5*math.Sqrt(want) {
		t.Errorf("%v samples beyond %v, want %v", tail, far, want)
	}
	if largest, want := x[draws-1], math.Log(draws); largest < want-3 || largest > want+10 {
		t.Errorf("the largest of %d samples is %v, want near %v", draws, largest, want)
	}
}

func TestAdamTakesTheStepsOfItsRule(t *testing.T) {
	gradients := [][]float64{{1, -2}, {0.5, 4}, {-3, 0}}
	const rate = 0.1
	v := []float32{1, 2}
	o := newAdam(v)
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
}
