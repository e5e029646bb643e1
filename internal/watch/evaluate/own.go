package evaluate

import (
	"context"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/codes/linear"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
	"github.com/learning-to-screen/l2s/internal/ground/precision"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// OwnLead is the lead of a label in its own state over every other label, in logits.
const OwnLead = 3

const (
	ownAim        = OwnLead + 1.0/64 // what a step of the search for a state aims at
	ownLength     = 0.999            // the share of the states whose length bounds that of an own state
	ownRidge      = 1e-4             // of the mean variance of an element of a state
	ownStates     = 8192             // for the covariance
	ownLengths    = 4096             // states whose length is computed
	ownBases      = 1024             // states that own states begin at
	ownRows       = 16384            // for the mean row
	ownNeighbours = 4                // of the best labels that a step looks at
	ownSteps      = 32               // at most, of some four
)

// Own finds own states. The own state of a label s is a real state h moved as little as possible
// along M (w_s - mean row), M the covariance of real states, until s leads every other label by
// [OwnLead] logits, before a soft cap. Labels have none whose state would be longer than 99.9 of 100 real ones, in
// deviations of these (Mahalanobis), or which cannot lead, such as one of two equal rows. Texts show
// whether the labels of these texts are found; own states show it for every label.
//
// It is immutable and safe for use by many goroutines.
type Own struct {
	layer  *exact.Layer
	spread []float32 // d x d: M, with a ridge
	mean   []float32 // of the states
	row    []float32 // the mean row of the layer
	bases  []ownBase
	limit  float64 // the square of the largest length
}

// ownBase is a state that own states begin at.
type ownBase struct {
	h      []float32
	square float64 // of its length
}

// NewOwn returns a finder for a layer from finite states, row-major: some thousands. If they do not
// differ, or differ by numbers that float32 does not hold, no label has an own state. It returns an
// error if ctx is done.
func NewOwn(ctx context.Context, l *exact.Layer, states []float32) (*Own, error) {
	d := l.Dim()
	states = spreadRows(states, d, ownStates)
	n := len(states) / d
	o := &Own{layer: l, mean: meanOf(n, d, func(dst []float32, i int) { copy(dst, states[i*d:]) })}
	less := make([]float32, len(states))
	for i, x := range states {
		less[i] = x - o.mean[i%d]
	}
	m, err := linear.Moments(ctx, less, d)
	if err != nil {
		return nil, err
	}
	variance := 0.0
	for i := range d {
		variance += m.X[i*d+i] / float64(d)
	}
	if !(variance > 0x1p-100 && variance < 0x1p100) {
		return o, nil
	}
	o.spread = make([]float32, d*d)
	for i, x := range m.X {
		if i%(d+1) == 0 {
			x += float64(ownRidge * variance)
			m.X[i] = x
		}
		o.spread[i] = float32(x)
	}
	factor, ok := linear.Cholesky(m)
	if !ok {
		return o, nil
	}
	less = spreadRows(less, d, ownLengths)
	squares := make([]float64, len(less)/d)
	whiten := inverse(factor)
	err = parallel.Each(ctx, 0, len(squares), 64, nil, func(_, lo, hi int) error {
		z := make([]float64, d)
		for i := lo; i < hi; i++ {
			whiten.RefScan(z, nil, less[i*d:(i+1)*d])
			squares[i] = linear.Dot(z, z)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	o.limit = slices.Sorted(slices.Values(squares))[int(ownLength*float64(len(squares)-1))]
	for i := range min(ownBases, len(squares)) {
		at := i * len(squares) / min(ownBases, len(squares))
		if squares[at] <= o.limit {
			of := at * n / len(squares) // as spreadRows takes them
			o.bases = append(o.bases, ownBase{states[of*d : (of+1)*d], squares[at]})
		}
	}
	labels := l.Labels()
	some := min(labels, ownRows)
	o.row = meanOf(some, d, func(dst []float32, i int) { l.Weights().Widen(dst, i*labels/some) })
	return o, nil
}

// spreadRows returns at most that many of the rows of x, from all parts of it.
func spreadRows(x []float32, d, most int) []float32 {
	n := len(x) / d
	if n <= most {
		return x
	}
	some := make([]float32, 0, most*d)
	for i := range most {
		at := i * n / most
		some = append(some, x[at*d:(at+1)*d]...)
	}
	return some
}

// meanOf returns the mean of n rows.
func meanOf(n, d int, read func(dst []float32, i int)) []float32 {
	sum, row, mean := make([]float64, d), make([]float32, d), make([]float32, d)
	for i := range n {
		read(row, i)
		for j, x := range row {
			sum[j] += float64(x)
		}
	}
	for j, x := range sum {
		mean[j] = float32(x / float64(n))
	}
	return mean
}

// inverse returns the inverse of a lower matrix.
func inverse(lower linear.Matrix) kernels.Rows {
	d := lower.Rows
	x, rows := linear.New(d, d), make([]float32, d*d)
	for i := range d {
		row, of := x.Row(i)[:i+1], lower.Row(i)
		row[i] = 1
		for k := range i {
			linear.Axpy(row[:k+1], -of[k], x.Row(k)[:k+1])
		}
		for j := range row {
			row[j] /= of[i]
			rows[i*d+j] = float32(row[j])
		}
	}
	return kernels.Float32Rows(rows, d)
}

// OwnSample returns n labels of a layer of that many, ascending, all if there are fewer: of each of
// n equal parts one, which the seed decides.
func OwnSample(labels, n int, seed uint64) []uint32 {
	n = min(n, labels)
	ids := make([]uint32, n)
	for i := range ids {
		lo, hi := i*labels/n, (i+1)*labels/n
		ids[i] = uint32(lo + int(scattered(seed, uint64(i))%uint64(hi-lo)))
	}
	return ids
}

// scattered returns a number for the i-th use of a seed.
func scattered(seed, i uint64) uint64 {
	x := seed*0x9E3779B97F4A7C15 + i + 0x632BE59BD9B4E019
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// Method is a search that own states measure. It is for one goroutine.
type Method interface {
	// TopK finds the best labels of a context, nearly always, with their logits: it leads to an own
	// state in fewer steps than the exact search, which then decides if this method is wrong.
	TopK(dst []exact.Prediction, h []float32) (int, error)
	// Finds returns the first of the method's rungs that finds the label, which is the best of the
	// context, their number if none does, and whether the state is to be found again, by exact
	// searches, because the label is missed.
	Finds(id uint32, h []float32) (rung int, missed bool, err error)
}

// NoState is the outcome of a label that has no own state.
const NoState = -1

// Outcomes returns for each of the labels the first rung that finds it in its own state, or
// [NoState]. Every state that TopK misses is found by exact searches. done gets numbers of labels.
func (o *Own) Outcomes(ctx context.Context, ids []uint32, seed uint64, fresh func() Method, done func(int)) ([]int, error) {
	nearest := make([]exact.Prediction, len(o.bases)*ownNeighbours)
	counts := make([]int, len(o.bases))
	err := parallel.With(ctx, 0, len(o.bases), 16, nil, fresh, func(m Method, lo, hi int) (err error) {
		for i := lo; i < hi && err == nil; i++ {
			counts[i], err = m.TopK(nearest[i*ownNeighbours:][:min(ownNeighbours, o.layer.Labels())], o.bases[i].h)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	outcomes := make([]int, len(ids))
	if len(o.bases) == 0 {
		for i := range outcomes {
			outcomes[i] = NoState
		}
		return outcomes, nil
	}
	finder := func() *ownFinder { return newOwnFinder(o, fresh()) }
	return outcomes, parallel.With(ctx, 0, len(ids), 16, done, finder, func(f *ownFinder, lo, hi int) error {
		for i := lo; i < hi; i++ {
			at := int(scattered(seed, uint64(ids[i])) % uint64(len(o.bases)))
			rung, err := f.outcome(ids[i], &o.bases[at], nearest[at*ownNeighbours:][:counts[at]])
			if err != nil {
				return err
			}
			outcomes[i] = rung
		}
		return nil
	})
}

// OwnShare returns the number of own states of some outcomes, and the share of them that a rung
// finds, 0 if there are none.
func OwnShare(outcomes []int, rung int) (states int, found precision.Estimate) {
	var missed []int
	for _, first := range outcomes {
		if first == NoState {
			continue
		}
		if missed = append(missed, 0); first > rung {
			missed[len(missed)-1] = 1
		}
	}
	if len(missed) > 0 {
		found = precision.Interval(missed, 1)
	}
	return len(missed), found
}

// ownFinder finds own states, one after the other. The state is h + x u of a base h, where u has
// length 1.
type ownFinder struct {
	o      *Own
	method Method
	exact  *exact.Searcher // nil before the first use
	id     uint32
	base   *ownBase
	x      float64
	most   float64 // x may be
	w      []float32
	u      []float32
	u64    []float64
	state  []float32
	best   [ownNeighbours]exact.Prediction
	ids    []uint32
	logits []float64
	slopes []float64
}

func newOwnFinder(o *Own, m Method) *ownFinder {
	d := o.layer.Dim()
	return &ownFinder{
		o: o, method: m, w: make([]float32, d), u: make([]float32, d), u64: make([]float64, d), state: make([]float32, d),
		ids: make([]uint32, ownNeighbours+1), logits: make([]float64, ownNeighbours+1), slopes: make([]float64, ownNeighbours+1),
	}
}

// outcome returns the first rung that finds the label in its own state, or NoState.
func (f *ownFinder) outcome(id uint32, base *ownBase, best []exact.Prediction) (int, error) {
	if !f.begin(id, base) {
		return NoState, nil
	}
	if _, ok := f.step(best); !ok {
		return NoState, nil
	}
	if ok, err := f.settle(f.method.TopK); !ok || err != nil {
		return NoState, err
	}
	rung, missed, err := f.method.Finds(id, f.state)
	if !missed || err != nil {
		return rung, err
	}
	if f.exact == nil {
		f.exact = exact.NewSearcher(f.o.layer)
	}
	if ok, err := f.settle(f.exact.TopK); !ok || err != nil {
		return NoState, err
	}
	rung, _, err = f.method.Finds(id, f.state)
	return rung, err
}

// begin sets the line on which the own state of a label lies. It reports false if it has none.
func (f *ownFinder) begin(id uint32, base *ownBase) bool {
	o, d := f.o, f.o.layer.Dim()
	f.id, f.base, f.x = id, base, 0
	o.layer.Weights().Widen(f.w, int(id))
	for j := range f.w {
		f.w[j] -= o.row[j]
	}
	kernels.Float32Rows(o.spread, d).RefScan(f.u64, nil, f.w)
	// The inverse of M times M w is w: the length of M w, squared, is its product with w, and so on.
	square, along := 0.0, 0.0
	for j, w := range f.w {
		square += float64(f.u64[j] * float64(w))
		along += float64(float64(base.h[j]-o.mean[j]) * float64(w))
	}
	length := math.Sqrt(square)
	if !(length > 0x1p-100 && length < 0x1p100) {
		return false
	}
	along /= length
	for j, x := range f.u64 {
		f.u[j] = float32(x / length)
	}
	f.most = math.Sqrt(float64(along*along)+o.limit-base.square) - along
	f.place()
	return f.most >= 0
}

// step moves the state on until the label leads these others by enough. It reports whether it had to,
// and false if that is not possible.
func (f *ownFinder) step(others []exact.Prediction) (moved, ok bool) {
	ids := append(f.ids[:0], f.id)
	for _, p := range others {
		if p.ID != f.id {
			ids = append(ids, p.ID)
		}
	}
	logits, slopes := f.logits[:len(ids)], f.slopes[:len(ids)]
	rows := f.o.layer.Weights()
	rows.RefGatherDot(logits, f.o.layer.Bias(), ids, f.state)
	rows.RefGatherDot(slopes, nil, ids, f.u)
	far, scale := 0.0, f.o.layer.Scale()
	for i := 1; i < len(ids); i++ {
		if lead := (logits[0] - logits[i]) * scale; lead < OwnLead {
			slope := (slopes[0] - slopes[i]) * scale
			if !(slope > 0) {
				return false, false
			}
			far = max(far, (ownAim-lead)/slope)
		}
	}
	if far == 0 {
		return false, true
	}
	f.x += far
	f.place()
	return true, f.x <= f.most
}

// place computes the state.
func (f *ownFinder) place() {
	for j, h := range f.base.h {
		f.state[j] = h + float32(f.x*float64(f.u[j]))
	}
}

// settle moves the state on until the label leads all others by enough, as a search shows. Each lead
// is a line in x, so a step ends below the end or at it, about. It reports false if the label has no
// own state.
func (f *ownFinder) settle(search func(dst []exact.Prediction, h []float32) (int, error)) (bool, error) {
	for range ownSteps {
		n, err := search(f.best[:min(ownNeighbours, f.o.layer.Labels())], f.state)
		if err != nil {
			return false, err
		}
		if moved, ok := f.step(f.best[:n]); !moved || !ok {
			return ok, nil
		}
	}
	return false, nil
}
