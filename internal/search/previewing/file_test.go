package previewing

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/precision"
	"github.com/learning-to-screen/l2s/internal/ground/ranking"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli) // of CRC-32C

// small returns the parts of a small model, with codes and its layer.
func small() (p *Parts, codes []byte, l *exact.Layer) { return sized(416) }

// sized is small with n codes.
func sized(n int) (p *Parts, codes []byte, l *exact.Layer) {
	r := rand.New(rand.NewPCG(4, 7))
	floats := func(n int, least float32) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = least + r.Float32()
		}
		return x
	}
	stages := (&Parts{Codes: n}).Stages()
	rung := Rung{Deviations: 3, Reach: 5, Kept: 20, Precision1: precision.Estimate{Value: 0.9, High: 1}, Own: precision.Estimate{Value: 0.5, Low: 0.25, High: 0.75}}
	p = &Parts{
		Labels: 90, Dim: 9, Biased: 1, Coordinates: 14, Codes: n, Probes: 2, Outliers: 1,
		Turn: floats(16*10, -0.5), Mean: floats(10, -0.5), Steps: floats(n, 0.1), Left: floats(stages*14, 0.1), ResidualScale: floats(stages*6, 1),
		Shares: floats(stages*6, 0), Levels: floats(stages*6, -0.5), Factors: [MostStages - 1]float64{1, 0.8, 0.5}, Margins: [MostStages]float64{0.25}, Rising: 40, Usual: 60, K: 5, HeldOut: 3, Own: 7, Far: [MostStages]float64{300, 200, 100, 50}, Rungs: []Rung{rung, rung},
	}
	for range p.Codes {
		p.Of = append(p.Of, uint32(r.IntN(p.Coordinates)))
	}
	for id := range p.Labels {
		p.IDs = append(p.IDs, uint32(id))
	}
	p.Centres = make([]byte, 6*CentreBytes)
	for i := range p.Centres {
		p.Centres[i] = byte(r.Uint32())
	}
	p.Near = make([]byte, (stages-1)*96)
	for i := range p.Near {
		if i%96 < 89 {
			p.Near[i] = byte(r.Uint32())
		}
	}
	codes = make([]byte, 89*p.RowBytes())
	for i := range codes {
		codes[i] = byte(r.Uint32())
	}
	l, err := exact.NewLayer(kernels.Float32Rows(floats(90*9, -0.5), 9), floats(90, -0.5))
	if err != nil {
		panic(err)
	}
	return p, codes, l
}

// sealed returns data with the right size and checksum.
func sealed(data []byte) []byte {
	const atChecksum, atSize = 12, 16
	if len(data) > atSize+8 {
		binary.LittleEndian.PutUint64(data[atSize:], uint64(len(data)))
		binary.LittleEndian.PutUint32(data[atChecksum:], crc32.Checksum(data[atSize:], castagnoli))
	}
	return data
}

// Every byte that is changed, and every end that is missing or too much, is found.
func TestDamagedFilesAreRefused(t *testing.T) {
	p, codes, _ := small()
	data := p.encode(codes)
	if _, err := Read("preview", bytes.NewReader(data), -1); err != nil {
		t.Fatal(err)
	}
	for at := range data {
		for _, flip := range []byte{1, 0x80, 0xff} {
			data[at] ^= flip
			if _, err := Read("preview", bytes.NewReader(data), -1); err == nil {
				t.Fatalf("byte %d with %02x: found no error", at, flip)
			}
			data[at] ^= flip
		}
		if _, err := Read("preview", bytes.NewReader(data[:at]), -1); err == nil {
			t.Fatalf("the first %d bytes: found no error", at)
		}
	}
	if _, err := Read("preview", bytes.NewReader(append(data, 0)), -1); err == nil {
		t.Fatal("one byte more: found no error")
	}
}

