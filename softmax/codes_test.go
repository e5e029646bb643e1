package softmax

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s/internal/crc32c"
	"github.com/learning-to-screen/l2s/internal/simdtest"
	"github.com/learning-to-screen/l2s/kernels"
)

// bfloat16Rows returns n x d normal numbers.
func bfloat16Rows(n, d int, seed uint64) []uint16 {
	r := rand.New(rand.NewPCG(seed, 7))
	w := make([]uint16, n*d)
	for i := range w {
		w[i] = uint16(math.Float32bits(float32(r.NormFloat64())) >> 16)
	}
	return w
}

func bfloat16Layer(t testing.TB, w []uint16, d int, bias []float32) *Layer {
	t.Helper()
	l, err := NewLayer(kernels.BFloat16Rows(w, d), bias)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func savedCodes(t testing.TB, l *Layer, origin Origin) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "head.codes")
	if err := l.SaveCodes(path, origin); err != nil {
		t.Fatal(err)
	}
	return path
}

var anOrigin = Origin{Size: 1234, Modified: time.Unix(1700000000, 987654321)}

// smallCodes has one table, largeCodes two, of rows that fill lines and that do not.
var codesShapes = []struct {
	name      string
	n, d      int
	wantLarge bool
}{
	{"one table", 50, 33, false},
	{"two tables", 2500, 64, true},
	{"two tables of padded rows", 2100, 130, true},
	{"one row", 1, 1, false},
}

func TestAnswersFromCodesOfAFileAreThoseOfTheLayer(t *testing.T) {
	for _, c := range codesShapes {
		t.Run(c.name, func(t *testing.T) {
			w, bias := bfloat16Rows(c.n, c.d, 1), make([]float32, c.n)
			for i := range bias {
				bias[i] = float32(i%7) / 8
			}
			l := bfloat16Layer(t, w, c.d, bias)
			path := savedCodes(t, l, anOrigin)
			for name, origin := range map[string]Origin{"the origin known": anOrigin, "the origin not known": {}} {
				simdtest.EachLevel(t, func(t *testing.T) {
					got, err := NewLayerWithCodes(kernels.BFloat16Rows(w, c.d), bias, path, origin)
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					if got.Fingerprint() != l.Fingerprint() {
						t.Errorf("%s: fingerprint: found another, expected the fingerprint of the layer", name)
					}
					if (got.coarse != nil) != c.wantLarge {
						t.Errorf("%s: a table of 4-bit codes: found %v, expected %v", name, got.coarse != nil, c.wantLarge)
					}
					a, b := NewSearcher(l), NewSearcher(got)
					k := min(5, c.n)
					want, have := make([]Prediction, k), make([]Prediction, k)
					r := rand.New(rand.NewPCG(3, 3))
					h := make([]float32, c.d)
					for range 20 {
						for j := range h {
							h[j] = float32(r.NormFloat64())
						}
						if _, err := a.TopK(want, h); err != nil {
							t.Fatal(err)
						}
						if _, err := b.TopK(have, h); err != nil {
							t.Fatal(err)
						}
						if !slices.Equal(want, have) {
							t.Fatalf("%s: found %v, expected %v", name, have, want)
						}
					}
				})
			}
		})
	}
}

func TestEqualLayersGiveEqualFilesOfCodes(t *testing.T) {
	w := bfloat16Rows(2500, 64, 1)
	var first []byte
	simdtest.EachLevel(t, func(t *testing.T) {
		file, err := os.ReadFile(savedCodes(t, bfloat16Layer(t, w, 64, nil), anOrigin))
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = file
		}
		if !bytes.Equal(file, first) {
			t.Error("found another file, expected the file of the level before")
		}
	})
}

func TestStaleCodesAreRefused(t *testing.T) {
	const n, d = 2500, 64
	w := bfloat16Rows(n, d, 1)
	bias := make([]float32, n)
	path := savedCodes(t, bfloat16Layer(t, w, d, bias), anOrigin)
	other := Origin{anOrigin.Size + 1, anOrigin.Modified}
	later := Origin{anOrigin.Size, anOrigin.Modified.Add(1)}
	changed := func(row int) []uint16 {
		x := slices.Clone(w)
		x[row*d+5] ^= 1
		return x
	}
	oneBias := slices.Clone(bias)
	oneBias[1234] = 0x1p-140
	for _, c := range []struct {
		name   string
		w      []uint16
		dim    int
		bias   []float32
		origin Origin
		want   string // in the error; "" for none
	}{
		{"the same weights", w, d, bias, anOrigin, ""},
		{"the same weights, no bias", w, d, nil, anOrigin, ""},
		{"the same weights of a file that was copied", w, d, bias, later, ""},
		{"the same weights of a file of another size", w, d, bias, other, ""},
		{"a row less", w[d:], d, bias[1:], anOrigin, "shape: found codes of 2500 x 64 weights, expected 2499 x 64"},
		{"rows of half the length", w, d / 2, nil, anOrigin, "shape: found codes of 2500 x 64 weights, expected 5000 x 32"},
		{"another number in the bias", w, d, oneBias, anOrigin, "8-bit codes: kernels: record 1234: bias: found 0, expected"},
		{"other weights", bfloat16Rows(n, d, 2), d, bias, anOrigin, "codes of row 0: found others than the weights give"},
		{"another first row", changed(0), d, bias, anOrigin, "codes of row 0: found others"},
		{"another last row", changed(n - 1), d, bias, anOrigin, "codes of row 2499: found others"},
		{"another row, the origin not known", changed(1), d, bias, Origin{}, "fingerprint: found "},
		{"another row of a file that was written later", changed(1), d, bias, later, "fingerprint: found "},
		{"another row of a file that hides it", changed(1), d, bias, anOrigin, ""}, // as the documentation says
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := NewLayerWithCodes(kernels.BFloat16Rows(c.w, c.dim), c.bias, path, c.origin)
			switch {
			case c.want == "" && err != nil:
				t.Errorf("error %v", err)
			case c.want == "":
			case err == nil || !errors.Is(err, ErrStale) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path):
				t.Errorf("error %v (stale: %v), want the path and %s", err, errors.Is(err, ErrStale), c.want)
			}
		})
	}
}

