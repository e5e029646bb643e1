// Package kmeans finds clusters of contexts by spherical k-means.
package kmeans

import (
	"context"
	"fmt"
	"math"

	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/internal/router"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/train/internal/corpus"
)

// Stage is the name of the stage.
const Stage = "k-means"

// Iteration are the figures of one iteration.
type Iteration struct {
	// Objective is the mean cosine of a context to the vector of its cluster, after the
	// vectors were updated.
	Objective float64 `json:"objective"`
	// Moved is the number of contexts that changed their cluster.
	Moved int `json:"moved"`
}

// perCluster bounds the contexts of a cluster, on average, that take part: more take longer and
// find no better clusters.
const perCluster = 2000

// tolerance ends the iterations: the gain in mean cosine below which another one
// is not worth its time.
const tolerance = 1e-5

// Find clusters the contexts, or evenly spaced ones of many (Dhillon and Modha 2001), in at
// most the given number of iterations. It returns clusters vectors of length 1, row-major.
//
// The clusters are over directions u_i = h_i/||h_i||: each context belongs to the cluster of
// the largest v_t.u_i, and v_t is the mean of its directions, renormalised. The objective,
// the mean of v_t.u_i, never falls.
func Find(ctx context.Context, c *corpus.Corpus, clusters, iterations int) (v []float32, history []Iteration, err error) {
	m, err := newKMeans(ctx, c.Spaced(perCluster*clusters), clusters)
	if err != nil {
		return nil, nil, err
	}
	if err := m.plant(ctx); err != nil {
		return nil, nil, err
	}
	for iteration := 1; iteration <= iterations; iteration++ {
		now, err := m.iterate(ctx, iteration)
		if err != nil {
			return nil, nil, err
		}
		if iteration > 1 && now.Moved == 0 {
			break
		}
		history = append(history, now)
		m.Report.Message(fmt.Sprintf("k-means %d of %d: mean cosine %.5f, %d contexts moved", iteration, iterations, now.Objective, now.Moved))
		if last := len(history) - 1; last > 0 && now.Objective-history[last-1].Objective < tolerance {
			break
		}
	}
	return m.v, history, nil
}

// kMeans is a clustering under way.
type kMeans struct {
	*corpus.Corpus
	clusters int
	// invNorm[i] is 1/||h_i||, and 0 for a context that is zero (or so near to it that the
	// inverse overflows), which has no direction and takes no part in the means.
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

// assign gives each context its best cluster and returns how many changed.
func (m *kMeans) assign(ctx context.Context, done func(int)) (moved int, err error) {
	r, err := router.New(router.Config{Dim: m.Dim, Clusters: m.v})
	if err != nil {
		return 0, err
	}
	m.found, err = m.Route(ctx, r, m.found, done)
	for i, f := range m.found {
		if t := uint32(f.Cluster); t != m.cluster[i] {
			m.cluster[i] = t
			moved++
		}
	}
	return moved, err
}

// iterate is one iteration. If no context has moved after the first, v is what it was.
func (m *kMeans) iterate(ctx context.Context, iteration int) (now Iteration, err error) {
	if now.Moved, err = m.assign(ctx, m.Report.Stage(Stage, iteration, m.N)); err != nil {
		return now, err
	}
	if iteration > 1 && now.Moved == 0 {
		return now, nil
	}
	now.Objective, err = m.update(ctx, corpus.NewPartition(m.All(), m.cluster, m.clusters))
	return now, err
}

// updateBlock is the number of contexts whose directions are summed before any
// of the next is read, whatever their clusters: so a mapped file is read from
// its start to its end, once.
const updateBlock = 1 << 14

// update sets each v_t to the direction of the sum of its contexts'
// directions, and returns the mean of v_t.u_i after it.
// A cluster without contexts, or whose directions cancel out, keeps its v.
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
					kernels.Axpy(sum, m.invNorm[i], m.Row(i, buffer))
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

// scaleTo sets dst to a x.
func scaleTo(dst, x []float32, a float32) {
	for j := range dst {
		dst[j] = float32(a * x[j])
	}
}
