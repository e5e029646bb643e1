package measure

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/learning-to-screen/l2s/benchmarks/internal/methods"
	"github.com/learning-to-screen/l2s/softmax"
)

// Precision returns P@1 and P@k of a setting (Section 4 of the paper): the
// share of the exact k best labels that are among the k of its answer. labels
// are the exact ones, k for each context. The first of the k labels is the
// answer for P@1, so that both precisions are of the answer that is timed. It
// runs on all cores.
func Precision(ctx context.Context, s methods.Setting, contexts [][]float32, labels []uint32, k int) (p1, pk float64, err error) {
	const chunk = 64
	var next, hits1, hitsK atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			sr, dst := s.Searcher(), make([]softmax.Prediction, k)
			for ctx.Err() == nil {
				from := int(next.Add(chunk)) - chunk
				if from >= len(contexts) {
					return
				}
				for i := from; i < min(from+chunk, len(contexts)); i++ {
					n := sr.TopK(dst, contexts[i])
					want := labels[i*k : (i+1)*k]
					if n > 0 && dst[0].ID == want[0] {
						hits1.Add(1)
					}
					for _, p := range dst[:n] {
						if slices.Contains(want, p.ID) {
							hitsK.Add(1)
						}
					}
				}
			}
		}()
	}
	wg.Wait()
	n := float64(len(contexts))
	return float64(hits1.Load()) / n, float64(hitsK.Load()) / (n * float64(k)), ctx.Err()
}
