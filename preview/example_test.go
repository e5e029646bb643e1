package preview_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/preview"
	"github.com/learning-to-screen/l2s/softmax"
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

	layer, err := softmax.NewLayer(kernels.Float32Rows(weights, dim), nil)
	if err != nil {
		panic(err)
	}
	made, err := preview.Make(context.Background(), layer, states, preview.Options{})
	if err != nil {
		panic(err)
	}
	var file bytes.Buffer // or made.Save(path) and preview.Load(path)
	if _, err := made.WriteTo(&file); err != nil {
		panic(err)
	}
	model, err := preview.Read(&file)
	if err != nil {
		panic(err)
	}
	searcher, err := preview.NewSearcher(model, layer) // one for each goroutine
	if err != nil {
		panic(err)
	}

	h := weights[7*dim : 8*dim] // points to label 7
	top := make([]softmax.Prediction, 1)
	n, err := searcher.TopK(top, h)
	if err != nil {
		panic(err)
	}
	rungs, normal := model.Rungs()
	fmt.Println("label", top[:n][0].ID)
	fmt.Println("found of the best labels of held-out contexts:", rungs[normal].Precision1.Value > 0.99)
	// Output:
	// label 7
	// found of the best labels of held-out contexts: true
}
