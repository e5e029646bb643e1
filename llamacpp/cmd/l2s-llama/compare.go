package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/command/cmdline"
	l2sengine "github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/llamacpp"
	"github.com/learning-to-screen/l2s/llamacpp/internal/engine"
)

const compareUsage = `
l2s-llama compare --model M.gguf --text FILE [--fast] [--screen M.l2s] [--budgets LIST] [flags]

Measures where greedy tokens differ. Prompts are taken from the text, evenly spread. The exact head
continues each. At every token llama.cpp's own head, the preview of --fast, which is never made from
this text, and the screen with each budget choose their token; up to the first difference they would
write the same text alone. A perplexity is of a part of the text, after prompts of the same length.`

// difference compares one head with the exact one.
type difference struct {
	Head       string  `json:"head"`
	Budget     float64 `json:"budget,omitempty"`
	P1         float64 `json:"p1_on_held_out,omitempty"` // from the ladder of the screen, or of the preview
	Own        float64 `json:"own,omitempty"`            // found share of own states, of the preview
	Agreement  float64 `json:"agreement"`                // share of all tokens
	Same       float64 `json:"prompts_without_divergence"`
	First      float64 `json:"mean_first_divergence"` // over prompts that have one, from 1 on; 0 for none
	Perplexity float64 `json:"perplexity,omitempty"`

	other                     *llamacpp.Head // the preview, or the screen of that budget
	equal, whole, firsts, sum int
	nats                      float64
	diverged                  bool
}

// count counts a token: theirs, compared with the token of the exact head.
func (d *difference) count(theirs, exact uint32, at int) {
	switch {
	case theirs == exact:
		d.equal++
	case !d.diverged:
		d.diverged = true
		d.firsts++
		d.sum += at
	}
}

func runCompare(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := newFlags("compare", compareUsage, stdout, stderr).withHead().withFast("")
	path := f.String("text", "", "a `file` of text in UTF-8")
	prompts := f.Int("prompts", 100, "how `many` prompts")
	length := f.Int("prompt-tokens", 32, "how `many` tokens a prompt has")
	n := f.Int("n", 100, "how `many` tokens follow each")
	list := f.String("budgets", "", "`budgets` of the screen, separated by commas; else --budget, or its own")
	scored := f.Int("perplexity-tokens", 2000, "how `many` tokens the perplexity is of, 0 for none")
	asJSON := f.Bool("json", false, "write JSON")
	if err := f.parse(args); err != nil {
		return err
	}
	if *path == "" {
		return wrongUse("found no --text, expected a file")
	}
	if most := mostTokens; *prompts < 1 || *length < 1 || *n < 1 || *scored < 0 || *prompts > most || *length > most || *n > most || *scored > most {
		return wrongUse("--prompts, --prompt-tokens, --n, --perplexity-tokens: found %d, %d, %d, %d, expected 1 or more, the last 0 or more, and at most %d", *prompts, *length, *n, *scored, most)
	}
	budgets, err := parseBudgets(*list, f.budget)
	if err != nil {
		return err
	}
	if *list != "" && f.screen == "" {
		return wrongUse("found --budgets without --screen, expected both")
	}
	text, err := f.readText(ctx, *path)
	if err != nil {
		return err
	}
	size := *length + *n + 2
	m, err := f.open(ctx, llamacpp.Options{Context: size})
	if err != nil {
		return err
	}
	defer f.closes(m)
	c := &comparison{f: f, m: m, length: *length, n: *n}
	if c.exact, err = f.openHead(ctx, m, exactHead); err != nil {
		return err
	}
	defer f.closes(nil, c.exact)
	c.rows = []*difference{{Head: "exact"}, {Head: "llama.cpp"}}
	if f.fast {
		x, err := f.openHead(ctx, m, previewHead)
		if err != nil {
			return err
		}
		defer f.closes(nil, x)
		r := engine.Rung(x.Index(), f.budget)
		c.rows = append(c.rows, &difference{Head: "preview", Budget: r.Kept, P1: r.Precision1.Value, Own: r.Own.Value, other: x})
	}
	if f.screen != "" {
		for _, b := range budgets {
			f.budget = b
			x, err := f.openHead(ctx, m, screenHead)
			if err != nil {
				return err
			}
			defer f.closes(nil, x)
			d := onLadder(x.Index(), b)
			if d.other = x; c.rows[len(c.rows)-1].Budget != d.Budget {
				c.rows = append(c.rows, d)
			}
		}
	}
	threads := f.threads
	if threads == 0 {
		threads = 1
	}
	if c.own, err = newPlain(m, size, 512, threads); err != nil {
		return err
	}
	defer c.own.close()
	ids, err := f.tokens(ctx, m, text, false)
	if err != nil {
		return err
	}
	err = c.run(ctx, ids, *prompts, *scored)
	if err != nil && (ctx.Err() == nil || !c.continued) {
		return err
	}
	if err != nil { // the comparison of tokens is complete
		f.say("the perplexities are missing\n")
		*scored = 0
	}
	return cmp.Or(c.write(*prompts, *scored, *asJSON), err)
}

