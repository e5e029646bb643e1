package kernels

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/simdtest"
)

// record is a record taken apart.
type record struct {
	codes                  []int
	scale, bias, err, norm float64
}

// read returns record i, whose codes are read by code, as they are stored, and
// hold bias beyond their own.
func (m *codeRows) read(i, bias int, code func(rec []byte, j int) byte) record {
	rec := m.data[i*m.stride : (i+1)*m.stride]
	r := record{codes: make([]int, m.dim)}
	for j := range r.codes {
		r.codes[j] = int(code(rec, j)) - bias
	}
	for k, f := range []*float64{&r.scale, &r.bias, &r.err, &r.norm} {
		*f = float64(math.Float32frombits(binary.LittleEndian.Uint32(rec[m.stride-metaBytes+4*k:])))
	}
	return r
}

func (m *Int8Rows) record(i int) record {
	return m.read(i, codeBias, func(rec []byte, j int) byte { return rec[j] })
}

func (m *Int4Rows) record(i int) record {
	half := (m.dim + 1) / 2
	return m.read(i, code4Bias, func(rec []byte, j int) byte {
		if j < half {
			return rec[j] & 15
		}
		return rec[j-half] >> 4
	})
}

// check fails unless the record's bounds hold for w, and tightly, and its codes are
// within most.
func (r record) check(t fataler, name string, w []float32, most int) {
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
			m8, m4, err := NewInt8And4Rows(alignedBytes(Int8Stride(d)), alignedBytes(Int4Stride(d)), Float32Rows(w, d), bias)
			if err != nil {
				t.Fatal(err)
			}
			r8, r4 := m8.record(0), m4.record(0)
			r8.check(t, "8 bits", w, maxCode)
			r4.check(t, "4 bits", w, maxCode4)
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
		for _, d := range []int{MaxInt8Dim - 1, MaxInt8Dim} {
			w := fill(r, make([]float32, d))
			m8, m4, err := NewInt8And4Rows(alignedBytes(Int8Stride(d)), alignedBytes(Int4Stride(d)), Float32Rows(w, d), nil)
			if err != nil {
				t.Fatal(err)
			}
			// Sums of 4,096 squares a lane are some 2^-12 off at the worst.
			for name, rec := range map[string]record{"8 bits": m8.record(0), "4 bits": m4.record(0)} {
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
	w := fill(r, make([]float32, n*d))
	m4, err := newInt4Rows(alignedBytes(n*Int4Stride(d)), Float32Rows(w, d), nil)
	if err != nil {
		t.Fatal(err)
	}
	clipped := 0
	for i := range n {
		row, rec := w[i*d:(i+1)*d], m4.record(i)
		var largest, err2 float64
		for _, x := range row {
			largest = max(largest, math.Abs(float64(x)))
		}
		scale := largest / maxCode4
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

// Only rows that do not fill a line are padded to it.
func TestStrides(t *testing.T) {
	for _, c := range []struct{ dim, want8, want4 int }{
		{1, 64, 64}, {48, 64, 64}, {49, 128, 64}, {64, 80, 64}, {65, 128, 64}, {128, 144, 80}, {640, 656, 336}, {2048, 2064, 1040}, {2049, 2112, 1088},
	} {
		if got8, got4 := Int8Stride(c.dim), Int4Stride(c.dim); got8 != c.want8 || got4 != c.want4 {
			t.Errorf("dim %d: strides %d and %d, want %d and %d", c.dim, got8, got4, c.want8, c.want4)
		}
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
			if largest < 2*minCertified {
				if !slices.Equal(rounded, w) {
					t.Fatalf("found %v, expected %v as it is", rounded, w)
				}
				return
			}
			m, err := NewInt8Rows(alignedBytes(Int8Stride(d)), Float32Rows(rounded, d), nil)
			if err != nil {
				t.Fatal(err)
			}
			if rec := m.record(0); rec.err > 0x1p-18*rec.norm || !m.withinHalves([]uint32{0}) {
				t.Fatalf("found the codes %v with an error of %g, expected codes of 4 bits without one", rec.codes, rec.err)
			}
			for _, s := range scales4 {
				var other float64
				for _, x := range w {
					by := largest * s.share / float64(s.most)
					e := float64(x) - by*max(-maxCode4, min(maxCode4, math.RoundToEven(float64(x)/by)))
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
