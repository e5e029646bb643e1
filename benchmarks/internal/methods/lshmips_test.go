package methods

import (
	"slices"
	"testing"
)

// Buckets are looked up in the order of the cost of the signs that change.
func TestLSHMIPSProbesInTheOrderOfCost(t *testing.T) {
	const bits = 5
	s := &lshSearcher{probes: 1 << bits, order: make([]signBit, bits), heap: make([]probe, 0, 1<<bits+1)}
	products := []float32{0.5, -2, 0.25, 1, -0.125}
	in, _ := small(t)
	s.candidates = newCandidates(in.Layer)
	// Bucket b holds label b alone, so that the candidates are the order.
	x := &lshIndex{layer: in.Layer, tables: 1, bits: bits}
	for b := range uint32(1 << bits) {
		x.ids, x.firsts = append(x.ids, b), append(x.firsts, b)
	}
	x.firsts = append(x.firsts, 1<<bits)
	s.index = x
	s.begin(make([]float32, in.Layer.Dim()))
	const hash = 0b01101
	s.bucket(0, hash)
	s.more(0, hash, products)
	cost := func(b uint32) (sum float32) {
		for i, v := range products {
			if (b^hash)>>i&1 == 1 {
				sum += v * v
			}
		}
		return sum
	}
	if len(s.ids) != 1<<bits {
		t.Fatalf("%d buckets, want each of %d once", len(s.ids), 1<<bits)
	}
	if !slices.IsSortedFunc(s.ids, func(a, b uint32) int { return int(1e6 * (cost(a) - cost(b))) }) {
		t.Errorf("order %05b", s.ids)
	}
}
