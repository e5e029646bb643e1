package lstm

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/learning-to-screen/l2s/benchmarks/internal/text"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"github.com/learning-to-screen/l2s/internal/files/vocab"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

// TestGolden: the contexts of the first 500 tokens of the Penn Treebank's
// test text, and the five likeliest words after each, against PyTorch.
//
// The tolerance: these contexts are within 2e-6 of an evaluation in float64, the
// contexts of PyTorch, in float32 as well, within 5e-6. A wrong gate or a lost
// bias moves them by more than 1e-2.
func TestGolden(t *testing.T) {
	const n, k, tolerance = 500, 5, 1e-5
	dir := filepath.Join("..", "..", "..", "..", "shared", "data", "ptb-small")
	if _, err := os.Stat(dir); err != nil {
		t.Skip("../shared/data/ptb-small is not there (CONTRIBUTING.md, Data, describes it): ", err)
	}
	m, err := Load(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	words, err := vocab.Load(filepath.Join(dir, "vocab.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if err := words.CheckLen(m.Vocab()); err != nil {
		t.Fatal(err)
	}
	layer, err := exact.NewLayer(kernels.Float32Rows(m.decoder, m.Dim()), m.decoderBias)
	if err != nil {
		t.Fatal(err)
	}
	contexts := openGolden(t, filepath.Join(dir, "golden_contexts.npy"), n, m.Dim())
	wantContexts, err := contexts.Float32s()
	if err != nil {
		t.Fatal(err)
	}
	wantTop, err := openGolden(t, filepath.Join(dir, "golden_top5.npy"), n, k).Int64s()
	if err != nil {
		t.Fatal(err)
	}

	simdtest.EachLevel(t, func(t *testing.T) {
		file, err := os.Open(filepath.Join(dir, "ptb.test.txt"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		var (
			search = exact.NewSearcher(layer)
			top    [k]exact.Prediction
			i      int
			worst  float64
			enough = errors.New("enough")
		)
		err = m.Contexts(context.Background(), text.Tokens(words, file, "ptb.test.txt"), func(h []float32) error {
			for j, x := range h {
				worst = max(worst, math.Abs(float64(x)-float64(wantContexts[i*m.Dim()+j])))
			}
			if _, err := search.TopK(top[:], h); err != nil {
				return err
			}
			for j, p := range top {
				if int64(p.ID) != wantTop[i*k+j] {
					t.Errorf("context %d: top %d is %d (%s), want %d", i, j+1, p.ID, words.Word(p.ID), wantTop[i*k+j])
				}
			}
			if i++; i == n {
				return enough
			}
			return nil
		})
		if err != enough {
			t.Fatalf("after %d contexts: %v", i, err)
		}
		if worst > tolerance {
			t.Errorf("largest error of a context %.3g, want at most %g", worst, tolerance)
		}
		t.Logf("largest error of a context %.2g", worst)
	})
}

func openGolden(t *testing.T, path string, rows, cols int) *tensorfile.Tensor {
	t.Helper()
	f, err := tensorfile.OpenTensor(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := f.ExpectShape(rows, cols); err != nil {
		t.Fatal(err)
	}
	return f
}
