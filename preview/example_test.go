package preview_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/preview"
)

// A preview of a layer from contexts, kept, read again, and asked for the best labels of a context.
// Layers that pay have preview.LeastLabels labels or more.
func Example() {
	const labels, dim, contexts = 3000, 32, 2000
	random := rand.New(rand.NewPCG(1, 2))
	numbers := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(random.NormFloat64())
		}
		return x
	}
	weights := numbers(labels * dim)
	states := numbers(contexts * dim) // hidden states of the text to come, say
	for i := range states {
		states[i] += 2 * weights[i/dim*dim+i%dim] // near the row of a label
	}

	layer, err := l2s.New(l2s.Float32(weights, dim), nil)
	if err != nil {
		panic(err)
	}
	made, err := preview.Make(context.Background(), layer, l2s.Float32(states, layer.Dim()), preview.Options{})
	if err != nil {
		panic(err)
	}
	var file bytes.Buffer // or made.Save(path) and l2s.Load(path)
	if _, err := made.WriteTo(&file); err != nil {
		panic(err)
	}
	model, err := l2s.Read(&file)
	if err != nil {
		panic(err)
	}
	searcher, err := l2s.NewSearcher(layer, model, l2s.Options{}) // one for each goroutine
	if err != nil {
		panic(err)
	}

	h := weights[7*dim : 8*dim] // points to label 7
	top := make([]l2s.Prediction, 1)
	n, err := searcher.TopK(top, h)
	if err != nil {
		panic(err)
	}
	steps, normal := model.Steps()
	fmt.Println("label", top[:n][0].ID)
	fmt.Println("found of the best labels of held-out contexts:", steps[normal].Precision1.Value > 0.99)
	// Output:
	// label 7
	// found of the best labels of held-out contexts: true
}
