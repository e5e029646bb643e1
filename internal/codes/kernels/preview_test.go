package kernels

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/ground/simd"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

// codedPanels are rows of codes in panels, and a vector.
type codedPanels struct {
	rows, dim int
	numbers   []int8 // of 7 bits, rows x dim
	few       int    // the first of dim, which have codes of 2 bits
	codes     []byte // rows x few
	wide      []byte
	narrow    []byte
	high, low []int8
	scale     float32
	list      []uint32  // panels, in an order of its own
	before    []float32 // scores of panels
	now, then Near2
}

func newCodedPanels(r *rand.Rand, panels, dim int, take func(n int) []byte, takeInts func(n int) []int8) *codedPanels {
	p := &codedPanels{rows: PanelRows * panels, dim: dim, scale: float32(r.NormFloat64())}
	for i := range panels {
		if i == 0 || r.IntN(4) > 0 {
			p.list = append(p.list, uint32(i))
		}
	}
	r.Shuffle(len(p.list), func(i, j int) { p.list[i], p.list[j] = p.list[j], p.list[i] })
	for range panels {
		p.before = append(p.before, float32(r.IntN(2000)-1000))
	}
	for _, x := range []*Near2{&p.now, &p.then} {
		x.Near = take(p.rows)
		for i := range x.Near {
			x.Near[i] = byte(r.IntN(256))
		}
		for range panels {
			x.Far = append(x.Far, float32(r.IntN(2000))/255)
		}
	}
	p.few = min(dim, MostPanelCodes)
	p.numbers, p.codes = make([]int8, p.rows*dim), make([]byte, p.rows*p.few)
	p.wide, p.narrow = take(p.rows*dim), take(p.rows*p.few/4)
	p.high, p.low = takeInts(dim), takeInts(dim)
	extreme := r.IntN(4) == 0
	for j := range dim {
		p.high[j], p.low[j] = int8(r.IntN(255)-127), int8(r.IntN(128)-64)
		if extreme {
			p.high[j], p.low[j] = 127, -64
		}
	}
	for i := range p.rows {
		for j := range dim {
			at := i*dim + j
			if p.numbers[at] = int8(r.IntN(128) - 64); extreme {
				p.numbers[at] = 63
			}
			if j < p.few {
				if p.codes[i*p.few+j] = byte(r.IntN(4)); extreme {
					p.codes[i*p.few+j] = 3
				}
			}
			PutCode7(p.wide, dim, i, j, p.numbers[at])
		}
		row := make([]byte, p.few/4)
		PackCodes2(row, p.codes[i*p.few:(i+1)*p.few])
		PutPacked(p.narrow, i, row)
	}
	return p
}

// want are the scores by their definition.
func (p *codedPanels) want() (wide, narrow []float32) {
	excess := 0.0
	for _, v := range p.high[:p.few] {
		excess += 1.5 * float64(v)
	}
	for i := range p.rows {
		high, low, codes := int64(0), int64(0), int64(0)
		for j := range p.dim {
			high += int64(p.numbers[i*p.dim+j]) * int64(p.high[j])
			low += int64(p.numbers[i*p.dim+j]) * int64(p.low[j])
		}
		for j, c := range p.codes[i*p.few : (i+1)*p.few] {
			codes += int64(c) * int64(p.high[j])
		}
		codes -= int64(math.Floor(excess))
		both := float32(high) * 128
		both += float32(low)
		wide = append(wide, both*p.scale)
		narrow = append(narrow, float32(codes))
	}
	return wide, narrow
}

func (p *codedPanels) scores() (wide, narrow []float32) {
	wide, narrow = make([]float32, p.rows+8), make([]float32, p.rows+8)
	for _, x := range [][]float32{wide, narrow} {
		for i := range x {
			x[i] = canary
		}
	}
	p.scores7(wide[4:][:p.rows])
	p.scores2(narrow[4:][:p.rows])
	return wide, narrow
}

func (p *codedPanels) scores7(dst []float32) { Scores7(dst, p.wide, p.high, p.low, p.scale) }
func (p *codedPanels) scores2(dst []float32) {
	Scores2(dst, p.narrow, p.high[:p.few], Excess2(p.high[:p.few]))
}

