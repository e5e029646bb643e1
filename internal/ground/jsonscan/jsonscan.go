// Package jsonscan reads a few values of large JSON texts, such as a tokenizer's of tens of
// megabytes. Only strings with escapes, keys of [Value.Object], and a text with
// numbers that JSON lacks ([ParsePython]) take memory. encoding/json decides the validity of JSON.
package jsonscan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"
	"unsafe"
)

// maxDepth is the deepest nesting that is read. encoding/json takes more, and some 40 bytes
// for each level.
const maxDepth = 100

// Value is the text of one value, a part of a text that Parse has found valid.
type Value []byte

// ParsePython is Parse for the dialect of Python's module json: NaN, Infinity and -Infinity
// may take the place of a number. [Value.Float] and [Value.Int] refuse them.
func ParsePython(data []byte) (Value, error) {
	v, err := Parse(data)
	if err == nil || !bytes.Contains(data, []byte("NaN")) && !bytes.Contains(data, []byte("Infinity")) {
		return v, err
	}
	plain, quoted := bytes.Clone(data), false // with numbers of the same length in their places
	for i := 0; i < len(plain); i++ {
		switch c := plain[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case quoted, i > 0 && bytes.IndexByte([]byte(":,[ \t\r\n"), plain[i-1]) < 0: // within a word
		default:
			for _, word := range []string{"NaN", "Infinity", "-Infinity"} {
				if bytes.HasPrefix(plain[i:], []byte(word)) {
					copy(plain[i:], "0         "[:len(word)])
				}
			}
		}
	}
	if _, err := Parse(plain); err != nil {
		return nil, err
	}
	return trim(data), nil
}

// Parse returns the value of a text in UTF-8 that has exactly one.
func Parse(data []byte) (Value, error) { return ParseNested(data, maxDepth) }

// ParseNested is Parse for values that are nested at most that deep.
func ParseNested(data []byte, most int) (Value, error) {
	if !utf8.Valid(data) {
		return nil, fmt.Errorf("found bytes that are not UTF-8, expected JSON")
	}
	if err := checkDepth(data, most); err != nil {
		return nil, err
	}
	if !json.Valid(data) {
		var v json.RawMessage
		err := json.Unmarshal(data, &v) // tells the fault, and its place
		if syntax, ok := err.(*json.SyntaxError); ok && syntax.Offset > 0 {
			err = fmt.Errorf("%w at byte %d", err, syntax.Offset-1)
		}
		return nil, fmt.Errorf("found %w, expected JSON", err)
	}
	return trim(data), nil
}

// checkDepth returns an error if values of JSON are nested deeper than most.
func checkDepth(data []byte, most int) error {
	depth, quoted := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > most {
				return fmt.Errorf("found values within values %d deep at byte %d, expected at most %d", depth, i, most)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

func trim(text []byte) Value { return bytes.Trim(text, " \t\r\n") }

// cut returns the value at the beginning of a text, and the rest. The text is a part of a
// valid one.
func cut(text []byte) (v Value, rest []byte) {
	text = trim(text)
	if c := text[0]; c != '"' && c != '{' && c != '[' { // true, false, null or a number
		end := bytes.IndexAny(text, ",]} \t\r\n")
		if end < 0 {
			end = len(text)
		}
		return text[:end], text[end:]
	}
	depth, quoted := 0, false
	for at := 0; ; at++ {
		switch c := text[at]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			at++
		case quoted:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		}
		if depth == 0 && !quoted {
			return text[:at+1], text[at+1:]
		}
	}
}

// Entries calls f for each name of an object and its value. A name is as [Value.Bytes] returns
// it, and may be there twice.
func (v Value) Entries(f func(name []byte, v Value) error) error {
	if v[0] != '{' {
		return v.Found("an object")
	}
	return v.members(func(text []byte) (rest []byte, err error) {
		name, rest := cut(text)
		value, rest := cut(trim(rest)[1:]) // after the colon
		key, err := name.Bytes()
		if err == nil {
			err = f(key, value)
		}
		return rest, err
	})
}

// Object is Entries of an object in which each name occurs once.
func (v Value) Object(f func(name []byte, v Value) error) error {
	seen := map[string]struct{}{} // whose strings are the bytes of the text itself
	return v.Entries(func(name []byte, value Value) error {
		key := unsafe.String(unsafe.SliceData(name), len(name))
		if _, twice := seen[key]; twice {
			return fmt.Errorf("found %.100q twice, expected it once", name)
		}
		seen[key] = struct{}{}
		return f(name, value)
	})
}

// Array calls f for each element of an array.
func (v Value) Array(f func(v Value) error) error {
	if v[0] != '[' {
		return v.Found("an array")
	}
	return v.members(func(text []byte) (rest []byte, err error) {
		element, rest := cut(text)
		return rest, f(element)
	})
}

// members calls next with the text from each member of a group on; it returns the rest.
func (v Value) members(next func(text []byte) (rest []byte, err error)) (err error) {
	rest := trim(v[1 : len(v)-1])
	for len(rest) > 0 {
		if rest, err = next(rest); err != nil {
			return err
		}
		rest = trim(bytes.TrimPrefix(trim(rest), []byte(",")))
	}
	return nil
}

// Bytes returns a string, not to be changed: a part of the text, or its own memory with escapes.
func (v Value) Bytes() ([]byte, error) {
	switch {
	case v[0] != '"':
		return nil, v.Found("a string")
	case bytes.IndexByte(v, '\\') < 0:
		return v[1 : len(v)-1], nil
	}
	var text string
	err := json.Unmarshal(v, &text)
	return []byte(text), err
}

// Bool returns true or false.
func (v Value) Bool() (bool, error) {
	if v[0] != 't' && v[0] != 'f' {
		return false, v.Found("true or false")
	}
	return v[0] == 't', nil
}

// Float returns a number within float64.
func (v Value) Float() (float64, error) {
	x, err := strconv.ParseFloat(string(v), 64)
	if err != nil || x-x != 0 { // ParseFloat reads NaN and Infinity
		return 0, v.Found("a number within float64")
	}
	return x, nil
}

// Int returns an integer.
func (v Value) Int() (int, error) {
	n, err := strconv.Atoi(string(v))
	if err != nil {
		return 0, v.Found("an integer")
	}
	return n, nil
}

// IsNull reports whether the value is null.
func (v Value) IsNull() bool { return v[0] == 'n' }

// Found returns the error for a value other than the expected one.
func (v Value) Found(expected string) error {
	return fmt.Errorf("found %.40q, expected %s", []byte(v), expected)
}
