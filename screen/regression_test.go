package screen_test

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/simdtest"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// regressionOf returns a regression for the instance with random coefficients.
func (in *instance) regressionOf(t failer, temperatures ...float64) *screen.Regression {
	r := newRand(11)
	c := screen.RegressionConfig{Clusters: in.model.Clusters(), Temperatures: temperatures, Levels: []float64{0.5, 0.9}}
	rows := len(temperatures) * c.Clusters
	for range rows {
		c.Intercepts = append(c.Intercepts, float32(1+r.NormFloat64()))
		w := float32(r.Float64())
		c.Widths = append(c.Widths, w, 2*w)
		for range in.config.Dim {
			c.Slopes = append(c.Slopes, float32(0.1*r.NormFloat64()))
		}
	}
	// Squares of two directions for every other instance.
	if in.config.Dim%2 == 1 {
		for range 2 * in.config.Dim {
			c.Directions = append(c.Directions, float32(0.3*r.NormFloat64()))
		}
		for range 2 * rows {
			c.Squares = append(c.Squares, float32(0.1*r.NormFloat64()))
		}
	}
	reg, err := screen.NewRegression(c)
	if err != nil {
		t.Fatal(err)
	}
	return reg
}

// withRegression is the instance with a regression in its model.
func (in *instance) withRegression(t failer) *instance {
	m, err := in.model.WithRegression(in.regressionOf(t, 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	in.config.Regression, in.model = m.Regression(), m
	return in
}

// estimateOf is a_t + u_t.h, with the squares if there are any, at the temperature of a row of blocks, by its definition,
// and the half-width at a level.
func estimateOf(c screen.RegressionConfig, block, cluster, level int, h []float32) (log, width float64) {
	row := block*c.Clusters + cluster
	log = float64(c.Intercepts[row])
	for j, x := range h {
		log += float64(c.Slopes[row*len(h)+j]) * float64(x)
	}
	if len(c.Squares) > 0 {
		for _, x := range h {
			log += float64(c.Squares[2*row]) * float64(x) * float64(x)
		}
		for k := range len(c.Directions) / len(h) {
			product := 0.0
			for j, x := range h {
				product += float64(c.Directions[k*len(h)+j]) * float64(x)
			}
			log += float64(c.Squares[2*row+1]) * product * product
		}
	}
	return log, float64(c.Widths[row*len(c.Levels)+level])
}

// checkRegression: a label's log-probability is its exact logit minus the log of the
// exact sum over the candidates and what the regression of the best cluster says of the
// others, of which those that are known are taken off. It is never above 0.
func checkRegression(t *rapid.T) {
	in := drawShape(t).instance(t)
	reg := in.regressionOf(t, 1)
	m, err := in.model.WithRegression(reg, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := screen.NewSearcher(m, in.layer, screen.OverTail(), screen.Short())
	if err != nil {
		t.Fatal(err)
	}
	req := drawRequest(t, in)
	req.LogSum = true
	dst := make([]softmax.Prediction, req.K)
	for i := range in.n {
		h := in.context(i)
		f := in.find(h)
		all := make([]float64, in.config.Labels)
		for id := range all {
			all[id] = in.ranked(h, []uint32{uint32(id)})[0].Logit
		}
		mass, _ := estimateOf(reg.Config(), 0, in.cluster(h), 0, h)
		// rest is the weight of the labels outside known.
		rest := func(known []uint32) float64 {
			if len(known) == len(all) {
				return 0
			}
			left := math.Exp(mass)
			for _, id := range known {
				if _, inside := slices.BinarySearch(in.model.Candidates(in.cluster(h)), id); !inside {
					left -= math.Exp(all[id])
				}
			}
			return max(left, 0)
		}
		// The sums of the search are off by what two roundings to int8 lose at most.
		rounding, norm := 0.0, func(x []float32) (n float64) {
			for _, v := range x {
				n += float64(v) * float64(v)
			}
			return math.Sqrt(n)
		}
		for id := range all {
			rounding = max(rounding, 4.0/127*norm(h)*norm(in.weights()[id*in.config.Dim:(id+1)*in.config.Dim]))
		}
		near := func(what string, got, want float64) {
			t.Helper()
			if got != want && !(math.Abs(got-want) < 1e-6*(1+math.Abs(want))+rounding) {
				t.Fatalf("context %d: %s %v, want %v", i, what, got, want)
			}
		}
		for id, x := range all {
			got := logProb(t, s, h, id)
			if f.exact {
				near("exact log-probability", got, x-kernels.LogSumExp(all))
				continue
			}
			sum := 0.0
			for _, other := range f.joined {
				sum += math.Exp(all[other])
			}
			tail := rest(f.joined)
			if !slices.Contains(f.joined, uint32(id)) {
				tail = max(tail, math.Exp(x))
			}
			near("log-probability", got, x-math.Log(sum+tail))
			if got > 1e-12 {
				t.Fatalf("context %d, label %d: log-probability %v above 0", i, id, got)
			}
		}
		// With edits.
		a, err := s.Search(dst, h, req)
		if err != nil {
			t.Fatal(err)
		}
		if f.exact || req.Allowed != nil {
			continue // the exact layer gives the sum
		}
		known := slices.Clone(f.joined)
		for id := range uint32(len(all)) {
			biased := slices.ContainsFunc(req.Biases, func(b softmax.Bias) bool { return b.ID == id })
			if biased || req.Banned != nil && req.Banned.Has(id) {
				known = append(known, id)
			}
		}
		slices.Sort(known)
		known = slices.Compact(known)
		terms := []float64{math.Log(rest(known))}
		for _, id := range known {
			if req.Permits(id) {
				terms = append(terms, all[id]+req.Bias(id))
			}
		}
		want := kernels.LogSumExp(terms)
		if !math.IsInf(want, -1) || !math.IsInf(a.LogSum, -1) {
			near("log-sum", a.LogSum, want)
		}
	}
}

func TestLogProbByRegression(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) { rapid.Check(t, checkRegression) })
}

// At a temperature of the regression the interval has its half-width. Between two the
// estimate lies between theirs in 1/T, and the lower end is the sum of the set.
// Outside of them the exact layer answers.
func TestLogSumAtATemperature(t *testing.T) {
	in := shape{labels: 300, dim: 24, clusters: 7, contexts: 30, keep: 30, seed: 3}.instance(t)
	reg := in.regressionOf(t, 0.5, 1)
	m, err := in.model.WithRegression(reg, []byte(`{"a":1}`))
	if err != nil {
		t.Fatal(err)
	}
	if string(m.Record()) != `{"a":1}` || string(in.model.Record()) != "{}" {
		t.Errorf("records %s and %s", m.Record(), in.model.Record())
	}
	s, err := screen.NewSearcher(m, in.layer)
	if err != nil {
		t.Fatal(err)
	}
	for i := range in.n {
		h := in.context(i)
		logSum := func(temperature, confidence float64) screen.Interval {
			x, err := s.LogSum(h, temperature, confidence)
			if err != nil {
				t.Fatal(err)
			}
			return x
		}
		sum := func(ids []uint32, temperature, tail float64) float64 {
			terms := []float64{tail}
			for _, p := range in.ranked(h, ids) {
				terms = append(terms, p.Logit/temperature)
			}
			return kernels.LogSumExp(terms)
		}
		set := in.find(h).joined
		cold, coldWidth := estimateOf(reg.Config(), 0, in.cluster(h), 1, h)
		warm, warmWidth := estimateOf(reg.Config(), 1, in.cluster(h), 1, h)
		all := allIDs(in.config.Labels)
		inf := math.Inf(1)
		for _, c := range []struct {
			temperature, confidence float64
			want                    screen.Interval
		}{
			{1, 0.9, screen.Interval{Log: sum(set, 1, warm), Low: sum(set, 1, warm-warmWidth), High: sum(set, 1, warm+warmWidth)}},
			{1, 0.6, screen.Interval{Log: sum(set, 1, warm), Low: sum(set, 1, warm-warmWidth), High: sum(set, 1, warm+warmWidth)}},
			{1, 0.95, screen.Interval{Log: sum(set, 1, warm), Low: sum(set, 1, -inf), High: inf}},
			{0.5, 0.9, screen.Interval{Log: sum(set, 0.5, cold), Low: sum(set, 0.5, cold-coldWidth), High: sum(set, 0.5, cold+coldWidth)}},
			// 1/T = 1.5: half way.
			{1 / 1.5, 0.8, screen.Interval{Log: sum(set, 1/1.5, (cold+warm)/2), Low: sum(set, 1/1.5, -inf), High: sum(set, 1/1.5, (cold+warm+coldWidth+warmWidth)/2)}},
			{2, 0.9, screen.Interval{Log: sum(all, 2, -inf), Low: sum(all, 2, -inf), High: sum(all, 2, -inf)}},
		} {
			got := logSum(c.temperature, c.confidence)
			// The sums of a log-probability are off by what roundings to int8 lose.
			p, err := s.LogProbAt(h, set[0], c.temperature)
			if want := in.ranked(h, set[:1])[0].Logit/c.temperature - got.Log; err != nil || math.Abs(p-want) > 0.2/c.temperature {
				t.Fatalf("context %d, temperature %v: log-probability %v, %v, want about %v", i, c.temperature, p, err, want)
			}
			for _, pair := range [][2]float64{{got.Log, c.want.Log}, {got.Low, c.want.Low}, {got.High, c.want.High}} {
				if pair[0] != pair[1] && !(math.Abs(pair[0]-pair[1]) < 1e-9) {
					t.Fatalf("context %d, temperature %v, confidence %v: found %+v, want %+v", i, c.temperature, c.confidence, got, c.want)
				}
			}
		}
	}
	h := in.context(0)
	var total float64
	if n := simdtest.AllocsPerRun(20, func() {
		x, _ := s.LogSum(h, 0.8, 0.9)
		p, _ := s.LogProbAt(h, 5, 0.8)
		total += x.Log + p
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
	for _, c := range []struct {
		name string
		call func() error
		want string
	}{
		{"temperature", func() error { _, err := s.LogSum(h, 0, 0.5); return err }, "screen: temperature: found 0, expected"},
		{"temperature of a log-probability", func() error { _, err := s.LogProbAt(h, 0, math.Inf(1)); return err }, "screen: temperature: found +Inf, expected"},
		{"confidence", func() error { _, err := s.LogSum(h, 1, 1); return err }, "screen: confidence: found 1, expected"},
		{"labels", func() error { _, err := s.Head(h, []uint32{3, 300}, 1, 0); return err }, "screen: extra: found id 300"},
		{"context", func() error { _, err := s.Head(h[1:], nil, 1, 0); return err }, "softmax: context: found 23"},
		{"none", func() error { _, err := in.searcher(t).LogSum(h, 1, 0); return err }, "screen: regression: found a model without one"},
		{"another shape", func() error {
			other := shape{labels: 300, dim: 12, clusters: 7, contexts: 1, seed: 3}.instance(t)
			_, err := in.model.WithRegression(other.regressionOf(t, 1), nil)
			return err
		}, "screen: regression: found one for 7 clusters and dim 12, expected 7 and 24"},
	} {
		if err := c.call(); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %s ...", c.name, err, c.want)
		}
	}
}

func allIDs(n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i)
	}
	return ids
}

