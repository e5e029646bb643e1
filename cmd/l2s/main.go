// Command l2s trains screens for large softmax layers, measures them, and
// answers top-k queries with them.
//
// Run l2s -h for the list of verbs and l2s VERB -h for each. Results go to
// standard output, progress and messages to standard error. The exit code is
// 0, 2 for wrong use, 130 for an interrupt, 1 for any other failure.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// verb is one of the command's actions.
type verb struct {
	name    string
	args    string // what stands behind the name, for the usage line
	summary string
	help    string // what the verb does, with an example
	run     func(ctx context.Context, e *env) error
}

// env is what a verb has to work with.
type env struct {
	verb           *verb
	args           []string
	stdout, stderr io.Writer
	flags          *flag.FlagSet
}

// usageError is wrong use of the command: exit code 2.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errHelp says that help was asked for and given.
var errHelp = errors.New("help")

func verbs() []*verb {
	return []*verb{demoVerb(), contextsVerb(), trainVerb(), evalVerb(), benchVerb(), topkVerb(), inspectVerb(), versionVerb()}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first interrupt the second one kills.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run executes a command line and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprintln(stderr, "l2s: no verb: say what to do, for example l2s demo; l2s -h lists the verbs")
		return 2
	}
	switch args[0] {
	case "-h", "--help", "-help", "help":
		printVerbs(stdout)
		return 0
	}
	all := verbs()
	i := slices.IndexFunc(all, func(v *verb) bool { return v.name == args[0] })
	if i < 0 {
		fmt.Fprintf(stderr, "l2s: unknown verb %q: l2s -h lists the verbs\n", args[0])
		return 2
	}
	v := all[i]
	e := &env{verb: v, args: args[1:], stdout: stdout, stderr: stderr, flags: flag.NewFlagSet(v.name, flag.ContinueOnError)}
	e.flags.SetOutput(io.Discard)
	err := v.run(ctx, e)
	var usage usageError
	switch {
	case err == nil, errors.Is(err, errHelp):
		return 0
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "l2s %s: %v; l2s %s -h shows how\n", v.name, oneLine(err), v.name)
		return 2
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintf(stderr, "l2s %s: interrupted: nothing was written\n", v.name)
		return 130
	default:
		fmt.Fprintf(stderr, "l2s %s: %s\n", v.name, oneLine(err))
		return 1
	}
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

func printVerbs(w io.Writer) {
	fmt.Fprint(w, "l2s finds the largest outputs of a large softmax layer fast, by screening.\n\nUsage: l2s VERB [FLAGS]\n\n")
	for _, v := range verbs() {
		fmt.Fprintf(w, "  %-10s %s\n", v.name, v.summary)
	}
	fmt.Fprint(w, "\nl2s VERB -h explains a verb. L2S_SIMD=generic|avx2|avx512 forces a SIMD level.\n")
}

// parse parses the flags, which may stand before, between and behind the
// positional arguments, of which there must be as many as names.
func (e *env) parse(names ...string) ([]string, error) {
	var pos []string
	rest := e.args
	for {
		if err := e.flags.Parse(rest); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				e.printHelp()
				return nil, errHelp
			}
			return nil, usageError{err}
		}
		if e.flags.NArg() == 0 {
			break
		}
		pos = append(pos, e.flags.Arg(0))
		rest = e.flags.Args()[1:]
	}
	if len(pos) < len(names) {
		return nil, usagef("missing argument: %s", names[len(pos)])
	}
	if len(pos) > len(names) {
		return nil, usagef("unexpected argument %q", pos[len(names)])
	}
	return pos, nil
}

func (e *env) printHelp() {
	fmt.Fprintf(e.stdout, "Usage: l2s %s %s\n\n%s\n", e.verb.name, e.verb.args, strings.TrimSpace(e.verb.help))
	first := true
	e.flags.VisitAll(func(f *flag.Flag) {
		if first {
			fmt.Fprint(e.stdout, "\nFlags:\n")
			first = false
		}
		name, usage := flag.UnquoteUsage(f)
		head := "--" + f.Name
		if name != "" {
			head += " " + name
		}
		if f.DefValue != "" && f.DefValue != "false" {
			usage += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(e.stdout, "  %-22s %s\n", head, usage)
	})
}

// need returns an error unless each of the named flags was given a value.
func (e *env) need(names ...string) error {
	for _, name := range names {
		if e.flags.Lookup(name).Value.String() == "" {
			return usagef("missing --%s", name)
		}
	}
	return nil
}

// given reports whether a flag stands on the command line.
func (e *env) given(name string) bool {
	found := false
	e.flags.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}
