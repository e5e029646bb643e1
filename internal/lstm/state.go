package lstm

import "github.com/learning-to-screen/l2s/kernels"

const (
	errToken   = "lstm: token out of range"
	errContext = "lstm: length of the context differs from the dimension"
)

// blockBytes is how much of a weight matrix [products] reads for one vector
// before it turns to the next: it stays in the first-level cache.
const blockBytes = 24 << 10

// products computes the matrix-vector products of n vectors x (n x d) with
// the same rows (m x d): dst[s*m+i] = rows[i] . x_s + bias[s*step+i]. step is
// 0 for one bias of m elements and m for a bias of each vector.
//
// The rows are read once for all vectors, in blocks that fit the cache. What
// dst gets does not depend on n: each element comes from the same call to the
// kernel, but for the place of dst.
func products(dst, rows, bias []float32, step int, x []float32, n, d int) {
	m := len(rows) / d
	block := max(blockBytes/(4*d)&^7, 8)
	for from := 0; from < m; from += block {
		to := min(from+block, m)
		for s := range n {
			kernels.Scan(dst[s*m+from:s*m+to], rows[from*d:to*d], bias[s*step+from:s*step+to], x[s*d:(s+1)*d])
		}
	}
}

// streams is the recurrent state of n independent token streams, and the
// scratch to advance them together.
type streams struct {
	m    *Model
	n    int
	x    []float32   // n x e: the embeddings of the tokens
	h, c [][]float32 // one a layer: n x d
	in   []float32   // n x 4d: what the input contributes to the gates
	gate []float32   // n x 4d: the gates before the nonlinearities
	exp  []float64   // 4d
}

func newStreams(m *Model, n int) *streams {
	s := &streams{
		m: m, n: n,
		x:    make([]float32, n*m.embedDim),
		in:   make([]float32, n*4*m.dim),
		gate: make([]float32, n*4*m.dim),
		exp:  make([]float64, 4*m.dim),
	}
	for range m.layers {
		s.h = append(s.h, make([]float32, n*m.dim))
		s.c = append(s.c, make([]float32, n*m.dim))
	}
	return s
}

func (s *streams) reset() {
	for l := range s.h {
		clear(s.h[l])
		clear(s.c[l])
	}
}

// step advances the first len(tokens) streams by one token each.
func (s *streams) step(tokens []uint32) {
	m, n := s.m, len(tokens)
	m.embed(s.x, tokens)
	x, dim := s.x, m.embedDim
	for l := range m.layers {
		layer, h, c := &m.layers[l], s.h[l], s.c[l]
		products(s.in, layer.input, layer.bias, 0, x, n, dim)
		products(s.gate, layer.hidden, s.in, 4*m.dim, h, n, m.dim)
		for i := range n {
			cell(c[i*m.dim:(i+1)*m.dim], h[i*m.dim:(i+1)*m.dim], s.gate[i*4*m.dim:(i+1)*4*m.dim], s.exp)
		}
		x, dim = h, m.dim
	}
}

// top returns the output of the top layer of stream i, aliasing the state.
func (s *streams) top(i int) []float32 {
	d := s.m.dim
	return s.h[len(s.h)-1][i*d : (i+1)*d : (i+1)*d]
}

// State is the recurrent state of one stream of tokens. A goroutine needs its
// own.
type State struct {
	s     *streams
	token [1]uint32
}

// NewState returns the zero state, from which a stream starts.
func (m *Model) NewState() *State { return &State{s: newStreams(m, 1)} }

// Reset goes back to the zero state.
func (st *State) Reset() { st.s.reset() }

// Step reads one token and returns the context vector after it: the output
// of the top layer, Dim elements, all within [-1, 1], or NaN where the weights
// are so large that the products overflow. The slice aliases the state and is
// valid until the next call. Step allocates nothing. It panics where token is
// not below Vocab.
func (st *State) Step(token uint32) []float32 {
	st.token[0] = token
	st.s.step(st.token[:])
	return st.s.top(0)
}
