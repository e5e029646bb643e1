package calibrate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/dense"
	"github.com/learning-to-screen/l2s/internal/synthetic"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
	"github.com/learning-to-screen/l2s/train"
	"pgregory.net/rapid"
)

// population is a stock of contexts that is known as a whole, so that the true
// precision of any margins is too. Contexts of small lead miss more, and a
// second set mends part of it.
func population(seed uint64, n, k int) []outcome {
	random := rand.New(rand.NewPCG(seed, 3))
	all := make([]outcome, n)
	for i := range all {
		o := outcome{lead: random.ExpFloat64(), rows: [2]uint32{150, 250}}
		miss := 0.3 * math.Exp(-1.5*o.lead)
		for range k {
			if random.Float64() < miss {
				o.missed[0]++
				if random.Float64() < 0.4 {
					o.missed[1]++
				}
			}
		}
		all[i] = o
	}
	return all
}

// drawFrom draws n outcomes, each so many times in a row.
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

// naive takes the cheapest pair on the path whose precision on all contexts at
// hand reaches the target, as if that were its true precision.
func naive(sample []outcome, opt *Options) point {
	best := point{exact: math.MaxFloat64}
	for _, p := range newPath(sample[:choosingOf(len(sample))], opt.ExactCost) {
		if p.figures(sample, opt).Precision >= opt.Target {
			best = p
		}
	}
	return best
}

