package train

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// Run learns a screen for the layer from contexts, N x layer.Dim() row-major,
// which are only read and may be a memory-mapped file: Algorithm 1 of the
// paper, see the package's documentation for the steps. It returns the screen
// and the record that is also inside it.
//
// Errors: options out of their range (see [Options]), contexts that are not
// whole rows, a NaN or Inf (the context is named), a learning rate so high
// that V overflows: of the checkpoint the labels are kept then, for a run with a
// lower rate. When ctx is cancelled it returns within a fraction of a
// second an error for which errors.Is with ctx.Err() holds.
func Run(ctx context.Context, layer *softmax.Layer, contexts []float32, opt Options) (*screen.Model, *Record, error) {
	models, records, err := RunBudgets(ctx, layer, contexts, opt, []float64{opt.Budget})
	if err != nil {
		return nil, nil, err
	}
	return models[0], records[0], nil
}

// RunBudgets is [Run] for several budgets at once. It returns a screen for each
// with its record, in the order given.
//
// The labels and k-means do not depend on a budget and are computed once. V is
// learned once, for opt.Budget; the sets of each screen are then those that the
// knapsack gives for its budget with this V. So the screen for opt.Budget is
// the screen that Run gives, byte for byte. Without learning this holds for the
// others too; with learning their sets are as good as any for their V, but V was
// learned for another price of a candidate. The sets for a smaller budget are
// subsets of the sets for a larger one.
//
// Errors are as from Run, for each of the budgets.
func RunBudgets(ctx context.Context, layer *softmax.Layer, contexts []float32, opt Options, budgets []float64) (models []*screen.Model, records []*Record, err error) {
	err = outward(func() (err error) {
		models, records, err = run(ctx, layer, contexts, &opt, budgets)
		return err
	})
	return models, records, err
}

// run is Algorithm 1, from the labels to a screen for each budget.
func run(ctx context.Context, layer *softmax.Layer, contexts []float32, opt *Options, budgets []float64) ([]*screen.Model, []*Record, error) {
	d, err := newData(layer, contexts, opt)
	if err != nil {
		return nil, nil, err
	}
	if err := opt.check(d.n, d.universe, d.dim, budgets); err != nil {
		return nil, nil, err
	}
	sample, err := d.identifyAndSample(ctx)
	if err != nil {
		return nil, nil, err
	}
	c, err := openCheckpoint(d, layer, opt)
	if err != nil {
		return nil, nil, err
	}
	if d.labels, err = findLabels(ctx, d, layer, opt.Labels, c); err != nil {
		return nil, nil, err
	}
	record := newRecord(opt, d.n, d.digest)
	record.ContextsSample = sample
	start, err := findClusters(ctx, d, opt, c)
	if err != nil {
		return nil, nil, err
	}
	start.record(record)
	v := &start.clusters
	if opt.learns() {
		found, err := learn(ctx, d, start, &opt.LearningOptions, &opt.SetOptions, c)
		if errors.Is(err, errAstray) {
			// The state leads astray again; the labels serve another rate.
			if failed := c.forget(); failed != nil {
				err = fmt.Errorf("%w; %w", err, failed)
			}
		}
		if err != nil {
			return nil, nil, err
		}
		found.record(record)
		v = &found.clusters
	}
	if opt.Overlap > 0 {
		if err := findGroups(ctx, d, v, opt); err != nil {
			return nil, nil, err
		}
	}
	var u *unseen
	most := slices.Max(budgets)
	if opt.Measure {
		if u, err = measureUnseen(ctx, d, layer, v, opt, most); err != nil {
			return nil, nil, err
		}
	}
	sets, err := chooseSets(ctx, d, layer, v, &opt.SetOptions, most)
	if err != nil {
		return nil, nil, err
	}
	models, records, err := newModels(layer, d, sets, u, record, budgets)
	if err != nil {
		return nil, nil, err
	}
	return models, records, addRegression(ctx, d, layer, models, opt, c)
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
