package methods

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/learning-to-screen/l2s/benchmarks/internal/layers"
	"github.com/learning-to-screen/l2s/internal/demolm"
	"github.com/learning-to-screen/l2s/internal/synthetic"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
	"github.com/learning-to-screen/l2s/train"
)

// rivalK is the number of labels asked for.
const rivalK = 5

// rivals are the graphs and the approximations of the layer.
func rivals() []Method {
	return []Method{
		FGD{}, FGD{M: 4, EfConstruction: 20},
		IPNSW{}, IPNSW{M: 4, EfConstruction: 20},
		SVDSoftmax{Width: 8}, SVDSoftmax{Width: 1000},
		AdaptiveSoftmax{Cutoffs: []int{100}}, AdaptiveSoftmax{Cutoffs: []int{3, 50, 200, 400}}, AdaptiveSoftmax{},
	}
}

// rivalInput makes an Input of the first contexts of data, with labels, and
// returns the other contexts.
func rivalInput(t testing.TB, d *synthetic.Data, learn int) (*Input, [][]float32) {
	t.Helper()
	in := &Input{Layer: d.Layer, Contexts: d.Contexts[:learn*d.Layer.Dim()], K: min(rivalK, d.Layer.Labels()), Seed: 1}
	var err error
	in.Labels, err = train.Labels(context.Background(), d.Layer, in.Contexts, in.K, train.LabelOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var others [][]float32
	for i := learn; i < d.Len(); i++ {
		others = append(others, d.Context(i))
	}
	return in, others
}

// leaning is a layer of 600 labels whose labels and contexts lean towards 12
// directions.
func leaning(t testing.TB) (*Input, [][]float32) {
	t.Helper()
	return rivalInput(t, synthetic.Structured(600, 24, 12, 1060, 1), 1000)
}

func mustBuild(t testing.TB, m Method, in *Input) Index {
	t.Helper()
	x, err := m.Build(context.Background(), in)
	if err != nil {
		t.Fatalf("%s %s: %v", m.Name(), m.Params(), err)
	}
	return x
}

// exactOf returns the exact answer among ids, or all labels where ids is nil.
func exactOf(t testing.TB, l *softmax.Layer, h []float32, ids []uint32) []softmax.Prediction {
	t.Helper()
	q, dst := softmax.NewQuery(l.Dim()), make([]softmax.Prediction, rivalK)
	if err := q.Set(h); err != nil {
		t.Fatal(err)
	}
	if ids == nil {
		return dst[:l.TopK(dst, q)]
	}
	return dst[:l.TopKOf(dst, q, ids)]
}

func answerOf(s Searcher, h []float32) []softmax.Prediction {
	dst := make([]softmax.Prediction, rivalK)
	return dst[:s.TopK(dst, h)]
}

// recall returns P@5 of a setting.
func recall(t testing.TB, s Setting, l *softmax.Layer, contexts [][]float32) float64 {
	t.Helper()
	hits, z := 0, s.Searcher()
	for _, h := range contexts {
		exact := exactOf(t, l, h, nil)
		for _, p := range answerOf(z, h) {
			if slices.ContainsFunc(exact, func(e softmax.Prediction) bool { return e.ID == p.ID }) {
				hits++
			}
		}
	}
	return float64(hits) / float64(rivalK*len(contexts))
}

// reached returns the labels that links lead to from a node of the lowest
// layer.
func reached(g *graph, from uint32) []uint32 {
	met := make([]bool, len(g.start))
	met[from] = true
	ids := []uint32{from}
	for i := 0; i < len(ids); i++ {
		for _, id := range g.links(ids[i], 0) {
			if !met[id] {
				met[id] = true
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

func TestAGraphWithAListOfAllLabelsGivesTheExactAnswer(t *testing.T) {
	in, contexts := leaning(t)
	for _, c := range []struct {
		method Method
		least  float64 // the share of labels that can be reached
	}{
		{FGD{}, 1},
		{FGD{M: 4, EfConstruction: 20}, 1},
		{IPNSW{}, 1},
		// 0.767: labels of small norms are the neighbours of none.
		{IPNSW{M: 4, EfConstruction: 20}, 0.75},
	} {
		t.Run(c.method.Name()+" "+c.method.Params(), func(t *testing.T) {
			x := mustBuild(t, c.method, in).(*graphIndex)
			s := graphSetting{x, in.Layer.Labels()}.Searcher().(*graphSearcher)
			for i, h := range contexts {
				got := answerOf(s, h)
				s.by.set(h)
				ids := reached(x.graph, s.walk.descend(x.graph, 0))
				if i == 0 {
					share := float64(len(ids)) / float64(in.Layer.Labels())
					t.Logf("reached %.4f", share)
					if share < c.least {
						t.Errorf("reached %.4f of the labels, want at least %v", share, c.least)
					}
				}
				if want := exactOf(t, in.Layer, h, ids); !slices.Equal(got, want) {
					t.Fatalf("context %d: got %v, want %v", i, got, want)
				}
			}
		})
	}
}

func TestAGraphHasTheLinksItPromises(t *testing.T) {
	in, _ := leaning(t)
	const m = 6
	for _, method := range []Method{FGD{M: m}, IPNSW{M: m}} {
		g := mustBuild(t, method, in).(*graphIndex).graph
		n := uint32(len(g.start))
		// The nodes of each layer are those with a record in it.
		layers := make([]int, n)
		for id := range n {
			end := len(g.upper)
			if id+1 < n {
				end = int(g.start[id+1])
			}
			layers[id] = (end - int(g.start[id])) / (1 + m)
		}
		if got := slices.Max(layers); g.highest != got || layers[g.entry] != got {
			t.Errorf("%s: entry %d in layer %d, highest %d, want a node of layer %d", method.Name(), g.entry, layers[g.entry], g.highest, got)
		}
		if g.highest == 0 {
			t.Errorf("%s: no upper layer", method.Name())
		}
		for id := range n {
			for layer := 0; layer <= layers[id]; layer++ {
				links, room := g.links(id, layer), m
				if layer == 0 {
					room = 2 * m
				}
				sorted := slices.Sorted(slices.Values(links))
				if len(links) > room || len(slices.Compact(sorted)) != len(links) || slices.Contains(links, id) {
					t.Fatalf("%s: node %d in layer %d: links %v, want at most %d distinct others", method.Name(), id, layer, links, room)
				}
				for _, other := range links {
					if other >= n || layers[other] < layer {
						t.Fatalf("%s: node %d in layer %d: link to %d, which is not there", method.Name(), id, layer, other)
					}
				}
			}
		}
	}
}

// Nodes that have room for links to all others are linked to all that were
// there when they came.
func TestGraphsOfFewLabels(t *testing.T) {
	for _, labels := range []int{1, 2, 3, 5, 9} {
		in, contexts := rivalInput(t, synthetic.Structureless(labels, 5, 30, 7), 10)
		for _, m := range []Method{FGD{}, IPNSW{}, FGD{M: 2, EfConstruction: 1}, IPNSW{M: 2, EfConstruction: 1}} {
			settings := mustBuild(t, m, in).Settings()
			if len(settings) == 0 {
				t.Fatalf("%d labels: %s %s: no settings", labels, m.Name(), m.Params())
			}
			s := settings[len(settings)-1].Searcher()
			for _, h := range contexts {
				got, want := answerOf(s, h), exactOf(t, in.Layer, h, nil)
				_, full := m.(IPNSW) // fills links up
				if full && m.Params() == (IPNSW{}).Params() && labels <= rivalK && !slices.Equal(got, want) {
					t.Errorf("%d labels: %s %s: got %v, want %v", labels, m.Name(), m.Params(), got, want)
				}
				if len(got) == 0 || len(got) > len(want) || got[0].Logit > want[0].Logit {
					t.Errorf("%d labels: %s %s: got %v, best is %v", labels, m.Name(), m.Params(), got, want)
				}
			}
		}
	}
}

// A score is the upper end of the interval of the logit; where there is none,
// the logit in float32.
func TestScoresAreNearTheLogits(t *testing.T) {
	in, contexts := leaning(t)
	l, d := in.Layer, in.Layer.Dim()
	large := make([]float32, len(l.Weights()))
	for i, x := range l.Weights() {
		large[i] = x * (1 << 50)
	}
	small := make([]float32, d)
	for i, x := range contexts[0] {
		small[i] = x * (1.0 / (1 << 100))
	}
	for _, c := range []struct {
		name      string
		weights   []float32
		h         []float32
		certified bool
	}{
		{"certified", l.Weights(), contexts[0], true},
		{"large weights", large, contexts[0], false},
		{"small context", l.Weights(), small, false},
	} {
		s := newScorer(newCodes(c.weights, l.Bias(), d), l.Labels())
		s.set(c.h)
		if got := s.rows != nil && s.fit == kernels.Certified; got != c.certified {
			t.Errorf("%s: certified %v", c.name, got)
		}
		all, one, id := make([]float32, l.Labels()), make([]float32, 1), uint32(17)
		s.scan(all)
		s.gather(one, []uint32{id})
		// Scans and gathers may sum float32 products in different orders.
		if diff := math.Abs(float64(one[0] - all[id])); diff > 1e-5*math.Abs(float64(all[id])) {
			t.Errorf("%s: row %d: gathered %v, scanned %v", c.name, id, one[0], all[id])
		}
		for i, score := range all {
			w := c.weights[i*d : (i+1)*d]
			logit := kernels.RefDot(w, c.h) + float64(l.Bias()[i])
			room := 1e-5 * math.Sqrt(kernels.RefDot(w, w)*kernels.RefDot(c.h, c.h))
			if c.certified {
				room *= 3000 // int8 codes of 24 elements
				if float64(score) < logit {
					t.Errorf("%s: row %d: score %v is below the logit %v", c.name, i, score, logit)
				}
			}
			if math.Abs(float64(score)-logit) > room+1e-6 {
				t.Errorf("%s: row %d: score %v, logit %v", c.name, i, score, logit)
			}
		}
	}
}

// The order of nodes is that of scores, the largest first, and of equals that
// of ids.
func TestNodesAreOrderedByScoreThenID(t *testing.T) {
	inf := float32(math.Inf(1))
	last := uint64(math.MaxUint64)
	for _, score := range []float32{inf, math.MaxFloat32, 2, 1, 1e-40, 0, -1e-40, -1, -2, -math.MaxFloat32, -inf} {
		for _, id := range []uint32{0, 1, 77, maxNodes - 1} {
			node := packNode(id, score)
			if node >= last {
				t.Errorf("id %d, score %v is not behind the one before", id, score)
			}
			if nodeID(node) != id || nodeScore(node) != score || node&pending == 0 {
				t.Errorf("id %d, score %v: unpacked %d, %v", id, score, nodeID(node), nodeScore(node))
			}
			if done := node &^ pending; nodeID(done) != id || nodeScore(done) != score {
				t.Errorf("id %d, score %v: unpacked %d, %v without the pending bit", id, score, nodeID(done), nodeScore(done))
			}
			last = node &^ pending
		}
	}
}

// All rows of the reduction have one norm, and their products with [h, 1, 0]
// are the logits.
func TestAugmentedRowsHaveOneNormAndTheLogits(t *testing.T) {
	in, contexts := leaning(t)
	l := in.Layer
	for _, oneNorm := range []bool{true, false} {
		rows, dim, order := augment(in, oneNorm)
		h := make([]float32, dim)
		copy(h, contexts[0])
		h[l.Dim()] = 1
		last := math.Inf(1)
		largest := 0.0
		for _, s := range order {
			row := rows[int(s)*dim : (int(s)+1)*dim]
			w := l.Weights()[int(s)*l.Dim() : (int(s)+1)*l.Dim()]
			square := kernels.RefDot(w, w) + float64(l.Bias()[s])*float64(l.Bias()[s])
			if square > last*(1+1e-12) {
				t.Errorf("label %d: norm %v comes after %v", s, square, last)
			}
			last, largest = square, max(largest, square)
			want := square
			if oneNorm {
				want = largest
			}
			if got := kernels.RefDot(row, row); math.Abs(got-want) > 1e-5*want {
				t.Errorf("label %d: squared norm %v, want %v", s, got, want)
			}
			logit := kernels.RefDot(w, contexts[0]) + float64(l.Bias()[s])
			if got := kernels.RefDot(row, h); math.Abs(got-logit) > 1e-5 {
				t.Errorf("label %d: product %v, want the logit %v", s, got, logit)
			}
		}
	}
}

func TestSVDSoftmaxOfAllLabelsIsExact(t *testing.T) {
	in, contexts := leaning(t)
	for _, width := range []int{1, 8, in.Layer.Dim(), 1000} {
		x := mustBuild(t, SVDSoftmax{width}, in).(*svdIndex)
		s := svdSetting{x, in.Layer.Labels()}.Searcher()
		for i, h := range contexts {
			if got, want := answerOf(s, h), exactOf(t, in.Layer, h, nil); !slices.Equal(got, want) {
				t.Fatalf("width %d, context %d: got %v, want %v", width, i, got, want)
			}
		}
	}
}

// V is orthonormal, the columns of A = W V are orthogonal and their norms, the
// singular values, descend; with all of them the preview is the logit.
func TestSVDSoftmaxFactors(t *testing.T) {
	in, contexts := leaning(t)
	l, d := in.Layer, in.Layer.Dim()
	x := mustBuild(t, SVDSoftmax{d}, in).(*svdIndex)
	a := x.preview.weights
	column := func(j int) []float32 {
		c := make([]float32, l.Labels())
		for s := range c {
			c[s] = a[s*d+j]
		}
		return c
	}
	last := math.Inf(1)
	for j := range d {
		cj := column(j)
		square := kernels.RefDot(cj, cj)
		if square > last*(1+1e-6) {
			t.Errorf("singular value %d is larger than the one before", j)
		}
		last = square
		for k := range j + 1 {
			want := 0.0
			if j == k {
				want = 1
			}
			if got := kernels.RefDot(x.v[j*d:(j+1)*d], x.v[k*d:(k+1)*d]); math.Abs(got-want) > 1e-5 {
				t.Errorf("v_%d.v_%d = %v, want %v", j, k, got, want)
			}
			if ck := column(k); j != k && math.Abs(kernels.RefDot(cj, ck)) > 1e-4*math.Sqrt(square*kernels.RefDot(ck, ck)) {
				t.Errorf("columns %d and %d of A are not orthogonal", j, k)
			}
		}
	}
	h := contexts[0]
	rotated, preview, logits := make([]float32, d), make([]float32, l.Labels()), make([]float32, l.Labels())
	kernels.Scan(rotated, x.v, nil, h)
	kernels.Scan(preview, a, l.Bias(), rotated)
	kernels.Scan(logits, l.Weights(), l.Bias(), h)
	for s := range logits {
		if math.Abs(float64(preview[s]-logits[s])) > 1e-4 {
			t.Errorf("label %d: preview %v, want the logit %v", s, preview[s], logits[s])
		}
	}
}

func TestAdaptiveSoftmaxOpensTailsAsTheMarginSays(t *testing.T) {
	in, contexts := leaning(t)
	for _, cutoffs := range [][]int{nil, {100}, {7, 50, 300}, {200, 600}, {250, 700, 800}} {
		m := AdaptiveSoftmax{cutoffs}
		t.Run(m.Params(), func(t *testing.T) {
			x := mustBuild(t, m, in).(*adaptiveIndex)
			var all []uint32
			for _, p := range x.parts {
				all = append(all, p.ids...)
			}
			slices.Sort(all)
			for s := range uint32(in.Layer.Labels()) {
				if len(all) != in.Layer.Labels() || all[s] != s {
					t.Fatalf("head and tails hold %d labels, want each of %d once", len(all), in.Layer.Labels())
				}
			}
			none := adaptiveSetting{x, math.Inf(-1)}.Searcher()
			every := adaptiveSetting{x, math.Inf(1)}.Searcher()
			for i, h := range contexts {
				if got, want := answerOf(none, h), exactOf(t, in.Layer, h, x.parts[0].ids); !slices.Equal(got, want) {
					t.Fatalf("context %d, no tail: got %v, want %v", i, got, want)
				}
				if got, want := answerOf(every, h), exactOf(t, in.Layer, h, nil); !slices.Equal(got, want) {
					t.Fatalf("context %d, all tails: got %v, want %v", i, got, want)
				}
			}
		})
	}
	t.Run("a head of less than k labels", func(t *testing.T) {
		x := mustBuild(t, AdaptiveSoftmax{[]int{2, 300}}, in)
		for _, s := range x.Settings() {
			z := s.Searcher()
			for i, h := range contexts {
				if got := answerOf(z, h); len(got) != rivalK {
					t.Fatalf("%s: context %d: %d labels, want %d", s.Params(), i, len(got), rivalK)
				}
			}
		}
	})
}

// The logits of a query are those of whole parts: the head, and the tails that the
// search for k labels opens, so that its answer is among them.
func TestAdaptiveSoftmaxGivesTheLogitsOfWhatItOpens(t *testing.T) {
	in, contexts := leaning(t)
	l, d := in.Layer, in.Layer.Dim()
	x := mustBuild(t, AdaptiveSoftmax{[]int{50, 150, 300}}, in).(*adaptiveIndex)
	dst, counts := make([]float64, l.Labels()), map[int]int{}
	for _, z := range []float64{math.Inf(-1), -1, 0, 1, math.Inf(1)} {
		s := adaptiveSetting{x, z}.Searcher().(LogitSearcher)
		for i, h := range contexts {
			for id := range dst {
				dst[id] = math.NaN()
			}
			s.Logits(dst, h, rivalK)
			open := 0
			for j, p := range x.parts {
				written := 0
				for _, id := range p.ids {
					if math.IsNaN(dst[id]) {
						continue
					}
					written++
					want := kernels.RefDot(l.Weights()[int(id)*d:(int(id)+1)*d], h) + float64(l.Bias()[id])
					if math.Abs(dst[id]-want) > 1e-4 {
						t.Fatalf("context %d: logit %v of %d, want %v", i, dst[id], id, want)
					}
				}
				if written > 0 {
					open++
				}
				if written != 0 && written != len(p.ids) || j == 0 && written == 0 {
					t.Fatalf("z %v, context %d: %d of the %d logits of part %d", z, i, written, len(p.ids), j)
				}
			}
			counts[open]++
			for _, p := range answerOf(s, h) {
				if math.IsNaN(dst[p.ID]) {
					t.Fatalf("z %v, context %d: no logit of %d, which is in the answer", z, i, p.ID)
				}
			}
			if math.IsInf(z, -1) && open != 1 || math.IsInf(z, 1) && open != len(x.parts) {
				t.Errorf("z %v: %d parts are open", z, open)
			}
		}
	}
	for n := range len(x.parts) {
		if counts[n+1] == 0 {
			t.Errorf("no query opened %d parts: %v", n+1, counts)
		}
	}
}

// The most frequent labels are in the head, and without labels those that the
// contexts have.
func TestAdaptiveSoftmaxHeadIsFrequent(t *testing.T) {
	in, _ := leaning(t)
	count := make(map[uint32]int)
	for _, s := range in.Labels {
		count[s]++
	}
	unlabelled := *in
	unlabelled.Labels = nil
	for _, input := range []*Input{in, &unlabelled} {
		x := mustBuild(t, AdaptiveSoftmax{[]int{60}}, input).(*adaptiveIndex)
		least, most := math.MaxInt, 0
		for _, s := range x.parts[0].ids {
			least = min(least, count[s])
		}
		for _, s := range x.parts[1].ids {
			most = max(most, count[s])
		}
		if most > least {
			t.Errorf("a label of the tail is frequent %d times, one of the head %d", most, least)
		}
	}
}

// The largest logit of a tail of one label is linear in h, and the fit finds
// it.
func TestAdaptiveSoftmaxClassScoreOfOneLabelIsItsLogit(t *testing.T) {
	in, contexts := leaning(t)
	l := in.Layer
	x := mustBuild(t, AdaptiveSoftmax{[]int{l.Labels() - 1}}, in).(*adaptiveIndex)
	s := int(x.parts[1].ids[0])
	for _, h := range contexts {
		want := kernels.RefDot(l.Weights()[s*l.Dim():(s+1)*l.Dim()], h) + float64(l.Bias()[s])
		if got := kernels.RefDot(x.class, h) + float64(x.offset[0]); math.Abs(got-want) > 1e-2 {
			t.Errorf("class score %v, want the logit %v", got, want)
		}
	}
	if x.stdErr[0] > 1e-2 {
		t.Errorf("standard error %v, want nearly 0", x.stdErr[0])
	}
}

// One context, seen often, leaves the fit of the class scores open: it must
// not fail.
func TestAdaptiveSoftmaxOfEqualContexts(t *testing.T) {
	in, contexts := leaning(t)
	same := *in
	same.Contexts, same.Labels = slices.Repeat(contexts[0], 20), nil
	s := adaptiveSetting{mustBuild(t, AdaptiveSoftmax{[]int{50}}, &same).(*adaptiveIndex), 3}.Searcher()
	if got, want := answerOf(s, contexts[0]), exactOf(t, in.Layer, contexts[0], nil); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Methods that share the codes of the layer are charged for them like those with
// codes of their own, once.
func TestEveryMethodIsChargedForTheCodesThatItReads(t *testing.T) {
	in, _ := leaning(t)
	codes := int64(in.Layer.Labels()) * int64(kernels.Int8Stride(in.Layer.Dim()))
	for _, c := range []struct {
		method Method
		own    func(Index) int64 // the rest
	}{
		{FGD{}, func(x Index) int64 { return x.(*graphIndex).graph.bytes() }},
		{IPNSW{}, func(x Index) int64 { return x.(*graphIndex).graph.bytes() }},
		{GreedyMIPS{Budgets: []int{5}}, func(x Index) int64 { return 8 * int64(in.Layer.Labels()*(in.Layer.Dim()+1)) }},
		{LSHMIPS{Tables: 3, Bits: 4, Probes: []int{1}}, func(x Index) int64 {
			return 4 * int64(3*4*(in.Layer.Dim()+1)+3*in.Layer.Labels()+len(x.(*lshIndex).firsts))
		}},
		{L2S{Clusters: 12, Budget: 40, KMeansOnly: true}, func(x Index) int64 {
			m := x.Settings()[0].(Screened).Model
			n := int64(12 * (4*m.Dim() + kernels.Int8Stride(m.Dim())))
			for t := range m.Clusters() {
				n += 4 * int64(len(m.Candidates(t)))
			}
			return n
		}},
	} {
		x := mustBuild(t, c.method, in)
		if got, want := x.Bytes(), codes+c.own(x); got != want {
			t.Errorf("%s: %d bytes, want %d", c.method.Name(), got, want)
		}
	}
}

func TestRivalsOfOneSeedAnswerAlike(t *testing.T) {
	in, contexts := leaning(t)
	for _, m := range rivals() {
		x, y := mustBuild(t, m, in), mustBuild(t, m, in)
		if x.Bytes() != y.Bytes() || x.Bytes() <= 0 {
			t.Errorf("%s %s: %d and %d bytes", m.Name(), m.Params(), x.Bytes(), y.Bytes())
		}
		for i, s := range x.Settings() {
			// Answers do not depend on those before either.
			one, other := s.Searcher(), y.Settings()[i].Searcher()
			answerOf(other, contexts[1])
			for _, h := range contexts[:10] {
				if a, b := answerOf(one, h), answerOf(other, h); !slices.Equal(a, b) {
					t.Fatalf("%s %s %s: %v and %v", m.Name(), m.Params(), s.Params(), a, b)
				}
			}
		}
	}
	x, y := mustBuild(t, FGD{}, in).(*graphIndex), mustBuild(t, FGD{}, in).(*graphIndex)
	if !slices.Equal(x.lowest, y.lowest) || !slices.Equal(x.upper, y.upper) {
		t.Error("two graphs of one seed differ")
	}
	other := *in
	other.Seed++
	if y := mustBuild(t, FGD{}, &other).(*graphIndex); slices.Equal(x.start, y.start) {
		t.Error("graphs of two seeds have the same layers")
	}
}

func TestRivalsAnswerWithExactLogitsInOrder(t *testing.T) {
	in, contexts := leaning(t)
	for _, m := range rivals() {
		for _, s := range mustBuild(t, m, in).Settings() {
			z := s.Searcher()
			for _, h := range contexts[:10] {
				got := answerOf(z, h)
				var ids []uint32
				for _, p := range got {
					ids = append(ids, p.ID)
				}
				if len(got) != rivalK || !slices.Equal(got, exactOf(t, in.Layer, h, ids)) {
					t.Fatalf("%s %s %s: answer %v", m.Name(), m.Params(), s.Params(), got)
				}
			}
			if n := z.TopK(nil, contexts[0]); n != 0 {
				t.Errorf("%s %s %s: %d labels where none was asked for", m.Name(), m.Params(), s.Params(), n)
			}
		}
	}
}

func TestRivalsAllocateNothing(t *testing.T) {
	in, contexts := leaning(t)
	for _, m := range rivals() {
		for _, s := range mustBuild(t, m, in).Settings() {
			z, i := s.Searcher(), 0
			var dst [rivalK]softmax.Prediction
			query := func() {
				z.TopK(dst[:], contexts[i%len(contexts)])
				i++
			}
			for range contexts {
				query()
			}
			if n := testing.AllocsPerRun(2*len(contexts), query); n != 0 {
				t.Errorf("%s %s %s: %v allocations a query", m.Name(), m.Params(), s.Params(), n)
			}
		}
	}
}

func TestRivalsStopWhenToldTo(t *testing.T) {
	in, _ := leaning(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, m := range rivals() {
		if a, ok := m.(AdaptiveSoftmax); ok && a.Cutoffs == nil {
			continue // nothing to fit
		}
		if _, err := m.Build(ctx, in); !errors.Is(err, context.Canceled) {
			t.Errorf("%s %s: error %v, want %v", m.Name(), m.Params(), err, context.Canceled)
		}
	}
}

func TestRivalsRefuseWrongParameters(t *testing.T) {
	in, _ := leaning(t)
	without := *in
	without.Contexts = nil
	for _, c := range []struct {
		method Method
		in     *Input
	}{
		{FGD{M: 1}, in}, {FGD{M: -1}, in}, {FGD{M: 1 << 20}, in}, {FGD{EfConstruction: -1}, in},
		{IPNSW{M: 1}, in}, {IPNSW{EfConstruction: -1}, in},
		{SVDSoftmax{}, in}, {SVDSoftmax{-1}, in},
		{AdaptiveSoftmax{[]int{0}}, in}, {AdaptiveSoftmax{[]int{5, 5}}, in}, {AdaptiveSoftmax{[]int{9, 5}}, in},
		{AdaptiveSoftmax{[]int{5}}, &without},
	} {
		if _, err := c.method.Build(context.Background(), c.in); err == nil {
			t.Errorf("%#v: no error", c.method)
		}
	}
}

// firstRows is the number of rows of a language model's layer that tests of
// recall look at: enough to be one, few enough to be quick.
const firstRows = 2000

// firstLabels restricts a layer to its first labels.
func firstLabels(l *softmax.Layer) (*softmax.Layer, error) {
	return softmax.NewLayer(l.Weights()[:firstRows*l.Dim()], l.Bias()[:firstRows], l.Dim())
}

// embedded is the model of the demonstration, with contexts that it generates.
var embedded = sync.OnceValues(func() (*synthetic.Data, error) {
	m, v, err := demolm.Load()
	if err != nil {
		return nil, err
	}
	l, err := layers.Decoder(m)
	if err != nil {
		return nil, err
	}
	d := &synthetic.Data{}
	if d.Layer, err = firstLabels(l); err != nil {
		return nil, err
	}
	d.Contexts, err = demolm.Contexts(context.Background(), m, v, 2200, 1, nil)
	return d, err
})

// pennTreebank is PTB-Small.
var pennTreebank = sync.OnceValues(func() (*synthetic.Data, error) {
	dir := filepath.Join("..", "..", "..", "..", "shared", "data", "ptb-small")
	if _, err := os.Stat(dir); err != nil {
		return nil, nil
	}
	d, err := layers.LanguageModel(dir, "ptb.valid.txt", 2200)
	if err != nil {
		return nil, err
	}
	d.Layer, err = firstLabels(d.Layer)
	return d, err
})

func TestRecallOfRivalsOnLanguageModels(t *testing.T) {
	for _, model := range []struct {
		name string
		load func() (*synthetic.Data, error)
	}{{"embedded", embedded}, {"ptb-small", pennTreebank}} {
		t.Run(model.name, func(t *testing.T) {
			d, err := model.load()
			if err != nil {
				t.Fatal(err)
			}
			if d == nil {
				t.Skip("../shared/data/ptb-small is absent")
			}
			in, contexts := rivalInput(t, d, 2000)
			for _, c := range []struct {
				method  Method
				setting string
				least   float64
			}{
				{FGD{}, "ef=64", 0.9},
				{IPNSW{}, "ef=64", 0.95},
				{SVDSoftmax{48}, "N=64", 0.95},
				{AdaptiveSoftmax{[]int{500, 1000}}, "z=2", 0.95},
			} {
				t.Run(c.method.Name(), func(t *testing.T) {
					x := mustBuild(t, c.method, in)
					settings := x.Settings()
					i := slices.IndexFunc(settings, func(s Setting) bool { return s.Params() == c.setting })
					if i < 0 {
						t.Fatalf("no setting %s", c.setting)
					}
					p := recall(t, settings[i], in.Layer, contexts)
					cheap := recall(t, settings[0], in.Layer, contexts)
					most := recall(t, settings[len(settings)-1], in.Layer, contexts)
					t.Logf("P@5 %.4f, from %.4f to %.4f", p, cheap, most)
					if p < c.least {
						t.Errorf("%s: P@5 %.4f, want at least %v", c.setting, p, c.least)
					}
					if cheap > p || p > most || most < 0.99 {
						t.Errorf("P@5 of the first setting %.4f, of %s %.4f, of the last %.4f", cheap, c.setting, p, most)
					}
				})
			}
		})
	}
}
