package mem

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestOpenGivesTheBytesOfTheFile(t *testing.T) {
	for _, n := range []int{0, 1, 4095, 4096, 3*4096 + 5, 5<<20 + 1} {
		want := make([]byte, n)
		for i := range want {
			want[i] = byte(i%251 + 1)
		}
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, want, 0o666); err != nil {
			t.Fatal(err)
		}
		data, unmap, err := OpenFile(path)
		if err != nil || !bytes.Equal(data, want) {
			t.Fatalf("%d bytes: found %d others, %v", n, len(data), err)
		}
		for _, from := range []int{0, n / 3, n} {
			if unmap == nil {
				break
			}
			if Forget(data[from:]); !bytes.Equal(data, want) {
				t.Errorf("%d bytes: found others after Forget from %d on", n, from)
			}
		}
		if read, err := ReadFile(path); err != nil || !bytes.Equal(read, want) {
			t.Errorf("%d bytes: Read found %d others, %v", n, len(read), err)
		}
		if unmap != nil {
			if err := unmap(data); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, want := range map[string]string{
		dir:                          "found a folder, expected a file",
		filepath.Join(dir, "nobody"): "no such file or directory",
	} {
		_, _, opened := OpenFile(name)
		_, read := ReadFile(name)
		for _, err := range []error{opened, read} {
			if err == nil || err.Error() != want {
				t.Errorf("%s: error %v, want %s", name, err, want)
			}
		}
	}
}
