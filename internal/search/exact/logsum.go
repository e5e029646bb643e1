package exact

import (
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
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
		return 0, 0, Invalid(ErrRequest, "l2s: id: found %d, expected one below the %d labels", id, s.layer.Labels())
	}
	p, err := s.begin(req, 0, q)
	defer s.end()
	if err != nil {
		return 0, 0, err
	}
	s.label[0] = id
	s.logits = mem.Grow(s.logits, 1)
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
	x := s.all(0)
	rows := s.label[:0] // that count with their logits
	if threshold := s.counts(p, x.lower); !math.IsInf(float64(threshold), 1) {
		rows = s.ids[:kernels.SelectAtLeast(s.ids, x.upper, threshold)]
	}
	if denseIsCheaper(len(rows), p.n) {
		var a Answer
		s.rankRows(nil, &a, q, p)
		return logit, a.LogSum, nil
	}
	if row >= 0 && Permits(req, id) && !slices.Contains(rows, uint32(row)) {
		rows = append(rows, uint32(row))
	}
	some := s.part(p, rows)
	s.rankRows(nil, &Answer{}, q, &some)
	return logit, s.layer.logSum(req, rows, s.logits, x.lower, x.upper), nil
}

const (
	// cold is the temperature below which an interval of codes is wide for the weight of its label,
	// and few labels have all the weight: these count with their logits.
	cold = 0.5
	// negligible is the share of a cold sum that all other labels have together, at most.
	negligible = 0.001
)

// counts returns the threshold of the raw upper ends of the labels that count in a sum with their
// logits, from the lower ends of all: +Inf if there are none. Below it are labels whose weights are
// less than negligible parts of the largest, all of them together.
func (s *Searcher) counts(p *scope, lower []float32) float32 {
	t := p.req.temperature()
	if !p.req.LogSum || len(lower) == 0 {
		return float32(math.Inf(1))
	}
	largest := s.threshold(1, lower)
	if math.IsInf(float64(largest), -1) { // no label may be answered
		return float32(math.Inf(1))
	}
	if t >= cold { // what may be the largest has most of the weight, and its interval may be wide
		return largest
	}
	return p.final.down(largest, t*kernels.Log(float64(len(lower))/negligible))
}

// logSum returns the log-sum over rows. Some count with their logits: at low temperatures, where
// these have all the weight, the rows of counts. All others count with the
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
