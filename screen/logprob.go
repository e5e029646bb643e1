package screen

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/grow"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
)

// LogProb returns the log-probability of the label id for the context h: its logit minus
// the log of a sum of e^x. If the model has a regression ([Model.Regression]),
// the sum is over all L labels. If it has none, the sum is over the candidate set alone,
// and the result is too high by what the other labels weigh, which may be e^1 and more:
// train with --tail regression, or use [softmax.Searcher.LogProb], which is exact. The
// logit is exact wherever the label is. The sum is, by what the model has,
//
//   - an estimate, if it has a regression: over the set from the int8 codes, but with the
//     exact logit of the label if the label is in the set (softmax.Answer); over the
//     others from the regression. Probabilities need not sum to 1: see [Searcher.LogSum];
//   - or over the set alone, by the reference arithmetic. Labels outside are impossible:
//     they get -Inf. If the set is empty, the exact layer answers.
//
// All logits are exact if the lead of the best cluster is below the exact margin.
// The result has the same bits on every CPU.
//
// Logits are w_s.h + b_s: see [Searcher.LogProbAt] for a model with a logit scale. For one
// with a soft cap only the exact layer has the probabilities, see [softmax.Answer].
//
// It returns an error if id is not below L, or if h is not a context, as TopK
// does.
func (s *Searcher) LogProb(h []float32, id uint32) (float64, error) { return s.LogProbAt(h, id, 1) }

// LogProbAt is LogProb at a temperature T, finite and at least
// [softmax.MinTemperature]: of probabilities in
// proportion to e^(x/T). A model that multiplies its logits by a scale has those at T =
// 1/scale. If a regression has no coefficients for T the exact layer answers.
func (s *Searcher) LogProbAt(h []float32, id uint32, temperature float64) (float64, error) {
	if int64(id) >= int64(s.model.labels) {
		return 0, invalid{softmax.ErrRequest, fmt.Sprintf("screen: id: found %d, expected one below the %d labels", id, s.model.labels)}
	}
	if err := checkTemperature(temperature); err != nil {
		return 0, err
	}
	s.profile.begin()
	defer s.profile.end()
	q, r, err := s.routeOne(h)
	if err != nil {
		return 0, err
	}
	req := softmax.Request{LogSum: true, Temperature: temperature}
	reg := s.model.regression
	if r.exact || reg != nil && !reg.covers(temperature) {
		s.profile.from(softmax.FromLayer)
		req.ExactSum = true
		logit, sum, err := s.layer.LogitAndSum(q, id, &req)
		return logit/temperature - sum, err
	}
	s.profile.from(r.source())
	switch {
	case reg != nil && r.second == r.first:
		return s.quickLogProb(q, r, id, &req)
	case reg == nil:
		set := s.candidates(r)
		if len(set) == 0 { // as a search for labels
			s.profile.from(softmax.FromLayer)
			req.ExactSum = true
			break
		}
		if _, inside := slices.BinarySearch(set, id); !inside {
			return math.Inf(-1), nil
		}
		req.ExactSum, req.Among = true, softmax.Only(set)
	default:
		return s.logProbOfTwo(q, r, id, temperature)
	}
	logit, sum, err := s.layer.LogitAndSum(q, id, &req)
	return logit/temperature - sum, err
}

// quickLogProb is LogProbAt for the set of one cluster and the regression.
func (s *Searcher) quickLogProb(q *softmax.Query, r route, id uint32, req *softmax.Request) (float64, error) {
	set := s.model.Candidates(r.first)
	req.Among = softmax.Only(set)
	logit, sum, err := s.layer.LogitAndSum(q, id, req)
	if err != nil {
		return 0, err
	}
	logit /= req.Temperature
	tail := s.tailOf(q, r, set, req.Temperature)
	if tail < logit {
		if _, inside := slices.BinarySearch(set, id); !inside {
			tail = logit // it is one of the labels outside
		}
	}
	return min(logit-kernels.LogAddExp(sum, tail), 0), nil
}

// logProbOfTwo is LogProbAt for the sets of two clusters and the regression of the first.
func (s *Searcher) logProbOfTwo(q *softmax.Query, r route, id uint32, temperature float64) (float64, error) {
	set := s.joined(r)
	tail, err := s.byRegression(q, r, set, temperature, 0)
	if err != nil {
		return 0, err
	}
	var logit float64
	at, inside := slices.BinarySearch(set, id)
	if inside {
		logit = s.logits[at] / temperature
	} else {
		s.asked[0] = id
		if err := s.layer.Logits(s.oneLogit[:], q, softmax.Only(s.asked[:])); err != nil {
			return 0, err
		}
		logit = s.oneLogit[0] / temperature
		tail.Log = max(tail.Log, logit)
	}
	for i := range s.logits {
		s.logits[i] /= temperature
	}
	return min(logit-kernels.LogAddExp(kernels.LogSumExp(s.logits), tail.Log), 0), nil
}

