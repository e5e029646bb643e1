package kernels

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

// alignedBytes returns n bytes that start at a multiple of 64.
func alignedBytes(n int) []byte {
	buf := make([]byte, n+rowAlign)
	start := int(-uintptr(unsafe.Pointer(&buf[0])) % rowAlign)
	return buf[start : start+n : start+n]
}

func int8Rows(t testing.TB, rows, bias []float32, d int) *Int8Rows {
	t.Helper()
	m, err := NewInt8Rows(alignedBytes(len(rows)/d*Int8Stride(d)), Float32Rows(rows, d), bias)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// newInt4Rows returns 4-bit codes alone.
func newInt4Rows(data []byte, rows Rows, bias []float32) (*Int4Rows, error) {
	_, m, err := NewInt8And4Rows(alignedBytes(rows.Len()*Int8Stride(rows.Dim())), data, rows, bias)
	return m, err
}

func TestQuantizedVectorBoundsItsNormAndError(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			h := drawVector(t, rapid.IntRange(1, 200).Draw(t, "dim"))
			v := NewInt8Vector(len(h))
			if v.Set(h) != Certified {
				return
			}
			var norm2, err2 float64
			for i, x := range h {
				e := float64(x) - float64(v.scale)*float64(v.codes[i])
				norm2 += float64(x) * float64(x)
				err2 += e * e
			}
			if norm, err := math.Sqrt(norm2), math.Sqrt(err2); norm > float64(v.norm) || err > float64(v.err) {
				t.Fatalf("||h|| = %g, bound %g; ||h - h^|| = %g, bound %g", norm, v.norm, err, v.err)
			}
			if low, high := v.Length(); !(low <= math.Sqrt(norm2) && math.Sqrt(norm2) <= high && high-low <= 1e-4*high) {
				t.Fatalf("||h|| = %g, found %g to %g", math.Sqrt(norm2), low, high)
			}
		})
	})
}

func TestVectorFit(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	cases := []struct {
		name string
		x    float32
		want Fit
	}{
		{"one", 1, Certified},
		{"zero", 0, Certified},
		{"negative zero", float32(math.Copysign(0, -1)), Certified},
		{"largest certified", 0x1p40, Certified},
		{"too large", 0x1.000002p40, Uncertified},
		{"largest float32", math.MaxFloat32, Uncertified},
		{"smallest certified", 0x1p-60, Certified},
		{"too small", 0x1p-61, Uncertified},
		{"subnormal", 1e-45, Uncertified},
		{"NaN", nan, NotFinite},
		{"negative NaN", math.Float32frombits(0xffc00001), NotFinite},
		{"signalling NaN", math.Float32frombits(0x7f800001), NotFinite},
		{"Inf", inf, NotFinite},
		{"-Inf", -inf, NotFinite},
	}
	simdtest.EachLevel(t, func(t *testing.T) {
		for _, c := range cases {
			for _, d := range []int{1, 7, 16, 17, 33} {
				for at := range d {
					h := make([]float32, d)
					h[at] = c.x
					if got := NewInt8Vector(d).Set(h); got != c.want {
						t.Errorf("%s at %d of %d: Set = %v, want %v", c.name, at, d, got, c.want)
					}
				}
			}
		}
	})
}

// plainBounds is the oracle of Bounds: code by code. code returns code j of a
// record, plus bias.
func plainBounds(m *codeRows, v *Int8Vector, bias int32, code func(rec []byte, j int) byte) (lower, upper []float32) {
	lower, upper = make([]float32, m.n), make([]float32, m.n)
	for i := range lower {
		rec := m.data[i*m.stride : (i+1)*m.stride]
		var dot int32
		for j, q := range v.codes[:m.dim] {
			dot += (int32(code(rec[:m.stride-MetaBytes], j)) - bias) * int32(q)
		}
		lower[i], upper[i] = interval(rec, dot, v, m.slack)
	}
	return lower, upper
}

