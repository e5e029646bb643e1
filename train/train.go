package train

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/files/labelfile"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
	"github.com/learning-to-screen/l2s/internal/ground/precision"
	"github.com/learning-to-screen/l2s/internal/ground/progress"
	"github.com/learning-to-screen/l2s/internal/ground/stage"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/train/internal/corpus"
	"github.com/learning-to-screen/l2s/train/internal/kmeans"
	"github.com/learning-to-screen/l2s/train/internal/learn"
	"github.com/learning-to-screen/l2s/train/internal/state"
)

// Run makes a screen for the layer from contexts, N x layer.Dim(): l2s.Float32(contexts,
// layer.Dim()), or float16 in half the memory, which Run widens while it reads them. They are only
// read and may be a memory-mapped file. Run is Algorithm 1 of the paper, see the package's
// documentation for the steps. It returns the screen and the record that is also inside it.
//
// Errors: [ErrTarget]; options out of their range (see [Options]), contexts that are not whole
// rows, a NaN or Inf (the context is named), a learning rate so high that V overflows: then the
// checkpoint keeps the labels, for a run with a lower rate. When ctx is cancelled it returns within
// a fraction of a second an error for which errors.Is with ctx.Err() holds.
func Run(ctx context.Context, layer *l2s.Layer, contexts l2s.Matrix, opt Options) (x *l2s.Index, record *Record, err error) {
	err = (*engine.Layer)(layer).Work(func() error {
		return wrapErr(func() error {
			rows, err := engine.Matrix(contexts).Rows()
			if err != nil {
				return err
			}
			c, err := corpus.Of((*engine.Layer)(layer).Exact(), rows, opt.Threads)
			if err != nil {
				return err
			}
			t, err := newTrainer(ctx, (*engine.Layer)(layer).Exact(), c, &opt)
			if err != nil {
				return err
			}
			a, err := t.attempt(ctx)
			if err != nil {
				return err
			}
			record = t.record
			made, err := t.screen(ctx, a)
			if err == nil {
				x = (*l2s.Index)(engine.OfScreen(made))
			}
			return err
		})
	})
	if err != nil {
		return nil, nil, err
	}
	return x, record, nil
}

// wrapErr runs f, which reads the contexts, and makes its error one of the
// package. The contexts may be a mapped file: that another program has shortened
// it is an error.
func wrapErr(f func() error) error {
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
	layer  *exact.Layer
	opt    *Options
	store  *state.Store
	record *Record

	pool            *corpus.Corpus // the contexts to learn from
	poolIDs, outIDs []uint32       // these, and the held-out ones
	validation      *corpus.Corpus // of Options.Validation, nil without
	// The contexts to measure on, of the validation or held out, that are equal to no context to
	// learn from.
	held    *corpus.Corpus
	heldIDs []uint32
}

