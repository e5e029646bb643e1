package tensorfile

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
)

const (
	npyMagic = "\x93NUMPY"
	// maxNPYHeader is the largest header of version 1.0. Later versions allow
	// more, which only structured types need.
	maxNPYHeader = math.MaxUint16
	// maxNPYPrefix is the largest distance from the start of an array to its
	// data.
	maxNPYPrefix = len(npyMagic) + 2 + 4 + maxNPYHeader
)

// parseNPY reads an array that fills file. source is the name for errors.
func parseNPY(file []byte, source, name string, mem *memory) (*Tensor, error) {
	l, at, err := parseNPYHeader(file, source)
	if err != nil {
		return nil, err
	}
	return newTensor(source, name, l, file[at:], mem)
}

// parseNPYHeader reads what precedes the data: magic, version, the length of
// the header, and the header, a Python dict. The data begin at the offset that
// it returns.
func parseNPYHeader(file []byte, source string) (l layout, at int, err error) {
	rest, ok := strings.CutPrefix(string(file[:min(len(file), len(npyMagic)+6)]), npyMagic)
	switch {
	case !ok:
		return l, 0, fail(source, "magic", "found %q, expected %q", file[:min(len(file), len(npyMagic))], npyMagic)
	case len(rest) < 2:
		return l, 0, fail(source, "version", "found the end of the file, expected 1.0, 2.0 or 3.0")
	}
	version, rest := rest[:2], rest[2:]
	wide := 4
	switch version {
	case "\x01\x00":
		wide = 2
	case "\x02\x00", "\x03\x00":
	default:
		return l, 0, fail(source, "version", "found %d.%d, expected 1.0, 2.0 or 3.0", version[0], version[1])
	}
	if len(rest) < wide {
		return l, 0, fail(source, "header length", "found the end of the file, expected %d bytes", wide)
	}
	var length uint64
	if wide == 2 {
		length = uint64(binary.LittleEndian.Uint16([]byte(rest)))
	} else {
		length = uint64(binary.LittleEndian.Uint32([]byte(rest)))
	}
	at = len(npyMagic) + 2 + wide
	if length > maxNPYHeader {
		return l, 0, fail(source, "header length", "found %d, expected at most %d", length, maxNPYHeader)
	}
	if length > uint64(len(file)-at) {
		return l, 0, fail(source, "header length", "found %d, expected at most the %d bytes that follow", length, len(file)-at)
	}
	end := at + int(length)
	p := pyParser{text: string(file[at:end])}
	if l, err = p.header(); err != nil {
		return l, 0, fail(source, "header", "%w", err)
	}
	return l, end, nil
}

// pyParser parses the Python literals that a header is made of.
type pyParser struct {
	text string
	pos  int
}

const pySpace = " \t\n\r\f"

// header parses the whole text: a dict of descr, fortran_order and shape, in
// any order.
func (p *pyParser) header() (l layout, err error) {
	var seen []string
	if err = p.expect('{'); err != nil {
		return l, err
	}
	for !p.next('}') {
		key, err := p.str()
		if err != nil {
			return l, err
		}
		for _, k := range seen {
			if k == key {
				return l, fmt.Errorf("found the key %q twice, expected once", key)
			}
		}
		seen = append(seen, key)
		if err := p.expect(':'); err != nil {
			return l, err
		}
		switch key {
		case "descr":
			err = p.descr(&l)
		case "fortran_order":
			l.fortran, err = p.boolean()
		case "shape":
			l.shape, err = p.shape()
		default:
			err = fmt.Errorf("found the key %s, expected descr, fortran_order or shape", strconv.Quote(cut(key)))
		}
		if err != nil {
			return l, err
		}
		if p.next('}') {
			break
		}
		if err := p.expect(','); err != nil {
			return l, err
		}
	}
	p.pos++
	if p.skip(); p.pos < len(p.text) {
		return l, p.unexpected("spaces to the end of the header")
	}
	if len(seen) != 3 {
		return l, fmt.Errorf("found the keys %q, expected descr, fortran_order and shape", seen)
	}
	return l, nil
}

