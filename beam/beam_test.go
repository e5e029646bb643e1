package beam_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/beam"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
	"github.com/learning-to-screen/l2s/internal/tests/synthetic"
)

const (
	dim   = 4
	start = 0
	end   = 1
)

// world is a tiny decoder whose context depends on the sentence and on all
// tokens so far.
type world struct {
	layer     *l2s.Layer
	labels    int
	sentences []uint64 // a seed each
	prefixes  [][]uint32
	next      [][]uint32
	contexts  []float32
	steps     int
}

func newWorld(t interface{ Fatal(...any) }, seed uint64, labels, sentences int) *world {
	r := rand.New(rand.NewPCG(seed, 1))
	w := &world{labels: labels}
	weights, bias := make([]float32, labels*dim), make([]float32, labels)
	for i := range weights {
		weights[i] = float32(r.NormFloat64())
	}
	for i := range bias {
		bias[i] = float32(r.NormFloat64())
	}
	var err error
	if w.layer, err = l2s.New(l2s.Float32(weights, dim), bias); err != nil {
		t.Fatal(err)
	}
	for range sentences {
		w.sentences = append(w.sentences, r.Uint64())
	}
	return w
}

// context is that after a prefix, which begins with the sentence's number and
// start.
func (w *world) context(prefix []uint32) []float32 {
	seed := w.sentences[prefix[0]]
	for _, token := range prefix[1:] {
		seed = (seed ^ uint64(token+1)) * 0x9e3779b97f4a7c15
		seed ^= seed >> 29
	}
	r := rand.New(rand.NewPCG(seed, 2))
	h := make([]float32, dim)
	for i := range h {
		h[i] = float32(r.NormFloat64())
	}
	return h
}

func (w *world) restart() { w.prefixes, w.steps = nil, 0 }

func (w *world) Step(parents []int, tokens []uint32) ([]float32, error) {
	w.next, w.contexts = nil, w.contexts[:0]
	for i, p := range parents {
		prefix := []uint32{uint32(p)}
		if w.steps > 0 {
			prefix = slices.Clone(w.prefixes[p])
		}
		w.next = append(w.next, append(prefix, tokens[i]))
		w.contexts = append(w.contexts, w.context(w.next[i])...)
	}
	w.prefixes = w.next
	w.steps++
	return w.contexts, nil
}

// exactly is a searcher without an index.
func exactly(t interface{ Fatal(...any) }, l *l2s.Layer) *l2s.Searcher {
	s, err := l2s.NewSearcher(l, nil, l2s.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func run(t interface{ Fatal(...any) }, w *world, s l2s.Asker, opt beam.Options) []beam.Hypothesis {
	opt.Start, opt.End = start, end
	search, err := beam.New(w, s, opt)
	if err != nil {
		t.Fatal(err)
	}
	w.restart()
	found, err := search.Run(context.Background(), len(w.sentences))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// If no hypothesis is dropped the result is the best of all sequences.
func TestFullWidthIsTheSearchOfAllSequences(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		labels, most := rapid.IntRange(2, 4).Draw(t, "labels"), rapid.IntRange(1, 4).Draw(t, "longest")
		w := newWorld(t, rapid.Uint64().Draw(t, "seed"), labels, rapid.IntRange(1, 3).Draw(t, "sentences"))
		alpha := rapid.SampledFrom([]float64{0, 0.6, 1}).Draw(t, "alpha")
		got := run(t, w, exactly(t, w.layer), beam.Options{Width: 1000, MaxLen: most, Alpha: alpha, Candidates: labels})
		for i := range w.sentences {
			best, tokens := math.Inf(-1), []uint32(nil)
			var visit func(prefix []uint32, logp float64)
			visit = func(prefix []uint32, logp float64) {
				logits := make([]float64, labels)
				if err := exactly(t, w.layer).Logits(logits, w.context(prefix), l2s.Labels{}); err != nil {
					t.Fatal(err)
				}
				lse := kernels.LogSumExp(logits)
				n := len(prefix) - 1
				if score := (logp + logits[end] - lse) / math.Pow(float64(n), alpha); score > best {
					best, tokens = score, slices.Clone(prefix[2:])
				}
				for id, x := range logits {
					if id != end && n < most {
						visit(append(slices.Clone(prefix), uint32(id)), logp+x-lse)
					}
				}
			}
			visit([]uint32{uint32(i), start}, 0)
			if !got[i].Ended || !slices.Equal(got[i].Tokens, tokens) || math.Abs(got[i].Score-best) > 1e-9 {
				t.Fatalf("sentence %d: found %+v, want %v of score %v", i, got[i], tokens, best)
			}
		}
	})
}

// A beam of one takes the best label at each step.
func TestBeamOfOneIsGreedy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		labels, most := rapid.IntRange(2, 30).Draw(t, "labels"), rapid.IntRange(1, 12).Draw(t, "longest")
		w := newWorld(t, rapid.Uint64().Draw(t, "seed"), labels, rapid.IntRange(1, 5).Draw(t, "sentences"))
		got := run(t, w, exactly(t, w.layer), beam.Options{Width: 1, MaxLen: most, Alpha: 1})
		s := exactly(t, w.layer)
		for i := range w.sentences {
			prefix, ended := []uint32{uint32(i), start}, false
			for range most {
				var best [1]l2s.Prediction
				if _, err := s.TopK(best[:], w.context(prefix)); err != nil {
					t.Fatal(err)
				}
				token := best[0].ID
				if ended = token == end; ended {
					break
				}
				prefix = append(prefix, token)
			}
			if !slices.Equal(got[i].Tokens, prefix[2:]) || got[i].Ended != ended {
				t.Fatalf("sentence %d: found %+v, want %v, ended %v", i, got[i], prefix[2:], ended)
			}
		}
	})
}

