package train

import (
	"context"
	"errors"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/ground/stage"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/train/internal/corpus"
	"github.com/learning-to-screen/l2s/train/internal/record"
	tailfit "github.com/learning-to-screen/l2s/train/internal/tail"
)

// TailOptions are the options of [FitTail], which estimates the weight of the labels outside the
// candidates.
type TailOptions struct {
	// Temperatures are the temperatures with fitted coefficients, ascending, above 0: of the logits
	// w.h + b, so that a layer with a scale (l2s.Layer.Scaled) has the temperature T at T/scale
	// here. A query between two of them interpolates. A tail says nothing of a layer with a soft cap.
	Temperatures []float64 `json:"temperatures"`
	// Levels are the levels of confidence of the intervals, ascending, above 0 and
	// below 1.
	Levels []float64 `json:"levels"`
	// Share is the share of the contexts of a cluster that are drawn, above 0, at most 1, but no fewer
	// than 16, and PerCluster bounds their number, at least 1.
	Share      float64 `json:"share"`
	PerCluster int     `json:"per_cluster"`
	// HeldOut is the share of these that give the intervals and not the coefficients: at least 0,
	// below 1.
	HeldOut float64 `json:"held_out"`
	// Directions is the number of directions of the squares, 1 to 64. A layer of fewer
	// labels or a lower dimension has fewer.
	Directions int `json:"directions"`
}

// DefaultTailOptions asks for the temperatures 0.7 and 1, for intervals at confidence 0.8 to 0.995,
// for a twentieth of the contexts of a cluster, 16 to 1,000, a fifth of which is held out, and for
// 8 directions.
func DefaultTailOptions() TailOptions {
	return TailOptions{Temperatures: []float64{0.7, 1}, Levels: []float64{0.8, 0.9, 0.95, 0.975, 0.99, 0.995}, Share: 0.05, PerCluster: 1000, HeldOut: 0.2, Directions: 8}
}

// FitTail returns the screen with a tail for its budget, l2s.Index.HasTail, instead of its own,
// and the precision of the tail's estimates.
//
// For each cluster it draws contexts among its contexts and computes the log of the sum of e^(x/T)
// over the labels outside the candidates, by the intervals of the int8 codes. A ridge regression on
// most of them gives a + u_t.h + c_t ||h||^2 + e_t sum_k (g_k.h)^2: first slopes of all clusters,
// then what each cluster adds to them. The directions g_k are the leading eigenvectors of the
// covariance of the rows of W, times the square roots of their eigenvalues, so that the last sum is
// about the variance of the logits over the labels. The other contexts give the half-widths: for each cluster from its own contexts, and for clusters that have
// too few from the contexts of all of these clusters together (split conformal prediction; Lei,
// G'Sell, Rinaldo, Tibshirani and Wasserman 2018): at level p, the half-width is the error number
// ceil((n+1) p) of n errors in order, which a further context exceeds with a probability of at most
// 1 - p. If n is smaller than that number it is +Inf.
//
// That promise is for contexts that are drawn independently from the same distribution as the given
// ones, which were not used to train the screen. Contexts of training serve well, but the lists
// were made for them: then the figures are slightly too good.
//
// The result has the same bits for any number of threads and on every CPU. Errors:
// options out of range, a model that does not go with the layer, contexts that are not
// whole rows, a NaN or Inf, ctx cancelled, contexts and a layer that have no tail.
func FitTail(ctx context.Context, l *l2s.Layer, of *l2s.Index, contexts []float32, opt TailOptions, run RunOptions) (fitted *l2s.Index, fit *TailFit, err error) {
	err = (*engine.Layer)(l).Work(func() (err error) {
		fitted, fit, err = fitBy(ctx, l, of, contexts, opt, run)
		return err
	})
	return fitted, fit, err
}

func fitBy(ctx context.Context, l *l2s.Layer, of *l2s.Index, contexts []float32, opt TailOptions, run RunOptions) (fitted *l2s.Index, fit *TailFit, err error) {
	layer := (*engine.Layer)(l).Exact()
	err = wrapErr(func() error {
		if of == nil || (*engine.Index)(of).Screen() == nil {
			return errors.New("index: found none, or a preview, expected a screen")
		}
		m := (*engine.Index)(of).Screen()
		c, err := corpus.New(layer, contexts, run.Threads)
		if err != nil {
			return err
		}
		c.Seed, c.Report = run.Seed, newReporter(run.Progress)
		if err := (*tailfit.Options)(&opt).Check(); err != nil {
			return err
		}
		if _, err := screening.NewSearcher(m, layer, screening.Options{}); err != nil { // it does not go with the layer
			return err
		}
		r, found, err := c.RouteBy(ctx, m, stage.Assign)
		if err != nil {
			return err
		}
		t, made, err := tailfit.Find(ctx, c, layer, m, r, cellsOf(r, found), (*tailfit.Options)(&opt))
		if err != nil {
			return err
		}
		fit = fitOf(made)
		text, err := record.Set(m.Record(), "tail_fit", fit)
		if err != nil {
			return err
		}
		config := m.Config()
		config.Tail, config.Record = t, text
		with, err := screening.NewModel(config)
		if err == nil {
			fitted = (*l2s.Index)(engine.OfScreen(with))
		}
		return err
	})
	return fitted, fit, err
}

// RunOptions are the options of the runs of [Labels] and [FitTail]. The zero
// value is ready.
type RunOptions struct {
	// Seed decides which contexts FitTail draws. Labels do not depend on it.
	Seed uint64
	// Threads is the number of goroutines; 0 means runtime.GOMAXPROCS(0). No result depends on it.
	Threads int
	// Progress, unless nil, gets the progress of the work.
	Progress func(Progress)
}
