package train

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s/internal/dense"
	"github.com/learning-to-screen/l2s/internal/simdtest"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// naiveShell is the first cell of the shell of h, whose cluster is given. A cosine that
// cuts is the one of a context.
func naiveShell(m *screen.Model, cluster int, h []float32) (cell int) {
	v := m.ClusterWeights()[cluster*len(h) : (cluster+1)*len(h)]
	lengths := math.Sqrt(naiveDot(v, v) * naiveDot(h, h))
	for _, cut := range m.Shells() {
		if lengths > 0 && naiveDot(v, h)/lengths < cut-1e-9 {
			cell += m.Clusters()
		}
	}
	return cell
}

// precision measures P@k of a screen on contexts: the share of the exact top-k
// that the screen's candidate set holds, all with plain loops.
func precision(t testing.TB, m *screen.Model, s synthetic, k int) (precision, candidates float64) {
	t.Helper()
	labels, err := Labels(t.Context(), s.layer, s.contexts, k, LabelOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.n {
		h := s.contexts[i*s.dim : (i+1)*s.dim]
		at, second, margin := naiveRoute(m.GroupWeights(), m.ClusterWeights(), s.dim, groupClusters(m), h)
		shell := naiveShell(m, at, h)
		set := m.Candidates(shell + at)
		if margin < m.ProbeMargin()*(1-1e-9) && second >= 0 { // the margin is the lead of a context
			if pair, ok := m.PairCandidates(shell+at, shell+second); ok {
				set = pair
			} else {
				set = append(slices.Clone(set), m.Candidates(shell+second)...)
				slices.Sort(set)
				set = slices.Compact(set)
			}
		}
		candidates += float64(len(set))
		for _, y := range labels[i*k : (i+1)*k] {
			if slices.Contains(set, y) {
				precision++
			}
		}
	}
	return precision / float64(s.n*k), candidates / float64(s.n)
}

func encode(t testing.TB, m *screen.Model) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := m.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestRunRecordsWhatItReached(t *testing.T) {
	s := newSynthetic(t, 11, 3000, 12, 200, 12, 0.5)
	opt := testOptions()
	opt.Always = []uint32{199, 3, 3}
	t.Run("flat", func(t *testing.T) { checkRecord(t, s, opt) })
	t.Run("two levels", func(t *testing.T) {
		opt := opt
		opt.Groups, opt.Clusters, opt.Smoothing = 4, 12, 5
		checkRecord(t, s, opt)
	})
	t.Run("groups that overlap", func(t *testing.T) {
		opt := opt
		opt.SetOverlap(14, 4)
		checkRecord(t, s, opt)
	})
	t.Run("groups that overlap, a second probe and spread", func(t *testing.T) {
		opt := opt
		opt.SetOverlap(14, 4)
		opt.ProbeShare, opt.Spread = 0.3, 0.2
		checkRecord(t, s, opt)
	})
	t.Run("second probe", func(t *testing.T) {
		opt := opt
		opt.ProbeShare = 0.4
		checkRecord(t, s, opt)
	})
	t.Run("second probe, the sets of both clusters", func(t *testing.T) {
		opt := opt
		opt.ProbeShare, opt.PairWeight = 0.4, 0
		checkRecord(t, s, opt)
	})
	t.Run("shells", func(t *testing.T) {
		opt := opt
		opt.Shells = []float64{0.5, 0.1}
		checkRecord(t, s, opt)
	})
	t.Run("shells on two levels, spread and a second probe", func(t *testing.T) {
		opt := opt
		opt.Groups, opt.Clusters, opt.Spread, opt.ProbeShare, opt.Shells = 4, 12, 0.2, 0.3, []float64{0.4}
		checkRecord(t, s, opt)
	})
	t.Run("shells and the sets of both clusters", func(t *testing.T) {
		opt := opt
		opt.SetOverlap(14, 4)
		opt.ProbeShare, opt.PairWeight, opt.Shells = 0.4, 0, []float64{0.4}
		checkRecord(t, s, opt)
	})
	t.Run("second probe on two levels", func(t *testing.T) {
		opt := opt
		opt.Groups, opt.Clusters, opt.Smoothing, opt.ProbeShare = 4, 12, 5, 0.3
		opt.Spread = 0.2
		checkRecord(t, s, opt)
	})
}

func checkRecord(t *testing.T, s synthetic, opt Options) {
	model, record, err := Run(t.Context(), s.layer, s.contexts, opt)
	if err != nil {
		t.Fatal(err)
	}
	pk, mean := precision(t, model, s, opt.K)
	if math.Abs(pk-record.PrecisionK) > 1e-12 || math.Abs(mean-record.MeanCandidates) > 1e-9 {
		t.Errorf("record says P@5 %v L-bar %v, measured %v, %v", record.PrecisionK, record.MeanCandidates, pk, mean)
	}
	p1, _ := precision(t, model, s, 1)
	if math.Abs(p1-record.Precision1) > 1e-12 {
		t.Errorf("record says P@1 %v, measured %v", record.Precision1, p1)
	}
	if mean > opt.Budget || mean < opt.Budget-1 {
		t.Errorf("L-bar %v does not use the budget %v", mean, opt.Budget)
	}
	if len(model.Shells()) != len(opt.Shells) {
		t.Errorf("found %d cosines of shells, want %d", len(model.Shells()), len(opt.Shells))
	}
	for c := range model.Clusters() * (1 + len(opt.Shells)) {
		if set := model.Candidates(c); !slices.Contains(set, 3) || !slices.Contains(set, 199) {
			t.Errorf("cluster %d: %v lacks an id that is always included", c, set)
		}
	}
	if record.Contexts != s.n || record.HeldOut != 300 || len(record.Alternations) != opt.Iterations+1 {
		t.Errorf("found %+v", record)
	}
	for i, a := range record.Alternations {
		if a.PrecisionK > record.Alternations[record.Best].PrecisionK {
			t.Errorf("alternation %d is better than the best, %d", i, record.Best)
		}
	}
	var stored Record
	if err := json.Unmarshal(model.Record(), &stored); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(&stored, record) {
		t.Errorf("the screen holds %+v, want %+v", stored, *record)
	}
	if opt.ProbeShare > 0 {
		e, err := screen.Evaluate(t.Context(), model, s.layer, s.contexts, screen.EvaluateOptions{K: []int{opt.K}})
		if err != nil {
			t.Fatal(err)
		}
		if share := float64(e.Probes) / float64(s.n); math.Abs(share-opt.ProbeShare) > 2/float64(s.n) {
			t.Errorf("%v of the contexts probe twice, want %v", share, opt.ProbeShare)
		}
		if e.MeanCandidates != record.MeanCandidates || e.AtK[0].Precision != record.PrecisionK {
			t.Errorf("the screen has L-bar %v P@5 %v, the record says %v, %v", e.MeanCandidates, e.AtK[0].Precision, record.MeanCandidates, record.PrecisionK)
		}
	} else if model.ProbeMargin() != 0 {
		t.Errorf("found margin %v without a second probe", model.ProbeMargin())
	}
	if model.Fingerprint() != s.layer.Fingerprint() {
		t.Error("the screen does not carry the fingerprint of the layer")
	}
}

// newDistracting is data whose contexts have two parts, each around directions
// of its own: the logits depend on the first part only, and the second is
// longer. k-means sees the second part first.
func newDistracting(t testing.TB, seed uint64, n int) synthetic {
	const half, labels = 8, 300
	first := newSynthetic(t, seed, n, half, labels, 12, 0.3)
	second := newSynthetic(t, seed+1, n, half, labels, 12, 0.3)
	weights := make([]float32, labels*2*half)
	for s := range labels {
		copy(weights[s*2*half:], dense.Weights(first.layer)[s*half:(s+1)*half])
	}
	layer, err := softmax.NewLayer(kernels.Float32Rows(weights, 2*half), first.layer.Bias())
	if err != nil {
		t.Fatal(err)
	}
	contexts := make([]float32, n*2*half)
	for i := range n {
		h := contexts[i*2*half : (i+1)*2*half]
		copy(h, first.contexts[i*half:(i+1)*half])
		scaleTo(h[half:], second.contexts[i*half:(i+1)*half], 1.5)
	}
	return synthetic{layer, contexts, n, 2 * half}
}

// Learning must do better than the k-means it starts from, on contexts that
// neither has seen, with either estimator and either optimiser.
func TestLearningImprovesOnKMeans(t *testing.T) {
	const seen, unseen = 6000, 2000
	train := newDistracting(t, 12, seen+unseen)
	test := train
	train.n, test.n = seen, unseen
	train.contexts, test.contexts = train.contexts[:seen*train.dim], train.contexts[seen*train.dim:]
	opt := testOptions()
	opt.Clusters, opt.Budget = 16, 30
	t.Run("flat", func(t *testing.T) { checkLearning(t, train, test, opt) })
	t.Run("two levels", func(t *testing.T) {
		opt := opt
		opt.Groups, opt.Smoothing = 4, 5
		checkLearning(t, train, test, opt)
	})
	t.Run("groups that overlap", func(t *testing.T) {
		opt := opt
		opt.Groups, opt.Overlap, opt.Smoothing = 4, 2, 5
		checkLearning(t, train, test, opt)
	})
}

func checkLearning(t *testing.T, train, test synthetic, opt Options) {
	opt.KMeansOnly = true
	model, record, err := Run(t.Context(), train.layer, train.contexts, opt)
	if err != nil {
		t.Fatal(err)
	}
	if len(record.Alternations) != 0 {
		t.Errorf("k-means only, but there are alternations: %+v", record)
	}
	base, _ := precision(t, model, test, opt.K)
	opt.KMeansOnly = false
	opt.Iterations, opt.EpochFraction, opt.BatchSize = 5, 1, 64
	for _, c := range []struct {
		estimator  Estimator
		optimizer  Optimizer
		rate       float64
		multiplier float64
	}{{GumbelST, Adam, 0.02, 1.25}, {GumbelST, Adam, 0.02, 0}, {Expected, Adam, 0.02, 1.25}, {Expected, Momentum, 0.05, 1.25}} {
		opt.Estimator, opt.Optimizer, opt.LearningRate, opt.Multiplier = c.estimator, c.optimizer, c.rate, c.multiplier
		model, record, err := Run(t.Context(), train.layer, train.contexts, opt)
		if err != nil {
			t.Fatal(err)
		}
		learned, mean := precision(t, model, test, opt.K)
		t.Logf("%+v: P@5 %.4f against %.4f by k-means, L-bar %.1f, best alternation %d", c, learned, base, mean, record.Best)
		if learned < base+0.1 {
			t.Errorf("%+v: P@5 %.4f, k-means alone %.4f", c, learned, base)
		}
	}
}

// The same seed gives the same screen file, byte for byte, at each SIMD level
// and for any number of threads.
func TestEqualRunsGiveEqualBytes(t *testing.T) {
	s := newSynthetic(t, 13, 700, 19, 150, 12, 0.5)
	for _, c := range []struct {
		name             string
		estimator        Estimator
		clusters, groups int
		change           func(o *Options)
	}{
		{"flat, Gumbel-ST", GumbelST, 13, 0, func(*Options) {}},
		{"flat, expected, spread", Expected, 13, 0, func(o *Options) { o.Spread = 0.2 }},
		{"two levels, Gumbel-ST, spread, a second probe", GumbelST, 12, 3, func(o *Options) {
			o.Smoothing, o.Spread, o.ProbeShare = 3, 0.3, 0.4
		}},
		{"two levels, expected", Expected, 12, 4, func(o *Options) { o.Smoothing = 3 }},
		{"groups that overlap, a second probe", Expected, 13, 4, func(o *Options) { o.Overlap, o.ProbeShare = 1.7, 0.4 }},
		{"groups that overlap, spread, mini-batches", Expected, 13, 4, func(o *Options) { o.Overlap, o.Spread, o.KMeansBatch = 2, 0.2, 90 }},
		{"flat, ids always, a second probe, momentum", GumbelST, 13, 0, func(o *Options) {
			o.Always, o.ProbeShare, o.Optimizer = []uint32{149, 3}, 0.3, Momentum
		}},
		{"two levels, spread, a second probe, shells", Expected, 12, 3, func(o *Options) {
			o.Spread, o.ProbeShare, o.Shells = 0.3, 0.4, []float64{0.4, 0.1}
		}},
		{"two levels, ids always, a second probe, mini-batches", Expected, 12, 3, func(o *Options) {
			o.Always, o.ProbeShare, o.KMeansBatch, o.Patience = []uint32{149, 3}, 0.4, 90, 2
		}},
	} {
		opt := testOptions()
		opt.Estimator, opt.Clusters, opt.Groups = c.estimator, c.clusters, c.groups
		c.change(&opt)
		var want []byte
		simdtest.EachLevel(t, func(t *testing.T) {
			for _, threads := range []int{1, 2, 3} {
				opt.Threads = threads
				model, _, err := Run(t.Context(), s.layer, s.contexts, opt)
				if err != nil {
					t.Fatal(err)
				}
				got := encode(t, model)
				if want == nil {
					want = got
				}
				if !bytes.Equal(got, want) {
					t.Errorf("%s, %d threads: the screen differs", c.name, threads)
				}
			}
		})
		opt.Seed++
		model, _, err := Run(t.Context(), s.layer, s.contexts, opt)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(encode(t, model), want) {
			t.Errorf("%s: another seed gives the same screen", c.name)
		}
	}
}

func TestRunLeavesTheContextsAlone(t *testing.T) {
	s := newSynthetic(t, 14, 500, 6, 50, 5, 0.5)
	before := slices.Clone(s.contexts)
	if _, _, err := Run(t.Context(), s.layer, s.contexts, testOptions()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(before, s.contexts) {
		t.Error("the contexts were written to")
	}
}

func TestRunOnDegenerateData(t *testing.T) {
	base := newSynthetic(t, 15, 400, 6, 50, 5, 0.5)
	with := func(change func(s *synthetic, o *Options)) (synthetic, Options) {
		s, o := base, testOptions()
		s.contexts = slices.Clone(base.contexts)
		change(&s, &o)
		return s, o
	}
	weights, bias := slices.Clone(dense.Weights(base.layer)), slices.Clone(base.layer.Bias())
	clear(weights[7*6 : 8*6])
	bias[7] = -1e6
	without7, err := softmax.NewLayer(kernels.Float32Rows(weights, 6), bias) // no context has label 7
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name   string
		change func(s *synthetic, o *Options)
		exact  bool // every label of training must be in its set
	}{
		{"duplicates", func(s *synthetic, o *Options) { copy(s.contexts[200*6:], s.contexts[:200*6]) }, false},
		{"all contexts equal", func(s *synthetic, o *Options) {
			for i := range s.n {
				copy(s.contexts[i*6:], s.contexts[:6])
			}
		}, true},
		{"all contexts zero", func(s *synthetic, o *Options) { clear(s.contexts) }, true},
		{"some contexts zero", func(s *synthetic, o *Options) { clear(s.contexts[:100*6]) }, false},
		{"a label that never occurs", func(s *synthetic, o *Options) {
			s.layer = without7
			o.Budget, o.Lambda = 1000, 0 // room for all that occur
		}, true},
		{"a label that never occurs, always", func(s *synthetic, o *Options) {
			s.layer = without7
			o.Always = []uint32{7}
		}, false},
		{"fewer directions than clusters", func(s *synthetic, o *Options) {
			for i := 3; i < s.n; i++ {
				copy(s.contexts[i*6:(i+1)*6], s.contexts[i%3*6:])
			}
		}, true},
		{"mini-batches of one context", func(s *synthetic, o *Options) { o.KMeansBatch = 1 }, false},
		{"mini-batches of equal contexts", func(s *synthetic, o *Options) {
			o.KMeansBatch = 50
			for i := range s.n {
				copy(s.contexts[i*6:], s.contexts[:6])
			}
		}, true},
		{"mini-batches of zeros on two levels", func(s *synthetic, o *Options) { o.Groups, o.KMeansBatch = 4, 20; clear(s.contexts) }, true},
		{"a patience of 1", func(s *synthetic, o *Options) { o.Patience = 1 }, false},
		{"one cluster", func(s *synthetic, o *Options) { o.Clusters = 1 }, false},
		{"as many clusters as contexts", func(s *synthetic, o *Options) { s.n, o.Clusters, s.contexts = 10, 10, s.contexts[:60] }, false},
		{"one context", func(s *synthetic, o *Options) { s.n, o.Clusters, s.contexts = 1, 1, s.contexts[:6] }, true},
		{"budget above the labels", func(s *synthetic, o *Options) { o.Budget, o.Lambda = 1000, 0 }, true},
		{"budget of k", func(s *synthetic, o *Options) { o.Budget = 5 }, false},
		{"k of all labels", func(s *synthetic, o *Options) { o.K, o.Budget = 50, 50 }, true},
		{"k of 1", func(s *synthetic, o *Options) { o.K = 1 }, false},
		{"batch above the contexts", func(s *synthetic, o *Options) { o.BatchSize = 10000 }, false},
		{"nothing held out", func(s *synthetic, o *Options) { o.HeldOut = 0 }, false},
		{"nearly all held out", func(s *synthetic, o *Options) { o.HeldOut = 0.99 }, false},
		{"several epochs", func(s *synthetic, o *Options) { o.EpochFraction = 2.5 }, false},
		{"no iterations", func(s *synthetic, o *Options) { o.Iterations = 0 }, false},
		{"gamma and lambda of 0", func(s *synthetic, o *Options) { o.Gamma, o.Lambda = 0, 0 }, false},
		{"always all", func(s *synthetic, o *Options) { o.Always, o.Budget = ascending(50), 50 }, true},
		{"one group", func(s *synthetic, o *Options) { o.Groups = 1 }, false},
		{"groups of one cluster", func(s *synthetic, o *Options) { o.Groups = 8 }, false},
		{"groups of equal contexts", func(s *synthetic, o *Options) {
			o.Groups = 4
			for i := range s.n {
				copy(s.contexts[i*6:], s.contexts[:6])
			}
		}, true},
		{"groups of zeros", func(s *synthetic, o *Options) { o.Groups = 4; clear(s.contexts) }, true},
		{"groups that overlap of equal contexts", func(s *synthetic, o *Options) {
			o.Groups, o.Overlap = 4, 2
			for i := range s.n {
				copy(s.contexts[i*6:], s.contexts[:6])
			}
		}, true},
		{"groups that overlap of zeros", func(s *synthetic, o *Options) { o.Groups, o.Overlap = 4, 2; clear(s.contexts) }, true},
		{"groups that have all clusters", func(s *synthetic, o *Options) { o.Groups, o.Overlap = 3, 3 }, false},
		{"one group with all clusters", func(s *synthetic, o *Options) { o.Groups, o.Overlap = 1, 1 }, false},
		{"groups that overlap, of one cluster and one context", func(s *synthetic, o *Options) {
			s.n, o.Clusters, o.Groups, o.Overlap, s.contexts = 1, 1, 1, 1, s.contexts[:6]
		}, true},
		{"groups that overlap, nearly all held out", func(s *synthetic, o *Options) { o.Groups, o.Overlap, o.HeldOut = 3, 1.5, 0.99 }, false},
		{"as many groups as contexts", func(s *synthetic, o *Options) {
			s.n, o.Clusters, o.Groups, s.contexts = 10, 10, 10, s.contexts[:60]
		}, false},
		{"a second probe of one cluster", func(s *synthetic, o *Options) { o.Clusters, o.ProbeShare = 1, 0.9 }, false},
		{"a second probe where clusters are equal", func(s *synthetic, o *Options) { o.ProbeShare = 0.9; clear(s.contexts) }, true},
		{"shells of one cluster", func(s *synthetic, o *Options) { o.Clusters, o.Shells = 1, []float64{0.5} }, false},
		{"shells of zeros", func(s *synthetic, o *Options) { o.Shells = []float64{0.5}; clear(s.contexts) }, true},
		{"shells of less than a context", func(s *synthetic, o *Options) { o.Shells, o.ProbeShare = []float64{0.3, 1e-9}, 0.4 }, false},
		{"as many clusters as contexts in shells", func(s *synthetic, o *Options) {
			s.n, o.Clusters, s.contexts, o.Shells = 10, 10, s.contexts[:60], []float64{0.4}
		}, false},
		{"spread over one cluster", func(s *synthetic, o *Options) { o.Clusters, o.Spread = 1, 0.3 }, false},
		{"spread over groups of one cluster", func(s *synthetic, o *Options) { o.Groups, o.Spread = 8, 0.3 }, false},
		{"spread where clusters are equal", func(s *synthetic, o *Options) { o.Groups, o.Spread = 4, 0.5; clear(s.contexts) }, true},
		{"spread without lambda", func(s *synthetic, o *Options) { o.Groups, o.Spread, o.Lambda = 2, 0.5, 0 }, false},
		{"smoothing of a flat screen", func(s *synthetic, o *Options) { o.Smoothing = 20 }, false},
		{"smoothing without lambda", func(s *synthetic, o *Options) { o.Groups, o.Smoothing, o.Lambda = 2, 1e9, 0 }, false},
		{"tiny contexts", func(s *synthetic, o *Options) {
			for i := range s.contexts {
				s.contexts[i] *= 1e-30
			}
		}, false},
		{"subnormal contexts", func(s *synthetic, o *Options) {
			for i := range s.contexts {
				s.contexts[i] *= 1e-42
			}
		}, false},
		{"huge contexts", func(s *synthetic, o *Options) {
			for i := range s.contexts {
				s.contexts[i] *= 1e30
			}
		}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s, opt := with(c.change)
			model, record, err := Run(t.Context(), s.layer, s.contexts, opt)
			if err != nil {
				t.Fatal(err)
			}
			pk, mean := precision(t, model, s, opt.K)
			if math.Abs(pk-record.PrecisionK) > 1e-12 || mean > opt.Budget+1e-9 {
				t.Errorf("P@k %v, L-bar %v; the record says %v, the budget is %v", pk, mean, record.PrecisionK, opt.Budget)
			}
			if c.exact && pk != 1 {
				t.Errorf("P@k %v on the contexts of training, want 1", pk)
			}
		})
	}
}

