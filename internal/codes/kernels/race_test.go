//go:build race

package kernels

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

// raceCases are calls of kernels, each with a number that it reads or writes. Another goroutine
// accesses that number at the same time, which must be reported, or before the call starts, which
// must not.
func raceCases() []raceCase {
	const n, d = 96, 40
	r := newRand(8)
	f := func(n int) []float32 { return fill(r, make([]float32, n)) }
	rows, h, dst, dst64, grad := f(n*d), f(d), make([]float32, n), make([]float64, n), make([]float64, d)
	lower, upper, scores := make([]float32, 4*n), make([]float32, 4*n), f(n)
	ids, out, vals := randomIDs(r, n, n), make([]uint32, n), make([]float32, 5)
	ids[7] = 9
	soft, x := make([]float64, n), make([]float64, n)
	m := &Int8Rows{codeRows: codeRows{data: alignedBytes(n * Int8Stride(d)), dim: d, stride: Int8Stride(d)}}
	m4 := &Int4Rows{codeRows: codeRows{data: alignedBytes(n * Int4Stride(d)), dim: d, stride: Int4Stride(d)}}
	m.n, m4.n = n, n
	v := NewInt8Vector(d)
	v.Set(h)
	fresh := NewInt8Vector(d)
	vs := []*Int8Vector{v, v, v, v}
	packed := panelsOfLists(m, ids)
	narrow, wide := make([]uint16, n*d), make([]float32, d)
	bytes := make([]byte, n*34)
	full, half, brain := Float32Rows(rows, d), Float16Rows(narrow, d), BFloat16Rows(narrow, d)
	blocks := QuantisedRows(bytes, Q8_0, 32)
	blockRows := &BlockRows{rows: blocks, dim: 32, meta: make([]BlockMeta, n)}
	u := NewInt8Vector(32)
	u.Set(h[:32])
	var one, three, four BlockContexts
	one.Set(blockRows, u)
	three.Set(blockRows, u, u, u)
	four.Set(blockRows, u, u, u, u)
	coded := newCodedPanels(r, n/PanelRows, 48, makeBytes, makeInts)
	room := newSelected(PanelRows * len(coded.list))
	lines, line := make([]byte, n*StepBytes), make([]int8, LineCodes)
	touch := func(x *float32) func() { return func() { *x = 1 } }
	look := func(x *float32) func() { return func() { sink = *x } }
	return []raceCase{
		{"Scan writes dst", func() { Scan(dst, rows, nil, h) }, look(&dst[50])},
		{"Scan reads rows", func() { Scan(dst, rows, nil, h) }, touch(&rows[50*d+39])},
		{"Scan reads h", func() { Scan(dst, rows, nil, h) }, touch(&h[17])},
		{"Scan reads bias", func() { Scan(dst, rows, scores, h) }, touch(&scores[17])},
		{"GatherDot writes dst", func() { GatherDot(dst, rows, nil, ids, h) }, look(&dst[50])},
		{"GatherDot reads rows", func() { GatherDot(dst, rows, nil, ids, h) }, touch(&rows[9*d])},
		{"GatherDot reads ids", func() { GatherDot(dst, rows, nil, ids, h) }, func() { ids[3] = 3 }},
		{"ArgmaxDot reads rows", func() { ArgmaxDot(rows, h) }, touch(&rows[95*d])},
		{"Dot reads y", func() { Dot(rows[:d], h) }, touch(&h[3])},
		{"Rows.RefScan writes dst", func() { full.RefScan(dst64, nil, h) }, func() { dst64[9] = 1 }},
		{"Rows.RefScan reads float32", func() { full.RefScan(dst64, nil, h) }, touch(&rows[95*d+1])},
		{"Rows.RefGatherDot writes dst", func() { full.RefGatherDot(dst64, nil, ids, h) }, func() { dst64[9] = 1 }},
		{"Rows.RefGatherDot reads float32", func() { full.RefGatherDot(dst64, nil, ids, h) }, touch(&rows[9*d+2])},
		{"Rows.RefScan reads float16", func() { half.RefScan(dst64, nil, h) }, func() { narrow[95*d+1] = 1 }},
		{"Rows.RefScan reads bfloat16", func() { brain.RefScan(dst64, nil, h) }, func() { narrow[95*d+1] = 1 }},
		{"Rows.RefScan reads h of float16 rows", func() { half.RefScan(dst64, nil, h) }, touch(&h[17])},
		{"Rows.RefScan of float16 writes dst", func() { half.RefScan(dst64, nil, h) }, func() { dst64[9] = 1 }},
		{"Rows.RefGatherDot reads float16", func() { half.RefGatherDot(dst64, nil, ids, h) }, func() { narrow[9*d+2] = 1 }},
		{"Rows.RefGatherDot reads bfloat16", func() { brain.RefGatherDot(dst64, nil, ids, h) }, func() { narrow[9*d+2] = 1 }},
		{"Rows.RefScan reads q8_0", func() { blocks.RefScan(dst64, nil, h[:32]) }, func() { bytes[95*34+1] = 1 }},
		{"Rows.RefGatherDot reads q8_0", func() { blocks.RefGatherDot(dst64, nil, ids, h[:32]) }, func() { bytes[9*34+2] = 1 }},
		{"Rows.Widen reads a row", func() { half.Widen(wide, 9) }, func() { narrow[9*d+30] = 1 }},
		{"Rows.Widen writes dst", func() { brain.Widen(wide, 9) }, look(&wide[30])},
		{"FirstNotFinite reads float32", func() { FirstNotFinite(full) }, touch(&rows[50*d])},
		{"FirstNotFinite reads float16", func() { FirstNotFinite(half) }, func() { narrow[50*d] = 1 }},
		{"Axpy writes dst", func() { Axpy(grad, 2, h) }, func() { grad[30] = 1 }},
		{"Axpy reads x", func() { Axpy(grad, 2, h) }, touch(&h[30])},
		{"TopK reads scores", func() { TopK(out[:5], vals, scores) }, touch(&scores[33])},
		{"KthBound reads scores", func() { KthBound(scores, 3) }, touch(&scores[33])},
		{"SelectAtLeast reads scores", func() { SelectAtLeast(out, scores, 0) }, touch(&scores[60])},
		{"SelectAtLeast writes dst", func() { SelectAtLeast(out, scores, -100) }, func() { out[60] = 1 }},
		{"Softmax writes dst", func() { Softmax(soft, x) }, func() { soft[60] = 1 }},
		{"Softmax reads x", func() { Softmax(soft, x) }, func() { x[60] = 1 }},
		{"LogSumExp reads x", func() { LogSumExp(x) }, func() { x[60] = 1 }},
		{"SumExpCentres reads lower", func() { SumExpCentres(scores, dst[:len(scores)], 1) }, touch(&scores[40])},
		{"SumExpCentres reads upper", func() { SumExpCentres(dst[:len(scores)], scores, 1) }, touch(&scores[40])},
		{"Set reads h", func() { fresh.Set(h) }, touch(&h[5])},
		{"Set writes the codes", func() { fresh.Set(h) }, func() { fresh.codes[5] = 1 }},
		{"Bounds writes lower", func() { m.Bounds(lower[:n], upper[:n], v) }, look(&lower[40])},
		{"Bounds writes upper", func() { m.Bounds(lower[:n], upper[:n], v) }, look(&upper[40])},
		{"Bounds reads the rows", func() { m.Bounds(lower[:n], upper[:n], v) }, func() { m.data[n/2*m.stride] = 1 }},
		{"Bounds reads the vector", func() { m.Bounds(lower[:n], upper[:n], v) }, func() { v.codes[5] = 1 }},
		{"GatherBounds writes lower", func() { m.GatherBounds(lower[:n], upper[:n], ids, v) }, look(&lower[40])},
		{"GatherBounds reads the rows", func() { m.GatherBounds(lower[:n], upper[:n], ids, v) }, func() { m.data[9*m.stride] = 1 }},
		{"Bounds of a batch: writes upper", func() { m.Bounds(lower, upper, vs...) }, look(&upper[n+40])},
		{"Bounds of a batch: reads the rows", func() { m.Bounds(lower, upper, vs...) }, func() { m.data[n/2*m.stride] = 1 }},
		{"GatherBounds of a batch: writes lower", func() { m.GatherBounds(lower, upper, ids, vs...) }, look(&lower[n+40])},
		{"Bounds of panels writes upper", func() { packed.Bounds(lower, upper, 0, n/PanelRows, vs...) }, look(&upper[n+40])},
		{"Bounds of panels reads them", func() { packed.Bounds(lower, upper, 0, n/PanelRows, vs...) }, func() { packed.data[n/2*d] = 1 }},
		{"Bounds of panels reads the vector", func() { packed.Bounds(lower, upper, 0, n/PanelRows, vs...) }, func() { v.codes[5] = 1 }},
		{"Bounds of blocks writes lower", func() { blockRows.Bounds(lower[:n], upper[:n], &one) }, look(&lower[40])},
		{"Bounds of blocks writes upper", func() { blockRows.Bounds(lower[:n], upper[:n], &one) }, look(&upper[40])},
		{"Bounds of blocks reads them", func() { blockRows.Bounds(lower[:n], upper[:n], &one) }, func() { bytes[95*34+1] = 1 }},
		{"Bounds of blocks reads the context", func() { blockRows.Bounds(lower[:n], upper[:n], &one) }, func() { one.memory[len(one.memory)-9] = 1 }},
		{"Bounds of blocks and a batch writes upper", func() { blockRows.Bounds(lower, upper, &four) }, look(&upper[3*n+40])},
		{"Bounds of blocks and three contexts writes lower", func() { blockRows.Bounds(lower, upper, &three) }, look(&lower[2*n+40])},
		{"GatherBounds of blocks writes lower", func() { blockRows.GatherBounds(lower[:n], upper[:n], ids, &one) }, look(&lower[40])},
		{"GatherBounds of blocks reads them", func() { blockRows.GatherBounds(lower[:n], upper[:n], ids, &one) }, func() { bytes[9*34+2] = 1 }},
		{"GatherBounds of blocks reads ids", func() { blockRows.GatherBounds(lower[:n], upper[:n], ids, &one) }, func() { ids[3] = 3 }},
		{"GatherBounds of blocks and a batch reads the contexts", func() { blockRows.GatherBounds(lower, upper, ids, &four) }, func() { four.memory[len(four.memory)-9] = 1 }},
		{"Scores7 writes dst", func() { coded.scores7(dst) }, look(&dst[40])},
		{"Scores7 reads the panels", func() { coded.scores7(dst) }, func() { coded.wide[n/2*coded.dim] = 1 }},
		{"Scores7 reads low", func() { coded.scores7(dst) }, func() { coded.low[5] = 1 }},
		{"Scores2 writes dst", func() { coded.scores2(dst[:coded.rows]) }, look(&dst[40])},
		{"Scores2 reads the panels", func() { coded.scores2(dst[:coded.rows]) }, func() { coded.narrow[len(coded.narrow)/2] = 1 }},
		{"Scores2 reads the vector", func() { coded.scores2(dst[:coded.rows]) }, func() { coded.high[5] = 1 }},
		{"Select2 writes rows", func() { coded.select2(room, 0) }, func() { room.rows[3] = 1 }},
		{"Select2 writes selected", func() { coded.select2(room, 0) }, look(&room.scores[3])},
		{"Select2 writes least", func() { coded.select2(room, 0) }, look(&room.least[3])},
		{"Select2 reads the scores", func() { coded.select2(room, 0) }, func() { coded.before[coded.list[3]] = 1 }},
		{"Select2 reads the table", func() { coded.select2(room, 0) }, func() { coded.narrow[len(coded.narrow)/coded.rows*PanelRows*int(coded.list[3])] = 1 }},
		{"Select2 reads the list", func() { coded.select2(room, 0) }, func() { coded.list[3] = 1 }},
		{"Select2 reads the vector", func() { coded.select2(room, 0) }, func() { coded.high[5] = 1 }},
		{"Select2 reads how far a panel is", func() { coded.select2(room, 0) }, func() { coded.now.Far[coded.list[3]] = 1 }},
		{"Select2 reads how near a row is later", func() { coded.select2(room, 0) }, func() { coded.then.Near[PanelRows*coded.list[3]+3] = 1 }},
		{"Lines2 writes dst", func() { Lines2(dst, lines, ids, line, 0) }, look(&dst[7])},
		{"Lines2 reads the table", func() { Lines2(dst, lines, ids, line, 0) }, func() { lines[9*StepBytes+5] = 1 }},
		{"Lines2 reads the list", func() { Lines2(dst, lines, ids, line, 0) }, func() { ids[3] = 3 }},
		{"Lines2 reads the vector", func() { Lines2(dst, lines, ids, line, 0) }, func() { line[5] = 1 }},
		{"KeepRows writes rows", func() { KeepRows(room.rows, room.scores, room.least) }, func() { room.rows[3] = 1 }},
		{"KeepRows writes scores", func() { KeepRows(room.rows, room.scores, room.least) }, look(&room.scores[3])},
		{"KeepRows reads the bounds", func() { KeepRows(room.rows, room.scores, room.least) }, func() { room.least[3] = 1 }},
		{"AddReach writes dst", func() { AddReach(dst, lower[:n], upper[:n], scores, 1, 1, 1, 1) }, look(&dst[7])},
		{"AddReach reads the levels", func() { AddReach(dst, lower[:n], upper[:n], scores, 1, 1, 1, 1) }, func() { scores[7] = 1 }},
		{"4-bit Bounds writes lower", func() { m4.Bounds(lower[:n], upper[:n], v) }, look(&lower[40])},
		{"4-bit Bounds reads the rows", func() { m4.Bounds(lower[:n], upper[:n], v) }, func() { m4.data[n/2*m4.stride] = 1 }},
	}
}

