package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
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
	// Replaced says that the input had margins, which played no part.
	Replaced bool    `json:"replaced_margins"`
	Seconds  float64 `json:"seconds"`
	Level    string  `json:"level"`
}

func runCalibrate(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	start := time.Now()
	o := calibrate.DefaultOptions()
	f := newFlags("calibrate", description{
		purpose: `Set the margins of a screen such that it reaches a precision, at the least cost.

If the best cluster of a context leads the second best by little, a query looks at
the sets of both, or asks the exact layer. How little is chosen on contexts that
the screen was not trained on, such that P@k is at least the target with the given
confidence: in at least that share of all draws of such contexts. Margins that the
screen has already, such as the margin of l2s train --probe-share, are replaced.`,
		usage: "m.l2s (--head MODEL | --weights SRC --bias SRC) --contexts H.npy --out c.l2s [flags]",
		notes: sourceNote + `

The promise holds if the contexts given here are independent draws from the
distribution of use. It is void if the screen was trained on them: a warning says if
it was trained on a part of them, and if that is more than half, the command refuses
them. The promise is void, too, if you try seeds, targets or blocks on the same
contexts until one passes. Contexts of a running text depend on their neighbours:
--block N makes N consecutive contexts one observation.

No screen is written that would ask the exact layer for more than the share
--exact-limit of the contexts: the target is then too high for the screen, or the
contexts too few to show it.

The exact layer scans int8 codes, whose rows are cheaper than candidates: measure
both with l2s bench, and let --exact-cost be the ratio of the times, multiplied by
the rows that a screened query scans.`,
		advanced: "block exact-cost exact-limit seed threads",
		example: `l2s calibrate m.l2s --weights W.npy --bias b.npy --contexts valid.npy \
    --target 0.99 --k 5 --block 10 --out c.l2s`,
	}, stdout, stderr)
	lf, src := f.layer(), f.contexts()
	out := f.needs("out", "screen `FILE` to write")
	target := f.share("target", o.Target, "precision `P`@k to reach")
	confidence := f.share("confidence", o.Confidence, "probability `C` of reaching it, at least")
	k := f.whole("k", o.K, 1, "number `N` of labels of an answer")
	exactCost := f.real("exact-cost", 0, 0, "cost of an exact answer, in `ROWS` of a candidate set, 0 for the number of labels")
	exactLimit := f.number("exact-limit", o.ExactLimit, "a number, 0 to 1", "largest share `X` of the contexts that the exact layer may answer", func(x float64) bool { return x >= 0 && x <= 1 })
	block := f.whole("block", o.Block, 1, "take `N` consecutive contexts as one observation")
	seed := f.seed(o.Seed)
	threads := f.threads("run")
	f.report()
	var path string
	if err := f.parse(args, &path); err != nil {
		return err
	}
	o.Target, o.Confidence, o.K, o.ExactCost, o.Block = *target, *confidence, *k, *exactCost, *block
	o.ExactLimit, o.Seed, o.Threads = *exactLimit, *seed, *threads
	if err := checkOutputs(ctx, f, []output{{flag: "--out", path: *out}}, slices.Concat([]string{path}, lf.files(), *src)...); err != nil {
		return err
	}
	in, err := openInputs(ctx, lf, []string{path}, *src, o.K, openContexts)
	if err != nil {
		return err
	}
	defer in.close(&err)
	l, m, c := in.layer, in.screens[0], in.contexts
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
	replaced := m.ProbeMargin() > 0 || m.ExactMargin() > 0
	m, found, err := calibrate.Run(ctx, m, l.Layer, c.rows, o)
	if err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	p.End()
	if telling(found.TrainedOn) && *f.asJSON { // the text has it
		say(f.stderr, "l2s calibrate: warning: "+c.name, voidPromise(found.TrainedOn))
	}
	if err := m.Save(*out); err != nil {
		return err
	}
	r := calibrateResult{*out, *found, replaced, round(time.Since(start).Seconds()), kernels.Level()}
	return f.print(r)
}

func (r calibrateResult) String() string {
	text := fmt.Sprintf("%s: %s", r.Out, calibrationText(&r.Calibration))
	if r.Replaced {
		text += "  margins of the input are replaced\n"
	}
	return text
}

// marginText says when what goes with a margin is asked.
func marginText(margin float64) string {
	switch margin {
	case 0:
		return "never"
	case math.MaxFloat64:
		return "always"
	}
	return fmt.Sprintf("below a lead of %.6g", margin)
}

// voidPromise says why a calibration promises nothing.
func voidPromise(o *train.Overlap) string {
	return trainedOn(*o) + ": the promise is void, unless contexts of use repeat those of training as often"
}

// calibrationText says what a calibration found.
func calibrationText(c *calibrate.Calibration) string {
	var b strings.Builder
	draws := "contexts"
	if c.Block > 1 {
		draws = fmt.Sprintf("blocks of %d contexts", c.Block)
	}
	fmt.Fprintf(&b, "P@%d of at least %v with confidence %v, if %s are independent of each other\n", c.K, c.Target, c.Confidence, draws)
	switch {
	case c.ProbeMargin == 0 && c.ExactMargin == 0:
		b.WriteString("  reached without margins\n")
	default:
		fmt.Fprintf(&b, "  two clusters %s, the exact layer %s\n", marginText(c.ProbeMargin), marginText(c.ExactMargin))
	}
	fmt.Fprintf(&b, "  on %s contexts  P@%d      exact   two clusters   rows of candidates\n", progress.Count(c.Testing), c.K)
	for _, x := range []struct {
		name string
		f    calibrate.Figures
	}{{"plain", c.Plain}, {"calibrated", c.Calibrated}} {
		fmt.Fprintf(&b, "  %-*s  %.4f   %5.2f%%        %5.2f%%   %18.1f\n", len("on  contexts")+len(progress.Count(c.Testing)), x.name,
			x.f.Precision, 100*x.f.ExactShare, 100*x.f.ProbeShare, x.f.Cost)
	}
	if telling(c.TrainedOn) {
		fmt.Fprintf(&b, "  warning: %s\n", voidPromise(c.TrainedOn))
	}
	if c.Plain.Precision >= c.Target && c.Calibrated.Cost > 2*c.Plain.Cost {
		b.WriteString("  note: on these contexts the screen reaches the target without margins, but they are too few to promise it:\n" +
			"  with more contexts for --contexts the margins get smaller, and the answers cheaper\n")
	}
	return b.String()
}
