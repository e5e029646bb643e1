package screen

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"

	"github.com/learning-to-screen/l2s/softmax"
)

// margins are the leads of the best cluster below which a query looks further.
// Contexts between two clusters are those whose labels one set lacks.
type margins struct{ probe, exact float64 }

func (m margins) check() error {
	for _, f := range []struct {
		name  string
		value float64
	}{{"probe margin", m.probe}, {"exact margin", m.exact}} {
		if !(f.value >= 0) || math.IsInf(f.value, 0) || math.Signbit(f.value) {
			return fmt.Errorf("%s: found %v, expected a finite number that is not negative", f.name, f.value)
		}
	}
	return nil
}

// ProbeMargin returns the lead of the best cluster below which the candidates
// of the two best are looked at, 0 for never.
func (m *Model) ProbeMargin() float64 { return m.margins.probe }

// ExactMargin returns the lead of the best cluster below which the exact layer
// answers, 0 for never.
func (m *Model) ExactMargin() float64 { return m.margins.exact }

// WithMargins returns a copy of the model that has the given margins, see Config,
// and this training record; where record is nil it keeps its own. The copy shares
// the memory of the model. It returns an error where NewModel does.
func (m *Model) WithMargins(probe, exact float64, record json.RawMessage) (*Model, error) {
	c := *m
	c.margins = margins{probe, exact}
	if err := c.margins.check(); err != nil {
		return nil, fmt.Errorf("screen: %w", err)
	}
	if record != nil {
		if err := checkRecord(record); err != nil {
			return nil, fmt.Errorf("screen: record: %w", err)
		}
		c.record = bytes.Clone(record)
	}
	return &c, nil
}

// BestTwo returns the two best clusters of h and the lead of the first,
// v_first.h - v_second.h, which the margins are compared with. With groups both
// are of the best group. Where there is no second cluster, second is first and
// the lead is +Inf. It returns an error where h is not a context, as TopK does.
func (s *Searcher) BestTwo(h []float32) (first, second int, lead float64, err error) {
	if err := s.query.Set(h); err != nil {
		return 0, 0, 0, err
	}
	var best [2]softmax.Prediction
	if n, _ := s.model.bestTwo(&best, s.query, s.float32); n < 2 {
		return int(best[0].ID), int(best[0].ID), math.Inf(1), nil
	}
	return int(best[0].ID), int(best[1].ID), best[0].Logit - best[1].Logit, nil
}

// found is what routing finds out about a context.
type found struct {
	set   []uint32 // its candidates, ascending
	rows  int      // cluster and group vectors scanned for it
	both  bool     // set is that of two clusters
	exact bool     // the lead is below the exact margin; set is then that of one
}

// find routes the query's context. The set of two clusters lies in the
// searcher's scratch until the next call.
func (s *Searcher) find() found { return s.findBelow(s.model.margins) }

// findBelow is find with other margins, those of the model or 0.
func (s *Searcher) findBelow(limits margins) found {
	m := s.model
	if limits == (margins{}) {
		cluster, rows := m.route(s.query, s.float32)
		return found{set: m.Candidates(cluster), rows: rows}
	}
	var best [2]softmax.Prediction
	n, rows := m.bestTwo(&best, s.query, s.float32)
	f := found{set: m.Candidates(int(best[0].ID)), rows: rows}
	if n < 2 {
		return f
	}
	lead := best[0].Logit - best[1].Logit
	if f.exact = lead < limits.exact; f.exact {
		return f
	}
	if f.both = lead < limits.probe; f.both {
		s.union = appendUnion(s.union[:0], f.set, m.Candidates(int(best[1].ID)))
		f.set = s.union
	}
	return f
}

// bestTwo is route for the two best clusters of the best group, or of all; it
// returns their number, 1 where there are no two.
func (m *Model) bestTwo(best *[2]softmax.Prediction, q *softmax.Query, float32 bool) (n, rows int) {
	g := m.groups
	if g == nil {
		if float32 {
			return m.clusters.TopKFloat32(best[:], q), m.Clusters()
		}
		return m.clusters.TopK(best[:], q), m.Clusters()
	}
	var ids []uint32
	if float32 {
		ids = g.members(int(g.layer.ArgmaxFloat32(q)))
		n = m.clusters.TopKOfFloat32(best[:], q, ids)
	} else {
		ids = g.members(int(g.layer.Argmax(q)))
		n = m.clusters.TopKOf(best[:], q, ids)
	}
	return n, m.Groups() + len(ids)
}
