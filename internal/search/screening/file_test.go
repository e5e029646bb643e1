package screening_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
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
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/search/tail"
	"github.com/learning-to-screen/l2s/internal/tests/screentest"
)

// These tests use FORMAT.md alone: they write files themselves.

func encode(t testing.TB, m *screening.Model) []byte {
	t.Helper()
	var b bytes.Buffer
	n, err := m.WriteTo(&b)
	if err != nil {
		t.Fatal(err)
	}
	if n != int64(b.Len()) {
		t.Fatalf("WriteTo returned %d bytes and wrote %d", n, b.Len())
	}
	return b.Bytes()
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

// counts are the counts in a header.
type counts struct {
	labels, dim, clusters, always, k, heldOut                uint32
	shells, budgets, share, temperatures, levels, directions uint16
}

// parts are the numbers after a header.
type parts struct {
	budget                                          float64
	clusters                                        []float32
	shells                                          []float64
	sizes, ids                                      []uint32
	shares                                          []uint16
	ladder                                          []byte
	temperatures, levels                            []float64
	intercepts, slopes, squares, widths, directions []float32
	ranges, cosines                                 []float64
	record                                          string
}

// write puts a file together as FORMAT.md describes.
func write(c counts, fingerprint [32]byte, p parts) []byte {
	head := append([]byte("\x89L2S\r\n\x1a\n"), le32(7, 0)...)
	head = append(append(head, le64(0)...), fingerprint[:]...)
	head = append(head, le32(c.labels, c.dim, c.clusters, c.always, c.k, c.heldOut, uint32(len(p.record)))...)
	head = append(append(head, le64(uint64(len(p.ids)))...), le16(c.shells, c.budgets, c.share, c.temperatures, c.levels, c.directions)...)
	return seal(size(slices.Concat(head, doubles(p.budget), floats(p.clusters...), doubles(p.shells...), le32(p.sizes...), le32(p.ids...), le16(p.shares...),
		p.ladder, doubles(p.temperatures...), doubles(p.levels...), floats(p.intercepts...), floats(p.slopes...), floats(p.squares...), floats(p.widths...), floats(p.directions...), doubles(p.ranges...), doubles(p.cosines...), []byte(p.record))))
}

// smallParts is the model that the tables below break: 10 labels, dimension 3, 2 clusters in 2
// shells. The parts of its file of 390 bytes begin at 104, 112, 136, 144, 160, 208, 232 and 380.
func smallParts() (counts, parts) {
	return counts{labels: 10, dim: 3, clusters: 2, always: 1, k: 5, heldOut: 100, shells: 1, budgets: 2}, parts{
		budget: 4, clusters: []float32{1, -2, 0.5, 4, 5, -0.25}, shells: []float64{0.5},
		sizes: []uint32{3, 3, 1, 5}, ids: []uint32{3, 1, 5, 3, 8, 0, 3, 3, 9, 2, 0, 4},
		shares: []uint16{65535, 500, 500, 65535, 900, 7, 65535, 65535, 65535, 1, 0, 0}, ladder: ladderBytes(smallRungs()...), record: `{"seed":1}`,
	}
}

// tailedParts is smallParts with a tail for one temperature, one level and one direction, whose
// parts begin at 388, 396, 404, 412, 436, 452, 460 and 472: its file has 578 bytes.
func tailedParts() (counts, parts) {
	c, p := smallParts()
	c.share, c.temperatures, c.levels, c.directions = 600, 1, 1, 1
	p.temperatures, p.levels, p.intercepts = []float64{1}, []float64{0.5}, []float32{1, 7}
	p.slopes, p.squares, p.widths, p.directions = []float32{0, 0.5, 2, -1, 0, 3}, []float32{0.5, 0.25, -1, 1}, []float32{0.25, 4}, []float32{1, 0, 2}
	p.ranges = []float64{1, 4, 0, 9, -2, math.Inf(1), math.Inf(1), math.Inf(-1), 0, 0, 0, 0}
	p.cosines = []float64{0.25, 0.5, math.Inf(-1), math.Inf(1)}
	return c, p
}

// ladderBytes are the budgets of a ladder.
func ladderBytes(rungs ...screening.Rung) (b []byte) {
	for _, x := range rungs {
		b = append(b, doubles(x.Budget, x.MeanCandidates, x.Precision1.Value, x.Precision1.Low, x.Precision1.High, x.PrecisionK.Value, x.PrecisionK.Low, x.PrecisionK.High)...)
		b = append(append(b, le32(uint32(x.P99Candidates), uint32(x.MaxCandidates))...), le16(x.Share)...)
	}
	return b
}

func smallRungs() []screening.Rung {
	return []screening.Rung{
		{Budget: 1.5, Share: 600, MeanCandidates: 1.25, P99Candidates: 2, MaxCandidates: 3, Precision1: screening.Estimate{Value: 0.5, Low: 0.25, High: 0.75}},
		{Budget: 4, PrecisionK: screening.Estimate{Value: 1, Low: 0.97, High: 1}},
	}
}

var smallFingerprint = [32]byte{1, 2, 3, 31: 255}

func smallFile() []byte {
	c, p := smallParts()
	return write(c, smallFingerprint, p)
}

func tailedFile() []byte {
	c, p := tailedParts()
	return write(c, smallFingerprint, p)
}

func smallConfig() screening.Config {
	return screening.Config{
		Dim: 3, Labels: 10, Clusters: []float32{1, -2, 0.5, 4, 5, -0.25},
		Shells: []float64{0.5}, Always: 1,
		Lists: []screening.List{
			{IDs: []uint32{3, 1, 5}, Shares: []uint16{65535, 500, 500}}, {IDs: []uint32{3, 8, 0}, Shares: []uint16{65535, 900, 7}},
			{IDs: []uint32{3}}, {IDs: []uint32{3, 9, 2, 0, 4}, Shares: []uint16{65535, 65535, 1, 0, 0}},
		},
		Ladder: smallRungs(), K: 5, HeldOut: 100,
		Fingerprint: smallFingerprint, Record: json.RawMessage(`{"seed":1}`),
	}
}

func smallModel(t testing.TB) *screening.Model {
	t.Helper()
	m, err := screening.NewModel(smallConfig())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// size makes the size in the header right, and seal the checksum.
func size(file []byte) []byte {
	if len(file) >= 24 {
		binary.LittleEndian.PutUint64(file[16:], uint64(len(file)))
	}
	return file
}

func seal(file []byte) []byte {
	if len(file) >= 16 {
		binary.LittleEndian.PutUint32(file[12:], crc(file[16:]))
	}
	return file
}

// The bytes of files of each kind, made from FORMAT.md by the functions above.
func TestTheFileIsWhatTheFormatSays(t *testing.T) {
	withTail := smallConfig()
	_, x := tailedParts()
	var err error
	if withTail.Tail, err = tail.New(tail.Config{
		Share: 600, Clusters: 2, Temperatures: x.temperatures, Levels: x.levels,
		Intercepts: x.intercepts, Slopes: x.slopes, Squares: x.squares, Widths: x.widths, Directions: x.directions, Ranges: x.ranges, Cosines: x.cosines,
	}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		model screening.Config
		want  []byte
	}{
		{"cells of shells", smallConfig(), smallFile()},
		{"a tail", withTail, tailedFile()},
		{"one cluster, one label, one dimension, and nothing else",
			screening.Config{Dim: 1, Labels: 1, Clusters: []float32{0}, Lists: make([]screening.List, 1)},
			write(counts{labels: 1, dim: 1, clusters: 1, budgets: 1}, [32]byte{}, parts{
				budget: 1, clusters: []float32{0}, sizes: []uint32{0}, ladder: ladderBytes(screening.Rung{Budget: 1}), record: "{}",
			})},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := screening.NewModel(c.model)
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

// reader takes a file apart as FORMAT.md describes. It checks nothing.
type reader struct{ b []byte }

func (r *reader) take(n int) []byte {
	x := r.b[:n]
	r.b = r.b[n:]
	return x
}

func (r *reader) u16() int { return int(binary.LittleEndian.Uint16(r.take(2))) }
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
func readByTheFormat(t screentest.Failer, file []byte) (c screening.Config) {
	b := &reader{file[24:]}
	copy(c.Fingerprint[:], b.take(32))
	c.Labels, c.Dim = b.u32(), b.u32()
	r := b.u32()
	c.Always, c.K, c.HeldOut = b.u32(), b.u32(), b.u32()
	record, n := b.u32(), b.u32()
	b.take(4) // of n
	shells, budgets, share, m, q, g := b.u16(), b.u16(), b.u16(), b.u16(), b.u16(), b.u16()
	c.Budget = b.f64s(1)[0]
	c.Clusters, c.Shells = b.f32s(r*c.Dim), b.f64s(shells)
	c.Lists = make([]screening.List, r*(1+shells))
	sizes := &reader{b.take(4 * len(c.Lists))}
	ids, shares := &reader{b.take(4 * n)}, &reader{b.take(2 * n)}
	for i := range c.Lists {
		c.Lists[i].Shares = []uint16{}
		for range sizes.u32() {
			c.Lists[i].IDs = append(c.Lists[i].IDs, uint32(ids.u32()))
			c.Lists[i].Shares = append(c.Lists[i].Shares, uint16(shares.u16()))
		}
	}
	for range budgets {
		e := b.f64s(8)
		x := screening.Rung{Budget: e[0], MeanCandidates: e[1], P99Candidates: b.u32(), MaxCandidates: b.u32(), Share: uint16(b.u16())}
		x.Precision1, x.PrecisionK = screening.Estimate{Value: e[2], Low: e[3], High: e[4]}, screening.Estimate{Value: e[5], Low: e[6], High: e[7]}
		c.Ladder = append(c.Ladder, x)
	}
	if m > 0 {
		temperatures, levels := b.f64s(m), b.f64s(q)
		intercepts, slopes := b.f32s(m*r), b.f32s(m*r*c.Dim)
		squares, widths, directions := b.f32s(2*m*r), b.f32s(m*r*q), b.f32s(g*c.Dim)
		ranges := b.f64s((2*m + 4) * r)
		cosines := b.f64s(2 * r)
		var err error
		if c.Tail, err = tail.New(tail.Config{
			Share: uint16(share), Clusters: r, Temperatures: temperatures, Levels: levels,
			Intercepts: intercepts, Slopes: slopes, Squares: squares, Widths: widths, Directions: directions, Ranges: ranges, Cosines: cosines,
		}); err != nil {
			t.Fatal(err)
		}
	}
	if c.Record = b.take(record); len(b.b)+len(ids.b)+len(shares.b) > 0 {
		t.Fatal("bytes after the record, or after the lists")
	}
	return c
}

// A program written from FORMAT.md alone reads the model.
func TestAReaderOfTheFormatFindsTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := screentest.DrawShape(draws(t))
		if s.Tail != nil && rapid.Bool().Draw(t, "temperatures") {
			s.Tail = []float64{0.5, 1, 3}
		}
		in := s.Instance(t)
		var file bytes.Buffer
		if _, err := in.Model.WriteTo(&file); err != nil {
			t.Fatal(err)
		}
		c := readByTheFormat(t, file.Bytes())
		for i, l := range in.Config.Lists {
			if !slices.Equal(c.Lists[i].IDs, l.IDs) || l.Shares != nil && !slices.Equal(c.Lists[i].Shares, l.Shares) {
				t.Fatalf("list %d: found %v, expected %v", i, c.Lists[i], l)
			}
		}
		if in.Config.Ladder != nil && !slices.Equal(c.Ladder, in.Config.Ladder) {
			t.Fatalf("found the ladder %v, expected %v", c.Ladder, in.Config.Ladder)
		}
		again, err := screening.NewModel(c)
		if err != nil {
			t.Fatal(err)
		}
		var twice bytes.Buffer
		if _, err := again.WriteTo(&twice); err != nil || !bytes.Equal(twice.Bytes(), file.Bytes()) {
			t.Fatalf("another file from the model that was read: %v", err)
		}
	})
}

func TestFileRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.l2s")
	rapid.Check(t, func(t *rapid.T) {
		c := screentest.DrawShape(draws(t)).Instance(t).Config
		record, err := json.Marshal(rapid.MapOf(rapid.String(), rapid.Int()).Draw(t, "record"))
		if err != nil {
			t.Fatal(err)
		}
		c.Record = record
		m, err := screening.NewModel(c)
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
		loaded, err := load(path)
		if err != nil {
			t.Fatal(err)
		}
		again, err := read(file)
		if err != nil {
			t.Fatal(err)
		}
		clear(file) // Read keeps nothing of it
		for _, got := range []*screening.Model{loaded, again} {
			var again bytes.Buffer
			if _, err := got.WriteTo(&again); err != nil || !bytes.Equal(again.Bytes(), written.Bytes()) {
				t.Fatalf("not the same bytes again: %v", err)
			}
			if got.Dim() != m.Dim() || got.Labels() != m.Labels() || got.Config().Fingerprint != m.Config().Fingerprint || got.Budget() != m.Budget() ||
				(got.Tail() == nil) != (m.Tail() == nil) ||
				!slices.Equal(got.Config().Clusters, m.Config().Clusters) || got.Config().Always != m.Config().Always || !bytes.Equal(got.Record(), record) ||
				!slices.Equal(got.Config().Shells, m.Config().Shells) || !slices.Equal(got.Ladder(), m.Ladder()) {
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

// with returns an edit that writes the file again with other counts and parts.
func with(edit func(c *counts, p *parts)) func([]byte) []byte {
	return func([]byte) []byte {
		c, p := smallParts()
		edit(&c, &p)
		return write(c, smallFingerprint, p)
	}
}

// withTail is with for a file that has a tail.
func withTail(edit func(c *counts, p *parts)) func([]byte) []byte {
	return func([]byte) []byte {
		c, p := tailedParts()
		edit(&c, &p)
		return write(c, smallFingerprint, p)
	}
}

// rungs returns an edit that writes the file with another ladder.
func rungs(edit func(x []screening.Rung) []screening.Rung) func([]byte) []byte {
	return with(func(c *counts, p *parts) {
		x := edit(smallRungs())
		c.budgets, p.ladder = uint16(len(x)), ladderBytes(x...)
	})
}

var nan32, nan = float32(math.NaN()), math.NaN()

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
	{"empty", func(b []byte) []byte { return nil }, withoutSeal, "header: found an empty file, expected at least 104 bytes"},
	{"a text", func(b []byte) []byte { return []byte("hello, world") }, withoutSeal, "magic: found 68 65 6c 6c 6f 2c 20 77, expected 89 4c 32 53 0d 0a 1a 0a: not a screen file"},
	{"a short text", func(b []byte) []byte { return []byte("hi") }, withoutSeal, "magic: found 68 69, expected 89 4c 32 53 0d 0a 1a 0a: not a screen file"},
	{"an .npy file", put(0, []byte("\x93NUMPY\x01\x00")), withoutSeal, "magic: found 93 4e 55 4d 50 59 01 00, expected 89 4c 32 53 0d 0a 1a 0a: not a screen file"},
	{"a preview", put(0, []byte("\x89L2P\r\n\x1a\n")), withoutSeal, "magic: found 89 4c 32 50 0d 0a 1a 0a, expected 89 4c 32 53 0d 0a 1a 0a: not a screen file"},
	{"line ends converted", put(4, []byte("\n\x1a\n")), withoutSeal, "magic: found 89 4c 32 53 0a 1a 0a 0a, expected 89 4c 32 53 0d 0a 1a 0a: not a screen file"},
	{"cut in the magic", func(b []byte) []byte { return b[:5] }, withoutSeal, "header: found 5 bytes, expected at least 104"},
	{"cut in the header", func(b []byte) []byte { return b[:103] }, withoutSeal, "header: found 103 bytes, expected at least 104"},
	{"cut after the header", func(b []byte) []byte { return b[:104] }, withoutSeal, "file size: found 104 bytes, expected the 390 that the header states"},
	{"cut in the clusters", func(b []byte) []byte { return b[:132] }, withoutSeal, "file size: found 132 bytes, expected the 390 that the header states"},
	{"cut before the shares", func(b []byte) []byte { return b[:232] }, withoutSeal, "file size: found 232 bytes, expected the 390 that the header states"},
	{"cut by a byte", func(b []byte) []byte { return b[:389] }, withoutSeal, "file size: found 389 bytes, expected the 390 that the header states"},
	{"a byte more", func(b []byte) []byte { return append(b, 0) }, withoutSeal, "file size: found 391 bytes, expected the 390 that the header states"},
	{"a block more", func(b []byte) []byte { return append(b, make([]byte, 64)...) }, withoutSeal, "file size: found 454 bytes, expected the 390 that the header states"},

	// Damage that the checksum finds.
	{"header damaged", put(56, []byte{11}), withoutSeal, "checksum: found "},
	{"fingerprint damaged", put(30, []byte{11}), withoutSeal, "checksum: found "},
	{"checksum damaged", func(b []byte) []byte { b[12] ^= 1; return b }, withoutSeal, "checksum: found "},
	{"budget damaged", put(104, []byte{9}), withoutSeal, "checksum: found "},
	{"clusters damaged", put(112, []byte{9}), withoutSeal, "checksum: found "},
	{"shells damaged", put(136, []byte{9}), withoutSeal, "checksum: found "},
	{"sizes damaged", put(144, []byte{9}), withoutSeal, "checksum: found "},
	{"ids damaged", put(160, []byte{9}), withoutSeal, "checksum: found "},
	{"shares damaged", put(208, []byte{9}), withoutSeal, "checksum: found "},
	{"ladder damaged", put(232, []byte{9}), withoutSeal, "checksum: found "},
	{"record damaged", put(388, []byte{9}), withoutSeal, "checksum: found "},
	{"tail damaged", func([]byte) []byte { return put(406, []byte{9})(tailedFile()) }, withoutSeal, "checksum: found "},

	// From here on the checksum is right: a file made to deceive.
	{"version 0", put(8, le32(0)), sealed, "version: found 0, expected 7: l2s train makes a new file"},
	{"version 6", put(8, le32(6)), sealed, "version: found 6, expected 7: l2s train makes a new file"},
	{"version 8, unknown layout", put(8, le32(8)), withoutSeal, "version: found 8, expected 7: l2s train makes a new file"},
	{"size 0", put(16, le64(0)), sealed, "file size: found 0 in the header, expected 104 to " + mostBytes},
	{"size too small", put(16, le64(397)), sealed, "file size: found 390 bytes, expected the 397 that the header states"},
	{"size too large", put(16, le64(1024)), sealed, "file size: found 390 bytes, expected the 1024 that the header states"},
	{"size 2^63", put(16, le64(1<<63)), sealed, "file size: found 9223372036854775808 in the header, expected 104 to " + mostBytes},
	{"labels 0", put(56, le32(0)), sealed, "labels: found 0, expected 1 to " + mostLabels},
	{"dim 0", put(60, le32(0)), sealed, "dim: found 0, expected 1 to " + mostLabels},
	{"clusters 0", put(64, le32(0)), sealed, "clusters: found 0, expected 1 to " + mostLabels},
	{"another dim", put(60, le32(4)), sealed, "record: found 2 bytes left of the file, expected 1 for each of [10]"},
	{"clusters x dim overflows", func(b []byte) []byte { return put(60, le32(1<<30))(put(64, le32(1<<30))(b)) }, sealed, "clusters: found 278 bytes left of the file, expected 4 for each of [1073741824 1073741824]"},
	{"dim and clusters exchanged", func(b []byte) []byte { return put(60, le32(2))(put(64, le32(3))(b)) }, sealed, "record: found 2 bytes left of the file, expected 1 for each of [10]"},
	{"V too short", with(func(c *counts, p *parts) { p.clusters = p.clusters[1:] }), sealed, "record: found 6 bytes left of the file, expected 1 for each of [10]"},
	{"V too long", with(func(c *counts, p *parts) { p.clusters = append(p.clusters, 1) }), sealed, "file size: found 4 bytes after the record, expected none"},
	{"a byte after the record", func(b []byte) []byte { return size(append(b, 0)) }, sealed, "file size: found 1 bytes after the record, expected none"},
	{"a record shorter than its length", func(b []byte) []byte { return size(b[:389]) }, sealed, "record: found 9 bytes left of the file, expected 1 for each of [10]"},

	// Cells.
	{"65,535 shells", put(92, le16(65535)), sealed, "shells: found 254 bytes left of the file, expected 8 for each of [65535]"},
	{"17 shells", with(func(c *counts, p *parts) {
		c.shells, p.shells, p.sizes = 17, make([]float64, 17), append(p.sizes, make([]uint32, 32)...)
	}), sealed, "shells: found 17 cosines, expected at most 16"},
	{"more cells than bytes", with(func(c *counts, p *parts) {
		c.dim, c.clusters, c.shells, p.clusters, p.shells = 1, 1000, 16, make([]float32, 1000), make([]float64, 16)
	}), sealed, "sizes: found 246 bytes left of the file, expected 4 for each of [17000]"},
	{"a cosine of 1", with(func(c *counts, p *parts) { p.shells[0] = 1 }), sealed, "shells: found cosine 1 at position 0, expected descending numbers above -1 and below 1"},
	{"a cosine of NaN", with(func(c *counts, p *parts) { p.shells[0] = nan }), sealed, "shells: found cosine NaN at position 0, expected descending numbers above -1 and below 1"},

	// The ladder.
	{"no budgets", rungs(func([]screening.Rung) []screening.Rung { return nil }), sealed, "ladder: found 0 budgets, expected 1 to 64"},
	{"65 budgets", rungs(func([]screening.Rung) []screening.Rung { return make([]screening.Rung, 65) }), sealed, "ladder: found 65 budgets, expected 1 to 64"},
	{"65,535 budgets", put(94, le16(65535)), sealed, "ladder: found 158 bytes left of the file, expected 74 for each of [65535]"},
	{"a budget too few", with(func(c *counts, p *parts) { p.ladder = p.ladder[:74] }), sealed, "ladder: found 84 bytes left of the file, expected 74 for each of [2]"},
	{"a default budget of 0", with(func(c *counts, p *parts) { p.budget = 0 }), sealed, "budget: found 0, expected one of the ladder"},
	{"a default budget that is not of the ladder", with(func(c *counts, p *parts) { p.budget = 2 }), sealed, "budget: found 2, expected one of the ladder"},
	{"a default budget of NaN", with(func(c *counts, p *parts) { p.budget = nan }), sealed, "budget: found NaN, expected one of the ladder"},
	{"figures of more labels than there are", with(func(c *counts, p *parts) { c.k = 11 }), sealed, "ladder: found k 11 and 100 held-out contexts, expected 0 to the 10 labels, and 0 or more"},
	{"2^31 candidates", rungs(func(x []screening.Rung) []screening.Rung {
		tooMany := uint32(1 << 31)
		x[0].MaxCandidates = int(tooMany)
		return x
	}), sealed, "ladder: rung 0: found 1.25, 2 and 2147483648 candidates, expected a mean, a 99th percentile and a largest number"},
	{"budgets that descend", rungs(func(x []screening.Rung) []screening.Rung { x[0].Budget = 4; return x }), sealed, "ladder: rung 1: found budget 4, expected finite numbers above 0, ascending"},
	{"shares that ascend", rungs(func(x []screening.Rung) []screening.Rung { x[1].Share = 601; return x }), sealed, "ladder: rung 1: found share 601 after 600, expected shares that do not ascend"},
	{"a mean of infinity", rungs(func(x []screening.Rung) []screening.Rung { x[0].MeanCandidates = math.Inf(1); return x }), sealed, "ladder: rung 0: found +Inf, 2 and 3 candidates, expected a mean, a 99th percentile and a largest number"},
	{"a precision outside its interval", rungs(func(x []screening.Rung) []screening.Rung { x[0].Precision1.Value = 0.2; return x }), sealed, "ladder: rung 0: found precision 0.2 within 0.25 and 0.75, expected numbers from 0 to 1 in order"},

	// The tail.
	{"a share of no tail", with(func(c *counts, p *parts) { c.share = 1 }), sealed, "tail: found share 1, 0 levels and 0 directions, expected none without temperatures"},
	{"levels of no tail", with(func(c *counts, p *parts) { c.levels, p.levels = 1, []float64{0.5} }), sealed, "tail: found share 0, 1 levels and 0 directions, expected none without temperatures"},
	{"directions of no tail", with(func(c *counts, p *parts) { c.directions, p.directions = 1, []float32{1, 2, 3} }), sealed, "tail: found share 0, 0 levels and 1 directions, expected none without temperatures"},
	{"65 temperatures", withTail(func(c *counts, p *parts) {
		c.temperatures, p.temperatures, p.intercepts, p.slopes, p.squares, p.widths, p.ranges = 65, make([]float64, 65), make([]float32, 130), make([]float32, 390), make([]float32, 260), make([]float32, 130), make([]float64, 268)
	}), sealed, "tail: found 65 temperatures and 1 levels, expected 1 to 64 and 0 to 64"},
	{"65 levels", withTail(func(c *counts, p *parts) {
		c.levels, p.levels, p.widths = 65, make([]float64, 65), make([]float32, 130)
	}), sealed, "tail: found 1 temperatures and 65 levels, expected 1 to 64 and 0 to 64"},
	{"65,535 levels", withTail(func(c *counts, p *parts) { c.levels = 65535 }), sealed, "levels: found 214 bytes left of the file, expected 8 for each of [65535]"},
	{"65 directions", withTail(func(c *counts, p *parts) { c.directions, p.directions = 65, make([]float32, 195) }), sealed, "tail: directions: found 195 elements, expected 1 to 64 rows of dim 3"},
	{"no directions", withTail(func(c *counts, p *parts) { c.directions, p.directions = 0, nil }), sealed, "tail: directions: found 0 elements, expected 1 to 64 rows of dim 3"},
	{"a tail too short", withTail(func(c *counts, p *parts) { p.intercepts = p.intercepts[1:] }), sealed, "record: found 6 bytes left of the file, expected 1 for each of [10]"},
	{"a temperature of 0", withTail(func(c *counts, p *parts) { p.temperatures[0] = 0 }), sealed, "tail: temperatures: found 0 at 0, expected finite numbers of at least 1e-100, ascending"},
	{"a level of 1", withTail(func(c *counts, p *parts) { p.levels[0] = 1 }), sealed, "tail: levels: found 1 at 0, expected numbers above 0 and below 1, ascending"},
	{"NaN in an intercept", withTail(func(c *counts, p *parts) { p.intercepts[1] = nan32 }), sealed, "tail: intercepts: found NaN at row 1, column 0, expected finite numbers"},
	{"NaN in a slope", withTail(func(c *counts, p *parts) { p.slopes[3] = nan32 }), sealed, "tail: slopes: found NaN at row 1, column 0, expected finite numbers"},
	{"NaN in a square", withTail(func(c *counts, p *parts) { p.squares[1] = nan32 }), sealed, "tail: squares: found NaN at row 0, column 1, expected finite numbers"},
	{"NaN in a width", withTail(func(c *counts, p *parts) { p.widths[1] = nan32 }), sealed, "tail: widths: found NaN at row 1, column 0, expected numbers that are not negative and do not descend"},
	{"NaN in a range", withTail(func(c *counts, p *parts) { p.ranges[9] = nan }), sealed, "tail: ranges: found NaN at 9, expected numbers"},
	{"NaN in a cosine", withTail(func(c *counts, p *parts) { p.cosines[3] = nan }), sealed, "tail: cosines: found NaN at 3, expected numbers"},
	{"NaN in a direction", withTail(func(c *counts, p *parts) { p.directions[2] = nan32 }), sealed, "tail: directions: found NaN at row 0, column 2, expected finite numbers"},

	// The content.
	{"NaN in V", with(func(c *counts, p *parts) { p.clusters[3] = nan32 }), sealed, "clusters: found NaN at row 1, column 0, expected finite numbers"},
	{"Inf in V", with(func(c *counts, p *parts) { p.clusters[2] = float32(math.Inf(-1)) }), sealed, "clusters: found -Inf at row 0, column 2, expected finite numbers"},
	{"a size too few", with(func(c *counts, p *parts) { p.sizes = p.sizes[:3] }), sealed, "record: found 6 bytes left of the file, expected 1 for each of [10]"},
	{"a size above L", with(func(c *counts, p *parts) { p.sizes[3] = 11 }), sealed, "sizes: list 3: found 11 ids, expected at most the 5 that are left"},
	{"a size of 2^32-1", with(func(c *counts, p *parts) { p.sizes[0] = math.MaxUint32 }), sealed, "sizes: list 0: found 4294967295 ids, expected at most the 12 that are left"},
	{"sizes that sum to less", with(func(c *counts, p *parts) { p.sizes[3] = 4 }), sealed, "sizes: found 11 ids in all lists, expected 12"},
	{"sizes that sum to more", with(func(c *counts, p *parts) { p.sizes[3] = 6 }), sealed, "sizes: list 3: found 6 ids, expected at most the 5 that are left"},
	{"2^64-1 ids", put(84, le64(math.MaxUint64)), sealed, "ids: found 230 bytes left of the file, expected 4 for each of [18446744073709551615]"},
	{"more ids by decree than a list has", with(func(c *counts, p *parts) { c.always = 4 }), sealed, "lists: found 4 ids in every list by decree, expected 0 to the 3 of list 0"},
	{"more ids by decree than have their share", with(func(c *counts, p *parts) { c.always = 2 }), sealed, "lists: list 0: found share 500 at position 1, expected 65535 of an id that is there by decree"},
	{"half a share", with(func(c *counts, p *parts) { p.shares = p.shares[1:] }), sealed, "record: found 8 bytes left of the file, expected 1 for each of [10]"},
	{"ids of one share out of order", with(func(c *counts, p *parts) { p.ids[1], p.ids[2] = 5, 1 }), sealed, "lists: list 0: found id 1 after 5 at position 2, expected ascending, distinct ids of one share"},
	{"an id twice", with(func(c *counts, p *parts) { p.ids[5] = 8 }), sealed, "lists: list 1: found id 8 twice, expected distinct ids"},
	{"an id of L", with(func(c *counts, p *parts) { p.ids[5] = 10 }), sealed, "lists: list 1: found id 10 at position 2, expected ids below 10 labels"},
	{"an id by decree that a list lacks", with(func(c *counts, p *parts) { p.ids[6] = 4 }), sealed, "lists: list 2: found other ids at its head than at the head of list 0, expected the same 1"},
	{"a share of an id by decree", with(func(c *counts, p *parts) { p.shares[0] = 65534 }), sealed, "lists: list 0: found share 65534 at position 0, expected 65535 of an id that is there by decree"},
	{"shares of a list that ascend", with(func(c *counts, p *parts) { p.shares[5] = 901 }), sealed, "lists: list 1: found share 901 after 900 at position 2, expected shares that do not ascend"},
	{"an empty record", with(func(c *counts, p *parts) { p.record = "" }), sealed, "record: found unexpected end of JSON input, expected JSON"},
	{"a record that is no JSON", with(func(c *counts, p *parts) { p.record = "seed = 1" }), sealed, "record: found invalid character 's' looking for beginning of value at byte 0, expected JSON"},
	{"a record that is no object", with(func(c *counts, p *parts) { p.record = "[1]" }), sealed, "record: found \"[1]\", expected an object"},
	{"a record cut short", with(func(c *counts, p *parts) { p.record = `{"seed":` }), sealed, "record: found unexpected end of JSON input at byte 7, expected JSON"},
	{"a record that is no UTF-8", with(func(c *counts, p *parts) { p.record = "{\"\xc3\":1}" }), sealed, "record: found bytes that are not UTF-8, expected JSON"},
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
			check := func(m *screening.Model, err error, prefix string) {
				t.Helper()
				want := prefix + c.want
				if m != nil || err == nil || err.Error() != want && !(strings.HasSuffix(want, "checksum: found ") && strings.HasPrefix(err.Error(), want)) {
					t.Errorf("error %v\nwant %s", err, want)
				}
			}
			m, err := read(file)
			check(m, err, "screen: ")
			checkRead(t, file)
			if err := os.WriteFile(path, file, 0o600); err != nil {
				t.Fatal(err)
			}
			m, err = load(path)
			check(m, err, "screen: "+path+": ")
		})
	}
}

// Counts that no file of this size can hold take no memory.
func TestHostileCountsTakeNoMemory(t *testing.T) {
	// 4 x 2^31 x 2^31 is 0 in 64 bits.
	file := with(func(c *counts, p *parts) { c.dim, c.clusters, p.clusters = 1<<31, 1<<31, nil })(nil)
	_, err := read(file)
	// If int has 32 bits already the dimension is refused.
	if err == nil || !strings.HasPrefix(err.Error(), "screen: clusters: found ") && !strings.HasPrefix(err.Error(), "screen: dim: ") {
		t.Errorf("2^62 elements in 0 bytes: error %v", err)
	}
	checkRead(t, file)
	for shift := range 32 {
		for _, original := range [][]byte{smallFile(), tailedFile()} {
			for field := 56; field < 104; field += 2 { // of the header
				checkRead(t, seal(put(field, le16(1<<(shift%16)))(bytes.Clone(original))))
				if field < 92 {
					checkRead(t, seal(put(field, le32(1<<shift))(bytes.Clone(original))))
				}
			}
			for cell := range 4 {
				checkRead(t, seal(put(144+4*cell, le32(1<<shift))(bytes.Clone(original))))
			}
		}
	}
}

func TestEveryTruncationIsRefused(t *testing.T) {
	file := smallFile()
	for n := range file {
		if _, err := read(file[:n]); err == nil {
			t.Errorf("the first %d of %d bytes were accepted", n, len(file))
		}
	}
}

func TestEveryFlippedBitIsRefused(t *testing.T) {
	file := smallFile()
	for i := range file {
		for bit := range 8 {
			file[i] ^= 1 << bit
			if _, err := read(file); err == nil {
				t.Errorf("byte %d, bit %d flipped: accepted", i, bit)
			}
			file[i] ^= 1 << bit
		}
	}
}

// checkRead is the promise of Read for any bytes: no panic, no more memory than a small multiple of
// their number, and an accepted model saves to exactly these bytes.
func checkRead(t testing.TB, file []byte) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m, err := read(file)
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
	again := encode(t, m)
	if !bytes.Equal(again, file) {
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
				if _, err := read(file); err == nil {
					accepted++
				}
			}
		}
	}
	// Other numbers in V, in the tail or in the fingerprint are another model.
	if accepted < 4*(24+32+24+32+80+80)/2 {
		t.Errorf("only %d accepted", accepted)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(smallFile())
	f.Add(tailedFile())
	for _, c := range brokenFiles {
		f.Add(c.edit(smallFile()))
	}
	for seed := range uint64(4) {
		in := screentest.Shape{Labels: 40, Dim: 5, Clusters: 7, Shells: int(seed), Contexts: 1, Keep: 20, Rungs: 3, Always: 2, Seed: seed}.Instance(f)
		f.Add(encode(f, in.Model))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		checkRead(t, file)
		// With the right size and checksum the bytes reach the checks after size and checksum.
		checkRead(t, seal(size(bytes.Clone(file))))
	})
}

// read reads the bytes of a file.
func read(file []byte) (*screening.Model, error) {
	return screening.Read("screen", bytes.NewReader(file), int64(len(file)))
}

// load reads a file as l2s.Load does.
func load(path string) (*screening.Model, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	return screening.Read("screen: "+path, file, info.Size())
}

// A file that is no screen is refused by its first bytes and its size, even if it is large. The error
// names it.
func TestAnErrorNamesTheFile(t *testing.T) {
	const large = 1 << 40
	for _, c := range []struct {
		name  string
		start []byte // of a file of size bytes
		size  int64
		want  string // after the name of the file
	}{
		{name: "a file of another kind", start: []byte("\x93NUMPY"), size: large, want: "magic: found 93 4e"},
		{name: "bytes after the end", start: smallFile(), size: large,
			want: "file size: found 1099511627776 bytes, expected the 390 that the header states"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "m.l2s")
			if err := os.WriteFile(path, c.start, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, c.size); err != nil {
				t.Skipf("the file system makes no sparse file of %d bytes: %v", c.size, err)
			}
			_, err := load(path)
			if want := "screen: " + path + ": " + c.want; err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("found %v, expected %s", err, want)
			}
		})
	}
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
