package tensorfile_test

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
)

// nth returns where a record of an archive begins.
func nth(b []byte, magic string, n int) int {
	at := -1
	for range n + 1 {
		at += 1 + bytes.Index(b[at+1:], []byte(magic))
	}
	return at
}

const (
	localHeader    = "PK\x03\x04"
	dataDescriptor = "PK\x07\x08"
	directoryEntry = "PK\x01\x02"
	endRecord      = "PK\x05\x06"
)

// patched returns an archive with other bytes in record n of a kind.
func patched(b []byte, magic string, n, at int, other []byte) []byte {
	b = bytes.Clone(b)
	copy(b[nth(b, magic, n)+at:], other)
	return b
}

func word(x uint32) []byte { return le.AppendUint32(nil, x) }
func half(x uint16) []byte { return le.AppendUint16(nil, x) }

// widened inserts bytes into an archive, and adjusts the offsets in its directory and its end
// record.
func widened(b []byte, at int, with []byte) []byte {
	b = bytes.Clone(b)
	move := func(field []byte) {
		if offset := binary.LittleEndian.Uint32(field); offset >= uint32(at) {
			binary.LittleEndian.PutUint32(field, offset+uint32(len(with)))
		}
	}
	end := bytes.LastIndex(b, []byte(endRecord))
	entry := int(binary.LittleEndian.Uint32(b[end+16:]))
	for range binary.LittleEndian.Uint16(b[end+10:]) {
		move(b[entry+42:])
		entry += 46 + int(binary.LittleEndian.Uint16(b[entry+28:])) + int(binary.LittleEndian.Uint16(b[entry+30:])) + int(binary.LittleEndian.Uint16(b[entry+32:]))
	}
	move(b[end+16:])
	return slices.Insert(b, at, with...)
}

