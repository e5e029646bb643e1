// Package jsonscan goes over JSON without keeping it: for files of tens of
// megabytes, such as a tokenizer's, of which a few numbers are wanted.
//
// It takes what RFC 8259 calls JSON, no more, at most 100 deep. It makes one pass, and
// takes memory only for strings with escapes that its caller reads. The caller decides
// what to do if a name is there twice.
package jsonscan

import (
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// maxDepth is the deepest nesting that is read.
const maxDepth = 100

// Scanner goes over one JSON text. Each method reads the value that comes next; a
// callback must read or skip the one value that it is called for.
type Scanner struct {
	data      []byte
	at, depth int
}

// New returns a Scanner at the start of data.
func New(data []byte) *Scanner { return &Scanner{data: data} }

// Offset returns the place in the text.
func (s *Scanner) Offset() int { return s.at }

// End reads white space up to the end of the text.
func (s *Scanner) End() error {
	if c := s.peek(); c != 0 || s.at < len(s.data) {
		return s.found("the end of the JSON")
	}
	return nil
}

// Object reads an object and calls field for each of its names, which are as
// [Scanner.Bytes] returns them.
func (s *Scanner) Object(field func(name []byte) error) error {
	return s.group('{', '}', "an object", func() error {
		name, err := s.Bytes()
		if err != nil {
			return err
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		return field(name)
	})
}

// Array reads an array and calls element for each of its elements.
func (s *Scanner) Array(element func() error) error {
	return s.group('[', ']', "an array", element)
}

func (s *Scanner) group(open, end byte, what string, member func() error) error {
	if s.peek() != open {
		return s.found(what)
	}
	if s.depth == maxDepth {
		return fmt.Errorf("found values within values %d deep at byte %d, expected at most %d", maxDepth+1, s.at, maxDepth)
	}
	s.depth++
	s.at++
	if s.peek() != end {
		for {
			if err := member(); err != nil {
				return err
			}
			if s.peek() != ',' {
				break
			}
			s.at++
		}
	}
	s.depth--
	return s.expect(end)
}

// Kind returns what comes next: one of { [ " t f n, 0 for a number, and 1 for
// none of them.
func (s *Scanner) Kind() byte {
	switch c := s.peek(); {
	case c == '{' || c == '[' || c == '"' || c == 't' || c == 'f' || c == 'n':
		return c
	case c == '-' || '0' <= c && c <= '9':
		return 0
	}
	return 1
}

// Skip reads any value.
func (s *Scanner) Skip() error {
	switch s.Kind() {
	case '{':
		return s.Object(func([]byte) error { return s.Skip() })
	case '[':
		return s.Array(s.Skip)
	case '"':
		_, _, err := s.raw()
		return err
	case 0:
		_, err := s.Number()
		return err
	}
	_, _, err := s.literal()
	return err
}

// Bool reads a bool. null is not found.
func (s *Scanner) Bool() (v, found bool, err error) {
	if k := s.Kind(); k != 't' && k != 'f' && k != 'n' {
		return false, false, s.found("true or false")
	}
	return s.literal()
}

// Float reads a number within float64. null is not found.
func (s *Scanner) Float() (x float64, found bool, err error) {
	if s.Kind() == 'n' {
		_, _, err := s.literal()
		return 0, false, err
	}
	at := s.at
	text, err := s.Number()
	if err != nil {
		return 0, false, err
	}
	if x, err = strconv.ParseFloat(string(text), 64); err != nil {
		return 0, false, fmt.Errorf("found %.40q at byte %d, expected a number within float64", text, at)
	}
	return x, true, nil
}

// Int reads an integer.
func (s *Scanner) Int() (int, error) {
	at := s.at
	text, err := s.Number()
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(string(text))
	if err != nil {
		return 0, fmt.Errorf("found %.40q at byte %d, expected an integer", text, at)
	}
	return n, nil
}

// Count reads an integer of 0 or more.
func (s *Scanner) Count() (int, error) {
	at := s.at
	text, err := s.Number()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(string(text), 10, strconv.IntSize-1)
	if err != nil {
		return 0, fmt.Errorf("found %.40q at byte %d, expected an integer of 0 or more within %d bits", text, at, strconv.IntSize-1)
	}
	return int(n), nil
}

// Bytes reads a string. It is a part of the text, or memory of its own if it has
// escapes; it must not be changed.
func (s *Scanner) Bytes() ([]byte, error) {
	at := s.at
	raw, escaped, err := s.raw()
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(raw) {
		return nil, fmt.Errorf("found bytes that are not UTF-8 at byte %d, expected a string", at)
	}
	if !escaped {
		return raw[1 : len(raw)-1], nil
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return nil, fmt.Errorf("found at byte %d: %w, expected a string", at, err)
	}
	return []byte(text), nil
}

// raw reads a string with its quotes, and whether there are escapes in it.
func (s *Scanner) raw() (raw []byte, escaped bool, err error) {
	if s.peek() != '"' {
		return nil, false, s.found("a string")
	}
	start := s.at
	for i := start + 1; i < len(s.data); i++ {
		switch c := s.data[i]; {
		case c == '"':
			s.at = i + 1
			return s.data[start:s.at], escaped, nil
		case c == '\\':
			escaped = true
			n := escape(s.data[i+1:])
			if n == 0 {
				s.at = i
				return nil, false, s.found("an escape")
			}
			i += n
		case c < ' ':
			s.at = i
			return nil, false, s.found("a string without control characters")
		}
	}
	s.at = len(s.data)
	return nil, false, s.found("the end of a string")
}

// escape returns the length of what follows a backslash, 0 for no escape.
func escape(b []byte) int {
	if len(b) == 0 {
		return 0
	}
	switch b[0] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 1
	case 'u':
		if len(b) < 5 {
			return 0
		}
		for _, c := range b[1:5] {
			if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F') {
				return 0
			}
		}
		return 5
	}
	return 0
}

