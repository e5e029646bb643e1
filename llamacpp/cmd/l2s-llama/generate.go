package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/head"
	"github.com/learning-to-screen/l2s/llamacpp"
	"github.com/learning-to-screen/l2s/sample"
	"github.com/learning-to-screen/l2s/softmax"
)

const generateUsage = `
l2s-llama generate --model M.gguf --prompt TEXT [--fast | --screen M.l2s | --learn [--keep M.l2s]] [flags]

Goes on with a prompt. The head is exact, unless --fast or --screen is given. --fast finds tokens by a preview. The
first start makes it in about a minute: from states of a text that comes with the command, in several languages
and code, of --text if that is given (each text has a preview of its own), and of what the model writes. It is kept in M.gguf.l2p, or in the
user's cache folder if that of the model cannot be written to, with the precision that it had on states which it was
not made from. --screen names a screen of l2s train. With a temperature a
screen without a tail answers no draws: the exact layer does. A context that is full loses the
older half of its tokens. With --learn the exact head answers until it has learned a screen, in
the background: a training begins at 32,768 tokens, and a trial of half as many follows. The states are
of one run: what an ended run had seen is gone, but for a screen in the file of --keep. Draws are among
the best top-k tokens that it finds.`

// sampling are the flags of a sampler, by the names that llama.cpp gives them.
type sampling struct {
	o       sample.Options
	lastN   int
	penalty bool

	ban, allow string // lists of ids
}

func (f *flags) sampling() *sampling {
	s := &sampling{o: sample.DefaultOptions()}
	f.Float64Var(&s.o.Temperature, "temp", 0.8, "the `temperature`, 0 for the best token")
	f.IntVar(&s.o.TopK, "top-k", 40, "draw among the best `k`, 0 for all")
	f.Float64Var(&s.o.TopP, "top-p", 0.95, "draw among the best that hold this `share`, 1 for all")
	f.Float64Var(&s.o.MinP, "min-p", 0.05, "draw among those of at least this `share` of the best's, 0 for all")
	f.Float64Var(&s.o.Repetition, "repeat-penalty", 1, "the `penalty` of tokens that are among the last, 1 for none")
	f.Float64Var(&s.o.Presence, "presence-penalty", 0, "the `penalty` that is subtracted for these tokens")
	f.Float64Var(&s.o.Frequency, "frequency-penalty", 0, "the `penalty` that is subtracted each time")
	f.IntVar(&s.lastN, "repeat-last-n", 64, "how `many` tokens are the last, -1 for all")
	f.StringVar(&s.ban, "ban", "", "`ids` that are not written, or @FILE, with commas between them")
	f.StringVar(&s.allow, "allow", "", "`ids` that alone are written, or @FILE, with commas between them")
	f.Uint64Var(&s.o.Seed, "seed", 0, "the `seed` of the draws, 0 for another one each time")
	return s
}

func (s *sampling) check() error {
	if s.lastN < -1 {
		return wrongUse("--repeat-last-n: found %d, expected -1 or more", s.lastN)
	}
	if s.o.Seed == 0 {
		s.o.Seed = rand.Uint64()
	}
	s.penalty = s.o.Repetition != 1 || s.o.Presence != 0 || s.o.Frequency != 0
	return nil
}

// chooser chooses the next token.
type chooser struct {
	*sampling
	head *llamacpp.Head
	draw *llamacpp.Sampler // nil for the best token
	best []softmax.Prediction
	// Of a head that learns: the tokens to draw among, nil for all.
	among *bitset.Set
	// What may not be written, the tokens that the model forbids among it, and what alone may; nil
	// for none.
	banned, allowed *bitset.Set
}