// selected is what Select2 writes.
type selected struct {
	rows          []uint32
	scores, least []float32
}

func newSelected(n int) selected {
	return selected{make([]uint32, n), make([]float32, n), make([]float32, n)}
}

func (s selected) first(n int) selected { return selected{s.rows[:n], s.scores[:n], s.least[:n]} }

func (p *codedPanels) select2(s selected, mark float32) (n int) {
	return Select2(s.rows, s.scores, s.least, p.before, p.now, p.then, p.narrow, p.list, p.high[:p.few], Excess2(p.high[:p.few]), mark)
}

// checkSelect compares the rows of Select2 with their definition.
func (p *codedPanels) checkSelect(t fataler, mark float32) {
	t.Helper()
	_, more := p.want()
	var want selected
	for _, panel := range p.list {
		for row := panel * PanelRows; row < (panel+1)*PanelRows; row++ {
			x := p.before[panel] + more[row]
			if x+float32(p.now.Far[panel]*float32(p.now.Near[row])) >= mark {
				least := mark - float32(p.then.Far[panel]*float32(p.then.Near[row]))
				want.rows, want.scores, want.least = append(want.rows, row), append(want.scores, x), append(want.least, least)
			}
		}
	}
	for _, level := range simdtest.Levels() {
		restore := simd.Set(level)
		got := newSelected(len(p.list) * PanelRows)
		n := p.select2(got, mark)
		restore()
		if got = got.first(n); !slices.Equal(got.rows, want.rows) || !slices.Equal(got.scores, want.scores) || !slices.Equal(got.least, want.least) {
			t.Fatalf("%d of %d panels of %d codes, level %s: found %v, want %v", len(p.list), p.rows/PanelRows, p.few, level, got, want)
		}
	}
}

// Select2 writes the rows that are as near to a mark as their panels and they may be far, in the order of the
// list, also one at its bound, and none of a panel of -Inf or NaN, unless the mark is -Inf, which selects all but NaN.
func TestRowsNearAMarkAreSelected(t *testing.T) {
	check := func(t fataler, r *rand.Rand, panels, dim int) {
		p := newCodedPanels(r, panels, dim, makeBytes, makeInts)
		if len(p.list) == 0 {
			return
		}
		panel := int(p.list[r.IntN(len(p.list))])
		row := panel*PanelRows + r.IntN(PanelRows)
		for i := range p.before {
			switch r.IntN(12) {
			case 0:
				p.before[i] = float32(math.Inf(-1))
			case 1:
				p.before[i] = float32(math.NaN())
			}
		}
		p.before[panel] = 1
		_, more := p.want()
		near := 1 + more[row] + float32(p.now.Far[panel]*float32(p.now.Near[row]))
		for _, mark := range []float32{near, near + 100, near - 100, math.MaxFloat32} {
			p.checkSelect(t, mark)
		}
		for i, x := range p.before { // NaN is not equal to itself
			if x != x {
				p.before[i] = 0
			}
		}
		p.checkSelect(t, float32(math.Inf(-1)))
	}
	rapid.Check(t, func(t *rapid.T) {
		check(t, newRand(rapid.Uint64().Draw(t, "seed")), rapid.IntRange(1, 9).Draw(t, "panels"), 16*rapid.IntRange(1, 5).Draw(t, "steps"))
	})
	check(t, newRand(8), 3000, 48) // more than one call of assembly
}

