package train

import "github.com/learning-to-screen/l2s/kernels"

// Learning on two levels. Cluster t of group a has the probability
//
//	P(t|h) = P(a|h) P(t|a,h)
//
// the product of two softmaxes, over u_b.h of all groups b and over v_j.h of the
// clusters j of a. The loss of Equation 6, its expectation under P and its
// sample by the Gumbel trick are as on a flat screen; only the way from a
// gradient c_t with respect to log P(t|h) to the logits differs. As sum_t c_t
// is 0, it is
//
//	d/d(u_a.h) = C_a            with C_a the sum of c_t over the clusters of a
//	d/d(v_t.h) = c_t - P(t|a,h) C_a

// negligible is the probability, as a share of the best group's, below
// which a group is taken for impossible: its clusters are not looked at and its
// share goes to the others. At the confidence that learning works with, few
// groups of many are left.
const negligible = 1e-4

// probabilities fills p with P(t|h) and, on two levels, within with P(t|a,h),
// which is nil otherwise.
func (l *learner) probabilities(p, within []float64, h []float32) {
	if l.groups == 0 {
		kernels.Float32Rows(l.v, l.dim).RefScan(p, nil, h)
		kernels.Softmax(p, p)
		return
	}
	per := l.perGroup()
	u, v := l.split(l.v, l.dim)
	// The groups' probabilities lie at the end of p. The probabilities of the clusters
	// of group a do not reach there before group a's has been read.
	groups := p[len(p)-l.groups:]
	kernels.Float32Rows(u, l.dim).RefScan(groups, nil, h)
	kernels.Softmax(groups, groups)
	largest, sum := 0.0, 0.0
	for _, x := range groups {
		largest = max(largest, x)
	}
	for a, x := range groups {
		if x < float64(negligible*largest) {
			groups[a] = 0
		} else {
			sum += x
		}
	}
	for a := range l.groups {
		share := groups[a] / sum
		q, out := within[a*per:(a+1)*per], p[a*per:(a+1)*per]
		if share == 0 {
			clear(q)
			clear(out)
			continue
		}
		kernels.Float32Rows(v[a*per*l.dim:(a+1)*per*l.dim], l.dim).RefScan(q, nil, h)
		kernels.Softmax(q, q)
		for j, x := range q {
			out[j] = float64(share * x)
		}
	}
}

// withinOf is the part of within for place i of the batch, nil on one level.
func (l *learner) withinOf(i int) []float64 {
	if l.groups == 0 {
		return nil
	}
	return l.within[i*l.clusters : (i+1)*l.clusters]
}

// levelsGradient is softmaxGradient on two levels: the gradients with respect
// to the logits of the groups, and behind them of the clusters.
func levelsGradient(dst []float32, groups int, p, within, cost []float64, scale float64) {
	mean := 0.0
	for t, x := range p {
		mean += float64(x * cost[t])
	}
	upper, lower := dst[:groups], dst[groups:]
	per := len(p) / groups
	for a := range groups {
		sum := 0.0
		for t := a * per; t < (a+1)*per; t++ {
			sum += float64(p[t] * (cost[t] - mean))
		}
		upper[a] = float32(scale * sum)
		for t := a * per; t < (a+1)*per; t++ {
			lower[t] = float32(scale * (float64(p[t]*(cost[t]-mean)) - float64(within[t]*sum)))
		}
	}
}
