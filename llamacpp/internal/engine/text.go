package engine

import (
	"strings"
	"unicode/utf8"
)

// Token is a token that was written.
type Token struct {
	ID      uint32
	Piece   string // its text, perhaps a part of a character
	Special string // the name of a token without text, such as <|im_end|>
	LogProb float64
	Top     []Top // the best tokens in its place, if the request wants them, and this one
	Shared  bool  // see Result
}

// Top is a token that could have been written.
type Top struct {
	ID             uint32
	Piece, Special string
	LogProb        float64
}

// writer puts the text of tokens together. It holds back text that may be the beginning of a stop
// text, and characters that are not complete. A stop text may contain the names of special tokens,
// which are no text: where it does not, it goes on after such a token.
type writer struct {
	stops  []string
	begun  []begun // stop texts whose beginning is held back
	text   string  // that is held back
	tokens []Token // whose text is held back, at least in part
	before int     // bytes of the first of these that are not
	ending string  // the name of the token that ended the text, which is not among tokens
}

// begun is a stop text that has begun at a place of the text that is held back.
type begun struct {
	at, stop int
	rest     string // that has not come
}

// add adds a token, and returns the released part: text, and the tokens whose text is complete or
// is cut by a stop text. It reports the stop text that ends all.
func (w *writer) add(t Token) (text string, tokens []Token, stop string) {
	w.tokens = append(w.tokens, t)
	if at, stop := w.follow(t.Piece, t.Special); stop != "" {
		return w.cut(at, stop)
	}
	n := len(w.text) - incomplete(w.text)
	for _, x := range w.begun {
		n = min(n, x.at)
	}
	text, tokens = w.release(n, false)
	return text, tokens, ""
}

// end returns the text that is held back, up to the stop text that the token at the end completes.
func (w *writer) end() (text string, tokens []Token, stop string) {
	if at, stop := w.follow("", w.ending); stop != "" {
		return w.cut(at, stop)
	}
	text, tokens = w.release(len(w.text), false)
	return text, tokens, ""
}

// follow adds a text, or the name of a special token without one. It returns the first of the stop
// texts that are complete with it, and its place.
func (w *writer) follow(text, special string) (at int, stop string) {
	first := begun{at: -1}
	step := func(at int, part string, text bool) {
		for i, s := range w.stops {
			if part != "" && strings.HasPrefix(s, part) {
				w.begun = append(w.begun, begun{at, i, s})
			}
		}
		left := w.begun[:0]
		for _, x := range w.begun {
			rest, comes := strings.CutPrefix(x.rest, part)
			switch {
			case comes && rest == "":
				if first.at < 0 || x.at < first.at || x.at == first.at && x.stop < first.stop {
					first = x
				}
			case comes || !text:
				x.rest = rest
				left = append(left, x)
			}
		}
		w.begun = left
	}
	from := len(w.text)
	w.text += text
	switch {
	case len(w.stops) == 0:
	case text == "":
		step(from, special, false)
	default:
		for i := range len(text) {
			step(from+i, text[i:i+1], true)
		}
	}
	if first.at >= 0 {
		stop = w.stops[first.stop]
	}
	return first.at, stop
}

// cut releases the text before a stop text, and ends all.
func (w *writer) cut(at int, stop string) (string, []Token, string) {
	text, tokens := w.release(at, true)
	*w = writer{stops: w.stops}
	return text, tokens, stop
}

// release gives the first n bytes away, with the tokens that end there, or, at the end, that begin
// before.
func (w *writer) release(n int, last bool) (string, []Token) {
	text := w.text[:n]
	w.text = w.text[n:]
	for i := range w.begun {
		w.begun[i].at -= n
	}
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
