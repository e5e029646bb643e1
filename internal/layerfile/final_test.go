package layerfile_test

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/learning-to-screen/l2s/head"
	"github.com/learning-to-screen/l2s/internal/gguftest"
	"github.com/learning-to-screen/l2s/internal/layerfile"
	"github.com/learning-to-screen/l2s/softmax"
)

// The layer of a head has the model's logits: of contexts at the head, and of states from before the
// scale that the model gives them there, which is of the state alone and not of the bias.
func TestTheLayerOfAHeadHasItsFinalLogits(t *testing.T) {
	dir := t.TempDir()
	array := func(name string, data []float32, shape ...int) gguftest.Array {
		return gguftest.Array{Name: name, Shape: shape, Data: data}
	}
	w, b := []float32{1, 2, 3, -4, 0.5, 7}, []float32{1, -2, 5}
	if err := gguftest.WriteSafetensors(filepath.Join(dir, "model.safetensors"), array("lm_head.weight", w, 3, 2), array("lm_head.bias", b, 3)); err != nil {
		t.Fatal(err)
	}
	config := `{"model_type":"minicpm","dim_model_base":1,"hidden_size":2,"final_logit_softcapping":6.0,"tie_word_embeddings":false}`
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := head.Open(dir, head.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if h.StateScale() != 0.5 || h.SoftCap() != 6 || h.Bias() == nil {
		t.Fatalf("found the head %v, expected one with a scale of states, a cap and a bias", h)
	}
	x := []float32{1.5, -2.5}
	for _, state := range []float64{1, h.StateScale()} {
		l, err := layerfile.Of(h, state)
		if err != nil {
			t.Fatal(err)
		}
		var found [3]float64
		if err := softmax.NewSearcher(l).Logits(found[:], x, softmax.Labels{}); err != nil {
			t.Fatal(err)
		}
		for i := range found {
			raw := (float64(w[2*i])*float64(x[0])+float64(w[2*i+1])*float64(x[1]))*state + float64(b[i])
			if want := 6 * math.Tanh(raw/6); math.Abs(found[i]-want) > 1e-12 {
				t.Errorf("state %v, label %d: found the logit %v, expected %v", state, i, found[i], want)
			}
		}
	}
}
