package marian

import (
	"fmt"
	"slices"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
)

// Source is a sentence as the encoder leaves it. It does not change: any number of decoders and of
// hypotheses may share it.
type Source struct{ layers []memory } // of each layer of the decoder

// Encoder reads sentences. A goroutine needs its own.
type Encoder struct {
	m          *Model
	w          work
	x, y       []float32
	q, k, v, a []float32
}

// NewEncoder returns an encoder.
func (m *Model) NewEncoder(p Precision) *Encoder { return &Encoder{m: m, w: newWork(p)} }

// Encode reads sentences, each its pieces and </s>. Sentences that are read together share the loads
// of the weights. It returns an error for an empty sentence, one of more than [Most] pieces, or a
// piece that the model does not have.
func (e *Encoder) Encode(sentences [][]uint32) ([]*Source, error) {
	m, d, n := e.m, e.m.dim, 0
	for i, s := range sentences {
		if len(s) == 0 || len(s) > Most {
			return nil, fmt.Errorf("marian: sentence %d: found %d pieces, expected 1 to %d", i, len(s), Most)
		}
		if p := slices.Max(s); int(p) >= m.Labels() {
			return nil, fmt.Errorf("marian: sentence %d: found the piece %d, expected one below %d", i, p, m.Labels())
		}
		n += len(s)
	}
	for _, x := range []*[]float32{&e.x, &e.y, &e.q, &e.k, &e.v, &e.a} {
		*x = mem.Grow(*x, n*d)
	}
	at := 0
	for _, s := range sentences {
		for t, piece := range s {
			m.embed(e.x[at:at+d], piece)
			m.place(e.x[at:at+d], t)
			at += d
		}
	}
	for _, l := range m.encoder {
		e.w.apply(e.q, l.q, e.x, n)
		e.w.apply(e.k, l.k, e.x, n)
		e.w.apply(e.v, l.v, e.x, n)
		at = 0
		for _, s := range sentences {
			end := at + len(s)*d
			memory := remember(e.k[at:end], e.v[at:end], d, m.heads, len(s))
			for ; at < end; at += d {
				e.w.attend(e.a[at:at+d], e.q[at:at+d], memory, m.heads)
			}
		}
		e.w.apply(e.y, l.o, e.a, n)
		l.attended.normalize(e.x, e.y, n)
		e.w.forward(e.x, e.y, l.w1, l.w2, l.done, n)
	}
	sources := make([]*Source, len(sentences))
	for i := range sentences {
		sources[i] = &Source{}
	}
	for _, l := range m.decoder {
		e.w.apply(e.k, l.k, e.x, n)
		e.w.apply(e.v, l.v, e.x, n)
		at = 0
		for i, s := range sentences {
			end := at + len(s)*d
			sources[i].layers = append(sources[i].layers, remember(e.k[at:end], e.v[at:end], d, m.heads, len(s)))
			at = end
		}
	}
	return sources, nil
}

// Decoder has the states of some hypotheses, each the beginning of a translation of its sentence. It
// is a beam.Decoder. A goroutine needs its own.
type Decoder struct {
	m       *Model
	w       work
	t       int // pieces so far
	sources []*Source
	of      []int // the source of each hypothesis
	cells   []float32
	spare   []float32 // for a new order of cells
	order   []int
	x, y    []float32
	f, u    []float32
}

// NewDecoder returns a decoder without hypotheses.
func (m *Model) NewDecoder(p Precision) *Decoder { return &Decoder{m: m, w: newWork(p)} }

// Start begins again, with a hypothesis for each source, in order.
func (e *Decoder) Start(sources []*Source) {
	e.t, e.sources, e.of = 0, sources, e.of[:0]
	for i := range sources {
		e.of = append(e.of, i)
	}
	e.cells = mem.Grow(e.cells, len(sources)*len(e.m.decoder)*e.m.dim)
	clear(e.cells)
}

// Of returns the number of the source of each hypothesis of the last step.
func (e *Decoder) Of() []int { return e.of }

// Step lets hypothesis i continue hypothesis parents[i] of the step before by a piece, and returns
// the contexts, a row for each, valid until the next call. The first step has no piece before it:
// pieces are not looked at. It returns an error after [Most] steps, for a parent that is no
// hypothesis, or a piece that the model does not have.
func (e *Decoder) Step(parents []int, pieces []uint32) ([]float32, error) {
	m, d, n := e.m, e.m.dim, len(parents)
	if e.t == Most || len(pieces) != n {
		return nil, fmt.Errorf("marian: step %d: found %d pieces for %d hypotheses, expected one for each, and at most %d steps", e.t, len(pieces), n, Most)
	}
	size := len(m.decoder) * d
	e.spare, e.order = mem.Grow(e.spare, n*size), e.order[:0]
	for i, p := range parents {
		if p < 0 || p >= len(e.of) {
			return nil, fmt.Errorf("marian: step %d: found the parent %d, expected one of %d hypotheses", e.t, p, len(e.of))
		}
		if e.t > 0 && int(pieces[i]) >= m.Labels() {
			return nil, fmt.Errorf("marian: step %d: found the piece %d, expected one below %d", e.t, pieces[i], m.Labels())
		}
		// The cells of a layer follow each other.
		for l := range m.decoder {
			copy(e.spare[(l*n+i)*d:][:d], e.cells[(l*len(e.of)+p)*d:][:d])
		}
		e.order = append(e.order, e.of[p])
	}
	e.cells, e.spare, e.of, e.order = e.spare, e.cells, e.order, e.of
	for _, x := range []*[]float32{&e.x, &e.y, &e.f, &e.u} {
		*x = mem.Grow(*x, n*d)
	}
	for i := range n {
		x := e.x[i*d:][:d]
		if e.t == 0 {
			clear(x)
		} else {
			m.embed(x, pieces[i])
		}
		m.place(x, e.t)
	}
	for j, l := range m.decoder {
		c := e.cells[j*n*d:][:n*d]
		e.w.apply(e.f, l.wf, e.x, n)
		e.w.apply(e.u, l.w, e.x, n)
		for i, u := range e.u {
			f := float32(1 / (1 + kernels.Exp(-float64(e.f[i]))))
			c[i] = float32(f*c[i]) + float32((1-f)*u)
			e.y[i] = max(c[i], 0)
		}
		l.recalled.normalize(e.x, e.y, n)
		e.w.apply(e.f, l.q, e.x, n)
		for i, s := range e.of {
			e.w.attend(e.u[i*d:][:d], e.f[i*d:][:d], e.sources[s].layers[j], m.heads)
		}
		e.w.apply(e.y, l.o, e.u, n)
		l.attended.normalize(e.x, e.y, n)
		e.w.forward(e.x, e.y, l.w1, l.w2, l.done, n)
	}
	e.t++
	return e.x, nil
}