// lists makes the sets of --ban and --allow. What the model's file forbids is banned too, as by
// llama.cpp.
func (c *chooser) lists() error {
	ban, err := parseIDs(c.ban)
	if err != nil {
		return wrongUse("--ban: %v", err)
	}
	allow, err := parseIDs(c.allow)
	if err != nil {
		return wrongUse("--allow: %v", err)
	}
	labels := c.head.Labels()
	set := func(ids []uint32) (*bitset.Set, error) {
		slices.Sort(ids)
		return bitset.FromIDs(labels, slices.Compact(ids))
	}
	ban = slices.DeleteFunc(append(ban, c.head.File().Suppressed()...), func(id uint32) bool { return int64(id) >= int64(labels) })
	if len(ban) > 0 {
		if c.banned, err = set(ban); err != nil {
			return err
		}
	}
	if c.allow != "" {
		for _, id := range allow {
			if int64(id) >= int64(labels) {
				return wrongUse("--allow: found token %d, expected one below the %d of the head", id, labels)
			}
		}
		c.allowed, err = set(allow)
	}
	return err
}

// parseIDs reads ids, and files of them as text or as an array of integers, with commas between
// them.
func parseIDs(list string) (ids []uint32, err error) {
	if list == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		part = strings.TrimSpace(part)
		words := []string{part}
		if file, named := strings.CutPrefix(part, "@"); named {
			if of, err := head.ReadIDs(file); err == nil {
				ids = append(ids, of...)
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			words = strings.FieldsFunc(string(text), func(r rune) bool { return strings.ContainsRune(" ,\t\r\n", r) })
		}
		for _, word := range words {
			id, err := strconv.ParseUint(word, 10, 32)
			if err != nil {
				return nil, fmt.Errorf("found %.40q, expected ids of tokens, or @FILE, with commas between them", word)
			}
			ids = append(ids, uint32(id))
		}
	}
	return ids, nil
}

func (s *sampling) chooser(x *llamacpp.Head) (*chooser, error) {
	c := &chooser{sampling: s, head: x, best: make([]softmax.Prediction, 1)}
	if err := c.lists(); err != nil {
		return nil, err
	}
	if s.o.Temperature == 0 && !s.penalty {
		return c, nil
	}
	if x.Learner() != nil {
		n := s.o.TopK
		if s.o.Temperature == 0 {
			n = 1
		}
		if s.penalty {
			n += max(s.lastN, 0)
		}
		if s.o.TopK < 1 || s.penalty && s.lastN < 0 {
			return nil, wrongUse("--learn: found --top-k %d, --repeat-last-n %d, expected 1 or more, and 0 or more", s.o.TopK, s.lastN)
		}
		c.best, c.among = make([]softmax.Prediction, min(n, x.Labels())), bitset.New(x.Labels())
	}
	var err error
	c.draw, err = x.Sampler(s.o)
	return c, err
}

func (c *chooser) next(h []float32, history []uint32) (uint32, error) {
	if c.draw == nil {
		a, err := c.head.Search(c.best, h, softmax.Request{K: 1, Banned: c.banned, Allowed: c.allowed})
		if err == nil && a.Count == 0 {
			err = errors.New("found no token that may be written, expected one at least: see --ban and --allow")
		}
		return c.best[0].ID, err
	}
	e := sample.Edits{Banned: c.banned, Allowed: c.allowed}
	if c.penalty {
		e.History = history
		if c.lastN >= 0 {
			e.History = history[max(0, len(history)-c.lastN):]
		}
	}
	if c.among != nil {
		e.Allowed = c.among
		a, err := c.head.Search(c.best, h, softmax.Request{K: len(c.best), Banned: c.banned, Allowed: c.allowed})
		if err != nil {
			return 0, err
		}
		c.among.Clear()
		for _, p := range c.best[:a.Count] {
			c.among.Add(p.ID)
		}
		for _, id := range e.History { // a penalty may be a gain
			if int64(id) < int64(c.among.Len()) && (c.allowed == nil || c.allowed.Has(id)) {
				c.among.Add(id)
			}
		}
	}
	t, err := c.draw.Draw(h, e)
	return t.ID, err
}

