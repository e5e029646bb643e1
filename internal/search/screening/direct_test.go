package screening_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/tests/screentest"
	"github.com/learning-to-screen/l2s/internal/tests/synthetic"
)

// A request that only asks for labels takes a shorter path, with copies and without them: it has
// the same answers, statistics and errors as a request with a temperature, which takes the longer
// path. Some contexts have no intervals.
func TestTheShortWayAnswersAsTheLongOne(t *testing.T) {
	structured := synthetic.Structured(600, 24, 8, 40, 3)
	made, err := structured.Screen(90)
	if err != nil {
		t.Fatal(err)
	}
	model := (*engine.Index)(made).Screen()
	for _, c := range []struct {
		name string
		in   *screentest.Instance
	}{
		{"large lists", &screentest.Instance{Layer: (*engine.Layer)(structured.Layer).Exact(), Model: model, Contexts: structured.Contexts, N: 40}},
		{"flat", screentest.Ordinary(t)},
		{"shells", screentest.Shelled(t)},
	} {
		for _, pack := range []int64{-1, 1 << 40} {
			t.Run(fmt.Sprint(c.name, ", copies of ", pack), func(t *testing.T) {
				short, long := c.in.Searcher(t, screening.Options{Copies: pack}), c.in.Searcher(t, screening.Options{Copies: pack})
				from := map[exact.Source]int{}
				for i := range c.in.N {
					h := slices.Clone(c.in.Context(i))
					if i%7 == 0 {
						h[i%len(h)] = 0x1p60
					}
					for _, k := range []int{1, 4, 30} {
						for _, logSum := range []bool{false, true} {
							got, a := screentest.Search(t, short, k, h, exact.Request{LogSum: logSum})
							want, b := screentest.Search(t, long, k, h, exact.Request{LogSum: logSum, Temperature: 1})
							if !slices.Equal(got, want) || a != b {
								t.Fatalf("context %d, %d labels, log-sum %v: found %v, %+v, expected %v, %+v", i, k, logSum, got, a, want, b)
							}
							if short.Stats() != long.Stats() {
								t.Fatalf("context %d: found the statistics %+v, expected %+v", i, short.Stats(), long.Stats())
							}
							from[a.Source]++
						}
					}
				}
				if from[exact.FromSet] == 0 {
					t.Errorf("found answers %v, expected some of candidates", from)
				}
			})
		}
	}
}

func TestTheShortWayRefusesWhatIsNoContext(t *testing.T) {
	const dim, k = 24, 4
	data := synthetic.Structured(600, dim, 8, 40, 3)
	made, err := data.Screen(90)
	if err != nil {
		t.Fatal(err)
	}
	short, err := engine.NewSearcher((*engine.Layer)(data.Layer), (*engine.Index)(made), engine.Options{Copies: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	h := slices.Clone(data.Contexts[:3*dim])
	h[2*dim+1] = float32(math.NaN())
	for _, c := range []struct {
		name     string
		contexts []float32
	}{{"a NaN in the last", h}, {"an element too few", h[:3*dim-1]}} {
		top, answers := make([]exact.Prediction, 3*k), make([]exact.Answer, 3)
		if err := short.SearchBatch(top, answers, c.contexts, &exact.Request{}); !errors.Is(err, exact.ErrContext) {
			t.Errorf("%s: found error %v, expected ErrContext", c.name, err)
		}
		if !slices.Equal(top, make([]exact.Prediction, 3*k)) || !slices.Equal(answers, make([]exact.Answer, 3)) {
			t.Errorf("%s: found something written, expected nothing", c.name)
		}
	}
}
