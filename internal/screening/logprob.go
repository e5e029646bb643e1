package screening

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/exact"
	"github.com/learning-to-screen/l2s/internal/grow"
	"github.com/learning-to-screen/l2s/internal/kernels"
)

// ErrNoTail is the error, by errors.Is, of calls that need a tail: probabilities over all labels.
var ErrNoTail = errors.New("screen: found a model without a tail, expected one for log-probabilities, as l2s train makes it unless its options leave it out")

// LogProb is screen.Searcher.LogProb.
func (s *Searcher) LogProb(h []float32, id uint32, temperature float64) (float64, error) {
	if int64(id) >= int64(s.model.c.Labels) {
		return 0, exact.Invalid(exact.ErrRequest, "screen: id: found %d, expected one below the %d labels", id, s.model.c.Labels)
	}
	if err := s.checkTail(temperature); err != nil {
		return 0, err
	}
	v, err := s.look(h, s.rung)
	if err != nil {
		return 0, err
	}
	var rest Rest
	known, req := rest.set(v, temperature), exact.Request{LogSum: true, Temperature: temperature}
	if req.ExactSum = !known; known {
		req.Among = v.first(len(v.head()))
	}
	logit, sum, err := v.layer().LogitAndSum(v.Query(), id, &req)
	if err != nil {
		return 0, err
	}
	logit /= temperature
	if known {
		tail := rest.at(temperature, 0).Log
		if tail < logit && !slices.Contains(v.head(), id) {
			tail = logit // it is one of the labels of the tail
		}
		sum = kernels.LogAddExp(sum, tail)
	}
	return min(logit-sum, 0), nil
}

func (s *Searcher) checkTail(temperature float64) error {
	if s.model.c.Tail == nil {
		return ErrNoTail
	}
	return checkTemperature(temperature)
}

func checkTemperature(temperature float64) error {
	if !(temperature >= exact.MinTemperature && temperature <= math.MaxFloat64) {
		return exact.Invalid(exact.ErrRequest, "screen: temperature: found %v, expected a finite number of at least %v", temperature, exact.MinTemperature)
	}
	return nil
}

// Interval is screen.Interval.
type Interval struct {
	// Log is the estimate, Low and High are the ends, -Inf and +Inf if nothing is known.
	Log, Low, High float64
}

// noLabels is the log of the sum over no labels.
var noLabels = Interval{math.Inf(-1), math.Inf(-1), math.Inf(-1)}

// LogSum is screen.Searcher.LogSum.
func (s *Searcher) LogSum(h []float32, temperature, confidence float64) (Interval, error) {
	if !(confidence >= 0 && confidence < 1) {
		return Interval{}, exact.Invalid(exact.ErrRequest, "screen: confidence: found %v, expected at least 0 and below 1", confidence)
	}
	if err := s.checkTail(temperature); err != nil {
		return Interval{}, err
	}
	v, err := s.look(h, s.rung)
	if err != nil {
		return Interval{}, err
	}
	var rest Rest
	if !rest.set(v, temperature) {
		x, err := v.sumOfLayer(&exact.Request{LogSum: true, ExactSum: true, Temperature: temperature})
		return Interval{x, x, x}, err
	}
	tail, err := v.outside(&rest, nil, temperature, confidence)
	if err != nil {
		return Interval{}, err
	}
	m := v.scratch()
	m.terms = grow.Slice(m.terms, len(m.logits)+1)
	for i, x := range m.logits {
		m.terms[i] = x / temperature
	}
	with := func(tail float64) float64 {
		if math.IsInf(tail, 1) {
			return tail
		}
		m.terms[len(m.terms)-1] = tail
		return kernels.LogSumExp(m.terms)
	}
	return Interval{with(tail.Log), with(tail.Low), with(tail.High)}, nil
}

// Head holds the candidates of a context, for draws.
type Head struct {
	// IDs are the candidates. The first Known of them are not in the model's tail. IDs must not be
	// changed.
	IDs   []uint32
	Known int
	// Lower and Upper are the ends of intervals that contain their logits. They are scratch of the
	// searcher, valid until its next call except Logits; the caller may change them.
	Lower, Upper []float32
}

// Head returns the candidates of h within a budget, 0 for the searcher's own, and the labels that
// are not in the tail, and sets rest to the estimate of the others. It returns false if the caller
// must ask the exact layer: if there are no candidates, the tail does not cover such contexts, or h
// has no intervals. Errors are as from Search, and [ErrNoTail].
func (s *Searcher) Head(h []float32, budget float64, rest *Rest) (Head, bool, error) {
	if s.model.c.Tail == nil {
		return Head{}, false, ErrNoTail
	}
	rung, err := s.rungOf(budget)
	if err != nil {
		return Head{}, false, err
	}
	v, err := s.look(h, rung)
	if err != nil || !rest.setAll(v) {
		return Head{}, false, err
	}
	known := len(v.head())
	n := max(v.N, known)
	lower, upper, err := v.layer().Bounds(v.Query(), v.first(n))
	return Head{v.Model().first(v.Cell, n), known, lower, upper}, lower != nil, err
}

