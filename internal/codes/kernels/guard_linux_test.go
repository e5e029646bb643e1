package kernels

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"unsafe"

	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

// guarded returns n bytes that end, or if atStart is set begin, at the
// edge of memory that faults when it is touched.
func guarded(t *testing.T, n int, atStart bool) []byte {
	t.Helper()
	page := syscall.Getpagesize()
	size := (n + page - 1) / page * page
	mem, err := syscall.Mmap(-1, 0, size+2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(mem); err != nil {
			t.Error(err)
		}
	})
	for _, edge := range [][]byte{mem[:page], mem[page+size:]} {
		if err := syscall.Mprotect(edge, syscall.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	if atStart {
		return mem[page : page+n : page+n]
	}
	return mem[page+size-n : page+size : page+size]
}

// edges returns guarded slices: each slice of a round at a different edge, and the slices of all
// rounds at the same edges.
type edges struct {
	t       *testing.T
	atStart bool
	mem     [][]byte
	taken   int
}

// mostBytes is the largest size of a slice of a round.
const mostBytes = 20 * 400 * 8

func (e *edges) next() []byte {
	if e.taken == len(e.mem) {
		e.mem = append(e.mem, guarded(e.t, mostBytes, e.atStart))
	}
	e.taken++
	return e.mem[e.taken-1]
}

// take returns a slice of n zeros. The data of the previous round there is gone.
func take[T any](e *edges, n int) []T {
	var zero T
	mem := e.next()
	size := n * int(unsafe.Sizeof(zero))
	if n == 0 {
		return nil
	}
	b := mem[:size]
	if !e.atStart {
		b = mem[len(mem)-size:]
	}
	clear(b)
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), n)
}

// atEdges has the arguments of the kernels in one round: n rows of d elements, and m ids.
type atEdges struct {
	*edges
	r       *rand.Rand
	n, d, m int
}

func (a *atEdges) floats(n int) []float32 { return fill(a.r, take[float32](a.edges, n)) }

func (a *atEdges) doubles(n int) []float64 {
	x := take[float64](a.edges, n)
	for i := range x {
		x[i] = a.r.NormFloat64()
	}
	return x
}

func (a *atEdges) ids() []uint32 {
	ids := take[uint32](a.edges, a.m)
	copy(ids, randomIDs(a.r, a.m, a.n))
	return ids
}

// rows returns rows of a type: of 16 bits, zeros.
func (a *atEdges) rows(e Element) Rows {
	switch e {
	case Float16:
		return Float16Rows(take[uint16](a.edges, a.n*a.d), a.d)
	case BFloat16:
		return BFloat16Rows(take[uint16](a.edges, a.n*a.d), a.d)
	}
	return Float32Rows(a.floats(a.n*a.d), a.d)
}

func (a *atEdges) int8Rows() *Int8Rows {
	q, err := NewInt8Rows(take[byte](a.edges, a.n*Int8Stride(a.d)), a.rows(Float32), a.floats(a.n))
	if err != nil {
		a.t.Fatal(err)
	}
	return q
}

func (a *atEdges) int4Rows() *Int4Rows {
	q, err := newInt4Rows(take[byte](a.edges, a.n*Int4Stride(a.d)), a.rows(Float32), a.floats(a.n))
	if err != nil {
		a.t.Fatal(err)
	}
	return q
}

func (a *atEdges) vector() *Int8Vector {
	v := NewInt8Vector(a.d)
	v.h, v.codes = take[float32](a.edges, Int8Stride(a.d)), take[int8](a.edges, Int8Stride(a.d))
	a.set(v)
	return v
}

func (a *atEdges) set(v *Int8Vector) {
	if v.Set(fill(a.r, make([]float32, v.dim))) != Certified {
		a.t.Fatal("not certified")
	}
}

// blockRows returns rows of one to seven blocks, of a type that changes with d, and contexts.
func (a *atEdges) blockRows(contexts int) (*BlockRows, *BlockContexts) {
	e, blocks := blockTypes[a.d%len(blockTypes)], 1+a.d/len(blockTypes)%7
	elements, size := BlockOf(e)
	data := take[byte](a.edges, a.n*blocks*size)
	copy(data, randomBlocks(a.r, e, a.n*blocks))
	m, err := Blocks(QuantisedRows(data, e, blocks*elements), a.floats(a.n))
	if err != nil {
		a.t.Fatal(err)
	}
	meta := m.meta
	m.meta = take[BlockMeta](a.edges, a.n)
	copy(m.meta, meta)
	var vs []*Int8Vector
	for range contexts {
		v := NewInt8Vector(blocks * elements)
		a.set(v)
		vs = append(vs, v)
	}
	c := new(BlockContexts)
	c.Set(m, vs...)
	return m, c
}

