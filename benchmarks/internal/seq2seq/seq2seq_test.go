package seq2seq

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/dense"
	"github.com/learning-to-screen/l2s/internal/exact"
	"github.com/learning-to-screen/l2s/internal/simdtest"
)

// smallShape is the shape of the models for laws that hold for any shape.
var smallShape = shape{source: 30, target: 40, embedSource: 9, embedTarget: 12, dim: 17, layers: 2}

// randomSentence draws n words, none of them special.
func randomSentence(rng *rand.Rand, n, vocab int) []uint32 {
	s := make([]uint32, n)
	for i := range s {
		s[i] = uint32(4 + rng.IntN(vocab-4))
	}
	return s
}

// randomPairs draws pairs of up to longest words per side, some without words.
func randomPairs(seed uint64, n, longest int, sh shape) (pairs []Pair) {
	rng := rand.New(rand.NewPCG(seed, 1))
	for range n {
		pairs = append(pairs, Pair{randomSentence(rng, rng.IntN(longest+1), sh.source), randomSentence(rng, rng.IntN(longest+1), sh.target)})
	}
	return pairs
}

func sourcesOf(pairs []Pair) (sentences [][]uint32) {
	for _, p := range pairs {
		sentences = append(sentences, p.Source)
	}
	return sentences
}

// force is [Model.Contexts], with the results in a slice.
func force(t tester, m *Model, pairs []Pair, threads int) (all []Decoded) {
	t.Helper()
	if err := m.Contexts(context.Background(), pairs, threads, func(d Decoded) error {
		all = append(all, d)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestAgainstReference: models of all shapes against the equations in
// float64, on every level.
//
// The tolerance: the sums are of up to 60 products below 1 and so within about
// 1e-5 of the exact ones; the nonlinearities do not enlarge that, but the time
// steps and the attention can, some tenfold together.
func TestAgainstReference(t *testing.T) {
	const tolerance = 1e-4
	simdtest.EachLevel(t, func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			size := func(name string, most int) int { return rapid.IntRange(1, most).Draw(t, name) }
			sh := shape{
				source: 4 + size("source", 20), target: 4 + size("target", 20),
				embedSource: size("embedSource", 20), embedTarget: size("embedTarget", 20),
				dim: size("dim", 20), layers: size("layers", 3),
			}
			seed := rapid.Uint64().Draw(t, "seed")
			s := newSpec(seed, sh, 1)
			m := s.load(t)
			if m.Dim() != sh.dim || m.Source().Len() != sh.source || m.Target().Len() != sh.target ||
				m.Start() != start || m.End() != end || m.Layer().Labels() != sh.target || m.Layer().Dim() != sh.dim {
				t.Fatal("the model is not the model of the file")
			}
			if !slices.Equal(dense.Weights(m.Layer()), s.tensors["generator.weight"].Data) || !slices.Equal(m.Layer().Bias(), s.tensors["generator.bias"].Data) {
				t.Fatal("Layer is not the softmax layer of the file")
			}
			pairs := randomPairs(seed, size("pairs", 5), 8, sh)
			for i, d := range force(t, m, pairs, 1) {
				if !slices.Equal(d.Words, pairs[i].Target) {
					t.Fatalf("pair %d: words %v, want %v", i, d.Words, pairs[i].Target)
				}
				if err := maxError(d.Contexts, s.reference(pairs[i])); !(err <= tolerance) {
					t.Fatalf("pair %d: contexts differ by %g", i, err)
				}
			}
		})
	})
}

// TestBatchIsSingle: a sentence has the same bits encoded and decoded alone and among others, on
// any number of goroutines.
func TestBatchIsSingle(t *testing.T) {
	m := newSpec(1, smallShape, 1).load(t)
	pairs := randomPairs(2, 3*groupLen+7, 12, smallShape)
	simdtest.EachLevel(t, func(t *testing.T) {
		batch := m.Encode(sourcesOf(pairs))
		for i, p := range pairs {
			single := m.Encode([][]uint32{p.Source})[0]
			if !reflect.DeepEqual(single, batch[i]) {
				t.Fatalf("sentence %d is encoded otherwise among others", i)
			}
			if n := len(single.keys) / m.Dim(); n != len(p.Source)+1 || len(single.values) != len(single.keys) {
				t.Fatalf("sentence %d of %d words has %d positions", i, len(p.Source), n)
			}
		}
		want := force(t, m, pairs, 1)
		for _, threads := range []int{0, 2, 3, 100} {
			for i, d := range force(t, m, pairs, threads) {
				if !slices.Equal(d.Contexts, want[i].Contexts) {
					t.Fatalf("pair %d: other contexts on %d threads", i, threads)
				}
			}
		}
		d := m.NewDecoder()
		for i, p := range pairs {
			d.Start(batch[i : i+1])
			for step, word := range append([]uint32{start}, p.Target...) {
				if h := d.Step([]uint32{word}); !slices.Equal(h, want[i].Contexts[step*m.Dim():(step+1)*m.Dim()]) {
					t.Fatalf("pair %d: context %d is another one among others", i, step)
				}
			}
			if n := (len(p.Target) + 1) * m.Dim(); len(want[i].Contexts) != n {
				t.Fatalf("pair %d: %d numbers, want %d", i, len(want[i].Contexts), n)
			}
		}
	})
}