// descr parses the type: its byte order and its name.
func (p *pyParser) descr(l *layout) error {
	if p.next('[') || p.next('(') {
		return fmt.Errorf("descr: found a structured type, expected a plain one such as '<f4'")
	}
	s, err := p.str()
	if err != nil {
		return err
	}
	order, name := s[:min(1, len(s))], s[min(1, len(s)):]
	for d, t := range dtypes {
		if t.npy == "" || t.npy != name {
			continue
		}
		l.dtype = DType(d)
		switch order {
		case "<":
			return nil
		case ">":
			l.bigEndian = true
			return nil
		case "=": // the order of the machine, as numpy reads it
			l.bigEndian = hostBigEndian
			return nil
		case "|":
			if t.size == 1 {
				return nil
			}
		}
	}
	return fmt.Errorf("descr: found %q, expected a type of numbers: <f2, <f4, <f8, <i1 to <i8 or <u1 to <u8, or > for <", cut(s))
}

func (p *pyParser) boolean() (bool, error) {
	p.skip()
	for text, v := range map[string]bool{"True": true, "False": false} {
		if strings.HasPrefix(p.text[p.pos:], text) {
			p.pos += len(text)
			return v, nil
		}
	}
	return false, fmt.Errorf("fortran_order: %w", p.unexpected("True or False"))
}

// shape parses a tuple of integers; one with a single element ends in a comma.
func (p *pyParser) shape() ([]int, error) {
	shape := []int{}
	if err := p.expect('('); err != nil {
		return nil, fmt.Errorf("shape: %w", err)
	}
	for !p.next(')') {
		if len(shape) == maxRank {
			return nil, fmt.Errorf("shape: found more than %d dimensions, expected at most %d", maxRank, maxRank)
		}
		n, err := p.integer()
		if err != nil {
			return nil, fmt.Errorf("shape: %w", err)
		}
		shape = append(shape, n)
		if len(shape) > 1 && p.next(')') {
			break
		}
		if err := p.expect(','); err != nil {
			return nil, fmt.Errorf("shape: %w", err)
		}
	}
	p.pos++
	return shape, nil
}

func (p *pyParser) integer() (int, error) {
	p.skip()
	digits := p.text[p.pos:]
	if end := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		digits = digits[:end]
	}
	if digits == "" {
		return 0, p.unexpected("an integer of 0 or more")
	}
	n, err := strconv.Atoi(digits)
	if len(digits) > 1 && digits[0] == '0' {
		return 0, fmt.Errorf("found %s, expected an integer without leading zeros", cut(digits))
	}
	if err != nil {
		return 0, fmt.Errorf("found %s, expected an integer of at most %d", cut(digits), math.MaxInt)
	}
	p.pos += len(digits)
	// Python 2 wrote some integers as 500L.
	if p.pos < len(p.text) && p.text[p.pos] == 'L' {
		p.pos++
	}
	return n, nil
}

// str parses a string. No name of a type needs an escape.
func (p *pyParser) str() (string, error) {
	p.skip()
	if p.pos == len(p.text) || p.text[p.pos] != '\'' && p.text[p.pos] != '"' {
		return "", p.unexpected("a string")
	}
	quote := p.text[p.pos]
	start := p.pos + 1
	for i := start; i < len(p.text); i++ {
		switch p.text[i] {
		case quote:
			p.pos = i + 1
			return p.text[start:i], nil
		case '\\', '\n':
			p.pos = i
			return "", p.unexpected("a string without escapes")
		}
	}
	p.pos = len(p.text)
	return "", p.unexpected("the end of a string")
}

func (p *pyParser) skip() {
	for p.pos < len(p.text) && strings.IndexByte(pySpace, p.text[p.pos]) >= 0 {
		p.pos++
	}
}

// next reports whether c comes next.
func (p *pyParser) next(c byte) bool {
	p.skip()
	return p.pos < len(p.text) && p.text[p.pos] == c
}

func (p *pyParser) expect(c byte) error {
	if !p.next(c) {
		return p.unexpected(strconv.QuoteRune(rune(c)))
	}
	p.pos++
	return nil
}

func (p *pyParser) unexpected(want string) error {
	if p.pos >= len(p.text) {
		return fmt.Errorf("found its end, expected %s", want)
	}
	return fmt.Errorf("found %q at its byte %d, expected %s", p.text[p.pos:p.pos+1], p.pos, want)
}

// cut shortens a text of a file for an error message.
func cut(s string) string {
	const room = 40
	if len(s) > room {
		return s[:room] + "..."
	}
	return s
}