func TestRunRefuses(t *testing.T) {
	s := newSynthetic(t, 16, 100, 6, 50, 5, 0.5)
	nan, inf := math.NaN(), math.Inf(1)
	cases := []struct {
		want   string
		change func(o *Options)
	}{
		{"clusters: found 0", func(o *Options) { o.Clusters = 0 }},
		{"clusters: found 101, expected at most the number of contexts, 100", func(o *Options) { o.Clusters = 101 }},
		{"groups: found -1", func(o *Options) { o.Groups = -1 }},
		{"groups: found 9, expected 0 to 8", func(o *Options) { o.Groups = 9 }},
		{"clusters: found 8, expected a multiple of 3, the number of groups", func(o *Options) { o.Groups = 3 }},
		{"overlap: found 0.5, expected 0, or 1 to 4, the number of groups", func(o *Options) { o.Groups, o.Overlap = 4, 0.5 }},
		{"overlap: found 5, expected 0, or 1 to 4, the number of groups", func(o *Options) { o.Groups, o.Overlap = 4, 5 }},
		{"overlap: found 1, expected 0, or 1 to 0, the number of groups", func(o *Options) { o.Overlap = 1 }},
		{"overlap: found NaN", func(o *Options) { o.Groups, o.Overlap = 4, nan }},
		{"probe share: found 1", func(o *Options) { o.ProbeShare = 1 }},
		{"probe share: found NaN", func(o *Options) { o.ProbeShare = nan }},
		{"pair weight: found -1", func(o *Options) { o.PairWeight = -1 }},
		{"pair weight: found +Inf", func(o *Options) { o.PairWeight = math.Inf(1) }},
		{"largest: found -1", func(o *Options) { o.Largest = -1 }},
		{"largest: found 19, expected 0, or at least the budget, 20", func(o *Options) { o.Budget, o.Largest = 20, 19 }},
		{"shells[0]: found 1, expected descending shares above 0 and below 1", func(o *Options) { o.Shells = []float64{1} }},
		{"shells[0]: found NaN", func(o *Options) { o.Shells = []float64{nan} }},
		{"shells: found 17 shares, expected at most 16", func(o *Options) { o.Shells = slices.Repeat([]float64{0.5}, 17) }},
		{"shells[1]: found 0.5", func(o *Options) { o.Shells = []float64{0.5, 0.5} }},
		{"shells: found 1 with geometry 0", func(o *Options) { o.Shells, o.Geometry = []float64{0.5}, 0 }},
		{"spread: found NaN", func(o *Options) { o.Spread = nan }},
		{"spread: found 0.6, expected 0 to 0.5", func(o *Options) { o.Spread = 0.6 }},
		{"smoothing: found NaN", func(o *Options) { o.Smoothing = nan }},
		{"smoothing: found -1", func(o *Options) { o.Smoothing = -1 }},
		{"k: found 0", func(o *Options) { o.K = 0 }},
		{"k: found 51", func(o *Options) { o.K = 51 }},
		{"budget: found 4.5, expected at least k = 5", func(o *Options) { o.Budget = 4.5 }},
		{"budget: found NaN", func(o *Options) { o.Budget = nan }},
		{"budget: found +Inf", func(o *Options) { o.Budget = inf }},
		{"lambda: found -1", func(o *Options) { o.Lambda = -1 }},
		{"lambda: found NaN", func(o *Options) { o.Lambda = nan }},
		{"gamma: found -1", func(o *Options) { o.Gamma = -1 }},
		{"gamma: found +Inf", func(o *Options) { o.Gamma = inf }},
		{"multiplier: found -0.5", func(o *Options) { o.Multiplier = -0.5 }},
		{"iterations: found -1", func(o *Options) { o.Iterations = -1 }},
		{"estimator: found Estimator(7)", func(o *Options) { o.Estimator = 7 }},
		{"optimizer: found Optimizer(7)", func(o *Options) { o.Optimizer = 7 }},
		{"k-means batch: found -1", func(o *Options) { o.KMeansBatch = -1 }},
		{"patience: found -1", func(o *Options) { o.Patience = -1 }},
		{"k-means iterations: found 0", func(o *Options) { o.KMeansIterations = 0 }},
		{"held out: found 1", func(o *Options) { o.HeldOut = 1 }},
		{"held out: found NaN", func(o *Options) { o.HeldOut = nan }},
		{"epoch fraction: found 0", func(o *Options) { o.EpochFraction = 0 }},
		{"batch size: found 0", func(o *Options) { o.BatchSize = 0 }},
		{"learning rate: found 0", func(o *Options) { o.LearningRate = 0 }},
		{"momentum: found 1", func(o *Options) { o.Momentum = 1 }},
		{"confidence: found 1", func(o *Options) { o.Confidence = 1 }},
		{"threads: found -2", func(o *Options) { o.Threads = -2 }},
		{"always[1]: found id 50, expected below 50", func(o *Options) { o.Always = []uint32{1, 50} }},
		{"budget: found 12, expected at least 13", func(o *Options) { o.Always = ascending(13) }},
	}
	for _, c := range cases {
		t.Run(c.want, func(t *testing.T) {
			opt := testOptions()
			c.change(&opt)
			model, record, err := Run(t.Context(), s.layer, s.contexts, opt)
			if err == nil || model != nil || record != nil {
				t.Fatalf("found error %v, want one", err)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %q does not say %q", err, c.want)
			}
		})
	}
	if _, _, err := Run(t.Context(), s.layer, nil, testOptions()); err == nil {
		t.Error("no contexts: no error")
	}
	if _, _, err := Run(t.Context(), s.layer, s.contexts[:7], testOptions()); err == nil {
		t.Error("part of a row: no error")
	}
	bad := slices.Clone(s.contexts)
	bad[6*42+1] = float32(inf)
	if _, _, err := Run(t.Context(), s.layer, bad, testOptions()); err == nil || !strings.Contains(err.Error(), "context 42") {
		t.Errorf("infinite context: found error %v", err)
	}
}

