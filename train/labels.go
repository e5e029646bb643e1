package train

import (
	"context"
	"fmt"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/files/labelfile"
	"github.com/learning-to-screen/l2s/internal/ground/stage"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/train/internal/corpus"
	"github.com/learning-to-screen/l2s/train/internal/state"
)

// labelChunk is the number of contexts that are searched together, so that the layer's codes come
// from memory once for all of them, and that are searched between two checks for cancellation: some
// ten milliseconds of work for a large layer.
const labelChunk = 64

// Labels returns the labels y of every context (Algorithm 1, first step): the
// ids of its k largest logits under the full layer, best first, as N rows of
// k. Exact, as package l2s defines logits, ties to the lower
// id. contexts is N x l.Dim(), row-major, and is only read.
//
// The logits are never kept. Errors: k out of range, contexts
// that are not whole rows, a NaN or Inf (the context is named), ctx cancelled
// (errors.Is with ctx.Err() holds).
func Labels(ctx context.Context, l *l2s.Layer, contexts []float32, k int, opt RunOptions) (labels []uint32, err error) {
	err = (*engine.Layer)(l).Work(func() (err error) {
		labels, err = bestLabels(ctx, (*engine.Layer)(l).Exact(), contexts, k, opt)
		return err
	})
	return labels, err
}

func bestLabels(ctx context.Context, layer *exact.Layer, contexts []float32, k int, opt RunOptions) (labels []uint32, err error) {
	err = wrapErr(func() (err error) {
		c, err := corpus.New(layer, contexts, opt.Threads)
		switch {
		case err != nil:
			return err
		case k < 1 || k > layer.Labels():
			return fmt.Errorf("k: found %d, expected 1 to %d, the number of labels", k, layer.Labels())
		case opt.Threads < 0:
			return fmt.Errorf("threads: found %d, expected at least 0", opt.Threads)
		}
		c.K, c.Report = k, newReporter(opt.Progress)
		labels, err = topLabels(ctx, c, layer)
		return err
	})
	return labels, err
}

// findLabels takes the labels that are given, or those that an interrupted run
// left, or computes them.
func findLabels(ctx context.Context, c *corpus.Corpus, layer *exact.Layer, given []uint32, store *state.Store) ([]uint32, error) {
	if given != nil {
		if len(given) != c.N*c.K {
			return nil, fmt.Errorf("labels: found %d, expected k = %d for each of %d contexts", len(given), c.K, c.N)
		}
		if err := labelfile.CheckIDs(given, c.K, c.Labels, 0); err != nil {
			return nil, fmt.Errorf("labels: %w", err)
		}
		return given, nil
	}
	labels, err := store.Labels(ctx)
	if err != nil || labels != nil {
		return labels, err
	}
	if labels, err = topLabels(ctx, c, layer); err != nil {
		return nil, err
	}
	return labels, store.PutLabels(labels)
}

func topLabels(ctx context.Context, c *corpus.Corpus, layer *exact.Layer) ([]uint32, error) {
	labels := make([]uint32, c.N*c.K)
	search := corpus.Search{
		Layer: layer, Threads: c.Threads, N: c.N, K: c.K, Chunk: labelChunk, Set: c.Set,
		Take: func(i int, best []exact.Prediction) {
			for j, p := range best {
				labels[i*c.K+j] = p.ID
			}
		},
		Done: c.Report.Stage(stage.Labels, 0, c.N),
	}
	if err := search.Run(ctx); err != nil {
		return nil, err
	}
	return labels, nil
}