// A screen whose sets have all labels equals the exact layer, bit for bit; and sentences do not
// depend on their neighbours.
func TestFullSetsAndSentencesAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		labels := rapid.IntRange(2, 30).Draw(t, "labels")
		w := newWorld(t, rapid.Uint64().Draw(t, "seed"), labels, rapid.IntRange(1, 5).Draw(t, "sentences"))
		all := make([]uint32, labels)
		for i := range all {
			all[i] = uint32(i)
		}
		m, err := synthetic.Screen(screening.Config{Dim: dim, Labels: labels, Clusters: []float32{1, 0, 0, 0, 0, 1, 0, 0}, Lists: []screening.List{{IDs: all}, {IDs: all}}})
		if err != nil {
			t.Fatal(err)
		}
		s, err := l2s.NewSearcher(w.layer, m, l2s.Options{})
		if err != nil {
			t.Fatal(err)
		}
		opt := beam.Options{Width: rapid.IntRange(1, min(labels, 6)).Draw(t, "width"), MaxLen: 8, Alpha: 1}
		want := fmt.Sprint(run(t, w, exactly(t, w.layer), opt))
		if got := fmt.Sprint(run(t, w, s, opt)); got != want {
			t.Fatalf("screened %s, exact %s", got, want)
		}
		var alone []beam.Hypothesis
		seeds := w.sentences
		for _, seed := range seeds {
			w.sentences = []uint64{seed}
			alone = append(alone, run(t, w, s, opt)...)
		}
		if got := fmt.Sprint(alone); got != want {
			t.Fatalf("alone %s, together %s", got, want)
		}
	})
}

// scripted answers each context, of one element, by a table.
type scripted map[float32][]l2s.Prediction

func (s scripted) SearchBatch(dst []l2s.Prediction, answers []l2s.Answer, contexts []float32, req l2s.Request) error {
	for i, h := range contexts {
		k := len(dst) / len(answers)
		answers[i] = l2s.Answer{Count: copy(dst[i*k:(i+1)*k], s[h])}
	}
	return nil
}

func (s scripted) Search(dst []l2s.Prediction, h []float32, req l2s.Request) (l2s.Answer, error) {
	var a [1]l2s.Answer
	err := s.SearchBatch(dst, a[:], h, req)
	return a[0], err
}

// last is a decoder whose context is the token.
type last []float32

func (l *last) Step(_ []int, tokens []uint32) ([]float32, error) {
	*l = (*l)[:0]
	for _, token := range tokens {
		*l = append(*l, float32(token))
	}
	return *l, nil
}

