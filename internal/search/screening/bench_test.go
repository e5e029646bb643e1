package screening_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
	"github.com/learning-to-screen/l2s/internal/search/dense"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/router"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/tests/synthetic"
	"github.com/learning-to-screen/l2s/internal/watch/timing"
)

// BenchmarkQueries times whole queries, top-5, at the shapes of real layers.
// Contexts and clusters differ from query to query. Times are of one context.
func BenchmarkQueries(b *testing.B) {
	for _, s := range []struct{ labels, dim, clusters, set int }{
		{10000, 200, 100, 300},
		{10000, 1500, 100, 120},
		{25000, 500, 100, 200},
		{131072, 1024, 1000, 300},
		{262144, 640, 1000, 500},
	} {
		b.Run(fmt.Sprintf("%dx%d/r%d/L%d", s.labels, s.dim, s.clusters, s.set), func(b *testing.B) {
			if testing.Short() && s.labels > 100000 {
				b.Skip("-short leaves out the largest layers")
			}
			benchmarkQueries(b, s.labels, s.dim, s.clusters, s.set)
		})
	}
}

func benchmarkQueries(b *testing.B, labels, dim, clusters, set int) {
	const k, contexts, batch = 5, 2000, 32
	data := synthetic.Structured(labels, dim, clusters, contexts, 1)
	made, err := data.Screen(set)
	if err != nil {
		b.Fatal(err)
	}
	model := (*engine.Index)(made).Screen()
	layer := data.Exact
	next := 0
	turn := func() []float32 {
		next = (next + 1) % contexts
		return data.Context(next)
	}
	top := make([]exact.Prediction, k)
	run := func(name string, per int, f func() error) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*per), "ns/context")
		})
	}
	s, err := screening.NewSearcher(model, layer, screening.Options{})
	if err != nil {
		b.Fatal(err)
	}
	run("screened", 1, func() error { _, err := s.TopK(top, turn()); return err })
	batched, err := engine.NewSearcher(engine.Over(layer), engine.OfScreen(model), engine.Options{})
	if err != nil {
		b.Fatal(err)
	}
	many, answers := make([]exact.Prediction, batch*k), make([]exact.Answer, batch)
	run("screened-batch32", batch, func() error {
		next = (next + batch) % (contexts - batch)
		return batched.SearchBatch(many, answers, data.Contexts[next*dim:(next+batch)*dim], &exact.Request{})
	})
	// The same values in each type that can hold them: the upper bits of a float32.
	wide, _ := kernels.AsFloat32(layer.Weights())
	values, half, brain := make([]float32, len(wide)), make([]uint16, len(wide)), make([]uint16, len(wide))
	for i, x := range wide {
		brain[i] = uint16(math.Float32bits(x) >> 16)
		values[i] = math.Float32frombits(uint32(brain[i]) << 16)
		half[i] = halfBits(values[i])
	}
	for _, rows := range []kernels.Rows{kernels.Float32Rows(values, dim), kernels.Float16Rows(half, dim), kernels.BFloat16Rows(brain, dim)} {
		l, err := exact.NewLayer(rows, layer.Bias())
		if err != nil {
			b.Fatal(err)
		}
		s, err := screening.NewSearcher(unbound(b, model), l, screening.Options{})
		if err != nil {
			b.Fatal(err)
		}
		run("screened-of-"+rows.Element().String(), 1, func() error { _, err := s.TopK(top, turn()); return err })
	}
	whole := exact.NewSearcher(layer)
	run("exact", 1, func() error { _, err := whole.TopK(top, turn()); return err })
	plain := dense.New((*exact.Layer)(layer))
	run("dense-float32", 1, func() error { plain.TopK(top, turn()); return nil })
}

// BenchmarkCold times single queries, top-5, before each of which some MiB of other memory are
// read, as between the steps of a decoder. The methods take turns; the last one only reads the same
// number of bytes. Times are medians and 99th percentiles.
func BenchmarkCold(b *testing.B) {
	for _, s := range []struct{ labels, dim, clusters, set int }{
		{10000, 200, 100, 300},
		{10000, 1500, 100, 120},
		{25000, 500, 100, 200},
	} {
		data := synthetic.Structured(s.labels, s.dim, s.clusters, 2000, 1)
		made, err := data.Screen(s.set)
		if err != nil {
			b.Fatal(err)
		}
		model := (*engine.Index)(made).Screen()
		for _, mib := range []int{8, 64} {
			b.Run(fmt.Sprintf("%dx%d/r%d/L%d/%dMiB", s.labels, s.dim, s.clusters, s.set, mib), func(b *testing.B) {
				benchmarkCold(b, data, model, mib)
			})
		}
	}
}

