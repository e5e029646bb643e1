package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/benchmarks/internal/measure"
	"github.com/learning-to-screen/l2s/benchmarks/internal/methods"
	"github.com/learning-to-screen/l2s/benchmarks/internal/points"
	"github.com/learning-to-screen/l2s/internal/engine"
	"github.com/learning-to-screen/l2s/internal/exact"
	"github.com/learning-to-screen/l2s/internal/progress"
	"github.com/learning-to-screen/l2s/internal/screening"
	"github.com/learning-to-screen/l2s/train"
)

// topK is the number of labels of the precisions, and of the labels that screens learn from.
const topK = 5

// plan is a screen to train.
type plan struct {
	methods.L2S
	budgets []float64
	tail    bool // the screen is wanted with a tail too
}

// tailContexts bounds the contexts that a tail is fitted on, about.
const tailContexts = 200_000

// withTail returns the screen with a tail for its budget.
func (c *corpus) withTail(ctx context.Context, m *screening.Model) (*screening.Model, error) {
	opt := train.DefaultTailOptions()
	opt.PerCluster = max(1, min(opt.PerCluster, tailContexts/m.Clusters()))
	x, _, err := train.FitTail(ctx, asLayer(c.layer), (*l2s.Index)(engine.OfScreen(m)), c.rows, opt, train.RunOptions{Seed: c.seed})
	if err != nil {
		return nil, err
	}
	return (*engine.Index)(x).Screen(), nil
}

// options returns the options of the training.
func (p plan) options(end uint32, seed uint64) train.Options {
	opt := p.Options()
	opt.Always, opt.K, opt.Seed = []uint32{end}, topK, seed
	return opt
}

// corpus has the contexts that screens learn from.
type corpus struct {
	layer  *exact.Layer
	rows   []float32
	labels []uint32
	end    uint32
	seed   uint64
}

// train returns the screen of a plan, and the time of training.
func (c *corpus) train(ctx context.Context, p plan, progress *progress.Printer) (*screening.Model, float64, error) {
	opt := p.options(c.end, c.seed)
	opt.Labels = c.labels
	progress.Start("training "+p.title(), "steps", 0)
	start := time.Now()
	x, _, err := train.Run(ctx, asLayer(c.layer), l2s.Float32(c.rows, c.layer.Dim()), opt)
	progress.End()
	if err != nil {
		return nil, 0, err
	}
	return (*engine.Index)(x).Screen(), time.Since(start).Seconds(), nil
}

// title names the plan.
func (p plan) title() string { return strings.TrimSuffix(p.Name()+", "+p.Params(), ", ") }

// budgets returns the budgets of a screen's ladder for the wanted budgets, each the largest not
// above the wanted one, and the default budget, ascending.
func budgets(m *screening.Model, wanted []float64) []float64 {
	list := []float64{m.Budget()}
	for _, b := range wanted {
		at := m.Ladder()[0].Budget
		for _, x := range m.Ladder() {
			if x.Budget <= b {
				at = x.Budget
			}
		}
		list = append(list, at)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// screened returns the contestant of a screen at a budget. If the screen has a tail, its sums
// are over all labels.
func screened(l *exact.Layer, m *screening.Model, p plan, budget float64, query string, seconds float64) (*contestant, error) {
	s, err := methods.NewScreened(l, m, budget)
	if err != nil {
		return nil, err
	}
	options := l2s.Options{Budget: budget, OverTail: m.Tail() != nil}
	x := (*l2s.Index)(engine.OfScreen(m))
	return &contestant{
		row:     points.Translator{Method: p.Name(), Build: s.Build, Query: s.Params() + query, BuildSeconds: seconds, OverAll: m.Tail() != nil},
		setting: s,
		screen: func() (*screening.Searcher, error) {
			return screening.NewSearcher(m, l, screening.Options{Budget: budget})
		},
		searcher: over(l, x, options),
	}, nil
}

// contest returns the contestants of a plan: its screen at some budgets, and with a tail if
// the plan wants one.
func (c *corpus) contest(ctx context.Context, p plan, progress *progress.Printer) (list []*contestant, err error) {
	m, seconds, err := c.train(ctx, p, progress)
	if err != nil {
		return nil, err
	}
	add := func(m *screening.Model, budget float64, query string, seconds float64) error {
		one, err := screened(c.layer, m, p, budget, query, seconds)
		list = append(list, one)
		return err
	}
	for _, b := range budgets(m, p.budgets) {
		if err := add(m, b, "", seconds); err != nil {
			return nil, err
		}
	}
	if p.tail {
		start := time.Now()
		with, err := c.withTail(ctx, m)
		if err == nil {
			err = add(with, with.Budget(), ", with its tail", seconds+time.Since(start).Seconds())
		}
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// judge finds the precision of a contestant on contexts whose exact labels are want, and, for a
// screen, the rows that it scans.
func (c *contestant) judge(ctx context.Context, contexts []float32, want []uint32) (err error) {
	if c.row.P1, c.row.P5, err = c.precision(ctx, contexts, want); err != nil || c.screen == nil {
		return err
	}
	s, err := c.screen()
	if err != nil {
		return err
	}
	n := len(want) / topK
	dim := len(contexts) / n
	for i, top := 0, make([]exact.Prediction, topK); i < n; i++ {
		if _, err := s.TopK(top, contexts[i*dim:(i+1)*dim]); err != nil {
			return err
		}
	}
	stats := s.Stats()
	c.row.RowsScanned = measure.Round(float64(stats.Candidates+stats.Routing)/float64(stats.Queries), 2)
	c.row.ExactShare = measure.Round(float64(stats.Exact)/float64(stats.Queries), 6)
	return nil
}

// judgeHeldOut finds the precision of a screen on the contexts that choose the screen.
func (c *contestant) judgeHeldOut(ctx context.Context, contexts []float32, want []uint32) (err error) {
	if c.screen != nil {
		c.row.HeldP1, c.row.HeldP5, err = c.precision(ctx, contexts, want)
	}
	return err
}

func (c *contestant) precision(ctx context.Context, contexts []float32, want []uint32) (p1, p5 float64, err error) {
	rows := make([][]float32, len(want)/topK)
	d := len(contexts) / len(rows)
	for i := range rows {
		rows[i] = contexts[i*d : (i+1)*d]
	}
	p1, p5, err = measure.Precision(ctx, c.setting, rows, want, topK)
	return measure.Round(p1, 6), measure.Round(p5, 6), err
}

// plans are the screens of the table.
func plans(labels int) []plan {
	list := []plan{{budgets: []float64{100, 150, 200, 250, 300, 350, 400}, tail: true}}
	flat := methods.L2S{Form: methods.Expected, Clusters: 100, Budget: 300}
	if flat.Budget <= float64(labels)/2 {
		list = append(list, plan{L2S: flat, budgets: []float64{200, 400}})
	}
	return list
}