func (a *atEdges) halved() *Int8Vector {
	v := a.vector()
	v.halves = [2][]int8{take[int8](a.edges, Int4Stride(a.d)), take[int8](a.edges, Int4Stride(a.d))}
	return v
}

// bounds returns room for n intervals.
func (a *atEdges) bounds(n int) (lower, upper []float32) {
	return take[float32](a.edges, n), take[float32](a.edges, n)
}

// kernelsAtEdges are all kernels, each with every slice at an edge.
var kernelsAtEdges = []struct {
	name string
	call func(a *atEdges)
}{
	{"Dot", func(a *atEdges) { Dot(a.floats(a.d), a.floats(a.d)) }},
	{"Scan", func(a *atEdges) { Scan(take[float32](a.edges, a.n), a.floats(a.n*a.d), a.floats(a.n), a.floats(a.d)) }},
	{"GatherDot", func(a *atEdges) {
		GatherDot(take[float32](a.edges, a.m), a.floats(a.n*a.d), a.floats(a.n), a.ids(), a.floats(a.d))
	}},
	{"ArgmaxDot", func(a *atEdges) { ArgmaxDot(a.floats(a.n*a.d), a.floats(a.d)) }},
	{"RefDot", func(a *atEdges) { RefDot(a.floats(a.d), a.floats(a.d)) }},
	{"Rows.RefScan", func(a *atEdges) {
		for _, e := range elements {
			a.rows(e).RefScan(take[float64](a.edges, a.n), a.floats(a.n), a.floats(a.d))
		}
	}},
	{"Rows.RefGatherDot", func(a *atEdges) {
		for _, e := range elements {
			a.rows(e).RefGatherDot(take[float64](a.edges, a.m), a.floats(a.n), a.ids(), a.floats(a.d))
		}
	}},
	{"Rows.Widen", func(a *atEdges) { // the row that is at the edge
		for _, e := range elements {
			i := a.n - 1
			if a.atStart {
				i = 0
			}
			a.rows(e).Widen(take[float32](a.edges, a.d), i)
		}
	}},
	{"FirstNotFinite", func(a *atEdges) {
		for _, e := range elements {
			if _, _, found := FirstNotFinite(a.rows(e)); found {
				a.t.Fatal("found an element that is not finite")
			}
		}
	}},
	{"Axpy", func(a *atEdges) { Axpy(take[float64](a.edges, a.d), 2, a.floats(a.d)) }},
	{"Int8Vector.Set", func(a *atEdges) { a.vector() }},
	{"Int8Rows.Bounds", func(a *atEdges) {
		q, v := a.int8Rows(), a.vector()
		lower, upper := a.bounds(a.n)
		q.Bounds(lower, upper, v)
	}},
	{"Int8Rows.GatherBounds", func(a *atEdges) {
		q, v := a.int8Rows(), a.vector()
		lower, upper := a.bounds(a.m)
		q.GatherBounds(lower, upper, a.ids(), v)
	}},
	{"Int8Rows.Bounds of a batch", func(a *atEdges) {
		q, v := a.int8Rows(), a.vector()
		lower, upper := a.bounds(4 * a.n)
		q.Bounds(lower, upper, v, a.vector(), v, v)
	}},
	{"Int8Rows.GatherBounds of a batch", func(a *atEdges) {
		q, v := a.int8Rows(), a.vector()
		lower, upper := a.bounds(4 * a.m)
		q.GatherBounds(lower, upper, a.ids(), v, a.vector(), v, v)
	}},
	{"Int8Panels.Bounds", func(a *atEdges) { a.panels(fill(a.r, make([]float32, a.n*a.d))) }},
	{"Int8Panels.Bounds, narrow", func(a *atEdges) { a.panels(fillNarrow(a.r, make([]float32, a.n*a.d), a.d)) }},
	{"Int4Rows.Bounds", func(a *atEdges) {
		q, v := a.int4Rows(), a.halved()
		lower, upper := a.bounds(a.n)
		q.Bounds(lower, upper, v)
	}},
	{"BlockRows.Bounds", func(a *atEdges) {
		for _, contexts := range []int{1, 2, BatchContexts} {
			m, c := a.blockRows(contexts)
			lower, upper := a.bounds(c.wide * a.n)
			m.Bounds(lower, upper, c)
		}
	}},
	{"BlockRows.GatherBounds", func(a *atEdges) {
		for _, contexts := range []int{1, 2, BatchContexts} {
			m, c := a.blockRows(contexts)
			lower, upper := a.bounds(c.wide * a.m)
			m.GatherBounds(lower, upper, a.ids(), c)
		}
	}},
	{"KeepRows and AddReach", func(a *atEdges) {
		KeepRows(take[uint32](a.edges, a.n), a.floats(a.n), a.floats(a.n))
		AddReach(a.floats(a.n), a.floats(a.n), a.floats(a.n), a.floats(a.n), 1, 1, 1, 1)
	}},
	{"Scores7, Scores2, Select2 and Lines2", func(a *atEdges) {
		p := newCodedPanels(a.r, PanelsOf(a.n), (a.d+15)&^15, func(n int) []byte { return take[byte](a.edges, n) }, func(n int) []int8 { return take[int8](a.edges, n) })
		p.scores7(take[float32](a.edges, p.rows))
		p.scores2(take[float32](a.edges, p.rows))
		p.before, p.now.Far, p.then.Far = a.floats(p.rows/PanelRows), a.floats(p.rows/PanelRows), a.floats(p.rows/PanelRows)
		most := PanelRows * len(p.list)
		p.select2(selected{take[uint32](a.edges, most), take[float32](a.edges, most), take[float32](a.edges, most)}, 0)
		list := randomIDs(a.r, a.m, a.n)
		Lines2(take[float32](a.edges, len(list)), take[byte](a.edges, a.n*StepBytes), list, take[int8](a.edges, LineCodes), 0)
	}},
	{"TopK", func(a *atEdges) {
		k := 1 + a.r.IntN(a.d)
		TopK(take[uint32](a.edges, k), take[float32](a.edges, k), a.floats(a.d))
	}},
	{"KthBound", func(a *atEdges) { KthBound(a.floats(a.d), 1+a.r.IntN(min(a.d, 16))) }},
	{"SelectAtLeast", func(a *atEdges) { SelectAtLeast(take[uint32](a.edges, a.d), a.floats(a.d), 0) }},
	{"LogSumExp", func(a *atEdges) { LogSumExp(a.doubles(a.d)) }},
	{"SumExpCentres", func(a *atEdges) { SumExpCentres(a.floats(a.d), a.floats(a.d), 1) }},
	{"Softmax", func(a *atEdges) { Softmax(take[float64](a.edges, a.d), a.doubles(a.d)) }},
}

