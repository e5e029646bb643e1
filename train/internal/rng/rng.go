// Package rng makes the random numbers of training.
package rng

import "math/bits"

// Source is SplitMix64 (Steele, Lea and Flood 2014): one word of state, so that a generator per
// context costs nothing, and the noise of a context depends on the seed and on its place in the
// run, never on which goroutine handles it. The sequence is fixed by this code.
type Source struct{ state uint64 }

// Stream keeps one use of a seed apart from the others. The results of a seed depend on the
// numbers: a new stream comes last.
type Stream uint64

// The uses of a seed.
const (
	Seeding    Stream = iota + 1 // k-means++
	Scale                        // contexts that set the scale of V
	Order                        // of the contexts in gradient descent
	Gumbel                       // Gumbel noise, one generator a context
	_                            // keeps the numbers of the next ones
	Tail                         // contexts that the tail is fitted on
	Directions                   // of the squares of the tail
)

// New returns the generator of one use of the seed: stream, then the position
// in it.
func New(seed uint64, stream Stream, position uint64) Source {
	s := Source{seed}
	s.state = s.Next() ^ uint64(stream)
	s.state = s.Next() ^ position
	s.state = s.Next()
	return s
}

// Next returns 64 random bits.
func (s *Source) Next() uint64 {
	s.state += 0x9e3779b97f4a7c15
	z := s.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Uniform is in the open interval (0, 1): neither end can occur, so that
// -log(-log u) is finite.
func (s *Source) Uniform() float64 {
	return (float64(s.Next()>>12) + 0.5) * 0x1p-52
}

// Below is uniform over 0 .. n-1, n > 0, without bias (Lemire 2019).
func (s *Source) Below(n uint64) uint64 {
	hi, lo := bits.Mul64(s.Next(), n)
	if lo < n {
		for threshold := -n % n; lo < threshold; {
			hi, lo = bits.Mul64(s.Next(), n)
		}
	}
	return hi
}

// Shuffle permutes x (Fisher and Yates).
func (s *Source) Shuffle(x []uint32) {
	for i := len(x) - 1; i > 0; i-- {
		j := s.Below(uint64(i) + 1)
		x[i], x[j] = x[j], x[i]
	}
}

// Sample returns m ascending distinct indices below n, m <= n, one from each of m
// parts of equal size.
func (s *Source) Sample(n, m int) []uint32 {
	ids := make([]uint32, m)
	for j := range ids {
		first := uint64(j) * uint64(n) / uint64(m)
		end := uint64(j+1) * uint64(n) / uint64(m)
		ids[j] = uint32(first + s.Below(end-first))
	}
	return ids
}
