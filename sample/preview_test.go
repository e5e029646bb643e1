package sample_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/tests/synthetic"
	"github.com/learning-to-screen/l2s/preview"
	"github.com/learning-to-screen/l2s/sample"
)

// A draw over a preview equals the draw over the layer with the same seed if the preview finds all
// labels that the chain may keep. With chains that do not begin with a top-k or a min-p it always
// equals the draw over the layer.
func TestDrawsOverAPreviewAreThoseOfTheLayer(t *testing.T) {
	d := synthetic.Structured(3000, 32, 20, 700, 5)
	m, err := preview.Make(context.Background(), d.Layer, l2s.Float32(d.Contexts[:600*32], d.Layer.Dim()), preview.Options{})
	if err != nil {
		t.Fatal(err)
	}
	banned, err := bitset.FromIDs(3000, []uint32{1, 5, 77, 2000})
	if err != nil {
		t.Fatal(err)
	}
	few := make([]uint32, 0, 100)
	for i := range 100 {
		few = append(few, uint32(i*30))
	}
	allowed, err := bitset.FromIDs(3000, few)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		set   func(o *sample.Options)
		edits sample.Edits
		exact bool // the layer always answers
	}{
		"greedy":         {func(o *sample.Options) { o.Temperature = 0 }, sample.Edits{}, false},
		"top-k":          {func(o *sample.Options) { o.TopK, o.TopP = 40, 0.95 }, sample.Edits{}, false},
		"min-p":          {func(o *sample.Options) { o.MinP = 0.05 }, sample.Edits{}, false},
		"vLLM":           {func(o *sample.Options) { o.Order, o.MinP, o.TopK, o.Temperature = sample.VLLM(), 0.1, 20, 0.7 }, sample.Edits{}, false},
		"banned":         {func(o *sample.Options) { o.TopK = 40 }, sample.Edits{Banned: banned}, false},
		"biased":         {func(o *sample.Options) { o.TopK = 5 }, sample.Edits{Biases: []l2s.Bias{{ID: 9, Add: 100}, {ID: 10, Add: -100}}}, false},
		"penalties":      {func(o *sample.Options) { o.TopK, o.Repetition, o.Presence = 10, 1.3, 0.5 }, sample.Edits{History: []uint32{1, 2, 3, 3, 1500, 70000}}, false},
		"allowed":        {func(o *sample.Options) { o.TopK = 40 }, sample.Edits{Allowed: allowed}, true},
		"no truncation":  {func(*sample.Options) {}, sample.Edits{}, true},
		"top-p alone":    {func(o *sample.Options) { o.TopP = 0.9 }, sample.Edits{}, true},
		"a top-k of 600": {func(o *sample.Options) { o.TopK = 600 }, sample.Edits{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := sample.DefaultOptions()
			c.set(&o)
			o.Seed = 3
			exact, err := sample.New(d.Layer, nil, o)
			if err != nil {
				t.Fatal(err)
			}
			over, err := sample.New(d.Layer, m, o)
			if err != nil {
				t.Fatal(err)
			}
			const n = 100
			same := 0
			for i := range n {
				h := d.Context(600 + i)
				want, err := exact.Draw(h, c.edits)
				if err != nil {
					t.Fatal(err)
				}
				got, err := over.Draw(h, c.edits)
				if err != nil {
					t.Fatal(err)
				}
				from, all := distribution(over), distribution(exact)
				if got.ID == want.ID && got.LogProb == want.LogProb {
					same++
				} else if from != "" && from == all {
					t.Errorf("context %d: found %+v, expected %+v: both were drawn from the same labels", i, got, want)
				}
				if c.exact && got != want {
					t.Errorf("context %d: found %+v, expected %+v of the layer", i, got, want)
				}
			}
			if same < n*9/10 { // the rungs' default finds .998 of five best
				t.Errorf("found %d of %d draws equal, expected nearly all", same, n)
			}
			layer := over.Stats().Layer
			if c.exact && layer != n || !c.exact && layer > n/2 {
				t.Errorf("the layer answered %d of %d draws, always: %v", layer, n, c.exact)
			}
		})
	}
	if _, err := sample.New(newLayer(t, 1, 3000, 32), m, sample.DefaultOptions()); err == nil {
		t.Error("found a sampler over another layer than the preview's, expected an error")
	}
}

// distribution prints the distribution of the last token.
func distribution(s *sample.Sampler) string {
	x, ok := s.Distribution(nil)
	if !ok {
		return ""
	}
	return fmt.Sprint(slices.Clone(x))
}
