package bleu_test

import (
	"math"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/benchmarks/internal/bleu"
)

// Values counted by hand.
func TestKnownValues(t *testing.T) {
	type pair struct{ translation, reference string }
	for _, c := range []struct {
		name  string
		pairs []pair
		want  float64
	}{
		{"nothing", nil, 0},
		{"equal", []pair{{"a b c d e", "a b c d e"}}, 100},
		{"disjoint", []pair{{"a b c d", "e f g h"}}, 0},
		{"too short for a 4-gram", []pair{{"a b c", "a b c"}}, 0},
		{"no 4-gram matches", []pair{{"a b c x d e f", "a b c y d e f"}}, 0},
		{"an empty translation", []pair{{"", "a b c d"}}, 0},
		// 5/6, 4/5, 3/4, 2/3: their product is 1/3.
		{"last word differs", []pair{{"a b c d e f", "a b c d e g"}}, 100 * math.Pow(1.0/3, 0.25)},
		// All match; 4 words for 6: exp(1 - 6/4).
		{"brevity", []pair{{"a b c d", "a b c d e f"}}, 100 * math.Exp(-0.5)},
		// 4/5, 3/4, 2/3, 1/2: their product is 1/5. No penalty.
		{"longer", []pair{{"a b c d e", "a b c d"}}, 100 * math.Pow(0.2, 0.25)},
		// "a" is in the reference once: 4/7 words ("a b c d" each once), 3/6, 2/5, 1/4.
		{"clipped", []pair{{"a a a a b c d", "a b c d x y z"}}, 100 * math.Pow(4.0/7*3/6*2/5*1/4, 0.25)},
		// Counts are added before they are divided: 5/8, 4/6, 3/4, 2/2
		// (the second translation has three words, none of which matches).
		{"a corpus", []pair{{"a b c d e", "a b c d e"}, {"x y z", "p q r"}}, 100 * math.Pow(5.0/8*4/6*3/4*2/2, 0.25)},
		// An empty translation costs brevity: 4 words for 8.
		{"an empty one among others", []pair{{"a b c d", "a b c d"}, {"", "p q r s"}}, 100 * math.Exp(-1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			var corpus bleu.Corpus
			for _, p := range c.pairs {
				corpus.Add(strings.Fields(p.translation), strings.Fields(p.reference))
			}
			if got := corpus.Score(); math.Abs(got-c.want) > 1e-9 {
				t.Errorf("found %v, want %v", got, c.want)
			}
		})
	}
}

func TestPrecisionsAndBrevity(t *testing.T) {
	var c bleu.Corpus
	if c.Precision(1) != 0 || c.BrevityPenalty() != 0 {
		t.Errorf("an empty corpus: precision %v, penalty %v, want 0", c.Precision(1), c.BrevityPenalty())
	}
	c.Add(strings.Fields("a b c x"), strings.Fields("a b c d"))
	for n, want := range map[int]float64{1: 3.0 / 4, 2: 2.0 / 3, 3: 1.0 / 2, 4: 0} {
		if got := c.Precision(n); got != want {
			t.Errorf("precision of %d-grams: found %v, want %v", n, got, want)
		}
	}
	if got := c.BrevityPenalty(); got != 1 {
		t.Errorf("penalty at equal length: found %v, want 1", got)
	}
}
