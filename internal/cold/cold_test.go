package cold

import "testing"

func TestBufferIsReadWholeAndWithoutAllocation(t *testing.T) {
	for _, mib := range []int{1, 3} {
		b := NewBuffer(mib)
		if got, want := 8*len(b.words), mib<<20; got != want {
			t.Errorf("%d MiB: found %d bytes, expected %d", mib, got, want)
		}
		// Each line holds the index of its first word.
		lines := uint64(len(b.words) / lineWords)
		want := lineWords * (lines * (lines - 1) / 2)
		b.Read([]float32{3, 4.5})
		if want += 3 + 4; b.sum != want {
			t.Errorf("%d MiB: found the sum %d, expected %d, of all lines and the context", mib, b.sum, want)
		}
		if n := testing.AllocsPerRun(3, func() { b.Read(nil) }); n != 0 {
			t.Errorf("%d MiB: found %v allocations, expected 0", mib, n)
		}
	}
}

// The words of a table are 1 in the first line, 2 in the second and so on, so that a sum
// tells which lines were read.
func TestTableReadsAPieceOfItsLines(t *testing.T) {
	const lines = 100
	table := NewTable(make([]byte, 64*lines+63))
	for i := range lines {
		table.words[i*lineWords] = uint64(i + 1)
	}
	starts := map[uint64]bool{}
	for i := range 50 {
		for bytes, want := range map[int]uint64{1: 1, 64: 1, 65: 2, 640: 10, 64 * lines: lines, 65 * lines: lines} {
			table.sum = 0
			table.Read(i, bytes)
			// The sum of first+1 ... first+n
			first := (table.sum - want*(want+1)/2) / want
			if table.sum != want*first+want*(want+1)/2 || first+want > lines {
				t.Fatalf("place %d, %d bytes: found the sum %d, expected it of %d lines within %d", i, bytes, table.sum, want, lines)
			}
			if want == 10 {
				starts[first] = true
			}
		}
	}
	if len(starts) < 25 {
		t.Errorf("found %d starts of 50 pieces, expected most to differ", len(starts))
	}
	if n := testing.AllocsPerRun(3, func() { table.Read(1, 640) }); n != 0 {
		t.Errorf("found %v allocations, expected 0", n)
	}
}
