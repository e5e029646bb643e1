package screen_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/screen"
)

// These tests know the file from FORMAT.md alone: they write it themselves.

func encode(t testing.TB, m *screen.Model) []byte {
	t.Helper()
	var b bytes.Buffer
	n, err := m.WriteTo(&b)
	if err != nil {
		t.Fatal(err)
	}
	if n != int64(b.Len()) {
		t.Fatalf("WriteTo says %d bytes and wrote %d", n, b.Len())
	}
	return b.Bytes()
}

// sectionBytes is a section as a test writes it.
type sectionBytes struct {
	kind, flags uint32
	data        []byte
}

func le32(values ...uint32) (b []byte) {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

func le16(values ...uint16) (b []byte) {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint16(b, v)
	}
	return b
}

func le64(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }

func floats(values ...float32) (b []byte) {
	for _, v := range values {
		b = append(b, le32(math.Float32bits(v))...)
	}
	return b
}

func doubles(values ...float64) (b []byte) {
	for _, v := range values {
		b = append(b, le64(math.Float64bits(v))...)
	}
	return b
}

func crc(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// write puts a file together as FORMAT.md says.
func write(labels, dim, clusters uint64, fingerprint [32]byte, sections []sectionBytes) []byte {
	pad := func(b []byte) []byte { return append(b, make([]byte, -len(b)&63)...) }
	start := (128 + 32*len(sections) + 63) / 64 * 64
	var table, body []byte
	for _, s := range sections {
		table = append(table, le32(s.kind, s.flags)...)
		table = append(table, le64(uint64(start+len(body)))...)
		table = append(table, le64(uint64(len(s.data)))...)
		table = append(table, le32(crc(s.data), 0)...)
		body = pad(append(body, s.data...))
	}
	head := []byte("\x89L2S\r\n\x1a\n")
	head = append(head, le32(2, uint32(len(sections)))...)
	for _, v := range []uint64{uint64(start + len(body)), labels, dim, clusters} {
		head = append(head, le64(v)...)
	}
	head = append(head, fingerprint[:]...)
	head = append(head, le32(crc(table))...)
	head = append(head, make([]byte, 40)...)
	head = append(head, le32(crc(head))...)
	return append(pad(append(head, table...)), body...)
}

// small is the model that the tables below break: 10 labels, dimension 3, 2
// clusters in 2 shells and a pair. Its sections begin at 384, 448, 512, 576, 640, 704
// and 896; its file has 960 bytes.
func smallSections() []sectionBytes {
	return []sectionBytes{
		{1, 0, floats(1, -2, 0.5, 4, 5, -0.25)},
		{2, 0, cellBytes(1, 1, 1.5, []float64{0.5}, 0, 1)},
		{3, 0, le32(1, 3, 3, 1, 2, 3)},
		{4, 0, le32(3, 1, 5, 3, 8, 0, 3, 3, 2, 3, 9, 4)},
		{5, 0, le16(65535, 500, 500, 65535, 900, 7, 65535, 65535, 1, 65535, 65535, 0)},
		{6, 0, ladderBytes(2, 1, 5, 100, 0.25, smallRungs()...)},
		{7, 0, []byte(`{"seed":1}`)},
	}
}

// cellBytes is a section of cells.
func cellBytes(shells, pairs uint32, margin float64, cosines []float64, cells ...uint32) []byte {
	return slices.Concat(le32(shells, pairs), doubles(margin), doubles(cosines...), le32(cells...))
}

// ladderBytes is a section of a ladder.
func ladderBytes(n, at, k, heldOut uint32, margin float64, rungs ...screen.Rung) []byte {
	b := append(le32(n, at, k, heldOut), doubles(margin)...)
	for _, x := range rungs {
		b = slices.Concat(b, doubles(x.Budget), le32(uint32(x.Share), uint32(x.P99Candidates), uint32(x.MaxCandidates), 0), doubles(x.MeanCandidates))
		for _, e := range []screen.Estimate{x.Precision1, x.PrecisionK} {
			b = append(b, doubles(e.Value, e.Low, e.High)...)
		}
	}
	return b
}

func smallRungs() []screen.Rung {
	return []screen.Rung{
		{Budget: 1.5, Share: 600, MeanCandidates: 1.25, P99Candidates: 2, MaxCandidates: 3, Precision1: screen.Estimate{Value: 0.5, Low: 0.25, High: 0.75}},
		{Budget: 4, PrecisionK: screen.Estimate{Value: 1, Low: 0.97, High: 1}},
	}
}

// tailSection is a tail of smallModel for one temperature, one level and one direction.
func tailSection() sectionBytes {
	return sectionBytes{8, 1, tailBytes(600, 1, 1, 1, []float64{1, 0.5}, tailNumbers()...)}
}

// tailNumbers are 5 intercepts, 2 slopes, 2 pairs of squares, 2 half-widths and a direction.
func tailNumbers() []float32 {
	return []float32{1, 0, 7, 8, 9, 0, 0.5, 2, -1, 0, 3, 0.5, 0.25, -1, 1, 0.25, 4, 1, 0, 2}
}

func tailBytes(share, temperatures, levels, directions uint32, numbers []float64, coefficients ...float32) []byte {
	return slices.Concat(le32(share, temperatures, levels, directions), doubles(numbers...), floats(coefficients...))
}

var smallFingerprint = [32]byte{1, 2, 3, 31: 255}

func smallFile() []byte { return write(10, 3, 2, smallFingerprint, smallSections()) }

// tailedFile is smallFile with a tail, at 960.
func tailedFile() []byte {
	return write(10, 3, 2, smallFingerprint, append(smallSections(), tailSection()))
}

func smallConfig() screen.Config {
	return screen.Config{
		Dim: 3, Labels: 10, Clusters: []float32{1, -2, 0.5, 4, 5, -0.25},
		Shells: []float64{0.5}, Pairs: []screen.Pair{{First: 0, Second: 1}}, PairMargin: 1.5, Always: 1,
		Lists: []screen.List{
			{IDs: []uint32{3, 1, 5}, Shares: []uint16{65535, 500, 500}}, {IDs: []uint32{3, 8, 0}, Shares: []uint16{65535, 900, 7}},
			{IDs: []uint32{3}}, {IDs: []uint32{3, 2}, Shares: []uint16{65535, 1}}, {IDs: []uint32{3, 9, 4}, Shares: []uint16{65535, 65535, 0}},
		},
		Ladder: smallRungs(), K: 5, HeldOut: 100, ExactMargin: 0.25,
		Fingerprint: smallFingerprint, Record: json.RawMessage(`{"seed":1}`),
	}
}

func smallModel(t testing.TB) *screen.Model {
	t.Helper()
	m, err := screen.NewModel(smallConfig())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// seal makes the checksums right again: of the sections that the table places within
// the file, of the table, and of the header.
func seal(file []byte) []byte {
	if len(file) < 128 {
		return file
	}
	le := binary.LittleEndian
	n := int(min(le.Uint32(file[12:]), 64))
	if end := 128 + 32*n; end <= len(file) {
		table := file[128:end]
		for ; len(table) > 0; table = table[32:] {
			offset, length := le.Uint64(table[8:]), le.Uint64(table[16:])
			if size := uint64(len(file)); offset <= size && length <= size-offset {
				le.PutUint32(table[24:], crc(file[offset:offset+length]))
			}
		}
		le.PutUint32(file[80:], crc(file[128:end]))
	}
	le.PutUint32(file[124:], crc(file[:124]))
	return file
}

// The bytes of files of each kind, made from FORMAT.md by the functions above.
func TestTheFileIsWhatTheFormatSays(t *testing.T) {
	tailed := smallConfig()
	x := tailNumbers()
	var err error
	if tailed.Tail, err = screen.NewTail(screen.TailConfig{
		Share: 600, Cells: 5, Clusters: 2, Temperatures: []float64{1}, Levels: []float64{0.5},
		Intercepts: x[:5], Slopes: x[5:11], Squares: x[11:15], Widths: x[15:17], Directions: x[17:],
	}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		model screen.Config
		want  []byte
	}{
		{"cells of shells and pairs", smallConfig(), smallFile()},
		{"a tail: one section more", tailed, tailedFile()},
		{"one cluster, one label, one dimension, and nothing else",
			screen.Config{Dim: 1, Labels: 1, Clusters: []float32{0}, Lists: make([]screen.List, 1)},
			write(1, 1, 1, [32]byte{}, []sectionBytes{
				{1, 0, floats(0)}, {2, 0, cellBytes(0, 0, 0, nil)}, {3, 0, le32(0, 0)}, {4, 0, nil}, {5, 0, nil},
				{6, 0, ladderBytes(1, 0, 0, 0, 0, screen.Rung{Budget: 1})}, {7, 0, []byte("{}")},
			})},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := screen.NewModel(c.model)
			if err != nil {
				t.Fatal(err)
			}
			if got := encode(t, m); !bytes.Equal(got, c.want) {
				t.Errorf("found\n% x\nexpected\n% x", got, c.want)
			}
		})
	}
	t.Run("the checksum of FORMAT.md's example", func(t *testing.T) {
		if c := crc([]byte("123456789")); c != 0xE3069283 {
			t.Errorf("found %#x, expected 0xe3069283", c)
		}
	})
}

