package softmax

import (
	"fmt"
	"math"

	"github.com/learning-to-screen/l2s/kernels"
)

// Tail is a low-rank stand-in W~ = A B for the weights of a layer, with A
// labels x rank and B rank x dim: what the logits w~_s.h + b_s of the labels
// outside a candidate set are made of where a probability over all labels is
// wanted (the paper's appendix, "Perplexity Results"). The bias is the layer's,
// exact. A Tail is immutable and safe for use by many goroutines.
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
// It returns an error where the lengths do not fit each other, where the rank is
// not within 1 and the smaller of labels and dim, or where an element is NaN or
// infinite.
func NewTail(columns, rows []float32, labels, dim int) (*Tail, error) {
	if labels < 1 || dim < 1 {
		return nil, fmt.Errorf("softmax: tail: found %d labels and dim %d, expected at least 1 of each", labels, dim)
	}
	rank := len(rows) / dim
	if most := min(labels, dim); len(rows)%dim != 0 || rank < 1 || rank > most {
		return nil, fmt.Errorf("softmax: tail: rows: found %d elements, expected 1 to %d rows of dim %d", len(rows), most, dim)
	}
	if len(columns)%labels != 0 || len(columns)/labels != rank {
		return nil, fmt.Errorf("softmax: tail: columns: found %d elements, expected one for each of %d labels in %d columns", len(columns), labels, rank)
	}
	t := &Tail{columns: columns, rows: rows, labels: labels, dim: dim, rank: rank}
	return t, t.check()
}

func (t *Tail) check() error {
	if i := firstNotFinite(t.columns); i >= 0 {
		return fmt.Errorf("softmax: tail: columns: found %v at column %d, label %d, expected finite numbers", t.columns[i], i/t.labels, i%t.labels)
	}
	if i := firstNotFinite(t.rows); i >= 0 {
		return fmt.Errorf("softmax: tail: rows: found %v at row %d, column %d, expected finite numbers", t.rows[i], i/t.dim, i%t.dim)
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

// TailLogits writes logits of all labels to dst, which has L elements: those of
// the reference arithmetic for the distinct labels ids, w~_s.h + b_s for all
// others. Without a tail, nil, the others are impossible, -Inf.
//
// B h is computed by the reference arithmetic and rounded to float32; its exact
// products with A are added to the bias in float64, the leading one first. So the
// result has the same bits on every CPU.
func (l *Layer) TailLogits(dst []float64, q *Query, t *Tail, ids []uint32) {
	q.check(l)
	switch {
	case len(dst) != l.labels:
		panic("softmax: length of dst differs from the number of labels")
	case t == nil:
		for i := range dst {
			dst[i] = math.Inf(-1)
		}
	case t.labels != l.labels || t.dim != l.dim:
		panic("softmax: shape of the tail differs from that of the layer")
	default:
		l.addTail(dst, q, t)
	}
	q.logits = grow(q.logits, len(ids))
	kernels.RefGatherDot(q.logits, l.weights, l.bias, ids, q.vec.Vector())
	for j, id := range ids {
		dst[id] = q.logits[j]
	}
}

func (l *Layer) addTail(dst []float64, q *Query, t *Tail) {
	q.logits, q.scores = grow(q.logits, t.rank), grow(q.scores, t.rank)
	y := q.scores
	kernels.RefScan(q.logits, t.rows, nil, q.vec.Vector())
	// A float32 holds the elements of B h but for those of a context close to
	// the largest of its numbers: these are scaled by a power of 2.
	largest := 0.0
	for _, v := range q.logits {
		largest = max(largest, math.Abs(v))
	}
	scale := 1.0
	if largest > math.MaxFloat32/2 {
		_, e := math.Frexp(largest)
		scale = math.Ldexp(1, e)
	}
	for k, v := range q.logits {
		y[k] = float32(v / scale)
	}
	for first := 0; first < len(dst); first += tailBlock {
		end := min(first+tailBlock, len(dst))
		part, bias := dst[first:end], l.bias[first:end]
		if scale == 1 {
			for i, b := range bias {
				part[i] = float64(b)
			}
		} else {
			clear(part)
		}
		for k, a := range y {
			kernels.Axpy(part, a, t.columns[k*t.labels+first:k*t.labels+end])
		}
		if scale != 1 {
			for i, b := range bias {
				part[i] = float64(part[i]*scale) + float64(b)
			}
		}
	}
}
