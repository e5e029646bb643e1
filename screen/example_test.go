package screen_test

import (
	"fmt"

	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// Errors are left out for brevity. A model from training comes from
// screen.Load("model.l2s") instead.
func Example() {
	weights := []float32{2, 0, 1, 0, 0, 2, 0, 1} // 4 labels in 2 dimensions
	layer, _ := softmax.NewLayer(weights, []float32{0, 0.5, 0, 0.5}, 2)
	model, _ := screen.NewModel(screen.Config{
		Dim: 2, Labels: 4,
		Clusters: []float32{1, 0, 0, 1},      // contexts that point right, and up
		Sets:     [][]uint32{{0, 1}, {2, 3}}, // the labels worth a look in each
	})
	searcher, _ := screen.NewSearcher(model, layer) // one for each goroutine
	top := make([]softmax.Prediction, 2)
	n, _ := searcher.TopK(top, []float32{3, 1})
	fmt.Println(top[:n])
	// Output: [{0 6} {1 3.5}]
}
