package tensorfile

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/tests/gguftest"
	"pgregory.net/rapid"
)

// The last name that Files returns is the file that OpenTensor reads, and the other names do not
// exist, with any files and any colons in names.
func TestFilesAreThoseThatDecideWhatIsOpened(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "l2s-files")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		parts := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "", "x.npz"}), 2, 5).Draw(t, "parts")
		src := filepath.Join(dir, "m.safetensors") + ":" + strings.Join(parts, ":")
		// A file for some beginnings of the source, each of another length, with all
		// tensors that a source may mean.
		sizes := map[int]string{}
		for n := range parts {
			if !rapid.Bool().Draw(t, "is there") {
				continue
			}
			name := filepath.Join(dir, "m.safetensors") + strings.TrimSuffix(":"+strings.Join(parts[:n], ":"), ":")
			var arrays []gguftest.Array
			for from := range parts {
				arrays = append(arrays, gguftest.Array{Name: strings.Join(parts[from:], ":"), Shape: []int{n + 1}, Data: make([]float32, n+1)})
			}
			slices.SortFunc(arrays, func(a, b gguftest.Array) int { return strings.Compare(a.Name, b.Name) })
			arrays = slices.CompactFunc(arrays, func(a, b gguftest.Array) bool { return a.Name == b.Name })
			if err := gguftest.WriteSafetensors(name, arrays...); err != nil {
				t.Fatal(err)
			}
			sizes[n+1] = name
		}
		files := Files(src)
		last := files[len(files)-1]
		for _, name := range files[:len(files)-1] {
			if _, err := os.Stat(name); err == nil {
				t.Fatalf("found the file %s before %s, expected it last", name, last)
			}
		}
		_, there := os.Stat(last)
		tensor, err := OpenTensor(src)
		if err != nil {
			// A name that ends in .npz is read as an archive, and a source without a tensor's name
			// has none.
			if there == nil && !strings.Contains(err.Error(), last) {
				t.Fatalf("found the error %q, expected one of %s", err, last)
			}
			return
		}
		defer tensor.Close()
		if read := sizes[tensor.Shape[0]]; read != last {
			t.Fatalf("found that %s was read (of %d elements, from %q), expected %s", read, tensor.Shape[0], src, last)
		}
	})
}
