package layerfile

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/head"
	"github.com/learning-to-screen/l2s/internal/tensorfile"
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

	for src, want := range map[string][]float32{bias: {7, 8, 9}, head.NoBias: {0, 0, 0}} {
		l, err := Open(weights, src)
		if err != nil {
			t.Fatal(err)
		}
		if l.Labels() != 3 || l.Dim() != 2 || !slices.Equal(l.Weights(), []float32{1, 2, 3, 4, 5, 6}) || !slices.Equal(l.Bias(), want) {
			t.Errorf("%d x %d, %v, %v", l.Labels(), l.Dim(), l.Weights(), l.Bias())
		}
	}
	for name, c := range map[string]struct{ weights, bias, want string }{
		"no weights":    {filepath.Join(dir, "none.npy"), bias, "none.npy"},
		"no bias":       {weights, filepath.Join(dir, "nought.npy"), "nought.npy"},
		"short bias":    {weights, write("short.npy", []float32{1, 2}, 2), "one number for each row of " + weights},
		"a vector as W": {bias, head.NoBias, "b.npy"},
		"no rows":       {write("empty.npy", nil, 0, 2), head.NoBias, "at least one row"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Open(c.weights, c.bias); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
		})
	}
}

// Heads of models are layers, too: their rows as float32.
func TestOpenAModel(t *testing.T) {
	base := filepath.Join("..", "..", "head", "testdata", "gguf", "head-q4_k")
	l, err := Open(base+".gguf", "")
	if err != nil {
		t.Fatal(err)
	}
	x, err := tensorfile.OpenMatrix(base + ".npy")
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	want, err := x.Float32s()
	if err != nil {
		t.Fatal(err)
	}
	if l.Labels() != 48 || l.Dim() != 512 || !slices.Equal(l.Weights(), want) {
		t.Errorf("%d x %d, or other weights than ggml reads", l.Labels(), l.Dim())
	}
}
