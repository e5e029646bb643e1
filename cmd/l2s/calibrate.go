package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/learning-to-screen/l2s/internal/progress"
	"github.com/learning-to-screen/l2s/kernels"
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

func runCalibrate(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	start := time.Now()
	o := calibrate.DefaultOptions()
	f := newFlags("calibrate", description{
		purpose: `Choose the budget of a screen such that it reaches a precision, the smallest of its
ladder.

The contexts must be others than those that the screen was trained on. P@k is at least the target
with the given confidence: in at least that share of all draws of such contexts. The
screen that is written has this budget for requests that name none.

With --exact-limit X the exact layer may answer the share X of the contexts, those whose best
cluster leads the second best by least, if no budget reaches the target alone.`,
		usage: "m.l2s (--head MODEL | --weights SRC --bias SRC) --contexts H.npy --out c.l2s [flags]",
		notes: sourceNote + `

The promise holds if the contexts given here are independent draws from the
distribution of use. It is void if the screen was trained on them: the command refuses the
file that it was trained on. The promise is void, too, if you try seeds, targets or blocks on
the same contexts until one passes. Contexts of a running text depend on their neighbours:
--block N makes N consecutive contexts one observation.`,
		example: `l2s calibrate m.l2s --weights W.npy --bias b.npy --contexts valid.npy \
    --target 0.99 --k 5 --block 10 --out c.l2s`,
	}, stdout, stderr)
	flags := f.layerAndContexts()
	out := f.needs("out", "screen `FILE` to write")
	target := f.share("target", o.Target, "precision `P`@k to reach")
	confidence := f.share("confidence", o.Confidence, "probability `C` of reaching it, at least")
	k := f.whole("k", o.K, 1, "number `N` of labels of an answer")
	exactLimit := f.number("exact-limit", o.ExactLimit, "a number, at least 0 and below 1", "largest share `X` of the contexts that the exact layer may answer", func(x float64) bool { return x >= 0 && x < 1 })
	block := f.whole("block", o.Block, 1, "take `N` consecutive contexts as one observation")
	seed := f.seed(o.Seed)
	threads := f.threads("run")
	var path string
	if err := f.parse(args, &path); err != nil {
		return err
	}
	o.Target, o.Confidence, o.K, o.Block = *target, *confidence, *k, *block
	o.ExactLimit, o.Seed, o.Threads = *exactLimit, *seed, *threads
	if err := checkOutputs(ctx, f, []output{{flag: "--out", path: *out}}, append(flags.files(), path)...); err != nil {
		return err
	}
	in, err := flags.open(ctx, path, o.K, allRows)
	if err != nil {
		return err
	}
	defer in.close(&err)
	p := f.printer()
	defer p.Close()
	stage := ""
	o.Progress = func(r train.Progress) {
		if r.Stage != stage {
			if stage != "" {
				p.End()
			}
			p.Start(r.Stage, "contexts", r.Total)
			stage = r.Stage
		}
		p.Set(r.Done)
	}
	m, found, err := calibrate.Run(ctx, in.screen, in.layer.Layer, in.rows, o)
	if err != nil {
		return fmt.Errorf("%s: %w", in.contexts.Name(), err)
	}
	p.End()
	if err := m.Save(*out); err != nil {
		return err
	}
	r := calibrateResult{*out, *found, round(time.Since(start).Seconds()), kernels.Level()}
	return f.print(r)
}

func (r calibrateResult) String() string {
	return fmt.Sprintf("%s: %s", r.Out, calibrationText(&r.Calibration))
}

// calibrationText says what a calibration found.
func calibrationText(c *calibrate.Calibration) string {
	var b strings.Builder
	draws := "contexts"
	if c.Block > 1 {
		draws = fmt.Sprintf("blocks of %d contexts", c.Block)
	}
	fmt.Fprintf(&b, "P@%d of at least %v with confidence %v, if %s are independent of each other\n", c.K, c.Target, c.Confidence, draws)
	if c.Block == 1 {
		b.WriteString("  (contexts of running text are not: --block 100 takes 100 neighbours for one observation)\n")
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
