package main

import (
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

	"github.com/learning-to-screen/l2s/internal/progress"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// description is what -h says about a verb beside its flags.
type description struct {
	purpose string // what the verb does: paragraphs, with empty lines between them
	usage   string // the arguments, as one types them
	notes   string // after the flags; may be empty
	example string
}

// flags are the arguments of one verb. Flags may stand before and after the
// file that some verbs take. Every verb has --json and --quiet.
type flags struct {
	verb     string
	about    description
	set      *flag.FlagSet
	required []string
	inputs   *inputFlags // if the verb has them
	quiet    *bool
	asJSON   *bool
	stdout   io.Writer
	stderr   io.Writer
}

func newFlags(verb string, about description, stdout, stderr io.Writer) *flags {
	f := &flags{verb: verb, about: about, set: flag.NewFlagSet(verb, flag.ContinueOnError), stdout: stdout, stderr: stderr}
	f.set.SetOutput(io.Discard)
	f.quiet = f.boolean("quiet", "show no progress")
	f.asJSON = f.boolean("json", "print JSON")
	return f
}

// say tells something about a file on standard error.
func (f *flags) say(file, format string, args ...any) {
	say(f.stderr, "l2s "+f.verb, file+": "+fmt.Sprintf(format, args...))
}

// note tells what is to be known to understand an answer.
func (f *flags) note(file, format string, args ...any) { f.say("note: "+file, format, args...) }

// warn tells what makes an answer doubtful.
func (f *flags) warn(file, format string, args ...any) { f.say("warning: "+file, format, args...) }

// value is a flag of any type.
type value[T any] struct {
	to    *T
	parse func(string) (T, error)
	text  string // the default, as -h shows it
}

func (v *value[T]) String() string { return v.text }

func (v *value[T]) Set(s string) (err error) {
	*v.to, err = v.parse(s)
	return err
}

// custom adds a flag with a parser of its own. text is the default as -h
// shows it, empty for none.
func custom[T any](f *flags, name string, initial T, text, usage string, parse func(string) (T, error)) *T {
	to := initial
	f.set.Var(&value[T]{&to, parse, text}, name, usage)
	return &to
}

// needs adds a text flag that must be given.
func (f *flags) needs(name, usage string) *string {
	f.required = append(f.required, name)
	return f.text(name, usage+" (required)")
}

func (f *flags) text(name, usage string) *string {
	return custom(f, name, "", "", usage, func(s string) (string, error) { return s, nil })
}

func (f *flags) boolean(name, usage string) *bool { return f.set.Bool(name, false, usage) }

// whole adds a flag for a whole number of at least least.
func (f *flags) whole(name string, initial, least int, usage string) *int {
	return custom(f, name, initial, strconv.Itoa(initial), usage, func(s string) (int, error) {
		return parseWhole(s, least)
	})
}

var errTooLarge = errors.New("expected a smaller whole number")

func parseWhole(s string, least int) (int, error) {
	n, err := strconv.Atoi(s)
	if n == math.MaxInt && errors.Is(err, strconv.ErrRange) {
		return 0, errTooLarge
	}
	if err != nil || n < least {
		return 0, fmt.Errorf("expected a whole number, at least %d", least)
	}
	return n, nil
}

// parseReal parses a finite number of at least least.
func parseReal(least float64) func(string) (float64, error) {
	return parseNumber(fmt.Sprintf("a finite number, at least %v", least), func(x float64) bool { return x >= least && !math.IsInf(x, 0) })
}

// share adds a flag for a number above 0 and below 1.
func (f *flags) share(name string, initial float64, usage string) *float64 {
	return f.number(name, initial, "a number above 0 and below 1", usage, func(x float64) bool { return x > 0 && x < 1 })
}

// number adds a flag for a number that good accepts, as expected says.
func (f *flags) number(name string, initial float64, expected, usage string, good func(float64) bool) *float64 {
	return custom(f, name, initial, strconv.FormatFloat(initial, 'f', -1, 64), usage, parseNumber(expected, good))
}

// parseNumber parses a number that good accepts, as expected says.
func parseNumber(expected string, good func(float64) bool) func(string) (float64, error) {
	return func(s string) (float64, error) {
		x, err := strconv.ParseFloat(s, 64)
		if err != nil || !good(x) {
			return 0, fmt.Errorf("expected %s", expected)
		}
		return x, nil
	}
}

// budget adds the flag --budget: 0 for the budget of the screen itself. It can be exact unless
// the verb says why the exact layer cannot answer.
func (f *flags) budget(notExact string) *float64 {
	expected, usage := "a number above 0, or exact", "mean number `B` of candidates, of the screen's ladder, or exact"
	if notExact != "" {
		expected, usage = "a number above 0", strings.TrimSuffix(usage, ", or exact")
	}
	return custom(f, "budget", 0, "", usage, func(s string) (float64, error) {
		switch {
		case s == "exact" && notExact != "":
			return 0, errors.New("expected a number: " + notExact)
		case s == "exact":
			return softmax.Exact, nil
		}
		return parseNumber(expected, func(x float64) bool { return x > 0 && x < softmax.Exact })(s)
	})
}

// checkBudget returns an error if the screen has no budget as small as that of --budget, and
// says which one stands for a budget that the screen does not have.
func (f *flags) checkBudget(path string, m *screen.Model, budget float64) error {
	if budget == 0 || budget == softmax.Exact {
		return nil
	}
	ladder := m.Ladder()
	least, most, used := ladder[0].Budget, ladder[len(ladder)-1].Budget, 0.0
	if budget < least {
		return fmt.Errorf("%s: found no budget of %v or less for --budget, expected at least %v, the smallest of the screen", path, budget, least)
	}
	for _, x := range ladder {
		if x.Budget <= budget {
			used = x.Budget
		}
	}
	switch {
	case budget > most:
		f.note(path, "--budget %v: the largest budget of the screen, %v, is used; larger ones would find hardly more labels, and l2s topk --budget exact finds all", budget, most)
	case used != budget:
		f.note(path, "--budget %v: the screen's budget %v is used, the largest that is not above it", budget, used)
	}
	return nil
}

// within are the options of a searcher within a budget of --budget.
func within(budget float64) []screen.Option {
	if budget == 0 || budget == softmax.Exact {
		return nil
	}
	return []screen.Option{screen.Budget(budget)}
}

// seed adds the flag --seed.
func (f *flags) seed(initial uint64) *uint64 {
	return custom(f, "seed", initial, strconv.FormatUint(initial, 10), "seed `N` of all random choices; equal seeds give equal results", func(s string) (uint64, error) {
		x, err := strconv.ParseUint(s, 10, 64)
		if errors.Is(err, strconv.ErrRange) {
			return 0, errTooLarge
		}
		if err != nil {
			return 0, fmt.Errorf("expected a whole number, at least 0")
		}
		return x, nil
	})
}

// mostThreads bounds --threads, unless there are more CPUs: each thread takes memory,
// and those beyond the CPUs wait.
const mostThreads = 256

// threads adds the flag --threads for what is done on them. The result does not
// depend on their number.
func (f *flags) threads(what string) *int {
	return custom(f, "threads", 0, "0", what+" on `N` threads, 0 for all CPUs; does not change the result", func(s string) (int, error) {
		n, err := parseWhole(s, 0)
		return min(n, max(mostThreads, runtime.GOMAXPROCS(0))), err
	})
}

// wholeList parses numbers with commas between them.
func wholeList(s string, least int) ([]int, error) {
	var list []int
	for _, part := range strings.Split(s, ",") {
		n, err := parseWhole(strings.TrimSpace(part), least)
		if err == errTooLarge {
			return nil, err
		}
		if err != nil {
			return nil, fmt.Errorf("expected whole numbers, at least %d, with commas between them", least)
		}
		list = append(list, n)
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// parse parses the arguments. file, unless nil, gets the one argument that is
// not a flag. After -h it returns flag.ErrHelp. A verb without --out, whose answer goes to
// standard output, is refused if that is closed.
func (f *flags) parse(args []string, file *string) error {
	files, err := f.parseFiles(args)
	if err != nil {
		return err
	}
	switch {
	case file == nil && len(files) > 0:
		return f.wrongUse("unexpected argument %q", files[0])
	case file != nil && (len(files) == 0 || files[0] == ""):
		return f.wrongUse("expected a screen file, as in: l2s %s %s", f.verb, f.about.usage)
	case len(files) > 1:
		return f.wrongUse("unexpected argument %q after %q", files[1], files[0])
	case file != nil:
		*file = files[0]
	}
	if err := f.checkRequired(); err != nil || f.set.Lookup("out") != nil {
		return err
	}
	return checkStdout(f.stdout)
}

// parseList is parse for a verb that takes one or more files of a kind.
func (f *flags) parseList(args []string, kind string, list *[]string) error {
	files, err := f.parseFiles(args)
	if err != nil {
		return err
	}
	if len(files) == 0 || slices.Contains(files, "") {
		return f.wrongUse("expected one or more %s, as in: l2s %s %s", kind, f.verb, f.about.usage)
	}
	*list = files
	return f.checkRequired()
}

// parseFiles parses the flags and returns the arguments that are not flags.
func (f *flags) parseFiles(args []string) (files []string, err error) {
	for {
		if err := f.set.Parse(args); err == flag.ErrHelp {
			if err := answer(f.stdout, f.help()); err != nil {
				return nil, err
			}
			return nil, flag.ErrHelp
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

// checkRequired returns an error unless all flags that must be given are: --head
// stands instead of --weights and --bias. It expands patterns in --contexts.
func (f *flags) checkRequired() error {
	names := f.required
	if f.inputs != nil && !f.given("head") && !f.given("weights") && !f.given("bias") {
		return f.wrongUse("missing --head, or --weights and --bias, as in: l2s %s %s", f.verb, f.about.usage)
	}
	if f.given("head") {
		if f.given("weights") {
			return f.wrongUse("--head and --weights exclude each other: give one of them")
		}
		names = []string{"head"}
		for _, name := range f.required {
			if name != "weights" && name != "bias" {
				names = append(names, name)
			}
		}
	}
	var missing []string
	for _, name := range names {
		if f.set.Lookup(name).Value.(interface{ empty() bool }).empty() {
			missing = append(missing, "--"+name)
		}
	}
	if len(missing) > 0 {
		return f.wrongUse("missing %s, as in: l2s %s %s", strings.Join(missing, " and "), f.verb, f.about.usage)
	}
	if f.inputs == nil {
		return nil
	}
	return f.inputs.expandContexts()
}

func (v *value[T]) empty() bool {
	switch x := any(*v.to).(type) {
	case string:
		return x == ""
	case []string:
		return len(x) == 0 || slices.Contains(x, "")
	}
	return false
}

// given says whether a flag was on the command line.
func (f *flags) given(name string) (given bool) {
	f.set.Visit(func(g *flag.Flag) { given = given || g.Name == name })
	return given
}

func (f *flags) wrongUse(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if !strings.HasSuffix(text, "?") {
		text += ";"
	}
	return wrongUse("%s l2s %s -h explains the flags", text, f.verb)
}

// flagError rewords an error of package flag: flags have two dashes here.
func (f *flags) flagError(err error) string {
	s := err.Error()
	if name, ok := strings.CutPrefix(s, "flag provided but not defined: -"); ok {
		var names []string
		f.set.VisitAll(func(g *flag.Flag) { names = append(names, g.Name) })
		return "unknown flag --" + name + suggestion(name, "--", names)
	}
	if name, ok := strings.CutPrefix(s, "flag needs an argument: -"); ok {
		return "flag --" + name + " needs a value"
	}
	if before, after, ok := strings.Cut(s, " for flag -"); ok {
		return before + " for --" + after
	}
	return strings.Replace(s, " for -", " for --", 1) // of boolean flags
}

func (f *flags) help() string {
	var b strings.Builder
	usage := wrapped("l2s "+f.verb+" "+f.about.usage, helpWidth-6)
	fmt.Fprintf(&b, "%s\n\nUsage:\n  %s\n", wrapped(f.about.purpose, helpWidth), strings.ReplaceAll(usage, "\n", "\n      "))
	type line struct{ left, right string }
	var lines []line
	width := 0
	add := func(g *flag.Flag) {
		left, usage := "--"+g.Name, g.Usage
		if start := strings.IndexByte(usage, '`'); start >= 0 {
			end := start + 1 + strings.IndexByte(usage[start+1:], '`')
			left += " " + usage[start+1:end]
			usage = strings.ReplaceAll(usage, "`", "")
		}
		if initial := g.DefValue; initial != "" && initial != "false" && initial != "0" { // what 0 means is in the text
			usage += " (default " + initial + ")"
		}
		lines = append(lines, line{left, usage})
		width = max(width, len(left))
	}
	// Required flags first, then the others by name.
	for _, name := range f.required {
		add(f.set.Lookup(name))
	}
	f.set.VisitAll(func(g *flag.Flag) {
		if !slices.Contains(f.required, g.Name) && !slices.Contains(ofEveryVerb, g.Name) {
			add(g)
		}
	})
	if len(lines) > 0 {
		b.WriteString("\nFlags:\n")
	}
	for _, l := range lines {
		text := wrapped(l.right, helpWidth-width-4)
		fmt.Fprintf(&b, "  %-*s  %s\n", width, l.left, strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", width+4)))
	}
	b.WriteString("\nEvery verb takes --json, to print JSON, and --quiet, to show no progress.\n")
	if f.about.notes != "" {
		fmt.Fprintf(&b, "\n%s\n", wrapped(f.about.notes, helpWidth))
	}
	fmt.Fprintf(&b, "\nExample:\n  %s\n", strings.ReplaceAll(strings.TrimSpace(f.about.example), "\n", "\n  "))
	return b.String()
}

// ofEveryVerb are the flags that the help of l2s itself explains.
var ofEveryVerb = []string{"json", "quiet"}

// helpWidth is the number of characters of a line of help.
const helpWidth = 79

// wrapped breaks the paragraphs of a text, between which there are empty lines, into lines of at
// most width characters.
func wrapped(text string, width int) string {
	var b strings.Builder
	for i, paragraph := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 {
			b.WriteString("\n\n")
		}
		at := 0
		for _, word := range strings.Fields(paragraph) {
			switch {
			case at == 0:
			case at+1+len(word) > width:
				b.WriteByte('\n')
				at = 0
			default:
				b.WriteByte(' ')
				at++
			}
			b.WriteString(word)
			at += len(word)
		}
	}
	return b.String()
}

// printer returns the printer of the verb's progress, nil if there is to
// be none.
func (f *flags) printer() *progress.Printer {
	if *f.quiet {
		return nil
	}
	return progress.New(f.stderr)
}

// print prints the verb's result.
func (f *flags) print(r fmt.Stringer) error {
	if *f.asJSON {
		return printJSON(f.stdout, r)
	}
	return write(f.stdout, r.String())
}

// printJSON prints a result as JSON.
func printJSON(w io.Writer, v any) error {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("standard output: %w", err)
	}
	return write(w, b.String())
}
