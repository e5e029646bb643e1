package learn

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/atomicfile"
	"github.com/learning-to-screen/l2s/internal/engine"
	"github.com/learning-to-screen/l2s/internal/exact"
	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/internal/screening"
	"github.com/learning-to-screen/l2s/internal/stage"
	"github.com/learning-to-screen/l2s/train"
)

// Options are the options of New. The zero value is ready.
type Options struct {
	// Bytes bounds the memory of the learner, with trainings and screens but without the layer. A
	// quarter is for the copies of candidates that screens have (l2s.CopyLimit). The lists
	// of a training take 20 KB per label, up to 8,192 labels, or its clusters 120 KB per element of
	// a context of d elements, whichever is more. The rest is for contexts, 4d + 8K + 480 bytes
	// each. 0: 512 MiB.
	Bytes int64
	// HalfLife is the number of queries by a screen after which half of the contexts have made room
	// for later ones, when the room is used up: at most 1e12, 0 for a million. While the exact
	// layer answers it is an eighth of that.
	HalfLife float64
	// CPU is the part of one core that a training takes: 0.0001 to 1. 0: three tenths. Audit is the
	// part for the audit of the answers ([l2s.AuditOptions]). 0: 0.02.
	CPU, Audit float64
	// Least is the number of contexts of the first training, and the number that must come after an
	// alarm before a screen answers again. The latter doubles with each further alarm, unless the
	// previous screen has answered 64 times that number of queries. A screen is tried on half of
	// Least, or more, of the contexts after its training. 0: 32,768; otherwise at least 8.
	Least int
	// Keep, unless empty, names the file of the screen. It is written, always complete, when a
	// screen begins to answer, removed when the screen is given up, and opened at the start. Then
	// its screen is tried like a new one, on half of Least new contexts, by today's target. A
	// screen of another layer, or one that is declined, is ignored and replaced later; a file that
	// is no screen is an error of New.
	Keep string
	// Event, unless nil, gets each step, one after the other; for a screen of another layer in the
	// file Keep before New returns. It must not wait for queries, and not call Close.
	Event func(Event)
	// Train are the options of trainings. Nil: train.DefaultOptions, without a tail.
	Train *train.Options
}

// Event is a step of a Learner.
type Event struct {
	// Kind is "began" (a training, or the making of a preview), "trains" (a stage of a training
	// begins), "previewed" (a preview answers from now on, until a screen does), "on trial" (a
	// screen is tried on contexts that come from now on), "declined" (a screen or a preview misses
	// the target), "screened" (a screen answers from now on), "unlearnt" (a screen answers no more,
	// after an alarm of the audit, or a preview, after a check) or "failed" (a training, or the
	// file of Options.Keep).
	Kind string
	// Contexts is the number of contexts that were kept so far, or that were trained with.
	Contexts int
	// Time is the duration of the training.
	Time time.Duration
	// Budget is the budget of the screen, Precision1 and PrecisionK its precision on contexts that
	// came after its training.
	Budget, Precision1, PrecisionK float64
	// Text describes the event in words.
	Text string
}

// The kinds of events.
const (
	began     = "began"
	trains    = "trains"
	failed    = "failed"
	tried     = "on trial"
	declined  = "declined"
	previewed = "previewed"
	answering = "screened"
	unlearnt  = "unlearnt"
)

// Learner keeps contexts of queries and makes a screen of them in the background. Until then the
// exact layer answers, and for a layer of [preview.LeastLabels] labels or more a preview from an
// eighth of Options.Least on, which is checked on new contexts. Afterwards the screen answers, as
// long as an audit finds it as precise as it was on contexts that came after its training, while
// the Learner learns from new contexts. All goroutines may use it.
//
// [New] makes one: a zero value has no use, and its methods may panic.
type Learner struct {
	layer    *l2s.Layer
	o        Options
	pool     *l2s.Pool // by the exact layer or a screen
	previews *l2s.Pool // by a preview, if one is live
	audit    *l2s.Audit
	stored   *screening.Model // of Options.Keep, to be tried
	contexts *reservoir
	screened atomic.Bool
	next     atomic.Uint64 // the number of contexts at which a training begins
	// The number of contexts at which a preview is made or checked.
	nextPreview  atomic.Uint64
	live         atomic.Pointer[livePreview] // nil without a preview
	previewsFrom uint64                      // the number of the first context that previews are made from
	nextCheck    time.Time                   // no check begins before
	queries      atomic.Uint64
	scratch      sync.Pool // of *scratch
	wake         chan struct{}
	cancel       context.CancelFunc
	ended        chan struct{}
	run          func(context.Context, sample, train.Options) (*l2s.Index, error) // a training

	mu          sync.Mutex // of Swap, with screened, next, and these:
	alarmWait   uint64     // the number of contexts after the next alarm
	screensFrom uint64     // no screen answers before this number
	since       uint64     // the number of queries when the screen began to answer

	telling sync.Mutex // of Event
}

