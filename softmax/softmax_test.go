package softmax_test

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/simd"
	"github.com/learning-to-screen/l2s/internal/simdtest"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
)

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x736f66)) }

func newLayer(t testing.TB, w, b []float32, dim int) *softmax.Layer {
	t.Helper()
	l, err := softmax.NewLayer(w, b, dim)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func newQuery(t testing.TB, h []float32) *softmax.Query {
	t.Helper()
	q := softmax.NewQuery(len(h))
	if err := q.Set(h); err != nil {
		t.Fatal(err)
	}
	return q
}

// oracle returns all labels of ids by descending logit, ties by the lower
// id, each logit by the documented arithmetic.
func oracle(l *softmax.Layer, h []float32, ids []uint32) []softmax.Prediction {
	var p []softmax.Prediction
	d := l.Dim()
	for _, id := range ids {
		w := l.Weights()[int(id)*d : (int(id)+1)*d]
		p = append(p, softmax.Prediction{ID: id, Logit: kernels.RefDot(w, h) + float64(l.Bias()[id])})
	}
	slices.SortFunc(p, func(a, b softmax.Prediction) int {
		switch {
		case a.Logit > b.Logit || a.Logit == b.Logit && a.ID < b.ID:
			return -1
		default:
			return 1
		}
	})
	return p
}

func allIDs(n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i)
	}
	return ids
}

// drawLayer draws a layer and a context of a kind that is hard for some part
// of the search.
func drawLayer(t *rapid.T) (*softmax.Layer, []float32) {
	labels := rapid.IntRange(1, 120).Draw(t, "labels")
	dim := rapid.IntRange(1, 80).Draw(t, "dim")
	kind := rapid.SampledFrom([]string{
		"normal", "ties", "near ties", "cancellation", "huge", "tiny", "subnormal", "zero rows",
		"constant rows", "zero context", "mixed scales", "beyond the envelope",
	}).Draw(t, "kind")
	r := newRand(rapid.Uint64().Draw(t, "seed"))
	w, b, h := make([]float32, labels*dim), make([]float32, labels), make([]float32, dim)
	for i := range w {
		w[i] = float32(r.NormFloat64())
	}
	for i := range b {
		b[i] = float32(r.NormFloat64())
	}
	for i := range h {
		h[i] = float32(r.NormFloat64())
	}
	scale := func(x []float32, by float64) {
		for i := range x {
			x[i] = float32(float64(x[i]) * by)
		}
	}
	switch kind {
	case "ties":
		for i := range w {
			w[i] = float32(r.IntN(2))
		}
		clear(b)
	case "near ties":
		for i := dim; i < len(w); i++ {
			w[i] = w[i%dim]
		}
		for i := range b {
			b[i] = math.Nextafter32(1, float32(r.IntN(3)))
		}
	case "cancellation":
		for i := range w {
			if i%2 == 1 {
				w[i] = -w[i-1]
			}
		}
		for i := range h {
			h[i] = 1
		}
	case "huge":
		scale(w, 0x1p38)
		scale(h, 0x1p37)
	case "tiny":
		scale(w, 0x1p-50)
		scale(h, 0x1p-50)
		clear(b)
	case "subnormal":
		scale(w, 0x1p-140)
		clear(b)
	case "zero rows":
		for i := range labels {
			if r.IntN(2) == 0 {
				clear(w[i*dim : (i+1)*dim])
			}
		}
	case "constant rows":
		for i := range w {
			w[i] = float32(i / dim % 3)
		}
	case "zero context":
		clear(h)
	case "mixed scales":
		for i := range labels {
			scale(w[i*dim:(i+1)*dim], math.Ldexp(1, r.IntN(60)-30))
		}
	case "beyond the envelope":
		if r.IntN(2) == 0 {
			scale(w, 0x1p80)
		} else {
			scale(h, 0x1p80)
		}
	}
	l, err := softmax.NewLayer(w, b, dim)
	if err != nil {
		t.Fatal(err)
	}
	return l, h
}

