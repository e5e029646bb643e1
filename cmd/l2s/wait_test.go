package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// A file that is no longer read is closed, and its reader ends.
func TestReadingEndsWithItsReader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ids.txt")
	writeFile(t, path, nil)
	if err := os.Truncate(path, 2*maxIDsText); err != nil {
		t.Fatal(err)
	}
	if _, err := readIDs(t.Context(), path); err == nil || !strings.Contains(err.Error(), "more than 64 MiB") {
		t.Fatalf("found error %v, expected one of the size", err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		stacks := make([]byte, 1<<20)
		if stacks = stacks[:runtime.Stack(stacks, true)]; !strings.Contains(string(stacks), "l2s.reading") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("found the reader at work, expected its end:\n%s", stacks)
		}
	}
}
