package tensorfile_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"testing"

	"github.com/learning-to-screen/l2s/internal/tensorfile"
)

// shared returns the path of a file of the optional test data.
func shared(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join("..", "..", "..", "shared", "data", filepath.FromSlash(name))
	if _, err := os.Stat(path); err != nil {
		t.Skipf("../shared/data/%s is not there (CONTRIBUTING.md, Data, describes it): %v", name, err)
	}
	return path
}

// PyTorch's top five of a softmax layer, from logits in float64, come out of
// the three files that numpy and PyTorch wrote.
func TestGoldenTop5(t *testing.T) {
	contexts := open(t, shared(t, "ptb-small/golden_contexts.npy"))
	top5 := open(t, shared(t, "ptb-small/golden_top5.npy"))
	f, err := tensorfile.OpenSafetensors(shared(t, "ptb-small/model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	weights, err := f.Tensor("decoder.weight")
	if err != nil {
		t.Fatal(err)
	}
	bias, err := f.Tensor("decoder.bias")
	if err != nil {
		t.Fatal(err)
	}
	const n, labels, dim, some = 500, 10000, 200, 25
	for _, c := range []struct {
		x     *tensorfile.Tensor
		dtype tensorfile.DType
		shape []int
	}{
		{contexts, tensorfile.Float32, []int{n, dim}},
		{top5, tensorfile.Int32, []int{n, 5}},
		{weights, tensorfile.Float32, []int{labels, dim}},
		{bias, tensorfile.Float32, []int{labels}},
	} {
		if c.x.DType != c.dtype || c.x.ExpectShape(c.shape...) != nil {
			t.Fatalf("%v of %v, want %v of %v", c.x.Shape, c.x.DType, c.shape, c.dtype)
		}
	}
	ids, err := top5.Int64s()
	if err != nil {
		t.Fatal(err)
	}
	h, w, b := floats(t, contexts), floats(t, weights), floats(t, bias)
	logits := make([]float64, labels)
	order := make([]int64, labels)
	for i := range some {
		row := i * (n / some)
		for s := range labels {
			logits[s], order[s] = float64(b[s]), int64(s)
			for k := range dim {
				logits[s] += float64(w[s*dim+k]) * float64(h[row*dim+k])
			}
		}
		sort.Slice(order, func(i, j int) bool { return logits[order[i]] > logits[order[j]] })
		if want := ids[5*row : 5*row+5]; !slices.Equal(order[:5], want) {
			t.Errorf("context %d: top five %v, want %v", row, order[:5], want)
		}
	}
}

// A file of numpy, read and written, has the same bytes.
func TestGoldenRewritten(t *testing.T) {
	src := shared(t, "ptb-small/golden_contexts.npy")
	x := open(t, src)
	path := filepath.Join(t.TempDir(), "x.npy")
	if err := tensorfile.WriteNPY(path, floats(t, x), x.Shape...); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(src)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("other bytes than numpy's")
	}
}

// All tensors of a float16 model, against the formula of binary16.
func TestGoldenHalfModel(t *testing.T) {
	path := shared(t, "books-lm/model.safetensors")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := tensorfile.OpenSafetensors(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data := raw[8+binary.LittleEndian.Uint64(raw):]
	shapes := map[string][]int{
		"encoder.weight": {20000, 200}, "decoder.bias": {20000},
		"rnn.weight_ih_l0": {800, 200}, "rnn.weight_hh_l0": {800, 200}, "rnn.bias_ih_l0": {800}, "rnn.bias_hh_l0": {800},
		"rnn.weight_ih_l1": {800, 200}, "rnn.weight_hh_l1": {800, 200}, "rnn.bias_ih_l1": {800}, "rnn.bias_hh_l1": {800},
	}
	if got := len(f.Names()); got != len(shapes) {
		t.Errorf("%d tensors, want %d", got, len(shapes))
	}
	at := 0
	for _, name := range f.Names() { // the header has the order of the data
		x, err := f.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		if want := shapes[name]; x.DType != tensorfile.Float16 || !slices.Equal(x.Shape, want) {
			t.Errorf("%s: %v of %v, want %v of float16", name, x.Shape, x.DType, want)
		}
		for i, v := range floats(t, x) {
			if want := float32(halfValue(binary.LittleEndian.Uint16(data[at:]))); v != want {
				t.Fatalf("%s: element %d: found %v, want %v", name, i, v, want)
			}
			at += 2
		}
	}
	if at != len(data) {
		t.Errorf("%d bytes of tensors, want %d", at, len(data))
	}
	if got := floats(t, open(t, path+":decoder.bias")); len(got) != 20000 {
		t.Errorf("%d elements, want 20000", len(got))
	}
}
