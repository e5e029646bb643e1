// Package softmax is the exact layer: logits x_s = w_s.h + b_s (Eq. 1 of the
// paper), their k largest, and log-probabilities, over all labels or over a
// subset.
//
// A logit is defined by the reference arithmetic of package kernels: exact
// products summed in float64 in a fixed order, plus the bias. Order is by
// larger logit, ties go to the lower id. So the same layer and the same
// context give the same ids and the same logits on every CPU.
//
// The search is exact and still fast. Each row of W is also kept as int8
// codes with a proven bound on what they lose. A scan of the codes gives an
// interval for every logit; a row whose upper end is below the k-th largest
// lower end cannot be among the k largest. The few rows left are scored by
// the reference arithmetic. In a large layer a pass over 4-bit codes, half the
// bytes again, comes first and leaves some hundred rows to the 8-bit ones.
//
// A Layer is immutable and shared. A Query holds one prepared context and
// scratch; each goroutine has its own, and using it allocates nothing.
package softmax
