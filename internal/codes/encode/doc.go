// Package encode makes the codes that internal/codes/kernels computes intervals from: 8-bit and 4-bit
// records, panels of them, and blocks. It chooses them for a layer, and makes them once, where a
// layer is opened or trained, on all cores; a query only reads them. The types of
// internal/codes/kernels have the formats, and the proofs that rely on the errors that records hold. That
// these errors are upper bounds is proved here.
package encode

import (
	"fmt"
	"math"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
)

// slackOf returns the absolute part of the intervals of n rows with their bias, or an error if the
// float32 arithmetic of intervals cannot certify anything.
func slackOf(n, dim int, bias []float32) (float32, error) {
	if bias != nil && len(bias) != n {
		panic("encode: length of bias differs from the number of rows")
	}
	if dim > kernels.MaxInt8Dim {
		return 0, fmt.Errorf("encode: dimension: found %d, expected at most %d", dim, kernels.MaxInt8Dim)
	}
	var maxBias float64
	for i, b := range bias {
		a := math.Abs(float64(b))
		if !(a <= kernels.MaxCertified) {
			return 0, fmt.Errorf("encode: bias of row %d: found %g, expected a magnitude of at most %g", i, b, kernels.MaxCertified)
		}
		maxBias = max(maxBias, a)
	}
	// See the proof at kernels.Int8Rows.Bounds.
	return kernels.RoundUp(3*0x1p-24*maxBias) + 0x1p-100, nil
}
