package learn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/ground/atomicfile"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
	"github.com/learning-to-screen/l2s/internal/ground/stage"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/train"
)

// attempt trains with the present contexts, and lets the screen answer if it reaches the target on
// later ones: contexts that come during the training and, as long as these are few, after it.
func (l *Learner) attempt(ctx context.Context) {
	forgets := l.contexts.forgets.Load()
	l.contexts.mark()
	s := l.contexts.since(0)
	n := len(s.Known)
	if n < max(l.o.Least-2*runLength, leastContexts) { // forgotten: more than a run that is replaced and one that does not fit
		l.step(func(s *state) { s.trainAt = l.contexts.Kept() + uint64(l.o.Least-n) })
		return
	}
	after := s.Numbers[n-1] + 1
	enough := after + uint64(max(l.o.Least/2, n/4))
	l.tell(Event{Kind: began, Contexts: n, Text: fmt.Sprintf("a training with %d contexts", n)})
	begin := time.Now()
	var m *screening.Model
	err := parallel.Guard(func() (err error) { // a mapped head may be cut
		made, err := l.run(ctx, s, *l.o.Train)
		if err == nil {
			m = (*engine.Index)(made).Screen()
		}
		return err
	})
	e := Event{Kind: declined, Contexts: n, Time: time.Since(begin)}
	if err == nil {
		m, err = l.try(ctx, m, fmt.Sprintf("a screen of %d contexts", n), after, enough, &e)
	}
	l.settle(ctx, m, err, e, trial{forgets: forgets, declined: enough, screened: after + 3*uint64(n), keep: l.o.Keep})
}

// retry tries the screen that was kept as attempt does one that was trained.
func (l *Learner) retry(ctx context.Context, m *screening.Model) {
	var record train.Record
	_ = json.Unmarshal(m.Record(), &record) // of another program: 0 contexts
	forgets, n := l.contexts.forgets.Load(), max(0, record.Contexts)
	e := Event{Kind: declined, Contexts: n}
	with, err := l.try(ctx, m, "the screen of "+l.o.Keep, 0, uint64(l.o.Least/2), &e)
	// No training with fewer contexts replaces it, unless contexts are forgotten.
	l.settle(ctx, with, err, e, trial{forgets: forgets, declined: uint64(l.o.Least), screened: min(uint64(max(l.o.Least, n)), mostWait)})
}

// train makes a screen of a sample.
func (l *Learner) train(ctx context.Context, s sample, o train.Options) (*l2s.Index, error) {
	n := len(s.Known)
	if err := l.label(ctx, s); err != nil {
		return nil, err
	}
	busy := l.throttle(ctx)
	o.AnyPrecision = true // trials on later contexts decide
	if o.Labels, o.Threads = s.Labels, 1; o.HeldOut < 0 {
		o.HeldOut = min(4000, n/8)
	}
	part, last, begin := "", "", time.Now()
	o.Progress = func(p train.Progress) {
		if p.Message == "" && p.Stage != last && (p.Stage != stage.Assign || p.Iteration == 0) { // but between alternations
			last = p.Stage
			l.tell(Event{Kind: trains, Contexts: n, Time: time.Since(begin), Text: fmt.Sprintf("%s, after %v", last, time.Since(begin).Round(time.Second))})
		}
		if at := p.Stage + p.Part; at != part {
			part = at
			runtime.GC() // or the garbage of a part adds to the memory of the next one
		}
		busy()
	}
	m, _, err := train.Run(ctx, l.layer, l2s.Float16(s.Contexts, l.layer.Dim()), o)
	runtime.GC()
	return m, err
}

// try returns the screen with the budget for its answers, or nil if it misses the target on
// contexts from the number after on, among which there are those before enough. The screen must
// reach the target on these contexts, each counted once, and on the traffic, in which some contexts
// come often, and which includes its training.
func (l *Learner) try(ctx context.Context, m *screening.Model, name string, after, enough uint64, e *Event) (with *screening.Model, err error) {
	missed1, missedK, target := l.target()
	within := func(p1, pK, part float64) bool { return p1 >= 1-part*missed1 && pK >= 1-part*missedK }
	ladder := m.Ladder()
	last := ladder[len(ladder)-1]
	if m.Config().HeldOut == 0 || !within(last.Precision1.Value, last.PrecisionK.Value, 4) {
		e.Budget, e.Precision1, e.PrecisionK = last.Budget, last.Precision1.Value, last.PrecisionK.Value
		e.Text = fmt.Sprintf("P@1 %.4f and P@%d %.4f on held-out contexts", e.Precision1, l.o.Train.K, e.PrecisionK) + target
		return nil, nil
	}
	first := last // that misses half of the labels that the target allows on held-out contexts
	if i := slices.IndexFunc(ladder, func(x screening.Rung) bool { return within(x.Precision1.Value, x.PrecisionK.Value, 0.5) }); i >= 0 {
		first = ladder[i]
	}
	l.step(func(s *state) {
		enough = max(enough, s.screensFrom) // after an alarm
		s.trainAt = enough
		s.tell(Event{Kind: tried, Contexts: e.Contexts, Time: e.Time, Text: fmt.Sprintf("%s is tried on %d contexts that come after: %d are there", name, enough-after, min(l.contexts.Kept(), enough)-after)})
	})
	if !l.await(ctx) {
		return nil, ctx.Err()
	}
	s := l.contexts.those(after, true)
	for i, number := range s.Numbers {
		if number >= after {
			s.again[i]++
		}
	}
	err = parallel.Guard(func() error { // a mapped head may be cut
		if err := l.label(ctx, s); err != nil {
			return err
		}
		for _, x := range []struct{ budget, part float64 }{{first.Budget, 0.5}, {last.Budget, 1}} {
			c := m.Config()
			c.Budget = x.budget
			if with, err = screening.NewModel(c); err != nil {
				return err
			}
			if err := l.measure(ctx, with, s, after, e); err != nil || within(e.Precision1, e.PrecisionK, x.part) {
				return err
			}
		}
		with, e.Text = nil, e.Text+target
		return nil
	})
	return with, err
}

