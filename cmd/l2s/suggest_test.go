package main

import (
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
		"trian": "train", "trai": "train", "trainn": "train", "Train": "train", "topK": "topk", "top-k": "topk", "translat": "translate",
		"evaluate": "", "insp": "inspect", "calib": "calibrate", "verison": "version", "lables": "labels", "t": "", "tr": "", "": "", "x": "", "xy": "", "deploy": "",
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

// Flags that most do without stand in a group of their own. Each is a flag of its
// verb, and no flag that must be given is among them.
func TestGroupsOfFlags(t *testing.T) {
	dir := t.TempDir()
	for verb, want := range map[string]struct{ common, advanced []string }{
		"train":     {[]string{"weights", "out", "budget", "clusters", "seed", "quiet"}, []string{"gamma", "multiplier", "kmeans-batch", "spread"}},
		"contexts":  {[]string{"out", "lm", "text", "generate"}, []string{"longest", "from"}},
		"translate": {[]string{"model", "screen", "beam"}, []string{"alpha", "batch"}},
		"calibrate": {[]string{"target", "k"}, []string{"exact-cost"}},
	} {
		text := succeed(t, dir, verb, "-h")
		common, advanced, found := strings.Cut(text, "\nAdvanced flags:\n")
		if !found {
			t.Errorf("%s: found no advanced flags in\n%s", verb, text)
			continue
		}
		for _, name := range want.common {
			if !strings.Contains(common, "\n  --"+name+" ") {
				t.Errorf("%s: found no --%s among the common flags", verb, name)
			}
		}
		for _, name := range want.advanced {
			if !strings.Contains("\n"+advanced, "\n  --"+name+" ") {
				t.Errorf("%s: found no --%s among the advanced flags", verb, name)
			}
		}
		if strings.Contains(advanced, "(required)") {
			t.Errorf("%s: found a required flag among the advanced ones", verb)
		}
	}
	if text := succeed(t, dir, "merge", "-h"); strings.Contains(text, "Advanced") {
		t.Errorf("found advanced flags of merge, expected none, in\n%s", text)
	}
}
