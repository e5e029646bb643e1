package shares

import (
	"context"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/codes/floats"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/train/internal/corpus"
)

// Counts know only the labels in a cluster's contexts. Its contexts tell more: they are around
// their mean mu, and the distance of every label s from the k best of a context can be computed:
// x_s = w_s.h + b_s - tau with tau the k-th largest logit of h. The share of s in a cluster comes
// from a distribution of x_s, with
//
//	mean      w_s.mu + b_s - m_tau
//	variance  the one over a sample of the cluster's contexts, shrunk towards the one over
//	          all clusters, scaled to the cluster's own spread, and (1 + 1/N_t) of
//	          it, since mu is itself estimated
//
// as the probability of x_s >= 0, and the counts are smoothed towards it. The variance of x_s, and
// not the two variances of w_s.h and tau, accounts for the covariance of the two. The distribution
// is normal, with a small part of a wider one.
const (
	// geometrySample is the number of contexts of a cluster whose x_s are looked at, at most, for
	// labels whose share by the variance over all clusters is above geometryWorth.
	geometrySample = 64
	geometryWorth  = 3e-5
	// geometryPooled is the number of contexts of all clusters that the variance
	// is shrunk towards.
	geometryPooled = 128
	// geometryShrink is the number of contexts that the variance over all clusters counts for,
	// compared with the contexts of the cluster's sample.
	geometryShrink = 64
	// geometryWide is the part of the probability that a normal distribution of geometryWidth times
	// the standard deviation has. Contexts in use are sometimes further out than contexts of
	// training; without this part the sets end too early.
	geometryWide  = 0.05
	geometryWidth = 2
	// geometryPlausible bounds the labels of a cluster that are looked at: those
	// whose logits at mu are largest.
	geometryPlausible = 8192
	// geometryLeast is the share below which a label that no context of the
	// cluster has is left out.
	geometryLeast = 1e-6
	// geometryBatch is the number of clusters that are searched together.
	geometryBatch = 16
	// varianceChunk is the number of labels whose variances one thread finds at a time.
	varianceChunk = 64
)

// Geometry has the spread of the contexts of the clusters.
type Geometry struct {
	*corpus.Corpus
	layer   *exact.Layer
	stage   string
	cluster []uint32          // of each context of the view
	own     *corpus.Partition // of the contexts
	tau     []float64         // of each context of the view: its k-th largest logit

	means   []float32   // mu, clusters x dim
	meanTau []float64   // m_tau
	labels  [][]uint32  // the plausible labels of each cluster, by the logit at mu
	logits  [][]float64 // w_s.mu + b_s of each of them
}

// spreadOut has the distances of contexts from the means of their clusters.
type spreadOut struct {
	variance []float64 // of x_s, for each label that is plausible anywhere
	size     float64   // mean of |h - mu|^2
}

// NewGeometry finds the geometry of the clusters of contexts, cluster[i] of clusters for
// context i. Progress is of the stage.
func NewGeometry(ctx context.Context, c *corpus.Corpus, layer *exact.Layer, stage string, cluster []uint32, clusters int) (*Geometry, error) {
	g := &Geometry{Corpus: c, layer: layer, stage: stage, cluster: cluster, own: corpus.NewPartition(cluster, clusters)}
	if err := g.findMeans(ctx, g.begin("means", "contexts", c.N)); err != nil {
		return nil, err
	}
	return g, g.findPlausible(ctx, g.begin("labels near the means", "clusters", clusters))
}

func (g *Geometry) begin(part, unit string, total int) func(int) {
	return g.Report.Part(g.stage, part, unit, total)
}

// Clusters returns the shares of labels in the clusters, in no order: the counts, smoothed
// towards the shares g_ts of the geometry, (n_ts + alpha g_ts) / (N_t + alpha).
func (g *Geometry) Clusters(ctx context.Context, alpha float64) ([][]Label, error) {
	all, err := g.findVariance(ctx, corpus.Ascending(g.N), g.begin("variances", "labels", g.Labels))
	if err != nil {
		return nil, err
	}
	of := &sharesOf{parts: g.own, spread: []*spreadOut{all}, keep: func(float64) bool { return true }}
	return g.smooth(ctx, of, alpha, g.begin("shares", "clusters", g.own.Cells()))
}

// shellWeight is the number of contexts that the shares in the whole cluster count for, compared
// with the contexts of a cell.
const shellWeight = 100

