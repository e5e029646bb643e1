package learn

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
	"github.com/learning-to-screen/l2s/internal/ground/precision"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/preview"
)

const (
	// A preview is made from an eighth of the contexts of a training, and again each time the
	// number of contexts has grown renewedBy times.
	partOfLeast = 8
	renewedBy   = 4
	// leastPreviewed are enough for a preview, which holds a part out.
	leastPreviewed = 96
	// mostPreviewed bounds the contexts that a preview is made from, mostChecked the contexts of a
	// check.
	mostPreviewed = 8192
	mostChecked   = 512
	never         = math.MaxUint64
)

// previews reports whether previews pay for the layer, and can be made within Bytes.
func (o *Options) previews(layer *l2s.Layer) bool {
	n, d := int64(layer.Labels()), int64(layer.Dim())
	// The labels in the coordinates of their blocks, their codes, twice while they are packed, rows
	// of the layer, and contexts, some of which are held out.
	needs := n*(256+2*128+48) + 4*d*(16384+3*mostPreviewed)
	return n >= preview.LeastLabels && (o.Bytes/4*3-needs)/o.contextBytes(layer) >= int64(o.Least)
}

// previewStep is the number of contexts before the first preview, and between checks for work.
func (l *Learner) previewStep() uint64 {
	return uint64(max(l.o.Least/partOfLeast, leastPreviewed))
}

// searchPreviewed answers a request by the preview.
func (l *Learner) searchPreviewed(dst []l2s.Prediction, h []float32, req l2s.Request) (l2s.Answer, error) {
	if req.LogSum { // sums are exact, as with a learned screen
		req.Exact = true
	}
	return l.previews.Search(dst, h, req)
}

// updatePreview makes a preview, or checks the one that answers. It reports false if a training is due
// instead.
func (l *Learner) updatePreview(ctx context.Context) bool {
	kept, now := l.contexts.Kept(), l.state.Load()
	if kept < now.previewAt {
		return false
	}
	next, checkFrom := kept+l.previewStep(), now.checkFrom
	switch p := now.preview; {
	case now.screened || p != nil && time.Now().Before(checkFrom):
	case p == nil || kept >= renewedBy*p.made:
		if !l.makePreview(ctx) {
			next = renewedBy * kept
		}
	default:
		begin := time.Now()
		l.check(ctx)
		checkFrom = begin.Add(time.Duration(float64(time.Since(begin)) * l.o.CPU / l.o.Audit))
	}
	due := false
	l.step(func(s *state) { s.previewAt, s.checkFrom, due = next, checkFrom, kept >= s.trainAt })
	return !due
}

// makePreview makes a preview from the present contexts, and lets it answer. It reports false if no
// preview of these contexts is precise enough.
func (l *Learner) makePreview(ctx context.Context) bool {
	forgets := l.contexts.forgets.Load()
	s := l.contexts.since(l.state.Load().previewsFrom)
	n := len(s.Known)
	if n < leastPreviewed { // forgotten
		return true
	}
	d := l.layer.Dim()
	// Whole runs of neighbours, spread over all.
	runs := (n + runLength - 1) / runLength
	var states []float32
	for i := range min(runs, mostPreviewed/runLength) {
		at := i * runs / min(runs, mostPreviewed/runLength) * runLength
		states = append(states, widen(s.Contexts[at*d:min(at+runLength, n)*d])...)
	}
	used := len(states) / d
	l.tell(Event{Kind: began, Contexts: used, Text: fmt.Sprintf("a preview from %d contexts", used)})
	begin, busy := time.Now(), l.throttle(ctx)
	missed1, missedK, _ := l.target()
	var m *l2s.Index
	err := parallel.Guard(func() (err error) { // a mapped head may be cut
		m, err = preview.Make(ctx, l.layer, l2s.Float32(states, l.layer.Dim()), preview.Options{K: l.o.Train.K, Precision1: 1 - missed1, PrecisionK: 1 - missedK, Threads: 1,
			Progress: func(string, float64) { busy() }})
		return err
	})
	e := Event{Kind: failed, Contexts: used, Time: time.Since(begin)}
	switch {
	case ctx.Err() != nil:
		return true
	case errors.Is(err, preview.ErrTarget):
		e.Kind, e.Text = declined, err.Error()
	case err != nil:
		e.Text = err.Error()
	}
	again := true
	l.step(func(s *state) {
		defer func() { s.tell(e) }()
		forgotten := forgets != l.contexts.forgets.Load()
		if err == nil && forgotten {
			e.Kind, e.Text = declined, "contexts that it was made from were forgotten"
		}
		if err != nil || forgotten {
			again = forgotten
			return
		}
		if _, err := l.previews.Swap(l.layer, m); err != nil {
			e.Kind, e.Text = failed, err.Error()
			again = false
			return
		}
		p := (*engine.Index)(m).Preview().Parts()
		r := p.Rungs[p.Normal]
		e.Kind, e.Budget, e.Precision1, e.PrecisionK = previewed, r.Kept, r.Precision1.Value, r.PrecisionK.Value
		e.Text = fmt.Sprintf("a preview answers: P@1 %.5f and P@%d %.5f on %d of the contexts that it was not made from, and finds %.4f of %d own states; it looks at %.1f%% of the labels", e.Precision1, l.o.Train.K, e.PrecisionK, p.HeldOut, r.Own.Value, p.Own, 100*r.Looked)
		kept := l.contexts.Kept()
		s.preview = &livePreview{made: kept, checked: kept}
	})
	return again
}

