package tail

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
	"github.com/learning-to-screen/l2s/train/internal/corpus"
	"github.com/learning-to-screen/l2s/train/internal/rng"
)

// draw draws the contexts of each cluster.
func (f *fit) draw() {
	cluster := make([]uint32, f.N)
	var open []uint32
	for i, cell := range f.cells {
		cluster[i] = uint32(f.screen.Router.ClusterOf(int(cell)))
		if len(f.candidates(cell)) < f.Labels {
			open = append(open, uint32(i))
		}
	}
	p := corpus.NewPartition(open, cluster, f.clusters)
	f.fitted, f.held = make([][]uint32, f.clusters), make([][]uint32, f.clusters)
	for t := range f.clusters {
		random, ids := rng.New(f.Seed, rng.Tail, uint64(t)), slices.Clone(p.Members(t))
		random.Shuffle(ids)
		n := int(math.Ceil(float64(f.opt.Share * float64(len(ids)))))
		ids = ids[:min(n, f.opt.PerCluster)]
		held := int(float64(f.opt.HeldOut * float64(len(ids))))
		f.held[t], f.fitted[t] = ids[:held:held], ids[held:]
		slices.Sort(f.held[t])
		slices.Sort(f.fitted[t])
	}
}

// candidates are those of a cell.
func (f *fit) candidates(cell uint32) []uint32 {
	list := &f.screen.Lists[cell]
	n, _ := slices.BinarySearchFunc(list.Shares, f.screen.Share, func(s, share uint16) int {
		if s >= share {
			return -1
		}
		return 1
	})
	return list.IDs[:n]
}

// members are the contexts of a cluster that were drawn.
func (f *fit) members(t int) []uint32 { return slices.Concat(f.fitted[t], f.held[t]) }

// square finds the directions, and the squares of the contexts drawn. As features the
// squares are scaled such that the ridge, which is in proportion to the variance of an
// element of a context, hardly weighs on them.
func (f *fit) square(ctx context.Context) (err error) {
	n := min(f.opt.Directions, f.Dim, f.Labels)
	done := f.Report.Part(Stage, "directions", "steps", directionRounds*n)
	if f.directions, err = directions(ctx, f.screen.Layer, n, f.Seed, f.Threads, done); err != nil {
		return err
	}
	f.width, f.squares = f.Dim+2, make([][2]float64, f.N)
	type sums struct {
		elements float64
		squares  [2]float64
	}
	within := make([]sums, f.clusters) // squared distances from the means
	err = parallel.Each(ctx, f.Threads, f.clusters, 1, nil, func(_, t, _ int) error {
		ids, buffer := f.members(t), f.Buffer()
		mean, means := make([]float64, f.Dim), [2]float64{}
		for _, i := range ids {
			h := f.Row(i, buffer)
			f.squares[i][0], f.squares[i][1] = screen.SquaresOf(f.directions, h)
			for j, x := range h {
				mean[j] += float64(x) / float64(len(ids))
			}
			for j, x := range f.squares[i] {
				means[j] += x / float64(len(ids))
			}
		}
		for _, i := range ids {
			for j, x := range f.Row(i, buffer) {
				away := float64(x) - mean[j]
				within[t].elements += float64(away * away)
			}
			for j, x := range f.squares[i] {
				away := x - means[j]
				within[t].squares[j] += float64(away * away)
			}
		}
		return nil
	})
	var all sums
	for _, w := range within {
		all.elements += w.elements / float64(f.Dim)
		for j, x := range w.squares {
			all.squares[j] += x
		}
	}
	for j, x := range all.squares {
		if x > 0 && finite(x) {
			f.scales[j] = 10 * math.Sqrt(all.elements/x)
		}
	}
	return err
}

// features are the elements of a context and its scaled squares, in dst, which has room for
// them.
func (f *fit) features(dst []float32, i uint32) []float32 {
	dst = append(dst[:0], f.Row(i, dst[:f.Dim])...)
	for j, x := range f.squares[i] {
		dst = append(dst, float32(x*f.scales[j]))
	}
	return dst
}

// chunk is the number of contexts that are searched together.
const chunk = 64

// leastTail is the least part of the sum over all labels that a tail is told apart from
// nothing.
const leastTail = 1e-12

// measure computes the sums within the candidates of each context drawn, and outside them.
func (f *fit) measure(ctx context.Context) error {
	var drawn []uint32
	f.place = make([]int32, f.N)
	for i := range f.place {
		f.place[i] = -1
	}
	for t := range f.clusters {
		for _, i := range f.members(t) {
			f.place[i] = int32(len(drawn))
			drawn = append(drawn, i)
		}
	}
	n := len(drawn) * f.temps
	f.logs, f.heads = make([]float64, n), make([]float64, n)
	type scratch struct {
		*softmax.Searcher
		queries []*softmax.Query
		answers []softmax.Answer
	}
	workers := make([]scratch, f.Threads)
	for i := range workers {
		workers[i] = scratch{softmax.NewSearcher(f.screen.Layer), corpus.NewQueries(chunk, f.Dim), make([]softmax.Answer, chunk)}
	}
	return parallel.Each(ctx, f.Threads, len(drawn), chunk, f.Report.Stage(Stage, 0, len(drawn)), func(worker, lo, hi int) error {
		w, ids, buffer := &workers[worker], drawn[lo:hi], f.Buffer()
		for j, i := range ids {
			if err := w.queries[j].Set(f.Row(i, buffer)); err != nil {
				return fmt.Errorf("context %d: %w", i, err)
			}
		}
		// sums are those of queries among labels, the first of them of context first.
		sums := func(dst []float64, first, end int, among softmax.Labels) error {
			for k, temperature := range f.opt.Temperatures {
				req := softmax.Request{Among: among, LogSum: true, Temperature: temperature}
				if err := w.Find(nil, w.answers[:end-first], w.queries[first:end], &req); err != nil {
					return err
				}
				for j, a := range w.answers[:end-first] {
					dst[(first+j)*f.temps+k] = a.LogSum
				}
			}
			return nil
		}
		logs, heads := f.logs[lo*f.temps:hi*f.temps], f.heads[lo*f.temps:hi*f.temps]
		if err := sums(logs, 0, len(ids), softmax.Labels{}); err != nil {
			return err
		}
		for j, i := range ids {
			if err := sums(heads, j, j+1, softmax.Only(f.candidates(f.cells[i]))); err != nil {
				return err
			}
		}
		for j, head := range heads {
			logs[j] += kernels.Log(max(leastTail, 1-kernels.Exp(head-logs[j])))
		}
		return nil
	})
}