// reader takes a file apart as FORMAT.md says. It checks nothing.
type reader struct{ b []byte }

func (r *reader) take(n int) []byte {
	x := r.b[:n]
	r.b = r.b[n:]
	return x
}

func (r *reader) u32() int { return int(binary.LittleEndian.Uint32(r.take(4))) }

func (r *reader) f64s(n int) (x []float64) {
	for range n {
		x = append(x, math.Float64frombits(binary.LittleEndian.Uint64(r.take(8))))
	}
	return x
}

func (r *reader) f32s(n int) (x []float32) {
	for range n {
		x = append(x, math.Float32frombits(uint32(r.u32())))
	}
	return x
}

// readByTheFormat is the configuration of a file's model.
func readByTheFormat(t failer, file []byte) (c screen.Config) {
	le := binary.LittleEndian
	sections := map[uint32]*reader{}
	for i := range int(le.Uint32(file[12:])) {
		entry := file[128+32*i:]
		at := le.Uint64(entry[8:])
		sections[le.Uint32(entry)] = &reader{file[at : at+le.Uint64(entry[16:])]}
	}
	c.Labels, c.Dim = int(le.Uint64(file[24:])), int(le.Uint64(file[32:]))
	r := int(le.Uint64(file[40:]))
	copy(c.Fingerprint[:], file[48:])
	c.Clusters = sections[1].f32s(r * c.Dim)
	cells := sections[2]
	shells, pairs := cells.u32(), cells.u32()
	c.PairMargin, c.Shells = cells.f64s(1)[0], cells.f64s(shells)
	for range pairs {
		c.Pairs = append(c.Pairs, screen.Pair{First: uint32(cells.u32()), Second: uint32(cells.u32())})
	}
	c.Always = sections[3].u32()
	for range r*(1+shells) + pairs {
		l := screen.List{Shares: []uint16{}}
		for range sections[3].u32() {
			l.IDs = append(l.IDs, uint32(sections[4].u32()))
			l.Shares = append(l.Shares, le.Uint16(sections[5].take(2)))
		}
		c.Lists = append(c.Lists, l)
	}
	ladder := sections[6]
	n, at := ladder.u32(), ladder.u32()
	c.K, c.HeldOut = ladder.u32(), ladder.u32()
	c.ExactMargin = ladder.f64s(1)[0]
	for range n {
		x := screen.Rung{Budget: ladder.f64s(1)[0], Share: uint16(ladder.u32()), P99Candidates: ladder.u32(), MaxCandidates: ladder.u32()}
		ladder.u32()
		e := ladder.f64s(7)
		x.MeanCandidates, x.Precision1, x.PrecisionK = e[0], screen.Estimate{Value: e[1], Low: e[2], High: e[3]}, screen.Estimate{Value: e[4], Low: e[5], High: e[6]}
		c.Ladder = append(c.Ladder, x)
	}
	c.Budget = c.Ladder[at].Budget
	c.Record = sections[7].b
	if tail := sections[8]; tail != nil {
		share, m, q, n := tail.u32(), tail.u32(), tail.u32(), tail.u32()
		temperatures, levels := tail.f64s(m), tail.f64s(q)
		intercepts, slopes := tail.f32s(m*len(c.Lists)), tail.f32s(m*r*c.Dim)
		squares, widths, directions := tail.f32s(2*m*r), tail.f32s(m*r*q), tail.f32s(n*c.Dim)
		var err error
		if c.Tail, err = screen.NewTail(screen.TailConfig{
			Share: uint16(share), Cells: len(c.Lists), Clusters: r, Temperatures: temperatures, Levels: levels,
			Intercepts: intercepts, Slopes: slopes, Squares: squares, Widths: widths, Directions: directions,
		}); err != nil {
			t.Fatal(err)
		}
		if len(tail.b) > 0 {
			t.Fatal("bytes behind the tail")
		}
	}
	for kind := uint32(1); kind < 7; kind++ {
		if len(sections[kind].b) > 0 {
			t.Fatal("bytes behind section", kind)
		}
	}
	return c
}