// sealed returns the file with its checksums put right, as far as it has them.
func sealed(file []byte) []byte {
	le := binary.LittleEndian
	if len(file) < codesHeaderSize {
		return file
	}
	h := codesHeader{codesShape: codesShape{le.Uint64(file[atLabels:]), le.Uint64(file[atDim:]), uint64(le.Uint32(file[atTables:]))}}
	if h.labels > 1<<20 || h.dim > 1<<16 || h.tables > 2 || h.size() != uint64(len(file)) {
		le.PutUint32(file[atHeaderCRC:], crc32c.Sum(file[:atHeaderCRC]))
		return file
	}
	data := file[h.start():]
	for i := range int(h.blocks()) {
		le.PutUint32(file[codesHeaderSize+4*i:], crc32c.Sum(data[i*codesBlock:min((i+1)*codesBlock, len(data))]))
	}
	le.PutUint32(file[atSumsCRC:], crc32c.Sum(file[codesHeaderSize:codesHeaderSize+4*h.blocks()]))
	le.PutUint32(file[atHeaderCRC:], crc32c.Sum(file[:atHeaderCRC]))
	return file
}

func TestBrokenFilesOfCodesAreRefused(t *testing.T) {
	const n, d = 40, 60 // a record of 128 bytes
	w := bfloat16Rows(n, d, 1)
	good, err := os.ReadFile(savedCodes(t, bfloat16Layer(t, w, d, nil), anOrigin))
	if err != nil {
		t.Fatal(err)
	}
	le := binary.LittleEndian
	const start = 192 // of the table
	float := func(file []byte, record, at int, x float32) []byte {
		le.PutUint32(file[start+128*(record+1)-16+4*at:], math.Float32bits(x))
		return file
	}
	for _, c := range []struct {
		name   string
		change func(file []byte) []byte
		seal   bool
		want   string
	}{
		{"nothing", func([]byte) []byte { return nil }, false, "magic: found , expected"},
		{"another kind of file", func(f []byte) []byte { copy(f, "\x89L2S\r\n"); return f }, true, "magic: found 89 4c 32 53"},
		{"a file that ends in the magic", func(f []byte) []byte { return f[:5] }, false, "file size: found 5 bytes, expected at least the 128 of the header"},
		{"a file that ends in the header", func(f []byte) []byte { return f[:127] }, false, "file size: found 127 bytes"},
		{"a file that ends early", func(f []byte) []byte { return f[:len(f)-1] }, false, "file size: found 5311 bytes, expected the 5312 that the header states"},
		{"a byte more", func(f []byte) []byte { return append(f, 0) }, false, "file size: found 5313 bytes"},
		{"a later version", func(f []byte) []byte { f[atVersion] = 2; return f }, true, "version: found 2, expected 1"},
		{"a bit of the header", func(f []byte) []byte { f[atFingerprint] ^= 1; return f }, false, "header: checksum"},
		{"a bit of the checksums", func(f []byte) []byte { f[128] ^= 1; return f }, false, "checksums: checksum"},
		{"a bit of a code", func(f []byte) []byte { f[start+700] ^= 1; return f }, false, "block 0: checksum"},
		{"the reserved bytes", func(f []byte) []byte { f[100] = 1; return f }, true, "header: padding: found 0x01 at offset 100"},
		{"the padding of the checksums", func(f []byte) []byte { f[140] = 1; return f }, true, "checksums: padding: found 0x01 at offset 140"},
		{"no labels", func(f []byte) []byte { le.PutUint64(f[atLabels:], 0); return f }, true, "labels: found 0, expected 1 to 4294967295"},
		{"labels beyond all", func(f []byte) []byte { le.PutUint64(f[atLabels:], math.MaxUint64); return f }, true, "labels: found 18446744073709551615"},
		{"labels beyond the file", func(f []byte) []byte { le.PutUint64(f[atLabels:], math.MaxUint32); return f }, true, "file size: found 5312 in the header, expected"},
		{"no dimension", func(f []byte) []byte { le.PutUint64(f[atDim:], 0); return f }, true, "dim: found 0, expected 1 to 65536"},
		{"a dimension beyond codes", func(f []byte) []byte { le.PutUint64(f[atDim:], 65537); return f }, true, "dim: found 65537, expected 1 to 65536"},
		{"no table", func(f []byte) []byte { le.PutUint32(f[atTables:], 0); return f }, true, "tables: found 0, expected 1 to 2"},
		{"three tables", func(f []byte) []byte { le.PutUint32(f[atTables:], 3); return f }, true, "tables: found 3, expected 1 to 2"},
		{"a table too many", func(f []byte) []byte { le.PutUint32(f[atTables:], 2); return f }, true, "file size: found 5312 in the header"},
		{"a scale of NaN", func(f []byte) []byte { return float(f, 3, 0, float32(math.NaN())) }, true, "record 3: scale: found NaN"},
		{"a negative error", func(f []byte) []byte { return float(f, 39, 2, -1) }, true, "record 39: error: found -1, expected 0 to"},
		{"an infinite norm", func(f []byte) []byte { return float(f, 0, 3, float32(math.Inf(1))) }, true, "record 0: norm: found +Inf"},
		{"another bias", func(f []byte) []byte { return float(f, 7, 1, 1) }, true, "record 7: bias: found 1, expected 0"},
		{"another code", func(f []byte) []byte { f[start] ^= 1; return f }, true, "codes of row 0: found others than the weights give"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := c.change(slices.Clone(good))
			if c.seal {
				file = sealed(file)
			}
			path := filepath.Join(t.TempDir(), "bad.codes")
			if err := os.WriteFile(path, file, 0o666); err != nil {
				t.Fatal(err)
			}
			_, err := NewLayerWithCodes(kernels.BFloat16Rows(w, d), nil, path, anOrigin)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "softmax: "+path+": ") {
				t.Errorf("error %v, want the path and %s", err, c.want)
			}
		})
	}
}