// A file whose checksum is right may still have impossible contents.
func TestHostileFilesAreRefused(t *testing.T) {
	for _, c := range []struct {
		want   string
		change func(p *Parts)
	}{
		{"turn: found NaN at 5", func(p *Parts) { p.Turn[5] = float32(math.NaN()) }},
		{"mean: found -Inf", func(p *Parts) { p.Mean[0] = float32(math.Inf(-1)) }},
		{"steps: found -1 at 2", func(p *Parts) { p.Steps[2] = -1 }},
		{"of: found 14 at 3", func(p *Parts) { p.Of[3] = 14 }},
		{"left: found -1 at 0", func(p *Parts) { p.Left[0] = -1 }},
		{"gauges: found -1", func(p *Parts) { p.ResidualScale[0] = -1 }},
		{"gauges: found NaN", func(p *Parts) { p.ResidualScale[1] = float32(math.NaN()) }},
		{"ids: found 90", func(p *Parts) { p.IDs[0] = 90 }},
		{"ids: found", func(p *Parts) { p.IDs[1] = p.IDs[0] }},
		{"expected ascending ids", func(p *Parts) { slices.Reverse(p.IDs[16:32]) }},
		{"codes: found 432, expected a multiple of 16", func(p *Parts) { p.Codes = 432 }},
		{"codes: found 80", func(p *Parts) { p.Codes = 80 }},
		{"shares: found -1 at 17", func(p *Parts) { p.Shares[17] = -1 }},
		{"levels: found +Inf at 0", func(p *Parts) { p.Levels[0] = float32(math.Inf(1)) }},
		{"near: found 1 at 95, expected 0 where a panel has no label", func(p *Parts) { p.Near[95] = 1 }},
		{"margin: found +Inf", func(p *Parts) { p.Margins[1] = math.Inf(1) }},
		{"rising: found NaN", func(p *Parts) { p.Rising = math.NaN() }},
		{"usual: found -1", func(p *Parts) { p.Usual = -1 }},
		{"factor: found NaN at 2", func(p *Parts) { p.Factors[2] = math.NaN() }},
		{"k: found 91", func(p *Parts) { p.K = 91 }},
		{"normal rung: found 40", func(p *Parts) { p.Normal = 40 }},
		{"far: found -1 at 2", func(p *Parts) { p.Far[2] = -1 }},
		{"short: found NaN", func(p *Parts) { p.MinNorm = math.NaN() }},
		{"tail: found NaN", func(p *Parts) { p.Tail = math.NaN() }},
		{"deviations: found NaN", func(p *Parts) { p.Rungs[1].Deviations = math.NaN() }},
		{"deviations: found 1e+308", func(p *Parts) { p.Rungs[1].Deviations = 1e308 }},
		{"reach: found 1e+308", func(p *Parts) { p.Rungs[1].Reach = 1e308 }},
		{"numbers that do not descend", func(p *Parts) { p.Rungs[0].Kept, p.Rungs[1].Kept = 5, 3 }},
		{"within", func(p *Parts) { p.Rungs[1].Precision1.Low = 1.5 }},
		{"rung 0: found precision 0.5 within 0.6", func(p *Parts) { p.Rungs[0].Own.Low = 0.6 }},
		{"own states: found 91", func(p *Parts) { p.Own = 91 }},
		{"rungs: found 0", func(p *Parts) { p.Rungs, p.Normal = nil, 0 }},
		{"left of the file", func(p *Parts) { p.Labels++ }},
		{"left of the file", func(p *Parts) { p.Dim++ }},
		{"dim: found 0", func(p *Parts) { p.Dim = 0 }},
		{"found a share of own states of 0.5", func(p *Parts) { p.Own = 0 }},
		{"factor: found 0.5 for a stage of more than 4", func(p *Parts) { p.Factors[3] = 0.5 }},
		{"margin: found -0 for a stage of more than 4", func(p *Parts) { p.Margins[4] = math.Copysign(0, -1) }},
		{"far: found 1 for a stage of more than 4", func(p *Parts) { p.Far[4] = 1 }},
	} {
		p, codes, _ := small()
		c.change(p)
		_, err := Read("preview", bytes.NewReader(sealed(p.encode(codes))), -1)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("found error %v, want one with %q", err, c.want)
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
	p, codes, _ := small()
	data := p.encode(codes)
	old := bytes.Clone(data)
	old[8] = 6
	const atCodes = 104 // small has 416
	uneven, more := bytes.Clone(data), bytes.Clone(data)
	uneven[atCodes], more[atCodes+1] = 164, 16
	for path, want := range map[string]string{
		write("empty", nil):              "found an empty file",
		write("text", []byte("hello")):   "not a preview file",
		write("short", data[:20]):        "header: found 20 bytes",
		write("old", old):                "version: found 6, expected 13",
		write("uneven", sealed(uneven)):  "codes: found 420",
		write("codes", sealed(more)):     "codes: found 4256",
		write("cut", data[:len(data)-1]): "file size",
		write("long", append(data, 1)):   "file size",
	} {
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Read("preview: "+path, file, -1)
		file.Close()
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: found error %v, want one with %q and the path", path, err, want)
		}
	}
}

// Any bytes give an error, or a model whose searches answer with labels of the layer.
func FuzzRead(f *testing.F) {
	p, codes, layer := small()
	f.Add(p.encode(codes))
	p, codes, _ = sized(MostCodes)
	f.Add(p.encode(codes))
	f.Add([]byte(format.Magic))
	for _, change := range []func(p *Parts){ // distances that are no numbers
		func(p *Parts) {
			clear(p.Near)
			for i := range p.ResidualScale {
				p.ResidualScale[i] = math.MaxFloat32
			}
		},
		func(p *Parts) { p.Far = [MostStages]float64{1e-40, 1e-40, 1e-40, 1e-40} },
		func(p *Parts) {
			p.Far = [MostStages]float64{1e-310, 1e-310, 1e-310, 1e-310}
			p.Rungs[0].Reach, p.Rungs[1].Reach = 0, 0
		},
	} {
		p, codes, _ := small()
		change(p)
		f.Add(sealed(p.encode(codes)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, data := range [][]byte{data, sealed(bytes.Clone(data))} {
			m, err := Read("preview", bytes.NewReader(data), -1)
			if err != nil {
				continue
			}
			if again := m.parts.encode(m.packed()); !bytes.Equal(again, data) {
				t.Fatalf("found %d other bytes from the model, want the same %d", len(again), len(data))
			}
			if m.parts.Labels != layer.Labels() || m.parts.Dim != layer.Dim() {
				continue
			}
			s, e := m.Over(layer), exact.NewSearcher(layer)
			for i := range 2 * len(m.parts.Rungs) { // each of two contexts: the second one after another
				h, r := make([]float32, m.parts.Dim), m.parts.Rungs[i/2]
				for j := range h {
					h[j] = float32(j * (1 - 2*(i%2)))
				}
				top, one := make([]exact.Prediction, 3), make([]exact.Prediction, 1)
				a, err := s.Answer(top, h, &exact.Request{LogSum: true}, &r)
				if err != nil {
					t.Fatal(err)
				}
				for i, p := range top[:a.Count] {
					if i > 0 && ranking.Compare(top[i-1], p) >= 0 {
						t.Fatalf("found %v, want them in order", top)
					}
					if _, err := e.Search(one, h, exact.Request{Among: exact.Only([]uint32{p.ID})}); err != nil || one[0] != p {
						t.Fatalf("found %v, want %v; %v", p, one[0], err)
					}
				}
			}
		}
	})
}
