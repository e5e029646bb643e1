package llamacpp_test

import (
	"fmt"
	"log"

	"github.com/hybridgroup/yzma/pkg/llama"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/llamacpp"
)

// A program that has a model of yzma: the hook takes the place of llama.InitFromModel, its Decode
// replaces llama.Decode, and the head replaces llama.SamplerSample.
func ExampleNewHook() {
	model, err := llama.ModelLoadFromFile("M.gguf", llama.ModelDefaultParams())
	if err != nil {
		log.Fatal(err)
	}
	hook, err := llamacpp.NewHook(model, llama.ContextDefaultParams()) // was llama.InitFromModel
	if err != nil {
		log.Fatal(err)
	}
	defer hook.Close()
	index, err := l2s.Load("M.l2s")
	if err != nil {
		log.Fatal(err)
	}
	x, err := llamacpp.OpenHead("M.gguf", llamacpp.HeadOptions{Index: index}) // once, for all goroutines
	if err != nil {
		log.Fatal(err)
	}
	defer x.Close()
	if err := hook.Check(x); err != nil { // for architectures that are not known
		log.Fatal(err)
	}
	tokens := llama.Tokenize(llama.ModelGetVocab(model), "Are you ready to go?", true, false)
	best := make([]l2s.Prediction, 1)
	for range 12 {
		h, err := hook.Decode(llama.BatchGetOne(tokens)) // was llama.Decode
		if err != nil {
			log.Fatal(err)
		}
		if _, err := x.Search(best, h, l2s.Request{}); err != nil { // was llama.SamplerSample
			log.Fatal(err)
		}
		tokens = []llama.Token{llama.Token(best[0].ID)}
		fmt.Print(best[0].ID, " ")
	}
}
