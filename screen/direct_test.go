package screen_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s/internal/synthetic"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// A few contexts that go the short way have the answers, the statistics and the errors of a
// searcher without that way, which does not copy the codes: for every form of a screen.
func TestFewContextsAreAnsweredAsWithoutTheShortWay(t *testing.T) {
	const k = 4
	structured := synthetic.Structured(600, 24, 8, 40, 3)
	model, err := structured.Screen(90)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		in   *instance
	}{
		{"large sets", &instance{layer: structured.Layer, model: model, contexts: structured.Contexts, n: 40}},
		{"flat", ordinary(t)},
		{"groups", grouped(t)},
		{"two clusters without a set", probing(t)},
		{"two clusters, most with a set", paired(t)},
		{"shells", shelled(t)},
	} {
		t.Run(c.name, func(t *testing.T) {
			short, long := c.in.searcher(t, screen.Pack(1<<40)), c.in.searcher(t, screen.Pack(0))
			dim := c.in.model.Dim()
			from := map[softmax.Source]int{}
			for at := 0; at+12 <= c.in.n; at += 12 {
				for _, logSum := range []bool{false, true} {
					for n := range 12 {
						for _, odd := range []int{-1, 0, n / 2, n - 1} { // the place of a context that has no intervals
							h := slices.Clone(c.in.contexts[at*dim : (at+n)*dim])
							if odd >= 0 && odd < n {
								h[odd*dim] = 0x1p60
							}
							ask := func(s *screen.Searcher) ([]softmax.Prediction, []softmax.Answer) {
								top, answers := make([]softmax.Prediction, n*k), make([]softmax.Answer, n)
								if err := s.SearchBatch(top, answers, h, softmax.Request{K: k, LogSum: logSum}); err != nil {
									t.Fatal(err)
								}
								return top, answers
							}
							top, answers := ask(short)
							wantTop, wantAnswers := ask(long)
							if !slices.Equal(top, wantTop) || !slices.Equal(answers, wantAnswers) {
								t.Fatalf("%d contexts from %d on, log-sum %v: found %v, %v, expected %v, %v", n, at, logSum, top, answers, wantTop, wantAnswers)
							}
							if short.Stats() != long.Stats() {
								t.Fatalf("%d contexts from %d on: found the statistics %+v, expected %+v", n, at, short.Stats(), long.Stats())
							}
							for _, a := range answers {
								from[a.Source]++
							}
						}
					}
				}
			}
			if c.in.model.ProbeMargin() > 0 && (from[softmax.FromSet] == 0 || from[softmax.FromTwoSets] == 0 || from[softmax.FromLayer] == 0) {
				t.Errorf("found answers %v, expected some of one set, of two and of the layer", from)
			}
		})
	}
}

func TestTheShortWayRefusesWhatIsNoContext(t *testing.T) {
	const dim, k = 24, 4
	data := synthetic.Structured(600, dim, 8, 40, 3)
	model, err := data.Screen(90)
	if err != nil {
		t.Fatal(err)
	}
	short, err := screen.NewSearcher(model, data.Layer, screen.Pack(1<<40))
	if err != nil {
		t.Fatal(err)
	}
	h := slices.Clone(data.Contexts[:3*dim])
	h[2*dim+1] = float32(math.NaN())
	for _, c := range []struct {
		name     string
		contexts []float32
	}{{"a NaN in the last", h}, {"an element too few", h[:3*dim-1]}} {
		top, answers := make([]softmax.Prediction, 3*k), make([]softmax.Answer, 3)
		if err := short.SearchBatch(top, answers, c.contexts, softmax.Request{K: k}); !errors.Is(err, softmax.ErrContext) {
			t.Errorf("%s: found error %v, expected ErrContext", c.name, err)
		}
		if !slices.Equal(top, make([]softmax.Prediction, 3*k)) || !slices.Equal(answers, make([]softmax.Answer, 3)) {
			t.Errorf("%s: found something written, expected nothing", c.name)
		}
	}
}
