package previewing

import (
	"errors"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// A bias that was forgotten, or is one too many, is named in the error for another layer.
func TestAnotherBiasOfAPreviewIsNamed(t *testing.T) {
	layer := func(bias []float32) *exact.Layer {
		l, err := exact.NewLayer(kernels.Float32Rows([]float32{1, 2, 3, 4}, 2), bias)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	some, others, none := layer([]float32{1, 2}), layer([]float32{2, 1}), layer(nil)
	const forgotten, leave = "with a bias, which this one lacks: was it forgotten?", "without a bias: leave the bias out"
	for _, c := range []struct {
		name        string
		made, given *exact.Layer
		want        string
	}{{"forgotten", some, none, forgotten}, {"one too many", none, some, leave}, {"another one", some, others, ""}} {
		m := &Model{parts: &Parts{Labels: 2, Dim: 2, Fingerprint: FingerprintOf(c.made)}}
		_, err := NewSearcher(m, c.given)
		if err == nil || !errors.Is(err, exact.ErrLayer) || !strings.HasPrefix(err.Error(), "l2s: preview: fingerprint: found ") || !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("%s: found error %v, expected one of the layer with %q", c.name, err, c.want)
		} else if c.want == "" && strings.Contains(err.Error(), "bias") {
			t.Errorf("%s: found error %v, expected no word about a bias", c.name, err)
		}
	}
}
