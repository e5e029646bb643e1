package marian

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
)

// The types of tensors that models have, as Marian numbers them.
const (
	typeInt8    = 0x0101 // and text
	typeFloat32 = 0x0404
	typeCodes   = 0x4101 // int8 of intgemm, with their multiplier behind them
)

// tensor is one of a file.
type tensor struct {
	kind  uint64
	shape []int
	data  []byte
}

// file has the tensors of a file, by name.
type file map[string]tensor

const (
	version    = 1
	headerSize = 16
	entrySize  = 32
	mostTensor = 1 << 40 // elements
)

// parse reads Marian's binary format: a number of tensors with the lengths of their names, shapes and
// data; then the names, each with a zero behind it; the shapes; the size of a gap, and the gap; the
// data.
func parse(data []byte) (file, error) {
	switch {
	case bytes.HasPrefix(data, []byte("PK\x03\x04")):
		return nil, fmt.Errorf("format: found a zip archive, as of .npz, expected Marian's .bin")
	case bytes.HasPrefix(data, []byte("GGUF")):
		return nil, fmt.Errorf("format: found GGUF, expected Marian's .bin")
	case len(data) < headerSize:
		return nil, fmt.Errorf("format: found %d bytes, expected a header of %d", len(data), headerSize)
	}
	word := func(at int) uint64 { return binary.LittleEndian.Uint64(data[at:]) }
	if v := word(0); v != version {
		return nil, fmt.Errorf("version: found %d, expected %d", v, version)
	}
	n := word(8)
	if most := uint64(len(data)-headerSize) / entrySize; n > most {
		return nil, fmt.Errorf("number of tensors: found %d, expected at most %d in %d bytes", n, most, len(data))
	}
	rest := data[headerSize+n*entrySize:]
	take := func(i int, of string, size uint64) ([]byte, error) {
		if size > uint64(len(rest)) {
			return nil, fmt.Errorf("tensor %d: %s: found %d bytes, expected at most the %d that are left", i, of, size, len(rest))
		}
		part := rest[:size]
		rest = rest[size:]
		return part, nil
	}
	entry := func(i, field int) uint64 { return word(headerSize + entrySize*i + 8*field) }
	names, shapes := make([]string, n), make([][]int, n)
	for i := range names {
		b, err := take(i, "name", entry(i, 0))
		if err != nil {
			return nil, err
		}
		if len(b) < 2 || bytes.IndexByte(b, 0) != len(b)-1 {
			return nil, fmt.Errorf("tensor %d: name: found %q, expected a text with a zero behind it", i, b)
		}
		names[i] = string(b[:len(b)-1])
	}
	for i := range shapes {
		dims := entry(i, 2)
		if dims > 8 {
			return nil, fmt.Errorf("%s: shape: found %d dimensions, expected at most 8", names[i], dims)
		}
		b, err := take(i, "shape", 4*dims)
		if err != nil {
			return nil, err
		}
		for size := 1; len(b) > 0; b = b[4:] {
			d := int(int32(binary.LittleEndian.Uint32(b)))
			if d < 1 || size > mostTensor/d {
				return nil, fmt.Errorf("%s: shape: found a dimension %d behind %v, expected a number above 0, and at most %d elements", names[i], d, shapes[i], mostTensor)
			}
			size *= d
			shapes[i] = append(shapes[i], d)
		}
	}
	b, err := take(int(n), "gap", 8)
	if err == nil {
		_, err = take(int(n), "gap", binary.LittleEndian.Uint64(b))
	}
	if err != nil {
		return nil, err
	}
	f := make(file, n)
	for i, name := range names {
		b, err := take(i, "data", entry(i, 3))
		if err != nil {
			return nil, err
		}
		t := tensor{entry(i, 1), shapes[i], b}
		if _, ok := f[name]; ok {
			return nil, fmt.Errorf("%s: found two tensors of this name", name)
		}
		if least, known := t.bytes(); known && len(b) < least {
			return nil, fmt.Errorf("%s: data: found %d bytes, expected %d for the shape %v", name, len(b), least, t.shape)
		}
		f[name] = t
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("data: found %d bytes behind the last tensor, expected none", len(rest))
	}
	return f, nil
}

func (t tensor) elements() int {
	n := 1
	for _, d := range t.shape {
		n *= d
	}
	return n
}

