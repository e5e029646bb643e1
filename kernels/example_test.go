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

// The reference arithmetic over rows of bfloat16: the same bits on every CPU.
func ExampleRows_RefScan() {
	one, half := uint16(0x3f80), uint16(0x3f00)
	rows := kernels.BFloat16Rows([]uint16{one, half, half, half}, 2)
	logits := make([]float64, rows.Len())
	rows.RefScan(logits, nil, []float32{3, 0.1})
	fmt.Println(logits)
	// Output: [3.050000000745058 1.550000000745058]
}

func ExampleSoftmax() {
	logits := []float64{2, 1, 0}
	p := make([]float64, 3)
	logSum := kernels.Softmax(p, logits)
	fmt.Printf("%.3f, log-sum %.3f\n", p, logSum)
	// Output: [0.665 0.245 0.090], log-sum 2.408
}
