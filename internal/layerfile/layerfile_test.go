package layerfile

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/head"
	"github.com/learning-to-screen/l2s/internal/dense"
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

	row, column := write("row.npy", []float32{7, 8, 9}, 1, 3), write("column.npy", []float32{7, 8, 9}, 3, 1)
	for src, want := range map[string][]float32{bias: {7, 8, 9}, head.NoBias: {0, 0, 0}, row: {7, 8, 9}, column: {7, 8, 9}} {
		l, err := Open(weights, src)
		if err != nil {
			t.Fatal(err)
		}
		if l.Labels() != 3 || l.Dim() != 2 || !slices.Equal(dense.Weights(l), []float32{1, 2, 3, 4, 5, 6}) || !slices.Equal(l.Bias(), want) {
			t.Errorf("%d x %d, %v, %v", l.Labels(), l.Dim(), dense.Weights(l), l.Bias())
		}
	}
	for name, c := range map[string]struct{ weights, bias, want string }{
		"no weights":    {filepath.Join(dir, "none.npy"), bias, "none.npy"},
		"no bias":       {weights, filepath.Join(dir, "nought.npy"), "nought.npy"},
		"short bias":    {weights, write("short.npy", []float32{1}, 1), "one number for each row of " + weights},
		"a matrix as b": {weights, write("b32.npy", make([]float32, 6), 3, 2), "b32.npy: shape: found [3 2], expected [3], one number for each row of " + weights},
		"W transposed":  {write("wt.npy", make([]float32, 6), 2, 3), bias, "wt.npy: shape: found [2 3], expected [3 2], one number for each number of " + bias + ": save its transpose"},
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
	if l.Labels() != 48 || l.Dim() != 512 || !slices.Equal(dense.Weights(l), want) {
		t.Errorf("%d x %d, or other weights than ggml reads", l.Labels(), l.Dim())
	}
}

func TestOpenContexts(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, shape ...int) string {
		path := filepath.Join(dir, name)
		n := 1
		for _, s := range shape {
			n *= s
		}
		if err := tensorfile.WriteNPY(path, make([]float32, n), shape...); err != nil {
			t.Fatal(err)
		}
		return path
	}
	weights := write("w.npy", 30, 12)
	l, err := Open(weights, head.NoBias)
	if err != nil {
		t.Fatal(err)
	}
	for name, rows := range map[string]int{write("matrix.npy", 7, 12): 7, write("row.npy", 1, 12): 1, write("vector.npy", 12): 1} {
		h, err := OpenContexts(name, l, weights)
		if err != nil {
			t.Fatal(err)
		}
		x, err := h.Float32s()
		if h.Rows() != rows || h.Cols() != 12 || len(x) != 12*rows || err != nil {
			t.Errorf("%s: found %d x %d, %d numbers (%v), expected %d x 12", name, h.Rows(), h.Cols(), len(x), err, rows)
		}
		h.Close()
	}
	for _, c := range []struct {
		name, file, want string
	}{
		{"other columns", write("a.npy", 7, 13), "a.npy: shape: found [7 13], expected [any 12], the columns of " + weights},
		{"a transpose", write("b.npy", 12, 7), "b.npy: shape: found [12 7], expected [any 12], the columns of " + weights + ": save its transpose"},
		{"the columns are W's rows", write("c.npy", 7, 30), "c.npy: shape: found [7 30], expected [any 12], the columns of " + weights + ", or weights of 30 columns: " + weights + " has so many rows, save its transpose if the columns are the labels"},
		{"a vector of another length", write("d.npy", 13), "d.npy: shape: found [13], expected [any 12]"},
		{"a cube", write("e.npy", 1, 1, 12), "e.npy: shape: found [1 1 12], expected [any 12]"},
		{"no rows", write("f.npy", 0, 12), "f.npy: shape: found [0 12], expected at least one row"},
	} {
		if _, err := OpenContexts(c.file, l, weights); err == nil || !strings.HasSuffix(err.Error(), c.want) && !strings.Contains(err.Error(), c.want+", the columns") {
			t.Errorf("%s: found the error %v, expected %q", c.name, err, c.want)
		}
	}
}
