package bleu

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Difference is a difference of two BLEU scores of translations of the same sentences.
type Difference struct {
	Value     float64
	Low, High float64 // of the interval
}

// Paired returns the score of the translations a minus the score of b, as words, with an interval
// of 95 %, by the paired bootstrap (Koehn, Statistical Significance Tests for Machine Translation
// Evaluation, 2004): it draws sentences with replacement, the same number as there are, takes both
// scores of the drawn sentences, and repeats this resamples times. The interval leaves out 2.5 % of
// the differences at either end. Equal arguments give an equal result. It panics if the lists
// differ in length, or without a resample.
func Paired(a, b, references [][]string, resamples int, seed uint64) Difference {
	if len(a) != len(references) || len(b) != len(references) {
		panic("bleu: lists of different lengths")
	}
	if resamples < 1 {
		panic("bleu: no resample")
	}
	n := len(references)
	counts := make([][2]Corpus, n) // of each sentence
	var all [2]Corpus
	for i, words := range references {
		counts[i][0].Add(a[i], words)
		counts[i][1].Add(b[i], words)
		for j := range all {
			all[j].plus(&counts[i][j])
		}
	}
	r := rand.New(rand.NewPCG(seed, 0))
	differences := make([]float64, resamples)
	for k := range differences {
		var drawn [2]Corpus
		for range n {
			i := r.IntN(n)
			for j := range drawn {
				drawn[j].plus(&counts[i][j])
			}
		}
		differences[k] = drawn[0].Score() - drawn[1].Score()
	}
	slices.Sort(differences)
	out := int(math.Floor(0.025 * float64(resamples)))
	return Difference{all[0].Score() - all[1].Score(), differences[out], differences[resamples-1-out]}
}

// plus adds the counts of o.
func (c *Corpus) plus(o *Corpus) {
	for n := range most {
		c.matches[n] += o.matches[n]
		c.total[n] += o.total[n]
	}
	c.candidate += o.candidate
	c.references += o.references
}
