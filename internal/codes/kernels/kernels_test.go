package kernels

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/ground/float16"
	"github.com/learning-to-screen/l2s/internal/ground/simd"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

// dims are the vector lengths that the tests walk: every remainder of every
// unrolled loop, and some that are large.
// dims returns every length up to 300, and longer ones. With -short it leaves out most lengths in
// which the widest loops, of 64 elements, have run twice before.
func dims() []int {
	var d []int
	for n := 1; n <= 300; n++ {
		if !testing.Short() || n <= 2*64+16 || n%9 == 0 || n == 256 {
			d = append(d, n)
		}
	}
	return append(d, 511, 512, 513, 1000, 1500, 2049)
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x6c3273)) }

func fill(r *rand.Rand, x []float32) []float32 {
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

func randomIDs(r *rand.Rand, n, rows int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(r.IntN(rows))
	}
	return ids
}

// elements are the types that rows can have.
var elements = []Element{Float32, Float16, BFloat16, Q4_0, Q5_0, Q8_0, Q4_K, Q5_K, Q6_K, Q4_1, Q5_1}

// randomRows fills the elements with finite numbers of a type, from offset elements after a word's
// start on, and returns them widened too. Magnitudes are 2^exponent and, from element to element,
// far from it; quantised elements, with d a multiple of a block, may have any magnitude.
func randomRows(r *rand.Rand, n, d, offset, exponent int, e Element) (rows Rows, wide []float32) {
	if Quantised(e) {
		return randomBlockRows(r, n, d, offset, e)
	}
	wide, narrow := make([]float32, offset+n*d)[offset:], make([]uint16, offset+n*d)[offset:]
	for i := range wide {
		x := float32(math.Ldexp(r.NormFloat64(), exponent+r.IntN(40)-20))
		if r.IntN(20) == 0 {
			x = 0
		}
		switch e {
		case Float32:
			wide[i] = x
		case Float16:
			if narrow[i] = uint16(r.Uint32()); narrow[i]>>10&31 == 31 {
				narrow[i] &^= 1 << 14
			}
			wide[i] = float16.Widen(narrow[i])
		case BFloat16:
			narrow[i] = uint16(math.Float32bits(x) >> 16)
			wide[i] = math.Float32frombits(uint32(narrow[i]) << 16)
		}
	}
	switch e {
	case Float16:
		return Float16Rows(narrow, d), wide
	case BFloat16:
		return BFloat16Rows(narrow, d), wide
	}
	return Float32Rows(wide, d), wide
}

// operands has the data that the kernels read in one round of a test.
type operands struct {
	n, d, k   int
	rows      Rows
	wide      []float32 // rows
	bias, h   []float32
	ids       []uint32
	x         []float64 // n
	threshold float32
	m         *Int8Rows
	m4        *Int4Rows
	blocks    *BlockRows // of quantised rows
}

// newOperands returns n rows of d elements, or of the next whole blocks, offset elements after a
// word's start.
func newOperands(r *rand.Rand, n, d, offset, exponent int, e Element) *operands {
	block, _ := BlockOf(e)
	d = (d + block - 1) / block * block
	o := &operands{n: n, d: d, k: 1 + r.IntN(min(n, 16)), ids: randomIDs(r, r.IntN(2*n), n), x: make([]float64, n)}
	o.rows, o.wide = randomRows(r, n, d, offset, exponent, e)
	_, o.bias = randomRows(r, n, 1, offset, exponent, Float32)
	_, o.h = randomRows(r, 1, d, offset, exponent, Float32)
	for i := range o.x {
		o.x[i] = math.Ldexp(r.NormFloat64(), r.IntN(12))
		if r.IntN(10) == 0 {
			o.x[i] = math.Inf(-1)
		}
	}
	o.threshold = o.bias[r.IntN(n)]
	// Rows that cannot be certified are left out.
	o.m, _ = NewInt8Rows(alignedBytes(n*Int8Stride(d)), o.rows, o.bias)
	o.m4, _ = newInt4Rows(alignedBytes(n*Int4Stride(d)), o.rows, o.bias)
	if Quantised(e) {
		o.blocks, _ = Blocks(o.rows, o.bias)
	}
	return o
}

// vectors returns two vectors, of h and of the reverse of h, at another scale, or none.
func (o *operands) vectors() (v, w *Int8Vector) {
	v, w = NewInt8Vector(o.d), NewInt8Vector(o.d)
	reversed := slices.Clone(o.h)
	slices.Reverse(reversed)
	for i := range reversed {
		reversed[i] *= 0.75
	}
	if v.Set(o.h) != Certified || w.Set(reversed) != Certified {
		return nil, nil
	}
	return v, w
}

