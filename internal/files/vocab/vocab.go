// Package vocab reads vocabulary files: UTF-8 text with one word a line, where line i,
// counted from zero, is word i.
package vocab

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The words with a special meaning.
const (
	UnknownWord = "<unk>" // every word outside the vocabulary
	EOSWord     = "<eos>" // the end of each line
)

// Vocab maps words to ids and back. It does not change and may be used by
// many goroutines.
type Vocab struct {
	name  string // the file, for errors
	words []string
	ids   map[string]uint32
}

// Load reads the vocabulary file at path.
//
// Words must be unique, not empty, and hold no white space: a line that ends in CR LF, or that
// carries a count next to its word, is refused and not read as another word than the intended one.
// The last line may lack its newline. The errors name the file and the line, counted from 1. The
// file may be a pipe, but not a device, and holds at most 256 MiB.
func Load(path string) (*Vocab, error) {
	switch info, err := os.Stat(path); {
	case err != nil: // Open tells it
	case info.Mode()&os.ModeDevice != 0:
		return nil, fmt.Errorf("%s: found a device, expected a file with one word a line", path)
	case info.Size() > maxSize:
		return nil, tooLarge(path, maxSize)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := readAll(file, path, maxSize)
	if err != nil {
		return nil, err
	}
	return parse(path, data)
}

// maxSize bounds the memory for a file that is no vocabulary: a vocabulary has
// seldom more than some megabytes.
const maxSize = 256 << 20

func readAll(r io.Reader, name string, most int) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, int64(most)+1))
	if err == nil && len(data) > most {
		err = tooLarge(name, most)
	}
	return data, err
}

func tooLarge(name string, most int) error {
	return fmt.Errorf("%s: file size: found more than %d bytes, expected a vocabulary, of at most that", name, most)
}

// Read is [Load] for the bytes of a vocabulary file.
func Read(data []byte) (*Vocab, error) { return parse("vocabulary", data) }

func parse(name string, data []byte) (*Vocab, error) {
	if len(data) == 0 {
		return nil, fmt.Errorf("%s: found an empty file, expected one word a line", name)
	}
	text := strings.TrimSuffix(string(data), "\n")
	n := strings.Count(text, "\n") + 1
	v := &Vocab{name: name, words: make([]string, 0, n), ids: make(map[string]uint32, n)}
	for word := range strings.SplitSeq(text, "\n") {
		line := len(v.words) + 1
		if err := checkWord(word, line); err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", name, line, err)
		}
		if first, ok := v.ids[word]; ok {
			return nil, fmt.Errorf("%s: line %d: found %q, which is on line %d already, expected unique words", name, line, word, first+1)
		}
		v.ids[word] = uint32(len(v.words))
		v.words = append(v.words, word)
	}
	return v, nil
}

// checkWord refuses text that is no word, and shows its beginning: a foreign file can hold a line
// of megabytes.
func checkWord(word string, line int) error {
	switch {
	case word == "":
		return fmt.Errorf("found an empty line, expected a word")
	case !utf8.ValidString(word):
		return fmt.Errorf("found %.60q, which is not UTF-8, expected UTF-8 text", word)
	case line == 1 && strings.HasPrefix(word, "\ufeff"):
		return fmt.Errorf("found a byte order mark, expected UTF-8 text without one")
	case strings.ContainsRune(word, 0):
		return fmt.Errorf("found %.60q with a NUL byte, expected text", word)
	case strings.HasSuffix(word, "\r"):
		return fmt.Errorf("found %.60q, a line that ends in CR LF, expected LF alone", word)
	case strings.ContainsFunc(word, unicode.IsSpace):
		return fmt.Errorf("found white space in %.60q, expected one word a line and nothing else", word)
	}
	return nil
}

// Len returns the number of words, L.
func (v *Vocab) Len() int { return len(v.words) }

// CheckLen returns an error unless the number of words is the number of labels of the layer.
func (v *Vocab) CheckLen(labels int) error {
	if v.Len() != labels {
		return fmt.Errorf("%s: found %d words, expected %d, one per label", v.name, v.Len(), labels)
	}
	return nil
}

// ID returns the id of a word, and whether the vocabulary holds it.
func (v *Vocab) ID(word string) (id uint32, ok bool) { id, ok = v.ids[word]; return id, ok }

// Word returns the word of an id below Len.
func (v *Vocab) Word(id uint32) string { return v.words[id] }

// Special returns the id of a word such as <eos>, or an error if the vocabulary has none.
func (v *Vocab) Special(word string) (uint32, error) {
	id, ok := v.ids[word]
	if !ok {
		return 0, fmt.Errorf("%s: found no word %s, expected one among its %d words", v.name, word, v.Len())
	}
	return id, nil
}
