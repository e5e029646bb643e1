package previewing

import (
	"slices"

	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// Steps are rungs of a model for an own state: an evaluate.Method. It is for one goroutine.
type Steps struct {
	s     *Searcher
	rungs []Rung // from fast to precise: a label that one finds counts as found by the later ones
	sure  int
	req   exact.Request
}

// NewSteps returns the steps of the rungs of a searcher's model. Labels that the rung sure misses are
// missed.
func NewSteps(s *Searcher, rungs []Rung, sure int) *Steps {
	return &Steps{s: s, rungs: rungs, sure: sure}
}

// TopK answers by the first rung.
func (t *Steps) TopK(dst []exact.Prediction, h []float32) (int, error) {
	a, err := t.s.Answer(dst, h, &t.req, &t.rungs[0])
	return a.Count, err
}

// Finds returns the first rung that finds the best label of a context, their number if none does,
// and whether it is above the sure one.
func (t *Steps) Finds(id uint32, h []float32) (rung int, missed bool, err error) {
	for i := range t.rungs {
		if l := &t.s.look; !l.Find(h, 1, &t.req, &t.rungs[i]) || slices.Contains(l.IDs, id) {
			return i, i > t.sure, nil
		}
	}
	return len(t.rungs), true, nil
}
