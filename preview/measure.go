package preview

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/softmax"
)

// ladder are the rungs that are measured.
var ladder = []Rung{
	{Deviations: 1, Reach: 4, Share: 0.02, Most: 400},
	{Deviations: 1.5, Reach: 4.5, Share: 0.03, Most: 600},
	{Deviations: 2, Reach: 5, Share: 0.05, Most: 800},
	{Deviations: 2.5, Reach: 5.5, Share: 0.08, Most: 1200},
	{Deviations: 3, Reach: 6, Share: 0.12, Most: 2000},
	{Deviations: 3.5, Reach: 6.5, Share: 0.2, Most: 3000},
	{Deviations: 4, Reach: 7.25, Share: 0.25, Most: 4000},
	{Deviations: 4.5, Reach: 8, Share: 0.35, Most: 6000},
	{Deviations: 5.5, Reach: 9.5, Share: 0.6, Most: 10000},
}

// truth are the exact best labels of contexts.
func truth(ctx context.Context, l *softmax.Layer, contexts []float32, k int, done func(int)) ([]softmax.Prediction, error) {
	d := l.Dim()
	n := len(contexts) / d
	best := make([]softmax.Prediction, n*k)
	err := parallel.With(ctx, 0, n, 16, done, func() *softmax.Searcher { return softmax.NewSearcher(l) }, func(s *softmax.Searcher, lo, hi int) error {
		answers := make([]softmax.Answer, hi-lo)
		return s.SearchBatch(best[lo*k:hi*k], answers, contexts[lo*d:hi*d], softmax.Request{K: k})
	})
	return best, err
}

// measure finds the rungs of the model by contexts that it was not made from.
func (m *Model) measure(ctx context.Context, l *softmax.Layer, held []float32, opt *Options) error {
	n := len(held) / m.dim
	m.heldOut, m.rungs, m.normal = n, slices.Clone(ladder), len(ladder)-2
	if n == 0 {
		for i := range m.rungs {
			m.rungs[i].Kept = float64(i + 1)
		}
		return nil
	}
	count := parallel.Counter(n, func(done int) { opt.Progress("precision", 0.6*float64(done)/float64(n)) })
	best, err := truth(ctx, l, held, m.k, count)
	if err != nil {
		return err
	}
	sigmas := make([]float64, n)
	miss1, missK := make([]int, n), make([]int, n)
	stats := make([]Stats, n)
	for i := range m.rungs {
		x := &m.rungs[i]
		err := parallel.Each(ctx, 0, n, 64, nil, func(_, lo, hi int) error {
			s, err := m.newSearcher(l)
			if err != nil {
				return err
			}
			found := make([]softmax.Prediction, m.k)
			for c := lo; c < hi; c++ {
				s.stats = Stats{}
				if err := s.query[0].Set(held[c*m.dim : (c+1)*m.dim]); err != nil {
					return err
				}
				want := best[c*m.k : (c+1)*m.k]
				if _, err := s.search(found[:1], &softmax.Request{K: 1}, x); err != nil {
					return err
				}
				miss1[c] = misses(found[:1], want[:1])
				s.stats = Stats{}
				if _, err := s.search(found, &softmax.Request{K: m.k}, x); err != nil {
					return err
				}
				missK[c] = misses(found, want)
				sigmas[c], stats[c] = s.sigma, s.stats
			}
			return nil
		})
		if err != nil {
			return err
		}
		x.Precision1, x.PrecisionK = intervalOf(miss1, 1), intervalOf(missK, m.k)
		x.Looked, x.Kept, x.Exact = 0, 0, 0
		for _, s := range stats {
			x.Looked += float64(s.Looked) / float64(m.labels) / float64(n)
			x.Kept += float64(s.Kept) / float64(n)
			x.Exact += float64(s.Exact) / float64(n)
		}
		opt.Progress("precision", 0.6+0.4*float64(i+1)/float64(len(m.rungs)))
	}
	slices.SortStableFunc(m.rungs, func(a, b Rung) int { return cmp.Compare(a.Kept, b.Kept) })
	p1, pk := cmp.Or(opt.Precision1, 0.9995), cmp.Or(opt.PrecisionK, 0.998)
	m.normal = len(m.rungs) - 1
	for i, r := range m.rungs {
		if r.Precision1.Value >= p1 && r.PrecisionK.Value >= pk {
			m.normal = i
			break
		}
	}
	slices.Sort(sigmas)
	m.far = sigmas[(len(sigmas)*999)/1000]
	if math.IsInf(m.far, 0) {
		m.far = 0
	}
	return nil
}

// misses returns how many of the labels that are wanted were not found.
func misses(found, want []softmax.Prediction) (n int) {
	for _, p := range want {
		if !slices.ContainsFunc(found, func(q softmax.Prediction) bool { return q.ID == p.ID }) {
			n++
		}
	}
	return n
}