// The promise: among many draws the share of those whose screen misses the
// target in truth is at most 1 - confidence; where neighbours depend on each other,
// they are one observation. The same count refuses a rule that takes the precision
// measured for the true one, and one that takes neighbours for independent.
func TestCalibrationKeepsItsPromise(t *testing.T) {
	const draws, size, labels = 1000, 1500, 5000
	for _, c := range []struct {
		name  string
		k     int
		block int
	}{{"k = 5", 5, 1}, {"k = 1", 1, 1}, {"each three times in a row", 5, 3}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			opt := DefaultOptions()
			opt.Target, opt.Confidence, opt.K, opt.ExactCost, opt.Block, opt.ExactLimit = 0.97, 0.9, c.k, labels, c.block, 1
			all := population(1, 20_000, c.k)
			random := rand.New(rand.NewPCG(2, uint64(c.k*c.block)))
			failures, naiveFailures, blindFailures, cost := 0, 0, 0, 0.0
			for i := range draws {
				sample := drawFrom(random, all, size, c.block)
				opt.Seed = uint64(i)
				found, err := choose(sample, &opt)
				if err != nil {
					t.Fatal(err)
				}
				f := point{found.ProbeMargin, found.ExactMargin}.figures(all, &opt)
				if f.Precision < opt.Target {
					failures++
				}
				cost += f.Cost / draws
				if c.block > 1 && i%3 == 0 { // it takes its time
					blind := opt
					blind.Block = 1
					found, err := choose(sample, &blind)
					if err != nil {
						t.Fatal(err)
					}
					if (point{found.ProbeMargin, found.ExactMargin}).figures(all, &blind).Precision < opt.Target {
						blindFailures += 3
					}
				}
				if naive(sample, &opt).figures(all, &opt).Precision < opt.Target {
					naiveFailures++
				}
			}
			delta := 1 - opt.Confidence
			// Three standard deviations of the count at the rate that is allowed.
			limit := draws*delta + 3*math.Sqrt(draws*delta*(1-delta))
			t.Logf("%d of %d draws miss the target, %d by the naive rule; at most %.0f expected; mean cost %.0f, exact %d",
				failures, draws, naiveFailures, limit, cost, labels)
			if float64(failures) > limit {
				t.Errorf("found %d of %d draws below the target, expected at most %.0f", failures, draws, limit)
			}
			if float64(naiveFailures) <= limit {
				t.Errorf("found %d of %d draws below the target by the naive rule, expected more than %.0f: the test cannot tell", naiveFailures, draws, limit)
			}
			if c.block > 1 && blindFailures < 5*max(1, failures) {
				t.Errorf("found some %d of %d draws below the target where neighbours count by themselves, expected many times %d: the test cannot tell", blindFailures, draws, failures)
			}
			if cost > 0.6*labels {
				t.Errorf("found a mean cost of %.0f rows, expected less than 60%% of the %d of exact answers for all: the promise is kept by doing nothing", cost, labels)
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

// The same for five labels, of which any number may be missed: all that n contexts
// can come to is gone through, with its probability.
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

// Blocks that test are not beside blocks that choose, nor are the blocks of a running
// text torn apart: what neighbours have in common stays on one side.
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
				t.Fatalf("blocks %d and %d: found one that chooses beside one that tests", b-1, b)
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
			outcomes[i].missed[0] = uint32(rapid.IntRange(0, k).Draw(t, "missed"))
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

// hoeffdingBentkus is the p-value of Bates et al. (2021) for a mean loss of
// alpha or more.
func hoeffdingBentkus(mean, alpha float64, n int) float64 {
	m := min(mean, alpha)
	h := 0.0
	if m > 0 {
		h += m * math.Log(m/alpha)
	}
	h += (1 - m) * math.Log((1-m)/(1-alpha))
	tail := 0.0
	for x := 0; x <= int(math.Ceil(float64(n)*mean)); x++ {
		tail += pmf(n, x, alpha)
	}
	return min(math.Exp(-float64(n)*h), math.E*tail, 1)
}

// The losses of answers of several labels vary less than their bounds allow: the
// bet knows, and accepts cheaper margins than the bound of Hoeffding and Bentkus.
func TestBettingKeepsFewerExactAnswers(t *testing.T) {
	opt := DefaultOptions()
	opt.Target, opt.ExactCost = 0.98, 5000
	all := drawFrom(rand.New(rand.NewPCG(9, 9)), population(4, 100_000, opt.K), 8000, 1)
	found, err := choose(all, &opt)
	if err != nil {
		t.Fatal(err)
	}
	choosing := all[:choosingOf(len(all))]
	testing := all[choosingOf(len(all)):]
	var last point
	for _, p := range newPath(choosing, opt.ExactCost) {
		if hoeffdingBentkus(1-p.figures(testing, &opt).Precision, 1-opt.Target, len(testing)) > 1-opt.Confidence {
			break
		}
		last = p
	}
	other := last.figures(testing, &opt)
	t.Logf("exact answers: %.4f by betting, %.4f by Hoeffding and Bentkus", found.Calibrated.ExactShare, other.ExactShare)
	if found.Calibrated.Cost >= other.Cost {
		t.Errorf("found a cost of %.1f, expected less than the %.1f of Hoeffding and Bentkus", found.Calibrated.Cost, other.Cost)
	}
}

// drawOutcomes draws contexts of any kind: equal leads, none, short sets.
func drawOutcomes(t *rapid.T, n, k int) []outcome {
	all := make([]outcome, n)
	for i := range all {
		o := outcome{lead: float64(rapid.IntRange(0, 20).Draw(t, "lead")) / 4}
		if rapid.IntRange(0, 9).Draw(t, "alone") == 0 {
			o.lead = math.Inf(1)
		}
		o.missed[0] = uint32(rapid.IntRange(0, k).Draw(t, "missed"))
		o.missed[1] = uint32(rapid.IntRange(0, int(o.missed[0])).Draw(t, "missed by two"))
		o.rows[0] = uint32(rapid.IntRange(0, 30).Draw(t, "rows"))
		o.rows[1] = o.rows[0] + uint32(rapid.IntRange(0, 30).Draw(t, "more rows"))
		for j, rows := range o.rows {
			if rows < uint32(k) {
				o.rows[j], o.missed[j] = exactAnswer, 0
			}
		}
		all[i] = o
	}
	return all
}

// The sums of the table equal a count of the contexts one by one, and the
// path leads from the safest pair to the cheapest, dearer ones first.
func TestPath(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opt := DefaultOptions()
		opt.K = rapid.IntRange(1, 5).Draw(t, "k")
		opt.ExactCost = float64(rapid.SampledFrom([]int{1, 40, 1000}).Draw(t, "exact cost"))
		all := drawOutcomes(t, rapid.IntRange(1, 60).Draw(t, "contexts"), opt.K)
		n := float64(len(all))
		table := newTable(all)
		grid := table.grid()
		if grid[0] != 0 || grid[len(grid)-1] != math.MaxFloat64 || !slices.IsSorted(grid) {
			t.Fatalf("found the grid %v, expected it to ascend from 0 to the largest number", grid)
		}
		cheapest := math.Inf(1)
		for i, exact := range grid {
			for _, probe := range grid[i:] {
				c := table.at(exact, probe, opt.ExactCost)
				f := point{probe, exact}.figures(all, &opt)
				precision := 1 - float64(c.missed)/(n*float64(opt.K))
				if math.Abs(precision-f.Precision) > 1e-12 || math.Abs(c.cost/n-f.Cost) > 1e-9 {
					t.Fatalf("margins %v, %v: found precision %v and cost %v, expected %v and %v", probe, exact, precision, c.cost/n, f.Precision, f.Cost)
				}
				cheapest = min(cheapest, f.Cost)
			}
		}
		path := newPath(all, opt.ExactCost)
		if path[0] != (point{exact: math.MaxFloat64}) {
			t.Fatalf("found the path begin with %v, expected exact answers", path[0])
		}
		last := math.Inf(1)
		for i, p := range path[1:] {
			f := p.figures(all, &opt)
			if f.Cost >= last {
				t.Fatalf("step %d: found cost %v after %v, expected less", i+1, f.Cost, last)
			}
			if p.probe != 0 && p.probe <= p.exact {
				t.Fatalf("step %d: found probe margin %v, expected more than the exact margin %v, or 0", i+1, p.probe, p.exact)
			}
			last = f.Cost
		}
		if math.Abs(last-cheapest) > 1e-9 {
			t.Fatalf("found the path end at cost %v, expected the least, %v", last, cheapest)
		}
	})
}

// The sequence stops at the first pair that fails, and the one before is taken
// even where a later one would pass.
func TestFixedSequenceStops(t *testing.T) {
	opt := DefaultOptions()
	opt.Target, opt.ExactCost = 0.97, 5000
	all := population(5, 8000, opt.K)
	found, err := choose(all, &opt)
	if err != nil {
		t.Fatal(err)
	}
	if found.Passed < 1 || found.Passed >= found.Path {
		t.Fatalf("found %d of %d pairs passed, expected some and not all", found.Passed, found.Path)
	}
	if found.PValue > 1-opt.Confidence || found.PValue <= 0 {
		t.Errorf("found p-value %v, expected at most %v", found.PValue, 1-opt.Confidence)
	}
	if found.Calibrated.Precision < opt.Target || found.Plain.Precision >= opt.Target {
		t.Errorf("found P@5 %v with margins and %v without, expected the target %v between", found.Calibrated.Precision, found.Plain.Precision, opt.Target)
	}
	for _, c := range []struct {
		name   string
		change func(*Options)
		dearer bool // or more exact answers
	}{
		{"more confidence costs more", func(o *Options) { o.Confidence = 0.9999 }, true},
		{"a higher target costs more", func(o *Options) { o.Target = 0.98 }, true},
		{"a cheap exact layer is asked more", func(o *Options) { o.ExactCost = 300 }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			other := opt
			c.change(&other)
			o, err := choose(all, &other)
			if err != nil {
				t.Fatal(err)
			}
			if c.dearer && o.Calibrated.Cost <= found.Calibrated.Cost {
				t.Errorf("found cost %v, expected more than %v", o.Calibrated.Cost, found.Calibrated.Cost)
			}
			if !c.dearer && o.Calibrated.ExactShare <= found.Calibrated.ExactShare {
				t.Errorf("found a share of exact answers of %v, expected more than %v", o.Calibrated.ExactShare, found.Calibrated.ExactShare)
			}
		})
	}
}

