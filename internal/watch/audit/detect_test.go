package audit

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/screening"
)

// The rate of false alarms follows from the threshold.
func TestFalseAlarmsAreFewerThanOneAWeek(t *testing.T) {
	const samples = 1000.0 * 60 * 60 * 24 * 7 / sampleEvery // of a week, at 1,000 queries per second
	if rate := tests * samples / alarmAt; rate > 1 {
		t.Errorf("found up to %v false alarms a week, expected one at most", rate)
	}
	sampled, a := 0.0, new(Audit)
	const queries = 1 << 20
	for range queries {
		if a.Before(nil) == screening.Sees|screening.Places {
			sampled++
		}
	}
	if p := 1.0 / sampleEvery; math.Abs(sampled/queries-p) > 8*math.Sqrt(p*(1-p)/queries) { // 8 deviations
		t.Errorf("found %v samples of %d queries, expected one of %d", sampled, queries, sampleEvery)
	}
}

func drawHistogram(t *rapid.T) Histogram {
	n := rapid.IntRange(1, 3000).Draw(t, "contexts")
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	x := make([]float64, n)
	for i := range x {
		if x[i] = r.NormFloat64(); rapid.Bool().Draw(t, "coarse") {
			x[i] = math.Round(x[i])
		}
		if i == 200 {
			break // draws of rapid are slow; the rest is fine
		}
	}
	for i := 201; i < n; i++ {
		x[i] = r.NormFloat64()
	}
	return newHistogram(x)
}

// After any samples, no distribution whose bins have at most their largest shares gives the next
// one an expectation above 1: the rate of false alarms depends on this.
func TestSamplesOfAPromiseThatHoldsAreFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDriftDetector(drawHistogram(t))
		for _, bin := range rapid.SliceOf(rapid.IntRange(0, len(d.of.Shares)-1)).Draw(t, "samples") {
			for i := range d.recent {
				d.recent[i].add(bin)
			}
		}
		for i := range d.recent {
			expected := 0.0
			for bin, most := range d.of.Most {
				expected += most * d.recent[i].predict(bin) / most
			}
			if expected > 1+1e-12 {
				t.Errorf("found an expectation of %v, expected at most 1", expected)
			}
		}
		allowed := rapid.Float64Range(1e-4, 1).Draw(t, "allowed")
		fair, never := newMissDetector(), newMissDetector()
		fair.add(allowed, allowed) // linear in the missed part: the payoff of the mean is the mean payoff
		for _, r := range fair.r {
			if math.Abs(r-1) > 1e-12 {
				t.Errorf("found a payoff of %v for the allowed misses, expected 1", r)
			}
		}
		never.add(0, allowed)
		for _, r := range never.r {
			if r < 0 {
				t.Errorf("found a payoff of %v, expected none below 0", r)
			}
		}
	})
}

// histograms have the shares of their contexts, and the largest shares are above the shares.
func TestHistograms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawHistogram(t)
		if !h.valid() {
			t.Fatalf("found %+v, expected a histogram", h)
		}
		sum := 0.0
		for i, p := range h.Shares {
			if sum += p; h.Most[i] < p {
				t.Errorf("found at most %v of bin %d, expected %v or more", h.Most[i], i, p)
			}
		}
		if math.Abs(sum-1) > 1e-9 {
			t.Errorf("found shares that sum to %v", sum)
		}
	})
}

// Simulated: the mean number of samples to a false alarm is at least the threshold, at the limit of
// the promise.
func TestMeanTimeToAFalseAlarm(t *testing.T) {
	const runs, threshold = 400, 300.0
	r := rand.New(rand.NewPCG(1, 2))
	mean := func(begin func() (*detector, func())) float64 {
		total := 0.0
		for range runs {
			d, add := begin()
			d.at = threshold
			for d.crossed == 0 && d.samples < 20*threshold {
				add()
			}
			total += float64(d.samples)
		}
		return total / runs
	}
	for _, most := range [][]float64{{0.5, 0.5}, {0.01, 0.09, 0.4, 0.5}, {0.01, 0.03, 0.06, 0.1, 0.3, 0.5}} {
		h := Histogram{Shares: most, Most: most}
		for i := range len(most) - 1 {
			h.Edges = append(h.Edges, float64(i+1))
		}
		if n := mean(func() (*detector, func()) {
			d := newDriftDetector(h)
			return &d.detector, func() {
				at := r.Float64()
				bin := 0
				for ; bin < len(most)-1 && at >= most[bin]; bin++ {
					at -= most[bin]
				}
				d.add(float64(bin))
			}
		}); n < threshold {
			t.Errorf("shares %v: found an alarm after %v samples, expected %v or more", most, n, threshold)
		}
	}
	for _, allowed := range []float64{0.002, 0.01, 0.2} {
		for _, part := range []float64{0.2, 1} {
			if n := mean(func() (*detector, func()) {
				d := newMissDetector()
				return &d.detector, func() {
					missed := 0.0
					if r.Float64() < allowed/part {
						missed = part
					}
					d.add(missed, allowed)
				}
			}); n < threshold {
				t.Errorf("allowed %v in parts of %v: found an alarm after %v samples, expected %v or more", allowed, part, n, threshold)
			}
		}
	}
}

