package tensorfile

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

const (
	ggufMagic = "GGUF"
	// ggufAlignment is the alignment of the data if the file states none.
	ggufAlignment = 32
	// maxGGUFRank is GGML_MAX_DIMS.
	maxGGUFRank = 4
)

// The types of metadata, enum gguf_metadata_value_type of gguf.md.
const (
	ggufUint8 = iota
	ggufInt8
	ggufUint16
	ggufInt16
	ggufUint32
	ggufInt32
	ggufFloat32
	ggufBool
	ggufString
	ggufArray
	ggufUint64
	ggufInt64
	ggufFloat64
)

// ggufSizes are the sizes of the values of fixed size.
var ggufSizes = [...]int{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8}

// metadata is a value of a GGUF file, an array without its elements.
type metadata struct {
	kind   uint32
	number float64
	text   string
	array  array
}

// array is where the elements of an array are in the file.
type array struct {
	kind      uint32
	count     int
	at, bytes int
}

// parseGGUF reads a file: magic, version, the numbers of tensors and of metadata,
// these, the descriptions of the tensors, and from the next multiple of the
// alignment on the data, each tensor's at such a multiple. As ggml's own reader
// does, it refuses tensors that overlap or leave gaps.
func parseGGUF(file []byte, path string, mem *memory, wanted func(key []byte) bool) (*File, error) {
	r := ggufReader{file: file}
	magic := string(file[:min(len(file), len(ggufMagic))])
	if magic != ggufMagic {
		return nil, fail(path, "magic", "found %q, expected %q", magic, ggufMagic)
	}
	r.at = len(ggufMagic)
	version := r.u32()
	tensors, values := r.u64(), r.u64()
	switch {
	case r.short:
		return nil, fail(path, "header", "found a file of %d bytes, expected at least 24", len(file))
	case version != 2 && version != 3 && bits.ReverseBytes32(version) < 16:
		return nil, fail(path, "version", "found %d in big-endian order, expected a little-endian file", bits.ReverseBytes32(version))
	case version != 2 && version != 3:
		return nil, fail(path, "version", "found %d, expected 2 or 3", version)
	}
	// Each takes at least so many bytes, whatever it is.
	const leastValue, leastTensor = 8 + 4 + 1, 8 + 4 + 4 + 8
	if most := uint64(len(r.rest()) / leastValue); values > most {
		return nil, fail(path, "metadata count", "found %d, expected at most %d in a file of %d bytes", values, most, len(file))
	}
	f := &File{path: path, mem: mem, metadata: map[string]metadata{}}
	alignment := uint32(ggufAlignment)
	for i := range values {
		key := r.text()
		kind := r.u32()
		if r.short {
			return nil, fail(path, "metadata", "found the end of the file in value %d, expected %d values", i, values)
		}
		keep := string(key) == "general.alignment" || wanted != nil && wanted(key)
		v, err := r.value(kind, keep)
		if err != nil {
			return nil, fail(path, "metadata "+label(string(key[:min(len(key), 200)])), "%w", err)
		}
		if !keep {
			continue
		}
		name := string(key)
		if _, twice := f.metadata[name]; twice {
			return nil, fail(path, "metadata", "found %s twice, expected once", label(name))
		}
		f.metadata[name] = v
		if name == "general.alignment" {
			if v.kind != ggufUint32 || v.number < 1 || bits.OnesCount32(uint32(v.number)) != 1 {
				return nil, fail(path, "metadata general.alignment", "found %v, expected a power of two as uint32", v.number)
			}
			alignment = uint32(v.number)
		}
	}
	if most := uint64(len(r.rest()) / leastTensor); tensors > most {
		return nil, fail(path, "tensor count", "found %d, expected at most %d in a file of %d bytes", tensors, most, len(file))
	}
	entries := make([]ggufEntry, tensors)
	f.byName = make(map[string]*Tensor, tensors)
	for i := range entries {
		e := &entries[i]
		if err := r.tensor(e); err != nil {
			return nil, fail(path, fmt.Sprintf("tensor %d", i), "%w", err)
		}
		if f.byName[e.name] != nil {
			return nil, fail(path, "tensors", "found %s twice, expected once", label(e.name))
		}
		f.byName[e.name] = &Tensor{}
	}
	if pad := -r.at & int(alignment-1); tensors > 0 {
		if pad > len(r.rest()) {
			return nil, fail(path, "data", "found the end of the file, expected %d tensors", tensors)
		}
		r.at += pad
	}
	data := r.rest()
	if err := checkExtents(entries, path, len(data), uint64(alignment)); err != nil {
		return nil, err
	}
	for _, e := range entries {
		t := f.byName[e.name]
		*t = Tensor{Name: e.name, DType: e.dtype, Shape: e.shape, data: data[e.offset:][:e.size:e.size], mem: mem}
		f.tensors = append(f.tensors, t)
	}
	return f, nil
}

