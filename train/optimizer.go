package train

import "math"

// optimizer holds V in float64 while it is learned and turns gradients into
// steps. Its arithmetic is elementwise, in float64, with every product rounded
// before it is added (the conversions forbid fusing), so that it gives the
// same bits everywhere.
type optimizer struct {
	rule     Optimizer
	momentum float64
	v        []float64 // the parameters
	first    []float64 // Adam: mean of gradients; Momentum: velocity
	second   []float64 // Adam: mean of squared gradients
	b1, b2   float64   // Adam: beta1^step, beta2^step
}

const (
	adamBeta1   = 0.9
	adamBeta2   = 0.999
	adamEpsilon = 1e-8
)

func newOptimizer(rule Optimizer, momentum float64, v []float32) *optimizer {
	o := &optimizer{rule: rule, momentum: momentum, v: make([]float64, len(v)), first: make([]float64, len(v)), b1: 1, b2: 1}
	if rule == Adam {
		o.second = make([]float64, len(v))
	}
	for i, x := range v {
		o.v[i] = float64(x)
	}
	return o
}

// begin starts a step: update follows for every part of the parameters.
func (o *optimizer) begin() {
	o.b1 = float64(o.b1 * adamBeta1)
	o.b2 = float64(o.b2 * adamBeta2)
}

// update applies the gradient of the parameters at offset, ..., and writes the
// new values to v in float32 too.
func (o *optimizer) update(v []float32, offset int, gradient []float64, rate float64) {
	params := o.v[offset : offset+len(gradient)]
	first := o.first[offset : offset+len(gradient)]
	switch o.rule {
	case Adam:
		second := o.second[offset : offset+len(gradient)]
		step := float64(rate / (1 - o.b1))
		correct := 1 / (1 - o.b2)
		for i, g := range gradient {
			first[i] = float64(adamBeta1*first[i]) + float64((1-adamBeta1)*g)
			second[i] = float64(adamBeta2*second[i]) + float64((1-adamBeta2)*float64(g*g))
			root := math.Sqrt(float64(second[i]*correct)) + adamEpsilon
			params[i] -= float64(step*first[i]) / root
		}
	case Momentum:
		for i, g := range gradient {
			first[i] = float64(o.momentum*first[i]) + g
			params[i] -= float64(rate * first[i])
		}
	}
	for i, x := range params {
		v[offset+i] = float32(x)
	}
}
