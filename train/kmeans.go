package train

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/train/internal/rng"
)

// unitRows makes contexts into directions: invNorm[i] = 1/||h_i||, and 0 for a
// context that is zero (or so near to it that the inverse overflows), which
// has no direction and takes no part in the means.
func unitRows(ctx context.Context, d *data) ([]float32, error) {
	invNorm := make([]float32, d.n)
	err := parallel.Each(ctx, d.threads, d.n, assignChunk, nil, func(_, lo, hi int) error {
		for i := lo; i < hi; i++ {
			h := d.row(uint32(i))
			inv := float32(1 / math.Sqrt(kernels.RefDot(h, h)))
			if !math.IsInf(float64(inv), 0) {
				invNorm[i] = inv
			}
		}
		return nil
	})
	return invNorm, err
}

// kMeans is spherical k-means (Dhillon and Modha 2001) over directions
// u_i = h_i/||h_i||: each context belongs to the cluster of the largest
// v_t.u_i, and v_t is the mean of its directions, renormalised. The objective,
// the mean of v_t.u_i, never falls.
//
// In the form by mini-batches (Sculley 2010) an iteration takes a sample of the
// contexts instead of all, and v_t is the renormalised mean of the directions
// of all samples so far that were of cluster t, each by the v of its time.
type kMeans struct {
	*data
	clusters int
	invNorm  []float32
	v        []float32 // clusters x dim, rows of length 1
	cluster  []uint32  // of each context, for the present v once all iterations are done
	past     *kMeansPast
	history  []KMeansIteration
}

// kMeansPast is what the mini-batches before this one leave to it.
type kMeansPast struct {
	sums []float64 // clusters x dim: of the directions of each cluster
	seen []int     // contexts of each cluster
}

// kMeansTolerance ends the iterations: the gain in mean cosine below which
// another one is not worth its time.
const kMeansTolerance = 1e-5

// sphericalKMeans clusters all contexts, in at most the given number of
// iterations, over samples of the given size unless it is 0 or no fewer than
// all.
func sphericalKMeans(ctx context.Context, d *data, clusters, iterations, batch int) (*kMeans, error) {
	invNorm, err := unitRows(ctx, d)
	if err != nil {
		return nil, err
	}
	m := &kMeans{data: d, clusters: clusters, invNorm: invNorm, cluster: make([]uint32, d.n)}
	if err := m.plant(ctx); err != nil {
		return nil, err
	}
	iterate := m.iterate
	if batch > 0 && batch < d.n {
		iterate = func(ctx context.Context, iteration int) (KMeansIteration, error) {
			return m.iterateOver(ctx, iteration, batch)
		}
		m.past = &kMeansPast{make([]float64, clusters*d.dim), make([]int, clusters)}
	}
	for iteration := 1; iteration <= iterations; iteration++ {
		now, err := iterate(ctx, iteration)
		if err != nil {
			return nil, err
		}
		if m.past == nil && iteration > 1 && now.Moved == 0 {
			break
		}
		m.history = append(m.history, now)
		d.report.message(fmt.Sprintf("k-means %d of %d: mean cosine %.5f, %d contexts moved", iteration, iterations, now.Objective, now.Moved))
		// From sample to sample the figure goes up and down.
		if last := len(m.history) - 1; m.past == nil && last > 0 && now.Objective-m.history[last-1].Objective < kMeansTolerance {
			break
		}
	}
	_, err = m.assign(ctx, nil)
	return m, err
}

// assign gives each context its best cluster and returns how many changed.
func (m *kMeans) assign(ctx context.Context, done func(int)) (moved int, err error) {
	c := clusters{levels{clusters: m.clusters}, m.v, m.cluster, nil}
	return c.route(ctx, m.data, done)
}

// iterate is one iteration over all contexts of the view. If none has
// moved after the first, v is what it was.
func (m *kMeans) iterate(ctx context.Context, iteration int) (now KMeansIteration, err error) {
	if now.Moved, err = m.assign(ctx, m.report.stage(StageKMeans, iteration, m.n)); err != nil {
		return now, err
	}
	if m.past == nil && iteration > 1 && now.Moved == 0 {
		return now, nil
	}
	all := m.all()
	p := newPartition(all, m.cluster, m.clusters)
	if p, err = m.fillEmpty(ctx, all, p); err != nil {
		return now, err
	}
	now.Objective, err = m.update(ctx, p)
	return now, err
}

// iterateOver is one iteration over a sample: ascending, as a mapped file is
// best read, and the same for any number of threads.
func (m *kMeans) iterateOver(ctx context.Context, iteration, batch int) (KMeansIteration, error) {
	random := rng.New(m.seed, rng.MiniBatches, uint64(iteration))
	ids := random.Sample(m.n, batch)
	sample := &kMeans{
		data: m.part(ids), clusters: m.clusters, invNorm: make([]float32, batch),
		v: m.v, cluster: make([]uint32, batch), past: m.past,
	}
	before := make([]uint32, batch)
	for j, i := range ids {
		sample.invNorm[j], before[j] = m.invNorm[i], m.cluster[i]
	}
	copy(sample.cluster, before)
	now, err := sample.iterate(ctx, iteration)
	for j, i := range ids {
		m.cluster[i] = sample.cluster[j]
	}
	return now, err
}

