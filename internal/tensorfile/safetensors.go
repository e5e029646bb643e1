package tensorfile

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
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
		if err != nil || format == ".npy" || format == ".npz" {
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
	c.source = f.path + ":" + label(name)
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
		return nil, fail(path, "header", "found %q, expected a JSON object", cut(string(header[:min(len(header), 8)])))
	}
	if !utf8.Valid(header) {
		return nil, fail(path, "header", "found bytes that are not UTF-8, expected JSON")
	}
	entries, err := parseEntries(header)
	if err != nil {
		return nil, fail(path, "header", "%w", err)
	}

	f := &File{path: path, byName: make(map[string]*Tensor, len(entries)), mem: mem}
	order := make([]int, len(entries))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := entries[i], entries[j]
		if a.begin != b.begin {
			return a.begin - b.begin
		}
		return a.end - b.end
	})
	at := 0
	for _, i := range order {
		e := entries[i]
		source := path + ":" + label(e.name)
		if e.begin > e.end {
			return nil, fail(source, "data_offsets", "found [%d, %d], expected a begin up to the end", e.begin, e.end)
		}
		if e.begin != at {
			return nil, fail(source, "data_offsets", "found [%d, %d], expected a begin of %d, where the tensor before it ends", e.begin, e.end, at)
		}
		if e.end > len(data) {
			return nil, fail(source, "data_offsets", "found [%d, %d], expected an end within the %d bytes of data", e.begin, e.end, len(data))
		}
		at = e.end
	}
	if at != len(data) {
		return nil, fail(path, "data", "found %d bytes, expected the %d of the tensors", len(data), at)
	}
	for _, e := range entries {
		t, err := newTensor(path+":"+label(e.name), e.name, e.layout, data[e.begin:e.end], mem)
		if err != nil {
			return nil, err
		}
		f.tensors = append(f.tensors, t)
		f.byName[e.name] = t
	}
	return f, nil
}

// entry is what the header says of a tensor.
type entry struct {
	layout
	name       string
	begin, end int
}