// Shells returns the shares of labels in the clusters in shells, cell shell r + t for cluster t of
// r, given the cell of each context and the shares in the clusters. They are the counts, smoothed
// towards the shares of a geometry of the shell, whose contexts have a wider or narrower spread
// than the contexts of the cluster, and towards the shares in the whole cluster. A label that no
// context of a cell has is included if keep reports true for its share. A cell without contexts has
// the shares of its cluster.
func (g *Geometry) Shells(ctx context.Context, cells []uint32, shells int, clusters [][]Label, alpha float64, keep func(share float64) bool) ([][]Label, error) {
	r := g.own.Cells()
	shell := make([]uint32, g.N)
	for i, cell := range cells {
		shell[i] = cell / uint32(r)
	}
	of := &sharesOf{parts: corpus.NewPartition(cells, r*shells), parents: clusters, weight: shellWeight, keep: keep}
	done := g.begin("variances in shells", "labels", g.Labels*shells)
	members := corpus.NewPartition(shell, shells)
	for j := range shells {
		spread, err := g.findVariance(ctx, members.Members(j), done)
		if err != nil {
			return nil, err
		}
		of.spread = append(of.spread, spread)
	}
	shares, err := g.smooth(ctx, of, 2*alpha, g.begin("shares in shells", "cells", of.parts.Cells()))
	for cell := range shares {
		if of.parts.Size(cell) == 0 {
			shares[cell] = clusters[cell%r]
		}
	}
	return shares, err
}

// findMeans finds tau of the contexts, mu and m_tau.
func (g *Geometry) findMeans(ctx context.Context, done func(int)) error {
	w, bias := g.layer.Weights(), g.layer.Bias()
	g.tau = make([]float64, g.N)
	err := parallel.Each(ctx, g.Threads, g.N, corpus.Chunk, done, func(_, lo, hi int) error {
		buffer := g.Buffer()
		for i := uint32(lo); i < uint32(hi); i++ {
			w.RefGatherDot(g.tau[i:i+1], bias, g.LabelsOf(i)[g.K-1:], g.Row(i, buffer))
		}
		return nil
	})
	if err != nil {
		return err
	}
	clusters := g.own.Cells()
	g.means, g.meanTau = make([]float32, clusters*g.Dim), make([]float64, clusters)
	return parallel.Each(ctx, g.Threads, clusters, 1, nil, func(_, t, _ int) error {
		members := g.own.Members(t)
		sum, tau, buffer := make([]float64, g.Dim), 0.0, g.Buffer()
		for _, i := range members {
			floats.Axpy(sum, 1, g.Row(i, buffer))
			tau += g.tau[i]
		}
		n := max(1, float64(len(members)))
		for j, x := range sum {
			g.mean(t)[j] = float32(x / n)
		}
		g.meanTau[t] = tau / n
		return nil
	})
}

func (g *Geometry) mean(t int) []float32 { return g.means[t*g.Dim : (t+1)*g.Dim] }

// findPlausible finds the labels of the largest logits at the mean of each cluster. That is the
// work of labelling one context per cluster.
func (g *Geometry) findPlausible(ctx context.Context, done func(int)) error {
	clusters, k := g.own.Cells(), min(geometryPlausible, g.Labels)
	g.labels, g.logits = make([][]uint32, clusters), make([][]float64, clusters)
	search := corpus.Search{
		Layer: g.layer, Threads: g.Threads, N: clusters, K: k, Chunk: geometryBatch,
		Set: func(qs []*exact.Query, lo int) error {
			for j, q := range qs {
				if err := q.Set(g.mean(lo + j)); err != nil {
					return err
				}
			}
			return nil
		},
		Take: func(t int, best []exact.Prediction) {
			g.labels[t], g.logits[t] = make([]uint32, k), make([]float64, k)
			for j, p := range best {
				g.labels[t][j], g.logits[t][j] = p.ID, p.Logit
			}
		},
		Done: done,
	}
	return search.Run(ctx)
}

// sampled is a sample of contexts around the means of their clusters.
type sampled struct {
	around []float32 // n x dim: h - mu
	tau    []float64 // tau - m_tau
	square float64   // sum of |h - mu|^2
	x      []float64 // scratch for n values
}

// sample takes n of the contexts, evenly spaced, of the cluster that clusterOf returns.
func (g *Geometry) sample(s *sampled, contexts []uint32, n int, clusterOf func(i uint32) int) {
	s.around, s.tau = slices.Grow(s.around[:0], n*g.Dim)[:n*g.Dim], slices.Grow(s.tau[:0], n)[:n]
	s.x = slices.Grow(s.x[:0], n)[:n]
	s.square = 0
	for j := range n {
		i := contexts[j*len(contexts)/n]
		t := clusterOf(i)
		e, mu := s.around[j*g.Dim:(j+1)*g.Dim], g.mean(t)
		for a, x := range g.Row(i, e) {
			e[a] = x - mu[a]
		}
		s.tau[j] = g.tau[i] - g.meanTau[t]
		s.square += kernels.RefDot(e, e)
	}
}

// squares returns the sum of the squares of the x_s of the sample less their mean, for the label
// with these weights.
func (s *sampled) squares(w []float32) (squares float64) {
	kernels.Float32Rows(s.around, len(w)).RefScan(s.x, nil, w)
	for j, tau := range s.tau {
		s.x[j] -= tau
		squares += float64(s.x[j] * s.x[j])
	}
	return squares
}

