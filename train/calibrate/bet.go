package calibrate

import (
	"math"

	"github.com/learning-to-screen/l2s/internal/kernels"
)

// losses counts the blocks by the number of labels missed in them.
type losses struct {
	blocks []int
	labels int // of a block: k times its contexts
}

func (p point) losses(outcomes []outcome, k, block int) losses {
	l := losses{labels: k * block}
	for start := 0; start < len(outcomes); start += block {
		sum := 0
		for i := range outcomes[start : start+block] {
			sum += int(p.missed(&outcomes[start+i]))
		}
		for sum >= len(l.blocks) {
			l.blocks = append(l.blocks, 0)
		}
		l.blocks[sum]++
	}
	return l
}

// capital is the logarithm of prod_i (1 + bet (alpha - loss_i)). For any bet
// within 0 and 1/(1 - alpha) that does not depend on these losses the product is
// not negative, and if the mean of a loss is alpha or more its expectation is
// at most 1. So its inverse is a p-value, by Markov's inequality (Waudby-Smith and
// Ramdas 2024, with a constant bet).
func (l losses) capital(alpha, bet float64) float64 {
	sum := 0.0
	for missed, n := range l.blocks {
		if n > 0 {
			gain := alpha - float64(missed)/float64(l.labels)
			sum += float64(float64(n) * kernels.Log(1+float64(bet*gain)))
		}
	}
	return sum
}

// largestBet bounds the bets: at 1/(1 - alpha) one loss of 1 would take all.
func largestBet(alpha float64) float64 { return 0.9 / (1 - alpha) }

// bet returns the bet that needs the smallest gap of the mean loss below alpha to pass with tests
// blocks: the capital is near exp(n (bet gap - bet^2 s/2)) with s the mean square of alpha - loss.
// The contexts that choose give s; an additional observation without loss keeps it above 0.
func (p point) bet(choosing []outcome, tests int, opt *Options) float64 {
	alpha := 1 - opt.Target
	l := p.losses(choosing, opt.K, opt.Block)
	sum, n := float64(alpha*alpha), 1
	for missed, blocks := range l.blocks {
		gain := alpha - float64(missed)/float64(l.labels)
		sum += float64(float64(blocks) * float64(gain*gain))
		n += blocks
	}
	bet := math.Sqrt(float64(2*opt.threshold()) * float64(n) / float64(float64(tests)*sum))
	return min(bet, largestBet(alpha))
}
