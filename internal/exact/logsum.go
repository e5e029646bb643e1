package exact

import (
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/grow"
	"github.com/learning-to-screen/l2s/internal/kernels"
)

// LogitAndSum returns the parts of a log-probability: the logit of the label id, by the reference
// arithmetic, with its bias, and the log-sum of the answer to a request for no labels, see
// [Answer], in which that label counts with its logit if it is among the labels to choose from.
//
// It returns an error, for which errors.Is holds with [ErrRequest] or [ErrContext], if id, the
// query or the request does not fit the layer. It panics if a list has an id that is not below
// L.
func (s *Searcher) LogitAndSum(q *Query, id uint32, req *Request) (logit, sum float64, err error) {
	if int64(id) >= int64(s.layer.Labels()) {
		return 0, 0, Invalid(ErrRequest, "softmax: id: found %d, expected one below the %d labels", id, s.layer.Labels())
	}
	p, err := s.begin(req, 0, q)
	defer s.end()
	if err != nil {
		return 0, 0, err
	}
	s.label[0] = id
	s.logits = grow.Slice(s.logits, 1)
	s.layer.rows.RefGatherDot(s.logits, s.layer.bias, s.label[:], q.Vector())
	s.layer.final.finish(s.logits)
	logit = s.logits[0] + Added(req, id)
	if p.n == 0 {
		return logit, math.Inf(-1), nil
	}
	if len(s.groups) == 0 {
		var a Answer
		s.rankRows(nil, &a, q, p)
		return logit, a.LogSum, nil
	}
	s.scan(s.groups, pass{whole: true})
	row := int(id)
	if p.listed {
		row = slices.Index(p.ids, id)
	}
	own := s.label[:0] // its row, if it may be answered
	if row >= 0 && Permits(req, id) {
		own, s.logits[0] = append(own, uint32(row)), logit
	}
	x := s.all(0)
	return logit, s.layer.logSum(req, own, s.logits[:len(own)], x.lower, x.upper), nil
}

// logSum returns the log-sum over rows. Some count with their logits, all others with the
// centres of their intervals. It overwrites both.
func (l *Layer) logSum(req *Request, rows []uint32, logits []float64, lower, upper []float32) float64 {
	none := float32(math.Inf(-1))
	for _, row := range rows {
		lower[row], upper[row] = none, none
	}
	t := req.temperature()
	if f := l.final; f != nil && f.cap != 0 {
		f.caps(lower, upper)
	} else if f != nil {
		t /= f.scale
	}
	// At temperatures outside the range of float32 labels of the largest logit have all the weight,
	// or all labels the same.
	m, sum := kernels.SumExpCentres(lower, upper, float32(min(max(1/t, 0x1p-126), math.MaxFloat32)))
	rest := float64(m)/t + kernels.Log(sum)
	if len(rows) == 0 {
		return rest
	}
	return kernels.LogAddExp(req.logSum(logits), rest)
}