func TestBoundsAreEqualBitForBit(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) {
		r := newRand(4)
		for _, d := range dims() {
			n := r.IntN(50)
			rows, bias := fill(r, make([]float32, n*d)), fill(r, make([]float32, n))
			m := int8Rows(t, rows, bias, d)
			v := NewInt8Vector(d)
			v.Set(fill(r, make([]float32, d)))
			wantLower, wantUpper := plainBounds(&m.codeRows, v, CodeBias, func(rec []byte, j int) byte { return rec[j] })
			lower, upper := make([]float32, n), make([]float32, n)
			m.Bounds(lower, upper, v)
			for i := range lower {
				if lower[i] != wantLower[i] || upper[i] != wantUpper[i] {
					t.Fatalf("dim %d, row %d of %d: [%v, %v], want [%v, %v]", d, i, n, lower[i], upper[i], wantLower[i], wantUpper[i])
				}
			}
			m4, err := newInt4Rows(alignedBytes(n*Int4Stride(d)), Float32Rows(rows, d), bias)
			if err != nil {
				t.Fatal(err)
			}
			lower4, upper4 := make([]float32, n), make([]float32, n)
			m4.Bounds(lower4, upper4, v)
			want4Lower, want4Upper := plainBounds(&m4.codeRows, v, code4Bias, func(rec []byte, j int) byte {
				if half := (d + 1) / 2; j >= half {
					return rec[j-half] >> 4
				}
				return rec[j] & 15
			})
			for i := range lower4 {
				if lower4[i] != want4Lower[i] || upper4[i] != want4Upper[i] {
					t.Fatalf("dim %d, row %d of %d, 4 bits: [%v, %v], want [%v, %v]", d, i, n, lower4[i], upper4[i], want4Lower[i], want4Upper[i])
				}
			}
			if n == 0 {
				continue
			}
			ids := randomIDs(r, r.IntN(50), n)
			m.GatherBounds(lower[:0:0], upper[:0:0], nil, v)
			lower, upper = make([]float32, len(ids)), make([]float32, len(ids))
			m.GatherBounds(lower, upper, ids, v)
			for j, id := range ids {
				if lower[j] != wantLower[id] || upper[j] != wantUpper[id] {
					t.Fatalf("dim %d, id %d: [%v, %v], want [%v, %v]", d, id, lower[j], upper[j], wantLower[id], wantUpper[id])
				}
			}
		}
	})
}

// Near the least magnitudes the product of the two scales is subnormal: its error
// is absolute, and many products of codes multiply it.
func TestBoundsHoldWhereTheScalesUnderflow(t *testing.T) {
	const d, n = 4096, 200
	simdtest.EachLevel(t, func(t *testing.T) {
		r := newRand(21)
		rows, h := make([]float32, n*d), make([]float32, d)
		for i := range n {
			w := float32(math.Ldexp(1+r.Float64(), -60))
			for j := range d {
				rows[i*d+j] = w
			}
		}
		m, v := int8Rows(t, rows, nil, d), NewInt8Vector(d)
		for range 5 {
			x := float32(math.Ldexp(1+r.Float64(), -60))
			for j := range h {
				h[j] = x
			}
			if v.Set(h) != Certified {
				t.Fatal("not certified")
			}
			lower, upper, want := make([]float32, n), make([]float32, n), make([]float64, n)
			m.Bounds(lower, upper, v)
			Float32Rows(rows, d).RefScan(want, nil, h)
			for i, x := range want {
				if !(float64(lower[i]) <= x && x <= float64(upper[i])) {
					t.Fatalf("row %d: [%g, %g] does not hold %g", i, lower[i], upper[i], x)
				}
			}
		}
	})
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

// drawVector draws a vector of one of the kinds that strain the envelope.
func drawVector(t *rapid.T, d int) []float32 {
	return simdtest.Vector(newRand(rapid.Uint64().Draw(t, "seed")), rapid.IntRange(0, 9).Draw(t, "kind"),
		math.Ldexp(1, rapid.IntRange(-58, 38).Draw(t, "scale")), d)
}

// alongError makes row parallel to the rounding error of h, in its signs: the case in which the
// Cauchy-Schwarz inequality is tight.
func alongError(row, h []float32) {
	v := NewInt8Vector(len(h))
	if v.Set(h) != Certified {
		return
	}
	for i := range row {
		row[i] = float32(math.Copysign(1, float64(h[i])-float64(v.scale)*float64(v.codes[i])))
	}
}

// checkEnvelope fails if an interval misses its reference logit.
func checkEnvelope(t *rapid.T) {
	d := rapid.IntRange(1, 130).Draw(t, "dim")
	n := rapid.IntRange(1, 40).Draw(t, "rows")
	h := drawVector(t, d)
	var rows, bias []float32
	biasScale := math.Ldexp(1, rapid.IntRange(-60, 39).Draw(t, "bias scale"))
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "bias seed"), 0))
	for range n {
		row := drawVector(t, d)
		switch rapid.IntRange(0, 2).Draw(t, "direction") {
		case 0:
			copy(row, h)
		case 1:
			alongError(row, h)
		}
		rows = append(rows, row...)
		bias = append(bias, float32((2*r.Float64()-1)*biasScale))
	}
	v := NewInt8Vector(d)
	if v.Set(h) != Certified {
		return
	}
	m, err := NewInt8Rows(alignedBytes(n*Int8Stride(d)), Float32Rows(rows, d), bias)
	if err != nil {
		t.Fatal(err)
	}
	lower, upper := make([]float32, n), make([]float32, n)
	m.Bounds(lower, upper, v)
	m4, err := newInt4Rows(alignedBytes(n*Int4Stride(d)), Float32Rows(rows, d), bias)
	if err != nil {
		t.Fatal(err)
	}
	lower4, upper4 := make([]float32, n), make([]float32, n)
	m4.Bounds(lower4, upper4, v)
	for i := range lower {
		x := RefDot(rows[i*d:(i+1)*d], h) + float64(bias[i])
		if !(float64(lower[i]) <= x && x <= float64(upper[i])) {
			t.Fatalf("row %d: logit %g outside [%g, %g]", i, x, lower[i], upper[i])
		}
		if !(float64(lower4[i]) <= x && x <= float64(upper4[i])) {
			t.Fatalf("row %d, 4 bits: logit %g outside [%g, %g]", i, x, lower4[i], upper4[i])
		}
	}
}

