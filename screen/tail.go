package screen

import (
	"fmt"
	"math"

	"github.com/learning-to-screen/l2s/kernels"
)

// Tail is a low-rank stand-in W~ = A B for the weights of a layer, with A
// labels x rank and B rank x dim. A probability over all labels takes the logits
// w~_s.h + b_s for the labels outside a candidate set (the paper's appendix,
// "Perplexity Results"). The bias is the layer's, exact. A Tail is immutable and safe for use by many goroutines.
type Tail struct {
	columns []float32 // A by columns: rank x labels
	rows    []float32 // B: rank x dim
	labels  int
	dim     int
	rank    int
}

// tailBlock is the number of labels whose logits stay in the first-level cache
// while the columns of A are added up.
const tailBlock = 1024

// NewTail returns the tail with the given factors: columns is A by columns,
// rank x labels, and rows is B, rank x dim, both row-major. The rank is what
// the lengths say. The slices are kept, not copied, and must not be changed.
//
// It returns an error if the lengths do not fit each other, if the rank is
// not within 1 and the smaller of labels and dim, or if an element is NaN or
// infinite.
func NewTail(columns, rows []float32, labels, dim int) (*Tail, error) {
	if labels < 1 || dim < 1 {
		return nil, fmt.Errorf("screen: tail: found %d labels and dim %d, expected at least 1 of each", labels, dim)
	}
	rank := len(rows) / dim
	if most := min(labels, dim); len(rows)%dim != 0 || rank < 1 || rank > most {
		return nil, fmt.Errorf("screen: tail: rows: found %d elements, expected 1 to %d rows of dim %d", len(rows), most, dim)
	}
	if len(columns)%labels != 0 || len(columns)/labels != rank {
		return nil, fmt.Errorf("screen: tail: columns: found %d elements, expected one for each of %d labels in %d columns", len(columns), labels, rank)
	}
	t := &Tail{columns: columns, rows: rows, labels: labels, dim: dim, rank: rank}
	if err := t.check(); err != nil {
		return nil, fmt.Errorf("screen: tail: %w", err)
	}
	return t, nil
}

func (t *Tail) check() error {
	for _, part := range []struct {
		name  string
		x     []float32
		width int
	}{{"A by columns", t.columns, t.labels}, {"B", t.rows, t.dim}} {
		if i, j, found := kernels.Float32Rows(part.x, part.width).NotFinite(); found {
			return fmt.Errorf("%s: found %v at row %d, column %d, expected finite numbers", part.name, part.x[i*part.width+j], i, j)
		}
	}
	return nil
}

// Rank returns the rank.
func (t *Tail) Rank() int { return t.rank }

// Labels returns L, the number of labels.
func (t *Tail) Labels() int { return t.labels }

// Dim returns d, the dimension of a context.
func (t *Tail) Dim() int { return t.dim }

// Columns returns A by columns, rank x labels, row-major. It must not be
// changed.
func (t *Tail) Columns() []float32 { return t.columns }

// Rows returns B, rank x dim, row-major. It must not be changed.
func (t *Tail) Rows() []float32 { return t.rows }

// Logits writes w~_s.h + b_s for every label to dst; bias is b, both of L
// elements, and h is the context. It panics if a length differs. Beyond a rank of
// 64 it allocates.
//
// B h is computed by the reference arithmetic and rounded to float32; its exact
// products with A are added to the bias in float64, the leading one first. So the
// result has the same bits on every CPU.
func (t *Tail) Logits(dst []float64, bias, h []float32) {
	if len(dst) != t.labels || len(bias) != t.labels || len(h) != t.dim {
		panic("screen: length of dst, bias or h differs from the shape of the tail")
	}
	var fixed [64]float64 // for the ranks that serve
	products := fixed[:min(t.rank, len(fixed))]
	if t.rank > len(fixed) {
		products = make([]float64, t.rank)
	}
	kernels.Float32Rows(t.rows, t.dim).RefScan(products, nil, h)
	// A float32 holds the elements of B h unless the context is close to the largest of
	// its numbers: such a context is scaled by a power of 2.
	largest := 0.0
	for _, v := range products {
		largest = max(largest, math.Abs(v))
	}
	scale := 1.0
	if largest > math.MaxFloat32/2 {
		_, e := math.Frexp(largest)
		scale = math.Ldexp(1, e)
	}
	for first := 0; first < len(dst); first += tailBlock {
		end := min(first+tailBlock, len(dst))
		part, bias := dst[first:end], bias[first:end]
		if scale == 1 {
			for i, b := range bias {
				part[i] = float64(b)
			}
		} else {
			clear(part)
		}
		for k, v := range products {
			kernels.Axpy(part, float32(v/scale), t.columns[k*t.labels+first:k*t.labels+end])
		}
		if scale != 1 {
			for i, b := range bias {
				part[i] = float64(part[i]*scale) + float64(b)
			}
		}
	}
}

// Tail returns the low-rank stand-in for the weights of the layer, for labels
// outside the candidate set, or nil if the model has none.
func (m *Model) Tail() *Tail { return m.tail }

// WithTail returns the model with that tail instead of its own, nil for none:
// a screen that was trained without one needs no other training for it. The two
// share all else. It returns an error if the tail is for another shape of layer.
func (m *Model) WithTail(t *Tail) (*Model, error) {
	if err := checkTail(t, m.Labels(), m.Dim()); err != nil {
		return nil, fmt.Errorf("screen: %w", err)
	}
	with := *m
	with.tail = t
	return &with, nil
}

func checkTail(t *Tail, labels, dim int) error {
	if t != nil && (t.Labels() != labels || t.Dim() != dim) {
		return fmt.Errorf("tail: found one for %d labels and dim %d, expected %d and %d", t.Labels(), t.Dim(), labels, dim)
	}
	return nil
}
