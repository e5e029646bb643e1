package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/learning-to-screen/l2s/internal/labelfile"
	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/internal/router"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
	"github.com/learning-to-screen/l2s/train/internal/corpus"
	"github.com/learning-to-screen/l2s/train/internal/kmeans"
	"github.com/learning-to-screen/l2s/train/internal/learn"
	"github.com/learning-to-screen/l2s/train/internal/state"
)

// Run makes a screen for the layer from contexts, N x layer.Dim() row-major,
// which are only read and may be a memory-mapped file: Algorithm 1 of the
// paper, see the package's documentation for the steps. It returns the screen
// and the record that is also inside it.
//
// Errors: options out of their range (see [Options]), contexts that are not
// whole rows, a NaN or Inf (the context is named), a learning rate so high
// that V overflows: of the checkpoint the labels are kept then, for a run with a
// lower rate. When ctx is cancelled it returns within a fraction of a
// second an error for which errors.Is with ctx.Err() holds.
func Run(ctx context.Context, layer *softmax.Layer, contexts []float32, opt Options) (model *screen.Model, record *Record, err error) {
	err = outward(func() error {
		c, err := corpus.New(layer, contexts, opt.Threads)
		if err != nil {
			return err
		}
		model, record, err = run(ctx, layer, c, &opt)
		return err
	})
	return model, record, err
}

// RunRows is [Run] for contexts of another type, rows of the layer's dimension: of
// float16, say, in half the memory. They are widened as they are read, and give the screen that
// Run makes of their values in float32.
func RunRows(ctx context.Context, layer *softmax.Layer, contexts kernels.Rows, opt Options) (model *screen.Model, record *Record, err error) {
	err = outward(func() error {
		c, err := corpus.Of(layer, contexts, opt.Threads)
		if err != nil {
			return err
		}
		model, record, err = run(ctx, layer, c, &opt)
		return err
	})
	return model, record, err
}

// outward runs f, which reads the contexts, and makes its error one of the
// package. The contexts may be a mapped file: that another program has shortened
// it is an error.
func outward(f func() error) error {
	switch err := parallel.Guard(f); {
	case err == nil:
		return nil
	case errors.Is(err, parallel.ErrGone):
		return fmt.Errorf("train: contexts: %w", err)
	default:
		return fmt.Errorf("train: %w", err)
	}
}

// trainer is a run under way.
type trainer struct {
	*corpus.Corpus
	layer  *softmax.Layer
	opt    *Options
	store  *state.Store
	record *Record

	// The contexts to learn from and to measure on: of the corpus, or held is of
	// Options.Validation, and heldIDs is nil.
	pool, held       *corpus.Corpus
	poolIDs, heldIDs []uint32
	validation       *corpus.Corpus // of Options.Validation, nil without
}

func run(ctx context.Context, layer *softmax.Layer, c *corpus.Corpus, opt *Options) (*screen.Model, *Record, error) {
	t, err := newTrainer(ctx, layer, c, opt)
	if err != nil {
		return nil, nil, err
	}
	if err := t.split(ctx); err != nil {
		return nil, nil, err
	}
	form, err := t.form(ctx)
	if err != nil {
		return nil, nil, err
	}
	v, err := t.vectors(ctx, form)
	if err != nil {
		return nil, nil, err
	}
	m, err := t.screen(ctx, form, v)
	return m, t.record, err
}

// newTrainer checks what is given and finds the labels.
func newTrainer(ctx context.Context, layer *softmax.Layer, c *corpus.Corpus, opt *Options) (*trainer, error) {
	if err := opt.Check(c.N, c.Labels); err != nil {
		return nil, err
	}
	c.K, c.Seed, c.Report = opt.K, opt.Seed, newReporter(opt.Progress)
	digest, err := c.Digest(ctx)
	if err != nil {
		return nil, err
	}
	t := &trainer{Corpus: c, layer: layer, opt: opt, record: newRecord(opt, c.N, digest)}
	on := struct {
		Options
		Validation labelfile.Digest
	}{Options: t.record.Options}
	if opt.Validation != nil {
		if t.validation, err = corpus.New(layer, opt.Validation, opt.Threads); err != nil {
			return nil, fmt.Errorf("validation: %w", err)
		}
		if on.Validation, err = t.validation.Digest(ctx); err != nil { // it names what is not finite
			return nil, fmt.Errorf("validation: %w", err)
		}
	}
	options, err := json.Marshal(on)
	if err != nil {
		return nil, err
	}
	of := labelfile.Header{K: c.K, Count: c.N, Total: c.N, Labels: c.Labels, Dim: c.Dim, Fingerprint: layer.Fingerprint(), Contexts: digest}
	var others bool
	if t.store, others, err = state.Open(opt.Checkpoint, of, options); err != nil {
		return nil, err
	}
	if others {
		c.Report.Message("the run that was interrupted had other options: its labels are kept, all else is done anew")
	}
	c.Best, err = findLabels(ctx, c, layer, opt.Labels, t.store)
	return t, err
}

// split finds the contexts to learn from and to measure on.
func (t *trainer) split(ctx context.Context) (err error) {
	n := t.opt.HeldOut
	if n < 0 {
		n = corpus.HeldOut(t.N)
	}
	if t.validation != nil {
		n = 0
	}
	t.poolIDs, t.heldIDs = corpus.Split(t.N, n)
	t.pool, t.held = t.Part(t.poolIDs), t.Part(t.heldIDs)
	if t.validation != nil {
		t.heldIDs = nil
		if t.held, err = t.unseen(ctx); err != nil {
			return err
		}
	}
	t.record.HeldOut = t.held.N
	return nil
}

// vectors returns the vectors of the clusters of the form.
func (t *trainer) vectors(ctx context.Context, form form) ([]float32, error) {
	v, history, err := kept(t.store, StageKMeans, form.clusters*t.Dim, func() ([]float32, []kmeans.Iteration, error) {
		return kmeans.Find(ctx, t.pool, min(form.clusters, t.pool.N), t.opt.KMeansIterations)
	})
	t.record.KMeans = history
	if err != nil || form.iterations == 0 {
		return v, err
	}
	o := t.opt.learnOptions(t.Labels)
	o.Iterations = form.iterations
	v, course, err := kept(t.store, StageLearn, len(v), func() ([]float32, *learn.Course, error) {
		return learn.Run(ctx, t.pool, t.held, v, o)
	})
	t.record.Learning = course
	return v, err
}

// kept returns vectors that an interrupted run left in the store, or finds and keeps them; and
// what there is to say of them.
func kept[T any](store *state.Store, name string, n int, find func() ([]float32, T, error)) (v []float32, about T, err error) {
	v = make([]float32, n)
	if store.Get(name, &about, v) {
		return v, about, nil
	}
	if v, about, err = find(); err != nil {
		return nil, about, err
	}
	return v, about, store.Put(name, about, v)
}

// route finds the clusters of contexts by vectors.
func (t *trainer) route(ctx context.Context, c *corpus.Corpus, v []float32) (*router.Router, []router.Found, error) {
	r, err := router.New(router.Config{Dim: t.Dim, Clusters: v})
	if err != nil {
		return nil, nil, err
	}
	found, err := c.Route(ctx, r, nil, t.Report.Stage(StageAssign, 0, c.N))
	return r, found, err
}
