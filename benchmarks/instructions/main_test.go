package main

import (
	"slices"
	"strings"
	"testing"
)

// Blocks of other threads are left out, and a block that is translated anew may have
// another size.
func TestInstructionsBetweenMarks(t *testing.T) {
	const prologue = `----------------
IN: main.mark
0x00000100:  d65f03c0  ret

IN: main.work
0x00000200:  910003fd  mov      x29, sp
0x00000204:  d503201f  nop
0x00000208:  d65f03c0  ret

`
	trace := func(thread, address, function string) string {
		return "Trace " + thread + ": 0x7f6244b33d00 [0000000000001001/00000000" + address + "/00000001/00080200] " + function + "\n"
	}
	mark, work := trace("0", "00000100", "main.mark"), trace("0", "00000200", "main.work")
	for _, c := range []struct {
		name, log string
		want      []int64
		err       string
	}{
		{"nothing", "", nil, ""},
		{"one mark", prologue + work + mark + work, nil, ""},
		{"two marks", prologue + work + mark + work + work + mark, []int64{6}, ""},
		{"three marks", prologue + mark + work + mark + mark, []int64{3, 0}, ""},
		{"another thread", prologue + mark + trace("2", "00000200", "main.work") + work + mark, []int64{3}, ""},
		{"a block translated anew", prologue + mark + work +
			"IN: main.work\n0x00000200:  d65f03c0  ret\n\n" + work + mark, []int64{4}, ""},
		{"a block that was not listed", prologue + mark + trace("0", "00000300", "main.rest"), nil, "expected a block that was listed"},
		{"a line that is cut off", prologue + "Trace 0: 0x7f62\n", nil, "expected the trace of a block"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := count(strings.NewReader(c.log), "main.mark")
			if !slices.Equal(got, c.want) && c.err == "" {
				t.Errorf("found %v, expected %v", got, c.want)
			}
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("found error %v, expected %q", err, c.err)
			}
		})
	}
}
