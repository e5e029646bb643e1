package screen

import (
	"math"
	"unsafe"

	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
)

// shorten makes what the short way needs, if there is one.
func (s *Searcher) shorten() {
	m := s.model
	groups, clusters, ok := m.router.Packed()
	if !ok || s.packed == nil || m.margins.probe > 0 && s.packedSets == m.cells() {
		return // the sets of two clusters together are not packed
	}
	s.groups, s.clusters = groups, clusters
	s.wanted, s.scored = m.margins.clusters(), len(m.shells) > 0 || m.margins != (margins{})
	s.direct = s.layer.Direct(max(m.LargestSet(), m.router.LargestList()))
	kernels.AddLines(&s.directLines, int(unsafe.Offsetof(s.directLines)), unsafe.Slice(s, 1))
	s.direct.AddLines(&s.directLines)
	m.router.AddLines(&s.directLines)
	s.packed.AddLines(&s.directLines)
	// The first query of plain Go makes scratch.
	s.direct.Set(make([]float32, m.Dim()))
	var best [2]softmax.Prediction
	s.direct.Route(best[:s.wanted], s.groups, s.clusters, s.scored)
}

// TopK writes the labels with the k = len(dst) largest logits within the
// candidate set of h's cluster to dst, in order, and returns their number: k,
// unless Short was given and the set holds fewer. Errors are as from Search.
func (s *Searcher) TopK(dst []softmax.Prediction, h []float32) (n int, err error) {
	if s.direct != nil && s.profile == nil {
		if _, ok := s.directly(dst, nil, h); ok {
			return len(dst), nil
		}
	}
	a, err := s.Search(dst, h, softmax.Request{K: len(dst)})
	return a.Count, err
}

// directly answers a plain request about one context by the short way, and writes the log-sum
// to sum unless that is nil. It reports false if search must answer.
func (s *Searcher) directly(dst []softmax.Prediction, sum *float64, h []float32) (source softmax.Source, ok bool) {
	s.directLines.Prefetch()
	if !s.direct.Set(h) {
		return 0, false
	}
	var best [2]softmax.Prediction
	rows, ok := s.direct.Route(best[:s.wanted], s.groups, s.clusters, s.scored)
	if !ok {
		return 0, false
	}
	r := route{set: int(best[0].ID)}
	if s.scored {
		if r = s.model.choose(h, best[:s.wanted], s.model.margins); r.exact || r.set < 0 {
			return 0, false
		}
	}
	size, ok := s.direct.Best(dst, sum, s.packed, r.set)
	if !ok {
		return 0, false
	}
	if source = r.source(); source == softmax.FromTwoSets {
		s.stats.Probes++
	}
	s.profile.from(source)
	s.stats.Queries++
	s.stats.Candidates += uint64(size)
	s.stats.Routing += uint64(rows)
	return source, true
}

// fewContexts is the number of contexts up to which the short way is faster, one context
// after the other, than to answer those of one cluster together.
const fewContexts = 8

// each answers a plain request about contexts by the short way, one after the other, and
// returns how many it has answered. It answers none unless all are contexts.
func (s *Searcher) each(dst []softmax.Prediction, answers []softmax.Answer, contexts []float32, req *softmax.Request) (done int) {
	d, k := s.model.Dim(), req.K
	if len(answers) > 1 {
		if len(contexts) != len(answers)*d {
			return 0
		}
		if _, _, found := kernels.Float32Rows(contexts, d).NotFinite(); found {
			return 0
		}
	} else if len(answers) == 1 {
		d = len(contexts)
	}
	for i := range answers {
		a := softmax.Answer{Count: k, LogSum: math.Inf(-1)}
		var sum *float64
		if req.LogSum {
			sum = &a.LogSum
		}
		var ok bool
		if a.Source, ok = s.directly(dst[i*k:(i+1)*k], sum, contexts[i*d:(i+1)*d]); !ok {
			return i
		}
		answers[i] = a
	}
	return len(answers)
}
