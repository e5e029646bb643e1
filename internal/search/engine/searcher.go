package engine

import (
	"cmp"
	"math"
	"sync/atomic"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/files/heads"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/logsum"
	"github.com/learning-to-screen/l2s/internal/search/previewing"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/search/tail"
)

// Options are l2s.Options, with observers.
type Options struct {
	Budget    float64
	OverTail  bool
	Copies    int64
	Observers []screening.Observer // of queries by a screen
}

// Screening returns the options of a searcher by a screen.
func (o Options) Screening() screening.Options {
	p := screening.Options{Budget: o.Budget, Copies: o.Copies, Observers: o.Observers}
	if o.OverTail {
		return logsum.OverTail(p)
	}
	return p
}

// Searcher is l2s.Searcher.
type Searcher struct {
	// The fields that every query reads, next to each other.
	head    *heads.Head              // of the layer
	screen  *screening.Searcher      // nil without a screen
	preview *previewing.Searcher     // nil without a preview
	exact   *exact.Searcher          // answers if both are nil, batches of exact requests, and single logits
	watch   *atomic.Pointer[Watcher] // of a pool, nil without one
	budget  float64                  // for requests to the preview that name none
	stats   Stats

	layer *Layer
	index *Index
	found []exact.Answer
	label [1]uint32 // of LogProb, with its logit
	logit [1]float64
}

// Stats are l2s.Stats.
type Stats struct {
	Queries, Looked, Scored, Exact, Fallback, Far uint64
}

func (s *Stats) add(o Stats) {
	s.Queries += o.Queries
	s.Looked += o.Looked
	s.Scored += o.Scored
	s.Exact += o.Exact
	s.Fallback += o.Fallback
	s.Far += o.Far
}

