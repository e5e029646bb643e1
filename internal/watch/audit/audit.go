// Package audit watches whether the answers of a pool of searchers are as precise as the steps of
// their index promise. It observes their queries (engine.Watcher).
package audit

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/learning-to-screen/l2s/internal/ground/parallel"
	"github.com/learning-to-screen/l2s/internal/ground/precision"
	"github.com/learning-to-screen/l2s/internal/ground/ranking"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/screening"
)

// Options are l2s.AuditOptions.
type Options struct {
	Share float64
	Alarm func(Alarm)
}

// Audit is l2s.Audit. The tests that it makes of samples are e-detectors.
type Audit struct {
	pool    *engine.Pool
	options Options
	called  chan struct{} // there is work
	ending  chan struct{}
	ended   chan struct{}
	exact   *exact.Searcher // over layer, for the goroutine of the audit
	layer   *engine.Layer
	h       []float32 // the context of the sample to answer

	mu           sync.Mutex    // sampled queries hold it for a moment
	index        *engine.Index // whose samples count; nil for the exact search, which has none
	geometry     *Geometry     // nil: not known
	stopped      bool
	wanted, full bool          // h must be set; h is set
	sampled      place         // of h
	of           *engine.Index // of sampled
	k, heldOut   int           // of its steps
	cosine       *driftDetector
	first, all   *missDetector
	outcomes     []audited // the last window ones
	begun        []Alarm   // that the callback must get
	err          error     // of the last exact answer
}

// place is where a query was answered: the step of its budget, and by a screen the cell with the
// number of candidates.
type place struct{ step, cell, n int }

// audited is a query that was answered exactly too.
type audited struct {
	precision.Outcome
	step, n int
}

const (
	// window is the number of queries that the figures of a report are of, at most.
	window = 5000
	// recentSamples is the number of samples that the text of an alarm describes.
	recentSamples = 200
)

// Alarm is l2s.Alarm.
type Alarm struct {
	Of, Text string
}

// Report is l2s.AuditReport.
type Report struct {
	Sampled, Audited      uint64
	K                     int
	Window                int
	Precision1, Expected1 precision.Estimate
	PrecisionK, ExpectedK precision.Estimate
	Ladder                []screening.Rung
	Geometry              *Geometry
	Cosine                []float64
	Alarms                []Alarm
	Err                   error
}

// Steps are the steps that the ladder has on the audited queries.
func (r *Report) Steps() (steps []engine.Step) {
	for _, x := range r.Ladder {
		steps = append(steps, engine.StepOfRung(x))
	}
	return steps
}

// Bin is l2s.Bin.
type Bin struct{ Low, High, Expected, Most, Found float64 }

// Bins has the shares of the cosines of the last samples, and of training.
func (r *Report) Bins() (bins []Bin) {
	if r.Geometry == nil {
		return nil
	}
	h, low := &r.Geometry.Cosine, -1.0
	for i, found := range r.Cosine {
		high := 1.0
		if i < len(h.Edges) {
			high = h.Edges[i]
		}
		bins = append(bins, Bin{low, high, h.Shares[i], h.Most[i], found})
		low = high
	}
	return bins
}

// Start is l2s.Pool.Audit.
func Start(p *engine.Pool, o Options) (*Audit, error) {
	if o.Share == 0 {
		o.Share = 0.02
	}
	if !(o.Share > 0 && o.Share <= 1) {
		return nil, fmt.Errorf("l2s: audit: share: found %v, expected above 0 and at most 1", o.Share)
	}
	a := newAudit(p, o)
	if old, ok := p.Watch(a).(*Audit); ok {
		old.Stop()
	}
	go a.run()
	return a, nil
}

func newAudit(p *engine.Pool, o Options) *Audit {
	return &Audit{pool: p, options: o, called: make(chan struct{}, 1), ending: make(chan struct{}), ended: make(chan struct{}), wanted: true}
}

// Stop ends the audit, and returns when its callback is called no more. Not from the callback.
func (a *Audit) Stop() {
	a.mu.Lock()
	if !a.stopped {
		a.stopped = true
		close(a.ending)
	}
	a.mu.Unlock()
	a.pool.Unwatch(a)
	<-a.ended
}

// Began drops all earlier samples: the samples of the index count from now on.
func (a *Audit) Began(x *engine.Index) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.index, a.geometry, a.k, a.heldOut = x, nil, 1, 0
	if x != nil {
		k, heldOut := x.Measured()
		a.geometry, a.k, a.heldOut = geometryOf(x.Record()), max(k, 1), heldOut
	}
	known := cmp.Or(a.geometry, new(Geometry))
	a.cosine = newDriftDetector(known.Cosine)
	a.first, a.all = newMissDetector(), newMissDetector()
	a.first.k, a.all.k = 1, a.k
	a.outcomes, a.begun, a.err = nil, nil, nil
}