func TestCalibrateDegenerate(t *testing.T) {
	all := func(n int, o outcome) []outcome { return slices.Repeat([]outcome{o}, n) }
	inf := math.Inf(1)
	for _, c := range []struct {
		name     string
		outcomes []outcome
		exact    bool   // found: an exact margin
		probe    bool   // found: a probe margin that all contexts are below
		failure  string // or this error
	}{
		{"nothing missed", all(1000, outcome{lead: 1, rows: [2]uint32{9, 12}}), false, false, ""},
		{"nothing missed by one cluster alone", all(1000, outcome{lead: inf, rows: [2]uint32{9, 9}}), false, false, ""},
		{"the exact layer answers all for want of candidates", all(1000, outcome{lead: 1, rows: [2]uint32{exactAnswer, exactAnswer}}), false, false, ""},
		{"all missed at one lead", all(1000, outcome{lead: 1, missed: [2]uint32{5, 5}, rows: [2]uint32{9, 12}}), true, false, ""},
		{"all missed at lead 0", all(1000, outcome{missed: [2]uint32{5, 5}, rows: [2]uint32{9, 12}}), true, false, ""},
		{"all missed by one cluster alone", all(1000, outcome{lead: inf, missed: [2]uint32{5, 5}, rows: [2]uint32{9, 9}}), false, false, "target 0.99 is not reached at confidence 0.95: found P@5 0.000000 on 750 contexts"},
		{"all missed by one cluster, nothing by two", all(1000, outcome{lead: 1, missed: [2]uint32{1, 0}, rows: [2]uint32{9, 12}}), false, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			opt := DefaultOptions()
			opt.ExactCost, opt.ExactLimit = 100, 1
			found, err := choose(c.outcomes, &opt)
			if c.failure != "" {
				if err == nil || !strings.Contains(err.Error(), c.failure) {
					t.Fatalf("found error %v, expected %q", err, c.failure)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if (found.ExactMargin > 0) != c.exact || (found.ProbeMargin != 0) != c.probe || c.probe && (found.ProbeMargin <= 1 || found.Calibrated.ProbeShare != 1) {
				t.Errorf("found %+v, expected an exact margin: %v, two sets for all: %v", found, c.exact, c.probe)
			}
			if !c.exact && !c.probe && found.Passed != found.Path {
				t.Errorf("found %d of %d pairs passed, expected all", found.Passed, found.Path)
			}
		})
	}
}

// data is a layer and contexts for it.
type data struct {
	layer    *softmax.Layer
	contexts []float32
	dim      int
}

// newCalibrated trains a screen on some of the contexts, on one level or two, and
// returns the others.
func newCalibrated(t *testing.T, twoLevels bool) (s data, m *screen.Model, rest []float32) {
	t.Helper()
	made := synthetic.Structured(120, 8, 10, 5000, 11)
	s = data{made.Layer, made.Contexts, made.Layer.Dim()}
	opt := train.DefaultOptions()
	opt.Clusters, opt.Budget, opt.KMeansOnly = 8, 12, true
	if twoLevels {
		opt.SetLevels(3, 4)
	}
	cut := 1000 * s.dim
	m, _, err := train.Run(t.Context(), s.layer, s.contexts[:cut], opt)
	if err != nil {
		t.Fatal(err)
	}
	return s, m, s.contexts[cut:]
}

// What calibration counts is what a Searcher does with the screen, for every k
// and both forms of screens; the number of threads leaves no trace.
func TestCalibratedScreenDoesWhatWasCounted(t *testing.T) {
	for _, twoLevels := range []bool{false, true} {
		s, m, contexts := newCalibrated(t, twoLevels)
		for _, k := range []int{1, 5, 9} {
			t.Run(fmt.Sprintf("two levels: %v, k = %d", twoLevels, k), func(t *testing.T) {
				opt := DefaultOptions()
				opt.K, opt.Target, opt.Threads, opt.ExactLimit = k, 0.97, 1, 1
				calibrated, found, err := Run(t.Context(), m, s.layer, contexts, opt)
				if err != nil {
					t.Fatal(err)
				}
				opt.Threads = 3
				again, _, err := Run(t.Context(), calibrated, s.layer, contexts, opt)
				if err != nil {
					t.Fatal(err)
				}
				var a, b bytes.Buffer
				calibrated.WriteTo(&a)
				again.WriteTo(&b)
				if !bytes.Equal(a.Bytes(), b.Bytes()) {
					t.Error("found another screen with other threads from the calibrated one, expected the same")
				}
				if calibrated.ProbeMargin() != found.ProbeMargin || calibrated.ExactMargin() != found.ExactMargin {
					t.Errorf("found margins %v and %v in the screen, expected the margins of %+v", calibrated.ProbeMargin(), calibrated.ExactMargin(), found)
				}
				if m.ProbeMargin() != 0 || m.ExactMargin() != 0 {
					t.Error("found margins in the screen that was given, expected it unchanged")
				}
				all, err := findOutcomes(t.Context(), m, s.layer, contexts, &opt)
				if err != nil {
					t.Fatal(err)
				}
				opt.ExactCost = found.ExactCost
				want := point{found.ProbeMargin, found.ExactMargin}.figures(all, &opt)
				e, err := screen.Evaluate(t.Context(), calibrated, s.layer, contexts, screen.EvaluateOptions{K: []int{k}})
				if err != nil {
					t.Fatal(err)
				}
				n, at := float64(e.Contexts), e.AtK[0]
				if math.Abs(at.Precision-want.Precision) > 1e-12 || float64(at.Exact) != math.Round(want.ExactShare*n) || math.Abs(at.MeanScored-want.Cost) > 1e-9 {
					t.Errorf("found P@k %v, %d exact answers, %v rows, expected %+v of %v contexts", at.Precision, at.Exact, at.MeanScored, want, n)
				}
				if found.ExactCost != float64(s.layer.Labels()) || found.Choosing+found.Testing != e.Contexts {
					t.Errorf("found %+v, expected all %d contexts and the cost of all labels", found, e.Contexts)
				}
				if want.Precision < opt.Target {
					t.Errorf("found P@%d %v on the contexts of calibration, expected %v", k, want.Precision, opt.Target)
				}
			})
		}
	}
}

// The record keeps what it has, and gets one calibration.
func TestCalibrationRecord(t *testing.T) {
	s, m, contexts := newCalibrated(t, false)
	odd, err := m.WithMargins(1, 2, json.RawMessage(` {"b": [1, 2.50], "calibration": 7, "a\n": {"x": null}} `))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*screen.Model{m, odd} {
		calibrated, found, err := Run(t.Context(), m, s.layer, contexts, DefaultOptions())
		if err != nil {
			t.Fatal(err)
		}
		var before, after map[string]json.RawMessage
		if err := errors.Join(json.Unmarshal(m.Record(), &before), json.Unmarshal(calibrated.Record(), &after)); err != nil {
			t.Fatal(err)
		}
		var c Calibration
		if err := json.Unmarshal(after["calibration"], &c); err != nil || !reflect.DeepEqual(c, *found) {
			t.Errorf("found %+v (%v) in the record, expected %+v", c, err, *found)
		}
		if n := strings.Count(string(calibrated.Record()), `"calibration"`); n != 1 {
			t.Errorf("found %d calibrations in the record, expected one", n)
		}
		delete(before, "calibration")
		for name, value := range before {
			if !bytes.Equal(after[name], value) {
				t.Errorf("%q: found %s in the record, expected %s", name, after[name], value)
			}
		}
		if len(after) != len(before)+1 {
			t.Errorf("found %d members in the record, expected %d", len(after), len(before)+1)
		}
	}
}

func TestCalibrateErrors(t *testing.T) {
	s, m, contexts := newCalibrated(t, false)
	nan := math.NaN()
	other, err := softmax.NewLayer(kernels.Float32Rows(dense.Weights(s.layer)[:100*s.dim], s.dim), nil)
	if err != nil {
		t.Fatal(err)
	}
	bad := slices.Clone(contexts)
	bad[100*s.dim+3] = float32(nan)
	// What a call is given.
	type call struct {
		Options
		layer    *softmax.Layer
		contexts []float32
	}
	for _, c := range []struct {
		name   string
		change func(*call)
		want   string
	}{
		{"target 0", func(c *call) { c.Target = 0 }, "target: found 0, expected more than 0 and less than 1"},
		{"target 1", func(c *call) { c.Target = 1 }, "target: found 1"},
		{"target NaN", func(c *call) { c.Target = nan }, "target: found NaN"},
		{"confidence 1", func(c *call) { c.Confidence = 1 }, "confidence: found 1"},
		{"confidence below 0", func(c *call) { c.Confidence = -0.5 }, "confidence: found -0.5"},
		{"k 0", func(c *call) { c.K = 0 }, "k: found 0, expected 1 to 120"},
		{"k above L", func(c *call) { c.K = 121 }, "k: found 121, expected 1 to 120"},
		{"exact cost NaN", func(c *call) { c.ExactCost = nan }, "exact cost: found NaN"},
		{"exact cost below 0", func(c *call) { c.ExactCost = -1 }, "exact cost: found -1"},
		{"exact cost infinite", func(c *call) { c.ExactCost = math.Inf(1) }, "exact cost: found +Inf"},
		{"exact limit below 0", func(c *call) { c.ExactLimit = -0.1 }, "exact limit: found -0.1, expected 0 to 1"},
		{"exact limit above 1", func(c *call) { c.ExactLimit = 1.1 }, "exact limit: found 1.1"},
		{"exact limit NaN", func(c *call) { c.ExactLimit = nan }, "exact limit: found NaN"},
		{"exact cost whose sums overflow", func(c *call) { c.ExactCost = 1e308 }, "exact cost: found 1e+308, expected a finite number, 0 to 2^53"},
		{"target very near 1", func(c *call) { c.Target = 0.999999999999 }, "contexts: found 4000, 4000 blocks of 1, expected at least 4438384324661 blocks"},
		{"target next to 1", func(c *call) { c.Target = math.Nextafter(1, 0) }, "target: found 0.9999999999999999, expected one so far below 1"},
		{"confidence next to 1", func(c *call) { c.Confidence, c.Target = math.Nextafter(1, 0), 0.999 }, "contexts: found 4000, 4000 blocks of 1, expected at least"},
		{"confidence next to 0, no block", func(c *call) { c.Confidence, c.Block = 1e-300, 1<<30 }, "contexts: found 4000, 0 blocks of 1073741824, expected at least 3"},
		{"block 0", func(c *call) { c.Block = 0 }, "block: found 0"},
		{"threads below 0", func(c *call) { c.Threads = -1 }, "threads: found -1"},
		{"too few contexts", func(c *call) { c.Target = 0.9999 }, "contexts: found 4000, 4000 blocks of 1, expected at least"},
		{"too few blocks", func(c *call) { c.Block = 100 }, "contexts: found 4000, 40 blocks of 100, expected at least"},
		{"a context with a NaN", func(c *call) { c.contexts = bad }, "context 100"},
		{"a row that is not whole", func(c *call) { c.contexts = contexts[1:] }, "contexts: found"},
		{"another layer", func(c *call) { c.layer = other }, "labels: found"},
	} {
		t.Run(c.name, func(t *testing.T) {
			given := call{DefaultOptions(), s.layer, contexts}
			c.change(&given)
			_, _, err := Run(t.Context(), m, given.layer, given.contexts, given.Options)
			if err == nil || !strings.HasPrefix(err.Error(), "calibrate: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("found error %v, expected %q", err, c.want)
			}
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		opt := DefaultOptions()
		opt.Progress = func(p train.Progress) {
			if p.Stage == "route" {
				cancel()
			}
		}
		if _, _, err := Run(ctx, m, s.layer, contexts, opt); !errors.Is(err, context.Canceled) {
			t.Errorf("found error %v, expected context.Canceled", err)
		}
	})
}

// The least number of blocks leaves as many for the tests as they need, and one less
// does not.
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

// The least number of contexts that Run wants passes if nothing is missed, and one test
// less does not.
func TestCalibrateLeastContexts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opt := DefaultOptions()
		opt.Target = rapid.Float64Range(0.5, 0.999).Draw(t, "target")
		opt.Confidence = rapid.Float64Range(0.05, 0.999).Draw(t, "confidence")
		n := 1
		for opt.check(10, n) != nil {
			n++
		}
		clean := slices.Repeat([]outcome{{lead: 1, rows: [2]uint32{9, 9}}}, n)
		opt.ExactCost = 10
		if _, err := choose(clean, &opt); err != nil {
			t.Fatalf("%d contexts: found %v, expected none", n, err)
		}
		tests := int(opt.leastTests()) - 1
		l := losses{blocks: []int{tests}, labels: 5}
		alpha := 1 - opt.Target
		if x := l.capital(alpha, largestBet(alpha)); x >= -kernels.Log(1-opt.Confidence) {
			t.Fatalf("%d tests: found capital %v, expected too little", tests, x)
		}
	})
}

