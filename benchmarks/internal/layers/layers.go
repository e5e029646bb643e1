// Package layers makes softmax layers and contexts for measurements where no
// real model of the shape is at hand.
package layers

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// Data is a layer and contexts for it.
type Data struct {
	Layer    *softmax.Layer
	Contexts []float32 // n x dim
}

// Len returns the number of contexts.
func (d *Data) Len() int { return len(d.Contexts) / d.Layer.Dim() }

// Context returns context i.
func (d *Data) Context(i int) []float32 {
	dim := d.Layer.Dim()
	return d.Contexts[i*dim : (i+1)*dim]
}

// Topics is the number of directions that Structured draws from.
const Topics = 100

// Structured returns a layer and n contexts whose logits are spread as those
// of a language model: each label leans towards one of 100 topic directions,
// each context too. With unit directions u and normal noise of norm 1,
//
//	w_s = a_s u_z(s) + 0.5 noise,  a_s uniform in [0.3, 1]
//	h   = 10 (u_t + 0.5 noise)
//	b_s = -0.1 log(1 + s), the tilt towards frequent labels
//
// so that the labels of the context's topic lead, some 0.7% of ||h|| ||w||
// apart, and the int8 envelope leaves about as many survivors as on a real
// layer. It also returns what is known of the structure.
func Structured(labels, dim, n int, seed uint64) (*Data, *Topical) {
	r := rand.New(rand.NewPCG(seed, 1))
	unit := make([]float32, Topics*dim)
	for t := range Topics {
		row := unit[t*dim : (t+1)*dim]
		var norm float64
		for i := range row {
			row[i] = float32(r.NormFloat64())
			norm += float64(row[i]) * float64(row[i])
		}
		for i := range row {
			row[i] /= float32(math.Sqrt(norm))
		}
	}
	noise := func() float32 { return float32(0.5 * r.NormFloat64() / math.Sqrt(float64(dim))) }
	w, b := make([]float32, labels*dim), make([]float32, labels)
	for s := range labels {
		t := r.IntN(Topics)
		a := float32(0.3 + 0.7*r.Float64())
		for i := range dim {
			w[s*dim+i] = a*unit[t*dim+i] + noise()
		}
		b[s] = float32(-0.1 * math.Log(float64(1+s)))
	}
	h := make([]float32, n*dim)
	for c := range n {
		t := r.IntN(Topics)
		for i := range dim {
			h[c*dim+i] = 10 * (unit[t*dim+i] + noise())
		}
	}
	layer, err := softmax.NewLayer(w, b, dim)
	if err != nil {
		panic(err)
	}
	return &Data{layer, h}, &Topical{unit}
}

// Structureless returns a layer and n contexts of independent normal
// numbers: the worst case of the int8 envelope, since nothing stands out.
func Structureless(labels, dim, n int, seed uint64) *Data {
	r := rand.New(rand.NewPCG(seed, 2))
	normal := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	layer, err := softmax.NewLayer(normal(labels*dim), normal(labels), dim)
	if err != nil {
		panic(err)
	}
	return &Data{layer, normal(n * dim)}
}

// Topical is what is known of a structured layer: its topic directions.
type Topical struct{ unit []float32 }

// Model returns the screen with a cluster for each topic whose sets hold
// size labels: those with the largest logits at the topic's direction.
func (tp *Topical) Model(layer *softmax.Layer, size int) (*screen.Model, error) {
	dim := layer.Dim()
	q := softmax.NewQuery(dim)
	all := make([]softmax.Prediction, layer.Labels())
	sets := make([][]uint32, Topics)
	h := make([]float32, dim)
	for t := range sets {
		for i := range h {
			h[i] = 10 * tp.unit[t*dim+i]
		}
		if err := q.Set(h); err != nil {
			return nil, err
		}
		layer.TopK(all, q)
		for _, p := range all[:size] {
			sets[t] = append(sets[t], p.ID)
		}
		slices.Sort(sets[t])
	}
	return screen.NewModel(screen.Config{
		Dim: dim, Labels: layer.Labels(), Clusters: tp.unit, Sets: sets, Fingerprint: layer.Fingerprint(),
	})
}