// parseEntries parses the header. It goes through the JSON token by token,
// since to decode it into structs would let duplicate names, names in another
// case and missing fields pass.
func parseEntries(header []byte) ([]entry, error) {
	h := newJSONHeader(bytes.NewReader(header))
	var entries []entry
	err := h.object("the file", func(name string) error {
		if name == metadataKey {
			return h.metadata()
		}
		e := entry{name: name}
		if err := h.entry(&e); err != nil {
			return fmt.Errorf("tensor %s: %w", label(name), err)
		}
		entries = append(entries, e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if rest := bytes.TrimRight(header[h.InputOffset():], " "); len(rest) > 0 {
		return nil, fmt.Errorf("found %q after the object, expected spaces", cut(string(rest)))
	}
	return entries, nil
}

type jsonHeader struct{ *json.Decoder }

func newJSONHeader(r io.Reader) jsonHeader {
	h := jsonHeader{json.NewDecoder(r)}
	h.UseNumber()
	return h
}

// token is Token with its errors in the words of this package.
func (h jsonHeader) token() (json.Token, error) {
	tok, err := h.Token()
	if err != nil {
		return nil, h.jsonError(err)
	}
	return tok, nil
}

// jsonError is an error of the decoder in the words of this package.
func (h jsonHeader) jsonError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("found its end, expected more JSON")
	}
	return fmt.Errorf("found at its byte %d: %w, expected JSON", h.InputOffset(), err)
}

func (h jsonHeader) expect(want json.Delim, what string) error {
	tok, err := h.token()
	if err == nil && tok != want {
		err = fmt.Errorf("found %s, expected %s", show(tok), what)
	}
	return err
}

// object parses an object without duplicate keys and calls value for each.
func (h jsonHeader) object(name string, value func(key string) error) error {
	if err := h.expect('{', "an object"); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	seen := map[string]bool{}
	for h.More() {
		tok, err := h.token()
		if err != nil {
			return err
		}
		key, ok := tok.(string)
		if !ok {
			return fmt.Errorf("found %s, expected a name", show(tok))
		}
		if seen[key] {
			return fmt.Errorf("found %s twice, expected once", label(key))
		}
		seen[key] = true
		if err := value(key); err != nil {
			return err
		}
	}
	return h.expect('}', "the end of an object")
}

// metadata parses an object of strings without duplicate keys. There may be
// millions of them, which token by token would cost an allocation or more each.
func (h jsonHeader) metadata() error {
	var raw json.RawMessage
	if err := h.Decode(&raw); err != nil {
		return h.jsonError(err)
	}
	text := string(raw) // which is JSON, so that it need not be checked again
	at := 0
	space := func() {
		for at < len(text) && strings.IndexByte(" \t\r\n", text[at]) >= 0 {
			at++
		}
	}
	// rest is for what is not as it must be.
	rest := func() jsonHeader { return newJSONHeader(strings.NewReader(text[at:])) }
	// value returns the string that is next, with its quotes, and whether it has
	// escapes.
	value := func() (s string, escaped bool, err error) {
		if space(); text[at] != '"' {
			_, err := rest().text("a string")
			return "", false, fmt.Errorf("%s: %w", metadataKey, err)
		}
		start := at
		for at++; text[at] != '"'; at++ {
			if text[at] == '\\' {
				escaped = true
				at++
			}
		}
		at++
		return text[start:at], escaped, nil
	}
	if space(); text[at] != '{' {
		return fmt.Errorf("%s: %w", metadataKey, rest().expect('{', "an object"))
	}
	at++
	seen := map[string]struct{}{}
	for space(); text[at] != '}'; space() {
		key, escaped, err := value()
		if err != nil {
			return err
		}
		name := key[1 : len(key)-1]
		if escaped {
			if name, err = unescaped(key); err != nil {
				return h.jsonError(err)
			}
		}
		if _, twice := seen[name]; twice {
			return fmt.Errorf("found %s twice, expected once", label(name))
		}
		seen[name] = struct{}{}
		space()
		at++ // the colon
		if _, _, err := value(); err != nil {
			return err
		}
		if space(); text[at] == ',' {
			at++
		}
	}
	return nil
}

// unescaped returns the text of a JSON string.
func unescaped(s string) (text string, err error) {
	err = json.Unmarshal([]byte(s), &text)
	return text, err
}

// entry parses the description of one tensor.
func (h jsonHeader) entry(e *entry) error {
	fields := 0
	err := h.object("description", func(key string) error {
		fields++
		var err error
		switch key {
		case "dtype":
			var name string
			if name, err = h.text("the name of a type"); err == nil {
				e.dtype, err = safetensorsType(name)
			}
		case "shape":
			e.shape, err = h.integers(maxRank)
		case "data_offsets":
			var at []int
			if at, err = h.integers(2); err == nil && len(at) != 2 {
				err = fmt.Errorf("found %v, expected a begin and an end", at)
			}
			if err == nil {
				e.begin, e.end = at[0], at[1]
			}
		default:
			return fmt.Errorf("found the field %s, expected dtype, shape and data_offsets", label(key))
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", key, err)
		}
		return err
	})
	if err == nil && fields != 3 {
		err = fmt.Errorf("found %d fields, expected dtype, shape and data_offsets", fields)
	}
	return err
}

func safetensorsType(name string) (DType, error) {
	var known []string
	for d, t := range dtypes {
		if t.safetensors == "" {
			continue
		}
		if t.safetensors == name {
			return DType(d), nil
		}
		known = append(known, t.safetensors)
	}
	return 0, fmt.Errorf("found %s, expected one of %v", label(name), known)
}

func (h jsonHeader) text(what string) (string, error) {
	tok, err := h.token()
	if err != nil {
		return "", err
	}
	s, ok := tok.(string)
	if !ok {
		return "", fmt.Errorf("found %s, expected %s", show(tok), what)
	}
	return s, nil
}

// integers parses an array of at most so many integers of 0 or more.
func (h jsonHeader) integers(most int) ([]int, error) {
	if err := h.expect('[', "an array of integers"); err != nil {
		return nil, err
	}
	list := []int{}
	for h.More() {
		if len(list) == most {
			return nil, fmt.Errorf("found more than %d integers, expected at most %d", most, most)
		}
		tok, err := h.token()
		if err != nil {
			return nil, err
		}
		number, _ := tok.(json.Number)
		n, err := strconv.ParseUint(number.String(), 10, strconv.IntSize-1)
		if err != nil {
			return nil, fmt.Errorf("found %s, expected an integer of 0 or more within %d bits", show(tok), strconv.IntSize-1)
		}
		list = append(list, int(n))
	}
	return list, h.expect(']', "the end of an array")
}

// show makes a token fit for an error message.
func show(tok json.Token) string {
	switch s := tok.(type) {
	case nil:
		return "null"
	case string:
		return strconv.Quote(cut(s))
	}
	return cut(fmt.Sprint(tok))
}
