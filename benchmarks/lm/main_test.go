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
	"github.com/learning-to-screen/l2s/internal/heads"
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

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	bad, out := filepath.Join(dir, "bad"), filepath.Join(dir, "x.npy")
	if err := os.WriteFile(bad, []byte("it was\nthe \xff\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"found no --text or no --out":                   {"--out", out},
		"found no --text or no --out, expected both":    {"--text", bad},
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
