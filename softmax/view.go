package softmax

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/learning-to-screen/l2s/internal/bigmem"
	"github.com/learning-to-screen/l2s/internal/linear"
	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/kernels"
)

// View is a search that needs no training: the exact search of a layer, behind a look at all labels
// in the few coordinates in which their logits differ most over contexts. Labels that do not look as
// if they were among the best are left out, so an answer is not exact: it may miss a label. On three
// layers, and contexts like those that the view was made from, the best one was missed in less than one of
// 2,000. The logits are exact, and the labels are the best of those that are looked at. It is
// immutable and safe for use by many goroutines.
//
// With M = E[h h^T] over contexts and W' the rows of W less their mean m, let U be the first
// eigenvectors of W'^T W' M, those with the largest eigenvalues, of length 1 in the sense of M. Then z =
// U^T h has second moments of 1, and
//
//	w_s.h + b_s = m.h + (W' M U)_s.z + b_s + r_s
//
// where no other coordinates, as many, leave a smaller sum of E[r_s^2]. m.h does not change the order.
// The others are scanned as int8 codes, in intervals of so many standard deviations of what they leave
// out. (SVD-softmax, Shim et al., NIPS 2017, in the coordinates of DRONE, Chen et al., NeurIPS 2021.)
type View struct {
	layer *Layer
	to    *kernels.Int8Panels // U^T
	rows  *kernels.Int8Panels // W' M U and b
	width int
}

const (
	// viewDeviations is the number of standard deviations of NewView.
	viewDeviations = 5
	// viewContexts and viewRows bound the contexts and the rows that moments are taken from, and
	// leastContexts is the least number of contexts.
	viewContexts  = 4096
	viewRows      = 8192
	leastContexts = 128
	// viewHeld is about the number of contexts that no moments are taken from: they say what the
	// coordinates leave out.
	viewHeld = 128
	// viewRounds is the number of rounds of subspace iteration: the coordinates need not be exact.
	viewRounds = 6
	// survivorRows is the number of rows of codes in a stream that a row by itself costs as much as.
	survivorRows = 2
)

// viewWidths are the numbers of coordinates to choose from.
var viewWidths = []int{32, 48, 64, 96, 128}

// NewView returns a view of the layer, made in about a second from contexts, row-major, n x d: at least
// 128, of which some 4,000 are used. They should be like those to come. It is [NewViewAt] with 5
// deviations.
func NewView(l *Layer, contexts []float32) (*View, error) {
	return NewViewAt(l, contexts, viewDeviations)
}

// NewViewAt is NewView for intervals of so many standard deviations, above 0: with fewer a search is
// faster and misses more.
//
// It returns an error if contexts are no rows of the layer's dimension, too few, or not finite where they are
// used ([ErrContext]), and for a layer or contexts whose numbers are too large for codes.
func NewViewAt(l *Layer, contexts []float32, deviations float64) (*View, error) {
	d := l.Dim()
	n := len(contexts) / d
	if n*d != len(contexts) || n < leastContexts {
		return nil, invalid(ErrContext, fmt.Sprintf("softmax: contexts: found %d elements, expected at least %d rows of %d", len(contexts), leastContexts, d))
	}
	if !(deviations > 0 && deviations <= math.MaxFloat32) {
		return nil, fmt.Errorf("softmax: deviations: found %v, expected a finite number above 0", deviations)
	}
	if l.codes == nil {
		return nil, errors.New("softmax: layer: found one without codes, expected weights of at most 2^40")
	}
	m := newMoments(l, kernels.Float32Rows(contexts, d))
	for _, some := range [][]float32{m.contexts, m.held} {
		if i, j, found := kernels.Float32Rows(some, d).NotFinite(); found {
			return nil, invalid(ErrContext, fmt.Sprintf("softmax: contexts: found %v at element %d of one, expected finite numbers", some[i*d+j], j))
		}
	}
	c, err := m.coordinates(min(d, viewWidths[len(viewWidths)-1]))
	if err != nil {
		return nil, err
	}
	var best *View
	least := math.Inf(1)
	for _, width := range viewWidths {
		v, err := c.view(min(width, c.width), deviations)
		if err != nil {
			return nil, err
		}
		if cost := v.cost(m.held); cost < least {
			best, least = v, cost
		}
		if width >= c.width {
			break
		}
	}
	return best, nil
}

// NewSearcher returns a searcher that looks at the view, on one thread, before it searches among all
// labels of the layer. A request about some labels, for a log-sum, for more than half of the labels, or with the
// budget [Exact] is answered exactly, and so is one whose context the view leaves too many labels of:
// [Answer].Source says which.
func (v *View) NewSearcher() *Searcher {
	return &Searcher{layer: v.layer, view: v, z: kernels.NewInt8Vector(v.width)}
}

