//go:build unix

package main

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

// speaking are calls of all verbs that end well and print something.
func speaking() [][]string {
	return [][]string{
		goodLabels, goodMerge, goodTrain, goodEval, goodBench,
		goodTopK, joined(goodTopK, "--json"), {"inspect", "m.l2s"}, {"version"}, {"help"}, {"help", "sources"},
	}
}

// If standard output takes nothing, every verb fails, with an error that names it.
func TestFullStandardOutput(t *testing.T) {
	simdtest.Long(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("this system has no /dev/full")
	}
	defer full.Close()
	dir := files(t)
	labelParts(t, dir, 3)
	tried := map[string]bool{}
	for _, args := range speaking() {
		tried[args[0]] = true
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			cmd := command(t, dir, args...)
			var stderr strings.Builder
			cmd.Stdout, cmd.Stderr = full, &stderr
			cmd.Run()
			if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.HasSuffix(stderr.String(), ": standard output: no space left on device\n") {
				t.Errorf("found exit status %d and %q, expected 1 and a word about standard output", code, stderr.String())
			}
		})
	}
	for _, v := range verbs() {
		if !tried[v.name] {
			t.Errorf("found no call of %s here, expected one", v.name)
		}
	}
}

// If the reader of a pipe ends, as head does, a verb ends like other tools: by SIGPIPE, without a
// message.
func TestReaderOfStandardOutputThatLeaves(t *testing.T) {
	dir := files(t)
	matrixIn("many.npy", 1<<15, tinyDim)(t, dir)
	for _, args := range [][]string{joined(goodTopK, "--contexts", "many.npy"), {"version"}} {
		t.Run(args[0], func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			r.Close()
			cmd := command(t, dir, args...)
			var stderr strings.Builder
			cmd.Stdout, cmd.Stderr = w, &stderr
			err = cmd.Run()
			w.Close()
			if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGPIPE || stderr.String() != "" {
				t.Errorf("found %v and %q, expected the end by SIGPIPE", err, stderr.String())
			}
		})
	}
}
