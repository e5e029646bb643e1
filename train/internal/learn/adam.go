package learn

import "math"

// adam holds V in float64 while it is learned and turns gradients into steps
// (Kingma and Ba 2015).
type adam struct {
	v      []float64 // the parameters
	first  []float64 // mean of gradients
	second []float64 // mean of squared gradients
	b1, b2 float64   // beta1^step, beta2^step
}

const (
	adamBeta1   = 0.9
	adamBeta2   = 0.999
	adamEpsilon = 1e-8
)

func newAdam(v []float32) *adam {
	o := &adam{v: make([]float64, len(v)), first: make([]float64, len(v)), second: make([]float64, len(v)), b1: 1, b2: 1}
	for i, x := range v {
		o.v[i] = float64(x)
	}
	return o
}

// begin starts a step: update follows for every part of the parameters.
func (o *adam) begin() {
	o.b1 = float64(o.b1 * adamBeta1)
	o.b2 = float64(o.b2 * adamBeta2)
}

// update applies the gradient of the parameters at offset, ..., and writes the
// new values to v in float32 too.
func (o *adam) update(v []float32, offset int, gradient []float64, rate float64) {
	params := o.v[offset : offset+len(gradient)]
	first := o.first[offset : offset+len(gradient)]
	second := o.second[offset : offset+len(gradient)]
	step := float64(rate / (1 - o.b1))
	correct := 1 / (1 - o.b2)
	for i, g := range gradient {
		first[i] = float64(adamBeta1*first[i]) + float64((1-adamBeta1)*g)
		second[i] = float64(adamBeta2*second[i]) + float64((1-adamBeta2)*float64(g*g))
		root := math.Sqrt(float64(second[i]*correct)) + adamEpsilon
		params[i] -= float64(step*first[i]) / root
		v[offset+i] = float32(params[i])
	}
}