type scratch struct {
	best   []l2s.Prediction
	labels []uint32
}

// screenedRuns is a ratio: while a screen answers, one in screenedRuns runs is kept, since keeping
// a context takes a part of a query's time.
const screenedRuns = 8

// leastCPU is the least part of a core that a training takes: of less the times to wait would leave
// the numbers that times have.
const leastCPU = 1e-4

// leastContexts are enough for one to measure on, of eight.
const leastContexts = 8

// New returns a learner for the layer. Close ends it.
func New(layer *l2s.Layer, o Options) (*Learner, error) {
	l, err := newLearner(layer, o)
	if err == nil {
		err = l.begin()
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

func newLearner(layer *l2s.Layer, o Options) (*Learner, error) {
	if err := (*engine.Layer)(layer).Check(); err != nil {
		return nil, fmt.Errorf("learn: %w", err)
	}
	o.HalfLife, o.CPU, o.Audit = cmp.Or(o.HalfLife, 1e6), cmp.Or(o.CPU, 0.3), cmp.Or(o.Audit, 0.02)
	o.Bytes, o.Least = cmp.Or(o.Bytes, 512<<20), cmp.Or(o.Least, 1<<15)
	if o.Train == nil {
		usual := train.DefaultOptions()
		usual.Tail, usual.K = nil, min(usual.K, layer.Labels())
		o.Train = &usual
	}
	switch {
	case !(o.CPU >= leastCPU && o.CPU <= 1):
		return nil, fmt.Errorf("learn: CPU: found %v, expected %v to 1 of a core, or 0 for 0.3", o.CPU, leastCPU)
	case !(o.Audit > 0 && o.Audit <= 1):
		return nil, fmt.Errorf("learn: audit: found %v, expected above 0 and at most 1 of a core, or 0 for 0.02", o.Audit)
	case o.Least < leastContexts:
		return nil, fmt.Errorf("learn: least: found %d contexts, expected %d or more, or 0 for %d", o.Least, leastContexts, 1<<15)
	case !(o.HalfLife > 0 && o.HalfLife <= mostHalfLife):
		return nil, fmt.Errorf("learn: half-life: found %v queries, expected above 0 and at most %g, or 0 for a million", o.HalfLife, float64(mostHalfLife))
	}
	if err := o.Train.Check(math.MaxInt32, layer.Labels()); err != nil {
		return nil, fmt.Errorf("learn: %w", err)
	}
	if x := o.Train; x.HeldOut == 0 || x.Checkpoint != "" || x.Validation != nil || x.Labels != nil {
		return nil, fmt.Errorf("learn: train: found held out %d, checkpoint %q, and %d numbers of validation and %d labels, expected held-out contexts or -1, and none of the others", x.HeldOut, x.Checkpoint, len(x.Validation), len(x.Labels))
	}
	if at, err := os.Stat(o.Keep); err == nil && !at.Mode().IsRegular() {
		return nil, fmt.Errorf("learn: %s: found a folder, device or pipe, expected a regular file", o.Keep)
	}
	if at, err := os.Stat(filepath.Dir(o.Keep)); o.Keep != "" && (err != nil || !at.IsDir()) {
		return nil, fmt.Errorf("learn: %s: found no folder %s, expected one to write the file to", o.Keep, filepath.Dir(o.Keep))
	}
	room, err := o.room(layer)
	if err != nil {
		return nil, err
	}
	r, err := newReservoir(layer.Dim(), o.Train.K, room, o.HalfLife/screenedRuns)
	if err != nil {
		return nil, err
	}
	l := &Learner{alarmWait: uint64(o.Least), layer: layer, o: o, contexts: r, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	l.scratch.New = func() any { return &scratch{make([]l2s.Prediction, o.Train.K), make([]uint32, o.Train.K)} }
	l.run = l.train
	l.next.Store(uint64(o.Least))
	l.nextPreview.Store(never)
	if o.previews(layer) {
		l.nextPreview.Store(l.previewStep())
	}
	p, err := engine.NewPool((*engine.Layer)(layer), nil, engine.Options{Copies: o.Bytes / 4, Observers: []screening.Observer{lengthsOf(layer.Dim())}})
	if err != nil {
		return nil, err
	}
	l.pool = (*l2s.Pool)(p)
	l.previews, err = l2s.NewPool(layer, nil, l2s.Options{})
	return l, err
}

// room is the part of Bytes that is the reservoir's.
func (o *Options) room(layer *l2s.Layer) (int64, error) {
	d, k := int64(layer.Dim()), int64(o.Train.K)
	cells := int64(600) // if the training decides: 150 clusters, and these in three shells
	if c := o.Train.Clusters; c > 0 {
		cells = int64(c * (2 + len(o.Train.Shells)))
	}
	// 34 bytes per label of the 8,192 that may be in the list of a cell, or the contexts that
	// clusters begin with, in float32.
	fixed := max(34*cells*min(int64(layer.Labels()), 8192), 4*d*max(20000, 50*cells))
	each := o.contextBytes(layer)
	if least := (float64(fixed) + float64(each)*float64(o.Least)) / 3 * 4; float64(o.Bytes) < least || o.Bytes > 1<<40 {
		return 0, fmt.Errorf("learn: bytes: found %.4g MiB, expected at least %.0f, for a first training with %d contexts, and at most 1 TiB", float64(o.Bytes)/(1<<20), math.Ceil(least/(1<<20)), o.Least)
	}
	return (o.Bytes/4*3 - fixed) / each * (contextBytes(d, k) + 1), nil // with the bytes of a run
}

// contextBytes returns the bytes of a context in a training: its copy, and the data about it.
func (o *Options) contextBytes(layer *l2s.Layer) int64 {
	return int64(4*layer.Dim() + 8*o.Train.K + 480)
}

// begin opens the kept screen, and starts to learn.
func (l *Learner) begin() (err error) {
	if l.o.Keep != "" {
		if l.stored, err = screening.Load(l.o.Keep); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("learn: %w: a screen that is learned would take its place", err)
		}
	}
	if l.audit, err = l.pool.Audit(l2s.AuditOptions{Share: l.o.Audit, Alarm: l.unlearn}); err != nil {
		return err
	}
	if l.stored != nil {
		if _, err := l2s.NewSearcher(l.layer, indexOf(l.stored), l2s.Options{Copies: l2s.NoCopies}); err != nil {
			l.stored = nil
			l.tell(Event{Kind: failed, Text: err.Error()})
		}
	}
	var ctx context.Context
	ctx, l.cancel = context.WithCancel(context.Background())
	go l.learn(ctx)
	return nil
}

// indexOf is a screen as the pool has it.
func indexOf(m *screening.Model) *l2s.Index {
	if m == nil {
		return nil
	}
	return (*l2s.Index)(engine.OfScreen(m))
}

// Close ends the learning and the audit: a running training is given up. It returns when no
// goroutine runs any more. The Learner continues to answer as before.
func (l *Learner) Close() {
	l.cancel()
	<-l.ended
	l.audit.Stop()
}

// Stats returns the counts of the queries so far.
func (l *Learner) Stats() l2s.Stats {
	s := l.pool.Stats()
	x := l.previews.Stats()
	return l2s.Stats{
		Queries: s.Queries + x.Queries, Looked: s.Looked + x.Looked, Scored: s.Scored + x.Scored,
		Exact: s.Exact + x.Exact, Fallback: s.Fallback + x.Fallback, Far: s.Far + x.Far,
	}
}

// Bytes returns Options.Bytes, or the default if that is 0.
func (l *Learner) Bytes() int64 { return l.o.Bytes }

// Screened reports whether a screen answers.
func (l *Learner) Screened() bool { return l.screened.Load() }

// Audit returns the audit of the answers by a screen.
func (l *Learner) Audit() *l2s.Audit { return l.audit }

// Kept returns the number of contexts that were taken for training so far.
func (l *Learner) Kept() uint64 { return l.contexts.Kept() }

// Forget drops all contexts, and overwrites them. The learner then waits for the number of contexts
// of its first training: a screen that is being trained or tried will not answer, but one that is
// being written to Options.Keep or put in place does.
func (l *Learner) Forget() { l.contexts.Forget() }

// WriteContexts writes the contexts that are kept as a .npy file of float16, which l2s train takes,
// in the order of the text. It returns their number.
func (l *Learner) WriteContexts(w io.Writer) (int, error) { return l.contexts.WriteNPY(w) }

// TopK writes the best labels of h to dst, as [l2s.Pool.TopK] does, and learns from it.
func (l *Learner) TopK(dst []l2s.Prediction, h []float32) (int, error) {
	a, err := l.Search(dst, h, l2s.Request{})
	return a.Count, err
}

// Search answers as [l2s.Pool.Search] does, and learns from it. While the exact layer answers,
// the layer finds the number of labels that a training needs for a request without edits.
func (l *Learner) Search(dst []l2s.Prediction, h []float32, req l2s.Request) (l2s.Answer, error) {
	k := l.o.Train.K
	edited := req.Allowed != nil || req.Banned != nil || len(req.Biases) > 0 || req.Among.IsList()
	if l.live.Load() != nil && !l.Screened() && !req.Exact && lengthsOf(len(h)).keeps(h) {
		a, err := l.searchPreviewed(dst, h, req)
		if err == nil {
			l.add(h, nil, a.Exact)
		}
		return a, err
	}
	// More labels than the request wants are found only if the answer to it is the same then: a distance may
	// leave fewer labels, and the estimate of a sum depends on k.
	if edited || l.Screened() || len(dst) == 0 || len(dst) >= k || req.Within > 0 || req.LogSum {
		a, err := l.pool.Search(dst, h, req)
		if err != nil {
			return a, err
		}
		best := dst[:a.Count]
		if edited {
			best = nil
		}
		l.add(h, best, a.Exact)
		return a, nil
	}
	s := l.scratch.Get().(*scratch)
	defer l.scratch.Put(s)
	a, err := l.pool.Search(s.best, h, req)
	if err == nil {
		l.add(h, s.best[:a.Count], a.Exact)
		a.Count = copy(dst, s.best[:a.Count])
	}
	return a, err
}

// SearchBatch answers the same request about each of n contexts, row-major, n x d, as Search does,
// and learns from it. answers has n elements, and dst has k elements per context: the answer to
// context i is dst[i*k:][:answers[i].Count].
func (l *Learner) SearchBatch(dst []l2s.Prediction, answers []l2s.Answer, contexts []float32, req l2s.Request) (err error) {
	d, n := l.layer.Dim(), len(answers)
	if n == 0 || len(contexts) != n*d || len(dst)%n != 0 { // which it answers or refuses
		return l.pool.SearchBatch(dst, answers, contexts, req)
	}
	k := len(dst) / n
	for i := range answers {
		if answers[i], err = l.Search(dst[i*k:][:k], contexts[i*d:][:d], req); err != nil {
			return err
		}
	}
	return nil
}

// add keeps the context of a query with the best labels of the answer, nil if the request had edits,
// and with the fact that the answer is exact. It copies its arguments.
func (l *Learner) add(h []float32, best []l2s.Prediction, exactly bool) {
	if l.Screened() && l.queries.Add(1)/runLength%screenedRuns != 0 {
		return
	}
	s := l.scratch.Get().(*scratch)
	defer l.scratch.Put(s)
	var labels []uint32
	if exactly && len(best) >= len(s.labels) {
		labels = s.labels
	}
	for i := range labels {
		labels[i] = best[i].ID
	}
	if l.contexts.Add(h, labels) >= min(l.next.Load(), l.nextPreview.Load()) {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// learn trains when there are enough contexts, until ctx is done.
func (l *Learner) learn(ctx context.Context) {
	defer close(l.ended)
	if m := l.stored; m != nil {
		l.stored = nil
		l.retry(ctx, m)
	}
	for l.await(ctx, func() uint64 { return min(l.next.Load(), l.nextPreview.Load()) }) {
		if l.updatePreview(ctx) {
			continue
		}
		later := l.nextPreview.Swap(never) // no query wakes a training or a trial for it
		l.attempt(ctx)
		l.nextPreview.Store(later)
	}
}

// await waits for a number of contexts, which may change during the wait. It reports false if ctx
// is done.
func (l *Learner) await(ctx context.Context, number func() uint64) bool {
	for l.contexts.Kept() < number() {
		select {
		case <-ctx.Done():
			return false
		case <-l.wake:
		}
	}
	return ctx.Err() == nil
}

// unlearn lets the exact layer answer after an alarm.
func (l *Learner) unlearn(x l2s.Alarm) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.Screened() || len(l.audit.Report().Alarms) == 0 {
		return // the second alarm of one screen, or one of a screen that another has replaced
	}
	if err := l.answer(nil); err != nil {
		l.tell(Event{Kind: failed, Text: err.Error()})
		return
	}
	if l.o.Keep != "" { // or the next start would answer by it
		if err := os.Remove(atomicfile.Destination(l.o.Keep)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			l.tell(Event{Kind: failed, Text: err.Error()})
		}
	}
	if l.queries.Load()-l.since >= longAgo*l.alarmWait { // it served long enough: this is no cycle
		l.alarmWait = uint64(l.o.Least)
	}
	kept, wait := l.contexts.Kept(), l.alarmWait
	l.screensFrom, l.alarmWait = kept+wait, min(2*wait, mostWait)
	l.next.Store(l.screensFrom)
	l.tell(Event{Kind: unlearnt, Contexts: int(kept), Text: fmt.Sprintf("%s: %s: the exact layer answers, and a training begins after %d more contexts; one that is under way ends, and its screen waits for them", x.Of, x.Text, wait)})
}

const (
	longAgo  = 64      // multiple of the contexts to wait for
	mostWait = 1 << 40 // contexts
)

// answer lets a screen answer, or, without one, the exact layer.
func (l *Learner) answer(m *screening.Model) error {
	_, err := l.pool.Swap(l.layer, indexOf(m))
	if err == nil {
		l.screened.Store(m != nil)
		l.since = l.queries.Load()
	}
	return err
}

// attempt trains with the present contexts, and lets the screen answer if it reaches the target on
// later ones: contexts that come during the training and, as long as these are few, after it.
func (l *Learner) attempt(ctx context.Context) {
	forgets := l.contexts.forgets.Load()
	l.contexts.mark()
	s := l.contexts.since(0)
	n := len(s.Known)
	if n < max(l.o.Least-2*runLength, leastContexts) { // forgotten: more than a run that is replaced and one that does not fit
		l.next.Store(l.contexts.Kept() + uint64(l.o.Least-n))
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
	l.mu.Lock()
	defer l.mu.Unlock()
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
		err = l.answer(m)
		e.Kind, next = answering, t.screened
	}
	if err != nil {
		e.Kind, e.Text = failed, err.Error()
	}
	l.next.Store(max(next, l.screensFrom))
	l.tell(e)
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
	l.mu.Lock()
	enough = max(enough, l.screensFrom) // after an alarm
	l.next.Store(enough)
	l.mu.Unlock()
	l.tell(Event{Kind: tried, Contexts: e.Contexts, Time: e.Time, Text: fmt.Sprintf("%s is tried on %d contexts that come after: %d are there", name, enough-after, min(l.contexts.Kept(), enough)-after)})
	if !l.await(ctx, l.next.Load) {
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

// label finds the best labels of the contexts of a sample where they are not known.
func (l *Learner) label(ctx context.Context, s sample) error {
	k := l.o.Train.K
	by, best := exact.NewSearcher((*engine.Layer)(l.layer).Exact()), make([]exact.Prediction, k)
	return l.each(ctx, s, func(i int, h []float32) error {
		if s.Known[i] {
			return nil
		}
		_, err := by.TopK(best, h)
		for j, p := range best {
			s.Labels[i*k+j] = p.ID
		}
		return err
	})
}

// each calls f with the number of each context of a sample, until ctx is done, on its share of the
// CPU.
func (l *Learner) each(ctx context.Context, s sample, f func(i int, h []float32) error) error {
	d, busy := l.layer.Dim(), l.throttle(ctx)
	for i := range s.Known {
		if err := f(i, widen(s.Contexts[i*d:(i+1)*d])); err != nil {
			return err
		}
		if busy(); ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
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

// throttle returns a function that sleeps when the time since its last call was more than the share
// of the CPU.
func (l *Learner) throttle(ctx context.Context) func() {
	begin, idle := time.Now(), time.Duration(0)
	return func() {
		passed := time.Since(begin)
		rest := time.Duration(float64(passed-idle)/l.o.CPU) - passed
		if rest < 2*time.Millisecond {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(rest):
		}
		idle += time.Since(begin) - passed
	}
}

func (l *Learner) tell(e Event) {
	l.telling.Lock()
	defer l.telling.Unlock()
	if l.o.Event != nil {
		l.o.Event(e)
	}
}