// What would ask the exact layer more often than is allowed is an error, which
// says how often; the same with the limit raised is a calibration.
func TestCalibrateLimitsExactAnswers(t *testing.T) {
	for _, c := range []struct {
		name   string
		size   int
		target float64
		limit  float64
		fails  bool
	}{
		{"few contexts and a high target", 500, 0.99, 0.5, true},
		{"the same, with any share allowed", 500, 0.99, 1, false},
		{"many contexts and a lower target", 20000, 0.95, 0.5, false},
		{"none allowed where some are needed", 20000, 0.97, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			opt := DefaultOptions()
			opt.Target, opt.ExactLimit, opt.ExactCost = c.target, c.limit, 5000
			found, err := choose(population(3, c.size, opt.K), &opt)
			switch {
			case (err != nil) != c.fails:
				t.Errorf("found error %v, expected one: %v", err, c.fails)
			case c.fails && (!strings.Contains(err.Error(), "takes the exact layer for") || !strings.Contains(err.Error(), "more contexts, a lower target")):
				t.Errorf("found error %v, expected the share and what to do", err)
			case !c.fails && found.Calibrated.ExactShare > c.limit:
				t.Errorf("found an exact share of %v, expected at most %v", found.Calibrated.ExactShare, c.limit)
			}
		})
	}
}
