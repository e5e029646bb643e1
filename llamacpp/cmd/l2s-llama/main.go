// Command l2s-llama runs models of llama.cpp with the heads of l2s.
//
//	l2s-llama contexts  compute hidden states of a text, for l2s train
//	l2s-llama generate  continue a prompt
//	l2s-llama serve     serve OpenAI's API over HTTP
//	l2s-llama prepare   make the preview for --fast, for an image or before a server starts
//	l2s-llama bench     measure tokens per second by llama.cpp's head and by others
//	l2s-llama compare   measure where the tokens of these heads differ
//	l2s-llama version   show the version, the CPU and the SIMD level
//
// Each verb explains itself with -h. The libraries of llama.cpp are in the folder of --lib, or in
// the folder YZMA_LIB. Results go to standard output, all else to standard error. The exit status
// is 0, 1 after a failure, 2 after wrong use, and 130 after an interrupt.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/command/cmdline"
	"github.com/learning-to-screen/l2s/internal/files/heads"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/learn"
	"github.com/learning-to-screen/l2s/llamacpp"
)

type verb struct {
	name, summary string
	run           func(ctx context.Context, args []string, stdout, stderr io.Writer) error
}

var verbs = []verb{
	{"contexts", "compute hidden states of a text, for l2s train", runContexts},
	{"generate", "continue a prompt", runGenerate},
	{"serve", "serve OpenAI's API over HTTP", runServe},
	{"prepare", "make the preview for --fast", runPrepare},
	{"bench", "measure tokens per second by llama.cpp's head and by others", runBench},
	{"compare", "measure where the tokens of these heads differ", runCompare},
	{"version", "show the version, the CPU and the SIMD level", runVersion},
}

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, cmdline.Interrupts()...)
	go func() {
		s := <-signals
		signal.Stop(signals) // the next signal ends the program at once
		cancel(&signalled{s})
	}()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// signalled is the cause of the end of a context by a signal.
type signalled struct{ signal os.Signal }

func (e *signalled) Error() string { return e.signal.String() }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if err := kernels.LevelErr(); err != nil { // a run on another level than the user believes
		fmt.Fprintf(stderr, "l2s-llama: %v\n", err)
		return 2
	}
	name := "-h"
	if len(args) > 0 {
		name = args[0]
	}
	if name == "-v" || name == "-version" || name == "--version" {
		name = "version"
	}
	for _, v := range verbs {
		if v.name != name {
			continue
		}
		err := v.run(ctx, args[1:], stdout, stderr)
		var use *useError
		switch {
		case err == nil || errors.Is(err, flag.ErrHelp):
			return 0
		case errors.As(err, &use):
			fmt.Fprintf(stderr, "l2s-llama %s: %v; l2s-llama %s -h explains the flags\n", name, err, name)
			return 2
		case errors.Is(err, context.Canceled):
			fmt.Fprintf(stderr, "l2s-llama %s: interrupted\n", name)
			return 130
		}
		fmt.Fprintf(stderr, "l2s-llama %s: %v\n", name, err)
		return 1
	}
	text := "l2s-llama runs models of llama.cpp with the heads of l2s.\n\n"
	for _, v := range verbs {
		text += fmt.Sprintf("  l2s-llama %-9s %s\n", v.name, v.summary)
	}
	text += "\nTry: l2s-llama generate --model M.gguf --fast --prompt TEXT. --fast makes a preview of the head at\nthe first start, in a minute or two, and finds tokens by it from then on. Each verb explains itself\nwith -h.\n"
	if name == "-h" || name == "--help" || name == "-help" || name == "help" {
		fmt.Fprint(stdout, text)
		return 0
	}
	fmt.Fprintf(stderr, "l2s-llama: found the verb %q, expected one of these:\n\n%s", name, text)
	return 2
}

