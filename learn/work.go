package learn

import (
	"context"
	"time"

	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/screening"
)

// work tries the stored screen, unless it is nil. Then it trains, makes previews and checks them
// when there are enough contexts, until ctx is done.
func (l *Learner) work(ctx context.Context, stored *screening.Model) {
	defer close(l.ended)
	if stored != nil {
		l.trains(func() { l.retry(ctx, stored) })
	}
	for l.await(ctx) {
		if !l.updatePreview(ctx) {
			l.trains(func() { l.attempt(ctx) })
		}
	}
}

// trains runs a training or a trial. No query wakes the worker for a preview meanwhile.
func (l *Learner) trains(run func()) {
	l.step(func(s *state) { s.training = true })
	run()
	l.step(func(s *state) { s.training = false })
}

// await waits for the number of contexts at which there is work, which may change during the wait.
// It reports false if ctx is done.
func (l *Learner) await(ctx context.Context) bool {
	for l.contexts.Kept() < l.state.Load().workAt() {
		select {
		case <-ctx.Done():
			return false
		case <-l.wake:
		}
	}
	return ctx.Err() == nil
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
