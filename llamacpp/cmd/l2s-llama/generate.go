package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/learning-to-screen/l2s/internal/command/cmdline"
	"github.com/learning-to-screen/l2s/internal/files/heads"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/llamacpp"
	"github.com/learning-to-screen/l2s/llamacpp/internal/engine"
	"github.com/learning-to-screen/l2s/sample"
)

const generateUsage = `
l2s-llama generate --model M.gguf {--prompt TEXT | --chat} [--fast | --screen M.l2s] [flags]

Continues a prompt; --chat alone has a chat, of lines of standard input. --fast: the first start
makes a preview in a minute, from built-in texts, --text, and text of the model, in M.gguf.l2p, or
the user's cache. --learn: a preview from 4,096 tokens on, then a screen. Otherwise the head is
exact. A full context keeps its later half, the first token, and --keep tokens of the prompt.`

// sampling are the flags of a sampler, by the names that llama.cpp gives them.
type sampling struct {
	o     sample.Options
	seed  int64 // of the draws, -1 for none
	lastN int

	ban, allow      string   // lists of ids
	banned, allowed []uint32 // which check has read
}

func (f *flags) sampling() *sampling {
	s := &sampling{o: sample.DefaultOptions()}
	f.Float64Var(&s.o.Temperature, "temp", 0.8, "the `temperature`, 0 for the best token")
	f.IntVar(&s.o.TopK, "top-k", 40, "draw among the best `k`, 0 for all")
	f.Float64Var(&s.o.TopP, "top-p", 0.95, "draw among the best that hold this `share`, 1 for all")
	f.Float64Var(&s.o.MinP, "min-p", 0.05, "draw among those with this `share` of the best's, 0 for all")
	f.Float64Var(&s.o.Repetition, "repeat-penalty", 1, "the `penalty` of tokens that are among the last, 1 for none")
	f.Float64Var(&s.o.Presence, "presence-penalty", 0, "the `penalty` that is subtracted for these tokens")
	f.Float64Var(&s.o.Frequency, "frequency-penalty", 0, "the `penalty` that is subtracted each time")
	f.IntVar(&s.lastN, "repeat-last-n", 64, "how `many` tokens are the last, -1 for all")
	f.StringVar(&s.ban, "ban", "", "`ids` that are not written, or @FILE, with commas between them")
	f.StringVar(&s.allow, "allow", "", "`ids` that alone are written, or @FILE, with commas between them")
	f.Int64Var(&s.seed, "seed", -1, "the `seed` of the draws, -1 for another one each time")
	return s
}

// check finds wrong use before a model is opened, and reads the lists of ids. Bounds are the
// server's.
func (s *sampling) check() (err error) {
	for _, f := range []struct {
		name            string
		value, low, top float64
		note            string
	}{
		{"temp", s.o.Temperature, 0, 1e6, "0 to 1000000"},
		{"top-k", float64(s.o.TopK), 0, math.Inf(1), "0 or more: 0 draws among all"},
		{"top-p", s.o.TopP, math.SmallestNonzeroFloat64, 1, "more than 0, and at most 1"},
		{"min-p", s.o.MinP, 0, 1, "0 to 1"},
		{"repeat-penalty", s.o.Repetition, 0.01, 100, "0.01 to 100: 1 is none"},
		{"presence-penalty", s.o.Presence, -100, 100, "-100 to 100"},
		{"frequency-penalty", s.o.Frequency, -100, 100, "-100 to 100"},
		{"repeat-last-n", float64(s.lastN), -1, math.Inf(1), "-1 or more"},
	} {
		if !(f.value >= f.low && f.value <= f.top) {
			return wrongUse("--%s: found %v, expected %s", f.name, f.value, f.note)
		}
	}
	if s.o.Temperature < exact.MinTemperature {
		s.o.Temperature = 0
	}
	if s.banned, err = parseIDs(s.ban); err != nil {
		return wrongUse("--ban: %v", err)
	}
	if s.allowed, err = parseIDs(s.allow); err != nil {
		return wrongUse("--allow: %v", err)
	}
	if s.o.Seed = uint64(s.seed); s.seed == -1 {
		s.o.Seed = rand.Uint64()
	}
	return nil
}

// files returns the files of --ban and --allow.
func (s *sampling) files() (list []string) {
	for part := range strings.SplitSeq(s.ban+","+s.allow, ",") {
		if file, named := strings.CutPrefix(strings.TrimSpace(part), "@"); named {
			list = append(list, file)
		}
	}
	return list
}

