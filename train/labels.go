package train

import (
	"context"
	"fmt"

	"github.com/learning-to-screen/l2s/internal/labelfile"
	"github.com/learning-to-screen/l2s/internal/parallel"
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
	err = outward(func() (err error) {
		d, err := newData(layer, contexts, &Options{K: k, Threads: opt.Threads, Progress: opt.Progress})
		switch {
		case err != nil:
			return err
		case k < 1 || k > layer.Labels():
			return fmt.Errorf("k: found %d, expected 1 to %d, the number of labels", k, layer.Labels())
		case opt.Threads < 0:
			return fmt.Errorf("threads: found %d, expected at least 0", opt.Threads)
		}
		labels, err = topLabels(ctx, d, layer)
		return err
	})
	return labels, err
}

// findLabels takes the labels that are given, or those that an interrupted run
// left, or computes them.
func findLabels(ctx context.Context, d *data, layer *softmax.Layer, given []uint32, c *checkpoint) ([]uint32, error) {
	if given != nil {
		return given, checkLabels(ctx, d, given)
	}
	labels, err := c.labels(ctx)
	if err != nil || labels != nil {
		return labels, err
	}
	if labels, err = topLabels(ctx, d, layer); err != nil {
		return nil, err
	}
	return labels, c.saveLabels(labels)
}

// checkLabels checks labels that are given, and what their computation would
// have checked on its way.
func checkLabels(ctx context.Context, d *data, labels []uint32) error {
	if len(labels) != d.n*d.k {
		return fmt.Errorf("labels: found %d, expected k = %d for each of %d contexts", len(labels), d.k, d.n)
	}
	for i, s := range labels {
		if int64(s) >= int64(d.universe) {
			return fmt.Errorf("labels: found id %d for context %d, expected below %d, the number of labels", s, i/d.k, d.universe)
		}
	}
	if i, s, found := labelfile.Repeated(labels, d.k); found {
		return fmt.Errorf("labels: found id %d twice for context %d, expected %d different ones", s, i, d.k)
	}
	queries := newQueries(d.threads, d.dim)
	return parallel.Each(ctx, d.threads, d.n, assignChunk, nil, func(worker, lo, hi int) error {
		for i := lo; i < hi; i++ {
			if err := d.set(queries[worker:worker+1], i); err != nil {
				return err
			}
		}
		return nil
	})
}

func topLabels(ctx context.Context, d *data, layer *softmax.Layer) ([]uint32, error) {
	type scratch struct {
		*softmax.Searcher
		queries []*softmax.Query
		top     []softmax.Prediction
		answers []softmax.Answer
	}
	workers := make([]scratch, d.threads)
	for i := range workers {
		workers[i] = scratch{softmax.NewSearcher(layer), newQueries(labelChunk, d.dim), make([]softmax.Prediction, labelChunk*d.k), make([]softmax.Answer, labelChunk)}
	}
	labels := make([]uint32, d.n*d.k)
	err := parallel.Each(ctx, d.threads, d.n, labelChunk, d.report.stage(StageLabels, 0, d.n), func(worker, lo, hi int) error {
		w := &workers[worker]
		m := hi - lo
		if err := d.set(w.queries[:m], lo); err != nil {
			return err
		}
		if err := w.Find(w.top[:m*d.k], w.answers[:m], w.queries[:m], &softmax.Request{K: d.k}); err != nil {
			return err
		}
		for j, p := range w.top[:m*d.k] {
			labels[lo*d.k+j] = p.ID
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return labels, nil
}

// FindLabels returns the labels with which [Run] would work with these options: those
// of opt.Labels, those that a run before kept in opt.Checkpoint, or new ones, which are
// then kept there. They serve runs of other options with the same K, which are given
// them as Options.Labels.
//
// The errors are the errors of [Labels], and the errors of [Run] about the checkpoint.
func FindLabels(ctx context.Context, layer *softmax.Layer, contexts []float32, opt Options) (labels []uint32, err error) {
	err = outward(func() error {
		d, err := newData(layer, contexts, &opt)
		if err != nil {
			return err
		}
		if err := opt.check(d.n, d.universe, d.dim, nil); err != nil {
			return err
		}
		if err := d.identify(ctx); err != nil {
			return err
		}
		c, err := openCheckpoint(d, layer, &opt)
		if err != nil {
			return err
		}
		labels, err = findLabels(ctx, d, layer, opt.Labels, c)
		return err
	})
	return labels, err
}
