package train

import "math/bits"

// rng is SplitMix64 (Steele, Lea and Flood 2014): one word of state, so that a
// generator of its own for every context costs nothing, and the noise of a
// context depends on the seed and on its place in the run, never on which
// goroutine handles it. The sequence is fixed by this code.
type rng struct{ state uint64 }

// The streams keep the uses of one seed apart.
const (
	streamSeeding     uint64 = iota + 1 // k-means++
	streamScale                         // contexts that set the scale of V
	streamShuffle                       // the order of the contexts in SGD
	streamGumbel                        // Gumbel noise, one generator a context
	streamGroups                        // seeds of k-means within the groups
	streamSpread                        // contexts that set the temperature of Options.Spread
	streamSplit                         // the contexts that choose the path of a calibration
	streamKMeansBatch                   // the mini-batches of k-means
)

// newRNG returns the generator of one use: stream, then the position in it.
func newRNG(seed, stream, position uint64) rng {
	r := rng{seed}
	r.state = r.next() ^ stream
	r.state = r.next() ^ position
	r.state = r.next()
	return r
}

func (r *rng) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	z := r.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// uniform is in the open interval (0, 1): neither end can occur, so that
// -log(-log u) is finite.
func (r *rng) uniform() float64 {
	return (float64(r.next()>>12) + 0.5) * 0x1p-52
}

// below is uniform over 0 .. n-1, n > 0, without bias (Lemire 2019).
func (r *rng) below(n uint64) uint64 {
	hi, lo := bits.Mul64(r.next(), n)
	if lo < n {
		for threshold := -n % n; lo < threshold; {
			hi, lo = bits.Mul64(r.next(), n)
		}
	}
	return hi
}

// shuffle permutes x (Fisher and Yates).
func (r *rng) shuffle(x []uint32) {
	for i := len(x) - 1; i > 0; i-- {
		j := r.below(uint64(i) + 1)
		x[i], x[j] = x[j], x[i]
	}
}

// sample returns m ascending distinct indices below n, m <= n, one from each of m
// parts of equal size.
func (r *rng) sample(n, m int) []uint32 {
	ids := make([]uint32, m)
	for j := range ids {
		first := uint64(j) * uint64(n) / uint64(m)
		end := uint64(j+1) * uint64(n) / uint64(m)
		ids[j] = uint32(first + r.below(end-first))
	}
	return ids
}
