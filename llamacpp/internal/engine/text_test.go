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
			if text, tokens, _ := w.end(); text != c.parts[len(c.pieces)] || len(tokens) != c.tokens[len(c.pieces)] {
				t.Errorf("at the end: found %q with %d tokens", text, len(tokens))
			}
		})
	}
}

// A name of a special token in a stop text matches this token, which has no text, and the same
// characters; it matches no part of a name.
func TestStopTextsWithSpecialTokens(t *testing.T) {
	const end, user = "<|im_end|>", "<|im_start|>"
	special := func(name string) Token { return Token{Special: name} }
	text := func(piece string) Token { return Token{Piece: piece} }
	for _, c := range []struct {
		name   string
		stops  []string
		tokens []Token
		ending string // the name of the token that ended the text
		want   string
		stop   string
	}{
		{"a special token alone", []string{end}, []Token{text("a"), special(end), text("b")}, "", "a", end},
		{"its characters", []string{end}, []Token{text("a<|im"), text("_end|>b")}, "", "a", end},
		{"with text around", []string{"." + end + "\n"}, []Token{text("a."), special(end), text("\nb")}, "", "a", "." + end + "\n"},
		{"two of them", []string{end + "\n" + user}, []Token{text("a"), special(end), text("\n"), special(user)}, "", "a", end + "\n" + user},
		{"another one", []string{end}, []Token{text("a"), special(user), text("b")}, "", "ab", ""},
		{"a part of a name", []string{"im", "<|", "|>b", "a<", "_end|"}, []Token{text("a"), special(end), text("b")}, "", "ab", ""},
		{"a part of a name, and a later match", []string{"im"}, []Token{special(end), text("him")}, "", "h", "im"},
		{"the beginning of a stop text in a name", []string{"|>\nb", "end|>c"}, []Token{special(end), text("\nb"), special(end), text("c")}, "", "\nbc", ""},
		{"a beginning that is held back", []string{end + "x"}, []Token{text("a"), special(end), text("y")}, "", "ay", ""},
		{"the token that ends the text", []string{"b" + end}, []Token{text("a"), text("b")}, end, "a", "b" + end},
		{"another token that ends the text", []string{"b" + user}, []Token{text("a"), text("b")}, end, "ab", ""},
		{"a token within", []string{"bc"}, []Token{text("ab"), special(end), text("c")}, "", "a", "bc"},
		{"a character around a token", []string{"x"}, []Token{text("\xe2"), special(end), text("\x82"), text("\xac")}, "", "€", ""},
		{"a stop text around a token in a character", []string{"€"}, []Token{text("a\xe2"), special(end), text("\x82"), text("\xac")}, "", "a", "€"},
		{"text that looks like a token after it", []string{end + end}, []Token{special(end), text(end)}, "", "", end + end},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := writer{stops: c.stops, ending: c.ending}
			all, stopped, n := "", "", 0
			for i, x := range c.tokens {
				x.ID = uint32(i)
				text, tokens, stop := w.add(x)
				all, stopped, n = all+text, stop, n+len(tokens)
				if !utf8.ValidString(text) {
					t.Errorf("token %d: found %q, expected whole characters", i, text)
				}
				if stop != "" {
					break
				}
			}
			if stopped == "" {
				text, tokens, stop := w.end()
				if all, stopped, n = all+text, stop, n+len(tokens); stop == "" && n != len(c.tokens) {
					t.Errorf("found %d tokens, expected %d", n, len(c.tokens))
				}
			}
			if all != c.want || stopped != c.stop {
				t.Errorf("found %q, ended by %q, expected %q and %q", all, stopped, c.want, c.stop)
			}
		})
	}
}

// For any pieces and stops, the released text is the text up to the first place where a stop text
// is complete, whatever special tokens are among the pieces, each token comes once and in order, and nothing is held back that cannot become a
// stop text or a character.
func TestTextIsWholeWhateverThePieces(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	alphabet := []string{"a", "b", "é", "\xe2", "\x82", "\xac", "ab", ""}
	const special = "<ab>" // the name of half of the last of these
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
			x := Token{ID: uint32(i), Piece: piece}
			if piece == "" && random.IntN(2) == 0 {
				x.Special = special
			}
			text, list, stop := w.add(x)
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
		text, list, _ := w.end()
		if read+text != all || tokens+len(list) != 8 {
			t.Fatalf("stops %q: found %q and %d tokens, expected %q and 8", w.stops, read+text, tokens+len(list), all)
		}
	}
}