func (o *operands) row(i int) []float32 { return o.wide[i*o.d : (i+1)*o.d] }

// logit is the reference logit by its definition.
func (o *operands) logit(i int) float64 {
	var lane [refLanes]float64
	for j, w := range o.row(i) {
		lane[j%refLanes] += float64(w) * float64(o.h[j])
	}
	for n := refLanes / 2; n > 0; n /= 2 {
		for j := range n {
			lane[j] += lane[j+n]
		}
	}
	return lane[0] + float64(o.bias[i])
}

// numbers converts results to one type, which holds them all exactly.
func numbers[T float32 | float64 | uint32](x ...T) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}

// intervals returns the two halves of the output of compute for n rows.
func intervals(n int, compute func(lower, upper []float32)) []float64 {
	both := make([]float32, 2*n)
	compute(both[:n], both[n:])
	return numbers(both...)
}

// sameOnEveryLevel are the kernels whose results have the same bits on every level. want is the
// definition, or nil if other tests compare with it: then it is the result of plain Go. readsRows
// marks the kernels that read Rows, of any element.
var sameOnEveryLevel = []struct {
	name      string
	readsRows bool
	got, want func(o *operands) []float64
}{
	{"Rows.RefScan", true, func(o *operands) []float64 {
		dst := make([]float64, o.n)
		o.rows.RefScan(dst, o.bias, o.h)
		return dst
	}, func(o *operands) (want []float64) {
		for i := range o.n {
			want = append(want, o.logit(i))
		}
		return want
	}},
	{"Rows.RefScan of a part", true, func(o *operands) []float64 {
		dst := make([]float64, o.n-o.n/3)
		Part(o.rows, o.n/3, o.n).RefScan(dst, o.bias[o.n/3:], o.h)
		return dst
	}, func(o *operands) (want []float64) {
		for i := o.n / 3; i < o.n; i++ {
			want = append(want, o.logit(i))
		}
		return want
	}},
	{"Rows.RefGatherDot", true, func(o *operands) []float64 {
		dst := make([]float64, len(o.ids))
		o.rows.RefGatherDot(dst, o.bias, o.ids, o.h)
		return dst
	}, func(o *operands) (want []float64) {
		for _, id := range o.ids {
			want = append(want, o.logit(int(id)))
		}
		return want
	}},
	{"Rows.Widen", true, func(o *operands) []float64 {
		dst := make([]float32, o.d)
		o.rows.Widen(dst, o.n-1)
		return numbers(dst...)
	}, func(o *operands) []float64 { return numbers(o.row(o.n - 1)...) }},
	{"FirstNotFinite", true, func(o *operands) []float64 {
		if _, _, found := FirstNotFinite(o.rows); found {
			return []float64{1}
		}
		return nil
	}, func(*operands) []float64 { return nil }},
	{"RefDot", false, func(o *operands) []float64 { return []float64{RefDot(o.row(0), o.h) + float64(o.bias[0])} },
		func(o *operands) []float64 { return []float64{o.logit(0)} }},
	{"Axpy", false, func(o *operands) []float64 {
		dst := make([]float64, o.d)
		for i := range dst {
			dst[i] = float64(i) / 3
		}
		Axpy(dst, o.threshold, o.h)
		return dst
	}, func(o *operands) (want []float64) {
		for i, v := range o.h {
			want = append(want, float64(i)/3+float64(float64(o.threshold)*float64(v)))
		}
		return want
	}},
	{"SumExpCentres", false, func(o *operands) []float64 {
		lower, upper := make([]float32, o.n), make([]float32, o.n)
		for i, x := range o.x {
			lower[i], upper[i] = float32(x)-1, float32(x)+float32(i%3)
		}
		m, sum := SumExpCentres(lower, upper, 0.37)
		return []float64{float64(m), sum}
	}, nil},
	{"Int8Vector.Set", false, func(o *operands) []float64 {
		v := NewInt8Vector(o.d)
		fit := v.Set(o.h)
		all := []float64{float64(fit), float64(v.scale), float64(v.norm), float64(v.err), float64(v.sum), float64(v.below)}
		for _, q := range v.codes {
			all = append(all, float64(q))
		}
		return all
	}, nil},
	{"the codes", true, func(o *operands) (all []float64) {
		data8, data4 := alignedBytes(o.n*Int8Stride(o.d)), alignedBytes(o.n*Int4Stride(o.d))
		if _, _, err := NewInt8And4Rows(data8, data4, o.rows, o.bias); err != nil {
			return nil
		}
		for _, b := range slices.Concat(data8, data4) {
			all = append(all, float64(b))
		}
		return all
	}, func(o *operands) (all []float64) {
		if o.m == nil || o.m4 == nil {
			return nil
		}
		for _, b := range slices.Concat(o.m.data, o.m4.data) {
			all = append(all, float64(b))
		}
		return all
	}},
	{"the bounds", true, func(o *operands) []float64 {
		v, w := o.vectors()
		if w == nil || o.m == nil || o.m4 == nil {
			return nil
		}
		vs := []*Int8Vector{v, w, w}
		panels := panelsOfLists(o.m, o.ids)
		return slices.Concat(
			intervals(3*PanelRows*panels.Len(), func(lower, upper []float32) { panels.Bounds(lower, upper, 0, panels.Len(), vs...) }),
			intervals(o.n, func(lower, upper []float32) { o.m.Bounds(lower, upper, v) }),
			intervals(o.n, func(lower, upper []float32) { o.m4.Bounds(lower, upper, v) }),
			intervals(len(o.ids), func(lower, upper []float32) { o.m.GatherBounds(lower, upper, o.ids, v) }),
			intervals(3*o.n, func(lower, upper []float32) { o.m.Bounds(lower, upper, vs...) }),
			intervals(3*len(o.ids), func(lower, upper []float32) { o.m.GatherBounds(lower, upper, o.ids, vs...) }))
	}, nil},
	{"the bounds of blocks", true, func(o *operands) (all []float64) {
		v, w := o.vectors()
		if w == nil || o.blocks == nil {
			return nil
		}
		for _, vs := range [][]*Int8Vector{{v}, {w, v, v, w}} {
			var c BlockContexts
			c.Set(o.blocks, vs...)
			all = slices.Concat(all,
				intervals(len(vs)*o.n, func(lower, upper []float32) { o.blocks.Bounds(lower, upper, &c) }),
				intervals(len(vs)*len(o.ids), func(lower, upper []float32) { o.blocks.GatherBounds(lower, upper, o.ids, &c) }))
		}
		return all
	}, nil},
}

