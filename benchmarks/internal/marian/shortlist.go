package marian

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"os"
	"slices"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
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
	at := len(dst)
	dst = append(dst, s.always...)
	for _, piece := range sentence {
		dst = append(append(dst, piece), s.lists[s.starts[piece]:s.starts[piece+1]]...)
	}
	slices.Sort(dst[at:])
	return dst[:at+len(slices.Compact(dst[at:]))]
}

// Learn returns a dictionary of translations: for each piece that is in least of the sentences, the most
// pieces of their translations that are with it more often than by chance, instead of those that it
// had. The frequent pieces are the ones that are best most often.
func (s *Shortlist) Learn(sentences, translations [][]uint32, frequent, most, least int) *Shortlist {
	labels := len(s.starts) - 1
	in, out := make([]int, labels), make([]int, labels)
	with := make([]map[uint32]int, labels)
	for i, sentence := range sentences {
		target := distinct(translations[i])
		for _, y := range target {
			out[y]++
		}
		for _, x := range distinct(sentence) {
			if in[x]++; with[x] == nil {
				with[x] = map[uint32]int{}
			}
			for _, y := range target {
				with[x][y]++
			}
		}
	}
	l := &Shortlist{starts: []uint64{0}}
	order := make([]uint32, labels)
	for y := range order {
		order[y] = uint32(y)
	}
	slices.SortStableFunc(order, func(a, b uint32) int { return out[b] - out[a] })
	l.always = order[:frequent]
	for x := range labels {
		if in[x] < least {
			l.lists = append(l.lists, s.lists[s.starts[x]:s.starts[x+1]]...)
		} else {
			// The likelihood ratio of a pair against chance.
			score := func(y uint32) float64 {
				both := float64(with[x][y])
				return both * kernels.Log(both*float64(len(sentences))/float64(in[x])/float64(out[y]))
			}
			var list []uint32
			for y := range with[x] {
				if score(y) > 0 {
					list = append(list, y)
				}
			}
			slices.SortFunc(list, func(a, b uint32) int { return cmp.Or(cmp.Compare(score(b), score(a)), cmp.Compare(a, b)) })
			l.lists = append(l.lists, list[:min(most, len(list))]...)
		}
		l.starts = append(l.starts, uint64(len(l.lists)))
	}
	return l
}

func distinct(ids []uint32) []uint32 {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	return slices.Compact(ids)
}
