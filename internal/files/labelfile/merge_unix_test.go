//go:build unix

package labelfile

import (
	"bytes"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
)

// A merge takes more parts than the system lets a process open at once.
func TestMergeOfMorePartsThanMayBeOpen(t *testing.T) {
	const n = 100
	dir := t.TempDir()
	c := newCorpus(1, n, 3, 2, 20)
	c.write(t, filepath.Join(dir, "whole"), 0, n, n)
	var parts []string
	for i := range n {
		parts = append(parts, filepath.Join(dir, fmt.Sprint(i)))
		c.write(t, parts[i], i, i+1, 1)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	few := limit
	few.Cur = n / 2
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	_, err := Merge(t.Context(), filepath.Join(dir, "merged"), parts, nil)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(read(t, filepath.Join(dir, "merged")), read(t, filepath.Join(dir, "whole"))) {
		t.Error("found other bytes than one process writes, expected the same")
	}
}
