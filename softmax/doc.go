// Package softmax is the exact layer: logits x_s = w_s.h + b_s (Eq. 1 of "Learning to Screen
// for Fast Softmax Inference on Large Vocabulary Neural Networks"), their k largest, and the
// log of their sum.
//
// A [Layer] holds W, whose elements are float32, float16, bfloat16 or quantised in memory of
// the caller, and b. It is immutable and shared. A [Searcher] answers a [Request] about a
// context h: k labels, among all or some, with some banned, allowed or biased. Each
// goroutine has its own searcher, and a search allocates nothing. Package screen answers the
// same requests from the few labels of a candidate set.
//
// A logit is defined by the reference arithmetic of package kernels: exact products summed in
// float64 in a fixed order, plus the bias. A layer of [Layer.Scaled] multiplies it by the model's
// scale and applies its soft cap. Order is by larger logit, ties go to the lower id. So
// the same layer and context give the same ids and the same logits on every CPU, for any type of W.
//
// The search is exact and still fast. Each row of W is also kept as int8 codes with a proven
// bound on their error, made with the layer in one pass over W; quantised rows are codes already,
// and are read where they are. A scan of the codes gives an interval for every logit; the edits of the request move these intervals, rounded outwards; a
// row whose upper end is below the k-th largest lower end cannot be among the k largest. The
// few rows left are scored by the reference arithmetic. In a large layer a pass over 4-bit
// codes comes first and leaves some hundred rows to the 8-bit ones.
package softmax
