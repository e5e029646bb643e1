package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/learning-to-screen/l2s/internal/command/cmdline"
	"github.com/learning-to-screen/l2s/internal/ground/progress"
)

// flags are the arguments of one verb, as help/VERB.txt explains them. Flags may come before and
// after the files that some verbs take. Every verb has --json and --quiet.
type flags struct {
	verb     string
	set      *flag.FlagSet
	required []string
	screen   bool        // the verb takes a screen file in addition to the flags
	previews bool        // it takes the file of a preview too
	exact    bool        // it searches exactly without one
	parts    bool        // it takes files of labels, one or more
	files    []string    // these files
	inputs   *inputFlags // if the verb has them
	// before, unless nil, is called before anything is opened.
	before   func(ctx context.Context) error
	quiet    *bool
	asJSON   *bool
	stdout   io.Writer
	stderr   io.Writer
	progress *progress.Printer // nil for none
}

func newFlags(verb string, stdout, stderr io.Writer) *flags {
	f := &flags{verb: verb, set: flag.NewFlagSet(verb, flag.ContinueOnError), stdout: stdout, stderr: stderr}
	f.set.SetOutput(io.Discard)
	f.quiet, f.asJSON = f.boolean("quiet"), f.boolean("json")
	return f
}

// say writes a message about a file to standard error.
func (f *flags) say(file, format string, args ...any) {
	say(f.stderr, "l2s "+f.verb, file+": "+fmt.Sprintf(format, args...))
}

// note writes a fact that a user needs to understand an answer.
func (f *flags) note(file, format string, args ...any) { f.say("note: "+file, format, args...) }

// warn writes a reason to doubt an answer.
func (f *flags) warn(file, format string, args ...any) { f.say("warning: "+file, format, args...) }

// custom adds a flag with a parser of its own.
func custom[T any](f *flags, name string, value T, parse func(string) (T, error)) *T {
	f.set.Func(name, "", func(s string) (err error) {
		value, err = parse(s)
		return err
	})
	return &value
}

// needs adds a text flag that must be given.
func (f *flags) needs(name string) *string {
	f.required = append(f.required, name)
	return f.text(name)
}

func (f *flags) text(name string) *string { return f.set.String(name, "", "") }

func (f *flags) boolean(name string) *bool { return f.set.Bool(name, false, "") }

// whole adds a flag for a whole number of at least least.
func (f *flags) whole(name string, initial, least int) *int {
	return custom(f, name, initial, func(s string) (int, error) { return parseWhole(s, least) })
}

var errTooLarge = errors.New("expected a smaller whole number")

func parseWhole(s string, least int) (int, error) {
	n, err := cmdline.Whole(s)
	if n == math.MaxInt && errors.Is(err, strconv.ErrRange) {
		return 0, errTooLarge
	}
	if err != nil || n < least {
		return 0, fmt.Errorf("expected a whole number, at least %d", least)
	}
	return n, nil
}

// share adds a flag for a number above 0 and below 1.
func (f *flags) share(name string, initial float64) *float64 {
	return f.number(name, initial, "a number above 0 and below 1", func(x float64) bool { return x > 0 && x < 1 })
}

// number adds a flag for a number that good accepts; expected describes such numbers.
func (f *flags) number(name string, initial float64, expected string, good func(float64) bool) *float64 {
	return custom(f, name, initial, func(s string) (float64, error) {
		x, err := cmdline.Float(s)
		if err != nil || !good(x) {
			return 0, errors.New("expected " + expected)
		}
		return x, nil
	})
}

// exactBudget is the value of --budget exact.
var exactBudget = math.Inf(1)

// budget adds the flag --budget: 0 for the budget of the screen itself. It can be exact unless
// notExact, the reason why the exact layer cannot answer, is given.
func (f *flags) budget(notExact string) *float64 {
	return custom(f, "budget", 0, func(s string) (float64, error) {
		x, err := cmdline.Float(s)
		switch {
		case s == "exact" && notExact != "":
			return 0, errors.New("expected a number: " + notExact)
		case s == "exact":
			return exactBudget, nil
		case err == nil && x > 0 && x < math.MaxFloat64:
			return x, nil
		case notExact != "":
			return 0, errors.New("expected a number above 0")
		}
		return 0, errors.New("expected a number above 0, or exact")
	})
}

// noteBudget tells which budget of the screen replaces a budget that the screen does not have.
func (f *flags) noteBudget(in *inputs, budget float64) {
	if budget == 0 || budget == exactBudget {
		return
	}
	path, kind := in.path, in.index.Kind()
	all, _ := in.budgets()
	above := slices.IndexFunc(all, func(x float64) bool { return x > budget })
	switch most := all[len(all)-1]; {
	case above == 0:
		f.note(path, "--budget %v: the smallest budget of the %s, %v, is used", budget, kind, all[0])
	case budget > most:
		f.note(path, "--budget %v: the largest budget of the %s, %v, is used; larger ones would find hardly more labels, and l2s topk --budget exact finds all", budget, kind, most)
	case above > 0 && all[above-1] != budget:
		f.note(path, "--budget %v: the %s's budget %v is used, the largest that is not above it", budget, kind, all[above-1])
	}
}

// searcherBudget is the budget of a searcher for one of --budget, 0 for the screen's own.
func searcherBudget(budget float64) float64 {
	if budget == exactBudget {
		return 0
	}
	return budget
}

// mostThreads bounds --threads, unless there are more CPUs: each thread takes memory, and the
// threads above the number of CPUs wait.
const mostThreads = 256

