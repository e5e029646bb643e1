//go:build unix

package main

import (
	"os/exec"
	"strings"
	"testing"
)

// Answers that nobody can get are a failure, unless they are discarded on purpose.
func TestClosedStandardOutput(t *testing.T) {
	notUnderRace(t)
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("no shell here")
	}
	dir := files(t)
	translate := goodTranslate[:5:5] // without --out
	closed := func(verb string) string {
		return "l2s " + verb + ": standard output: found it closed, expected a file, a pipe or a terminal; > /dev/null discards the answers\n"
	}
	type closedCase struct {
		name, to string
		args     []string
		code     int
		want     string
	}
	cases := []closedCase{
		{"topk: discarded", ">/dev/null", goodTopK, 0, ""},
		{"translate: discarded", ">/dev/null", joined(translate, "--quiet"), 0, ""},
		{"train: closed, where the answer is a file", ">&-", goodTrain, 0, ""},
		{"curve: closed, where the answer is a file", ">&-", joined(goodCurve, "--svg", "c.svg", "--quiet"), 0, ""},
		{"the help of all", ">&-", []string{"-h"}, 1, strings.Replace(closed(""), " :", ":", 1)},
		{"the help of a verb", ">&-", []string{"train", "-h"}, 1, closed("train")},
	}
	for _, args := range [][]string{goodTopK, goodEval, goodBench, goodCurve, joined(tuneArgs(), "--quiet"), joined(translate, "--quiet"), {"inspect", "m.l2s"}, {"version"}, {"demo"}} {
		cases = append(cases, closedCase{args[0] + ": closed", ">&-", args, 1, closed(args[0])})
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cmd := command(t, dir, c.args...)
			script := exec.Command("sh", append([]string{"-c", `exec "$0" "$@" ` + c.to}, cmd.Args...)...)
			script.Dir, script.Env = cmd.Dir, cmd.Env
			var stderr strings.Builder
			script.Stderr = &stderr
			err := script.Run()
			if code := script.ProcessState.ExitCode(); code != c.code || stderr.String() != c.want {
				t.Errorf("found exit status %d (%v) and %q, expected %d and %q", code, err, stderr.String(), c.code, c.want)
			}
		})
	}
}
