// Package jinja renders the chat templates of models, which are programs in the language of
// Python's Jinja2: the text that jinja2 writes as transformers calls it (a sandbox of immutable
// values, trim_blocks, lstrip_blocks, loop controls, the tag generation, and the functions tojson,
// raise_exception and strftime_now), or an error. What it does not know is an error.
//
// A template comes with a model's file and may be hostile. It reaches no file and no network, and
// its work, its memory and its recursion are bounded. Libraries for Go stop none of these.
package jinja

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	// MostSource bounds the bytes of a template.
	MostSource = 1 << 20
	// DefaultSteps and DefaultBytes bound one rendering: nodes of the template that are run, and the
	// bytes of all values that it makes. The steps take less than a second.
	DefaultSteps = 10_000_000
	DefaultBytes = 128 << 20
	mostDepth    = 100 // macros in each other
)

// Error is the error of a template.
type Error struct {
	Line   int
	Text   string
	Raised bool // by raise_exception: the template refuses its input
}

func (e *Error) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Text) }

// ErrLimit is the error, by [errors.Is], of a template that takes too many steps or bytes.
var ErrLimit = errors.New("jinja: a limit")

type limitError struct{ of *Error }

func (e limitError) Error() string { return e.of.Error() }

func (e limitError) Is(target error) bool { return target == ErrLimit }

func failAt(line int, format string, a ...any) {
	panic(&Error{Line: line, Text: fmt.Sprintf(format, a...)})
}

// failure turns the panic of an error of a template into the error.
func failure(err *error) {
	switch x := recover().(type) {
	case nil:
	case limitError:
		*err = x
	case *Error:
		*err = x
	default:
		panic(x)
	}
}

// Template is a template, for all goroutines.
type Template struct{ body []statement }

// Parse reads a template.
func Parse(source string) (t *Template, err error) {
	defer failure(&err)
	if len(source) > MostSource {
		failAt(1, "found %d bytes, expected at most %d", len(source), MostSource)
	}
	p := &parser{tokens: lex(source)}
	return &Template{p.body()}, nil
}

// Options are the limits of a rendering, and its time; the zero value is ready.
type Options struct {
	Now   time.Time // of strftime_now: now, if it is zero
	Steps int       // DefaultSteps if it is 0
	Bytes int       // DefaultBytes if it is 0
}

// render is the state of a rendering.
type render struct {
	out          *strings.Builder
	globals      map[string]any
	line         int
	depth        int // of macros
	walked       int // depth of values
	steps, bytes int
	now          time.Time
}

// Render returns the text of a template with variables: nil, bool, int64, float64, string, *Dict,
// and lists by [NewList].
func (t *Template) Render(variables map[string]any, o Options) (text string, err error) {
	defer failure(&err)
	r := &render{out: &strings.Builder{}, globals: variables, now: o.Now, steps: o.Steps, bytes: o.Bytes}
	if r.now.IsZero() {
		r.now = time.Now()
	}
	if r.steps == 0 {
		r.steps = DefaultSteps
	}
	if r.bytes == 0 {
		r.bytes = DefaultBytes
	}
	r.run(t.body, &scope{})
	return r.out.String(), nil
}

func (r *render) fail(format string, a ...any) { failAt(r.line, format, a...) }

// spend counts steps.
func (r *render) spend(n int) {
	if r.steps -= n; r.steps < 0 {
		panic(limitError{&Error{Line: r.line, Text: "the template takes too many steps"}})
	}
}

// hold counts bytes before they are taken.
func (r *render) hold(n int) {
	if r.bytes -= n; r.bytes < 0 || n < 0 {
		panic(limitError{&Error{Line: r.line, Text: "the template takes too much memory"}})
	}
	r.spend(n / 32)
}

// made counts the bytes of a text.
func (r *render) made(s string) string {
	r.hold(len(s))
	return s
}

// deeper bounds the recursion. Its result ends the level.
func (r *render) deeper() func() {
	if r.depth++; r.depth > mostDepth {
		panic(limitError{&Error{Line: r.line, Text: fmt.Sprintf("found more than %d macros in each other", mostDepth)}})
	}
	return func() { r.depth-- }
}

// walk counts the levels of a value that are under way.
func (r *render) walk(n int) {
	if r.walked += n; r.walked > mostNestedValues {
		panic(limitError{&Error{Line: r.line, Text: fmt.Sprintf("found more than %d lists and dictionaries in each other", mostNestedValues)}})
	}
}

// list returns a list of values.
func (r *render) list(f form, items []any) *sequence {
	r.hold(24 + 16*len(items))
	return &sequence{form: f, items: items}
}

// generated returns a generator of values, which are made when they are read.
func (r *render) generated(make func() []any) *sequence {
	r.hold(64)
	return &sequence{form: generator, make: func() []any {
		defer r.deeper()()
		items := make()
		r.hold(16 * len(items))
		return items
	}}
}

func (r *render) write(s string) {
	r.hold(len(s))
	r.out.WriteString(s)
}

// capture returns the text that a function writes.
func (r *render) capture(write func()) string {
	out := r.out
	r.out = &strings.Builder{}
	write()
	text := r.out.String()
	r.out = out
	return text
}
