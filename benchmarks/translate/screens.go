package main

import (
	"context"
	"fmt"
	"time"

	"github.com/learning-to-screen/l2s/beam"
	"github.com/learning-to-screen/l2s/benchmarks/internal/measure"
	"github.com/learning-to-screen/l2s/benchmarks/internal/methods"
	"github.com/learning-to-screen/l2s/benchmarks/internal/points"
	"github.com/learning-to-screen/l2s/internal/progress"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
	"github.com/learning-to-screen/l2s/train"
	"github.com/learning-to-screen/l2s/train/calibrate"
)

// topK is the number of labels of the precisions, and of those screens learn from.
const topK = 5

// part says which contexts a screen learns from.
type part int

const (
	both part = iota
	references
	own
)

// plan is a training of screens.
type plan struct {
	name             string
	groups, clusters int // of each group; of all if there are no groups or they overlap
	overlap          bool
	budgets          []float64
	learnFor         float64 // 0: the clusters of k-means
	iterations       int
	probeShare       float64
	counts           bool // no geometry: sets by smoothed and spread counts
	bare             bool // counts, neither smoothed nor spread
	noSpread         bool
	part             part
	calibrate        []target
	calibrated       int // the budget whose screen gets the margins: its place in budgets
}

// target is a precision for margins to reach.
type target struct {
	k         int
	precision float64
}

// params says what the training is, as in "r=32x32".
func (p plan) params() string {
	switch {
	case p.overlap:
		return fmt.Sprintf("r=%d/%d", p.clusters, p.groups)
	case p.groups > 0:
		return fmt.Sprintf("r=%dx%d", p.groups, p.clusters)
	}
	return fmt.Sprintf("r=%d", p.clusters)
}

// options returns the options of the training.
func (p plan) options(end uint32, seed uint64) train.Options {
	opt := train.DefaultOptions()
	switch {
	case p.overlap:
		opt.SetOverlap(p.clusters, p.groups)
	case p.groups > 0:
		opt.SetLevels(p.groups, p.clusters)
	default:
		opt.Clusters = p.clusters
	}
	if p.bare || p.counts {
		opt.Geometry = 0
	}
	if p.bare {
		opt.Smoothing = 0
	}
	if p.bare || p.noSpread {
		opt.Spread = 0
	}
	opt.Always = []uint32{end}
	opt.K, opt.Seed, opt.ProbeShare = topK, seed, p.probeShare
	opt.Budget, opt.KMeansOnly = p.learnFor, p.learnFor == 0
	if opt.KMeansOnly {
		opt.Budget = p.budgets[0]
	} else {
		opt.Iterations = p.iterations
	}
	return opt
}

// corpus is what screens learn from.
type corpus struct {
	layer      *softmax.Layer
	rows       []float32
	labels     []uint32
	references int // of the contexts, the first ones
	end        uint32
	sentence   int // contexts of one for calibration, about: they depend on each other
	seed       uint64
	leftOut    []string // what cannot be measured, and why
}

func (c *corpus) of(p part) (rows []float32, labels []uint32) {
	at, d := c.references, c.layer.Dim()
	switch p {
	case references:
		return c.rows[:at*d], c.labels[:at*topK]
	case own:
		return c.rows[at*d:], c.labels[at*topK:]
	}
	return c.rows, c.labels
}

// train trains the screens of a plan, one a budget.
func (c *corpus) train(ctx context.Context, p plan, progress *progress.Printer) ([]*screen.Model, float64, error) {
	opt := p.options(c.end, c.seed)
	rows, labels := c.of(p.part)
	opt.Labels = labels
	title := "training " + p.name + ", " + p.params()
	progress.Start(title, "steps", 0)
	start := time.Now()
	screens, _, err := train.RunBudgets(ctx, c.layer, rows, opt, p.budgets)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", title, err)
	}
	seconds := time.Since(start).Seconds()
	progress.EndWith(fmt.Sprintf("%d screens", len(screens)))
	return screens, seconds, nil
}

// screened returns the contestant of a screen.
func screened(l *softmax.Layer, m *screen.Model, name, build, query string, budget, seconds float64) (*contestant, error) {
	s, err := methods.NewScreened(l, m, budget)
	if err != nil {
		return nil, err
	}
	return &contestant{
		row:     points.Translator{Method: name, Build: build, Query: query, BuildSeconds: seconds},
		setting: s, screen: m,
		searcher: func() (beam.Searcher, error) { return screen.NewSearcher(m, l) },
	}, nil
}