// Bytes returns the memory of the view, beside that of its layer.
func (v *View) Bytes() int64 {
	return int64(v.to.Len()*kernels.Int8PanelBytes(v.layer.Dim()) + v.rows.Len()*kernels.Int8PanelBytes(v.width))
}

// look makes a first pass over the view, if there is one for the query, and reports whether few labels are
// left, in s.list.
func (s *Searcher) look(q *Query, p *place) bool {
	v := s.view
	if v == nil || p.req.Budget == Exact {
		return false
	}
	bounds := func(panels *kernels.Int8Panels, vec *kernels.Int8Vector) {
		room := panels.Len() * kernels.PanelRows
		s.reserve(room)
		panels.Bounds(s.lower[:room], s.upper[:room], 0, panels.Len(), vec)
	}
	bounds(v.to, q.vec)
	z := s.lower[:v.width]
	for j, x := range s.upper[:v.width] {
		z[j] = (z[j] + x) / 2
	}
	if s.z.Set(z) != kernels.Certified {
		return false
	}
	bounds(v.rows, s.z)
	return s.few(p, nil)
}

// moments are contexts and rows to take moments from.
type moments struct {
	layer      *Layer
	contexts   []float32 // n x d
	rows, mean []float32 // n x d, less their mean, and that
	held       []float32 // n x d: further contexts
}

func newMoments(l *Layer, contexts kernels.Rows) *moments {
	d := l.Dim()
	m := &moments{layer: l, rows: sample(l.rows, viewRows), mean: make([]float32, d)}
	all := sample(contexts, viewContexts)
	step := max(4, len(all)/d/viewHeld)
	for i := range len(all) / d {
		if row := all[i*d : (i+1)*d]; i%step == step/2 {
			m.held = append(m.held, row...)
		} else {
			m.contexts = append(m.contexts, row...)
		}
	}
	sum, n := make([]float64, d), len(m.rows)/d
	for i := range n {
		kernels.Axpy(sum, 1, m.rows[i*d:(i+1)*d])
	}
	for j, x := range sum {
		m.mean[j] = float32(x / float64(n))
	}
	for i := range m.rows {
		m.rows[i] -= m.mean[i%d]
	}
	return m
}

// sample returns up to n rows, evenly spaced.
func sample(rows kernels.Rows, n int) []float32 {
	d := rows.Dim()
	n = min(n, rows.Len())
	some := make([]float32, n*d)
	for i := range n {
		rows.Widen(some[i*d:(i+1)*d], i*rows.Len()/n)
	}
	return some
}

// gram sets dst[k] to X^T X v_k over the rows X, for all rows v_k of vectors.
func gram(dst [][]float64, x, vectors []float32) error {
	const block = 64 // rows that stay in the second-level cache
	d := len(dst[0])
	return parallel.Each(context.Background(), 0, len(dst), 1, nil, func(_, k, _ int) error {
		var products [block]float64
		clear(dst[k])
		for at := 0; at < len(x); at += block * d {
			rows := x[at:min(at+block*d, len(x))]
			n := len(rows) / d
			kernels.Float32Rows(rows, d).RefScan(products[:n], nil, vectors[k*d:(k+1)*d])
			for i, p := range products[:n] {
				kernels.Axpy(dst[k], float32(p), rows[i*d:(i+1)*d])
			}
		}
		return nil
	})
}

// coordinates are a layer in the first of the coordinates of a view.
type coordinates struct {
	*moments
	width int
	to    []float32 // width x d: U^T
	rows  []float32 // L x width: W' M U
	rest  []float64 // L: E[r_s^2]
}

// coordinates finds U by subspace iteration from the contexts themselves.
func (m *moments) coordinates(width int) (*coordinates, error) {
	d, n := m.layer.Dim(), len(m.contexts)/m.layer.Dim()
	c := &coordinates{moments: m, width: width, to: make([]float32, width*d)}
	u, images, lengths := make([][]float64, width), make([][]float64, width), make([]float64, width)
	through := make([]float32, width*d) // (M U)^T
	for k := range u {
		u[k], images[k] = make([]float64, d), make([]float64, d)
		copy(through[k*d:(k+1)*d], m.contexts[k*n/width*d:])
	}
	for range viewRounds {
		if err := gram(u, m.rows, through); err != nil {
			return nil, err
		}
		// float32 holds vectors of length 1 whatever the scale of the layer.
		for k, v := range u {
			if length := math.Sqrt(linear.Dot(v, v)); length > 0 {
				for j := range v {
					c.to[k*d+j] = float32(v[j] / length)
					v[j] = float64(c.to[k*d+j])
				}
			}
		}
		if err := gram(images, m.contexts, c.to); err != nil {
			return nil, err
		}
		linear.Orthonormalise(lengths, u, images)
		for k := range u {
			for j, x := range u[k] {
				// Both sums are of n contexts.
				c.to[k*d+j] = float32(x * math.Sqrt(float64(n)))
				through[k*d+j] = float32(images[k][j] / math.Sqrt(float64(n)))
			}
		}
	}
	return c, c.turn(through)
}