// tailOf is what the regression says of the labels outside the set of one cluster, at a
// temperature that it covers.
func (s *Searcher) tailOf(q *softmax.Query, r route, set []uint32, temperature float64) float64 {
	if len(set) == s.model.labels {
		return math.Inf(-1)
	}
	e, _, _ := s.model.regression.predict(q.Vector(), r.first, temperature, 0)
	return e.log
}

// quick reports whether the log-sum over all labels comes from the set, which the search
// gives, and the tail of one cluster.
func (s *Searcher) quick(r route, req *softmax.Request) bool {
	reg := s.model.regression
	return reg != nil && r.set == r.first && !req.Edits() && !req.ExactSum && reg.covers(temperatureOf(req))
}

func checkTemperature(temperature float64) error {
	if !(temperature >= softmax.MinTemperature && temperature <= math.MaxFloat64) {
		return invalid{softmax.ErrRequest, fmt.Sprintf("screen: temperature: found %v, expected a finite number of at least %v", temperature, softmax.MinTemperature)}
	}
	return nil
}

// temperatureOf is the temperature of a request.
func temperatureOf(req *softmax.Request) float64 {
	if req.Temperature == 0 {
		return 1
	}
	return req.Temperature
}

// Interval is a number that is known about.
type Interval struct {
	// Log is the estimate, Low and High are the ends of the interval: -Inf and +Inf
	// if nothing is known.
	Log, Low, High float64
}

// LogSum returns the log of the sum of e^(x/T) over all labels, log Z at the
// temperature T, and an interval that holds it with the confidence, at
// least 0 and below 1, if the model has a regression with half-widths at that
// confidence or above. The promise is about the draw of a context from those that the
// half-widths were found on ([Regression]). The ends are the same if the exact layer
// answers, because the lead of the best cluster is below the exact margin, or because
// the regression has no coefficients for that temperature.
//
// It returns an error if the model has no regression, if temperature or confidence
// are out of range, or if h is not a context.
func (s *Searcher) LogSum(h []float32, temperature, confidence float64) (Interval, error) {
	head, err := s.Head(h, nil, temperature, confidence)
	if err != nil {
		return Interval{}, err
	}
	if math.IsNaN(head.Tail.Log) {
		var a [1]softmax.Answer
		err := s.layer.Find(nil, a[:], s.queries[:1], &softmax.Request{LogSum: true, ExactSum: true, Temperature: temperature})
		return Interval{a[0].LogSum, a[0].LogSum, a[0].LogSum}, err
	}
	s.terms = grow.Slice(s.terms, len(head.Logits)+1)
	for i, x := range head.Logits {
		s.terms[i] = x / temperature
	}
	with := func(tail float64) float64 {
		if math.IsInf(tail, 1) {
			return tail
		}
		s.terms[len(s.terms)-1] = tail
		return kernels.LogSumExp(s.terms)
	}
	return Interval{with(head.Tail.Log), with(head.Tail.Low), with(head.Tail.High)}, nil
}

// Head is what a screen knows of all labels of a context: some of them exactly, and
// of the others together about how much they weigh.
type Head struct {
	// IDs are the labels that are known, ascending, and Logits their logits by the
	// reference arithmetic. Both are scratch of the searcher, until its next call.
	IDs    []uint32
	Logits []float64
	// Tail is the log of the sum of e^(x/T) over the labels that are not in IDs, and
	// an interval that holds it with the confidence. Tail.Log is NaN if
	// nothing is known of it: the exact layer is to be asked.
	Tail Interval
}

// Head returns the labels of the candidate set of h's cluster, or of both clusters if its
// lead is below the probe margin, and the labels extra,
// which are ascending and distinct, with their logits, and about how much all others
// weigh at a temperature, by the model's regression. See [Searcher.LogSum] for the
// confidence and for errors; if that asks the exact layer, Tail.Log is NaN.
func (s *Searcher) Head(h []float32, extra []uint32, temperature, confidence float64) (Head, error) {
	switch {
	case s.model.regression == nil:
		return Head{}, errors.New("screen: regression: found a model without one, expected one, as l2s train --tail regression or train.FitRegression makes it")
	case !(confidence >= 0 && confidence < 1):
		return Head{}, invalid{softmax.ErrRequest, fmt.Sprintf("screen: confidence: found %v, expected at least 0 and below 1", confidence)}
	}
	if err := checkTemperature(temperature); err != nil {
		return Head{}, err
	}
	if err := checkIDs(extra, s.model.labels); err != nil {
		return Head{}, invalid{softmax.ErrRequest, "screen: extra: " + err.Error()}
	}
	q, r, err := s.routeOne(h)
	if err != nil {
		return Head{}, err
	}
	if r.exact {
		return Head{Tail: Interval{math.NaN(), math.Inf(-1), math.Inf(1)}}, nil
	}
	ids := s.joined(r)
	if len(extra) > 0 {
		s.known = appendUnion(s.known[:0], ids, extra)
		ids = s.known
	}
	tail, err := s.byRegression(q, r, ids, temperature, confidence)
	return Head{ids, s.logits, tail}, err
}

