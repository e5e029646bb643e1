package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/benchmarks/internal/measure"
	"github.com/learning-to-screen/l2s/benchmarks/internal/methods"
	"github.com/learning-to-screen/l2s/benchmarks/internal/perplexity"
	"github.com/learning-to-screen/l2s/benchmarks/internal/points"
	"github.com/learning-to-screen/l2s/internal/ground/progress"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/train"
)

// How the table of perplexities chooses.
const (
	// perplexityP5 is the P@5 at which methods are compared: by the fastest setting that reaches
	// it, or else the most precise.
	perplexityP5 = 0.98
	// foundLabels is the number of labels with exact logits if a method
	// finds labels one by one and has no candidate set to take them from.
	foundLabels = 200
	// tailSuffix is added to the name of the method in the row with the tail that package
	// train fits.
	tailSuffix = ", with its tail"
)

// perplexities measures the perplexity of the text of a language model by the exact layer,
// SVD-softmax, adaptive softmax, FGD and L2S (the paper's appendix), with a tail of the given rank
// outside the labels that each scores. l2s has a second row, with the tail that package train fits,
// on the contexts other.
func perplexities(ctx context.Context, text *perplexity.Text, other []float32, list []*contestant, rank, rounds int, s sweep, seed uint64, p *progress.Printer) ([]points.Perplexity, error) {
	layer := text.Layer
	rank = min(rank, layer.Dim(), layer.Labels())
	tail, err := perplexity.NewLowRank(ctx, layer, rank)
	if err != nil {
		return nil, err
	}
	n := min(foundLabels, layer.Labels())
	rows := []perplexity.Row{perplexity.Exact(layer), perplexity.SVD(layer, tail, n)}
	if c := chosen(list, methods.AdaptiveSoftmax{}.Name()); c != nil {
		rows = append(rows, perplexity.Opened(c.method.Name(), c.method.Params(), layer, tail, c.setting, topK))
	}
	if c := chosen(list, methods.FGD{}.Name()); c != nil {
		rows = append(rows, perplexity.Found(c.method.Name(), c.method.Params(), layer, tail, c.setting, n))
	}
	if c := chosen(list, methods.L2S{}.Name()); c != nil {
		s := c.setting.(methods.Screened)
		at, err := s.Model.RungOf(s.Budget)
		if err != nil {
			return nil, err
		}
		parts := s.Model.Config()
		parts.Budget = parts.Ladder[at].Budget
		within, err := screening.NewModel(parts)
		if err != nil {
			return nil, err
		}
		m := within
		row, err := perplexity.Screened(c.method.Name(), c.title(), layer, tail, m)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
		fitted, _, err := train.FitTail(ctx, (*l2s.Layer)(engine.Over(layer)), (*l2s.Index)(engine.OfScreen(m)), other, train.DefaultTailOptions(), train.RunOptions{Seed: seed})
		if err != nil {
			return nil, err
		}
		m = (*engine.Index)(fitted).Screen()
		if row, err = perplexity.Screened(c.method.Name()+tailSuffix, c.title(), layer, nil, m); err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return perplexity.Measure(ctx, text, rows, perplexity.Options{
		Rounds: rounds, Block: s.block, Seed: seed,
		Progress: func(format string, args ...any) { p.Line("perplexity: " + fmt.Sprintf(format, args...)) },
	})
}

// chosen returns the fastest setting of a method that reaches perplexityP5, or the most precise if
// none does; and nil if the method has no setting.
func chosen(list []*contestant, method string) (best *contestant) {
	for _, c := range list {
		if c.method.Name() != method {
			continue
		}
		enough := c.p5 >= perplexityP5
		switch {
		case best == nil:
		case best.p5 >= perplexityP5:
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
	return strings.TrimSpace(c.build() + " " + c.setting.Params())
}
