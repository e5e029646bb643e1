package kernels

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s/internal/watch/timing"
)

// shapes are the matrices of the benchmarks, by the place of their float32 rows; the last are
// layers of real models' sizes.
var shapes = []struct {
	where     string
	rows, dim int
}{
	{"L1", 32, 200},
	{"L2", 1000, 200},
	{"L3", 10000, 200},
	{"L3", 10000, 1500},
	{"L3", 25000, 500},
	{"DRAM", 131072, 1024},
	{"DRAM", 262144, 640},
}

// matrix is one shape's data, made once for all kernels.
type matrix struct {
	rows, dim int
	weights   []float32
	bias      []float32
	codes     *Int8Rows
	contexts  [][]float32
	vectors   []*Int8Vector
	sets      [][]uint32 // of 100 to 500 ids
	next      int
}

func newMatrix(b *testing.B, rows, dim int) *matrix {
	r := newRand(11)
	m := &matrix{rows: rows, dim: dim, weights: make([]float32, rows*dim), bias: fill(r, make([]float32, rows))}
	// Normal numbers by the million are slow to draw; repeat some.
	pool := fill(r, make([]float32, 1<<16+1))
	for i := range m.weights {
		m.weights[i] = pool[i%len(pool)]
	}
	m.codes = int8Rows(b, m.weights, m.bias, dim)
	for range 64 {
		h := fill(r, make([]float32, dim))
		v := NewInt8Vector(dim)
		v.Set(h)
		m.contexts, m.vectors = append(m.contexts, h), append(m.vectors, v)
		m.sets = append(m.sets, randomIDs(r, 100+r.IntN(401), rows))
	}
	return m
}

// typed returns the weights as rows of a type: bfloat16 are the upper halves, and
// float16 have their signs and fractions.
func (m *matrix) typed(e Element) Rows {
	if e == Float32 {
		return Float32Rows(m.weights, m.dim)
	}
	narrow := make([]uint16, len(m.weights))
	for i, x := range m.weights {
		bits := math.Float32bits(x)
		if narrow[i] = uint16(bits >> 16); e == Float16 {
			narrow[i] = uint16(bits>>16&0x8000 | 15<<10 | bits>>13&1023) // with an exponent of 0
		}
	}
	if e == Float16 {
		return Float16Rows(narrow, m.dim)
	}
	return BFloat16Rows(narrow, m.dim)
}

// turn returns a number that differs from iteration to iteration.
func (m *matrix) turn() int {
	m.next = (m.next + 1) % len(m.contexts)
	return m.next
}

// BenchmarkKernels runs every kernel over matrices in each cache and in
// memory. Bytes are counted of the rows that are read; contexts and candidate
// sets differ from iteration to iteration.
func BenchmarkKernels(b *testing.B) {
	for _, s := range shapes {
		b.Run(fmt.Sprintf("%s/%dx%d", s.where, s.rows, s.dim), func(b *testing.B) {
			if s.where == "DRAM" && testing.Short() {
				b.Skip("-short skips data that does not fit the caches")
			}
			benchmarkMatrix(b, newMatrix(b, s.rows, s.dim))
		})
	}
}

