package tensorfile

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
)

const (
	ggufMagic     = "GGUF"
	ggufAlignment = 32 // of the data if the file states none
	maxGGUFRank   = 4  // GGML_MAX_DIMS
)

// Some types of metadata, enum gguf_metadata_value_type of gguf.md.
const (
	ggufUint32 = 4
	ggufInt32  = 5
	ggufBool   = 7
	ggufString = 8
	ggufArray  = 9
)

// ggufTypes are the types of metadata in terms of types of tensors, 0 for strings and arrays.
var ggufTypes = [...]DType{Uint8, Int8, Uint16, Int16, Uint32, Int32, Float32, Uint8, 0, 0, Uint64, Int64, Float64}

// metadata is a value of a GGUF file, or an array of them.
type metadata struct {
	kind  uint32 // of the elements of an array
	array bool
	count uint64
	data  []byte // of an array a part of the file
}

// parseGGUF reads a file: magic, version, the numbers of tensors and of metadata,
// these, the descriptions of the tensors, and from the next multiple of the
// alignment on the data, each tensor's at such a multiple. As ggml's own reader
// does, it refuses tensors that overlap or leave gaps.
func (f *File) parseGGUF(wanted func(key []byte) bool) error {
	file := f.mem.data
	magic := string(file[:min(len(file), len(ggufMagic))])
	if magic != ggufMagic {
		return fail(f.path, "magic", "found %q, expected %q", magic, ggufMagic)
	}
	r := ggufReader{rest: file[len(ggufMagic):]}
	version := r.u32()
	tensors, values := r.u64(), r.u64()
	switch {
	case r.short:
		return fail(f.path, "header", "found a file of %d bytes, expected at least 24", len(file))
	case version != 2 && version != 3 && bits.ReverseBytes32(version) < 16:
		return fail(f.path, "version", "found %d in big-endian order, expected a little-endian file", bits.ReverseBytes32(version))
	case version != 2 && version != 3:
		return fail(f.path, "version", "found %d, expected 2 or 3", version)
	}
	// Each takes at least that many bytes, of any type.
	const leastValue, leastTensor = 8 + 4 + 1, 8 + 4 + 4 + 8
	if most := uint64(len(r.rest) / leastValue); values > most {
		return fail(f.path, "metadata count", "found %d, expected at most %d in a file of %d bytes", values, most, len(file))
	}
	f.metadata = map[string]metadata{}
	alignment := uint64(ggufAlignment)
	for i := range values {
		key, kind := r.text(), r.u32()
		if r.short {
			return fail(f.path, "metadata", "found the end of the file in value %d, expected %d values", i, values)
		}
		v, err := r.value(kind)
		if err != nil {
			return fail(f.path, "metadata "+Label(string(key[:min(len(key), 200)])), "%w", err)
		}
		aligns := string(key) == "general.alignment"
		if !aligns && (wanted == nil || !wanted(key)) {
			continue
		}
		name := string(key)
		if _, twice := f.metadata[name]; twice {
			return fail(f.path, "metadata", "found %s twice, expected once", Label(name))
		}
		if !v.array { // which is read while the file is guarded
			v.data = append([]byte(nil), v.data...)
		}
		f.metadata[name] = v
		if aligns {
			x, err := f.Number(name)
			if err != nil {
				return err
			}
			if v.kind != ggufUint32 || bits.OnesCount32(uint32(x)) != 1 {
				return fail(f.path, "metadata general.alignment", "found %v, expected a power of two as uint32", x)
			}
			alignment = uint64(x)
		}
	}
	if most := uint64(len(r.rest) / leastTensor); tensors > most {
		return fail(f.path, "tensor count", "found %d, expected at most %d in a file of %d bytes", tensors, most, len(file))
	}
	entries := make([]entry, tensors)
	for i := range entries {
		if err := r.tensor(&entries[i]); err != nil {
			return fail(f.path, fmt.Sprintf("tensor %d", i), "%w", err)
		}
	}
	padding := uint64(len(r.rest)-len(file)) & (alignment - 1)
	if tensors == 0 { // ggml pads such a file, which may be the first part of a model, others do not
		padding = min(padding, uint64(len(r.rest)))
	}
	if r.bytes(padding); r.short {
		return fail(f.path, "data", "found the end of the file, expected %d tensors", tensors)
	}
	return f.place(entries, r.rest, alignment)
}

// ggufReader reads a file. If it ends too early, short is set and the values are zero.
type ggufReader struct {
	rest  []byte
	short bool
}

