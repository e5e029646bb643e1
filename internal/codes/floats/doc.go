// Package floats holds float32 loops that no search of this module runs: products of rows with a
// vector and the largest scores, for the method of the paper and as the baseline of comparisons, and
// sums of gradients, for training. Package kernels exports them to other programs.
//
// The sums of Dot, Scan, GatherDot and ArgmaxDot are ordered as the machine likes, so results of two
// levels differ by rounding: at most about n*2^-24 * sum |x_i y_i|. Axpy and TopK give the same bits
// on every level. They share the contracts, the forms and the tests of internal/codes/kernels.
package floats
