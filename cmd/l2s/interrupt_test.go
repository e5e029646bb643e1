//go:build unix

package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// watcher is a standard error that calls a function once its text has a
// given part.
type watcher struct {
	text strings.Builder
	part string
	call func()
}

func (w *watcher) Write(b []byte) (int, error) {
	n, err := w.text.Write(b)
	if w.call != nil && strings.Contains(w.text.String(), w.part) {
		w.call()
		w.call = nil
	}
	return n, err
}

// An interrupt ends the long verbs at once: exit status 130, one line that
// says so, and nothing in the folder but what was there before.
func TestInterrupt(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		// What shows that the work is under way: a part of what is said, or a
		// temporary file.
		said, file string
	}{
		{"train", joined(goodTrain, "--quiet=false", "--iterations", "1000000"), "P@1", ""},
		{"labels", joined(goodLabels, "--contexts", "many.npy", "--k", "300", "--threads", "1"), "", ".out.labels.tmp-"},
		{"contexts", joined(goodGenerate, "--generate", "1000000000"), "", ".out.npy.tmp-"},
	} {
		for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
			t.Run(c.name+": "+signal.String(), func(t *testing.T) {
				t.Parallel()
				dir := files(t)
				writeFile(t, filepath.Join(dir, c.args[slices.Index(c.args, "--out")+1]), []byte("precious"))
				if c.name == "labels" {
					matrixIn("many.npy", 1<<18, tinyDim)(t, dir)
				}
				before := contentOf(t, dir)
				cmd := command(t, dir, c.args...)
				interrupt := func() { cmd.Process.Signal(signal) }
				stderr := &watcher{part: c.said}
				if c.said != "" {
					stderr.call = interrupt
				}
				cmd.Stderr = stderr
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				if c.file != "" {
					begun := func(name string) bool { return strings.HasPrefix(name, c.file) }
					for wait := 0; !slices.ContainsFunc(listFolder(t, dir), begun); wait++ {
						if wait == 6000 {
							t.Error("found no temporary file after a minute")
							break
						}
						time.Sleep(10 * time.Millisecond)
					}
					interrupt()
				}
				err := cmd.Wait()
				if code := cmd.ProcessState.ExitCode(); code != 130 {
					t.Errorf("found exit status %d (%v), expected 130; standard error:\n%s", code, err, stderr.text.String())
				}
				if !strings.Contains(stderr.text.String(), "l2s "+c.name+": interrupted") {
					t.Errorf("found no word of the interrupt on standard error:\n%s", stderr.text.String())
				}
				if after := contentOf(t, dir); !maps.Equal(before, after) {
					t.Errorf("found the files %v afterwards, expected those from before, unchanged", listFolder(t, dir))
				}
			})
		}
	}
}