// newTrainer checks the arguments, and finds the labels, and the contexts to learn from and to
// measure on.
func newTrainer(ctx context.Context, layer *exact.Layer, c *corpus.Corpus, opt *Options) (*trainer, error) {
	if err := opt.Check(c.N, c.Labels); err != nil {
		return nil, err
	}
	c.K, c.Seed, c.Report = opt.K, opt.Seed, newReporter(opt.Progress)
	digest, err := c.Digest(ctx)
	if err != nil {
		return nil, err
	}
	t := &trainer{Corpus: c, layer: layer, opt: opt, record: &Record{Options: opt.recorded(), Contexts: c.N, ContextsDigest: hex.EncodeToString(digest[:])}}
	on := struct {
		Options
		Validation labelfile.Digest
	}{Options: t.record.Options}
	if opt.Validation != nil {
		if t.validation, err = corpus.New(layer, opt.Validation, opt.Threads); err != nil {
			return nil, fmt.Errorf("validation: %w", err)
		}
		if on.Validation, err = t.validation.Digest(ctx); err != nil { // it names the context that is not finite
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
	if c.Best, err = findLabels(ctx, c, layer, opt.Labels, t.store); err != nil {
		return nil, err
	}
	n := opt.HeldOut
	switch {
	case t.validation != nil:
		n = 0
	case n < 0:
		n = corpus.HeldOut(t.N)
	}
	t.poolIDs, t.outIDs = corpus.Split(t.N, n)
	t.pool = t.Part(t.poolIDs)
	from, ids := t.Corpus, t.outIDs
	if v := t.validation; v != nil {
		v.K, v.Seed, v.Report = t.K, t.Seed, t.Report
		if v.Best, err = topLabels(ctx, v, t.layer); err != nil {
			return nil, err
		}
		from, ids = v, corpus.Ascending(v.N)
	}
	if t.heldIDs, err = t.unseen(ctx, from, ids); err != nil {
		return nil, err
	}
	t.held = from.Part(t.heldIDs)
	t.record.HeldOut, t.record.LeftOut = t.held.N, len(ids)-t.held.N
	if t.record.LeftOut > 0 {
		t.decide("precision is measured on %s contexts: %s others are equal to contexts of training",
			progress.Count(t.held.N), progress.Count(t.record.LeftOut))
	}
	return t, nil
}

// vectors returns the vectors of the clusters of the shape, and how they were found.
func (t *trainer) vectors(ctx context.Context, shape shape) (v []float32, history []kmeans.Iteration, course *learn.Course, err error) {
	of := fmt.Sprintf(" of %d clusters", shape.clusters)
	v, history, err = cached(t.store, stage.KMeans+of, shape.clusters*t.Dim, func() ([]float32, []kmeans.Iteration, error) {
		return kmeans.Find(ctx, t.pool, min(shape.clusters, t.pool.N), t.opt.KMeansIterations)
	})
	if err != nil || shape.iterations == 0 {
		return v, history, nil, err
	}
	o := learn.Options(t.opt.Learning)
	o.Budget = t.opt.learningBudget(t.Labels)
	v, course, err = cached(t.store, stage.Learn+of, len(v), func() ([]float32, *learn.Course, error) {
		return learn.Run(ctx, t.pool, t.held, v, shape.iterations, t.opt.always(), &o)
	})
	return v, history, course, err
}

// cached returns vectors that an interrupted run left in the store, or finds and keeps them; and
// the facts about them.
func cached[T any](store *state.Store, name string, n int, find func() ([]float32, T, error)) (v []float32, about T, err error) {
	if v = store.Get(name, &about, n); v != nil {
		return v, about, nil
	}
	if v, about, err = find(); err != nil {
		return nil, about, err
	}
	return v, about, store.Put(name, about, v)
}

// unseen returns the contexts among ids of c that are equal to no context to learn from.
func (t *trainer) unseen(ctx context.Context, c *corpus.Corpus, ids []uint32) ([]uint32, error) {
	open, buffer := map[string][]uint32{}, t.Buffer() // the contexts by their bytes
	for _, i := range ids {
		row := corpus.Bytes(c.Row(i, buffer))
		open[string(row)] = append(open[string(row)], i)
	}
	for j := range uint32(t.pool.N) {
		if j%corpus.Chunk == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		delete(open, string(corpus.Bytes(t.pool.Row(j, buffer))))
	}
	rest := slices.Concat(slices.Collect(maps.Values(open))...)
	slices.Sort(rest)
	return rest, nil
}

// RemoveCheckpoint removes the files of a checkpoint; it is no error if there are none. Call it
// after saving the screen. Files of another kind with these names, and labels without a state, are
// an error, since no run leaves them; then nothing is removed.
func RemoveCheckpoint(path string) error { return state.Remove(path) }

// ErrTarget is the cause, for errors.Is, of the error of a run whose screen misses its target by
// far: on held-out contexts the precision of its largest budget is, with 95% confidence, more than
// 0.02 below. More contexts help, or contexts that are states of the layer; [Options.AnyPrecision]
// accepts the screen. A run with a Budget, or with no contexts to measure on, has no target. The
// checkpoint is kept.
var ErrTarget error = precision.ErrTarget

// ErrCheckpoint is the cause, for errors.Is, of the error of a run that cannot continue from its
// checkpoint, because the checkpoint is damaged or belongs to another run. [RemoveCheckpoint]
// removes it.
var ErrCheckpoint error = state.Err