func TestBoundsHoldTheReferenceLogit(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) { rapid.Check(t, checkEnvelope) })
}

func FuzzBoundsHoldTheReferenceLogit(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkEnvelope)) }

func TestBoundsHoldWhereCauchyAndSchwarzAreTight(t *testing.T) {
	// Each element of h is just off the middle between two codes, and the row
	// has the sign of each error: the logit is within a hundredth of the end
	// of its interval.
	simdtest.EachLevel(t, func(t *testing.T) {
		for _, d := range []int{300, 1000, MaxInt8Dim} {
			h, w := make([]float32, d), make([]float32, d)
			for i := range h {
				h[i] = float32(2*(i%2)-1) * float32((float64(i%100)+0.499)/127)
			}
			h[0] = 1
			alongError(w, h)
			v := NewInt8Vector(d)
			v.Set(h)
			for _, end := range []string{"upper", "lower"} {
				var lower, upper [1]float32
				int8Rows(t, w, nil, d).Bounds(lower[:], upper[:], v)
				x, lo, up := RefDot(w, h), float64(lower[0]), float64(upper[0])
				if x < lo || x > up {
					t.Errorf("dim %d, %s end: logit %v outside [%v, %v]", d, end, x, lo, up)
				}
				if room := min(x-lo, up-x); room > 0.01*(up-lo) {
					t.Errorf("dim %d, %s end: logit %v is not near an end of [%v, %v]", d, end, x, lo, up)
				}
				for i := range w {
					w[i] = -w[i]
				}
			}
		}
	})
}

// TestGoldenIntervals compares intervals with their bits on amd64: they are the same on every
// architecture and level.
func TestGoldenIntervals(t *testing.T) {
	const d, n, want = 77, 50, uint64(0x9faecfb79ab1b788)
	r := rand.New(rand.NewPCG(9, 9))
	uniform := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(2*r.Float64() - 1)
		}
		return x
	}
	rows, bias, h := uniform(n*d), uniform(n), uniform(d)
	simdtest.EachLevel(t, func(t *testing.T) {
		v := NewInt8Vector(d)
		v.Set(h)
		lower, upper := make([]float32, n), make([]float32, n)
		int8Rows(t, rows, bias, d).Bounds(lower, upper, v)
		sum := fnv.New64a()
		for i := range lower {
			var b [8]byte
			binary.LittleEndian.PutUint32(b[:4], math.Float32bits(lower[i]))
			binary.LittleEndian.PutUint32(b[4:], math.Float32bits(upper[i]))
			sum.Write(b[:])
		}
		if got := sum.Sum64(); got != want {
			t.Errorf("hash of all intervals: %#x, want %#x", got, want)
		}
	})
}

