package screening

import (
	"cmp"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/exact"
	"github.com/learning-to-screen/l2s/internal/grow"
	"github.com/learning-to-screen/l2s/internal/kernels"
)

// LogProb returns the log-probability of the label id for the context h at a temperature T, of
// probabilities in proportion to e^(x/T): its logit over T, which is exact, minus the log of the
// sum of e^(x/T) over all labels, which is an estimate: over the candidates that are not in the
// model's tail from the int8 codes, but with the exact logit of the label if it is one of them
// (exact.Answer); over the others by the tail ([Tail]). It is exact if the lead of the best cluster
// is below the exact margin, and where the tail knows no such contexts or has no coefficients for
// T. The result is not above 0, and has the same bits on every CPU. Probabilities need not sum to
// 1: see [Searcher.LogSum].
//
// Logits are w_s.h + b_s: T is 1 for a model without a logit scale, and 1/scale for one with it.
// For one with a soft cap only the exact layer has the probabilities, see [exact.Answer].
//
// It returns [ErrNoTail] if the model has no tail, and an error if id is not below L, if T is not
// finite or below 1e-100, or if h is not a context, as TopK does.
func (s *Searcher) LogProb(h []float32, id uint32, temperature float64) (float64, error) {
	if int64(id) >= int64(s.model.c.Labels) {
		return 0, exact.Invalid(exact.ErrRequest, "screen: id: found %d, expected one below the %d labels", id, s.model.c.Labels)
	}
	if err := s.checkTail(temperature); err != nil {
		return 0, err
	}
	x, err := s.locate(h, s.rung)
	if err != nil {
		return 0, err
	}
	source, req := exact.FromSet, exact.Request{LogSum: true, Temperature: temperature}
	if !s.tailKnows(&x, temperature) {
		source, req.ExactSum = exact.FromLayer, true
	} else {
		req.Among = s.labels(x.cell, int(s.inTail[x.cell]))
	}
	logit, sum, err := s.layer.LogitAndSum(s.query[0], id, &req)
	if err != nil {
		return 0, err
	}
	logit /= temperature
	if source == exact.FromSet {
		tail := s.tailOf(x.cell, temperature, 0).Log
		if tail < logit && !slices.Contains(s.head(x.cell), id) {
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

// head returns the candidates of a cell that are not in the tail.
func (s *Searcher) head(cell int) []uint32 { return s.model.first(cell, int(s.inTail[cell])) }

// tailKnows reports whether the tail has an estimate for the located context at a temperature:
// tailOf returns it.
func (s *Searcher) tailKnows(x *location, temperature float64) bool {
	return !x.exact && s.model.c.Tail.covers(temperature) && s.reckon(x.cell)
}

// reckon has the tail reckon with the query's context, and reports whether it knows such contexts.
func (s *Searcher) reckon(cell int) bool {
	return int(s.inTail[cell]) == s.model.c.Labels || s.model.c.Tail.reckon(&s.reckoned, s.query[0].Vector(), s.router.ClusterOf(cell))
}

// tailOf returns the tail's interval for the labels outside the head, at a temperature that it
// covers, for a context for which reckon has computed the logs.
func (s *Searcher) tailOf(cell int, temperature, confidence float64) Interval {
	if int(s.inTail[cell]) == s.model.c.Labels {
		return noLabels
	}
	return s.model.c.Tail.at(&s.reckoned, s.router.ClusterOf(cell), temperature, confidence)
}

func checkTemperature(temperature float64) error {
	if !(temperature >= exact.MinTemperature && temperature <= math.MaxFloat64) {
		return exact.Invalid(exact.ErrRequest, "screen: temperature: found %v, expected a finite number of at least %v", temperature, exact.MinTemperature)
	}
	return nil
}

// Interval is a number that is known about.
type Interval struct {
	// Log is the estimate, Low and High are the ends, -Inf and +Inf if nothing is known.
	Log, Low, High float64
}

// noLabels is the log of the sum over no labels.
var noLabels = Interval{math.Inf(-1), math.Inf(-1), math.Inf(-1)}

// LogSum returns the log of the sum of e^(x/T) over all labels, log Z at the temperature T, and an
// interval that contains it with the confidence, at least 0 and below 1, if the model's tail has
// half-widths at that confidence or above. The promise is for contexts drawn from the same
// distribution as the contexts that gave the half-widths ([Tail]). The ends are the same if the
// exact layer answers: if the lead of the best cluster is below the exact margin, or the tail has
// no coefficients for T.
//
// It returns [ErrNoTail] if the model has no tail, and an error if temperature or confidence are
// out of range, or if h is not a context.
func (s *Searcher) LogSum(h []float32, temperature, confidence float64) (Interval, error) {
	if !(confidence >= 0 && confidence < 1) {
		return Interval{}, exact.Invalid(exact.ErrRequest, "screen: confidence: found %v, expected at least 0 and below 1", confidence)
	}
	if err := s.checkTail(temperature); err != nil {
		return Interval{}, err
	}
	at, err := s.locate(h, s.rung)
	if err != nil {
		return Interval{}, err
	}
	if !s.tailKnows(&at, temperature) {
		x, err := s.sumOfLayer(&exact.Request{LogSum: true, ExactSum: true, Temperature: temperature})
		return Interval{x, x, x}, err
	}
	tail, err := s.outside(&at, nil, temperature, confidence)
	if err != nil {
		return Interval{}, err
	}
	s.terms = grow.Slice(s.terms, len(s.logits)+1)
	for i, x := range s.logits {
		s.terms[i] = x / temperature
	}
	with := func(tail float64) float64 {
		if math.IsInf(tail, 1) {
			return tail
		}
		s.terms[len(s.terms)-1] = tail
		return kernels.LogSumExp(s.terms)
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
	// searcher, valid until its next call except Logits and Outside; the caller may change them.
	Lower, Upper []float32
}

// Head returns the candidates of h within a budget, 0 for the searcher's own, and the labels that
// are not in the tail. It returns false if the caller must ask the exact layer: if the lead is
// below the exact margin, the tail does not cover such contexts, or h has no intervals. Errors are
// as from Search, and [ErrNoTail].
func (s *Searcher) Head(h []float32, budget float64) (Head, bool, error) {
	if s.model.c.Tail == nil {
		return Head{}, false, ErrNoTail
	}
	rung, err := s.rungOf(budget)
	if err != nil {
		return Head{}, false, err
	}
	x, err := s.locate(h, rung)
	if err != nil || x.exact || !s.reckon(x.cell) {
		return Head{}, false, err
	}
	s.drawCell = x.cell
	known := int(s.inTail[x.cell])
	n := max(x.n, known)
	lower, upper, err := s.layer.Bounds(s.query[0], s.labels(x.cell, n))
	return Head{s.model.first(x.cell, n), known, lower, upper}, lower != nil, err
}

// Logits writes the logits of labels, by the reference arithmetic, in the context of the last
// Head to dst. It panics if an id is not below L.
func (s *Searcher) Logits(dst []float64, ids []uint32) error {
	return s.layer.Logits(dst, s.query[0], exact.Only(ids))
}

// Outside returns the log of the sum of e^(x/T) over the labels of the tail, which are the labels
// outside the Known ones of the last Head, and an interval that contains it with the confidence. If
// the tail has no coefficients for T it gives only an upper bound of the sum, by the nearest
// temperature T0 that it has: with a = T0/T a sum of n positive terms to the power a is at most the
// sum of the powers if a >= 1, and otherwise n^(1-a) times the power of the sum. Log is High then.
// A temperature that is no finite number of at least [exact.MinTemperature] tells nothing.
func (s *Searcher) Outside(temperature, confidence float64) Interval {
	others, list := s.model.c.Labels-int(s.inTail[s.drawCell]), s.model.c.Tail.c.Temperatures
	at := min(max(temperature, list[0]), list[len(list)-1])
	if checkTemperature(temperature) != nil {
		return Interval{math.NaN(), math.Inf(-1), math.Inf(1)}
	}
	tail := s.tailOf(s.drawCell, at, confidence)
	if at == temperature || others == 0 {
		return tail
	}
	high := float64(tail.High * (at / temperature))
	if at < temperature {
		high += float64((1 - at/temperature) * kernels.Log(float64(others)))
	}
	return Interval{high, math.Inf(-1), high}
}

// outside writes the labels of the head of a cell, ascending, and after them the labels of others
// that are not in the head, to s.headIDs, and their logits to s.logits. It returns the log of the
// sum of e^(x/T) over all other labels, at a temperature that the tail covers: the tail's sum less
// the labels with known logits.
func (s *Searcher) outside(x *location, others []uint32, temperature, confidence float64) (Interval, error) {
	s.headIDs = append(s.headIDs[:0], s.head(x.cell)...)
	slices.Sort(s.headIDs)
	head := len(s.headIDs)
	for _, id := range others {
		if _, known := slices.BinarySearch(s.headIDs[:head], id); !known {
			s.headIDs = append(s.headIDs, id)
		}
	}
	s.logits = grow.Slice(s.logits, len(s.headIDs)+1)[:len(s.headIDs)]
	if err := s.layer.Logits(s.logits, s.query[0], exact.Only(s.headIDs)); err != nil {
		return Interval{}, err
	}
	if len(s.headIDs) == s.model.c.Labels {
		return noLabels, nil
	}
	tail := s.tailOf(x.cell, temperature, confidence)
	if len(s.headIDs) == head {
		return tail, nil
	}
	s.terms = s.terms[:0]
	for _, x := range s.logits[head:] {
		s.terms = append(s.terms, x/temperature)
	}
	known := kernels.LogSumExp(s.terms)
	return Interval{without(tail.Log, known), without(tail.Low, known), without(tail.High, known)}, nil
}

// without returns log(e^a - e^b), -Inf if nothing is left.
func without(a, b float64) float64 {
	if a <= b {
		return math.Inf(-1)
	}
	if math.IsInf(a, 1) {
		return a
	}
	return a + kernels.Log(1-kernels.Exp(b-a))
}

// maxBanned bounds the labels whose share of the tail is computed to take it off.
const maxBanned = 256

// sumOverTail returns the log of the sum of e^(x/T) over all labels that the request permits, with
// the edits of the request, given the sum over the candidates of an answer with k labels.
func (s *Searcher) sumOverTail(x *location, k int, candidates float64, req *exact.Request) (float64, error) {
	temperature := cmp.Or(req.Temperature, 1)
	head := int(s.inTail[x.cell])
	switch {
	case req.ExactSum, req.Allowed != nil, req.Banned != nil && req.Banned.Count() > maxBanned:
		return s.sumOfLayer(req)
	case !s.tailKnows(x, temperature): // whose logits may be so large that the middles of their intervals tell little
		ask := *req
		ask.ExactSum = true
		return s.sumOfLayer(&ask)
	case !exact.Edits(req):
		if x.n != head { // the candidates within the budget of the tail count with their logits
			s.top = grow.Slice(s.top, min(k, head))
			ask := exact.Request{LogSum: true, Temperature: temperature, Among: s.labels(x.cell, head)}
			a, err := s.find(s.top, &ask)
			if err != nil {
				return 0, err
			}
			candidates = a.LogSum
		}
		return kernels.LogAddExp(candidates, s.tailOf(x.cell, temperature, 0).Log), nil
	}
	s.editedIDs = s.editedIDs[:0]
	for _, b := range req.Biases {
		s.editedIDs = append(s.editedIDs, b.ID)
	}
	if req.Banned != nil {
		s.editedIDs = slices.AppendSeq(slices.Grow(s.editedIDs, req.Banned.Count()), req.Banned.All())
		slices.Sort(s.editedIDs)
		s.editedIDs = slices.Compact(s.editedIDs)
	}
	tail, err := s.outside(x, s.editedIDs, temperature, 0)
	if err != nil {
		return 0, err
	}
	for i, id := range s.headIDs {
		s.logits[i] += exact.Added(req, id)
		if !exact.Permits(req, id) {
			s.logits[i] = math.Inf(-1)
		}
		s.logits[i] /= temperature
	}
	return kernels.LogSumExp(append(s.logits, tail.Log)), nil
}

func (s *Searcher) sumOfLayer(req *exact.Request) (float64, error) {
	a, err := s.find(nil, req)
	return a.LogSum, err
}
