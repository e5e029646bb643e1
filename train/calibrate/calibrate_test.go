package calibrate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/screening"
	"github.com/learning-to-screen/l2s/internal/synthetic"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
	"github.com/learning-to-screen/l2s/train"
	"pgregory.net/rapid"
)

// rungs is the number of budgets of the ladders here.
const rungs = 60

func ladder() (list []screen.Rung) {
	for i := range rungs {
		list = append(list, screen.Rung{Budget: float64(10 * (i + 1))})
	}
	return list
}

// population is a stock of contexts that is known as a whole, so that the true
// precision of any budget is too. Contexts of small lead miss more, and each budget mends
// part of it.
func population(seed uint64, n, k int) []outcome {
	random := rand.New(rand.NewPCG(seed, 3))
	all := make([]outcome, n)
	for i := range all {
		o := outcome{lead: random.ExpFloat64(), missed: make([]uint32, rungs), candidates: make([]uint32, rungs)}
		for j := range rungs {
			o.candidates[j] = uint32(10 * (j + 1))
		}
		miss := 0.4 * math.Exp(-1.5*o.lead)
		for range k {
			for j, u := 0, random.Float64(); j < rungs && u < miss*math.Exp(-0.05*float64(j)); j++ {
				o.missed[j]++
			}
		}
		all[i] = o
	}
	return all
}

// drawFrom draws n outcomes, each inARow times in a row.
func drawFrom(random *rand.Rand, all []outcome, n, inARow int) []outcome {
	sample := make([]outcome, n)
	for i := range sample {
		if i%inARow == 0 {
			sample[i] = all[random.IntN(len(all))]
		} else {
			sample[i] = sample[i-1]
		}
	}
	return sample
}

// chosen returns the point of a calibration.
func chosen(c *Calibration) point { return point{int(c.Budget)/10 - 1, c.ExactMargin} }

// naive takes the last point on the path whose precision on all contexts at
// hand reaches the target, as if that were its true precision.
func naive(sample []outcome, opt *Options) (best point) {
	for i, p := range newPath(sample[:choosingOf(len(sample))], rungs, opt.ExactLimit) {
		if i == 0 || p.figures(sample, opt.K).Precision >= opt.Target {
			best = p
		}
	}
	return best
}

// The promise: the share of draws whose screen truly misses the target is at most 1 - confidence;
// neighbours that depend on each other are one observation. The same count refuses a rule that uses
// the measured precision as the true one.
func TestCalibrationKeepsItsPromise(t *testing.T) {
	const draws, size = 1000, 1500
	for _, c := range []struct {
		name   string
		k      int
		block  int
		target float64
		limit  float64
	}{{"k = 5", 5, 1, 0.97, 0}, {"k = 1", 1, 1, 0.97, 0}, {"each three times in a row", 5, 3, 0.97, 0}, {"with the exact layer", 5, 1, 0.995, 0.5}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			opt := DefaultOptions()
			opt.Target, opt.Confidence, opt.K, opt.Block, opt.ExactLimit = c.target, 0.9, c.k, c.block, c.limit
			all := population(1, 20_000, c.k)
			random := rand.New(rand.NewPCG(2, uint64(c.k*c.block)))
			failures, naiveFailures, refused, budget := 0, 0, 0, 0.0
			for i := range draws {
				sample := drawFrom(random, all, size, c.block)
				opt.Seed = uint64(i)
				if naive(sample, &opt).figures(all, c.k).Precision < opt.Target {
					naiveFailures++
				}
				found, err := choose(sample, ladder(), 10*rungs, &opt)
				if err != nil {
					refused++
					continue
				}
				if chosen(found).figures(all, c.k).Precision < opt.Target {
					failures++
				}
				budget += found.Budget / draws
			}
			delta := 1 - opt.Confidence
			// Three standard deviations of the count at the rate that is allowed.
			limit := draws*delta + 3*math.Sqrt(draws*delta*(1-delta))
			t.Logf("%d of %d draws miss the target, %d by the naive rule, %d refused; at most %.0f expected; mean budget %.0f", failures, draws, naiveFailures, refused, limit, budget)
			if float64(failures) > limit {
				t.Errorf("found %d of %d draws below the target, expected at most %.0f", failures, draws, limit)
			}
			if float64(naiveFailures) <= limit {
				t.Errorf("found %d of %d draws below the target by the naive rule, expected more than %.0f: the test cannot tell", naiveFailures, draws, limit)
			}
			if refused > draws/2 {
				t.Errorf("found %d of %d draws refused: the promise is kept by doing nothing", refused, draws)
			}
		})
	}
}