// KeepRows keeps the rows that reach their bounds, also one at it, and none of NaN, in their order.
func TestRowsThatReachTheirBoundsAreKept(t *testing.T) {
	check := func(t fataler, r *rand.Rand, n int) {
		all, want := newSelected(n), selected{}
		for i := range all.rows {
			all.rows[i], all.scores[i], all.least[i] = r.Uint32(), float32(r.IntN(9)), float32(r.IntN(11)-1)
			switch r.IntN(12) {
			case 0:
				all.scores[i] = float32(math.Inf(-1))
			case 1:
				all.scores[i] = float32(math.NaN())
			}
			if all.scores[i] >= all.least[i] {
				want.rows, want.scores = append(want.rows, all.rows[i]), append(want.scores, all.scores[i])
			}
		}
		for _, level := range simdtest.Levels() {
			restore := simd.Set(level)
			rows, scores := slices.Clone(all.rows), slices.Clone(all.scores)
			k := KeepRows(rows, scores, all.least)
			restore()
			if !slices.Equal(rows[:k], want.rows) || !slices.Equal(scores[:k], want.scores) {
				t.Fatalf("%d rows, level %s: found %v with %v, want %v with %v", n, level, rows[:k], scores[:k], want.rows, want.scores)
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		check(t, newRand(rapid.Uint64().Draw(t, "seed")), rapid.IntRange(0, 70).Draw(t, "rows"))
	})
	check(t, newRand(6), 40_000) // more than one call of assembly
}

const canary = 0x1p99

func (p *codedPanels) check(t fataler) {
	t.Helper()
	wantWide, wantNarrow := p.want()
	for _, level := range simdtest.Levels() {
		restore := simd.Set(level)
		wide, narrow := p.scores()
		restore()
		for _, x := range []struct {
			name      string
			got, want []float32
		}{{"Scores7", wide, wantWide}, {"Scores2", narrow, wantNarrow}} {
			for i, got := range x.got {
				want := float32(canary)
				if i >= 4 && i < 4+len(x.want) {
					want = x.want[i-4]
				}
				if got != want {
					t.Fatalf("%s of %d rows of %d, level %s: found %v at %d, want %v", x.name, p.rows, p.dim, level, got, i-4, want)
				}
			}
		}
	}
}

func makeBytes(n int) []byte { return make([]byte, n) }
func makeInts(n int) []int8  { return make([]int8, n) }

func TestScoresOfPanelsAreWhatTheyAreDefinedToBe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		newCodedPanels(newRand(rapid.Uint64().Draw(t, "seed")), rapid.IntRange(0, 9).Draw(t, "panels"),
			16*rapid.IntRange(1, 9).Draw(t, "steps"), makeBytes, makeInts).check(t)
	})
}

// Many panels take more than one call of assembly.
func TestScoresOfManyPanels(t *testing.T) {
	newCodedPanels(newRand(3), 2000, 48, makeBytes, makeInts).check(t)
}

