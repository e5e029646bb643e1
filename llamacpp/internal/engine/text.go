package engine

import (
	"strings"
	"unicode/utf8"
)

// Token is a token that was written.
type Token struct {
	ID      uint32
	Piece   string // its text, perhaps a part of a character
	LogProb float64
	Top     []Top // the best tokens in its place, if the request wants them
	Shared  bool  // see Result
}

// Top is a token that could have been written.
type Top struct {
	ID      uint32
	Piece   string
	LogProb float64
}

// writer puts the text of tokens together. It holds back text that may be the beginning of a stop
// text, and characters that are not complete.
type writer struct {
	stops  []string
	text   string  // that is held back
	tokens []Token // whose text is held back, at least in part
	before int     // bytes of the first of these that are not
}

// add adds a token, and returns the released part: text, and the tokens whose text is complete or
// is cut by a stop text. It reports the stop text that ends all.
func (w *writer) add(t Token) (text string, tokens []Token, stop string) {
	from := len(w.text)
	w.text += t.Piece
	w.tokens = append(w.tokens, t)
	at := -1
	for _, s := range w.stops {
		// A stop text that ended before would have been found.
		begin := max(0, from-len(s)+1)
		if i := strings.Index(w.text[begin:], s); i >= 0 && (at < 0 || begin+i < at) {
			at, stop = begin+i, s
		}
	}
	if at >= 0 {
		text, tokens = w.release(at, true)
		w.text, w.tokens = "", nil
		return text, tokens, stop
	}
	held := incomplete(w.text)
	for _, s := range w.stops {
		held = max(held, begins(w.text, s))
	}
	text, tokens = w.release(len(w.text)-held, false)
	return text, tokens, ""
}

// end returns the text that is held back.
func (w *writer) end() (string, []Token) { return w.release(len(w.text), false) }

// release gives the first n bytes away, with the tokens that end there, or, at the end, that begin
// before.
func (w *writer) release(n int, last bool) (string, []Token) {
	text := w.text[:n]
	w.text = w.text[n:]
	count, at := 0, -w.before
	for count < len(w.tokens) {
		end := at + len(w.tokens[count].Piece)
		if end > n && !(last && at < n) {
			break
		}
		at, count = end, count+1
	}
	tokens := w.tokens[:count:count]
	w.tokens, w.before = w.tokens[count:], n-at
	return text, tokens
}

// begins returns the number of bytes at the end of a text that are the beginning of another, but
// not all of it.
func begins(text, of string) int {
	for n := min(len(text), len(of)-1); n > 0; n-- {
		if text[len(text)-n:] == of[:n] {
			return n
		}
	}
	return 0
}

// incomplete returns the number of bytes at the end of a text that are the beginning of a
// character.
func incomplete(text string) int {
	for n := 1; n <= min(utf8.UTFMax-1, len(text)); n++ {
		if tail := text[len(text)-n:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRuneInString(tail) {
				return n
			}
			return 0
		}
	}
	return 0
}
