package lstm

// State is the recurrent state of one stream of tokens. A goroutine needs its own.
type State struct {
	m     *Model
	s     *Streams
	x     []float32 // the embedding of the token
	token [1]uint32
}

// NewState returns the zero state, from which a stream starts.
func (m *Model) NewState() *State {
	return &State{m: m, s: m.stack.NewStreams(1), x: make([]float32, m.stack.in)}
}

// Step reads one token and returns the context vector after it: the output of the top layer, Dim
// elements, all within [-1, 1], or NaN if the weights are so large that the products overflow. The
// slice is valid until the next call. From the second call on, Step allocates nothing. It panics if
// token is not below Vocab.
func (st *State) Step(token uint32) []float32 {
	st.token[0] = token
	st.m.encoder.Rows(st.x, st.token[:])
	return st.s.Step(st.x, 1)
}
