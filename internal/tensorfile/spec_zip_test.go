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

	"github.com/learning-to-screen/l2s/internal/tensorfile"
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

// widened inserts bytes into an archive, and moves all that its directory and its
// end record say of what lies behind.
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

// streamed returns an archive as it is written where nothing can be gone back to:
// with the checksum and the sizes behind the data.
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

// A zip archive says most things twice. One that says two different things, or has
// bytes of which it says nothing, is refused, whichever of its members is opened.
func TestArchivesThatContradictThemselves(t *testing.T) {
	member := zipMember{name: "x.npy", data: wideArray}
	one, two := npz(member), npz(member, zipMember{name: "y.npy", data: wideArray})
	deflated := npz(zipMember{name: "x.npy", data: wideArray, deflated: true})
	stream := streamed(t, zip.Store, []string{"x.npy"}, wideArray)
	streams := streamed(t, zip.Store, []string{"x.npy", "y.npy"}, wideArray)
	second := nth(two, localHeader, 1)
	directory := func(b []byte) int { return nth(b, directoryEntry, 0) }
	junk := []byte("junk")
	// A member whose data are another archive's local header and data.
	inside := npz(zipMember{name: "x.npy", data: one[:directory(one)]}, zipMember{name: "x.npy", data: wideArray})
	inside = patched(inside, directoryEntry, 1, 42, word(uint32(nth(inside, localHeader, 1))))
	for _, c := range []struct {
		name  string
		bytes []byte
		want  string
	}{
		{"bytes before the archive, of which the offsets know nothing", append(bytes.Clone(junk), one...), `FILE: archive: found a directory of 51 bytes at offset 191, expected it to end at 246, where the end record begins`},
		{"bytes before the archive", widened(one, 0, junk), `FILE:x.npy: member: found its local header at offset 4, expected it at 0, where the file begins`},
		{"bytes between two members", widened(two, second, junk), `FILE:y.npy: member: found its local header at offset 195, expected it at 191, where x.npy ends`},
		{"bytes before the directory", widened(one, directory(one), junk), `FILE: directory: found it at offset 195, expected it at 191, where x.npy ends`},
		{"bytes behind the directory", widened(one, nth(one, endRecord, 0), junk), `FILE: archive: found a directory of 51 bytes at offset 191, expected it to end at 246, where the end record begins`},
		{"bytes in the directory", patched(widened(one, nth(one, endRecord, 0), junk), endRecord, 0, 12, word(55)), `FILE: directory: found 4 bytes behind its 1 entries, expected none`},
		{"bytes behind the end", append(bytes.Clone(one), junk...), `FILE: archive: found bytes behind its end, expected none`},
		{"bytes behind the deflate stream", patched(patched(widened(deflated, directory(deflated), junk), directoryEntry, 0, 20, word(uint32(directory(deflated)-55+4))),
			localHeader, 0, 30+5+12, word(uint32(directory(deflated)-55+4))), `FILE:x: member: found bytes behind the end of the deflate stream, expected none`},
		{"a member over the directory", npz(zipMember{name: "x.npy", data: wideArray, size: 51, packedSize: 51}), `FILE:x.npy: member: found 187 bytes at offset 55, expected them to end by 191, where the directory begins`},
		{"a member over another's local header", npz(zipMember{name: "x.npy", data: wideArray, size: 8, packedSize: 8}, zipMember{name: "y.npy", data: wideArray}), `FILE:y.npy: member: found its local header at offset 191, expected it at 199, where x.npy ends`},
		{"a member in another's data", inside, `FILE:x.npy: member: found its local header at offset 55, expected it at 246, where x.npy ends`},
		{"a described member over another's local header", patched(streams, directoryEntry, 0, 20, word(200)), `FILE:x.npy: member: found 200 bytes at offset 35, expected them to end by 187, where another member begins`},
		{"two entries of one local header", patched(two, directoryEntry, 1, 42, word(0)), `FILE:y.npy: member: found its local header at offset 0, expected it at 191, where x.npy ends`},
		{"another name in the local header", patched(one, localHeader, 0, 30, []byte("y")), `FILE:x.npy: member: name: found y.npy in the local header and x.npy in the directory, expected the same`},
		{"another size in the local header", patched(one, localHeader, 0, 39, word(7)), `FILE:x.npy: member: size: found 7 in the local header and 136 in the directory, expected the same`},
		{"another compressed size in the local header", patched(one, localHeader, 0, 47, word(7)), `FILE:x.npy: member: compressed size: found 7 in the local header and 136 in the directory, expected the same`},
		{"another checksum in the local header", patched(one, localHeader, 0, 14, word(7)), `FILE:x.npy: member: checksum: found 7 in the local header and 3886795418 in the directory, expected the same`},
		{"another method in the local header", patched(one, localHeader, 0, 8, half(8)), `FILE:x.npy: member: compression method: found 8 in the local header and 0 in the directory, expected the same`},
		{"other flags in the local header", patched(one, localHeader, 0, 6, half(1<<11)), `FILE:x.npy: member: flags: found 2048 in the local header and 0 in the directory, expected the same`},
		{"a wrong member that is not opened", patched(two, localHeader, 1, 14, word(7)), `FILE:y.npy: member: checksum: found 7 in the local header and 3886795418 in the directory, expected the same`},
		{"a size narrow and wide that differ", patched(one, localHeader, 0, 22, word(7)), `FILE:x.npy: member: local header: found 136 in the zip64 field and 7 outside, expected the same`},
		{"no wide size for a narrow one that refers to it", patched(one, directoryEntry, 0, 24, word(math.MaxUint32)), `FILE: directory: x.npy: found a zip64 field of 0 bytes, expected 8`},
		{"an extra field longer than its place", patched(one, localHeader, 0, 37, half(17)), `FILE:x.npy: member: local header: found an extra field that ends beyond its place, expected one within`},
		{"a local header longer than its place", patched(one, localHeader, 0, 26, half(200)), `FILE:x.npy: member: found a local header of 250 bytes, expected at most the 191 up to the directory`},
		{"no local header", patched(one, localHeader, 0, 0, []byte("PK\x03\x05")), `FILE:x.npy: member: found no local header at offset 0, expected one`},
		{"another checksum in the data descriptor", patched(stream, dataDescriptor, 0, 4, word(7)), `FILE:x.npy: member: found 16 bytes behind its data, expected a data descriptor with the checksum e7abca9a and the sizes 136 and 136`},
		{"another size in the data descriptor", patched(stream, dataDescriptor, 0, 12, word(7)), `FILE:x.npy: member: found 16 bytes behind its data, expected a data descriptor with the checksum e7abca9a and the sizes 136 and 136`},
		{"no data descriptor", patched(patched(one, directoryEntry, 0, 8, half(1<<3)), localHeader, 0, 6, half(1<<3)), `FILE:x.npy: member: found 0 bytes behind its data, expected a data descriptor with the checksum e7abca9a and the sizes 136 and 136`},
		{"bytes behind the data descriptor", widened(stream, directory(stream), junk), `FILE:x.npy: member: found 20 bytes behind its data, expected a data descriptor with the checksum e7abca9a and the sizes 136 and 136`},
		{"a member more than the directory has", patched(patched(one, endRecord, 0, 8, half(2)), endRecord, 0, 10, half(2)), `FILE: directory: found 2 members in 51 bytes, expected at most 1`},
		{"a member fewer than the directory has", patched(patched(two, endRecord, 0, 8, half(1)), endRecord, 0, 10, half(1)), `FILE: directory: found 51 bytes behind its 1 entries, expected none`},
		{"a directory larger than it is", patched(one, endRecord, 0, 12, word(52)), `FILE: archive: found a directory of 52 bytes at offset 191, expected it to end at 242, where the end record begins`},
		{"a directory elsewhere", patched(one, endRecord, 0, 16, word(190)), `FILE: archive: found a directory of 51 bytes at offset 190, expected it to end at 242, where the end record begins`},
		{"a directory that begins too early", patched(patched(one, endRecord, 0, 16, word(190)), endRecord, 0, 12, word(52)), `FILE: directory: found no entry for member 1 of 1, expected one`},
		{"an entry longer than the directory", patched(one, directoryEntry, 0, 30, half(9)), `FILE: directory: found an entry of 60 bytes for member 1, expected at most the 51 that are left`},
		{"a part of an archive", patched(one, endRecord, 0, 4, half(1)), `FILE: archive: found it to be a part of several, expected a whole one`},
		{"a member in another part of the archive", patched(one, directoryEntry, 0, 34, half(1)), `FILE: directory: x.npy: found it in part 1 of the archive, expected one part`},
		{"two end records", patched(append(bytes.Clone(one), append([]byte(endRecord), make([]byte, 18)...)...), endRecord, 0, 20, half(22)), `FILE: archive: found end records at the offsets 242 and 264, expected one`},
		{"a wide end record that differs", patched(wideEnd(one), "PK\x06\x06", 0, 40, word(50)), `FILE: archive: found 51 bytes of directory in one end record and 50 in the other, expected the same`},
		{"a wide end record elsewhere", patched(wideEnd(one), "PK\x06\x07", 0, 8, word(7)), `FILE: archive: found its zip64 end record said to be at offset 7, expected one of 56 bytes at 242`},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := file(t, "x.npz", c.bytes)
			x, err := tensorfile.OpenTensor(path + ":x")
			if err == nil {
				x.Close()
				t.Fatalf("accepted, expected %s", c.want)
			}
			refuse(t, err, path, c.want)
		})
	}
}