func checkExact(t *rapid.T) {
	l, h := drawLayer(t)
	k := rapid.IntRange(1, l.Labels()+2).Draw(t, "k")
	q := softmax.NewQuery(l.Dim())
	if err := q.Set(h); err != nil {
		t.Fatal(err)
	}
	got := make([]softmax.Prediction, k)
	got = got[:l.TopK(got, q)]
	want := oracle(l, h, allIDs(l.Labels()))
	if want = want[:min(k, len(want))]; !slices.Equal(got, want) {
		t.Fatalf("TopK: got %v, want %v", got, want)
	}
	if got := l.Argmax(q); got != want[0].ID {
		t.Fatalf("Argmax: got %d, want %d", got, want[0].ID)
	}
	var ids []uint32
	keep := rapid.IntRange(0, 100).Draw(t, "percent in the subset")
	r := newRand(rapid.Uint64().Draw(t, "subset seed"))
	for id := range l.Labels() {
		if r.IntN(100) < keep {
			ids = append(ids, uint32(id))
		}
	}
	got = make([]softmax.Prediction, k)
	got = got[:l.TopKOf(got, q, ids)]
	want = oracle(l, h, ids)
	if want = want[:min(k, len(want))]; !slices.Equal(got, want) {
		t.Fatalf("TopKOf %v: got %v, want %v", ids, got, want)
	}
}

func checkBatch(t *rapid.T) {
	l, h := drawLayer(t)
	n := rapid.IntRange(0, 11).Draw(t, "contexts")
	r := newRand(rapid.Uint64().Draw(t, "contexts seed"))
	qs := make([]*softmax.Query, n)
	for i := range qs {
		qs[i] = softmax.NewQuery(l.Dim())
		r.Shuffle(len(h), func(a, b int) { h[a], h[b] = h[b], -h[a] })
		if err := qs[i].Set(h); err != nil {
			t.Fatal(err)
		}
	}
	k := rapid.IntRange(0, l.Labels()).Draw(t, "k")
	ids := allIDs(l.Labels())[l.Labels()-k:]
	all, of := make([]softmax.Prediction, n*k), make([]softmax.Prediction, n*k)
	l.TopKBatch(all, k, qs)
	l.TopKOfBatch(of, k, qs, ids)
	want := make([]softmax.Prediction, k)
	for i, q := range qs {
		if l.TopK(want, q); !slices.Equal(all[i*k:(i+1)*k], want) {
			t.Fatalf("TopKBatch, context %d of %d: got %v, want %v", i, n, all[i*k:(i+1)*k], want)
		}
		if l.TopKOf(want, q, ids); !slices.Equal(of[i*k:(i+1)*k], want) {
			t.Fatalf("TopKOfBatch, context %d of %d: got %v, want %v", i, n, of[i*k:(i+1)*k], want)
		}
	}
}

func TestBatchEqualsSingles(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) { rapid.Check(t, checkBatch) })
}