// ggufEntry is what the file says of a tensor.
type ggufEntry struct {
	layout
	name         string
	offset, size uint64
}

// checkExtents refuses tensors that overlap, leave gaps of more than the padding
// or leave the data. If the size of a type is not known here, what follows the
// tensor may be its own.
func checkExtents(entries []ggufEntry, path string, size int, alignment uint64) error {
	end, known := uint64(0), true // of the tensors before, with the padding
	for _, e := range slices.SortedFunc(slices.Values(entries), func(a, b ggufEntry) int {
		return cmp.Or(cmp.Compare(a.offset, b.offset), cmp.Compare(a.size, b.size))
	}) {
		source := path + ":" + label(e.name)
		switch {
		case e.offset%alignment != 0:
			return fail(source, "offset", "found %d, expected a multiple of the alignment %d", e.offset, alignment)
		case e.offset < end || known && e.offset != end:
			return fail(source, "offset", "found %d, expected %d, where the tensor before it ends", e.offset, end)
		case e.offset > uint64(size) || e.size > uint64(size)-e.offset:
			return fail(source, "data", "found %d bytes at offset %d, expected them within the %d bytes of data", e.size, e.offset, size)
		}
		end, known = (e.offset+e.size+alignment-1)&^(alignment-1), e.dtype != 0
	}
	// The padding after the last may be missing.
	if known && uint64(size) > end {
		return fail(path, "data", "found %d bytes, expected the %d of the tensors", size, end)
	}
	return nil
}

// ggufReader reads a file from at on. If it ends too early, short is set and
// what is read is zero.
type ggufReader struct {
	file  []byte
	at    int
	short bool
}

func (r *ggufReader) rest() []byte { return r.file[r.at:] }

// bytes returns the next n bytes, which are part of the file.
func (r *ggufReader) bytes(n uint64) []byte {
	if n > uint64(len(r.rest())) {
		r.short = true
		return nil
	}
	b := r.rest()[:n]
	r.at += int(n)
	return b
}

func (r *ggufReader) u32() uint32 {
	if b := r.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *ggufReader) u64() uint64 {
	if b := r.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *ggufReader) text() []byte { return r.bytes(r.u64()) }

// value reads a value of metadata and returns it if it is to be kept.
func (r *ggufReader) value(kind uint32, keep bool) (v metadata, err error) {
	v.kind = kind
	switch {
	case kind == ggufString:
		if s := r.text(); keep {
			v.text = string(s)
		}
	case kind == ggufArray:
		v.array, err = r.array()
	case kind >= uint32(len(ggufSizes)):
		err = fmt.Errorf("found the type %d, expected 0 to %d", kind, len(ggufSizes)-1)
	default:
		v.number = ggufNumber(kind, r.bytes(uint64(ggufSizes[kind])))
	}
	if err == nil && r.short {
		err = fmt.Errorf("found the end of the file, expected its value")
	}
	return v, err
}

// ggufNumber returns the value of a number of fixed size, 0 for no bytes.
func ggufNumber(kind uint32, b []byte) float64 {
	var u uint64
	for i, x := range b {
		u |= uint64(x) << (8 * i)
	}
	switch kind {
	case ggufInt8, ggufInt16, ggufInt32, ggufInt64:
		unused := 64 - 8*len(b)
		return float64(int64(u<<unused) >> unused)
	case ggufFloat32:
		return float64(math.Float32frombits(uint32(u)))
	case ggufFloat64:
		return math.Float64frombits(u)
	}
	return float64(u)
}

