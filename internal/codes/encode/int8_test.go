package encode

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x6c3273)) }

func normal(r *rand.Rand, x []float32) []float32 {
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// alignedBytes returns n bytes that start at a multiple of 64.
func alignedBytes(n int) []byte {
	buf := make([]byte, n+64)
	start := int(-uintptr(unsafe.Pointer(&buf[0])) % 64)
	return buf[start : start+n : start+n]
}

func drawVector(t *rapid.T, d int) []float32 {
	return simdtest.Vector(newRand(rapid.Uint64().Draw(t, "seed")), rapid.IntRange(0, 9).Draw(t, "kind"),
		math.Ldexp(1, rapid.IntRange(-58, 38).Draw(t, "scale")), d)
}

// record is a record taken apart.
type record struct {
	codes                  []int
	scale, bias, err, norm float64
}

// read takes a record apart, whose codes are read by code, as they are stored, and
// hold bias beyond their own.
func read(rec []byte, dim, bias int, code func(rec []byte, j int) byte) record {
	r := record{codes: make([]int, dim)}
	for j := range r.codes {
		r.codes[j] = int(code(rec, j)) - bias
	}
	for k, f := range []*float64{&r.scale, &r.bias, &r.err, &r.norm} {
		*f = float64(math.Float32frombits(binary.LittleEndian.Uint32(rec[len(rec)-kernels.MetaBytes+4*k:])))
	}
	return r
}

func record8(m *kernels.Int8Rows, i int) record {
	return read(m.Record(i), m.Dim(), kernels.CodeBias, func(rec []byte, j int) byte { return rec[j] })
}

func record4(m *kernels.Int4Rows, i int) record {
	half := (m.Dim() + 1) / 2
	return read(m.Record(i), m.Dim(), 8, func(rec []byte, j int) byte {
		if j < half {
			return rec[j] & 15
		}
		return rec[j-half] >> 4
	})
}

// check fails unless the record's bounds hold for w, and tightly, and its codes are
// within most.
func (r record) check(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, name string, w []float32, most int) {
	t.Helper()
	var norm2, err2, w2 float64
	for j, q := range r.codes {
		if q < -most || q > most {
			t.Fatalf("%s: code %d is %d, expected a magnitude of at most %d", name, j, q, most)
		}
		x := r.scale * float64(q)
		d := float64(w[j]) - x
		norm2, err2, w2 = norm2+x*x, err2+d*d, w2+float64(w[j])*float64(w[j])
	}
	norm, err, all := math.Sqrt(norm2), math.Sqrt(err2), math.Sqrt(w2)
	if err > r.err || norm > r.norm {
		t.Fatalf("%s: ||w - w^|| = %g, bound %g; ||w^|| = %g, bound %g", name, err, r.err, norm, r.norm)
	}
	if room := 0x1p-18*all + 0x1p-100; r.err > err+room || r.norm > norm+room {
		t.Fatalf("%s: ||w - w^|| = %g, bound %g; ||w^|| = %g, bound %g: expected bounds within 2^-18 ||w||", name, err, r.err, norm, r.norm)
	}
}

func TestRecordsBoundTheirErrors(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			d := rapid.IntRange(1, 300).Draw(t, "dim")
			w := drawVector(t, d)
			if rapid.Bool().Draw(t, "tiny") {
				for j := range w {
					w[j] *= 0x1p-90
				}
			}
			bias := []float32{rapid.Float32Range(-100, 100).Draw(t, "bias")}
			m8, m4, err := NewInt8And4Rows(alignedBytes(kernels.Int8Stride(d)), alignedBytes(kernels.Int4Stride(d)), kernels.Float32Rows(w, d), bias)
			if err != nil {
				t.Fatal(err)
			}
			r8, r4 := record8(m8, 0), record4(m4, 0)
			r8.check(t, "8 bits", w, kernels.MaxCode)
			r4.check(t, "4 bits", w, kernels.MaxCode4)
			if b := float64(bias[0]); r8.bias != b || r4.bias != b {
				t.Fatalf("bias: found %g and %g, expected %g", r8.bias, r4.bias, b)
			}
		})
	})
}

// In a long row the sums of squares are rounded the most.
func TestRecordsOfTheLongestRowsBoundTheirErrors(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) {
		r := newRand(31)
		for _, d := range []int{kernels.MaxInt8Dim - 1, kernels.MaxInt8Dim} {
			w := normal(r, make([]float32, d))
			m8, m4, err := NewInt8And4Rows(alignedBytes(kernels.Int8Stride(d)), alignedBytes(kernels.Int4Stride(d)), kernels.Float32Rows(w, d), nil)
			if err != nil {
				t.Fatal(err)
			}
			// Sums of 4,096 squares a lane are some 2^-12 off at the worst.
			for name, rec := range map[string]record{"8 bits": record8(m8, 0), "4 bits": record4(m4, 0)} {
				var err2 float64
				for j, q := range rec.codes {
					x := float64(w[j]) - rec.scale*float64(q)
					err2 += x * x
				}
				if err := math.Sqrt(err2); err > rec.err || rec.err > 1.001*err {
					t.Errorf("dim %d, %s: ||w - w^|| = %g, bound %g", d, name, err, rec.err)
				}
			}
		}
	})
}