// measure writes to an event the precision of a screen on the contexts of a sample from the number
// after on, each counted once, or on all contexts, each as often as it came, whichever precision is
// lower.
func (l *Learner) measure(ctx context.Context, m *screening.Model, s sample, after uint64, e *Event) error {
	by, err := screening.NewSearcher(m, (*engine.Layer)(l.layer).Exact(), screening.Options{Copies: -1, Observers: []screening.Observer{lengthsOf(l.layer.Dim())}})
	if err != nil {
		return err
	}
	k := l.o.Train.K
	top := make([]exact.Prediction, k)
	var once, often struct{ n, hits1, hitsK float64 }
	err = l.each(ctx, s, func(i int, h []float32) error {
		_, err := by.TopK(top, h)
		best := s.Labels[i*k : (i+1)*k]
		one, some := found(top, best)
		first, all := float64(one), float64(some)
		if s.Numbers[i] >= after {
			once.n, once.hits1, once.hitsK = once.n+1, once.hits1+first, once.hitsK+all
		}
		times := float64(s.again[i])
		often.n, often.hits1, often.hitsK = often.n+times, often.hits1+float64(times*first), often.hitsK+float64(times*all)
		return err
	})
	n, all := max(once.n, 1), max(often.n, 1)
	e.Budget, e.Precision1, e.PrecisionK = m.Budget(), min(once.hits1/n, often.hits1/all), min(once.hitsK/n, often.hitsK/all)/float64(k)
	e.Text = fmt.Sprintf("P@1 %.5f and P@%d %.5f on %.0f contexts that came after, of %.0f queries, with a budget of %.4g; the exact layer answered the %d that are strange to it", e.Precision1, k, e.PrecisionK, once.n, often.n, e.Budget, by.Stats().Exact)
	return err
}

// trial has the facts that the end of a trial needs.
type trial struct {
	forgets            uint64 // of the reservoir, when the first context of the training or the trial was there
	declined, screened uint64 // the number of contexts of the next training, after either end
	keep               string // the file that the screen goes to, "" for none
}

// settle ends a trial: the screen m answers, unless it is nil or there is an error.
func (l *Learner) settle(ctx context.Context, m *screening.Model, err error, e Event, t trial) {
	if ctx.Err() != nil {
		return
	}
	l.step(func(s *state) {
		if t.forgets != l.contexts.forgets.Load() {
			m, e = nil, Event{Kind: declined, Contexts: e.Contexts, Time: e.Time, Text: "contexts that it was trained or tried on were forgotten"}
		}
		next := t.declined
		if err == nil && m != nil {
			if t.keep != "" { // before it answers: an alarm removes the file
				if err := m.Save(t.keep); err != nil {
					e.Text += "; not kept: " + err.Error()
				}
			}
			err = l.answer(s, m)
			e.Kind, next = answering, t.screened
		}
		if err != nil {
			e.Kind, e.Text = failed, err.Error()
		}
		s.trainAt = max(next, s.screensFrom)
		s.tell(e)
	})
}

// answer lets a screen answer, or, if it is nil, the exact layer or the preview.
func (l *Learner) answer(s *state, m *screening.Model) error {
	_, err := l.pool.Swap(l.layer, indexOf(m))
	if err == nil {
		s.screened, s.since = m != nil, l.queries.Load()
	}
	return err
}

// unlearn ends the answers of a screen after an alarm.
func (l *Learner) unlearn(x l2s.Alarm) {
	l.step(func(s *state) {
		if !s.screened || len(l.audit.Report().Alarms) == 0 {
			return // the second alarm of one screen, or one of a screen that another has replaced
		}
		if err := l.answer(s, nil); err != nil {
			s.tell(Event{Kind: failed, Text: err.Error()})
			return
		}
		if l.o.Keep != "" { // or the next start would answer by it
			if err := os.Remove(atomicfile.Destination(l.o.Keep)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				s.tell(Event{Kind: failed, Text: err.Error()})
			}
		}
		if l.queries.Load()-s.since >= longAgo*s.alarmWait { // it served long enough: this is no cycle
			s.alarmWait = uint64(l.o.Least)
		}
		kept, wait := l.contexts.Kept(), s.alarmWait
		s.screensFrom, s.alarmWait = kept+wait, min(2*wait, mostWait)
		s.trainAt = s.screensFrom
		s.tell(Event{Kind: unlearnt, Contexts: int(kept), Text: fmt.Sprintf("%s: %s: the exact layer answers, and a training begins after %d more contexts; one that is under way ends, and its screen waits for them", x.Of, x.Text, wait)})
	})
}

const (
	longAgo  = 64      // multiple of the contexts to wait for
	mostWait = 1 << 40 // contexts
)
