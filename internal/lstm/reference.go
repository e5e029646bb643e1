package lstm

import "github.com/learning-to-screen/l2s/kernels"

// Reference is the recurrent state of one stream of tokens, as [State] is, whose
// matrix products are the reference arithmetic of package kernels: contexts have the
// same bits on every CPU. A step takes about three times as long. A goroutine needs its
// own.
type Reference struct {
	m     *Model
	h, c  [][]float32 // one a layer, of d elements
	x     []float32   // the embedding of the token
	token [1]uint32

	in, hidden []float64 // 4d: what the input and the state contribute to the gates
	gates      []float32
	exp        []float64
}

// NewReference returns the zero state, from which a stream starts.
func (m *Model) NewReference() *Reference {
	d := m.Dim()
	r := &Reference{m: m, x: make([]float32, m.stack.in), in: make([]float64, 4*d), hidden: make([]float64, 4*d), gates: make([]float32, 4*d), exp: make([]float64, 4*d)}
	for range m.stack.layers {
		r.h, r.c = append(r.h, make([]float32, d)), append(r.c, make([]float32, d))
	}
	return r
}

// Step is [State.Step].
func (r *Reference) Step(token uint32) []float32 {
	r.token[0] = token
	r.m.encoder.Rows(r.x, r.token[:])
	x := r.x
	for i := range r.m.stack.layers {
		l := &r.m.stack.layers[i]
		kernels.Float32Rows(l.input, len(x)).RefScan(r.in, l.bias, x)
		kernels.Float32Rows(l.hidden, len(r.h[i])).RefScan(r.hidden, nil, r.h[i])
		for j := range r.gates {
			r.gates[j] = float32(r.in[j] + r.hidden[j])
		}
		cell(r.c[i], r.h[i], r.gates, r.exp)
		x = r.h[i]
	}
	return x
}