// bytes returns the least number of bytes of the data.
func (t tensor) bytes() (n int, known bool) {
	switch t.kind {
	case typeInt8:
		return t.elements(), true
	case typeFloat32:
		return 4 * t.elements(), true
	case typeCodes:
		return t.elements() + 4, true
	}
	return 0, false
}

// reader takes the parts of a model from a file, and keeps the first error.
type reader struct {
	file file
	used map[string]bool
	err  error
}

// get returns the data of a tensor, which has that type and shape; -1 is any size.
func (r *reader) get(name string, kind uint64, shape ...int) tensor {
	t, ok := r.file[name]
	r.used[name] = true
	switch {
	case r.err != nil:
	case !ok:
		r.err = fmt.Errorf("%s: found no tensor of this name, expected one of the shape %v", name, shape)
	case t.kind != kind:
		r.err = fmt.Errorf("%s: type: found %#x, expected %#x", name, t.kind, kind)
	default:
		match := len(shape) == len(t.shape)
		for i := 0; match && i < len(shape); i++ {
			match = shape[i] == -1 || shape[i] == t.shape[i]
		}
		if !match {
			r.err = fmt.Errorf("%s: shape: found %v, expected %v", name, t.shape, shape)
		}
	}
	if r.err != nil {
		return tensor{}
	}
	return t
}

// floats returns a row of n numbers.
func (r *reader) floats(name string, n int) []float32 {
	t := r.get(name, typeFloat32, 1, n)
	if r.err != nil {
		return nil
	}
	out := make([]float32, n)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(t.data[4*i:]))
		if r.err == nil && !(math.Abs(float64(out[i])) <= math.MaxFloat32) {
			r.err = fmt.Errorf("%s[%d]: found %v, expected a finite number", name, i, out[i])
		}
	}
	return out
}

// codes returns int8 codes of a matrix and the size of a step of them.
func (r *reader) codes(name string, shape ...int) (codes []byte, rows, columns int, step float32) {
	t := r.get(name, typeCodes, shape...)
	if r.err != nil {
		return nil, 0, 0, 0
	}
	n := t.elements()
	multiplier := math.Float32frombits(binary.LittleEndian.Uint32(t.data[n:]))
	if !(multiplier >= 0x1p-40 && multiplier <= 0x1p40) {
		r.err = fmt.Errorf("%s: multiplier: found %v, expected a number from 2^-40 to 2^40", name, multiplier)
	}
	for i, c := range t.data[:n] {
		if int8(c) == -128 && r.err == nil {
			r.err = fmt.Errorf("%s: code %d: found -128, expected -127 to 127", name, i)
		}
	}
	return t.data[:n], t.shape[0], t.shape[1], 1 / multiplier
}

// only makes it an error that the file has tensors that no part of the model is made of: a model
// with more parts, run without them, would give wrong answers in silence.
func (r *reader) only() {
	first := ""
	for name := range r.file {
		if r.used[name] || strings.HasSuffix(name, "_QuantMultA") {
			continue
		}
		if first == "" || name < first {
			first = name
		}
	}
	if first != "" && r.err == nil {
		r.err = fmt.Errorf("%s: found a tensor that is no part of this kind of model", first)
	}
}

// options returns the lines "name: value" of the description of the model.
func (r *reader) options() map[string]string {
	name := "special:model.yml"
	t := r.get(name, typeInt8, -1)
	list := map[string]string{}
	for line := range strings.Lines(strings.TrimRight(string(t.data), "\x00")) {
		if key, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ": "); ok {
			list[key] = strings.Trim(value, `"`)
		}
	}
	for _, x := range [][2]string{
		{"type", "transformer"}, {"transformer-decoder-autoreg", "rnn"}, {"dec-cell", "ssru"}, {"tied-embeddings-all", "true"},
		{"transformer-ffn-depth", "2"}, {"transformer-ffn-activation", "relu"}, {"transformer-preprocess", ""},
		{"transformer-postprocess", "dan"}, {"transformer-postprocess-emb", "d"}, {"transformer-postprocess-top", ""},
		{"transformer-train-position-embeddings", "false"}, {"transformer-no-projection", "false"}, {"transformer-tied-layers", "[]"},
	} {
		if found, ok := list[x[0]]; r.err == nil && (!ok || found != x[1]) {
			r.err = fmt.Errorf("%s: %s: found %q, expected %q", name, x[0], found, x[1])
		}
	}
	return list
}