func TestByCase(t *testing.T) {
	for _, c := range []struct {
		name  string
		table scripted
		opt   beam.Options
		want  string
	}{
		{"equals: the lower id", scripted{0: {{ID: 2, Logit: -1}, {ID: 3, Logit: -1}}, 2: {{ID: end, Logit: -1}}, 3: {{ID: end, Logit: -1}}},
			beam.Options{Width: 2, MaxLen: 5, Alpha: 1}, "[{[2] -2 -1 true}]"},
		{"equals: the lower parent", scripted{0: {{ID: 3, Logit: -1}, {ID: 2, Logit: -2}}, 3: {{ID: 5, Logit: -2}}, 2: {{ID: 4, Logit: -1}}, 5: {{ID: end, Logit: 0}}, 4: {{ID: end, Logit: 0}}},
			beam.Options{Width: 2, MaxLen: 5}, "[{[3 5] -3 -3 true}]"},
		{"the longer by its mean", scripted{0: {{ID: end, Logit: -2}, {ID: 2, Logit: -2}}, 2: {{ID: end, Logit: -1}}},
			beam.Options{Width: 2, MaxLen: 5, Alpha: 1}, "[{[2] -3 -1.5 true}]"},
		{"the shorter by its sum", scripted{0: {{ID: end, Logit: -2}, {ID: 2, Logit: -2}}, 2: {{ID: end, Logit: -1}}},
			beam.Options{Width: 2, MaxLen: 5}, "[{[] -2 -2 true}]"},
		{"cut at the longest", scripted{0: {{ID: 2, Logit: -1}}, 2: {{ID: 2, Logit: -1}}},
			beam.Options{Width: 1, MaxLen: 3, Alpha: 1}, "[{[2 2 2] -3 -1 false}]"},
		{"an ended one before a better cut one", scripted{0: {{ID: 2, Logit: -1}, {ID: end, Logit: -9}}, 2: {{ID: 2, Logit: 0}}},
			beam.Options{Width: 2, MaxLen: 3, Alpha: 1}, "[{[] -9 -9 true}]"},
		{"no candidates at all", scripted{}, beam.Options{Width: 2, MaxLen: 3, Alpha: 1}, "[{[] 0 0 false}]"},
		{"no candidates later", scripted{0: {{ID: 2, Logit: -1}}}, beam.Options{Width: 2, MaxLen: 3, Alpha: 1}, "[{[2] -1 -1 false}]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.opt.Start, c.opt.End = start, end
			s, err := beam.New(new(last), c.table, c.opt)
			if err != nil {
				t.Fatal(err)
			}
			found, err := s.Run(context.Background(), 1)
			if got := fmt.Sprint(found); err != nil || got != c.want {
				t.Errorf("found %s, %v, want %s", got, err, c.want)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	good := beam.Options{Width: 1, MaxLen: 1}
	for want, change := range map[string]func(*beam.Options){
		"width: found 0":          func(o *beam.Options) { o.Width = 0 },
		"maximum length: found 0": func(o *beam.Options) { o.MaxLen = 0 },
		"alpha: found NaN":        func(o *beam.Options) { o.Alpha = math.NaN() },
		"alpha: found -1":         func(o *beam.Options) { o.Alpha = -1 },
		"candidates: found -1":    func(o *beam.Options) { o.Candidates = -1 },
	} {
		o := good
		change(&o)
		if _, err := beam.New(new(last), scripted{}, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("found %v, want %q", err, want)
		}
	}
	w := newWorld(t, 1, 5, 1)
	s, err := beam.New(w, exactly(t, w.layer), good)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Run(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("found %v, want the error of the context", err)
	}
	if _, err := s.Run(context.Background(), -1); err == nil {
		t.Error("found no error for -1 sentences")
	}
	// A query that the searcher refuses ends the search.
	wide, err := beam.New(w, exactly(t, w.layer), beam.Options{Width: 1, MaxLen: 1, Candidates: 6})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := wide.Run(context.Background(), 1); !errors.Is(err, l2s.ErrRequest) {
		t.Errorf("more candidates than labels: found %v, want %v", err, l2s.ErrRequest)
	}
}

// fixed is a decoder that does not allocate.
type fixed []float32

func (f fixed) Step(parents []int, _ []uint32) ([]float32, error) { return f[:len(parents)*dim], nil }

func TestWarmSearchesDoNotAllocate(t *testing.T) {
	w := newWorld(t, 3, 50, 1)
	h := make(fixed, 100*dim)
	for i := range h {
		h[i] = float32(i%7) - 3
	}
	s, err := beam.New(h, exactly(t, w.layer), beam.Options{Width: 5, MaxLen: 10, End: end, Alpha: 1})
	if err != nil {
		t.Fatal(err)
	}
	if n := simdtest.AllocsPerRun(10, func() {
		if _, err := s.Run(context.Background(), 4); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a run, want none", n)
	}
}