// array goes over an array and says where it is. As in ggml's reader there are no
// arrays of arrays.
func (r *ggufReader) array() (a array, err error) {
	a.kind = r.u32()
	count := r.u64()
	if r.short {
		return a, fmt.Errorf("found the end of the file, expected the type and the length of an array")
	}
	if a.kind >= uint32(len(ggufSizes)) || a.kind == ggufArray {
		return a, fmt.Errorf("found an array of type %d, expected numbers or strings", a.kind)
	}
	least := uint64(8) // the length of a string
	if a.kind != ggufString {
		least = uint64(ggufSizes[a.kind])
	}
	if most := uint64(len(r.rest())) / least; count > most {
		return a, fmt.Errorf("found an array of %d, expected at most the %d that the file has room for", count, most)
	}
	a.at, a.count = r.at, int(count)
	if a.kind == ggufString {
		for range count {
			if r.text(); r.short {
				return a, fmt.Errorf("found the end of the file, expected %d strings", count)
			}
		}
	} else {
		r.at += int(count * least)
	}
	a.bytes = r.at - a.at
	return a, nil
}

// tensor reads the description of a tensor.
func (r *ggufReader) tensor(e *ggufEntry) error {
	e.name = string(r.text())
	rank := r.u32()
	if !r.short && rank > maxGGUFRank {
		return fmt.Errorf("found %d dimensions, expected at most %d", rank, maxGGUFRank)
	}
	var sizes [maxGGUFRank]uint64
	for i := range min(rank, maxGGUFRank) {
		sizes[i] = r.u64()
	}
	kind := r.u32()
	e.offset = r.u64()
	if r.short {
		return fmt.Errorf("found the end of the file, expected its name, shape, type and offset")
	}
	e.shape = make([]int, rank)
	for i := range e.shape {
		n := sizes[len(e.shape)-1-i] // ggml's first dimension is the last here
		if n > math.MaxInt {
			return fmt.Errorf("%s: found a dimension of %d, expected at most %d", label(e.name), n, math.MaxInt)
		}
		e.shape[i] = int(n)
	}
	for d, t := range dtypes {
		if int64(t.ggml) == int64(kind) {
			e.dtype = DType(d)
		}
	}
	if e.dtype == 0 {
		return nil
	}
	size, err := e.layout.bytes()
	if err != nil {
		return fmt.Errorf("%s: %w", label(e.name), err)
	}
	e.size = uint64(size)
	return nil
}

// Number returns the number that a GGUF file has under this key, and whether it
// has the key, which must be one that OpenFile was told to keep.
func (f *File) Number(key string) (x float64, ok bool, err error) {
	v, ok := f.metadata[key]
	if ok && (v.kind == ggufString || v.kind == ggufArray || v.kind == ggufBool) {
		return 0, false, fail(f.path, "metadata "+label(key), "found a string, a bool or an array, expected a number")
	}
	return v.number, ok, nil
}

// Text is Number for a string, and "" if there is none.
func (f *File) Text(key string) (string, error) {
	v, ok := f.metadata[key]
	if ok && v.kind != ggufString {
		return "", fail(f.path, "metadata "+label(key), "found a number or an array, expected a string")
	}
	return v.text, nil
}

// Strings is Number for an array of strings: it calls visit for each, in order.
// What visit is given is valid during the call.
func (f *File) Strings(key string, visit func(i int, s []byte)) (ok bool, err error) {
	v, ok := f.metadata[key]
	if !ok {
		return false, nil
	}
	if v.kind != ggufArray || v.array.kind != ggufString {
		return false, fail(f.path, "metadata "+label(key), "found no array of strings, expected one")
	}
	f.mem.mu.RLock()
	defer f.mem.mu.RUnlock()
	if f.mem.closed {
		return false, fail(f.path, "data", "found a closed file, expected an open one")
	}
	return true, guard(f.path, func() error {
		r := ggufReader{file: f.mem.data[v.array.at:][:v.array.bytes]}
		for i := range v.array.count {
			visit(i, r.text())
		}
		return nil
	})
}
