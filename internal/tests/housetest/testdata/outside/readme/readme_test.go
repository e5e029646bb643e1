package readme

import (
	"encoding/binary"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s"
)

// gguf returns a GGUF file of a tied head: rows of float32.
func gguf(weights []float32, dim int) []byte {
	le := binary.LittleEndian
	text := func(b []byte, s string) []byte { return append(le.AppendUint64(b, uint64(len(s))), s...) }
	b := le.AppendUint32([]byte("GGUF"), 3)
	b = le.AppendUint64(le.AppendUint64(b, 1), 1) // tensors, metadata
	b = text(b, "general.architecture")
	b = text(le.AppendUint32(b, 8), "llama")
	b = text(b, "token_embd.weight")
	b = le.AppendUint64(le.AppendUint64(le.AppendUint32(b, 2), uint64(dim)), uint64(len(weights)/dim))
	b = le.AppendUint64(le.AppendUint32(b, 0), 0) // float32, at the start of the data
	for len(b)%32 != 0 {
		b = append(b, 0)
	}
	for _, x := range weights {
		b = le.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

func TestTheCodeOfREADME(t *testing.T) {
	t.Chdir(t.TempDir())
	weights := []float32{1, 0 /**/, 0, 1 /**/, 1, 1 /**/, -1, 0 /**/, 0, 0 /**/, 0, -1}
	if err := os.WriteFile("model.gguf", gguf(weights, 2), 0o666); err != nil {
		t.Fatal(err)
	}
	best, err := readme([]float32{2, 1})
	if want := []l2s.Prediction{{ID: 2, Logit: 3}, {ID: 0, Logit: 2}, {ID: 1, Logit: 1}, {ID: 4}, {ID: 5, Logit: -1}}; err != nil || !slices.Equal(best, want) {
		t.Errorf("found %v and the error %v, expected %v", best, err, want)
	}
	if err := os.Remove("model.gguf"); err != nil {
		t.Fatal(err)
	}
	if _, err := readme([]float32{2, 1}); err == nil {
		t.Error("found no error without the model, expected one")
	}
}
