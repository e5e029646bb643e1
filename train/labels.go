package train

import (
	"context"
	"fmt"

	"github.com/learning-to-screen/l2s/softmax"
)

// LabelOptions are the options of [Labels]. The zero value is ready to use.
type LabelOptions struct {
	// Threads is the number of goroutines; 0 means runtime.GOMAXPROCS(0).
	Threads int
	// Progress, unless nil, is told how many contexts are done.
	Progress func(Progress)
}

// labelChunk is the number of contexts that are searched together, so that the
// layer's codes come from memory once for all of them, and between two looks at
// the context for cancellation: some ten milliseconds of work for a large layer.
const labelChunk = 64

// Labels returns the labels y of every context (Algorithm 1, first step): the
// ids of its k largest logits under the full layer, best first, as N rows of
// k. Exact by the reference arithmetic of package softmax, ties to the lower
// id. contexts is N x layer.Dim(), row-major, and is only read.
//
// The logits are never kept. Errors: k out of range, contexts
// that are not whole rows, a NaN or Inf (the context is named), ctx cancelled
// (errors.Is with ctx.Err() holds).
func Labels(ctx context.Context, layer *softmax.Layer, contexts []float32, k int, opt LabelOptions) (labels []uint32, err error) {
	err = guard(func() (err error) {
		labels, err = labelsOf(ctx, layer, contexts, k, opt)
		return err
	})
	return labels, err
}

func labelsOf(ctx context.Context, layer *softmax.Layer, contexts []float32, k int, opt LabelOptions) ([]uint32, error) {
	n, err := contextCount(layer, contexts)
	if err != nil {
		return nil, err
	}
	if k < 1 || k > layer.Labels() {
		return nil, fmt.Errorf("train: k: found %d, want 1 to %d, the number of labels", k, layer.Labels())
	}
	if opt.Threads < 0 {
		return nil, fmt.Errorf("train: threads: found %d, want at least 0", opt.Threads)
	}
	return topLabels(ctx, layer, contexts, n, k, threadCount(opt.Threads), &reporter{call: opt.Progress})
}

func topLabels(ctx context.Context, layer *softmax.Layer, contexts []float32, n, k, threads int, report *reporter) ([]uint32, error) {
	type scratch struct {
		queries [labelChunk]*softmax.Query
		top     []softmax.Prediction
	}
	dim := layer.Dim()
	workers := make([]scratch, threads)
	for i := range workers {
		for c := range labelChunk {
			workers[i].queries[c] = softmax.NewQuery(dim)
		}
		workers[i].top = make([]softmax.Prediction, labelChunk*k)
	}
	labels := make([]uint32, n*k)
	err := forEach(ctx, threads, n, labelChunk, report.stage(StageLabels, 0, n), func(worker, lo, hi int) error {
		w := &workers[worker]
		m := hi - lo
		for c, q := range w.queries[:m] {
			i := lo + c
			if err := q.Set(contexts[i*dim : (i+1)*dim]); err != nil {
				return fmt.Errorf("train: context %d: %w", i, err)
			}
		}
		layer.TopKBatch(w.top[:m*k], k, w.queries[:m])
		for j, p := range w.top[:m*k] {
			labels[lo*k+j] = p.ID
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return labels, nil
}
