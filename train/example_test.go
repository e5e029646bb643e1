package train_test

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"

	"github.com/learning-to-screen/l2s"
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
	layer, err := l2s.New(l2s.Float32(weights, dim), nil)
	if err != nil {
		log.Fatal(err)
	}

	opt := train.DefaultOptions()
	opt.Target = 0.95
	model, record, err := train.Run(context.Background(), layer, l2s.Float32(contexts, layer.Dim()), opt)
	if err != nil {
		log.Fatal(err)
	}
	steps, normal := model.Steps()
	fmt.Println("reached on held-out contexts:", steps[normal].PrecisionK.Value >= 0.95)
	fmt.Println("clusters:", record.Options.Clusters)

	searcher, err := l2s.NewSearcher(layer, model, l2s.Options{})
	if err != nil {
		log.Fatal(err)
	}
	top := make([]l2s.Prediction, 1)
	if _, err := searcher.TopK(top, contexts[:dim]); err != nil {
		log.Fatal(err)
	}
	fmt.Println("best label of the first context:", top[0].ID)
	// Output:
	// reached on held-out contexts: true
	// clusters: 100
	// best label of the first context: 0
}
