package tail

import (
	"context"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/codes/floats"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
	"github.com/learning-to-screen/l2s/internal/ground/stage"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/router"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/search/tail"
	"github.com/learning-to-screen/l2s/train/internal/corpus"
	"github.com/learning-to-screen/l2s/train/internal/rng"
)

// draw draws the contexts of each cluster, of cells whose lists lack labels.
func draw(c *corpus.Corpus, m *screening.Model, r *router.Router, cells []uint32, opt *Options) *fit {
	clusters := r.Clusters()
	f := &fit{
		model: m, router: r, opt: opt, clusters: clusters, temps: len(opt.Temperatures),
		fitted: make([][]uint32, clusters), held: make([][]uint32, clusters),
	}
	cluster := make([]uint32, c.N)
	for i, cell := range cells {
		if cluster[i] = uint32(clusters); len(f.candidates(cell)) < c.Labels { // else there is no tail
			cluster[i] = uint32(r.ClusterOf(int(cell)))
		}
	}
	var drawn []uint32
	// take adds contexts to those drawn, and returns their places there.
	take := func(ids []uint32) (places []uint32) {
		slices.Sort(ids)
		for _, i := range ids {
			places = append(places, uint32(len(drawn)))
			drawn, f.cells = append(drawn, i), append(f.cells, cells[i])
		}
		return places
	}
	const least = 16 // contexts: fewer give a bad fit, and no measure of its quality
	p := corpus.NewPartition(cluster, clusters+1)
	for t := range clusters {
		random, ids := rng.New(c.Seed, rng.Tail, uint64(t)), p.Members(t)
		random.Shuffle(ids)
		ids = different(c, ids, min(max(int(float64(opt.Share*float64(len(ids)))), least), opt.PerCluster))
		held := int(float64(opt.HeldOut * float64(len(ids))))
		f.fitted[t], f.held[t] = take(ids[held:]), take(ids[:held])
	}
	f.Corpus = c.Part(drawn)
	return f
}

// different returns the first n different contexts: a context equal to an earlier one is left out,
// so that the contexts held out are new to the coefficients. They are moved to the front.
func different(c *corpus.Corpus, ids []uint32, n int) []uint32 {
	seen, buffer, list := map[string]bool{}, c.Buffer(), ids[:0]
	for _, i := range ids {
		if len(list) == n {
			break
		}
		if row := corpus.Bytes(c.Row(i, buffer)); !seen[string(row)] {
			seen[string(row)] = true
			list = append(list, i)
		}
	}
	return list
}

// square finds the directions, and the squares of the contexts. As features the
// squares are scaled such that the ridge, which is in proportion to the variance of an
// element of a context, hardly weighs on them.
func (f *fit) square(ctx context.Context) (err error) {
	n := min(f.opt.Directions, f.Dim, f.Labels)
	done := f.Report.Part(stage.Tail, "directions", "steps", directionRounds*n)
	if f.directions, err = directions(ctx, f.layer, n, f.Seed, f.Threads, done); err != nil {
		return err
	}
	f.width, f.squares = f.Dim+2, make([][2]float64, f.N)
	within := make([][3]float64, f.clusters) // squared distances from the means, for all elements and for each square
	err = parallel.Each(ctx, f.Threads, f.clusters, 1, nil, func(_, t, _ int) error {
		ids, buffer, mean := slices.Concat(f.fitted[t], f.held[t]), f.Buffer(), make([]float64, f.width)
		each := func(i uint32, take func(j int, x float64)) {
			for j, x := range f.Row(i, buffer) {
				take(j, float64(x))
			}
			for j, x := range f.squares[i] {
				take(f.Dim+j, x)
			}
		}
		for _, i := range ids {
			f.squares[i][0], f.squares[i][1] = tail.SquaresOf(f.directions, f.Row(i, buffer))
			each(i, func(j int, x float64) { mean[j] += x / float64(len(ids)) })
		}
		for _, i := range ids {
			each(i, func(j int, x float64) { within[t][max(j-f.Dim+1, 0)] += float64((x - mean[j]) * (x - mean[j])) })
		}
		return nil
	})
	var all [3]float64
	for _, w := range within {
		all[0] += w[0] / float64(f.Dim)
		all[1], all[2] = all[1]+w[1], all[2]+w[2]
	}
	for j, x := range all[1:] {
		if x > 0 && !math.IsInf(x, 0) {
			f.scales[j] = 10 * math.Sqrt(all[0]/x)
		}
	}
	return err
}

