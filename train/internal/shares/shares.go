// Package shares estimates how likely each label is among the k best of a context of a
// cell.
package shares

import (
	"context"

	"github.com/learning-to-screen/l2s/internal/ground/parallel"
	"github.com/learning-to-screen/l2s/train/internal/corpus"
)

// Label is a label with its share p_ts: the probability that it is among the labels of a
// context of a cell.
type Label struct {
	ID    uint32
	Share float64
}

// tally holds the numbers n_ts of contexts of a cell that have a label. It is empty between two
// cells.
type tally struct {
	n    []uint32 // of every label
	seen []uint32 // the labels that are not at zero
}

// count counts the labels of contexts.
func (t *tally) count(c *corpus.Corpus, contexts []uint32) {
	for _, i := range contexts {
		for _, s := range c.LabelsOf(i) {
			if t.n[s] == 0 {
				t.seen = append(t.seen, s)
			}
			t.n[s]++
		}
	}
}

// ByCounts returns the shares n_ts/N_t of the labels that contexts of a cell have, in no
// order.
func ByCounts(ctx context.Context, c *corpus.Corpus, p *corpus.Partition) ([][]Label, error) {
	shares := make([][]Label, p.Cells())
	fresh := func() *tally { return &tally{n: make([]uint32, c.Labels)} }
	err := parallel.With(ctx, c.Threads, len(shares), 1, nil, fresh, func(w *tally, t, _ int) error {
		w.count(c, p.Members(t))
		shares[t] = make([]Label, len(w.seen))
		for j, s := range w.seen {
			shares[t][j] = Label{s, float64(w.n[s]) / float64(p.Size(t))}
			w.n[s] = 0
		}
		w.seen = w.seen[:0]
		return nil
	})
	return shares, err
}
