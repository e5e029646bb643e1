package gbnf

import (
	"fmt"
	"maps"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
)

// formats are the patterns of formats. Days of February end with 28, years have four digits and begin
// with 1 or 2, and all have a bounded length.
var formats = func() map[string]string {
	const (
		date   = `[12][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))`
		clock  = `([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?(Z|[-+]([01][0-9]|2[0-3]):[0-5][0-9])`
		byte_  = `(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])`
		label  = `[a-zA-Z0-9]([-a-zA-Z0-9]{0,30}[a-zA-Z0-9])?`
		domain = label + `(\.` + label + `){0,3}`
	)
	return map[string]string{
		"date":      "^" + date + "$",
		"time":      "^" + clock + "$",
		"date-time": "^" + date + "T" + clock + "$",
		"duration":  `^P([0-9]{1,4}W|[0-9]{1,4}D(T[0-9]{1,4}H)?|T([0-9]{1,4}H([0-9]{1,4}M([0-9]{1,4}S)?)?|[0-9]{1,4}M([0-9]{1,4}S)?|[0-9]{1,4}S))$`,
		"email":     `^[a-zA-Z0-9_+]{1,20}(\.[a-zA-Z0-9_+]{1,20}){0,2}@` + label + `(\.` + label + `){1,3}$`,
		"hostname":  "^" + domain + "$",
		"ipv4":      "^" + byte_ + `(\.` + byte_ + `){3}$`,
		"ipv6":      `^([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}$`,
		"uuid":      `^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`,
	}
}()

func formatNames() []string { return slices.Sorted(maps.Keys(formats)) }

// pattern returns the grammar of a string that a regular expression matches somewhere, as JSON
// Schema means it: ^ and $ bind it to its ends. Expressions are Go's, which lack backward references
// and looks ahead.
func (g *Grammar) pattern(path, text string) string {
	re, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		fail(path, "found %.60q, expected a regular expression without looks ahead and references back: %v", text, err)
	}
	p := &patterns{g: g, path: path}
	return p.ends(re)
}

type patterns struct {
	g    *Grammar
	path string
}

// ends writes an expression with its anchors.
func (p *patterns) ends(re *syntax.Regexp) string {
	for re.Op == syntax.OpCapture {
		re = re.Sub[0]
	}
	if re.Op == syntax.OpAlternate {
		var any []string
		for _, sub := range re.Sub {
			any = append(any, p.ends(sub))
		}
		return "(" + strings.Join(any, " | ") + ")"
	}
	list := []*syntax.Regexp{re}
	if re.Op == syntax.OpConcat {
		list = re.Sub
	}
	begins, ends := false, false
	for len(list) > 0 && list[0].Op == syntax.OpBeginText {
		list, begins = list[1:], true
	}
	for len(list) > 0 && list[len(list)-1].Op == syntax.OpEndText {
		list, ends = list[:len(list)-1], true
	}
	var all []string
	if !begins {
		all = append(all, p.g.Part("char")+"*")
	}
	for _, sub := range list {
		all = append(all, p.item(sub))
	}
	if !ends {
		all = append(all, p.g.Part("char")+"*")
	}
	if len(all) == 0 {
		return `""`
	}
	return strings.Join(all, " ")
}