func runVersion(_ context.Context, args []string, stdout, _ io.Writer) error {
	switch {
	case len(args) == 0:
		_, err := fmt.Fprint(stdout, cmdline.VersionOf())
		return err
	case len(args) == 1 && slices.Contains([]string{"--json", "-json"}, args[0]):
		out := json.NewEncoder(stdout)
		out.SetIndent("", "  ")
		return out.Encode(cmdline.VersionOf())
	case len(args) == 1 && slices.Contains([]string{"--help", "-help", "-h"}, args[0]):
		_, err := fmt.Fprint(stdout, "l2s-llama version [--json]\n\nShows the version, the CPU and the SIMD level.\n\nflags:\n  --json  write JSON\n")
		return err
	}
	return wrongUse("found %q, expected --json or nothing", args)
}

// useError is an error of the flags.
type useError struct{ text string }

func (e *useError) Error() string { return e.text }

func wrongUse(format string, a ...any) error { return &useError{fmt.Sprintf(format, a...)} }

// flags are those that all verbs have.
type flags struct {
	*flag.FlagSet
	usage                    string
	model, lib, head, screen string
	learned                  string // the file of --learned
	threads                  int
	budget                   float64
	quiet, learn             bool
	fast, anew               bool
	text                     string                 // of the preview, or as the verb describes
	template                 string                 // of chats, "" for the model's own
	ids                      func(labels int) error // checks ids of flags, nil if there are none
	preview                  *l2s.Index             // with fast
	previewFile              string                 // where it is kept
	foreign                  []string               // files of previews of other heads or bodies
	body                     [32]byte               // of the model, with fast
	given                    string                 // the content of text
	statesFile               string                 // keeps the states of a preview that is being made, "" for none
	tell                     func(string, float64)  // unless nil, gets the stage of its making and the share that is done
	refused                  string                 // why a file is not used as a preview
	takes                    bool                   // arguments that are no flags
	left                     []string               // these
	stdout, stderr           io.Writer
	abandoned                bool // something runs still that uses the model: the end of the program ends it
}

func newFlags(name, usage string, stdout, stderr io.Writer) *flags {
	f := &flags{FlagSet: flag.NewFlagSet(name, flag.ContinueOnError), stdout: stdout, stderr: stderr}
	f.SetOutput(io.Discard)
	f.Usage = func() {} // a wrong flag has its own line
	f.usage = strings.TrimSpace(usage)
	f.StringVar(&f.model, "model", "", "a GGUF `file`")
	f.StringVar(&f.lib, "lib", "", "the `folder` of llama.cpp's libraries, by default YZMA_LIB")
	f.IntVar(&f.threads, "threads", 0, "the `number` of threads, 0 for all: at most one for each CPU")
	f.BoolVar(&f.quiet, "quiet", false, "no messages but errors")
	return f
}

// decimal is a flag for a number, which has decimal digits in all flags of both commands.
type decimal struct {
	value any // a pointer
}

func (d decimal) String() string {
	switch p := d.value.(type) {
	case *int:
		return strconv.Itoa(*p)
	case *int64:
		return strconv.FormatInt(*p, 10)
	case *float64:
		return strconv.FormatFloat(*p, 'g', -1, 64)
	}
	return "" // of a zero value, for package flag
}

func (d decimal) Set(s string) (err error) {
	expected := "a whole number"
	switch p := d.value.(type) {
	case *int:
		*p, err = cmdline.Whole(s)
	case *int64:
		*p, err = strconv.ParseInt(s, 10, 64)
	case *float64:
		expected = "a number"
		*p, err = cmdline.Float(s)
	}
	switch {
	case errors.Is(err, strconv.ErrRange):
		return errors.New("expected a smaller number")
	case err != nil:
		return fmt.Errorf("expected %s in decimal digits", expected)
	}
	return nil
}

// These replace the methods of flag.FlagSet, which take 010 for eight.

func (f *flags) IntVar(p *int, name string, value int, usage string) {
	*p = value
	f.Var(decimal{p}, name, usage)
}

