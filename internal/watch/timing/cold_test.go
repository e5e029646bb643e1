package timing

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