// text is a stream of numbers of texts, each with its own centre and similar neighbours.
type text struct {
	left           int
	centre, within float64
}

func (x *text) next(r *rand.Rand) float64 {
	if x.left == 0 {
		x.left, x.centre = 50+r.IntN(400), 0.5*r.NormFloat64()
	}
	x.left--
	x.within = 0.7*x.within + 0.7*r.NormFloat64()
	return x.centre + x.within
}

// Traffic of many streams, whose texts differ as much as texts of training, gives no alarm.
func TestTextsThatDifferAreNoDrift(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var training text
	var held []float64
	for range 4000 {
		held = append(held, training.next(r))
	}
	d, streams := newDriftDetector(newHistogram(held)), make([]text, 16)
	add := func(n int, by float64) {
		for range n {
			d.add(streams[r.IntN(len(streams))].next(r) + by)
		}
	}
	add(2000000, 0)
	if d.crossed != 0 {
		t.Errorf("found an alarm in two million samples")
	}
	add(200, -3)
	if !d.up() {
		t.Errorf("found no alarm in 200 samples of another place")
	}
	add(calm+1000, 0)
	if d.up() {
		t.Errorf("found an alarm that does not end")
	}
}

// A mean above the allowed part is noticed.
func TestMissesAreNoticed(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, c := range []struct {
		allowed, mean float64
		within        int
	}{{0.006, 0.03, 500}, {0.01, 0.03, 1500}, {0.001, 0.01, 3000}, {0.5, 1, 60}} {
		d := newMissDetector()
		for range 5000 {
			if r.Float64() < c.allowed/2*5 {
				d.add(0.2, c.allowed)
			} else {
				d.add(0, c.allowed)
			}
		}
		if d.crossed != 0 {
			t.Errorf("%+v: found an alarm while half of the allowed labels are missed", c)
		}
		begin := d.samples
		for d.crossed == 0 && d.samples < begin+uint64(c.within) {
			missed := 0.0
			for range 5 {
				if r.Float64() < c.mean {
					missed += 0.2
				}
			}
			d.add(missed, c.allowed)
		}
		if d.crossed == 0 {
			t.Errorf("%+v: found no alarm", c)
		}
	}
}

// A record with nonsense counts as a record without a geometry.
func TestRecordsMayHoldAnything(t *testing.T) {
	for _, record := range []string{`{}`, `{"geometry":3}`, `{"geometry":{}}`, `{"geometry":{"cosine":{"edges":[1],"shares":[1],"most":[1]}}}`,
		`{"geometry":{"cosine":{"edges":[],"shares":[1],"most":[0]}}}`, `{"geometry":{"cosine":{"edges":[2,1],"shares":[1,1,1],"most":[1,1,1]}}}`} {
		if g := geometryOf([]byte(record)); g != nil && !slices.Equal(g.Cosine.Shares, nil) {
			t.Errorf("%s: found %+v", record, g)
		}
	}
}

// A sample that was not answered before a swap does not count for the model after it, whose budgets
// and cells are others.
func TestASampleBeforeASwapIsDropped(t *testing.T) {
	const labels = 8
	rows := make([]float32, 2*labels)
	for i := range rows {
		rows[i] = float32(i)
	}
	layer, err := exact.NewLayer(kernels.Float32Rows(rows, 2), nil)
	if err != nil {
		t.Fatal(err)
	}
	model := func(budgets ...float64) *screening.Model {
		c := screening.Config{Dim: 2, Labels: labels, Clusters: []float32{1, 0}, Lists: make([]screening.List, 1), K: 1, HeldOut: 100}
		for i := range uint32(labels) {
			c.Lists[0].IDs, c.Lists[0].Shares = append(c.Lists[0].IDs, i), append(c.Lists[0].Shares, 65535-uint16(i))
		}
		for _, b := range budgets {
			c.Ladder = append(c.Ladder, screening.Rung{Budget: b, Share: c.Lists[0].Shares[int(b)-1]})
		}
		m, err := screening.NewModel(c)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	p, err := engine.NewPool(engine.Over(layer), engine.OfScreen(model(2, 4, 8)), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a := newAudit(p, Options{Share: 1}) // without its goroutine
	p.Watch(a)
	top := make([]exact.Prediction, 1)
	for !a.full {
		if err := p.Do(func(s *engine.Searcher) error { _, err := s.TopK(top, []float32{1, 2}); return err }); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.Swap(engine.Over(layer), engine.OfScreen(model(8))); err != nil {
		t.Fatal(err)
	}
	if !a.answer() {
		t.Error("found no sample, expected one that is dropped")
	}
	if r := a.Report(); r.Audited != 0 || r.Window != 0 || r.Err != nil {
		t.Errorf("found %+v, expected nothing of the model before", r)
	}
}
