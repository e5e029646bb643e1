package kernels_test

import (
	"fmt"

	"github.com/learning-to-screen/l2s/kernels"
)

// Three rows of two elements: their logits for the context (2, 1), and the best two.
func Example() {
	rows := []float32{1, 0, 0, 1, 1, 1}
	bias := []float32{0, 0.5, -1}
	logits := make([]float32, 3)
	kernels.Scan(logits, rows, bias, []float32{2, 1})
	ids, values := make([]uint32, 2), make([]float32, 2)
	kernels.TopK(ids, values, logits)
	fmt.Println(logits, ids, values)
	// Output: [2 1.5 2] [0 2] [2 2]
}

// The best cluster of a context, and then the best of its candidates: the two steps of a screen.
func ExampleArgmaxDot() {
	clusters := []float32{1, 0, 0, 1}
	candidates := [][]uint32{{0, 2}, {1, 2}}
	rows := []float32{1, 0, 0, 1, 1, 1}
	h := []float32{2, 1}
	cluster, _ := kernels.ArgmaxDot(clusters, h)
	ids := candidates[cluster]
	logits, at, best := make([]float32, len(ids)), make([]uint32, 1), make([]float32, 1)
	kernels.GatherDot(logits, rows, nil, ids, h)
	kernels.TopK(at, best, logits)
	fmt.Println("cluster", cluster, "label", ids[at[0]], "logit", best[0])
	// Output: cluster 0 label 2 logit 3
}
