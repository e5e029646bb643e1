package kernels

import (
	"github.com/learning-to-screen/l2s/internal/floats"
	"github.com/learning-to-screen/l2s/internal/kernels"
)

// Dot returns the inner product of x and y, of equal lengths, in float32.
func Dot(x, y []float32) float32 { return floats.Dot(x, y) }

// Scan computes one score a row: dst[i] = rows[i].h + bias[i] in float32
// (Eq. 1 of the paper over all labels).
//
// rows is row-major with len(dst) rows of len(h) elements. bias has len(dst)
// elements, or is nil for none. dst must not overlap the inputs.
func Scan(dst, rows, bias, h []float32) { floats.Scan(dst, rows, bias, h) }

// GatherDot computes the scores of the candidate rows: dst[j] = rows[ids[j]].h +
// bias[ids[j]] in float32 (Eq. 1 over a candidate set).
//
// rows is row-major with rows of len(h) elements; each id must be less than their number. dst has
// len(ids) elements. bias has one element per row of rows, or is nil for none. dst must not overlap
// the inputs.
func GatherDot(dst, rows, bias []float32, ids []uint32, h []float32) {
	floats.GatherDot(dst, rows, bias, ids, h)
}

// ArgmaxDot returns the row with the largest inner product with h, and that
// product, in float32: the cluster assignment z(h) = argmax_t v_t.h (Eq. 2
// of the paper). Of equal products the lower row wins.
//
// rows is row-major with at least one row of len(h) elements.
func ArgmaxDot(rows, h []float32) (index int, score float32) { return floats.ArgmaxDot(rows, h) }

// TopK selects the k largest scores, k = len(ids) = len(vals): ids[0] is the
// index of the largest, vals[0] its score, and so on in descending order. Of
// equal scores the lower index comes first. k must not exceed len(scores).
// If scores hold a NaN it is undefined which indices are selected.
func TopK(ids []uint32, vals, scores []float32) { floats.TopK(ids, vals, scores) }

// LogSumExp returns log(sum_i e^x_i), without overflow, or -Inf if x is
// empty or all -Inf. x must hold no NaN and no +Inf. The sum has a fixed
// order, so the result has the same bits on every level and architecture.
func LogSumExp(x []float64) float64 { return kernels.LogSumExp(x) }

// Softmax computes dst[i] = e^x_i / sum_j e^x_j and returns the log-sum-exp
// of x. dst has the length of x and may be x itself, but not overlap it
// otherwise. x must be as for LogSumExp; if it is all -Inf, dst is zero.
func Softmax(dst, x []float64) (logSumExp float64) { return kernels.Softmax(dst, x) }

// RefDot returns the inner product that defines a logit: the exact products float64(x_i) *
// float64(y_i), summed in float64 in a fixed order, so that every level and every architecture
// gives the same bits. Element i belongs to sum i mod 32; the second half of the sums is added to
// the first, five times.
func RefDot(x, y []float32) float64 { return kernels.RefDot(x, y) }

// Level returns the level that the kernels run on: "generic", on amd64 "avx2" or
// "avx512", on arm64 "neon" or "neondot".
func Level() string { return kernels.Level() }

// Rows is a matrix of rows in the memory of the caller, of any [Element]: the weights of a layer.
// Len and Dim are its shape, Widen writes a row as float32, and RefScan and RefGatherDot compute
// reference products with all rows, or with some.
type Rows = kernels.Rows

// Element is the type of the elements of [Rows].
type Element = kernels.Element

// The types of elements. Those that begin with Q are ggml's quantised types.
const (
	Float32  = kernels.Float32
	Float16  = kernels.Float16
	BFloat16 = kernels.BFloat16
	Q4_0     = kernels.Q4_0
	Q4_1     = kernels.Q4_1
	Q5_0     = kernels.Q5_0
	Q5_1     = kernels.Q5_1
	Q8_0     = kernels.Q8_0
	Q4_K     = kernels.Q4_K
	Q5_K     = kernels.Q5_K
	Q6_K     = kernels.Q6_K
)

// Float32Rows returns rows of dim elements, in data, whose length must be a multiple of dim.
func Float32Rows(data []float32, dim int) Rows { return kernels.Float32Rows(data, dim) }

// Float16Rows is Float32Rows for the bits of binary16 numbers.
func Float16Rows(data []uint16, dim int) Rows { return kernels.Float16Rows(data, dim) }

// BFloat16Rows is Float32Rows for the bits of bfloat16 numbers.
func BFloat16Rows(data []uint16, dim int) Rows { return kernels.BFloat16Rows(data, dim) }

// QuantisedRows is Float32Rows for elements of a quantised type, given as the bytes of their
// blocks, in any alignment.
func QuantisedRows(data []byte, e Element, dim int) Rows { return kernels.QuantisedRows(data, e, dim) }
