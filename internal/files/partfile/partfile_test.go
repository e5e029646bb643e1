package partfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sample is a content with a value, a number and two lists.
type sample struct {
	share  float64
	rows   int
	steps  []int8
	floats []float32
	finish error
}

func (s *sample) Code(c *Coder) {
	c.Value(&s.share)
	c.Number("rows", &s.rows, 1, 1<<30)
	c.Check(s.rows != 7, "rows: found %d, expected another number", s.rows)
	List(c, "steps", &s.steps, uint64(s.rows))
	List(c, "floats", &s.floats, s.rows, 2)
}

func (s *sample) Finish() error { return s.finish }

var format = Format{
	Kind: "sample", Magic: "\x89L2X\r\n\x1a\n", Version: 3, Renew: "make it again", Header: atValues + 8 + 4,
}

// two is the file of two rows, byte by byte.
func two() []byte {
	b := []byte("\x89L2X\r\n\x1a\n\x03\x00\x00\x00....\x36\x00\x00\x00\x00\x00\x00\x00" +
		"\x00\x00\x00\x00\x00\x00\xe0\x3f" + "\x02\x00\x00\x00" +
		"\x05\xfa" + "\x00\x00\x80\x3f\x00\x00\x00\x40\x00\x00\x40\x40\x00\x00\x80\x40")
	binary.LittleEndian.PutUint32(b[atChecksum:], crc32.Checksum(b[atSize:], castagnoli))
	return b
}

func TestFileIsTheLayout(t *testing.T) {
	s := sample{share: 0.5, rows: 2, steps: []int8{5, -6}, floats: []float32{1, 2, 3, 4}}
	if found := format.Encode(&s); !bytes.Equal(found, two()) {
		t.Fatalf("found\n% x\nwant\n% x", found, two())
	}
	go format.Encode(&s) // a model is in use while it is saved: the race detector looks
	format.Encode(&s)
	path := filepath.Join(t.TempDir(), "file")
	if err := format.Save(path, bytes.NewBuffer(two())); err != nil {
		t.Fatal(err)
	}
	if saved, err := os.ReadFile(path); err != nil || !bytes.Equal(saved, two()) {
		t.Errorf("found %d other bytes in the saved file (%v), want the %d of the layout", len(saved), err, len(two()))
	}
	for name, read := range map[string]func(*sample) error{
		"known size":   func(s *sample) error { return format.Read("x", bytes.NewReader(two()), int64(len(two())), s) },
		"unknown size": func(s *sample) error { return format.Read("x", bytes.NewReader(two()), -1, s) },
	} {
		var s sample
		if err := read(&s); err != nil || !bytes.Equal(format.Encode(&s), two()) {
			t.Errorf("%s: found %+v, %v", name, s, err)
		}
		s = sample{finish: errors.New("steps: found 5")}
		if err := read(&s); !errors.Is(err, s.finish) {
			t.Errorf("%s: found error %v, want the one of Finish", name, err)
		}
	}
}

func TestErrorsNameTheField(t *testing.T) {
	set := func(at int, value ...byte) []byte {
		b := two()
		copy(b[at:], value)
		binary.LittleEndian.PutUint32(b[atChecksum:], crc32.Checksum(b[atSize:], castagnoli))
		return b
	}
	for _, c := range []struct {
		file []byte
		want string
	}{
		{nil, "header: found an empty file, expected at least 36 bytes"},
		{[]byte("hi"), "magic: found 68 69, expected 89 4c 32 58 0d 0a 1a 0a: not a sample file"},
		{two()[:35], "header: found 35 bytes, expected at least 36"},
		{set(8, 4), "version: found 4, expected 3: make it again"},
		{set(16, 35), "file size: found 35 in the header, expected 36 to "},
		{two()[:50], "file size: found 50 bytes, expected the 54 that the header states"},
		{append(two(), 0), "file size: found 55 bytes, expected the 54 that the header states"},
		{append(two()[:53], 'o'), "checksum: found "},
		{set(32, 0), "rows: found 0, expected 1 to 1073741824"},
		{set(32, 0xff, 0xff, 0xff, 0xff), "rows: found 4294967295, expected 1 to 1073741824"},
		{set(32, 7), "rows: found 7, expected another number"},
		{set(32, 0, 0, 0, 0x40), "steps: found 18 bytes left of the file, expected 1 for each of [1073741824]"},
		{set(32, 3), "floats: found 15 bytes left of the file, expected 4 for each of [3 2]"},
		{set(32, 1), "file size: found 9 bytes after the floats, expected none"},
	} {
		var s sample
		err := format.Read("NAME", bytes.NewReader(c.file), int64(len(c.file)), &s)
		if err == nil || !strings.HasPrefix(err.Error(), "NAME: "+c.want) {
			t.Errorf("found error %v, want %s", err, c.want)
		}
	}
}

// A stream has no size to compare with the sizes in a header: it must not be read without end.
func TestAStreamOfAHugeSizeIsNotRead(t *testing.T) {
	header := two()[:format.Header]
	binary.LittleEndian.PutUint64(header[atSize:], 1<<63)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan int)
	go func() {
		defer w.Close()
		n, _ := w.Write(header)
		for err := error(nil); err == nil; {
			var more int
			more, err = w.Write(make([]byte, 1<<16))
			n += more
		}
		ended <- n
	}()
	if err := format.Read("x", r, -1, new(sample)); err == nil || !strings.Contains(err.Error(), "file size: found 9223372036854775808 in the header") {
		t.Errorf("error %v", err)
	}
	r.Close()
	if n := <-ended; n > 1<<20 {
		t.Errorf("%d bytes were read", n)
	}
}
