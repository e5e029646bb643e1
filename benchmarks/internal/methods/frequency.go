package methods

import (
	"context"
	"errors"
	"fmt"

	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// Frequency is a static frequency head: the same candidates for every context, the labels that are
// most often among the k best of the contexts of training, and equals by their mean logit. A screen
// must beat it to be worth its clusters. The rows of the head are together in memory, and are
// searched like a separate layer.
type Frequency struct {
	// Sizes are the numbers of labels of the heads, ascending.
	Sizes []int
}

// Name returns "Frequency head".
func (Frequency) Name() string { return "Frequency head" }

// Params returns "".
func (Frequency) Params() string { return "" }

// Build counts in.Labels, which it needs.
func (m Frequency) Build(ctx context.Context, in *Input) (Index, error) {
	if in.Labels == nil {
		return nil, errors.New("methods: the frequency head needs labels, found none")
	}
	order := frequencyOrder(in, in.Contexts)
	x := new(frequencyIndex)
	for _, n := range m.Sizes {
		if n < 1 || n > len(order) {
			return nil, fmt.Errorf("methods: size of a frequency head: found %d, expected 1 to %d", n, len(order))
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p, err := newPart(in.Layer, order[:n])
		if err != nil {
			return nil, err
		}
		x.settings = append(x.settings, head{p})
	}
	return x, nil
}

type frequencyIndex struct{ settings []Setting }

// Bytes returns the memory of the largest head.
func (x *frequencyIndex) Bytes() int64 {
	return x.settings[len(x.settings)-1].(head).Bytes()
}

func (x *frequencyIndex) Settings() []Setting { return x.settings }

// head is a setting: a part of the layer that is all there is.
type head struct{ *part }

func (x head) Params() string { return fmt.Sprintf("n=%d", len(x.ids)) }

func (x head) Bytes() int64 { return x.bytes() }

func (x head) Searcher() Searcher {
	s := newExactSearch(x.layer)
	return searcherFunc(func(dst []exact.Prediction, h []float32) int {
		n := s.topK(dst, h, exact.Labels{})
		for i := range n {
			dst[i].ID = x.ids[dst[i].ID]
		}
		return n
	})
}
