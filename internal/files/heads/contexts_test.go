package heads_test

import (
	"fmt"
	"log"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/files/heads"
	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/tests/gguftest"
)

// The best label of every context in a file. A screen in place of the exact layer is
// asked in the same way, and train.Run learns one from the rows.
func ExampleOpenContexts() {
	dir := filepath.Join("testdata", "contexts")
	h, err := heads.Open(filepath.Join(dir, "W.npy"), heads.Options{Bias: filepath.Join(dir, "b.npy")})
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	layer, err := exact.NewLayer(h.Rows(), h.Bias())
	if err != nil {
		log.Fatal(err)
	}
	contexts, release, err := heads.OpenContexts(filepath.Join(dir, "H.npy"), h.Dim())
	if err != nil {
		log.Fatal(err)
	}
	defer release()
	searcher, top := exact.NewSearcher(layer), make([]exact.Prediction, 1)
	for row := range slices.Chunk(contexts, h.Dim()) {
		if _, err := searcher.TopK(top, row); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("label %d, logit %g\n", top[0].ID, top[0].Logit)
	}
	// Output:
	// label 1, logit 2.5
	// label 2, logit 3
	// label 0, logit 4
}

// npyOf writes a .npy file of float32.
func npyOf(t *testing.T, x []float32, shape ...int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "H.npy")
	if err := tensorfile.WriteNPY(path, x, shape...); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOpenContexts(t *testing.T) {
	six := []float32{1, 2, 3, 4, 5, 6}
	t.Run("read", func(t *testing.T) {
		half := filepath.Join(t.TempDir(), "half.npy") // float16, of which 1, 2, ... are 0x3c00, 0x4000, ...
		data := numpy("<f2", "False", "(2, 3)", []byte{0, 0x3c, 0, 0x40, 0, 0x42, 0, 0x44, 0, 0x45, 0, 0x46})
		if err := os.WriteFile(half, data, 0o666); err != nil {
			t.Fatal(err)
		}
		tensors := filepath.Join(t.TempDir(), "states.safetensors")
		if err := gguftest.WriteSafetensors(tensors, gguftest.Array{Name: "h", Data: six, Shape: []int{2, 3}}); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			name, source string
			dim          int
		}{
			{"a matrix", npyOf(t, six, 2, 3), 3},
			{"a dimension of 1 between", npyOf(t, six, 2, 1, 3), 3},
			{"a vector", npyOf(t, six, 6), 6},
			{"float16", half, 3},
			{"a tensor of a safetensors file", tensors + ":h", 3},
		} {
			contexts, release, err := heads.OpenContexts(c.source, c.dim)
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
				continue
			}
			if !slices.Equal(contexts, six) {
				t.Errorf("%s: found %v, expected %v", c.name, contexts, six)
			}
			if err := release(); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	})
	for _, c := range []struct{ name, source, want string }{
		{"another dimension", npyOf(t, six, 3, 2), "H.npy: shape: found [3 2], expected [any 3]"},
		{"no rows", npyOf(t, nil, 0, 3), "H.npy: shape: found [0 3], expected at least one row"},
		{"three dimensions", npyOf(t, six, 1, 3, 2), "H.npy: shape: found [1 3 2], expected [any 3]"},
		{"a NaN", npyOf(t, []float32{1, 2, 3, 4, float32(math.NaN()), 6}, 2, 3), "H.npy: values: found NaN at row 1, column 1, expected finite numbers"},
		{"no file", filepath.Join(t.TempDir(), "H.npy"), "H.npy: no such file or directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, _, err := heads.OpenContexts(c.source, 3); err == nil || !strings.HasSuffix(err.Error(), c.want) {
				t.Errorf("found error %v, expected one that ends with %q", err, c.want)
			}
		})
	}
}