// pmf is the probability of x successes among n.
func pmf(n, x int, p float64) float64 {
	a, _ := math.Lgamma(float64(n + 1))
	b, _ := math.Lgamma(float64(x + 1))
	c, _ := math.Lgamma(float64(n - x + 1))
	return math.Exp(a - b - c + float64(x)*math.Log(p) + float64(n-x)*math.Log1p(-p))
}

// Where the mean loss is alpha, the p-value is at most u with probability u at
// most: computed, not simulated, for losses of 0 and 1 and every bet.
func TestPValueIsValid(t *testing.T) {
	for _, n := range []int{1, 10, 300, 2000} {
		for _, alpha := range []float64{0.003, 0.01, 0.1, 0.5, 0.9} {
			for _, share := range []float64{0.01, 0.1, 0.5, 1} {
				bet := share * largestBet(alpha)
				// The p-value is exp(-capital). Sorted by it, the probabilities
				// add up to the probability of a p-value of this size or less.
				sum, mean := 0.0, 0.0
				for x := range n + 1 {
					l := losses{blocks: []int{n - x, x}, labels: 1}
					capital := l.capital(alpha, bet)
					sum += pmf(n, x, alpha)
					mean += pmf(n, x, alpha) * math.Exp(capital)
					if p := math.Exp(-capital); sum > p*(1+1e-9) && p < 1 {
						t.Fatalf("n %d, alpha %v, bet %v: found a p-value of %v or less with probability %v", n, alpha, bet, p, sum)
					}
				}
				if math.Abs(mean-1) > 1e-6 {
					t.Errorf("n %d, alpha %v, bet %v: found an expected capital of %v, expected 1", n, alpha, bet, mean)
				}
			}
		}
	}
}

// The same for five labels, any number of which may be missed: all possible results of n contexts
// are enumerated, with their probabilities.
func TestPValueIsValidForLossesBetween(t *testing.T) {
	const k = 5
	for _, shape := range [][k + 1]float64{ // of the losses that are not 0
		{0, 1, 0, 0, 0, 0}, {0, 0.6, 0.25, 0.1, 0.04, 0.01}, {0, 0.2, 0.2, 0.2, 0.2, 0.2}, {0, 0.5, 0, 0, 0, 0.5},
	} {
		mean := 0.0
		for missed, p := range shape {
			mean += p * float64(missed) / k
		}
		for _, alpha := range []float64{0.01, 0.1, 0.19} {
			chance := shape
			for missed := range chance {
				chance[missed] *= alpha / mean
			}
			chance[0] = 1 - alpha/mean
			for _, n := range []int{1, 3, 10} {
				for _, share := range []float64{0.1, 0.5, 1} {
					type end struct{ capital, probability float64 }
					var ends []end
					counts := make([]int, k+1)
					// spread gives left contexts to the losses from missed on.
					var spread func(missed, left int, probability float64)
					spread = func(missed, left int, probability float64) {
						if missed == k {
							counts[k] = left
							l := losses{blocks: counts, labels: k}
							ends = append(ends, end{l.capital(alpha, share*largestBet(alpha)), probability * math.Pow(chance[k], float64(left))})
							return
						}
						ways := 1.0 // in which x of left contexts are chosen
						for x := range left + 1 {
							counts[missed] = x
							spread(missed+1, left-x, probability*ways*math.Pow(chance[missed], float64(x)))
							ways *= float64(left-x) / float64(x+1)
						}
					}
					spread(0, n, 1)
					slices.SortFunc(ends, func(a, b end) int { return cmp.Compare(b.capital, a.capital) })
					sum, expected := 0.0, 0.0
					for _, e := range ends {
						sum += e.probability
						expected += e.probability * math.Exp(e.capital)
						if p := math.Exp(-e.capital); p < 1 && sum > p*(1+1e-9) {
							t.Fatalf("%v, n %d, alpha %v, share %v: found a p-value of %v or less with probability %v", shape, n, alpha, share, p, sum)
						}
					}
					if math.Abs(sum-1) > 1e-9 || math.Abs(expected-1) > 1e-9 {
						t.Errorf("%v, n %d, alpha %v, share %v: found probability %v and an expected capital of %v, expected 1", shape, n, alpha, share, sum, expected)
					}
				}
			}
		}
	}
}

