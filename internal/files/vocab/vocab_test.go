package vocab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func mustRead(t testing.TB, words ...string) *Vocab {
	t.Helper()
	v, err := Read([]byte(strings.Join(words, "\n") + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestLineIsID(t *testing.T) {
	for name, data := range map[string]string{
		"with a last newline":    "<unk>\nthe\n<eos>\nnaïve\n",
		"without a last newline": "<unk>\nthe\n<eos>\nnaïve",
	} {
		v, err := Read([]byte(data))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for i, want := range []string{"<unk>", "the", "<eos>", "naïve"} {
			if id, ok := v.ID(want); !ok || id != uint32(i) || v.Word(uint32(i)) != want {
				t.Errorf("%s: word %q has id %d (%v), id %d is %q", name, want, id, ok, i, v.Word(uint32(i)))
			}
		}
		if _, ok := v.ID("THE"); ok || v.Len() != 4 {
			t.Errorf("%s: %d words, THE among them: %v", name, v.Len(), ok)
		}
		if id, err := v.Special(UnknownWord); id != 0 || err != nil {
			t.Errorf("%s: Special(<unk>) = %d, %v", name, id, err)
		}
		if id, err := v.Special(EOSWord); id != 2 || err != nil {
			t.Errorf("%s: Special(<eos>) = %d, %v", name, id, err)
		}
	}
}

func TestVocabularyErrors(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ name, data, want string }{
		{"empty file", "", "found an empty file"},
		{"empty line", "a\n\nb\n", "line 2: found an empty line"},
		{"only a newline", "\n", "line 1: found an empty line"},
		{"two newlines at the end", "a\nb\n\n", "line 3: found an empty line"},
		{"a word twice", "a\nb\na\n", `line 3: found "a", which is on line 1 already`},
		{"CR LF", "a\r\nb\r\n", "line 1: found \"a\\r\", a line that ends in CR LF"},
		{"a count next to the word", "a\nb 17\n", `line 2: found white space in "b 17"`},
		{"a tab", "a\tb\n", "line 1: found white space"},
		{"a no-break space", "a\u00a0b\n", "line 1: found white space"},
		{"not UTF-8", "a\nb\n\xff\xfe\n", "line 3: found \"\\xff\\xfe\", which is not UTF-8"},
		{"byte order mark", "\uFEFFa\nb\n", "line 1: found a byte order mark"},
		{"NUL", "a\n\x00\n", "line 2: found \"\\x00\" with a NUL byte"},
		{"a foreign file", strings.Repeat("\xff", 1<<20), "not UTF-8"},
	} {
		path := filepath.Join(dir, "vocab.txt")
		if err := os.WriteFile(path, []byte(c.data), 0o600); err != nil {
			t.Fatal(err)
		}
		v, err := Load(path)
		if err == nil || v != nil || !strings.HasPrefix(err.Error(), path+": ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, %v; want an error that starts with the path and holds %q", c.name, v, err, c.want)
		} else if len(err.Error()) > len(path)+500 {
			t.Errorf("%s: an error of %d bytes", c.name, len(err.Error()))
		}
	}
	if _, err := Load(filepath.Join(dir, "missing.txt")); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "missing.txt") {
		t.Errorf("missing file: %v", err)
	}
}

func TestCheckLen(t *testing.T) {
	v := mustRead(t, "a", "b", "c")
	if err := v.CheckLen(3); err != nil {
		t.Error(err)
	}
	for _, labels := range []int{2, 4} {
		if err := v.CheckLen(labels); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("found 3 words, expected %d", labels)) {
			t.Errorf("CheckLen(%d) = %v", labels, err)
		}
	}
}

// FuzzRead: an accepted vocabulary is the list of its lines, and a vocabulary written out again
// reads the same.
func FuzzRead(f *testing.F) {
	for _, s := range []string{"", "a", "a\nb\n", "a\r\n", "a\na", "\n", "<unk>\n<eos>\n\xff", "\uFEFFa"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := Read(data)
		if err != nil {
			return
		}
		lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
		if v.Len() != len(lines) {
			t.Fatalf("%d words from %d lines", v.Len(), len(lines))
		}
		for i, word := range lines {
			id, ok := v.ID(word)
			if !ok || id != uint32(i) || v.Word(id) != word || len(strings.Fields(word)) != 1 {
				t.Fatalf("line %d, %q, became id %d (%v), word %q", i, word, id, ok, v.Word(id))
			}
		}
		if _, err := Read([]byte(strings.Join(lines, "\n") + "\n")); err != nil {
			t.Fatal(err)
		}
	})
}

// A source without an end is not read forever.
func TestLoadIsBounded(t *testing.T) {
	if _, err := os.Stat("/dev/zero"); err == nil {
		if _, err := Load("/dev/zero"); err == nil || err.Error() != "/dev/zero: found a device, expected a file with one word a line" {
			t.Errorf("found error %v, expected one about a device", err)
		}
	}
	for n, want := range map[int]string{8: "", 9: "words: file size: found more than 8 bytes, expected a vocabulary, of at most that"} {
		r := strings.NewReader(strings.Repeat("x", n))
		if data, err := readAll(r, "words", 8); (err == nil) != (want == "") || err != nil && err.Error() != want || err == nil && len(data) != n {
			t.Errorf("%d bytes: found %d and error %v, expected %q", n, len(data), err, want)
		}
	}
}