// below checks the ids of --ban and --allow.
func (s *sampling) below(labels int) error {
	for _, f := range []struct {
		name string
		ids  []uint32
	}{{"ban", s.banned}, {"allow", s.allowed}} {
		for _, id := range f.ids {
			if int64(id) >= int64(labels) {
				return wrongUse("--%s: found token %d, expected one below the %d of the head", f.name, id, labels)
			}
		}
	}
	return nil
}

// of returns the sampling for a head, with the sets of --ban and --allow. The tokens that the
// model's file forbids are banned too, as by llama.cpp.
func (s *sampling) of(x *llamacpp.Head) (o engine.Sampling, err error) {
	if err := s.below(x.Labels()); err != nil {
		return o, err
	}
	o = engine.Sampling{Options: s.o, LastN: s.lastN}
	if o.Banned, err = engine.Banned(x, s.banned); err != nil || s.allow == "" {
		return o, err
	}
	o.Allowed, err = engine.Set(x, s.allowed)
	return o, err
}

// chooser chooses tokens of one sequence.
func (s *sampling) chooser(x *llamacpp.Head) (*engine.Chooser, error) {
	o, err := s.of(x)
	if err != nil {
		return nil, err
	}
	return engine.NewChooser(x, o)
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
			if of, err := heads.ReadIDs(file); err == nil {
				ids = append(ids, of...)
				continue
			}
			text, err := readList(file)
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

// mostIDs bounds the text of a file of ids: a device has no end.
const mostIDs = 64 << 20

// readList reads a text of ids, which may come through a pipe.
func readList(path string) ([]byte, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, mostIDs+1))
	if err == nil && len(text) > mostIDs {
		err = fmt.Errorf("%s: found more than %d MiB of text, expected ids, of at most that", path, mostIDs>>20)
	}
	return text, err
}

