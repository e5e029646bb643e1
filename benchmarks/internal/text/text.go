// Package text turns a text into the token stream of a language model, or into the
// sentences of a translation model.
//
// A text is UTF-8, its words separated by white space; the end of each line is the token
// <eos>, a word that the vocabulary does not hold is <unk>.
package text

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"unicode"
	"unicode/utf8"

	"github.com/learning-to-screen/l2s/internal/files/vocab"
)

const byteOrderMark = '\uFEFF'

// Tokens reads a text as a stream of ids: the words of each line, then <eos>. A last line without a
// newline ends in <eos> too; a blank line is <eos> alone. White space is white space of Unicode,
// hence a CR before the LF does no harm.
//
// The stream ends with the text or after the first error, which names the text and the line,
// counted from 1: a failed read, an empty text, bytes that are no UTF-8 text, or the lack of <unk>
// or <eos> if the text needs it. It reads ahead of the current token, and can be ranged over once.
func Tokens(v *vocab.Vocab, r io.Reader, name string) iter.Seq2[uint32, error] {
	return func(yield func(uint32, error) bool) {
		err := scan(v, r, name, func(id uint32) (bool, error) { return yield(id, nil), nil }, func() (bool, error) {
			id, err := v.Special(vocab.EOSWord)
			if err != nil {
				return false, fmt.Errorf("end of line: %w", err)
			}
			return yield(id, nil), nil
		})
		if err != nil {
			yield(0, err)
		}
	}
}

// Lines reads a text as the ids of the words of each line, none for a blank line. The caller may
// keep the slice. Otherwise Lines is like [Tokens].
func Lines(v *vocab.Vocab, r io.Reader, name string) iter.Seq2[[]uint32, error] {
	return func(yield func([]uint32, error) bool) {
		var line []uint32
		err := scan(v, r, name, func(id uint32) (bool, error) {
			line = append(line, id)
			return true, nil
		}, func() (bool, error) {
			done := line
			line = nil
			return yield(done, nil), nil
		})
		if err != nil {
			yield(nil, err)
		}
	}
}

// scan reads a text and calls word with the id of each word and end at the
// end of each line, until one of them returns false or an error.
func scan(v *vocab.Vocab, r io.Reader, name string, word func(id uint32) (bool, error), end func() (bool, error)) error {
	line := 1
	fail := func(err error) error { return fmt.Errorf("%s: line %d: %w", name, line, err) }
	br := bufio.NewReaderSize(r, 1<<16)
	longest := 0 // bytes of a word of the vocabulary
	for id := range uint32(v.Len()) {
		longest = max(longest, len(v.Word(id)))
	}

	var text []byte // of the word at hand
	flush := func() (bool, error) {
		if len(text) == 0 {
			return true, nil
		}
		id, ok := v.ID(string(text))
		if !ok {
			var err error
			if id, err = v.Special(vocab.UnknownWord); err != nil {
				return false, fmt.Errorf("unknown word %s: %w", quote(text), err)
			}
		}
		text = text[:0]
		return word(id)
	}
	endLine := func() (bool, error) {
		if more, err := flush(); !more || err != nil {
			return more, err
		}
		return end()
	}

	empty, open := true, false // open: the line at hand has begun
	for {
		more := true
		c, size, err := br.ReadRune()
		switch {
		case err == io.EOF && empty:
			return fmt.Errorf("%s: found an empty file, expected text", name)
		case err == io.EOF:
			if open {
				if _, err := endLine(); err != nil {
					return fail(err)
				}
			}
			return nil
		case err != nil:
		case c == utf8.RuneError && size == 1:
			err = fmt.Errorf("found bytes that are not UTF-8, expected UTF-8 text")
		case c == byteOrderMark && empty:
			err = fmt.Errorf("found a byte order mark, expected UTF-8 text without one")
		case c == 0:
			err = fmt.Errorf("found a NUL byte, expected text")
		case c == '\n':
			more, err = endLine()
			open = false
		case unicode.IsSpace(c):
			more, err = flush()
			open = true
		default:
			// A word longer than every word of the vocabulary is unknown, whatever its rest; the
			// part that is kept is for the error.
			if len(text) <= longest {
				text = utf8.AppendRune(text, c)
			}
			open = true
		}
		if err != nil {
			return fail(err)
		}
		if !more {
			return nil
		}
		if c == '\n' {
			line++
		}
		empty = false
	}
}

// quote quotes the beginning of s: a foreign file can hold a line of megabytes.
func quote(s []byte) string {
	const most = 60
	if len(s) > most {
		return fmt.Sprintf("%q...", s[:most])
	}
	return fmt.Sprintf("%q", s)
}
