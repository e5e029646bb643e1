package main

import "strings"

// chrfOrder and chrfBeta are those of chrF2: n-grams of up to 6 characters, and recall that counts
// twice (Popović, chrF: character n-gram F-score for automatic MT evaluation, 2015).
const (
	chrfOrder = 6
	chrfBeta  = 2
)

// chrF returns the score of texts against references, 0 to 100: the F-score of the means, over the
// orders, of the precision and the recall of n-grams of characters without spaces in all texts
// together.
func chrF(texts, references []string) float64 {
	var found, wanted, common [chrfOrder]int
	for i, text := range texts {
		for n := range chrfOrder {
			of := grams(references[i], n+1)
			for _, c := range of {
				wanted[n] += c
			}
			for gram, c := range grams(text, n+1) {
				found[n] += c
				common[n] += min(c, of[gram])
			}
		}
	}
	precision, recall, orders := 0.0, 0.0, 0.0
	for n := range chrfOrder {
		if found[n] > 0 && wanted[n] > 0 {
			precision += float64(common[n]) / float64(found[n])
			recall += float64(common[n]) / float64(wanted[n])
			orders++
		}
	}
	if precision+recall == 0 {
		return 0
	}
	return 100 * (1 + chrfBeta*chrfBeta) * precision / orders * recall / orders / (chrfBeta*chrfBeta*precision/orders + recall/orders)
}

// grams counts the n-grams of the characters of a text.
func grams(text string, n int) map[string]int {
	characters := []rune(strings.Join(strings.Fields(text), ""))
	counts := map[string]int{}
	for i := range max(len(characters)-n+1, 0) {
		counts[string(characters[i:i+n])]++
	}
	return counts
}
