package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/seq2seq"
	"github.com/learning-to-screen/l2s/screen"
)

var goodTranslate = []string{"translate", "--model", ".", "--text", "pairs.de", "--out", "out.en", "--longest", "10", "--quiet"}

// saveScreen writes a screen of two clusters for the translation model in dir.
// Its sets hold all labels but those left out.
func saveScreen(t *testing.T, dir, name string, without uint32, print byte) {
	t.Helper()
	m, err := seq2seq.Load(dir, "de", "en")
	if err != nil {
		t.Fatal(err)
	}
	l := m.Layer()
	var set []uint32
	for id := range uint32(l.Labels()) {
		if id != without {
			set = append(set, id)
		}
	}
	c := screen.Config{Dim: l.Dim(), Labels: l.Labels(), Clusters: make([]float32, 2*l.Dim()), Sets: [][]uint32{set, set}, Fingerprint: l.Fingerprint()}
	c.Clusters[0], c.Clusters[l.Dim()+1] = 1, 1
	c.Fingerprint[0] ^= print
	s, err := screen.NewModel(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Save(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// A screen of all labels translates as the exact layer does; neither the batch
// nor the neighbours matter; an empty line stays one.
func TestTranslate(t *testing.T) {
	dir := files(t)
	text := "w3 w4\n\nunheard\n" + strings.Repeat("w5 ", 500) + "\nw7"
	writeFile(t, filepath.Join(dir, "text"), []byte(text))
	saveScreen(t, dir, "all.l2s", ^uint32(0), 0)
	args := joined(goodTranslate, "--text", "text")
	o := object(t, dir, append(args, "--json")...)
	expectFields(t, o, "out", "sentences", "words", "unknown", "cut", "seconds", "decoder_seconds", "softmax_seconds", "threads", "contexts")
	if n := number(t, o, "sentences"); n != 5 {
		t.Errorf("%v sentences, want 5", n)
	}
	if n := number(t, o, "unknown"); n != 1 {
		t.Errorf("%v unknown words, want 1", n)
	}
	want := string(readFile(t, filepath.Join(dir, "out.en")))
	lines := strings.Split(want, "\n")
	if len(lines) != 6 || lines[1] != "" {
		t.Errorf("found %q, want five lines, the second one empty", want)
	}
	for _, more := range [][]string{{"--screen", "all.l2s"}, {"--batch", "1"}, {"--batch", "2", "--threads", "3"}, {"--threads", "1"}} {
		succeed(t, dir, joined(args, more)...)
		if got := string(readFile(t, filepath.Join(dir, "out.en"))); got != want {
			t.Errorf("%v: found %q, want %q", more, got, want)
		}
	}
	if got := succeed(t, dir, "translate", "--model", ".", "--text", "text", "--longest", "10", "--quiet"); got != want {
		t.Errorf("to standard output: found %q, want %q", got, want)
	}
	// BLEU is a result, and stands where the translations do not.
	writeFile(t, filepath.Join(dir, "same"), []byte(want))
	if got := succeed(t, dir, joined(args, []string{"--reference", "same"})...); got != "BLEU 100.00\n" {
		t.Errorf("with a reference: found %q on standard output, want its BLEU", got)
	}
	if r := l2s(t, dir, "translate", "--model", ".", "--text", "text", "--longest", "10", "--quiet", "--reference", "same"); r.stdout != want || r.stderr != "BLEU 100.00\n" {
		t.Errorf("with a reference and to standard output: found %q and on standard error %q", r.stdout, r.stderr)
	}
}

func TestTranslateRefuses(t *testing.T) {
	dir := files(t)
	m, err := seq2seq.Load(dir, "de", "en")
	if err != nil {
		t.Fatal(err)
	}
	saveScreen(t, dir, "endless.l2s", m.End(), 0)
	saveScreen(t, dir, "all.l2s", ^uint32(0), 0)
	saveScreen(t, dir, "other.l2s", ^uint32(0), 1)
	writeFile(t, filepath.Join(dir, "short"), []byte("w2\n"))
	writeFile(t, filepath.Join(dir, "nothing"), nil)
	writeFile(t, filepath.Join(dir, "latin1"), []byte("w2\nw\xfc3\n"))
	wide, err := screen.NewModel(screen.Config{Dim: 2 * m.Dim(), Labels: m.Layer().Labels(), Clusters: make([]float32, 2*m.Dim()), Sets: [][]uint32{{m.End()}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := wide.Save(filepath.Join(dir, "wide.l2s")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		more []string
		code int
		want string
	}{
		{[]string{"--screen", "endless.l2s"}, 1, "found no </s>"},
		{[]string{"--screen", "other.l2s"}, 1, "the screen was made for another layer"},
		{[]string{"--from", "en"}, 1, "vocab.en: found 50 words, expected 30"},
		{[]string{"--reference", "short"}, 1, "short: found 1 lines, expected 150"},
		{[]string{"--text", "none"}, 1, "no such file"},
		{[]string{"--text", "nothing"}, 1, "nothing: found an empty file"},
		{[]string{"--text", "latin1"}, 1, "latin1: line 2: found bytes that are not UTF-8"},
		{[]string{"--text", "model.safetensors"}, 1, "model.safetensors: line 1"},
		{[]string{"--model", "none"}, 1, "no such file"},
		{[]string{"--to", "fr"}, 1, "vocab.fr: cannot open: no such file"},
		{[]string{"--screen", "none.l2s"}, 1, "none.l2s: cannot open: no such file"},
		{[]string{"--screen", "short"}, 1, "not a screen file"},
		{[]string{"--screen", "wide.l2s"}, 1, "dim"},
		{[]string{"--alpha", "-1"}, 2, "--alpha"},
		{[]string{"--tail"}, 2, "--tail needs --screen"},
		{[]string{"--tail", "--screen", "all.l2s"}, 1, "all.l2s: found no tail, expected one for --tail: train with --tail regression"},
		{[]string{"--longest", "0"}, 2, "at least 1"},
		{[]string{"--batch", "0"}, 2, "at least 1"},
		{[]string{"--threads", "-1"}, 2, "--threads"},
		{[]string{"more"}, 2, `unexpected argument "more"`},
		{[]string{"--beam", "51"}, 2, "at most the 50 words"},
		{[]string{"--beam", "0"}, 2, "at least 1"},
		{[]string{"--out", "pairs.de"}, 2, "would replace the input"},
	} {
		r := l2s(t, dir, joined(goodTranslate, c.more)...)
		if r.code != c.code || !strings.Contains(r.stderr, c.want) {
			t.Errorf("%v: exit status %d, %q, want %d and %q", c.more, r.code, r.stderr, c.code, c.want)
		}
		if _, err := os.Stat(filepath.Join(dir, "out.en")); err == nil {
			t.Errorf("%v: out.en was written", c.more)
		}
	}
}

// countdown is a context that is cancelled once it was asked n times.
type countdown struct {
	context.Context
	n *int
}

func (c countdown) Err() error {
	if *c.n--; *c.n < 0 {
		return context.Canceled
	}
	return nil
}

// An interrupt keeps the lines that are translated, and says how many.
func TestInterruptKeepsTranslations(t *testing.T) {
	dir := files(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	args := []string{"translate", "--model", dir, "--text", in("pairs.de"), "--longest", "10", "--quiet", "--batch", "4", "--threads", "1"}
	var stdout, stderr strings.Builder
	if code := run(t.Context(), append(args, "--out", in("all.en")), &stdout, &stderr); code != 0 {
		t.Fatal(stderr.String())
	}
	n := 35 // 4 sentences take 10 steps at most
	ctx := countdown{t.Context(), &n}
	if code := run(ctx, append(args, "--out", in("part.en")), &stdout, &stderr); code != exitInterrupted {
		t.Errorf("exit status %d, want %d", code, exitInterrupted)
	}
	all, part := string(readFile(t, in("all.en"))), string(readFile(t, in("part.en.partial")))
	lines := strings.Count(part, "\n")
	if lines < 12 || lines >= 150 || lines%4 != 0 || !strings.HasPrefix(all, part) {
		t.Errorf("found %d lines, want whole groups of 4, as without an interrupt", lines)
	}
	if want := fmt.Sprintf("part.en.partial has the translations of the first %d of 150 lines", lines); !strings.Contains(stderr.String(), want) {
		t.Errorf("found %q, want %q", stderr.String(), want)
	}
}

// A file that has appeared since the run began is not replaced by what an interrupt keeps.
func TestUnusedName(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "o.en.partial")
	for _, want := range []string{path, path + "-2", path + "-3"} {
		found := unusedName(path)
		if found != want {
			t.Errorf("found %s, expected %s", found, want)
		}
		writeFile(t, found, []byte("a line of another run\n"))
	}
}