// score is a float32 product of a row with h, and the bias that was added.
type score struct {
	got  float32
	row  int
	bias float32
}

// rounded are the kernels whose sums are ordered as the machine likes.
var rounded = []struct {
	name   string
	scores func(o *operands) []score
}{
	{"Dot", func(o *operands) []score { return []score{{Dot(o.row(0), o.h), 0, 0}} }},
	{"Scan", func(o *operands) (scores []score) {
		dst := make([]float32, o.n)
		Scan(dst, o.wide, o.bias, o.h)
		for i, s := range dst {
			scores = append(scores, score{s, i, o.bias[i]})
		}
		return scores
	}},
	{"GatherDot", func(o *operands) (scores []score) {
		dst := make([]float32, len(o.ids))
		GatherDot(dst, o.wide, o.bias, o.ids, o.h)
		for j, id := range o.ids {
			scores = append(scores, score{dst[j], int(id), o.bias[id]})
		}
		return scores
	}},
	{"ArgmaxDot", func(o *operands) []score {
		i, s := ArgmaxDot(o.wide, o.h)
		return []score{{s, i, 0}}
	}},
}

// fataler has the common methods of tests and properties.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// checkKernels fails if a kernel differs from its definition: bit for bit, or within the rounding
// of float32 if the order of a sum is free.
func checkKernels(t fataler, o *operands) {
	t.Helper()
	element := o.rows.Element()
	on := func(level simd.Level, f func(o *operands) []float64) []float64 {
		defer simd.Set(level)()
		return f(o)
	}
	for _, k := range sameOnEveryLevel {
		// A kernel that does not read Rows is the same for each of their elements.
		if !k.readsRows && element != Float32 {
			continue
		}
		var want []float64
		if k.want != nil {
			want = k.want(o)
		} else {
			want = on(simd.Generic, k.got)
		}
		for _, level := range simdtest.Levels() {
			if got := on(level, k.got); !sameBits64(got, want) {
				t.Fatalf("%s of %d rows of %d %s, level %s: got %v, want %v", k.name, o.n, o.d, element, level, got, want)
			}
		}
	}
	if element != Float32 {
		return
	}
	for _, k := range rounded {
		for _, level := range simdtest.Levels() {
			restore := simd.Set(level)
			scores := k.scores(o)
			restore()
			for _, s := range scores {
				if want, tolerance := exactDot(o.row(s.row), o.h, s.bias); !(math.Abs(float64(s.got)-want) <= tolerance) {
					t.Fatalf("%s, row %d of %d, %d elements, level %s: got %v, want %v +- %v", k.name, s.row, o.n, o.d, level, s.got, want, tolerance)
				}
			}
		}
	}
}

// sameBits64 compares bits, but takes all NaNs for one.
func sameBits64(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool {
		return math.Float64bits(x) == math.Float64bits(y) || x != x && y != y
	})
}

