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
	head = append(head, le32(1, uint32(len(sections)))...)
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
// clusters. Its sections begin at 320, 384, 448, 512 and 576; its file has
// 640 bytes.
func smallSections() []sectionBytes {
	return []sectionBytes{
		{1, 0, floats(1, -2, 0.5, 4, 5, -0.25)},
		{2, 0, le32(3, 4)},
		{3, 0, le32(1, 3, 5, 0, 3, 8, 9)},
		{4, 0, le32(3)},
		{5, 0, []byte(`{"seed":1}`)},
	}
}

var smallFingerprint = [32]byte{1, 2, 3, 31: 255}

func smallFile() []byte { return write(10, 3, 2, smallFingerprint, smallSections()) }

func smallModel(t testing.TB) *screen.Model {
	t.Helper()
	m, err := screen.NewModel(screen.Config{
		Dim: 3, Labels: 10, Clusters: []float32{1, -2, 0.5, 4, 5, -0.25},
		Sets: [][]uint32{{1, 5}, {0, 3, 8, 9}}, Always: []uint32{3},
		Fingerprint: smallFingerprint, Record: json.RawMessage(`{"seed":1}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// pairedSections are the sections of smallModel's file with one that has pairs.
func pairedSections(words ...uint32) []sectionBytes {
	return append(smallSections(), sectionBytes{12, 0, le32(words...)})
}

// shelledSections are the sections of smallModel's file with a pair in the second shell,
// and shells with these cosines and the words behind them.
func shelledSections(cosines []float64, words ...uint32) []sectionBytes {
	content := slices.Concat(le32(uint32(len(cosines)), 0), doubles(cosines...), le32(words...))
	return append(pairedSections(1, 2, 3, 3, 2, 3, 8), sectionBytes{13, 0, content})
}

// withShells is a file whose section of shells has this content.
func withShells(flags uint32, content []byte) func([]byte) []byte {
	return func([]byte) []byte {
		s := shelledSections([]float64{0.5}, 2, 1, 3, 6, 3)
		s[len(s)-1] = sectionBytes{13, flags, content}
		return write(10, 3, 2, smallFingerprint, s)
	}
}

// shellBytes is the content of a section of shells.
func shellBytes(n, zero uint32, cosines []float64, words ...uint32) []byte {
	return slices.Concat(le32(n, zero), doubles(cosines...), le32(words...))
}

// withPairs is a file whose section of pairs has these flags and words.
func withPairs(flags uint32, words ...uint32) func([]byte) []byte {
	return func([]byte) []byte {
		s := pairedSections(words...)
		s[len(s)-1].flags = flags
		return write(10, 3, 2, smallFingerprint, s)
	}
}

// pairSections are the sections of smallModel's clusters in a group each. The sections
// begin at 384, 448, 512, 576, 640, 704 and 768; the file has 832 bytes.
func pairSections() []sectionBytes {
	return append(smallSections(), sectionBytes{6, 0, floats(1, 0, 0, 0, 1, 0.5)}, sectionBytes{7, 0, le32(1, 1)})
}

// sharedSections are the sections of smallModel with both clusters in the list of the first
// group and the second cluster in the list of the other.
func sharedSections() []sectionBytes {
	return append(smallSections(), sectionBytes{6, 0, floats(1, 0, 0, 0, 1, 0.5)}, sectionBytes{7, 0, le32(2, 1)}, sectionBytes{10, 0, le32(0, 1, 1)})
}

// sharedWith returns an edit that writes that file with other sizes and lists.
func sharedWith(edit func(sizes, lists *sectionBytes)) func([]byte) []byte {
	return func([]byte) []byte {
		s := sharedSections()
		edit(&s[6], &s[7])
		return write(10, 3, 2, smallFingerprint, s)
	}
}

// regressionSections are the sections of smallModel with a regression, at 640: of one
// temperature and one level, 2 intercepts, 2 slopes and 2 half-widths.
func regressionSections() []sectionBytes {
	return append(smallSections(), sectionBytes{9, 1, slices.Concat(le32(1, 1), doubles(1, 0.5), floats(1, 0, 0, 0.5, 2, -1, 0, 3, 0.25, 4))})
}

// withRegression returns an edit that writes the file with a regression without squares.
func withRegression(flags uint32, content []byte) func([]byte) []byte {
	return with(func(s []sectionBytes) []sectionBytes { return append(s, sectionBytes{9, flags, content}) })
}

// withSquares returns an edit that writes the file with a regression with squares.
func withSquares(content []byte) func([]byte) []byte {
	return with(func(s []sectionBytes) []sectionBytes { return append(s, sectionBytes{11, 1, content}) })
}

// groupedWith returns an edit that writes the file on two levels with other groups.
func groupedWith(edit func(vectors, sizes *sectionBytes)) func([]byte) []byte {
	return func([]byte) []byte {
		s := pairSections()
		edit(&s[5], &s[6])
		return write(10, 3, 2, smallFingerprint, s)
	}
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
	regression, err := screen.NewRegression(screen.RegressionConfig{
		Clusters: 2, Temperatures: []float64{1}, Levels: []float64{0.5},
		Intercepts: []float32{1, 0}, Slopes: []float32{0, 0.5, 2, -1, 0, 3}, Widths: []float32{0.25, 4},
	})
	if err != nil {
		t.Fatal(err)
	}
	// What the files of ten labels have in common, see smallSections.
	small := func(edit func(c *screen.Config)) screen.Config {
		c := screen.Config{
			Dim: 3, Labels: 10, Clusters: []float32{1, -2, 0.5, 4, 5, -0.25},
			Sets: [][]uint32{{1, 5}, {0, 3, 8, 9}}, Always: []uint32{3},
			Fingerprint: smallFingerprint, Record: json.RawMessage(`{"seed":1}`),
		}
		edit(&c)
		return c
	}
	least := []sectionBytes{{1, 0, floats(0)}, {2, 0, le32(0)}, {3, 0, nil}, {4, 0, nil}, {5, 0, []byte("{}")}}
	for _, c := range []struct {
		name  string
		model screen.Config
		want  []byte
	}{
		{"a flat screen", small(func(*screen.Config) {}), smallFile()},
		{"one cluster, one label, one dimension, and nothing else",
			screen.Config{Dim: 1, Labels: 1, Clusters: []float32{0}, Sets: [][]uint32{nil}},
			write(1, 1, 1, [32]byte{}, least)},
		{"two levels: two sections more", small(func(c *screen.Config) {
			c.Groups, c.GroupSizes = []float32{1, 0, 0, 0, 1, 0.5}, []int{1, 1}
		}), write(10, 3, 2, smallFingerprint, pairSections())},
		{"groups that overlap: three sections more", small(func(c *screen.Config) {
			c.Groups, c.GroupSizes, c.GroupClusters = []float32{1, 0, 0, 0, 1, 0.5}, []int{2, 1}, []uint32{0, 1, 1}
		}), write(10, 3, 2, smallFingerprint, sharedSections())},
		{"margins: one section more",
			screen.Config{Dim: 1, Labels: 1, Clusters: []float32{0}, Sets: [][]uint32{nil}, ProbeMargin: 1.5, ExactMargin: 0.25},
			write(1, 1, 1, [32]byte{}, append(slices.Clone(least), sectionBytes{8, 0, doubles(1.5, 0.25)}))},
		{"sets of pairs: one section more", small(func(c *screen.Config) {
			c.Pairs = []screen.Pair{{First: 0, Second: 1, Set: []uint32{2, 8}}}
		}), write(10, 3, 2, smallFingerprint, pairedSections(1, 0, 1, 3, 2, 3, 8))},
		{"shells and pairs in them: two sections more", small(func(c *screen.Config) {
			c.Shells, c.Sets = []float64{0.5}, append(c.Sets, []uint32{6}, nil)
			c.Pairs = []screen.Pair{{First: 2, Second: 3, Set: []uint32{2, 8}}}
		}), write(10, 3, 2, smallFingerprint, shelledSections([]float64{0.5}, 2, 1, 3, 6, 3))},
		{"a regression: one section more", small(func(c *screen.Config) { c.Regression = regression }),
			write(10, 3, 2, smallFingerprint, regressionSections())},
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
			if got.Dim() != m.Dim() || got.Labels() != m.Labels() || got.Fingerprint() != m.Fingerprint() ||
				got.ProbeMargin() != m.ProbeMargin() || got.ExactMargin() != m.ExactMargin() ||
				!slices.Equal(got.GroupWeights(), m.GroupWeights()) || got.Groups() != m.Groups() ||
				!slices.Equal(got.ClusterWeights(), m.ClusterWeights()) || !slices.Equal(got.Always(), m.Always()) ||
				!bytes.Equal(got.Record(), record) || got.LargestSet() != m.LargestSet() {
				t.Fatal("another model")
			}
			if !slices.Equal(got.GroupSizes(), m.GroupSizes()) {
				t.Fatalf("groups of %v clusters, want %v", got.GroupSizes(), m.GroupSizes())
			}
			if !slices.Equal(got.GroupClusters(), m.GroupClusters()) {
				t.Fatalf("groups have the clusters %v, want %v", got.GroupClusters(), m.GroupClusters())
			}
			if !slices.Equal(got.Shells(), m.Shells()) {
				t.Fatalf("shells %v, want %v", got.Shells(), m.Shells())
			}
			if !slices.EqualFunc(got.Pairs(), m.Pairs(), func(a, b screen.Pair) bool {
				return a.First == b.First && a.Second == b.Second && slices.Equal(a.Set, b.Set)
			}) {
				t.Fatalf("pairs %v, want %v", got.Pairs(), m.Pairs())
			}
			for s := range m.Clusters() * (1 + len(m.Shells())) {
				if !slices.Equal(got.Candidates(s), m.Candidates(s)) {
					t.Fatalf("set %d: %v, want %v", s, got.Candidates(s), m.Candidates(s))
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
	{"cut after the header", func(b []byte) []byte { return b[:128] }, withoutSeal, "file size: found 128 bytes, expected the 640 that the header states"},
	{"cut in the table", func(b []byte) []byte { return b[:200] }, withoutSeal, "file size: found 200 bytes, expected the 640 that the header states"},
	{"cut after the table", func(b []byte) []byte { return b[:320] }, withoutSeal, "file size: found 320 bytes, expected the 640 that the header states"},
	{"cut in section 1", func(b []byte) []byte { return b[:324] }, withoutSeal, "file size: found 324 bytes, expected the 640 that the header states"},
	{"cut before section 2", func(b []byte) []byte { return b[:384] }, withoutSeal, "file size: found 384 bytes, expected the 640 that the header states"},
	{"cut before section 3", func(b []byte) []byte { return b[:448] }, withoutSeal, "file size: found 448 bytes, expected the 640 that the header states"},
	{"cut before section 4", func(b []byte) []byte { return b[:512] }, withoutSeal, "file size: found 512 bytes, expected the 640 that the header states"},
	{"cut before section 5", func(b []byte) []byte { return b[:576] }, withoutSeal, "file size: found 576 bytes, expected the 640 that the header states"},
	{"cut by a byte", func(b []byte) []byte { return b[:639] }, withoutSeal, "file size: found 639 bytes, expected the 640 that the header states"},
	{"a byte more", func(b []byte) []byte { return append(b, 0) }, withoutSeal, "file size: found 641 bytes, expected the 640 that the header states"},
	{"a block more", func(b []byte) []byte { return append(b, make([]byte, 64)...) }, withoutSeal, "file size: found 704 bytes, expected the 640 that the header states"},

	// Damage that a checksum finds.
	{"header damaged", put(24, []byte{11}), withoutSeal, "header: checksum: found "},
	{"fingerprint damaged", put(60, []byte{11}), withoutSeal, "header: checksum: found "},
	{"header checksum damaged", func(b []byte) []byte { b[124] ^= 1; return b }, withoutSeal, "header: checksum: found "},
	{"table damaged", put(entry(2, 16), []byte{9}), withoutSeal, "section table: checksum: found "},
	{"clusters damaged", put(320, []byte{9}), withoutSeal, "clusters: checksum: found "},
	{"set sizes damaged", put(384, []byte{9}), withoutSeal, "set sizes: checksum: found "},
	{"set ids damaged", put(448, []byte{9}), withoutSeal, "set ids: checksum: found "},
	{"always ids damaged", put(512, []byte{9}), withoutSeal, "always ids: checksum: found "},
	{"record damaged", put(576, []byte{9}), withoutSeal, "record: checksum: found "},
	{"padding of the table", put(300, []byte{1}), withoutSeal, "section table: padding: found 0x01 at offset 300, expected zero"},
	{"padding of section 1", put(344, []byte{1}), withoutSeal, "clusters: padding: found 0x01 at offset 344, expected zero"},
	{"padding of section 4", put(575, []byte{255}), withoutSeal, "always ids: padding: found 0xff at offset 575, expected zero"},
	{"padding at the end", put(639, []byte{1}), withoutSeal, "record: padding: found 0x01 at offset 639, expected zero"},

	// From here on the checksums are right: a file made to deceive.
	{"version 0", put(8, le32(0)), sealed, "version: found 0, expected 1"},
	{"version 2", put(8, le32(2)), sealed, "version: found 2, expected 1"},
	{"version 2, unknown layout", put(8, le32(2)), withoutSeal, "version: found 2, expected 1"},
	{"header not zero", put(84, []byte{7}), sealed, "header: found 0x07 at offset 84, expected zero"},
	{"header not zero at the end", put(123, []byte{7}), sealed, "header: found 0x07 at offset 123, expected zero"},
	{"no sections", put(12, le32(0)), sealed, "section count: found 0, expected 5 to 64"},
	{"4 sections", put(12, le32(4)), sealed, "section count: found 4, expected 5 to 64"},
	{"65 sections", put(12, le32(65)), sealed, "section count: found 65, expected 5 to 64"},
	{"2^32-1 sections", put(12, le32(math.MaxUint32)), sealed, "section count: found 4294967295, expected 5 to 64"},
	{"64 sections in a small file", put(12, le32(64)), sealed, "file size: found 640 in the header, expected a multiple of 64 of at least 2176"},
	{"size 0", put(16, le64(0)), sealed, "file size: found 0 in the header, expected a multiple of 64 of at least 320"},
	{"size not of 64", put(16, le64(641)), sealed, "file size: found 641 in the header, expected a multiple of 64 of at least 320"},
	{"size too small", put(16, le64(576)), sealed, "file size: found 640 bytes, expected the 576 that the header states"},
	{"size too large", put(16, le64(704)), sealed, "file size: found 640 bytes, expected the 704 that the header states"},
	{"size 2^63", put(16, le64(1<<63)), sealed, "file size: found 9223372036854775808 in the header, expected a multiple of 64 of at least 320"},
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
		"set sizes: length: found 8 bytes, expected 4 for each of 3 clusters"},

	// The section table.
	{"a section missing", func(b []byte) []byte { return write(10, 3, 2, smallFingerprint, smallSections()[:4]) }, sealed, "section count: found 4, expected 5 to 64"},
	{"a section twice", with(func(s []sectionBytes) []sectionBytes { return slices.Insert(s, 2, s[1]) }), sealed,
		"section table: entry 2: kind: found 2, expected 3 (set ids)"},
	{"the last section twice", with(func(s []sectionBytes) []sectionBytes { return append(s, s[4]) }), sealed,
		"section table: entry 5: kind: found 5 after 5, expected ascending, distinct kinds"},
	{"sections exchanged", with(func(s []sectionBytes) []sectionBytes { s[0], s[1] = s[1], s[0]; return s }), sealed,
		"section table: entry 0: kind: found 2, expected 1 (clusters)"},
	{"kind 0", put(entry(0, 0), le32(0)), sealed, "section table: entry 0: kind: found 0, expected 1 (clusters)"},
	{"an unknown kind in place of a known one", put(entry(4, 0), le32(9)), sealed, "section table: entry 4: kind: found 9, expected 5 (record)"},
	{"an unknown section that is required", with(func(s []sectionBytes) []sectionBytes { return append(s, sectionBytes{16, 0, nil}) }), sealed,
		"section of kind 16: flags: found 0x0, expected 1 (optional): the file needs a newer version of this package"},
	{"an unknown flag", with(func(s []sectionBytes) []sectionBytes { return append(s, sectionBytes{16, 3, nil}) }), sealed,
		"section of kind 16: flags: found 0x3, expected 1 (optional): the file needs a newer version of this package"},
	{"optional sections exchanged", with(func(s []sectionBytes) []sectionBytes {
		return append(s, sectionBytes{17, 1, nil}, sectionBytes{16, 1, nil})
	}), sealed, "section table: entry 6: kind: found 16 after 17, expected ascending, distinct kinds"},
	{"a known section that is optional", put(entry(3, 4), le32(1)), sealed, "always ids: flags: found 0x1, expected 0"},
	{"an entry not zero", put(entry(1, 28), le32(5)), sealed, "set sizes: entry: found 0x5 in its last field, expected zero"},
	{"a section over the header", put(entry(0, 8), le64(0)), sealed, "clusters: offset: found 0, expected 320, the end of what comes before"},
	{"sections that overlap", put(entry(1, 8), le64(320)), sealed, "set sizes: offset: found 320, expected 384, the end of what comes before"},
	{"a section not aligned", put(entry(1, 8), le64(385)), sealed, "set sizes: offset: found 385, expected 384, the end of what comes before"},
	{"a gap", put(entry(2, 8), le64(512)), sealed, "set ids: offset: found 512, expected 448, the end of what comes before"},
	{"a section behind the file", put(entry(4, 8), le64(640)), sealed, "record: offset: found 640, expected 576, the end of what comes before"},
	{"offset 2^64-64", put(entry(4, 8), le64(math.MaxUint64-63)), sealed, "record: offset: found 18446744073709551552, expected 576, the end of what comes before"},
	{"a section that leaves the file", put(entry(4, 16), le64(65)), sealed, "record: length: found 65, expected at most the 64 bytes left of the file"},
	{"a section as long as memory", put(entry(0, 16), le64(math.MaxUint64)), sealed, "clusters: length: found 18446744073709551615, expected at most the 320 bytes left of the file"},
	{"a section longer than what follows allows", put(entry(0, 16), le64(100)), sealed, "set sizes: offset: found 384, expected 448, the end of what comes before"},
	{"the last section too short", func(b []byte) []byte { return put(16, le64(704))(append(b, make([]byte, 64)...)) }, sealed,
		"file size: found 704 bytes, expected 640, the end of the last section"},
	{"an optional section damaged", func([]byte) []byte {
		b := write(10, 3, 2, smallFingerprint, append(smallSections(), sectionBytes{16, 1, []byte("abc")}))
		b[640] ^= 1
		return b
	}, withoutSeal, "section of kind 16: checksum: found "},

	// Two levels.
	{"groups without sizes", with(func(s []sectionBytes) []sectionBytes { return append(s, pairSections()[5]) }), sealed,
		"section table: found kind 6 in the last entry, expected kinds 6 and 7 both or neither"},
	{"groups without sizes, and more", with(func(s []sectionBytes) []sectionBytes { return append(s, pairSections()[5], sectionBytes{16, 1, nil}) }), sealed,
		"section table: entry 6: kind: found 16 after 6, expected kinds 6 and 7 both or neither"},
	{"group sizes alone", with(func(s []sectionBytes) []sectionBytes { return append(s, pairSections()[6]) }), sealed,
		"section table: entry 5: kind: found 7 after 5, expected kinds 6 and 7 both or neither"},
	{"groups that are optional", groupedWith(func(v, s *sectionBytes) { v.flags = 1 }), sealed, "groups: flags: found 0x1, expected 0"},
	{"group sizes that are optional", groupedWith(func(v, s *sectionBytes) { s.flags = 1 }), sealed, "group sizes: flags: found 0x1, expected 0"},
	{"groups damaged", func([]byte) []byte {
		b := write(10, 3, 2, smallFingerprint, pairSections())
		b[704] ^= 1
		return b
	}, withoutSeal, "groups: checksum: found "},
	{"no groups", groupedWith(func(v, s *sectionBytes) { v.data, s.data = nil, nil }), sealed, "groups: length: found 0 bytes, expected 4 for each of 1 to 2 x 3 elements"},
	{"half a group size", groupedWith(func(v, s *sectionBytes) { s.data = s.data[:6] }), sealed, "group sizes: length: found 6 bytes, expected 4 for each of 2 groups"},
	{"more groups than clusters", groupedWith(func(v, s *sectionBytes) { s.data = le32(1, 1, 0) }), sealed, "group sizes: length: found 12 bytes, expected 4 for each of 2 groups"},
	{"a group vector missing", groupedWith(func(v, s *sectionBytes) { v.data = floats(1, 0, 0) }), sealed, "group sizes: length: found 8 bytes, expected 4 for each of 1 groups"},
	{"a group vector too long", groupedWith(func(v, s *sectionBytes) { v.data = append(v.data, 0) }), sealed, "groups: length: found 25 bytes, expected 4 for each of 1 to 2 x 3 elements"},
	{"NaN in a group", groupedWith(func(v, s *sectionBytes) { v.data = floats(1, 0, 0, 0, float32(math.NaN()), 0.5) }), sealed,
		"groups: found NaN at row 1, column 1, expected finite numbers"},
	{"an empty group", groupedWith(func(v, s *sectionBytes) { s.data = le32(0, 2) }), sealed, "group sizes: group 0: found 0 clusters, expected 1 to the 2 that are left of 2"},
	{"a group of 2^32-1", groupedWith(func(v, s *sectionBytes) { s.data = le32(1, math.MaxUint32) }), sealed, "group sizes: group 1: found 3 clusters, expected 1 to the 1 that are left of 2"},
	{"groups of too few clusters", groupedWith(func(v, s *sectionBytes) { v.data, s.data = floats(1, 0, 0), le32(1) }), sealed,
		"group sizes: found 1 clusters in all, expected 2"},

	// Groups that overlap.
	{"lists without groups", with(func(s []sectionBytes) []sectionBytes { return append(s, sectionBytes{10, 0, le32(0, 1)}) }), sealed,
		"group clusters: found a file without groups, expected no section of this kind then"},
	{"no lists", sharedWith(func(s, l *sectionBytes) { l.data = nil }), sealed, "group clusters: length: found 0 bytes, expected 4 for each of 3 clusters of the groups"},
	{"half a cluster in the lists", sharedWith(func(s, l *sectionBytes) { l.data = l.data[:11] }), sealed, "group clusters: length: found 11 bytes, expected 4 for each of 3 clusters of the groups"},
	{"lists longer than the groups", sharedWith(func(s, l *sectionBytes) { l.data = le32(0, 1, 0, 1) }), sealed, "group clusters: length: found 16 bytes, expected 4 for each of 3 clusters of the groups"},
	{"an empty list", sharedWith(func(s, l *sectionBytes) { s.data = le32(0, 3) }), sealed, "group sizes: group 0: found 0 clusters, expected 1 to the 3 that are left of 3 in the lists"},
	{"a list of 2^32-1", sharedWith(func(s, l *sectionBytes) { s.data = le32(1, math.MaxUint32) }), sealed, "group clusters: length: found 12 bytes, expected 4 for each of 4 clusters of the groups"},
	{"a cluster beyond the lists", sharedWith(func(s, l *sectionBytes) { l.data = le32(0, 2, 1) }), sealed, "group clusters: group 0: found cluster 2 at position 1, expected below 2"},
	{"a cluster twice in a list", sharedWith(func(s, l *sectionBytes) { l.data = le32(1, 1, 1) }), sealed, "group clusters: group 0: found cluster 1 after 1 at position 1, expected ascending, distinct clusters"},
	{"lists that are optional", sharedWith(func(s, l *sectionBytes) { l.flags = 1 }), sealed, "group clusters: flags: found 0x1, expected 0"},

	// Sets of pairs.
	{"pairs of no bytes", withPairs(0), sealed, "pairs: length: found 0 bytes, expected at least 4"},
	{"no pairs", withPairs(0, 0), sealed, "pairs: found 0 pairs in 4 bytes, expected at least 1, and 12 bytes for each"},
	{"more pairs than bytes", withPairs(0, 2, 0, 1, 1, 3), sealed, "pairs: found 2 pairs in 20 bytes, expected at least 1, and 12 bytes for each"},
	{"2^32-1 pairs", withPairs(0, math.MaxUint32, 0, 1, 1, 3), sealed, "pairs: found 4294967295 pairs in 20 bytes, expected at least 1, and 12 bytes for each"},
	{"a set of a pair too short", withPairs(0, 1, 0, 1, 2, 3), sealed, "pairs: length: found 20 bytes, expected 24 for 1 pairs of 2 ids in all"},
	{"a set of a pair too long", withPairs(0, 1, 0, 1, 1, 3, 4), sealed, "pairs: length: found 24 bytes, expected 20 for 1 pairs of 1 ids in all"},
	{"a set of a pair above the labels", withPairs(0, 1, 0, 1, 11, 3), sealed, "pairs: pair 0: found 11 ids, expected at most the 10 labels"},
	{"a pair of one cluster", withPairs(0, 1, 1, 1, 1, 3), sealed, "pairs: found clusters 1 and 1 at position 0, expected two ascending below 2"},
	{"a pair with a cluster beyond", withPairs(0, 1, 0, math.MaxUint32, 1, 3), sealed, "pairs: found clusters 0 and 2 at position 0, expected two ascending below 2"},
	{"a pair twice", withPairs(0, 2, 0, 1, 1, 0, 1, 1, 3, 3), sealed, "pairs: found clusters 0 and 1 after 0 and 1 at position 1, expected ascending, distinct pairs"},
	{"an id of L for a pair", withPairs(0, 1, 0, 1, 2, 3, 10), sealed, "pairs: set 0: found id 10 at position 1, expected ids below 10 labels"},
	{"ids of a pair out of order", withPairs(0, 1, 0, 1, 2, 4, 3), sealed, "pairs: set 0: found id 3 after 4 at position 1, expected ascending, distinct ids"},
	{"a pair without an always id", withPairs(0, 1, 0, 1, 1, 4), sealed, "pairs: set 0: found no id 3, expected all always ids in every set"},
	{"pairs that are optional", withPairs(1, 1, 0, 1, 1, 3), sealed, "pairs: flags: found 0x1, expected 0"},

	// Shells. The pair of the file is of the cells 2 and 3.
	{"shells of no bytes", withShells(0, nil), sealed, "shells: length: found 0 bytes, expected at least 8"},
	{"no shells", withShells(0, shellBytes(0, 0, nil)), sealed, "shells: found 0 cosines and 0 behind their number, expected 1 to 16 and 0"},
	{"2^32-1 shells", withShells(0, shellBytes(math.MaxUint32, 0, nil)), sealed, "shells: found 4294967295 cosines and 0 behind their number, expected 1 to 16 and 0"},
	{"shells and no zero", withShells(0, shellBytes(1, 1, []float64{0.5}, 1, 1, 3, 3)), sealed, "shells: found 1 cosines and 1 behind their number, expected 1 to 16 and 0"},
	{"shells without sets", withShells(0, shellBytes(1, 0, []float64{0.5}, 1)), sealed, "shells: length: found 20 bytes, expected at least 24 for 1 cosines and 2 sets"},
	{"a cosine of 1", withShells(0, shellBytes(1, 0, []float64{1}, 1, 1, 3, 3)), sealed, "shells: found cosine 1 at position 0, expected descending numbers above -1 and below 1"},
	{"a set of a cell above the labels", withShells(0, shellBytes(1, 0, []float64{0.5}, 1, 11, 3, 3)), sealed, "shells: set 1: found 11 ids, expected at most the 10 labels"},
	{"sets of cells too short", withShells(0, shellBytes(1, 0, []float64{0.5}, 1, 1, 3)), sealed, "shells: length: found 28 bytes, expected 32 for 1 cosines and 2 sets of 2 ids in all"},
	{"ids of a cell out of order", withShells(0, shellBytes(1, 0, []float64{0.5}, 2, 1, 6, 3, 3)), sealed, "shells: set 0: found id 3 after 6 at position 1, expected ascending, distinct ids"},
	{"a cell without an always id", withShells(0, shellBytes(1, 0, []float64{0.5}, 1, 1, 3, 4)), sealed, "shells: set 1: found no id 3, expected all always ids in every set"},
	{"shells that are optional", withShells(1, shellBytes(1, 0, []float64{0.5}, 1, 1, 3, 3)), sealed, "shells: flags: found 0x1, expected 0"},
	{"a pair of cells without shells", withPairs(0, 1, 2, 3, 1, 3), sealed, "pairs: found clusters 2 and 2 at position 0, expected two ascending below 2"},

	// Margins.
	{"no margins", with(func(s []sectionBytes) []sectionBytes { return append(s, sectionBytes{8, 0, nil}) }), sealed, "margins: length: found 0 bytes, expected 16"},
	{"a margin alone", with(func(s []sectionBytes) []sectionBytes { return append(s, sectionBytes{8, 0, doubles(1)}) }), sealed, "margins: length: found 8 bytes, expected 16"},
	{"margins of zero", with(func(s []sectionBytes) []sectionBytes { return append(s, sectionBytes{8, 0, doubles(0, 0)}) }), sealed,
		"margins: found zeros, expected no section of this kind then"},
	{"a negative margin", with(func(s []sectionBytes) []sectionBytes { return append(s, sectionBytes{8, 0, doubles(1, -1)}) }), sealed,
		"margins: exact margin: found -1, expected a finite number that is not negative"},
	{"a margin of negative zero", with(func(s []sectionBytes) []sectionBytes {
		return append(s, sectionBytes{8, 0, doubles(math.Copysign(0, -1), 1)})
	}), sealed,
		"margins: probe margin: found -0, expected a finite number that is not negative"},
	{"a margin of NaN", with(func(s []sectionBytes) []sectionBytes { return append(s, sectionBytes{8, 0, doubles(math.NaN(), 1)}) }), sealed,
		"margins: probe margin: found NaN, expected a finite number that is not negative"},
	{"margins that are optional", with(func(s []sectionBytes) []sectionBytes { return append(s, sectionBytes{8, 1, doubles(1, 1)}) }), sealed,
		"margins: flags: found 0x1, expected 0"},

	// A regression: of one temperature and no level it has 8 numbers for 2 clusters of dim 3.
	{"a regression that must be known", withRegression(0, regressionSections()[5].data), sealed, "regression: flags: found 0x0, expected 1 (optional)"},
	{"a regression with an unknown flag", withRegression(3, regressionSections()[5].data), sealed, "regression: flags: found 0x3, expected 1 (optional)"},
	{"an empty regression", withRegression(1, nil), sealed, "regression: length: found 0 bytes, expected at least 8"},
	{"NaN in a slope", withRegression(1, slices.Concat(le32(1, 0), doubles(1), floats([]float32{3: float32(math.NaN()), 7: 0}...))), sealed, "regression: slopes: found NaN at row 0, column 1, expected finite numbers"},
	{"a regression damaged", func([]byte) []byte {
		b := write(10, 3, 2, smallFingerprint, regressionSections())
		b[640] ^= 1
		return b
	}, withoutSeal, "regression: checksum: found "},
	{"a regression before the margins", with(func(s []sectionBytes) []sectionBytes {
		return append(s, regressionSections()[5], sectionBytes{8, 0, doubles(1, 2)})
	}), sealed, "section table: entry 6: kind: found 8 after 9, expected ascending, distinct kinds"},

	// A regression with squares: of one temperature, no level and one direction it has 15
	// numbers for 2 clusters of dim 3.
	{"a regression without its counts", withSquares(le32(1, 0, 1)), sealed, "regression with squares: length: found 12 bytes, expected at least 16"},
	{"no temperatures", withSquares(le32(0, 0, 1, 0)), sealed, "regression with squares: found 0 temperatures and 0 levels, expected 1 to 64 and 0 to 64"},
	{"no directions", withSquares(slices.Concat(le32(1, 0, 0, 0), doubles(1), floats(make([]float32, 12)...))), sealed, "regression with squares: found 0 directions and 0 behind their number, expected 1 to 64 and 0"},
	{"65 directions", withSquares(slices.Concat(le32(1, 0, 65, 0), doubles(1), floats(make([]float32, 12+65*3)...))), sealed, "regression with squares: found 65 directions and 0 behind their number, expected 1 to 64 and 0"},
	{"a number behind the directions", withSquares(slices.Concat(le32(1, 0, 1, 7), doubles(1), floats(make([]float32, 15)...))), sealed, "regression with squares: found 1 directions and 7 behind their number, expected 1 to 64 and 0"},
	{"a regression too short", withSquares(slices.Concat(le32(1, 0, 1, 0), doubles(1), floats(make([]float32, 14)...))), sealed, "regression with squares: length: found 80 bytes, expected 84 for 1 temperatures, 0 levels and 1 directions of 2 clusters of dim 3"},
	{"NaN in a direction", withSquares(slices.Concat(le32(1, 0, 1, 0), doubles(1), floats([]float32{9: float32(math.NaN()), 14: 0}...))), sealed, "regression with squares: directions: found NaN at row 0, column 1, expected finite numbers"},
	{"two regressions", with(func(s []sectionBytes) []sectionBytes {
		return append(s, sectionBytes{9, 1, slices.Concat(le32(1, 0), doubles(1), floats(make([]float32, 8)...))},
			sectionBytes{11, 1, slices.Concat(le32(1, 0, 1, 0), doubles(1), floats(make([]float32, 15)...))})
	}), sealed, "regression with squares: found two regressions of the tail, expected at most one"},

	// The content.
	{"NaN in V", data(0, floats(1, 2, 3, float32(math.NaN()), 5, 6)), sealed, "clusters: found NaN at row 1, column 0, expected finite numbers"},
	{"Inf in V", data(0, floats(1, 2, float32(math.Inf(-1)), 4, 5, 6)), sealed, "clusters: found -Inf at row 0, column 2, expected finite numbers"},
	{"V too short", data(0, floats(1, 2, 3, 4, 5)), sealed, "clusters: length: found 20 bytes, expected 4 for each of 2 x 3 elements"},
	{"V too long by a byte", data(0, append(floats(1, 2, 3, 4, 5, 6), 0)), sealed, "clusters: length: found 25 bytes, expected 4 for each of 2 x 3 elements"},
	{"a size too few", data(1, le32(7)), sealed, "set sizes: length: found 4 bytes, expected 4 for each of 2 clusters"},
	{"a size above L", data(1, le32(3, 11)), sealed, "set sizes: set 1: found 11 ids, expected at most the 10 labels"},
	{"a size of 2^32-1", data(1, le32(math.MaxUint32, 4)), sealed, "set sizes: set 0: found 4294967295 ids, expected at most the 10 labels"},
	{"sizes that sum to less", data(1, le32(3, 3)), sealed, "set ids: length: found 28 bytes, expected 4 for each of 6 ids in the sets"},
	{"sizes that sum to more", data(1, le32(4, 4)), sealed, "set ids: length: found 28 bytes, expected 4 for each of 8 ids in the sets"},
	{"half an id", data(2, le32(1, 3, 5, 0, 3, 8, 9)[:26]), sealed, "set ids: length: found 26 bytes, expected 4 for each of 7 ids in the sets"},
	{"ids out of order", data(2, le32(1, 3, 5, 0, 8, 3, 9)), sealed, "set ids: set 1: found id 3 after 8 at position 2, expected ascending, distinct ids"},
	{"an id twice", data(2, le32(3, 3, 5, 0, 3, 8, 9)), sealed, "set ids: set 0: found id 3 after 3 at position 1, expected ascending, distinct ids"},
	{"an id of L", data(2, le32(1, 3, 5, 0, 3, 8, 10)), sealed, "set ids: set 1: found id 10 at position 3, expected ids below 10 labels"},
	{"half an always id", data(3, []byte{3, 0}), sealed, "always ids: length: found 2 bytes, expected a multiple of 4"},
	{"always ids out of order", data(3, le32(3, 1)), sealed, "always ids: found id 1 after 3 at position 1, expected ascending, distinct ids"},
	{"an always id of L", data(3, le32(3, 12)), sealed, "always ids: found id 12 at position 1, expected ids below 10 labels"},
	{"an always id that a set lacks", data(3, le32(3, 5)), sealed, "set ids: set 1: found no id 5, expected all always ids in every set"},
	{"an empty record", data(4, nil), sealed, "record: found unexpected end of JSON input, expected a JSON object"},
	{"a record that is no JSON", data(4, []byte("seed = 1")), sealed, "record: found invalid character 's' looking for beginning of value, expected a JSON object"},
	{"a record that is no object", data(4, []byte("[1]")), sealed, "record: found JSON that starts with '[', expected a JSON object"},
	{"a record cut short", data(4, []byte(`{"seed":`)), sealed, "record: found unexpected end of JSON input, expected a JSON object"},
	{"a record that is no UTF-8", data(4, []byte("{\"\xc3\":1}")), sealed, "record: found bytes that are not UTF-8, expected a JSON object"},
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
			if err := os.WriteFile(path, file, 0o600); err != nil {
				t.Fatal(err)
			}
			m, err = screen.Load(path)
			check(m, err, "screen: "+path+": ")
		})
	}
}

func TestShapeThatOverflowsIsRefused(t *testing.T) {
	// 4 x 2^31 x 2^31 is 0 in 64 bits, the length of the section.
	file := write(10, 1<<31, 1<<31, smallFingerprint, append([]sectionBytes{{1, 0, nil}}, smallSections()[1:]...))
	_, err := screen.Read(file)
	// If int has 32 bits already the dimension is refused.
	if err == nil || !strings.HasPrefix(err.Error(), "screen: clusters: length: ") && !strings.HasPrefix(err.Error(), "screen: dim: ") {
		t.Errorf("2^62 elements in 0 bytes: error %v", err)
	}
	checkRead(t, file)
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
	withMargins := append(pairSections(), sectionBytes{8, 0, doubles(1, 2)}, regressionSections()[5])
	for _, original := range [][]byte{smallFile(), write(10, 3, 2, smallFingerprint, pairSections()), write(10, 3, 2, smallFingerprint, sharedSections()), write(10, 3, 2, smallFingerprint, withMargins), write(10, 3, 2, smallFingerprint, pairedSections(1, 0, 1, 3, 2, 3, 8)), write(10, 3, 2, smallFingerprint, shelledSections([]float64{0.5}, 2, 1, 3, 6, 3))} {
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
	// Other numbers in U, in V or in the fingerprint are another model.
	if accepted < 4*(24+32+24+24+32+52)/2 {
		t.Errorf("only %d accepted", accepted)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(smallFile())
	f.Add(write(10, 3, 2, smallFingerprint, append(smallSections(), sectionBytes{16, 1, []byte("later")})))
	f.Add(write(10, 3, 2, smallFingerprint, regressionSections()))
	f.Add(write(10, 3, 2, smallFingerprint, sharedSections()))
	f.Add(write(10, 3, 2, smallFingerprint, pairedSections(1, 0, 1, 3, 2, 3, 8)))
	f.Add(write(10, 3, 2, smallFingerprint, shelledSections([]float64{0.5}, 2, 1, 3, 6, 3)))
	for _, c := range brokenFiles {
		f.Add(c.edit(smallFile()))
	}
	for seed := range uint64(4) {
		in := shape{labels: 40, dim: 5, clusters: 7, groups: int(seed), overlap: seed == 3, probe: float64(seed % 2), contexts: 1, keep: 20, always: []uint32{0, 39}, seed: seed}.instance(f)
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
	if !slices.Equal(m.Candidates(0), []uint32{1, 3, 5}) {
		t.Errorf("set 0: %v", m.Candidates(0))
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
			want: "file size: found 1099511627776 bytes, expected the 640 that the header states"},
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
