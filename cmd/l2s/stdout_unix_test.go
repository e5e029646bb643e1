//go:build unix

package main

import (
	"os/exec"
	"strings"
	"testing"
)

// Answers that nobody can get are a failure, unless they are discarded on purpose.
func TestClosedStandardOutput(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("no shell here")
	}
	dir := files(t)
	translate := goodTranslate[:5:5] // without --out
	for _, c := range []struct {
		name, to string
		args     []string
		code     int
		want     string
	}{
		{"topk: closed", ">&-", goodTopK, 1, "l2s topk: standard output: found it closed, expected a file, a pipe or a terminal; > /dev/null discards the answers\n"},
		{"topk: discarded", ">/dev/null", goodTopK, 0, ""},
		{"translate: closed", ">&-", joined(translate, "--quiet"), 1, "l2s translate: standard output: found it closed, expected a file, a pipe or a terminal; > /dev/null discards the answers\n"},
		{"translate: discarded", ">/dev/null", joined(translate, "--quiet"), 0, ""},
		{"train: closed, where the answer is a file", ">&-", goodTrain, 0, ""},
	} {
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
