package head_test

import (
	"fmt"
	"log"
	"path/filepath"

	"github.com/learning-to-screen/l2s/head"
	"github.com/learning-to-screen/l2s/internal/kernels"
)

// The head of a model of llama.cpp, whose rows stay in the file: the best label for
// a context, and its log-probability.
func ExampleOpen() {
	h, err := head.Open(filepath.Join("..", "internal", "heads", "testdata", "gguf", "head-q6_k.gguf"), head.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	fmt.Println(h)

	context := make([]float32, h.Dim())
	for i := range context {
		context[i] = float32(i%7) - 3
	}
	logits := make([]float64, h.Labels())
	err = h.Read(func() error { // so that Close waits, and a file cut off is an error
		h.Rows().RefScan(logits, h.Bias(), context)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	best := 0
	final := make([]float64, len(logits))
	for i, x := range logits {
		if final[i] = h.Logit(x); x > logits[best] {
			best = i
		}
	}
	fmt.Printf("label %d: logit %.3f, final %.3f, log-probability %.3f\n", best, logits[best], final[best], final[best]-kernels.LogSumExp(final))
	// Output:
	// output.weight, 48 x 512 q6_k, mapped; no bias; soft cap 30
	// label 27: logit 47.804, final 27.620, log-probability -0.010
}