func TestRunThatOverflowsNamesTheLearningRate(t *testing.T) {
	s := newSynthetic(t, 16, 100, 6, 50, 5, 0.5)
	opt := testOptions()
	opt.Optimizer, opt.LearningRate = Momentum, 1e300
	if _, _, err := Run(t.Context(), s.layer, s.contexts, opt); err == nil || !strings.Contains(err.Error(), "learning rate") {
		t.Errorf("found error %v", err)
	}
}

// With patience a run is the start of the one without, and keeps the best of
// it.
func TestPatienceStopsAfterTheLastBest(t *testing.T) {
	s := newSynthetic(t, 19, 1500, 8, 100, 8, 0.5)
	opt := testOptions()
	opt.Iterations, opt.LearningRate = 12, 0.2 // too high: a best comes early
	_, whole, err := Run(t.Context(), s.layer, s.contexts, opt)
	if err != nil {
		t.Fatal(err)
	}
	stopped := 0
	for patience := 1; patience <= opt.Iterations; patience++ {
		best, end := 0, 0 // by the figures of the whole run
		for i, a := range whole.Alternations {
			if end = i; a.PrecisionK > whole.Alternations[best].PrecisionK {
				best = i
			}
			if i-best >= patience {
				break
			}
		}
		o := opt
		o.Patience = patience
		_, record, err := Run(t.Context(), s.layer, s.contexts, o)
		if err != nil {
			t.Fatal(err)
		}
		if record.Best != best || !reflect.DeepEqual(record.Alternations, whole.Alternations[:end+1]) {
			t.Errorf("patience %d: found best %d of %d alternations, want %d of %d of the run without",
				patience, record.Best, len(record.Alternations), best, end+1)
		}
		if end < opt.Iterations {
			stopped++
		}
	}
	if stopped == 0 {
		t.Error("no run stopped early")
	}
}

