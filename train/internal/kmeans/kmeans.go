// Package kmeans finds clusters of contexts by spherical k-means.
package kmeans

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/codes/floats"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
	"github.com/learning-to-screen/l2s/internal/ground/stage"
	"github.com/learning-to-screen/l2s/internal/search/router"
	"github.com/learning-to-screen/l2s/train/internal/corpus"
	"github.com/learning-to-screen/l2s/train/internal/rng"
)

// Iteration are the figures of one iteration.
type Iteration struct {
	// Objective is the mean cosine of a context to the vector of its cluster, after the
	// vectors were updated.
	Objective float64 `json:"objective"`
	// Moved is the number of contexts that changed their cluster.
	Moved int `json:"moved"`
}

const (
	// perCluster bounds the contexts of a cluster, on average, that take part: more find no better
	// clusters.
	perCluster = 2000
	// tolerance is the gain in mean cosine below which another iteration is not worth its time.
	tolerance = 1e-5
)

// Find clusters the contexts, or evenly spaced ones of many (Dhillon and Modha 2001), in at
// most the given number of iterations. It returns clusters vectors of length 1, row-major.
//
// The clusters are over directions u_i = h_i/||h_i||: each context belongs to the cluster of
// the largest v_t.u_i, and v_t is the mean of its directions, renormalised.
func Find(ctx context.Context, c *corpus.Corpus, clusters, iterations int) (v []float32, history []Iteration, err error) {
	m, err := newKMeans(ctx, c.Spaced(perCluster*clusters), clusters)
	if err != nil {
		return nil, nil, err
	}
	if err := m.plant(ctx); err != nil {
		return nil, nil, err
	}
	for iteration := 1; iteration <= iterations; iteration++ {
		moved, err := m.assign(ctx, m.Report.Stage(stage.KMeans, iteration, m.N))
		if err != nil {
			return nil, nil, err
		}
		if iteration > 1 && moved == 0 {
			break
		}
		objective, err := m.update(ctx, corpus.NewPartition(m.cluster, clusters))
		if err != nil {
			return nil, nil, err
		}
		history = append(history, Iteration{objective, moved})
		m.Report.Message(fmt.Sprintf("k-means %d of %d: mean cosine %.5f, %d contexts moved", iteration, iterations, objective, moved))
		if last := len(history) - 1; last > 0 && objective-history[last-1].Objective < tolerance {
			break
		}
	}
	return m.v, history, nil
}

// kMeans is a clustering under way.
type kMeans struct {
	*corpus.Corpus
	clusters int
	// invNorm[i] is 1/||h_i||, and 0 for a context that is zero (or so near to zero that the
	// inverse overflows), which has no direction and is not part of the means.
	invNorm []float32
	v       []float32 // clusters x dim, rows of length 1
	cluster []uint32  // of each context
	found   []router.Found
}

func newKMeans(ctx context.Context, c *corpus.Corpus, clusters int) (*kMeans, error) {
	m := &kMeans{Corpus: c, clusters: clusters, invNorm: make([]float32, c.N), v: make([]float32, clusters*c.Dim), cluster: make([]uint32, c.N)}
	err := parallel.Each(ctx, c.Threads, c.N, corpus.Chunk, nil, func(_, lo, hi int) error {
		buffer := c.Buffer()
		for i := lo; i < hi; i++ {
			h := c.Row(uint32(i), buffer)
			inv := float32(1 / math.Sqrt(kernels.RefDot(h, h)))
			if !math.IsInf(float64(inv), 0) {
				m.invNorm[i] = inv
			}
		}
		return nil
	})
	return m, err
}

// assign gives each context its best cluster and returns the number of contexts that changed.
func (m *kMeans) assign(ctx context.Context, done func(int)) (moved int, err error) {
	_, m.found, err = m.RouteTo(ctx, m.v, m.found, done)
	for i, f := range m.found {
		if t := uint32(f.Cluster); t != m.cluster[i] {
			m.cluster[i] = t
			moved++
		}
	}
	return moved, err
}