func (f *flags) Int(name string, value int, usage string) *int {
	p := new(int)
	f.IntVar(p, name, value, usage)
	return p
}

func (f *flags) Int64Var(p *int64, name string, value int64, usage string) {
	*p = value
	f.Var(decimal{p}, name, usage)
}

func (f *flags) Float64Var(p *float64, name string, value float64, usage string) {
	*p = value
	f.Var(decimal{p}, name, usage)
}

// mayBeEmpty are the flags whose text may be empty.
var mayBeEmpty = []string{"prompt", "system"}

// checkEmpty returns an error if a flag that names a file, a list or anything else is given without
// it: it would count as not given.
func (f *flags) checkEmpty() (err error) {
	f.Visit(func(g *flag.Flag) {
		if err == nil && g.Value.String() == "" && !slices.Contains(mayBeEmpty, g.Name) {
			kind, _ := flag.UnquoteUsage(g)
			if slices.Contains([]string{"file", "source", "folder", "name"}, kind) {
				kind = "a " + kind
			}
			err = wrongUse("--%s: found \"\", expected %s", g.Name, kind)
		}
	})
	return err
}

// help is the text of -h.
func (f *flags) help() string {
	var names, texts []string
	f.VisitAll(func(g *flag.Flag) {
		kind, text := flag.UnquoteUsage(g)
		if kind != "" {
			kind = " " + strings.ToUpper(kind)
		}
		if g.DefValue != "" && g.DefValue != "0" && g.DefValue != "false" {
			text += " (" + g.DefValue + ")"
		}
		names, texts = append(names, g.Name+kind), append(texts, text)
	})
	width := 0
	for _, name := range names {
		width = max(width, len(name))
	}
	text := f.usage + "\n\nflags:\n"
	for i, name := range names {
		text += fmt.Sprintf("  --%-*s  %s\n", width, name, texts[i])
	}
	return text
}

// withHead adds the flags of a head.
func (f *flags) withHead() *flags {
	f.StringVar(&f.head, "head", "", "the `source` of the head, if not the model's own files")
	f.StringVar(&f.screen, "screen", "", "a screen or a preview, the `file` of l2s train --head")
	f.Float64Var(&f.budget, "budget", 0, "the `number` of candidates, or of tokens scored in full; 0 for its own")
	return f
}

// withLearn adds the flags of a head that learns.
func (f *flags) withLearn() *flags {
	f.BoolVar(&f.learn, "learn", false, "begin with the exact head, and learn a screen from the states")
	f.StringVar(&f.learned, "learned", "", "with --learn, the `file` that keeps the screen from run to run")
	return f.withHead()
}

func (f *flags) parse(args []string) error {
	for len(args) > 0 { // flags may come after other arguments
		if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
			fmt.Fprint(f.stdout, f.help())
			return err
		} else if err != nil {
			return wrongUse("%v", err)
		}
		if args = f.Args(); len(args) > 0 {
			f.left, args = append(f.left, args[0]), args[1:]
		}
	}
	if err := f.checkEmpty(); err != nil {
		return err
	}
	switch {
	case slices.Contains(f.left, "") && f.takes:
		return wrongUse("found an empty argument, expected the name of a file")
	case len(f.left) > 0 && !f.takes:
		return wrongUse("found the argument %q, expected flags alone", f.left[0])
	case f.model == "":
		return wrongUse("found no --model, expected a GGUF file")
	case f.threads < 0 || f.threads > llamacpp.MaxThreads:
		return wrongUse("--threads: found %d, expected 0 to %d", f.threads, llamacpp.MaxThreads)
	case !(f.budget >= 0):
		return wrongUse("--budget: found %v, expected 0 or more", f.budget)
	case f.budget > 0 && f.screen == "" && !f.fast:
		return wrongUse("found --budget without --screen or --fast, expected one of them")
	case f.budget > 0 && f.screen != "" && f.fast:
		return wrongUse("found --budget with --screen and --fast, expected one of them")
	case f.fast && f.learn:
		return wrongUse("found --fast and --learn, expected one of them")
	case f.anew && !f.fast:
		return wrongUse("found --anew without --fast, expected both")
	case f.learn && f.screen != "":
		return wrongUse("found --learn and --screen, expected one of them: --learned names the file of the learned screen")
	case f.learned != "" && !f.learn:
		return wrongUse("found --learned without --learn, expected both")
	}
	if cpus := runtime.GOMAXPROCS(0); f.threads > cpus {
		f.say("--threads: found %d, more than the CPUs: %s used, since more would wait for each other\n", f.threads, used(cpus))
		f.threads = cpus
	}
	return nil
}