func parseBudgets(list string, one float64) ([]float64, error) {
	if list == "" {
		return []float64{one}, nil
	}
	var budgets []float64
	for _, s := range strings.Split(list, ",") {
		b, err := cmdline.Float(strings.TrimSpace(s))
		if err != nil || !(b > 0) {
			return nil, wrongUse("--budgets: found %q, expected numbers above 0", s)
		}
		budgets = append(budgets, b)
	}
	return budgets, nil
}

// onLadder is the row of a budget, with the figures of the ladder.
func onLadder(x *l2s.Index, budget float64) *difference {
	steps, _ := x.Steps()
	found := steps[(*l2sengine.Index)(x).StepOf(budget)]
	return &difference{Head: "screen", Budget: found.Budget, P1: found.Precision1.Value}
}

type comparison struct {
	f         *flags
	m         *llamacpp.Model
	exact     *llamacpp.Head
	own       *plain
	rows      []*difference
	length, n int
	tokens    int // compared
	told      func(done int)
	continued bool // all prompts were
}

func (c *comparison) run(ctx context.Context, text []uint32, prompts, scored int) error {
	if len(text) < c.length+1 {
		return fmt.Errorf("found a text of %d tokens, expected %d at least", len(text), c.length+1)
	}
	begin, begins := c.m.Begins()
	p := c.f.progress()
	defer p.Close()
	p.Start("compare", "tokens", prompts*c.n)
	c.told = func(tokens int) { p.Set(tokens) }
	for i := range prompts {
		at := i * (len(text) - c.length) / prompts
		prompt := text[at:][:c.length]
		if begins {
			prompt = append([]uint32{begin}, prompt...)
		}
		if err := c.follow(ctx, prompt); err != nil {
			return err
		}
	}
	p.End()
	c.continued = true
	if scored == 0 {
		return nil
	}
	p.Start("perplexity", "tokens", scored)
	if err := c.score(ctx, text, begin, begins, scored); err != nil {
		return err
	}
	p.End()
	return nil
}

// follow continues one prompt.
func (c *comparison) follow(ctx context.Context, prompt []uint32) error {
	c.m.Clear(0)
	c.own.cut(0)
	for _, d := range c.rows {
		d.diverged = false
	}
	next := prompt
	var best, other [1]l2s.Prediction
	for at := 1; at <= c.n; at++ {
		h, err := c.m.Feed(ctx, 0, next...)
		if err != nil {
			return err
		}
		if _, err := c.exact.Search(best[:], h, l2s.Request{}); err != nil {
			return err
		}
		exact := best[0].ID
		for _, d := range c.rows {
			theirs := exact
			switch d.Head {
			case "llama.cpp":
				if err := c.own.feed(1, next...); err != nil {
					return err
				}
				logits, err := c.own.logits(-1)
				if err != nil {
					return err
				}
				theirs = uint32(argmax(logits))
			case "preview", "screen":
				if _, err := d.other.Search(other[:], h, l2s.Request{}); err != nil {
					return err
				}
				theirs = other[0].ID
			}
			d.count(theirs, exact, at)
		}
		c.tokens++ // an end of the text ends nothing here
		c.told(c.tokens)
		next = []uint32{exact}
	}
	for _, d := range c.rows {
		if !d.diverged {
			d.whole++
		}
	}
	return nil
}

