//go:build unix

package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// A pipe without a writer would be waited for without an end. In the place of any of the
// files it is refused, and the service goes on: it reloads, and it stops.
func TestAPipeIsNoFile(t *testing.T) {
	s := testFiles(t, t.TempDir(), 1, testLabels, testDim, nil)
	p := start(t, s)
	generation := 1
	for _, path := range []string{s.head, s.bias, s.screen, s.vocab} {
		if err := os.Rename(path, path+".kept"); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		p.signal(t, syscall.SIGHUP)
		line := p.waitFor(t, fmt.Sprintf("reload refused, generation %d stays", generation))
		for _, want := range []string{path, "pipe, expected a regular file"} {
			if !strings.Contains(line, want) {
				t.Errorf("found %q, expected it to say %q", line, want)
			}
		}
		if err := os.Rename(path+".kept", path); err != nil {
			t.Fatal(err)
		}
		p.signal(t, syscall.SIGHUP)
		generation++
		p.waitFor(t, fmt.Sprintf("generation %d is served", generation))
	}
	p.signal(t, syscall.SIGTERM)
	p.wait(t)
}
