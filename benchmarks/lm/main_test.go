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
	"github.com/learning-to-screen/l2s/internal/screening"
	"github.com/learning-to-screen/l2s/internal/synthetic"
	"github.com/learning-to-screen/l2s/internal/tensorfile"
	"github.com/learning-to-screen/l2s/internal/vocab"
	"github.com/learning-to-screen/l2s/train"
)

// demoModel is the folder of the model of the demo.
const demoModel = "model"

func call(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	if err := run(context.Background(), append(args, "--lm", demoModel), &out, &errs); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return out.String(), errs.String()
}

func rows(t *testing.T, path string) []float32 {
	t.Helper()
	x, release, err := layers.ReadRows(path, 200)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	return slices.Clone(x)
}

const story = "it was the best of times\nunheardof words\n"

// The contexts are the model's, one per word; the targets are the next words.
func TestContexts(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("text"), []byte(story), 0o666); err != nil {
		t.Fatal(err)
	}
	call(t, "contexts", "--text", at("text"), "--out", at("all.npy"), "--targets", at("next.npy"), "--quiet")
	m, v, err := layers.LoadLM(demoModel)
	if err != nil {
		t.Fatal(err)
	}
	want, err := layers.Contexts(context.Background(), m, v, at("text"), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := rows(t, at("all.npy")); !slices.Equal(got, want) || len(got) != 10*200 {
		t.Errorf("found %d numbers, want the model's %d", len(got), len(want))
	}
	next, err := tensorfile.OpenTensor(at("next.npy"))
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	ids, err := next.Int64s()
	if err != nil || len(ids) != 10 || ids[9] != -1 {
		t.Fatalf("found targets %v, %v", ids, err)
	}
	var words []string
	for _, id := range ids[:9] {
		words = append(words, v.Word(uint32(id)))
	}
	if got := strings.Join(words, " "); got != "was the best of times <eos> <unk> words <eos>" {
		t.Errorf("found the words %q after the first", got)
	}
	call(t, "contexts", "--text", at("text"), "--out", at("some.npy"), "--limit", "4", "--quiet")
	if got := rows(t, at("some.npy")); !slices.Equal(got, want[:4*200]) {
		t.Errorf("--limit 4: found %d numbers, want the contexts of the first 4 words", len(got))
	}
}

// The generated text depends on the seed and continues the prompt, and its contexts belong to its
// words. A screen answers some draws.
func TestGenerate(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	text, figures := call(t, "generate", "--length", "40", "--contexts", at("h.npy"), "--prompt", "the old man")
	if words := strings.Fields(text); !strings.HasPrefix(text, "the old man ") || len(words)+strings.Count(text, "\n") < 43 || !strings.HasSuffix(text, "\n") {
		t.Errorf("found %q, want a text that continues the prompt for 40 words", text)
	}
	if !strings.HasPrefix(figures, "40 words, ") {
		t.Errorf("found the figures %q", figures)
	}
	if again, _ := call(t, "generate", "--length", "40", "--prompt", "the old man"); again != text {
		t.Error("found another text for one seed")
	}
	if other, _ := call(t, "generate", "--length", "40", "--prompt", "the old man", "--seed", "2"); other == text {
		t.Error("found the same text for two seeds")
	}
	if err := os.WriteFile(at("text"), []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	m, v, err := layers.LoadLM(demoModel)
	if err != nil {
		t.Fatal(err)
	}
	// The first draw is in the context of the prompt, after <eos>.
	st, _ := v.Special(vocab.EOSWord)
	state := m.NewState()
	h := state.Step(st)
	for _, word := range []string{"the", "old", "man"} {
		id, _ := v.ID(word)
		h = state.Step(id)
	}
	contexts := rows(t, at("h.npy"))
	if len(contexts) != 40*200 || !slices.Equal(contexts[:200], h) {
		t.Errorf("found %d numbers of contexts, want 40 contexts from the prompt on", len(contexts))
	}

	call(t, "generate", "--length", "2000", "--contexts", at("many.npy"), "--quiet")
	layer, err := layers.Decoder(m)
	if err != nil {
		t.Fatal(err)
	}
	o := train.DefaultOptions()
	o.Clusters, o.Iterations, o.Budget = 4, 0, 300
	tail := train.DefaultTailOptions()
	o.Tail = &tail
	s, _, err := train.Run(context.Background(), layer, rows(t, at("many.npy")), o)
	if err == nil {
		err = s.Save(at("m.l2s"))
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, figures := call(t, "generate", "--length", "50", "--screen", at("m.l2s"), "--temperature", "0"); strings.Contains(figures, "100.0% asked the exact layer") {
		t.Errorf("found %q, want some draws from the screen", figures)
	}
}

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("bad"), []byte("it was\nthe \xff\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	bare, err := synthetic.Screen(screening.Config{Dim: 200, Labels: 20000, Clusters: make([]float32, 200), Lists: []screening.List{{IDs: []uint32{1}}}})
	if err == nil {
		err = bare.Save(at("bare.l2s"))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"expected contexts or generate first", nil},
		{"expected contexts or generate first", []string{"train"}},
		{"found no --text or no --out", []string{"contexts", "--out", at("x.npy")}},
		{"found no --text or no --out", []string{"contexts", "--text", at("bad")}},
		{"--limit: found -1", []string{"contexts", "--text", at("bad"), "--out", at("x.npy"), "--limit", "-1"}},
		{"bad: line 2: found bytes that are not UTF-8", []string{"contexts", "--text", at("bad"), "--out", at("x.npy"), "--quiet"}},
		{"model.safetensors: no such file", []string{"contexts", "--lm", dir, "--text", at("bad"), "--out", at("x.npy")}},
		{"--length: found 0", []string{"generate", "--length", "0"}},
		{"sample: ", []string{"generate", "--top-p", "0"}},
		{"bare.l2s: sample: ", []string{"generate", "--screen", at("bare.l2s")}},
		{`found the argument "more"`, []string{"generate", "more"}},
	} {
		args := c.args
		if len(args) > 0 && !slices.Contains(args, "--lm") && !slices.Contains(args, "more") {
			args = append(args, "--lm", demoModel)
		}
		if err := run(context.Background(), args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: error %v, want one with %q", c.args, err, c.want)
		}
	}
	if _, err := os.Stat(at("x.npy")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("found x.npy (%v), want none after errors", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := run(ctx, []string{"generate", "--lm", demoModel}, io.Discard, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: error %v", err)
	}
}
