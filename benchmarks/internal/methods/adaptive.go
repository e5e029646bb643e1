package methods

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"

	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
)

// AdaptiveSoftmax is adaptive softmax in inference: E. Grave, A. Joulin, M.
// Cissé, D. Grangier and H. Jégou, "Efficient softmax approximation for GPUs",
// ICML 2017.
//
// Labels are ordered by frequency and cut into a head and tails. A query
// computes the logits of the head, and those of a tail only where its class
// score says that it may hold one of the largest.
//
// The paper trains the layer in this form: a tail has a class vector in the
// head, and its labels share a projection to a lower dimension. Here the layer
// is given. Its rows stay whole, so that every logit is exact and only tails
// that stay closed cost precision. What stands for the trained class score is
// fitted to the layer itself. For tail j, by least squares over contexts,
//
//	u_j.h + c_j ~ max over the tail of w_s.h + b_s
//
// with a standard error e_j. The largest logit of a tail, and not the
// log-sum-exp that a trained class score is, decides whether the tail has a
// part in the answer. So this class score is the better of the two for the
// purpose, and it is linear, as cheap as in the paper. Tail j is opened where
//
//	u_j.h + c_j + z e_j >= the k-th largest logit so far
//
// and tails are looked at in the order of u_j.h + c_j, the largest first.
//
//   - Cutoffs are where the tails begin in the order of frequency, ascending:
//     the first is the size of the head, and the last tail ends with the last
//     label.
//   - z is the number of standard errors that a tail gets as a margin. At +Inf
//     all tails are opened, and the answer is exact; at -Inf none is.
//
// The frequency of a label is the number of contexts that have it among their
// labels (Input.Labels); equals come by their mean logit, the largest first.
type AdaptiveSoftmax struct {
	Cutoffs []int
}

// Name returns "Adaptive-softmax".
func (m AdaptiveSoftmax) Name() string { return "Adaptive-softmax" }

// Params returns the cut-offs.
func (m AdaptiveSoftmax) Params() string {
	var b strings.Builder
	b.WriteString("cutoffs=")
	for i, c := range m.Cutoffs {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, c)
	}
	return b.String()
}

// adaptiveContexts is the largest number of contexts that class scores are
// fitted to.
const adaptiveContexts = 10000

// Build orders the labels and fits the class scores, to contexts of Input at
// even distances. Cut-offs that are not below the number of labels are left
// out.
func (m AdaptiveSoftmax) Build(ctx context.Context, in *Input) (Index, error) {
	d, labels := in.Layer.Dim(), in.Layer.Labels()
	if len(m.Cutoffs) == 0 || m.Cutoffs[0] < 1 || !slices.IsSorted(m.Cutoffs) || len(slices.Compact(slices.Clone(m.Cutoffs))) != len(m.Cutoffs) {
		return nil, fmt.Errorf("methods: cut-offs: found %v, expected positive numbers that ascend", m.Cutoffs)
	}
	n := len(in.Contexts) / d
	if n == 0 {
		return nil, errors.New("methods: adaptive softmax: found no contexts, expected some to fit the class scores to")
	}
	// Every step-th context, of which there are at most adaptiveContexts.
	step := (n + adaptiveContexts - 1) / adaptiveContexts
	var contexts []float32
	for i := 0; i < n; i += step {
		contexts = append(contexts, in.Contexts[i*d:(i+1)*d]...)
	}
	x := &adaptiveIndex{labels: labels, dim: d}
	x.order = frequencyOrder(in, contexts)
	x.weights, x.bias = make([]float32, labels*d), make([]float32, labels)
	for at, s := range x.order {
		copy(x.weights[at*d:(at+1)*d], in.Layer.Weights()[int(s)*d:(int(s)+1)*d])
		x.bias[at] = in.Layer.Bias()[s]
	}
	for _, c := range m.Cutoffs {
		if c < labels {
			x.starts = append(x.starts, c)
		}
	}
	x.starts = append(x.starts, labels)
	if err := x.fit(ctx, contexts); err != nil {
		return nil, err
	}
	return x, nil
}

// frequencyOrder returns the labels by their frequency, the most frequent
// first.
func frequencyOrder(in *Input, contexts []float32) []uint32 {
	d, labels := in.Layer.Dim(), in.Layer.Labels()
	count, order := make([]int, labels), make([]uint32, labels)
	for s := range order {
		order[s] = uint32(s)
	}
	n := len(contexts) / d
	if in.Labels != nil {
		for _, s := range in.Labels {
			count[s]++
		}
	} else {
		var top [5]uint32
		var vals [5]float32
		k := min(len(top), labels)
		scores := make([]float32, labels)
		for i := range n {
			kernels.Scan(scores, in.Layer.Weights(), in.Layer.Bias(), contexts[i*d:(i+1)*d])
			kernels.TopK(top[:k], vals[:k], scores)
			for _, s := range top[:k] {
				count[s]++
			}
		}
	}
	sum := make([]float64, d)
	for i := range n {
		kernels.Axpy(sum, 1, contexts[i*d:(i+1)*d])
	}
	mean := make([]float32, d)
	for i, x := range sum {
		mean[i] = float32(x / float64(n))
	}
	logits := make([]float64, labels)
	kernels.RefScan(logits, in.Layer.Weights(), in.Layer.Bias(), mean)
	slices.SortFunc(order, func(s, t uint32) int {
		return cmp.Or(cmp.Compare(count[t], count[s]), cmp.Compare(logits[t], logits[s]), cmp.Compare(s, t))
	})
	return order
}

type adaptiveIndex struct {
	labels, dim int
	order       []uint32  // the labels by frequency
	weights     []float32 // their rows
	bias        []float32
	starts      []int // of the tails, and the number of labels

	// The class scores: u (tails x d), c, and the standard errors.
	class, offset, stdErr []float32
}

