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

// clusters returns the number of clusters that routing finds for them.
func (m margins) clusters() int {
	if m == (margins{}) {
		return 1
	}
	return 2
}

// ProbeMargin returns the lead of the best cluster below which the candidates
// of the two best are looked at, 0 for never.
func (m *Model) ProbeMargin() float64 { return m.margins.probe }

// ExactMargin returns the lead of the best cluster below which the exact layer
// answers, 0 for never.
func (m *Model) ExactMargin() float64 { return m.margins.exact }

// WithMargins returns a copy of the model that has the given margins, see Config,
// and this training record; if record is nil it keeps its own. The copy shares
// the memory of the model. It returns an error in the cases in which NewModel
// does.
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

// Groups returns the number of groups, 0 for a flat screen.
func (m *Model) Groups() int { return m.router.Groups() }

// GroupWeights returns the vectors of the groups, Groups() x d, row-major, nil
// for a flat screen. It must not be changed.
func (m *Model) GroupWeights() []float32 { return m.router.GroupVectors() }

// GroupSizes returns the number of clusters in each group, see Config, nil for a
// flat screen.
func (m *Model) GroupSizes() []int {
	var sizes []int
	for a := range m.Groups() {
		sizes = append(sizes, m.router.GroupSize(a))
	}
	return sizes
}

// GroupClusters returns the clusters of the groups, see Config, nil for a flat screen
// and if each cluster is in one group. It must not be changed.
func (m *Model) GroupClusters() []uint32 { return m.router.GroupClusters() }

// route is what routing finds out about a context.
type route struct {
	context       int // its place in the batch
	first, second int // its clusters; the same if one is looked at
	shell         int // the first cell of its shell
	set           int // where the model has its candidates; -1: the sets of both cells
	exact         bool
	rows          int // cluster and group vectors scanned for it
}

// with reports whether the two contexts are answered from the same labels.
func (r route) with(o route) bool {
	return r.exact == o.exact && r.first == o.first && r.second == o.second && r.shell == o.shell
}

// source says whether the candidates are from one cluster or from two.
func (r route) source() softmax.Source {
	if r.second != r.first {
		return softmax.FromTwoSets
	}
	return softmax.FromSet
}

func compareRoutes(a, b route) int {
	switch {
	case a.exact != b.exact:
		if b.exact {
			return -1
		}
		return 1
	case a.first != b.first:
		return a.first - b.first
	case a.second != b.second:
		return a.second - b.second
	case a.shell != b.shell:
		return a.shell - b.shell
	}
	return a.context - b.context
}

// route finds the clusters of the queries' contexts, by margins that are the
// model's or 0. The result is scratch of s.
func (s *Searcher) route(qs []*softmax.Query, limits margins) ([]route, error) {
	k := limits.clusters()
	s.reserve(len(qs), k)
	if err := s.router.Find(s.best, s.found, k, qs); err != nil {
		return nil, err
	}
	for i, f := range s.found {
		r := s.model.choose(qs[i].Vector(), s.best[i*k:][:f.Count], limits)
		r.context, r.rows = i, f.Rows
		s.routes[i] = r
	}
	return s.routes, nil
}

// choose chooses what the context h is looked up in, by its best clusters, of which there are
// one or two.
func (m *Model) choose(h []float32, best []softmax.Prediction, limits margins) route {
	first := int(best[0].ID)
	shell := m.Clusters() * m.Shell(h, best[0])
	r := route{first: first, second: first, shell: shell, set: shell + first}
	if len(best) == 2 {
		lead := best[0].Logit - best[1].Logit
		r.exact = lead < limits.exact
		if lead < limits.probe && !r.exact {
			r.second, r.set = int(best[1].ID), -1
			if set, ok := m.pairs.find(shell+first, shell+r.second); ok {
				r.set = set
			}
		}
	}
	return r
}

// candidates returns the candidate set of a route, ascending: the set of one
// cell, of a pair, or the sets of two cells, which are scratch of s.
func (s *Searcher) candidates(r route) []uint32 {
	if r.set >= 0 {
		return s.model.set(r.set)
	}
	s.union = appendUnion(s.union[:0], s.model.set(r.shell+r.first), s.model.set(r.shell+r.second))
	return s.union
}

// joined returns the sets of the clusters of a route in shell 0, ascending, which may be
// scratch of s. A sum that adds to them what a regression says of other labels needs
// the whole of the set that the regression is about; the set of a pair, or of another
// shell, may lack some of it.
func (s *Searcher) joined(r route) []uint32 {
	set := s.model.set(r.first)
	if r.second == r.first {
		return set
	}
	s.union = appendUnion(s.union[:0], set, s.model.set(r.second))
	return s.union
}

// Nearest writes the clusters of h to dst, the best first, with their products
// v_t.h as logits, and returns their number: the length of dst, or the number of all if
// there are fewer; with groups, of all in the best group. The first is z(h) (Eq. 2), and
// its lead over the second is what margins are compared with. Ties go to the
// lower cluster. It returns an error if h is not a context, as TopK does.
func (s *Searcher) Nearest(dst []softmax.Prediction, h []float32) (n int, err error) {
	qs, err := s.set(1, h)
	if err != nil || len(dst) == 0 {
		return 0, err
	}
	s.reserve(1, 1)
	if err := s.router.Find(dst, s.found, len(dst), qs); err != nil {
		return 0, err
	}
	return s.found[0].Count, nil
}
