package methods

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/learning-to-screen/l2s/internal/codes/floats"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
	"github.com/learning-to-screen/l2s/internal/search/dense"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"
)

// AdaptiveSoftmax is adaptive softmax in inference: E. Grave, A. Joulin, M. Cissé, D. Grangier and
// H. Jégou, "Efficient softmax approximation for GPUs", ICML 2017.
//
// Labels are ordered by frequency and cut into a head and tails. A query computes the logits of the
// head, and the logits of a tail only if its class score allows one of the largest logits in it.
//
// The paper trains the layer in this form: a tail has a class vector in the head, and its labels
// share a projection to a lower dimension. Here the layer is given. Its rows are not projected:
// head and tails are layers of package l2s, every logit is exact, and only tails that stay
// closed cost precision. The class score, which the paper trains, is fitted to the layer itself.
// For tail j, by least squares over contexts,
//
//	u_j.h + c_j ~ max over the tail of w_s.h + b_s
//
// with a standard error e_j. A trained class score is the log-sum-exp of its tail. But the largest
// logit decides whether the tail has a part in the answer, and on the layer of a language model a
// score fitted to it did as well as one fitted to the log-sum-exp, or better. It is linear, as
// cheap as in the paper. Tail j is opened where
//
//	u_j.h + c_j + z e_j >= the k-th largest logit so far
//
// and tails are looked at in the order of u_j.h + c_j, the largest first.
//
//   - Cutoffs are where the tails begin in the order of frequency, ascending:
//     the first is the size of the head, and the last tail ends with the last
//     label. Without any, the head is all there is.
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

// adaptiveContexts is the largest number of contexts that class scores are fitted to.
const adaptiveContexts = 10000

// Build orders the labels and fits the class scores, to contexts of Input at even distances.
// Cut-offs that are not below the number of labels are left out.
func (m AdaptiveSoftmax) Build(ctx context.Context, in *Input) (Index, error) {
	d, labels := in.Layer.Dim(), in.Layer.Labels()
	last := 0
	for _, c := range m.Cutoffs {
		if c <= last {
			return nil, fmt.Errorf("methods: cut-offs: found %v, expected positive numbers that ascend", m.Cutoffs)
		}
		last = c
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
	order := frequencyOrder(in, contexts)
	x := &adaptiveIndex{dim: d}
	from := 0
	for _, to := range append(slices.Clone(m.Cutoffs), labels) {
		if to = min(to, labels); to == from {
			break
		}
		part, err := newPart(in.Layer, order[from:to])
		if err != nil {
			return nil, err
		}
		x.parts = append(x.parts, part)
		from = to
	}
	if err := x.fit(ctx, contexts); err != nil {
		return nil, err
	}
	return x, nil
}

// part is the head or a tail: some labels, as a separate layer.
type part struct {
	layer   *exact.Layer
	weights []float32
	ids     []uint32 // of its rows, ascending: among equal logits the lower id comes first
}

// newPart copies the rows of labels.
func newPart(l *exact.Layer, labels []uint32) (*part, error) {
	p, d, w := &part{ids: slices.Sorted(slices.Values(labels))}, l.Dim(), dense.Weights(l)
	var bias []float32
	for _, s := range p.ids {
		p.weights = append(p.weights, w[int(s)*d:(int(s)+1)*d]...)
		bias = append(bias, l.Bias()[s])
	}
	var err error
	p.layer, err = exact.NewLayer(kernels.Float32Rows(p.weights, d), bias)
	return p, err
}

// bytes is the memory of the part: ids, rows and bias, and the 8-bit and 4-bit
// codes that a layer has of them, a small one without the latter.
func (p *part) bytes() int64 {
	d := p.layer.Dim()
	return int64(len(p.ids)) * int64(4+4*(d+1)+kernels.Int8Stride(d)+kernels.Int4Stride(d))
}

// frequencyOrder returns the labels by their frequency among in.Labels, the most
// frequent first, and equals by their mean logit over contexts. Without in.Labels
// the frequency is that among the best of contexts.
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
		scores, w := make([]float32, labels), dense.Weights(in.Layer)
		for i := range n {
			floats.Scan(scores, w, in.Layer.Bias(), contexts[i*d:(i+1)*d])
			floats.TopK(top[:k], vals[:k], scores)
			for _, s := range top[:k] {
				count[s]++
			}
		}
	}
	sum := make([]float64, d)
	for i := range n {
		floats.Axpy(sum, 1, contexts[i*d:(i+1)*d])
	}
	mean := make([]float32, d)
	for i, x := range sum {
		mean[i] = float32(x / float64(n))
	}
	logits := make([]float64, labels)
	in.Layer.Weights().RefScan(logits, in.Layer.Bias(), mean)
	slices.SortFunc(order, func(s, t uint32) int {
		return cmp.Or(cmp.Compare(count[t], count[s]), cmp.Compare(logits[t], logits[s]), cmp.Compare(s, t))
	})
	return order
}

type adaptiveIndex struct {
	dim   int
	parts []*part // the head and the tails

	// The class scores: u (tails x d), c, and the standard errors.
	class, offset, stdErr []float32
}

func (x *adaptiveIndex) tails() []*part { return x.parts[1:] }

