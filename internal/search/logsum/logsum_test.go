package logsum_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/logsum"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/search/tail"
	"github.com/learning-to-screen/l2s/internal/tests/screentest"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
	"github.com/learning-to-screen/l2s/internal/watch/evaluate"
)

func draws(t *rapid.T) screentest.Draw {
	return func(label string, low, high int) int { return rapid.IntRange(low, high).Draw(t, label) }
}

// estimateOf returns the estimate of a tail for a context of a cluster, at the temperature of a
// block, by its definition, and the half-width at a level.
func estimateOf(c tail.Config, block, cluster, level int, h []float32) (log, width float64) {
	row := block*c.Clusters + cluster
	log = float64(c.Intercepts[row])
	along := 0.0
	for k := range len(c.Directions) / len(h) {
		product := 0.0
		for j, x := range h {
			product += float64(c.Directions[k*len(h)+j]) * float64(x)
		}
		along += product * product
	}
	for j, x := range h {
		log += float64(c.Slopes[row*len(h)+j])*float64(x) + float64(c.Squares[2*row])*float64(x)*float64(x)
	}
	return log + float64(c.Squares[2*row+1])*along, float64(c.Widths[row*len(c.Levels)+level])
}

// rounding returns twice the largest error of the sums over int8 codes of a context.
func rounding(in *screentest.Instance, h []float32) (most float64) {
	norm := func(x []float32) float64 { return math.Sqrt(kernels.RefDot(x, x)) }
	d := in.Config.Dim
	for id := range in.Config.Labels {
		most = max(most, 4*math.Sqrt(float64(d))/127*norm(h)*norm(in.Weights()[id*d:(id+1)*d]))
	}
	return most * in.Layer.Scale()
}

// checkTail: a label's log-probability is its exact logit minus the log of the sum over the
// candidates that the tail leaves out and the tail's estimate for the others, and so are the
// log-sums of answers, with the edits of the request: labels with known logits are subtracted from
// the tail's estimate.
func checkTail(t *rapid.T) {
	drawn := screentest.DrawShape(draws(t))
	drawn.Tail = []float64{1}
	in := drawn.Instance(t)
	if err := in.Finish(draws(t)); err != nil {
		t.Fatal(err)
	}
	c := in.Config.Tail.Config()
	c.Temperatures = []float64{1 / in.Layer.Scale()} // of w.h + b
	fitted, err := tail.New(c)
	if err != nil {
		t.Fatal(err)
	}
	in.Config.Tail = fitted
	if in.Model, err = screening.NewModel(in.Config); err != nil {
		t.Fatal(err)
	}
	capped := in.Layer.SoftCap() != 0 // which a tail knows nothing of
	set := screentest.DrawSettings(draws(t), in)
	set.OverTail = true
	s := in.Searcher(t, set.Options())
	k, req := screentest.DrawRequest(draws(t), in)
	req.LogSum = true
	for i := range in.N {
		h := in.Context(i)
		f := in.Find(h)
		all := in.Logits(h, screentest.AllIDs(in.Config.Labels))
		rounding := rounding(in, h)
		near := func(what string, got, want float64) {
			t.Helper()
			if got != want && !(math.Abs(got-want) < 1e-5*(1+math.Abs(want))+rounding) {
				t.Fatalf("context %d: %s %v, want %v", i, what, got, want)
			}
		}
		head := slices.Clone(in.AtLeast(f.Cell, c.Share))
		slices.Sort(head)
		mass, _ := estimateOf(c, 0, f.Cluster, 0, h)
		// rest is the weight of the labels outside known.
		rest := func(known []uint32) float64 {
			if len(known) == len(all) {
				return 0
			}
			left := math.Exp(mass)
			for _, id := range known {
				if _, inside := slices.BinarySearch(head, id); !inside {
					left -= math.Exp(all[id])
				}
			}
			return max(left, 0)
		}
		for id, x := range all {
			got := screentest.LogProb(t, s, h, id)
			if capped || len(in.Candidates(f.Cell, set, 0)) == 0 {
				near("exact log-probability", got, min(x-kernels.LogSumExp(all), 0))
				continue
			}
			sum, tail := 0.0, rest(head)
			for _, other := range head {
				sum += math.Exp(all[other])
			}
			if _, inside := slices.BinarySearch(head, uint32(id)); !inside {
				tail = max(tail, math.Exp(x))
			}
			near("log-probability", got, min(x-math.Log(sum+tail), 0))
		}
		_, a := screentest.Search(t, s, k, h, req)
		among, source := in.Answer(h, k, &req, set)
		if capped || source == exact.FromLayer || req.Allowed != nil {
			var logits []float64
			for _, p := range in.Edited(h, screentest.AllIDs(len(all)), &req) {
				logits = append(logits, p.Logit)
			}
			near("log-sum of the layer", a.LogSum, kernels.LogSumExp(logits))
			continue
		}
		known := slices.Clone(head)
		for id := range uint32(len(all)) {
			biased := slices.ContainsFunc(req.Biases, func(b exact.Bias) bool { return b.ID == id })
			if biased || req.Banned != nil && req.Banned.Has(id) {
				known = append(known, id)
			}
		}
		slices.Sort(known)
		known = slices.Compact(known)
		terms, candidates := []float64{math.Log(rest(known))}, []float64{}
		for _, id := range known {
			if exact.Permits(&req, id) {
				terms = append(terms, all[id]+exact.Added(&req, id))
			}
		}
		for _, p := range among {
			candidates = append(candidates, p.Logit)
		}
		near("log-sum", a.LogSum, max(kernels.LogSumExp(terms), kernels.LogSumExp(candidates)))
	}
}

