package marian

import (
	"math"

	"github.com/learning-to-screen/l2s/internal/codes/floats"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
)

// Precision is how finely the inputs of matrices are rounded.
type Precision bool

const (
	// Int8 rounds an input to 127 steps of its largest element, as engines for such models do.
	Int8 Precision = false
	// Int16 rounds what Int8 leaves, too. It takes twice as long.
	Int16 Precision = true
)

// work is the scratch of a goroutine.
type work struct {
	precision    Precision
	vectors      map[int]*[2 * kernels.BatchContexts]*kernels.Int8Vector // by their dimension
	lower, upper []float32
	high, low    []float32
	hidden       []float32
	scores       []float32
	weights      []float64
}

func newWork(p Precision) work {
	return work{precision: p, vectors: map[int]*[2 * kernels.BatchContexts]*kernels.Int8Vector{}}
}

// apply writes W x + b for each of n rows x to dst.
func (w *work) apply(dst []float32, l *linear, x []float32, n int) {
	vs := w.vectors[l.in]
	if vs == nil {
		vs = new([2 * kernels.BatchContexts]*kernels.Int8Vector)
		for i := range vs {
			vs[i] = kernels.NewInt8Vector(l.in)
		}
		w.vectors[l.in] = vs
	}
	rows := l.panels.Len() * kernels.PanelRows
	w.lower, w.upper = mem.Grow(w.lower, kernels.BatchContexts*rows), mem.Grow(w.upper, kernels.BatchContexts*rows)
	for first := 0; first < n; first += kernels.BatchContexts {
		k := min(kernels.BatchContexts, n-first)
		for i := range k {
			w.set(vs[i], vs[kernels.BatchContexts+i], x[(first+i)*l.in:][:l.in])
		}
		l.panels.Bounds(w.lower[:k*rows], w.upper[:k*rows], 0, l.panels.Len(), vs[:k]...)
		for i := range k {
			copy(dst[(first+i)*l.out:][:l.out], w.lower[i*rows:])
		}
		if w.precision == Int16 {
			l.panels.Bounds(w.lower[:k*rows], w.upper[:k*rows], 0, l.panels.Len(), vs[kernels.BatchContexts:][:k]...)
			for i := range k {
				add(dst[(first+i)*l.out:][:l.out], w.lower[i*rows:])
			}
		}
		for i := range k {
			if l.bias != nil {
				add(dst[(first+i)*l.out:][:l.out], l.bias)
			}
		}
	}
}

// set rounds x to high, and what is left to low if the precision asks for it. An x that has no
// scale, or is not finite, which no weights of a trained model lead to, counts as zeros.
func (w *work) set(high, low *kernels.Int8Vector, x []float32) {
	if w.precision == Int8 {
		if high.Set(x) != kernels.Certified {
			w.high = mem.Grow(w.high, len(x))
			clear(w.high)
			high.Set(w.high)
		}
		return
	}
	w.high, w.low = mem.Grow(w.high, len(x)), mem.Grow(w.low, len(x))
	largest := math.Float32frombits(kernels.MaxAbsBits(x))
	if !(largest > kernels.MinCertified*0x1p10 && largest < kernels.MaxCertified) {
		clear(w.high)
		clear(w.low)
	} else {
		step := largest / kernels.MaxCode
		for j, v := range x {
			w.high[j] = float32(math.RoundToEven(float64(v/step))) * step
			w.low[j] = v - w.high[j]
		}
	}
	high.Set(w.high)
	if low.Set(w.low) != kernels.Certified {
		clear(w.low)
		low.Set(w.low)
	}
}

func add(dst, x []float32) {
	for i, v := range x[:len(dst)] {
		dst[i] += v
	}
}

// normalize writes LN(x + y) to x, for each of n rows.
func (o norm) normalize(x, y []float32, n int) {
	d := len(o.scale)
	for i := range n {
		x, y := x[i*d:][:d], y[i*d:][:d]
		sum := 0.0
		for j, v := range y {
			x[j] += v
			sum += float64(x[j])
		}
		mean, squares := sum/float64(d), 0.0
		for _, v := range x {
			e := float64(v) - mean
			squares += float64(e * e)
		}
		inv := 1 / math.Sqrt(squares/float64(d)+1e-9)
		for j, v := range x {
			x[j] = float32(float32((float64(v)-mean)*inv)*o.scale[j]) + o.bias[j]
		}
	}
}

// forward writes LN(x + W2 relu(W1 x)) to x, for each of n rows. y is scratch like x.
func (w *work) forward(x, y []float32, w1, w2 *linear, o norm, n int) {
	w.hidden = mem.Grow(w.hidden, n*w1.out)
	w.apply(w.hidden, w1, x, n)
	for i, v := range w.hidden {
		w.hidden[i] = max(v, 0)
	}
	w.apply(y, w2, w.hidden, n)
	o.normalize(x, y, n)
}

// memory is what attention reads of a sentence of n pieces: for each head n rows of d/heads keys,
// and d/heads rows of n values.
type memory struct{ keys, values []float32 }

// remember makes the memory of n rows of keys and of values.
func remember(keys, values []float32, dim, heads, n int) memory {
	m := memory{make([]float32, n*dim), make([]float32, n*dim)}
	each := dim / heads
	for i := range n {
		for j := range dim {
			head, at := j/each, j%each
			m.keys[(head*n+i)*each+at] = keys[i*dim+j]
			m.values[j*n+i] = values[i*dim+j]
		}
	}
	return m
}

// attend writes the means of the values to dst, for each head weighted by the softmax of the
// products of q with the keys, over the root of d/heads.
func (w *work) attend(dst, q []float32, m memory, heads int) {
	each := len(q) / heads
	n := len(m.keys) / len(q)
	w.scores, w.weights = mem.Grow(w.scores, n), mem.Grow(w.weights, n)
	scale := 1 / math.Sqrt(float64(each))
	for h := range heads {
		floats.Scan(w.scores, m.keys[h*n*each:][:n*each], nil, q[h*each:][:each])
		for i, s := range w.scores {
			w.weights[i] = float64(s) * scale
		}
		kernels.Softmax(w.weights, w.weights)
		for i, p := range w.weights {
			w.scores[i] = float32(p)
		}
		floats.Scan(dst[h*each:][:each], m.values[h*n*each:][:n*each], nil, w.scores)
	}
}
