package layerfile

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"github.com/learning-to-screen/l2s/internal/search/dense"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/tests/gguftest"
)

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []float32, shape ...int) string {
		path := filepath.Join(dir, name)
		if err := tensorfile.WriteNPY(path, data, shape...); err != nil {
			t.Fatal(err)
		}
		return path
	}
	weights := write("w.npy", []float32{1, 2, 3, 4, 5, 6}, 3, 2)
	bias := write("b.npy", []float32{7, 8, 9}, 3)

	row, column := write("row.npy", []float32{7, 8, 9}, 1, 3), write("column.npy", []float32{7, 8, 9}, 3, 1)
	for src, want := range map[string][]float32{bias: {7, 8, 9}, "none": {0, 0, 0}, row: {7, 8, 9}, column: {7, 8, 9}} {
		l, h, err := open(weights, l2s.OpenOptions{Bias: src})
		if err != nil {
			t.Fatal(err)
		}
		if l.Labels() != 3 || l.Dim() != 2 || !slices.Equal(dense.Weights(l), []float32{1, 2, 3, 4, 5, 6}) || !slices.Equal(l.Bias(), want) {
			t.Errorf("%d x %d, %v, %v", l.Labels(), l.Dim(), dense.Weights(l), l.Bias())
		}
		h.Close()
	}
	for name, c := range map[string]struct{ weights, bias, want string }{
		"no weights":    {filepath.Join(dir, "none.npy"), bias, "none.npy"},
		"no bias":       {weights, filepath.Join(dir, "nought.npy"), "nought.npy"},
		"short bias":    {weights, write("short.npy", []float32{1}, 1), "one number for each row of " + weights},
		"a matrix as b": {weights, write("b32.npy", make([]float32, 6), 3, 2), "b32.npy: shape: found [3 2], expected [3], one number for each row of " + weights},
		"W transposed":  {write("wt.npy", make([]float32, 6), 2, 3), bias, "wt.npy: shape: found [2 3], expected [3 2], one number for each number of " + bias + ": save its transpose"},
		"a vector as W": {bias, "none", "b.npy"},
		"no rows":       {write("empty.npy", nil, 0, 2), "none", "at least one row"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := open(c.weights, l2s.OpenOptions{Bias: c.bias}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
		})
	}
}

// open opens a layer of files, and returns its inside too.
func open(source string, o l2s.OpenOptions) (*exact.Layer, *l2s.Layer, error) {
	l, err := l2s.Open(source, o)
	if err != nil {
		return nil, nil, err
	}
	return (*engine.Layer)(l).Exact(), l, nil
}

// The layer of a model has the head's own rows, whose values are those of the file: sums.txt is by
// another reader of it.
func TestOpenAModel(t *testing.T) {
	dir := filepath.Join("..", "..", "files", "heads", "testdata", "gguf")
	l, h, err := open(filepath.Join(dir, "head-q4_k.gguf"), l2s.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	sums, err := os.ReadFile(filepath.Join(dir, "sums.txt"))
	if err != nil {
		t.Fatal(err)
	}
	line := fmt.Sprintf("head-q4_k 48 x 512 %x\n", sha256.Sum256(gguftest.Floats(dense.Weights(l)...)))
	if l.Weights() != (*engine.Layer)(h).Head().Rows() || l.Labels() != 48 || l.Dim() != 512 || !strings.Contains(string(sums), line) {
		t.Errorf("%d x %d, or other weights than in the file", l.Labels(), l.Dim())
	}
}
