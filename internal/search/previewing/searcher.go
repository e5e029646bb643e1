package previewing

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// Stats are the counts of a searcher's work: l2s.Stats names them for users.
type Stats struct {
	Queries, Looked, Kept, Exact, Crowded, Far uint64
}

// Searcher answers requests about contexts by a model over its layer. It is for one goroutine.
type Searcher struct {
	look   Look
	exact  *exact.Searcher
	sums   bool // log-sums are estimated
	query  [1]*exact.Query
	one    [1]exact.Answer
	summed [16]exact.Prediction // the best of a log-sum, whose logits are exact in it
	also   exact.Also           // the labels of a request that were not found
}

const (
	// mostPreviewed is the largest k that is not answered exactly.
	mostPreviewed = 512
	// mostShort is the number of labels that a query has room for: to score more takes long anyway.
	mostShort = 2048
)

// NewSearcher returns a searcher with a model over a layer, and exact.ErrLayer for a layer of another
// shape or fingerprint.
func NewSearcher(m *Model, l *exact.Layer) (*Searcher, error) {
	if m == nil || l == nil || m.parts == nil {
		return nil, errors.New("l2s: found no model or no layer, expected both")
	}
	p := m.parts
	if err := l.Fits("preview", p.Labels, p.Dim, p.Fingerprint, FingerprintOf(l)); err != nil {
		return nil, err
	}
	return m.Over(l), nil
}

// FingerprintOf returns the fingerprint of a model that is made for a layer: the layer's, and for one
// with a scale or a cap the SHA-256 of that, the scale and the cap. A model that was made for the
// rows alone has the layer's, and finds the best labels under any scale and cap.
func FingerprintOf(l *exact.Layer) [32]byte {
	rows := l.Fingerprint()
	if l.Scale() == 1 && l.SoftCap() == 0 {
		return rows
	}
	b := binary.LittleEndian.AppendUint64(rows[:], math.Float64bits(l.Scale()))
	return sha256.Sum256(binary.LittleEndian.AppendUint64(b, math.Float64bits(l.SoftCap())))
}

// Estimates reports whether log-sums are estimated. The estimate of a sum under a cap has no form, and
// the errors of a model that was made for the rows alone are of other sums than a scaled layer's.
func (m *Model) Estimates(l *exact.Layer) bool {
	return l.SoftCap() == 0 && (l.Scale() == 1 || m.parts.Fingerprint == FingerprintOf(l))
}

// Over returns a searcher with the model over its layer.
func (m *Model) Over(l *exact.Layer) *Searcher {
	s := &Searcher{look: newLook(m), exact: exact.NewSearcher(l), sums: m.Estimates(l), query: [1]*exact.Query{exact.NewQuery(m.parts.Dim)}}
	s.look.layer = l
	s.query[0].Reserve(min(m.parts.Labels, mostShort))
	return s
}

// Search answers a request by the rung of its budget.
func (s *Searcher) Search(dst []exact.Prediction, h []float32, req exact.Request) (exact.Answer, error) {
	return s.Answer(dst, h, &req, nil)
}

// Answer answers a request about the context h by a rung, nil for the rung of its budget.
func (s *Searcher) Answer(dst []exact.Prediction, h []float32, req *exact.Request, rung *Rung) (a exact.Answer, err error) {
	p, look := s.look.parts, &s.look
	if err = exact.Check(req, p.Labels, len(dst)); err != nil {
		return a, err
	}
	if err = s.query[0].Set(h); err != nil {
		return a, err
	}
	if look.Stats.Queries++; rung == nil {
		rung = p.RungOf(req.Budget)
	}
	if s.Exactly(req, len(dst)) || !look.Find(s.query[0].Vector(), len(dst), req, rung) {
		return s.byLayer(dst, req)
	}
	alone := len(look.IDs)
	if len(req.Also) > 0 {
		for _, id := range s.also.Beside(look.IDs, req.Also, p.Labels) {
			if exact.Permits(req, id) { // labels with a bias are there already
				look.IDs = append(look.IDs, id)
			}
		}
	}
	look.Stats.Kept += uint64(len(look.IDs))
	ask := exact.Request{Within: req.Within, LogSum: req.LogSum, Temperature: req.Temperature, Among: exact.Only(look.IDs), Biases: req.Biases}
	found := dst
	if req.LogSum && len(dst) < len(s.summed) {
		found = s.summed[:min(len(s.summed), len(look.IDs))]
	}
	sum := math.Inf(-1)
	if req.LogSum && alone < len(look.IDs) { // the estimate of the rest has the others
		ask.LogSum, ask.Among, ask.Within = true, exact.Only(look.IDs[:alone]), 0
		if err = s.exact.Find(s.summed[:min(len(s.summed), alone)], s.one[:], s.query[:], &ask); err != nil {
			return a, err
		}
		sum, ask.LogSum, ask.Among, ask.Within = s.one[0].LogSum, false, exact.Only(look.IDs), req.Within
	}
	if err = s.exact.Find(found, s.one[:], s.query[:], &ask); err != nil {
		return a, err
	}
	a = s.one[0]
	a.Source, a.Count = exact.FromSet, min(a.Count, len(dst))
	copy(dst, found[:a.Count])
	if req.LogSum {
		if alone < len(look.IDs) {
			a.LogSum = sum
		}
		// No label is above the best: a larger estimate is wrong.
		best := a.LogSum // at least
		if a.Count > 0 {
			best = dst[0].Logit / cmp.Or(req.Temperature, 1)
		}
		if alone < len(look.IDs) {
			a.LogSum = max(a.LogSum, best)
		}
		if a.LogSum = kernels.LogAddExp(a.LogSum, look.Rest); !(a.LogSum <= best+math.Log(float64(p.Labels))) {
			return s.byLayer(dst, req)
		}
	}
	return a, nil
}

// Exactly reports whether the exact layer answers a request for k labels in any context. Log-sums
// at extreme temperatures are not estimated: labels that are not scored in full count as a normal
// distribution, whose sums at low temperatures come from logits that no label has.
func (s *Searcher) Exactly(req *exact.Request, k int) bool {
	t := cmp.Or(req.Temperature, 1)
	return req.Exact || exact.IsList(req.Among) || k > mostPreviewed ||
		req.LogSum && (!s.sums || req.ExactSum || exact.Edits(req) || t < 0.5 || t > 2)
}

func (s *Searcher) byLayer(dst []exact.Prediction, req *exact.Request) (exact.Answer, error) {
	s.look.Stats.Exact++
	if err := s.exact.Find(dst, s.one[:], s.query[:], req); err != nil {
		return exact.Answer{}, err
	}
	return s.one[0], nil
}

// Look returns the searcher's look at its last context.
func (s *Searcher) Look() *Look { return &s.look }
