//go:build unix

package parallel

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A read of a page of a file that was cut off is an error in any goroutine.
func TestEachOverAFileThatWasCut(t *testing.T) {
	const size = 1 << 20
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(data)
	for _, left := range []int64{size, size / 2, 0} {
		if err := f.Truncate(left); err != nil {
			t.Fatal(err)
		}
		want := ErrGone
		if left == size {
			want = nil
		}
		for _, threads := range []int{1, 4} {
			sums := make([]byte, threads)
			err := Each(context.Background(), threads, size, 1<<14, nil, func(worker, lo, hi int) error {
				for _, b := range data[lo:hi] {
					sums[worker] += b
				}
				return nil
			})
			if err != want {
				t.Errorf("%d of %d bytes left, %d threads: found %v, want %v", left, size, threads, err, want)
			}
		}
	}
}