// No block that tests is a neighbour of a block that chooses, and the blocks of a running text stay
// together: the common features of neighbours stay on one side.
func TestSplitOfBlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(4, 500).Draw(t, "blocks")
		opt := Options{Block: rapid.IntRange(1, 3).Draw(t, "block"), Seed: rapid.Uint64().Draw(t, "seed")}
		choosing, testing := opt.split(n)
		side := make([]int, n)
		for _, b := range choosing {
			side[b]++
		}
		for _, b := range testing {
			side[b] -= 2
		}
		if len(choosing) != choosingOf(n) || len(testing) < n-choosingOf(n)-opt.seams() || len(testing) > n-choosingOf(n) {
			t.Fatalf("found %d blocks that choose and %d that test, of %d", len(choosing), len(testing), n)
		}
		for b, s := range side {
			if s != 0 && s != 1 && s != -2 {
				t.Fatalf("block %d: found it more than once", b)
			}
			if opt.Block > 1 && b > 0 && s != side[b-1] && s != 0 && side[b-1] != 0 {
				t.Fatalf("blocks %d and %d: found one that chooses next to one that tests", b-1, b)
			}
		}
	})
}

// More missed labels never make the p-value smaller.
func TestPValueGrowsWithTheLosses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.IntRange(1, 8).Draw(t, "k")
		n := rapid.IntRange(1, 40).Draw(t, "contexts")
		outcomes := make([]outcome, n)
		for i := range outcomes {
			outcomes[i].missed = []uint32{uint32(rapid.IntRange(0, k).Draw(t, "missed"))}
		}
		alpha := rapid.Float64Range(0.001, 0.999).Draw(t, "alpha")
		bet := rapid.Float64Range(0, largestBet(alpha)).Draw(t, "bet")
		before := point{}.losses(outcomes, k, 1).capital(alpha, bet)
		at := rapid.IntRange(0, n-1).Draw(t, "context")
		if outcomes[at].missed[0] == uint32(k) {
			return
		}
		outcomes[at].missed[0]++
		if after := (point{}).losses(outcomes, k, 1).capital(alpha, bet); after > before+1e-9 {
			t.Fatalf("found capital %v after %v with one more label missed", after, before)
		}
	})
}

