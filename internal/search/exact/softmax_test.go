package exact_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/codes/encode"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/float16"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x736f66)) }

func newLayer(t testing.TB, w, b []float32, dim int) *exact.Layer {
	t.Helper()
	l, err := exact.NewLayer(kernels.Float32Rows(w, dim), b)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func newQuery(t failer, h []float32) *exact.Query {
	t.Helper()
	q := exact.NewQuery(len(h))
	if err := q.Set(h); err != nil {
		t.Fatal(err)
	}
	return q
}

// failer is a testing.TB or a rapid.T.
type failer interface {
	Helper()
	Fatal(...any)
}

// wide returns W in float32.
func wide(l *exact.Layer) []float32 {
	w := make([]float32, l.Labels()*l.Dim())
	for s := range l.Labels() {
		l.Weights().Widen(w[s*l.Dim():(s+1)*l.Dim()], s)
	}
	return w
}

// topK asks a searcher for k labels.
func topK(t failer, s *exact.Searcher, k int, h []float32) []exact.Prediction {
	t.Helper()
	top := make([]exact.Prediction, k)
	n, err := s.TopK(top, h)
	if err != nil {
		t.Fatal(err)
	}
	return top[:n]
}

func allIDs(n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i)
	}
	return ids
}

// definition is the answer to a request by its plain definition: the logits of
// all labels to choose among, by the documented arithmetic, scaled, capped, and then edited and
// sorted. w is W in float32.
func definition(l *exact.Layer, w, h []float32, ids []uint32, req *exact.Request) []exact.Prediction {
	p, d := []exact.Prediction{}, l.Dim()
	for _, id := range ids {
		if req.Allowed != nil && !req.Allowed.Has(id) || req.Banned != nil && req.Banned.Has(id) {
			continue
		}
		x := kernels.RefDot(w[int(id)*d:(int(id)+1)*d], h) + float64(l.Bias()[id])
		if x *= l.Scale(); l.SoftCap() != 0 {
			x = kernels.SoftCap(x, l.SoftCap())
		}
		for _, b := range req.Biases {
			if b.ID == id {
				x += float64(b.Add)
			}
		}
		p = append(p, exact.Prediction{ID: id, Logit: x})
	}
	slices.SortFunc(p, func(a, b exact.Prediction) int {
		if a.Logit > b.Logit || a.Logit == b.Logit && a.ID < b.ID {
			return -1
		}
		return 1
	})
	return p
}

// oracle is the definition for a request without edits.
func oracle(l *exact.Layer, h []float32, ids []uint32) []exact.Prediction {
	return definition(l, wide(l), h, ids, &exact.Request{})
}

