package tensorfile_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
)

// A file that has been copied does not take its memory twice.
func TestCopiedPagesAreForgotten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.npy")
	const n = 16 << 20
	if err := tensorfile.WriteNPY(path, make([]float32, n), n); err != nil {
		t.Fatal(err)
	}
	for name, read := range map[string]func(x *tensorfile.Tensor) error{
		"Float32s": func(x *tensorfile.Tensor) error { _, err := x.Float32s(); return err },
		"Copy":     func(x *tensorfile.Tensor) error { _, _, err := x.Copy(); return err },
	} {
		t.Run(name, func(t *testing.T) {
			x := open(t, path)
			if !x.InFile() {
				t.Skip("the file is not mapped")
			}
			before := residentFile(t)
			if err := read(x); err != nil {
				t.Fatal(err)
			}
			if more := residentFile(t) - before; more > n {
				t.Errorf("found %d bytes more of files in memory, expected at most a quarter of the %d that were read", more, 4*n)
			}
		})
	}
}

// residentFile returns the kilobytes of mapped files that are in the memory of the program.
func residentFile(t *testing.T) (kB int) {
	status, err := os.ReadFile("/proc/self/status")
	if _, rest, found := bytes.Cut(status, []byte("RssFile:")); err != nil || !found {
		t.Skip("the system does not report the memory that is taken: ", err)
	} else if _, err := fmt.Fscan(bytes.NewReader(rest), &kB); err != nil {
		t.Fatal(err)
	}
	return kB << 10
}