// TestReorder: for any dropped, moved and copied hypotheses, each gives the contexts of its own
// words and its own source.
func TestReorder(t *testing.T) {
	m := newSpec(3, smallShape, 1).load(t)
	pairs := randomPairs(4, 3, 6, smallShape)
	sources := m.Encode(sourcesOf(pairs))
	type hypothesis struct {
		source *Source
		words  []uint32
	}
	replay := func(h hypothesis) (context []float32) {
		d := m.NewDecoder()
		d.Start([]*Source{h.source})
		for _, word := range h.words {
			context = d.Step([]uint32{word})
		}
		return context
	}
	d := m.NewDecoder()
	rapid.Check(t, func(t *rapid.T) {
		var hyps []hypothesis
		for _, i := range rapid.SliceOfN(rapid.IntRange(0, len(sources)-1), 1, 6).Draw(t, "sources") {
			hyps = append(hyps, hypothesis{source: sources[i]})
		}
		begin := make([]*Source, len(hyps))
		for i, h := range hyps {
			begin[i] = h.source
		}
		d.Start(begin)
		for range rapid.IntRange(1, 5).Draw(t, "steps") {
			tokens := make([]uint32, len(hyps))
			for i := range hyps {
				tokens[i] = uint32(rapid.IntRange(0, smallShape.target-1).Draw(t, "word"))
				hyps[i].words = append(slices.Clone(hyps[i].words), tokens[i])
			}
			got := d.Step(tokens)
			if d.Len() != len(hyps) || len(got) != len(hyps)*m.Dim() {
				t.Fatalf("%d hypotheses, %d numbers; want %d hypotheses", d.Len(), len(got), len(hyps))
			}
			for i, h := range hyps {
				if !slices.Equal(got[i*m.Dim():(i+1)*m.Dim()], replay(h)) {
					t.Fatalf("hypothesis %d of words %v has another context than alone", i, h.words)
				}
			}
			parents := rapid.SliceOfN(rapid.IntRange(0, len(hyps)-1), 1, 8).Draw(t, "parents")
			next := make([]hypothesis, len(parents))
			for i, p := range parents {
				next[i] = hyps[p]
			}
			d.Reorder(parents)
			hyps = next
		}
	})
}

// TestGreedy: the translation equals the result of the obvious loop over one sentence.
func TestGreedy(t *testing.T) {
	const most = 12
	m := newSpec(5, smallShape, 1).load(t)
	sentences := sourcesOf(randomPairs(6, groupLen+30, 9, smallShape))
	simdtest.EachLevel(t, func(t *testing.T) {
		search := exact.NewSearcher(m.Layer())
		for _, threads := range []int{1, 3} {
			i, ended := 0, 0
			err := m.Greedy(context.Background(), sentences, most, threads, func(got Decoded) error {
				d, word := m.NewDecoder(), m.Start()
				d.Start(m.Encode(sentences[i : i+1]))
				var want Decoded
				for len(want.Words) < most {
					h := d.Step([]uint32{word})
					want.Contexts = append(want.Contexts, h...)
					var best [1]exact.Prediction
					if _, err := search.TopK(best[:], h); err != nil {
						return err
					}
					if word = best[0].ID; word == m.End() {
						ended++
						break
					}
					want.Words = append(want.Words, word)
				}
				if !slices.Equal(got.Words, want.Words) || !slices.Equal(got.Contexts, want.Contexts) {
					return fmt.Errorf("sentence %d: %v, want %v, or other contexts", i, got.Words, want.Words)
				}
				i++
				return nil
			})
			if err != nil || i != len(sentences) {
				t.Fatalf("%d of %d sentences; %v", i, len(sentences), err)
			}
			if ended == 0 || ended == len(sentences) {
				t.Errorf("%d of %d translations end in </s>, want some of either kind", ended, len(sentences))
			}
		}
	})
	for _, most := range []int{0, -1} {
		if err := m.Greedy(context.Background(), sentences, most, 1, nil); err == nil {
			t.Errorf("translations of at most %d words: got no error", most)
		}
	}
}

