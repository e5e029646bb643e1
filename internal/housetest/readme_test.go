package housetest

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/preview"
)

// README has this function, word for word.

func fast(ctx context.Context, w, b, states []float32, d int) (*l2s.Searcher, error) {
	layer, err := l2s.New(l2s.Float32(w, d), b) // w: d numbers per label; or l2s.Open("model.gguf", ...)
	if err != nil {
		return nil, err
	}
	index, err := preview.Make(ctx, layer, states, preview.Options{}) // from 4,000 contexts or more
	if err != nil {
		return nil, err
	}
	return l2s.NewSearcher(layer, index, l2s.Options{}) // n, err := searcher.TopK(top, h)
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
