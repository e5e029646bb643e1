package mem

import (
	"testing"
	"unsafe"
)

func TestAllocIsAlignedZeroAndWritable(t *testing.T) {
	for _, n := range []int{0, 1, 64, minShared - 1, minShared, minShared + 1, 4*minShared + 17, minMapped - 1, minMapped, minMapped + 12345, 3*minMapped + 1} {
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

// Small tables share large pages, each with bytes of its own, until the last of a page is
// released.
func TestSmallTablesDoNotOverlap(t *testing.T) {
	const size = 300 << 10 // several to a page, and several pages
	var tables [][]byte
	var releases []func()
	for i := range 20 {
		table, release := Alloc(size)
		if release == nil {
			t.Skip("the system has no mappings")
		}
		for j := range table {
			if table[j] != 0 {
				t.Fatalf("table %d: byte %d is not zero", i, j)
			}
			table[j] = byte(i + 1)
		}
		tables, releases = append(tables, table), append(releases, release)
		if i%3 == 2 { // one that is gone changes nothing in the others
			releases[i-1]()
			tables[i-1], releases[i-1] = nil, nil
		}
		for k, table := range tables {
			for j := range table {
				if table[j] != byte(k+1) {
					t.Fatalf("table %d: found %d at byte %d, expected %d", k, table[j], j, k+1)
				}
			}
		}
	}
	for _, release := range releases {
		if release != nil {
			release()
		}
	}
}

func TestAdviceChangesNothing(t *testing.T) {
	for _, n := range []int{0, 1, hugePage - 1, 3*hugePage + 77, maxAdvised + 1} {
		x := make([]byte, n)
		for i := 0; i < n; i += 1000 {
			x[i] = byte(i / 1000)
		}
		Advise(x)
		for i := range x {
			want := byte(0)
			if i%1000 == 0 {
				want = byte(i / 1000)
			}
			if x[i] != want {
				t.Fatalf("%d bytes: found %d at byte %d, expected %d", n, x[i], i, want)
			}
		}
	}
}
