package main

import (
	"strings"
	"testing"
)

// Every table of times has a note if the machine was busy, and none otherwise.
func TestABusyMachineIsSaid(t *testing.T) {
	const note = "The machine was busy: the dense scan, whose work is the same for every context, took 90.00 us\non average and 60.00 us in the median. "
	for _, c := range []struct {
		name string
		mean float64
		want bool
	}{{"idle", 61, false}, {"just idle", 72, false}, {"busy", 90, true}} {
		for table, text := range map[string]string{
			"bench": (&benchResult{DenseF32: c.mean, DenseF32Median: 60}).String(),
		} {
			t.Run(c.name+": "+table, func(t *testing.T) {
				if found := strings.Contains(text, note); found != c.want || strings.Contains(text, "busy") != c.want {
					t.Errorf("found the note: %v, expected %v, in\n%s", found, c.want, text)
				}
			})
		}
	}
}

// A thread that had the CPU for a part of the time only measures others' work too.
func TestOtherProgramsAreSaid(t *testing.T) {
	for given, want := range map[float64]bool{0: false, 0.95: false, 0.3: true} {
		text := (&benchResult{DenseF32: 60, DenseF32Median: 60, given: given}).String()
		if found := strings.Contains(text, "other programs had the CPU for 70% of the time"); found != want {
			t.Errorf("%v of the time: found the note: %v, expected %v, in\n%s", given, found, want, text)
		}
	}
}
