// Package synthetic makes softmax layers, contexts and screens for measurements at shapes without a
// real model.
package synthetic

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/screening"
)

// Data is a layer and contexts for it.
type Data struct {
	Layer    *l2s.Layer
	Exact    *exact.Layer // the same
	Contexts []float32    // n x dim

	directions []float32 // topics x dim
}

// Len returns the number of contexts.
func (d *Data) Len() int { return len(d.Contexts) / d.Layer.Dim() }

// Context returns context i.
func (d *Data) Context(i int) []float32 {
	dim := d.Layer.Dim()
	return d.Contexts[i*dim : (i+1)*dim]
}

// normal draws normal numbers from a pool, which is faster than afresh.
type normal struct {
	*rand.Rand
	pool []float32
}

func newNormal(seed uint64) *normal {
	n := &normal{rand.New(rand.NewPCG(seed, 0x73796e)), make([]float32, 1<<16+1)}
	for i := range n.pool {
		n.pool[i] = float32(n.NormFloat64())
	}
	return n
}

// fill fills x with normal numbers of a standard deviation.
func (n *normal) fill(x []float32, deviation float64) []float32 {
	at := n.IntN(len(n.pool))
	for i := range x {
		x[i] = n.pool[at] * float32(deviation)
		if at++; at == len(n.pool) {
			at = 0
		}
	}
	return x
}

// Structured returns a layer and n contexts whose logits are spread as in
// a language model: each label leans towards one of some topic directions,
// each context too. With unit directions u and normal noise of norm 1,
//
//	w_s = a_s u_z(s) + 0.5 noise,  a_s uniform in [0.3, 1]
//	h   = 10 (u_t + 0.5 noise)
//	b_s = -0.1 log(1 + s), the tilt towards frequent labels
//
// so that the labels of the context's topic lead, a few thousandths of ||h|| ||w|| apart, and the
// int8 envelope leaves about the same number of survivors as on a real layer.
func Structured(labels, dim, topics, n int, seed uint64) *Data {
	r := newNormal(seed)
	u := r.fill(make([]float32, topics*dim), 1)
	for t := range topics {
		row := u[t*dim : (t+1)*dim]
		var norm float64
		for _, x := range row {
			norm += float64(x) * float64(x)
		}
		for i := range row {
			row[i] /= float32(math.Sqrt(norm))
		}
	}
	lean := func(x []float32, scale float64) {
		t := r.IntN(topics)
		for i := range x {
			x[i] += float32(scale) * u[t*dim+i]
		}
	}
	half := 0.5 / math.Sqrt(float64(dim))
	w, b := make([]float32, labels*dim), make([]float32, labels)
	for s := range labels {
		row := r.fill(w[s*dim:(s+1)*dim], half)
		lean(row, 0.3+0.7*r.Float64())
		b[s] = float32(-0.1 * math.Log(float64(1+s)))
	}
	h := make([]float32, n*dim)
	for c := range n {
		row := r.fill(h[c*dim:(c+1)*dim], 10*half)
		lean(row, 10)
	}
	l, err := l2s.New(l2s.Float32(w, dim), b)
	if err != nil {
		panic(err)
	}
	return &Data{l, (*engine.Layer)(l).Exact(), h, u}
}

// Screen returns the screen of structured data with a cluster for each topic, whose list is
// the size labels with the largest logits at its direction.
func (d *Data) Screen(size int) (*l2s.Index, error) {
	dim := d.Layer.Dim()
	s := exact.NewSearcher(d.Exact)
	top := make([]exact.Prediction, size)
	lists := make([]screening.List, len(d.directions)/dim)
	h := make([]float32, dim)
	for t := range lists {
		for i := range h {
			h[i] = 10 * d.directions[t*dim+i]
		}
		if _, err := s.TopK(top, h); err != nil {
			return nil, err
		}
		for _, p := range top {
			lists[t].IDs = append(lists[t].IDs, p.ID)
		}
		slices.Sort(lists[t].IDs)
	}
	return Screen(screening.Config{
		Dim: dim, Labels: d.Layer.Labels(), Clusters: d.directions, Lists: lists, Fingerprint: d.Layer.Fingerprint(),
	})
}

// Screen returns the screen of c.
func Screen(c screening.Config) (*l2s.Index, error) {
	m, err := screening.NewModel(c)
	if err != nil {
		return nil, err
	}
	return (*l2s.Index)(engine.OfScreen(m)), nil
}