// The path leads down the ladder; shares for the exact layer, which fall, come before.
func TestPath(t *testing.T) {
	all := population(4, 1000, 5)
	for _, limit := range []float64{0, 0.3} {
		path := newPath(all, rungs, limit)
		if last := path[len(path)-1]; last != (point{}) {
			t.Errorf("limit %v: found %+v last, expected the smallest budget", limit, last)
		}
		for i, p := range path {
			f := p.figures(all, 5)
			if f.ExactShare > limit+1e-9 || p.exact > 0 && p.rung != rungs-1 {
				t.Errorf("limit %v: found %+v with a share of %v", limit, p, f.ExactShare)
			}
			if i == 0 {
				continue
			}
			if q := path[i-1]; p.exact > q.exact || p.exact == q.exact && p.rung != q.rung-1 {
				t.Errorf("limit %v: found %+v after %+v", limit, p, q)
			}
			if before := path[i-1].figures(all, 5); f.Precision > before.Precision {
				t.Errorf("limit %v: precision rises from %v to %v", limit, before.Precision, f.Precision)
			}
		}
		if limit > 0 && path[0].figures(all, 5).ExactShare < 0.9*limit {
			t.Errorf("found %v for the exact layer first, expected about %v", path[0].figures(all, 5).ExactShare, limit)
		}
	}
}

// The sequence stops at the first budget that fails, and the one before is taken
// even where a later one would pass.
func TestFixedSequenceStops(t *testing.T) {
	opt := DefaultOptions()
	opt.K, opt.Target = 1, 0.9
	outcomes := make([]outcome, 2000)
	for i := range outcomes { // the third budget from the top misses all, though smaller ones miss nothing
		outcomes[i] = outcome{lead: 1, missed: make([]uint32, rungs), candidates: make([]uint32, rungs)}
		outcomes[i].missed[rungs-3] = 1
	}
	found, err := choose(outcomes, ladder(), 10*rungs, &opt)
	if err != nil {
		t.Fatal(err)
	}
	if found.Passed != 2 || found.Budget != 10*rungs-10 || found.Before.Precision != 1 {
		t.Errorf("found %+v, expected the second budget", found)
	}
	for i := range outcomes {
		outcomes[i].missed[rungs-1] = 1
	}
	if _, err := choose(outcomes, ladder(), 10*rungs, &opt); err == nil || !strings.Contains(err.Error(), "target 0.9 cannot be promised at confidence 0.95: found P@1 0.0000") {
		t.Errorf("found error %v, expected a refusal", err)
	}
}

// The least number of blocks leaves the number that the tests need, and one block less does not.
func TestLeastBlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opt := DefaultOptions()
		opt.Target = rapid.Float64Range(0.1, 0.99999).Draw(t, "target")
		opt.Confidence = rapid.Float64Range(1e-9, 0.999999).Draw(t, "confidence")
		opt.Block = rapid.IntRange(1, 2).Draw(t, "block")
		enough := func(n int) bool { return float64(n-choosingOf(n)-opt.seams()) >= opt.leastTests() }
		if n := int(opt.leastBlocks()); !enough(n) || enough(n-1) {
			t.Fatalf("found %d blocks, enough: %v, one less: %v", n, enough(n), enough(n-1))
		}
	})
}

// trained returns a screen, and contexts that it was not trained on.
func trained(t *testing.T) (layer *softmax.Layer, m *screen.Model, seen, rest []float32) {
	t.Helper()
	d := synthetic.Structured(300, 12, 8, 6000, 3)
	o := train.DefaultOptions()
	o.Clusters, o.Iterations, o.Shells, o.HeldOut = 8, 0, []float64{0.4}, 300
	m, _, err := train.Run(t.Context(), d.Layer, d.Contexts[:3000*12], o)
	if err != nil {
		t.Fatal(err)
	}
	return d.Layer, m, d.Contexts[:3000*12], d.Contexts[3000*12:]
}