// Where the rows are more than fit in the cache a batch passes over them in
// tiles. The best rows may be first or last, all may be equal, and the last
// tile may be a few rows.
func TestBatchOverManyTilesEqualsSingles(t *testing.T) {
	const labels, dim, n = 690, 500, 9 // tiles of 227 rows; 9 left in the last
	r := newRand(11)
	w, b, h := make([]float32, labels*dim), make([]float32, labels), make([]float32, n*dim)
	for i := range w {
		w[i] = float32(r.NormFloat64())
	}
	for i := range h {
		h[i] = float32(r.NormFloat64())
	}
	clear(h[3*dim : 4*dim])
	ramp := func(step float64) []float32 {
		bias := slices.Clone(b)
		for i := range bias {
			bias[i] = float32(step * float64(i))
		}
		return bias
	}
	for _, c := range []struct {
		name string
		w, b []float32
	}{
		{"in no order", w, b},
		{"the best rows last", w, ramp(1)},
		{"the best rows first", w, ramp(-1)},
		{"equal rows", make([]float32, labels*dim), b},
	} {
		t.Run(c.name, func(t *testing.T) {
			simdtest.EachLevel(t, func(t *testing.T) {
				l := newLayer(t, c.w, c.b, dim)
				var qs []*softmax.Query
				for i := range n {
					qs = append(qs, newQuery(t, h[i*dim:(i+1)*dim]))
				}
				var odd []uint32
				for id := uint32(1); id < labels; id += 2 {
					odd = append(odd, id)
				}
				for _, k := range []int{1, 5, 16, 17, 300} {
					got, want := make([]softmax.Prediction, n*k), make([]softmax.Prediction, k)
					l.TopKBatch(got, k, qs)
					for i, q := range qs {
						if l.TopK(want, q); !slices.Equal(got[i*k:(i+1)*k], want) {
							t.Errorf("TopKBatch, k %d, context %d: found other answers than those of TopK", k, i)
						}
					}
					l.TopKOfBatch(got, k, qs, odd)
					for i, q := range qs {
						if l.TopKOf(want, q, odd); !slices.Equal(got[i*k:(i+1)*k], want) {
							t.Errorf("TopKOfBatch, k %d, context %d: found other answers than those of TopKOf", k, i)
						}
					}
				}
			})
		})
	}
}

func TestTopKEqualsTheReferenceSort(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) { rapid.Check(t, checkExact) })
}

func FuzzTopKEqualsTheReferenceSort(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkExact)) }

func TestTopKOnALargerLayer(t *testing.T) {
	const labels, dim = 3000, 200
	r := newRand(1)
	w, b := make([]float32, labels*dim), make([]float32, labels)
	for i := range w {
		w[i] = float32(r.NormFloat64())
	}
	for i := range b {
		b[i] = float32(r.NormFloat64())
	}
	l := newLayer(t, w, b, dim)
	h := make([]float32, dim)
	simdtest.EachLevel(t, func(t *testing.T) {
		r := newRand(2)
		q := softmax.NewQuery(dim)
		for range 20 {
			for i := range h {
				h[i] = float32(r.NormFloat64())
			}
			if err := q.Set(h); err != nil {
				t.Fatal(err)
			}
			want := oracle(l, h, allIDs(labels))
			for _, k := range []int{1, 5, 100, labels} {
				got := make([]softmax.Prediction, k)
				if l.TopK(got, q); !slices.Equal(got, want[:k]) {
					t.Fatalf("k %d: not the head of the sort", k)
				}
			}
		}
	})
}

func TestTopKThroughTheFirstPass(t *testing.T) {
	// Large enough for the pass over 4-bit codes: on data with structure it
	// excludes most rows, without it too few, and ties keep all of them.
	const labels, dim = 2500, 24
	for _, kind := range []string{"structured", "structureless", "ties"} {
		r := newRand(13)
		w, b, h := make([]float32, labels*dim), make([]float32, labels), make([]float32, dim)
		for i := range w {
			w[i] = float32(r.NormFloat64())
		}
		for i := range h {
			h[i] = float32(r.NormFloat64())
		}
		for s := range labels {
			switch kind {
			case "structured":
				b[s] = float32(-s)
			case "ties":
				copy(w[s*dim:(s+1)*dim], w[:dim])
			}
		}
		l := newLayer(t, w, b, dim)
		want := oracle(l, h, allIDs(labels))
		simdtest.EachLevel(t, func(t *testing.T) {
			for _, k := range []int{1, 5, 16, 17, 300, labels} {
				got := make([]softmax.Prediction, k)
				if l.TopK(got, newQuery(t, h)); !slices.Equal(got, want[:k]) {
					t.Errorf("%s, k %d: not the head of the sort", kind, k)
				}
			}
		})
	}
}

