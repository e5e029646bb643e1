package main

import (
	"context"
	"fmt"
	"time"

	"github.com/learning-to-screen/l2s/internal/atomicfile"
	"github.com/learning-to-screen/l2s/internal/progress"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/train"
)

func trainVerb() *verb {
	return &verb{
		name: "train", args: "--weights SRC --bias SRC --contexts SRC --out m.l2s",
		summary: "learn a screen for a layer from contexts",
		help: `
Learns a screen for a softmax layer from context vectors (Algorithm 1 of the
paper): exact top-k labels, spherical k-means, then alternations of gradient
descent on the cluster vectors and a greedy knapsack on the candidate sets. The
mean number of candidates a query is given is kept within the budget.

The same inputs, options and seed give the same file on every machine.

Example:
  l2s train --weights model.safetensors:decoder.weight \
    --bias model.safetensors:decoder.bias --contexts H.npy --out m.l2s`,
		run: runTrain,
	}
}

// trained is what train --json prints.
type trained struct {
	Out           string             `json:"out"`
	Clusters      int                `json:"clusters"`
	Dim           int                `json:"dim"`
	Labels        int                `json:"labels"`
	Contexts      int                `json:"contexts"`
	Budget        float64            `json:"budget"`
	AvgCandidates float64            `json:"avg_candidates"`
	Precision     map[string]float64 `json:"training_precision"`
	Seconds       float64            `json:"seconds"`
	Stages        map[string]float64 `json:"stage_seconds"`
	Level         string             `json:"level"`
}

func runTrain(ctx context.Context, e *env) error {
	f := e.flags
	opt := train.DefaultOptions()
	var in inputs
	in.register(e)
	out := f.String("out", "", "screen `FILE` to write")
	f.IntVar(&opt.Clusters, "clusters", opt.Clusters, "`r`, the number of clusters")
	f.Float64Var(&opt.Budget, "budget", opt.Budget, "`B`, the mean number of candidates a query may be given")
	f.IntVar(&opt.K, "k", opt.K, "`k`: the labels of a context are its k largest logits")
	f.Float64Var(&opt.Lambda, "lambda", opt.Lambda, "cost `x` of a candidate that is no label, where a missed label costs 1")
	f.Float64Var(&opt.Gamma, "gamma", opt.Gamma, "weight `x` of exceeding the budget while learning")
	f.IntVar(&opt.Iterations, "iterations", opt.Iterations, "`T`, the number of alternations")
	f.BoolVar(&opt.KMeansOnly, "kmeans-only", false, "stop after spherical k-means and the knapsack")
	f.TextVar(&opt.Estimator, "estimator", opt.Estimator, "gradient `estimator`: gumbel-st or expected")
	f.Uint64Var(&opt.Seed, "seed", opt.Seed, "`N`, the seed of all random choices")
	f.IntVar(&opt.Threads, "threads", 0, "`N` threads; 0 uses all cores; the result does not depend on it")
	always := f.String("always", "", "`ids`, separated by commas, that every candidate set holds")
	quiet := f.Bool("quiet", false, "show no progress")
	asJSON := f.Bool("json", false, "print JSON")
	if _, err := e.parse(); err != nil {
		return err
	}
	if err := e.need("out"); err != nil {
		return err
	}
	if *always != "" {
		ids, err := intList("always", *always)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if id < 0 || int64(id) > int64(^uint32(0)) {
				return usagef("--always: found id %d, expected ids of labels", id)
			}
			opt.Always = append(opt.Always, uint32(id))
		}
	}
	layer, contexts, err := in.load(e)
	defer in.close()
	if err != nil {
		return err
	}
	// A file that cannot be written is better found now than after the work.
	file, err := atomicfile.Create(*out)
	if err != nil {
		return err
	}
	defer file.Abort()

	p := e.printer(*quiet)
	defer p.Close()
	watch := newStopwatch(p)
	opt.Progress = watch.progress
	model, record, err := train.Run(ctx, layer, contexts, opt)
	if err != nil {
		return err
	}
	watch.stop()
	if _, err := model.WriteTo(file); err != nil {
		return err
	}
	if err := file.Commit(); err != nil {
		return err
	}
	res := trained{
		Out: *out, Clusters: model.Clusters(), Dim: model.Dim(), Labels: model.Labels(),
		Contexts: record.Contexts, Budget: opt.Budget, AvgCandidates: record.MeanCandidates,
		Precision: map[string]float64{"1": record.Precision1, fmt.Sprint(opt.K): record.PrecisionK},
		Seconds:   watch.total.Seconds(), Stages: watch.stages, Level: kernels.Level(),
	}
	if *asJSON {
		return writeJSON(e.stdout, res)
	}
	fmt.Fprintf(e.stdout, "%s: %d clusters, %.1f candidates a query on the training contexts, P@1 %.4f, P@%d %.4f there, %.1f s\n",
		res.Out, res.Clusters, res.AvgCandidates, record.Precision1, opt.K, record.PrecisionK, res.Seconds)
	return nil
}

// stopwatch shows the progress of a training run and adds up the seconds of
// its stages.
type stopwatch struct {
	p      *progress.Printer
	stages map[string]float64
	begin  time.Time
	total  time.Duration
	last   time.Time
	stage  string
}

func newStopwatch(p *progress.Printer) *stopwatch {
	now := time.Now()
	return &stopwatch{p: p, stages: map[string]float64{}, begin: now, last: now}
}

func (s *stopwatch) add(stage string) {
	now := time.Now()
	if s.stage != "" {
		s.stages[s.stage] += now.Sub(s.last).Seconds()
	}
	s.stage, s.last = stage, now
}

func (s *stopwatch) stop() {
	s.add("")
	s.total = time.Since(s.begin)
}

func (s *stopwatch) progress(p train.Progress) {
	s.add(p.Stage)
	if p.Message != "" {
		s.p.Line(p.Message)
		return
	}
	name := p.Stage
	if p.Iteration > 0 {
		// The iterations are short and each ends with a message.
		if name = fmt.Sprintf("%s %d", p.Stage, p.Iteration); p.Done == p.Total {
			s.p.Close()
			return
		}
	}
	s.p.Update(name, p.Done, p.Total)
}
