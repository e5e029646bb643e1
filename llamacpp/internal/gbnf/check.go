// Package gbnf reads and writes grammars in the language of llama.cpp (GBNF).
//
// [Check] finds the errors of a grammar, of which llama.cpp tells only that there are some, and those
// that take all of its time or memory. [New] begins the grammar of the JSON texts that schemas
// allow: the part of JSON Schema that OpenAI's API documents as strict, and some more; a keyword that
// is not known, and on which texts may depend, is an error that names its place.
//
// The grammar of a schema may allow fewer texts than the schema: properties come in the order of the
// schema, those that it does not list are not written unless it lists none, and numbers have at most
// 16 digits. It allows no text that the schema does not.
package gbnf

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// The bounds of a grammar. llama.cpp reads nested groups by recursion, and follows each path of
// leftmost rules when it looks for left recursion: without bounds a short text takes all of the
// stack, or an hour.
const (
	mostGrammar = 1 << 20 // bytes
	mostNested  = 64      // groups in each other
	mostRepeats = 1999    // of one repetition, as in llama.cpp
	mostRules   = 200_000 // with those that repetitions make
	mostPaths   = 1_000_000
	mostChain   = 2000 // leftmost rules in a row
)

// reader reads a grammar.
type reader struct {
	text  string
	at    int
	rules []grammarRule
	ids   map[string]int
	depth int
	made  int  // rules, with those of repetitions
	bytes bool // see Check
}

// grammarRule is a rule.
type grammarRule struct {
	name    string
	defined bool
	line    int // of the first reference
	alts    [][]item
}

// item is an item of an alternate, which is there least to most times; without bound if most is
// negative.
type item struct {
	rule        int    // -1 for the others
	text        string // a literal
	ranges      []rune // a class: the first and the last character of each range
	negated     bool
	token       bool // by its name or its id
	least, most int
}

// empty reports whether the item may be empty, given the rules that may.
func (x *item) empty(rules []bool) bool {
	switch {
	case x.least == 0:
		return true
	case x.rule >= 0:
		return rules[x.rule]
	}
	return x.text == "" && x.ranges == nil && !x.token
}

type syntaxError string

// Check returns an error for a text that is no grammar with a rule root. It reports whether a text is
// refused if its first bytes, any number of them, are refused as the beginning of a text. It is not so
// for tokens by their ids, and for characters above ASCII in a negated class: llama.cpp refuses the
// first bytes of such a character, with which others begin too.
func Check(text string) (prefixes bool, err error) {
	g, err := read(text)
	if err != nil {
		return false, err
	}
	return g.bytes, g.whole()
}

func read(text string) (g *reader, err error) {
	g = &reader{text: text, ids: map[string]int{}, bytes: true}
	defer func() {
		switch e := recover().(type) {
		case nil:
		case syntaxError:
			err = fmt.Errorf("line %d: %s", 1+strings.Count(text[:min(g.at, len(text))], "\n"), string(e))
		default:
			panic(e)
		}
	}()
	switch {
	case len(text) > mostGrammar:
		return nil, fmt.Errorf("found %d bytes, expected at most %d", len(text), mostGrammar)
	case strings.ContainsRune(text, 0) || !utf8.ValidString(text):
		return nil, fmt.Errorf("found bytes that are no text, expected UTF-8")
	}
	for g.space(true); g.at < len(text); g.space(true) {
		g.rule()
	}
	return g, nil
}

func (g *reader) fail(format string, a ...any) { panic(syntaxError(fmt.Sprintf(format, a...))) }

// found is the next part of the text, for errors.
func (g *reader) found() string {
	rest := g.text[g.at:]
	if rest == "" {
		return "the end"
	}
	rest, _, _ = strings.Cut(rest, "\n")
	if rest == "" {
		return "the end of the line"
	}
	const most = 20
	if len(rest) > most {
		rest = strings.ToValidUTF8(rest[:most], "")
	}
	return fmt.Sprintf("%q", rest)
}

func (g *reader) peek() byte {
	if g.at < len(g.text) {
		return g.text[g.at]
	}
	return 0
}

// space passes over spaces and comments, and over ends of lines if these are none of the rule.
func (g *reader) space(lines bool) {
	for g.at < len(g.text) {
		switch c := g.text[g.at]; {
		case c == ' ' || c == '\t' || lines && (c == '\r' || c == '\n'):
			g.at++
		case c == '#':
			for g.at < len(g.text) && g.peek() != '\n' && g.peek() != '\r' {
				g.at++
			}
		default:
			return
		}
	}
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-'
}

