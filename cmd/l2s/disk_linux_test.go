package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// disk mounts a file system in memory, of so many KiB, on a folder in dir.
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
	{"calibrate", goodCalibrate, "--out"},
	{"labels", joined(goodLabels, "--k", "100"), "--out"},
	{"merge", goodMerge, "--out"},
	{"contexts of the model's own text", joined(goodGenerate, "--generate", "5000"), "--out"},
	{"contexts of a text", goodContexts, "--out"},
	{"the labels that follow", joined(goodContexts, "--targets", "targets.npy"), "--targets"},
	{"contexts of translations", goodPairs, "--out"},
	{"translate", goodTranslate, "--out"},
}

// On a disk that is full the command says so, and the old file stays.
func TestFullDisk(t *testing.T) {
	notUnderRace(t)
	for _, verb := range outputs {
		t.Run(verb.name, func(t *testing.T) {
			dir := files(t)
			labelParts(t, dir, 3)
			full := disk(t, dir, "full", 16)
			writeFile(t, filepath.Join(full, "out"), []byte("precious"))
			// Nothing is left: tmpfs gives whole pages.
			writeFile(t, filepath.Join(full, "filler"), make([]byte, 12<<10))
			before := contentOf(t, full)
			r := l2s(t, dir, joined(verb.args, verb.out, "full/out")...)
			if r.code != 1 || !strings.Contains(r.stderr, ": full/out") || !strings.HasSuffix(r.stderr, "no space left on device\n") {
				t.Errorf("found exit status %d and standard error\n%s", r.code, r.stderr)
			}
			if after := contentOf(t, full); !maps.Equal(before, after) {
				t.Errorf("found the files %v, expected those from before", listFolder(t, full))
			}
		})
	}
}

// Contexts and the labels that follow belong together: on a disk that has room for one of
// them, neither is replaced.
func TestFullDiskLeavesBothFilesOfContexts(t *testing.T) {
	notUnderRace(t)
	for _, large := range []string{"--out", "--targets"} {
		t.Run(large+" finds no room", func(t *testing.T) {
			dir := files(t)
			full := disk(t, dir, "full", 16)
			writeFile(t, filepath.Join(full, "filler"), make([]byte, 12<<10)) // room for no page more
			before := map[string]string{"--out": "other.npy", "--targets": "follow.npy"}
			args := goodContexts
			for flag, name := range before {
				if flag == large {
					name = filepath.Join("full", name)
				}
				writeFile(t, filepath.Join(dir, name), []byte("precious"))
				args = joined(args, flag, name)
				before[flag] = name
			}
			if r := l2s(t, dir, args...); r.code != 1 || !strings.HasSuffix(r.stderr, "no space left on device\n") {
				t.Errorf("found exit status %d and standard error\n%s", r.code, r.stderr)
			}
			for flag, name := range before {
				if got := string(readFile(t, filepath.Join(dir, name))); got != "precious" {
					t.Errorf("%s: found %d other bytes, expected the old file", flag, len(got))
				}
			}
		})
	}
}

// So it does on one that is read only, before any work.
func TestReadOnlyDisk(t *testing.T) {
	notUnderRace(t)
	for _, verb := range outputs {
		t.Run(verb.name, func(t *testing.T) {
			dir := files(t)
			labelParts(t, dir, 3)
			locked := disk(t, dir, "locked", 16)
			writeFile(t, filepath.Join(locked, "out"), []byte("precious"))
			if err := syscall.Mount("", locked, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
				t.Fatal(err)
			}
			r := l2s(t, dir, joined(verb.args, verb.out, "locked/out")...)
			if r.code != 1 || strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, "locked/out: cannot be written: read-only file system") {
				t.Errorf("found exit status %d and standard error\n%s", r.code, r.stderr)
			}
			if got := string(readFile(t, filepath.Join(locked, "out"))); got != "precious" {
				t.Errorf("found %q", got)
			}
		})
	}
}
