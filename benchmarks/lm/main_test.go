package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/benchmarks/internal/layers"
	"github.com/learning-to-screen/l2s/internal/files/heads"
)

const story = "it was the best of times\nunheardof words\n"

// The contexts are the model's, one per word and per end of a line.
func TestContexts(t *testing.T) {
	dir := t.TempDir()
	textFile, out := filepath.Join(dir, "text"), filepath.Join(dir, "all.npy")
	if err := os.WriteFile(textFile, []byte(story), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := run(context.Background(), []string{"--lm", "model", "--text", textFile, "--out", out}, io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	m, v, err := layers.LoadLM("model")
	if err != nil {
		t.Fatal(err)
	}
	state := m.NewState()
	var want []float32
	for _, word := range strings.Fields(strings.ReplaceAll(strings.ReplaceAll(story, "\n", " <eos> "), "unheardof", "<unk>")) {
		id, ok := v.ID(word)
		if !ok {
			t.Fatalf("found no word %s", word)
		}
		want = append(want, state.Step(id)...)
	}
	got, release, err := heads.OpenContexts(out, 200)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if !slices.Equal(got, want) || len(got) != 10*200 {
		t.Errorf("found %d numbers, want the model's %d", len(got), len(want))
	}
}

// A text that the model writes has its own contexts, and a shorter one is its beginning.
func TestWrittenContexts(t *testing.T) {
	dir := t.TempDir()
	written := func(name, n, seed string) []float32 {
		out := filepath.Join(dir, name)
		if err := run(context.Background(), []string{"--lm", "model", "--write", n, "--seed", seed, "--out", out}, io.Discard, io.Discard); err != nil {
			t.Fatal(err)
		}
		rows, release, err := heads.OpenContexts(out, 200)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { release() })
		return rows
	}
	long, short, other := written("long.npy", "600", "3"), written("short.npy", "550", "3"), written("other.npy", "550", "4")
	m, v, err := layers.LoadLM("model")
	if err != nil {
		t.Fatal(err)
	}
	eos, _ := v.ID("<eos>")
	first := m.NewState().Step(eos)
	switch {
	case len(long) != 600*200 || !slices.Equal(short, long[:550*200]):
		t.Error("found another beginning in a longer text")
	case slices.Equal(short[200:], other[200:]):
		t.Error("found the same text by another seed")
	case !slices.Equal(long[:200], first) || !slices.Equal(long[layers.Piece*200:][:200], first):
		t.Error("found pieces that do not begin after <eos>")
	}
}

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	bad, out := filepath.Join(dir, "bad"), filepath.Join(dir, "x.npy")
	if err := os.WriteFile(bad, []byte("it was\nthe \xff\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"expected --out and one of both":                {"--out", out},
		"found no --out, or not one of":                 {"--text", bad},
		"not one of --text and --write":                 {"--text", bad, "--write", "5", "--out", out},
		"bad: line 2: found bytes that are not UTF-8":   {"--lm", "model", "--text", bad, "--out", out},
		"model.safetensors: no such file":               {"--lm", dir, "--text", bad, "--out", out},
		`found the argument "more"`:                     {"more"},
		"flag provided but not defined: -no-such-thing": {"--no-such-thing"},
	} {
		if err := run(context.Background(), args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want one with %q", args, err, want)
		}
	}
	if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("found x.npy (%v), want none after errors", err)
	}
}
