package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"text/tabwriter"
	"time"

	"github.com/learning-to-screen/l2s"
)

const (
	learnWindow = 256 // tokens of a text, which begins again with each window
	ownTurn     = 20  // one in this number of windows is also llama.cpp's own
	checked     = 4   // one in this number of answers of a screen is also computed exactly
	learnK      = 5   // best tokens
)

// stretch is a line of the table of a head that learns.
type stretch struct {
	Tokens          int     `json:"tokens"` // up to its end
	TokensPerSecond float64 `json:"tokens_per_second"`
	Own             float64 `json:"llama_cpp_tokens_per_second"`
	Speedup         float64 `json:"speedup"`
	Screened        float64 `json:"screened"` // the share of tokens that a screen answered
	Checked         int     `json:"checked,omitempty"`
	P1              float64 `json:"precision_1,omitempty"` // of the checked ones
	P5              float64 `json:"precision_5,omitempty"`
	Added           int64   `json:"added_bytes,omitempty"` // the largest memory so far, less the memory before the first token
}

// anonymous returns the memory of the process outside files, if the system reports it, and 0
// otherwise.
func anonymous() (kB int64) {
	if status, err := os.ReadFile("/proc/self/status"); err == nil {
		_, rest, _ := bytes.Cut(status, []byte("RssAnon:"))
		fmt.Fscan(bytes.NewReader(rest), &kB)
	}
	return kB << 10
}

// learns runs through a text as a service does, token by token, and asks for the best tokens after
// each. It returns at most most stretches; after an error, the error and the stretches before it.
func (b *bench) learns(ctx context.Context, ids []uint32, most int, each func(stretch)) ([]stretch, error) {
	begin, begins := b.m.Begins()
	top, best := make([]l2s.Prediction, learnK), make([]l2s.Prediction, learnK)
	if _, err := b.screen.Search(top, make([]float32, b.m.Dim()), l2s.Request{}); err != nil {
		return nil, err
	}
	var lines []stretch
	before, added := anonymous(), int64(0)
	for len(lines) < most && len(ids) > 0 {
		var took, ownTook time.Duration
		var n, own, screened, hits1, hits5 int
		var line stretch
		for windows := 0; n < b.tokens && len(ids) > 0; windows++ {
			window := ids[:min(learnWindow, len(ids), b.tokens-n)]
			ids = ids[len(window):]
			b.m.Clear(0)
			if begins {
				if _, err := b.m.Feed(ctx, 0, begin); err != nil {
					return lines, err
				}
			}
			for _, id := range window {
				start := time.Now()
				h, err := b.m.Feed(ctx, 0, id)
				if err != nil {
					return lines, err
				}
				a, err := b.screen.Search(top, h, l2s.Request{})
				if err != nil {
					return lines, err
				}
				took += time.Since(start)
				if n%16 == 0 {
					added = max(added, anonymous()-before)
				}
				if n++; a.Exact {
					continue
				}
				if screened++; screened%checked > 0 {
					continue
				}
				if _, err := b.exact.Search(best, h, l2s.Request{}); err != nil {
					return lines, err
				}
				line.Checked++
				for i, x := range best {
					for _, y := range top {
						if x.ID == y.ID {
							hits5++
						}
					}
					if i == 0 && top[0].ID == x.ID {
						hits1++
					}
				}
			}
			if windows%ownTurn > 0 {
				continue
			}
			b.own.cut(0)
			if begins {
				if err := b.own.feed(1, begin); err != nil {
					return lines, err
				}
			}
			start := time.Now()
			for _, id := range window {
				if err := b.own.feed(1, id); err != nil {
					return lines, err
				}
				logits, err := b.own.logits(-1)
				if err != nil {
					return lines, err
				}
				argmax(logits)
			}
			own, ownTook = own+len(window), ownTook+time.Since(start)
		}
		line.Added = added
		line.Tokens, line.Screened = n, float64(screened)/float64(n)
		if len(lines) > 0 {
			line.Tokens += lines[len(lines)-1].Tokens
		}
		line.TokensPerSecond, line.Own = float64(n)/took.Seconds(), float64(own)/ownTook.Seconds()
		line.Speedup = line.TokensPerSecond / line.Own
		if line.Checked > 0 {
			line.P1, line.P5 = float64(hits1)/float64(line.Checked), float64(hits5)/float64(learnK*line.Checked)
		}
		lines = append(lines, line)
		each(line)
	}
	return lines, nil
}

