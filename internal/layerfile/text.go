package layerfile

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/learning-to-screen/l2s/internal/tensorfile"
	"github.com/learning-to-screen/l2s/softmax"
)

// textReader reads contexts as text, one after the other: a context a line, its numbers separated
// by spaces, tabs or commas; or, if the first byte is a bracket, JSON, whose arrays of
// numbers follow each other or stand in an array.
type textReader struct {
	r       *bufio.Reader
	name    string // of the text and of the layer's weights, for errors
	weights string
	dim     int
	json    bool
	inList  bool // within an array of contexts
	listed  int  // contexts in it so far
	count   int  // lines so far, or contexts of JSON
}

// readContexts takes contexts for l from a stream: all of a .npy file, or text, which is to
// be read. Errors call the stream by name, and the layer by that of its weights.
func readContexts(r *bufio.Reader, name string, l *softmax.Layer, weights string) (*tensorfile.Tensor, *textReader, error) {
	t := &textReader{r: r, name: name, weights: weights, dim: l.Dim()}
	start, err := r.Peek(1)
	switch {
	case err == io.EOF:
		return nil, nil, fmt.Errorf("%s: found it empty, expected contexts", name)
	case err != nil:
		return nil, nil, t.readError(err)
	case start[0] != '\x93': // which a .npy file begins with
		t.json = start[0] == '['
		return nil, t, nil
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, nil, t.readError(err)
	}
	tensor, err := tensorfile.ReadNPY(data, name)
	return tensor, nil, err
}

// numberRoom is how many bytes of the text a number may take.
const numberRoom = 100

// next reads a context into h, which has room for one. At the end it returns io.EOF.
func (t *textReader) next(h []float32) error {
	if t.json {
		return t.nextArray(h)
	}
	t.count++
	line, err := t.upTo('\n')
	if err != nil && (err != io.EOF || len(line) == 0) {
		return err
	}
	separates := func(r rune) bool { return r == ' ' || r == '\t' || r == ',' || r == '\r' || r == '\n' }
	return t.numbers(bytes.FieldsFunc(line, separates), h)
}

func (t *textReader) numbers(fields [][]byte, h []float32) error {
	if len(fields) != len(h) {
		return t.fail("found %d numbers, expected %d, the columns of %s", len(fields), len(h), t.weights)
	}
	for i, field := range fields {
		decimal := bytes.Trim(field, "0123456789+-.eE") // strconv takes more, such as 0x1p3
		x, err := strconv.ParseFloat(string(field), 32)
		if err != nil || math.IsNaN(x) || math.IsInf(x, 0) || len(decimal) > 0 || t.json && !json.Valid(field) {
			return t.fail("found %.40q for number %d, expected a finite number, in decimal", field, i+1)
		}
		h[i] = float32(x)
	}
	return nil
}

// nextArray is next for JSON.
func (t *textReader) nextArray(h []float32) error {
	t.count++
	for comma := false; ; t.r.Discard(1) {
		c, err := t.peek()
		switch {
		case err == io.EOF && !t.inList:
			return io.EOF
		case err == io.EOF:
			return t.fail("found the end of the text, expected the end of its array")
		case err != nil:
			return err
		case t.inList && c == ',' && t.listed > 0 && !comma:
			comma = true
		case t.inList && c == ']' && !comma:
			t.inList = false
		case t.inList && !comma && t.listed > 0:
			return t.fail("found %q, expected a comma or the end of the array", []byte{c})
		case c != '[':
			return t.fail("found %q, expected an array of numbers", []byte{c})
		default:
			t.r.Discard(1)
			if c, err = t.peek(); err == nil && c == '[' && !t.inList {
				t.inList, t.listed = true, 0
				t.r.Discard(1)
			}
			return t.array(h)
		}
	}
}

// array reads the rest of an array of numbers, behind its bracket.
func (t *textReader) array(h []float32) error {
	t.listed++
	text, err := t.upTo(']')
	if err == io.EOF {
		return t.fail("found the end of the text, expected the end of its array")
	}
	if err != nil {
		return err
	}
	var fields [][]byte
	const space = " \t\r\n"
	if text = bytes.Trim(text[:len(text)-1], space); len(text) > 0 {
		fields = bytes.Split(text, []byte(","))
	}
	for i := range fields {
		fields[i] = bytes.Trim(fields[i], space)
	}
	return t.numbers(fields, h)
}

// upTo returns the text up to a byte, and with it; at the end what there is, and io.EOF.
func (t *textReader) upTo(end byte) (dst []byte, err error) {
	for {
		part, err := t.r.ReadSlice(end)
		if dst = append(dst, part...); len(dst) > numberRoom*(t.dim+1) {
			return nil, t.fail("found more than %d bytes, expected %d numbers, the columns of %s", numberRoom*(t.dim+1), t.dim, t.weights)
		}
		switch {
		case err == nil || err == io.EOF:
			return dst, err
		case err != bufio.ErrBufferFull:
			return nil, t.readError(err)
		}
	}
}

// peek returns the next byte that is no white space, without reading it.
func (t *textReader) peek() (byte, error) {
	for {
		b, err := t.r.Peek(1)
		switch {
		case err == io.EOF:
			return 0, err
		case err != nil:
			return 0, t.readError(err)
		case strings.IndexByte(" \t\r\n", b[0]) < 0:
			return b[0], nil
		}
		t.r.Discard(1)
	}
}

func (t *textReader) fail(format string, args ...any) error {
	unit := "line"
	if t.json {
		unit = "context"
	}
	return fmt.Errorf("%s: %s %d: %w", t.name, unit, t.count, fmt.Errorf(format, args...))
}

func (t *textReader) readError(err error) error {
	if pe := new(os.PathError); errors.As(err, &pe) {
		err = pe.Err
	}
	return fmt.Errorf("%s: %w", t.name, err)
}

// tensor reads all contexts, into memory.
func (t *textReader) tensor(ctx context.Context) (*tensorfile.Tensor, error) {
	var rows []float32
	h := make([]float32, t.dim)
	for n := 0; ; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		switch err := t.next(h); {
		case err == io.EOF:
			return tensorfile.OfFloat32s(rows, t.name, n, t.dim)
		case err != nil:
			return nil, err
		}
		rows = append(rows, h...)
	}
}

func readTextFile(ctx context.Context, path string, l *softmax.Layer, weights string) (*tensorfile.Tensor, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	_, t, err := readContexts(bufio.NewReader(file), path, l, weights)
	if err != nil {
		return nil, err
	}
	return t.tensor(ctx)
}

// isText reports whether a source is a file of text: a regular one that begins with a
// number, an array or white space, and is not called, or begins, as a file of tensors.
func isText(src string) (path string, ok bool) {
	path, _, named := tensorfile.SplitSource(src)
	info, err := os.Stat(path)
	if named || err != nil || !info.Mode().IsRegular() || tensorfile.Extension(path) != "" {
		return path, false
	}
	file, err := os.Open(path)
	if err != nil {
		return path, false
	}
	defer file.Close()
	start := make([]byte, 9)
	n, _ := io.ReadFull(file, start)
	return path, n > 0 && strings.IndexByte("[+-.0123456789 \t\r\n", start[0]) >= 0 && start[8] != '{'
}
