package layerfile

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/tests/gguftest"
)

// normal returns n normal numbers.
func normal(r *rand.Rand, n int, scale float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(scale * r.NormFloat64())
	}
	return x
}

// states returns n states of d elements after a normalisation, and the same states before it, whose
// lengths differ.
func states(r *rand.Rand, n, d int, gain, bias []float32, plus float32, centred bool) (after, before []float32) {
	for range n {
		x := normal(r, d, math.Exp(3+r.NormFloat64()/2))
		before = append(before, x...)
		var mean, square float64
		if centred {
			for _, v := range x {
				mean += float64(v) / float64(d)
			}
		}
		for _, v := range x {
			square += (float64(v) - mean) * (float64(v) - mean) / float64(d)
		}
		for j, v := range x {
			after = append(after, float32((float64(v)-mean)/math.Sqrt(square))*(gain[j]+plus)+bias[j])
		}
	}
	return after, before
}

func TestUnnormedByTheModelsNorm(t *testing.T) {
	const labels, dim, n = 50, 64, 300
	r := rand.New(rand.NewPCG(7, 8))
	open := func(t *testing.T, gain, bias []float32) *l2s.Layer {
		path := filepath.Join(t.TempDir(), "model.safetensors")
		arrays := []gguftest.Array{{Name: "lm_head.weight", Shape: []int{labels, dim}, Data: normal(r, labels*dim, 0.1)}, {Name: "transformer.ln_f.weight", Shape: []int{dim}, Data: gain}}
		if bias != nil {
			arrays = append(arrays, gguftest.Array{Name: "transformer.ln_f.bias", Shape: []int{dim}, Data: bias})
		}
		if err := gguftest.WriteSafetensors(path, arrays...); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), "config.json"), []byte(`{"model_type":"gpt2","tie_word_embeddings":false}`), 0o666); err != nil {
			t.Fatal(err)
		}
		h, err := l2s.Open(filepath.Dir(path), l2s.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.Close() })
		return h
	}
	gain, bias, none := normal(r, dim, 0.5), normal(r, dim, 0.2), make([]float32, dim)
	for i := range gain {
		gain[i] += 3
	}
	for name, c := range map[string]struct {
		bias    []float32
		plus    float32
		centred bool
	}{"RMSNorm": {none, 0, false}, "RMSNorm whose gain is one more": {none, 1, false}, "LayerNorm": {bias, 0, true}} {
		t.Run(name, func(t *testing.T) {
			written := c.bias
			if !c.centred {
				written = nil
			}
			h := open(t, gain, written)
			after, before := states(r, n, dim, gain, c.bias, c.plus, c.centred)
			if why := Unnormed(h, after); why != "" {
				t.Errorf("states after the normalisation: found %q", why)
			}
			for i := range n / 3 { // of which some may be odd
				copy(after[3*i*dim:(3*i+1)*dim], before)
			}
			if why := Unnormed(h, after); why != "" {
				t.Errorf("states most of which are after the normalisation: found %q", why)
			}
			ones := slices.Clone(after)
			for i := range n {
				row, sum := ones[i*dim:(i+1)*dim], 0.0
				for _, v := range row {
					sum += float64(v) * float64(v)
				}
				for j := range row {
					row[j] /= float32(math.Sqrt(sum))
				}
			}
			for what, contexts := range map[string][]float32{"before the normalisation": before, "of length 1": ones} {
				if why := Unnormed(h, contexts); !strings.Contains(why, "after the model's last normalisation their mean square would be 1 by its gain; found ") {
					t.Errorf("states %s: found %q", what, why)
				}
			}
		})
	}
}

// A state that a model scales before its head must have the scale, and a state that the model
// scales after its head must not.
func TestUnnormedByTheModelsScale(t *testing.T) {
	const labels, dim, n = 50, 64, 300
	r := rand.New(rand.NewPCG(11, 12))
	gain := normal(r, dim, 0.5)
	for i := range gain {
		gain[i] += 3
	}
	after, _ := states(r, n, dim, gain, make([]float32, dim), 0, false)
	times := func(s float32) []float32 {
		x := slices.Clone(after)
		for i := range x {
			x[i] *= s
		}
		return x
	}
	for name, c := range map[string]struct {
		config string
		states []float32
		want   string
	}{
		"T5 at the head":                  {`{"model_type":"t5","d_model":64}`, times(0.125), ""},
		"T5 after the normalisation":      {`{"model_type":"t5","d_model":64}`, after, "they lack the scale of 0.125 that"},
		"untied T5":                       {`{"model_type":"t5","d_model":64,"tie_word_embeddings":false}`, after, ""},
		"Cohere":                          {`{"model_type":"cohere2"}`, after, ""},
		"Cohere with the scale of logits": {`{"model_type":"cohere2"}`, times(0.0625), "they have the scale of 0.0625 already that"},
		"something else":                  {`{"model_type":"cohere2"}`, times(0.4), "found 0.16 in the median"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := gguftest.WriteSafetensors(filepath.Join(dir, "model.safetensors"),
				gguftest.Array{Name: "lm_head.weight", Shape: []int{labels, dim}, Data: normal(r, labels*dim, 0.1)},
				gguftest.Array{Name: "decoder.final_layer_norm.weight", Shape: []int{dim}, Data: gain}); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(c.config), 0o666); err != nil {
				t.Fatal(err)
			}
			h, err := l2s.Open(dir, l2s.OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			if why := Unnormed(h, c.states); c.want == "" && why != "" || !strings.Contains(why, c.want) {
				t.Errorf("found %q, expected %q in it", why, c.want)
			}
		})
	}
}

// If no normalisation is known the probabilities tell.
func TestUnnormedByProbabilities(t *testing.T) {
	const labels, dim, n = 200, 64, 100
	r := rand.New(rand.NewPCG(9, 10))
	path := filepath.Join(t.TempDir(), "W.npy")
	writeNPY(t, path, normal(r, labels*dim, 0.5), labels, dim)
	h, err := l2s.Open(path, l2s.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for _, c := range []struct {
		scale float64
		want  string
	}{
		{1, ""}, {0.5, ""},
		{30, "for most of them the best label has all of the probability"},
		{0.01, "for most of them all labels are about as probable as each other"},
	} {
		if why := Unnormed(h, normal(r, n*dim, c.scale)); why != c.want {
			t.Errorf("contexts with a deviation of %v: found %q, expected %q", c.scale, why, c.want)
		}
	}
}