// A run cancelled in any stage returns the context's error, soon, and nothing
// else.
func TestRunStopsWhenCancelled(t *testing.T) {
	s := newSynthetic(t, 17, 3000, 8, 100, 8, 0.5)
	for _, stage := range []string{StageLabels, StageKMeans, StageLearn, StageAssign} {
		t.Run(stage, func(t *testing.T) {
			opt := testOptions()
			opt.Iterations = 100000 // never finishes
			ctx, cancel := context.WithCancelCause(t.Context())
			after := 0
			opt.Progress = func(p Progress) {
				if ctx.Err() != nil {
					after++
				} else if p.Stage == stage && p.Done > 0 {
					cancel(nil)
				}
			}
			model, record, err := Run(ctx, s.layer, s.contexts, opt)
			if !errors.Is(err, context.Canceled) || model != nil || record != nil {
				t.Fatalf("found error %v, want context.Canceled", err)
			}
			if after > 20 {
				t.Errorf("%d reports after the cancellation", after)
			}
		})
	}
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	if _, _, err := Run(ctx, s.layer, s.contexts, testOptions()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("past deadline: found error %v", err)
	}
}

func TestRunReportsProgress(t *testing.T) {
	s := newSynthetic(t, 18, 1000, 8, 100, 8, 0.5)
	opt := testOptions()
	type key struct {
		stage     string
		iteration int
	}
	finished, parts := map[key]bool{}, map[string]bool{}
	messages := 0
	var last Progress
	opt.Progress = func(p Progress) {
		if p.Done > p.Total {
			t.Errorf("found %+v", p)
		}
		if p.Stage == last.Stage && p.Part == last.Part && p.Iteration == last.Iteration && p.Done < last.Done {
			t.Errorf("found %+v after %+v", p, last)
		}
		if p.Done == p.Total {
			finished[key{p.Stage, p.Iteration}] = true
			parts[p.Stage+": "+p.Part+": "+p.Unit] = true
		}
		if p.Message != "" {
			messages++
		}
		last = p
	}
	opt.Groups = 4
	_, record, err := Run(t.Context(), s.layer, s.contexts, opt)
	if err != nil {
		t.Fatal(err)
	}
	want := []key{{StageLabels, 0}, {StageGroups, 0}, {StageAssign, 0}, {StageMeasure, 0}, {StageGeometry, 0}}
	for i := range record.KMeans {
		want = append(want, key{StageKMeans, i + 1})
	}
	for i := range opt.Iterations {
		want = append(want, key{StageLearn, i + 1}, key{StageAssign, i + 1})
	}
	for _, k := range want {
		if !finished[k] {
			t.Errorf("%v was not reported to its end", k)
		}
	}
	// Each part of the long stages has its own end, and tells what it counts.
	for _, part := range []string{"means: contexts", "labels near the means: clusters", "variances: labels", "shares: clusters"} {
		for _, stage := range []string{StageGeometry + ": ", StageMeasure + ": " + StageGeometry + ", "} {
			if !parts[stage+part] {
				t.Errorf("%s%s was not reported to its end", stage, part)
			}
		}
	}
	if least := len(record.KMeans) + opt.Iterations + 1; messages < least {
		t.Errorf("found %d messages, want at least %d", messages, least)
	}
}

func TestNamesOfEstimatorsAndOptimizers(t *testing.T) {
	for _, e := range []Estimator{GumbelST, Expected} {
		text, err := e.MarshalText()
		var back Estimator
		if err != nil || string(text) != e.String() || back.UnmarshalText(text) != nil || back != e {
			t.Errorf("%v: %q, %v, %v", e, text, err, back)
		}
	}
	for _, o := range []Optimizer{Adam, Momentum} {
		text, err := o.MarshalText()
		var back Optimizer
		if err != nil || string(text) != o.String() || back.UnmarshalText(text) != nil || back != o {
			t.Errorf("%v: %q, %v, %v", o, text, err, back)
		}
	}
	var e Estimator
	if err := e.UnmarshalText([]byte("reinforce")); err == nil || !strings.Contains(err.Error(), `"gumbel-st" "expected"`) {
		t.Errorf("unknown estimator: found error %v", err)
	}
	if _, err := Estimator(9).MarshalText(); err == nil {
		t.Error("unknown estimator: marshalled")
	}
	if _, err := Optimizer(9).MarshalText(); err == nil {
		t.Error("unknown optimizer: marshalled")
	}
}
