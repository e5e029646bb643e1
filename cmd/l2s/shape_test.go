package main

import "testing"

func TestParseShape(t *testing.T) {
	for _, c := range []struct {
		text string
		want shape
	}{
		{"100", shape{100, 0, false}},
		{"512/32", shape{512, 32, true}},
		{"7/7", shape{7, 7, true}},
		{"32x32", shape{1024, 32, false}},
	} {
		got, err := parseShape(c.text)
		if err != nil || got != c.want {
			t.Errorf("%s: found %v and the error %v, expected %v", c.text, got, err, c.want)
		}
		if got.String() != c.text {
			t.Errorf("%s: found the text %s, expected the same", c.text, got)
		}
	}
	for _, bad := range []string{"", "0", "-1", "x", "/", "3x", "x3", "3/", "/3", "3/4", "0/0", "8/4x2", "2x2x2", "65536x65536", "4294967296", "1.5", "auto"} {
		if got, err := parseShape(bad); err == nil {
			t.Errorf("%q: found %v, expected an error", bad, got)
		}
	}
}
