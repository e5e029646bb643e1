package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

// disk mounts a file system in memory, of kib KiB, on a folder in dir.
func disk(t *testing.T, dir, name string, kib int) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.Mkdir(path, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", path, "tmpfs", 0, fmt.Sprintf("size=%dk", kib)); err != nil {
		t.Skipf("no file system can be mounted here (%v): the tests of screen limit the size of files instead", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(path, 0); err != nil {
			t.Error(err)
		}
	})
	return path
}

// outputs are all verbs that write a file, each with that file's flag.
var outputs = []struct {
	name string
	args []string
	out  string
}{
	{"train", goodTrain, "--out"},
	{"labels", joined(goodLabels, "--k", "100"), "--out"},
	{"merge", goodMerge, "--out"},
}

// On a full disk the command reports an error, and the old file stays.
func TestFullDisk(t *testing.T) {
	simdtest.Long(t)
	for _, verb := range outputs {
		t.Run(verb.name, func(t *testing.T) {
			dir := files(t)
			labelParts(t, dir, 3)
			full := disk(t, dir, "full", 16)
			writeFile(t, filepath.Join(full, "out"), []byte("precious"))
			// Nothing is left: tmpfs gives whole pages.
			writeFile(t, filepath.Join(full, "filler"), make([]byte, 12<<10))
			before := contentOf(t, full)
			r := invoke(t, dir, joined(verb.args, verb.out, "full/out")...)
			if r.code != 1 || !strings.Contains(r.stderr, ": full/out") || !strings.HasSuffix(r.stderr, "no space left on device\n") {
				t.Errorf("found exit status %d and standard error\n%s", r.code, r.stderr)
			}
			if after := contentOf(t, full); !maps.Equal(before, after) {
				t.Errorf("found the files %v, expected those from before", listFolder(t, full))
			}
		})
	}
}

// So it does on one that is read only, before any work.
func TestReadOnlyDisk(t *testing.T) {
	simdtest.Long(t)
	for _, verb := range outputs {
		t.Run(verb.name, func(t *testing.T) {
			dir := files(t)
			labelParts(t, dir, 3)
			locked := disk(t, dir, "locked", 16)
			writeFile(t, filepath.Join(locked, "out"), []byte("precious"))
			if err := syscall.Mount("", locked, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
				t.Fatal(err)
			}
			r := invoke(t, dir, joined(verb.args, verb.out, "locked/out")...)
			if r.code != 1 || strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, "locked/out: cannot be written: read-only file system") {
				t.Errorf("found exit status %d and standard error\n%s", r.code, r.stderr)
			}
			if got := string(readFile(t, filepath.Join(locked, "out"))); got != "precious" {
				t.Errorf("found %q", got)
			}
		})
	}
}
