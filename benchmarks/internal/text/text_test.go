package text

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/files/vocab"
)

func mustRead(t testing.TB, words ...string) *vocab.Vocab {
	t.Helper()
	v, err := vocab.Read([]byte(strings.Join(words, "\n") + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func collect(v *vocab.Vocab, r io.Reader) (ids []uint32, err error) {
	for id, e := range Tokens(v, r, "text.txt") {
		if err != nil {
			return ids, fmt.Errorf("the stream went on after the error %w", err)
		}
		if e != nil {
			err = e
			continue
		}
		ids = append(ids, id)
	}
	return ids, err
}

func TestTokens(t *testing.T) {
	v := mustRead(t, "<unk>", "<eos>", "a", "b", "é")
	const unk, eos, a, b, e = 0, 1, 2, 3, 4
	for _, c := range []struct {
		name, text string
		want       []uint32
	}{
		{"words and lines", "a b\nb a\n", []uint32{a, b, eos, b, a, eos}},
		{"a last line without its newline", "a b\nb", []uint32{a, b, eos, b, eos}},
		{"white space at both ends", " a \t b \n", []uint32{a, b, eos}},
		{"blank lines", "\n a\n\n", []uint32{eos, a, eos, eos}},
		{"a last line of white space", "a\n ", []uint32{a, eos, eos}},
		{"CR LF", "a\r\nb\r\n", []uint32{a, eos, b, eos}},
		{"other white space", "a\u00a0b\u2003é\n", []uint32{a, b, e, eos}},
		{"unknown words", "a c A\n", []uint32{a, unk, unk, eos}},
		{"<unk> and <eos> written out", "<unk> a <eos> b\n", []uint32{unk, a, eos, b, eos}},
		{"a word that starts with a known one", "ab aaaaaaaaaaaaaaaaaaaa\n", []uint32{unk, unk, eos}},
		{"a very long word", "a " + strings.Repeat("é", 1<<18) + " b", []uint32{a, unk, b, eos}},
		{"an encoded U+FFFD is a word", "\uFFFD\n", []uint32{unk, eos}},
	} {
		for reader, r := range map[string]io.Reader{
			"whole":       strings.NewReader(c.text),
			"a byte each": iotest.OneByteReader(strings.NewReader(c.text)),
		} {
			if got, err := collect(v, r); err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%s (%s): got %v, %v; want %v", c.name, reader, got, err, c.want)
			}
		}
	}
}

func TestTokensErrors(t *testing.T) {
	full := mustRead(t, "<unk>", "<eos>", "a")
	broken := errors.New("broken pipe")
	for _, c := range []struct {
		name   string
		v      *vocab.Vocab
		text   io.Reader
		before []uint32
		want   string
	}{
		{"empty", full, strings.NewReader(""), nil, "text.txt: found an empty file"},
		{"not UTF-8", full, strings.NewReader("a\na \xff"), []uint32{2, 1, 2}, "text.txt: line 2: found bytes that are not UTF-8"},
		{"truncated UTF-8", full, strings.NewReader("a é"[:3]), []uint32{2}, "text.txt: line 1: found bytes that are not UTF-8"},
		{"NUL", full, strings.NewReader("a \x00"), []uint32{2}, "text.txt: line 1: found a NUL byte"},
		{"byte order mark", full, strings.NewReader("\uFEFFa"), nil, "text.txt: line 1: found a byte order mark"},
		{"failed read", full, io.MultiReader(strings.NewReader("a "), iotest.ErrReader(broken)), []uint32{2}, "text.txt: line 1: broken pipe"},
		{"no <unk>, needed", mustRead(t, "<eos>", "a"), strings.NewReader("a\nb\n"), []uint32{1, 0}, `text.txt: line 2: unknown word "b": vocabulary: found no word <unk>`},
		{"no <eos>, needed", mustRead(t, "<unk>", "a"), strings.NewReader("a b\n"), []uint32{1, 0}, "text.txt: line 1: end of line: vocabulary: found no word <eos>"},
	} {
		got, err := collect(c.v, c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) || !slices.Equal(got, c.before) {
			t.Errorf("%s: got %v, %v; want %v and an error with %q", c.name, got, err, c.before, c.want)
		}
	}
	if got, err := collect(mustRead(t, "<eos>", "a"), strings.NewReader("a\n")); err != nil || !slices.Equal(got, []uint32{1, 0}) {
		t.Errorf("no <unk>, not needed: got %v, %v", got, err)
	}
}

func TestTokensStopsWhenAsked(t *testing.T) {
	v := mustRead(t, "<unk>", "<eos>", "a")
	for stop := 1; stop <= 6; stop++ {
		n := 0
		for range Tokens(v, strings.NewReader("a a\nb\nc"), "text.txt") {
			if n++; n == stop {
				break
			}
		}
		if n != stop {
			t.Errorf("%d tokens before a break at %d", n, stop)
		}
	}
}

// fields are the tokens by the obvious program, which holds the text in memory.
func fields(v *vocab.Vocab, text string) (ids []uint32) {
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		for _, word := range append(strings.Fields(line), vocab.EOSWord) {
			id, ok := v.ID(word)
			if !ok {
				id, _ = v.Special(vocab.UnknownWord)
			}
			ids = append(ids, id)
		}
	}
	return ids
}

// TestLinesAreTokens: the lines are the tokens between two <eos>, and end with
// the same error, at the same place.
func TestLinesAreTokens(t *testing.T) {
	v := mustRead(t, "<unk>", "<eos>", "a", "bb", "é")
	const eos = 1
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[abéx \r\n\t\x00]{0,40}`).Draw(t, "text")
		var want [][]uint32
		var line []uint32
		var wantErr error
		for id, err := range Tokens(v, strings.NewReader(text), "text.txt") {
			switch {
			case err != nil:
				wantErr = err
			case id == eos:
				want, line = append(want, line), nil
			default:
				line = append(line, id)
			}
		}
		var got [][]uint32
		var gotErr error
		for line, err := range Lines(v, strings.NewReader(text), "text.txt") {
			if err != nil {
				gotErr = err
				continue
			}
			got = append(got, line)
		}
		if !slices.EqualFunc(got, want, slices.Equal) || fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
			t.Fatalf("%q: got %v, %v; want %v, %v", text, got, gotErr, want, wantErr)
		}
	})
}

func TestLines(t *testing.T) {
	v := mustRead(t, "a", "b") // neither <eos> nor <unk> is needed
	var got [][]uint32
	for line, err := range Lines(v, strings.NewReader("a b\n\n \nb"), "text.txt") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, line)
	}
	if want := [][]uint32{{0, 1}, nil, nil, {1}}; !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got %v, want %v", got, want)
	}
	n := 0
	for range Lines(v, strings.NewReader("a\na\nb"), "text.txt") {
		if n++; n == 2 {
			break
		}
	}
	if n != 2 {
		t.Errorf("%d lines before a break at 2", n)
	}
	for _, err := range Lines(v, strings.NewReader("c\n"), "text.txt") {
		if err == nil || !strings.Contains(err.Error(), `text.txt: line 1: unknown word "c"`) {
			t.Errorf("no <unk>, needed: got %v", err)
		}
	}
}

// FuzzTokens: any bytes give the tokens of the obvious program or an error, and an error if they
// are no text.
func FuzzTokens(f *testing.F) {
	v := mustRead(f, "<unk>", "<eos>", "a", "é")
	for _, s := range []string{"", "a\n", "a é\n\nb", "\xff", "\uFEFF", "a\r\n", "a \xc3"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := collect(v, strings.NewReader(string(data)))
		text := len(data) > 0 && utf8.Valid(data) && !strings.ContainsRune(string(data), 0) &&
			!strings.HasPrefix(string(data), string(byteOrderMark))
		if (err == nil) != text {
			t.Fatalf("text: %v, error: %v", text, err)
		}
		if err == nil && !slices.Equal(got, fields(v, string(data))) {
			t.Fatalf("got %v, want %v", got, fields(v, string(data)))
		}
	})
}

func TestPennTreebank(t *testing.T) {
	dir := filepath.Join("..", "..", "..", "..", "shared", "data", "ptb-small")
	if _, err := os.Stat(dir); err != nil {
		t.Skip("../shared/data/ptb-small is not there (CONTRIBUTING.md, Data, describes it): ", err)
	}
	v, err := vocab.Load(filepath.Join(dir, "vocab.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if err := v.CheckLen(10000); err != nil {
		t.Error(err)
	}
	unknown, err := v.Special(vocab.UnknownWord)
	if err != nil {
		t.Fatal(err)
	}
	// The text has <unk> written out: all other words are in the vocabulary.
	for name, want := range map[string]struct{ tokens, unknown int }{
		"ptb.train.txt": {929589, 45020},
		"ptb.test.txt":  {82430, 4794},
	} {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		var tokens, unk int
		for id, err := range Tokens(v, f, name) {
			if err != nil {
				t.Fatal(err)
			}
			if tokens++; id == unknown {
				unk++
			}
		}
		f.Close()
		if tokens != want.tokens || unk != want.unknown {
			t.Errorf("%s: %d tokens, %d of them <unk>; want %d and %d", name, tokens, unk, want.tokens, want.unknown)
		}
	}
}
