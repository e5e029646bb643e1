// Package shares estimates how likely each label is among the k best of a context of a
// cell.
package shares

import (
	"context"
	"slices"

	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/train/internal/corpus"
)

// Label is a label with its share p_ts: the probability that it is among the labels of a
// context of a cell.
type Label struct {
	ID    uint32
	Share float64
}

// tally holds the numbers n_ts of contexts of a cell that have a label. Between cells it is empty.
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

// pairWeight is the number of contexts that the mean of the shares in the two cells of a
// pair counts for beside the contexts of the pair.
const pairWeight = 200

// OfPairs returns the shares of labels in pairs of cells, those that keep keeps. single are
// the shares in all cells before the pairs, and p has the contexts of all cells, pairs last.
// done is told of pairs.
//
// A context whose best two clusters are nearly equally good has the labels of neither,
// but of the border between them. So its shares are the counts on the contexts of the pair,
// smoothed towards the mean of the shares in its two cells.
func OfPairs(ctx context.Context, c *corpus.Corpus, single [][]Label, pairs [][2]uint32, p *corpus.Partition, keep func(share float64) bool, done func(int)) ([][]Label, error) {
	shares := make([][]Label, len(pairs))
	type scratch struct {
		tally
		mean []float64 // of every label, its part of the share by the two cells; zero between pairs
		list []Label
	}
	fresh := func() *scratch {
		return &scratch{tally: tally{n: make([]uint32, c.Labels)}, mean: make([]float64, c.Labels)}
	}
	err := parallel.With(ctx, c.Threads, len(pairs), 1, done, fresh, func(w *scratch, j, _ int) error {
		cell := len(single) + j
		whole := float64(p.Size(cell)) + pairWeight
		w.count(c, p.Members(cell))
		for _, t := range pairs[j] {
			for _, x := range single[t] {
				if w.n[x.ID] == 0 && w.mean[x.ID] == 0 {
					w.seen = append(w.seen, x.ID)
				}
				w.mean[x.ID] += float64(pairWeight/2*x.Share) / whole
			}
		}
		for _, s := range w.seen {
			if share := w.mean[s] + float64(w.n[s])/whole; keep(share) {
				w.list = append(w.list, Label{s, share})
			}
			w.n[s], w.mean[s] = 0, 0
		}
		shares[j], w.list, w.seen = slices.Clone(w.list), w.list[:0], w.seen[:0]
		return nil
	})
	return shares, err
}