// Lines give the sums of the products of their codes, for rows in any order, also twice, and leave what
// is beyond the list.
func TestScoresOfLinesAreWhatTheyAreDefinedToBe(t *testing.T) {
	check := func(t fataler, r *rand.Rand, n, listed int) {
		vector, table, codes, list := make([]int8, LineCodes), make([]byte, n*StepBytes), make([]byte, n*LineCodes), make([]uint32, listed)
		extreme := r.IntN(4) == 0
		for j := range vector {
			if vector[j] = int8(r.IntN(255) - 127); extreme {
				vector[j] = 127
			}
		}
		for j := range codes {
			if codes[j] = byte(r.IntN(4)); extreme {
				codes[j] = 3
			}
		}
		for i := range n {
			PackLine2(table[i*StepBytes:][:StepBytes], codes[i*LineCodes:][:LineCodes])
		}
		want := make([]float32, listed+1)
		for i := range want {
			if want[i] = float32(r.IntN(2000) - 1000); i == listed {
				break
			}
			list[i] = uint32(r.IntN(n))
		}
		got := slices.Clone(want)
		for i, row := range list {
			twice := int64(0)
			for j, v := range vector {
				twice += int64(2*int(codes[int(row)*LineCodes+j])-3) * int64(v)
			}
			want[i] += float32((twice + 1) >> 1) // the excess is rounded down
		}
		before := slices.Clone(got)
		for _, level := range simdtest.Levels() {
			restore := simd.Set(level)
			copy(got, before)
			Lines2(got, table, list, vector, Excess2(vector))
			restore()
			if !slices.Equal(got, want) {
				t.Fatalf("%d of %d rows, level %s: found %v, want %v", listed, n, level, got, want)
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		check(t, newRand(rapid.Uint64().Draw(t, "seed")), rapid.IntRange(1, 40).Draw(t, "rows"), rapid.IntRange(0, 30).Draw(t, "listed"))
	})
	check(t, newRand(5), 3000, 5000) // more than one call of assembly
}

// Distances are the larger one of two, added in float32, to the same bits at every level.
func TestReachesAreAdded(t *testing.T) {
	check := func(t fataler, r *rand.Rand, n int) {
		floats := func() []float32 {
			x := make([]float32, n)
			for i := range x {
				x[i] = float32(r.NormFloat64())
			}
			return x
		}
		scores, gauge, share, level := floats(), floats(), floats(), floats()
		reach, margin, mark, steps := float32(r.ExpFloat64()), float32(r.NormFloat64()), float32(r.NormFloat64()), float32(r.ExpFloat64())
		want := slices.Clone(scores)
		for i := range want {
			lead := float32(float32(share[i]*float32(mark-level[i])) * steps)
			want[i] += max(float32(reach*gauge[i]), float32(lead+float32(margin*gauge[i])))
		}
		for _, of := range simdtest.Levels() {
			restore := simd.Set(of)
			got := slices.Clone(scores)
			AddReach(got, gauge, share, level, reach, margin, mark, steps)
			restore()
			if !slices.Equal(got, want) {
				t.Fatalf("%d numbers, level %s: found %v, expected %v", n, of, got, want)
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		check(t, newRand(rapid.Uint64().Draw(t, "seed")), rapid.IntRange(0, 70).Draw(t, "n"))
	})
	check(t, newRand(7), 40_000)
}

// Vectors of any multiple of 4 for 7 bits.
func TestScores7OfEveryLength(t *testing.T) {
	r := newRand(4)
	for dim := 4; dim <= 300; dim += 4 {
		p := newCodedPanels(r, 2, (dim+15)&^15, makeBytes, makeInts)
		wide := make([]byte, p.rows*dim)
		for i := range p.rows {
			for j := range dim {
				PutCode7(wide, dim, i, j, p.numbers[i*p.dim+j])
			}
		}
		for j := dim; j < p.dim; j++ {
			p.high[j], p.low[j] = 0, 0
		}
		want, _ := p.want()
		simdtest.EachLevel(t, func(t *testing.T) {
			got := make([]float32, p.rows)
			Scores7(got, wide, p.high[:dim], p.low[:dim], p.scale)
			for i := range got {
				if got[i] != want[i] {
					t.Fatalf("%d numbers, row %d: found %v, want %v", dim, i, got[i], want[i])
				}
			}
		})
	}
}

// The two planes of a vector give its numbers over the step, to the nearest integer.
func TestPlanesOfVectors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		scale := rapid.SampledFrom([]float64{0, 0x1p-140, 0x1p-80, 1, 0x1p80, 0x1p120}).Draw(t, "scale")
		v := rapid.SliceOfN(rapid.Float64Range(-1, 1), 1, 20).Draw(t, "v")
		narrow, high, low := make([]float32, len(v)), make([]int8, len(v)), make([]int8, len(v))
		for i := range v {
			v[i] *= scale
			narrow[i] = float32(v[i])
		}
		check := func(step float32, off float64) {
			for i, x := range v {
				q := float64(high[i])*128 + float64(low[i])
				if low[i] == -128 || high[i] == -128 || step == 0 && q != 0 || step > 0 && math.Abs(q-x/float64(step)) > 0.5+off {
					t.Fatalf("element %d of %v, step %v: found %d and %d", i, v, step, high[i], low[i])
				}
			}
			if good := scale >= 0x1p-80 && scale <= 0x1p80 && slices.ContainsFunc(v, func(x float64) bool { return math.Abs(x) > scale/16 }); good && step == 0 {
				t.Fatalf("%v: found no step", v)
			}
		}
		check(Planes7(high, low, v), 0.01)
		check(Planes7(high, low, narrow), 0.02)
	})
}

// A number that is not below n is found at each place of a list of any length, and no other is.
func TestBelow(t *testing.T) {
	const n = 1000
	for length := range 14 {
		list := make([]uint32, length)
		for i := range list {
			list[i] = n - 1
		}
		if !Below(list, n) {
			t.Errorf("%d numbers of %d: found one that is not below %d", length, n-1, n)
		}
		for i := range list {
			for _, x := range []uint32{n, n + 1, math.MaxUint32} {
				if list[i] = x; Below(list, n) {
					t.Errorf("%d numbers, %d at place %d: expected it to be found", length, x, i)
				}
			}
			list[i] = n - 1
		}
	}
}
