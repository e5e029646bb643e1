package layerfile

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/learning-to-screen/l2s/internal/tensorfile"
	"github.com/learning-to-screen/l2s/softmax"
)

// jsonReader reads contexts as JSON, one after the other: arrays of numbers that follow each
// other or stand in an array.
type jsonReader struct {
	r       io.Reader
	most    int // the bytes that a context may take of r, and those that this one still may
	left    int
	space   bool // the last byte was white space
	tokens  *json.Decoder
	name    string // of the text and of the layer's weights, for errors
	weights string
	inList  bool // within an array of contexts
	count   int  // contexts so far
}

// A number may take numberRoom bytes of the text, and the decoder reads ahead.
const (
	numberRoom = 100
	ahead      = 1 << 16
)

// readContexts takes contexts for l from a stream: all of a .npy file, or JSON, which is to
// be read. Errors call the stream by name, and the layer by that of its weights.
func readContexts(r *bufio.Reader, name string, l *softmax.Layer, weights string) (*tensorfile.Tensor, *jsonReader, error) {
	t := &jsonReader{r: r, name: name, weights: weights}
	start, err := r.Peek(1)
	switch {
	case err == io.EOF:
		return nil, nil, fmt.Errorf("%s: found it empty, expected contexts", name)
	case err != nil:
		return nil, nil, t.fail(err)
	case start[0] != '\x93': // which a .npy file begins with
		t.tokens = json.NewDecoder(t)
		t.tokens.UseNumber()
		return nil, t, nil
	}
	tensor, err := tensorfile.ReadNPYFrom(r, name)
	if pe := new(os.PathError); errors.As(err, &pe) {
		err = t.fail(err)
	}
	return tensor, nil, err
}

// Read is of the text, and bounds what a context takes of it. Of white space that follows white space
// it passes on none, which the decoder would keep.
func (t *jsonReader) Read(p []byte) (n int, err error) {
	if t.left == 0 {
		return 0, fmt.Errorf("found no end of it in %d bytes, expected that of its array", t.most)
	}
	for p = p[:min(len(p), t.left)]; n == 0 && err == nil; {
		var got int
		got, err = t.r.Read(p)
		for _, c := range p[:got] {
			space := c == ' ' || c == '\t' || c == '\r' || c == '\n'
			if p[n] = c; !space || !t.space {
				n++
			}
			t.space = space
		}
	}
	t.left -= n
	return n, err
}

// next reads a context into h, which has room for one. At the end it returns io.EOF.
func (t *jsonReader) next(h []float32) error {
	t.count++
	t.most = numberRoom*len(h) + ahead
	t.left = t.most
	token, err := t.tokens.Token()
	for ; err == nil && token == json.Delim(']'); token, err = t.tokens.Token() {
		t.inList = false
	}
	switch {
	case err == io.EOF && !t.inList && t.count == 1: // white space
		return fmt.Errorf("%s: found it empty, expected contexts", t.name)
	case err == io.EOF && !t.inList:
		return io.EOF
	case err == nil && token == json.Delim('{'):
		return t.fail(errObject)
	case err == nil && token != json.Delim('['):
		return t.fail(fmt.Errorf("found %.40q, expected an array of numbers", text(token)))
	}
	if err == nil {
		token, err = t.tokens.Token()
	}
	if err == nil && token == json.Delim('[') && !t.inList {
		t.inList = true
		token, err = t.tokens.Token()
	}
	n := 0
	for ; err == nil && token != json.Delim(']'); token, err = t.tokens.Token() {
		if token == json.Delim('{') {
			return t.fail(errObject)
		}
		number, _ := token.(json.Number)
		x, err := strconv.ParseFloat(string(number), 32)
		if err != nil {
			return t.fail(fmt.Errorf("found %.40q for number %d, expected one within float32", text(token), n+1))
		}
		if n < len(h) {
			h[n] = float32(x)
		}
		n++
	}
	switch {
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return t.fail(errors.New("found the end of the text, expected that of its array"))
	case err == nil && n != len(h):
		return t.fail(fmt.Errorf("found %d numbers, expected %d, the columns of %s", n, len(h), t.weights))
	case err != nil:
		return t.fail(err)
	}
	return nil
}

// errObject is the error for what servers answer with.
var errObject = errors.New("found an object, such as llama-server and others answer with, expected arrays of numbers: of llama-server --embeddings --pooling none, jq '.[].embedding[]' takes them out of the answer of /embedding")

// text is a token as it stands in JSON.
func text(token json.Token) string {
	if token == nil {
		return "null"
	}
	return fmt.Sprint(token)
}

func (t *jsonReader) fail(err error) error {
	if pe := new(os.PathError); errors.As(err, &pe) {
		return fmt.Errorf("%s: %w", t.name, pe.Err)
	}
	if se := new(json.SyntaxError); errors.As(err, &se) {
		err = fmt.Errorf("found no JSON: %w", err)
	}
	return fmt.Errorf("%s: context %d: %w", t.name, t.count, err)
}

// tensor reads all contexts, into memory.
func (t *jsonReader) tensor(ctx context.Context, dim int) (*tensorfile.Tensor, error) {
	var rows []float32
	for n := 0; ; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		rows = slices.Grow(rows, dim)[:(n+1)*dim]
		switch err := t.next(rows[n*dim:]); {
		case err == io.EOF:
			return tensorfile.OfFloat32s(rows[:n*dim], t.name, n, dim)
		case err != nil:
			return nil, err
		}
	}
}

// isJSON reports whether a source is a file of JSON, by its name.
func isJSON(src string) bool {
	path, _, named := tensorfile.SplitSource(src)
	ext := strings.ToLower(filepath.Ext(path))
	return !named && (ext == ".json" || ext == ".jsonl")
}