// What numpy and others write, and what they may write, is read.
func TestArchivesAsTheyAreWritten(t *testing.T) {
	plain := npz(zipMember{name: "x.npy", data: wideArray})
	// bare writes one stored member with descriptor d behind its data.
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
		"numpy.savez":               plain,
		"numpy.savez_compressed":    npz(zipMember{name: "x.npy", data: wideArray, deflated: true}),
		"a folder beside the array": npz(zipMember{name: "d/"}, zipMember{name: "x.npy", data: wideArray}),
		"archive/zip, stored":       streamed(t, zip.Store, []string{"x.npy", "y.npy"}, wideArray),
		"archive/zip, deflated":     streamed(t, zip.Deflate, []string{"x.npy", "y.npy"}, wideArray),
		"a narrow data descriptor":  bare(slices.Concat(crc, narrow)),
		"a marked, narrow one":      bare(slices.Concat([]byte(dataDescriptor), crc, narrow)),
		"a wide data descriptor":    bare(slices.Concat(crc, wide)),
		"a marked, wide one":        bare(slices.Concat([]byte(dataDescriptor), crc, wide)),
		"a comment":                 comment,
		"an extra field of times":   entry(append([]byte("UT\x05\x00\x01"), word(1)...)),
		"a wide entry without need": entry(slices.Concat(half(1), half(24), wide, make([]byte, 8))),
		"a wide end without need":   wideEnd(plain),
	} {
		t.Run(name, func(t *testing.T) {
			if got := floats(t, open(t, file(t, "x.npz", b)+":x")); !sameBits(got, []float32{1, 2}) {
				t.Errorf("found %v, expected [1 2]", got)
			}
		})
	}
}

// A compressed array takes what it unpacks to, once, and an archive that states
// more than it unpacks to takes no more than it unpacks to.
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
		{"a quarter of what is promised", promise, n, false},
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
