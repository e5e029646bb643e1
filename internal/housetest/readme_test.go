package housetest

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/kernels"
	"github.com/learning-to-screen/l2s/internal/synthetic"
	"github.com/learning-to-screen/l2s/preview"
	"github.com/learning-to-screen/l2s/softmax"
)

// README has this function, word for word.

func fast(ctx context.Context, w, b, states []float32, d int) (*preview.Searcher, error) {
	layer, err := softmax.NewLayer(kernels.Float32Rows(w, d), b) // w: d numbers per label
	if err != nil {
		return nil, err // softmax.NewSearcher(layer) is the exact search
	}
	model, err := preview.Make(ctx, layer, states, preview.Options{}) // from 4,000 contexts or more
	if err != nil {
		return nil, err
	}
	return preview.NewSearcher(model, layer) // n, err := searcher.TopK(top, h)
}

func TestTheCodeOfREADMERuns(t *testing.T) {
	source, err := os.ReadFile("readme_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(source), "word for word.\n\n")
	code, _, _ = strings.Cut(code, "\n}\n")
	if !strings.Contains(read(t, "README.md"), "```go\n"+code+"\n}\n```\n") {
		t.Errorf("README.md: found other Go code, expected\n%s\n}", code)
	}

	const labels, d, states, queries, k = 3000, 32, 2000, 50, 5
	data := synthetic.Structured(labels, d, 40, states+queries, 1)
	w, bias := make([]float32, labels*d), data.Layer.Bias()
	for i := range labels {
		data.Layer.Weights().Widen(w[i*d:][:d], i)
	}
	s, err := fast(t.Context(), w, bias, data.Contexts[:states*d], d)
	if err != nil {
		t.Fatal(err)
	}
	hits, top := 0, make([]softmax.Prediction, k)
	for q := range queries {
		h := data.Contexts[(states+q)*d:][:d]
		n, err := s.TopK(top, h)
		if err != nil || n != k {
			t.Fatalf("found %d labels and the error %v, expected %d and none", n, err, k)
		}
		// The oracle: all logits by a plain loop, sorted.
		logits := make([]float64, labels)
		order := make([]uint32, labels)
		for i := range logits {
			for j, x := range h {
				logits[i] += float64(w[i*d+j]) * float64(x)
			}
			logits[i] += float64(bias[i])
			order[i] = uint32(i)
		}
		slices.SortFunc(order, func(a, b uint32) int {
			if logits[a] > logits[b] {
				return -1
			}
			return 1
		})
		for _, p := range top {
			if slices.Contains(order[:k], p.ID) {
				hits++
			}
			if diff := p.Logit - logits[p.ID]; diff > 1e-9 || diff < -1e-9 {
				t.Errorf("label %d: found the logit %v, expected %v", p.ID, p.Logit, logits[p.ID])
			}
		}
	}
	if hits < 98*queries*k/100 {
		t.Errorf("found %d of %d best labels, expected 98%% at least", hits, queries*k)
	}
}
