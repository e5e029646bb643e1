package llamacpp

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
)

// residentOf returns the kilobytes of the mappings of a file in the memory of this process.
func residentOf(t *testing.T, path string) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skip(err)
	}
	sum := 0
	for _, m := range regexp.MustCompile(`(?s)`+regexp.QuoteMeta(path)+`\n.*?\nRss:\s+(\d+) kB`).FindAllSubmatch(text, -1) {
		kb, err := strconv.Atoi(string(m[1]))
		if err != nil {
			t.Fatal(err)
		}
		sum += kb
	}
	return sum
}

// The pages of a file that is mapped for reading leave the memory of the process, and are the same
// when they are read again; the pages of another file stay, and so do changes of a mapping that has
// changes.
func TestPagesOfAFileLeaveTheMemory(t *testing.T) {
	const size = 1 << 20
	folder, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	content := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	mapped := func(name string, protection, flags int) (string, []byte) {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, content, 0o666); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		data, err := syscall.Mmap(int(f.Fd()), 0, size, protection, flags)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Munmap(data) })
		if !bytes.Equal(data, content) {
			t.Fatal("the file is another one")
		}
		return path, data
	}
	model, data := mapped("a model.gguf", syscall.PROT_READ, syscall.MAP_SHARED)
	other, _ := mapped("other.gguf", syscall.PROT_READ, syscall.MAP_SHARED)
	private, changed := mapped("private.gguf", syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE)
	changed[5] = 'x'
	link := filepath.Join(folder, "link.gguf")
	if err := os.Symlink(model, link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{model, link} {
		t.Run(fmt.Sprint(filepath.Base(name)), func(t *testing.T) {
			if !bytes.Equal(data, content) || residentOf(t, model) < size/1024 {
				t.Fatalf("found %d kB of the file in memory, expected %d", residentOf(t, model), size/1024)
			}
			dropResident(name)
			if kb := residentOf(t, model); kb != 0 {
				t.Errorf("found %d kB of the file in memory, expected none", kb)
			}
			if !bytes.Equal(data, content) {
				t.Error("found other bytes, expected the bytes of the file")
			}
		})
	}
	dropResident(private)
	if kb := residentOf(t, other); changed[5] != 'x' || kb < size/1024 {
		t.Errorf("found a change that is gone, or %d kB of another file, expected %d", kb, size/1024)
	}
}