// features are the elements of a context and its scaled squares, in dst, which has room for
// them.
func (f *fit) features(dst []float32, i uint32) []float32 {
	dst = append(dst[:0], f.Row(i, dst[:f.Dim])...)
	for j, x := range f.squares[i] {
		dst = append(dst, float32(x*f.scales[j]))
	}
	return dst
}

// chunk is the number of contexts that are searched together.
const chunk = 64

// leastTail is the least part of the sum over all labels at which a tail counts as more than
// nothing.
const leastTail = 1e-12

// measure computes the sums within the candidates of each context, and outside them.
func (f *fit) measure(ctx context.Context) error {
	f.logs, f.heads, f.shared = make([]float64, f.N*f.temps), make([]float64, f.N*f.temps), make([]float64, f.N*f.temps)
	type scratch struct {
		*exact.Searcher
		queries []*exact.Query
		answers []exact.Answer
	}
	layer := (*exact.Layer)(f.layer).Plain() // a tail is of logits without a scale and a cap
	fresh := func() scratch {
		return scratch{exact.NewSearcher(layer), corpus.NewQueries(chunk, f.Dim), make([]exact.Answer, chunk)}
	}
	return parallel.With(ctx, f.Threads, f.N, chunk, f.Report.Stage(stage.Tail, 0, f.N), fresh, func(w scratch, lo, hi int) error {
		if err := f.Set(w.queries[:hi-lo], lo); err != nil {
			return err
		}
		// sums computes the sums of the contexts from first to end among labels.
		sums := func(dst []float64, first, end int, among exact.Labels) error {
			for k, temperature := range f.opt.Temperatures {
				req := exact.Request{Among: among, LogSum: true, Temperature: temperature}
				if err := w.Find(nil, w.answers[:end-first], w.queries[first-lo:end-lo], &req); err != nil {
					return err
				}
				for j, a := range w.answers[:end-first] {
					dst[f.at(uint32(first+j), k)] = a.LogSum
				}
			}
			return nil
		}
		if err := sums(f.logs, lo, hi, exact.Labels{}); err != nil {
			return err
		}
		for i := lo; i < hi; i++ {
			if err := sums(f.heads, i, i+1, exact.Only(f.candidates(f.cells[i]))); err != nil {
				return err
			}
		}
		for j := lo * f.temps; j < hi*f.temps; j++ {
			f.logs[j] += kernels.Log(max(leastTail, 1-kernels.Exp(f.heads[j]-f.logs[j])))
		}
		return nil
	})
}

// directionRounds is the number of rounds of subspace iteration: the leading directions
// need not be exact.
const directionRounds = 10

// directions returns n leading eigenvectors of the covariance of the rows of W, as float32, times
// the square roots of their eigenvalues, about: by subspace iteration from a random start. It has
// the same bits for any number of threads and on every CPU. done gets directionRounds n steps in
// all.
func directions(ctx context.Context, l *exact.Layer, n int, seed uint64, threads int, done func(int)) ([]float32, error) {
	dim, labels := l.Dim(), l.Labels()
	random := rng.New(seed, rng.Directions, 0)
	vectors, next := make([]float32, n*dim), make([][]float64, n)
	for k := range next {
		next[k] = make([]float64, dim)
		for j := range next[k] {
			next[k][j] = random.Uniform() - 0.5
		}
	}
	values := make([]float64, n)
	for round := range directionRounds + 1 {
		for k, v := range next { // Gram-Schmidt, twice for the sake of roundings
			for range 2 {
				for _, other := range next[:k] {
					product := dot(v, other)
					for j, x := range other {
						v[j] -= float64(product * x)
					}
				}
			}
			length := math.Sqrt(dot(v, v))
			if values[k] = length / float64(labels); length > 0 {
				for j := range v {
					v[j] /= length
				}
			}
			for j, x := range v {
				vectors[k*dim+j] = float32(x)
			}
		}
		if round == directionRounds {
			break
		}
		err := parallel.Each(ctx, threads, n, 1, done, func(_, k, _ int) error {
			products, row := make([]float64, labels), make([]float32, dim)
			l.Weights().RefScan(products, nil, vectors[k*dim:][:dim])
			mean := 0.0
			for _, x := range products {
				mean += x / float64(labels)
			}
			clear(next[k])
			for i, x := range products {
				l.Weights().Widen(row, i)
				floats.Axpy(next[k], float32(x-mean), row)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	for k, value := range values {
		root := math.Sqrt(value)
		for j := range vectors[k*dim:][:dim] {
			vectors[k*dim+j] = float32(float64(vectors[k*dim+j]) * root)
		}
	}
	return vectors, nil
}