// bytes returns the next n bytes, which are part of the file.
func (r *ggufReader) bytes(n uint64) []byte {
	if n > uint64(len(r.rest)) {
		r.short = true
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *ggufReader) u32() uint32 { return uint32(r.number(4)) }

func (r *ggufReader) u64() uint64 { return r.number(8) }

func (r *ggufReader) number(size uint64) uint64 {
	var b [8]byte
	copy(b[:], r.bytes(size))
	return binary.LittleEndian.Uint64(b[:])
}

func (r *ggufReader) text() []byte { return r.bytes(r.u64()) }

// value reads a value of metadata. As in ggml's reader, arrays of arrays are refused.
func (r *ggufReader) value(kind uint32) (v metadata, err error) {
	v = metadata{kind: kind, count: 1, array: kind == ggufArray}
	what := "a value"
	if v.array {
		what = "an array"
		v.kind, v.count = r.u32(), r.u64()
	}
	if r.short {
		return v, fmt.Errorf("found the end of the file, expected the type and the length of an array")
	}
	if v.kind >= uint32(len(ggufTypes)) || v.kind == ggufArray {
		return v, fmt.Errorf("found %s of type %d, expected numbers or strings", what, v.kind)
	}
	least := uint64(8) // the length of a string
	if v.kind != ggufString {
		least = uint64(ggufTypes[v.kind].Size())
	}
	if most := uint64(len(r.rest)) / least; v.array && v.count > most {
		return v, fmt.Errorf("found an array of %d, expected at most the %d that the file has room for", v.count, most)
	}
	start := r.rest
	if v.kind == ggufString {
		for range v.count {
			r.text()
		}
	} else {
		r.bytes(v.count * least)
	}
	if r.short {
		return v, fmt.Errorf("found the end of the file, expected its value")
	}
	v.data = start[:len(start)-len(r.rest)]
	return v, nil
}

func (v metadata) number() float64 {
	t := Tensor{layout: layout{DType: ggufTypes[v.kind]}}
	u := t.integer(v.data)
	switch {
	case t.DType == Float32:
		return float64(math.Float32frombits(uint32(u)))
	case t.DType == Float64:
		return math.Float64frombits(uint64(u))
	case t.DType <= Int64:
		return float64(u)
	}
	return float64(uint64(u))
}

func (r *ggufReader) tensor(e *entry) error {
	e.name = string(r.text())
	rank := r.u32()
	if !r.short && rank > maxGGUFRank {
		return fmt.Errorf("found %d dimensions, expected at most %d", rank, maxGGUFRank)
	}
	e.Shape = make([]int, min(rank, maxGGUFRank))
	for i := range e.Shape {
		n := r.u64()
		if n > math.MaxInt {
			return fmt.Errorf("%s: found a dimension of %d, expected at most %d", Label(e.name), n, math.MaxInt)
		}
		e.Shape[len(e.Shape)-1-i] = int(n) // ggml's first dimension is the last here
	}
	kind := r.u32()
	e.begin = r.u64()
	if r.short {
		return fmt.Errorf("found the end of the file, expected its name, shape, type and offset")
	}
	for d, t := range dtypes {
		if int64(t.ggml) == int64(kind) {
			e.DType = DType(d)
		}
	}
	size, err := e.layout.bytes()
	if err != nil {
		return fmt.Errorf("%s: %w", Label(e.name), err)
	}
	e.size = uint64(size)
	return nil
}

// Number returns the number that a GGUF file has under this key, a key that OpenFile keeps, and 0
// if there is none.
func (f *File) Number(key string) (float64, error) {
	v, ok := f.metadata[key]
	switch {
	case !ok:
		return 0, nil
	case v.array || v.kind == ggufString || v.kind == ggufBool:
		return 0, fail(f.path, "metadata "+Label(key), "found a string, a bool or an array, expected a number")
	}
	return v.number(), nil
}

// HasMetadata reports whether there is a value under a key that OpenFile keeps.
func (f *File) HasMetadata(key string) bool {
	_, ok := f.metadata[key]
	return ok
}

// Ints is Number for an array of int32 or uint32: nil if there is none.
func (f *File) Ints(key string) (list []int64, err error) {
	v, ok := f.metadata[key]
	if !ok {
		return nil, nil
	}
	if !v.array || v.kind != ggufUint32 && v.kind != ggufInt32 {
		return nil, fail(f.path, "metadata "+Label(key), "found no array of int32 or uint32, expected one")
	}
	err = f.mem.read(f.path, func() error {
		t := Tensor{layout: layout{DType: ggufTypes[v.kind]}}
		list = make([]int64, v.count)
		for i := range list {
			list[i] = t.integer(v.data[4*i:][:4])
		}
		return nil
	})
	return list, err
}

// Text is Number for a string: "" if there is none.
func (f *File) Text(key string) (string, error) {
	v, ok := f.metadata[key]
	if ok && (v.array || v.kind != ggufString) {
		return "", fail(f.path, "metadata "+Label(key), "found a number or an array, expected a string")
	}
	r := ggufReader{rest: v.data}
	return string(r.text()), nil
}

// Strings is Number for an array of strings, and reports whether there is one: it calls visit for
// each, in order, with bytes that are valid during the call.
func (f *File) Strings(key string, visit func(i int, s []byte)) (ok bool, err error) {
	v, ok := f.metadata[key]
	if !ok {
		return false, nil
	}
	if !v.array || v.kind != ggufString {
		return false, fail(f.path, "metadata "+Label(key), "found no array of strings, expected one")
	}
	return true, f.mem.read(f.path, func() error {
		r := ggufReader{rest: v.data}
		for i := range v.count {
			visit(int(i), r.text())
		}
		return nil
	})
}
