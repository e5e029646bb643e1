// Command l2s answers which k outputs of a large softmax layer are the
// largest for a context vector, by looking at few of them. It learns a screen
// for a layer from context vectors, measures it and answers with it.
//
//	l2s labels     find the best labels of all contexts or of one shard
//	l2s merge      join the labels of shards
//	l2s train      make a screen or a preview for a layer from context vectors
//	l2s eval       measure the precision of a screen or a preview
//	l2s bench      measure the time of a query
//	l2s topk       answer: the best labels of each context
//	l2s inspect    show a screen, a preview, or the head of a model
//	l2s version    show the version, the CPU and the SIMD level
//
// Each verb explains itself with -h. Results go to standard output, progress and messages to
// standard error. The exit status is 0, 1 after a failure, 2 after wrong use, and 130 after an
// interrupt, which leaves no file half written; l2s train keeps its work, and continues from there.
package main

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strings"

	"github.com/learning-to-screen/l2s/internal/command/cmdline"
	"github.com/learning-to-screen/l2s/internal/ground/progress"
	"github.com/learning-to-screen/l2s/kernels"
)

// verb is one of the things that l2s does.
type verb struct {
	name    string
	summary string
	declare func(f *flags) action
}

// action is the work of a verb, after its flags are parsed and its inputs are open. It returns the
// result to print, nil for none.
type action func(ctx context.Context, in *inputs) (fmt.Stringer, error)

func verbs() []verb {
	return []verb{
		{"labels", "find the best labels of all contexts or of one shard", labelsVerb},
		{"merge", "join the labels of shards", mergeVerb},
		{"train", "make a screen or a preview for a layer from context vectors", trainVerb},
		{"eval", "measure the precision of a screen or a preview", evalVerb},
		{"bench", "measure the time of a query", benchVerb},
		{"topk", "answer: the best labels of each context", topKVerb},
		{"inspect", "show a screen, a preview, or the head of a model", inspectVerb},
		{"version", "show the version, the CPU and the SIMD level", func(*flags) action {
			return func(context.Context, *inputs) (fmt.Stringer, error) { return cmdline.VersionOf(), nil }
		}},
	}
}

// run parses the arguments, opens the inputs, does the work and prints the result.
func (v verb) run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := newFlags(v.name, stdout, stderr)
	act := v.declare(f)
	if err := f.parse(args); err != nil {
		return err
	}
	if f.before != nil {
		if err := f.before(ctx); err != nil {
			return err
		}
	}
	if !*f.quiet {
		f.progress = progress.New(stderr)
	}
	result, err := f.act(ctx, act)
	f.progress.Close()
	if result != nil {
		err = cmp.Or(f.print(result), err)
	}
	return err
}

// The exit statuses.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), cmdline.Interrupts()...)
	context.AfterFunc(ctx, stop) // a second signal has its usual effect: it ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run runs the verb that the arguments name and returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	stdout = namedOutput{stdout}
	if err := kernels.LevelErr(); err != nil { // a run on another level than the user believes
		fmt.Fprintf(stderr, "l2s: %v\n", err)
		return 2
	}
	var names []string
	for _, v := range verbs() {
		names = append(names, v.name)
	}
	list := strings.Join(names, ", ")
	if len(args) == 0 {
		return report(ctx, "l2s", wrongUse("expected one of %s; l2s -h explains them", list), stderr)
	}
	name, rest := args[0], args[1:]
	isHelp := func(arg string) bool { return slices.Contains([]string{"-h", "-help", "--help"}, arg) }
	show := func(topic string) int {
		_, err := io.WriteString(stdout, page(topic))
		return report(ctx, "l2s", err, stderr)
	}
	switch {
	case isHelp(name) || name == "help" && (len(rest) == 0 || isHelp(rest[0])):
		return show("l2s")
	case name == "help" && rest[0] == "sources":
		return show("sources")
	case name == "help":
		name, rest = rest[0], []string{"-h"}
	case name == "-v" || name == "-version" || name == "--version":
		name = "version"
	}
	for _, v := range verbs() {
		if v.name == name {
			return report(ctx, "l2s "+name, v.run(ctx, rest, stdout, stderr), stderr)
		}
	}
	return report(ctx, "l2s", wrongUse("unknown verb %q, expected one of %s; l2s -h explains them", name, list), stderr)
}

// usageError is an error that the caller can mend by other arguments.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

func wrongUse(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...)} }

// interruptedError is the error of a verb that was interrupted and left files.
type interruptedError struct {
	error
	note string // the files, and their use
}

func (e interruptedError) Unwrap() error { return e.error }

// report prints the error, if there is one, in one line and returns the exit status.
func report(ctx context.Context, what string, err error, stderr io.Writer) int {
	var usage usageError
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return exitOK
	case errors.As(err, &usage):
		say(stderr, what, err.Error())
		return exitUsage
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		kept := interruptedError{note: "nothing was written"}
		errors.As(err, &kept)
		say(stderr, what, "interrupted; "+kept.note)
		return exitInterrupted
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		err = fmt.Errorf("%s: cannot %s: %w", path.Path, path.Op, path.Err)
	}
	text := err.Error()
	for _, pkg := range []string{"screen", "l2s", "train"} {
		// The packages begin with their names, which mean nothing to the user.
		text = strings.TrimPrefix(text, pkg+": ")
		text = strings.Replace(text, ": "+pkg+": ", ": ", 1) // after the name of a file
	}
	say(stderr, what, text)
	return exitFailure
}

func say(w io.Writer, what, text string) {
	fmt.Fprintf(w, "%s: %s\n", what, strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), "; "))
}

//go:embed help/*.txt
var pages embed.FS

// page returns a page of the help, for a verb, for l2s itself, or about sources.
func page(name string) string {
	text, err := pages.ReadFile("help/" + name + ".txt")
	must(err)
	return string(text)
}

// namedOutput is a standard output whose errors name it.
type namedOutput struct{ io.Writer }

func (o namedOutput) Write(b []byte) (int, error) {
	n, err := o.Writer.Write(b)
	if path := new(fs.PathError); errors.As(err, &path) {
		err = path.Err
	}
	if err != nil {
		err = fmt.Errorf("standard output: %w", err)
	}
	return n, err
}