// routeOne finds the clusters of one context.
func (s *Searcher) routeOne(h []float32) (*softmax.Query, route, error) {
	qs, err := s.set(1, h)
	if err != nil {
		return nil, route{}, err
	}
	routes, err := s.route(qs, s.model.margins)
	if err != nil {
		return nil, route{}, err
	}
	return qs[0], routes[0], nil
}

// setLogits leaves the logits of the labels ids in s.logits, by the reference
// arithmetic.
func (s *Searcher) setLogits(q *softmax.Query, ids []uint32) error {
	s.logits = grow.Slice(s.logits, len(ids)+1)[:len(ids)]
	return s.layer.Logits(s.logits, q, softmax.Only(ids))
}

// byRegression leaves the logits of the labels ids in s.logits, and returns the log
// of the sum of e^(x/T) over all others. The ids hold the candidate set of the best
// cluster of the route, which the regression is about: what others weigh is known, and
// taken off. Its Log is NaN if the regression says nothing about the temperature.
func (s *Searcher) byRegression(q *softmax.Query, r route, ids []uint32, temperature, confidence float64) (Interval, error) {
	if err := s.setLogits(q, ids); err != nil {
		return Interval{}, err
	}
	none := math.Inf(-1)
	if len(ids) == s.model.labels {
		return Interval{none, none, none}, nil
	}
	e, low, ok := s.model.regression.predict(q.Vector(), r.first, temperature, confidence)
	if !ok {
		return Interval{math.NaN(), none, math.Inf(1)}, nil
	}
	tail := Interval{e.log, low, e.log + e.width}
	set := s.model.Candidates(r.first)
	if len(ids) == len(set) {
		return tail, nil
	}
	s.terms = grow.Slice(s.terms, len(ids))[:0]
	for i, id := range ids {
		if len(set) > 0 && set[0] == id {
			set = set[1:]
			continue
		}
		s.terms = append(s.terms, s.logits[i]/temperature)
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

// sumOverTail returns the log of the sum of e^x over all labels that the request
// permits, edited as the request says.
func (s *Searcher) sumOverTail(q *softmax.Query, r route, req *softmax.Request) (float64, error) {
	switch {
	case req.ExactSum:
		return s.sumOfLayer(q, req)
	case req.Allowed != nil, req.Banned != nil && req.Banned.Count() > maxBanned:
		return s.sumOfLayer(q, req)
	}
	ids := s.joined(r)
	if req.Edits() {
		s.asIDs = s.asIDs[:0]
		for _, b := range req.Biases {
			s.asIDs = append(s.asIDs, b.ID)
		}
		s.known = appendUnion(s.known[:0], ids, s.asIDs)
		ids = s.known
		if req.Banned != nil {
			s.asIDs = req.Banned.AppendIDs(s.asIDs[:0])
			s.widened = appendUnion(s.widened[:0], ids, s.asIDs)
			ids = s.widened
		}
	}
	temperature := temperatureOf(req)
	tail, err := s.byRegression(q, r, ids, temperature, 0)
	if err != nil {
		return 0, err
	}
	if math.IsNaN(tail.Log) {
		return s.sumOfLayer(q, req)
	}
	biases := req.Biases
	for i, id := range ids {
		for len(biases) > 0 && biases[0].ID < id {
			biases = biases[1:]
		}
		if len(biases) > 0 && biases[0].ID == id {
			s.logits[i] += float64(biases[0].Add)
		}
		if !req.Permits(id) {
			s.logits[i] = math.Inf(-1)
		}
		s.logits[i] /= temperature
	}
	s.logits = append(s.logits, tail.Log)
	return kernels.LogSumExp(s.logits), nil
}

// sumOfLayer is the log-sum of the exact layer.
func (s *Searcher) sumOfLayer(q *softmax.Query, req *softmax.Request) (float64, error) {
	var (
		a   [1]softmax.Answer
		ask = *req
	)
	ask.K = 0
	s.asking[0] = q
	err := s.layer.Find(nil, a[:], s.asking[:], &ask)
	return a[0].LogSum, err
}
