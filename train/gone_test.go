//go:build unix

package train

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

// Contexts may be a mapped file. If it is cut off while they are read, that is an error, in any
// goroutine, with a checkpoint, whose digest reads first, and without.
func TestRunOverAFileThatWasCut(t *testing.T) {
	s := newSynthetic(t, 3, 4000, 6, 40, 5, 0.3)
	path := filepath.Join(t.TempDir(), "h")
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(&s.contexts[0])), 4*len(s.contexts))
	if err := os.WriteFile(path, bytes, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mapped, err := syscall.Mmap(int(f.Fd()), 0, len(bytes), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(mapped)
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	contexts := unsafe.Slice((*float32)(unsafe.Pointer(&mapped[0])), len(s.contexts))
	const want = "train: contexts: found memory that cannot be read any more"
	for _, threads := range []int{1, 3} {
		for _, o := range []Options{testOptions(), checkpointed(t)} {
			o.Threads = threads
			if _, _, err := runOver(t.Context(), s.layer, contexts, o); err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%d threads, checkpoint %q: found %v, want %q", threads, o.Checkpoint, err, want)
			}
		}
		if _, err := labelsOver(t.Context(), s.layer, contexts, 5, RunOptions{Threads: threads}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("labels, %d threads: found %v, want %q", threads, err, want)
		}
	}
}
