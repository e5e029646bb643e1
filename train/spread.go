package train

import (
	"math"

	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/train/internal/rng"
)

// A context between two clusters is counted in one of them by chance, and the
// set of the other lacks its labels. With SetOptions.Spread each context counts
// in the clusters near it too, with the weight of a softmax over their scores:
// neighbours then share what they have met, and labels that a cluster has met
// seldom or never are estimated better. Each context still weighs one, and
// queries are still routed to one cluster. Only the final sets are counted so:
// finding the neighbours costs as much as an alternation. The figures on contexts
// held out, and with them the choice of the best alternation, are without.

const (
	nearInGroup = 4               // the best clusters of the best group, or of all
	near        = nearInGroup + 1 // and the best cluster of the second best group
	spreadUnit  = 64              // parts that a context is divided into
	spreadSteps = 40              // halvings of the logarithm of the range of temperatures
)

// neighbours are the clusters near each context.
type neighbours struct {
	ids  []uint32  // n x near, the context's own cluster first
	gaps []float32 // n x near: by how much the score lags behind the best; +Inf if there is no such cluster
}

// shares writes the softmax over the neighbours of context i at the given
// temperature to dst.
func (nb *neighbours) shares(dst *[near]float64, i int, temperature float64) {
	sum := 0.0
	for j, gap := range nb.gaps[i*near : (i+1)*near] {
		dst[j] = 0
		if x := float64(gap) / temperature; x < 50 { // else nothing, and no infinity
			dst[j] = kernels.Exp(-x)
		}
		sum += dst[j]
	}
	for j := range dst {
		dst[j] /= sum
	}
}

// temperature returns the temperature at which the mean share that contexts
// give to neighbours is spread. The share grows with the temperature, so that
// bisection finds it. It is found on a sample.
func (nb *neighbours) temperature(d *data, spread float64) float64 {
	random := rng.New(d.seed, rng.Spread, 0)
	sample := random.Sample(d.n, min(d.n, scaleSample))
	lo, hi := 1/scaleLimit, scaleLimit
	for range spreadSteps {
		middle := math.Sqrt(float64(lo * hi))
		var shares [near]float64
		away := 0.0
		for _, i := range sample {
			nb.shares(&shares, int(i), middle)
			away += 1 - shares[0]
		}
		if away < float64(spread*float64(len(sample))) {
			lo = middle
		} else {
			hi = middle
		}
	}
	return math.Sqrt(float64(lo * hi))
}

// partition is newPartition with each of the contexts in all of its
// neighbouring clusters, weighted: unit parts for each context in all.
func (nb *neighbours) partition(contexts []uint32, temperature float64, clusters int) *partition {
	unit := uint32(min(spreadUnit, math.MaxUint32/uint64(len(contexts)))) // the sum of all fits 32 bits
	p := &partition{start: make([]int, clusters+1), unit: unit}
	parts := make([]uint8, len(contexts)*near)
	for x, i := range contexts {
		var shares [near]float64
		nb.shares(&shares, int(i), temperature)
		w := parts[x*near : (x+1)*near]
		left := uint8(unit)
		for j := near - 1; j > 0; j-- {
			w[j] = uint8(float64(shares[j] * float64(unit)))
			left -= w[j]
		}
		w[0] = left
		for j, n := range w {
			if n > 0 {
				p.start[nb.ids[int(i)*near+j]+1]++
			}
		}
	}
	for t := range clusters {
		p.start[t+1] += p.start[t]
	}
	place := append([]int(nil), p.start[:clusters]...)
	p.order, p.parts = make([]uint32, p.start[clusters]), make([]uint8, p.start[clusters])
	for x, i := range contexts {
		for j, n := range parts[x*near : (x+1)*near] {
			if n > 0 {
				c := nb.ids[int(i)*near+j]
				p.order[place[c]], p.parts[place[c]] = i, n
				place[c]++
			}
		}
	}
	return p
}