func TestLogProbByTheTail(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) { rapid.Check(t, checkTail) })
}

// checkProbabilities: no label is more than certain, and neither are the labels of an answer
// together: for any cells, budgets, share at which the tail begins, edits and temperature. A
// probability between 1 and 1 + 1e-9 is rounding.
func checkProbabilities(t *rapid.T) {
	drawn := screentest.DrawHardShape(draws(t))
	drawn.Tail = rapid.SampledFrom([][]float64{{1}, {0.5, 1, 2}}).Draw(t, "temperatures of the tail")
	in := drawn.Instance(t)
	set := screentest.DrawSettings(draws(t), in)
	set.OverTail = rapid.Bool().Draw(t, "over the tail")
	s := in.Searcher(t, set.Options())
	k, req := screentest.DrawRequest(draws(t), in)
	req.LogSum, req.Temperature = true, rapid.SampledFrom([]float64{0, 0.3, 0.5, 0.7, 1, 4}).Draw(t, "temperature")
	req.ExactSum = rapid.Bool().Draw(t, "exact sum")
	temperature := req.Temperature
	if temperature == 0 {
		temperature = 1
	}
	for i := range in.N {
		h := in.Context(i)
		got, a := screentest.Search(t, s, k, h, req)
		total := 0.0
		for _, p := range got {
			total += math.Exp(p.Logit/temperature - a.LogSum)
		}
		// For logits above 1e5 the rounding of the log-sum is larger.
		if far := math.Abs(a.LogSum) > 1e5 && !math.IsInf(a.LogSum, 0); !(total <= 1+1e-9) && !far {
			t.Fatalf("context %d: the probabilities of %v with the log-sum %v sum to %v", i, got, a.LogSum, total)
		}
		for id := range in.Config.Labels {
			if x, err := logsum.LogProb(s, h, uint32(id), temperature); err != nil || !(x <= 0) {
				t.Fatalf("context %d, label %d: found a log-probability of %v, %v", i, id, x, err)
			}
		}
		z, err := logsum.LogSum(s, h, temperature, 0.9)
		if err != nil || !(z.Low <= z.Log && z.Log <= z.High) {
			t.Fatalf("context %d: found a log-sum of %+v, %v", i, z, err)
		}
		// The labels of the head, and their tail, have all the probability.
		var rest tail.Rest
		head, ok, err := logsum.HeadOf(s, h, 0, &rest)
		temperatures := in.Config.Tail.Config().Temperatures
		if err != nil || !ok || temperature < temperatures[0] || temperature > temperatures[len(temperatures)-1] {
			continue
		}
		terms := make([]float64, head.Known)
		if err := head.View.Logits(terms, head.IDs[:head.Known]); err != nil {
			t.Fatal(err)
		}
		for i := range terms {
			terms[i] /= temperature
		}
		terms = append(terms, rest.At(temperature, 0.9).Log)
		if sum := kernels.LogSumExp(terms); sum != z.Log && !(math.Abs(sum-z.Log) <= 1e-9*(1+math.Abs(sum))) {
			t.Fatalf("context %d: found a log-sum of %v, its terms have %v", i, z.Log, sum)
		}
	}
}

