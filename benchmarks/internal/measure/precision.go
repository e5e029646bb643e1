package measure

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/learning-to-screen/l2s/benchmarks/internal/methods"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// Precision returns P@1 and P@k of a setting (Section 4 of the paper): the share of the exact k
// best labels that are among the k of its answer. labels are the exact ones, k for each context.
// The first of the k labels is the answer for P@1, so that both precisions are of the answer that
// is timed. It runs on all cores.
func Precision(ctx context.Context, s methods.Setting, contexts [][]float32, labels []uint32, k int) (p1, pk float64, err error) {
	const chunk = 64
	var hits1, hitsK atomic.Int64
	type scratch struct {
		methods.Searcher
		dst []exact.Prediction
	}
	workers := make([]scratch, parallel.Threads(0, len(contexts)))
	err = parallel.Each(ctx, len(workers), len(contexts), chunk, nil, func(worker, lo, hi int) error {
		w := &workers[worker]
		if w.Searcher == nil {
			*w = scratch{s.Searcher(), make([]exact.Prediction, k)}
		}
		for i := lo; i < hi; i++ {
			n := w.TopK(w.dst, contexts[i])
			want := labels[i*k : (i+1)*k]
			if n > 0 && w.dst[0].ID == want[0] {
				hits1.Add(1)
			}
			for _, p := range w.dst[:n] {
				if slices.Contains(want, p.ID) {
					hitsK.Add(1)
				}
			}
		}
		return nil
	})
	n := float64(len(contexts))
	return float64(hits1.Load()) / n, float64(hitsK.Load()) / (n * float64(k)), err
}
