package seq2seq

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/gguftest"
)

// tinyShape is the shape of the models that must be refused.
var tinyShape = shape{source: 6, target: 7, embedSource: 5, embedTarget: 4, dim: 3, layers: 2}

func TestLoadErrors(t *testing.T) {
	zeros := func(name string, shape ...int) func(*spec) {
		return func(s *spec) {
			n := 1
			for _, size := range shape {
				n *= size
			}
			s.tensors[name] = gguftest.Array{Name: name, Shape: shape, Data: make([]float32, n)}
		}
	}
	remove := func(names ...string) func(*spec) {
		return func(s *spec) {
			for _, name := range names {
				delete(s.tensors, name)
			}
		}
	}
	layer := func(half, l string) (names []string) {
		for _, part := range []string{"weight_ih_l", "weight_hh_l", "bias_ih_l", "bias_hh_l"} {
			names = append(names, half+".rnn."+part+l)
		}
		return names
	}
	for _, c := range []struct {
		name   string
		change func(*spec)
		want   string
	}{
		{"no embedding of the source", remove("encoder.embeddings.weight"), "found no tensor encoder.embeddings.weight"},
		{"no embedding of the target", remove("decoder.embeddings.weight"), "found no tensor decoder.embeddings.weight"},
		{"no encoder", remove(slices.Concat(layer("encoder", "0"), layer("encoder", "1"))...), "found no tensor encoder.rnn.weight_hh_l0"},
		{"a gap between layers", remove(layer("decoder", "0")...), "_l1: found, but no layer 0"},
		{"input feeding", zeros("decoder.rnn.weight_ih_l0", 12, 7), "decoder.rnn.weight_ih_l0: shape: found [12 7], expected [12 4]"},
		{"fewer layers in the encoder", remove(layer("encoder", "1")...), "encoder.rnn.weight_hh_l0: found 1 layers, expected 2"},
		{"fewer layers in the decoder", remove(layer("decoder", "1")...), "encoder.rnn.weight_hh_l0: found 2 layers, expected 1"},
		{"both directions", zeros("encoder.rnn.weight_ih_l0_reverse", 12, 5), "encoder.rnn.weight_ih_l0_reverse: found a tensor that does not belong to a translation model"},
		{"another attention", zeros("decoder.attn.v.weight", 1, 3), "decoder.attn.v.weight: found a tensor that does not belong to a translation model"},
		{"a language model", zeros("rnn.weight_ih_l0", 12, 5), "rnn.weight_ih_l0: found a tensor that does not belong to"},
		{"no A", remove("decoder.attn.linear_in.weight"), "found no tensor decoder.attn.linear_in.weight"},
		{"A of another shape", zeros("decoder.attn.linear_in.weight", 3, 4), "decoder.attn.linear_in.weight: shape: found [3 4], expected [3 3]"},
		{"B of another shape", zeros("decoder.attn.linear_out.weight", 3, 3), "decoder.attn.linear_out.weight: shape: found [3 3], expected [3 6]"},
		{"generator of the source", zeros("generator.weight", 6, 3), "generator.weight: shape: found [6 3], expected [7 3]"},
		{"generator of another dimension", zeros("generator.weight", 7, 4), "generator.weight: shape: found [7 4], expected [7 3]"},
		{"no bias", remove("generator.bias"), "found no tensor generator.bias"},
		{"bias of another length", zeros("generator.bias", 6), "generator.bias: shape: found [6], expected [7]"},
		{"Inf in the generator", func(s *spec) { s.tensors["generator.weight"].Data[4] = float32(math.Inf(-1)) }, "generator.weight: values: found -Inf at row 1, column 1"},
		{"an encoder of another dimension", func(s *spec) {
			other := tinyShape
			other.dim = 4
			for name, tensor := range newSpec(1, other, 1).tensors {
				if strings.HasPrefix(name, "encoder.rnn.") {
					s.tensors[name] = tensor
				}
			}
		}, "encoder.rnn.weight_hh_l0: shape: found [16 4], expected [12 3], the shape of the decoder"},
	} {
		dir := t.TempDir()
		s := newSpec(1, tinyShape, 1)
		s.write(t, dir)
		if _, err := Load(dir, "de", "en"); err != nil {
			t.Fatalf("%s: before the change: %v", c.name, err)
		}
		c.change(s)
		s.write(t, dir)
		checkRefused(t, c.name, dir, filepath.Join(dir, "model.safetensors"), c.want)
	}
}

