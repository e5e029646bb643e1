package main

import "strings"

// suggestion returns the name that was most likely meant, as a question to put behind
// what is unknown; it is empty if none is near.
func suggestion(unknown, dashes string, names []string) string {
	if name := nearest(unknown, names); name != "" {
		return ": did you mean " + dashes + name + "?"
	}
	return ""
}

// nearest returns the name that is fewest typing errors away from what was typed: a
// third of its letters at most, and two at least. If no name is so near, it returns
// the one name that begins with it.
func nearest(typed string, names []string) string {
	best, least := "", max(2, len(typed)/3)+1
	for _, name := range names {
		// Of short words two errors leave nothing.
		if d := typingErrors(typed, name); d < least && d < min(len(typed), len(name)) {
			best, least = name, d
		}
	}
	if best != "" || typed == "" {
		return best
	}
	for _, name := range names {
		if strings.HasPrefix(name, typed) {
			if best != "" {
				return ""
			}
			best = name
		}
	}
	return best
}

// typingErrors is the number of letters that are missing, too many, wrong, or in the
// place of their neighbour, between two words: the optimal string alignment distance.
func typingErrors(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			wrong := 1
			if a[i] == b[j] {
				wrong = 0
			}
			row[j+1] = min(last[j]+wrong, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
