package kernels

import (
	"math"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

// TestBrokenContractsPanicBeforeAnyWrite calls every kernel with arguments that do not fit and a
// destination that must not change.
func TestBrokenContractsPanicBeforeAnyWrite(t *testing.T) {
	const mark = 7
	dst32, dst64 := make([]float32, 4), make([]float64, 4)
	ids := make([]uint32, 4)
	f := func(n int) []float32 { return make([]float32, n) }
	places := func(n int) []uint32 { return make([]uint32, n) }
	near := func(panels int) Near2 { return Near2{f(panels), make([]byte, PanelRows*panels)} }
	select2 := func(room int, scores []float32, now, then Near2, table int, panel uint32, vector []int8) {
		Select2(places(room), f(room), f(room), scores, now, then, make([]byte, table), []uint32{panel}, vector, 0, 0)
	}
	m, err := NewInt8Rows(alignedBytes(4*Int8Stride(3)), Float32Rows(f(12), 3), nil)
	if err != nil {
		t.Fatal(err)
	}
	q := panelsOfLists(m, []uint32{0, 1})
	v := NewInt8Vector(3)
	v.Set(f(3))
	blockRows, err := Blocks(QuantisedRows(make([]byte, 4*34), Q8_0, 32), nil)
	if err != nil {
		t.Fatal(err)
	}
	u := NewInt8Vector(32)
	u.Set(f(32))
	var context, contexts, unset BlockContexts
	context.Set(blockRows, u)
	contexts.Set(blockRows, u, u)
	cases := []struct {
		name, want string
		call       func()
	}{
		{"Dot lengths", "lengths of x and y differ", func() { Dot(f(2), f(3)) }},
		{"Scan short rows", "length of rows", func() { Scan(dst32, f(11), nil, f(3)) }},
		{"Scan long rows", "length of dst", func() { Scan(dst32, f(15), nil, f(3)) }},
		{"Scan no dimension", "dimension is not positive", func() { Scan(dst32, nil, nil, nil) }},
		{"Scan bias", "length of bias", func() { Scan(dst32, f(12), f(3), f(3)) }},
		{"GatherDot dst", "length of dst", func() { GatherDot(dst32, f(12), nil, make([]uint32, 3), f(3)) }},
		{"GatherDot ragged rows", "not a multiple", func() { GatherDot(dst32, f(11), nil, make([]uint32, 4), f(3)) }},
		{"GatherDot id", "id out of range", func() { GatherDot(dst32, f(12), nil, []uint32{0, 1, 2, 4}, f(3)) }},
		{"GatherDot large id", "id out of range", func() { GatherDot(dst32, f(12), nil, []uint32{0, 1 << 31, 2, 3}, f(3)) }},
		{"GatherDot bias", "length of bias", func() { GatherDot(dst32, f(12), f(5), make([]uint32, 4), f(3)) }},
		{"GatherDot no dimension", "dimension is not positive", func() { GatherDot(dst32, f(12), nil, make([]uint32, 4), nil) }},
		{"ArgmaxDot no rows", "positive multiple", func() { ArgmaxDot(nil, f(3)) }},
		{"ArgmaxDot ragged rows", "positive multiple", func() { ArgmaxDot(f(4), f(3)) }},
		{"ArgmaxDot no dimension", "dimension is zero", func() { ArgmaxDot(f(4), nil) }},
		{"RefDot lengths", "lengths of x and y differ", func() { RefDot(f(2), f(3)) }},
		{"Float32Rows ragged", "not a multiple", func() { Float32Rows(f(11), 3) }},
		{"Float16Rows ragged", "not a multiple", func() { Float16Rows(make([]uint16, 11), 3) }},
		{"BFloat16Rows no dimension", "dimension is not positive", func() { BFloat16Rows(make([]uint16, 11), 0) }},
		{"Rows.RefScan dst", "length of dst", func() { Float16Rows(make([]uint16, 15), 3).RefScan(dst64, nil, f(3)) }},
		{"Rows.RefScan h", "length of h", func() { Float16Rows(make([]uint16, 12), 3).RefScan(dst64, nil, f(4)) }},
		{"Rows.RefScan bias", "length of bias", func() { Float16Rows(make([]uint16, 12), 3).RefScan(dst64, f(3), f(3)) }},
		{"Rows.RefScan of nothing", "dimension is zero", func() { Rows{}.RefScan(dst64, nil, nil) }},
		{"Rows.RefGatherDot dst", "length of dst", func() { Float16Rows(make([]uint16, 12), 3).RefGatherDot(dst64, nil, make([]uint32, 3), f(3)) }},
		{"Rows.RefGatherDot id", "id out of range", func() { BFloat16Rows(make([]uint16, 12), 3).RefGatherDot(dst64, nil, []uint32{4, 0, 0, 0}, f(3)) }},
		{"Rows.Widen length", "length of dst", func() { BFloat16Rows(make([]uint16, 12), 3).Widen(dst32, 0) }},
		{"Rows.Widen row", "row out of range", func() { BFloat16Rows(make([]uint16, 12), 4).Widen(dst32, 3) }},
		{"Part", "part is not within", func() { Part(BFloat16Rows(make([]uint16, 12), 3), 2, 5) }},
		{"Axpy lengths", "lengths of dst and x differ", func() { Axpy(dst64, 1, f(3)) }},
		{"TopK k", "k is larger", func() { TopK(ids, dst32, f(3)) }},
		{"TopK vals", "lengths of ids and vals differ", func() { TopK(ids, dst32[:3], f(9)) }},
		{"SelectAtLeast dst", "dst is shorter", func() { SelectAtLeast(ids, f(5), -1) }},
		{"Softmax lengths", "lengths of dst and x differ", func() { Softmax(dst64, make([]float64, 3)) }},
		{"SumExpCentres lengths", "lengths of lower and upper differ", func() { SumExpCentres(f(3), f(4), 1) }},
		{"SumExpCentres scale of zero", "scale is not", func() { SumExpCentres(f(3), f(3), 0) }},
		{"SumExpCentres infinite scale", "scale is not", func() { SumExpCentres(f(3), f(3), float32(math.Inf(1))) }},
		{"Int8RowsIn data", "length of data", func() { Int8RowsIn(make([]byte, 1), 3, 0) }},
		{"Int8RowsIn alignment", "not 16-byte aligned", func() { Int8RowsIn(alignedBytes(65)[1:], 3, 0) }},
		{"Int4RowsIn no dimension", "dimension is zero", func() { Int4RowsIn(nil, 0, 0) }},
		{"PanelsIn data", "length of data", func() { PanelsIn(make([]byte, 1), m, false) }},
		{"PanelsIn alignment", "not 64-byte aligned", func() { PanelsIn(alignedBytes(PanelBytes(3, false) + 16)[16:], m, false) }},
		{"NewBlockRows dimension", "dimension is larger", func() { NewBlockRows(blockRows.rows, 33, make([]BlockMeta, 4), 0) }},
		{"Encode codes", "not that of codes", func() { Encode(make([]int8, 15), f(16), 1, 7) }},
		{"Encode length", "not a positive multiple", func() { Encode(make([]int8, 15), f(15), 1, 7) }},
		{"NewInt8Vector no dimension", "not positive", func() { NewInt8Vector(0) }},
		{"Set length", "length of h", func() { NewInt8Vector(3).Set(f(4)) }},
		{"Int8Panels.Bounds panels", "out of range", func() { q.Bounds(f(16), f(16), 1, 1, v) }},
		{"Int8Panels.Bounds panels below none", "out of range", func() { q.Bounds(nil, nil, 0, -1, v) }},
		{"Int8Panels.Bounds lower", "length of lower or upper", func() { q.Bounds(f(4), f(16), 0, 1, v) }},
		{"Int8Panels.Bounds vector", "dimension of the vector", func() { q.Bounds(f(16), f(16), 0, 1, NewInt8Vector(4)) }},
		{"Int8Panels.Survivors panels", "out of range", func() { q.Survivors(f(16), f(16), make([]uint32, 16), 1, 2, 1, v) }},
		{"Int8Panels.Survivors k", "out of range", func() { q.Survivors(f(16), f(16), make([]uint32, 16), 0, 2, 3, v) }},
		{"Int8Panels.Survivors no k", "out of range", func() { q.Survivors(f(16), f(16), make([]uint32, 16), 0, 2, 0, v) }},
		{"Int8Panels.Survivors upper", "no room for the panels", func() { q.Survivors(f(16), f(15), make([]uint32, 16), 0, 2, 1, v) }},
		{"Int8Panels.Survivors rows", "no room for the panels", func() { q.Survivors(f(16), f(16), make([]uint32, 2), 0, 2, 1, v) }},
		{"Int8Panels.Survivors vector", "not Certified", func() { q.Survivors(f(16), f(16), make([]uint32, 16), 0, 2, 1, NewInt8Vector(3)) }},
		{"Int8Vector.Init", "not the memory of a vector", func() { new(Int8Vector).Init(3, alignedBytes(Int8VectorBytes(3)+1)) }},
		{"Scores7 vector", "not a positive multiple", func() { Scores7(dst32, nil, make([]int8, 3), make([]int8, 3), 1) }},
		{"Scores7 no vector", "not a positive multiple", func() { Scores7(dst32, nil, nil, nil, 1) }},
		{"Scores7 low", "lengths of high and low", func() { Scores7(f(16), make([]byte, 64), make([]int8, 4), make([]int8, 8), 1) }},
		{"Scores7 panels", "length of panels", func() { Scores7(dst32, make([]byte, 63), make([]int8, 4), make([]int8, 4), 1) }},
		{"Scores7 dst", "length of dst", func() { Scores7(dst32, make([]byte, 64), make([]int8, 4), make([]int8, 4), 1) }},
		{"Scores2 codes", "not a positive multiple", func() { Scores2(f(16), make([]byte, 64), make([]int8, 20), 0) }},
		{"Scores2 long vector", "more than 80", func() { Scores2(nil, nil, make([]int8, 96), 0) }},
		{"Scores2 vector", "not a positive multiple", func() { Scores2(nil, nil, nil, 0) }},
		{"Scores2 table", "length of panels", func() { Scores2(f(16), make([]byte, 63), make([]int8, 16), 0) }},
		{"Scores2 dst", "length of dst", func() { Scores2(f(15), make([]byte, 64), make([]int8, 16), 0) }},
		{"Select2 codes", "not a positive multiple", func() { select2(16, f(1), near(1), near(1), 64, 0, make([]int8, 20)) }},
		{"Select2 table", "length of panels", func() { select2(16, f(1), near(1), near(1), 63, 0, make([]int8, 16)) }},
		{"Select2 scores", "length of dst", func() { select2(16, f(2), near(1), near(1), 64, 0, make([]int8, 16)) }},
		{"Select2 list", "not in the table", func() { select2(16, f(1), near(1), near(1), 64, 1, make([]int8, 16)) }},
		{"Select2 distances", "not one for each panel", func() { select2(16, f(1), near(0), near(1), 64, 0, make([]int8, 16)) }},
		{"Select2 later distances", "not one for each panel", func() { select2(16, f(1), near(1), near(2), 64, 0, make([]int8, 16)) }},
		{"Select2 rows", "shorter than the rows", func() { select2(15, f(1), near(1), near(1), 64, 0, make([]int8, 16)) }},
		{"KeepRows scores", "differ", func() { KeepRows(places(2), f(1), f(2)) }},
		{"KeepRows rows", "differ", func() { KeepRows(places(1), f(2), f(2)) }},
		{"Lines2 table", "not a multiple of a line", func() { Lines2(f(1), make([]byte, 63), []uint32{0}, make([]int8, 256), 0) }},
		{"Lines2 vector", "not its codes", func() { Lines2(f(1), make([]byte, 64), []uint32{0}, make([]int8, 255), 0) }},
		{"Lines2 dst", "dst is shorter", func() { Lines2(nil, make([]byte, 64), []uint32{0}, make([]int8, 256), 0) }},
		{"Lines2 list", "not in the table", func() { Lines2(f(1), make([]byte, 64), []uint32{1}, make([]int8, 256), 0) }},
		{"AddReach lengths", "differ", func() { AddReach(f(2), f(2), f(1), f(2), 1, 1, 1, 1) }},
		{"Int8Panels.Bounds vectors", "more than BatchContexts", func() { q.Bounds(f(80), f(80), 0, 1, v, v, v, v, v) }},
		{"Bounds lower", "length of lower or upper", func() { m.Bounds(dst32[:3], dst32, v) }},
		{"Bounds upper", "length of lower or upper", func() { m.Bounds(dst32, dst32[:3], v) }},
		{"Bounds vector", "dimension of the vector", func() { m.Bounds(dst32, dst32, NewInt8Vector(4)) }},
		{"Bounds vector that is not set", "not Certified", func() { m.Bounds(dst32, dst32, NewInt8Vector(3)) }},
		{"Bounds uncertified vector", "not Certified", func() {
			u := NewInt8Vector(3)
			u.Set(f(3))
			u.Set([]float32{1e30, 1, 1})
			m.Bounds(dst32, dst32, u)
		}},
		{"GatherBounds id", "id out of range", func() { m.GatherBounds(dst32, dst32, []uint32{0, 1, 2, 4}, v) }},
		{"GatherBounds lower", "length of lower or upper", func() { m.GatherBounds(dst32, dst32, []uint32{0}, v) }},
		{"Part first", "part is not within", func() { m.Part(-1, 2) }},
		{"Part order", "part is not within", func() { m.Part(3, 2) }},
		{"Part end", "part is not within", func() { m.Part(0, 5) }},
		{"Int4Rows.Part", "part is not within", func() { new(Int4Rows).Part(0, 1) }},
		{"Bounds of a batch: lower", "length of lower or upper", func() { m.Bounds(dst32, dst32, v, v) }},
		{"Bounds of a batch: contexts", "more than BatchContexts", func() { m.Bounds(dst32, dst32, v, v, v, v, v) }},
		{"Bounds of a batch: vector", "dimension of the vector", func() { m.Bounds(dst32, dst32, NewInt8Vector(4)) }},
		{"BlockContexts.Set no context", "number of contexts", func() { unset.Set(blockRows) }},
		{"BlockContexts.Set contexts", "number of contexts", func() { unset.Set(blockRows, u, u, u, u, u) }},
		{"BlockContexts.Set vector", "not Certified", func() { new(BlockContexts).Set(blockRows, NewInt8Vector(32)) }},
		{"BlockContexts.Set dimension", "not of the rows' dimension", func() { new(BlockContexts).Set(blockRows, v) }},
		{"Bounds of blocks: lower", "length of lower or upper", func() { blockRows.Bounds(dst32[:3], dst32, &context) }},
		{"Bounds of blocks: contexts", "length of lower or upper", func() { blockRows.Bounds(dst32, dst32, &contexts) }},
		{"Bounds of blocks: none set", "not set", func() { blockRows.Bounds(dst32, dst32, &unset) }},
		{"Bounds of blocks: another type", "not set", func() {
			m, _ := Blocks(QuantisedRows(make([]byte, 4*18), Q4_0, 32), nil)
			m.Bounds(dst32, dst32, &context)
		}},
		{"GatherBounds of blocks: id", "id out of range", func() { blockRows.GatherBounds(dst32, dst32, []uint32{0, 1, 2, 4}, &context) }},
		{"GatherBounds of a batch: id", "id out of range", func() { m.GatherBounds(dst32, dst32, []uint32{0, 4}, v, v) }},
	}
	simdtest.EachLevel(t, func(t *testing.T) {
		for _, c := range cases {
			for i := range 4 {
				dst32[i], dst64[i], ids[i] = mark, mark, mark
			}
			func() {
				defer func() {
					p, _ := recover().(string)
					if !strings.HasPrefix(p, "kernels: ") || !strings.Contains(p, c.want) {
						t.Errorf("%s: recovered %q, want kernels: ... %s", c.name, p, c.want)
					}
				}()
				c.call()
			}()
			for i := range 4 {
				if dst32[i] != mark || dst64[i] != mark || ids[i] != mark {
					t.Fatalf("%s: wrote before the panic", c.name)
				}
			}
		}
	})
}

func TestKernelsDoNotAllocate(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) {
		// Arrays on the stack: a slice that escaped would be an allocation.
		n := simdtest.AllocsPerRun(10, func() {
			var rows [12 * 40]float32
			var h [40]float32
			var dst [12]float32
			var dst64 [12]float64
			ids := [5]uint32{1, 2, 3, 4, 5}
			var narrow [12 * 40]uint16
			for _, m := range [...]Rows{Float32Rows(rows[:], 40), Float16Rows(narrow[:], 40), BFloat16Rows(narrow[:], 40)} {
				m.RefScan(dst64[:], dst[:], h[:])
				m.RefGatherDot(dst64[:5], dst[:], ids[:], h[:])
				m.Widen(h[:], 3)
				FirstNotFinite(m)
			}
			Softmax(dst64[:], dst64[:])
			SumExpCentres(h[:], h[:], 1)
		})
		if n != 0 {
			t.Errorf("%v allocations", n)
		}
		m := int8Rows(t, make([]float32, 40*20), nil, 40)
		v := NewInt8Vector(40)
		n = simdtest.AllocsPerRun(10, func() {
			var h [40]float32
			var lower, upper [20]float32
			var lower4, upper4 [80]float32
			ids := [5]uint32{1, 2, 3, 4, 5}
			h[3] = 1
			v.Set(h[:])
			m.Bounds(lower[:], upper[:], v)
			m.GatherBounds(lower[:5], upper[:5], ids[:], v)
			vs := [4]*Int8Vector{v, v, v, v}
			m.Bounds(lower4[:], upper4[:], vs[:]...)
			m.GatherBounds(lower4[:20], upper4[:20], ids[:], vs[:]...)
		})
		if n != 0 {
			t.Errorf("int8: %v allocations", n)
		}
		blocks, err := Blocks(QuantisedRows(make([]byte, 20*34), Q8_0, 32), nil)
		if err != nil {
			t.Fatal(err)
		}
		u := NewInt8Vector(32)
		var c BlockContexts
		n = simdtest.AllocsPerRun(10, func() {
			var h [32]float32
			var lower, upper [80]float32
			ids := [5]uint32{1, 2, 3, 4, 5}
			h[3] = 1
			u.Set(h[:])
			vs := [4]*Int8Vector{u, u, u, u}
			for n := len(vs); n > 0; n-- {
				c.Set(blocks, vs[:n]...)
				blocks.Bounds(lower[:20*c.wide], upper[:20*c.wide], &c)
				blocks.GatherBounds(lower[:5*c.wide], upper[:5*c.wide], ids[:], &c)
			}
		})
		if n != 0 {
			t.Errorf("blocks: %v allocations", n)
		}
	})
}
