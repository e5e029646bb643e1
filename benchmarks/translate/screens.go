package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
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
	shells           []float64
	counts           bool // no geometry: sets by smoothed and spread counts
	part             part
	calibrate        []target
	tail             bool // a screen with a regression of the tail is wanted too
	picked           int  // the budget whose screen gets the margins and the tail: its place in budgets
}

// tailContexts bounds the contexts that a regression of the tail is fitted on, about.
const tailContexts = 200_000

// withTail returns the screen with a regression of what the labels outside the candidate
// sets weigh.
func (c *corpus) withTail(ctx context.Context, m *screen.Model) (*screen.Model, error) {
	opt := train.DefaultTailOptions()
	opt.PerCluster = max(1, min(opt.PerCluster, tailContexts/m.Clusters()))
	m, _, err := train.FitRegression(ctx, m, c.layer, c.rows, opt, train.RunOptions{Seed: c.seed})
	return m, err
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
	if p.counts {
		opt.Geometry = 0
	}
	opt.Always = []uint32{end}
	opt.K, opt.Seed, opt.ProbeShare, opt.Shells = topK, seed, p.probeShare, p.shells
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
	name       string // of the contexts, which says what they are
	cache      string // the folder that keeps screens for the next run
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

// train returns the screens of a plan, one a budget, and how long they took.
func (c *corpus) train(ctx context.Context, p plan, progress *progress.Printer) ([]*screen.Model, float64, error) {
	opt := p.options(c.end, c.seed)
	title := "training " + p.name + ", " + p.params()
	key := fmt.Sprint(c.name, opt, p.budgets, p.part)
	return c.kept(key, title, progress, func() ([]*screen.Model, error) {
		rows, labels := c.of(p.part)
		opt.Labels = labels
		screens, _, err := train.RunBudgets(ctx, c.layer, rows, opt, p.budgets)
		return screens, err
	})
}

// kept returns the screens that the folder of the run keeps under a key, with the seconds
// that it took to make them. If it has none they are made, and it keeps them.
func (c *corpus) kept(key, title string, progress *progress.Printer, make func() ([]*screen.Model, error)) (screens []*screen.Model, seconds float64, err error) {
	name := filepath.Join(c.cache, fmt.Sprintf("screens-%x", sha256.Sum256([]byte(key)))[:24])
	file := func(i int) string { return fmt.Sprintf("%s-%d.l2s", name, i) }
	// What is written last says that the screens are complete.
	var of struct {
		Title   string  `json:"title"`
		Key     string  `json:"key"`
		Screens int     `json:"screens"`
		Seconds float64 `json:"seconds"`
	}
	if data, err := os.ReadFile(name + ".json"); err == nil && json.Unmarshal(data, &of) == nil && of.Key == key {
		for i := range of.Screens {
			m, err := screen.Load(file(i))
			if err != nil {
				return nil, 0, err
			}
			screens = append(screens, m)
		}
		return screens, of.Seconds, nil
	}
	progress.Start(title, "steps", 0)
	start := time.Now()
	if screens, err = make(); err != nil {
		return nil, 0, fmt.Errorf("%s: %w", title, err)
	}
	of.Title, of.Key, of.Screens, of.Seconds = title, key, len(screens), time.Since(start).Seconds()
	progress.EndWith(fmt.Sprintf("%d screens", len(screens)))
	for i, m := range screens {
		if err := m.Save(file(i)); err != nil {
			return nil, 0, err
		}
	}
	data, err := json.MarshalIndent(of, "", "  ")
	if err != nil {
		return nil, 0, err
	}
	return screens, of.Seconds, os.WriteFile(name+".json", data, 0o666)
}

// screened returns the contestant of a screen. If the screen has a tail, its sums are over
// all labels.
func screened(l *softmax.Layer, m *screen.Model, name, build, query string, budget, seconds float64) (*contestant, error) {
	s, err := methods.NewScreened(l, m, budget)
	if err != nil {
		return nil, err
	}
	var options []screen.Option
	if m.Regression() != nil {
		options = append(options, screen.OverTail())
	}
	return &contestant{
		row:     points.Translator{Method: name, Build: build, Query: query, BuildSeconds: seconds, OverAll: m.Regression() != nil},
		setting: s, screen: m,
		searcher: func() (beam.Searcher, error) { return screen.NewSearcher(m, l, options...) },
	}, nil
}

// contest returns the contestants of a plan: its screens, and one of them
// with margins for each target, and with a tail if the plan wants one.
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
		query := fmt.Sprintf("B=%g, calibrated to P@%d %g", p.budgets[p.picked], t.k, t.precision)
		m, _, err := calibrate.Run(ctx, screens[p.picked], c.layer, held, opt)
		if ctx.Err() != nil {
			return nil, err
		} else if err != nil {
			// A target out of reach is a finding, not a failure.
			left := fmt.Sprintf("%s, %s, %s is left out: %v", p.name, p.params(), query, err)
			progress.Line(left)
			c.leftOut = append(c.leftOut, left)
			continue
		}
		one, err := screened(c.layer, m, p.name, p.params(), query, p.budgets[p.picked], seconds)
		if err != nil {
			return nil, err
		}
		list = append(list, one)
	}
	if p.tail {
		budget := p.budgets[p.picked]
		query := fmt.Sprintf("B=%g, tail by regression", budget)
		key := fmt.Sprint(c.name, p.options(c.end, c.seed), budget, p.part, "tail")
		m, more, err := c.kept(key, "tail by regression of "+p.name+", "+p.params(), progress, func() ([]*screen.Model, error) {
			m, err := c.withTail(ctx, screens[p.picked])
			return []*screen.Model{m}, err
		})
		if err != nil {
			return nil, err
		}
		one, err := screened(c.layer, m[0], p.name, p.params(), query, budget, seconds+more)
		if err != nil {
			return nil, err
		}
		list = append(list, one)
	}
	return list, nil
}