func TestNothingIsMoreThanCertain(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) { rapid.Check(t, checkProbabilities) })
}

func FuzzNothingIsMoreThanCertain(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkProbabilities)) }

// At a temperature of the tail the interval has its half-width. Between two temperatures the
// estimate is between their estimates in 1/T, and the lower end is the sum of the candidates.
// Outside of them the exact layer answers.
func TestLogSumAtATemperature(t *testing.T) {
	in := screentest.Shape{Labels: 300, Dim: 24, Clusters: 7, Contexts: 30, Keep: 60, Tail: []float64{0.5, 1}, Seed: 3}.Instance(t)
	s, c := in.Searcher(t), in.Config.Tail.Config()
	for i := range in.N {
		h := in.Context(i)
		f := in.Find(h)
		sum := func(ids []uint32, temperature, tail float64) float64 {
			terms := []float64{tail}
			for _, x := range in.Logits(h, ids) {
				terms = append(terms, x/temperature)
			}
			return kernels.LogSumExp(terms)
		}
		head := in.AtLeast(f.Cell, c.Share)
		cold, coldWidth := estimateOf(c, 0, f.Cluster, 1, h)
		warm, warmWidth := estimateOf(c, 1, f.Cluster, 1, h)
		all := screentest.AllIDs(in.Config.Labels)
		inf := math.Inf(1)
		for _, c := range []struct {
			temperature, confidence float64
			want                    tail.Interval
		}{
			{1, 0.9, tail.Interval{Log: sum(head, 1, warm), Low: sum(head, 1, warm-warmWidth), High: sum(head, 1, warm+warmWidth)}},
			{1, 0.6, tail.Interval{Log: sum(head, 1, warm), Low: sum(head, 1, warm-warmWidth), High: sum(head, 1, warm+warmWidth)}},
			{1, 0.95, tail.Interval{Log: sum(head, 1, warm), Low: sum(head, 1, -inf), High: inf}},
			{0.5, 0.9, tail.Interval{Log: sum(head, 0.5, cold), Low: sum(head, 0.5, cold-coldWidth), High: sum(head, 0.5, cold+coldWidth)}},
			// 1/T = 1.5: half way.
			{1 / 1.5, 0.8, tail.Interval{Log: sum(head, 1/1.5, (cold+warm)/2), Low: sum(head, 1/1.5, -inf), High: sum(head, 1/1.5, (cold+warm+coldWidth+warmWidth)/2)}},
			{2, 0.9, tail.Interval{Log: sum(all, 2, -inf), Low: sum(all, 2, -inf), High: sum(all, 2, -inf)}},
		} {
			got, err := logsum.LogSum(s, h, c.temperature, c.confidence)
			if err != nil {
				t.Fatal(err)
			}
			for _, pair := range [][2]float64{{got.Log, c.want.Log}, {got.Low, c.want.Low}, {got.High, c.want.High}} {
				if pair[0] != pair[1] && !(math.Abs(pair[0]-pair[1]) < 1e-9) {
					t.Fatalf("context %d, temperature %v, confidence %v: found %+v, want %+v", i, c.temperature, c.confidence, got, c.want)
				}
			}
		}
	}
}

