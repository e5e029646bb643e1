package sentencepiece

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// rules normalise text: a table says what sequences of characters become, the longest first.
type rules struct {
	trie    []uint32 // a double array, in the format of darts-clone
	texts   []byte   // the results, each with a zero byte behind it
	prefix  bool     // a space before the text
	squeeze bool     // no spaces at the ends, and no two together
}

func (r *rules) parse(data []byte) error {
	return fields(data, func(number protowire.Number, value uint64, content []byte) error {
		switch number {
		case 2:
			return r.table(content)
		case 3:
			r.prefix = value != 0
		case 4:
			r.squeeze = value != 0
		case 5:
			if value == 0 {
				return fmt.Errorf("normalizer_spec: escape_whitespaces: found 0, expected 1")
			}
		}
		return nil
	})
}

func (r *rules) table(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	if len(data) < 4 {
		return fmt.Errorf("normalizer_spec: precompiled_charsmap: found %d bytes, expected at least 4", len(data))
	}
	size := uint64(binary.LittleEndian.Uint32(data))
	if size%4 != 0 || size == 0 || size > uint64(len(data)-4) {
		return fmt.Errorf("normalizer_spec: precompiled_charsmap: found a trie of %d bytes, expected a multiple of 4, in the %d bytes behind its size", size, len(data)-4)
	}
	r.trie = make([]uint32, size/4)
	for i := range r.trie {
		r.trie[i] = binary.LittleEndian.Uint32(data[4+4*i:])
	}
	if r.texts = data[4+size:]; len(r.texts) == 0 || r.texts[len(r.texts)-1] != 0 || !utf8.Valid(r.texts) {
		return fmt.Errorf("normalizer_spec: precompiled_charsmap: found %d bytes of results, expected UTF-8 that ends with a zero", len(r.texts))
	}
	return nil
}

// A unit of a double array has a label in its low byte, the distance to its children in the upper 22
// bits, of which another bit says that they count 256, and a bit for a child that ends a key. That
// child has the value, in the lower 31 bits.
const (
	hasLeaf   = 1 << 8
	coarse    = 1 << 9
	labelMask = 1<<31 | 0xff
)

func children(unit uint32) uint32 { return unit >> 10 << (unit & coarse >> 6) }

// first returns what the beginning of s becomes, and its length. s is not empty.
func (r *rules) first(s string) (text string, n int) {
	if len(r.trie) > 0 {
		found, value := 0, uint32(0)
		at := children(r.trie[0])
		for i := 0; i < len(s); i++ {
			at ^= uint32(s[i])
			if uint64(at) >= uint64(len(r.trie)) || r.trie[at]&labelMask != uint32(s[i]) {
				break
			}
			unit := r.trie[at]
			if at ^= children(unit); uint64(at) >= uint64(len(r.trie)) {
				break
			}
			if unit&hasLeaf != 0 {
				found, value = i+1, r.trie[at]&^(1<<31)
			}
		}
		if found > 0 && uint64(value) < uint64(len(r.texts)) {
			text := r.texts[value:]
			return string(text[:bytes.IndexByte(text, 0)]), found
		}
	}
	c, n := utf8.DecodeRuneInString(s)
	if c == utf8.RuneError && n == 1 {
		return string(utf8.RuneError), 1
	}
	return s[:n], n
}

// normalize returns the text that is split, with ▁ for spaces.
func (r *rules) normalize(s string) string {
	var b strings.Builder
	after := r.squeeze // a space, or the beginning
	for begun := false; s != ""; {
		text, n := r.first(s)
		s = s[n:]
		if !begun && r.squeeze && text == " " {
			continue
		}
		if !begun && r.prefix {
			b.WriteString(space)
		}
		begun = true
		for after && strings.HasPrefix(text, " ") {
			text = text[1:]
		}
		if text != "" {
			b.WriteString(strings.ReplaceAll(text, " ", space))
			after = r.squeeze && strings.HasSuffix(text, " ")
		}
	}
	text := b.String()
	for r.squeeze && strings.HasSuffix(text, space) {
		text = strings.TrimSuffix(text, space)
	}
	return text
}