// Another program that knows FORMAT.md alone reads the model that was written.
func TestAReaderOfTheFormatFindsTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawShape(t)
		if s.tail != nil && rapid.Bool().Draw(t, "temperatures") {
			s.tail = []float64{0.5, 1, 3}
		}
		in := s.instance(t)
		var file bytes.Buffer
		if _, err := in.model.WriteTo(&file); err != nil {
			t.Fatal(err)
		}
		c := readByTheFormat(t, file.Bytes())
		for i, l := range in.config.Lists {
			if !slices.Equal(c.Lists[i].IDs, l.IDs) || l.Shares != nil && !slices.Equal(c.Lists[i].Shares, l.Shares) {
				t.Fatalf("list %d: found %v, expected %v", i, c.Lists[i], l)
			}
		}
		if in.config.Ladder != nil && !slices.Equal(c.Ladder, in.config.Ladder) {
			t.Fatalf("found the ladder %v, expected %v", c.Ladder, in.config.Ladder)
		}
		again, err := screen.NewModel(c)
		if err != nil {
			t.Fatal(err)
		}
		var twice bytes.Buffer
		if _, err := again.WriteTo(&twice); err != nil || !bytes.Equal(twice.Bytes(), file.Bytes()) {
			t.Fatalf("another file of what was read: %v", err)
		}
	})
}

func TestFileRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.l2s")
	rapid.Check(t, func(t *rapid.T) {
		c := drawShape(t).instance(t).config
		record, err := json.Marshal(rapid.MapOf(rapid.String(), rapid.Int()).Draw(t, "record"))
		if err != nil {
			t.Fatal(err)
		}
		c.Record = record
		m, err := screen.NewModel(c)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Save(path); err != nil {
			t.Fatal(err)
		}
		file, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var written bytes.Buffer
		if _, err := m.WriteTo(&written); err != nil || !bytes.Equal(written.Bytes(), file) {
			t.Fatalf("WriteTo and Save differ: %v", err)
		}
		loaded, err := screen.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		read, err := screen.Read(file)
		if err != nil {
			t.Fatal(err)
		}
		clear(file) // Read keeps nothing of it
		for _, got := range []*screen.Model{loaded, read} {
			var again bytes.Buffer
			if _, err := got.WriteTo(&again); err != nil || !bytes.Equal(again.Bytes(), written.Bytes()) {
				t.Fatalf("not the same bytes again: %v", err)
			}
			if got.Dim() != m.Dim() || got.Labels() != m.Labels() || got.Fingerprint() != m.Fingerprint() || got.Budget() != m.Budget() ||
				got.PairMargin() != m.PairMargin() || got.ExactMargin() != m.ExactMargin() || (got.Tail() == nil) != (m.Tail() == nil) ||
				!slices.Equal(got.ClusterWeights(), m.ClusterWeights()) || !slices.Equal(got.Always(), m.Always()) || !bytes.Equal(got.Record(), record) ||
				!slices.Equal(got.Shells(), m.Shells()) || !slices.Equal(got.Pairs(), m.Pairs()) || !slices.Equal(got.Ladder(), m.Ladder()) {
				t.Fatal("another model")
			}
			if m.Tail() != nil && !reflect.DeepEqual(got.Tail().Config(), m.Tail().Config()) {
				t.Fatalf("the tail %+v, want %+v", got.Tail().Config(), m.Tail().Config())
			}
			for cell := range m.Cells() {
				if got, want := got.List(cell), m.List(cell); !slices.Equal(got.IDs, want.IDs) || !slices.Equal(got.Shares, want.Shares) {
					t.Fatalf("list %d: %v, want %v", cell, got, want)
				}
			}
		}
	})
}

// put returns an edit that writes b at an offset.
func put(offset int, b []byte) func([]byte) []byte {
	return func(file []byte) []byte {
		copy(file[offset:], b)
		return file
	}
}

// with returns an edit that writes the file anew with other sections.
func with(edit func([]sectionBytes) []sectionBytes) func([]byte) []byte {
	return func([]byte) []byte { return write(10, 3, 2, smallFingerprint, edit(smallSections())) }
}

// data returns an edit that replaces the content of a section.
func data(index int, b []byte) func([]byte) []byte {
	return with(func(s []sectionBytes) []sectionBytes {
		s[index].data = b
		return s
	})
}

// rung returns an edit that writes b at an offset of the section of the ladder.
func rung(offset int, b []byte) func([]byte) []byte { return put(704+offset, b) }

// withTail returns an edit that writes the file with a tail.
func withTail(flags uint32, content []byte) func([]byte) []byte {
	return with(func(s []sectionBytes) []sectionBytes { return append(s, sectionBytes{8, flags, content}) })
}

// withTailNumber returns an edit that writes the file with a tail that has a NaN.
func withTailNumber(at int) func([]byte) []byte {
	x := tailNumbers()
	x[at] = float32(math.NaN())
	return withTail(1, tailBytes(600, 1, 1, 1, []float64{1, 0.5}, x...))
}

// entry is the offset of a field in the section table.
func entry(index, field int) int { return 128 + 32*index + field }

const (
	withoutSeal = false
	sealed      = true
)

