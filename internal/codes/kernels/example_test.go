package kernels_test

import (
	"fmt"

	"github.com/learning-to-screen/l2s/internal/codes/encode"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
)

// Codes of 8 bits give an interval for each logit. A row whose upper end is below
// the lower end of another cannot be the best: it need not be scored.
func ExampleInt8Rows_Bounds() {
	rows := kernels.Float32Rows([]float32{0.3, 0.1, -0.2, 0.9, 0.301, 0.1}, 2)
	codes, err := encode.NewInt8Rows(make([]byte, 3*kernels.Int8Stride(2)), rows, nil)
	if err != nil {
		panic(err)
	}
	h := kernels.NewInt8Vector(2)
	if h.Set([]float32{1, -0.5}) != kernels.Certified {
		panic("no intervals for this context")
	}
	lower, upper := make([]float32, 3), make([]float32, 3)
	codes.Bounds(lower, upper, h)
	logits := make([]float64, 3)
	rows.RefScan(logits, nil, h.Vector())
	best := max(lower[0], lower[1], lower[2])
	for i, x := range logits {
		fmt.Printf("row %d: within %v, may be the best %v\n", i, float64(lower[i]) <= x && x <= float64(upper[i]), upper[i] >= best)
	}
	// Output:
	// row 0: within true, may be the best true
	// row 1: within true, may be the best false
	// row 2: within true, may be the best true
}