// fit fits the class scores.
func (x *adaptiveIndex) fit(ctx context.Context, contexts []float32) error {
	tails, d, n := len(x.tails()), x.dim, len(contexts)/x.dim
	x.class, x.offset, x.stdErr = make([]float32, tails*d), make([]float32, tails), make([]float32, tails)
	if tails == 0 {
		return nil
	}
	// The rows [h, 1] and the largest logit of each tail.
	rows, most := mat.NewDense(n, d+1, nil), mat.NewDense(n, tails, nil)
	searchers := make([]*exact.Searcher, tails)
	for j, tail := range x.tails() {
		searchers[j] = exact.NewSearcher(tail.layer)
	}
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
		for j, s := range searchers {
			var top [1]exact.Prediction
			if _, err := s.TopK(top[:], h); err != nil {
				return fmt.Errorf("methods: adaptive softmax: context %d: %w", i, err)
			}
			most.Set(i, j, top[0].Logit)
		}
	}
	// The normal equations, with a trace of ridge, so that they can be solved where contexts are
	// few or in a plane.
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
	n := 4 * int64(len(x.class)+len(x.offset)+len(x.stdErr))
	for _, p := range x.parts {
		n += p.bytes()
	}
	return n
}

// adaptiveMargins are the z worth measuring.
var adaptiveMargins = []float64{math.Inf(-1), -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3}

func (x *adaptiveIndex) Settings() []Setting { return settings("z=%g", adaptiveMargins, x.searcher) }

func (x *adaptiveIndex) searcher(z float64) Searcher {
	tails := len(x.tails())
	t := &adaptiveSearcher{
		adaptiveIndex: x, z: z,
		exact:  make([]exactSearch, len(x.parts)),
		margin: make([]float32, tails),
		score:  make([]float32, tails),
		order:  make([]int, tails),
	}
	for i, p := range x.parts {
		t.exact[i] = newExactSearch(p.layer)
	}
	for j, e := range x.stdErr {
		t.margin[j] = float32(z)
		if !math.IsInf(z, 0) {
			t.margin[j] *= e
		}
	}
	return t
}

type adaptiveSearcher struct {
	*adaptiveIndex
	z      float64
	exact  []exactSearch // of each part
	margin []float32     // z e_j
	score  []float32     // the class scores of the query
	order  []int         // the tails, the largest score first
	found  []exact.Prediction

	// Of Logits alone.
	logits []float64 // where to write them; nil in TopK
	top    []exact.Prediction
	scores []float32 // of a part
	ids    []uint32
	values []float32
}

// LogitSearcher is a Searcher that gives all the logits that it computes, for a perplexity.
type LogitSearcher interface {
	Searcher
	// Logits writes the logits of all labels that a search for the k largest computes, in float32,
	// to dst, each at its label, and does not change the other elements of dst. dst has an element
	// for each label.
	Logits(dst []float64, h []float32, k int)
}

func (s *adaptiveSearcher) TopK(dst []exact.Prediction, h []float32) int {
	if len(dst) == 0 {
		return 0
	}
	return s.search(dst, h)
}

// Logits writes the logits of the head and of the tails that TopK opens for k labels.
func (s *adaptiveSearcher) Logits(dst []float64, h []float32, k int) {
	s.top, s.logits = mem.Grow(s.top, max(k, 1)), dst
	s.search(s.top, h)
	s.logits = nil
}

// search opens the head, and those tails that may hold one of the len(dst) largest logits.
func (s *adaptiveSearcher) search(dst []exact.Prediction, h []float32) int {
	b := best{dst: dst}
	s.open(&b, 0, h)
	if len(s.order) == 0 || math.IsInf(s.z, -1) && b.full() {
		return b.n
	}
	floats.Scan(s.score, s.class, s.offset, h)
	for j, score := range s.score {
		at := j
		for ; at > 0 && s.score[s.order[at-1]] < score; at-- {
			s.order[at] = s.order[at-1]
		}
		s.order[at] = j
	}
	for _, j := range s.order {
		// Too small a head must be made up for.
		if !b.full() || s.score[j]+s.margin[j] >= float32(dst[b.n-1].Logit) {
			s.open(&b, 1+j, h)
		}
	}
	return b.n
}

// open offers the best of part i.
func (s *adaptiveSearcher) open(b *best, i int, h []float32) {
	p := s.parts[i]
	k := min(len(b.dst), len(p.ids))
	s.found = mem.Grow(s.found, k)
	if s.logits == nil {
		s.exact[i].topK(s.found, h, exact.Labels{})
	} else {
		s.scan(p, h)
	}
	for _, found := range s.found {
		found.ID = p.ids[found.ID]
		if !b.offer(found) {
			break
		}
	}
}

// scan writes the logits of a part, and finds the best of it.
func (s *adaptiveSearcher) scan(p *part, h []float32) {
	s.scores, s.ids, s.values = mem.Grow(s.scores, len(p.ids)), mem.Grow(s.ids, len(s.found)), mem.Grow(s.values, len(s.found))
	floats.Scan(s.scores, p.weights, p.layer.Bias(), h)
	for i, x := range s.scores {
		s.logits[p.ids[i]] = float64(x)
	}
	floats.TopK(s.ids, s.values, s.scores)
	for i := range s.found {
		s.found[i] = exact.Prediction{ID: s.ids[i], Logit: float64(s.values[i])}
	}
}
