package screen

import (
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/grow"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
)

// LogProb returns the log-probability of the label id for the context h, as the
// paper defines it to compute perplexity (its appendix): logits are exact within
// the candidate set and w~_s.h + b_s outside, with W~ of the model's tail, and
// the softmax is that over all L labels.
//
// If the model has no tail the labels outside are impossible: they get -Inf,
// and the softmax is that over the set. All logits are exact if the lead of the
// best cluster is below the exact margin. The result has the same bits on every
// CPU.
//
// It returns an error if id is not below L, or if h is not a context, as TopK
// does. It takes memory for L logits with the first query, then none.
func (s *Searcher) LogProb(h []float32, id uint32) (float64, error) {
	if int64(id) >= int64(s.model.labels) {
		return 0, invalid{softmax.ErrRequest, fmt.Sprintf("screen: id: found %d, expected one below the %d labels", id, s.model.labels)}
	}
	qs, err := s.set(1, h)
	if err != nil {
		return 0, err
	}
	routes, err := s.route(qs, s.model.margins)
	if err != nil {
		return 0, err
	}
	q, set := qs[0], s.candidates(routes[0])
	switch {
	case routes[0].exact:
		s.wide = grow.Slice(s.wide, s.model.labels)
		if err := s.layer.Logits(s.wide, q, softmax.Labels{}); err != nil {
			return 0, err
		}
		return s.wide[id] - kernels.LogSumExp(s.wide), nil
	case s.model.tail != nil:
		sum, err := s.sumOverTail(q, set, &softmax.Request{})
		return s.wide[id] - sum, err
	}
	at, ok := slices.BinarySearch(set, id)
	if !ok {
		return math.Inf(-1), nil
	}
	s.logits = grow.Slice(s.logits, len(set))
	if err := s.layer.Logits(s.logits, q, softmax.Only(set)); err != nil {
		return 0, err
	}
	return s.logits[at] - kernels.LogSumExp(s.logits), nil
}

// sumOverTail returns the log of the sum of e^x over all labels that the request
// permits, with the logits of the set, edited as the request says, and those of
// the tail for all other labels. It leaves them in s.wide.
func (s *Searcher) sumOverTail(q *softmax.Query, set []uint32, req *softmax.Request) (float64, error) {
	s.wide, s.logits = grow.Slice(s.wide, s.model.labels), grow.Slice(s.logits, len(set))
	if err := s.layer.Logits(s.logits, q, softmax.Only(set)); err != nil {
		return 0, err
	}
	s.model.tail.Logits(s.wide, s.bias, q.Vector())
	for j, id := range set {
		s.wide[id] = s.logits[j]
	}
	for _, b := range req.Biases { // their labels are in the set
		s.wide[b.ID] += float64(b.Add)
	}
	if req.Allowed != nil {
		for id := range req.Allowed.Missing(0, len(s.wide)) {
			s.wide[id] = math.Inf(-1)
		}
	}
	if req.Banned != nil {
		for id := range req.Banned.All() {
			s.wide[id] = math.Inf(-1)
		}
	}
	return kernels.LogSumExp(s.wide), nil
}
