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

// count is the number n_ts of contexts of a cell that have a label.
type count struct{ label, n uint32 }

// countLabels counts the labels of the contexts of each cell, without the zeros.
func countLabels(ctx context.Context, c *corpus.Corpus, p *corpus.Partition) ([][]count, error) {
	counts := make([][]count, p.Cells())
	tables := make([][]uint32, c.Threads) // one dense row of counts a worker, zero between cells
	err := parallel.Each(ctx, c.Threads, p.Cells(), 1, nil, func(worker, t, _ int) error {
		if tables[worker] == nil {
			tables[worker] = make([]uint32, c.Labels)
		}
		table := tables[worker]
		var seen []uint32
		for _, i := range p.Members(t) {
			for _, s := range c.LabelsOf(i) {
				if table[s] == 0 {
					seen = append(seen, s)
				}
				table[s]++
			}
		}
		list := make([]count, len(seen))
		for j, s := range seen {
			list[j] = count{s, table[s]}
			table[s] = 0
		}
		counts[t] = list
		return nil
	})
	return counts, err
}

// ByCounts returns the shares n_ts/N_t of the labels that contexts of a cell have, in no
// order.
func ByCounts(ctx context.Context, c *corpus.Corpus, p *corpus.Partition) ([][]Label, error) {
	counts, err := countLabels(ctx, c, p)
	if err != nil {
		return nil, err
	}
	shares := make([][]Label, len(counts))
	for t, list := range counts {
		shares[t] = make([]Label, len(list))
		for j, x := range list {
			shares[t][j] = Label{x.label, float64(x.n) / float64(p.Size(t))}
		}
	}
	return shares, nil
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
	met, err := countLabels(ctx, c, p)
	if err != nil {
		return nil, err
	}
	shares := make([][]Label, len(pairs))
	type scratch struct {
		table []float64 // the share of every label, zero between pairs
		seen  []uint32
		list  []Label
	}
	workers := make([]scratch, c.Threads)
	err = parallel.Each(ctx, c.Threads, len(pairs), 1, done, func(worker, j, _ int) error {
		w := &workers[worker]
		if w.table == nil {
			w.table = make([]float64, c.Labels)
		}
		table, seen, list, cell := w.table, w.seen[:0], w.list[:0], len(single)+j
		add := func(s uint32, p float64) {
			if table[s] == 0 {
				seen = append(seen, s)
			}
			table[s] += p
		}
		whole := float64(p.Size(cell)) + pairWeight
		for _, t := range pairs[j] {
			for _, x := range single[t] {
				add(x.ID, float64(pairWeight/2*x.Share)/whole)
			}
		}
		for _, x := range met[cell] {
			add(x.label, float64(x.n)/whole)
		}
		for _, s := range seen {
			if keep(table[s]) {
				list = append(list, Label{s, table[s]})
			}
			table[s] = 0
		}
		w.seen, w.list, shares[j] = seen, list, slices.Clone(list)
		return nil
	})
	return shares, err
}
