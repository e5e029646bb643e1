package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/learning-to-screen/l2s/benchmarks/internal/measure"
	"github.com/learning-to-screen/l2s/benchmarks/internal/methods"
	"github.com/learning-to-screen/l2s/benchmarks/internal/perplexity"
	"github.com/learning-to-screen/l2s/benchmarks/internal/points"
	"github.com/learning-to-screen/l2s/internal/progress"
	"github.com/learning-to-screen/l2s/train"
)

// How the table of perplexities chooses.
const (
	// perplexityP5 is the P@5 at which methods are compared: of each the
	// fastest setting that reaches it, or else the most precise.
	perplexityP5 = 0.98
	// regressionP5 is the same for a second row of screens with a regression: with an
	// estimate of what the sets lack, smaller and faster sets serve.
	regressionP5 = 0.95
	// foundLabels is the number of labels with exact logits if a method
	// finds labels one by one and has no candidate set to take them from.
	foundLabels = 200
	// regressionSuffix is added to the name of the method in the row with a regression of
	// the tail.
	regressionSuffix = ", tail by regression"
)

// perplexities measures the perplexity of the text of a language model by the
// exact layer, SVD-softmax, adaptive softmax, FGD and L2S (the paper's
// appendix), with a tail of the given rank outside what each scores. L2S has two more rows,
// with the regression of the tail that l2s train --tail regression makes, fitted on the
// contexts other.
func perplexities(ctx context.Context, text *perplexity.Text, other []float32, list []*contestant, rank, rounds int, s sweep, seed uint64, p *progress.Printer) ([]points.Perplexity, error) {
	layer := text.Layer
	rank = min(rank, layer.Dim(), layer.Labels())
	tail, err := train.LowRank(layer, rank)
	if err != nil {
		return nil, err
	}
	n := min(foundLabels, layer.Labels())
	rows := []perplexity.Row{perplexity.Exact(layer), perplexity.SVD(layer, tail, n)}
	if c := chosen(list, methods.AdaptiveSoftmax{}.Name(), perplexityP5); c != nil {
		rows = append(rows, perplexity.Opened(c.method.Name(), c.method.Params(), layer, tail, c.setting, topK))
	}
	if c := chosen(list, methods.FGD{}.Name(), perplexityP5); c != nil {
		rows = append(rows, perplexity.Found(c.method.Name(), c.method.Params(), layer, tail, c.setting, n))
	}
	l2s := methods.L2S{}.Name()
	c := chosen(list, l2s, perplexityP5)
	if c != nil {
		row, err := perplexity.Screened(l2s, c.title(), layer, tail, c.setting.(methods.Screened).Model)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	screens := []*contestant{c, chosen(list, l2s, regressionP5)}
	if screens[0] == screens[1] {
		screens = screens[:1]
	}
	for _, c := range screens {
		if c == nil {
			continue
		}
		m, _, err := train.FitRegression(ctx, c.setting.(methods.Screened).Model, layer, other, train.DefaultTailOptions(), train.RunOptions{Seed: seed})
		if err != nil {
			return nil, err
		}
		row, err := perplexity.Screened(l2s+regressionSuffix, c.title(), layer, nil, m)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return perplexity.Measure(ctx, text, rows, perplexity.Options{
		Rounds: rounds, Block: s.block, Seed: seed,
		Progress: func(format string, args ...any) { p.Line("perplexity: " + fmt.Sprintf(format, args...)) },
	})
}

// chosen returns the fastest setting of a method that reaches the P@5, or
// the most precise if none does; nil if the method has no setting.
func chosen(list []*contestant, method string, least float64) (best *contestant) {
	for _, c := range list {
		if c.method.Name() != method {
			continue
		}
		enough := c.p5 >= least
		switch {
		case best == nil:
		case best.p5 >= least:
			if !enough || measure.Quantile(c.turn.Micros, 0.5) >= measure.Quantile(best.turn.Micros, 0.5) {
				continue
			}
		case c.p5 <= best.p5:
			continue
		}
		best = c
	}
	return best
}

// title returns the parameters of construction and query.
func (c *contestant) title() string {
	return strings.TrimSpace(c.method.Params() + " " + c.setting.Params())
}
