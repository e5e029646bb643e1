package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// replacedWords are words that another word has replaced: what is one thing has one name, in the
// documents, in help, in results and in their JSON. A pattern is found in any case, as whole
// words.
var replacedWords = []struct{ pattern, instead string }{
	{`prob(e|es|ed|ing)`, "pair of clusters"},
	{`unions?`, "pair"},
	{`margins? of (the )?pairs?`, "contexts between two clusters"},
	{`\d+ ?x ?\d+ groups|groups of clusters|G ?x ?R`, "clusters"},
	{`tun(e|es|ed|ing)`, "choose a budget"},
	{`curves?`, "ladder"},
	{`l2s (tune|curve|prepare|contexts|generate|translate)`, "l2s eval, inspect or train, or a command of benchmarks"},
	{`codes? files?|prepared (codes?|contexts|files?)`, "nothing: contexts are quantised when they are asked for"},
	{`candidates? sets?|screened sets?|of every set|sets? of (candidates|clusters)`, "candidates, list"},
	{`L-bar|avg_candidates|average candidates`, "mean number of candidates, mean_candidates"},
	{`--(spread|largest|learn-for|groups|probes|patience|momentum|budgets)`, "an option of l2s train --options, or nothing"},
	{`gumbel[,.;]`, "gumbel-st"},
	{`sub-?set of the vocabulary`, "candidates"},
}

var replacedPatterns = sync.OnceValue(func() (list []*regexp.Regexp) {
	for _, r := range replacedWords {
		list = append(list, regexp.MustCompile(`(?i)(^|[^\w-])(`+r.pattern+`)($|\W)`))
	}
	return list
})

// wordsReplaced returns a line for each word of a text that was replaced.
func wordsReplaced(text string) (found []string) {
	for i, r := range replacedWords {
		for _, m := range replacedPatterns()[i].FindAllStringSubmatch(text, -1) {
			found = append(found, "found "+m[2]+", expected "+r.instead)
		}
	}
	return found
}

func TestWordsThatWereReplacedAreFound(t *testing.T) {
	for text, want := range map[string]int{
		"A second probe, and a union": 2, "Curves:": 1, "l2s tune --target": 2, "with 8x4 groups": 1, "--spread 2": 1, "the margin of pairs": 1, "estimator gumbel,": 1,
		"a problem of reunion, in tunes' stead": 1, "Gumbel straight-through": 0, "gumbel-st": 0, "a cluster, a list": 0, "": 0,
	} {
		if found := wordsReplaced(text); len(found) != want {
			t.Errorf("%q: found %q, expected %d words", text, found, want)
		}
	}
}

func TestDocumentsHaveNoWordsThatWereReplaced(t *testing.T) {
	var names []string
	for _, pattern := range []string{"*.md", "docs/*.md", "screen/*.md", "examples/*.md"} {
		more, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(more) == 0 {
			t.Fatalf("%s: found %v and %v, expected documents", pattern, more, err)
		}
		names = append(names, more...)
	}
	for _, name := range names {
		for i, line := range strings.Split(string(readFile(t, name)), "\n") {
			for _, found := range wordsReplaced(line) {
				t.Errorf("%s:%d: %s", name, i+1, found)
			}
		}
	}
}

func TestHelpAndResultsHaveNoWordsThatWereReplaced(t *testing.T) {
	dir := files(t)
	check := func(args ...string) {
		t.Helper()
		r := l2s(t, dir, args...)
		if r.code != 0 {
			t.Fatalf("%v: %s", args, r.stderr)
		}
		for _, found := range wordsReplaced(r.stdout + r.stderr) {
			t.Errorf("l2s %s: %s", strings.Join(args, " "), found)
		}
	}
	check("-h")
	check("help", "sources")
	for _, v := range verbs() {
		check(v.name, "-h")
	}
	for _, format := range []string{"--json", "--json=false"} {
		check(joined("train", trainArgs(), "--out", "x.l2s", format)...)
		check("inspect", "x.l2s", format)
		check(joined("eval", "x.l2s", testArgs(), format)...)
		check(joined(goodCalibrate, format)...)
		if err := os.Remove(filepath.Join(dir, "out.l2s")); err != nil {
			t.Error(err)
		}
	}
}
