package preview

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/learning-to-screen/l2s/internal/crc32c"
	"github.com/learning-to-screen/l2s/internal/exact"
	"github.com/learning-to-screen/l2s/softmax"
)

// small is a model of a small layer, whose file is short.
var small = sync.OnceValue(func() made {
	d := newData(panics{}, 90, 9, true, 4)
	return made{d, mustMake(panics{}, d, d.contexts(200), Options{})}
})

// sealed returns data with the right size and checksum.
func sealed(data []byte) []byte {
	if len(data) > atSize+8 {
		binary.LittleEndian.PutUint64(data[atSize:], uint64(len(data)))
		binary.LittleEndian.PutUint32(data[atChecksum:], crc32c.Sum(data[atSize:]))
	}
	return data
}

// Every byte that is changed, and every end that is missing or too much, is found.
func TestDamagedFilesAreRefused(t *testing.T) {
	data := small().model.encode()
	if _, err := Read(bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	for at := range data {
		for _, flip := range []byte{1, 0x80, 0xff} {
			data[at] ^= flip
			if _, err := Read(bytes.NewReader(data)); err == nil {
				t.Fatalf("byte %d with %02x: found no error", at, flip)
			}
			data[at] ^= flip
		}
		if _, err := Read(bytes.NewReader(data[:at])); err == nil {
			t.Fatalf("the first %d bytes: found no error", at)
		}
	}
	if _, err := Read(bytes.NewReader(append(data, 0))); err == nil {
		t.Fatal("one byte more: found no error")
	}
}

// A file whose checksum is right may still have impossible contents.
func TestHostileFilesAreRefused(t *testing.T) {
	x := small()
	good := x.model
	for _, c := range []struct {
		want   string
		change func(m *Model)
	}{
		{"turn: found NaN at 5", func(m *Model) { m.turn[5] = float32(math.NaN()) }},
		{"mean: found -Inf", func(m *Model) { m.mean[0] = float32(math.Inf(-1)) }},
		{"steps: found -1 at 2", func(m *Model) { m.steps[2] = -1 }},
		{"noise: found -1 at 0", func(m *Model) { m.noise[0] = -1 }},
		{"axes: found -1 at 0", func(m *Model) { m.axes[0] = -1 }},
		{"radii: found NaN", func(m *Model) { m.radii[0] = float32(math.NaN()) }},
		{"gauges: found -1", func(m *Model) { m.gauges[0] = -1 }},
		{"beyond: found -1", func(m *Model) { m.beyond[0] = -1 }},
		{"centres: found 64 at 3", func(m *Model) { m.centres[3] = 64 }},
		{"ids: block 0: found 90", func(m *Model) { m.ids[0] = 90 }},
		{"ids: block 0", func(m *Model) { m.ids[1] = m.ids[0] }},
		{"expected ascending ids", func(m *Model) { slices.Reverse(m.ids[:m.sizes[0]]) }},
		{"sizes: block 0: found 0", func(m *Model) { m.sizes[0] = 0 }},
		{"sizes: ", func(m *Model) { m.sizes[0]-- }},
		{"sizes: block 0: found 91", func(m *Model) { m.sizes[0] = 91 }},
		{"blocks: found 90", func(m *Model) {
			m.sizes, m.centres = slices.Repeat([]uint32{1}, 90), make([]int8, 90*m.centred)
		}},
		{"coordinates: found 12", func(m *Model) { m.coordinates = 12 }},
		{"centred: found ", func(m *Model) { m.centred = m.coordinates + 4 }},
		{"k: found 91", func(m *Model) { m.k = 91 }},
		{"normal rung: found 40", func(m *Model) { m.normal = 40 }},
		{"far: found", func(m *Model) { m.far = -1 }},
		{"short: found NaN", func(m *Model) { m.short = math.NaN() }},
		{"tail: found NaN", func(m *Model) { m.tail = math.NaN() }},
		{"deviations: found NaN", func(m *Model) { m.rungs[1].Deviations = math.NaN() }},
		{"deviations: found 1e+308", func(m *Model) { m.rungs[1].Deviations = 1e308 }},
		{"reach: found 1e+308", func(m *Model) { m.rungs[1].Reach = 1e308 }},
		{"rung 1: found -1 labels", func(m *Model) { m.rungs[0].Kept, m.rungs[1].Kept = 5, 3 }},
		{"within", func(m *Model) { m.rungs[1].Precision1.Low = 1.5 }},
		{"rungs: found 0", func(m *Model) { m.rungs, m.normal = nil, 0 }},
		{"codes: found", func(m *Model) { m.labels++ }},
		{"left of the file", func(m *Model) { m.dim++ }},
		{"dim: found 0", func(m *Model) { m.dim = 0 }},
	} {
		m := *good
		for _, p := range []*[]float32{&m.turn, &m.mean, &m.steps, &m.noise, &m.axes, &m.radii, &m.gauges, &m.beyond} {
			*p = slices.Clone(*p)
		}
		m.centres, m.ids, m.sizes, m.rungs = slices.Clone(m.centres), slices.Clone(m.ids), slices.Clone(m.sizes), slices.Repeat(m.rungs[:1], 2)
		c.change(&m)
		_, err := Read(bytes.NewReader(sealed(m.encode())))
		want := c.want
		if strings.HasPrefix(want, "rung 1: found -1") {
			want = "numbers that do not descend"
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("found error %v, want one with %q", err, want)
		}
	}
}

func TestFilesThatAreNone(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	data := small().model.encode()
	old := bytes.Clone(data)
	old[8] = 9
	const atFine = 72 // small has 16 coordinates, all of them fine
	uneven, fewer := bytes.Clone(data), bytes.Clone(data)
	uneven[atFine], fewer[atFine] = 12, 8
	for path, want := range map[string]string{
		filepath.Join(dir, "none"):       "no such file",
		write("empty", nil):              "found an empty file",
		write("text", []byte("hello")):   "not a preview file",
		write("short", data[:20]):        "header: found 20 bytes",
		write("old", old):                "version: found 9, expected 6",
		write("uneven", sealed(uneven)):  "fine: found 12",
		write("fewer", sealed(fewer)):    "found 8 after the fine ones",
		write("cut", data[:len(data)-1]): "file size",
		write("more", append(data, 1)):   "file size",
	} {
		_, err := Load(path)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: found error %v, want one with %q and the path", path, err, want)
		}
	}
}

