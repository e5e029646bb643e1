// Package tensorfile reads arrays of numbers from .npy, .npz, safetensors and GGUF files, and
// writes .npy and safetensors.
//
// Files are mapped into memory if the system allows it, and read by strict parsers: a file that is
// truncated, has bytes left over, or whose header contradicts its size is refused, and opening one
// takes no more memory than a small multiple of its size. A compressed array of an .npz file takes
// the memory of its content, at most 1032 times its compressed size. A float tensor with a NaN
// or an infinite element cannot be read.
//
// Formats: numpy.lib.format, versions 1.0, 2.0 and 3.0; zip archives as numpy.savez and
// numpy.savez_compressed write them; safetensors, https://huggingface.co/docs/safetensors, and the
// index of those that are cut into several files; and GGUF, versions 2 and 3,
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
//
// All errors read "l2s: file[:tensor]: field: found X, expected Y". Mapped memory leaves the
// package only by [Tensor.Mapped] and [Tensor.View], and is read where a fault becomes an error: a
// file that another program shortens while it is open here costs an error. One that is changed in
// place may be read half old and half new; to replace it, as the writers here do, is safe.
package tensorfile

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/learning-to-screen/l2s/internal/ground/mem"
)

// OpenTensor opens one tensor. src is one of
//
//	file.npy
//	file.npz:name
//	file.safetensors:name
//	file.gguf:name
//
// where name is as in Python, without the ".npy" of a member of an .npz file. The end of the file's
// name tells the format; if it does not, the first bytes do. If src as a whole, with its colons, is
// the name of a file, OpenTensor opens that file. Close releases the file. If a name is missing or
// unknown, the error lists the names in the file.
func OpenTensor(src string) (*Tensor, error) {
	f, name, _, err := OpenSource(src, nil)
	if err != nil {
		return nil, err
	}
	t, err := f.Tensor(name)
	if err != nil || t.mem != f.mem { // unpacked
		f.Close()
	}
	if err != nil {
		return nil, err
	}
	t.owner = true
	return t, nil
}

// OpenSource is OpenFile for the file that OpenTensor reads for src. It also returns the name and
// named of SplitSource.
func OpenSource(src string, wanted func(key []byte) bool) (f *File, name string, named bool, err error) {
	path, name, named := SplitSource(src)
	f, err = OpenFile(path, wanted)
	if err == nil && named && f.Format == ".npy" {
		f.Close()
		err = fail(path, "name", "found %s, expected none, since a .npy file holds one array", Label(name))
	}
	return f, name, named, err
}

// Files returns the files that decide the result of OpenTensor(src): the last one is the file that
// it reads, and the others are longer names of files that do not exist, which it would read
// instead. The meaning of src does not change as long as nobody writes these. If none is a file,
// all are returned.
func Files(src string) []string {
	names := []string{src}
	for i := len(src) - 1; i > 0; i-- {
		if src[i] == ':' {
			names = append(names, src[:i])
		}
	}
	for i, name := range names {
		if _, err := os.Stat(name); err == nil {
			return names[:i+1]
		}
	}
	return names
}

// Start returns the first n bytes of a regular file, or all its bytes.
func Start(path string, n int) ([]byte, error) {
	data, unmap, err := mem.OpenFile(path)
	if err != nil {
		return nil, openError(path, err)
	}
	m := &memory{data: data, unmap: unmap}
	defer m.close()
	var start []byte
	err = m.read(path, func() error {
		start = bytes.Clone(data[:min(n, len(data))])
		return checkForeign(path, data)
	})
	return start, err
}

// SplitSource splits src at the colon with the longest name before it of a file or a folder that
// exists. If there is none, path is the name that src most likely means.
func SplitSource(src string) (path, name string, named bool) {
	files := Files(src)
	path = files[len(files)-1]
	if _, err := os.Stat(path); err != nil {
		path = src
		for _, ext := range extensions {
			if i := strings.Index(src, ext+":"); i >= 0 {
				path = src[:i+len(ext)]
				break
			}
		}
	}
	name, named = strings.CutPrefix(src[len(path):], ":")
	return path, name, named
}

// extensions are the ends of the names of files of tensors: each names a format.
var extensions = []string{".npz", ".safetensors", ".npy", ".gguf"}

// Extension returns the end of the name of a file of tensors, in lower case, and "" for a name
// that does not tell the content of the file.
func Extension(path string) string {
	if ext := strings.ToLower(filepath.Ext(path)); slices.Contains(extensions, ext) {
		return ext
	}
	return ""
}

// formatOf returns the format of a file, one of extensions, by its name or else by its first bytes.
func formatOf(data []byte, path string) (string, error) {
	if len(data) == 0 {
		return "", fail(path, "size", "found an empty file, expected .npy, .npz, safetensors or GGUF")
	}
	if format := Extension(path); format != "" {
		return format, nil
	}
	switch {
	case bytes.HasPrefix(data, []byte(npyMagic)):
		return ".npy", nil
	case bytes.HasPrefix(data, []byte("PK\x03\x04")):
		return ".npz", nil
	case bytes.HasPrefix(data, []byte(ggufMagic)):
		return ".gguf", nil
	case len(data) > 8 && data[8] == '{':
		return ".safetensors", nil
	case looksLikeJSON(data):
		return "", fail(path, "format", "found text that looks like JSON, expected a .npy, .npz, safetensors or GGUF file: in Python numpy.save('x.npy', numpy.float32(json.load(open(%q)))) makes one of a list of lists", filepath.Base(path))
	}
	return "", fail(path, "format", "found the first bytes %q, expected a .npy, .npz, safetensors or GGUF file", data[:min(len(data), 8)])
}

// looksLikeJSON reports whether a list or an object seems to begin.
func looksLikeJSON(data []byte) bool {
	start := bytes.TrimLeft(data[:min(len(data), 256)], " \t\r\n\ufeff")
	return len(start) > 0 && (start[0] == '[' || start[0] == '{')
}

func fail(source, field, format string, args ...any) error {
	return fmt.Errorf("l2s: %s: %s: %w", source, field, fmt.Errorf(format, args...))
}

// openError is an error of the system: it tells the operation and the file.
func openError(path string, err error) error {
	return fmt.Errorf("l2s: %s: %w", cmp.Or(path, `""`), err)
}

// Label makes a name from a file fit for a message: short, and quoted if it has anything odd.
func Label(name string) string {
	const room = 100
	cut := ""
	if len(name) > room {
		n := room
		for n > 0 && !utf8.RuneStart(name[n]) {
			n--
		}
		name, cut = name[:n], "..."
	}
	odd := func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }
	if name == "" || strings.ContainsFunc(name, odd) {
		name = strconv.Quote(name)
	}
	return name + cut
}

// nameError is the error for a name that a file does not have.
func nameError(path, name string, names []string) error {
	const most = 20
	found, list := "no name", "a file that holds arrays"
	if name != "" {
		found = Label(name)
	}
	for i, n := range names[:min(len(names), most)] {
		if list += ", " + Label(n); i == 0 {
			list = "one of " + Label(n)
		}
	}
	if more := len(names) - most; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return fail(path, "name", "found %s, expected %s", found, list)
}
