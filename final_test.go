package l2s_test

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/tests/gguftest"
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
	x := []float32{1.5, -2.5}
	for _, normed := range []bool{false, true} {
		l, err := l2s.Open(dir, l2s.OpenOptions{Normed: normed})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		state := 1.0
		if normed {
			state = 0.5
		}
		if i := l.Info(); i.StateScale != 0.5 || i.Cap != 6 || i.Bias != "lm_head.bias" || i.Scale != state {
			t.Fatalf("found the head %+v, expected one with a scale of states, a cap and a bias", i)
		}
		var found [3]float64
		if err := newSearcher(t, l, nil, l2s.Options{}).Logits(found[:], x, l2s.Labels{}); err != nil {
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