func TestFloat32FormsAgreeWhereNoNearTieIs(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) {
		const labels, dim = 500, 33
		// Logits are the integers 0..labels-1 in some order: float32 holds
		// them exactly.
		w, b := make([]float32, labels*dim), make([]float32, labels)
		for i, p := range newRand(3).Perm(labels) {
			w[i*dim] = float32(p)
		}
		h := make([]float32, dim)
		h[0] = 1
		l := newLayer(t, w, b, dim)
		q := newQuery(t, h)
		want, got := make([]softmax.Prediction, 7), make([]softmax.Prediction, 7)
		l.TopK(want, q)
		if l.TopKFloat32(got, q); !slices.Equal(got, want) {
			t.Errorf("TopKFloat32: got %v, want %v", got, want)
		}
		ids := []uint32{3, 5, 8, 100, 300, 301, 302, 499}
		l.TopKOf(want, q, ids)
		if l.TopKOfFloat32(got, q, ids); !slices.Equal(got, want) {
			t.Errorf("TopKOfFloat32: got %v, want %v", got, want)
		}
		if got, want := l.ArgmaxFloat32(q), l.Argmax(q); got != want {
			t.Errorf("ArgmaxFloat32: got %d, want %d", got, want)
		}
	})
}

func TestLogProbs(t *testing.T) {
	const labels, dim = 103, 17
	r := newRand(4)
	w, b, h := make([]float32, labels*dim), make([]float32, labels), make([]float32, dim)
	for _, x := range [][]float32{w, b, h} {
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
	}
	l := newLayer(t, w, b, dim)
	ids := []uint32{0, 7, 8, 50, 102}
	var first, firstOf []float64
	for _, level := range simd.Available() {
		restore := simd.Set(level)
		q := newQuery(t, h)
		all, of := make([]float64, labels), make([]float64, len(ids))
		l.LogProbs(all, q)
		l.LogProbsOf(of, q, ids)
		restore()
		if first == nil {
			first, firstOf = all, of
		}
		if !slices.Equal(all, first) || !slices.Equal(of, firstOf) {
			t.Errorf("%s: bits differ from those of %s", level, simd.Available()[0])
		}
	}
	sum := func(x []float64) (s float64) {
		for _, v := range x {
			s += math.Exp(v)
		}
		return s
	}
	if s := sum(first); math.Abs(s-1) > 1e-12 {
		t.Errorf("probabilities sum to %v", s)
	}
	if s := sum(firstOf); math.Abs(s-1) > 1e-12 {
		t.Errorf("probabilities of the subset sum to %v", s)
	}
	// Within the subset, differences of log-probabilities are those of the
	// full layer.
	for j, id := range ids {
		if got, want := firstOf[j]-firstOf[0], first[id]-first[ids[0]]; math.Abs(got-want) > 1e-12 {
			t.Errorf("id %d: difference %v, want %v", id, got, want)
		}
	}
}

func TestNewLayerRefuses(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	cases := []struct {
		name string
		w, b []float32
		dim  int
		want string
	}{
		{"dim 0", []float32{1}, nil, 0, "softmax: dim: found 0, expected at least 1"},
		{"no weights", nil, nil, 3, "softmax: weights: found 0 elements, expected a positive multiple of dim 3"},
		{"ragged weights", make([]float32, 7), nil, 3, "softmax: weights: found 7 elements, expected a positive multiple of dim 3"},
		{"short bias", make([]float32, 6), make([]float32, 1), 3, "softmax: bias: found 1 elements, expected one for each of 2 rows of weights"},
		{"NaN weight", []float32{0, 0, 0, nan}, nil, 2, "softmax: weights: found NaN at row 1, column 1, expected finite numbers"},
		{"Inf weight", []float32{0, -inf, 0, 0}, nil, 2, "softmax: weights: found -Inf at row 0, column 1, expected finite numbers"},
		{"Inf bias", []float32{0, 0, 0, 0}, []float32{0, inf}, 2, "softmax: bias: found +Inf at element 1, expected finite numbers"},
	}
	for _, c := range cases {
		if _, err := softmax.NewLayer(c.w, c.b, c.dim); err == nil || err.Error() != c.want {
			t.Errorf("%s: error %v, want %s", c.name, err, c.want)
		}
	}
}

