package kernels

import (
	"github.com/learning-to-screen/l2s/internal/codes/floats"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/simd"
)

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

// Level returns the level that the kernels run on: "generic", on amd64 "avx2" or
// "avx512", on arm64 "neon" or "neondot".
func Level() string { return kernels.Level() }

// LevelErr returns an error if the environment variable L2S_SIMD names a level that is unknown, or
// that this machine or build does not have: the kernels run on the best level then. A program that
// reports results of a level should end with it.
func LevelErr() error { return simd.Err() }
