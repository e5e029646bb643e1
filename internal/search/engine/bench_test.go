package engine_test

import (
	"testing"

	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/tests/synthetic"
	"github.com/learning-to-screen/l2s/internal/watch/audit"
)

// BenchmarkPool times the cost of a pool per query, top-5, and the additional cost of labels for
// profiles or of an audit, on one goroutine and on one per core.
func BenchmarkPool(b *testing.B) {
	const k, contexts = 5, 2000
	data := synthetic.Structured(10000, 200, 100, contexts, 1)
	made, err := data.Screen(300)
	if err != nil {
		b.Fatal(err)
	}
	model := (*engine.Index)(made).Screen()
	pool := func() *engine.Pool {
		p, err := engine.NewPool(engine.Over(data.Exact), engine.OfScreen(model), engine.Options{})
		if err != nil {
			b.Fatal(err)
		}
		return p
	}
	plain := pool()
	watched := pool()
	watch, err := audit.Start(watched, audit.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer watch.Stop()
	for _, c := range []struct {
		name  string
		asker func() func(dst []exact.Prediction, h []float32) (int, error) // one for each goroutine
	}{
		{"searcher", func() func([]exact.Prediction, []float32) (int, error) {
			s, err := screening.NewSearcher(model, data.Exact, screening.Options{})
			if err != nil {
				b.Fatal(err)
			}
			return s.TopK
		}},
		{"pool", func() func([]exact.Prediction, []float32) (int, error) { return pooled{plain}.TopK }},
		{"pool with an audit", func() func([]exact.Prediction, []float32) (int, error) { return pooled{watched}.TopK }},
	} {
		b.Run(c.name+"/one goroutine", func(b *testing.B) {
			b.ReportAllocs()
			ask, dst, i := c.asker(), make([]exact.Prediction, k), 0
			for b.Loop() {
				i = (i + 1) % contexts
				if _, err := ask(dst, data.Context(i)); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(c.name+"/parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				ask, dst, i := c.asker(), make([]exact.Prediction, k), 0
				for pb.Next() {
					i = (i + 1) % contexts
					if _, err := ask(dst, data.Context(i)); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