func TestBoundsOfExtremeCodesDoNotOverflow(t *testing.T) {
	// All codes at 127: the largest sums that there are.
	simdtest.EachLevel(t, func(t *testing.T) {
		d := MaxInt8Dim
		rows, h := make([]float32, d), make([]float32, d)
		for i := range h {
			rows[i], h[i] = 1, 1
		}
		m := int8Rows(t, rows, nil, d)
		v := NewInt8Vector(d)
		v.Set(h)
		var lower, upper [1]float32
		m.Bounds(lower[:], upper[:], v)
		if x := float32(d); lower[0] > x || upper[0] < x || upper[0]-lower[0] > 1e-3*x {
			t.Errorf("[%v, %v], want a narrow interval round %v", lower[0], upper[0], x)
		}
	})
}

func TestPartIsThoseRows(t *testing.T) {
	const n, d = 20, 33
	r := newRand(12)
	m := int8Rows(t, fill(r, make([]float32, n*d)), fill(r, make([]float32, n)), d)
	v := NewInt8Vector(d)
	v.Set(fill(r, make([]float32, d)))
	lower, upper := make([]float32, n), make([]float32, n)
	m.Bounds(lower, upper, v)
	for first := range n + 1 {
		for end := first; end <= n; end++ {
			part := m.Part(first, end)
			if part.Len() != end-first || part.Dim() != d {
				t.Fatalf("rows %d to %d: found %d rows of %d elements", first, end, part.Len(), part.Dim())
			}
			gotLower, gotUpper := make([]float32, end-first), make([]float32, end-first)
			part.Bounds(gotLower, gotUpper, v)
			if !slices.Equal(gotLower, lower[first:end]) || !slices.Equal(gotUpper, upper[first:end]) {
				t.Fatalf("rows %d to %d: found other intervals than for single rows", first, end)
			}
		}
	}
}

// panelsOfLists packs lists of rows.
func panelsOfLists(m *Int8Rows, lists ...[]uint32) *Int8Panels {
	var ids []uint32
	starts, n := []int{0}, 0
	for _, list := range lists {
		ids = append(ids, list...)
		starts, n = append(starts, len(ids)), n+PanelsOf(len(list))
	}
	panels, err := NewPanels(m, alignedBytes(n*PanelBytes(m.Dim(), false)), ids, starts)
	if err != nil {
		panic(err) // no file is involved
	}
	return panels
}

// fillNarrow makes each row codes of 4 bits times a number per row.
func fillNarrow(r *rand.Rand, rows []float32, d int) []float32 {
	for row := range slices.Chunk(rows, d) {
		times := float32(r.ExpFloat64())
		for i := range row {
			row[i] = times * float32(r.IntN(2*MaxCode4+1)-MaxCode4)
		}
		row[r.IntN(d)] = times * MaxCode4
	}
	return rows
}

// Rows in panels have the intervals of GatherBounds, bit for bit, for one context and for
// several, and the biases of the rows. The other rows of a panel are below all. Panels are
// narrow if all rows are codes of 4 bits, and not if one is not.
func TestPanelsHaveTheIntervalsOfTheirRows(t *testing.T) {
	t.Run("wide", func(t *testing.T) { testPanels(t, false) })
	t.Run("narrow", func(t *testing.T) { testPanels(t, true) })
}