// The head has the candidates within the budget and the labels that are not in the tail, and
// intervals that contain their logits. If the tail has no coefficients for a temperature, its
// interval bounds the sum if the interval at the nearest temperature contains the truth.
func TestHeadHoldsTheCandidates(t *testing.T) {
	in := screentest.Tailed(t)
	s, c := in.Searcher(t), in.Config.Tail.Config()
	var rest tail.Rest
	for i := range in.N {
		h := in.Context(i)
		f := in.Find(h)
		for _, budget := range []float64{0, in.Config.Ladder[0].Budget, in.Config.Ladder[len(in.Config.Ladder)-1].Budget} {
			head, ok, err := logsum.HeadOf(s, h, budget, &rest)
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			named := budget
			if named == 0 {
				named = in.Model.Budget()
			}
			want, err := in.Model.Candidates(f.Cell, named)
			if err != nil {
				t.Fatal(err)
			}
			known := in.AtLeast(f.Cell, c.Share)
			if len(known) > len(want) {
				want = known
			}
			if !slices.Equal(head.IDs, want) || head.Known != len(known) {
				t.Fatalf("context %d: found %v, of which %d are known, expected %v and %d", i, head.IDs, head.Known, want, len(known))
			}
			for j, x := range in.Logits(h, head.IDs) {
				if !(float64(head.Lower[j]) <= x && x <= float64(head.Upper[j])) {
					t.Fatalf("context %d, label %d: found the interval [%v, %v], expected one with %v", i, head.IDs[j], head.Lower[j], head.Upper[j], x)
				}
			}
		}
		log, width := estimateOf(c, 0, f.Cluster, 1, h)
		got := rest.At(1, 0.9)
		for _, pair := range [][2]float64{{got.Log, log}, {got.Low, log - width}, {got.High, log + width}} {
			if pair[0] != pair[1] && !(math.Abs(pair[0]-pair[1]) < 1e-6*(1+math.Abs(pair[1]))) {
				t.Fatalf("context %d: found the tail %+v, expected %v, %v and %v", i, got, log, log-width, log+width)
			}
		}
		known := in.AtLeast(f.Cell, c.Share)
		outside := []uint32{}
		for id := range uint32(in.Config.Labels) {
			if !slices.Contains(known, id) {
				outside = append(outside, id)
			}
		}
		truth := func(temperature float64) float64 {
			terms := in.Logits(h, outside)
			for j := range terms {
				terms[j] /= temperature
			}
			return kernels.LogSumExp(terms)
		}
		off := truth(1) - got.High // a bound with the error off at T0 has the error off T0/T at T
		for _, temperature := range []float64{0.1, 0.5, 1.3, 10} {
			x := rest.At(temperature, 0.9)
			if x.Log != x.High || !math.IsInf(x.Low, -1) {
				t.Fatalf("context %d, temperature %v: found %+v, expected an upper end alone", i, temperature, x)
			}
			if want := truth(temperature); want > x.High+max(off, 0)/temperature+1e-9 {
				t.Fatalf("context %d, temperature %v: found %v, expected at least %v", i, temperature, x.High, want)
			}
		}
	}
}

