package tensorfile

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/learning-to-screen/l2s/internal/ground/jsonscan"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
)

// maxSafetensorsHeader is the bound of the format's reference implementation.
const maxSafetensorsHeader = 100_000_000

const metadataKey = "__metadata__"

// File is an open file of tensors. Its methods may be called from many goroutines at once.
type File struct {
	Format string // the end of the names of such files, such as ".gguf"

	path     string
	names    []string // in the order of the header
	byName   map[string]*Tensor
	mem      *memory
	metadata map[string]metadata // of a GGUF file
}

// OpenSafetensors opens a safetensors file, whatever its name.
func OpenSafetensors(path string) (*File, error) { return open(path, ".safetensors", nil) }

// OpenFile opens a file of any format; from a GGUF file it keeps the metadata whose keys are
// wanted. The end of the file's name tells the format; if it does not, the first bytes do.
func OpenFile(path string, wanted func(key []byte) bool) (*File, error) {
	return open(path, "", wanted)
}

func open(path, format string, wanted func(key []byte) bool) (*File, error) {
	data, unmap, err := mem.OpenFile(path)
	if err != nil {
		return nil, openError(path, err)
	}
	f := &File{Format: format, path: path, mem: &memory{data: data, unmap: unmap}}
	if err := guard(path, func() error { return f.parse(wanted) }); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// parse finds the tensors of a file, except for an archive, in which each tensor is searched.
func (f *File) parse(wanted func(key []byte) bool) (err error) {
	if err := checkForeign(f.path, f.mem.data); err != nil {
		return err
	}
	if f.Format == "" {
		if f.Format, err = formatOf(f.mem.data, f.path); err != nil {
			return err
		}
	}
	switch f.Format {
	case ".npy":
		t, err := parseNPY(f.mem.data, f.path, f.mem)
		f.byName = map[string]*Tensor{"": t}
		return err
	case ".npz":
		return nil
	case ".gguf":
		return f.parseGGUF(wanted)
	}
	return f.parseSafetensors()
}

// ReadSafetensors is OpenSafetensors for a file in memory, which is kept and
// must not be changed. Errors name the file by name.
func ReadSafetensors(data []byte, name string) (*File, error) {
	f := &File{path: name, mem: &memory{data: data}}
	return f, f.parseSafetensors()
}

// Names returns the names of all tensors in the order of the file's header.
func (f *File) Names() []string { return slices.Clone(f.names) }

// Tensor returns the tensor of this name. If there is none the error lists the names there are.
func (f *File) Tensor(name string) (*Tensor, error) {
	t := f.byName[name]
	switch {
	case f.Format == ".npz":
		err := f.mem.read(f.path, func() (err error) {
			t, err = f.member(name)
			return err
		})
		return t, err
	case t == nil:
		return nil, nameError(f.path, name, f.names)
	}
	c := *t // the caller's own, since some fields can be set
	c.Shape = slices.Clone(t.Shape)
	return &c, nil
}

// Layout returns the type and the shape of a tensor that [File.Names] lists. The shape must not be
// changed.
func (f *File) Layout(name string) (DType, []int) {
	t := f.byName[name]
	return t.DType, t.Shape
}

// Has reports whether there is a tensor of this name. For an archive it is always false.
func (f *File) Has(name string) bool { return f.byName[name] != nil }

// Close releases the file, after the reads that are under way. Later reads of
// its tensors return an error.
func (f *File) Close() error { return f.mem.close() }

// memory is the bytes of an open file.
type memory struct {
	mu     sync.RWMutex // held for reading by who reads data, for writing by close
	data   []byte
	unmap  func([]byte) error // nil for memory of the Go heap
	closed bool
}

func (m *memory) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	data := m.data
	m.data, m.closed = nil, true
	if m.unmap == nil || data == nil {
		return nil
	}
	return m.unmap(data)
}

// guard runs f, which reads mapped memory: a missing page is an error.
func guard(source string, f func() error) error {
	return mem.Guard(f, func() error {
		return fail(source, "data", "found bytes that cannot be read any more, expected a file that stays as it was opened")
	})
}

// read is guard with the file open all the while.
func (m *memory) read(source string, f func() error) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return fail(source, "data", "found a closed file, expected an open one")
	}
	return guard(source, f)
}

// ReadFile reads a regular file into memory.
func ReadFile(path string) ([]byte, error) {
	data, err := mem.ReadFile(path)
	if err != nil {
		return nil, openError(path, err)
	}
	if err := checkForeign(path, data); err != nil {
		return nil, err
	}
	return data, nil
}

// parseSafetensors reads a file: the length of the header as 8 bytes, the header, a JSON object,
// and the data, which the tensors fill without gaps or overlaps.
func (f *File) parseSafetensors() error {
	file := f.mem.data
	if len(file) < 8 {
		return fail(f.path, "header length", "found a file of %d bytes, expected at least 8", len(file))
	}
	length := binary.LittleEndian.Uint64(file)
	if most := uint64(len(file) - 8); length > most || length > maxSafetensorsHeader {
		return fail(f.path, "header length", "found %d, expected at most %d", length, min(most, maxSafetensorsHeader))
	}
	header, data := file[8:8+length], file[8+length:]
	if len(header) == 0 || header[0] != '{' {
		return fail(f.path, "header", "found %q, expected a JSON object", header[:min(len(header), 8)])
	}
	entries, err := parseEntries(bytes.Clone(header)) // which does not change
	if err != nil {
		return fail(f.path, "header", "%w", err)
	}
	return f.place(entries, data, 1)
}

