package lstm

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLoadErrors(t *testing.T) {
	zeros := func(shape ...int) tensor { return newTensor(func(int) float32 { return 0 }, shape...) }
	set := func(name string, t tensor) func(*spec) {
		return func(s *spec) { s.tensors[name] = t }
	}
	remove := func(names ...string) func(*spec) {
		return func(s *spec) {
			for _, name := range names {
				delete(s.tensors, name)
			}
		}
	}
	element := func(name string, i int, x float64) func(*spec) {
		return func(s *spec) { s.tensors[name].data[i] = float32(x) }
	}
	// vocabulary 7, embedding 5, dimension 3, 2 layers, not tied
	for _, c := range []struct {
		name   string
		change func(*spec)
		want   string
	}{
		{"no embedding", remove("encoder.weight"), "found no tensor encoder.weight"},
		{"no words", set("encoder.weight", zeros(0, 5)), "encoder.weight: shape: found [0 5]"},
		{"empty embedding", set("encoder.weight", zeros(7, 0)), "encoder.weight: shape: found [7 0]"},
		{"no layer at all", remove("rnn.weight_ih_l0", "rnn.weight_hh_l0", "rnn.bias_ih_l0", "rnn.bias_hh_l0",
			"rnn.weight_ih_l1", "rnn.weight_hh_l1", "rnn.bias_ih_l1", "rnn.bias_hh_l1"), "found no tensor rnn.weight_hh_l0"},
		{"no layer 0", remove("rnn.weight_ih_l0", "rnn.weight_hh_l0", "rnn.bias_ih_l0", "rnn.bias_hh_l0"), "_l1: found, but no layer 0"},
		{"a gap between layers", set("rnn.bias_hh_l4", zeros(12)), "rnn.bias_hh_l4: found, but no layer 2"},
		{"a layer with one tensor", set("rnn.weight_ih_l2", zeros(12, 3)), "found no tensor rnn.weight_hh_l2"},
		{"a layer without a bias", remove("rnn.bias_ih_l1"), "found no tensor rnn.bias_ih_l1"},
		{"a GRU", set("rnn.weight_hh_l0", zeros(9, 3)), "rnn.weight_hh_l0: shape: found [9 3], expected the shape of an LSTM layer"},
		{"dimension zero", set("rnn.weight_hh_l0", zeros(0, 0)), "rnn.weight_hh_l0: shape: found [0 0]"},
		{"first layer of another embedding", set("rnn.weight_ih_l0", zeros(12, 4)), "rnn.weight_ih_l0: shape: found [12 4], expected [12 5]"},
		{"second layer of another dimension", set("rnn.weight_ih_l1", zeros(12, 5)), "rnn.weight_ih_l1: shape: found [12 5], expected [12 3]"},
		{"second recurrent matrix of another dimension", set("rnn.weight_hh_l1", zeros(16, 4)), "rnn.weight_hh_l1: shape: found [16 4], expected [12 3]"},
		{"a bias of another length", set("rnn.bias_hh_l0", zeros(3)), "rnn.bias_hh_l0: shape: found [3], expected [12]"},
		{"decoder of another dimension", set("decoder.weight", zeros(7, 5)), "decoder.weight: shape: found [7 5], expected [7 3]"},
		{"decoder of another vocabulary", set("decoder.weight", zeros(8, 3)), "decoder.weight: shape: found [8 3], expected [7 3]"},
		{"tied, but the embedding has another dimension", remove("decoder.weight"), "decoder.weight: found none, expected one, since encoder.weight, of 5 columns"},
		{"no decoder bias", remove("decoder.bias"), "found no tensor decoder.bias"},
		{"decoder bias of another vocabulary", set("decoder.bias", zeros(6)), "decoder.bias: shape: found [6], expected [7]"},
		{"both directions", set("rnn.weight_ih_l0_reverse", zeros(12, 5)), "rnn.weight_ih_l0_reverse: found a tensor that does not belong to"},
		{"a projection", set("rnn.weight_hr_l0", zeros(2, 3)), "rnn.weight_hr_l0: found a tensor that does not belong to"},
		{"a layer with a strange number", set("rnn.weight_ih_l01", zeros(12, 3)), "rnn.weight_ih_l01: found a tensor that does not belong to"},
		{"a tensor of another model", set("encoder.embeddings.weight", zeros(7, 5)), "encoder.embeddings.weight: found a tensor that does not belong to"},
		{"-Inf in a bias", element("decoder.bias", 0, math.Inf(-1)), "decoder.bias: values: found -Inf"},
		{"biases whose sum is not finite", func(s *spec) {
			s.tensors["rnn.bias_ih_l1"].data[2] = math.MaxFloat32
			s.tensors["rnn.bias_hh_l1"].data[2] = math.MaxFloat32
		}, "rnn.bias_ih_l1 and rnn.bias_hh_l1: values: found the sum +Inf at element 2"},
	} {
		s := newSpec(1, 7, 5, 3, 2, false)
		if _, err := read("language model", s.file()); err != nil {
			t.Fatalf("%s: before the change: %v", c.name, err)
		}
		c.change(s)
		checkRefused(t, c.name, s.file(), c.want)
	}

	good := newSpec(1, 7, 5, 3, 2, false).file()
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"empty", nil, "found a file of 0 bytes"},
		{"truncated within the data", good[:len(good)-1], "data: found 144 bytes at offset 972, expected them within the 1115 bytes of data"},
	} {
		checkRefused(t, c.name, c.data, c.want)
	}
	if _, err := Load(filepath.Join(t.TempDir(), "missing.safetensors")); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "missing.safetensors") {
		t.Errorf("missing file: %v", err)
	}
}

// checkRefused demands the same error of Load, where it names the path, and
// of Read.
func checkRefused(t *testing.T, name string, data []byte, want string) {
	t.Helper()
	if m, err := read("language model", data); err == nil || m != nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: read gives %v, %v; want an error with %q", name, m, err, want)
	}
	path := filepath.Join(t.TempDir(), "model.safetensors")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if m, err := Load(path); err == nil || m != nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
		t.Errorf("%s: Load gives %v, %v; want an error with the path and %q", name, m, err, want)
	}
}

// FuzzRead: any bytes are a model that works or an error.
func FuzzRead(f *testing.F) {
	f.Add(newSpec(1, 2, 2, 1, 1, false).file())
	f.Add(newSpec(1, 2, 1, 1, 2, true).file())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := read("language model", data)
		if err != nil {
			return
		}
		w, b := m.Decoder()
		if m.Vocab() < 1 || m.Dim() < 1 || m.Layers() < 1 || len(w) != m.Vocab()*m.Dim() || len(b) != m.Vocab() {
			t.Fatalf("vocab %d, dim %d, layers %d, %d weights, %d biases", m.Vocab(), m.Dim(), m.Layers(), len(w), len(b))
		}
		st := m.NewState()
		for _, token := range []uint32{0, uint32(m.Vocab() - 1)} {
			if h := st.Step(token); len(h) != m.Dim() {
				t.Fatalf("context of %d elements, want %d", len(h), m.Dim())
			}
		}
	})
}
