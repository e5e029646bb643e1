package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s"
	l2sengine "github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/learn"
	"github.com/learning-to-screen/l2s/llamacpp"
	"github.com/learning-to-screen/l2s/sample"
)

// Tokens that the model's file forbids, that --ban names or that --allow does not, are never
// written: by the best token, by draws, and by a head that learns. The head of the golden file has
// 4 tokens, and forbids 1 and 3.
func TestForbiddenTokensAreNotWritten(t *testing.T) {
	const file = "../../../internal/files/heads/testdata/wild/split-00001-of-00002.gguf"
	f, err := l2s.Open(file, l2s.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list := filepath.Join(t.TempDir(), "ids.txt")
	if err := os.WriteFile(list, []byte("0, 1\n2\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		ban, allow string
		may        []uint32
	}{
		"the model's":         {"", "", []uint32{0, 2}},
		"and one more":        {"2", "", []uint32{0}},
		"allowed":             {"", "3,2", []uint32{2}},
		"allowed by a file":   {"0", "@" + list, []uint32{2}},
		"the same id several": {"0,0,0", "", []uint32{2}},
	} {
		for _, temperature := range []float64{0, 1} {
			for _, learns := range []bool{false, true} {
				for _, penalty := range []float64{1, 1.3} {
					var o llamacpp.HeadOptions
					if learns {
						o.Learn = &learn.Options{}
					}
					x, err := llamacpp.OpenHead(file, o)
					if err != nil {
						t.Fatal(err)
					}
					s := &sampling{o: sample.DefaultOptions(), lastN: 64, ban: c.ban, allow: c.allow}
					s.o.Temperature, s.o.Repetition, s.o.TopK, s.seed = temperature, penalty, 40, 3
					if err := s.check(); err != nil {
						t.Fatal(err)
					}
					choose, err := s.chooser(x)
					if err != nil {
						t.Fatal(err)
					}
					h := make([]float32, x.Dim())
					for id := range x.Labels() { // whose best token is each in turn
						(*l2sengine.Layer)(f).Exact().Weights().Widen(h, id)
						for range 5 {
							got, _, err := choose.Next(h, []uint32{1, 2, 3, 128256})
							if err != nil || !slices.Contains(c.may, got) {
								t.Fatalf("%s, temperature %v, learns %v, penalty %v: found token %d, %v, expected one of %v", name, temperature, learns, penalty, got, err, c.may)
							}
						}
					}
					x.Close()
				}
			}
		}
	}
	for _, c := range []struct{ ban, allow, want string }{
		{"x", "", "--ban: found \"x\", expected ids of tokens"},
		{"", "4", "--allow: found token 4, expected one below the 4 of the head"},
		{"0,4", "", "--ban: found token 4, expected one below the 4 of the head"},
		{"4000000000", "2", "--ban: found token 4000000000, expected one below the 4 of the head"},
		{"@no/such", "", "no such file"},
	} {
		x, err := llamacpp.OpenHead(file, llamacpp.HeadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s := &sampling{o: sample.DefaultOptions(), ban: c.ban, allow: c.allow}
		err = s.check()
		if err == nil {
			_, err = s.chooser(x)
		}
		if use := (*useError)(nil); !errors.As(err, &use) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q, %q: found the error %v, want %q", c.ban, c.allow, err, c.want)
		}
		x.Close()
	}
	x, err := llamacpp.OpenHead(file, llamacpp.HeadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	s := &sampling{o: sample.DefaultOptions(), ban: "0,2"}
	s.o.Temperature = 0
	if err := s.check(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.chooser(x); err == nil || !strings.Contains(err.Error(), "found no token that may be written") {
		t.Errorf("all banned: found the error %v", err)
	}
}

// Each start without a seed, or with -1, has another one; all other numbers are seeds, those of the
// server among them.
func TestSeeds(t *testing.T) {
	for text, same := range map[string]bool{"": false, "-1": false, "0": true, "7": true, "-2": true, "9223372036854775807": true} {
		var seeds [2]uint64
		for i := range seeds {
			f := newFlags("generate", "", io.Discard, io.Discard)
			s := f.sampling()
			args := []string{"--model", "m.gguf"}
			if text != "" {
				args = append(args, "--seed", text)
			}
			if err := f.parse(args); err != nil {
				t.Fatal(err)
			}
			if err := s.check(); err != nil {
				t.Fatal(err)
			}
			seeds[i] = s.o.Seed
			if n, _ := strconv.ParseInt(text, 10, 64); same && seeds[i] != uint64(n) {
				t.Errorf("--seed %s: found the seed %d, expected %d", text, seeds[i], uint64(n))
			}
		}
		if (seeds[0] == seeds[1]) != same {
			t.Errorf("--seed %q: found %d and %d, expected the same: %v", text, seeds[0], seeds[1], same)
		}
	}
}
