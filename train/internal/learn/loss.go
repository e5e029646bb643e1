package learn

// lossTable gives the loss of every cluster for a context. By Equation 6 the
// loss of h_i in cluster t is
//
//	l_it = (k - hits_it) + lambda (|c_t| - hits_it)
//
// where hits_it is the number of the k labels of h_i that c_t holds: a count
// of hits is all it takes, and the loss of a sample is linear in its one-hot
// choice of a cluster, sum_t p_t l_it.
type lossTable struct {
	*membership
	gain  float64   // 1 + lambda: what a hit saves
	fixed []float64 // k + lambda |c_t|
}

func newLossTable(m *membership, k int, lambda float64) *lossTable {
	l := &lossTable{membership: m, gain: 1 + lambda, fixed: make([]float64, len(m.sizes))}
	for t, size := range m.sizes {
		l.fixed[t] = float64(k) + float64(lambda*float64(size))
	}
	return l
}

// losses sets dst[t] to l_it for the context with these labels. hits is
// scratch of the same length.
func (l *lossTable) losses(dst []float64, hits, labels []uint32) {
	l.membership.hits(hits, labels)
	for t, n := range hits {
		dst[t] = l.fixed[t] - float64(l.gain*float64(n))
	}
}

// softmaxGradient turns costs into the gradient with respect to the logits z of
// their expectation under p = softmax(z + g), for a constant g:
//
//	d/dz_t sum_j p_j cost_j = p_t (cost_t - sum_j p_j cost_j)
//
// It is scaled and written to dst.
func softmaxGradient(dst []float32, p, cost []float64, scale float64) {
	mean := 0.0
	for t, x := range p {
		mean += float64(x * cost[t])
	}
	for t, x := range p {
		dst[t] = float32(float64(scale*x) * (cost[t] - mean))
	}
}
