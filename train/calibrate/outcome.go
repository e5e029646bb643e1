package calibrate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
	"github.com/learning-to-screen/l2s/train"
	"github.com/learning-to-screen/l2s/train/internal/ids"
)

// outcome is what the margins can make of one context.
type outcome struct {
	lead float64
	// The answers from the set of the best cluster and from the sets of the two
	// best: how many of the k labels they miss, and among how many labels they
	// are sought; exactAnswer if the exact layer answers, and misses none.
	missed [2]uint32
	rows   [2]uint32
}

// exactAnswer stands for a number of rows that is the exact layer's. No set has
// as many: ids are below 2^32 - 1 labels.
const exactAnswer = math.MaxUint32

// routeChunk is the number of contexts that a goroutine routes at a time.
const routeChunk = 256

// findOutcomes finds the outcomes of all contexts.
func findOutcomes(ctx context.Context, m *screen.Model, layer *softmax.Layer, contexts []float32, opt *Options) ([]outcome, error) {
	dim := layer.Dim()
	n := len(contexts) / dim
	searchers := make([]*screen.Searcher, parallel.Threads(opt.Threads, n))
	for i := range searchers {
		s, err := screen.NewSearcher(m, layer)
		if err != nil {
			return nil, err
		}
		searchers[i] = s
	}
	labels, err := train.Labels(ctx, layer, contexts, opt.K, train.LabelOptions{Threads: opt.Threads, Progress: opt.Progress})
	if err != nil {
		return nil, err
	}
	var done func(int)
	if opt.Progress != nil {
		report := func(done int) { opt.Progress(train.Progress{Stage: "route", Done: done, Total: n}) }
		report(0)
		done = parallel.Counter(n, report)
	}
	all := make([]outcome, n)
	err = parallel.Each(ctx, len(searchers), n, routeChunk, done, func(worker, lo, hi int) error {
		for i := lo; i < hi; i++ {
			var best [2]softmax.Prediction
			found, err := searchers[worker].Nearest(best[:], contexts[i*dim:(i+1)*dim])
			if err != nil {
				return fmt.Errorf("context %d: %w", i, err)
			}
			lead := math.Inf(1)
			if found == 2 {
				lead = best[0].Logit - best[1].Logit
			} else {
				best[1] = best[0]
			}
			shell := m.Clusters() * m.Shell(contexts[i*dim:(i+1)*dim], best[0])
			first, second := shell+int(best[0].ID), shell+int(best[1].ID)
			one := m.Candidates(first)
			a, b := one, m.Candidates(second) // of a second probe: the sets of both, or of their pair
			if pair, ok := m.PairCandidates(first, second); ok {
				a, b = pair, nil
			}
			o := outcome{lead: lead, rows: [2]uint32{uint32(len(one)), uint32(ids.UnionSize(a, b))}}
			for _, id := range labels[i*opt.K : (i+1)*opt.K] {
				if !holds(one, id) {
					o.missed[0]++
				}
				if !holds(a, id) && !holds(b, id) {
					o.missed[1]++
				}
			}
			for j, rows := range o.rows {
				if rows < uint32(opt.K) {
					o.missed[j], o.rows[j] = 0, exactAnswer
				}
			}
			all[i] = o
		}
		return nil
	})
	if errors.Is(err, parallel.ErrGone) {
		err = fmt.Errorf("contexts: %w", err)
	}
	return all, err
}

func holds(set []uint32, id uint32) bool {
	_, ok := slices.BinarySearch(set, id)
	return ok
}
