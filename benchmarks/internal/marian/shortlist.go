package marian

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"os"
)

// Shortlist is a dictionary: for each piece of the source, pieces that translations have. Its list for
// a sentence is the most frequent pieces, those of the sentence, and theirs in the dictionary.
type Shortlist struct {
	always []uint32
	starts []uint64 // of the list of each piece
	lists  []uint32
}

const shortlistMagic = 0xf11a48d5013417f5

// LoadShortlist reads a dictionary of Marian's binary form, lex.*.bin, of a model of some pieces:
// numbers, the starts of the lists of pieces, and the lists.
func LoadShortlist(path string, labels int) (*Shortlist, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s, err := ParseShortlist(data, labels)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// ParseShortlist is LoadShortlist from the bytes of a file.
func ParseShortlist(data []byte, labels int) (*Shortlist, error) {
	const header = 6 * 8
	if len(data) < header {
		return nil, fmt.Errorf("marian: shortlist: found %d bytes, expected a header of %d", len(data), header)
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(data[8*i:]) }
	frequent, n, all := word(2), word(4), word(5)
	switch rest := uint64(len(data) - header); {
	case word(0) != shortlistMagic:
		return nil, fmt.Errorf("marian: shortlist: magic: found %#x, expected %#x", word(0), uint64(shortlistMagic))
	case frequent > uint64(labels):
		return nil, fmt.Errorf("marian: shortlist: first: found %d, expected at most the %d pieces", frequent, labels)
	case n != uint64(labels)+1:
		return nil, fmt.Errorf("marian: shortlist: starts: found %d, expected one more than the %d pieces", n, labels)
	case rest < 8*n || all > (rest-8*n)/4 || rest != 8*n+4*all:
		return nil, fmt.Errorf("marian: shortlist: found %d bytes behind the header, expected %d starts and %d pieces", rest, n, all)
	}
	s := &Shortlist{starts: make([]uint64, n), lists: make([]uint32, all)}
	for piece := range uint32(frequent) { // pieces are in order of their frequency
		s.always = append(s.always, piece)
	}
	for i := range s.starts {
		s.starts[i] = word(6 + i)
		if i == 0 && s.starts[0] != 0 || i > 0 && s.starts[i] < s.starts[i-1] || s.starts[i] > all {
			return nil, fmt.Errorf("marian: shortlist: starts[%d]: found %d, expected 0 at first, ascending numbers, and at most %d", i, s.starts[i], all)
		}
	}
	for i := range s.lists {
		s.lists[i] = binary.LittleEndian.Uint32(data[header+8*n:][4*i:])
		if uint64(s.lists[i]) >= uint64(labels) {
			return nil, fmt.Errorf("marian: shortlist: lists[%d]: found the piece %d, expected one below %d", i, s.lists[i], labels)
		}
	}
	return s, nil
}

// Of appends the pieces of the list of a sentence to dst, ascending and distinct. The pieces of the
// sentence are of the dictionary.
func (s *Shortlist) Of(dst []uint32, sentence []uint32) []uint32 {
	words := make([]uint64, (len(s.starts)+62)/64) // a bit of each piece: sorting takes three times as long
	mark := func(pieces []uint32) {
		for _, p := range pieces {
			words[p/64] |= 1 << (p % 64)
		}
	}
	mark(s.always)
	mark(sentence)
	for _, piece := range sentence {
		mark(s.lists[s.starts[piece]:s.starts[piece+1]])
	}
	for i, word := range words {
		for ; word != 0; word &= word - 1 {
			dst = append(dst, uint32(64*i+bits.TrailingZeros64(word)))
		}
	}
	return dst
}

// Thin returns a dictionary of fewer pieces: of the list of each piece that at least often of some
// sentences have, those that at least so many of the translations of these sentences have.
func (s *Shortlist) Thin(sentences, translations [][]uint32, often, least int) *Shortlist {
	labels := len(s.starts) - 1
	seen, counts := make([]int, labels), make([]int, len(s.lists))
	in, of := make([]int, labels), make([]int, labels) // the last sentence whose translation, or text, has a piece
	for i, pieces := range sentences {
		for _, piece := range translations[i] {
			in[piece] = i + 1
		}
		for _, piece := range pieces {
			if of[piece] == i+1 {
				continue
			}
			of[piece] = i + 1
			seen[piece]++
			for j := s.starts[piece]; j < s.starts[piece+1]; j++ {
				if in[s.lists[j]] == i+1 {
					counts[j]++
				}
			}
		}
	}
	thin := &Shortlist{always: s.always, starts: make([]uint64, len(s.starts))}
	for piece := range labels {
		for j := s.starts[piece]; j < s.starts[piece+1]; j++ {
			if seen[piece] < often || counts[j] >= least {
				thin.lists = append(thin.lists, s.lists[j])
			}
		}
		thin.starts[piece+1] = uint64(len(thin.lists))
	}
	return thin
}