// findVariance finds the variance of x_s about the means of the clusters, on a
// sample of the contexts, for the labels that are plausible in any of them.
func (g *Geometry) findVariance(ctx context.Context, contexts []uint32, done func(int)) (*spreadOut, error) {
	var all sampled
	g.sample(&all, contexts, min(geometryPooled, len(contexts)), func(i uint32) int { return int(g.cluster[i]) })
	// The mean of a cluster is the mean of its contexts, which takes a degree of
	// freedom from each.
	clusters := 0
	for t := range g.own.Cells() {
		if g.own.Size(t) > 0 {
			clusters++
		}
	}
	n := float64(len(all.tau))
	if g.N > clusters {
		n *= 1 - float64(clusters)/float64(g.N)
	}
	found := &spreadOut{make([]float64, g.Labels), all.square / n}
	plausible := make([]bool, g.Labels)
	for _, labels := range g.labels {
		for _, s := range labels {
			plausible[s] = true
		}
	}
	err := parallel.Each(ctx, g.Threads, g.Labels, varianceChunk, done, func(_, lo, hi int) error {
		own, row := sampled{around: all.around, tau: all.tau, x: make([]float64, len(all.tau))}, make([]float32, g.Dim)
		for s := lo; s < hi; s++ {
			if plausible[s] {
				g.layer.Weights().Widen(row, s)
				found.variance[s] = own.squares(row) / n
			}
		}
		return nil
	})
	return found, err
}

// sharesOf has the groups of contexts that get shares: clusters, or their cells in shells.
type sharesOf struct {
	parts  *corpus.Partition // of the contexts
	spread []*spreadOut      // of each shell
	// The shares in the clusters of cells, and the number of contexts that they count
	// for. Nil for clusters.
	parents [][]Label
	weight  float64
	keep    func(share float64) bool // of a label that no context has
}

// smooth returns the shares in each part.
func (g *Geometry) smooth(ctx context.Context, of *sharesOf, alpha float64, done func(int)) ([][]Label, error) {
	clusters := g.own.Cells()
	type scratch struct {
		sampled
		row []float32
		tally
		parent []float64 // the share of every label in the cluster of a cell; zero between parts
		shares []Label
	}
	fresh := func() *scratch {
		return &scratch{row: make([]float32, g.Dim), tally: tally{n: make([]uint32, g.Labels)}, parent: make([]float64, g.Labels)}
	}
	table := phiTable()
	shares := make([][]Label, of.parts.Cells())
	err := parallel.With(ctx, g.Threads, len(shares), 1, done, fresh, func(w *scratch, part, _ int) error {
		t, all := part%clusters, of.spread[part/clusters]
		size := g.own.Size(t)
		if size == 0 {
			return nil
		}
		own := func(uint32) int { return t }
		g.sample(&w.sampled, of.parts.Members(part), min(geometrySample, of.parts.Size(part)), own)
		freedom, wider := float64(min(len(w.tau), size-1)), 1+1/float64(size)
		// The spread of the part against the spread of all.
		spread := 1.0
		if all.size > 0 {
			spread = (w.square + float64(geometryShrink*all.size)) / ((freedom + geometryShrink) * all.size)
		}
		w.count(g.Corpus, of.parts.Members(part))
		var parents []Label
		if of.parents != nil {
			parents = of.parents[t]
		}
		for _, x := range parents {
			w.parent[x.ID] = float64(of.weight * x.Share)
		}
		whole := float64(of.parts.Size(part)) + alpha + of.weight
		smoothed := func(s uint32, p float64) float64 {
			return (float64(w.n[s]) + w.parent[s] + float64(alpha*p)) / whole
		}
		add := func(s uint32, p float64) {
			if p = smoothed(s, p); w.n[s] > 0 || p > geometryLeast && of.keep(p) {
				w.shares = append(w.shares, Label{s, p})
			}
			w.n[s], w.parent[s] = 0, 0
		}
		for j, s := range g.labels[t] {
			mean, pooled := g.logits[t][j]-g.meanTau[t], max(float64(spread*all.variance[s]), math.SmallestNonzeroFloat32)
			// So far out the sample adds hardly anything to the pooled variance.
			if p := float64(geometryWide * phi(table, mean/(geometryWidth*math.Sqrt(pooled)))); p < geometryLeast || w.n[s] == 0 && !of.keep(smoothed(s, p)) {
				add(s, 0)
				continue
			}
			p := share(table, mean, float64(pooled*wider))
			if smoothed(s, p) > geometryWorth {
				g.layer.Weights().Widen(w.row, int(s))
				variance := (w.squares(w.row) + float64(geometryShrink*pooled)) / (freedom + geometryShrink)
				p = share(table, mean, float64(variance*wider))
			}
			add(s, p)
		}
		for _, s := range w.seen {
			add(s, 0)
		}
		for _, x := range parents {
			add(x.ID, 0)
		}
		shares[part], w.shares, w.seen = slices.Clone(w.shares), w.shares[:0], w.seen[:0]
		return nil
	})
	return shares, err
}

// share is the probability of x_s >= 0 for this mean and variance.
func share(table []float64, mean, variance float64) float64 {
	z := mean / math.Sqrt(variance)
	return float64((1-geometryWide)*phi(table, z)) + float64(geometryWide*phi(table, z/geometryWidth))
}
