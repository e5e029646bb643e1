package learn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/screening"
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
	contexts *reservoir
	state    atomic.Pointer[state]
	stepping sync.Mutex    // of step
	queries  atomic.Uint64 // by screens
	scratch  sync.Pool     // of *scratch
	wake     chan struct{}
	cancel   context.CancelFunc
	ended    chan struct{}
	run      func(context.Context, sample, train.Options) (*l2s.Index, error) // a training
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
	l := &Learner{layer: layer, o: o, contexts: r, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	l.scratch.New = func() any { return &scratch{make([]l2s.Prediction, o.Train.K), make([]uint32, o.Train.K)} }
	l.run = l.train
	first := state{trainAt: uint64(o.Least), previewAt: never, alarmWait: uint64(o.Least)}
	if o.previews(layer) {
		first.previewAt = l.previewStep()
	}
	l.state.Store(&first)
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
func (l *Learner) begin() error {
	var stored *screening.Model
	if l.o.Keep != "" {
		x, err := engine.Load(l.o.Keep)
		if err == nil {
			if stored = x.Screen(); stored == nil {
				err = fmt.Errorf("%s: found a preview, expected a screen", l.o.Keep)
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("learn: %w: a screen that is learned would take its place", err)
		}
	}
	var err error
	if l.audit, err = l.pool.Audit(l2s.AuditOptions{Share: l.o.Audit, Alarm: l.unlearn}); err != nil {
		return err
	}
	if stored != nil {
		if _, err := l2s.NewSearcher(l.layer, indexOf(stored), l2s.Options{Copies: l2s.NoCopies}); err != nil {
			stored = nil
			l.tell(Event{Kind: failed, Text: err.Error()})
		}
	}
	var ctx context.Context
	ctx, l.cancel = context.WithCancel(context.Background())
	go l.work(ctx, stored)
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
func (l *Learner) Screened() bool { return l.state.Load().screened }

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
	k, s := l.o.Train.K, l.state.Load()
	edited := req.Allowed != nil || req.Banned != nil || len(req.Biases) > 0 || req.Among.IsList()
	if s.preview != nil && !s.screened && !req.Exact && lengthsOf(len(h)).keeps(h) {
		a, err := l.searchPreviewed(dst, h, req)
		if err == nil {
			l.add(h, nil, a.Exact)
		}
		return a, err
	}
	// More labels than the request wants are found only if the answer to it is the same then: a distance may
	// leave fewer labels, and the estimate of a sum depends on k.
	if edited || s.screened || len(dst) == 0 || len(dst) >= k || req.Within > 0 || req.LogSum {
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
	x := l.scratch.Get().(*scratch)
	defer l.scratch.Put(x)
	a, err := l.pool.Search(x.best, h, req)
	if err == nil {
		l.add(h, x.best[:a.Count], a.Exact)
		a.Count = copy(dst, x.best[:a.Count])
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
	if l.contexts.Add(h, labels) >= l.state.Load().workAt() {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}