// place takes the tensors of a file. It refuses tensors that overlap, that leave gaps of more than
// the padding, or that go outside the data. If the size of a type is not known here, the bytes
// after the tensor may belong to it.
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
		end, known = (e.begin+e.size+alignment-1)&^(alignment-1), e.DType != 0
	}
	// The padding after the last may be missing.
	if known && uint64(len(data)) > end {
		return fail(f.path, "data", "found %d bytes, expected the %d of the tensors", len(data), end)
	}
	f.byName = make(map[string]*Tensor, len(entries))
	for _, e := range entries {
		if f.byName[e.name] != nil {
			return fail(f.path, "tensors", "found %s twice, expected once", Label(e.name))
		}
		t, err := newTensor(f.source(e.name), e.layout, data[e.begin:][:e.size:e.size], f.mem)
		if err != nil {
			return err
		}
		f.names = append(f.names, e.name)
		f.byName[e.name] = t
	}
	return nil
}

// source is a tensor as errors name it.
func (f *File) source(name string) string { return f.path + ":" + Label(name) }

// entry is the header's description of a tensor.
type entry struct {
	layout
	name        string
	begin, size uint64
}

// parseEntries parses the header. Its memory follows the names and the numbers that it keeps: there
// may be hundreds of thousands of tensors, and millions of keys in the metadata.
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
			err := value.Object(func(name []byte, v jsonscan.Value) error {
				if v[0] == '"' {
					return nil
				}
				return fmt.Errorf("%s: %w", Label(string(name)), v.Found("a string"))
			})
			if err != nil {
				err = fmt.Errorf("%s: %w", metadataKey, err)
			}
			return err
		}
		e := entry{name: string(key)}
		if err := e.parse(value); err != nil {
			return fmt.Errorf("tensor %s: %w", Label(e.name), err)
		}
		entries = append(entries, e)
		return nil
	})
	return entries, err
}

// parse reads the description of a tensor: each field once, and no other.
func (e *entry) parse(v jsonscan.Value) error {
	fields := 0
	err := v.Object(func(name []byte, value jsonscan.Value) (err error) {
		fields++
		switch string(name) {
		case "dtype":
			e.DType, err = safetensorsType(value)
		case "shape":
			e.Shape, err = integers(value, maxRank)
		case "data_offsets":
			var at []int
			if at, err = integers(value, 2); err == nil && (len(at) != 2 || at[0] > at[1]) {
				err = fmt.Errorf("found %v, expected a begin and an end, in order", at)
			}
			if err == nil {
				e.begin, e.size = uint64(at[0]), uint64(at[1]-at[0])
			}
		default:
			return fmt.Errorf("found the field %s, expected dtype, shape and data_offsets", Label(string(name)))
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
	var known []string
	for d, t := range dtypes {
		if t.safetensors == "" {
			continue
		}
		if t.safetensors == string(name) {
			return DType(d), nil
		}
		known = append(known, t.safetensors)
	}
	return 0, fmt.Errorf("found %s, expected one of %v", Label(string(name)), known)
}

// integers reads an array of at most the given number of integers of 0 or more.
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

// maxShards bounds the files of a model, each of which is opened. The largest models have some
// hundreds.
const maxShards = 10000

// ReadIndex reads a model.safetensors.index.json: the file of each tensor of a model that is cut
// into several, its "weight_map". They are names in the folder of the index: one that could lead
// elsewhere is refused, and so are more than 10,000 files. Format:
// https://huggingface.co/docs/transformers/big_models#sharded-checkpoints.
func ReadIndex(path string) (map[string]string, error) {
	data, err := ReadFile(path)
	if err != nil {
		return nil, err
	}
	files, err := parseIndex(data)
	if err != nil {
		return nil, fail(path, "index", "%w", err)
	}
	return files, nil
}

func parseIndex(data []byte) (files map[string]string, err error) {
	v, err := jsonscan.Parse(data)
	if err != nil {
		return nil, err
	}
	err = v.Entries(func(name []byte, value jsonscan.Value) error {
		switch {
		case string(name) != "weight_map":
			return nil
		case files != nil:
			return fmt.Errorf("found %q twice, expected it once", name)
		}
		files = map[string]string{}
		return readMap(value, files)
	})
	if err == nil && files == nil {
		err = fmt.Errorf("weight_map: found none, expected the file of each tensor")
	}
	return files, err
}

func readMap(v jsonscan.Value, files map[string]string) error {
	names := map[string]string{} // the same file is the same string
	return v.Object(func(tensor []byte, value jsonscan.Value) error {
		text, err := value.Bytes()
		if err != nil {
			return err
		}
		file, known := names[string(text)]
		if !known {
			file = string(text)
			switch {
			// The refused names could lead elsewhere on some system.
			case file == "" || file == "." || file == ".." || strings.ContainsAny(file, "/\\:\x00"):
				return fmt.Errorf("weight_map: found the file %s, expected the name of a file in the same folder", Label(file))
			case len(names) == maxShards:
				return fmt.Errorf("weight_map: found more than %d files, expected at most %[1]d", maxShards)
			}
			names[file] = file
		}
		files[string(tensor)] = file
		return nil
	})
}
