package main

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/seq2seq"
)

// TestContextsOfPairs: the rows are the contexts of package seq2seq, pair after pair.
func TestContextsOfPairs(t *testing.T) {
	dir := files(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	quiet := joined(goodPairs, "--quiet")
	m, err := seq2seq.Load(dir, "de", "en")
	if err != nil {
		t.Fatal(err)
	}
	lines := func(language string) (list [][]uint32) {
		words := m.Source()
		if language == "en" {
			words = m.Target()
		}
		for line, err := range words.Lines(bytes.NewReader(readFile(t, at("pairs."+language))), "pairs") {
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, line)
		}
		return list
	}
	sources, targets := lines("de"), lines("en")
	ctx := context.Background()
	var forced, own []float32
	var pairs []seq2seq.Pair
	for i, s := range sources {
		pairs = append(pairs, seq2seq.Pair{Source: s, Target: targets[i]})
	}
	if err := m.Contexts(ctx, pairs, 1, func(d seq2seq.Decoded) error { forced = append(forced, d.Contexts...); return nil }); err != nil {
		t.Fatal(err)
	}
	if err := m.Greedy(ctx, sources, 9, 1, func(d seq2seq.Decoded) error { own = append(own, d.Contexts...); return nil }); err != nil {
		t.Fatal(err)
	}
	expect := func(t *testing.T, name string, want []float32) {
		t.Helper()
		got, n, dim := rows(t, at(name))
		if dim != lmDim || n*dim != len(want) || !slices.Equal(got, want) {
			t.Errorf("%s: found shape [%d %d], expected the %d contexts of the model", name, n, dim, len(want)/lmDim)
		}
	}

	t.Run("under teacher forcing", func(t *testing.T) {
		for _, threads := range []string{"0", "1", "3"} {
			succeed(t, dir, joined(quiet, "--threads", threads)...)
			expect(t, "out.npy", forced)
		}
	})
	t.Run("of its own translations", func(t *testing.T) {
		for _, threads := range []string{"1", "3"} {
			succeed(t, dir, joined(quiet, "--own", "--longest", "9", "--threads", threads)...)
			expect(t, "out.npy", own)
		}
	})
	t.Run("of both", func(t *testing.T) {
		succeed(t, dir, joined(quiet, "--both", "--longest", "9")...)
		expect(t, "out.npy", slices.Concat(forced, own))
	})
	t.Run("its own translations need none", func(t *testing.T) {
		writeFile(t, at("alone.de"), readFile(t, at("pairs.de")))
		succeed(t, dir, joined(quiet, "--own", "--longest", "9", "--pairs", "alone")...)
		expect(t, "out.npy", own)
	})
	t.Run("--limit takes the first pairs", func(t *testing.T) {
		o := object(t, dir, joined(quiet, "--limit", "5", "--json")...)
		want := 0
		for _, words := range targets[:5] {
			want += len(words) + 1
		}
		expect(t, "out.npy", forced[:want*lmDim])
		// Each of the sources begins with a word that the vocabulary lacks.
		for name, want := range map[string]float64{"contexts": float64(want), "dim": lmDim, "pairs": 5, "empty": 0, "unknown": 5} {
			if got := number(t, o, name); got != want {
				t.Errorf("%s: found %v, expected %v", name, got, want)
			}
		}
	})
	t.Run("other names of languages", func(t *testing.T) {
		for _, name := range []string{"vocab", "pairs"} {
			writeFile(t, at(name+".x"), readFile(t, at(name+".de")))
			writeFile(t, at(name+".y"), readFile(t, at(name+".en")))
		}
		succeed(t, dir, joined(quiet, "--from", "x", "--to", "y")...)
		expect(t, "out.npy", forced)
	})
	t.Run("pairs with an empty line are left out", func(t *testing.T) {
		gap := func(language string, after int, line string) {
			all := strings.SplitAfter(string(readFile(t, at("pairs."+language))), "\n")
			writeFile(t, at("gaps."+language), []byte(strings.Join(slices.Insert(all, after, line), "")))
		}
		gap("de", 20, "\n")
		gap("en", 20, "w5 w6\n")
		o := object(t, dir, joined(quiet, "--pairs", "gaps", "--json")...)
		expect(t, "out.npy", forced)
		if pairs, empty := number(t, o, "pairs"), number(t, o, "empty"); pairs != nmtPairs || empty != 1 {
			t.Errorf("found %v pairs and %v left out, expected %d and 1", pairs, empty, nmtPairs)
		}
		gap("de", 7, "w5\n")
		gap("en", 7, "  \n")
		if text := succeed(t, dir, joined(quiet, "--pairs", "gaps")...); !strings.Contains(text, "from 150 pairs, 1 left out for an empty line; ") {
			t.Errorf("found no word of the pair left out in\n%s", text)
		}
		expect(t, "out.npy", forced)
	})
	t.Run("what it says", func(t *testing.T) {
		r := l2s(t, dir, joined(goodPairs, "--own")...)
		if r.code != 0 || !strings.HasPrefix(r.stdout, "out.npy: ") || !strings.Contains(r.stdout, " contexts of dimension 8 from 150 sentences; ") ||
			!strings.Contains(r.stderr, "translate: 150 sentences") {
			t.Errorf("found exit status %d, standard output %q and standard error\n%s", r.code, r.stdout, r.stderr)
		}
	})
	t.Run("a screen for its layer learns from them", func(t *testing.T) {
		succeed(t, dir, quiet...)
		layer := []string{"--weights", "model.safetensors:generator.weight", "--bias", "model.safetensors:generator.bias"}
		succeed(t, dir, joined("train", layer, "--contexts", "out.npy", "--clusters", "4", "--budget", "20", "--iterations", "1", "--quiet", "--out", "nmt.l2s")...)
		succeed(t, dir, joined("topk", "nmt.l2s", layer, "--contexts", "out.npy", "--vocab", "vocab.en")...)
	})
}