type raceCase struct {
	name        string
	call, touch func()
}

var sink float32

// The detector ends a program with a race with status 66, so each case runs in a separate program:
// this test, started again.
func TestRacesInAssemblyAreReported(t *testing.T) {
	const inChild = "L2S_TEST_RACE"
	if name, ok := os.LookupEnv(inChild); ok {
		for _, c := range raceCases() {
			if c.name != name {
				continue
			}
			var wg sync.WaitGroup
			wg.Go(c.call)
			wg.Go(c.touch)
			wg.Wait()
		}
		return
	}
	for _, c := range raceCases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			// The detector's own memory has no locks: two accesses at the very same
			// moment can escape it, about once in a hundred runs of a busy machine.
			var out []byte
			var err error
			for range 6 {
				cmd := exec.Command(os.Args[0], "-test.run", "^TestRacesInAssemblyAreReported$")
				cmd.Env = append(os.Environ(), inChild+"="+c.name)
				out, err = cmd.CombinedOutput()
				if errors.Is(err, syscall.ENOEXEC) {
					t.Skip("an emulated program cannot start itself")
				}
				if err != nil && strings.Contains(string(out), "WARNING: DATA RACE") {
					return
				}
			}
			t.Errorf("no race is reported: %v\n%s", err, out)
		})
	}
}

