package kernels

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s/internal/ground/simd"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

// Work that takes more than one call of assembly has the result of the plain form.
func TestManyCallsAreOne(t *testing.T) {
	const n = 3<<16 + 21 // scores
	r := newRand(5)
	scores, x, ids := fill(r, make([]float32, n)), make([]float64, n), randomIDs(r, n, 1<<30)
	for i := range x {
		x[i] = 3 * r.NormFloat64()
	}
	// The largest at the seams.
	for i, at := range []int{0, 1<<16 - 1, 1 << 16, 2<<16 + 1, n - 1} {
		scores[at] = 100 - float32(i)
		x[at] = 50 - float64(i)
	}

	for _, c := range []struct {
		name string
		call func() any // bits of floats, so that equal results are equal bits
	}{
		{"Softmax", func() any {
			dst := make([]float64, n)
			return bitsOf(append(dst, Softmax(dst, x)))
		}},
		{"LogSumExp", func() any { return math.Float64bits(LogSumExp(x)) }},
		{"SumExpCentres", func() any {
			m, sum := SumExpCentres(scores, scores, 0.3)
			return bitsOf([]float64{float64(m), sum})
		}},
		{"maxID", func() any { return maxID(ids) }},
		{"MaxAbsBits", func() any { return MaxAbsBits(scores[:n&^15]) }},
		{"SelectAtLeast", func() any {
			dst := make([]uint32, n)
			return dst[:SelectAtLeast(dst, scores, 0.5)]
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			restore := simd.Set(simd.Generic)
			want := c.call()
			restore()
			simdtest.EachLevel(t, func(t *testing.T) {
				if got := c.call(); !reflect.DeepEqual(got, want) {
					t.Errorf("found another result than the plain form gives")
				}
			})
		})
	}

	// These have a result that is known without the plain form.
	t.Run("Scan of zeros with a bias", func(t *testing.T) {
		simdtest.EachLevel(t, func(t *testing.T) {
			sum := make([]float32, n)
			if Scan(sum, make([]float32, n), scores, []float32{1}); !slices.Equal(sum, scores) {
				t.Error("0 + x is not x")
			}
		})
	})
	best := sortedIndices(scores)
	for _, k := range []int{1, 5, 16, 20} {
		t.Run(fmt.Sprintf("TopK and KthBound, k %d", k), func(t *testing.T) {
			simdtest.EachLevel(t, func(t *testing.T) {
				top, vals := make([]uint32, k), make([]float32, k)
				if TopK(top, vals, scores); !slices.Equal(top, best[:k]) {
					t.Errorf("found %v, expected %v", top, best[:k])
				}
				if bound, ok := KthBound(scores, k); ok != (k <= 512) || ok && bound > vals[k-1] {
					t.Errorf("found the bound %v, %v, expected at most the k-th largest, %v", bound, ok, vals[k-1])
				}
			})
		})
	}
}

func bitsOf(x []float64) []uint64 {
	bits := make([]uint64, len(x))
	for i, v := range x {
		bits[i] = math.Float64bits(v)
	}
	return bits
}

// A goroutine inside assembly stops neither for the scheduler nor for the garbage collector. No
// call reads more than 256 KiB of a matrix, except for the blocks of 16 rows of the kernels of
// codes: 1 MiB of the longest rows. At 10 GB/s, a slow memory, that is 26 and 105 microseconds.
func TestCallsAreBounded(t *testing.T) {
	for d := 1; d <= MaxCallDim; d++ {
		if n := CallRows(4 * d); n < 1 || n*4*d > 256<<10 || n > 4096 {
			t.Fatalf("%d rows of %d elements in one call", n, d)
		}
		if d > MaxInt8Dim {
			continue
		}
		for _, stride := range []int{Int8Stride(d), Int4Stride(d)} {
			n := callBlocks(stride)
			if n < 16 || n&15 != 0 || n > 4096 || n*stride > 256<<10 && (n > 16 || n*stride > 1<<20+1<<12) {
				t.Fatalf("%d rows of %d bytes in one call", n, stride)
			}
		}
	}
}