// checkOutputs returns an error if one of the outputs would replace a file that the flags name to
// be read, or that more names, or another output.
func (f *flags) checkOutputs(ctx context.Context, outputs []cmdline.Output, more ...string) error {
	inputs := slices.Concat([]string{f.model, f.head, f.screen, f.text}, more)
	if f.fast {
		inputs = append(inputs, f.previewPaths()...)
	}
	lib := cmp.Or(f.lib, os.Getenv("YZMA_LIB"))
	files, _ := os.ReadDir(lib) // an error comes where the libraries are opened
	for _, file := range files {
		inputs = append(inputs, filepath.Join(lib, file.Name()))
	}
	wrong, err := cmdline.CheckOutputs(ctx, outputs, inputs)
	if wrong != "" {
		return wrongUse("%s", wrong)
	}
	return err
}

func used(threads int) string {
	if threads == 1 {
		return "1 thread is"
	}
	return fmt.Sprintf("%d threads are", threads)
}

func threadsOf(n int) string {
	if n == 1 {
		return "1 thread"
	}
	return fmt.Sprintf("%d threads", n)
}

func (f *flags) say(format string, a ...any) {
	if !f.quiet {
		fmt.Fprintf(f.stderr, format, a...)
	}
}

// mostTokens bounds the tokens that flags ask for. No model has so long a context.
const mostTokens = 1 << 24

// waiting returns the results of do, or the error of ctx if ctx ends before: a file may be a pipe
// into which nobody writes, and llama.cpp takes long for some texts. After the end of ctx it does
// not wait for do: the program must end then, and close nothing that do may use.
func waiting[T any](ctx context.Context, f *flags, do func() (T, error)) (T, error) {
	type result struct {
		x   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		x, err := do()
		done <- result{x, err}
	}()
	select {
	case r := <-done:
		return r.x, r.err
	case <-ctx.Done():
		f.abandoned = true
		return *new(T), ctx.Err()
	}
}

// closes ends the use of a model or a head, unless something still uses it.
func (f *flags) closes(m *llamacpp.Model, heads ...*llamacpp.Head) {
	if f.abandoned {
		return
	}
	for _, x := range heads {
		x.Close()
	}
	if m != nil {
		m.Close()
	}
}

// tokens returns the tokens of a text, see [llamacpp.Model.Tokens].
func (f *flags) tokens(ctx context.Context, m *llamacpp.Model, text string, special bool) ([]uint32, error) {
	return waiting(ctx, f, func() ([]uint32, error) { return m.Tokens(text, special), nil })
}

// readText reads the text of a file, - for standard input.
func (f *flags) readText(ctx context.Context, path string) (string, error) {
	return waiting(ctx, f, func() (string, error) {
		in := standardInput
		if path != "-" {
			var err error
			if in, err = os.Open(path); err != nil {
				return "", err
			}
			defer in.Close()
		}
		b, err := io.ReadAll(io.LimitReader(in, llamacpp.MaxText+1))
		if err == nil && len(b) > llamacpp.MaxText {
			err = fmt.Errorf("%s: found more than %d bytes, expected at most %[2]d", path, llamacpp.MaxText)
		}
		return string(b), err
	})
}