func TestQueryRefuses(t *testing.T) {
	q := softmax.NewQuery(3)
	l := newLayer(t, make([]float32, 6), nil, 3)
	for _, c := range []struct {
		h    []float32
		want string
	}{
		{make([]float32, 2), "softmax: context: found 2 elements, expected 3"},
		{make([]float32, 4), "softmax: context: found 4 elements, expected 3"},
		{[]float32{0, 0, float32(math.NaN())}, "softmax: context: found NaN at element 2, expected finite numbers"},
		{[]float32{0, float32(math.Inf(-1)), 0}, "softmax: context: found -Inf at element 1, expected finite numbers"},
	} {
		if err := q.Set(make([]float32, 3)); err != nil {
			t.Fatal(err)
		}
		if err := q.Set(c.h); err == nil || err.Error() != c.want {
			t.Errorf("%v: error %v, want %s", c.h, err, c.want)
		}
		// A query whose Set failed has no context, not the one before.
		func() {
			defer func() {
				if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), "no context") {
					t.Errorf("%v: search after a failed Set: recovered %v", c.h, p)
				}
			}()
			l.TopK(make([]softmax.Prediction, 1), q)
		}()
	}
}

func TestSearchesDoNotAllocate(t *testing.T) {
	const labels, dim = 3000, 40 // two tiles of a batch
	r := newRand(5)
	w, h := make([]float32, labels*dim), make([]float32, dim)
	for i := range w {
		w[i] = float32(r.NormFloat64())
	}
	for i := range h {
		h[i] = float32(r.NormFloat64())
	}
	l := newLayer(t, w, nil, dim)
	tail, err := softmax.NewTail(normals(6, 8*labels), normals(7, 8*dim), labels, dim)
	if err != nil {
		t.Fatal(err)
	}
	simdtest.EachLevel(t, func(t *testing.T) {
		q := softmax.NewQuery(dim)
		ids := allIDs(100)
		logp := make([]float64, labels)
		qs := make([]*softmax.Query, 4)
		for i := range qs {
			qs[i] = newQuery(t, h)
		}
		for name, f := range map[string]func(){
			"Set":           func() { _ = q.Set(h) },
			"TopK":          func() { var p [5]softmax.Prediction; l.TopK(p[:], q) },
			"TopKOf":        func() { var p [5]softmax.Prediction; l.TopKOf(p[:], q, ids) },
			"Argmax":        func() { l.Argmax(q) },
			"TopKFloat32":   func() { var p [5]softmax.Prediction; l.TopKFloat32(p[:], q) },
			"TopKOfFloat32": func() { var p [5]softmax.Prediction; l.TopKOfFloat32(p[:], q, ids) },
			"ArgmaxFloat32": func() { l.ArgmaxFloat32(q) },
			"TopKBatch":     func() { var p [20]softmax.Prediction; l.TopKBatch(p[:], 5, qs) },
			"TopKOfBatch":   func() { var p [20]softmax.Prediction; l.TopKOfBatch(p[:], 5, qs, ids) },
			"LogProbs":      func() { l.LogProbs(logp, q) },
			"LogProbsOf":    func() { l.LogProbsOf(logp[:100], q, ids) },
			"TailLogits":    func() { l.TailLogits(logp, q, tail, ids) },
		} {
			_ = q.Set(h)
			f()
			if n := simdtest.AllocsPerRun(20, f); n != 0 {
				t.Errorf("%s: %v allocations a call", name, n)
			}
		}
	})
}

