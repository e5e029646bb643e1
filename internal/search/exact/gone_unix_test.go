//go:build unix

package exact_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/learning-to-screen/l2s/internal/codes/encode"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// Quantised rows of a mapped file are read by all threads. If the file is cut off, the fault is
// raised in the goroutine that asked, which may have a guard, whichever thread met the end.
func TestRowsThatAreGoneAreAFaultOfTheCaller(t *testing.T) {
	const labels, dim = 20_000, 64
	t.Cleanup(exact.ShareAll())
	path := filepath.Join(t.TempDir(), "rows")
	rows := make([]float32, labels*dim)
	r := newRand(3)
	for i := range rows {
		rows[i] = float32(r.NormFloat64())
	}
	data := make([]byte, labels*encode.BlockBytes(dim))
	if _, err := encode.NewBlockCopies(data, kernels.Float32Rows(rows, dim), nil); err != nil {
		t.Fatal(err)
	}
	for _, lend := range []bool{false, true} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		mapped, err := syscall.Mmap(int(f.Fd()), 0, len(data), syscall.PROT_READ, syscall.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		l, err := exact.NewLayer(kernels.QuantisedRows(mapped, kernels.Q8_0, dim), nil)
		if err != nil {
			t.Fatal(err)
		}
		l.SetThreads(4)
		if lend {
			l.LendThreads(4, onGoroutines(4))
		}
		s := exact.NewSearcher(l)
		search := func() error {
			_, err := s.TopK(make([]exact.Prediction, 5), rows[:dim])
			return err
		}
		if err := search(); err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(int64(len(data) / 2)); err != nil {
			t.Fatal(err)
		}
		gone := errors.New("gone")
		for range 20 {
			if err := mem.Guard(search, func() error { return gone }); err != gone {
				t.Errorf("lent %v: found %v, expected the fault of the caller", lend, err)
			}
		}
		if err := errors.Join(syscall.Munmap(mapped), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
}
