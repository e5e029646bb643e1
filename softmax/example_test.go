package softmax_test

import (
	"fmt"

	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/kernels"
	"github.com/learning-to-screen/l2s/softmax"
)

// square is a layer of four labels in two dimensions.
func square() *softmax.Layer {
	weights := []float32{1, 0, 0, 1, -1, 0, 0, -1}
	layer, err := softmax.NewLayer(kernels.Float32Rows(weights, 2), []float32{0, 0.5, 0, 0})
	if err != nil {
		panic(err)
	}
	return layer
}

func ExampleSearcher_TopK() {
	searcher := softmax.NewSearcher(square()) // one for each goroutine
	top := make([]softmax.Prediction, 2)
	n, err := searcher.TopK(top, []float32{2, 1})
	fmt.Println(top[:n], err)
	// Output: [{0 2} {1 1.5}] <nil>
}

// The best label among those that a grammar allows, without a label that was used already, with a
// preference for another; and its probability.
func ExampleSearcher_Search() {
	allowed, err := bitset.FromIDs(4, []uint32{0, 1, 3})
	if err != nil {
		panic(err)
	}
	said, err := bitset.FromIDs(4, []uint32{0})
	if err != nil {
		panic(err)
	}
	top := make([]softmax.Prediction, 1)
	answer, err := softmax.NewSearcher(square()).Search(top, []float32{2, 1}, softmax.Request{
		LogSum:  true,
		Allowed: allowed,
		Banned:  said,
		Biases:  []softmax.Bias{{ID: 3, Add: 4}},
	})
	if err != nil {
		panic(err)
	}
	fmt.Printf("label %d, logit %g, log-probability %.2f\n", top[0].ID, top[0].Logit, top[0].Logit-answer.LogSum)
	// Output: label 3, logit 3, log-probability -0.20
}

// A layer whose weights are bfloat16, as language models store them, is used in
// place.
func ExampleNewLayer() {
	one, half, minus := uint16(0x3f80), uint16(0x3f00), uint16(0xbf80) // 1, 1/2, -1
	layer, err := softmax.NewLayer(kernels.BFloat16Rows([]uint16{one, half, minus, one}, 2), nil)
	if err != nil {
		panic(err)
	}
	top := make([]softmax.Prediction, 2)
	if _, err := softmax.NewSearcher(layer).TopK(top, []float32{1, 2}); err != nil {
		panic(err)
	}
	fmt.Println(top)
	// Output: [{0 2} {1 1}]
}
