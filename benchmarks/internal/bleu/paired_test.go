package bleu_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/benchmarks/internal/bleu"
)

// corrupted returns n references and translations of them: each word is wrong with the probability
// of its list.
func corrupted(n int, seed uint64, wrong ...float64) (references [][]string, lists [][][]string) {
	r := rand.New(rand.NewPCG(seed, 1))
	lists = make([][][]string, len(wrong))
	for range n {
		words := make([]string, 8+r.IntN(8))
		for i := range words {
			words[i] = string(rune('a' + r.IntN(20)))
		}
		references = append(references, words)
		for k, share := range wrong {
			other := make([]string, len(words))
			for i, w := range words {
				if other[i] = w; r.Float64() < share {
					other[i] = "?"
				}
			}
			lists[k] = append(lists[k], other)
		}
	}
	return references, lists
}

func score(translations, references [][]string) float64 {
	var c bleu.Corpus
	for i := range references {
		c.Add(translations[i], references[i])
	}
	return c.Score()
}

func TestTheIntervalOfADifference(t *testing.T) {
	references, lists := corrupted(300, 1, 0.05, 0.15)
	good, bad := lists[0], lists[1]
	d := bleu.Paired(good, bad, references, 1000, 1)
	if want := score(good, references) - score(bad, references); math.Abs(d.Value-want) > 1e-9 {
		t.Errorf("the difference: found %v, want %v, the difference of the scores", d.Value, want)
	}
	if !(0 < d.Low && d.Low < d.Value && d.Value < d.High) {
		t.Errorf("a clear difference: found %+v, want an interval around the value, above 0", d)
	}
	if back := bleu.Paired(bad, good, references, 1000, 1); back != (bleu.Difference{Value: -d.Value, Low: -d.High, High: -d.Low}) {
		t.Errorf("the other way round: found %+v, want %+v with signs changed", back, d)
	}
	if again := bleu.Paired(good, bad, references, 1000, 1); again != d {
		t.Errorf("again: found %+v, want %+v", again, d)
	}
	if same := bleu.Paired(good, good, references, 1000, 1); same != (bleu.Difference{}) {
		t.Errorf("with itself: found %+v, want no difference", same)
	}
}

// For two methods that are equally good, on average, the interval holds 0 in 95 of 100 cases.
func TestTheIntervalHoldsTheTruth(t *testing.T) {
	holds := 0
	const draws = 100
	for seed := range uint64(draws) {
		references, lists := corrupted(60, seed, 0.1, 0.1)
		if d := bleu.Paired(lists[0], lists[1], references, 100, seed); d.Low <= 0 && 0 <= d.High {
			holds++
		}
	}
	if holds < draws*88/100 || holds > draws*99/100 {
		t.Errorf("the interval holds 0 in %d of %d cases, want about 95 %%", holds, draws)
	}
}

func TestWhatCannotBeCompared(t *testing.T) {
	one := [][]string{strings.Fields("a b c d")}
	for name, compare := range map[string]func(){
		"lists of different lengths": func() { bleu.Paired(one, nil, one, 10, 1) },
		"no resample":                func() { bleu.Paired(one, one, one, 0, 1) },
	} {
		func() {
			defer func() {
				if found := recover(); found != "bleu: "+name {
					t.Errorf("%s: found %v", name, found)
				}
			}()
			compare()
		}()
	}
}