func TestFingerprintSeesEveryPart(t *testing.T) {
	base := newLayer(t, []float32{1, 2, 3, 4}, []float32{5, 6}, 2).Fingerprint()
	for name, l := range map[string]*softmax.Layer{
		"weights": newLayer(t, []float32{1, 2, 3, 4.5}, []float32{5, 6}, 2),
		"bias":    newLayer(t, []float32{1, 2, 3, 4}, []float32{5, 6.5}, 2),
		"shape":   newLayer(t, []float32{1, 2, 3, 4}, []float32{5}, 4),
	} {
		if l.Fingerprint() == base {
			t.Errorf("a change of %s leaves the fingerprint as it is", name)
		}
	}
	if newLayer(t, []float32{1, 2, 3, 4}, []float32{5, 6}, 2).Fingerprint() != base {
		t.Error("equal layers have different fingerprints")
	}
}

func ExampleLayer_TopK() {
	// Three labels in two dimensions.
	weights := []float32{
		1, 0,
		0, 1,
		1, 1,
	}
	bias := []float32{0, 0.5, -1}
	layer, err := softmax.NewLayer(weights, bias, 2)
	if err != nil {
		panic(err)
	}
	q := softmax.NewQuery(layer.Dim())
	if err := q.Set([]float32{2, 1}); err != nil {
		panic(err)
	}
	top := make([]softmax.Prediction, 2)
	layer.TopK(top, q)
	fmt.Println(top)
	// Output: [{0 2} {2 2}]
}

// TestGoldenBits holds ids, logits and log-probabilities to the bits that
// they had on amd64: the same on every architecture and level.
func TestGoldenBits(t *testing.T) {
	const labels, dim = 400, 77
	const want = uint64(0x82acf7eb705f8e2d)
	r := rand.New(rand.NewPCG(7, 7))
	// Uniform numbers alone: those of NormFloat64 go through math.Exp, which
	// is not the same everywhere.
	uniform := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(2*r.Float64() - 1)
		}
		return x
	}
	l := newLayer(t, uniform(labels*dim), uniform(labels), dim)
	simdtest.EachLevel(t, func(t *testing.T) {
		r = rand.New(rand.NewPCG(8, 8))
		sum := fnv.New64a()
		add := func(bits uint64) { sum.Write(binary.LittleEndian.AppendUint64(nil, bits)) }
		top, logp := make([]softmax.Prediction, 10), make([]float64, labels)
		for range 50 {
			q := newQuery(t, uniform(dim))
			l.TopK(top, q)
			for _, p := range top {
				add(uint64(p.ID))
				add(math.Float64bits(p.Logit))
			}
			l.LogProbs(logp, q)
			for _, v := range logp {
				add(math.Float64bits(v))
			}
		}
		if got := sum.Sum64(); got != want {
			t.Errorf("hash of all answers: %#x, want %#x", got, want)
		}
	})
}

func TestLargeLayersAreReleased(t *testing.T) {
	// The codes of a large layer, here 16 MiB, lie outside the Go heap.
	const labels, dim, layers, limit = 1 << 18, 8, 30, 200 << 20
	w, top := make([]float32, labels*dim), make([]softmax.Prediction, 1)
	before, ok := residentBytes()
	if !ok {
		t.Skip("the system does not say how much memory is resident")
	}
	for range layers {
		newLayer(t, w, nil, dim).TopK(top, newQuery(t, make([]float32, dim)))
	}
	var grown int
	for range 100 { // cleanups run some time after the collection
		runtime.GC()
		if after, _ := residentBytes(); after-before < limit {
			return
		} else {
			grown = after - before
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("%d layers of 16 MiB that are gone hold %d MiB", layers, grown>>20)
}

// residentBytes returns the resident memory of the process.
func residentBytes() (int, bool) {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, false
	}
	var size, resident int
	if _, err := fmt.Sscan(string(b), &size, &resident); err != nil {
		return 0, false
	}
	return resident * os.Getpagesize(), true
}
