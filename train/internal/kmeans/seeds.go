package kmeans

import (
	"context"
	"slices"

	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/train/internal/rng"
)

// seedSample is the number of contexts k-means++ chooses from: enough for many
// in each cluster, or all.
func seedSample(n, clusters int) int { return min(n, max(20000, 50*clusters)) }

// plant chooses the first v by k-means++ (Arthur and Vassilvitskii 2007) on a
// sample: each next one is a context drawn with probability proportional to
// its squared distance, 2 - 2 cosine, to the nearest chosen so far. If all
// contexts of the sample are as good as chosen it repeats one of them.
func (m *kMeans) plant(ctx context.Context) error {
	random := rng.New(m.Seed, rng.Seeding, 0)
	ids := random.Sample(m.N, seedSample(m.N, m.clusters))
	ids = slices.DeleteFunc(ids, func(i uint32) bool { return m.invNorm[i] == 0 })
	if len(ids) == 0 {
		return ctx.Err() // no directions: every v is zero
	}
	rows, buffer := make([]float32, len(ids)*m.Dim), m.Buffer()
	for j, i := range ids {
		scaleTo(rows[j*m.Dim:(j+1)*m.Dim], m.Row(i, buffer), m.invNorm[i])
	}
	distance := make([]float64, len(ids)) // 1 - cosine to the nearest chosen
	cosine := make([]float64, len(ids))
	for j := range distance {
		distance[j] = 1
	}
	const chunk = 1024
	done := m.Report.Part(Stage, "seeds", "clusters", m.clusters)
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
