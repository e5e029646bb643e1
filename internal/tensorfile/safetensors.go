package tensorfile

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"github.com/learning-to-screen/l2s/internal/jsonscan"
)

// maxSafetensorsHeader is the bound of the format's reference implementation.
const maxSafetensorsHeader = 100_000_000

const metadataKey = "__metadata__"

// File is an open file of named tensors, safetensors or GGUF. Its methods may be
// called from many goroutines at once.
type File struct {
	path     string
	tensors  []*Tensor
	byName   map[string]*Tensor
	mem      *memory
	metadata map[string]metadata // of a GGUF file
}

// OpenSafetensors opens a file with all its tensors.
func OpenSafetensors(path string) (*File, error) {
	return open(path, func(mem *memory) (*File, error) { return parseSafetensors(mem.data, path, mem) })
}

// OpenFile opens a safetensors or a GGUF file, of which it keeps the metadata
// whose keys are wanted. It returns no file and no error for a file of another
// format that OpenTensor reads.
func OpenFile(path string, wanted func(key []byte) bool) (*File, error) {
	return open(path, func(mem *memory) (*File, error) {
		format, err := formatOf(mem.data, path)
		if err != nil || format != ".safetensors" && format != ".gguf" {
			return nil, err
		}
		return parseFile(format, mem, path, wanted)
	})
}

// open opens a file by parse, which may find that it is not its own.
func open(path string, parse func(mem *memory) (*File, error)) (*File, error) {
	mem, err := openFile(path)
	if err != nil {
		return nil, err
	}
	var f *File
	err = guard(path, func() (err error) {
		f, err = parse(mem)
		return err
	})
	if err != nil || f == nil {
		mem.close()
		return nil, err
	}
	return f, nil
}

// parseFile reads a file of one of the two formats with named tensors.
func parseFile(format string, mem *memory, path string, wanted func(key []byte) bool) (*File, error) {
	if format == ".gguf" {
		return parseGGUF(mem.data, path, mem, wanted)
	}
	return parseSafetensors(mem.data, path, mem)
}

// ReadSafetensors is OpenSafetensors for a file in memory, which is kept and
// must not be changed. Errors name the file by name.
func ReadSafetensors(data []byte, name string) (*File, error) {
	return parseSafetensors(data, name, &memory{})
}

// Names returns the names of all tensors in the order of the file's header.
func (f *File) Names() []string {
	names := make([]string, len(f.tensors))
	for i, t := range f.tensors {
		names[i] = t.Name
	}
	return names
}

// Tensor returns the tensor of this name. If there is none the error lists
// the names there are.
func (f *File) Tensor(name string) (*Tensor, error) {
	t := f.byName[name]
	if t == nil {
		return nil, nameError(f.path, "name", name, f.Names())
	}
	c := *t // the caller's own, since some fields can be set
	c.Shape = slices.Clone(t.Shape)
	return &c, nil
}

// IsGGUF reports whether the file is a GGUF file.
func (f *File) IsGGUF() bool { return f.metadata != nil }

// Has reports whether there is a tensor of this name.
func (f *File) Has(name string) bool { return f.byName[name] != nil }

// Close releases the file, after the reads that are under way. Later reads of
// its tensors return an error.
func (f *File) Close() error { return f.mem.close() }

// parseSafetensors reads a file: the length of the header as 8 bytes, the
// header, a JSON object, and the data, which the tensors fill without gaps or
// overlaps.
func parseSafetensors(file []byte, path string, mem *memory) (*File, error) {
	if len(file) < 8 {
		return nil, fail(path, "header length", "found a file of %d bytes, expected at least 8", len(file))
	}
	length := binary.LittleEndian.Uint64(file)
	if most := uint64(len(file) - 8); length > most || length > maxSafetensorsHeader {
		return nil, fail(path, "header length", "found %d, expected at most %d", length, min(most, maxSafetensorsHeader))
	}
	header, data := file[8:8+length], file[8+length:]
	if len(header) == 0 || header[0] != '{' {
		return nil, fail(path, "header", "found %q, expected a JSON object", header[:min(len(header), 8)])
	}
	entries, err := parseEntries(bytes.Clone(header)) // which stays as it is
	if err != nil {
		return nil, fail(path, "header", "%w", err)
	}

	f := &File{path: path, mem: mem}
	return f, f.place(entries, data, 1)
}