// runLearn is bench --learn.
func (f *flags) runLearn(ctx context.Context, b *bench, text, picture string, rounds int, asJSON bool) error {
	ids, err := f.tokens(ctx, b.m, text, false)
	if err != nil {
		return err
	}
	lines, failed := b.learns(ctx, ids, rounds, func(x stretch) {
		f.say("%d tokens: %.0f per second, %.2f times llama.cpp's, %.0f%% by a screen\n", x.Tokens, x.TokensPerSecond, x.Speedup, 100*x.Screened)
	})
	if failed == nil && len(lines) == 0 {
		failed = fmt.Errorf("%s: found no tokens, expected a text", f.text)
	}
	if len(lines) == 0 {
		return failed
	}
	if picture != "" {
		if err := os.WriteFile(picture, drawLearning(lines), 0o666); err != nil {
			return err
		}
	}
	if asJSON {
		out := json.NewEncoder(f.stdout)
		out.SetIndent("", "  ")
		return cmp.Or(failed, out.Encode(struct {
			Learning []stretch `json:"learning"`
			Bytes    int64     `json:"bytes"` // that were given
		}{lines, b.screen.Learner().Bytes()}))
	}
	w := tabwriter.NewWriter(f.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "tokens\tby a screen\ttokens/s\tllama.cpp\tspeedup\tadded MB\tP@1\tP@5")
	for _, x := range lines {
		fmt.Fprintf(w, "%d\t%.2f\t%.0f\t%.0f\t%.2f\t%d\t", x.Tokens, x.Screened, x.TokensPerSecond, x.Own, x.Speedup, x.Added/1e6)
		if x.Checked > 0 {
			fmt.Fprintf(w, "%.4f\t%.4f", x.P1, x.P5)
		}
		fmt.Fprintln(w)
	}
	f.say("learning has added %d MB of memory at most, and may add %d\n", lines[len(lines)-1].Added/1e6, b.screen.Learner().Bytes()/1e6)
	return cmp.Or(failed, w.Flush())
}

// drawLearning draws tokens per second over tokens, as SVG.
func drawLearning(lines []stretch) []byte {
	const width, height, left, right, bottom = 720.0, 360.0, 60.0, 30.0, 40.0
	most := 1.0
	for _, x := range lines {
		most = max(most, x.TokensPerSecond, x.Own)
	}
	most = 400 * math.Ceil(most/400) // four round steps
	tokens := float64(lines[len(lines)-1].Tokens)
	at := func(x, y float64) (float64, float64) {
		return left + (width-left-right)*x/tokens, height - bottom - (height-bottom-20)*y/most
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" font-size="12"><rect width="100%%" height="100%%" fill="white"/>`+"\n", width, height)
	for i := range 5 {
		x, y := at(tokens*float64(i)/4, most*float64(i)/4)
		fmt.Fprintf(&b, `<path d="M%.1f %.1fH%g" stroke="#ddd"/><text x="%g" y="%.1f" text-anchor="end">%.0f</text><text x="%.1f" y="%g" text-anchor="middle">%g</text>`+"\n",
			left, y, width-right, left-6, y+4, most*float64(i)/4, x, height-bottom+18, math.Round(tokens*float64(i)/40)/100)
	}
	fmt.Fprintf(&b, `<text x="%g" y="%g" text-anchor="middle">thousands of tokens</text><text x="%g" y="14">tokens per second: <tspan fill="#0072b2">a head that learns</tspan>, <tspan fill="#d55e00">llama.cpp</tspan></text>`+"\n", width/2, height-6, left)
	for _, own := range []bool{false, true} {
		color := map[bool]string{false: "#0072b2", true: "#d55e00"}[own]
		fmt.Fprintf(&b, `<polyline fill="none" stroke="%s" stroke-width="2" points="`, color)
		for _, s := range lines {
			rate := s.TokensPerSecond
			if own {
				rate = s.Own
			}
			x, y := at(float64(s.Tokens), rate)
			fmt.Fprintf(&b, "%.1f,%.1f ", x, y)
		}
		b.WriteString("\"/>\n")
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
