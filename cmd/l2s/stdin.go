package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/learning-to-screen/l2s/internal/layerfile"
)

// How standard input is given as a source of contexts, and named in errors.
const (
	stdinSource = "-"
	stdinName   = "standard input"
)

// textContexts reads contexts as text: one a line, its numbers separated by spaces,
// tabs or commas.
type textContexts struct {
	r     *bufio.Reader
	layer *layer
	lines int
}

// openStdin opens standard input: contexts that are read, of a .npy file, or text.
func openStdin(ctx context.Context, l *layer) (*contexts, *textContexts, error) {
	r := bufio.NewReaderSize(newInput(ctx, os.Stdin), 1<<16)
	const magic = "\x93NUMPY"
	switch start, err := r.Peek(1); {
	case err == io.EOF:
		return nil, nil, fmt.Errorf("%s: found it empty, expected contexts", stdinName)
	case err != nil:
		return nil, nil, stdinError(err)
	case start[0] != magic[0]:
		return nil, &textContexts{r: r, layer: l}, nil
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, nil, stdinError(err)
	}
	files, err := layerfile.ReadContexts(data, stdinName, l.Layer, l.name)
	if err != nil {
		return nil, nil, err
	}
	return &contexts{name: stdinName, n: files.Len(), dim: l.Dim(), files: files}, nil, nil
}

// readStdin reads standard input to its end.
func readStdin(ctx context.Context, l *layer) (*contexts, error) {
	c, text, err := openStdin(ctx, l)
	if err != nil || text == nil {
		return c, err
	}
	c = &contexts{name: stdinName, dim: l.Dim()}
	h := make([]float32, l.Dim())
	for {
		err := text.next(h)
		if err == io.EOF {
			return c, nil
		}
		if err != nil {
			return nil, err
		}
		c.rows = append(c.rows, h...)
		c.n++
	}
}

// stdinError is an error of reading standard input.
func stdinError(err error) error {
	if pe := new(os.PathError); errors.As(err, &pe) {
		err = pe.Err
	}
	return fmt.Errorf("%s: %w", stdinName, err)
}

// waits reports whether next would have to wait for standard input.
func (c *textContexts) waits() bool {
	buffered, _ := c.r.Peek(c.r.Buffered()) // which are there
	return bytes.IndexByte(buffered, '\n') < 0
}

func (c *textContexts) of() string { return "" }

// numberRoom is how many bytes of a line a number may take.
const numberRoom = 100

// next reads a context into h, which has room for one. At the end it returns io.EOF.
func (c *textContexts) next(h []float32) error {
	var line []byte
	for end := false; !end; {
		part, err := c.r.ReadSlice('\n')
		switch {
		case err == io.EOF && len(line)+len(part) == 0:
			return io.EOF
		case err != nil && err != bufio.ErrBufferFull && err != io.EOF:
			return stdinError(err)
		}
		end = err != bufio.ErrBufferFull
		if line == nil {
			c.lines++
		}
		if line = append(line, part...); len(line) > numberRoom*(len(h)+1) {
			return c.fail("found more than %d bytes, expected %d numbers, the columns of %s", numberRoom*(len(h)+1), len(h), c.layer.name)
		}
	}
	fields := strings.FieldsFunc(string(line), func(r rune) bool { return r == ' ' || r == '\t' || r == ',' || r == '\r' || r == '\n' })
	if len(fields) != len(h) {
		return c.fail("found %d numbers, expected %d, the columns of %s", len(fields), len(h), c.layer.name)
	}
	for i, field := range fields {
		x, err := strconv.ParseFloat(field, 32)
		if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
			return c.fail("found %.40q for number %d, expected a finite number", field, i+1)
		}
		h[i] = float32(x)
	}
	return nil
}

func (c *textContexts) fail(format string, args ...any) error {
	return fmt.Errorf("%s: line %d: %s", stdinName, c.lines, fmt.Sprintf(format, args...))
}