// The scale of 4-bit codes is the one with the least error: the error is no larger than with the
// scale of the whole range.
func TestClippingNeverAddsError(t *testing.T) {
	r := newRand(32)
	const d, n = 200, 50
	w := normal(r, make([]float32, n*d))
	_, m4, err := NewInt8And4Rows(alignedBytes(n*kernels.Int8Stride(d)), alignedBytes(n*kernels.Int4Stride(d)), kernels.Float32Rows(w, d), nil)
	if err != nil {
		t.Fatal(err)
	}
	clipped := 0
	for i := range n {
		row, rec := w[i*d:(i+1)*d], record4(m4, i)
		var largest, err2 float64
		for _, x := range row {
			largest = max(largest, math.Abs(float64(x)))
		}
		scale := largest / kernels.MaxCode4
		for _, x := range row {
			e := float64(x) - scale*math.RoundToEven(float64(x)/scale)
			err2 += e * e
		}
		if rec.err > math.Sqrt(err2)*(1+1e-4) {
			t.Errorf("row %d: error %g, %g without clipping", i, rec.err, math.Sqrt(err2))
		}
		if rec.scale < 0.9*scale {
			clipped++
		}
	}
	if clipped < n/2 {
		t.Errorf("%d of %d rows are clipped, expected most of normal numbers", clipped, n)
	}
}

// Each rounded row is 4-bit codes times a number, no farther from the row than with any of the
// scales that are tried. Rounding again changes nothing, and rows without an envelope stay.
func TestRound4(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			d := rapid.IntRange(1, 300).Draw(t, "dim")
			w := drawVector(t, d)
			if rapid.Bool().Draw(t, "tiny") {
				for j := range w {
					w[j] *= 0x1p-90
				}
			}
			rounded := slices.Clone(w)
			Round4(rounded, d)
			var largest, distance float64
			for j, x := range w {
				largest = max(largest, math.Abs(float64(x)))
				distance += (float64(x) - float64(rounded[j])) * (float64(x) - float64(rounded[j]))
			}
			if largest < 2*kernels.MinCertified {
				if !slices.Equal(rounded, w) {
					t.Fatalf("found %v, expected %v as it is", rounded, w)
				}
				return
			}
			m, err := NewInt8Rows(alignedBytes(kernels.Int8Stride(d)), kernels.Float32Rows(rounded, d), nil)
			if err != nil {
				t.Fatal(err)
			}
			if rec := record8(m, 0); rec.err > 0x1p-18*rec.norm || !withinHalves(m, []uint32{0}) {
				t.Fatalf("found the codes %v with an error of %g, expected codes of 4 bits without one", rec.codes, rec.err)
			}
			for _, s := range scales4 {
				var other float64
				for _, x := range w {
					by := largest * s.share / float64(s.most)
					e := float64(x) - by*max(-kernels.MaxCode4, min(kernels.MaxCode4, math.RoundToEven(float64(x)/by)))
					other += e * e
				}
				if distance > other*(1+1e-3)+1e-9*largest*largest {
					t.Fatalf("found squares of %g away, expected at most the %g of the share %g", distance, other, s.share)
				}
			}
			again := slices.Clone(rounded)
			Round4(again, d)
			for j, x := range again {
				if math.Abs(float64(x-rounded[j])) > 1e-6*largest {
					t.Fatalf("element %d: found %v after %v, expected no change", j, x, rounded[j])
				}
			}
		})
	})
	long := []float32{0x1p41, -3}
	if Round4(long, 2); long[0] != 0x1p41 || long[1] != -3 {
		t.Errorf("found %v, expected rows above 2^40 as they are", long)
	}
}

func TestInt8RowsRefuses(t *testing.T) {
	cases := []struct {
		name       string
		rows, bias []float32
		dim        int
		want       string
	}{
		{"a large weight", []float32{1, 0x1p41}, nil, 1, "encode: row 1: found magnitude 2.1990233e+12, expected at most 1.099511627776e+12"},
		{"a NaN", []float32{float32(math.NaN())}, nil, 1, "encode: row 0: found magnitude NaN, expected at most 1.099511627776e+12"},
		{"a large bias", []float32{1}, []float32{-0x1p41}, 1, "encode: bias of row 0: found -2.1990233e+12, expected a magnitude of at most 1.099511627776e+12"},
		{"a large dimension", make([]float32, kernels.MaxInt8Dim+1), nil, kernels.MaxInt8Dim + 1, "encode: dimension: found 65537, expected at most 65536"},
	}
	for _, c := range cases {
		_, err := NewInt8Rows(alignedBytes(len(c.rows)/c.dim*kernels.Int8Stride(c.dim)), kernels.Float32Rows(c.rows, c.dim), c.bias)
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: error %v, want %s", c.name, err, c.want)
		}
	}
}