// fillEmpty gives each empty cluster a context of its own: the one that fits
// its cluster worst, from a cluster of two or more, and no two that are the
// same. Contexts that fit all but perfectly are left alone, so that with fewer
// directions than clusters some stay empty and keep their v.
func (m *kMeans) fillEmpty(ctx context.Context, all []uint32, p *partition) (*partition, error) {
	var empty []int
	for t := range m.clusters {
		if p.size(t) == 0 && (m.past == nil || m.past.seen[t] == 0) {
			empty = append(empty, t)
		}
	}
	if len(empty) == 0 {
		return p, nil
	}
	cosine := make([]float64, m.n)
	err := parallel.Each(ctx, m.threads, m.n, assignChunk, nil, func(_, lo, hi int) error {
		for i := lo; i < hi; i++ {
			t := int(m.cluster[i])
			cosine[i] = float64(kernels.RefDot(m.v[t*m.dim:(t+1)*m.dim], m.row(uint32(i))) * float64(m.invNorm[i]))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	const same = 1 - 1e-6 // cosine of two directions taken for one
	worst := slices.DeleteFunc(slices.Clone(all), func(i uint32) bool { return m.invNorm[i] == 0 || cosine[i] >= same })
	slices.SortFunc(worst, func(a, b uint32) int {
		return cmp.Or(cmp.Compare(cosine[a], cosine[b]), cmp.Compare(a, b))
	})
	left := make([]int, m.clusters)
	for t := range left {
		left[t] = p.size(t)
	}
	var taken []uint32
	for _, i := range worst {
		if len(taken) == len(empty) {
			break
		}
		from := m.cluster[i]
		if left[from] < 2 || slices.ContainsFunc(taken, func(j uint32) bool {
			c := float64(kernels.RefDot(m.row(i), m.row(j)) * float64(m.invNorm[i]))
			return float64(c*float64(m.invNorm[j])) >= same
		}) {
			continue
		}
		to := uint32(empty[len(taken)])
		left[from]--
		left[to]++
		m.cluster[i] = to
		// The old v of an empty cluster is nobody's: its one member is its v.
		scaleTo(m.v[int(to)*m.dim:(int(to)+1)*m.dim], m.row(i), m.invNorm[i])
		taken = append(taken, i)
	}
	return newPartition(all, m.cluster, m.clusters), nil
}

// updateBlock is the number of contexts whose directions are summed before any
// of the next is read, whatever their clusters: so a mapped file is read from
// its start to its end, once.
const updateBlock = 1 << 14

// update sets each v_t to the direction of the sum of its contexts'
// directions, with the directions of the past, and returns the mean of v_t.u_i after it.
// A cluster without contexts, or whose directions cancel out, keeps its v.
func (m *kMeans) update(ctx context.Context, p *partition) (objective float64, err error) {
	sums := make([]float64, m.clusters*m.dim)
	next := make([]int, m.clusters) // of the members
	for end := 0; end < m.n; {
		end = min(end+updateBlock, m.n)
		err := parallel.Each(ctx, m.threads, m.clusters, 1, nil, func(_, t, _ int) error {
			members := p.members(t)
			sum := sums[t*m.dim : (t+1)*m.dim]
			for ; next[t] < len(members) && int(members[next[t]]) < end; next[t]++ {
				if i := members[next[t]]; m.invNorm[i] != 0 {
					kernels.Axpy(sum, m.invNorm[i], m.row(i))
				}
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	for t := range m.clusters {
		sum := sums[t*m.dim : (t+1)*m.dim]
		whole := sum
		if m.past != nil {
			whole = m.past.sums[t*m.dim : (t+1)*m.dim]
			for j, x := range sum {
				whole[j] += x
			}
			m.past.seen[t] += p.size(t)
		}
		square := 0.0
		for _, x := range whole {
			square += float64(x * x)
		}
		length := math.Sqrt(square)
		if length == 0 {
			continue
		}
		v := m.v[t*m.dim : (t+1)*m.dim]
		for j, x := range whole {
			v[j] = float32(x / length)
		}
		if m.past == nil {
			objective += length // the sum of the cosines to the sum's direction
			continue
		}
		cosines := 0.0
		for j, x := range sum {
			cosines += float64(x * (whole[j] / length))
		}
		objective += cosines
	}
	return objective / float64(m.n), nil
}

// scaleTo sets dst to a x.
func scaleTo(dst, x []float32, a float32) {
	for j := range dst {
		dst[j] = float32(a * x[j])
	}
}