// drawLayer draws a layer and a context of a kind that is hard for some part
// of the search.
func drawLayer(t *rapid.T) (*exact.Layer, []float32) {
	labels := rapid.IntRange(1, 120).Draw(t, "labels")
	dim := rapid.IntRange(1, 80).Draw(t, "dim")
	kind := rapid.SampledFrom([]string{
		"normal", "ties", "near ties", "cancellation", "huge", "tiny", "subnormal", "zero rows",
		"constant rows", "zero context", "mixed scales", "beyond the envelope", "outliers",
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
	case "outliers":
		for i := range labels {
			w[i*dim+r.IntN(dim)] *= 30
		}
		h[r.IntN(dim)] *= 20
	case "beyond the envelope":
		if r.IntN(2) == 0 {
			scale(w, 0x1p80)
		} else {
			scale(h, 0x1p80)
		}
	}
	rows := kernels.Float32Rows(w, dim)
	switch rapid.SampledFrom([]kernels.Element{kernels.Float32, kernels.Float16, kernels.BFloat16, kernels.Q8_0}).Draw(t, "element") {
	case kernels.Q8_0:
		dim, h = (dim+31)/32*32, append(h, make([]float32, 31)...)
		h = h[:dim]
		data := make([]byte, labels*encode.BlockBytes(dim))
		if _, err := encode.NewBlockCopies(data, kernels.Float32Rows(append(w, make([]float32, labels*dim-len(w))...), dim), nil); err == nil {
			rows = kernels.QuantisedRows(data, kernels.Q8_0, dim)
		} else {
			h = h[:len(w)/labels] // weights that no block has
		}
	case kernels.Float16:
		rows = kernels.Float16Rows(narrow(w, halfBits), dim)
	case kernels.BFloat16:
		rows = kernels.BFloat16Rows(narrow(w, func(x float32) uint16 { return uint16(math.Float32bits(x) >> 16) }), dim)
	}
	l, err := exact.NewLayer(rows, b)
	if err != nil {
		t.Fatal(err)
	}
	if rapid.Bool().Draw(t, "final") {
		// Caps of many orders: some change no logit, and some make all the same.
		by := rapid.SampledFrom([]float64{1, 0x1p-3, 0x1p40, 0.3, 7.7, 1e-30, 1e30}).Draw(t, "scale")
		if l, err = l.Scaled(by, rapid.SampledFrom([]float64{0, 0, 0.01, 1, 30, 1e20}).Draw(t, "cap")); err != nil {
			t.Fatal(err)
		}
	}
	return l, h
}

func narrow(x []float32, by func(float32) uint16) []uint16 {
	bits := make([]uint16, len(x))
	for i, v := range x {
		bits[i] = by(v)
	}
	return bits
}

// halfBits returns the binary16 next to x, the largest finite one if x is larger.
func halfBits(x float32) uint16 {
	bits, _ := float16.Narrow(max(-65504, min(65504, x)))
	return bits
}

// drawRequest draws a request for the k best labels of a layer, and the labels that it chooses among.
func drawRequest(t *rapid.T, l *exact.Layer) (k int, req exact.Request, among []uint32) {
	n := l.Labels()
	r := newRand(rapid.Uint64().Draw(t, "request seed"))
	req.LogSum = rapid.Bool().Draw(t, "log-sum")
	k = rapid.IntRange(1, n).Draw(t, "k")
	if req.LogSum && r.IntN(4) == 0 {
		k = 0
	}
	req.Within = rapid.SampledFrom([]float64{0, 0, 1e-30, 0.3, 2, 30, 1e300}).Draw(t, "within")
	some := func(percent int) (ids []uint32) {
		for id := range n {
			if r.IntN(100) < percent {
				ids = append(ids, uint32(id))
			}
		}
		return ids
	}
	share := rapid.SampledFrom([]int{0, 2, 10, 50, 95, 100})
	set := func(name string) *bitset.Set {
		s, err := bitset.FromIDs(n, some(share.Draw(t, name)))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	switch kind := rapid.SampledFrom([]string{"all", "list", "packed list", "part of a packed list"}).Draw(t, "among"); kind {
	case "all":
		among = allIDs(n)
	case "list":
		among = some(share.Draw(t, "listed"))
		r.Shuffle(len(among), func(i, j int) { among[i], among[j] = among[j], among[i] })
		req.Among = exact.Only(among)
	default:
		// Between two others, whose labels it may share.
		lists := [][]uint32{some(50), some(share.Draw(t, "packed")), some(50)}
		packed, err := l.Pack(slices.Concat(lists...), []int{0, len(lists[0]), len(lists[0]) + len(lists[1]), len(lists[0]) + len(lists[1]) + len(lists[2])})
		if err != nil {
			t.Fatal(err)
		}
		if among = lists[1]; kind != "packed list" {
			among = among[:r.IntN(len(among)+1)]
		}
		if packed == nil { // a layer without codes
			req.Among = exact.Only(among)
		} else {
			req.Among = packed.First(1, len(among))
		}
	}
	if rapid.Bool().Draw(t, "with allowed labels") {
		req.Allowed = set("allowed")
	}
	if rapid.Bool().Draw(t, "with banned labels") {
		req.Banned = set("banned")
	}
	if rapid.Bool().Draw(t, "with biases") {
		scale := rapid.SampledFrom([]float64{1e-3, 1, 100, 1e30}).Draw(t, "scale of the biases")
		for _, id := range some(rapid.SampledFrom([]int{2, 20, 100}).Draw(t, "biased")) {
			req.Biases = append(req.Biases, exact.Bias{ID: id, Add: float32(max(-1, min(1, r.NormFloat64())) * scale)})
		}
	}
	return k, req, among
}

// checkRequests: the answer to any request is the one of its definition, bit for
// bit, for one context and for many, and the sum is within the width of the int8
// intervals of the one over the edited logits.
func checkRequests(t *rapid.T) {
	l, h := drawLayer(t)
	defer exact.SetTile(rapid.SampledFrom([]int{1, 128 << 10}).Draw(t, "bytes of a tile"))()
	if rapid.Bool().Draw(t, "threads") {
		defer exact.ShareAll()()
		l.SetThreads(3)
	}
	n := rapid.IntRange(1, 11).Draw(t, "contexts")
	r := newRand(rapid.Uint64().Draw(t, "contexts seed"))
	var contexts []float32
	for range n {
		contexts = append(contexts, h...)
		r.Shuffle(len(h), func(a, b int) { h[a], h[b] = h[b], -h[a] })
	}
	s, w := exact.NewSearcher(l), wide(l)
	for range rapid.IntRange(1, 3).Draw(t, "requests") { // scratch of one must not show in the next
		k, req, among := drawRequest(t, l)
		dst, answers := make([]exact.Prediction, n*k), make([]exact.Answer, n)
		if err := s.SearchBatch(dst, answers, contexts, req); err != nil {
			t.Fatal(err)
		}
		for i, a := range answers {
			h := contexts[i*l.Dim() : (i+1)*l.Dim()]
			all := definition(l, w, h, among, &req)
			want := all[:min(k, len(all))]
			if j := slices.IndexFunc(want, func(p exact.Prediction) bool { return p.Logit < want[0].Logit-req.Within }); req.Within > 0 && j > 0 {
				want = want[:j]
			}
			if got := dst[i*k:][:a.Count]; !slices.Equal(got, want) || a.Source != exact.FromLayer {
				t.Fatalf("context %d of %d: got %v %v, want %v", i, n, a, got, want)
			}
			checkSum(t, l, w, h, k, &req, all, a.LogSum)
			one := make([]exact.Prediction, k)
			alone, err := s.Search(one, h, req)
			if err != nil || alone != a || !slices.Equal(one[:alone.Count], want) {
				t.Fatalf("context %d of %d: alone %v %v, %v, together %v %v", i, n, alone, one, err, a, want)
			}
			checkShort(t, l, s, w, h, req, among)
		}
	}
}

// checkShort: the best labels of a list, by a query with room for them, which may go the short way,
// agree with the definition, with the sum of a query without room; so is the best one alone.
func checkShort(t *rapid.T, l *exact.Layer, s *exact.Searcher, w, h []float32, req exact.Request, among []uint32) {
	if !exact.IsList(req.Among) || len(among) == 0 {
		return
	}
	req = exact.Request{LogSum: req.LogSum, Among: req.Among}
	q, room := newQuery(t, h), exact.NewQuery(len(h))
	room.Reserve(l.Labels())
	if err := room.Set(h); err != nil {
		t.Fatal(err)
	}
	want := definition(l, w, h, among, &req)
	for _, k := range []int{1, 2, len(among) / 3} {
		if k < 1 || k > len(among) {
			continue
		}
		var tops [2][]exact.Prediction
		var answers [2]exact.Answer
		for i, q := range []*exact.Query{q, room} {
			tops[i] = make([]exact.Prediction, k)
			if err := s.Find(tops[i], answers[i:i+1], []*exact.Query{q}, &req); err != nil {
				t.Fatal(err)
			}
		}
		if answers[1] != answers[0] || !slices.Equal(tops[1], want[:k]) {
			t.Fatalf("%d of %d: with room %v %v, without %v, want %v", k, len(among), answers[1], tops[1], answers[0], want[:k])
		}
	}
	if l.Scale() != 1 || l.SoftCap() != 0 {
		return
	}
	if id, low, high, ok := s.Nearest(room, &req); ok && (id != want[0].ID || !(low <= want[0].Logit && want[0].Logit <= high)) {
		t.Fatalf("the best: found %d with a logit from %v to %v, expected %v", id, low, high, want[0])
	}
}

// checkSum compares a log-sum with the definition over all edited logits.
func checkSum(t *rapid.T, l *exact.Layer, w, h []float32, k int, req *exact.Request, all []exact.Prediction, got float64) {
	var logits []float64 // in the order of labels, the order of the sum without a list
	for _, p := range slices.SortedFunc(slices.Values(all), func(a, b exact.Prediction) int { return int(a.ID) - int(b.ID) }) {
		logits = append(logits, p.Logit)
	}
	want := kernels.LogSumExp(logits)
	switch {
	case !req.LogSum || len(all) == 0:
		want = math.Inf(-1)
		fallthrough
	case k == l.Labels() && !exact.IsList(req.Among) && !exact.Edits(req):
		if got != want {
			t.Fatalf("log-sum: got %v, want %v", got, want)
		}
		return
	}
	// Twice 2/127 of the norms is more than two roundings to int8 lose.
	bound, largest, d := 0.0, math.Abs(want), l.Dim()
	for _, p := range all {
		var w2, h2 float64
		for j, x := range w[int(p.ID)*d : (int(p.ID)+1)*d] {
			w2 += float64(x) * float64(x)
			h2 += float64(h[j]) * float64(h[j])
		}
		bound, largest = max(bound, l.Scale()*math.Sqrt(w2*h2)), max(largest, math.Abs(p.Logit))
	}
	if off := math.Abs(got - want); off > 2*math.Sqrt(float64(d))/127*bound+1e-5*(1+largest) {
		t.Fatalf("log-sum: got %v, want %v within the error of int8, found %v off", got, want, off)
	}
}

func TestAnswersAreTheirDefinition(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) { rapid.Check(t, checkRequests) })
}