func testPanels(t *testing.T, narrow bool) {
	below := float32(math.Inf(-1))
	r := newRand(31)
	for _, d := range []int{1, 2, 3, 4, 7, 16, 31, 33, 48, 60, 64, 200, 500, 640, 5000} {
		const n = 90
		bias := fill(r, make([]float32, n))
		rows := fillNarrow(r, make([]float32, n*d), d)
		if !narrow {
			fill(r, rows)
		}
		m := int8Rows(t, rows, bias, d)
		vs := make([]*Int8Vector, BatchContexts)
		for c := range vs {
			vs[c] = NewInt8Vector(d)
			vs[c].Set(fill(r, make([]float32, d)))
		}
		var lists [][]uint32
		for _, size := range []int{0, 1, 5, 16, 31, 0, n, 32} {
			lists = append(lists, randomIDs(r, size, n))
		}
		panels := panelsOfLists(m, lists...)
		if want := narrow || d == 1; panels.narrow != want { // an element alone is a code times a number
			t.Errorf("dim %d: found narrow %v, expected %v", d, panels.narrow, want)
		}
		simdtest.EachLevel(t, func(t *testing.T) {
			first := 0
			for _, ids := range lists {
				size := PanelsOf(len(ids))
				for contexts := range BatchContexts + 1 {
					lower, upper := make([]float32, contexts*size*PanelRows), make([]float32, contexts*size*PanelRows)
					panels.Bounds(lower, upper, first, size, vs[:contexts]...)
					for c, v := range vs[:contexts] {
						wantLower, wantUpper := make([]float32, len(ids)), make([]float32, len(ids))
						m.GatherBounds(wantLower, wantUpper, ids, v)
						for len(wantLower) < size*PanelRows {
							wantLower, wantUpper = append(wantLower, below), append(wantUpper, below)
						}
						at := c * size * PanelRows
						if !slices.Equal(lower[at:][:len(wantLower)], wantLower) || !slices.Equal(upper[at:][:len(wantUpper)], wantUpper) {
							t.Errorf("%d rows of %d elements, context %d of %d: found other intervals than GatherBounds gives", len(ids), d, c, contexts)
						}
					}
				}
				for i, id := range ids {
					if found := panels.Bias(PanelRows*first + i); found != bias[id] || found != m.Bias(int(id)) {
						t.Errorf("row %d: found the bias %v, expected %v", id, found, bias[id])
					}
				}
				first += size
			}
			if first != panels.Len() {
				t.Errorf("found %d panels, expected %d", panels.Len(), first)
			}
		})
	}
}

// Survivors gives the intervals of Bounds, and the rows whose upper ends reach the number of
// KthBound, or the k-th largest lower end if there is none.
func TestSurvivorsAreThoseOfItsParts(t *testing.T) {
	r := newRand(32)
	for _, d := range []int{1, 48, 200} {
		const n = 2000
		m := int8Rows(t, fill(r, make([]float32, n*d)), fill(r, make([]float32, n)), d)
		v := NewInt8Vector(d)
		v.Set(fill(r, make([]float32, d)))
		lists := [][]uint32{randomIDs(r, 7, n)}
		for _, size := range []int{1, 16, 31, 63, 64, 100, 300, 2000} { // the last takes two calls
			lists = append(lists, randomIDs(r, size, n))
		}
		panels := panelsOfLists(m, lists...)
		simdtest.EachLevel(t, func(t *testing.T) {
			first := 0
			for _, ids := range lists {
				size, room := len(ids), PanelsOf(len(ids))*PanelRows
				for _, k := range []int{1, 2, 5, 16, 17, 40, size} {
					if k > size {
						continue
					}
					wantLower, wantUpper, scores := make([]float32, room), make([]float32, room), make([]float32, size)
					panels.Bounds(wantLower, wantUpper, first, room/PanelRows, v)
					threshold, ok := KthBound(wantLower[:size], k)
					if !ok {
						copy(scores, wantLower)
						threshold = KthLargest(scores, k)
					}
					var want []uint32
					for i, x := range wantUpper[:size] {
						if x >= threshold {
							want = append(want, uint32(i))
						}
					}
					lower, upper, rows := make([]float32, room+1), make([]float32, room+1), make([]uint32, room+1)
					got := rows[:panels.Survivors(lower, upper, rows, first, size, k, v)]
					if !slices.Equal(got, want) {
						t.Errorf("%d of %d rows of %d elements: found %v, expected %v", k, size, d, got, want)
					}
					if !slices.Equal(lower[:room], wantLower) || !slices.Equal(upper[:room], wantUpper) {
						t.Errorf("%d of %d rows of %d elements: found other intervals than Bounds gives", k, size, d)
					}
				}
				first += room / PanelRows
			}
		})
	}
}
