package methods

import (
	"math"
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
)

func TestAdaptiveSoftmaxCutsTheLabelsAndWithoutAMarginAnswersFromTheHead(t *testing.T) {
	in, contexts := small(t)
	for _, m := range specimens() {
		a, ok := m.Method.(AdaptiveSoftmax)
		if !ok {
			continue
		}
		x := build(t, a, in).(*adaptiveIndex)
		var all []uint32
		for _, p := range x.parts {
			all = append(all, p.ids...)
		}
		slices.Sort(all)
		for s := range uint32(in.Layer.Labels()) {
			if len(all) != in.Layer.Labels() || all[s] != s {
				t.Fatalf("%s: head and tails hold %d labels, want each of %d once", a.Params(), len(all), in.Layer.Labels())
			}
		}
		head := x.parts[0].ids
		if len(head) < specK {
			continue // labels of tails fill the answer
		}
		s := x.searcher(math.Inf(-1))
		for i, h := range contexts {
			if got, want := answerOf(s, h), exactOf(in.Layer, h, head); !slices.Equal(got, want) {
				t.Fatalf("%s, context %d: got %v, want %v", a.Params(), i, got, want)
			}
		}
	}
}

// The logits of a query are the logits of whole parts: the head, and the tails that the
// search for k labels opens, so that its answer is among them.
func TestAdaptiveSoftmaxGivesTheLogitsOfWhatItOpens(t *testing.T) {
	in, contexts := small(t)
	l := in.Layer
	x := build(t, AdaptiveSoftmax{[]int{50, 150, 300}}, in).(*adaptiveIndex)
	dst, counts := make([]float64, l.Labels()), map[int]int{}
	for _, z := range []float64{math.Inf(-1), -1, 0, 1, math.Inf(1)} {
		s := x.searcher(z).(LogitSearcher)
		for i, h := range contexts {
			for id := range dst {
				dst[id] = math.NaN()
			}
			s.Logits(dst, h, specK)
			open := 0
			for j, p := range x.parts {
				written := 0
				for _, id := range p.ids {
					if math.IsNaN(dst[id]) {
						continue
					}
					written++
					want := logitOf(l, id, h)
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

// The most frequent labels are in the head, and, without in.Labels, the most frequent labels of the
// contexts.
func TestAdaptiveSoftmaxHeadIsFrequent(t *testing.T) {
	in, _ := small(t)
	count := make(map[uint32]int)
	for _, s := range in.Labels {
		count[s]++
	}
	unlabelled := *in
	unlabelled.Labels = nil
	for _, input := range []*Input{in, &unlabelled} {
		x := build(t, AdaptiveSoftmax{[]int{60}}, input).(*adaptiveIndex)
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
	in, contexts := small(t)
	l := in.Layer
	x := build(t, AdaptiveSoftmax{[]int{l.Labels() - 1}}, in).(*adaptiveIndex)
	s := x.parts[1].ids[0]
	for _, h := range contexts {
		want := logitOf(l, s, h)
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
	in, contexts := small(t)
	same := *in
	same.Contexts, same.Labels = slices.Repeat(contexts[0], 20), nil
	s := build(t, AdaptiveSoftmax{[]int{50}}, &same).(*adaptiveIndex).searcher(3)
	if got, want := answerOf(s, contexts[0]), exactOf(in.Layer, contexts[0], nil); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