func FuzzAnswersAreTheirDefinition(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkRequests)) }

// All labels by name, in order, and all labels without a list are the same bits,
// the sum as well.
func TestAListOfAllLabelsIsAllLabels(t *testing.T) {
	simdtest.EachLevel(t, func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			l, h := drawLayer(t)
			s, q := exact.NewSearcher(l), newQuery(t, h)
			k := rapid.IntRange(0, l.Labels()).Draw(t, "k")
			var tops [2][]exact.Prediction
			var sums [2]exact.Answer
			for i, among := range []exact.Labels{{}, exact.Only(allIDs(l.Labels()))} {
				tops[i] = make([]exact.Prediction, k)
				if err := s.Find(tops[i], sums[i:i+1], []*exact.Query{q}, &exact.Request{LogSum: true, Among: among}); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(tops[i], tops[0]) || sums[i] != sums[0] {
					t.Fatalf("got %v %v, want %v %v", sums[i], tops[i], sums[0], tops[0])
				}
			}
		})
	})
}

// If the rows are more than fit in the cache a batch passes over them in
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
				s := exact.NewSearcher(newLayer(t, c.w, c.b, dim))
				var odd []uint32
				banned := bitset.New(labels)
				for id := uint32(1); id < labels; id += 2 {
					odd = append(odd, id)
					banned.Add(id / 3)
				}
				biases := []exact.Bias{{ID: 0, Add: -3}, {ID: 228, Add: 1000}, {ID: 689, Add: 50}}
				ks := []int{1, 17, 300, 5, 16}
				if testing.Short() {
					ks = ks[:3]
				}
				for _, k := range ks {
					for name, req := range map[string]exact.Request{
						"all":         {},
						"listed":      {Among: exact.Only(odd)},
						"banned":      {Banned: banned},
						"biased":      {Biases: biases},
						"all at once": {Among: exact.Only(odd), Banned: banned, Biases: biases},
					} {
						got, want := make([]exact.Prediction, n*k), make([]exact.Prediction, k)
						answers := make([]exact.Answer, n)
						if err := s.SearchBatch(got, answers, h, req); err != nil {
							t.Fatal(err)
						}
						for i, a := range answers {
							one, err := s.Search(want, h[i*dim:(i+1)*dim], req)
							if err != nil || one != a || !slices.Equal(got[i*k:][:a.Count], want[:a.Count]) {
								t.Errorf("%s, k %d, context %d: found another answer than Search gives", name, k, i)
							}
						}
					}
				}
			})
		})
	}
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
		plain := newLayer(t, w, b, dim)
		// A scale; a cap that changes little; one at which most labels tie.
		for _, final := range [][2]float64{{1, 0}, {0.3, 0}, {0.5, 1e4}, {3, 5}} {
			l, err := plain.Scaled(final[0], final[1])
			if err != nil {
				t.Fatal(err)
			}
			// Edits take part in the first pass: the best labels are banned, the worst
			// is biased.
			edits := exact.Request{Banned: bitset.New(labels), Biases: []exact.Bias{{ID: labels - 1, Add: 2 * labels}}}
			for id := range uint32(3) {
				edits.Banned.Add(id)
			}
			want, edited := oracle(l, h, allIDs(labels)), definition(l, w, h, allIDs(labels), &edits)
			simdtest.EachLevel(t, func(t *testing.T) {
				for _, k := range []int{1, 5, 16, 17, 300, labels} {
					if got := topK(t, exact.NewSearcher(l), k, h); !slices.Equal(got, want[:k]) {
						t.Errorf("%s, %v, k %d: not the head of the sort", kind, final, k)
					}
					got, req := make([]exact.Prediction, k), edits
					a, err := exact.NewSearcher(l).Search(got, h, req)
					if err != nil || !slices.Equal(got[:a.Count], edited[:min(k, len(edited))]) {
						t.Errorf("%s, %v, k %d, edited: not the head of the sort, %v", kind, final, k, err)
					}
				}
			})
		}
	}
}

