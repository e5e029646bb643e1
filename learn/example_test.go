package learn_test

import (
	"fmt"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/learn"
)

// A head that answers exactly at once, from any number of goroutines, and learns a screen from its
// queries.
func Example() {
	weights := []float32{1, 0, 0, 1, -1, 0, 0, -1} // 4 labels in 2 dimensions
	layer, err := l2s.New(l2s.Float32(weights, 2), nil)
	if err != nil {
		panic(err)
	}
	learner, err := learn.New(layer, learn.Options{
		Keep:  "", // or the file that keeps the screen from run to run
		Event: func(e learn.Event) { fmt.Println(e.Kind+":", e.Text) },
	})
	if err != nil {
		panic(err)
	}
	defer learner.Close()

	top := make([]l2s.Prediction, 2)
	n, err := learner.TopK(top, []float32{2, 1})
	if err != nil {
		panic(err)
	}
	fmt.Println(top[:n], "by a screen:", learner.Screened(), "contexts kept:", learner.Kept())
	// Output: [{0 2} {1 1}] by a screen: false contexts kept: 1
}