// checkRefused demands an error that names a file and contains want.
func checkRefused(t *testing.T, name, dir, file, want string) {
	t.Helper()
	if m, err := Load(dir, "de", "en"); err == nil || m != nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), file) {
		t.Errorf("%s: got %v, %v; want an error with %s and %q", name, m, err, file, want)
	}
}

func TestFilesThatDoNotFit(t *testing.T) {
	for _, c := range []struct{ name, file, content, want string }{
		{"an empty model", "model.safetensors", "", "found a file of 0 bytes"},
		{"too few words", "vocab.de", words(5), "found 5 words, expected 6, the rows of " + filepath.Join("DIR", "model.safetensors") + ":encoder.embeddings.weight"},
		{"too many words", "vocab.en", words(8), "found 8 words, expected 7, the rows of " + filepath.Join("DIR", "model.safetensors") + ":decoder.embeddings.weight"},
		{"the other language", "vocab.de", words(7), "found 7 words, expected 6"},
		{"a vocabulary with a blank line", "vocab.en", "a\n\nb\n", "line 2: found an empty line"},
		{"no <unk>", "vocab.de", strings.Replace(words(6), "<unk>", "x", 1), "found no word <unk>"},
		{"no <s>", "vocab.en", strings.Replace(words(7), "<s>", "x", 1), "found no word <s>, expected <unk>, <s> and </s> among its 7 words"},
		{"no </s>", "vocab.de", strings.Replace(words(6), "</s>", "x", 1), "found no word </s>"},
	} {
		dir := t.TempDir()
		newSpec(1, tinyShape, 1).write(t, dir)
		file := filepath.Join(dir, c.file)
		if err := os.WriteFile(file, []byte(c.content), 0o666); err != nil {
			t.Fatal(err)
		}
		checkRefused(t, c.name, dir, file, strings.ReplaceAll(c.want, "DIR", dir))
	}
	for _, file := range []string{"model.safetensors", "vocab.de", "vocab.en"} {
		dir := t.TempDir()
		newSpec(1, tinyShape, 1).write(t, dir)
		if err := os.Remove(filepath.Join(dir, file)); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(dir, "de", "en"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), file) {
			t.Errorf("without %s: got %v", file, err)
		}
	}
}

// TestSpecialWordsAnywhere: the model finds them by name.
func TestSpecialWordsAnywhere(t *testing.T) {
	dir := t.TempDir()
	newSpec(1, tinyShape, 1).write(t, dir)
	if err := os.WriteFile(filepath.Join(dir, "vocab.en"), []byte("a\nb\n</s>\nc\n<unk>\nd\n<s>\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	m, err := Load(dir, "de", "en")
	if err != nil {
		t.Fatal(err)
	}
	if m.Start() != 6 || m.End() != 2 {
		t.Errorf("<s> is %d and </s> is %d, want 6 and 2", m.Start(), m.End())
	}
}

// FuzzRead: any bytes are a model that works or an error.
func FuzzRead(f *testing.F) {
	for _, sh := range []shape{tinyShape, {5, 4, 1, 1, 1, 1}, {4, 4, 2, 1, 2, 1}} {
		f.Add(newSpec(1, sh, 1).file())
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := read("fuzz", data)
		if err != nil {
			return
		}
		m.encoder.end = uint32(m.encoder.embeddings.Vocab() - 1)
		d := m.NewDecoder()
		d.Start(m.Encode([][]uint32{{0}, nil}))
		if h := d.Step([]uint32{0, uint32(m.Layer().Labels() - 1)}); len(h) != 2*m.Dim() {
			t.Fatalf("%d numbers, want %d", len(h), 2*m.Dim())
		}
	})
}
