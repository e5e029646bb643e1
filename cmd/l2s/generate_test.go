package main

import (
	"encoding/json"
	"strings"
	"testing"
)

var goodWrite = []string{"generate", "--lm", "lm.safetensors", "--vocab", "vocab.txt", "--length", "80"}

// generated are the tokens of a run with --json, and its figures.
func generated(t *testing.T, dir string, args ...string) (words []string, logProbs []float64, figures generateResult) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(succeed(t, dir, joined(args, "--json")...)), "\n")
	last := len(lines) - 1
	for _, line := range lines[:last] {
		var x generatedToken
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		words, logProbs = append(words, x.Word), append(logProbs, x.LogProb)
	}
	if err := json.Unmarshal([]byte(lines[last]), &figures); err != nil {
		t.Fatalf("%s: %v", lines[last], err)
	}
	return words, logProbs, figures
}

func TestGenerate(t *testing.T) {
	dir := files(t)
	layer := []string{"--weights", "lm.safetensors:decoder.weight", "--bias", "lm.safetensors:decoder.bias"}
	succeed(t, dir, joined(goodGenerate, "--generate", "4000", "--out", "G.npy", "--quiet")...)
	succeed(t, dir, joined("train", layer, "--contexts", "G.npy", "--clusters", "4", "--budget", "20", "--iterations", "1", "--tail", "regression", "--out", "with.l2s", "--quiet")...)
	for _, c := range []struct {
		name string
		args []string
		// What is expected of the figures.
		share string // of the exact layer: "one" or "between 0 and 1"
		exact bool   // all draws are
	}{
		{"exact", nil, "one", true},
		{"exact, truncated", []string{"--temperature", "0.8", "--top-p", "0.9", "--top-k", "20", "--min-p", "0.01"}, "one", true},
		{"screened", []string{"--screen", "with.l2s"}, "between 0 and 1", false},
		{"screened, the best word", []string{"--screen", "with.l2s", "--temperature", "0"}, "between 0 and 1", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			words, logProbs, figures := generated(t, dir, joined(goodWrite, c.args)...)
			if len(words) != 80 || figures.Tokens != 80 {
				t.Fatalf("found %d words and %d tokens, expected 80", len(words), figures.Tokens)
			}
			for i, p := range logProbs {
				if !(p <= 0) {
					t.Errorf("token %d: found log-probability %v, expected at most 0", i, p)
				}
			}
			if c.share == "one" && figures.LayerShare != 1 || c.share != "one" && !(figures.LayerShare < 1) {
				t.Errorf("found that the exact layer was asked for a share of %v, expected %s", figures.LayerShare, c.share)
			}
			if (figures.ExactShare == 1) != c.exact || figures.TokensPerSecond <= 0 {
				t.Errorf("found %+v", figures)
			}
			// The text is the same words, with a line's end for <eos>, on every level.
			want := strings.ReplaceAll(strings.Join(words, " "), "<eos>", "\n")
			want = strings.ReplaceAll(strings.ReplaceAll(want, " \n", "\n"), "\n ", "\n")
			if !strings.HasSuffix(want, "\n") {
				want += "\n"
			}
			for _, level := range []string{"", "generic"} {
				cmd := command(t, dir, joined(goodWrite, c.args)...)
				if level != "" {
					cmd.Env = append(cmd.Environ(), "L2S_SIMD="+level)
				}
				r := finish(t, cmd)
				if r.code != 0 || r.stdout != want {
					t.Errorf("level %q: found exit status %d and\n%sexpected\n%s", level, r.code, r.stdout, want)
				}
				if !strings.Contains(r.stderr, "80 tokens, ") || strings.Contains(r.stderr, "exact layer was asked for") != (c.share != "one") {
					t.Errorf("level %q: found the figures %q", level, r.stderr)
				}
			}
		})
	}
	t.Run("a shorter run is the beginning", func(t *testing.T) {
		long, _, _ := generated(t, dir, goodWrite...)
		short, _, _ := generated(t, dir, joined(goodWrite, "--length", "7")...)
		if strings.Join(short, " ") != strings.Join(long[:7], " ") {
			t.Errorf("found %q, expected the first of %q", short, long)
		}
		other, _, _ := generated(t, dir, joined(goodWrite, "--seed", "2")...)
		if strings.Join(other, " ") == strings.Join(long, " ") {
			t.Error("found the same words with another seed, expected others")
		}
	})
	t.Run("a prompt", func(t *testing.T) {
		text := succeed(t, dir, joined(goodWrite, "--prompt", "w3  w4\nnever", "--length", "1", "--quiet")...)
		if !strings.HasPrefix(text, "w3 w4 <unk>") {
			t.Errorf("found %q, expected the prompt first", text)
		}
		greedy, _, _ := generated(t, dir, joined(goodWrite, "--prompt", "w3", "--temperature", "0")...)
		again, _, _ := generated(t, dir, joined(goodWrite, "--prompt", "w3", "--temperature", "0", "--seed", "9")...)
		if strings.Join(greedy, " ") != strings.Join(again, " ") {
			t.Error("found other words with another seed at temperature 0, expected the same")
		}
	})
	t.Run("a screen without a tail", func(t *testing.T) {
		succeed(t, dir, joined("train", layer, "--contexts", "G.npy", "--clusters", "4", "--budget", "20", "--iterations", "1", "--out", "bare.l2s", "--quiet")...)
		r := l2s(t, dir, joined(goodWrite, "--screen", "bare.l2s", "--seed", "5", "--quiet")...)
		const note = "l2s generate: note: bare.l2s: the screen has no tail: the exact layer draws all tokens; l2s train --tail regression makes one that has a tail\n"
		if r.code != 0 || r.stderr != note {
			t.Errorf("found exit status %d and %q, expected the note alone", r.code, r.stderr)
		}
		if want := succeed(t, dir, joined(goodWrite, "--seed", "5", "--quiet")...); r.stdout != want {
			t.Errorf("found %q, expected the tokens of the exact layer, %q", r.stdout, want)
		}
	})
	t.Run("the built-in model", func(t *testing.T) {
		text := succeed(t, dir, "generate", "--prompt", "it was", "--length", "5", "--temperature", "0", "--quiet")
		if !strings.HasPrefix(text, "it was ") {
			t.Errorf("found %q, expected the prompt first", text)
		}
	})
}

func TestBadGenerate(t *testing.T) {
	runCases(t, []badCase{
		{name: "a screen for another language model", args: joined(goodWrite, "--screen", "m.l2s"), code: 1, want: []string{"l2s generate: m.l2s: "}},
		{name: "no such screen", args: joined(goodWrite, "--screen", "none.l2s"), code: 1, want: []string{"l2s generate: none.l2s: "}},
		{name: "a model without its vocabulary", args: without(goodWrite, "--vocab"), code: 2, want: []string{"missing --vocab, as in: l2s generate"}},
		{name: "a vocabulary of another model", args: joined(goodWrite, "--vocab", "vocab.en"), code: 1, want: []string{"vocab.en: found ", "one a label"}},
		{name: "a top-p of 0", args: joined(goodWrite, "--top-p", "0"), code: 2, want: []string{"--top-p", "expected a number above 0, at most 1"}},
		{name: "a min-p above 1", args: joined(goodWrite, "--min-p", "1.5"), code: 2, want: []string{"--min-p", "expected a number from 0 to 1"}},
		{name: "no tokens", args: joined(goodWrite, "--length", "0"), code: 2, want: []string{"--length", "at least 1"}},
		{name: "an argument too many", args: joined(goodWrite, "more"), code: 2, want: []string{`unexpected argument "more"`}},
	})
}