var brokenFiles = []struct {
	name string
	edit func([]byte) []byte
	seal bool
	want string
}{
	// Not a screen file, or part of one.
	{"empty", func(b []byte) []byte { return nil }, withoutSeal, "header: found an empty file, expected at least 128 bytes"},
	{"a text", func(b []byte) []byte { return []byte("hello, world") }, withoutSeal, "magic: found 68 65 6c 6c 6f 2c 20 77, expected 89 4c 32 53 0d 0a 1a 0a: not a screen file"},
	{"a short text", func(b []byte) []byte { return []byte("hi") }, withoutSeal, "magic: found 68 69, expected 89 4c 32 53 0d 0a 1a 0a: not a screen file"},
	{"an .npy file", put(0, []byte("\x93NUMPY\x01\x00")), withoutSeal, "magic: found 93 4e 55 4d 50 59 01 00, expected 89 4c 32 53 0d 0a 1a 0a: not a screen file"},
	{"line ends converted", put(4, []byte("\n\x1a\n")), withoutSeal, "magic: found 89 4c 32 53 0a 1a 0a 0a, expected 89 4c 32 53 0d 0a 1a 0a: not a screen file"},
	{"cut in the magic", func(b []byte) []byte { return b[:5] }, withoutSeal, "header: found 5 bytes, expected at least 128"},
	{"cut in the header", func(b []byte) []byte { return b[:127] }, withoutSeal, "header: found 127 bytes, expected at least 128"},
	{"cut after the header", func(b []byte) []byte { return b[:128] }, withoutSeal, "file size: found 128 bytes, expected the 960 that the header states"},
	{"cut in the table", func(b []byte) []byte { return b[:200] }, withoutSeal, "file size: found 200 bytes, expected the 960 that the header states"},
	{"cut after the table", func(b []byte) []byte { return b[:384] }, withoutSeal, "file size: found 384 bytes, expected the 960 that the header states"},
	{"cut in section 1", func(b []byte) []byte { return b[:388] }, withoutSeal, "file size: found 388 bytes, expected the 960 that the header states"},
	{"cut before section 5", func(b []byte) []byte { return b[:640] }, withoutSeal, "file size: found 640 bytes, expected the 960 that the header states"},
	{"cut by a byte", func(b []byte) []byte { return b[:959] }, withoutSeal, "file size: found 959 bytes, expected the 960 that the header states"},
	{"a byte more", func(b []byte) []byte { return append(b, 0) }, withoutSeal, "file size: found 961 bytes, expected the 960 that the header states"},
	{"a block more", func(b []byte) []byte { return append(b, make([]byte, 64)...) }, withoutSeal, "file size: found 1024 bytes, expected the 960 that the header states"},

	// Damage that a checksum finds.
	{"header damaged", put(24, []byte{11}), withoutSeal, "header: checksum: found "},
	{"fingerprint damaged", put(60, []byte{11}), withoutSeal, "header: checksum: found "},
	{"header checksum damaged", func(b []byte) []byte { b[124] ^= 1; return b }, withoutSeal, "header: checksum: found "},
	{"table damaged", put(entry(2, 16), []byte{9}), withoutSeal, "section table: checksum: found "},
	{"clusters damaged", put(384, []byte{9}), withoutSeal, "clusters: checksum: found "},
	{"cells damaged", put(448, []byte{9}), withoutSeal, "cells: checksum: found "},
	{"sizes damaged", put(512, []byte{9}), withoutSeal, "sizes: checksum: found "},
	{"ids damaged", put(576, []byte{9}), withoutSeal, "ids: checksum: found "},
	{"shares damaged", put(640, []byte{9}), withoutSeal, "shares: checksum: found "},
	{"ladder damaged", put(704, []byte{9}), withoutSeal, "ladder: checksum: found "},
	{"record damaged", put(896, []byte{9}), withoutSeal, "record: checksum: found "},
	{"tail damaged", func([]byte) []byte { return put(960, []byte{9})(tailedFile()) }, withoutSeal, "tail: checksum: found "},
	{"padding of the table", put(370, []byte{1}), withoutSeal, "section table: padding: found 0x01 at offset 370, expected zero"},
	{"padding of section 1", put(408, []byte{1}), withoutSeal, "clusters: padding: found 0x01 at offset 408, expected zero"},
	{"padding of section 6", put(895, []byte{255}), withoutSeal, "ladder: padding: found 0xff at offset 895, expected zero"},
	{"padding at the end", put(959, []byte{1}), withoutSeal, "record: padding: found 0x01 at offset 959, expected zero"},

	// From here on the checksums are right: a file made to deceive.
	{"version 0", put(8, le32(0)), sealed, "version: found 0, expected 2"},
	{"version 1", put(8, le32(1)), sealed, "version: found 1, expected 2"},
	{"version 3, unknown layout", put(8, le32(3)), withoutSeal, "version: found 3, expected 2"},
	{"header not zero", put(84, []byte{7}), sealed, "header: found 0x07 at offset 84, expected zero"},
	{"header not zero at the end", put(123, []byte{7}), sealed, "header: found 0x07 at offset 123, expected zero"},
	{"no sections", put(12, le32(0)), sealed, "section count: found 0, expected 7 to 64"},
	{"6 sections", put(12, le32(6)), sealed, "section count: found 6, expected 7 to 64"},
	{"65 sections", put(12, le32(65)), sealed, "section count: found 65, expected 7 to 64"},
	{"2^32-1 sections", put(12, le32(math.MaxUint32)), sealed, "section count: found 4294967295, expected 7 to 64"},
	{"64 sections in a small file", put(12, le32(64)), sealed, "file size: found 960 in the header, expected a multiple of 64 of at least 2176"},
	{"size 0", put(16, le64(0)), sealed, "file size: found 0 in the header, expected a multiple of 64 of at least 384"},
	{"size not of 64", put(16, le64(961)), sealed, "file size: found 961 in the header, expected a multiple of 64 of at least 384"},
	{"size too small", put(16, le64(896)), sealed, "file size: found 960 bytes, expected the 896 that the header states"},
	{"size too large", put(16, le64(1024)), sealed, "file size: found 960 bytes, expected the 1024 that the header states"},
	{"size 2^63", put(16, le64(1<<63)), sealed, "file size: found 9223372036854775808 in the header, expected a multiple of 64 of at least 384"},
	{"labels 0", put(24, le64(0)), sealed, "labels: found 0, expected 1 to " + mostLabels},
	{"labels 2^32", put(24, le64(1<<32)), sealed, "labels: found 4294967296, expected 1 to " + mostLabels},
	{"dim 0", put(32, le64(0)), sealed, "dim: found 0, expected 1 to " + mostLabels},
	{"dim 2^63", put(32, le64(1<<63)), sealed, "dim: found 9223372036854775808, expected 1 to " + mostLabels},
	{"clusters 0", put(40, le64(0)), sealed, "clusters: found 0, expected 1 to " + mostLabels},
	{"clusters 2^64-1", put(40, le64(math.MaxUint64)), sealed, "clusters: found 18446744073709551615, expected 1 to " + mostLabels},
	{"another dim", put(32, le64(4)), sealed, "clusters: length: found 24 bytes, expected 4 for each of 2 x 4 elements"},
	{"clusters x dim overflows", func(b []byte) []byte {
		return put(32, le64(1<<30))(put(40, le64(1<<30))(b))
	}, sealed, "clusters: length: found 24 bytes, expected 4 for each of 1073741824 x 1073741824 elements"},
	{"dim and clusters exchanged", func(b []byte) []byte { return put(32, le64(2))(put(40, le64(3))(b)) }, sealed,
		"sizes: length: found 24 bytes, expected 4, and 4 for each of 7 cells"},

	// The section table.
	{"a section missing", func(b []byte) []byte { return write(10, 3, 2, smallFingerprint, smallSections()[:6]) }, sealed, "section count: found 6, expected 7 to 64"},
	{"a section twice", with(func(s []sectionBytes) []sectionBytes { return slices.Insert(s, 2, s[1]) }), sealed,
		"section table: entry 2: kind: found 2, expected 3 (sizes)"},
	{"the last section twice", with(func(s []sectionBytes) []sectionBytes { return append(s, s[6]) }), sealed,
		"section table: entry 7: kind: found 7 after 7, expected ascending, distinct kinds"},
	{"sections exchanged", with(func(s []sectionBytes) []sectionBytes { s[0], s[1] = s[1], s[0]; return s }), sealed,
		"section table: entry 0: kind: found 2, expected 1 (clusters)"},
	{"kind 0", put(entry(0, 0), le32(0)), sealed, "section table: entry 0: kind: found 0, expected 1 (clusters)"},
	{"an unknown kind in place of a known one", put(entry(6, 0), le32(9)), sealed, "section table: entry 6: kind: found 9, expected 7 (record)"},
	{"an unknown section that is required", with(func(s []sectionBytes) []sectionBytes { return append(s, sectionBytes{16, 0, nil}) }), sealed,
		"section of kind 16: flags: found 0x0, expected 1 (optional): the file needs a newer version of this package"},
	{"an unknown flag", with(func(s []sectionBytes) []sectionBytes { return append(s, sectionBytes{16, 3, nil}) }), sealed,
		"section of kind 16: flags: found 0x3, expected 1 (optional): the file needs a newer version of this package"},
	{"optional sections exchanged", with(func(s []sectionBytes) []sectionBytes {
		return append(s, sectionBytes{17, 1, nil}, sectionBytes{16, 1, nil})
	}), sealed, "section table: entry 8: kind: found 16 after 17, expected ascending, distinct kinds"},
	{"a known section that is optional", put(entry(3, 4), le32(1)), sealed, "ids: flags: found 0x1, expected 0"},
	{"an entry not zero", put(entry(1, 28), le32(5)), sealed, "cells: entry: found 0x5 in its last field, expected zero"},
	{"a section over the header", put(entry(0, 8), le64(0)), sealed, "clusters: offset: found 0, expected 384, the end of what comes before"},
	{"sections that overlap", put(entry(1, 8), le64(384)), sealed, "cells: offset: found 384, expected 448, the end of what comes before"},
	{"a section not aligned", put(entry(1, 8), le64(449)), sealed, "cells: offset: found 449, expected 448, the end of what comes before"},
	{"a gap", put(entry(2, 8), le64(576)), sealed, "sizes: offset: found 576, expected 512, the end of what comes before"},
	{"a section behind the file", put(entry(6, 8), le64(960)), sealed, "record: offset: found 960, expected 896, the end of what comes before"},
	{"offset 2^64-64", put(entry(6, 8), le64(math.MaxUint64-63)), sealed, "record: offset: found 18446744073709551552, expected 896, the end of what comes before"},
	{"a section that leaves the file", put(entry(6, 16), le64(65)), sealed, "record: length: found 65, expected at most the 64 bytes left of the file"},
	{"a section as long as memory", put(entry(0, 16), le64(math.MaxUint64)), sealed, "clusters: length: found 18446744073709551615, expected at most the 576 bytes left of the file"},
	{"a section longer than what follows allows", put(entry(0, 16), le64(100)), sealed, "cells: offset: found 448, expected 512, the end of what comes before"},
	{"the last section too short", func(b []byte) []byte { return put(16, le64(1024))(append(b, make([]byte, 64)...)) }, sealed,
		"file size: found 1024 bytes, expected 960, the end of the last section"},
	{"an optional section damaged", func([]byte) []byte {
		return put(960, []byte{9})(write(10, 3, 2, smallFingerprint, append(smallSections(), sectionBytes{16, 1, []byte("abc")})))
	}, withoutSeal, "section of kind 16: checksum: found "},

	// Cells.
	{"cells of 15 bytes", data(1, make([]byte, 15)), sealed, "cells: length: found 15 bytes, expected at least 16"},
	{"2^32-1 shells", data(1, cellBytes(math.MaxUint32, 1, 1, []float64{0.5}, 0, 1)), sealed, "cells: length: found 32 bytes, expected 34359738384 for 4294967295 shells and 1 pairs"},
	{"2^32-1 pairs", data(1, cellBytes(1, math.MaxUint32, 1, []float64{0.5}, 0, 1)), sealed, "cells: length: found 32 bytes, expected 34359738384 for 1 shells and 4294967295 pairs"},
	{"half a pair", data(1, cellBytes(1, 1, 1, []float64{0.5}, 0)), sealed, "cells: length: found 28 bytes, expected 32 for 1 shells and 1 pairs"},
	{"a pair too many", data(1, cellBytes(1, 1, 1, []float64{0.5}, 0, 1, 2, 3)), sealed, "cells: length: found 40 bytes, expected 32 for 1 shells and 1 pairs"},
	{"17 shells", data(1, cellBytes(17, 0, 1, make([]float64, 17))), sealed, "cells: shells: found 17 cosines, expected at most 16"},
	{"more cells than bytes", func([]byte) []byte {
		cosines := make([]float64, 16)
		for i := range cosines {
			cosines[i] = -float64(i) / 100
		}
		return write(10, 1, 1000, smallFingerprint, append([]sectionBytes{{1, 0, make([]byte, 4000)}, {2, 0, cellBytes(16, 0, 1, cosines)}}, smallSections()[2:]...))
	}, sealed, "cells: found 1000 clusters in each of 17 shells, expected a file with a size for each"},
	{"a cosine of 1", data(1, cellBytes(1, 1, 1, []float64{1}, 0, 1)), sealed, "cells: shells: found cosine 1 at position 0, expected descending numbers above -1 and below 1"},
	{"a cosine of NaN", data(1, cellBytes(1, 1, 1, []float64{math.NaN()}, 0, 1)), sealed, "cells: shells: found cosine NaN at position 0, expected descending numbers above -1 and below 1"},
	{"a pair of one cell", data(1, cellBytes(1, 1, 1, []float64{0.5}, 1, 1)), sealed, "cells: pairs: found cells 1 and 1 at position 0, expected two ascending below 4"},
	{"a pair with a cell beyond", data(1, cellBytes(1, 1, 1, []float64{0.5}, 0, math.MaxUint32)), sealed, "cells: pairs: found cells 0 and 4294967295 at position 0, expected two ascending below 4"},
	{"a pair across shells", data(1, cellBytes(1, 1, 1, []float64{0.5}, 1, 2)), sealed, "cells: pairs: found cells 1 and 2 at position 0, expected two of one shell of 2 clusters"},
	{"a pair twice", data(1, cellBytes(1, 2, 1, []float64{0.5}, 0, 1, 0, 1)), sealed, "cells: pairs: found cells 0 and 1 after 0 and 1 at position 1, expected ascending, distinct pairs"},
	{"a negative pair margin", data(1, cellBytes(1, 1, -1, []float64{0.5}, 0, 1)), sealed, "cells: pair margin: found -1, expected a finite number that is not negative"},
	{"a pair margin of negative zero", data(1, cellBytes(1, 1, math.Copysign(0, -1), []float64{0.5}, 0, 1)), sealed, "cells: pair margin: found -0, expected a finite number that is not negative"},
	{"an infinite pair margin", data(1, cellBytes(1, 1, math.Inf(1), []float64{0.5}, 0, 1)), sealed, "cells: pair margin: found +Inf, expected a finite number that is not negative"},

	// The ladder.
	{"a ladder of 23 bytes", data(5, make([]byte, 23)), sealed, "ladder: length: found 23 bytes, expected at least 24"},
	{"no budgets", data(5, ladderBytes(0, 0, 5, 100, 0)), sealed, "ladder: found 0 budgets and the default one at 0, expected 1 to 64, and one of them"},
	{"65 budgets", data(5, ladderBytes(65, 0, 5, 100, 0, make([]screen.Rung, 65)...)), sealed, "ladder: found 65 budgets and the default one at 0, expected 1 to 64, and one of them"},
	{"2^32-1 budgets", data(5, ladderBytes(math.MaxUint32, 0, 5, 100, 0, smallRungs()...)), sealed, "ladder: length: found 184 bytes, expected 343597383624 for 4294967295 budgets"},
	{"a budget too few", data(5, ladderBytes(2, 0, 5, 100, 0, smallRungs()[:1]...)), sealed, "ladder: length: found 104 bytes, expected 184 for 2 budgets"},
	{"a default budget beyond", data(5, ladderBytes(2, 2, 5, 100, 0, smallRungs()...)), sealed, "ladder: found 2 budgets and the default one at 2, expected 1 to 64, and one of them"},
	{"figures of 2^31 labels", data(5, ladderBytes(2, 1, 1<<31, 100, 0, smallRungs()...)), sealed, "ladder: found 2147483648 in word 2, expected at most 2147483647"},
	{"figures of 2^32-1 contexts", data(5, ladderBytes(2, 1, 5, math.MaxUint32, 0, smallRungs()...)), sealed, "ladder: found 4294967295 in word 3, expected at most 2147483647"},
	{"figures of more labels than there are", data(5, ladderBytes(2, 1, 11, 100, 0, smallRungs()...)), sealed, "ladder: found k 11 and 100 held-out contexts, expected 0 to the 10 labels, and 0 or more"},
	{"an exact margin of NaN", data(5, ladderBytes(2, 1, 5, 100, math.NaN(), smallRungs()...)), sealed, "exact margin: found NaN, expected a finite number that is not negative"},
	{"an exact margin of negative zero", data(5, ladderBytes(2, 1, 5, 100, math.Copysign(0, -1), smallRungs()...)), sealed, "exact margin: found -0, expected a finite number that is not negative"},
	{"a share of 17 bits", rung(32, le32(1<<16)), sealed, "ladder: rung 0: found the words [65536 2 3 0], expected a share of at most 65535, two numbers of at most 2147483647, and 0"},
	{"2^31 candidates", rung(40, le32(1<<31)), sealed, "ladder: rung 0: found the words [600 2 2147483648 0], expected a share of at most 65535, two numbers of at most 2147483647, and 0"},
	{"a word that is not 0", rung(44, le32(1)), sealed, "ladder: rung 0: found the words [600 2 3 1], expected a share of at most 65535, two numbers of at most 2147483647, and 0"},
	{"budgets that descend", rung(24, doubles(4)), sealed, "ladder: rung 1: found budget 4, expected finite numbers above 0, ascending"},
	{"shares that ascend", data(5, ladderBytes(2, 1, 5, 100, 0, screen.Rung{Budget: 1}, screen.Rung{Budget: 2, Share: 1})), sealed, "ladder: rung 1: found share 1 after 0, expected shares that do not ascend"},
	{"a mean of infinity", rung(48, doubles(math.Inf(1))), sealed, "ladder: rung 0: found +Inf, 2 and 3 candidates, expected a mean, a 99th percentile and a largest number"},
	{"a precision outside its interval", rung(56, doubles(0.2)), sealed, "ladder: rung 0: found precision 0.2 within 0.25 and 0.75, expected numbers from 0 to 1 in order"},

	// The tail: see tailNumbers.
	{"a tail that must be known", withTail(0, tailSection().data), sealed, "tail: flags: found 0x0, expected 1 (optional)"},
	{"a tail with an unknown flag", withTail(3, tailSection().data), sealed, "tail: flags: found 0x3, expected 1 (optional)"},
	{"an empty tail", withTail(1, nil), sealed, "tail: length: found 0 bytes, expected at least 16"},
	{"a tail of a share of 17 bits", withTail(1, tailBytes(1<<16, 1, 1, 1, []float64{1, 0.5}, tailNumbers()...)), sealed,
		"tail: found share 65536, 1 temperatures, 1 levels and 1 directions, expected at most 65535, 1 to 64, 0 to 64 and 1 to 64"},
	{"no temperatures", withTail(1, tailBytes(0, 0, 1, 1, nil)), sealed, "tail: found share 0, 0 temperatures, 1 levels and 1 directions, expected at most 65535, 1 to 64, 0 to 64 and 1 to 64"},
	{"2^32-1 levels", withTail(1, tailBytes(0, 1, math.MaxUint32, 1, nil)), sealed, "tail: found share 0, 1 temperatures, 4294967295 levels and 1 directions, expected at most 65535, 1 to 64, 0 to 64 and 1 to 64"},
	{"65 directions", withTail(1, tailBytes(0, 1, 1, 65, nil)), sealed, "tail: found share 0, 1 temperatures, 1 levels and 65 directions, expected at most 65535, 1 to 64, 0 to 64 and 1 to 64"},
	{"a tail too short", withTail(1, tailBytes(600, 1, 1, 1, []float64{1, 0.5}, tailNumbers()[1:]...)), sealed,
		"tail: length: found 108 bytes, expected 112 for 1 temperatures, 1 levels and 1 directions, 5 cells of 2 clusters and dim 3"},
	{"a temperature of 0", withTail(1, tailBytes(600, 1, 1, 1, []float64{0, 0.5}, tailNumbers()...)), sealed, "tail: temperatures: found 0 at 0, expected finite numbers of at least 1e-100, ascending"},
	{"a level of 1", withTail(1, tailBytes(600, 1, 1, 1, []float64{1, 1}, tailNumbers()...)), sealed, "tail: levels: found 1 at 0, expected numbers above 0 and below 1, ascending"},
	{"NaN in an intercept", withTailNumber(4), sealed, "tail: intercepts: found NaN at row 4, column 0, expected finite numbers"},
	{"NaN in a slope", withTailNumber(8), sealed, "tail: slopes: found NaN at row 1, column 0, expected finite numbers"},
	{"NaN in a square", withTailNumber(12), sealed, "tail: squares: found NaN at row 0, column 1, expected finite numbers"},
	{"NaN in a width", withTailNumber(16), sealed, "tail: widths: found NaN at row 1, column 0, expected numbers that are not negative and do not descend"},
	{"NaN in a direction", withTailNumber(19), sealed, "tail: directions: found NaN at row 0, column 2, expected finite numbers"},

	// The content.
	{"NaN in V", data(0, floats(1, 2, 3, float32(math.NaN()), 5, 6)), sealed, "cells: clusters: found NaN at row 1, column 0, expected finite numbers"},
	{"Inf in V", data(0, floats(1, 2, float32(math.Inf(-1)), 4, 5, 6)), sealed, "cells: clusters: found -Inf at row 0, column 2, expected finite numbers"},
	{"V too short", data(0, floats(1, 2, 3, 4, 5)), sealed, "clusters: length: found 20 bytes, expected 4 for each of 2 x 3 elements"},
	{"V too long by a byte", data(0, append(floats(1, 2, 3, 4, 5, 6), 0)), sealed, "clusters: length: found 25 bytes, expected 4 for each of 2 x 3 elements"},
	{"a size too few", data(2, le32(1, 3, 3, 1, 2)), sealed, "sizes: length: found 20 bytes, expected 4, and 4 for each of 5 cells"},
	{"a size above L", data(2, le32(1, 3, 3, 1, 11, 3)), sealed, "sizes: list 3: found 11 ids, expected at most the 10 labels"},
	{"a size of 2^32-1", data(2, le32(1, math.MaxUint32, 3, 1, 2, 3)), sealed, "sizes: list 0: found 4294967295 ids, expected at most the 10 labels"},
	{"sizes that sum to less", data(2, le32(1, 3, 3, 1, 2, 2)), sealed, "ids: length: found 48 bytes, expected 4 for each of 11 ids in the lists"},
	{"sizes that sum to more", data(2, le32(1, 3, 3, 1, 2, 4)), sealed, "ids: length: found 48 bytes, expected 4 for each of 13 ids in the lists"},
	{"2^32-1 ids by decree", data(2, le32(math.MaxUint32, 3, 3, 1, 2, 3)), sealed, "lists: found 11 ids in every list by decree, expected 0 to the 3 of list 0"},
	{"more ids by decree than a list has", data(2, le32(2, 3, 3, 1, 2, 3)), sealed, "lists: list 0: found share 500 at position 1, expected 65535 of an id that is there by decree"},
	{"half an id", data(3, le32(3, 1, 5, 3, 8, 0, 3, 3, 2, 3, 9, 4)[:46]), sealed, "ids: length: found 46 bytes, expected 4 for each of 12 ids in the lists"},
	{"ids of one share out of order", data(3, le32(3, 5, 1, 3, 8, 0, 3, 3, 2, 3, 9, 4)), sealed, "lists: list 0: found id 1 after 5 at position 2, expected ascending, distinct ids of one share"},
	{"an id twice", data(3, le32(3, 1, 5, 3, 8, 8, 3, 3, 2, 3, 9, 4)), sealed, "lists: list 1: found id 8 twice, expected distinct ids"},
	{"an id of L", data(3, le32(3, 1, 5, 3, 8, 10, 3, 3, 2, 3, 9, 4)), sealed, "lists: list 1: found id 10 at position 2, expected ids below 10 labels"},
	{"an id by decree that a list lacks", data(3, le32(3, 1, 5, 3, 8, 0, 4, 3, 2, 3, 9, 4)), sealed, "lists: list 2: found other ids at its head than at the head of list 0, expected the same 1"},
	{"half a share", data(4, make([]byte, 23)), sealed, "shares: length: found 23 bytes, expected 2 for each of 12 ids in the lists"},
	{"a share of an id by decree", data(4, le16(65534, 500, 500, 65535, 900, 7, 65535, 65535, 1, 65535, 65535, 0)), sealed, "lists: list 0: found share 65534 at position 0, expected 65535 of an id that is there by decree"},
	{"shares of a list that ascend", data(4, le16(65535, 500, 500, 65535, 900, 901, 65535, 65535, 1, 65535, 65535, 0)), sealed, "lists: list 1: found share 901 after 900 at position 2, expected shares that do not ascend"},
	{"an empty record", data(6, nil), sealed, "record: found unexpected end of JSON input, expected a JSON object"},
	{"a record that is no JSON", data(6, []byte("seed = 1")), sealed, "record: found invalid character 's' looking for beginning of value, expected a JSON object"},
	{"a record that is no object", data(6, []byte("[1]")), sealed, "record: found JSON that starts with '[', expected a JSON object"},
	{"a record cut short", data(6, []byte(`{"seed":`)), sealed, "record: found unexpected end of JSON input, expected a JSON object"},
	{"a record that is no UTF-8", data(6, []byte("{\"\xc3\":1}")), sealed, "record: found bytes that are not UTF-8, expected a JSON object"},
}

func TestBrokenFilesAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "broken.l2s")
	seen := map[string]bool{}
	for _, c := range brokenFiles {
		if seen[c.name] {
			t.Errorf("two cases are called %s", c.name)
		}
		seen[c.name] = true
		t.Run(c.name, func(t *testing.T) {
			file := c.edit(smallFile())
			if c.seal {
				seal(file)
			}
			// A wrong checksum is named with both values; the table gives the
			// beginning.
			check := func(m *screen.Model, err error, prefix string) {
				t.Helper()
				want := prefix + c.want
				if m != nil || err == nil || err.Error() != want && !(strings.HasSuffix(want, "checksum: found ") && strings.HasPrefix(err.Error(), want)) {
					t.Errorf("error %v\nwant %s", err, want)
				}
			}
			m, err := screen.Read(file)
			check(m, err, "screen: ")
			checkRead(t, file)
			if err := os.WriteFile(path, file, 0o600); err != nil {
				t.Fatal(err)
			}
			m, err = screen.Load(path)
			check(m, err, "screen: "+path+": ")
		})
	}
}

// Counts that no file of this size can hold take no memory.
func TestHostileCountsTakeNoMemory(t *testing.T) {
	// 4 x 2^31 x 2^31 is 0 in 64 bits, the length of the section.
	file := write(10, 1<<31, 1<<31, smallFingerprint, append([]sectionBytes{{1, 0, nil}}, smallSections()[1:]...))
	_, err := screen.Read(file)
	// If int has 32 bits already the dimension is refused.
	if err == nil || !strings.HasPrefix(err.Error(), "screen: clusters: length: ") && !strings.HasPrefix(err.Error(), "screen: dim: ") {
		t.Errorf("2^62 elements in 0 bytes: error %v", err)
	}
	checkRead(t, file)
	for shift := range 32 {
		for _, original := range [][]byte{smallFile(), tailedFile()} {
			for _, field := range []int{24, 32, 40, 448, 452, 512, 516, 704, 708, 712, 716, 960, 964, 968, 972} { // of the header, cells, sizes, ladder and tail
				if field < len(original) {
					checkRead(t, seal(put(field, le32(1<<shift))(bytes.Clone(original))))
				}
			}
		}
	}
}