// Number reads a number: an optional minus, an integer without leading zeros, and
// what may follow it. It is a part of the text.
func (s *Scanner) Number() ([]byte, error) {
	if s.Kind() != 0 {
		return nil, s.found("a number")
	}
	start := s.at
	digits := func() bool {
		from := s.at
		for s.at < len(s.data) && '0' <= s.data[s.at] && s.data[s.at] <= '9' {
			s.at++
		}
		return s.at > from
	}
	next := func(set string) bool {
		for i := range len(set) {
			if s.at < len(s.data) && s.data[s.at] == set[i] {
				s.at++
				return true
			}
		}
		return false
	}
	next("-")
	ok := next("0") || digits()
	if ok && next(".") {
		ok = digits()
	}
	if ok && next("eE") {
		next("+-")
		ok = digits()
	}
	if !ok {
		return nil, s.found("a digit")
	}
	return s.data[start:s.at], nil
}

// literal reads true, false or null.
func (s *Scanner) literal() (v, found bool, err error) {
	s.peek()
	for _, text := range [...]string{"true", "false", "null"} {
		if rest := s.data[s.at:]; len(rest) >= len(text) && string(rest[:len(text)]) == text {
			s.at += len(text)
			return text == "true", text != "null", nil
		}
	}
	return false, false, s.found("a value")
}

// peek skips white space and returns the byte that follows, 0 at the end.
func (s *Scanner) peek() byte {
	for ; s.at < len(s.data); s.at++ {
		switch c := s.data[s.at]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

func (s *Scanner) expect(c byte) error {
	if s.peek() != c {
		return s.found(strconv.QuoteRune(rune(c)))
	}
	s.at++
	return nil
}

// found is the error for another thing than the one that was expected.
func (s *Scanner) found(want string) error {
	if s.peek(); s.at >= len(s.data) {
		return fmt.Errorf("found the end of the JSON, expected %s", want)
	}
	return fmt.Errorf("found %q at byte %d, expected %s", s.data[s.at:s.at+1], s.at, want)
}
