package cmdline

import "testing"

// Numbers are decimal: digits that other programs take for octal or hexadecimal are not.
func TestNumbersAreDecimal(t *testing.T) {
	for s, want := range map[string]int{"0": 0, "010": 10, "-1": -1, "42": 42} {
		if n, err := Whole(s); err != nil || n != want {
			t.Errorf("%q: found %d, %v, expected %d", s, n, err, want)
		}
		if x, err := Float(s); err != nil || x != float64(want) {
			t.Errorf("%q: found %v, %v, expected %d", s, x, err, want)
		}
	}
	for _, s := range []string{"", "0x10", "0X1p4", "1_0", "0b1", "0o7", "1 "} {
		if n, err := Whole(s); err == nil {
			t.Errorf("%q: found %d, expected an error", s, n)
		}
		if x, err := Float(s); err == nil {
			t.Errorf("%q: found %v, expected an error", s, x)
		}
	}
	if x, err := Float("01.50e1"); err != nil || x != 15 {
		t.Errorf("found %v, %v, expected 15", x, err)
	}
}