// name reads the name of a rule.
func (g *reader) name() int {
	from := g.at
	for isWord(g.peek()) {
		g.at++
	}
	name := g.text[from:g.at]
	if name == "" {
		g.fail("found %s, expected the name of a rule: letters, digits and -", g.found())
	}
	id, ok := g.ids[name]
	if !ok {
		id = g.add(name)
		g.ids[name] = id
	}
	return id
}

func (g *reader) add(name string) int {
	if g.made++; g.made > mostRules {
		g.fail("found more than %d rules, with the ones that repetitions make, expected at most these", mostRules)
	}
	g.rules = append(g.rules, grammarRule{name: name, line: 1 + strings.Count(g.text[:g.at], "\n")})
	return len(g.rules) - 1
}

func (g *reader) rule() {
	id := g.name()
	if g.rules[id].defined {
		g.fail("found the rule %s twice, expected it once", g.rules[id].name)
	}
	g.space(false)
	if !strings.HasPrefix(g.text[g.at:], "::=") {
		g.fail("found %s, expected ::= after the name of a rule", g.found())
	}
	g.at += 3
	g.space(true)
	alts := g.alternates(false)
	if c := g.peek(); g.at < len(g.text) && c != '\n' && c != '\r' {
		g.fail("found %s, expected the end of the rule", g.found())
	}
	g.rules[id].alts, g.rules[id].defined = alts, true
}

func (g *reader) alternates(nested bool) (alts [][]item) {
	alts = append(alts, g.sequence(nested))
	for g.peek() == '|' {
		g.at++
		g.space(true)
		alts = append(alts, g.sequence(nested))
	}
	return alts
}

func (g *reader) sequence(nested bool) (items []item) {
	repeatable, rules := false, 1 // the last item, and the rules that it is made of
	for g.at < len(g.text) {
		next := item{rule: -1, least: 1, most: 1}
		switch c := g.peek(); {
		case c == '"':
			var b strings.Builder
			for g.at++; g.peek() != '"'; {
				b.WriteRune(g.char())
			}
			g.at++
			next.text = b.String()
			rules = 1
		case c == '[':
			g.class(&next)
			rules = 1
		case c == '<' || c == '!':
			g.token()
			next.token = true
			rules = 1
		case isWord(c):
			next.rule = g.name()
			rules = 1
		case c == '.':
			g.at++
			next.ranges = []rune{0, utf8.MaxRune}
			rules = 1
		case c == '(':
			if g.depth++; g.depth > mostNested {
				g.fail("found groups nested deeper than %d, expected at most this", mostNested)
			}
			g.at++
			g.space(true)
			before := g.made
			next.rule = g.add("a group")
			alts := g.alternates(true)
			if g.peek() != ')' {
				g.fail("found %s, expected )", g.found())
			}
			g.at++
			g.depth--
			g.rules[next.rule].alts, g.rules[next.rule].defined = alts, true
			rules = g.made - before
		case c == '*' || c == '+' || c == '?' || c == '{':
			if !repeatable {
				g.fail("found %s, expected an item before it", g.found())
			}
			least, most := g.repetition()
			times := max(most, least, 1)
			if rules *= times; rules > mostRepeats {
				g.fail("found a repetition that makes %d rules, expected at most %d", rules, mostRepeats)
			}
			if g.made += times; g.made > mostRules {
				g.fail("found more than %d rules, with the ones that repetitions make, expected at most these", mostRules)
			}
			last := &items[len(items)-1]
			if last.least *= least; last.most > 0 && most > 0 {
				last.most *= most
			} else if last.most != 0 {
				last.most = most
			}
			g.space(nested)
			continue
		default:
			return items
		}
		items, repeatable = append(items, next), true
		g.space(nested)
	}
	return items
}

// repetition reads *, +, ? or {m,n}, of which n is -1 if there is no bound.
func (g *reader) repetition() (least, most int) {
	c := g.peek()
	g.at++
	switch c {
	case '*':
		return 0, -1
	case '+':
		return 1, -1
	case '?':
		return 0, 1
	}
	number := func() int {
		g.space(false)
		n, from := 0, g.at
		for c := g.peek(); c >= '0' && c <= '9'; c = g.peek() {
			if n = 10*n + int(c-'0'); n > mostRepeats {
				g.fail("found a repetition above %d, expected at most this", mostRepeats)
			}
			g.at++
		}
		if g.at == from {
			g.fail("found %s, expected a number of repetitions", g.found())
		}
		g.space(false)
		return n
	}
	least = number()
	if most = least; g.peek() == ',' {
		g.at++
		g.space(false)
		if most = -1; g.peek() != '}' {
			if most = number(); most < least {
				g.fail("found at least %d and at most %d repetitions, expected no more at least", least, most)
			}
		}
	}
	if g.peek() != '}' {
		g.fail("found %s, expected }", g.found())
	}
	g.at++
	return least, most
}