// Rows that are codes of 4 bits times a number are these codes, and their error is of rounding
// alone.
func TestNarrowRowsAreExact(t *testing.T) {
	r := newRand(33)
	for _, d := range []int{1, 7, 16, 200} {
		const n = 90
		rows := make([]float32, n*d)
		for row := range slices.Chunk(rows, d) {
			times := float32(r.ExpFloat64())
			for j := range row {
				row[j] = times * float32(r.IntN(2*kernels.MaxCode4+1)-kernels.MaxCode4)
			}
			row[r.IntN(d)] = times * kernels.MaxCode4
		}
		m, err := NewInt8Rows(alignedBytes(n*kernels.Int8Stride(d)), kernels.Float32Rows(rows, d), nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			rec := record8(m, i)
			for j, code := range rec.codes {
				if want := math.Round(float64(rows[i*d+j]) / rec.scale); float64(code) != want {
					t.Fatalf("dim %d, row %d, element %d: found the code %d, expected %g", d, i, j, code, want)
				}
			}
			rec.check(t, "4 bits in 8", rows[i*d:][:d], kernels.MaxCode4)
			if rec.err > 0x1p-19*rec.norm {
				t.Errorf("dim %d, row %d: found an error of %g, expected the error of rounding for the norm %g", d, i, rec.err, rec.norm)
			}
		}
	}
}

// Arguments that do not fit are a panic.
func TestBrokenContractsPanic(t *testing.T) {
	f := func(n int) []float32 { return make([]float32, n) }
	m, err := NewInt8Rows(alignedBytes(4*kernels.Int8Stride(3)), kernels.Float32Rows(f(12), 3), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, want string
		call       func()
	}{
		{"NewInt8And4Rows data4", "length of data", func() {
			_, _, _ = NewInt8And4Rows(alignedBytes(64), make([]byte, 1), kernels.Float32Rows(f(3), 3), nil)
		}},
		{"NewInt8Rows data", "length of data", func() { _, _ = NewInt8Rows(make([]byte, 1), kernels.Float32Rows(f(3), 3), nil) }},
		{"NewInt8Rows alignment", "not 16-byte aligned", func() { _, _ = NewInt8Rows(alignedBytes(65)[1:], kernels.Float32Rows(f(3), 3), nil) }},
		{"NewInt8Rows rows", "not a multiple", func() { _, _ = NewInt8Rows(nil, kernels.Float32Rows(f(4), 3), nil) }},
		{"NewInt8Rows bias", "length of bias", func() { _, _ = NewInt8Rows(alignedBytes(64), kernels.Float32Rows(f(3), 3), f(2)) }},
		{"NewInt8Rows no dimension", "dimension is not positive", func() { _, _ = NewInt8Rows(nil, kernels.Float32Rows(nil, 0), nil) }},
		{"NewPanels id", "id out of range", func() { _, _ = NewPanels(m, alignedBytes(kernels.PanelBytes(3, false)), []uint32{0, 4}, []int{0, 2}) }},
		{"NewPanels data", "length of data", func() {
			_, _ = NewPanels(m, alignedBytes(kernels.PanelBytes(3, false)), []uint32{0, 1}, []int{0, 1, 2})
		}},
		{"NewPanels alignment", "not 64-byte aligned", func() {
			_, _ = NewPanels(m, alignedBytes(kernels.PanelBytes(3, false) + 16)[16:], []uint32{0, 1}, []int{0, 2})
		}},
		{"NewPanels starts", "starts are not from 0", func() { _, _ = NewPanels(m, alignedBytes(kernels.PanelBytes(3, false)), []uint32{0, 1}, []int{0, 1}) }},
		{"NewPanels no starts", "starts are not from 0", func() { _, _ = NewPanels(m, nil, nil, nil) }},
		{"NewPanels starts that go back", "not ascending", func() { _, _ = NewPanels(m, nil, []uint32{0, 1}, []int{0, 2, 1, 2}) }},
		{"NewBlockRows of float32", "not quantised", func() { _, _ = NewBlockRows(kernels.Float32Rows(f(64), 32), nil) }},
		{"NewBlockRows bias", "length of bias", func() { _, _ = NewBlockRows(kernels.QuantisedRows(make([]byte, 34), kernels.Q8_0, 32), f(2)) }},
	} {
		func() {
			defer func() {
				if p, _ := recover().(string); !strings.Contains(p, c.want) {
					t.Errorf("%s: recovered %q, want %s", c.name, p, c.want)
				}
			}()
			c.call()
		}()
	}
}
