package atomicfile

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// An error of the close, by which some file systems report a failed write, comes before the
// renaming. The lock is kept after the close.
func TestCommitFailsAfterAFailedClose(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	if err := os.WriteFile(path, []byte("old"), 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Abort()
	defer func() { closeFile = (*os.File).Close }()
	closeFile = func(tmp *os.File) error {
		if err := tmp.Close(); err != nil {
			t.Error(err)
		}
		if other, err := os.Open(tmp.Name()); err != nil {
			t.Error(err)
		} else {
			if taken, err := lock(other); locks && (taken || err != nil) {
				t.Errorf("found the lock of the closed file free (%v), expected it to be held", err)
			}
			other.Close()
		}
		return &os.PathError{Op: "close", Path: tmp.Name(), Err: syscall.EIO}
	}
	if _, err := f.Write([]byte("new")); err != nil {
		t.Fatal(err)
	}
	if err, want := f.Commit(), path+": cannot be written: "+syscall.EIO.Error(); err == nil || err.Error() != want {
		t.Errorf("found error %v, expected %s", err, want)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "old" {
		t.Errorf("found %q (%v), expected the old file", text, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("found %d files (%v), expected the old one alone", len(entries), err)
	}
}
