package jinja

import (
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type kind uint8

const (
	endOfText kind = iota
	dataToken
	variableBegin
	variableEnd
	blockBegin
	blockEnd
	nameToken
	stringToken
	numberToken
	operator
)

type token struct {
	kind  kind
	text  string
	value any // of a number
	line  int
}

func (t token) String() string {
	switch t.kind {
	case endOfText:
		return "the end of the template"
	case blockEnd, variableEnd:
		return "the end of the tag"
	case stringToken:
		return strconv.Quote(t.text)
	}
	return "'" + t.text + "'"
}

// lexer cuts a template into tokens, as jinja2 does with trim_blocks and lstrip_blocks.
type lexer struct {
	source string
	at     int
	line   int // of at
	counts int // where line was counted
	tokens []token
	// starting is true if the text before at ends a line that is part of a tag or a comment.
	starting bool
}

// space is Python's str.isspace.
func space(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

func lex(source string) []token {
	source = strings.ReplaceAll(strings.ReplaceAll(source, "\r\n", "\n"), "\r", "\n")
	l := &lexer{source: strings.TrimSuffix(source, "\n"), line: 1, starting: true}
	for l.at < len(l.source) {
		l.data()
	}
	l.add(endOfText, "")
	return l.tokens
}

func (l *lexer) lineAt() int {
	l.line += strings.Count(l.source[l.counts:l.at], "\n")
	l.counts = l.at
	return l.line
}

func (l *lexer) add(k kind, text string) {
	l.tokens = append(l.tokens, token{k, text, nil, l.lineAt()})
}

func (l *lexer) rest() string { return l.source[l.at:] }

func (l *lexer) skipSpace() { l.at = len(l.source) - len(strings.TrimLeftFunc(l.rest(), space)) }

// data reads text up to the next tag, and the tag.
func (l *lexer) data() {
	rest := l.rest()
	open := -1
	for i := 0; ; i++ {
		j := strings.IndexByte(rest[i:], '{')
		if j < 0 || i+j+1 == len(rest) {
			break
		}
		if i += j; strings.IndexByte("{%#", rest[i+1]) >= 0 {
			open = i
			break
		}
	}
	if open < 0 {
		l.add(dataToken, rest)
		l.at = len(l.source)
		return
	}
	sign, after := signed(rest[open+2:])
	l.text(rest[:open], sign, rest[open+1] == '{')
	l.at += open
	switch {
	case rest[open+1] == '#':
		l.at += 2 + len(rest[open+2:]) - len(after)
		end := strings.Index(l.rest(), "#}")
		if end < 0 {
			failAt(l.lineAt(), "found a comment without an end, expected #}")
		}
		l.close("#}", end)
	case rest[open+1] == '{':
		l.add(variableBegin, "{{")
		l.at += 2 + len(rest[open+2:]) - len(after)
		l.tag("}}", variableEnd)
	default:
		if l.raw(open, rest, after) {
			return
		}
		l.add(blockBegin, "{%")
		l.at += 2 + len(rest[open+2:]) - len(after)
		l.tag("%}", blockEnd)
	}
}

func signed(s string) (sign byte, after string) {
	if s != "" && (s[0] == '-' || s[0] == '+') {
		return s[0], s[1:]
	}
	return 0, s
}

// text adds the text before a tag.
func (l *lexer) text(text string, sign byte, variable bool) {
	switch {
	case sign == '-':
		text = strings.TrimRightFunc(text, space)
	case sign != '+' && !variable:
		line := strings.LastIndexByte(text, '\n') + 1
		if (line > 0 || l.starting) && strings.TrimLeftFunc(text[line:], space) == "" {
			text = text[:line]
		}
	}
	l.starting = false
	if text != "" {
		l.add(dataToken, text)
	}
}

// close moves behind the mark that ends a tag, which is n bytes ahead, and what belongs to it.
func (l *lexer) close(mark string, n int) {
	sign := byte(0)
	if n > 0 {
		sign = l.source[l.at+n-1]
	}
	start := l.at + n
	l.at = start + len(mark)
	switch {
	case sign == '-':
		l.skipSpace()
	case sign != '+' && mark != "}}":
		l.at = len(l.source) - len(strings.TrimPrefix(l.rest(), "\n"))
	}
	l.starting = l.source[l.at-1] == '\n'
}

// raw reads a raw block, if the tag begins one.
func (l *lexer) raw(open int, rest, after string) bool {
	word, ok := strings.CutPrefix(strings.TrimLeftFunc(after, space), "raw")
	if !ok {
		return false
	}
	word = strings.TrimLeftFunc(word, space)
	cut := strings.HasPrefix(word, "-%}")
	if !cut && !strings.HasPrefix(word, "%}") {
		return false
	}
	l.at = len(l.source) - len(word) + strings.IndexByte(word, '}') + 1
	if cut {
		l.skipSpace()
	}
	for from := 0; ; {
		i := strings.Index(l.rest()[from:], "{%")
		if i < 0 {
			failAt(l.lineAt(), "found a raw block without an end, expected endraw")
		}
		i += from
		sign, after := signed(l.rest()[i+2:])
		if word, ok := strings.CutPrefix(strings.TrimLeftFunc(after, space), "endraw"); ok {
			word = strings.TrimLeftFunc(word, space)
			if _, end := signed(word); strings.HasPrefix(end, "%}") {
				l.starting = false
				text := l.rest()[:i]
				l.text(text, sign, false)
				l.at = len(l.source) - len(word)
				l.close("%}", strings.IndexByte(word, '%'))
				return true
			}
		}
		from = i + 2
	}
}

var operators = []string{"//", "**", "==", "!=", "<=", ">=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", "=", "<", ">", ".", ":", "|", ",", ";"}

// tag reads the tokens of a tag.
func (l *lexer) tag(mark string, end kind) {
	var open []byte // brackets
	for {
		l.skipSpace()
		rest := l.rest()
		if rest == "" {
			failAt(l.lineAt(), "found a tag without an end, expected %s", mark)
		}
		if len(open) == 0 {
			sign, after := signed(rest)
			if strings.HasPrefix(after, mark) && (sign != '+' || mark == "%}") {
				l.add(end, mark)
				l.close(mark, len(rest)-len(after))
				return
			}
		}
		r, size := utf8.DecodeRuneInString(rest)
		switch {
		case r >= '0' && r <= '9':
			l.number()
		case r == '_' || unicode.IsLetter(r):
			n := strings.IndexFunc(rest, func(r rune) bool {
				return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.Is(unicode.Mn, r)
			})
			if n < 0 {
				n = len(rest)
			}
			l.add(nameToken, rest[:n])
			l.at += n
		case r == '"' || r == '\'':
			l.quoted(byte(r))
		default:
			op := ""
			for _, o := range operators {
				if strings.HasPrefix(rest, o) {
					op = o
					break
				}
			}
			switch op {
			case "":
				failAt(l.lineAt(), "found the character %q in a tag", rest[:size])
			case "(", "[", "{":
				open = append(open, map[string]byte{"(": ')', "[": ']', "{": '}'}[op])
			case ")", "]", "}":
				if len(open) == 0 || open[len(open)-1] != op[0] {
					failAt(l.lineAt(), "found %q without its begin", op)
				}
				open = open[:len(open)-1]
			}
			l.add(operator, op)
			l.at += len(op)
		}
	}
}

func (l *lexer) quoted(q byte) {
	rest := l.rest()
	for i := 1; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case q:
			l.add(stringToken, unescape(rest[1:i]))
			l.at += i + 1
			return
		}
	}
	failAt(l.lineAt(), "found a string without an end")
}

