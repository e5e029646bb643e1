//go:build unix

package mem

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestTheFaultOfACutFileIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, make([]byte, 1<<16), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := syscall.Mmap(int(f.Fd()), 0, 1<<16, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(data)
	sum := byte(0)
	read := func() error {
		for _, b := range data {
			sum += b
		}
		return nil
	}
	gone := errors.New("gone")
	if err := Guard(read, func() error { return gone }); err != nil {
		t.Errorf("a whole file: %v", err)
	}
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if err := Guard(read, func() error { return gone }); err != gone {
		t.Errorf("a file that was cut: found %v, want %v", err, gone)
	}
}

func TestOtherPanicsPass(t *testing.T) {
	defer func() {
		if r := recover(); r != "other" {
			t.Errorf("recovered %v, want the panic of the function", r)
		}
	}()
	_ = Guard(func() error { panic("other") }, func() error { return nil })
}