// early finds wrong use before a preview is made, which takes a minute, or a model is opened.
func (f *flags) early(ctx context.Context) error {
	if f.screen != "" {
		if info, err := os.Stat(f.screen); err != nil {
			return err
		} else if !info.Mode().IsRegular() {
			return fmt.Errorf("%s: found a folder, a pipe or a device, expected the regular file of a screen", f.screen)
		}
	}
	if f.template != "" { // a template needs no model
		if err := f.readTemplate(); err != nil {
			return err
		}
	}
	if f.ids == nil {
		return nil
	}
	x, err := waiting(ctx, f, func() (*heads.Head, error) { return heads.Open(cmp.Or(f.head, f.model), heads.Options{}) })
	if err != nil {
		return err
	}
	defer x.Close()
	return f.ids(x.Labels())
}

// open loads the libraries and opens the model. With --fast the preview comes first, so that it is
// made while nothing else takes memory.
func (f *flags) open(ctx context.Context, o llamacpp.Options) (*llamacpp.Model, error) {
	if err := llamacpp.Load(f.lib); err != nil {
		return nil, err
	}
	if err := f.early(ctx); err != nil {
		return nil, err
	}
	if f.fast {
		if err := f.havePreview(ctx); err != nil {
			return nil, err
		}
	}
	return f.openModel(ctx, o)
}

func (f *flags) openModel(ctx context.Context, o llamacpp.Options) (*llamacpp.Model, error) {
	o.Threads = f.threads
	return waiting(ctx, f, func() (*llamacpp.Model, error) { return llamacpp.Open(f.model, o) })
}

// kind is a kind of head.
type kind string

const (
	exactHead   kind = "exact"
	screenHead  kind = "screen"
	previewHead kind = "preview"
	learnHead   kind = "learn"
)

// kind returns the kind of head that the flags ask for.
func (f *flags) kind() kind {
	switch {
	case f.learn:
		return learnHead
	case f.screen != "":
		return screenHead
	case f.fast:
		return previewHead
	}
	return exactHead
}

// loadPreview reads a preview from a regular file: a start does not wait for a pipe that has its
// name.
func loadPreview(path string) (*l2s.Index, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("preview: %s: found a folder, a pipe or a device, expected a regular file", path)
	}
	x, err := l2s.Load(path)
	if err == nil && x.Kind() != "preview" {
		return nil, fmt.Errorf("preview: %s: found a screen, expected a preview", path)
	}
	return x, err
}

// openHead opens a head.
func (f *flags) openHead(ctx context.Context, m *llamacpp.Model, k kind) (*llamacpp.Head, error) {
	var o llamacpp.HeadOptions
	switch k {
	case learnHead:
		o.Learn = &learn.Options{Keep: f.learned, Event: func(e learn.Event) { f.say("learn: %s: %s\n", e.Kind, e.Text) }}
	case previewHead:
		o.Index, o.Options.Budget = f.preview, f.budget
	case screenHead:
		var err error
		if o.Index, err = waiting(ctx, f, func() (*l2s.Index, error) { return l2s.Load(f.screen) }); err != nil {
			return nil, err
		}
		o.Options.Budget = f.budget
	}
	source := f.head
	if source == "" {
		source = f.model
	}
	x, err := waiting(ctx, f, func() (*llamacpp.Head, error) { return m.HeadOf(source, o) })
	for k == previewHead && errors.Is(err, l2s.ErrLayer) && !slices.Contains(f.foreign, f.previewFile) {
		f.say("preview: %s is of another head, or body, than this model's\n", f.previewFile)
		f.foreign = append(f.foreign, f.previewFile)
		if err := f.newPreview(ctx, false); err != nil {
			return nil, err
		}
		o.Index = f.preview
		x, err = waiting(ctx, f, func() (*llamacpp.Head, error) { return m.HeadOf(source, o) })
	}
	return x, err
}