// check asks the preview about contexts that came since the last check, and gives it up if it
// misses more than four times the labels that it may miss, plus four.
func (l *Learner) check(ctx context.Context) {
	p := l.state.Load().preview
	s := l.contexts.since(p.checked)
	l.step(func(s *state) { s.preview = &livePreview{made: p.made, checked: l.contexts.Kept()} })
	d, k, n := l.layer.Dim(), l.o.Train.K, min(len(s.Known), mostChecked)
	if n == 0 {
		return
	}
	some := sample{}
	for i := range n {
		at := i * len(s.Known) / n
		some.Contexts = append(some.Contexts, s.Contexts[at*d:(at+1)*d]...)
		some.Labels, some.Known = append(some.Labels, s.Labels[at*k:(at+1)*k]...), append(some.Known, s.Known[at])
	}
	missed1, missedK := 0, 0
	top := make([]l2s.Prediction, k)
	err := parallel.Guard(func() error { // a mapped head may be cut
		if err := l.label(ctx, some); err != nil {
			return err
		}
		return l.each(ctx, some, func(i int, h []float32) error {
			a, err := l.searchPreviewed(top, h, l2s.Request{})
			if err != nil {
				return err
			}
			first, all := found(top[:a.Count], some.Labels[i*k:(i+1)*k])
			missed1, missedK = missed1+1-first, missedK+k-all
			return nil
		})
	})
	if ctx.Err() != nil {
		return
	}
	may1, mayK, _ := l.target()
	e := Event{Kind: unlearnt, Contexts: n}
	e.Precision1, e.PrecisionK = 1-float64(missed1)/float64(n), 1-float64(missedK)/float64(n*k)
	switch {
	case err != nil:
		e.Kind, e.Text = failed, err.Error()
		l.tell(e)
	case float64(missed1) > 4*may1*float64(n)+4 || float64(missedK) > 4*mayK*float64(n*k)+4*float64(k):
		e.Text = fmt.Sprintf("the preview missed too much: found P@1 %.4f and P@%d %.4f on %d contexts that came after it", e.Precision1, k, e.PrecisionK, n)
		l.step(func(s *state) {
			s.preview, s.previewsFrom = nil, p.made // the next one is made from later contexts
			s.tell(e)
		})
	}
}

// found returns 1 if the first of the best labels is the first that was found, 0 otherwise, and the
// number of best labels that were found.
func found[P exact.Prediction | l2s.Prediction](top []P, best []uint32) (first, all int) {
	ids := make([]uint32, len(top))
	for i, p := range top {
		ids[i] = exact.Prediction(p).ID
	}
	if len(ids) > 0 && ids[0] == best[0] {
		first = 1
	}
	return first, precision.Found(ids, best)
}

// target returns the shares of the best labels and of the k best that may be missed, and a text
// about them.
func (l *Learner) target() (missed1, missedK float64, text string) {
	missed1, missedK = 1-precision.Target1, 1-precision.TargetK
	if x := l.o.Train.Target; x > 0 {
		missed1, missedK = 1, 1-x
	}
	return missed1, missedK, fmt.Sprintf("; the target is %.5g and %.5g", 1-missed1, 1-missedK)
}