// Every bit of a file is held by a check.
func TestEveryDamagedBitOfCodesIsFound(t *testing.T) {
	const n, d = 3, 5
	w := bfloat16Rows(n, d, 1)
	good, err := os.ReadFile(savedCodes(t, bfloat16Layer(t, w, d, nil), anOrigin))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "bad.codes")
	for bit := range 8 * len(good) {
		file := slices.Clone(good)
		file[bit/8] ^= 1 << (bit % 8)
		if err := os.WriteFile(path, file, 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := NewLayerWithCodes(kernels.BFloat16Rows(w, d), nil, path, anOrigin); err == nil {
			t.Fatalf("bit %d of byte %d: no error", bit%8, bit/8)
		}
	}
}

func TestLayersWithoutCodesCannotSaveThem(t *testing.T) {
	l, err := NewLayer(kernels.Float32Rows([]float32{0x1p41}, 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "head.codes")
	if err := l.SaveCodes(path, Origin{}); err == nil || !strings.Contains(err.Error(), "codes: found none") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a file is left")
	}
}

func TestOriginOfFiles(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for i, text := range []string{"one", "three"} {
		path := filepath.Join(dir, text)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Unix(1000+int64(i), 0)); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	o, err := OriginOf(paths...)
	if err != nil || o.Size != 8 || !o.Modified.Equal(time.Unix(1001, 0)) {
		t.Errorf("found %v, %v, expected 8 bytes of second 1001", o, err)
	}
	if _, err := OriginOf(filepath.Join(dir, "nobody")); err == nil {
		t.Error("a file that is not there: no error")
	}
}

// FuzzCodes takes bytes for a file of codes, as they are and with their checksums
// put right: what opens answers with labels of the layer.
func FuzzCodes(f *testing.F) {
	shapes := []struct{ n, d int }{{3, 5}, {2000, 2}}
	var layers []*Layer
	for _, c := range shapes {
		l := bfloat16Layer(f, bfloat16Rows(c.n, c.d, 1), c.d, nil)
		layers = append(layers, l)
		file, err := os.ReadFile(savedCodes(f, l, anOrigin))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(file)
		f.Add(file[:codesHeaderSize])
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		path := filepath.Join(t.TempDir(), "x.codes")
		for _, file := range [][]byte{file, sealed(slices.Clone(file))} {
			if err := os.WriteFile(path, file, 0o666); err != nil {
				t.Fatal(err)
			}
			for _, of := range layers {
				l, err := NewLayerWithCodes(of.rows, of.bias, path, anOrigin)
				if err != nil {
					continue
				}
				h := make([]float32, l.Dim())
				for i := range h {
					h[i] = float32(i) - 1
				}
				dst := make([]Prediction, 3)
				n, err := NewSearcher(l).TopK(dst, h)
				if err != nil || n != 3 {
					t.Fatalf("found %d labels, %v, expected 3", n, err)
				}
				for i, p := range dst {
					if int(p.ID) >= l.Labels() || slices.ContainsFunc(dst[:i], func(o Prediction) bool { return o.ID == p.ID }) {
						t.Fatalf("found %v, expected distinct labels below %d", dst, l.Labels())
					}
				}
			}
		}
	})
}
