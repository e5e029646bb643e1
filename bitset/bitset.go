// Package bitset holds sets of labels as bits: the candidate sets c_t in {0,1}^L of "Learning to
// Screen for Fast Softmax Inference on Large Vocabulary Neural Networks", section 3.2, where L is
// the number of labels (the vocabulary) and c_t has the labels that cluster t may answer with; and
// the labels that a request allows or bans.
//
// A [Set] has a fixed universe 0, ..., L-1 and takes L/8 bytes however many labels it holds.
// [Set.All] iterates over the ids in ascending order, and [FromIDs] reads such a list. (A screen
// keeps its candidates as lists in another order: the best ones first.)
//
// A label outside the universe, and an operation on two sets of different universes, is a
// mistake of the caller and panics with a constant string that starts with "bitset: ", before
// anything has changed. Ids that come from outside go through [FromIDs], which returns an error
// instead. A Set may be read by many goroutines at once; a change needs it alone.
package bitset

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"math/bits"
	"slices"
)

const wordBits = 64

// maxLabels is the largest universe: labels are uint32.
const maxLabels = min(math.MaxInt, math.MaxUint32+1)

const (
	errUniverse = "bitset: the number of labels is negative or more than maxLabels"
	errRange    = "bitset: label out of range"
	errBits     = "bitset: the number of bytes is not an eighth of the labels, rounded up"
	errMismatch = "bitset: sets over different numbers of labels"
)

// Set is a set of labels out of the universe 0, ..., Len()-1. The zero value
// is the set over no labels at all.
type Set struct {
	labels int
	words  []uint64 // ceil(labels/64); the bits from labels on are zero
}

// New returns the empty set over the given number of labels. It takes a bit for each.
func New(labels int) *Set {
	if labels < 0 || labels > maxLabels {
		panic(errUniverse)
	}
	return &Set{labels: labels, words: make([]uint64, (uint(labels)+wordBits-1)/wordBits)}
}

// FromIDs returns the set over the given number of labels that holds exactly ids, strictly
// ascending and below labels, as [Set.All] has them. The error names the first id that
// breaks the rule.
func FromIDs(labels int, ids []uint32) (*Set, error) {
	if labels < 0 || labels > maxLabels {
		return nil, fmt.Errorf("bitset: labels: found %d, expected 0 to %d", labels, maxLabels)
	}
	s := New(labels)
	for i, id := range ids {
		if uint64(id) >= uint64(labels) {
			return nil, fmt.Errorf("bitset: ids[%d]: found %d, expected less than %d, the number of labels", i, id, labels)
		}
		if i > 0 && id <= ids[i-1] {
			return nil, fmt.Errorf("bitset: ids[%d]: found %d after %d, expected strictly ascending ids", i, id, ids[i-1])
		}
		s.words[id/wordBits] |= 1 << (id % wordBits)
	}
	return s, nil
}

// Len returns the number of labels of the universe, L: not of the set, which
// is [Set.Count].
func (s *Set) Len() int { return s.labels }

// Add puts id into the set.
func (s *Set) Add(id uint32) {
	s.check(id)
	s.words[id/wordBits] |= 1 << (id % wordBits)
}

// SetBits replaces the labels of the set by those whose bits are set: of label i, bit i%8 of
// bits[i/8], the lowest is bit 0. There are ceil(Len()/8) bytes, and the bits behind the last label
// do not count. So masks of numpy, and of libraries that make grammars, become sets.
func (s *Set) SetBits(bits []byte) {
	if len(bits) != (s.labels+7)/8 {
		panic(errBits)
	}
	whole := s.labels / wordBits
	for i := range whole {
		s.words[i] = binary.LittleEndian.Uint64(bits[8*i:])
	}
	if whole < len(s.words) {
		var last [8]byte
		copy(last[:], bits[8*whole:])
		s.words[whole] = binary.LittleEndian.Uint64(last[:]) & inWord(whole, 0, s.labels)
	}
}

// Remove takes id out of the set.
func (s *Set) Remove(id uint32) {
	s.check(id)
	s.words[id/wordBits] &^= 1 << (id % wordBits)
}

// Has reports whether id is in the set.
func (s *Set) Has(id uint32) bool {
	s.check(id)
	return s.words[id/wordBits]>>(id%wordBits)&1 != 0
}

func (s *Set) check(id uint32) {
	if uint64(id) >= uint64(s.labels) {
		panic(errRange)
	}
}

// Count returns the number of labels in the set, |c_t|.
func (s *Set) Count() int {
	n := 0
	for _, w := range s.words {
		n += bits.OnesCount64(w)
	}
	return n
}

// inWord returns the bits of word i for labels from first on, before end.
func inWord(i, first, end int) uint64 {
	in := ^uint64(0)
	if below := first - i*wordBits; below > 0 {
		in <<= below
	}
	if above := (i+1)*wordBits - end; above > 0 {
		in &= ^uint64(0) >> above
	}
	return in
}

// Missing iterates over the labels that are not in the set, from first on,
// before end, both at most Len, in ascending order.
func (s *Set) Missing(first, end int) iter.Seq[uint32] {
	if first < 0 || first > end || end > s.labels {
		panic(errRange)
	}
	return s.each(first, end, ^uint64(0))
}

// each iterates over the labels from first on, before end, whose bits differ from the bits of a
// word.
func (s *Set) each(first, end int, from uint64) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for i := first / wordBits; i*wordBits < end; i++ {
			for w := (s.words[i] ^ from) & inWord(i, first, end); w != 0; w &= w - 1 {
				if !yield(uint32(i)*wordBits + uint32(bits.TrailingZeros64(w))) {
					return
				}
			}
		}
	}
}

// Fill puts every label of the universe into the set.
func (s *Set) Fill() {
	for i := range s.words {
		s.words[i] = inWord(i, 0, s.labels)
	}
}

// Union adds to s every label of o, which has the same universe.
func (s *Set) Union(o *Set) {
	s.checkSame(o)
	for i, w := range o.words {
		s.words[i] |= w
	}
}

// Intersect removes from s every label not in o, which has the same universe.
func (s *Set) Intersect(o *Set) {
	s.checkSame(o)
	for i, w := range o.words {
		s.words[i] &= w
	}
}

// Difference removes from s every label of o, which has the same universe.
func (s *Set) Difference(o *Set) {
	s.checkSame(o)
	for i, w := range o.words {
		s.words[i] &^= w
	}
}

func (s *Set) checkSame(o *Set) {
	if s.labels != o.labels {
		panic(errMismatch)
	}
}

// Clone returns a copy that shares nothing with s.
func (s *Set) Clone() *Set {
	return &Set{labels: s.labels, words: slices.Clone(s.words)}
}

// Clear takes every label out of the set and keeps its universe.
func (s *Set) Clear() { clear(s.words) }

// All iterates over the labels of the set in ascending order. A label may be removed while it
// is visited; one that is added meanwhile may or may not be visited.
func (s *Set) All() iter.Seq[uint32] { return s.each(0, s.labels, 0) }
