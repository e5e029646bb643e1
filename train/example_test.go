package train_test

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"

	"github.com/learning-to-screen/l2s/internal/kernels"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
	"github.com/learning-to-screen/l2s/train"
)

// A screen for a layer of 500 labels and 32 dimensions, learned from 5,000
// contexts, answers queries instead of the layer.
func ExampleRun() {
	const labels, dim, n = 500, 32, 5000
	random := rand.New(rand.NewPCG(1, 2))
	weights, contexts := make([]float32, labels*dim), make([]float32, n*dim)
	for i := range weights {
		weights[i] = float32(random.NormFloat64())
	}
	for i := range contexts { // around 20 of the rows of the layer
		row := i / dim % 20
		contexts[i] = weights[row*dim+i%dim] + float32(0.2*random.NormFloat64())
	}
	layer, err := softmax.NewLayer(kernels.Float32Rows(weights, dim), nil)
	if err != nil {
		log.Fatal(err)
	}

	opt := train.DefaultOptions()
	opt.Target = 0.95
	model, record, err := train.Run(context.Background(), layer, contexts, opt)
	if err != nil {
		log.Fatal(err)
	}
	for _, rung := range model.Ladder() {
		if rung.Budget == model.Budget() {
			fmt.Println("reached on held-out contexts:", rung.PrecisionK.Value >= 0.95)
		}
	}
	fmt.Println("clusters:", record.Options.Clusters)

	searcher, err := screen.NewSearcher(model, layer, screen.Options{})
	if err != nil {
		log.Fatal(err)
	}
	top := make([]softmax.Prediction, 1)
	if _, err := searcher.TopK(top, contexts[:dim]); err != nil {
		log.Fatal(err)
	}
	fmt.Println("best label of the first context:", top[0].ID)
	// Output:
	// reached on held-out contexts: true
	// clusters: 100
	// best label of the first context: 0
}