// Ordered accesses are no race. The report itself makes this test fail.
func TestOrderedUseIsNoRace(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) {
		for _, c := range raceCases() {
			done := make(chan struct{})
			go func() { c.touch(); close(done) }()
			<-done
			c.call()
		}
	})
	// Goroutines that share their inputs, and write to outputs of their own. A vector has all parts
	// after its first use.
	const n, d = 96, 40
	r := newRand(9)
	rows, h := fill(r, make([]float32, n*d)), fill(r, make([]float32, d))
	m := int8Rows(t, rows, nil, d)
	dst := make([]float32, 4*n)
	lower, upper := make([]float32, 4*n), make([]float32, 4*n)
	packed, shared := panelsOfLists(m, randomIDs(r, n, n)), NewInt8Vector(d)
	shared.Set(h)
	simdtest.EachLevel(t, func(t *testing.T) {
		packed.Bounds(lower[:n], upper[:n], 0, n/PanelRows, shared)
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				v := NewInt8Vector(d)
				v.Set(h)
				Scan(dst[g*n:(g+1)*n], rows, nil, h)
				m.Bounds(lower[g*n:(g+1)*n], upper[g*n:(g+1)*n], v)
				packed.Bounds(lower[g*n:(g+1)*n], upper[g*n:(g+1)*n], 0, n/PanelRows, shared)
				m.Bounds(lower[g*n:(g+1)*n], upper[g*n:(g+1)*n], shared)
			})
		}
		wg.Wait()
	})
}