func (x *adaptiveIndex) tails() int { return len(x.starts) - 1 }

// fit fits the class scores.
func (x *adaptiveIndex) fit(ctx context.Context, contexts []float32) error {
	tails, d, n := x.tails(), x.dim, len(contexts)/x.dim
	x.class, x.offset, x.stdErr = make([]float32, tails*d), make([]float32, tails), make([]float32, tails)
	if tails == 0 {
		return nil
	}
	// The rows [h, 1] and the largest logit of each tail.
	rows, most := mat.NewDense(n, d+1, nil), mat.NewDense(n, tails, nil)
	scores := make([]float32, x.labels-x.starts[0])
	for i := range n {
		if i%64 == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		h := contexts[i*d : (i+1)*d]
		row := rows.RawRowView(i)
		for j, v := range h {
			row[j] = float64(v)
		}
		row[d] = 1
		kernels.Scan(scores, x.weights[x.starts[0]*d:], x.bias[x.starts[0]:], h)
		for j := range tails {
			most.Set(i, j, float64(slices.Max(scores[x.starts[j]-x.starts[0]:x.starts[j+1]-x.starts[0]])))
		}
	}
	// The normal equations, with a trace of ridge, so that they can be solved
	// where contexts are few or lie in a plane.
	gram := mat.NewSymDense(d+1, nil)
	blas64.Syrk(blas.Trans, 1, rows.RawMatrix(), 0, gram.RawSymmetric())
	ridge := 1e-6*mat.Trace(gram)/float64(d+1) + 1e-12
	for j := range d + 1 {
		gram.SetSym(j, j, gram.At(j, j)+ridge)
	}
	var right, solved, fitted mat.Dense
	right.Mul(rows.T(), most)
	var chol mat.Cholesky
	if !chol.Factorize(gram) {
		return errors.New("methods: adaptive softmax: the normal equations of the class scores have no solution")
	}
	if err := chol.SolveTo(&solved, &right); err != nil {
		// Ill-conditioned equations have a solution that fits as well as any.
		var condition mat.Condition
		if !errors.As(err, &condition) {
			return fmt.Errorf("methods: adaptive softmax: class scores: %w", err)
		}
	}
	fitted.Mul(rows, &solved)
	for j := range tails {
		for i := range d {
			x.class[j*d+i] = float32(solved.At(i, j))
		}
		x.offset[j] = float32(solved.At(d, j))
		square := 0.0
		for i := range n {
			e := most.At(i, j) - fitted.At(i, j)
			square += e * e
		}
		x.stdErr[j] = float32(math.Sqrt(square / float64(n)))
	}
	return nil
}

func (x *adaptiveIndex) Bytes() int64 {
	return 4 * int64(len(x.order)+len(x.weights)+len(x.bias)+len(x.class)+len(x.offset)+len(x.stdErr))
}

// adaptiveMargins are the z worth measuring.
var adaptiveMargins = []float64{math.Inf(-1), -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3}

func (x *adaptiveIndex) Settings() []Setting {
	var all []Setting
	for _, z := range adaptiveMargins {
		all = append(all, adaptiveSetting{x, z})
	}
	return all
}

type adaptiveSetting struct {
	*adaptiveIndex
	z float64
}

func (s adaptiveSetting) Params() string { return fmt.Sprintf("z=%g", s.z) }

func (s adaptiveSetting) Searcher() Searcher {
	t := &adaptiveSearcher{
		adaptiveSetting: s,
		margin:          make([]float32, s.tails()),
		class:           make([]float32, s.tails()),
		tail:            make([]int, s.tails()),
		scores:          make([]float32, s.labels),
		found:           make([]uint32, s.labels),
	}
	for j, e := range s.stdErr {
		t.margin[j] = float32(s.z)
		if !math.IsInf(s.z, 0) {
			t.margin[j] *= e
		}
	}
	return t
}

type adaptiveSearcher struct {
	adaptiveSetting
	margin []float32 // z e_j
	class  []float32 // the class scores of the query
	tail   []int     // the tails in their order
	scores []float32
	found  []uint32
}

func (s *adaptiveSearcher) TopK(dst []softmax.Prediction, h []float32) int {
	b := newBest(dst)
	s.open(&b, 0, s.starts[0], h)
	if s.tails() == 0 || math.IsInf(s.z, -1) && b.n == len(dst) {
		return b.n
	}
	kernels.Scan(s.class, s.adaptiveIndex.class, s.offset, h)
	for j := range s.tail {
		at := j
		for at > 0 && s.class[s.tail[at-1]] < s.class[j] {
			s.tail[at] = s.tail[at-1]
			at--
		}
		s.tail[at] = j
	}
	for _, j := range s.tail {
		// Too small a head must be made up for.
		if b.n < len(dst) || s.class[j]+s.margin[j] >= b.threshold() {
			s.open(&b, s.starts[j], s.starts[j+1], h)
		}
	}
	return b.n
}

// open offers the labels of a part of the order.
func (s *adaptiveSearcher) open(b *best, from, to int, h []float32) {
	scores := s.scores[:to-from]
	kernels.Scan(scores, s.weights[from*s.dim:to*s.dim], s.bias[from:to], h)
	// Only what reaches the k-th largest so far, of this part too, is of use.
	least := b.threshold()
	if k := len(b.dst); k > 0 {
		if bound, ok := kernels.KthBound(scores, k); ok {
			least = max(least, bound)
		}
	}
	for _, at := range s.found[:kernels.SelectAtLeast(s.found, scores, least)] {
		b.offer(s.order[from+int(at)], scores[at])
	}
}