func TestEveryTruncationIsRefused(t *testing.T) {
	file := smallFile()
	for n := range file {
		if _, err := screen.Read(file[:n]); err == nil {
			t.Errorf("the first %d of %d bytes were accepted", n, len(file))
		}
	}
}

func TestEveryFlippedBitIsRefused(t *testing.T) {
	file := smallFile()
	for i := range file {
		for bit := range 8 {
			file[i] ^= 1 << bit
			if _, err := screen.Read(file); err == nil {
				t.Errorf("byte %d, bit %d flipped: accepted", i, bit)
			}
			file[i] ^= 1 << bit
		}
	}
}

// checkRead is the promise of Read for any bytes: no panic, no more memory
// than a small multiple of their number, and what is accepted has these very
// bytes as its file.
func checkRead(t testing.TB, file []byte) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m, err := screen.Read(file)
	runtime.ReadMemStats(&after)
	// A row of V of dimension 1 has 4 bytes in the file, and 4 for the size
	// of its set; in memory it also has 64 bytes of codes.
	if used, limit := after.TotalAlloc-before.TotalAlloc, uint64(32*len(file)+1<<16); used > limit {
		t.Fatalf("%d bytes read, %d allocated", len(file), used)
	}
	if err != nil {
		if m != nil || !strings.HasPrefix(err.Error(), "screen: ") {
			t.Fatalf("model %v with error %v", m, err)
		}
		return
	}
	if again := encode(t, m); !bytes.Equal(again, file) {
		t.Fatalf("accepted\n% x\nwritten again\n% x", file, again)
	}
}

