package atomicfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/atomicfile"
)

func TestCommitTogether(t *testing.T) {
	for _, c := range []struct {
		name   string
		before bool // whether there are files to replace
		fails  int  // the file that cannot be put at its destination; -1 for none
	}{
		{"new files", false, -1}, {"old files", true, -1},
		{"new files, the first fails", false, 0}, {"new files, the last fails", false, 2}, {"old files, the last fails", true, 2}, {"old files, the middle fails", true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			names := []string{"a", "b", "c"}
			var files []*atomicfile.File
			for i, name := range names {
				path := filepath.Join(dir, name)
				if c.before && i != c.fails {
					put(t, path, "old "+name, 0o644)
				}
				f := create(t, path)
				write(t, f, "new "+name)
				files = append(files, f)
				if i == c.fails { // a folder that is not empty is not replaced
					if err := os.Mkdir(path, 0o755); err != nil {
						t.Fatal(err)
					}
					put(t, filepath.Join(path, "inside"), "old", 0o644)
				}
			}
			err := atomicfile.CommitTogether(files...)
			if (err != nil) != (c.fails >= 0) || err != nil && !strings.HasPrefix(err.Error(), filepath.Join(dir, names[c.fails])+": cannot be written: ") {
				t.Fatalf("found the error %v", err)
			}
			var there []string
			for i, name := range names {
				path := filepath.Join(dir, name)
				switch {
				case c.fails < 0:
					content(t, path, "new "+name)
				case i == c.fails:
					content(t, filepath.Join(path, "inside"), "old")
				case c.before:
					content(t, path, "old "+name)
				default:
					continue
				}
				there = append(there, name)
			}
			holds(t, dir, there...)
		})
	}
	t.Run("without room to sync", func(t *testing.T) {
		dir := t.TempDir()
		put(t, filepath.Join(dir, "a"), "old", 0o644)
		a, b := create(t, filepath.Join(dir, "a")), create(t, filepath.Join(dir, "b"))
		b.Abort() // Sync fails
		if err := atomicfile.CommitTogether(a, b); err == nil {
			t.Error("found no error")
		}
		holds(t, dir, "a")
		content(t, filepath.Join(dir, "a"), "old")
	})
}

// Long names that differ at their ends are held apart.
func TestHoldOfLongNames(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("a", 230)
	for _, name := range []string{long + "1", long + "2"} {
		release, err := atomicfile.Hold(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer release()
	}
}