// turn finds the rows in the coordinates, and what these leave out of the held contexts.
func (c *coordinates) turn(through []float32) error {
	d, labels, held := c.layer.Dim(), c.layer.Labels(), len(c.held)/c.layer.Dim()
	left, z := make([]float32, len(c.held)), make([]float64, c.width)
	for i := range held {
		h, sum := c.held[i*d:(i+1)*d], make([]float64, d)
		kernels.Float32Rows(c.to, d).RefScan(z, nil, h)
		for k, x := range z {
			kernels.Axpy(sum, float32(x), through[k*d:(k+1)*d])
		}
		for j, x := range sum {
			left[i*d+j] = float32(float64(h[j]) - x)
		}
	}
	c.rows, c.rest = make([]float32, labels*c.width), make([]float64, labels)
	return parallel.Each(context.Background(), 0, labels, hashedRows, nil, func(_, lo, hi int) error {
		row, a, r := make([]float32, d), make([]float64, c.width), make([]float64, held)
		for s := lo; s < hi; s++ {
			c.layer.rows.Widen(row, s)
			for j, m := range c.mean {
				row[j] -= m
			}
			kernels.Float32Rows(through, d).RefScan(a, nil, row)
			for k, x := range a {
				c.rows[s*c.width+k] = float32(x)
			}
			kernels.Float32Rows(left, d).RefScan(r, nil, row)
			c.rest[s] = linear.Dot(r, r) / float64(held)
		}
		return nil
	})
}

// view returns the view in the first width of the coordinates.
func (c *coordinates) view(width int, deviations float64) (*View, error) {
	d, labels := c.layer.Dim(), c.layer.Labels()
	rows, rest := make([]float32, labels*width), make([]float32, labels)
	for s := range labels {
		all := c.rows[s*c.width : (s+1)*c.width]
		copy(rows[s*width:(s+1)*width], all)
		square := c.rest[s]
		for _, x := range all[width:] {
			square += float64(float64(x) * float64(x))
		}
		if rest[s] = float32(math.Sqrt(square)); !(rest[s] <= math.MaxFloat32) {
			return nil, fmt.Errorf("softmax: view: label %d: found a deviation of %v, expected smaller weights or contexts", s, rest[s])
		}
	}
	v := &View{layer: c.layer, width: width}
	var err error
	if v.to, err = panelsOfRows(kernels.Float32Rows(c.to[:width*d], d), nil, nil, 0); err == nil {
		// An interval of the codes is as long as the norm of z, the square root of width standard
		// deviations.
		v.rows, err = panelsOfRows(kernels.Float32Rows(rows, width), c.layer.bias, rest, deviations/math.Sqrt(float64(width)))
	}
	return v, err
}

// panelsOfRows returns the codes of rows in panels, with intervals as Estimate makes them if there
// are rests.
func panelsOfRows(rows kernels.Rows, bias, rests []float32, factor float64) (*kernels.Int8Panels, error) {
	n := rows.Len()
	records, release := bigmem.Alloc(n * kernels.Int8Stride(rows.Dim()))
	if release != nil {
		defer release()
	}
	codes, err := kernels.NewInt8Rows(records, rows, bias)
	if err != nil {
		return nil, fmt.Errorf("softmax: view: %w", err)
	}
	if rests != nil {
		codes.Estimate(rests, factor)
	}
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i)
	}
	table, free := bigmem.Alloc(panelsOf(n) * kernels.Int8PanelBytes(rows.Dim()))
	panels, err := codes.Panels(table, ids, []int{0, n})
	return own(panels, err, free), err
}

// cost returns the bytes that searches for five labels read, about, in all.
func (v *View) cost(contexts []float32) (sum float64) {
	s, d, labels := v.NewSearcher(), v.layer.Dim(), v.layer.Labels()
	dst := make([]Prediction, min(5, labels))
	for at := 0; at < len(contexts); at += d {
		sum += float64(v.rows.Len() * kernels.Int8PanelBytes(v.width))
		left := labels
		if a, err := s.Search(dst, contexts[at:at+d], Request{K: len(dst)}); err == nil && a.Source == FromSet {
			left = survivorRows * len(s.list)
		}
		sum += float64(left * kernels.Int8Stride(d))
	}
	return sum
}
