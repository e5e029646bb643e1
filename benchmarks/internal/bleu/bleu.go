// Package bleu measures translations against references: corpus BLEU-4 on
// tokenised text (Papineni, Roukos, Ward and Zhu, BLEU: a Method for Automatic
// Evaluation of Machine Translation, 2002), with one reference a sentence.
package bleu

import "math"

// most is N, the length of the longest n-grams.
const most = 4

// Corpus collects sentences. The zero value is empty.
type Corpus struct {
	matches, total        [most]int
	candidate, references int // words
}

// Add adds a translation and its reference, as words. An n-gram of the translation matches at most
// the number of times that it is in the reference.
func (c *Corpus) Add(translation, reference []string) {
	c.candidate += len(translation)
	c.references += len(reference)
	for n := 1; n <= most; n++ {
		seen := map[[most]string]int{}
		for i := 0; i+n <= len(reference); i++ {
			seen[gram(reference[i:i+n])]++
		}
		for i := 0; i+n <= len(translation); i++ {
			g := gram(translation[i : i+n])
			if c.total[n-1]++; seen[g] > 0 {
				seen[g]--
				c.matches[n-1]++
			}
		}
	}
}

// gram returns up to four words as a key. n-grams of different lengths are not mixed.
func gram(words []string) (key [most]string) {
	copy(key[:], words)
	return key
}

// Score is BLEU, from 0 to 100: the geometric mean of the n-gram precisions for
// n = 1 ... 4, times the brevity penalty. It is not smoothed: 0 if no n-gram
// of some length matches, as in an empty corpus.
func (c *Corpus) Score() float64 {
	logs := 0.0
	for n := 1; n <= most; n++ {
		if c.matches[n-1] == 0 {
			return 0
		}
		logs += math.Log(c.Precision(n)) / most
	}
	return 100 * c.BrevityPenalty() * math.Exp(logs)
}

// BrevityPenalty is 1 if the translations have at least the number of words of the references, and
// exp(1 - r/c) with c and r words otherwise; 0 for no words at all.
func (c *Corpus) BrevityPenalty() float64 {
	switch {
	case c.candidate == 0:
		return 0
	case c.candidate >= c.references:
		return 1
	}
	return math.Exp(1 - float64(c.references)/float64(c.candidate))
}

// Precision is the share of n-grams that match, n from 1 to 4, or 0 if there are none.
func (c *Corpus) Precision(n int) float64 {
	if c.total[n-1] == 0 {
		return 0
	}
	return float64(c.matches[n-1]) / float64(c.total[n-1])
}