// place takes the tensors of a file. It refuses those that overlap, leave gaps of more than the
// padding or leave the data. If the size of a type is not known here, what follows the
// tensor may be its own.
func (f *File) place(entries []entry, data []byte, alignment uint64) error {
	end, known := uint64(0), true // of the tensors before, with the padding
	for _, e := range slices.SortedFunc(slices.Values(entries), func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.size, b.size))
	}) {
		source := f.source(e.name)
		switch {
		case e.begin%alignment != 0:
			return fail(source, "offset", "found %d, expected a multiple of the alignment %d", e.begin, alignment)
		case e.begin < end || known && e.begin != end:
			return fail(source, "offset", "found %d, expected %d, where the tensor before it ends", e.begin, end)
		case e.begin > uint64(len(data)) || e.size > uint64(len(data))-e.begin:
			return fail(source, "data", "found %d bytes at offset %d, expected them within the %d bytes of data", e.size, e.begin, len(data))
		}
		end, known = (e.begin+e.size+alignment-1)&^(alignment-1), e.dtype != 0
	}
	// The padding after the last may be missing.
	if known && uint64(len(data)) > end {
		return fail(f.path, "data", "found %d bytes, expected the %d of the tensors", len(data), end)
	}
	f.byName = make(map[string]*Tensor, len(entries))
	for _, e := range entries {
		if f.byName[e.name] != nil {
			return fail(f.path, "tensors", "found %s twice, expected once", label(e.name))
		}
		t, err := newTensor(f.source(e.name), e.name, e.layout, data[e.begin:][:e.size:e.size], f.mem)
		if err != nil {
			return err
		}
		f.tensors = append(f.tensors, t)
		f.byName[e.name] = t
	}
	return nil
}

// source is a tensor as errors name it.
func (f *File) source(name string) string { return f.path + ":" + label(name) }

// entry is what the header says of a tensor.
type entry struct {
	layout
	name        string
	begin, size uint64
}

// parseEntries parses the header. Its memory follows the names and the numbers that
// it keeps: there may be hundreds of thousands of tensors, and millions of keys in
// the metadata.
func parseEntries(header []byte) (entries []entry, err error) {
	v, err := jsonscan.Parse(header)
	if err != nil {
		return nil, err
	}
	if rest := bytes.Trim(header[len(v):], " "); len(rest) > 0 {
		return nil, fmt.Errorf("found %q after the object, expected spaces", rest)
	}
	err = v.Object(func(key []byte, value jsonscan.Value) error {
		if string(key) == metadataKey {
			if err := value.Object(isText); err != nil {
				return fmt.Errorf("%s: %w", metadataKey, err)
			}
			return nil
		}
		e := entry{name: string(key)}
		if err := e.parse(value); err != nil {
			return fmt.Errorf("tensor %s: %w", label(e.name), err)
		}
		entries = append(entries, e)
		return nil
	})
	return entries, err
}

// isText refuses metadata that are no string.
func isText(name []byte, v jsonscan.Value) error {
	if v[0] != '"' {
		return fmt.Errorf("%s: %w", label(string(name)), v.Found("a string"))
	}
	return nil
}

// parse reads the description of a tensor: each field once, and no other.
func (e *entry) parse(v jsonscan.Value) error {
	fields := 0
	err := v.Object(func(name []byte, value jsonscan.Value) (err error) {
		fields++
		switch string(name) {
		case "dtype":
			e.dtype, err = safetensorsType(value)
		case "shape":
			e.shape, err = integers(value, maxRank)
		case "data_offsets":
			var at []int
			if at, err = integers(value, 2); err == nil && (len(at) != 2 || at[0] > at[1]) {
				err = fmt.Errorf("found %v, expected a begin and an end, in order", at)
			}
			if err == nil {
				e.begin, e.size = uint64(at[0]), uint64(at[1]-at[0])
			}
		default:
			return fmt.Errorf("found the field %s, expected dtype, shape and data_offsets", label(string(name)))
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		return err
	})
	if err == nil && fields != 3 {
		err = fmt.Errorf("found %d fields, expected dtype, shape and data_offsets", fields)
	}
	return err
}

func safetensorsType(v jsonscan.Value) (DType, error) {
	name, err := v.Bytes()
	if err != nil {
		return 0, err
	}
	for d, t := range dtypes {
		if t.safetensors != "" && t.safetensors == string(name) {
			return DType(d), nil
		}
	}
	var known []string
	for _, t := range dtypes {
		if t.safetensors != "" {
			known = append(known, t.safetensors)
		}
	}
	return 0, fmt.Errorf("found %s, expected one of %v", label(string(name)), known)
}

// integers reads an array of at most so many integers of 0 or more.
func integers(v jsonscan.Value, most int) ([]int, error) {
	list := make([]int, 0, 2)
	err := v.Array(func(element jsonscan.Value) error {
		if len(list) == most {
			return fmt.Errorf("found more than %d integers, expected at most %d", most, most)
		}
		n, err := strconv.ParseUint(string(element), 10, strconv.IntSize-1)
		if err != nil {
			return element.Found(fmt.Sprintf("an integer of 0 or more within %d bits", strconv.IntSize-1))
		}
		list = append(list, int(n))
		return nil
	})
	return list, err
}
