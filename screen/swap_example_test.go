package screen_test

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// service is a model in use, with its layer.
type service struct {
	model *screen.Model
	layer *softmax.Layer
}

// A service changes its model while goroutines answer: the model is behind an
// atomic pointer, and each goroutine makes itself a searcher when it sees
// another. A query that is under way ends with the model it began with.
func ExampleNewSearcher_swap() {
	newService := func(first float32) *service { // errors are left out for brevity
		layer, _ := softmax.NewLayer(kernels.Float32Rows([]float32{first, 2, 3}, 1), nil)
		model, _ := screen.NewModel(screen.Config{Dim: 1, Labels: 3, Clusters: []float32{1}, Sets: [][]uint32{{0, 2}}, Fingerprint: layer.Fingerprint()})
		return &service{model, layer}
	}
	var current atomic.Pointer[service]
	current.Store(newService(1))

	var wg, warm sync.WaitGroup
	swapped := make(chan struct{})
	for range 4 {
		warm.Add(1)
		wg.Go(func() {
			var mine *service
			var searcher *screen.Searcher
			top := make([]softmax.Prediction, 1)
			ask := func() softmax.Prediction {
				if s := current.Load(); s != mine {
					mine = s
					searcher, _ = screen.NewSearcher(s.model, s.layer)
				}
				searcher.TopK(top, []float32{1})
				return top[0]
			}
			for i := range 1000 {
				// Before the swap 2 is the best label, after it 0; never a mixture.
				if p := ask(); p != (softmax.Prediction{ID: 2, Logit: 3}) && p != (softmax.Prediction{ID: 0, Logit: 9}) {
					fmt.Println("found", p)
				}
				if i == 500 {
					warm.Done()
				}
			}
			<-swapped
			if p := ask(); p.ID != 0 {
				fmt.Println("found the old model", p)
			}
		})
	}
	warm.Wait()
	current.Store(newService(9))
	close(swapped)
	wg.Wait()
	searcher, _ := screen.NewSearcher(current.Load().model, current.Load().layer)
	top := make([]softmax.Prediction, 1)
	searcher.TopK(top, []float32{1})
	fmt.Println(top)
	// Output: [{0 9}]
}