// Every kernel checks between two calls of assembly whether it must stop: the number of checks
// follows from the bytes that it reads.
func TestEveryKernelStopsBetweenItsCalls(t *testing.T) {
	defer func() { checkpoint = stoppable }()
	stops := 0
	checkpoint = func() { stops++ }

	const n, d, calls = 1 << 14, 256, 8 // 16 MiB of float32: 64 calls
	r := newRand(9)
	rows, h := make([]float32, n*d), fill(r, make([]float32, d))
	long, narrow := make([]float32, calls*MaxCallBytes/4), make([]uint16, n*d)
	blocks := make([]byte, n*d/32*34)
	ids, manyIDs := randomIDs(r, n, n), make([]uint32, len(long))
	dst, upper, wide := make([]float32, BatchContexts*n), make([]float32, BatchContexts*n), make([]float64, len(long))
	m := int8Rows(t, rows, make([]float32, n), d)
	m4, err := newInt4Rows(alignedBytes(n*Int4Stride(d)), Float32Rows(rows, d), nil)
	if err != nil {
		t.Fatal(err)
	}
	v := NewInt8Vector(d)
	v.Set(h)
	four := []*Int8Vector{v, v, v, v}
	narrowPanels := panelsOfLists(m, ids)
	rows[d*int(ids[0])], rows[d*int(ids[0])+1] = 1, 0.3
	packed := panelsOfLists(int8Rows(t, rows, nil, d), ids)
	blockRows, err := Blocks(QuantisedRows(blocks, Q8_0, d), nil)
	if err != nil {
		t.Fatal(err)
	}
	var one, all BlockContexts
	one.Set(blockRows, v)
	all.Set(blockRows, four...)
	coded, lines := newCodedPanels(r, n/PanelRows/2, d, makeBytes, makeInts), make([]byte, n*StepBytes)
	for _, c := range []struct {
		name  string
		bytes int // that it reads
		call  func()
	}{
		{"Scan", 4 * n * d, func() { Scan(dst[:n], rows, nil, h) }},
		{"Scan with a bias", (16*calls + 2*calls - 1) * MaxCallBytes, func() { Scan(make([]float32, len(long)), long, long, h[:1]) }}, // a line for each row; long is read twice more
		{"GatherDot", 4 * n * d, func() { GatherDot(dst[:n], rows, nil, ids, h) }},
		{"maxID", 4 * len(long), func() { maxID(manyIDs) }},
		{"ArgmaxDot", 4 * n * d, func() { ArgmaxDot(rows, h) }},
		{"Rows.RefScan", 4 * n * d, func() { Float32Rows(rows, d).RefScan(wide[:n], nil, h) }},
		{"Rows.RefGatherDot", 4 * n * d, func() { Float32Rows(rows, d).RefGatherDot(wide[:n], nil, ids, h) }},
		{"Rows.RefScan, float16", 2 * n * d, func() { Float16Rows(narrow, d).RefScan(wide[:n], nil, h) }},
		{"Rows.RefScan, bfloat16", 2 * n * d, func() { BFloat16Rows(narrow, d).RefScan(wide[:n], nil, h) }},
		{"Rows.RefGatherDot, float16", 2 * n * d, func() { Float16Rows(narrow, d).RefGatherDot(wide[:n], nil, ids, h) }},
		{"Rows.RefGatherDot, bfloat16", 2 * n * d, func() { BFloat16Rows(narrow, d).RefGatherDot(wide[:n], nil, ids, h) }},
		{"Rows.RefScan, q8_0", n * d * 34 / 32, func() { QuantisedRows(blocks, Q8_0, d).RefScan(wide[:n], nil, h) }},
		{"Rows.RefGatherDot, q8_0", n * d * 34 / 32, func() { QuantisedRows(blocks, Q8_0, d).RefGatherDot(wide[:n], nil, ids, h) }},
		{"Rows.Widen, float16", 2 * len(long), func() { Float16Rows(narrow[:len(long)], len(long)).Widen(long, 0) }},
		{"Rows.Widen, bfloat16", 2 * len(long), func() { BFloat16Rows(narrow[:len(long)], len(long)).Widen(long, 0) }},
		{"FirstNotFinite", 4 * n * d, func() { FirstNotFinite(Float32Rows(rows, d)) }},
		{"FirstNotFinite, float16", 2 * n * d, func() { FirstNotFinite(Float16Rows(narrow, d)) }},
		{"Axpy", 4 * len(long), func() { Axpy(wide, 0.5, long) }},
		{"kthOfLanes", 4 * len(long), func() { kthOfLanes(long, 5) }},
		{"TopK", 8*len(long) - MaxCallBytes, func() { TopK(manyIDs[:1], dst[:1], long) }}, // reads the scores twice
		{"SelectAtLeast", 4 * len(long), func() { SelectAtLeast(manyIDs, long, 1) }},
		{"expBlocks", 8 * len(wide), func() { expBlocks(new([expLanes]float64), wide, wide, 0) }},
		{"maxFloat64", 8 * len(wide), func() { maxFloat64(wide) }},
		{"SumExpCentres", 8 * len(long), func() { SumExpCentres(long, long, 1) }},
		{"MaxAbsBits", 4 * len(long), func() { MaxAbsBits(long) }},
		{"Int8Rows.Bounds", n * m.stride, func() { m.Bounds(dst[:n], upper[:n], v) }},
		{"Int8Rows.GatherBounds", n * m.stride, func() { m.GatherBounds(dst[:n], upper[:n], ids, v) }},
		{"Int8Rows.Bounds of a batch", n * m.stride, func() { m.Bounds(dst, upper, four...) }},
		{"Int8Rows.GatherBounds of a batch", n * m.stride, func() { m.GatherBounds(dst[:4*n], upper[:4*n], ids, four...) }},
		{"Int8Panels.Bounds", packed.Len() * PanelBytes(d, false), func() { packed.Bounds(dst[:n], upper[:n], 0, packed.Len(), v) }},
		{"Int8Panels.Bounds, four contexts", packed.Len() * PanelBytes(d, false), func() { packed.Bounds(dst, upper, 0, packed.Len(), four...) }},
		{"Int8Panels.Bounds, narrow", len(narrowPanels.data), func() { narrowPanels.Bounds(dst[:n], upper[:n], 0, packed.Len(), v) }},
		{"Scores7", len(coded.wide), func() { coded.scores7(dst[:coded.rows]) }},
		{"Scores2", len(coded.narrow), func() { coded.scores2(dst[:coded.rows]) }},
		{"Select2", len(coded.narrow) / coded.rows * PanelRows * len(coded.list), func() { coded.select2(newSelected(PanelRows*len(coded.list)), 0) }},
		{"Lines2", n * StepBytes, func() { Lines2(dst[:n], lines, ids[:n], make([]int8, LineCodes), 0) }},
		{"KeepRows", 16 * len(long), func() { KeepRows(manyIDs, long, make([]float32, len(long))) }},
		{"AddReach", 16 * len(long), func() { AddReach(long, long, long, long, 1, 1, 1, 1) }},
		{"Int8Panels.Survivors", packed.Len() * PanelBytes(d, false), func() { packed.Survivors(dst[:n], upper[:n], ids, 0, n, 5, v) }},
		{"Int4Rows.Bounds", n * m4.stride, func() { m4.Bounds(dst[:n], upper[:n], v) }},
		{"BlockRows.Bounds", len(blocks), func() { blockRows.Bounds(dst[:n], upper[:n], &one) }},
		{"BlockRows.GatherBounds", len(blocks), func() { blockRows.GatherBounds(dst[:n], upper[:n], ids, &one) }},
		{"BlockRows.Bounds, four contexts", len(blocks), func() { blockRows.Bounds(dst, upper, &all) }},
		{"BlockRows.GatherBounds, four contexts", len(blocks), func() { blockRows.GatherBounds(dst, upper, ids, &all) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			simdtest.EachLevel(t, func(t *testing.T) {
				stops = 0
				c.call()
				if want := c.bytes/MaxCallBytes - 1; stops < want {
					t.Errorf("%d stops in %d bytes, want at least %d", stops, c.bytes, want)
				}
			})
		})
	}
}

// Calls take the largest allowed number of items, and each item once, except that the last call
// reaches back if it would have fewer items than the least.
func TestCallsTakeAllItems(t *testing.T) {
	for _, least := range []int{1, 4, 8, 16} {
		for n := least; n < 200; n++ {
			for step := least; step < 100; step++ {
				next := 0
				for c := callsOf(n, step); c.at < c.n; c = c.nextOf(least) {
					wantEnd := min(next+step, n)
					if want := min(next, n-least); c.at != want || c.end != wantEnd {
						t.Fatalf("%d items by %d, %d at least: items %d to %d after %d, want %d to %d",
							n, step, least, c.at, c.end, next, want, wantEnd)
					}
					next = c.end
				}
				if next != n {
					t.Fatalf("%d items by %d, %d at least: the last is %d", n, step, least, next)
				}
			}
		}
	}
	for c := callsOf(0, 7); c.at < c.n; c = c.next() {
		t.Errorf("no items: a call for %d to %d", c.at, c.end)
	}
}
