package encode

import (
	"math"
	"testing"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
)

// A number that no block can hold is refused.
func TestNewBlockCopiesRefuses(t *testing.T) {
	for _, x := range []float32{float32(math.NaN()), float32(math.Inf(-1)), 0x1p21} {
		for at := range 70 {
			rows := make([]float32, 70)
			rows[at] = x
			if _, err := NewBlockCopies(make([]byte, 2*BlockBytes(35)), kernels.Float32Rows(rows, 35), nil); err == nil {
				t.Fatalf("%v at %d: expected an error", x, at)
			}
		}
	}
}
