package main

import (
	"flag"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestVersionFlags(t *testing.T) {
	dir := t.TempDir()
	want := succeed(t, dir, "version")
	for _, name := range []string{"--version", "-version", "-v"} {
		if got := succeed(t, dir, name); got != want {
			t.Errorf("%s: found\n%s\nexpected the output of l2s version", name, got)
		}
	}
	object(t, dir, "--version", "--json")
}

// flagsOfVerbs is the contract of the command's flags: the flags of each verb, except --json and
// --quiet.
var flagsOfVerbs = []struct{ verb, flags string }{
	{"labels", "bias contexts head ids k out shard threads weights"},
	{"merge", "out"},
	{"train", "always any-precision bias budget contexts head ids kind labels options out target threads validation weights"},
	{"eval", "bias budget contexts head ids k own targets threads weights"},
	{"bench", "bias budget cold contexts head ids k pack weights"},
	{"topk", "allow ban bias budget contexts head header ids k limit logprobs vocab weights"},
	{"inspect", "ids"},
	{"version", ""},
}

// The help of each verb lists the flags of the contract, and every verb takes the common flags.
func TestFlagsOfVerbs(t *testing.T) {
	dir := t.TempDir()
	var listed, all []string
	for _, c := range flagsOfVerbs {
		listed = append(listed, c.verb)
		t.Run(c.verb, func(t *testing.T) {
			var found []string
			for line := range strings.Lines(succeed(t, dir, c.verb, "-h")) {
				if rest, ok := strings.CutPrefix(line, "  --"); ok {
					found = append(found, strings.Fields(rest)[0])
				}
			}
			slices.Sort(found)
			if got := strings.Join(found, " "); got != c.flags {
				t.Errorf("found the flags %s, expected %s", got, c.flags)
			}
			checkFlags(t, dir, []string{c.verb, "--json", "--quiet"})
		})
	}
	for _, v := range verbs() {
		all = append(all, v.name)
	}
	if !slices.Equal(listed, all) {
		t.Errorf("found the flags of %v in the contract, expected the flags of %v", listed, all)
	}
}

// The pages of the help give the true defaults of the flags, and the flags that are required.
func TestPagesTellOfTheFlags(t *testing.T) {
	initial := regexp.MustCompile(`\(default ([^)]*)\)`)
	for _, v := range verbs() {
		f := newFlags(v.name, io.Discard, io.Discard)
		v.declare(f)
		told := map[string]string{}
		_, lines, _ := strings.Cut(page(v.name), "\nFlags:\n")
		lines, _, _ = strings.Cut(lines, "\n\n")
		name := ""
		for line := range strings.Lines(lines) {
			if rest, ok := strings.CutPrefix(line, "  --"); ok {
				name = strings.Fields(rest)[0]
			}
			told[name] += " " + strings.Join(strings.Fields(line), " ")
		}
		f.set.VisitAll(func(g *flag.Flag) {
			text, ok := told[g.Name]
			delete(told, g.Name)
			if g.Name == "json" || g.Name == "quiet" {
				return
			}
			if must := slices.Contains(f.required, g.Name); !ok || strings.Contains(text, "(required") != must {
				t.Errorf("l2s %s: found %q about --%s, expected a word on it, and that it is required: %v", v.name, text, g.Name, must)
			}
			if m := initial.FindStringSubmatch(text); m != nil {
				if err := f.set.Set(g.Name, m[1]); err != nil || g.Value.String() != g.DefValue {
					t.Errorf("l2s %s: --%s: found the default %s, expected %s (%v)", v.name, g.Name, m[1], g.DefValue, err)
				}
			} else if !slices.Contains([]string{"", "0", "false", "[]", "{0 1}"}, g.DefValue) {
				t.Errorf("l2s %s: --%s: found no default in %q, expected %s", v.name, g.Name, text, g.DefValue)
			}
		})
		if len(told) > 0 {
			t.Errorf("l2s %s: found %v, which are no flags", v.name, told)
		}
	}
}

// checkFlags parses the arguments of a verb: -h at their end ends it there.
func checkFlags(t *testing.T, dir string, args []string) {
	t.Helper()
	if r := invoke(t, dir, append(args, "-h")...); r.code != 0 {
		t.Errorf("found exit status %d and %q, expected flags that l2s %s has", r.code, r.stderr, args[0])
	}
}
