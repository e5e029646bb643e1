package kernels

import (
	"math"
	"testing"
	"unsafe"

	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

func TestLinesHoldTheFirstBytesOfEachPart(t *testing.T) {
	x := make([]float32, 100) // 400 bytes
	for _, c := range []struct {
		name     string
		n, lines int
	}{
		{"nothing", 0, 0}, {"a byte", 1, 1}, {"a line", 64, 1}, {"a byte more", 65, 2}, {"all", 400, 7}, {"more than there is", math.MaxInt, 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			var l Lines
			AddLines(&l, c.n, x)
			if l.n != c.lines {
				t.Fatalf("found %d lines, expected %d", l.n, c.lines)
			}
			for i, p := range l.few[:l.n] {
				if want := unsafe.Pointer(&x[16*i]); p != want {
					t.Errorf("line %d: found %v, expected %v", i, p, want)
				}
			}
			AddLines(&l, c.n, []byte(nil))
			AddLines(&l, 1, []byte{1})
			if l.n != c.lines+1 {
				t.Errorf("found %d lines after another part, expected %d", l.n, c.lines+1)
			}
		})
	}
}

// A prefetch does not change the memory, and prefetches the expected number of lines in bounded
// calls.
func TestPrefetchChangesNothing(t *testing.T) {
	x := fill(newRand(3), make([]float32, 5000*lineBytes/4))
	was := append([]float32(nil), x...)
	simdtest.EachLevel(t, func(t *testing.T) {
		var l Lines
		l.Prefetch()
		AddLines(&l, 4*len(x), x)
		l.add(nil) // no memory at all: a hint does not fault
		if l.n != len(l.few) || l.n+len(l.more) != 5001 {
			t.Errorf("found %d and %d lines, expected %d and the rest of 5001", l.n, len(l.more), len(l.few))
		}
		calls := 0
		defer func(f func()) { checkpoint = f }(checkpoint)
		checkpoint = func() { calls++ }
		l.Prefetch()
		if want := (len(l.more) - 1) / (MaxCallBytes / lineBytes); calls != want {
			t.Errorf("found %d pauses, expected %d", calls, want)
		}
		for i := range x {
			if x[i] != was[i] {
				t.Fatalf("element %d: found %v, expected %v", i, x[i], was[i])
			}
		}
		if n := simdtest.AllocsPerRun(10, l.Prefetch); n != 0 {
			t.Errorf("found %v allocations, expected 0", n)
		}
	})
}

// Rows of each type are prefetched, up to the last, and no rows without ids.
func TestPrefetchOfRowsChangesNothing(t *testing.T) {
	x := fill(newRand(4), make([]float32, 40*7))
	was := append([]float32(nil), x...)
	narrow := make([]uint16, 40*7)
	simdtest.EachLevel(t, func(t *testing.T) {
		for _, m := range []Rows{{}, Float32Rows(nil, 7), Float32Rows(x, 7), Float16Rows(narrow, 7), BFloat16Rows(narrow, 7), QuantisedRows(make([]byte, 40*34), Q8_0, 32)} {
			for _, ids := range [][]uint32{nil, {0}, {39, 3}, make([]uint32, 17)} {
				Prefetch(m, ids)
				if n := simdtest.AllocsPerRun(10, func() { Prefetch(m, ids) }); n != 0 {
					t.Errorf("found %v allocations, expected 0", n)
				}
			}
		}
		for i := range x {
			if x[i] != was[i] {
				t.Fatalf("element %d: found %v, expected %v", i, x[i], was[i])
			}
		}
	})
}