// What a file holds of a regression comes back, with squares and without.
func TestRegressionsInFiles(t *testing.T) {
	for dim, squares := range map[int]bool{4: false, 5: true} {
		in := shape{labels: 50, dim: dim, clusters: 3, contexts: 1, keep: 30, seed: 4}.instance(t)
		m, err := in.model.WithRegression(in.regressionOf(t, 0.5, 1), nil)
		if err != nil {
			t.Fatal(err)
		}
		file := encode(t, m)
		back, err := screen.Read(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(encode(t, back), file) {
			t.Error("read and written again: another file")
		}
		got, want := back.Regression().Config(), m.Regression().Config()
		if !slices.Equal(got.Slopes, want.Slopes) || !slices.Equal(got.Intercepts, want.Intercepts) || !slices.Equal(got.Widths, want.Widths) ||
			!slices.Equal(got.Temperatures, want.Temperatures) || !slices.Equal(got.Levels, want.Levels) ||
			!slices.Equal(got.Directions, want.Directions) || !slices.Equal(got.Squares, want.Squares) || len(got.Squares) > 0 != squares {
			t.Errorf("found %+v, want %+v", got, want)
		}
	}
}

func TestRegressionsAreRefused(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	good := func() screen.RegressionConfig {
		return screen.RegressionConfig{Clusters: 1, Temperatures: []float64{1}, Intercepts: []float32{1}, Slopes: []float32{1, 2}, Levels: []float64{0.5, 0.9}, Widths: []float32{1, inf}}
	}
	if _, err := screen.NewRegression(good()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(c *screen.RegressionConfig)
		want   string
	}{
		{"no clusters", func(c *screen.RegressionConfig) { c.Clusters = 0 }, "clusters: found 0, expected at least 1"},
		{"no temperatures", func(c *screen.RegressionConfig) { c.Temperatures = nil }, "found 0 temperatures and 2 levels"},
		{"a temperature of 0", func(c *screen.RegressionConfig) { c.Temperatures = []float64{0} }, "temperatures: found 0 at 0"},
		{"levels that descend", func(c *screen.RegressionConfig) { c.Levels = []float64{0.9, 0.5} }, "levels: found 0.5 at 1"},
		{"intercepts", func(c *screen.RegressionConfig) { c.Intercepts = nil }, "intercepts: found 0, expected one for each"},
		{"slopes", func(c *screen.RegressionConfig) { c.Slopes = nil }, "slopes: found 0 elements"},
		{"widths", func(c *screen.RegressionConfig) { c.Widths = c.Widths[1:] }, "widths: found 1, expected 2 for each"},
		{"NaN", func(c *screen.RegressionConfig) { c.Slopes[1] = nan }, "slopes: found NaN at row 0, column 1"},
		{"directions that are no rows", func(c *screen.RegressionConfig) { c.Directions, c.Squares = []float32{1, 2, 3}, []float32{1, 2} }, "directions: found 3 elements, expected at most 64 rows of dim 2"},
		{"too many directions", func(c *screen.RegressionConfig) { c.Directions, c.Squares = make([]float32, 130), []float32{1, 2} }, "directions: found 130 elements, expected at most 64 rows of dim 2"},
		{"squares without directions", func(c *screen.RegressionConfig) { c.Squares = []float32{1, 2} }, "squares: found 2, expected 0 for 0 directions"},
		{"directions without squares", func(c *screen.RegressionConfig) { c.Directions = []float32{1, 2} }, "squares: found 0, expected 2 for 1 directions"},
		{"an infinite direction", func(c *screen.RegressionConfig) { c.Directions, c.Squares = []float32{1, inf}, []float32{1, 2} }, "directions: found +Inf at row 0, column 1"},
		{"a square of NaN", func(c *screen.RegressionConfig) { c.Directions, c.Squares = []float32{1, 2}, []float32{nan, 2} }, "squares: found NaN at row 0, column 0"},
		{"widths that descend", func(c *screen.RegressionConfig) { c.Widths[1] = 0.5 }, "widths: found 0.5 at row 0, column 1"},
		{"a width of NaN", func(c *screen.RegressionConfig) { c.Widths[0] = nan }, "widths: found NaN at row 0, column 0"},
	} {
		config := good()
		c.change(&config)
		if _, err := screen.NewRegression(config); err == nil || !strings.HasPrefix(err.Error(), "screen: regression: "+c.want) {
			t.Errorf("%s: error %v, want %s ...", c.name, err, c.want)
		}
	}
}
