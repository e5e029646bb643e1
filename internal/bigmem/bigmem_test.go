package bigmem

import (
	"testing"
	"unsafe"
)

func TestAllocIsAlignedZeroAndWritable(t *testing.T) {
	for _, n := range []int{0, 1, 64, 4095, minMapped - 1, minMapped, minMapped + 12345} {
		table, release := Alloc(n)
		if len(table) != n || cap(table) != n {
			t.Errorf("%d bytes: length %d, capacity %d", n, len(table), cap(table))
		}
		if n > 0 && uintptr(unsafe.Pointer(&table[0]))%align != 0 {
			t.Errorf("%d bytes: not aligned", n)
		}
		for i := range table {
			if table[i] != 0 {
				t.Fatalf("%d bytes: byte %d is not zero", n, i)
			}
			table[i] = byte(i)
		}
		if release != nil {
			release()
		}
	}
}