// threads adds the flag --threads, 0 for all CPUs. The result does not depend on their number.
func (f *flags) threads() *int {
	return custom(f, "threads", 0, func(s string) (int, error) {
		n, err := parseWhole(s, 0)
		return min(n, max(mostThreads, runtime.GOMAXPROCS(0))), err
	})
}

// wholeList parses whole numbers of at least 1 with commas between them, and sorts them.
func wholeList(s string) ([]int, error) {
	var list []int
	for _, part := range strings.Split(s, ",") {
		n, err := parseWhole(strings.TrimSpace(part), 1)
		if err == errTooLarge {
			return nil, err
		}
		if err != nil {
			return nil, errors.New("expected whole numbers, at least 1, with commas between them")
		}
		list = append(list, n)
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// parse parses the arguments. After -h it returns flag.ErrHelp.
func (f *flags) parse(args []string) (err error) {
	if f.files, err = f.parseFiles(args); err != nil {
		return err
	}
	switch n := len(f.files); {
	case f.parts && (n == 0 || slices.Contains(f.files, "")):
		return f.wrongUse("expected one or more files of labels, as in: %s", f.usage())
	case f.screen && f.exact && n == 0:
	case f.screen && (n == 0 || f.files[0] == ""):
		return f.wrongUse("expected a screen file, as in: %s", f.usage())
	case f.parts || n == 0 || f.screen && n == 1:
	case !f.screen:
		return f.wrongUse("unexpected argument %q", f.files[0])
	default:
		return f.wrongUse("unexpected argument %q after %q", f.files[1], f.files[0])
	}
	return f.checkRequired()
}

// parseFiles parses the flags and returns the arguments that are not flags.
func (f *flags) parseFiles(args []string) (files []string, err error) {
	for {
		if err := f.set.Parse(args); err == flag.ErrHelp {
			_, failed := io.WriteString(f.stdout, page(f.verb))
			return nil, cmp.Or(failed, err)
		} else if err != nil {
			return nil, f.wrongUse("%s", f.flagError(err))
		}
		rest := f.set.Args()
		if len(rest) == 0 {
			return files, nil
		}
		if at := len(args) - len(rest); at > 0 && args[at-1] == "--" {
			return append(files, rest...), nil
		}
		files, args = append(files, rest[0]), rest[1:]
	}
}

// checkRequired returns an error unless all required flags are given; --head replaces --weights and
// --bias. It expands patterns in --contexts.
func (f *flags) checkRequired() error {
	names := f.required
	switch {
	case f.inputs != nil && !f.given("head") && !f.given("weights") && !f.given("bias"):
		return f.wrongUse("missing --head, or --weights and --bias, as in: %s", f.usage())
	case f.given("head") && f.given("weights"):
		return f.wrongUse("--head and --weights exclude each other: give one of them")
	case f.given("head"):
		names = append([]string{"head"}, names[2:]...) // without the weights and the bias, which come first
	}
	var missing []string
	for _, name := range names {
		text, ok := f.set.Lookup(name).Value.(flag.Getter) // except custom, which refuses an empty one itself
		if !f.given(name) || ok && text.Get() == "" {
			if name == "bias" {
				name = "bias (SRC, or none)"
			}
			missing = append(missing, "--"+name)
		}
	}
	if len(missing) > 0 {
		return f.wrongUse("missing %s, as in: %s", strings.Join(missing, " and "), f.usage())
	}
	if empty := f.empty(); empty != "" {
		return f.wrongUse("--%s: found an empty name, expected the name of a file: leave the flag out to go without one", empty)
	}
	if f.inputs == nil {
		return nil
	}
	return f.expandContexts()
}

// empty returns a flag that is given with an empty text, which would count as not given, "" if there
// is none. Flags with a parser of their own refuse it there.
func (f *flags) empty() (name string) {
	f.set.Visit(func(g *flag.Flag) {
		if text, ok := g.Value.(flag.Getter); ok && name == "" && text.Get() == "" {
			name = g.Name
		}
	})
	return name
}

// given reports whether a flag was on the command line.
func (f *flags) given(name string) (given bool) {
	f.set.Visit(func(g *flag.Flag) { given = given || g.Name == name })
	return given
}

func (f *flags) wrongUse(format string, args ...any) error {
	return wrongUse("%s; l2s %s -h explains the flags", fmt.Sprintf(format, args...), f.verb)
}

// flagError rewords an error of package flag: flags have two dashes here.
func (f *flags) flagError(err error) string {
	s := err.Error()
	if name, ok := strings.CutPrefix(s, "flag provided but not defined: -"); ok {
		return "unknown flag --" + name
	}
	if name, ok := strings.CutPrefix(s, "flag needs an argument: -"); ok {
		return "flag --" + name + " needs a value"
	}
	if before, after, ok := strings.Cut(s, " for flag -"); ok {
		return before + " for --" + after
	}
	return strings.Replace(s, " for -", " for --", 1) // of boolean flags
}

// usage is a call of the verb, as its page has it.
func (f *flags) usage() string {
	_, text, _ := strings.Cut(page(f.verb), "Usage:\n")
	text, _, _ = strings.Cut(text, "\n\n")
	text = strings.Join(strings.Fields(text), " ")
	return strings.ReplaceAll(text, " l2s "+f.verb+" ", ", or l2s "+f.verb+" ") // of a verb with several forms
}

func (f *flags) print(r fmt.Stringer) error {
	if *f.asJSON {
		return printJSON(f.stdout, r)
	}
	_, err := io.WriteString(f.stdout, r.String())
	return err
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
