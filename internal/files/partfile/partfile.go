// Package partfile has the container of screens and previews: a header of magic, version, checksum,
// size and values of the owner, and lists, whose lengths the header tells. All is little-endian and
// has one place and one form, so that equal contents have equal bytes.
package partfile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"reflect"

	"github.com/learning-to-screen/l2s/internal/ground/atomicfile"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli) // of CRC-32C

// Places in a file. The checksum is of the bytes after it.
const atVersion, atChecksum, atSize, atValues = 8, 12, 16, 24

// Format is a kind of file.
type Format struct {
	Kind    string // begins all errors
	Magic   string // the first 8 bytes
	Version uint32
	Renew   string // what to do with another version
	Header  int    // its bytes
}

// Content is the content of a file, in variables of its owner.
type Content interface {
	// Code visits all values of the header after the size, and all lists, in their order, to read
	// or to write them.
	Code(c *Coder)
	// Finish checks what was read.
	Finish() error
}

// Coder reads or writes the content of a file. A value that was read is there when its call ends,
// so that bounds and lengths may depend on it.
type Coder struct {
	write bool
	list  []any  // what is written
	data  []byte // what is left to read
	last  string // the last list
	err   error  // the first one, after which nothing is read
}

// Value codes the value of fixed size that at points to.
func (c *Coder) Value(at any) {
	if c.write {
		c.list = append(c.list, at)
	} else if c.err == nil {
		n := min(binary.Size(at), len(c.data))
		_, c.err = binary.Decode(c.data[:n], binary.LittleEndian, at) // cut: for int8 it takes all bytes
		c.data = c.data[n:]
	}
}

// Number codes a number of 4 bytes, from least, which is not negative, to most.
func (c *Coder) Number(name string, at *int, least, most int) {
	n := uint32(*at)
	if c.Value(&n); !c.write {
		*at = int(n)
		c.Check(*at >= least && *at <= most, "%s: found %d, expected %d to %d", name, n, least, most)
	}
}

// Check refuses what is read, with an error of that format, unless ok.
func (c *Coder) Check(ok bool, format string, args ...any) {
	if !ok && !c.write && c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// List codes the slice that at points to, of values of one fixed size. The product of the counts is
// its length; a count that may be 0 is the first. It checks the length before it takes memory.
func List[N int | uint64](c *Coder, name string, at any, counts ...N) {
	list := reflect.ValueOf(at).Elem()
	if c.write {
		c.list = append(c.list, list.Interface())
		return
	}
	size := binary.Size(reflect.Zero(list.Type().Elem()).Interface())
	n, left := uint64(1), len(c.data)
	for _, x := range counts {
		c.Check(x == 0 || n <= uint64(left/size)/uint64(x),
			"%s: found %d bytes left of the file, expected %d for each of %d", name, left, size, counts)
		n *= uint64(x)
	}
	if c.err == nil {
		list.Set(reflect.MakeSlice(list.Type(), int(n), int(n)))
		c.Value(list.Interface())
		c.last = name
	}
}

// Encode returns the file of a content, which it only reads.
func (f *Format) Encode(content Content) []byte {
	c, size := Coder{write: true}, atValues
	content.Code(&c)
	for _, x := range c.list {
		size += binary.Size(x)
	}
	data := append(make([]byte, 0, size), f.Magic...)
	data = binary.LittleEndian.AppendUint64(data, uint64(f.Version)) // and a place for the checksum
	data = binary.LittleEndian.AppendUint64(data, uint64(size))
	for _, x := range c.list {
		data, _ = binary.Append(data, binary.LittleEndian, x) // of fixed size: no error
	}
	binary.LittleEndian.PutUint32(data[atChecksum:], crc32.Checksum(data[atSize:], castagnoli))
	return data
}

// Save writes m to the file at path, as package atomicfile does.
func (f *Format) Save(path string, m io.WriterTo) error {
	err := atomicfile.WriteFile(path, func(w io.Writer) error {
		_, err := m.WriteTo(w)
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", f.Kind, err)
	}
	return nil
}

// Read reads a file of found bytes from r; a negative number is unknown. Errors begin with name. It
// checks the header before it reads more: it refuses a large file of another kind at once.
func (f *Format) Read(name string, r io.Reader, found int64, content Content) error {
	var c Coder
	var file bytes.Buffer
	_, c.err = file.ReadFrom(io.LimitReader(r, int64(f.Header)))
	var head [atValues]byte
	n := copy(head[:], file.Bytes())
	magic, size := head[:min(n, len(f.Magic))], binary.LittleEndian.Uint64(head[atSize:])
	version, sum := binary.LittleEndian.Uint32(head[atVersion:]), binary.LittleEndian.Uint32(head[atChecksum:])
	c.Check(n > 0, "header: found an empty file, expected at least %d bytes", f.Header)
	c.Check(string(magic) == f.Magic[:len(magic)], "magic: found % x, expected % x: not a %s file", magic, f.Magic, f.Kind)
	c.Check(file.Len() == f.Header, "header: found %d bytes, expected at least %d", file.Len(), f.Header)
	c.Check(version == f.Version, "version: found %d, expected %d: %s", version, f.Version, f.Renew)
	c.Check(size >= uint64(f.Header) && size < math.MaxInt,
		"file size: found %d in the header, expected %d to %d", size, f.Header, math.MaxInt-1)
	if c.err == nil && (found < 0 || uint64(found) == size) {
		// One byte more than the header states shows that there is more.
		_, c.err = file.ReadFrom(io.LimitReader(r, int64(size)-int64(f.Header)+1))
		found = int64(file.Len())
	}
	c.Check(uint64(found) == size, "file size: found %d bytes, expected the %d that the header states", found, size)
	if c.err == nil {
		c.data = file.Bytes()[atValues:]
		right := crc32.Checksum(file.Bytes()[atSize:], castagnoli)
		c.Check(sum == right, "checksum: found %08x, expected %08x: the file is damaged", right, sum)
		content.Code(&c)
		c.Check(len(c.data) == 0, "file size: found %d bytes after the %s, expected none", len(c.data), c.last)
	}
	if c.err == nil {
		c.err = content.Finish()
	}
	if c.err != nil {
		return fmt.Errorf("%s: %w", name, c.err)
	}
	return nil
}