// Logits are of the labels in the request, in their order.
func TestLogits(t *testing.T) {
	const labels, dim = 103, 17
	r := newRand(4)
	w, b, h := make([]float32, labels*dim), make([]float32, labels), make([]float32, dim)
	for _, x := range [][]float32{w, b, h} {
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
	}
	l := newLayer(t, w, b, dim)
	simdtest.EachLevel(t, func(t *testing.T) {
		s, q := exact.NewSearcher(l), newQuery(t, h)
		for _, c := range []struct {
			name  string
			among exact.Labels
			ids   []uint32
		}{
			{"all", exact.Labels{}, allIDs(labels)},
			{"a list", exact.Only([]uint32{102, 0, 7, 50}), []uint32{102, 0, 7, 50}},
			{"none", exact.Only(nil), nil},
		} {
			got := make([]float64, len(c.ids))
			if err := s.Logits(got, q, c.among); err != nil {
				t.Fatal(err)
			}
			for j, id := range c.ids {
				if want := kernels.RefDot(w[int(id)*dim:int(id+1)*dim], h) + float64(b[id]); got[j] != want {
					t.Errorf("%s: label %d: got %v, want %v", c.name, id, got[j], want)
				}
			}
			if err := s.Logits(make([]float64, len(c.ids)+1), q, c.among); !errors.Is(err, exact.ErrRequest) {
				t.Errorf("%s: too much room: got %v, want %v", c.name, err, exact.ErrRequest)
			}
		}
	})
}

