package tail

import (
	"context"
	"math"
	"slices"
	"sync"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
	"github.com/learning-to-screen/l2s/internal/search/tail"
	"github.com/learning-to-screen/l2s/train/internal/corpus"
)

// beyond is the part of a range by which a context may exceed it: of the range of lengths, of the
// roots of the other square, and of logs. Lengths that hardly differ, as of normalised states, may
// differ by leastBeyond more, in parts of the length.
const (
	beyond      = 0.1
	leastBeyond = 0.01
)

// ranges returns the ranges of the clusters, see tail.Config, over all contexts of c: the
// contexts drawn for the fit are too few for the range of the others. A context of zeros is
// skipped: it is like no other, and its length would widen the range over all lengths. A cluster
// without contexts to fit to has no range.
func (f *fit) ranges(ctx context.Context, c *corpus.Corpus, cells []uint32, t *tail.Config) ([]float64, error) {
	each := 2 + f.temps // ranges of a cluster
	fresh := func() []float64 {
		list := make([]float64, 2*each*f.clusters)
		for i := range list {
			list[i] = math.Inf(1 - i%2*2)
		}
		return list
	}
	all, mu := fresh(), sync.Mutex{}
	err := parallel.Each(ctx, c.Threads, c.N, 1<<12, nil, func(_, lo, hi int) error {
		own, buffer := fresh(), c.Buffer()
		for i := lo; i < hi; i++ {
			cell := int(cells[i])
			cluster := f.router.ClusterOf(cell)
			if len(f.fitted[cluster]) == 0 {
				continue
			}
			h := c.Row(uint32(i), buffer)
			norm, along := tail.SquaresOf(f.directions, h)
			if norm == 0 {
				continue
			}
			list := own[2*each*cluster:]
			see := func(j int, x float64) { list[2*j], list[2*j+1] = min(list[2*j], x), max(list[2*j+1], x) }
			see(0, norm)
			see(1, along)
			if len(f.candidates(cells[i])) == f.Labels { // there is no tail
				continue
			}
			for k := range f.temps {
				row := k*f.clusters + cluster
				var product [1]float64
				kernels.Float32Rows(t.Slopes[row*f.Dim:][:f.Dim], f.Dim).RefScan(product[:], nil, h)
				log := product[0] + float64(t.Intercepts[row])
				log += float64(float64(t.Squares[2*row])*norm) + float64(float64(t.Squares[2*row+1])*along)
				see(2+k, log)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		for i := 0; i < len(all); i += 2 {
			all[i], all[i+1] = min(all[i], own[i]), max(all[i+1], own[i+1])
		}
		return nil
	})
	for i := 0; i < len(all); i += 2 {
		if low, high := all[i], all[i+1]; low > high { // nothing was seen
			continue
		} else if i/2%each < 2 {
			low, high = math.Sqrt(low), math.Sqrt(high)
			wide := float64(beyond*(high-low)) + float64(leastBeyond*high)
			low, high = max(0, low-wide), high+wide
			all[i], all[i+1] = float64(low*low), float64(high*high)
		} else {
			wide := float64(beyond * (high - low))
			all[i], all[i+1] = low-wide, high+wide
		}
	}
	return all, err
}

// findCosines returns the least and the middle cosine of the contexts of each cluster, see
// tail.Config, over all contexts of c. A context of zeros is skipped. A cluster without contexts to
// fit to has no contexts of its kind.
func (f *fit) findCosines(ctx context.Context, c *corpus.Corpus, cells []uint32) ([]float64, error) {
	cosines := make([]float64, c.N)
	err := parallel.Each(ctx, c.Threads, c.N, 1<<12, nil, func(_, lo, hi int) error {
		buffer := c.Buffer()
		for i := lo; i < hi; i++ {
			h := c.Row(uint32(i), buffer)
			if cosines[i] = math.NaN(); kernels.RefDot(h, h) > 0 {
				cosines[i] = f.router.CosineOf(f.router.ClusterOf(int(cells[i])), h)
			}
		}
		return nil
	})
	of := make([][]float64, f.clusters)
	for i, x := range cosines {
		if t := f.router.ClusterOf(int(cells[i])); x == x && len(f.fitted[t]) > 0 {
			of[t] = append(of[t], x)
		}
	}
	pairs := make([]float64, 0, 2*f.clusters)
	for _, list := range of {
		least, middle := math.Inf(1), math.Inf(1)
		if len(list) > 0 {
			slices.Sort(list)
			least, middle = list[0], list[len(list)/2]
		}
		pairs = append(pairs, least, middle)
	}
	return pairs, err
}