// char reads a character of a literal or a class.
func (g *reader) char() rune {
	if g.at >= len(g.text) {
		g.fail("found the end in a literal or a class, expected its end")
	}
	if g.peek() != '\\' {
		c, size := utf8.DecodeRuneInString(g.text[g.at:])
		g.at += size
		return c
	}
	if g.at++; g.at >= len(g.text) {
		g.fail("found the end after \\, expected an escape")
	}
	c := g.peek()
	switch digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]; {
	case digits > 0:
		x := rune(0)
		g.at++
		for range digits {
			at := strings.IndexByte("0123456789abcdef", g.peek()|0x20)
			if at < 0 || g.peek() < '0' {
				g.fail("found %s, expected %d hexadecimal digits", g.found(), digits)
			}
			x = x<<4 | rune(at)
			g.at++
		}
		return x
	case c == 't' || c == 'r' || c == 'n':
		g.at++
		return map[byte]rune{'t': '\t', 'r': '\r', 'n': '\n'}[c]
	case strings.IndexByte(`\"[]-`, c) >= 0:
		g.at++
		return rune(c)
	}
	g.fail("found the escape \\%c, expected one of \\t \\r \\n \\\\ \\\" \\[ \\] \\- \\x \\u \\U", c)
	return 0
}

func (g *reader) class(of *item) {
	g.at++
	if of.negated = g.peek() == '^'; of.negated {
		g.at++
	}
	if g.peek() == ']' {
		g.fail("found a class without characters, expected one at least")
	}
	for g.peek() != ']' {
		from := g.char()
		to := from
		if g.peek() == '-' && g.at+1 < len(g.text) && g.text[g.at+1] != ']' {
			g.at++
			to = g.char()
		}
		if of.ranges = append(of.ranges, from, to); of.negated && to >= utf8.RuneSelf {
			g.bytes = false
		}
	}
	g.at++
}

// token reads <name>, <[id]>, or one of these after !.
func (g *reader) token() {
	if g.bytes = false; g.peek() == '!' {
		g.at++
	}
	end := strings.IndexByte(g.text[g.at:], '>')
	line := strings.IndexByte(g.text[g.at:], '\n')
	if g.peek() != '<' || end < 0 || line >= 0 && line < end {
		g.fail("found %s, expected a token, as <name> or <[id]>", g.found())
	}
	g.at += end + 1
}

// whole looks at all rules together: each has a definition, and none begins with itself.
func (g *reader) whole() error {
	if _, ok := g.ids["root"]; !ok {
		return fmt.Errorf("found no rule root, expected it")
	}
	for _, r := range g.rules {
		if !r.defined {
			return fmt.Errorf("line %d: found the rule %s, which has no definition, expected one", r.line, r.name)
		}
	}
	// Rules that may be empty, to the fixed point.
	empty := make([]bool, len(g.rules))
	isEmpty := func(items []item) bool {
		for _, item := range items {
			if !item.empty(empty) {
				return false
			}
		}
		return true
	}
	for changed := true; changed; {
		changed = false
		for i := len(g.rules) - 1; i >= 0; i-- {
			for _, items := range g.rules[i].alts {
				if !empty[i] && isEmpty(items) {
					empty[i], changed = true, true
				}
			}
		}
	}
	// The paths of leftmost rules from each, -1 while they are counted.
	paths := make([]int, len(g.rules))
	var count func(rule, depth int) error
	count = func(rule, depth int) error {
		r := &g.rules[rule]
		switch {
		case paths[rule] > 0:
			return nil
		case paths[rule] < 0:
			return fmt.Errorf("line %d: found the rule %s, which begins with itself, expected none: llama.cpp reads no left recursion", r.line, r.name)
		case depth > mostChain:
			return fmt.Errorf("line %d: found more than %d rules that begin with each other, expected at most these", r.line, mostChain)
		}
		paths[rule] = -1
		sum := 1
		for _, items := range r.alts {
			for _, item := range items {
				if item.rule >= 0 {
					if err := count(item.rule, depth+1); err != nil {
						return err
					}
					if sum += paths[item.rule]; sum > mostPaths {
						return fmt.Errorf("line %d: found more than %d ways in which the rule %s begins, expected at most these", r.line, mostPaths, r.name)
					}
				}
				if !item.empty(empty) {
					break
				}
			}
		}
		paths[rule] = sum
		return nil
	}
	total := 0
	for i := range g.rules {
		if err := count(i, 0); err != nil {
			return err
		}
		if total += paths[i]; total > mostPaths {
			return fmt.Errorf("found more than %d ways in which rules begin, expected at most these", mostPaths)
		}
	}
	return nil
}