func TestNewLayerRefuses(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	cases := []struct {
		name string
		w, b []float32
		dim  int
		want string
	}{
		{"no weights", nil, nil, 3, "l2s: weights: found no rows, expected at least 1"},
		{"short bias", make([]float32, 6), make([]float32, 1), 3, "l2s: bias: found 1 elements, expected one for each of 2 rows of weights"},
		{"NaN weight", []float32{0, 0, 0, nan}, nil, 2, "l2s: weights: found NaN at row 1, column 1, expected finite numbers"},
		{"Inf weight", []float32{0, -inf, 0, 0}, nil, 2, "l2s: weights: found -Inf at row 0, column 1, expected finite numbers"},
		{"Inf bias", []float32{0, 0, 0, 0}, []float32{0, inf}, 2, "l2s: bias: found +Inf at element 1, expected finite numbers"},
	}
	for _, c := range cases {
		if _, err := exact.NewLayer(kernels.Float32Rows(c.w, c.dim), c.b); err == nil || err.Error() != c.want {
			t.Errorf("%s: error %v, want %s", c.name, err, c.want)
		}
	}
}

// A query and a search refuse a wrong context with the same error, and keep neither an answer nor a
// context.
func TestContextsAreRefused(t *testing.T) {
	q, s := exact.NewQuery(3), exact.NewSearcher(newLayer(t, make([]float32, 6), nil, 3))
	for _, c := range []struct {
		name string
		h    []float32
		want string
	}{
		{"too short", make([]float32, 2), "l2s: context: found 2 elements, expected 3"},
		{"too long", make([]float32, 4), "l2s: context: found 4 elements, expected 3"},
		{"NaN", []float32{0, 0, float32(math.NaN())}, "l2s: context: found NaN at element 2, expected finite numbers"},
		{"infinite", []float32{0, float32(math.Inf(-1)), 0}, "l2s: context: found -Inf at element 1, expected finite numbers"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := q.Set(make([]float32, 3)); err != nil {
				t.Fatal(err)
			}
			if err := q.Set(c.h); err == nil || err.Error() != c.want || !errors.Is(err, exact.ErrContext) {
				t.Errorf("Set: got %v, want %s", err, c.want)
			}
			top, answers := []exact.Prediction{{ID: 9, Logit: 9}}, []exact.Answer{{Count: 9}}
			if err := s.Find(top, answers, []*exact.Query{q}, &exact.Request{}); !errors.Is(err, exact.ErrContext) {
				t.Errorf("Find after a failed Set: got %v", err)
			}
			if _, err := s.Search(top, c.h, exact.Request{}); err == nil || err.Error() != c.want {
				t.Errorf("Search: got %v, want %s", err, c.want)
			}
			good := make([]float32, 3)
			if err := s.SearchBatch(make([]exact.Prediction, 2), make([]exact.Answer, 2), append(good, c.h...), exact.Request{}); !errors.Is(err, exact.ErrContext) {
				t.Errorf("SearchBatch: got %v", err)
			}
			if top[0].ID != 9 || answers[0].Count != 9 {
				t.Errorf("written: %v %v", top, answers)
			}
		})
	}
}