// streamed returns an archive as a program writes it to a pipe: with the checksum and the sizes
// after the data.
func streamed(t testing.TB, method uint16, names []string, data []byte) []byte {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, name := range names {
		m, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: method})
		if err == nil {
			_, err = m.Write(data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// wideEnd adds the end record of large archives to one that has no need of it.
func wideEnd(b []byte) []byte {
	end := len(b) - 22
	count, size, offset := uint64(binary.LittleEndian.Uint16(b[end+10:])), uint64(binary.LittleEndian.Uint32(b[end+12:])), uint64(binary.LittleEndian.Uint32(b[end+16:]))
	wide := le.AppendUint64([]byte("PK\x06\x06"), 44)
	wide = le.AppendUint32(le.AppendUint32(append(wide, 45, 3, 45, 0), 0), 0)
	for _, x := range []uint64{count, count, size, offset} {
		wide = le.AppendUint64(wide, x)
	}
	wide = append(wide, "PK\x06\x07\x00\x00\x00\x00"...)
	wide = le.AppendUint32(le.AppendUint64(wide, uint64(end)), 1)
	b = slices.Insert(bytes.Clone(b), end, wide...)
	return patched(b, endRecord, 0, 16, word(math.MaxUint32))
}

var wideArray = npy(1, dict("<f4", "False", "(2,)"), f32s(le, 1, 2))

// Archives that numpy and others write, or may write, are read.
func TestArchivesAsTheyAreWritten(t *testing.T) {
	plain := npz(zipMember{name: "x.npy", data: wideArray})
	// bare writes one stored member with descriptor d after its data.
	bare := func(d []byte) []byte {
		b := patched(patched(plain, localHeader, 0, 6, half(1<<3)), directoryEntry, 0, 8, half(1<<3))
		b = patched(b, localHeader, 0, 14, word(0))
		b = patched(b, localHeader, 0, 39, make([]byte, 16))
		return widened(b, nth(b, directoryEntry, 0), d)
	}
	crc := word(crc32.ChecksumIEEE(wideArray))
	n := uint32(len(wideArray))
	narrow, wide := slices.Concat(word(n), word(n)), slices.Concat(word(n), word(0), word(n), word(0))
	// entry gives the directory's entry an extra field.
	entry := func(extra []byte) []byte {
		b := slices.Insert(bytes.Clone(plain), nth(plain, endRecord, 0), extra...)
		b = patched(b, directoryEntry, 0, 30, half(uint16(len(extra))))
		return patched(b, endRecord, 0, 12, word(uint32(51+len(extra))))
	}
	comment := append(patched(plain, endRecord, 0, 20, half(9)), "a comment"...)
	for name, b := range map[string][]byte{
		"numpy.savez":                plain,
		"numpy.savez_compressed":     npz(zipMember{name: "x.npy", data: wideArray, deflated: true}),
		"a folder next to the array": npz(zipMember{name: "d/"}, zipMember{name: "x.npy", data: wideArray}),
		"archive/zip, stored":        streamed(t, zip.Store, []string{"x.npy", "y.npy"}, wideArray),
		"archive/zip, deflated":      streamed(t, zip.Deflate, []string{"x.npy", "y.npy"}, wideArray),
		"a narrow data descriptor":   bare(slices.Concat(crc, narrow)),
		"a marked, narrow one":       bare(slices.Concat([]byte(dataDescriptor), crc, narrow)),
		"a wide data descriptor":     bare(slices.Concat(crc, wide)),
		"a marked, wide one":         bare(slices.Concat([]byte(dataDescriptor), crc, wide)),
		"a comment":                  comment,
		"an extra field of times":    entry(append([]byte("UT\x05\x00\x01"), word(1)...)),
		"a wide entry without need":  entry(slices.Concat(half(1), half(24), wide, make([]byte, 8))),
		"a wide end without need":    wideEnd(plain),
	} {
		t.Run(name, func(t *testing.T) {
			if got := floats(t, open(t, file(t, "x.npz", b)+":x")); !sameBits(got, []float32{1, 2}) {
				t.Errorf("found %v, expected [1 2]", got)
			}
		})
	}
}

// A compressed array takes the memory of its unpacked data, once. An archive that states a larger
// size takes no more.
func TestMemoryOfCompressedArrays(t *testing.T) {
	const n = 5 << 20
	zeros := npy(1, dict("<f4", "False", fmt.Sprintf("(%d,)", n)), make([]byte, 4*n))
	noise := npy(1, dict("<f4", "False", fmt.Sprintf("(%d,)", n)), nil)
	for i := range uint32(n) {
		noise = append(noise, byte(i*2654435761>>24), byte(i*40503>>8), byte(i*97), 0x3f)
	}
	promise := npz(zipMember{name: "x.npy", data: npy(1, dict("<f4", "False", fmt.Sprintf("(%d,)", n)), []byte(strings.Repeat("\x00", n))), deflated: true, size: 3 * n})
	const slack = 256 << 10 // a decompressor, and the errors
	for _, c := range []struct {
		name  string
		bytes []byte
		most  uint64
		ok    bool
	}{
		{"an array of zeros", npz(zipMember{name: "x.npy", data: zeros, deflated: true}), 4 * n, true},
		{"an array that is compressed little", npz(zipMember{name: "x.npy", data: noise, deflated: true}), 4 * n, true},
		{"a quarter of the promised size", promise, n, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := file(t, "x.npz", c.bytes)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			x, err := tensorfile.OpenTensor(path + ":x")
			if err == nil {
				defer x.Close()
				_, err = x.Float32s()
			}
			runtime.ReadMemStats(&after)
			if used := after.TotalAlloc - before.TotalAlloc; used > c.most+slack {
				t.Errorf("found %d bytes allocated, expected at most %d", used, c.most+slack)
			}
			if (err == nil) != c.ok {
				t.Errorf("found the error %v, expected one: %v", err, !c.ok)
			}
		})
	}
}
