package calibrate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/exact"
	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/internal/precision"
	"github.com/learning-to-screen/l2s/internal/screening"
	"github.com/learning-to-screen/l2s/internal/stage"
	"github.com/learning-to-screen/l2s/softmax"
	"github.com/learning-to-screen/l2s/train"
	"github.com/learning-to-screen/l2s/train/internal/corpus"
)

// outcome has the results of the budgets and of the exact layer for one context.
type outcome struct {
	lead float64
	// For each rung of the ladder: the number of the k labels that the answer misses, and of its
	// candidates.
	missed, candidates []uint32
}

// findOutcomes finds the outcomes of all contexts.
func findOutcomes(ctx context.Context, m *screening.Model, layer *softmax.Layer, contexts []float32, opt *Options) ([]outcome, error) {
	if _, err := screening.NewSearcher(m, (*exact.Layer)(layer), screening.Options{}); err != nil { // it does not go with the layer
		return nil, err
	}
	c, err := corpus.New(layer, contexts, opt.Threads)
	if err != nil {
		return nil, err
	}
	if opt.Progress != nil {
		c.Report.Call = func(p corpus.Progress) { opt.Progress(train.Progress(p)) }
	}
	labels, err := train.Labels(ctx, layer, contexts, opt.K, train.RunOptions{Threads: opt.Threads, Progress: opt.Progress})
	if err != nil {
		return nil, err
	}
	r, found, err := c.RouteBy(ctx, m, stage.Route)
	if errors.Is(err, parallel.ErrGone) {
		return nil, fmt.Errorf("contexts: %w", err)
	}
	if err != nil {
		return nil, err
	}
	ladder := m.Ladder()
	sizes := make([][]uint32, r.Cells()) // of the candidates at each rung
	all := make([]outcome, c.N)
	for i, f := range found {
		if i%1024 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		cell := r.Cell(f)
		if sizes[cell] == nil {
			for _, x := range ladder {
				list, err := m.Candidates(cell, x.Budget)
				if err != nil {
					return nil, err
				}
				sizes[cell] = append(sizes[cell], uint32(len(list)))
			}
		}
		o := precision.Find(cell, m.List(cell).IDs, labels[i*opt.K:(i+1)*opt.K])
		all[i] = outcome{lead: f.Lead, candidates: sizes[cell], missed: make([]uint32, len(ladder))}
		for j, n := range sizes[cell] {
			all[i].missed[j] = uint32(opt.K - o.Hits(opt.K, int(n)))
		}
	}
	return all, nil
}

// point is a budget, by its place in the ladder, and the lead below which the exact layer
// answers.
type point struct {
	rung  int
	exact float64
}

// exactSteps is the number of margins for the exact layer on a path.
const exactSteps = 16

// newPath returns the points that are tested, the safest first: the largest budget with the exact
// layer for the share limit of the contexts that choose, which are those with the smallest lead,
// and for smaller shares; then without the exact layer, down the ladder.
func newPath(choosing []outcome, rungs int, limit float64) (path []point) {
	if limit > 0 {
		leads := make([]float64, len(choosing))
		for i, o := range choosing {
			leads[i] = o.lead
		}
		slices.Sort(leads)
		for i := exactSteps; i > 0; i-- {
			at := int(float64(limit * float64(i) / exactSteps * float64(len(leads))))
			if p := (point{rungs - 1, min(leads[min(at, len(leads)-1)], math.MaxFloat64)}); p.exact > 0 && (len(path) == 0 || p != path[len(path)-1]) {
				path = append(path, p)
			}
		}
	}
	for rung := rungs - 1; rung >= 0; rung-- {
		path = append(path, point{rung: rung})
	}
	return path
}

// missed returns the number of labels of a context that the answer misses.
func (p point) missed(o *outcome) uint32 {
	if o.lead < p.exact {
		return 0
	}
	return o.missed[p.rung]
}