// contest returns the contestants of a plan: its screens, and one of them
// with margins for each target.
func (c *corpus) contest(ctx context.Context, p plan, held []float32, progress *progress.Printer) (list []*contestant, err error) {
	screens, seconds, err := c.train(ctx, p, progress)
	if err != nil {
		return nil, err
	}
	for i, m := range screens {
		query := fmt.Sprintf("B=%g", p.budgets[i])
		one, err := screened(c.layer, m, p.name, p.params(), query, p.budgets[i], seconds)
		if err != nil {
			return nil, err
		}
		list = append(list, one)
	}
	for _, t := range p.calibrate {
		opt := calibrate.DefaultOptions()
		opt.K, opt.Target, opt.Seed = t.k, t.precision, c.seed
		opt.Block = c.sentence
		query := fmt.Sprintf("B=%g, calibrated to P@%d %g", p.budgets[p.calibrated], t.k, t.precision)
		m, _, err := calibrate.Run(ctx, screens[p.calibrated], c.layer, held, opt)
		if ctx.Err() != nil {
			return nil, err
		} else if err != nil {
			// A target out of reach is a finding, not a failure.
			left := fmt.Sprintf("%s, %s, %s is left out: %v", p.name, p.params(), query, err)
			progress.Line(left)
			c.leftOut = append(c.leftOut, left)
			continue
		}
		one, err := screened(c.layer, m, p.name, p.params(), query, p.budgets[p.calibrated], seconds)
		if err != nil {
			return nil, err
		}
		list = append(list, one)
	}
	return list, nil
}

// judge finds the precision of a contestant on contexts whose exact labels are
// want, and of a screen the rows that it scans.
func (c *contestant) judge(ctx context.Context, l *softmax.Layer, contexts []float32, want []uint32) error {
	d := l.Dim()
	rows := make([][]float32, len(contexts)/d)
	for i := range rows {
		rows[i] = contexts[i*d : (i+1)*d]
	}
	p1, p5, err := measure.Precision(ctx, c.setting, rows, want, topK)
	if err != nil {
		return err
	}
	c.row.P1, c.row.P5 = round(p1, 6), round(p5, 6)
	if c.screen == nil {
		return nil
	}
	s, err := screen.NewSearcher(c.screen, l)
	if err != nil {
		return err
	}
	if err := s.SearchBatch(make([]softmax.Prediction, topK*len(rows)), make([]softmax.Answer, len(rows)), contexts, softmax.Request{K: topK}); err != nil {
		return err
	}
	n := s.Stats()
	c.row.RowsScanned = round(float64(n.Candidates+n.Routing)/float64(n.Queries), 2)
	c.row.ExactShare = round(float64(n.Exact)/float64(n.Queries), 6)
	return nil
}

// plans are the screens of the table.
func plans(labels int) []plan {
	budgets := func(b ...float64) []float64 { return below(labels, b) }
	two := plan{name: "L2S, two levels", groups: 32, clusters: 32, budgets: budgets(200, 300, 400, 500, 600, 800), calibrate: []target{{1, 0.995}, {5, 0.99}}}
	two.calibrated = len(two.budgets) / 2
	return []plan{
		{name: "L2S, flat", clusters: 200, budgets: budgets(400)},
		two,
		{name: "L2S, two levels, second probe", groups: 32, clusters: 32, budgets: budgets(300, 500), probeShare: 0.4},
		{name: "L2S, overlapping groups, second probe", groups: 32, clusters: 512, overlap: true, budgets: budgets(200, 300, 400, 500), probeShare: 0.5},
	}
}

// ablations are trained to say what each part is worth: of their screens the
// precision alone is measured.
func ablations(labels int) []plan {
	budgets := below(labels, []float64{200, 300})
	two := func(p plan) plan {
		p.groups, p.clusters, p.budgets = 32, 32, budgets
		return p
	}
	return []plan{
		two(plan{name: "contexts of references alone", part: references}),
		two(plan{name: "contexts of own decoding alone", part: own}),
		two(plan{name: "counts alone, smoothed and spread", counts: true}),
		two(plan{name: "counts alone, neither smoothed nor spread", bare: true}),
		two(plan{name: "no spread", noSpread: true}),
		two(plan{name: "learned V, 5 alternations", learnFor: budgets[0], iterations: 5}),
		{name: "flat, learned V, 5 alternations", clusters: 200, budgets: budgets, learnFor: budgets[0], iterations: 5},
	}
}

// below returns the budgets that are less than half of the labels, or the smallest
// that makes sense if none is.
func below(labels int, budgets []float64) (list []float64) {
	for _, b := range budgets {
		if b < float64(labels)/2 {
			list = append(list, b)
		}
	}
	if list == nil {
		list = []float64{float64(max(labels/4, topK))}
	}
	return list
}