func benchmarkCold(b *testing.B, data *synthetic.Data, model *screening.Model, mib int) {
	top := make([]exact.Prediction, 5)
	searcher := func(o screening.Options) func(h []float32) {
		s, err := screening.NewSearcher(model, data.Exact, o)
		if err != nil {
			b.Fatal(err)
		}
		return func(h []float32) { _, _ = s.TopK(top, h) }
	}
	whole, plain := exact.NewSearcher(data.Exact), dense.New(data.Exact)
	type way struct {
		name  string
		query func(h []float32)
		times []time.Duration
	}
	ways := []way{
		{name: "screened", query: searcher(screening.Options{})},
		{name: "packed", query: searcher(screening.Options{Copies: 1 << 40})},
		{name: "not-packed", query: searcher(screening.Options{Copies: -1})},
		{name: "exact", query: func(h []float32) { _, _ = whole.TopK(top, h) }},
		{name: "dense", query: func(h []float32) { plain.TopK(top, h) }},
	}
	// A loop that only reads the number of bytes of the codes of a screened query: no query can be
	// faster than that.
	s, err := screening.NewSearcher(model, data.Exact, screening.Options{})
	if err != nil {
		b.Fatal(err)
	}
	for i := range data.Len() {
		_, _ = s.TopK(top, data.Context(i))
	}
	stats, row := s.Stats(), kernels.Int8Stride(model.Dim())
	codes, at := row*int(stats.Routing+stats.Candidates)/data.Len(), 0
	memory := max(data.Exact.Labels()*row, codes)
	if copies, _ := s.PackedBytes(); copies > 0 {
		memory = max(int(copies), codes)
	}
	bytes, release := mem.Alloc(memory)
	if release != nil {
		defer release()
	}
	pieces := newTable(bytes)
	ways = append(ways, way{name: "plain-read", query: func([]float32) { pieces.read(at, codes); at++ }})
	other := timing.NewBuffer(mib)
	const block = 20 // queries of a turn; the first ones, whose caches another method has filled, do not count
	next := 0
	for b.Loop() {
		for w := range ways {
			for i := range block {
				h := data.Context((next + i) % data.Len())
				other.Read(h)
				time.Now() // the clock is not to be cold
				start := time.Now()
				ways[w].query(h)
				if took := time.Since(start); i >= 3 {
					ways[w].times = append(ways[w].times, took)
				}
			}
		}
		next += block
	}
	for _, w := range ways {
		slices.Sort(w.times)
		b.ReportMetric(float64(w.times[len(w.times)/2])/1e3, w.name+"-us")
		b.ReportMetric(float64(w.times[len(w.times)*99/100])/1e3, w.name+"-p99-us")
	}
	b.ReportMetric(0, "ns/op") // of all ways together, and of no interest
}

// unbound is the model for any layer of its shape.
func unbound(b *testing.B, m *screening.Model) *screening.Model {
	c := screening.Config{Dim: m.Dim(), Labels: m.Labels(), Clusters: m.Config().Clusters}
	for t := range m.Clusters() {
		c.Lists = append(c.Lists, m.List(t))
	}
	free, err := screening.NewModel(c)
	if err != nil {
		b.Fatal(err)
	}
	return free
}

// halfBits returns a binary16 near x, 0 if x is smaller than a normal one.
func halfBits(x float32) uint16 {
	bits := math.Float32bits(x)
	sign, e := uint16(bits>>31)<<15, int(bits>>23&255)-127+15
	if e < 1 || e > 30 {
		return sign
	}
	return sign | uint16(e)<<10 | uint16(bits>>13&1023)
}

// BenchmarkManyLabels takes the best 50 and 100 of 150 candidates, and the exact
// log-probabilities of all 150 among themselves.
func BenchmarkManyLabels(b *testing.B) {
	const contexts, set = 2000, 150
	data := synthetic.Structured(10000, 200, 100, contexts, 1)
	made, err := data.Screen(set)
	if err != nil {
		b.Fatal(err)
	}
	model := (*engine.Index)(made).Screen()
	s, err := screening.NewSearcher(model, data.Exact, screening.Options{})
	if err != nil {
		b.Fatal(err)
	}
	layer, q := exact.NewSearcher(data.Exact), exact.NewQuery(data.Exact.Dim())
	top, logits, next := make([]exact.Prediction, 100), make([]float64, 10000), 0
	clusters, err := router.New(model.Dim(), model.Config().Clusters, nil)
	if err != nil {
		b.Fatal(err)
	}
	routing, found, queries := clusters.NewSearcher(), make([]router.Found, 1), []*exact.Query{q}
	turn := func() []float32 {
		next = (next + 1) % contexts
		return data.Context(next)
	}
	for _, k := range []int{50, 100} {
		b.Run(fmt.Sprintf("top%d", k), func(b *testing.B) {
			for b.Loop() {
				if _, err := s.TopK(top[:k], turn()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("logprobs", func(b *testing.B) {
		for b.Loop() {
			h := turn()
			if err := q.Set(h); err != nil {
				b.Fatal(err)
			}
			if err := routing.Find(found, queries, true); err != nil {
				b.Fatal(err)
			}
			ids := model.List(found[0].Cluster).IDs
			if err := layer.Logits(logits[:len(ids)], q, exact.Only(ids)); err != nil {
				b.Fatal(err)
			}
			sum := kernels.LogSumExp(logits[:len(ids)])
			for i := range ids {
				logits[i] -= sum
			}
		}
	})
}