// With OverTail the labels are the same as without it, for requests with and without edits, and so
// are the exact layer's log-sums. checkTail is about the other log-sums.
func TestOverTheTailAnswersAreThoseWithoutIt(t *testing.T) {
	check := func(t *rapid.T) {
		drawn := screentest.DrawShape(draws(t))
		drawn.Tail = []float64{1}
		in := drawn.Instance(t)
		k, req := screentest.DrawRequest(draws(t), in)
		set := screentest.DrawSettings(draws(t), in)
		plain := in.Searcher(t, set.Options())
		set.OverTail = true
		over := in.Searcher(t, set.Options())
		for i := range in.N {
			want, a := screentest.Search(t, plain, k, in.Context(i), req)
			got, b := screentest.Search(t, over, k, in.Context(i), req)
			if b.Source != exact.FromLayer && req.LogSum {
				if !(b.LogSum >= a.LogSum) {
					t.Fatalf("context %d: found the log-sum %v over all labels, and %v over the candidates", i, b.LogSum, a.LogSum)
				}
				b.LogSum = a.LogSum
			}
			if !slices.Equal(got, want) || a != b {
				t.Fatalf("context %d: found %v, %+v, want as without the tail, %v, %+v", i, got, b, want, a)
			}
		}
	}
	simdtest.EachLevel(t, func(t *testing.T) { rapid.Check(t, check) })
}

// Without a tail nothing is known of the labels that are not looked at.
func TestWithoutATailThereAreNoProbabilities(t *testing.T) {
	in := screentest.Ordinary(t)
	s, h := in.Searcher(t), in.Context(0)
	for name, ask := range map[string]func() error{
		"LogProb": func() error { _, err := logsum.LogProb(s, h, 1, 2); return err },
		"LogSum":  func() error { _, err := logsum.LogSum(s, h, 1, 0); return err },
		"Head":    func() error { _, _, err := logsum.HeadOf(s, h, 0, new(tail.Rest)); return err },
		"OverTail": func() error {
			_, err := screening.NewSearcher(in.Model, in.Layer, logsum.OverTail(screening.Options{}))
			return err
		},
		"targets": func() error {
			_, err := evaluate.Run(t.Context(), in.Model, in.Layer, h, evaluate.Options{Targets: []int64{1}})
			return err
		},
	} {
		if err := ask(); !errors.Is(err, logsum.ErrNoTail) {
			t.Errorf("%s: found %v, expected ErrNoTail", name, err)
		}
	}
}

func TestLogProbRefuses(t *testing.T) {
	in := screentest.Tailed(t)
	s, h := in.Searcher(t), in.Context(0)
	nan := append(slices.Clone(h[1:]), float32(math.NaN()))
	for _, c := range []struct {
		name string
		call func() error
		kind error
		want string
	}{
		{"id", func() error { _, err := logsum.LogProb(s, h, 300, 1); return err }, exact.ErrRequest, "l2s: id: found 300, expected one below the 300 labels"},
		{"short", func() error { _, err := logsum.LogProb(s, h[1:], 0, 1); return err }, exact.ErrContext, "l2s: context: found 23 elements, expected 24"},
		{"NaN", func() error { _, err := logsum.LogProb(s, nan, 0, 1); return err }, exact.ErrContext, "l2s: context: found NaN at element 23, expected finite numbers"},
		{"temperature", func() error { _, err := logsum.LogSum(s, h, 0, 0.5); return err }, exact.ErrRequest, "l2s: temperature: found 0, expected"},
		{"temperature of a log-probability", func() error { _, err := logsum.LogProb(s, h, 0, math.Inf(1)); return err }, exact.ErrRequest, "l2s: temperature: found +Inf, expected"},
		{"confidence", func() error { _, err := logsum.LogSum(s, h, 1, 1); return err }, exact.ErrRequest, "l2s: confidence: found 1, expected"},
		{"budget", func() error { _, _, err := logsum.HeadOf(s, h, -1, new(tail.Rest)); return err }, exact.ErrRequest, "l2s: budget: found -1"},
		{"context", func() error { _, _, err := logsum.HeadOf(s, h[1:], 0, new(tail.Rest)); return err }, exact.ErrContext, "l2s: context: found 23"},
	} {
		if err := c.call(); err == nil || !strings.HasPrefix(err.Error(), c.want) || !errors.Is(err, c.kind) {
			t.Errorf("%s: error %v, want %s ...", c.name, err, c.want)
		}
	}
}

