package screen_test

import (
	"fmt"
	"sync"

	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// A service changes its model while goroutines answer. A query that is under way ends
// with the model it began with.
func ExamplePool() {
	open := func(first float32) (*screen.Model, *softmax.Layer) { // errors are left out for brevity
		layer, _ := softmax.NewLayer(kernels.Float32Rows([]float32{first, 2, 3}, 1), nil)
		return made(1, 3, []float32{1}, []uint32{0, 2}), layer // screen.Load opens a trained model
	}
	model, layer := open(1)
	pool, err := screen.NewPool(model, layer, screen.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			top := make([]softmax.Prediction, 1)
			for range 1000 {
				_, err := pool.TopK(top, []float32{1})
				// Before the swap 2 is the best label, after it 0; never a mixture.
				if p := top[0]; err != nil || p != (softmax.Prediction{ID: 2, Logit: 3}) && p != (softmax.Prediction{ID: 0, Logit: 9}) {
					fmt.Println("found", p, err)
				}
			}
		})
	}
	drained, err := pool.Swap(open(9))
	if err != nil {
		fmt.Println(err)
		return
	}
	<-drained // no query reads the first layer any more: its file can be closed
	top := make([]softmax.Prediction, 1)
	pool.TopK(top, []float32{1})
	fmt.Println(top)
	wg.Wait()
	fmt.Println(pool.Stats().Queries, "queries")
	// Output:
	// [{0 9}]
	// 4001 queries
}