// The counts of a calibration equal the counts of a Searcher with the screen, at every budget and
// for any number of threads.
func TestOutcomesAreThoseOfASearcher(t *testing.T) {
	layer, m, _, rest := trained(t)
	for _, k := range []int{1, 5, 20} {
		opt := DefaultOptions()
		opt.K, opt.Threads = k, 3
		all, err := findOutcomes(t.Context(), (*screening.Model)(m), layer, rest, &opt)
		if err != nil {
			t.Fatal(err)
		}
		for i, x := range m.Ladder() {
			with, err := (*screening.Model)(m).WithBudget(x.Budget, 0, nil)
			if err != nil {
				t.Fatal(err)
			}
			e, err := screen.Evaluate(t.Context(), (*screen.Model)(with), layer, rest, screen.EvaluateOptions{K: []int{k}})
			if err != nil {
				t.Fatal(err)
			}
			f := point{rung: i}.figures(all, k)
			if math.Abs(f.Precision-e.AtK[0].Precision) > 1e-12 || math.Abs(f.Candidates-e.MeanCandidates) > 1e-9 {
				t.Errorf("k %d, budget %v: found %+v, a searcher has P@%d %v and %v candidates", k, x.Budget, f, k, e.AtK[0].Precision, e.MeanCandidates)
			}
		}
	}
}

// The screen has the budget that was chosen, and its record keeps its fields and gets one
// calibration.
func TestRun(t *testing.T) {
	layer, m, _, rest := trained(t)
	opt := DefaultOptions()
	opt.Target, opt.Block = 0.9, 2
	calibrated, found, err := Run(t.Context(), m, layer, rest, opt)
	if err != nil {
		t.Fatal(err)
	}
	if calibrated.Budget() != found.Budget || found.Calibrated.Precision < 0.9 || found.ExactMargin != 0 || found.Choosing+found.Testing > 3000 {
		t.Errorf("found budget %v, %+v", calibrated.Budget(), found)
	}
	again, _, err := Run(t.Context(), calibrated, layer, rest, opt)
	if err != nil {
		t.Fatal(err)
	}
	var before, after struct {
		train.Record
		Calibration *Calibration
	}
	if json.Unmarshal(m.Record(), &before) != nil || json.Unmarshal(again.Record(), &after) != nil || after.Calibration == nil || after.ContextsDigest != before.ContextsDigest {
		t.Errorf("found the record %s", again.Record())
	}
	if n := bytes.Count(again.Record(), []byte(`"calibration"`)); n != 1 {
		t.Errorf("found %d calibrations in the record, expected 1", n)
	}
}

func TestErrors(t *testing.T) {
	layer, m, seen, rest := trained(t)
	nan := slices.Clone(rest)
	nan[7*12+3] = float32(math.NaN())
	for _, c := range []struct {
		name     string
		contexts []float32
		change   func(o *Options)
		want     string
	}{
		{"target", rest, func(o *Options) { o.Target = 1 }, "target: found 1"},
		{"confidence", rest, func(o *Options) { o.Confidence = 0 }, "confidence: found 0"},
		{"k", rest, func(o *Options) { o.K = 301 }, "k: found 301"},
		{"exact limit", rest, func(o *Options) { o.ExactLimit = 1 }, "exact limit: found 1"},
		{"block", rest, func(o *Options) { o.Block = 0 }, "block: found 0"},
		{"threads", rest, func(o *Options) { o.Threads = -1 }, "threads: found -1"},
		{"part of a row", rest[:13], func(o *Options) {}, "contexts: found 13 values, expected rows of 12"},
		{"few", rest[:12*12], func(o *Options) {}, "contexts: found 12, expected at least"},
		{"a NaN", nan, func(o *Options) {}, "context 7"},
		{"contexts of training", seen, func(o *Options) {}, "found the contexts that the screen was trained on"},
	} {
		opt := DefaultOptions()
		c.change(&opt)
		if _, _, err := Run(t.Context(), m, layer, c.contexts, opt); err == nil || !strings.HasPrefix(err.Error(), "calibrate: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: found error %v, expected %q", c.name, err, c.want)
		}
	}
	other := synthetic.Structured(300, 12, 8, 1, 4)
	if _, _, err := Run(t.Context(), m, other.Layer, rest, DefaultOptions()); err == nil {
		t.Error("another layer: found no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Run(ctx, m, layer, rest, DefaultOptions()); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: found error %v", err)
	}
}
