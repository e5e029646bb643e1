package screen

import (
	"context"
	"runtime/pprof"

	"github.com/learning-to-screen/l2s/softmax"
)

// ProfileLabels gives labels to the samples of a CPU profile that are taken within TopK, Search,
// SearchBatch, LogProb and LogProbAt: l2s=screen, and source, which is the String of a
// [softmax.Source], as soon as the query knows which labels it chooses among.
//
// Go does not tell what labels a goroutine has. So a query sets the labels of ctx and its own, and
// the labels of ctx alone afterwards: give the context whose labels the goroutines of the queries
// have, or context.Background() if they have none. A query with labels allocates nothing and takes
// some nanoseconds more, whereas [pprof.Do] makes two allocations.
func ProfileLabels(ctx context.Context) Option {
	p := &profile{before: ctx, query: pprof.WithLabels(ctx, pprof.Labels("l2s", "screen"))}
	for i := range p.source {
		p.source[i] = pprof.WithLabels(p.query, pprof.Labels("source", softmax.Source(i).String()))
	}
	return func(s *Searcher) { s.profile = p }
}

// profile sets the labels of goroutines.
type profile struct {
	before, query context.Context
	source        [softmax.FromSet + 1]context.Context
}

func (p *profile) begin() { pprof.SetGoroutineLabels(p.query) }
func (p *profile) end()   { pprof.SetGoroutineLabels(p.before) }

// from is for the answer from a source, if there are labels.
func (p *profile) from(source softmax.Source) {
	if p != nil {
		pprof.SetGoroutineLabels(p.source[source])
	}
}
