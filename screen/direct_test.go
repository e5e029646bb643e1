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
// searcher without that way, which does not copy the codes.
func TestFewContextsAreAnsweredAsWithoutTheShortWay(t *testing.T) {
	const labels, dim, clusters, k = 600, 24, 8, 4
	data := synthetic.Structured(labels, dim, clusters, 40, 3)
	model, err := data.Screen(90)
	if err != nil {
		t.Fatal(err)
	}
	searcher := func(bytes int64) *screen.Searcher {
		s, err := screen.NewSearcher(model, data.Layer, screen.Pack(bytes))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	short, long := searcher(1<<40), searcher(0)
	for _, logSum := range []bool{false, true} {
		for n := range 12 {
			for _, odd := range []int{-1, 0, n / 2, n - 1} { // the place of a context that has no intervals
				h := slices.Clone(data.Contexts[:n*dim])
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
					t.Fatalf("%d contexts, log-sum %v: found %v, %v, expected %v, %v", n, logSum, top, answers, wantTop, wantAnswers)
				}
				if short.Stats() != long.Stats() {
					t.Fatalf("%d contexts: found the statistics %+v, expected %+v", n, short.Stats(), long.Stats())
				}
			}
		}
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
