package housetest

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/kernels"
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

// TestTheCodeOfTheGoPageRuns runs it.
func TestTheCodeOfREADMEIsThisFunction(t *testing.T) {
	source, err := os.ReadFile("readme_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(source), "word for word.\n\n")
	code, _, _ = strings.Cut(code, "\n}\n")
	if !strings.Contains(read(t, "README.md"), "```go\n"+code+"\n}\n```\n") {
		t.Errorf("README.md: found other Go code, expected\n%s\n}", code)
	}
}
