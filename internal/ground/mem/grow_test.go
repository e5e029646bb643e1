package mem

import "testing"

func TestSliceReusesWhatIsThere(t *testing.T) {
	s := make([]int, 3, 5)
	s[2] = 7
	for _, n := range []int{0, 1, 3, 5} {
		if g := Grow(s, n); len(g) != n || cap(g) != 5 || n > 2 && g[2] != 7 {
			t.Errorf("to %d: found %v of capacity %d, want the memory that was given", n, g, cap(g))
		}
	}
	if g := Grow(s, 6); len(g) != 6 {
		t.Errorf("to 6: found %d elements", len(g))
	}
	if g := Grow[byte](nil, 2); len(g) != 2 {
		t.Errorf("from nothing to 2: found %d elements", len(g))
	}
	if n := testing.AllocsPerRun(100, func() { s = Grow(s, 4) }); n != 0 {
		t.Errorf("found %v allocations if the capacity allows, want none", n)
	}
}