func TestAlteredFilesWithRightChecksums(t *testing.T) {
	accepted := 0
	for _, original := range [][]byte{smallFile(), tailedFile()} {
		for i := range original {
			for _, x := range []byte{1, 2, 0x80, 0xff} {
				file := bytes.Clone(original)
				file[i] ^= x
				seal(file)
				checkRead(t, file)
				if _, err := screen.Read(file); err == nil {
					accepted++
				}
			}
		}
	}
	// Other numbers in V, in the tail or in the fingerprint are another model.
	if accepted < 4*(24+32+24+32+80)/2 {
		t.Errorf("only %d accepted", accepted)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(smallFile())
	f.Add(write(10, 3, 2, smallFingerprint, append(smallSections(), sectionBytes{16, 1, []byte("later")})))
	f.Add(tailedFile())
	for _, c := range brokenFiles {
		f.Add(c.edit(smallFile()))
	}
	for seed := range uint64(4) {
		in := shape{labels: 40, dim: 5, clusters: 7, shells: int(seed), paired: 30, pairMargin: float64(seed % 2), contexts: 1, keep: 20, rungs: 3, always: 2, seed: seed}.instance(f)
		f.Add(encode(f, in.model))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		checkRead(t, file)
		// With right checksums the bytes reach the checks behind them.
		checkRead(t, seal(bytes.Clone(file)))
	})
}