// A read or a write outside the slices that a kernel is given ends the test. Memory that faults
// comes right after their ends, then right before their starts.
func TestNothingIsTouchedOutsideTheSlices(t *testing.T) {
	for _, k := range kernelsAtEdges {
		t.Run(k.name, func(t *testing.T) {
			for _, atStart := range []bool{false, true} {
				t.Run(map[bool]string{false: "at the end", true: "at the start"}[atStart], func(t *testing.T) {
					e := &edges{t: t, atStart: atStart}
					simdtest.EachLevel(t, func(t *testing.T) {
						r := newRand(8)
						for _, d := range dims() {
							if d > 300 {
								break
							}
							e.taken = 0
							k.call(&atEdges{edges: e, r: r, n: 1 + r.IntN(19), d: d, m: 1 + r.IntN(40)})
						}
					})
				})
			}
		})
	}
}

// panels runs the kernels that read panels of the rows.
func (a *atEdges) panels(rows []float32) {
	m := int8Rows(a.t, rows, fill(a.r, make([]float32, a.n)), a.d)
	n := PanelsOf(a.m)
	q, err := NewPanels(m, alignedBytes(n*PanelBytes(a.d, false)), randomIDs(a.r, a.m, a.n), []int{0, a.m})
	if err != nil {
		a.t.Fatal(err)
	}
	data := take[byte](a.edges, len(q.data))
	copy(data, q.data)
	q.data = data
	lower, upper := a.bounds(2 * n * PanelRows)
	v := a.vector()
	q.Bounds(lower, upper, 0, n, v, a.vector())
	lower, upper = a.bounds(PanelRows)
	q.Bounds(lower, upper, n-1, 1, v)
	lower, upper = a.bounds(n * PanelRows)
	q.Survivors(lower, upper, take[uint32](a.edges, n*PanelRows), 0, a.m, 1, v)
}
