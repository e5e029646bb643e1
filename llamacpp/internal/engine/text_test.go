package engine

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTextIsHeldBack(t *testing.T) {
	for _, c := range []struct {
		name   string
		stops  []string
		pieces []string
		parts  []string // after each piece, and at the end
		tokens []int
		stop   string
	}{
		{"no stops", nil, []string{"a", "b"}, []string{"a", "b", ""}, []int{1, 1, 0}, ""},
		{"a character in two tokens", nil, []string{"\xc3", "\xa9"}, []string{"", "é", ""}, []int{0, 2, 0}, ""},
		{"no character", nil, []string{"\xff", "a"}, []string{"\xff", "a", ""}, []int{1, 1, 0}, ""},
		{"half a character at the end", nil, []string{"a\xe2\x82"}, []string{"a", "\xe2\x82"}, []int{0, 1}, ""},
		{"a stop in one token", []string{"end"}, []string{"a", "bendc", "d"}, []string{"a", "b"}, []int{1, 1}, "end"},
		{"a stop over three tokens", []string{"end"}, []string{"xe", "n", "d"}, []string{"x", "", ""}, []int{0, 0, 1}, "end"},
		{"not a stop", []string{"end"}, []string{"e", "n", "x", "e"}, []string{"", "", "enx", "", "e"}, []int{0, 0, 3, 0, 1}, ""},
		{"a stop that begins anew", []string{"aab"}, []string{"a", "a", "a", "b"}, []string{"", "", "a", ""}, []int{0, 0, 1, 0}, "aab"},
		{"the first of two stops", []string{"cd", "bc"}, []string{"abcd"}, []string{"a"}, []int{1}, "bc"},
		{"tokens without text", []string{"b"}, []string{"", "a", ""}, []string{"", "a", "", ""}, []int{1, 1, 1, 0}, ""},
		{"a stop at once", []string{"a"}, []string{"a"}, []string{""}, []int{0}, "a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := writer{stops: c.stops}
			for i, piece := range c.pieces {
				text, tokens, stop := w.add(Token{Piece: piece})
				if text != c.parts[i] || len(tokens) != c.tokens[i] {
					t.Fatalf("piece %d: found %q with %d tokens, expected %q with %d", i, text, len(tokens), c.parts[i], c.tokens[i])
				}
				if stop != "" {
					if stop != c.stop || i != len(c.parts)-1 {
						t.Fatalf("piece %d: found the stop %q, expected %q after piece %d", i, stop, c.stop, len(c.parts)-1)
					}
					return
				}
			}
			if c.stop != "" {
				t.Fatalf("found no stop, expected %q", c.stop)
			}
			if text, tokens := w.end(); text != c.parts[len(c.pieces)] || len(tokens) != c.tokens[len(c.pieces)] {
				t.Errorf("at the end: found %q with %d tokens", text, len(tokens))
			}
		})
	}
}

// For any pieces and stops, the released text is the text up to the first place where a stop text
// is complete, each token comes once and in order, and nothing is held back that cannot become a
// stop text or a character.
func TestTextIsWholeWhateverThePieces(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	alphabet := []string{"a", "b", "é", "\xe2", "\x82", "\xac", "ab", ""}
	for range 20_000 {
		w := writer{}
		for range random.IntN(3) {
			stop := ""
			for range 1 + random.IntN(3) {
				stop += alphabet[random.IntN(3)]
			}
			w.stops = append(w.stops, stop)
		}
		all, read, tokens := "", "", 0
		stopped := ""
		for i := range 8 {
			piece := alphabet[random.IntN(len(alphabet))]
			all += piece
			text, list, stop := w.add(Token{ID: uint32(i), Piece: piece})
			read += text
			for _, x := range list {
				if x.ID != uint32(tokens) {
					t.Fatalf("stops %q: found token %d, expected %d", w.stops, x.ID, tokens)
				}
				tokens++
			}
			// The oracle: the first place where a stop is, when it is complete first.
			at := -1
			for _, s := range w.stops {
				if k := strings.Index(all, s); k >= 0 && (at < 0 || k < at) {
					at = k
				}
			}
			if (at >= 0) != (stop != "") {
				t.Fatalf("stops %q, text %q: found the stop %q", w.stops, all, stop)
			}
			if at >= 0 {
				if read != all[:at] {
					t.Fatalf("stops %q, text %q: found %q read, expected %q", w.stops, all, read, all[:at])
				}
				stopped = stop
				break
			}
			held := all[len(read):]
			if read+held != all {
				t.Fatalf("stops %q, text %q: found %q read", w.stops, all, read)
			}
			may := len(held) == 0 || len(held) < utf8.UTFMax && !utf8.ValidString(held)
			for _, s := range w.stops {
				may = may || strings.HasPrefix(s, held)
			}
			if !may {
				t.Fatalf("stops %q, text %q: found %q held back", w.stops, all, held)
			}
		}
		if stopped != "" {
			continue
		}
		text, list := w.end()
		if read+text != all || tokens+len(list) != 8 {
			t.Fatalf("stops %q: found %q and %d tokens, expected %q and 8", w.stops, read+text, tokens+len(list), all)
		}
	}
}