func TestUnknownOptionalSectionsAreKept(t *testing.T) {
	file := write(10, 3, 2, smallFingerprint, append(smallSections(),
		sectionBytes{16, 1, bytes.Repeat([]byte("x"), 65)}, sectionBytes{1 << 31, 1, nil}))
	want := bytes.Clone(file)
	m, err := screen.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	clear(file)
	if got := encode(t, m); !bytes.Equal(got, want) {
		t.Errorf("written again\n% x\nwant\n% x", got, want)
	}
	if !slices.Equal(m.List(0).IDs, []uint32{3, 1, 5}) {
		t.Errorf("list 0: %v", m.List(0))
	}
}

// An error of Load names the file. What is no screen is refused by its first bytes and
// its size, however large it is.
func TestLoadReportsTheFile(t *testing.T) {
	const large = 1 << 40
	for _, c := range []struct {
		name  string
		start []byte // of a file of size bytes; without one there is no file
		size  int64
		want  string // behind the name of the file; or kind
		kind  error
	}{
		{name: "a missing file", kind: fs.ErrNotExist},
		{name: "a file of another kind", start: []byte("\x93NUMPY"), size: large, want: "magic: found 93 4e"},
		{name: "bytes behind the end", start: smallFile(), size: large,
			want: "file size: found 1099511627776 bytes, expected the 960 that the header states"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "m.l2s")
			if c.start != nil {
				if err := os.WriteFile(path, c.start, 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Truncate(path, c.size); err != nil {
					t.Skipf("the file system makes no sparse file of %d bytes: %v", c.size, err)
				}
			}
			_, err := screen.Load(path)
			if c.kind != nil {
				if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), path) {
					t.Errorf("found %v, expected %v, and the name of the file", err, c.kind)
				}
			} else if want := "screen: " + path + ": " + c.want; err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("found %v, expected %s", err, want)
			}
		})
	}
	t.Run("a folder", func(t *testing.T) {
		dir := t.TempDir()
		if _, err := screen.Load(dir); !errors.Is(err, syscall.EISDIR) || !strings.Contains(err.Error(), dir) {
			t.Errorf("found %v, expected EISDIR, and the name of the folder", err)
		}
	})
}

func TestSaveReplacesTheFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "model.l2s")
	if err := os.WriteFile(path, bytes.Repeat([]byte("old"), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := smallModel(t).Save(path); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, smallFile()) {
			t.Fatalf("%v, %d bytes", err, len(got))
		}
	}
	if names := list(t, dir); !slices.Equal(names, []string{"model.l2s"}) {
		t.Errorf("the folder holds %v", names)
	}
}

func TestSaveThatFailsLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	occupied := filepath.Join(dir, "folder")
	if err := os.MkdirAll(filepath.Join(occupied, "inner"), 0o700); err != nil {
		t.Fatal(err)
	}
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := list(t, dir)
	for _, c := range []struct{ name, path string }{
		{"a folder that is missing", filepath.Join(dir, "missing", "model.l2s")},
		{"a file instead of the folder", filepath.Join(plain, "model.l2s")},
		{"a folder instead of the file", occupied},
		{"a name that is too long", filepath.Join(dir, strings.Repeat("m", 5000))},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := smallModel(t).Save(c.path); err == nil || !strings.Contains(err.Error(), c.path) {
				t.Errorf("found error %v, expected one that names the file", err)
			}
			if after := list(t, dir); !slices.Equal(after, before) {
				t.Errorf("found %v in the folder, expected %v as before", after, before)
			}
		})
	}
}

func list(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if path != dir {
			names = append(names, strings.TrimPrefix(path, dir+string(filepath.Separator)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// failing takes some bytes and then fails.
type failing int

func (f *failing) Write(b []byte) (int, error) {
	n := min(int(*f), len(b))
	*f -= failing(n)
	if n < len(b) {
		return n, fmt.Errorf("no space left")
	}
	return n, nil
}

func TestWriteToReportsTheWriter(t *testing.T) {
	w := failing(100)
	if n, err := smallModel(t).WriteTo(&w); n != 100 || err == nil || err.Error() != "no space left" {
		t.Errorf("%d, %v", n, err)
	}
}