// updateBlock is the number of contexts whose directions are summed before the next block is read,
// for all clusters: so a mapped file is read from its start to its end, once.
const updateBlock = 1 << 14

// update sets each v_t, and returns the mean of v_t.u_i after it. A cluster without
// contexts, or whose directions cancel out, keeps its v.
func (m *kMeans) update(ctx context.Context, p *corpus.Partition) (objective float64, err error) {
	sums := make([]float64, m.clusters*m.Dim)
	next := make([]int, m.clusters) // of the members
	for end := 0; end < m.N; {
		end = min(end+updateBlock, m.N)
		err := parallel.Each(ctx, m.Threads, m.clusters, 1, nil, func(_, t, _ int) error {
			members, buffer := p.Members(t), m.Buffer()
			sum := sums[t*m.Dim : (t+1)*m.Dim]
			for ; next[t] < len(members) && int(members[next[t]]) < end; next[t]++ {
				if i := members[next[t]]; m.invNorm[i] != 0 {
					floats.Axpy(sum, m.invNorm[i], m.Row(i, buffer))
				}
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	for t := range m.clusters {
		sum := sums[t*m.Dim : (t+1)*m.Dim]
		square := 0.0
		for _, x := range sum {
			square += float64(x * x)
		}
		length := math.Sqrt(square)
		if length == 0 {
			continue
		}
		v := m.v[t*m.Dim : (t+1)*m.Dim]
		for j, x := range sum {
			v[j] = float32(x / length)
		}
		objective += length // the sum of the cosines to the sum's direction
	}
	return objective / float64(m.N), nil
}

// plant chooses the first v by k-means++ (Arthur and Vassilvitskii 2007) on a sample: each next
// one is a context drawn with probability proportional to its squared distance, 2 - 2 cosine, to
// the nearest chosen so far. If all of the sample are as good as chosen it repeats one of them.
func (m *kMeans) plant(ctx context.Context) error {
	random := rng.New(m.Seed, rng.Seeding, 0)
	ids := random.Sample(m.N, min(m.N, max(20000, 50*m.clusters)))
	ids = slices.DeleteFunc(ids, func(i uint32) bool { return m.invNorm[i] == 0 })
	if len(ids) == 0 {
		return ctx.Err() // no directions: every v is zero
	}
	rows, buffer := make([]float32, len(ids)*m.Dim), m.Buffer()
	for j, i := range ids {
		for a, x := range m.Row(i, buffer) {
			rows[j*m.Dim+a] = m.invNorm[i] * x
		}
	}
	distance := make([]float64, len(ids)) // 1 - cosine to the nearest chosen
	cosine := make([]float64, len(ids))
	for j := range distance {
		distance[j] = 1
	}
	const chunk = 1024
	done := m.Report.Part(stage.KMeans, "seeds", "clusters", m.clusters)
	for t := range m.clusters {
		chosen := draw(&random, distance)
		v := m.v[t*m.Dim : (t+1)*m.Dim]
		copy(v, rows[chosen*m.Dim:(chosen+1)*m.Dim])
		err := parallel.Each(ctx, m.Threads, len(ids), chunk, nil, func(_, lo, hi int) error {
			kernels.Float32Rows(rows[lo*m.Dim:hi*m.Dim], m.Dim).RefScan(cosine[lo:hi], nil, v)
			for j := lo; j < hi; j++ {
				distance[j] = min(distance[j], max(0, 1-cosine[j]))
			}
			return nil
		})
		if err != nil {
			return err
		}
		if distance[chosen] = 0; done != nil {
			done(1)
		}
	}
	return nil
}

// draw returns an index with probability proportional to its weight; with all
// weights zero every index is equally likely.
func draw(random *rng.Source, weights []float64) int {
	sum := 0.0
	for _, w := range weights {
		sum += w
	}
	if sum == 0 {
		return int(random.Below(uint64(len(weights))))
	}
	x := float64(random.Uniform() * sum)
	last := 0
	for j, w := range weights {
		if w == 0 {
			continue
		}
		last = j
		if x -= w; x < 0 {
			break
		}
	}
	return last
}