// isSample draws a sample of the queries, each with the same chance.
func isSample() bool { return rand.Uint64N(sampleEvery) == 0 }

// Before asks to see a sample of the queries by a screen.
func (a *Audit) Before(*exact.Query) screening.Wish {
	if !isSample() {
		return 0
	}
	return screening.Sees | screening.Places
}

// After takes a sample, unless the query is none, or the context is of no use: a sample of contexts
// that the screen is not for tells nothing of others.
func (a *Audit) After(v *screening.View) error {
	if v.Wish&screening.Places == 0 || v.Wish&screening.Refuses != 0 {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.index == nil || v.Model != a.index.Screen() || a.stopped {
		return nil
	}
	if a.cosine.add(v.Found.Cosine) {
		a.begins(a.driftAlarm())
	}
	if !v.Exact {
		a.take(v.Query.Vector(), place{v.Rung, v.Cell, v.N})
	}
	return nil
}

// Previewed takes a sample of the queries by a preview.
func (a *Audit) Previewed(x *engine.Index, h []float32, step int, exact bool) {
	if !isSample() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if x != a.index || a.stopped {
		return
	}
	a.cosine.sample()
	if !exact {
		a.take(h, place{step: step})
	}
}

// take keeps a sample that is to be answered exactly, if the audit waits for one.
func (a *Audit) take(h []float32, at place) {
	if a.wanted {
		a.h = append(a.h[:0], h...) // of the size of the first one
		a.sampled, a.of, a.wanted, a.full = at, a.index, false, true
		a.call()
	}
}

func (a *Audit) call() {
	select {
	case a.called <- struct{}{}:
	default:
	}
}

func (a *Audit) begins(x Alarm) {
	a.begun = append(a.begun, x)
	a.call()
}

// missAlarm is the alarm of P@k.
func (a *Audit) missAlarm(test *missDetector) Alarm {
	of := a.recent(recentSamples)
	outcomes, sizes := split(of)
	found, expected := precision.At(outcomes, sizes, test.k), a.expected(of[len(of)-1], test.k)
	return Alarm{fmt.Sprintf("P@%d", test.k), fmt.Sprintf("found %.4f in the last %d audited queries, expected about %.4f as in training, and at least %.4f", found.Value, len(of), expected.Value, 1-allowed(expected))}
}

// driftAlarm names the bin of a histogram that has too much.
func (a *Audit) driftAlarm() Alarm {
	d := a.cosine
	worst, m := 0, &d.recent[0]
	for i, x := range m.counts {
		if x/d.of.Most[i] > m.counts[worst]/d.of.Most[worst] {
			worst = i
		}
	}
	place := ""
	switch e := d.of.Edges; {
	case len(e) == 0:
		place = "any cosine"
	case worst == 0:
		place = fmt.Sprintf("a cosine below %.4g", e[0])
	case worst == len(e):
		place = fmt.Sprintf("a cosine of %.4g or more", e[worst-1])
	default:
		place = fmt.Sprintf("a cosine from %.4g to %.4g", e[worst-1], e[worst])
	}
	return Alarm{"cosine", fmt.Sprintf("found %s in %.1f%% of the last sampled contexts, expected at most %.1f%%", place, 100*m.counts[worst]/m.total, 100*d.of.Most[worst])}
}

// run reports alarms, and answers samples exactly as long as Share allows it.
func (a *Audit) run() {
	defer close(a.ended)
	const burst = time.Second // the time whose share may be saved up
	saved, last := float64(burst)*a.options.Share, time.Now()
	ready := time.NewTimer(0)
	defer ready.Stop()
	for {
		select {
		case <-a.ending:
			a.tell() // alarms that began meanwhile
			return
		case <-ready.C:
			a.mu.Lock()
			a.wanted = !a.full
			a.mu.Unlock()
			continue
		case <-a.called:
		}
		begin := time.Now()
		if a.answer() {
			now := time.Now()
			saved = min(saved+float64(now.Sub(last))*a.options.Share, float64(burst)*a.options.Share) - float64(now.Sub(begin))
			last = now
			ready.Reset(time.Duration(min(max(0, -saved/a.options.Share), 1<<62)))
		}
		a.tell()
	}
}

// answer answers the sample exactly, and reports whether there was one.
func (a *Audit) answer() bool {
	a.mu.Lock()
	at, x, full := a.sampled, a.of, a.full
	a.mu.Unlock()
	if !full {
		return false
	}
	k, _ := x.Measured()
	best, known := make([]exact.Prediction, max(k, 1)), false
	var o audited
	err := a.pool.Do(func(s *engine.Searcher) error { // so that nobody closes the layer during the answer
		if s.Index() != x { // it was swapped
			return nil
		}
		if a.layer != s.Layer() {
			a.layer, a.exact = s.Layer(), exact.NewSearcher(s.Layer().Exact())
		}
		return s.Layer().Read(func() error {
			return parallel.Guard(func() error {
				if _, err := a.exact.TopK(best, a.h); err != nil {
					return err
				}
				if m := x.Screen(); m != nil {
					o, known = audited{m.Outcome(at.cell, best), at.step, at.n}, true
					return nil
				}
				// The preview answers as before: by the context and the step alone.
				found := make([]exact.Prediction, len(best))
				n, err := s.Probe(found, a.h, at.step)
				o, known = audited{precision.Find(0, ranking.IDs(nil, found[:n]), ranking.IDs(nil, best)), at.step, math.MaxInt32 - 1}, err == nil // any number of candidates
				return err
			})
		})
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.full, a.err = false, err; known && x == a.index {
		a.add(o)
	}
	return true
}

func (a *Audit) add(o audited) {
	a.outcomes = append(a.recent(window-1), o)
	for _, test := range []*missDetector{a.first, a.all} {
		if k := test.k; a.heldOut == 0 {
			test.sample()
		} else if test.add(float64(k-o.Hits(k, o.n))/float64(k), allowed(a.expected(o, k))) {
			a.begins(a.missAlarm(test))
		}
	}
}

// expected is the P@k of the step of a query.
func (a *Audit) expected(o audited, k int) precision.Estimate {
	steps, _ := a.index.Steps()
	if k == 1 {
		return steps[o.step].Precision1
	}
	return steps[o.step].PrecisionK
}

// allowed is the part of the labels that may be missed: twice the largest part, by its interval,
// that the held-out contexts of training missed.
func allowed(expected precision.Estimate) float64 { return min(1, max(1e-4, 2*(1-expected.Low))) }

// recent are the last n audited queries in their order, or all if there are fewer.
func (a *Audit) recent(n int) []audited { return a.outcomes[max(0, len(a.outcomes)-n):] }

// split returns the outcomes of audited queries, and the numbers of their candidates.
func split(of []audited) (outcomes []precision.Outcome, sizes []int) {
	for _, o := range of {
		outcomes, sizes = append(outcomes, o.Outcome), append(sizes, o.n)
	}
	return outcomes, sizes
}

func (a *Audit) tell() {
	a.mu.Lock()
	begun := a.begun
	a.begun = nil
	a.mu.Unlock()
	for _, x := range begun {
		if a.options.Alarm != nil {
			a.options.Alarm(x)
		}
	}
}

// Report returns the results of the audit.
func (a *Audit) Report() Report {
	a.mu.Lock()
	x, of := a.index, a.recent(window)
	r := Report{Sampled: a.cosine.samples, Audited: a.all.samples, K: a.k, Window: len(of), Geometry: a.geometry, Cosine: a.cosine.now(), Err: a.err}
	for _, test := range []*missDetector{a.first, a.all} {
		if test.up() {
			r.Alarms = append(r.Alarms, a.missAlarm(test))
		}
	}
	if a.cosine.up() {
		r.Alarms = append(r.Alarms, a.driftAlarm())
	}
	a.mu.Unlock()
	if len(of) == 0 {
		return r
	}
	steps, _ := x.Steps()
	r.Expected1 = mean(of, func(o audited) precision.Estimate { return steps[o.step].Precision1 })
	r.ExpectedK = mean(of, func(o audited) precision.Estimate { return steps[o.step].PrecisionK })
	outcomes, sizes := split(of)
	r.Precision1, r.PrecisionK = precision.At(outcomes, sizes, 1), precision.At(outcomes, sizes, r.K)
	if m := x.Screen(); m != nil {
		r.Ladder = m.Measure(outcomes, r.K)
	}
	return r
}

// mean returns the mean of the estimates of the queries; of returns the estimate of one.
func mean(queries []audited, of func(audited) precision.Estimate) (e precision.Estimate) {
	for _, o := range queries {
		x := of(o)
		e.Value, e.Low, e.High = e.Value+x.Value, e.Low+x.Low, e.High+x.High
	}
	n := float64(len(queries))
	return precision.Estimate{Value: e.Value / n, Low: e.Low / n, High: e.High / n}
}
