//go:build amd64 || arm64

package mem

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

// content is what a file of so many bytes has.
func content(n int) []byte {
	x := make([]byte, n)
	for i := range x {
		x[i] = byte(i%251 + i/100_003)
	}
	return x
}

// mapping writes a file of so many bytes, and maps it. Pages are written one by one, so that small
// ones are in the system's cache.
func mapping(t *testing.T, bytes, protection, flags int) (path string, data []byte) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "a file with a blank")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for rest := content(bytes); len(rest) > 0; rest = rest[min(4096, len(rest)):] {
		if _, err := f.Write(rest[:min(4096, len(rest))]); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if f, err = os.Open(path); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if data, err = syscall.Mmap(int(f.Fd()), 0, bytes, protection, flags); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(data) })
	return path, data
}

// largeBytes returns the bytes on large pages of the mapping that begins with data, as smaps has
// them.
func largeBytes(t *testing.T, data []byte) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skip(err)
	}
	_, mine, _ := strings.Cut(string(text), "\n"+strconv.FormatUint(uint64(uintptr(unsafe.Pointer(&data[0]))), 16)+"-")
	m := regexp.MustCompile(`FilePmdMapped: +(\d+) kB`).FindStringSubmatch(mine)
	if m == nil {
		t.Skip("the system does not tell which pages of a file are large")
	}
	kb, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	return kb << 10
}

// inWhole returns the whole large pages in data.
func inWhole(data []byte) []byte {
	first := int(-uintptr(unsafe.Pointer(&data[0])) % hugePage)
	return data[first : first+(len(data)-first)&^(hugePage-1)]
}

const reloadedBytes = 6*hugePage + 12345

// A file that was just written is in small pages mostly, and in large ones after Reload if the
// system has them.
func TestReloadTakesLargePages(t *testing.T) {
	const tries = 20 // the system may not find a large page at once
	for range tries {
		// What the system can: a file that is not in the cache, under the same advice.
		path, other := mapping(t, reloadedBytes, syscall.PROT_READ, syscall.MAP_SHARED)
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		err = f.Sync()
		_, _, _ = syscall.Syscall6(syscall.SYS_FADVISE64, f.Fd(), 0, 0, fadvDontNeed, 0, 0)
		f.Close()
		_ = syscall.Madvise(other, madvHugepage)
		if !bytes.Equal(other, content(reloadedBytes)) || err != nil {
			t.Fatalf("found other bytes, or %v", err)
		}
		if largeBytes(t, other) < len(inWhole(other)) {
			t.Skip("files have no large pages here")
		}
		_, data := mapping(t, reloadedBytes, syscall.PROT_READ, syscall.MAP_SHARED)
		Reload(data)
		if !bytes.Equal(data, content(reloadedBytes)) {
			t.Fatal("found other bytes after Reload")
		}
		small, ok := smallPages(inWhole(data))
		if !ok {
			t.Skip("the system does not tell which pages are large")
		}
		left := 0
		for _, s := range small {
			left += int(s.end - s.start)
		}
		if large := largeBytes(t, data); large != len(inWhole(data))-left {
			t.Fatalf("found %d bytes on small pages of %d, but smaps has %d on large ones", left, len(inWhole(data)), large)
		}
		if left == 0 {
			return
		}
	}
	t.Errorf("found small pages after each of %d calls of Reload, expected large ones, which another file has", tries)
}

// Nothing else changes: neither memory that is no file's, nor a file with changes of this process,
// nor one that is mapped twice, nor one that was cut meanwhile.
func TestReloadChangesNothing(t *testing.T) {
	for _, n := range []int{0, 1, hugePage, reloadedBytes} {
		x := content(n)
		if Reload(x); !bytes.Equal(x, content(n)) {
			t.Errorf("%d bytes of memory: found others after Reload", n)
		}
	}
	want := content(reloadedBytes)
	_, private := mapping(t, reloadedBytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE)
	for i := 0; i < len(private); i += 4096 {
		private[i]++
		want[i]++
	}
	if Reload(private); !bytes.Equal(private, want) {
		t.Error("found a private mapping without its changes")
	}
	if err := syscall.Mprotect(private, syscall.PROT_READ); err != nil {
		t.Fatal(err)
	}
	if Reload(private); !bytes.Equal(private, want) {
		t.Error("found a private mapping that is only read without its changes")
	}
	path, data := mapping(t, reloadedBytes, syscall.PROT_READ, syscall.MAP_SHARED)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	twice, err := syscall.Mmap(int(f.Fd()), 0, reloadedBytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Munmap(twice) }()
	want = content(reloadedBytes)
	for i := 0; i < len(twice); i += 4096 {
		twice[i]++
		want[i]++
	}
	for range 2 {
		if Reload(data); !bytes.Equal(data, want) || !bytes.Equal(twice, want) {
			t.Fatal("found a mapping of the file without what another has written")
		}
	}
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	Reload(data) // a look at it would end the program
}
