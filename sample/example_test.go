package sample_test

import (
	"fmt"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/sample"
)

// A decoding loop with temperature and top-p, that never draws "maybe" and leans towards the end. A
// language model would make the next context of the token; here a context is the row of the last
// word.
func Example() {
	words := []string{"<eos>", "the", "cat", "sat", "maybe", "down"}
	weights := l2s.Float32([]float32{ // a row for each word
		0, 0, 0, 0, 0, 9,
		9, 0, 0, 0, 0, 0,
		0, 9, 0, 0, 0, 0,
		0, 0, 9, 0, 0, 0,
		5, 5, 5, 5, 5, 5,
		0, 0, 0, 9, 0, 0,
	}, 6)
	layer, err := l2s.New(weights, nil)
	if err != nil {
		panic(err)
	}
	o := sample.DefaultOptions()
	o.Order, o.Temperature, o.TopP, o.Seed = sample.VLLM(), 0.8, 0.9, 1
	sampler, err := sample.New(layer, nil, o)
	if err != nil {
		panic(err)
	}
	edits := sample.Edits{Banned: bitset.New(len(words)), Biases: []l2s.Bias{{ID: 0, Add: 0.5}}}
	edits.Banned.Add(4)
	token := sample.Token{}
	for range 10 {
		h := make([]float32, len(words))
		h[token.ID] = 1
		if token, err = sampler.Draw(h, edits); err != nil {
			panic(err)
		}
		fmt.Print(words[token.ID], " ")
		if token.ID == 0 {
			break
		}
	}
	// Output: the cat sat down <eos>
}