// item writes a part of an expression, as one item.
func (p *patterns) item(re *syntax.Regexp) string {
	repeated := func(suffix string) string {
		sub := re.Sub[0]
		body := p.item(sub)
		if p.empty(sub) { // no repetition of what may be empty: llama.cpp takes it for left recursion
			fail(p.path, "found %.60q, a repetition of what may be empty, expected none", re.String())
		}
		return p.g.rule(body) + suffix
	}
	switch re.Op {
	case syntax.OpEmptyMatch:
		return `""`
	case syntax.OpLiteral:
		var all []string
		for _, c := range re.Rune {
			ranges := []rune{c, c}
			if re.Flags&syntax.FoldCase != 0 {
				for other := unicode.SimpleFold(c); other != c; other = unicode.SimpleFold(other) {
					ranges = append(ranges, other, other)
				}
			}
			all = append(all, p.class(ranges))
		}
		return strings.Join(all, " ")
	case syntax.OpCharClass:
		return p.class(re.Rune)
	case syntax.OpAnyChar:
		return p.class([]rune{0, unicode.MaxRune})
	case syntax.OpAnyCharNotNL:
		return p.class([]rune{0, '\n' - 1, '\n' + 1, unicode.MaxRune})
	case syntax.OpCapture:
		return p.item(re.Sub[0])
	case syntax.OpStar:
		return repeated("*")
	case syntax.OpPlus:
		return repeated("+")
	case syntax.OpQuest:
		return "(" + p.item(re.Sub[0]) + ")?"
	case syntax.OpRepeat:
		if re.Max == 0 {
			return `""`
		}
		return repeated(p.g.times(p.path, "", re.Min, re.Max))
	case syntax.OpConcat:
		var all []string
		for _, sub := range re.Sub {
			all = append(all, p.item(sub))
		}
		return strings.Join(all, " ")
	case syntax.OpAlternate:
		var any []string
		for _, sub := range re.Sub {
			any = append(any, p.item(sub))
		}
		return "(" + strings.Join(any, " | ") + ")"
	}
	fail(p.path, "found %.60q, expected ^ at the beginning, $ at the end, and no other bounds of words, lines or texts", re.String())
	return ""
}

// empty reports whether an expression matches the empty text.
func (p *patterns) empty(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpEmptyMatch, syntax.OpStar, syntax.OpQuest:
		return true
	case syntax.OpRepeat:
		return re.Min == 0 || p.empty(re.Sub[0])
	case syntax.OpCapture, syntax.OpPlus:
		return p.empty(re.Sub[0])
	case syntax.OpConcat:
		return !slices.ContainsFunc(re.Sub, func(sub *syntax.Regexp) bool { return !p.empty(sub) })
	case syntax.OpAlternate:
		return slices.ContainsFunc(re.Sub, p.empty)
	}
	return false
}

// class writes the characters of some ranges, as they are in a string of JSON: as themselves, or as
// escapes where they must be.
func (p *patterns) class(ranges []rune) string {
	var plain strings.Builder
	var escapes []string
	in := func(c rune) bool {
		for i := 0; i < len(ranges); i += 2 {
			if c >= ranges[i] && c <= ranges[i+1] {
				return true
			}
		}
		return false
	}
	short := map[rune]string{'"': `\"`, '\\': `\\`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`}
	for c := rune(0); c < 0x80; c++ {
		if !in(c) || c >= ' ' && c != '"' && c != '\\' && c != 0x7f {
			continue
		}
		text := short[c]
		if text == "" {
			text = fmt.Sprintf(`\u%04x`, c)
		}
		escapes = append(escapes, Literal(text))
	}
	add := func(from, to rune) {
		if from > to {
			return
		}
		plain.WriteString(classChar(from))
		if to > from {
			plain.WriteString("-" + classChar(to))
		}
	}
	for i := 0; i < len(ranges); i += 2 {
		from, to := max(ranges[i], ' '), ranges[i+1]
		for _, c := range []rune{'"', '\\', 0x7f} {
			if from <= c && c <= to {
				add(from, c-1)
				from = c + 1
			}
		}
		if from <= 0xdfff && to >= 0xd800 { // which are no characters
			add(from, 0xd7ff)
			from = 0xe000
		}
		add(from, to)
	}
	if plain.Len() > 0 {
		escapes = append([]string{"[" + plain.String() + "]"}, escapes...)
	}
	switch len(escapes) {
	case 0:
		fail(p.path, "found a class without characters, expected one at least")
	case 1:
		return escapes[0]
	}
	return p.g.rule(strings.Join(escapes, " | "))
}

// classChar is a character of a class.
func classChar(c rune) string {
	if c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
		return string(c)
	}
	if c < 0x80 {
		return fmt.Sprintf(`\x%02X`, c)
	}
	return fmt.Sprintf(`\U%08X`, c)
}