// unescape replaces Python's escapes.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		if j := strings.IndexByte(`abfnrtv\'"`, s[i]); j >= 0 {
			b.WriteByte("\a\b\f\n\r\t\v\\'\""[j])
			continue
		}
		digits, base := 0, 16
		switch s[i] {
		case '\n':
			continue
		case 'x':
			digits = 2
		case 'u':
			digits = 4
		case 'U':
			digits = 8
		case '0', '1', '2', '3', '4', '5', '6', '7':
			for base = 8; digits < 3 && i+digits < len(s) && s[i+digits] >= '0' && s[i+digits] <= '7'; digits++ {
			}
			i--
		}
		if digits > 0 && i+digits < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+1+digits], base, 32); err == nil && utf8.ValidRune(rune(n)) {
				b.WriteRune(rune(n))
				i += digits
				continue
			}
		}
		b.WriteByte('\\')
		b.WriteByte(s[i])
	}
	return b.String()
}

func (l *lexer) number() {
	rest := l.rest()
	digits := func(at int) int {
		for at < len(rest) && (rest[at] >= '0' && rest[at] <= '9' || rest[at] == '_' && at > 0 && at+1 < len(rest) && rest[at+1] >= '0' && rest[at+1] <= '9') {
			at++
		}
		return at
	}
	n, float := digits(0), false
	if len(rest) > 2 && rest[0] == '0' && strings.IndexByte("xXoObB", rest[1]) >= 0 {
		n = 2
		for n < len(rest) && (rest[n] == '_' || unicode.Is(unicode.ASCII_Hex_Digit, rune(rest[n]))) {
			n++
		}
	} else if l.at == 0 || l.source[l.at-1] != '.' {
		if n+1 < len(rest) && rest[n] == '.' {
			if m := digits(n + 1); m > n+1 && rest[n+1] != '_' {
				n, float = m, true
			}
		}
		if n < len(rest) && rest[n]|0x20 == 'e' {
			m := n + 1
			if m < len(rest) && (rest[m] == '+' || rest[m] == '-') {
				m++
			}
			if e := digits(m); e > m {
				n, float = e, true
			}
		}
	}
	t := token{numberToken, rest[:n], nil, l.lineAt()}
	text := strings.ReplaceAll(t.text, "_", "")
	if float {
		t.value, _ = strconv.ParseFloat(text, 64)
	} else if i, err := strconv.ParseInt(text, 0, 64); err == nil {
		t.value = i
	} else if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		t.value = i
	} else if x, ok := new(big.Int).SetString(text, 10); ok {
		t.value = x
	} else {
		failAt(t.line, "found the number %s", t.text)
	}
	l.tokens = append(l.tokens, t)
	l.at += n
}