func runGenerate(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := newFlags("generate", generateUsage, stdout, stderr).withLearn().withFast("with --fast, a `file` of text like that to come, for the preview too")
	prompt := f.String("prompt", "", "the `text` to continue")
	file := f.String("file", "", "a `file` with the prompt, - for standard input")
	n := f.Int("n", 128, "how `many` tokens to write at most, -1 for no end")
	size := f.Int("context", 0, "how `many` tokens the context has, 0 for the model's, at most 4096")
	keep := f.Int("keep", 0, "how `many` first tokens stay in a full context, -1 for all: as --chat")
	ignore := f.Bool("ignore-eos", false, "do not end where the model ends the text")
	chat := f.Bool("chat", false, "take the prompt, or each line of the input, for a message of a user")
	system := f.String("system", "", "with --chat, the `text` of a system message before it")
	f.StringVar(&f.template, "chat-template", "", "with --chat, a `file` in Jinja, or a name of llama.cpp, not the model's")
	s := f.sampling()
	if err := f.parse(args); err != nil {
		return err
	}
	if _, err := waiting(ctx, f, func() (any, error) { return nil, s.check() }); err != nil { // a list may be a pipe
		return err
	}
	if o := (engine.Sampling{Options: s.o, LastN: s.lastN}); f.learn && !o.Learns() {
		return wrongUse("--learn: found --top-k %d, --repeat-last-n %d, expected 1 or more, and 0 or more", s.o.TopK, s.lastN)
	}
	if f.fast && f.screen != "" {
		return wrongUse("found --fast and --screen, expected one of them")
	}
	if f.text != "" && !f.fast {
		return wrongUse("found --text without --fast, expected both")
	}
	if *prompt != "" && *file != "" || *prompt == "" && *file == "" && !*chat {
		return wrongUse("expected one of --prompt and --file, or --chat, which has a conversation without them")
	}
	if (*system != "" || f.template != "") && !*chat {
		return wrongUse("found --system or --chat-template without --chat, expected both")
	}
	if *n < -1 || *size < 0 || *size > mostTokens {
		return wrongUse("-n, --context: found %d and %d, expected -1 or more and 0 to %d", *n, *size, mostTokens)
	}
	if *keep < -1 || *keep > mostTokens {
		return wrongUse("--keep: found %d, expected -1 or more: --learned names the file of a learned screen", *keep)
	}
	keeps := false
	f.Visit(func(g *flag.Flag) { keeps = keeps || g.Name == "keep" })
	if *chat && !keeps { // so that the rest is still an answer to its question, under the system's message
		*keep = -1
	}
	if len(s.banned)+len(s.allowed) > 0 {
		f.ids = s.below
	}
	if err := f.checkOutputs(ctx, []cmdline.Output{{Flag: "--learned", Path: f.learned}}, append(s.files(), *file)...); err != nil {
		return err
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
	talk := *chat && text == "" && *file == ""
	if *chat && !talk {
		if text, err = f.chat(ctx, m, *system, text); err != nil {
			return err
		}
	} else if !*chat && m.ChatTemplate() != "" {
		f.say("the model has a chat template, which is not used: --chat takes the prompt for a message of a user\n")
	}
	x, err := f.openHead(ctx, m, f.kind())
	if err != nil {
		return err
	}
	defer f.closes(nil, x)
	f.say("head: %s\n", f.named(f.kind()))
	o, err := s.of(x)
	if err != nil {
		return err
	}
	r := engine.Request{Most: *n, Sampling: o, LogProbs: -1, Ends: !*ignore, Shift: true, Keep: *keep, Reasons: true}
	if x.Previews() {
		r.Options.Budget = f.budget
	}
	if talk {
		return f.converse(ctx, m, x, r, *system)
	}
	return f.generate(ctx, m, x, r, text)
}

// chat returns the prompt of a chat of one message of a user, after one of the system.
func (f *flags) chat(ctx context.Context, m *llamacpp.Model, system, text string) (string, error) {
	var messages []llamacpp.Message
	if system != "" {
		messages = append(messages, llamacpp.Message{Role: "system", Content: system})
	}
	messages = append(messages, llamacpp.Message{Role: "user", Content: text})
	return waiting(ctx, f, func() (string, error) {
		t, err := m.Template(f.template)
		if err != nil {
			return "", otherTemplate(err)
		}
		return t.Render(llamacpp.Chat{Messages: messages})
	})
}

// otherTemplate adds the way to another template to an error of one.
func otherTemplate(err error) error {
	if errors.Is(err, llamacpp.ErrTemplate) {
		return fmt.Errorf("%w: --chat-template takes the file of another one, or a name: %s", err, strings.Join(llamacpp.ChatTemplates(), ", "))
	}
	return err
}

// readTemplate replaces a template that is a file by its text, and checks it.
func (f *flags) readTemplate() error {
	if slices.Contains(llamacpp.ChatTemplates(), f.template) {
		return nil
	}
	if info, err := os.Stat(f.template); err != nil {
		return fmt.Errorf("--chat-template: %w, expected the file of a template in Jinja, or a name: %s", err, strings.Join(llamacpp.ChatTemplates(), ", "))
	} else if !info.Mode().IsRegular() || info.Size() == 0 || info.Size() > mostTemplate {
		return fmt.Errorf("--chat-template: %s: found %v of %d bytes, expected a regular file of 1 to %d", f.template, info.Mode(), info.Size(), mostTemplate)
	}
	text, err := os.ReadFile(f.template)
	if err != nil {
		return fmt.Errorf("--chat-template: %w", err)
	}
	if _, err := new(llamacpp.Model).Template(string(text)); err != nil {
		return fmt.Errorf("--chat-template: %s: %w", f.template, err)
	}
	f.template = string(text)
	return nil
}

const mostTemplate = 1 << 20

// named names the head.
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

// pace formats a rate; "" if there is none.
func pace(n int, took time.Duration) string {
	if n <= 0 || took <= 0 {
		return ""
	}
	return fmt.Sprintf(", %.1f per second", float64(n)/took.Seconds())
}

// starved reports whether several threads, which work all of the time if they can, had a CPU for less
// than half of some seconds.
func starved(threads int, cpu, took time.Duration) bool {
	return threads > 1 && cpu > 0 && took > 2*time.Second && 2*cpu < time.Duration(threads)*took
}

// waited is the hint for threads that were starved.
const waited = "the threads waited for a CPU more than half of the time, and for each other: on a machine this busy --threads 1 is faster\n"

// exactly tells why the exact head chose n tokens though there is a preview: by an option, which is the
// reason for all, or, if there is none, by their states.
func exactly(n int, option string, of engine.Fallbacks) string {
	if option != "" {
		return fmt.Sprintf("tokens that the exact head chose: %d, because of %s\n", n, option)
	}
	text := fmt.Sprintf("tokens that the exact head chose: %d", n)
	for _, x := range []struct {
		n   int
		why string
	}{
		{of.Far, "because the text there is unlike the texts of the preview: --text FILE makes a preview of texts like yours"},
		{of.Crowded, "because so many tokens look alike there, by this --budget, that the exact head is as fast: a smaller one scores fewer"},
		{n - of.Far - of.Crowded, "because of banned or biased tokens, or of numbers in the state that no preview has seen"},
	} {
		if x.n > 0 {
			text += fmt.Sprintf("; %d %s", x.n, x.why)
		}
	}
	return text + "\n"
}

// running runs an engine until end.
func running(m *llamacpp.Model, x *llamacpp.Head, o engine.Options) (e *engine.Engine, end func()) {
	e = engine.New(m, x, o)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { e.Run(ctx); close(ended) }()
	return e, func() { cancel(); <-ended }
}

func (f *flags) generate(ctx context.Context, m *llamacpp.Model, x *llamacpp.Head, r engine.Request, prompt string) error {
	ids, err := f.tokens(ctx, m, prompt, true)
	if err != nil {
		return err
	}
	e, end := running(m, x, engine.Options{})
	defer end() // before the model is closed
	done, _, err := f.write(ctx, m, e, r, ids)
	if err != nil && done.Written == 0 {
		return err
	}
	f.reasons(x, r, done)
	return err
}

// reasons tells why the exact head chose tokens, if it chose many though there is a preview, and how far
// a head is that learns.
func (f *flags) reasons(x *llamacpp.Head, r engine.Request, done engine.Result) {
	if x.Previews() && 10*done.Exact > done.Written {
		f.say("%s", exactly(done.Exact, r.Unpreviewed(), done.Fallbacks))
	}
	if l := x.Learner(); l != nil && !l.Screened() {
		f.say("no screen yet: this run saw %d states; a preview is made at 4096, and a training begins at 32768\n", l.Kept())
	}
}

// write writes the tokens after a prompt, and returns their text.
func (f *flags) write(ctx context.Context, m *llamacpp.Model, e *engine.Engine, r engine.Request, ids []uint32) (engine.Result, string, error) {
	out := bufio.NewWriter(f.stdout)
	var failed error
	var all strings.Builder
	start, cpu := time.Now(), cpuTime()
	r.Prompt, r.Write = ids, func(text string, _ []engine.Token) bool {
		all.WriteString(text)
		out.WriteString(text)
		failed = out.Flush()
		return failed == nil
	}
	job, err := e.Start(ctx, r)
	var long *engine.TooLongError
	switch {
	case errors.As(err, &long):
		return engine.Result{}, "", fmt.Errorf("%w: see --context", err)
	case errors.Is(err, engine.ErrNoToken):
		return engine.Result{}, "", fmt.Errorf("%w: see --ban and --allow", err)
	case err != nil:
		return engine.Result{}, "", err
	}
	<-job.Done()
	done, err := job.Result()
	if err == nil {
		err = failed
	}
	if err != nil && done.Written == 0 {
		return done, "", err
	}
	fmt.Fprintln(f.stdout)
	cached := ""
	if done.Cached > 0 {
		cached = fmt.Sprintf(", of which %d were read before", done.Cached)
	}
	f.say("prompt: %d tokens%s%s; written: %d%s\n", done.Read, cached, pace(done.Read-done.Cached, done.Reading), done.Written, pace(done.Written, done.Time))
	if starved(cmp.Or(f.threads, runtime.GOMAXPROCS(0)), cpuTime()-cpu, time.Since(start)) {
		f.say(waited)
	}
	if done.Shifts > 0 {
		asked, most := min(r.Keep, done.Read), ""
		if r.Keep < 0 {
			asked = done.Read
		}
		if asked > done.Kept {
			most = " (three quarters of it, the most that it keeps)"
		}
		f.say("the context of %d tokens was full %d times, and kept the first %d tokens%s and the later half of the others\n", m.Context(), done.Shifts, done.Kept, most)
	}
	if err == nil && done.Written == 0 && done.Reason == engine.Stopped {
		f.say("nothing was written: the first token of the model is %d, %q, which ends the text: --ignore-eos continues, and --chat takes the prompt as a message\n", done.End, m.Name(done.End))
	}
	return done, all.String(), err
}
