package main

import (
	"cmp"
	"context"
	"slices"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/beam"
	"github.com/learning-to-screen/l2s/benchmarks/internal/inorder"
	"github.com/learning-to-screen/l2s/benchmarks/internal/marian"
)

const (
	// longer is how many times as long as its sentence a translation may be, as in Firefox: 2.5.
	longer = 2.5
	// together is the number of sentences of similar length that are translated at once, so that the
	// weights are read once for all.
	together = 16
)

// limit is the number of steps of a translation of a sentence of n pieces.
func limit(n int) int { return int(longer * float64(n)) }

// translation is the result for a sentence, and the contexts of its hypotheses, step by step, if they
// are recorded.
type translation struct {
	pieces []uint32
	steps  [][]float32
}

// translator translates by one head, on one goroutine.
type translator struct {
	m       *marian.Model
	encoder *marian.Encoder
	decoder *marian.Decoder
	finder  finder
	width   int
	end     uint32
	record  bool
	list    []translation // of the sentences at work
}

func newTranslator(m *marian.Model, h head, width int, end uint32, record bool) (*translator, error) {
	f, err := h.open()
	return &translator{m: m, encoder: m.NewEncoder(marian.Int8), decoder: m.NewDecoder(marian.Int8), finder: f, width: width, end: end, record: record}, err
}

// translate translates sentences together.
func (t *translator) translate(ctx context.Context, sentences [][]uint32) ([]translation, error) {
	sources, err := t.encoder.Encode(sentences)
	if err != nil {
		return nil, err
	}
	longest := 0
	for _, s := range sentences {
		longest = max(longest, len(s))
	}
	t.decoder.Start(sources)
	t.list = make([]translation, len(sentences))
	if err := t.finder.begin(sentences); err != nil {
		return nil, err
	}
	search, err := beam.New(t, t, beam.Options{Width: t.width, MaxLen: limit(longest), End: t.end, Alpha: 1})
	if err != nil {
		return nil, err
	}
	found, err := search.Run(ctx, len(sentences))
	for i, h := range found { // a sentence is cut by its own length, not by that of others
		x, most := &t.list[i], limit(len(sentences[i]))
		x.pieces = slices.Clone(h.Tokens[:min(most, len(h.Tokens))])
		x.steps = x.steps[:min(most, len(x.steps))]
	}
	return t.list, err
}

// Step is that of the decoder.
func (t *translator) Step(parents []int, pieces []uint32) ([]float32, error) {
	h, err := t.decoder.Step(parents, pieces)
	if t.record && err == nil {
		d, last := t.m.Dim(), -1
		for i, s := range t.decoder.Of() { // the hypotheses of a sentence follow each other
			x := &t.list[s]
			if s != last {
				x.steps, last = append(x.steps, nil), s
			}
			x.steps[len(x.steps)-1] = append(x.steps[len(x.steps)-1], h[i*d:][:d]...)
		}
	}
	return h, err
}

// SearchBatch asks the head. Greedy decoding needs no sums: those of one label, with its logit for
// its log-probability, give the same translation.
func (t *translator) SearchBatch(dst []l2s.Prediction, answers []l2s.Answer, contexts []float32, _ l2s.Request) error {
	return t.finder.find(dst, answers, contexts, t.decoder.Of(), t.width > 1)
}

// Search is not called by package beam.
func (t *translator) Search(dst []l2s.Prediction, h []float32, r l2s.Request) (l2s.Answer, error) {
	answers := make([]l2s.Answer, 1)
	err := t.SearchBatch(dst, answers, h, r)
	return answers[0], err
}

// all translates all sentences of a text on some threads, 0 for all cores, and returns them in order.
func all(ctx context.Context, m *marian.Model, x *text, h head, width, threads int, end uint32, record bool, progress func(done int)) ([]translation, error) {
	order := make([]int, len(x.pieces))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(x.pieces[a]), len(x.pieces[b])) })
	list, at := make([]translation, len(order)), 0
	err := inorder.Run(ctx, (len(order)+together-1)/together, threads, func() func(context.Context, int) ([]translation, error) {
		t, err := newTranslator(m, h, width, end, record)
		return func(ctx context.Context, i int) ([]translation, error) {
			if err != nil {
				return nil, err
			}
			var sentences [][]uint32
			for _, j := range order[i*together : min((i+1)*together, len(order))] {
				sentences = append(sentences, x.pieces[j])
			}
			return t.translate(ctx, sentences)
		}
	}, func(done []translation) error {
		for _, y := range done {
			list[order[at]] = y
			at++
		}
		progress(at)
		return nil
	})
	return list, err
}
