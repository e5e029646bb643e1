package main

import (
	"fmt"
	"strings"
)

// busyFactor is the ratio of the mean to the median of the dense scan's times from which
// on a machine counts as busy. The scan does the same work for every context, so that
// on an idle machine the two differ by a few percent.
const busyFactor = 1.2

// What can be done about times of a busy machine, in a table and in a choice by times.
const (
	compareMedians = "Compare medians, or measure again on an idle machine."
	chooseAgain    = "On an idle machine another screen may be the fastest: run the command again there."
)

// busyNote returns a line that says that other programs ran during a measurement, and
// what can be done, or nothing if the times of the dense scan, in microseconds, do not
// show it.
func busyNote(mean, median float64, advice string) string {
	if mean <= busyFactor*median {
		return ""
	}
	return fmt.Sprintf("The machine was busy: the dense scan, whose work is the same for every context, took %.2f us\n"+
		"on average and %.2f us in the median. %s\n", mean, median, advice)
}

// warnings are a note as JSON has it: a list of a sentence on one line, nil for no note.
func warnings(note string) []string {
	if note == "" {
		return nil
	}
	return []string{strings.Join(strings.Fields(note), " ")}
}
