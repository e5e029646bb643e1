package engine_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/learning-to-screen/l2s/internal/search/previewing"
	"github.com/learning-to-screen/l2s/llamacpp"
	"github.com/learning-to-screen/l2s/llamacpp/internal/engine"
)

// reasons checks that each token that the exact layer chooses though there is a preview has a reason, of
// an engine with a preview: where few labels count as many, of odd texts and of others.
func reasons(t *testing.T, e *engine.Engine, m *llamacpp.Model) {
	t.Helper()
	r := rand.New(rand.NewPCG(5, 7))
	texts := [][]uint32{m.Tokens(prompts[0], true)}
	for i := range 8 { // of odd tokens, some of a few alone
		odd := make([]uint32, 60)
		for j := range odd {
			if odd[j] = uint32(3000 + r.IntN(60_000)); i%2 == 0 && j > i {
				odd[j] = odd[j%(i+1)]
			}
		}
		texts = append(texts, odd)
	}
	ask := func(prompt []uint32, reasons bool) engine.Result {
		job, _ := collect(t, e, context.Background(), engine.Request{Prompt: prompt, Most: 8, LogProbs: -1, Sampling: greedy(), Reasons: reasons, Fresh: true})
		return end(t, job)
	}
	share := previewing.MaxKeptShare
	defer func() { previewing.MaxKeptShare = share }()
	sum := engine.Fallbacks{}
	for _, share := range []float64{share, 1e-9} {
		for _, prompt := range texts {
			previewing.MaxKeptShare = share
			done := ask(prompt, true)
			if n := done.Fallbacks.Far + done.Fallbacks.Crowded; n != done.Exact {
				t.Errorf("a prompt of %d tokens, a share of %v: found %d reasons for %d tokens", len(prompt), share, n, done.Exact)
			}
			sum.Far, sum.Crowded = sum.Far+done.Fallbacks.Far, sum.Crowded+done.Fallbacks.Crowded
			if silent := ask(prompt, false); silent.Fallbacks != (engine.Fallbacks{}) || silent.Exact != done.Exact {
				t.Errorf("a prompt of %d tokens: found %+v without reasons, expected %d tokens and none", len(prompt), silent, done.Exact)
			}
		}
	}
	if sum.Crowded == 0 {
		t.Errorf("found the reasons %+v, expected some of the crowded states", sum)
	}
	// A state in all directions is unlike those of the model.
	h := make([]float32, m.Dim())
	for i := range h {
		h[i] = float32(30 * r.NormFloat64())
	}
	previewing.MaxKeptShare = share
	c, err := engine.NewChooser(e.Head(), greedy())
	if err != nil {
		t.Fatal(err)
	}
	if found := engine.Doubt(c, h); found != (engine.Fallbacks{Far: 1}) {
		t.Errorf("a long state in all directions: found %+v, expected it far", found)
	}
}