func benchmarkMatrix(b *testing.B, m *matrix) {
	n, row, record := m.rows, 4*m.dim, Int8Stride(m.dim)
	size := 4 * max(n, 501)
	dst, upper := make([]float32, size), make([]float32, size)
	ref := make([]float64, max(n, 10))
	run := func(name string, bytes int, f func()) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(bytes))
			for b.Loop() {
				f()
			}
		})
	}
	const mean = 300 // ids in a set
	run("Scan", n*row, func() { Scan(dst[:n], m.weights, m.bias, m.contexts[m.turn()]) })
	run("ArgmaxDot", n*row, func() { ArgmaxDot(m.weights, m.contexts[m.turn()]) })
	for _, e := range elements {
		rows := m.typed(e)
		run("RefScan/"+e.String(), n*rows.rowBytes(), func() { rows.RefScan(ref[:n], m.bias, m.contexts[m.turn()]) })
		run("RefGatherDot/"+e.String(), 10*rows.rowBytes(), func() {
			rows.RefGatherDot(ref[:10], m.bias, m.sets[m.turn()][:10], m.contexts[m.turn()])
		})
		run("NotFinite/"+e.String(), n*rows.rowBytes(), func() { FirstNotFinite(rows) })
	}
	run("Int8Bounds", n*record, func() { m.codes.Bounds(dst[:n], upper[:n], m.vectors[m.turn()]) })
	run("Int8BoundsBatch4", n*record, func() {
		i := m.turn() * 4 % len(m.contexts)
		m.codes.Bounds(dst[:4*n], upper[:4*n], m.vectors[i:i+4]...)
	})
	run("GatherDot", mean*row, func() {
		ids := m.sets[m.turn()]
		GatherDot(dst[:len(ids)], m.weights, m.bias, ids, m.contexts[m.turn()])
	})
	run("Int8GatherBounds", mean*record, func() {
		ids := m.sets[m.turn()]
		m.codes.GatherBounds(dst[:len(ids)], upper[:len(ids)], ids, m.vectors[m.turn()])
	})
	run("Int8GatherBoundsBatch4", mean*record, func() {
		i, ids := m.turn()*4%len(m.contexts), m.sets[m.turn()]
		m.codes.GatherBounds(dst[:4*len(ids)], upper[:4*len(ids)], ids, m.vectors[i:i+4]...)
	})
	packed, firsts, n0 := panelsOfLists(m.codes, m.sets...), make([]int, len(m.sets)), 0
	for i, set := range m.sets {
		firsts[i], n0 = n0, n0+PanelsOf(len(set))
	}
	run("Int8PanelBounds", mean*PanelBytes(m.dim, false)/PanelRows, func() {
		i := m.turn()
		size := PanelsOf(len(m.sets[i]))
		packed.Bounds(dst[:size*PanelRows], upper[:size*PanelRows], firsts[i], size, m.vectors[m.turn()])
	})
	rounded := slices.Clone(m.weights)
	Round4(rounded, m.dim)
	narrow := panelsOfLists(int8Rows(b, rounded, m.bias, m.dim), m.sets...)
	run("Int4PanelBounds", mean*narrow.size()/PanelRows, func() {
		i := m.turn()
		size := PanelsOf(len(m.sets[i]))
		narrow.Bounds(dst[:size*PanelRows], upper[:size*PanelRows], firsts[i], size, m.vectors[m.turn()])
	})
	v := NewInt8Vector(m.dim)
	run("Int8VectorSet", row, func() { v.Set(m.contexts[m.turn()]) })
	Scan(dst[:n], m.weights, m.bias, m.contexts[0])
	run("TopK5", 4*n, func() {
		var ids [5]uint32
		var vals [5]float32
		TopK(ids[:], vals[:], dst[:n])
	})
	ids := make([]uint32, n)
	run("SelectAtLeast", 4*n, func() { SelectAtLeast(ids, dst[:n], 1e9) })
	for i := range n {
		ref[i] = float64(dst[i])
	}
	run("LogSumExp", 8*n, func() { LogSumExp(ref[:n]) })
	run("SumExpCentres", 8*n, func() { SumExpCentres(dst[:n], dst[:n], 1) })
	grad := make([]float64, m.dim)
	run("Axpy", 12*m.dim, func() { Axpy(grad, 0.5, m.contexts[m.turn()]) })
}

// BenchmarkBlocks computes the intervals of the heads of Qwen2.5-Coder 1.5B and 0.5B, of random
// bytes, for one context, and reads the same bytes plainly.
func BenchmarkBlocks(b *testing.B) {
	for _, s := range []struct {
		e    Element
		rows int
		dim  int
	}{{Q6_K, 128, 1536}, {Q8_0, 128, 896}, {Q6_K, 151936, 1536}, {Q8_0, 151936, 896}} {
		if testing.Short() && s.rows > 128 {
			continue
		}
		r, size := newRand(12), QuantisedRows(nil, s.e, s.dim).rowBytes()
		elements, _ := BlockOf(s.e)
		data := bytes.Repeat(randomBlocks(r, s.e, 128*s.dim/elements), s.rows/128)
		n := s.rows / 128 * 128
		rows, err := Blocks(QuantisedRows(data, s.e, s.dim), make([]float32, n))
		if err != nil {
			b.Fatal(err)
		}
		v, lower, upper := NewInt8Vector(s.dim), make([]float32, n), make([]float32, n)
		v.Set(fill(r, make([]float32, s.dim)))
		var c BlockContexts
		c.Set(rows, v)
		run := func(name string, f func()) {
			b.Run(fmt.Sprintf("%s/%dx%d/%s", s.e, n, s.dim, name), func(b *testing.B) {
				b.SetBytes(int64(n * size))
				for b.Loop() {
					f()
				}
			})
		}
		run("bounds", func() { rows.Bounds(lower, upper, &c) })
		run("read", func() { timing.ReadMemory(data) })
	}
}
