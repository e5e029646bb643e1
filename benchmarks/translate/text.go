package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/learning-to-screen/l2s/benchmarks/internal/marian"
	"github.com/learning-to-screen/l2s/benchmarks/internal/sentencepiece"
)

// text has sentences, and their pieces, </s> included.
type text struct {
	sentences []string
	pieces    [][]uint32
}

var ends = regexp.MustCompile(`[.!?][\s\pZ]+`)

// read returns the sentences of a file that have more than least and fewer than most characters.
func read(path string, m *sentencepiece.Model, least, most int) (*text, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	t, s := &text{}, strings.ReplaceAll(string(data), "\n", " ")
	for s != "" {
		line := s
		if at := ends.FindStringIndex(s); at != nil {
			line, s = s[:at[0]+1], s[at[1]:]
		} else {
			s = ""
		}
		line = strings.TrimSpace(line)
		if n := len([]rune(line)); n <= least || n >= most {
			continue
		}
		if ids := append(m.Encode(nil, line), m.End()); float64(len(ids))*longer <= marian.Most {
			t.sentences, t.pieces = append(t.sentences, line), append(t.pieces, ids)
		}
	}
	if len(t.sentences) == 0 {
		return nil, fmt.Errorf("%s: found no sentence of %d to %d characters, expected some", path, least+1, most-1)
	}
	return t, nil
}

// first returns the first n sentences.
func (t *text) first(n int) *text {
	n = min(n, len(t.sentences))
	return &text{t.sentences[:n], t.pieces[:n]}
}

// words returns the number of words of the sentences.
func (t *text) words() (n int) {
	for _, s := range t.sentences {
		n += len(strings.Fields(s))
	}
	return n
}
