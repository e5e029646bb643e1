package main

import (
	"slices"
	"strings"
)

// suggestion asks whether the nearest name was meant; it is empty if none is near.
func suggestion(unknown, dashes string, names []string) string {
	if name := nearest(unknown, names); name != "" {
		return ": did you mean " + dashes + name + "?"
	}
	return ""
}

// nearest returns the name that is fewest typing errors away from what was typed: a third of its
// letters at most, and two at least. Else it returns the one name that begins with it.
func nearest(typed string, names []string) string {
	for errors := range max(2, len(typed)/3) + 1 {
		for _, name := range names {
			// Of short words two errors leave nothing.
			if errors < min(len(typed), len(name)) && near(typed, name, errors) {
				return name
			}
		}
	}
	begun := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !strings.HasPrefix(name, typed) })
	if len(begun) != 1 {
		return ""
	}
	return begun[0]
}

// near reports whether no more than so many letters are missing, too many, wrong, or in the
// place of their neighbour, between two words: the optimal string alignment distance.
func near(a, b string, errors int) bool {
	switch {
	case errors < 0:
		return false
	case a == "" || b == "":
		return len(a)+len(b) <= errors
	case a[0] == b[0]:
		return near(a[1:], b[1:], errors)
	case len(a) > 1 && len(b) > 1 && a[0] == b[1] && a[1] == b[0] && near(a[2:], b[2:], errors-1):
		return true
	}
	return near(a[1:], b, errors-1) || near(a, b[1:], errors-1) || near(a[1:], b[1:], errors-1)
}