func runGenerate(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := newFlags("generate", generateUsage, stdout, stderr).withLearn().withFast("with --fast, a `file` of text like that to come, for the preview too")
	prompt := f.String("prompt", "", "the `text` to go on with")
	file := f.String("file", "", "a `file` with the prompt, - for standard input")
	n := f.Int("n", 128, "how `many` tokens to write at most, -1 for no end")
	size := f.Int("context", 0, "how `many` tokens the context has, 0 for the model's, at most 4096")
	ignore := f.Bool("ignore-eos", false, "do not end where the model ends the text")
	s := f.sampling()
	if err := f.parse(args); err != nil {
		return err
	}
	if err := s.check(); err != nil {
		return err
	}
	if f.fast && f.screen != "" {
		return wrongUse("found --fast and --screen, expected one of them")
	}
	if f.text != "" && !f.fast {
		return wrongUse("found --text without --fast, expected both")
	}
	if (*prompt == "") == (*file == "") {
		return wrongUse("expected one of --prompt and --file")
	}
	if *n < -1 || *size < 0 || *size > mostTokens {
		return wrongUse("-n, --context: found %d and %d, expected -1 or more and 0 to %d", *n, *size, mostTokens)
	}
	text := *prompt
	if *file != "" {
		var err error
		if text, err = f.readText(ctx, *file); err != nil {
			return err
		}
	}
	m, err := f.open(ctx, llamacpp.Options{Context: *size})
	if err != nil {
		return err
	}
	defer f.closes(m)
	x, err := f.openHead(ctx, m, f.kind())
	if err != nil {
		return err
	}
	defer f.closes(nil, x)
	f.say("head: %s\n", f.named(f.kind()))
	choose, err := s.chooser(x)
	if err != nil {
		return err
	}
	return f.generate(ctx, m, choose, text, *n, *ignore)
}

// named says which head it is.
func (f *flags) named(k kind) string {
	switch k {
	case previewHead:
		return "preview " + f.previewFile + ": " + f.measured()
	case screenHead:
		return "screen " + f.screen
	case learnHead:
		return "exact, until it has learned a screen"
	}
	return "exact"
}

func (f *flags) generate(ctx context.Context, m *llamacpp.Model, choose *chooser, prompt string, n int, ignore bool) error {
	history, err := f.tokens(ctx, m, prompt, true)
	if err != nil {
		return err
	}
	if len(history) == 0 {
		return errors.New("found a prompt without tokens, expected one at least")
	}
	start := time.Now()
	h, err := m.Feed(ctx, 0, history...)
	var long *llamacpp.TooLongError
	if errors.As(err, &long) {
		return fmt.Errorf("found a prompt of %d tokens, expected at most %d, which the context has room for: see --context", len(history), long.Context)
	}
	if err != nil {
		return err
	}
	prompted, read := len(history), time.Since(start)
	out := bufio.NewWriter(f.stdout)
	start = time.Now()
	written := 0
	var failed error
	for ; written != n; written++ {
		id, err := choose.next(h, history)
		if err != nil {
			failed = err
			break
		}
		if m.Ends(id) && !ignore {
			break
		}
		out.WriteString(m.Piece(id))
		if failed = out.Flush(); failed != nil {
			break
		}
		if history = append(history, id); len(history) > 2*m.Context() { // none is looked at again that is older
			history = append(history[:0], history[len(history)-m.Context():]...)
		}
		if m.Len(0) == m.Context() {
			m.Clear(0)
			h, failed = m.Feed(ctx, 0, history[len(history)-max(1, m.Context()/2):]...)
		} else {
			h, failed = m.Feed(ctx, 0, id)
		}
		if failed != nil {
			break
		}
	}
	fmt.Fprintln(f.stdout)
	took := time.Since(start)
	f.say("prompt: %d tokens, %.1f a second; written: %d, %.1f a second\n", prompted, float64(prompted)/read.Seconds(), written, float64(written)/took.Seconds())
	if l := choose.head.Learner(); l != nil && !l.Screened() {
		f.say("no screen yet: this run saw %d states, and a training begins at 32768\n", l.Contexts().Kept())
	}
	return failed
}
