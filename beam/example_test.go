package beam_test

import (
	"context"
	"fmt"
	"log"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/beam"
)

var words = []string{"<s>", "</s>", "a", "dog", "runs"}

// chain is a decoder whose context is the embedding of the last word.
type chain struct{ contexts []float32 }

func (c *chain) Step(_ []int, tokens []uint32) ([]float32, error) {
	c.contexts = c.contexts[:0]
	for _, token := range tokens {
		h := make([]float32, len(words))
		h[token] = 1
		c.contexts = append(c.contexts, h...)
	}
	return c.contexts, nil
}

// A search over the layer itself; an index of l2s.Load, in place of nil, makes it faster.
func Example() {
	n := len(words)
	weights := make([]float32, n*n) // row s, column t: the logit of s after t
	weights[2*n+0] = 4              // a after <s>
	weights[3*n+2] = 5              // dog after a
	weights[4*n+3] = 3              // runs after dog
	weights[1*n+4] = 6              // </s> after runs
	layer, err := l2s.New(l2s.Float32(weights, n), nil)
	if err != nil {
		log.Fatal(err)
	}
	searcher, err := l2s.NewSearcher(layer, nil, l2s.Options{})
	if err != nil {
		log.Fatal(err)
	}
	search, err := beam.New(&chain{}, searcher, beam.Options{Width: 2, MaxLen: 10, Start: 0, End: 1, Alpha: 1})
	if err != nil {
		log.Fatal(err)
	}
	results, err := search.Run(context.Background(), 1)
	if err != nil {
		log.Fatal(err)
	}
	for _, id := range results[0].Tokens {
		fmt.Print(words[id], " ")
	}
	fmt.Printf("(%.3f a word)\n", results[0].Score)
	// Output: a dog runs (-0.072 a word)
}
