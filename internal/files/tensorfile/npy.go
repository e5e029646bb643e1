package tensorfile

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	npyMagic     = "\x93NUMPY"
	maxNPYHeader = math.MaxUint16 // of version 1.0; later versions allow more, for structured types
)

// parseNPY reads an array that fills file. source is the name for errors.
func parseNPY(file []byte, source string, mem *memory) (*Tensor, error) {
	l, rest, err := parseNPYHead(file, source)
	if err != nil {
		return nil, err
	}
	return newTensor(source, l, rest, mem)
}

// parseNPYHead reads the part before the data, and returns the data: magic, version, the
// length of the header, and the header, a Python dict.
func parseNPYHead(file []byte, source string) (l layout, rest []byte, err error) {
	rest, ok := bytes.CutPrefix(file, []byte(npyMagic))
	switch {
	case !ok:
		return l, nil, fail(source, "magic", "found %q, expected %q", file[:min(len(file), len(npyMagic))], npyMagic)
	case len(rest) < 2:
		return l, nil, fail(source, "version", "found the end of the file, expected 1.0, 2.0 or 3.0")
	}
	wide := 4
	switch string(rest[:2]) {
	case "\x01\x00":
		wide = 2
	case "\x02\x00", "\x03\x00":
	default:
		return l, nil, fail(source, "version", "found %d.%d, expected 1.0, 2.0 or 3.0", rest[0], rest[1])
	}
	if rest = rest[2:]; len(rest) < wide {
		return l, nil, fail(source, "header length", "found the end of the file, expected %d bytes", wide)
	}
	length := uint32(0)
	for i, b := range rest[:wide] {
		length |= uint32(b) << (8 * i)
	}
	rest = rest[wide:]
	if most := min(maxNPYHeader, len(rest)); length > uint32(most) {
		return l, nil, fail(source, "header length", "found %d, expected at most %d", length, most)
	}
	if l, err = parseDict(string(rest[:length])); err != nil {
		return l, nil, fail(source, "header", "%w", err)
	}
	return l, rest[length:], nil
}

// pySpace is white space, as \s in regular expressions.
const pySpace = " \t\r\n\f"

// npyItem is a key of the dict with its value: a string without escapes, a word, a tuple, or text
// that begins with the bracket of a list.
var npyItem = regexp.MustCompile(`^\s*(?:'([^'\\\n]*)'|"([^"\\\n]*)")\s*:\s*('[^'\\\n]*'|"[^"\\\n]*"|\w+|\([^()]*\)|\[(?s:.*))\s*(?:,|$)`)

// parseDict parses a dict of descr, fortran_order and shape, in any order.
func parseDict(text string) (l layout, err error) {
	text = strings.Trim(text, pySpace)
	body, open := strings.CutPrefix(text, "{")
	rest, closed := strings.CutSuffix(body, "}")
	if !open || !closed {
		return l, fmt.Errorf("found %.40q, expected a dict in braces", text)
	}
	var seen []string
	for rest = strings.Trim(rest, pySpace); rest != ""; rest = strings.TrimLeft(rest, pySpace) {
		item := npyItem.FindStringSubmatch(rest)
		if item == nil {
			return l, fmt.Errorf("found %.40q, expected a key in quotes, a colon, a value and a comma", rest)
		}
		rest = rest[len(item[0]):]
		key, value := item[1]+item[2], item[3]
		if slices.Contains(seen, key) {
			return l, fmt.Errorf("found the key %q twice, expected once", key)
		}
		seen = append(seen, key)
		switch key {
		case "descr":
			l.DType, err = npyType(value)
		case "fortran_order":
			if l.fortran = value == "True"; !l.fortran && value != "False" {
				err = fmt.Errorf("found %.40q, expected True or False", value)
			}
		case "shape":
			l.Shape, err = npyShape(value)
		default:
			return l, fmt.Errorf("found the key %.40q, expected descr, fortran_order or shape", key)
		}
		if err != nil {
			return l, fmt.Errorf("%s: %w", key, err)
		}
	}
	if len(seen) != 3 {
		return l, fmt.Errorf("found the keys %q, expected descr, fortran_order and shape", seen)
	}
	return l, nil
}

// npyType reads a type: in quotes its byte order and its name.
func npyType(value string) (DType, error) {
	if value[0] == '[' || value[0] == '(' {
		return 0, fmt.Errorf("found a structured type, expected a plain one such as '<f4'")
	}
	text := value
	if value[0] == '\'' || value[0] == '"' {
		text = value[1 : len(value)-1]
	}
	if len(text) > 0 && len(text) < len(value) {
		for d, t := range dtypes {
			switch {
			case t.npy != text[1:] || t.npy == "":
			case text[0] == '<' || text[0] == '|' && t.size == 1: // numpy's mark of single bytes
				return DType(d), nil
			case text[0] == '>':
				return 0, fmt.Errorf("found %q, big-endian, expected little-endian numbers: save x.astype('<%s')", text, t.npy)
			}
		}
	}
	if text == "|O" {
		return 0, fmt.Errorf("found %q, objects of Python, expected numbers: save np.vstack(x).astype(np.float32)", text)
	}
	if slices.Contains([]string{"<V2", ">V2", "|V2"}, text) {
		return 0, fmt.Errorf("found %q, two bytes without a type, as numpy writes bfloat16 of ml_dtypes, expected a type of numbers: save x.astype('float32'), or the array as safetensors", text)
	}
	return 0, fmt.Errorf("found %.40q, expected a type of numbers: <f2, <f4, <f8, <i1 to <i8 or <u1 to <u8", text)
}

// npyShape reads a tuple of integers; one with a single element ends in a comma.
func npyShape(value string) ([]int, error) {
	if value[0] != '(' {
		return nil, fmt.Errorf("found %.40q, expected a tuple", value)
	}
	sizes := strings.SplitN(strings.Trim(value, "()"), ",", maxRank+2)
	if last := len(sizes) - 1; strings.Trim(sizes[last], pySpace) == "" {
		sizes = sizes[:last]
	} else if last == 0 {
		return nil, fmt.Errorf("found %.40q, expected a tuple, with a comma", value)
	}
	if len(sizes) > maxRank {
		return nil, fmt.Errorf("found more than %d dimensions, expected at most %d", maxRank, maxRank)
	}
	shape := make([]int, len(sizes))
	for i, text := range sizes {
		text = strings.TrimSuffix(strings.Trim(text, pySpace), "L") // as Python 2 wrote some
		n, err := strconv.ParseUint(text, 10, strconv.IntSize-1)
		if err != nil || len(text) > 1 && text[0] == '0' {
			return nil, fmt.Errorf("found %.40q, expected an integer from 0 to %d", text, math.MaxInt)
		}
		shape[i] = int(n)
	}
	return shape, nil
}
