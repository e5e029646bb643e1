// Package logsum gives sums and probabilities over all labels from a screen: over the candidates by
// the layer, over the other labels by the tail of the model. It reads queries as an observer does,
// through a [screening.View].
package logsum

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/search/tail"
)

// ErrNoTail is the error, by errors.Is, of calls that need a tail: probabilities over all labels.
var ErrNoTail = errors.New("l2s: found a model without a tail, expected one for log-probabilities, as l2s train makes it unless its options leave it out")

func checkTail(m *screening.Model) error {
	if m.Tail() == nil {
		return ErrNoTail
	}
	return nil
}

// view locates the context h, and sets rest to the estimate for it. It reports false if there is
// none at the temperature.
func view(s *screening.Searcher, h []float32, temperature float64, rest *tail.Rest) (v *screening.View, known bool, err error) {
	if err := cmp.Or(checkTail(s.Model()), tail.CheckTemperature(temperature)); err != nil {
		return nil, false, err
	}
	if v, err = s.Look(h, 0); err != nil {
		return nil, false, err
	}
	return v, predict(rest, v, temperature), nil
}

// predict makes r the rest of a view, and reports whether there is an estimate for its context at a
// temperature.
func predict(r *tail.Rest, v *screening.View, temperature float64) bool {
	return v.Model.Tail().Covers(v.Layer.Layer().RawTemperature(temperature)) && predictAll(r, v)
}

// predictAll is predict for all temperatures that the tail covers. A tail is of raw logits: it says
// nothing of sums under a cap.
func predictAll(r *tail.Rest, v *screening.View) bool {
	m, l := v.Model, v.Layer.Layer()
	r.Of = l
	return l.SoftCap() == 0 && !v.Exact && m.Tail().Predict(r, v.Found.Cluster, m.Labels()-len(head(v)), v.Query.Vector(), v.Cosine())
}

// head is the candidates of the cell that are not in the tail.
func head(v *screening.View) []uint32 { return v.Model.Head(v.Cell) }

// LogProb is l2s.Searcher.LogProb.
func LogProb(s *screening.Searcher, h []float32, id uint32, temperature float64) (float64, error) {
	if labels := s.Model().Labels(); int64(id) >= int64(labels) {
		return 0, exact.Invalid(exact.ErrRequest, "l2s: id: found %d, expected one below the %d labels", id, labels)
	}
	var rest tail.Rest
	v, known, err := view(s, h, temperature, &rest)
	if err != nil {
		return 0, err
	}
	req := exact.Request{LogSum: true, ExactSum: !known, Temperature: temperature}
	if known {
		req.Among = v.First(len(head(v)))
	}
	logit, sum, err := v.Layer.LogitAndSum(v.Query, id, &req)
	if err != nil {
		return 0, err
	}
	logit /= temperature
	if known {
		others := rest.At(temperature, 0).Log
		if others < logit && !slices.Contains(head(v), id) {
			others = logit // it is one of the labels of the tail
		}
		sum = kernels.LogAddExp(sum, others)
	}
	return min(logit-sum, 0), nil
}

// CheckConfidence returns an error unless a number is a confidence, at least 0 and below 1.
func CheckConfidence(confidence float64) error {
	if !(confidence >= 0 && confidence < 1) {
		return exact.Invalid(exact.ErrRequest, "l2s: confidence: found %v, expected at least 0 and below 1", confidence)
	}
	return nil
}

// LogSum is l2s.Searcher.LogSum.
func LogSum(s *screening.Searcher, h []float32, temperature, confidence float64) (tail.Interval, error) {
	if err := CheckConfidence(confidence); err != nil {
		return tail.Interval{}, err
	}
	var rest tail.Rest
	v, known, err := view(s, h, temperature, &rest)
	if err != nil {
		return tail.Interval{}, err
	}
	if !known {
		x, err := ofLayer(v, &exact.Request{LogSum: true, ExactSum: true, Temperature: temperature})
		return tail.Interval{Log: x, Low: x, High: x}, err
	}
	others, err := outside(v, &rest, nil, temperature, confidence)
	if err != nil {
		return tail.Interval{}, err
	}
	m := &v.Scratch
	m.Terms = mem.Grow(m.Terms, len(m.Logits)+1)
	for i, x := range m.Logits {
		m.Terms[i] = x / temperature
	}
	with := func(others float64) float64 {
		if math.IsInf(others, 1) {
			return others
		}
		m.Terms[len(m.Terms)-1] = others
		return kernels.LogSumExp(m.Terms)
	}
	return tail.Interval{Log: with(others.Log), Low: with(others.Low), High: with(others.High)}, nil
}

// Head holds the candidates of a context, for draws.
type Head struct {
	// IDs are the candidates. The first Known of them are not in the model's tail. IDs must not be
	// changed.
	IDs   []uint32
	Known int
	// Lower and Upper are the ends of intervals that contain their logits. They are scratch of the
	// searcher, valid until its next call except Logits of View; the caller may change them.
	Lower, Upper []float32
	View         *screening.View
}