// TestOddSentences: no words, one unknown word, far more words than any model
// was trained on. Each is a sentence like others.
func TestOddSentences(t *testing.T) {
	const tolerance = 1e-4
	s := newSpec(7, smallShape, 0.5)
	m := s.load(t)
	rng := rand.New(rand.NewPCG(8, 8))
	pairs := []Pair{
		{nil, nil},
		{[]uint32{unknown}, []uint32{unknown}},
		{nil, randomSentence(rng, 5, smallShape.target)},
		{randomSentence(rng, 5, smallShape.source), nil},
		{randomSentence(rng, 3*encodeRows+1, smallShape.source), randomSentence(rng, 70, smallShape.target)},
		{randomSentence(rng, encodeRows-1, smallShape.source), []uint32{start, end, 0}},
	}
	for i, d := range force(t, m, pairs, 1) {
		if err := maxError(d.Contexts, s.reference(pairs[i])); !(err <= tolerance) {
			t.Errorf("pair %d: contexts differ by %g", i, err)
		}
	}
	if got := m.Encode(nil); len(got) != 0 {
		t.Errorf("%d sources of no sentences", len(got))
	}
	if got := force(t, m, nil, 0); len(got) != 0 {
		t.Errorf("%d results of no pairs", len(got))
	}
}

// TestOverflow: if products overflow the contexts are NaN, and a
// translation is refused rather than made up.
func TestOverflow(t *testing.T) {
	s := newSpec(9, smallShape, 1)
	// All gates open, so that q is tanh(1) throughout, and A q infinite.
	for name, x := range map[string]float32{"decoder.rnn.bias_ih_l1": 100, "decoder.attn.linear_in.weight": math.MaxFloat32} {
		for i := range s.tensors[name].Data {
			s.tensors[name].Data[i] = x
		}
	}
	m := s.load(t)
	d := m.NewDecoder()
	d.Start(m.Encode([][]uint32{{5, 6}}))
	nan := 0
	for _, x := range d.Step([]uint32{start}) {
		switch {
		case x != x:
			nan++
		case x < -1 || x > 1:
			t.Errorf("found %v in a context", x)
		}
	}
	if nan == 0 {
		t.Error("found no NaN after an overflow")
	}
	if err := m.Greedy(context.Background(), [][]uint32{{5, 6}}, 10, 1, func(Decoded) error { return nil }); err == nil {
		t.Error("translated with contexts that are not finite")
	}
}

func TestEndsEarly(t *testing.T) {
	m := newSpec(10, smallShape, 1).load(t)
	pairs := randomPairs(11, 3*groupLen, 5, smallShape)
	for name, run := range map[string]func(context.Context, func(Decoded) error) error{
		"Contexts": func(ctx context.Context, f func(Decoded) error) error { return m.Contexts(ctx, pairs, 2, f) },
		"Greedy": func(ctx context.Context, f func(Decoded) error) error {
			return m.Greedy(ctx, sourcesOf(pairs), 10, 2, f)
		},
	} {
		broken := errors.New("broken")
		for _, at := range []int{0, 1, groupLen, 2*groupLen + 3} {
			calls := 0
			err := run(context.Background(), func(Decoded) error {
				if calls++; calls > at {
					return broken
				}
				return nil
			})
			if err != broken || calls != at+1 {
				t.Errorf("%s: error of call %d: got %v after %d calls", name, at+1, err, calls)
			}
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := run(ctx, func(Decoded) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: cancelled before the start: got %v", name, err)
		}
	}
	if err := m.Contexts(context.Background(), pairs, -1, nil); err == nil {
		t.Error("-1 threads: got no error")
	}
}

func TestBrokenContract(t *testing.T) {
	m := newSpec(12, smallShape, 1).load(t)
	d, other := m.NewDecoder(), newSpec(12, smallShape, 1).load(t)
	d.Start(m.Encode([][]uint32{{5}, {6}}))
	for name, f := range map[string]func(){
		"too few tokens":            func() { d.Step([]uint32{start}) },
		"too many tokens":           func() { d.Step([]uint32{start, start, start}) },
		"a token out of range":      func() { d.Step([]uint32{start, uint32(smallShape.target)}) },
		"a source of another model": func() { d.Start(other.Encode([][]uint32{{5}})) },
		"a source word beyond all":  func() { m.Encode([][]uint32{{uint32(smallShape.source)}}) },
		"a parent out of range":     func() { d.Reorder([]int{0, 2}) },
		"a parent below zero":       func() { d.Reorder([]int{-1}) },
		"more in order than exist":  func() { d.Reorder([]int{0, 1, 2}) },
		"a parent of no hypotheses": func() { m.NewDecoder().Reorder([]int{0}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

func TestNoAllocation(t *testing.T) {
	m := newSpec(13, smallShape, 1).load(t)
	sources := m.Encode([][]uint32{{5, 6, 7}, {8}})
	d := m.NewDecoder()
	tokens, parents, grown := []uint32{4, 5, 6, 7}, []int{1, 0, 0, 1}, []int{0, 0, 1, 1}
	if n := simdtest.AllocsPerRun(50, func() {
		d.Start(sources)
		d.Step(tokens[:2])
		d.Reorder(grown)
		d.Step(tokens)
		d.Reorder(parents)
		d.Step(tokens)
		d.Reorder(parents[:2])
		d.Step(tokens[:2])
	}); n != 0 {
		t.Errorf("%v allocations in Start, Step and Reorder, want none", n)
	}
}