// exactDot returns the inner product plus the bias in float64, and the largest error of float32
// sums in any order.
func exactDot(x, y []float32, bias float32) (sum, tolerance float64) {
	sum, magnitude := float64(bias), math.Abs(float64(bias))
	for i := range x {
		p := float64(x[i]) * float64(y[i])
		sum += p
		magnitude += math.Abs(p)
	}
	return sum, float64(len(x)+2)*0x1p-24*magnitude + float64(len(x))*0x1p-148
}

// checkFloat32 fails unless got is the product of x and y as float32 sums in
// any order give it.
func checkFloat32(t *testing.T, got float32, x, y []float32, bias float32) {
	t.Helper()
	if want, tolerance := exactDot(x, y, bias); !(math.Abs(float64(got)-want) <= tolerance) {
		t.Errorf("dim %d: got %v, want %v +- %v", len(x), got, want, tolerance)
	}
}

// Every length, and every offset from 0 to 15 elements.
func TestKernelsAtEveryLength(t *testing.T) {
	r := newRand(1)
	for _, d := range dims() {
		for _, e := range elements {
			block, _ := BlockOf(e)
			switch {
			case block == 1:
				checkKernels(t, newOperands(r, 1+r.IntN(21), d, d%16, 0, e))
			case d%block == 0: // a length of few
				for offset := range 16 {
					checkKernels(t, newOperands(r, 1+r.IntN(21), d, offset, 0, e))
				}
			}
		}
	}
}

func TestKernelsAreWhatTheyAreDefinedToBe(t *testing.T) { rapid.Check(t, drawKernels) }

func FuzzKernelsAreTheirPlainForms(f *testing.F) { f.Fuzz(rapid.MakeFuzz(drawKernels)) }

func drawKernels(t *rapid.T) {
	checkKernels(t, newOperands(newRand(rapid.Uint64().Draw(t, "seed")),
		rapid.IntRange(1, 90).Draw(t, "rows"),
		rapid.IntRange(1, 150).Draw(t, "dim"),
		rapid.IntRange(0, 15).Draw(t, "offset"),
		rapid.SampledFrom([]int{0, 0, -60, 12, 30}).Draw(t, "exponent"),
		rapid.SampledFrom(elements).Draw(t, "element")))
}

func TestArgmaxIsTheFirstOfTheLargestScores(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) {
		r := newRand(1)
		for _, d := range dims() {
			n := 1 + r.IntN(11)
			rows, h, dst := fill(r, make([]float32, n*d)), fill(r, make([]float32, d)), make([]float32, n)
			Scan(dst, rows, nil, h)
			best := slices.Index(dst, slices.Max(dst))
			if i, s := ArgmaxDot(rows, h); i != best || s != dst[best] {
				t.Errorf("dim %d, %d rows: argmax %d (%v), want %d (%v)", d, n, i, s, best, dst[best])
			}
		}
	})
}

func TestArgmaxTiesGoToTheLowerRow(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) {
		for n := 1; n <= 20; n++ {
			for first := range n {
				// Rows from first on are equal and largest.
				d := 19
				rows, h := make([]float32, n*d), make([]float32, d)
				for j := range h {
					h[j] = 1
				}
				for i := first; i < n; i++ {
					rows[i*d] = 1
				}
				if i, s := ArgmaxDot(rows, h); i != first || s != 1 {
					t.Errorf("%d rows, ties from %d: got %d (%v)", n, first, i, s)
				}
			}
		}
	})
}

func TestScanOfManyShortRows(t *testing.T) {
	// Rows of at most a kilobyte, if they exceed the second-level cache, are read in another way.
	simdtest.EachLevel(t, func(t *testing.T) {
		r := newRand(12)
		for _, d := range []int{1, 7, 64, 200, 256} {
			n := (2<<20)/(4*d) + 5
			rows, h, bias, dst := fill(r, make([]float32, n*d)), fill(r, make([]float32, d)), fill(r, make([]float32, n)), make([]float32, n)
			Scan(dst, rows, bias, h)
			for i := range dst {
				checkFloat32(t, dst[i], rows[i*d:(i+1)*d], h, bias[i])
			}
		}
	})
}

func TestReferenceOrderIsAsDocumented(t *testing.T) {
	// 2^60 in lane 0 and -2^60 in lane 16 cancel before the 1 of lane 1
	// joins them; summed in index order the 1 would be lost.
	x, y := make([]float32, 33), make([]float32, 33)
	for i := range y {
		y[i] = 1
	}
	x[0], x[1], x[16] = 0x1p60, 1, -0x1p60
	simdtest.EachLevel(t, func(t *testing.T) {
		if got := RefDot(x, y); got != 1 {
			t.Errorf("got %v, want 1", got)
		}
	})
}