// NewSearcher is l2s.NewSearcher.
func NewSearcher(l *Layer, x *Index, o Options) (*Searcher, error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	if !(o.Budget >= 0) {
		return nil, exact.Invalid(exact.ErrRequest, "l2s: budget: found %v, expected a number above 0, or 0 for the index's own", o.Budget)
	}
	s := &Searcher{layer: l, head: l.head, index: x, budget: o.Budget}
	err := l.Read(func() (err error) { // the fingerprint, and copies of codes
		if err := x.Check(l); err != nil {
			return err
		}
		s.exact = exact.NewSearcher(l.exact)
		switch {
		case x == nil:
		case x.preview != nil:
			s.preview, err = previewing.NewSearcher(x.preview, l.exact)
		default:
			s.screen, err = screening.NewSearcher(x.screen, l.exact, o.Screening())
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// TopK is l2s.Searcher.TopK.
func (s *Searcher) TopK(dst []exact.Prediction, h []float32) (n int, err error) {
	a, err := s.Search(dst, h, &exact.Request{})
	return a.Count, err
}

// Search is l2s.Searcher.Search.
func (s *Searcher) Search(dst []exact.Prediction, h []float32, req *exact.Request) (a exact.Answer, err error) {
	before, err := s.head.Enter()
	if err != nil {
		return a, err
	}
	defer s.head.Leave(before, &err)
	return s.search(dst, h, req)
}

// search asks the search of the index, and counts its work.
func (s *Searcher) search(dst []exact.Prediction, h []float32, req *exact.Request) (a exact.Answer, err error) {
	switch {
	case s.screen != nil:
		a, err = s.screen.Search(dst, h, *req)
		if n := s.screen.TakeStats(); err == nil {
			s.stats.add(Stats{n.Queries, n.Routing, n.Candidates, n.Exact, n.Lacking, 0})
		}
	case s.preview != nil:
		a, err = s.byPreview(dst, h, req)
	default:
		if a, err = s.exact.Search(dst, h, *req); err == nil {
			s.stats.Queries++
			s.stats.Exact++
		}
	}
	return a, err
}

func (s *Searcher) byPreview(dst []exact.Prediction, h []float32, req *exact.Request) (a exact.Answer, err error) {
	if req.Budget == 0 && s.budget != 0 {
		ask := *req
		ask.Budget, req = s.budget, &ask
	}
	a, err = s.preview.Answer(dst, h, req, nil)
	counts := &s.preview.Look().Stats
	n := *counts
	*counts = previewing.Stats{}
	if err != nil {
		return a, err
	}
	fallback, asked := uint64(0), s.preview.Exactly(req, len(dst))
	if !asked {
		fallback = n.Exact
		if s.watch != nil {
			if w := s.watch.Load(); w != nil {
				(*w).Previewed(s.index, h, s.index.StepOf(req.Budget), a.Source == exact.FromLayer)
			}
		}
	}
	s.stats.add(Stats{n.Queries, n.Looked, n.Kept, n.Exact, fallback, n.Far})
	return a, nil
}

// SearchBatch is l2s.Searcher.SearchBatch.
func (s *Searcher) SearchBatch(dst []exact.Prediction, answers []exact.Answer, contexts []float32, req *exact.Request) (err error) {
	before, err := s.head.Enter()
	if err != nil {
		return err
	}
	defer s.head.Leave(before, &err)
	return s.searchBatch(dst, answers, contexts, req)
}

func (s *Searcher) searchBatch(dst []exact.Prediction, answers []exact.Answer, contexts []float32, req *exact.Request) error {
	d, n := s.layer.Dim(), len(answers)
	if len(contexts) != n*d {
		return exact.Invalid(exact.ErrContext, "l2s: contexts: found %d elements, expected dimension %d for each of %d answers", len(contexts), d, n)
	}
	k, err := exact.Each(len(dst), n)
	if err != nil {
		return err
	}
	if s.exactly(req, k) { // rows are read once for several contexts
		if err = s.exact.SearchBatch(dst, answers, contexts, *req); err == nil {
			s.stats.Queries += uint64(n)
			s.stats.Exact += uint64(n)
		}
		return err
	}
	// Nothing is written unless all contexts are right.
	if err := exact.Check(req, s.layer.Labels(), k); err != nil {
		return err
	}
	if i, j, found := kernels.FirstNotFinite(kernels.Float32Rows(contexts, d)); found {
		return exact.Invalid(exact.ErrContext, "l2s: contexts: row %d: found %v at element %d, expected finite numbers", i, contexts[i*d+j], j)
	}
	for i := range answers {
		if answers[i], err = s.search(dst[i*k:(i+1)*k], contexts[i*d:(i+1)*d], req); err != nil {
			return err
		}
	}
	return nil
}

// Answers returns memory for the answers of a batch, which the searcher keeps.
func (s *Searcher) Answers(n int) []exact.Answer {
	s.found = mem.Grow(s.found, n)
	return s.found
}

// exactly reports whether the exact layer answers a request for k labels in any context.
func (s *Searcher) exactly(req *exact.Request, k int) bool {
	return s.index == nil || req.Exact || exact.IsList(req.Among) || s.preview != nil && s.preview.Exactly(req, k)
}

// Logits is l2s.Searcher.Logits.
func (s *Searcher) Logits(dst []float64, h []float32, among exact.Labels) (err error) {
	before, err := s.head.Enter()
	if err != nil {
		return err
	}
	defer s.head.Leave(before, &err)
	return s.exact.Score(dst, h, among)
}

// LogProb is l2s.Searcher.LogProb.
func (s *Searcher) LogProb(h []float32, id uint32, temperature float64) (x float64, err error) {
	before, err := s.head.Enter()
	if err != nil {
		return 0, err
	}
	defer s.head.Leave(before, &err)
	return s.logProb(h, id, temperature)
}

func (s *Searcher) logProb(h []float32, id uint32, temperature float64) (float64, error) {
	switch {
	case s.screen != nil:
		return logsum.LogProb(s.screen, h, id, temperature)
	case s.preview == nil:
		return s.exact.LogProb(h, id, temperature)
	}
	if err := tail.CheckTemperature(temperature); err != nil {
		return 0, err
	}
	s.label[0] = id
	if err := s.exact.Score(s.logit[:], h, exact.Only(s.label[:])); err != nil {
		return 0, err
	}
	a, err := s.uncounted(nil, h, &exact.Request{LogSum: true, Temperature: temperature, Budget: s.budget})
	if err == nil && a.Source == exact.FromLayer { // there is no estimate
		return s.exact.LogProb(h, id, temperature)
	}
	return min(s.logit[0]/temperature-a.LogSum, 0), err
}

// uncounted asks the preview.
func (s *Searcher) uncounted(dst []exact.Prediction, h []float32, req *exact.Request) (exact.Answer, error) {
	a, err := s.preview.Answer(dst, h, req, nil)
	s.preview.Look().Stats = previewing.Stats{}
	return a, err
}

// LogSum is l2s.Searcher.LogSum.
func (s *Searcher) LogSum(h []float32, temperature, confidence float64) (x tail.Interval, err error) {
	before, err := s.head.Enter()
	if err != nil {
		return x, err
	}
	defer s.head.Leave(before, &err)
	return s.logSum(h, temperature, confidence)
}

func (s *Searcher) logSum(h []float32, temperature, confidence float64) (x tail.Interval, err error) {
	if s.screen != nil {
		return logsum.LogSum(s.screen, h, temperature, confidence)
	}
	if err := cmp.Or(tail.CheckTemperature(temperature), logsum.CheckConfidence(confidence)); err != nil {
		return x, err
	}
	req, a := exact.Request{LogSum: true, Temperature: temperature, Budget: s.budget}, exact.Answer{}
	if s.preview != nil {
		if a, err = s.uncounted(nil, h, &req); err != nil || a.Source == exact.FromSet {
			return tail.Interval{Log: a.LogSum, Low: math.Inf(-1), High: math.Inf(1)}, err
		}
	}
	req.ExactSum = true
	a, err = s.exact.Search(nil, h, req)
	return tail.Interval{Log: a.LogSum, Low: a.LogSum, High: a.LogSum}, err
}

// Probe asks the preview of the searcher for the best labels by a step, without a count.
func (s *Searcher) Probe(dst []exact.Prediction, h []float32, step int) (n int, err error) {
	a, err := s.uncounted(dst, h, &exact.Request{Budget: s.index.steps[step].Budget})
	return a.Count, err
}

// Screened returns the searcher by the screen, nil without one.
func (s *Searcher) Screened() *screening.Searcher { return s.screen }

// Previewed returns the searcher by the preview, nil without one.
func (s *Searcher) Previewed() *previewing.Searcher { return s.preview }

// Layer returns the layer.
func (s *Searcher) Layer() *Layer { return s.layer }

// Index returns the index, nil for the exact search.
func (s *Searcher) Index() *Index { return s.index }

// Stats returns the counts of the searcher's work so far.
func (s *Searcher) Stats() Stats { return s.stats }

// takeStats returns the counts, which begin at 0 again.
func (s *Searcher) takeStats() (taken Stats) {
	if s.screen != nil { // that others asked
		n := s.screen.TakeStats()
		s.stats.add(Stats{n.Queries, n.Routing, n.Candidates, n.Exact, n.Lacking, 0})
	}
	taken, s.stats = s.stats, Stats{}
	return taken
}