// judge finds the precision of a contestant on contexts whose exact labels are
// want, and of a screen the rows that it scans.
func (c *contestant) judge(ctx context.Context, l *softmax.Layer, contexts []float32, want []uint32) (err error) {
	if c.row.P1, c.row.P5, err = c.precision(ctx, contexts, want); err != nil || c.screen == nil {
		return err
	}
	s, err := screen.NewSearcher(c.screen, l)
	if err != nil {
		return err
	}
	n := len(want) / topK
	if err := s.SearchBatch(make([]softmax.Prediction, topK*n), make([]softmax.Answer, n), contexts, softmax.Request{K: topK}); err != nil {
		return err
	}
	stats := s.Stats()
	c.row.RowsScanned = round(float64(stats.Candidates+stats.Routing)/float64(stats.Queries), 2)
	c.row.ExactShare = round(float64(stats.Exact)/float64(stats.Queries), 6)
	return nil
}

// judgeHeldOut finds the precision of a screen on contexts that it is chosen by.
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
	return round(p1, 6), round(p5, 6), err
}

// plans are the screens of the table.
func plans(labels int) []plan {
	flat, few := below(labels, []float64{300, 400}), below(labels, []float64{300, 400, 500})
	return []plan{
		{name: "L2S, flat", clusters: 100, budgets: flat, picked: len(flat) - 1, tail: true},
		{name: "L2S, two levels", groups: 24, clusters: 24, budgets: few, picked: len(few) - 1, calibrate: []target{{5, 0.99}}, tail: true},
		{name: "L2S, two levels", groups: 32, clusters: 32, budgets: below(labels, []float64{400})},
		{name: "L2S, two levels, shells", groups: 24, clusters: 24, budgets: below(labels, []float64{300, 350, 400}), shells: []float64{0.4, 0.1}},
	}
}

// ablations are trained to say what each part is worth: of their screens the
// precision alone is measured.
func ablations(labels int) []plan {
	two := func(p plan) plan {
		p.groups, p.clusters, p.budgets = 24, 24, below(labels, []float64{300, 400})
		return p
	}
	return []plan{
		two(plan{name: "contexts of references alone", part: references}),
		two(plan{name: "counts alone, smoothed and spread", counts: true}),
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
