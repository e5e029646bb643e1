package screen

import (
	"github.com/learning-to-screen/l2s/internal/engine"
	"github.com/learning-to-screen/l2s/internal/exact"
	"github.com/learning-to-screen/l2s/softmax"
)

// Pool answers requests for all goroutines, and changes its model and its layer while they ask.
// Its methods give the answers of a [Searcher], bit for bit.
//
// A model with its layer is a generation. A query ends with the generation that it began with, and
// a query that begins after [Pool.Swap] has returned uses the new one.
//
// A query borrows a searcher, and no lock is held while it runs. A pool makes a searcher per
// concurrent query, and keeps them, with their counts, where a sync.Pool would drop them: a query
// allocates nothing unless it makes a searcher, or a searcher grows as its type describes.
//
// [NewPool] makes one: a zero value has no use, and its methods may panic.
type Pool engine.Pool

func (p *Pool) pool() *engine.Pool { return (*engine.Pool)(p) }

// NewPool returns a pool with the model m over the layer l. Its searchers have the options. Errors
// are as from [NewSearcher].
func NewPool(m *Model, l *softmax.Layer, o Options) (*Pool, error) {
	p, err := engine.NewPool(engine.Over((*exact.Layer)(l)), engine.OfScreen(m.model()), engine.Options{Budget: o.Budget, OverTail: o.OverTail, Copies: o.Copies})
	return (*Pool)(p), err
}

// Swap makes m and l the model and the layer of all queries that begin after it has returned.
// Before any query uses them, it makes the number of searchers that the pool has, at least one. The
// channel is closed when the last query with the old model and the old layer has ended. Then their
// memory can be released, such as a mapped head.
//
// Errors are as from [NewSearcher]. After an error the pool is as it was.
func (p *Pool) Swap(m *Model, l *softmax.Layer) (drained <-chan struct{}, err error) {
	return p.pool().Swap(engine.Over((*exact.Layer)(l)), engine.OfScreen(m.model()))
}

// Stats returns the counts of TopK, Search and SearchBatch since NewPool, over all generations. A
// query counts when it has ended, with all its numbers at once. The counts never fall: the
// difference of two calls has the counts between them.
func (p *Pool) Stats() Stats {
	s := p.pool().Stats()
	return Stats{Queries: s.Queries, Candidates: s.Scored, Routing: s.Looked, Exact: s.Exact, Lacking: s.Fallback}
}

// Do lends f a searcher, for as long as f runs: for several queries of one generation,
// and for the methods of a Searcher that a Pool does not have. [Searcher.Model] tells
// the generations apart. The searcher's own Stats begin at 0. A channel of Swap waits
// for f, so f must not wait for the channel.
//
// Do returns the error of f. The searcher is not used again after a panic, or after an
// error that is neither softmax.ErrContext nor softmax.ErrRequest, such as a fault of a
// mapped head: its scratch may be in any state.
func (p *Pool) Do(f func(s *Searcher) error) error {
	return p.pool().Do(func(s *engine.Searcher) error { return f((*Searcher)(s.Screened())) })
}

// TopK is [Searcher.TopK].
func (p *Pool) TopK(dst []softmax.Prediction, h []float32) (n int, err error) {
	return p.pool().TopK(dst, h)
}

// Search is [Searcher.Search].
func (p *Pool) Search(dst []softmax.Prediction, h []float32, req softmax.Request) (softmax.Answer, error) {
	return p.pool().Search(dst, h, &req)
}

// SearchBatch is [Searcher.SearchBatch]. One generation answers all contexts.
func (p *Pool) SearchBatch(dst []softmax.Prediction, answers []softmax.Answer, contexts []float32, req softmax.Request) error {
	return p.pool().SearchBatch(dst, answers, contexts, &req)
}

// LogProb is [Searcher.LogProb].
func (p *Pool) LogProb(h []float32, id uint32, temperature float64) (float64, error) {
	return p.pool().LogProb(h, id, temperature)
}
