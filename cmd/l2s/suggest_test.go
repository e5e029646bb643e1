package main

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestSuggestions(t *testing.T) {
	var names []string
	for _, v := range verbs() {
		names = append(names, v.name)
	}
	for typed, want := range map[string]string{
		"trian": "train", "trai": "train", "trainn": "train", "Train": "train", "topK": "topk", "top-k": "topk",
		"evaluate": "", "insp": "inspect", "calib": "calibrate", "verison": "version", "lables": "labels", "t": "", "tr": "train", "": "", "x": "", "xy": "", "deploy": "",
	} {
		if got := nearest(typed, names); got != want {
			t.Errorf("%q: found %q, expected %q", typed, got, want)
		}
	}
}

// One letter too few, too many, wrong or in the place of its neighbour is one error,
// from whichever side it is seen, and errors add up to no more than their number.
func TestTypingErrors(t *testing.T) {
	word := rapid.StringMatching("[a-c]{0,8}")
	rapid.Check(t, func(t *rapid.T) {
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		d := typingErrors(a, b)
		if other := typingErrors(b, a); d != other || (d == 0) != (a == b) || d > max(len(a), len(b)) {
			t.Fatalf("found %d errors between %q and %q, and %d between %q and %q", d, a, b, other, b, a)
		}
		at := rapid.IntRange(0, len(a)).Draw(t, "at")
		more := a[:at] + "b" + a[at:]
		if n := typingErrors(a, more); n != 1 {
			t.Fatalf("found %d errors between %q and %q, expected 1", n, a, more)
		}
		if at+1 < len(a) && a[at] != a[at+1] {
			swapped := a[:at] + a[at+1:at+2] + a[at:at+1] + a[at+2:]
			if n := typingErrors(a, swapped); n != 1 {
				t.Fatalf("found %d errors between %q and %q, expected 1", n, a, swapped)
			}
		}
	})
}

func TestVersionFlags(t *testing.T) {
	dir := t.TempDir()
	want := succeed(t, dir, "version")
	for _, name := range []string{"--version", "-version", "-v"} {
		if got := succeed(t, dir, name); got != want {
			t.Errorf("%s: found\n%s\nexpected what l2s version says", name, got)
		}
	}
	object(t, dir, "--version", "--json")
}

// flagsOfVerbs is the contract of the command's flags: what each verb has, and which
// of these most can do without.
var flagsOfVerbs = []struct{ verb, common, advanced string }{
	{"demo", "json keep quiet seed", ""},
	{"labels", "head ids bias contexts json k out quiet shard threads weights", ""},
	{"merge", "json out quiet", ""},
	{"train", "head ids bias budget clusters contexts json kmeans-only labels out quiet restart seed threads weights",
		"always estimator gamma geometry held-out iterations k kmeans-batch kmeans-iterations lambda largest learning-rate multiplier overlap pair-weight patience probe-share shells smoothing spread tail tail-contexts"},
	{"calibrate", "head ids bias confidence contexts json k out quiet target weights", "block exact-cost seed threads"},
	{"eval", "head ids bias contexts json k quiet targets threads weights", ""},
	{"bench", "cold head ids bias contexts json k pack quiet weights", ""},
	{"topk", "head header ids bias contexts exact json k limit logprobs vocab weights", ""},
	{"inspect", "ids json", ""},
	{"version", "json", ""},
}

// Each flag of the contract is in the help of its verb, in its group, and no flag that
// must be given is among the advanced ones.
func TestFlagsOfVerbs(t *testing.T) {
	dir := t.TempDir()
	var listed []string
	for _, c := range flagsOfVerbs {
		listed = append(listed, c.verb)
		t.Run(c.verb, func(t *testing.T) {
			common, advanced, found := strings.Cut(succeed(t, dir, c.verb, "-h"), "\nAdvanced flags:\n")
			if found != (c.advanced != "") {
				t.Errorf("found advanced flags: %v, expected %q", found, c.advanced)
			}
			for _, group := range []struct{ title, help, names string }{{"common", common, c.common}, {"advanced", "\n" + advanced, c.advanced}} {
				for _, name := range strings.Fields(group.names) {
					if !strings.Contains(group.help, "\n  --"+name+" ") {
						t.Errorf("found no --%s among the %s flags", name, group.title)
					}
				}
			}
			if strings.Contains(advanced, "(required)") {
				t.Error("found a required flag among the advanced ones")
			}
		})
	}
	for _, v := range verbs() {
		if !slices.Contains(listed, v.name) {
			t.Errorf("found no flags of %s in the contract, expected some", v.name)
		}
	}
}