// Where a number that the tail reckons with is out of its cluster's range all that speaks of all
// labels is the exact layer's, bit for bit; at the ends of the ranges it is the tail's.
func TestOutOfItsRangeATailIsExact(t *testing.T) {
	in := screentest.Shape{Labels: 300, Dim: 24, Clusters: 5, Contexts: 12, Keep: 60, Tail: []float64{0.7, 1}, Seed: 9}.Instance(t)
	whole := exact.NewSearcher(in.Layer)
	top := make([]exact.Prediction, 5)
	for i := range in.N {
		h := in.Context(i)
		f := in.Find(h)
		c := in.Config.Tail.Config()
		norm, along := tail.SquaresOf(c.Directions, h)
		numbers := []float64{norm, along}
		for at := range c.Temperatures {
			log, _ := estimateOf(c, at, f.Cluster, 0, h)
			numbers = append(numbers, log)
		}
		for out := -1; out <= 2*len(numbers); out++ { // the number of the end that the context exceeds, -1 for none
			c.Ranges = screentest.Everything(c.Clusters, len(c.Temperatures))
			own := c.Ranges[2*len(numbers)*f.Cluster:]
			for j, x := range numbers {
				slack := 1e-9 * (1 + math.Abs(x)) // the definition is summed in another order
				own[2*j], own[2*j+1] = x-slack, x+slack
				switch out {
				case 2 * j:
					own[2*j], own[2*j+1] = x+slack, math.Inf(1)
				case 2*j + 1:
					own[2*j], own[2*j+1] = math.Inf(-1), x-slack
				}
			}
			c.Cosines = screentest.AnyCosine(c.Clusters)
			v := in.Config.Clusters[f.Cluster*24:][:24]
			cosine := kernels.RefDot(v, h) / (math.Sqrt(kernels.RefDot(v, v)) * math.Sqrt(kernels.RefDot(h, h)))
			if c.Cosines[2*f.Cluster] = cosine; out == 2*len(numbers) {
				c.Cosines[2*f.Cluster] = math.Nextafter(cosine, 2)
			}
			ranged, err := tail.New(c)
			if err != nil {
				t.Fatal(err)
			}
			config := in.Model.Config()
			config.Tail = ranged
			m, err := screening.NewModel(config)
			if err != nil {
				t.Fatal(err)
			}
			s, err := screening.NewSearcher(m, in.Layer, logsum.OverTail(screening.Options{}))
			if err != nil {
				t.Fatal(err)
			}
			for _, temperature := range []float64{0.7, 0.8, 1} {
				want, err := whole.Search(top, h, exact.Request{LogSum: true, ExactSum: true, Temperature: temperature})
				if err != nil {
					t.Fatal(err)
				}
				z, err := logsum.LogSum(s, h, temperature, 0.9)
				if err != nil {
					t.Fatal(err)
				}
				p, err := logsum.LogProb(s, h, top[0].ID, temperature)
				if err != nil {
					t.Fatal(err)
				}
				a, err := s.Search(make([]exact.Prediction, 5), h, exact.Request{LogSum: true, Temperature: temperature})
				if err != nil {
					t.Fatal(err)
				}
				_, ok, err := logsum.HeadOf(s, h, 0, new(tail.Rest))
				if err != nil {
					t.Fatal(err)
				}
				isExact := [4]bool{z.Low == z.High && z.Log == want.LogSum, p == min(top[0].Logit/temperature-want.LogSum, 0), a.LogSum == want.LogSum, !ok}
				if out < 0 && isExact[3] || isExact != [4]bool{out >= 0, out >= 0, out >= 0, out >= 0} {
					t.Errorf("context %d, end %d, T %v: found LogSum, LogProb, OverTail and Head exact: %v, expected %v of all", i, out, temperature, isExact, out >= 0)
				}
			}
		}
	}
}