// Any bytes give an error, or a model whose searches answer with labels of the layer.
func FuzzRead(f *testing.F) {
	x := small()
	f.Add(x.model.encode())
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, data := range [][]byte{data, sealed(bytes.Clone(data))} {
			m, err := Read(bytes.NewReader(data))
			if err != nil {
				continue
			}
			if again := m.encode(); !bytes.Equal(again, data) {
				t.Fatalf("found %d other bytes from the model, want the same %d", len(again), len(data))
			}
			if m.labels != x.layer.Labels() || m.dim != x.layer.Dim() || m.biased && m.width() != m.dim+1 {
				continue
			}
			s := m.newSearcher(x.layer)
			h, e := make([]float32, m.dim), softmax.NewSearcher(x.layer)
			for j := range h {
				h[j] = float32(j)
			}
			for _, r := range m.rungs {
				top := make([]softmax.Prediction, 3)
				a, err := s.search3(top, h, r)
				if err != nil {
					t.Fatal(err)
				}
				one := make([]softmax.Prediction, 1)
				for i, p := range top[:a.Count] {
					if i > 0 && exact.Compare(top[i-1], p) >= 0 {
						t.Fatalf("found %v, want them in order", top)
					}
					if _, err := e.Search(one, h, softmax.Request{Among: softmax.Only([]uint32{p.ID})}); err != nil || one[0] != p {
						t.Fatalf("found %v, want %v; %v", p, one[0], err)
					}
				}
			}
		}
	})
}

// search3 searches for three labels by a rung.
func (s *Searcher) search3(top []softmax.Prediction, h []float32, r Rung) (softmax.Answer, error) {
	if err := s.query[0].Set(h); err != nil {
		return softmax.Answer{}, err
	}
	return s.search(top, &softmax.Request{LogSum: true}, &r)
}