// Logits writes the logits of labels, by the reference arithmetic, in the context of the last query
// to dst. It panics if an id is not below L.
func (s *Searcher) Logits(dst []float64, ids []uint32) error {
	return s.layer.Logits(dst, s.query[0], exact.Only(ids))
}

// outside writes the labels of the head of the cell, ascending, and after them the labels of others
// that are not in the head, to the ids of the scratch, and their logits to its logits. It returns
// the log of the sum of e^(x/T) over all other labels, at a temperature that the tail covers: the
// rest, less the labels with known logits.
func (v *View) outside(rest *Rest, others []uint32, temperature, confidence float64) (Interval, error) {
	m := v.scratch()
	m.ids = append(m.ids[:0], v.head()...)
	slices.Sort(m.ids)
	head := len(m.ids)
	for _, id := range others {
		if _, known := slices.BinarySearch(m.ids[:head], id); !known {
			m.ids = append(m.ids, id)
		}
	}
	m.logits = grow.Slice(m.logits, len(m.ids)+1)[:len(m.ids)]
	if err := v.layer().Logits(m.logits, v.Query(), exact.Only(m.ids)); err != nil {
		return Interval{}, err
	}
	if len(m.ids) == v.Model().c.Labels {
		return noLabels, nil
	}
	tail := rest.at(temperature, confidence)
	if len(m.ids) == head {
		return tail, nil
	}
	m.terms = m.terms[:0]
	for _, x := range m.logits[head:] {
		m.terms = append(m.terms, x/temperature)
	}
	known := kernels.LogSumExp(m.terms)
	return Interval{kernels.LogSubExp(tail.Log, known), kernels.LogSubExp(tail.Low, known), kernels.LogSubExp(tail.High, known)}, nil
}

// maxBanned bounds the labels whose share of the tail is computed to take it off.
const maxBanned = 256

// overTail makes log-sums sums over all labels, see Options.OverTail.
type overTail struct{}

func (overTail) Before(*exact.Query) Wish { return Sees }

func (overTail) After(v *View) error {
	if !v.request.LogSum || v.answer.Source != exact.FromSet {
		return nil
	}
	sum, err := v.sumOverTail()
	v.answer.LogSum = max(v.answer.LogSum, sum) // the labels of the answer are not more than certain
	return err
}

// sumOverTail returns the log of the sum of e^(x/T) over all labels that the request permits, with
// its edits.
func (v *View) sumOverTail() (float64, error) {
	req, m := &v.request, v.scratch()
	temperature := cmp.Or(req.Temperature, 1)
	var rest Rest
	switch {
	case req.ExactSum, req.Allowed != nil, req.Banned != nil && req.Banned.Count() > maxBanned:
		return v.sumOfLayer(req)
	case !rest.set(v, temperature): // whose logits may be so large that the middles of their intervals tell little
		ask := *req
		ask.ExactSum = true
		return v.sumOfLayer(&ask)
	case !exact.Edits(req):
		candidates, head := v.answer.LogSum, len(v.head())
		if v.N != head { // the candidates within the budget of the tail count with their logits
			m.top = grow.Slice(m.top, min(v.k, head))
			ask := exact.Request{LogSum: true, Temperature: temperature, Among: v.first(head)}
			a, err := v.searcher.find(m.top, &ask)
			if err != nil {
				return 0, err
			}
			candidates = a.LogSum
		}
		return kernels.LogAddExp(candidates, rest.at(temperature, 0).Log), nil
	}
	m.edited = m.edited[:0]
	for _, b := range req.Biases {
		m.edited = append(m.edited, b.ID)
	}
	if req.Banned != nil {
		m.edited = slices.AppendSeq(slices.Grow(m.edited, req.Banned.Count()), req.Banned.All())
		slices.Sort(m.edited)
		m.edited = slices.Compact(m.edited)
	}
	tail, err := v.outside(&rest, m.edited, temperature, 0)
	if err != nil {
		return 0, err
	}
	for i, id := range m.ids {
		m.logits[i] += exact.Added(req, id)
		if !exact.Permits(req, id) {
			m.logits[i] = math.Inf(-1)
		}
		m.logits[i] /= temperature
	}
	return kernels.LogSumExp(append(m.logits, tail.Log)), nil
}

func (v *View) sumOfLayer(req *exact.Request) (float64, error) {
	a, err := v.searcher.find(nil, req)
	return a.LogSum, err
}
