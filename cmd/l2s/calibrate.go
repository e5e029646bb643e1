package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/learning-to-screen/l2s/internal/kernels"
	"github.com/learning-to-screen/l2s/internal/progress"
	"github.com/learning-to-screen/l2s/train"
	"github.com/learning-to-screen/l2s/train/calibrate"
)

// calibrateResult is the JSON of l2s calibrate.
type calibrateResult struct {
	Out string `json:"out"`
	calibrate.Calibration
	Seconds float64 `json:"seconds"`
	Level   string  `json:"level"`
}

func calibrateVerb(f *flags) action {
	start, o := time.Now(), calibrate.DefaultOptions()
	f.screen = true
	k := f.whole("k", o.K, 1)
	f.layerAndContexts(true, func() int { return *k })
	out := f.needs("out")
	target, confidence := f.share("target", o.Target), f.share("confidence", o.Confidence)
	exactLimit := f.number("exact-limit", o.ExactLimit, "a number, at least 0 and below 1", func(x float64) bool { return x >= 0 && x < 1 })
	block := f.whole("block", o.Block, 1)
	seed := f.whole("seed", int(o.Seed), 0)
	threads := f.threads()
	f.before = func(ctx context.Context) error { return checkOutputs(ctx, f, []output{{flag: "--out", path: *out}}) }
	return func(ctx context.Context, in *inputs) (fmt.Stringer, error) {
		o.Target, o.Confidence, o.K, o.Block = *target, *confidence, *k, *block
		o.ExactLimit, o.Seed, o.Threads = *exactLimit, uint64(*seed), *threads
		p, stage := f.progress, ""
		o.Progress = func(r train.Progress) {
			if r.Stage != stage {
				p.End()
				p.Start(r.Stage, "contexts", r.Total)
				stage = r.Stage
			}
			p.Set(r.Done)
		}
		m, found, err := calibrate.Run(ctx, in.screen, in.layer.Layer, in.rows, o)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", in.contexts.Name(), err)
		}
		p.End()
		if err := m.Save(*out); err != nil {
			return nil, err
		}
		return calibrateResult{*out, *found, round(time.Since(start).Seconds()), kernels.Level()}, nil
	}
}

func (r calibrateResult) String() string {
	return fmt.Sprintf("%s: %s", r.Out, calibrationText(&r.Calibration))
}

// calibrationText describes the result of a calibration.
func calibrationText(c *calibrate.Calibration) string {
	var b strings.Builder
	draws := "contexts"
	if c.Block > 1 {
		draws = fmt.Sprintf("blocks of %d contexts", c.Block)
	}
	fmt.Fprintf(&b, "P@%d of at least %v with confidence %v, if %s are independent of each other\n", c.K, c.Target, c.Confidence, draws)
	if c.Block == 1 {
		b.WriteString("  (contexts of running text are not: with --block 10 ten neighbours are one observation)\n")
	}
	fmt.Fprintf(&b, "  budget %v", c.Budget)
	if c.ExactMargin > 0 {
		fmt.Fprintf(&b, ", and the exact layer below a lead of %.6g", c.ExactMargin)
	}
	fmt.Fprintf(&b, "\n  on %s contexts  P@%d      exact   candidates\n", progress.Count(c.Testing), c.K)
	for _, x := range []struct {
		name string
		f    calibrate.Figures
	}{{"before", c.Before}, {"calibrated", c.Calibrated}} {
		fmt.Fprintf(&b, "  %-*s  %.4f   %5.2f%%   %10.1f\n", len("on  contexts")+len(progress.Count(c.Testing)), x.name, x.f.Precision, 100*x.f.ExactShare, x.f.Candidates)
	}
	return b.String()
}