// score computes perplexities of windows of the text, after a context of the prompts' length.
func (c *comparison) score(ctx context.Context, text []uint32, begin uint32, begins bool, scored int) error {
	done := 0
	for len(text) > c.length+1 && done < scored {
		n := min(c.length+c.n, len(text)-1)
		window := text[:n+1]
		text = text[n:]
		if begins {
			window = append([]uint32{begin}, window...)
		}
		c.m.Clear(0)
		c.own.cut(0)
		from := len(window) - 1 - (n - c.length)
		next := window[:from]
		for i := from; i < len(window) && done < scored; i++ {
			h, err := c.m.Feed(ctx, 0, next...)
			if err != nil {
				return err
			}
			if err := c.own.feed(1, next...); err != nil {
				return err
			}
			target := window[i]
			if int(target) >= c.exact.Labels() {
				next = window[i : i+1]
				continue
			}
			for _, d := range c.rows {
				p, err := c.logProb(d, h, target)
				if err != nil {
					return err
				}
				d.nats -= p
			}
			done++
			c.told(done)
			next = window[i : i+1]
		}
	}
	if done == 0 {
		return errors.New("found no token to score, expected a longer text")
	}
	for _, d := range c.rows {
		if !math.IsNaN(d.nats) {
			d.Perplexity = math.Exp(d.nats / float64(done))
		}
	}
	return nil
}

// logProb is NaN for a screen without a tail, which has no probabilities.
func (c *comparison) logProb(d *difference, h []float32, id uint32) (float64, error) {
	switch d.Head {
	case "llama.cpp":
		logits, err := c.own.logits(-1)
		if err != nil {
			return 0, err
		}
		largest := float64(logits[argmax(logits)])
		sum := 0.0
		for _, x := range logits {
			sum += math.Exp(float64(x) - largest)
		}
		return float64(logits[id]) - largest - math.Log(sum), nil
	case "preview":
		return d.other.LogProb(h, id)
	case "screen":
		if !d.other.Index().HasTail() {
			return math.NaN(), nil
		}
		return d.other.LogProb(h, id)
	}
	return c.exact.LogProb(h, id)
}

func (c *comparison) write(prompts, scored int, asJSON bool) error {
	for _, d := range c.rows {
		d.Agreement = float64(d.equal) / float64(c.tokens)
		d.Same = float64(d.whole) / float64(prompts)
		if d.firsts > 0 {
			d.First = float64(d.sum) / float64(d.firsts)
		}
	}
	if asJSON {
		out := json.NewEncoder(c.f.stdout)
		out.SetIndent("", "  ")
		return out.Encode(struct {
			Model   string        `json:"model"`
			Prompts int           `json:"prompts"`
			Tokens  int           `json:"tokens"`
			Scored  int           `json:"perplexity_tokens"`
			Heads   []*difference `json:"heads"`
		}{c.m.Path(), prompts, c.tokens, scored, c.rows})
	}
	w := tabwriter.NewWriter(c.f.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "head\tbudget\tP@1 on held-out\town states\ttokens the same\tprompts the same\tmean first difference\tperplexity")
	for _, d := range c.rows {
		text := func(x float64, format string) string {
			if x == 0 {
				return ""
			}
			return fmt.Sprintf(format, x)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.5f\t%.3f\t%s\t%s\n", d.Head, text(d.Budget, "%.0f"), text(d.P1, "%.4f"), text(d.Own, "%.4f"), d.Agreement, d.Same, text(d.First, "%.1f"), text(d.Perplexity, "%.3f"))
	}
	return w.Flush()
}
