package learn

import "math/bits"

// membership says which clusters' sets hold a label: one row of bits a label,
// one bit a cluster. It answers "how many of the k labels does c_t hold" for
// all t in a few steps.
type membership struct {
	words int      // of a row
	bits  []uint64 // labels x words
	sizes []int    // |c_t|
}

func newMembership(sets [][]uint32, labels int) *membership {
	words := (len(sets) + 63) / 64
	m := &membership{words: words, bits: make([]uint64, labels*words), sizes: make([]int, len(sets))}
	for t, set := range sets {
		m.sizes[t] = len(set)
		for _, s := range set {
			m.bits[int(s)*words+t/64] |= 1 << (t % 64)
		}
	}
	return m
}

// has reports whether c_t holds label s.
func (m *membership) has(t int, s uint32) bool {
	return m.bits[int(s)*m.words+t/64]>>(t%64)&1 != 0
}

// hits sets dst[t] to the number of the labels that c_t holds.
func (m *membership) hits(dst []uint32, labels []uint32) {
	clear(dst)
	for _, s := range labels {
		for w, x := range m.bits[int(s)*m.words : (int(s)+1)*m.words] {
			for ; x != 0; x &= x - 1 {
				dst[w*64+bits.TrailingZeros64(x)]++
			}
		}
	}
}