func TestRequestsAreRefused(t *testing.T) {
	const labels = 4
	s := exact.NewSearcher(newLayer(t, make([]float32, 2*labels), nil, 2))
	nan := float32(math.NaN())
	for _, c := range []struct {
		name string
		room int
		req  exact.Request
		want string
	}{
		{"k of 0", 0, exact.Request{}, "l2s: k: found 0, expected 1 to the 4 labels"},
		{"k above L", 5, exact.Request{}, "l2s: k: found 5, expected 1 to the 4 labels"},
		{"an id beyond L", 1, exact.Request{Among: exact.Only([]uint32{3, 4})}, "l2s: ids[1]: found label 4, expected one below the 4 labels"},
		{"allowed of another layer", 1, exact.Request{Allowed: bitset.New(3)}, "l2s: allowed: found a set over 3 labels, expected 4"},
		{"banned of another layer", 1, exact.Request{Banned: bitset.New(5)}, "l2s: banned: found a set over 5 labels, expected 4"},
		{"a bias beyond L", 1, exact.Request{Biases: []exact.Bias{{ID: 4}}}, "l2s: biases[0]: found label 4, expected one below the 4 labels"},
		{"biases out of order", 1, exact.Request{Biases: []exact.Bias{{ID: 2}, {ID: 1}}}, "l2s: biases[1]: found label 1 after 2, expected ascending, distinct labels"},
		{"two biases of a label", 1, exact.Request{Biases: []exact.Bias{{ID: 2}, {ID: 2}}}, "l2s: biases[1]: found label 2 after 2, expected ascending, distinct labels"},
		{"a bias that is NaN", 1, exact.Request{Biases: []exact.Bias{{ID: 2, Add: nan}}}, "l2s: biases[0]: found NaN, expected a finite number of at most 1.2676506002282294e+30 in magnitude"},
		{"a huge bias", 1, exact.Request{Biases: []exact.Bias{{ID: 2, Add: 2e30}}}, "l2s: biases[0]: found 2e+30, expected a finite number of at most 1.2676506002282294e+30 in magnitude"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := s.Search(make([]exact.Prediction, c.room), make([]float32, 2), c.req)
			if err == nil || err.Error() != c.want || !errors.Is(err, exact.ErrRequest) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// The room for the labels tells their number: the same for each context.
func TestTheRoomIsTheNumberOfLabels(t *testing.T) {
	s := exact.NewSearcher(newLayer(t, []float32{1, 2, 3, 4}, nil, 1))
	for _, c := range []struct {
		room, contexts int
		want           string
	}{
		{2, 1, ""}, {4, 1, ""}, {6, 2, ""}, {8, 2, ""}, {0, 0, ""},
		{3, 2, "l2s: dst: found room for 3 labels, expected the same number for each of 2 contexts"},
		{1, 0, "l2s: dst: found room for 1 labels, expected the same number for each of 0 contexts"},
		{0, 2, "l2s: k: found 0, expected 1 to the 4 labels"},
		{10, 2, "l2s: k: found 5, expected 1 to the 4 labels"},
	} {
		dst, answers := make([]exact.Prediction, c.room), make([]exact.Answer, c.contexts)
		err := s.SearchBatch(dst, answers, slices.Repeat([]float32{1}, c.contexts), exact.Request{})
		if c.want != "" {
			if err == nil || err.Error() != c.want || !errors.Is(err, exact.ErrRequest) {
				t.Errorf("room for %d, %d contexts: found %v, expected %s", c.room, c.contexts, err, c.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("room for %d, %d contexts: %v", c.room, c.contexts, err)
		}
		for i, a := range answers {
			k := c.room / c.contexts
			if a.Count != k || dst[i*k].ID != 3 || dst[i*k+k-1].ID != uint32(4-k) {
				t.Errorf("room for %d, %d contexts: found %+v and %v", c.room, c.contexts, a, dst)
			}
		}
	}
}

func TestSearchesDoNotAllocate(t *testing.T) {
	const labels, dim, n, k = 3000, 40, 6, 5 // two tiles of a batch
	r := newRand(5)
	w, contexts := make([]float32, labels*dim), make([]float32, n*dim)
	for i := range w {
		w[i] = float32(r.NormFloat64())
	}
	for i := range contexts {
		contexts[i] = float32(r.NormFloat64())
	}
	few, most := bitset.New(labels), bitset.New(labels)
	most.Fill()
	for id := uint32(7); id < labels; id += 50 {
		few.Add(id)
		most.Remove(id)
	}
	biases := []exact.Bias{{ID: 3, Add: 5}, {ID: 2000, Add: -2}}
	s, h := exact.NewSearcher(newLayer(t, w, nil, dim)), contexts[:dim]
	q := newQuery(t, h)
	top, answers, logits := make([]exact.Prediction, n*k), make([]exact.Answer, n), make([]float64, labels)
	simdtest.EachLevel(t, func(t *testing.T) {
		check := func(name string, f func() error) {
			t.Helper()
			var err error
			for range 2 {
				err = f()
			}
			if n := simdtest.AllocsPerRun(20, func() { err = f() }); n != 0 || err != nil {
				t.Errorf("%s: %v allocations a call, %v", name, n, err)
			}
		}
		check("Set", func() error { return q.Set(h) })
		check("TopK", func() error { _, err := s.TopK(top[:k], h); return err })
		check("many", func() error { var p [300]exact.Prediction; _, err := s.TopK(p[:], h); return err })
		check("Logits", func() error { return s.Logits(logits, q, exact.Labels{}) })
		for name, req := range map[string]exact.Request{
			"all":        {},
			"list":       {Among: exact.Only(allIDs(100))},
			"log-sum":    {LogSum: true},
			"few left":   {Allowed: few, LogSum: true},
			"many left":  {Allowed: most, Banned: few},
			"biases":     {Biases: biases},
			"everything": {Among: exact.Only(allIDs(100)), LogSum: true, Banned: few, Biases: biases},
		} {
			check(name, func() error { var p [k]exact.Prediction; _, err := s.Search(p[:], h, req); return err })
			check(name+", batch", func() error { return s.SearchBatch(top, answers, contexts, req) })
		}
	})
}

// TestGoldenBits compares ids, logits and log-probabilities with their bits on amd64: they are the
// same on every architecture and level.
func TestGoldenBits(t *testing.T) {
	const labels, dim = 400, 77
	const want = uint64(0x82acf7eb705f8e2d)
	r := rand.New(rand.NewPCG(7, 7))
	// Uniform numbers alone: the numbers of NormFloat64 use math.Exp, which is not the same
	// everywhere.
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
		logits, s := make([]float64, labels), exact.NewSearcher(l)
		for range 50 {
			h := uniform(dim)
			for _, p := range topK(t, s, 10, h) {
				add(uint64(p.ID))
				add(math.Float64bits(p.Logit))
			}
			if err := s.Logits(logits, newQuery(t, h), exact.Labels{}); err != nil {
				t.Fatal(err)
			}
			sum := kernels.LogSumExp(logits)
			for _, x := range logits {
				add(math.Float64bits(x - sum))
			}
		}
		if got := sum.Sum64(); got != want {
			t.Errorf("hash of all answers: %#x, want %#x", got, want)
		}
	})
}

func TestLargeLayersAreReleased(t *testing.T) {
	simdtest.Long(t)
	// The codes of a large layer, here 16 MiB, are outside the Go heap.
	const labels, dim, layers, limit = 1 << 18, 8, 30, 200 << 20
	w := make([]float32, labels*dim)
	before, ok := residentBytes()
	if !ok {
		t.Skip("the system does not report the resident memory")
	}
	for range layers {
		topK(t, exact.NewSearcher(newLayer(t, w, nil, dim)), 1, make([]float32, dim))
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

// The exact sum is the reference arithmetic's, for one context as for many, at any
// temperature, and the usual one is near it; the labels are the same. LogProb is a
// logit minus that sum.
func TestExactSumsAndTemperatures(t *testing.T) {
	const n, d, k, m = 700, 32, 4, 6
	w, b, hs := make([]float32, n*d), make([]float32, n), make([]float32, m*d)
	r := rand.New(rand.NewPCG(8, 9))
	for _, x := range [][]float32{w, b, hs} {
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
	}
	l, err := exact.NewLayer(kernels.Float32Rows(w, d), b)
	if err != nil {
		t.Fatal(err)
	}
	s := exact.NewSearcher(l)
	for _, temperature := range []float64{0, 0.5, 1, 3} {
		sums, usual := make([]exact.Answer, m), make([]exact.Answer, m)
		top, other := make([]exact.Prediction, m*k), make([]exact.Prediction, m*k)
		if err := s.SearchBatch(top, sums, hs, exact.Request{LogSum: true, ExactSum: true, Temperature: temperature}); err != nil {
			t.Fatal(err)
		}
		if err := s.SearchBatch(other, usual, hs, exact.Request{LogSum: true, Temperature: temperature}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(top, other) {
			t.Fatalf("temperature %v: other labels with another sum", temperature)
		}
		for i := range m {
			h, terms := hs[i*d:(i+1)*d], make([]float64, n)
			kernels.Float32Rows(w, d).RefScan(terms, b, h)
			logit := terms[5]
			p, err := s.LogProb(h, 5, 1)
			if want := logit - kernels.LogSumExp(terms); err != nil || p != want {
				t.Errorf("context %d: log-probability %v, %v, want %v", i, p, err, want)
			}
			if temperature != 0 {
				for j := range terms {
					terms[j] /= temperature
				}
			}
			want := kernels.LogSumExp(terms)
			if sums[i].LogSum != want || math.Abs(usual[i].LogSum-want) > 0.01 {
				t.Errorf("temperature %v, context %d: sums %v and %v, want %v", temperature, i, sums[i].LogSum, usual[i].LogSum, want)
			}
		}
	}
	for _, bad := range []float64{-1, math.NaN(), math.Inf(1)} {
		if _, err := s.Search(nil, hs[:d], exact.Request{LogSum: true, Temperature: bad}); !errors.Is(err, exact.ErrRequest) {
			t.Errorf("temperature %v: error %v", bad, err)
		}
	}
	if _, err := s.LogProb(hs[:d], n, 1); !errors.Is(err, exact.ErrRequest) {
		t.Errorf("no label of the layer: error %v", err)
	}
	if _, err := s.LogProb(hs[1:d], 0, 1); !errors.Is(err, exact.ErrContext) {
		t.Errorf("no context: error %v", err)
	}
}

// The intervals contain the logits, are the same on every level, and do not exist without codes.
func TestBoundsHoldTheLogits(t *testing.T) {
	const labels, dim = 300, 24
	r := newRand(31)
	w, b, h := make([]float32, labels*dim), make([]float32, labels), make([]float32, dim)
	for _, x := range [][]float32{w, b, h} {
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
	}
	l := newLayer(t, w, b, dim)
	var want []float32
	simdtest.EachLevel(t, func(t *testing.T) {
		s, q := exact.NewSearcher(l), exact.NewQuery(dim)
		x := make([]float64, labels)
		if _, _, err := s.Bounds(q, exact.Labels{}); !errors.Is(err, exact.ErrContext) {
			t.Errorf("without a context: error %v, want one of its kind", err)
		}
		if err := q.Set(h); err != nil {
			t.Fatal(err)
		}
		lower, upper, err := s.Bounds(q, exact.Labels{})
		if err != nil || len(lower) != labels || len(upper) != labels {
			t.Fatal(len(lower), len(upper), err)
		}
		if err := s.Logits(x, q, exact.Labels{}); err != nil {
			t.Fatal(err)
		}
		for i, v := range x {
			if !(float64(lower[i]) <= v && v <= float64(upper[i])) || upper[i]-lower[i] > 1 {
				t.Errorf("label %d: found the interval [%v, %v], want a narrow one with %v", i, lower[i], upper[i], v)
			}
		}
		bounds := slices.Concat(lower, upper)
		if want == nil {
			want = bounds
		} else if !slices.Equal(bounds, want) {
			t.Error("found other bits than on the first level")
		}
		some := []uint32{5, 3, labels - 1}
		lower, upper, err = s.Bounds(q, exact.Only(some))
		for i, id := range some {
			if err != nil || len(lower) != len(some) || lower[i] != bounds[id] || upper[i] != bounds[labels+int(id)] {
				t.Errorf("label %d of a list: found other bits than of all labels, error %v", id, err)
			}
		}
		if n := simdtest.AllocsPerRun(10, func() { _, _, _ = s.Bounds(q, exact.Labels{}) }); n != 0 {
			t.Errorf("found %v allocations, want none", n)
		}
		// For numbers beyond the range of the codes there are no intervals.
		huge := slices.Clone(h)
		huge[0] = math.MaxFloat32
		if err := q.Set(huge); err != nil {
			t.Fatal(err)
		}
		if lower, _, err := s.Bounds(q, exact.Labels{}); lower != nil || err != nil {
			t.Errorf("a huge context: found %v and error %v, want neither", lower, err)
		}
	})
}
