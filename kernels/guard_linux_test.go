package kernels

import (
	"syscall"
	"testing"
	"unsafe"

	"github.com/learning-to-screen/l2s/internal/simdtest"
)

// guarded returns n bytes that end, or where atStart is set begin, at the
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

// arena hands out guarded slices, cut from one mapping each, whose lengths
// shrink: every slice sits at the same edge.
type arena struct {
	mem     []byte
	atStart bool
}

func newArena(t *testing.T, n int, atStart bool) *arena {
	return &arena{guarded(t, n, atStart), atStart}
}

func cut[T any](a *arena, n int) []T {
	var zero T
	size := n * int(unsafe.Sizeof(zero))
	if n == 0 {
		return nil
	}
	b := a.mem[:size]
	if !a.atStart {
		b = a.mem[len(a.mem)-size:]
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), n)
}

// TestNothingIsTouchedOutsideTheSlices runs every kernel with every slice at
// the edge of a page that faults: a read or a write outside ends the test.
func TestNothingIsTouchedOutsideTheSlices(t *testing.T) {
	const most = 20 * 400 * 8
	for _, atStart := range []bool{false, true} {
		name := map[bool]string{false: "at the end", true: "at the start"}[atStart]
		t.Run(name, func(t *testing.T) {
			a, b, c, e, f := newArena(t, most, atStart), newArena(t, most, atStart), newArena(t, most, atStart), newArena(t, most, atStart), newArena(t, most, atStart)
			codes, recs, g := newArena(t, most, atStart), newArena(t, most, atStart), newArena(t, most, atStart)
			recs4, low, high, f4 := newArena(t, most, atStart), newArena(t, most, atStart), newArena(t, most, atStart), newArena(t, most, atStart)
			simdtest.EachLevel(t, func(t *testing.T) {
				r := newRand(8)
				for d := 1; d <= 300; d++ {
					n := 1 + r.IntN(19)
					rows, h := fill(r, cut[float32](a, n*d)), fill(r, cut[float32](b, d))
					bias := fill(r, cut[float32](c, n))
					Dot(rows[len(rows)-d:], h)
					Scan(cut[float32](e, n), rows, bias, h)
					ArgmaxDot(rows, h)
					RefDot(rows[:d], h)
					Axpy(cut[float64](e, d), 2, h)
					m := 1 + r.IntN(40)
					ids := cut[uint32](f, m)
					copy(ids, randomIDs(r, m, n))
					GatherDot(cut[float32](e, m), rows, bias, ids, h)
					for _, typed := range []Rows{Float32Rows(rows, d), Float16Rows(cut[uint16](g, n*d), d), BFloat16Rows(cut[uint16](g, n*d), d)} {
						typed.RefScan(cut[float64](e, n), bias, h)
						typed.RefGatherDot(cut[float64](e, m), bias, ids, h)
						typed.Widen(cut[float32](e, d), n-1)
						if atStart {
							typed.Widen(cut[float32](e, d), 0)
						}
						if _, _, found := typed.NotFinite(); found {
							t.Fatal("found an element that is not finite")
						}
					}

					stride := Int8Stride(d)
					q, err := NewInt8Rows(cut[byte](recs, n*stride), Float32Rows(rows, d), bias)
					if err != nil {
						t.Fatal(err)
					}
					v := NewInt8Vector(d)
					v.h, v.codes = cut[float32](b, stride), cut[int8](codes, stride)
					clear(v.h)
					clear(v.codes)
					if v.Set(fill(r, make([]float32, d))) != Certified {
						t.Fatal("not certified")
					}
					q.Bounds(cut[float32](e, n), cut[float32](c, n), v)
					q.GatherBounds(cut[float32](e, m), cut[float32](c, m), ids, v)

					q4, err := NewInt4Rows(cut[byte](recs4, n*Int4Stride(d)), Float32Rows(rows, d), bias)
					if err != nil {
						t.Fatal(err)
					}
					v.halves = [2][]int8{cut[int8](low, Int4Stride(d)), cut[int8](high, Int4Stride(d))}
					clear(v.halves[0])
					clear(v.halves[1])
					q4.Bounds(cut[float32](e, n), cut[float32](f4, n), v)
					vs := []*Int8Vector{v, v, v, v}
					q.BoundsBatch(cut[float32](e, 4*n), cut[float32](c, 4*n), vs)
					q.GatherBoundsBatch(cut[float32](e, 4*m), cut[float32](c, 4*m), ids, vs)

					scores := fill(r, cut[float32](a, d))
					k := 1 + r.IntN(d)
					TopK(cut[uint32](b, k), cut[float32](c, k), scores)
					SelectAtLeast(cut[uint32](b, d), scores, 0)
					x := cut[float64](a, d)
					for i := range x {
						x[i] = r.NormFloat64()
					}
					LogSumExp(x)
					Softmax(cut[float64](b, d), x)
				}
			})
		})
	}
}