// HeadOf returns the candidates of h within a budget, 0 for the searcher's own, and the labels that
// are not in the tail, and sets rest to the estimate of the others. It returns false if the caller
// must ask the exact layer: if there are no candidates, the tail does not cover such contexts, or h
// has no intervals. Errors are as from Search, and [ErrNoTail].
func HeadOf(s *screening.Searcher, h []float32, budget float64, rest *tail.Rest) (Head, bool, error) {
	if err := checkTail(s.Model()); err != nil {
		return Head{}, false, err
	}
	v, err := s.Look(h, budget)
	if err != nil || !predictAll(rest, v) {
		return Head{}, false, err
	}
	known := len(head(v))
	n := max(v.N, known)
	lower, upper, err := v.Layer.Bounds(v.Query, v.First(n))
	return Head{v.Model.List(v.Cell).IDs[:n:n], known, lower, upper, v}, lower != nil, err
}

// outside writes the labels of the head of the cell, ascending, and after them the labels of others
// that are not in the head, to the IDs of the scratch, and their logits to its Logits. It returns
// the log of the sum of e^(x/T) over all other labels, at a temperature that the tail covers: the
// rest, less the labels with known logits.
func outside(v *screening.View, rest *tail.Rest, others []uint32, temperature, confidence float64) (tail.Interval, error) {
	m := &v.Scratch
	m.IDs = append(m.IDs[:0], head(v)...)
	slices.Sort(m.IDs)
	inHead := len(m.IDs)
	for _, id := range others {
		if _, known := slices.BinarySearch(m.IDs[:inHead], id); !known {
			m.IDs = append(m.IDs, id)
		}
	}
	m.Logits = mem.Grow(m.Logits, len(m.IDs)+1)[:len(m.IDs)]
	if err := v.Logits(m.Logits, m.IDs); err != nil {
		return tail.Interval{}, err
	}
	if len(m.IDs) == v.Model.Labels() {
		return tail.NoLabels, nil
	}
	x := rest.At(temperature, confidence)
	if len(m.IDs) == inHead {
		return x, nil
	}
	m.Terms = m.Terms[:0]
	for _, x := range m.Logits[inHead:] {
		m.Terms = append(m.Terms, x/temperature)
	}
	known := kernels.LogSumExp(m.Terms)
	return tail.Interval{Log: kernels.LogSubExp(x.Log, known), Low: kernels.LogSubExp(x.Low, known), High: kernels.LogSubExp(x.High, known)}, nil
}

// maxBanned bounds the labels whose share of the tail is computed to take it off.
const maxBanned = 256

// OverTail returns the options with an observer that makes log-sums sums over all labels:
// l2s.Options.OverTail.
func OverTail(o screening.Options) screening.Options {
	o.Observers, o.Accepts = append(slices.Clip(o.Observers), observer{}), checkTail
	return o
}

type observer struct{}

func (observer) Before(*exact.Query) screening.Wish { return screening.Sees }

func (observer) After(v *screening.View) error {
	if !v.Request.LogSum || v.Answer.Source != exact.FromSet {
		return nil
	}
	sum, err := overTail(v)
	v.Answer.LogSum = max(v.Answer.LogSum, sum) // the labels of the answer are not more than certain
	return err
}

// overTail returns the log of the sum of e^(x/T) over all labels that the request permits, with its
// edits.
func overTail(v *screening.View) (float64, error) {
	req, m := &v.Request, &v.Scratch
	temperature := cmp.Or(req.Temperature, 1)
	var rest tail.Rest
	switch {
	case req.ExactSum, req.Allowed != nil, req.Banned != nil && req.Banned.Count() > maxBanned:
		return ofLayer(v, req)
	case !predict(&rest, v, temperature): // whose logits may be so large that the middles of their intervals tell little
		ask := *req
		ask.ExactSum = true
		return ofLayer(v, &ask)
	case !exact.Edits(req):
		candidates, known := v.Answer.LogSum, len(head(v))
		if v.N != known || len(req.Also) > 0 { // the candidates within the budget of the tail, and no others, count with their logits
			m.Top = mem.Grow(m.Top, min(v.K, known))
			ask := exact.Request{LogSum: true, Temperature: temperature, Among: v.First(known)}
			a, err := v.Find(m.Top, &ask)
			if err != nil {
				return 0, err
			}
			candidates = a.LogSum
		}
		return kernels.LogAddExp(candidates, rest.At(temperature, 0).Log), nil
	}
	m.Edited = m.Edited[:0]
	for _, b := range req.Biases {
		m.Edited = append(m.Edited, b.ID)
	}
	if req.Banned != nil {
		m.Edited = slices.AppendSeq(slices.Grow(m.Edited, req.Banned.Count()), req.Banned.All())
		slices.Sort(m.Edited)
		m.Edited = slices.Compact(m.Edited)
	}
	others, err := outside(v, &rest, m.Edited, temperature, 0)
	if err != nil {
		return 0, err
	}
	for i, id := range m.IDs {
		m.Logits[i] += exact.Added(req, id)
		if !exact.Permits(req, id) {
			m.Logits[i] = math.Inf(-1)
		}
		m.Logits[i] /= temperature
	}
	return kernels.LogSumExp(append(m.Logits, others.Log)), nil
}

// ofLayer returns the sum of the exact layer.
func ofLayer(v *screening.View, req *exact.Request) (float64, error) {
	a, err := v.Find(nil, req)
	return a.LogSum, err
}
