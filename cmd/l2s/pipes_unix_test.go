//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What is no regular file is refused at once where one is needed, by its kind.
func TestOptionsOfOtherKinds(t *testing.T) {
	dir := files(t)
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Skip(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "large"), make([]byte, mostOptions+1))
	for name, want := range map[string]string{"pipe": "found a pipe", "folder": "found a folder", "/dev/null": "found a device", "large": "found 1048577 bytes"} {
		if r := invoke(t, dir, joined(goodTrain, "--options", name)...); r.code != 1 || !strings.Contains(r.stderr, name+": "+want+", expected a regular file of at most 1048576 bytes") {
			t.Errorf("%s: found %d and %q, expected %q", name, r.code, r.stderr, want)
		}
	}
}
