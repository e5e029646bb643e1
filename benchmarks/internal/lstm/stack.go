package lstm

import (
	"math"

	"github.com/learning-to-screen/l2s/internal/codes/floats"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
)

// layer is one LSTM layer: gates = input x + hidden h + bias, 4d of them in the order i, f, g, o.
type layer struct {
	input  []float32 // 4d x e for the first layer, 4d x d above: weight_ih
	hidden []float32 // 4d x d: weight_hh
	bias   []float32 // 4d: bias_ih + bias_hh
}

// Stack is LSTM layers one above the other: the recurrent part of a model. It
// does not change and may be used by many goroutines.
type Stack struct {
	in, dim int
	layers  []layer
}

// In returns the dimension of the vectors that the first layer reads, e.
func (s *Stack) In() int { return s.in }

// Dim returns the dimension of the outputs, d.
func (s *Stack) Dim() int { return s.dim }

// Layers returns the number of layers.
func (s *Stack) Layers() int { return len(s.layers) }

// blockBytes is the size of the weights that stay in the second-level cache while all
// vectors are multiplied with them.
const blockBytes = 128 << 10

// Products computes the products of a matrix W, row-major, with n vectors x of dim elements, and
// adds a bias, nil for none: dst[s*m+i] = bias[i] + W_i . x_s for its m rows. The weights come from
// memory once for all vectors, and dst does not depend on n.
func Products(dst, w, bias, x []float32, dim, n int) {
	m := len(w) / dim
	block := max(blockBytes/(4*dim), 1)
	for first := 0; first < m; first += block {
		end := min(first+block, m)
		var b []float32
		if bias != nil {
			b = bias[first:end]
		}
		for s := range n {
			floats.Scan(dst[s*m+first:s*m+end], w[first*dim:end*dim], b, x[s*dim:(s+1)*dim])
		}
	}
}

// run takes some time steps of independent streams through the layer. Step t has a row of x for
// each of the first active[t] streams, in order, and the rows of one step follow the rows of the
// previous step. y gets the output of each row, and may be x. h and c are the state of the streams,
// a row each. It returns gates, scratch that it may have to make larger.
//
// The input products of all steps share one pass over the weights. The products of the state take
// one pass per step. The bits of an output do not depend on the grouping of streams and steps.
func (l *layer) run(y, x []float32, active []int, h, c, gates []float32) []float32 {
	size := len(l.bias)
	d := size / 4
	rows, most := 0, 0
	for _, n := range active {
		rows, most = rows+n, max(most, n)
	}
	gates = mem.Grow(gates, (rows+most)*size)
	ofInput, ofState := gates[:rows*size], gates[rows*size:]
	Products(ofInput, l.input, l.bias, x, len(l.input)/size, rows)
	for _, n := range active {
		Products(ofState, l.hidden, nil, h, d, n)
		for i := range n {
			cell(c[i*d:(i+1)*d], h[i*d:(i+1)*d], ofInput[i*size:(i+1)*size], ofState[i*size:(i+1)*size])
		}
		copy(y, h[:n*d])
		ofInput, y = ofInput[n*size:], y[n*d:]
	}
	return gates
}

// cell advances the state of a stream by the gates, each the sum of an element of a and one of b.
func cell(c, h, a, b []float32) {
	d := len(c)
	gate := func(j int) float64 { return float64(a[j]) + float64(b[j]) }
	for j := range c {
		v := sigmoid(gate(d+j))*float64(c[j]) + sigmoid(gate(j))*tanh(gate(2*d+j))
		c[j], h[j] = float32(v), float32(sigmoid(gate(3*d+j))*tanh(v))
	}
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

func tanh(x float64) float64 { return 2/(1+math.Exp(-2*x)) - 1 }

// Streams is the recurrent state of independent streams, and the scratch to
// advance them together. A goroutine needs its own.
type Streams struct {
	s     *Stack
	h, c  [][]float32 // one per layer: a row of d per stream
	n     int         // streams that there is room for
	spare []float32
	x     []float32 // the rows on their way through the layers
	gates []float32 // of the rows in a layer
	one   [1]int
}

// NewStreams returns the zero state of n streams.
func (s *Stack) NewStreams(n int) *Streams {
	st := &Streams{s: s, h: make([][]float32, len(s.layers)), c: make([][]float32, len(s.layers))}
	st.Grow(n)
	return st
}

// Grow makes room for n streams. Those that are new are in the zero state.
func (st *Streams) Grow(n int) {
	if n <= st.n {
		return
	}
	for l := range st.h {
		st.h[l] = append(make([]float32, 0, n*st.s.dim), st.h[l]...)[:n*st.s.dim]
		st.c[l] = append(make([]float32, 0, n*st.s.dim), st.c[l]...)[:n*st.s.dim]
	}
	st.n = n
}

// Run takes some time steps of the streams through all layers. At step t the first active[t]
// streams read a row of x each, In elements; the rows of one step follow the rows of the step
// before. It returns the outputs, a row of Dim elements for each of x, valid until the next call.
// They do not depend on how streams and steps are grouped into calls. Once it has seen the largest
// call, Run allocates nothing.
func (st *Streams) Run(x []float32, active []int) []float32 {
	rows := 0
	for _, n := range active {
		rows += n
	}
	st.x = mem.Grow(st.x, rows*st.s.dim)
	for l := range st.s.layers {
		st.gates = st.s.layers[l].run(st.x, x, active, st.h[l], st.c[l], st.gates)
		x = st.x
	}
	return st.x
}

// Step is Run for one time step of the first n streams.
func (st *Streams) Step(x []float32, n int) []float32 {
	st.one[0] = n
	return st.Run(x, st.one[:])
}

// StateLen returns the number of elements that [Streams.Save] writes.
func (s *Stack) StateLen() int { return 2 * len(s.layers) * s.dim }

// Save copies the state of stream i to dst, StateLen elements.
func (st *Streams) Save(dst []float32, i int) {
	d := st.s.dim
	for l := range st.h {
		copy(dst[2*l*d:(2*l+1)*d], st.h[l][i*d:])
		copy(dst[(2*l+1)*d:(2*l+2)*d], st.c[l][i*d:])
	}
}

// Restore makes src, which [Streams.Save] wrote, the state of stream i. The
// stack may be another one, of the same layers and dimension.
func (st *Streams) Restore(i int, src []float32) {
	d := st.s.dim
	for l := range st.h {
		copy(st.h[l][i*d:(i+1)*d], src[2*l*d:])
		copy(st.c[l][i*d:(i+1)*d], src[(2*l+1)*d:])
	}
}

// Reorder gives stream i the state that stream parents[i] had before the call, for all i below
// len(parents). It makes room for them if there is too little.
func (st *Streams) Reorder(parents []int) {
	st.Grow(len(parents))
	d := st.s.dim
	st.spare = mem.Grow(st.spare, len(parents)*d)
	for l := range st.h {
		for _, state := range [][]float32{st.h[l], st.c[l]} {
			for i, p := range parents {
				copy(st.spare[i*d:(i+1)*d], state[p*d:(p+1)*d])
			}
			copy(state, st.spare)
		}
	}
}
