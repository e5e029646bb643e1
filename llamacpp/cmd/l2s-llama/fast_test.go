package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"github.com/learning-to-screen/l2s/internal/ground/atomicfile"
	"github.com/learning-to-screen/l2s/llamacpp/internal/engine"
	"github.com/learning-to-screen/l2s/llamacpp/internal/testlib"
	"github.com/learning-to-screen/l2s/preview"
	"github.com/learning-to-screen/l2s/sample"
)

// The text of previews is in several scripts, of sections that are all different.
func TestTheTextOfPreviews(t *testing.T) {
	if n := len(ownText); !utf8.ValidString(ownText) || n < 20_000 || n > 40_000 {
		t.Errorf("found %d bytes, valid UTF-8: %v, expected some 30,000", n, utf8.ValidString(ownText))
	}
	for _, script := range []struct {
		name  string
		table *unicode.RangeTable
		least int
	}{
		{"Latin", unicode.Latin, 300}, {"Cyrillic", unicode.Cyrillic, 300}, {"Han", unicode.Han, 300}, {"kana", unicode.Hiragana, 300},
		{"Arabic", unicode.Arabic, 300}, {"Devanagari", unicode.Devanagari, 200}, {"Hangul", unicode.Hangul, 150},
		{"Thai", unicode.Thai, 150}, {"Greek", unicode.Greek, 200}, {"Hebrew", unicode.Hebrew, 150},
	} {
		if n := strings.Count(strings.Map(func(r rune) rune {
			if unicode.Is(script.table, r) {
				return 'x'
			}
			return -1
		}, ownText), "x"); n < script.least {
			t.Errorf("%s: found %d letters, expected %d or more", script.name, n, script.least)
		}
	}
	sections := strings.Split(ownText, "----\n")
	for i, s := range sections {
		if len(s) < 300 || slices.Contains(sections[:i], s) {
			t.Errorf("section %d: found %d bytes, or one that was there before", i, len(s))
		}
	}
	if len(sections) < 15 {
		t.Errorf("found %d sections, expected more", len(sections))
	}
}

func TestWhereAPreviewIsKept(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", cache) // other systems
	f := &flags{model: "a/m.gguf"}
	own := f.previewPaths()
	if len(own) != 2 || own[0] != "a/m.gguf.l2p" || !strings.HasPrefix(own[1], cache) || !strings.HasSuffix(own[1], ".l2p") {
		t.Fatalf("found %v, expected one next to the model and one below %s", own, cache)
	}
	f.model = "b/m.gguf"
	if other := f.previewPaths(); other[1] == own[1] {
		t.Errorf("found %s for two models", own[1])
	}
	f.model, f.head = "a/m.gguf", "a/folder"
	if other := f.previewPaths(); other[0] == own[0] || other[1] == own[1] || filepath.Dir(other[0]) != "a" {
		t.Errorf("found %v, expected other files for another head than %v", other, own)
	}
	f.head, f.given = "", "a text"
	if other := f.previewPaths(); other[0] == own[0] || other[1] == own[1] || filepath.Dir(other[0]) != "a" {
		t.Errorf("found %v, expected other files for a text than %v", other, own)
	}
}

func TestWhatAPreviewGains(t *testing.T) {
	found := gainsOf([]row{
		{Task: "none", Head: "none", Threads: 1, Microseconds: 10}, {Task: "greedy", Head: "llama.cpp", Threads: 1, Microseconds: 40},
		{Task: "greedy", Head: "exact", Threads: 1, Microseconds: 10, Largest: 11}, {Task: "greedy", Head: "preview", Threads: 1, Microseconds: 12.5, Least: 12},
		{Task: "draft", Head: "exact", Threads: 1, Microseconds: 80, Largest: 90},
		{Task: "draft", Head: "llama.cpp", Threads: 1, Microseconds: 100}, {Task: "draft", Head: "preview", Threads: 1, Microseconds: 50}, {Task: "draft", Head: "none", Threads: 1, Microseconds: 25},
		{Task: "none", Head: "none", Threads: 2, Microseconds: 5}, {Task: "greedy", Head: "llama.cpp", Threads: 2, Microseconds: 10},
	})
	want := []gain{{1, "greedy", 0.75, 4, 3.2, 0.8, 4, true}, {1, "draft", 0.75, 4, 2, 0.5, 1.25, false}}
	if !slices.Equal(found, want) {
		t.Errorf("found %+v, expected %+v", found, want)
	}
	for _, c := range []struct {
		of   gain
		want string
	}{
		{want[0], "1 thread, greedy: the head takes 75% of the time of a token of llama.cpp: a head that takes no time makes it 4.00 times as fast, and the preview 3.20 times, which is 80% of that, at a measured P\n" +
			"1 thread, greedy: the exact head is faster than the preview, in each round: it is 4.00 times as fast as llama.cpp\n"},
		{gain{2, "draft", 0.5, 2, 1.5, 0.75, 1, false}, "2 threads, draft: the head takes 50% of the time of a token of llama.cpp: a head that takes no time makes it 2.00 times as fast, and the preview 1.50 times, which is 75% of that, at a measured P\n"},
		{gain{2, "greedy", -10, 0.09, 1.16, 13, 1, false}, "2 threads, greedy: a token without a head took as long as one of llama.cpp: other programs use the CPUs, or --rounds is too small to measure\n"},
		{gain{1, "greedy", math.NaN(), math.NaN(), 1, 1, 1, false}, "1 thread, greedy: a token without a head took as long as one of llama.cpp: other programs use the CPUs, or --rounds is too small to measure\n"},
	} {
		if text := c.of.text("P"); text != c.want {
			t.Errorf("%+v: found %q, expected %q", c.of, text, c.want)
		}
	}
}

// fastModel is a folder with the model of the tests, in which a preview may be kept, and no cache.
// The preview is made of a part of the text, which takes less time.
func fastModel(t *testing.T) (model string) {
	t.Helper()
	need(t)
	old := ownText
	ownText = shortened()
	t.Setenv(shortText, "1")
	t.Cleanup(func() { ownText = old })
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	model = filepath.Join(dir, "models", "m.gguf")
	absolute, err := filepath.Abs(gguf)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Dir(model), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(absolute, model); err != nil {
		t.Skip("found no symbolic links:", err)
	}
	return model
}

// shortText is in the environment of a process that makes a preview of a part of the text.
const shortText = "L2S_TEST_SHORT_TEXT"

func shortened() string { return strings.Join(strings.Split(ownText, "----\n")[3:6], "----\n") }

func absolute(t *testing.T, path string) string {
	t.Helper()
	to, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// otherBody writes the test model to a file, with another number in one of its tensors.
func otherBody(t *testing.T, to, tensor string) {
	t.Helper()
	x, err := tensorfile.OpenFile(gguf, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	of, err := x.Tensor(tensor)
	if err != nil {
		t.Fatal(err)
	}
	data, _ := of.View()
	file, err := os.ReadFile(gguf)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(file, data[:1024])
	if at < 0 {
		t.Fatalf("found no tensor %s", tensor)
	}
	file[at+2] ^= 1 // a number of 8 bits, after a scale
	if err := os.WriteFile(to, file, 0o600); err != nil {
		t.Fatal(err)
	}
}

// The fingerprint of a body changes with each tensor, and with nothing that no state depends on.
func TestTheFingerprintOfABody(t *testing.T) {
	if _, err := os.Stat(gguf); err != nil {
		t.Skip(err)
	}
	body := func(file string) [32]byte {
		t.Helper()
		sum, err := bodyOf(file)
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	own := body(gguf)
	same, err := testlib.Bools(t.TempDir(), gguf, map[string]bool{"tokenizer.ggml.add_bos_token": true})
	if err != nil {
		t.Fatal(err)
	}
	if body(same) != own {
		t.Error("found another body of a file with another setting of its tokenizer")
	}
	for _, tensor := range []string{"blk.0.attn_q.weight", "blk.4.ffn_down.weight", "output_norm.weight", "token_embd.weight"} {
		file := filepath.Join(t.TempDir(), "m.gguf")
		otherBody(t, file, tensor)
		if body(file) == own {
			t.Errorf("%s: found the same body after a change", tensor)
		}
	}
	if _, err := bodyOf("no-such.gguf"); err == nil {
		t.Error("found no error for a file that is not there")
	}
}

// The first start makes the preview, and later starts open it: for all verbs.
func TestFast(t *testing.T) {
	model := fastModel(t)
	ctx := context.Background()
	generate := []string{"generate", "--model", model, "--threads", "1", "--prompt", "The configuration file", "-n", "12", "--ignore-eos", "--temp", "0"}
	want, said := runs(t, ctx, 0, generate...)
	if !strings.Contains(said, "head: exact\n") {
		t.Errorf("without --fast: found %q, expected the exact head", said)
	}
	fast := append(slices.Clone(generate), "--fast")
	text, said := runs(t, ctx, 0, fast...)
	if text != want {
		t.Errorf("found the text %q, expected %q as by the exact head", text, want)
	}
	file := model + ".l2p"
	made := func(said string) bool { return strings.Contains(said, " states in ") }
	if !made(said) || !strings.Contains(said, "head: preview "+file+": P@1 ") || !strings.Contains(said, "per second") {
		t.Errorf("found %q, expected the making of a preview, its precision and a speed", said)
	}
	// makePreview reports its stages, and the share that is done.
	of := &flags{model: model, threads: 1, stderr: io.Discard}
	var stages []string
	done := 0.0
	_, head, err := of.fastStates(ctx, "", func(stage string, share float64) {
		if share < done || share > 1 {
			t.Errorf("%s: found the share %v after %v, expected more, and at most 1", stage, share, done)
		}
		done = share
		stages = append(stages, stage)
	})
	if err != nil {
		t.Fatal(err)
	}
	head.Close()
	if stages = slices.Compact(stages); !slices.Equal(stages, []string{"states of texts", "states of the model's text"}) || done < 0.9 {
		t.Errorf("found the stages %q up to the share %v, expected two, nearly up to 1", stages, done)
	}
	m, err := l2s.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, n := m.Measured(); n < 100 || m.Dim() != 384 {
		t.Errorf("found a preview of %d held-out states, d = %d", n, m.Dim())
	}
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if text, said = runs(t, ctx, 0, fast...); text != want || made(said) || !strings.Contains(said, "head: preview "+file) {
		t.Errorf("the second start: found %q, %q, expected the same text, and no other preview", text, said)
	}
	// A text has its own preview.
	prose := filepath.Join(t.TempDir(), "prose.txt")
	if err := os.WriteFile(prose, []byte(ownText), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false} {
		if _, said = runs(t, ctx, 0, append(slices.Clone(fast), "--text", prose)...); made(said) != want || strings.Contains(said, "head: preview "+file) {
			t.Errorf("start %d with a text: found %q, expected a preview of this text to be made at the first", i, said)
		}
	}
	if _, said = runs(t, ctx, 1, append(slices.Clone(fast), "--text", os.DevNull)...); !strings.Contains(said, "found an empty file") {
		t.Errorf("with an empty text: found %q, expected an error", said)
	}
	drawn := append(slices.Clone(generate[:len(generate)-1]), "0.8", "--seed", "7", "--fast")
	a, _ := runs(t, ctx, 0, drawn...)
	if b, _ := runs(t, ctx, 0, drawn...); a != b || len(strings.TrimSpace(a)) == 0 {
		t.Errorf("found %q and %q, expected the same text of one seed", a, b)
	}

	text, _ = runs(t, ctx, 0, "bench", "--model", model, "--fast", "--threads", "1", "--tasks", "all", "--rounds", "1", "--tokens", "3", "--json")
	var b struct {
		Rows    []row
		Gains   []gain
		Preview *struct {
			Precision1 l2s.Estimate `json:"precision_1"`
			K          int
			HeldOut    int `json:"held_out_states"`
		}
	}
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, r := range b.Rows {
		if r.Head == "preview" && r.TokensPerSecond > 0 {
			count++
		}
	}
	steps, normal := m.Steps()
	if count != 5 || len(b.Gains) != 5 || b.Preview == nil || b.Preview.K != 5 || l2s.Estimate(b.Preview.Precision1) != steps[normal].Precision1 {
		t.Errorf("found %d rows of the preview, %+v, %+v, expected five, and its precision", count, b.Gains, b.Preview)
	}
	text, _ = runs(t, ctx, 0, "bench", "--model", model, "--fast", "--threads", "1", "--tasks", "greedy", "--rounds", "1", "--tokens", "2")
	// In so few tokens the figures are chance: which line a gain gets is the table's test above.
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if !strings.HasPrefix(lines[len(lines)-1], "1 thread, greedy: ") || !strings.Contains(text, "least to largest") || len(lines) < 6 {
		t.Errorf("found %q, expected four rows with their spread, and a line of the gain", text)
	}

	if text, said = runs(t, ctx, 0, append(slices.Clone(fast), "--budget", "1e9")...); text != want || !strings.Contains(said, fmt.Sprintf("scores %.0f in full", steps[len(steps)-1].Budget)) {
		t.Errorf("a large budget: found %q, %q, expected the last rung", text, said)
	}
	if _, said = runs(t, ctx, 0, append(slices.Clone(fast), "--budget", "1e-9")...); !strings.Contains(said, fmt.Sprintf("scores %.0f in full", steps[0].Budget)) {
		t.Errorf("a small budget: found %q, expected the first rung", said)
	}
	path := filepath.Join(t.TempDir(), "a.txt")
	if err := os.WriteFile(path, []byte(words(500)), 0o600); err != nil {
		t.Fatal(err)
	}
	text, _ = runs(t, ctx, 0, "compare", "--model", model, "--fast", "--threads", "1", "--text", path, "--prompts", "3", "--prompt-tokens", "8", "--n", "6", "--perplexity-tokens", "20", "--json")
	var c struct{ Heads []difference }
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	if len(c.Heads) != 3 || c.Heads[2].Head != "preview" || c.Heads[2].Agreement < 0.9 || c.Heads[2].P1 != steps[normal].Precision1.Value || math.Abs(math.Log(c.Heads[2].Perplexity/c.Heads[0].Perplexity)) > 0.2 {
		t.Errorf("found %+v, expected a line of the preview, nearly the line of the exact head", c.Heads)
	}
	in := func(name string) string { return filepath.Join(filepath.Dir(path), name) }
	runs(t, ctx, 0, "contexts", "--model", model, "--fast", "--threads", "1", "--window", "64", "--warmup", "8", "--states", "4", "--written", "4", "--most", "30", "--out", in("h.npy"), "--targets", in("t.npy"), path)
	if n := len(floats(t, in("h.npy"))); n != 30*384 {
		t.Errorf("found %d numbers of states, expected 30 states", n)
	}
	if after, err := os.ReadFile(file); err != nil || !bytes.Equal(before, after) {
		t.Errorf("found another preview than the first start made, %v", err)
	}

	t.Run("a damaged file", func(t *testing.T) {
		if err := os.WriteFile(file, before[:len(before)/2], 0o600); err != nil {
			t.Fatal(err)
		}
		if text, said := runs(t, ctx, 0, fast...); text != want || !made(said) || strings.Count(said, "file size: found") != 1 {
			t.Errorf("found %q, %q, expected a word and another preview", text, said)
		}
		if after, err := os.ReadFile(file); err != nil || !bytes.Equal(before, after) {
			t.Errorf("found another preview of the same states, %v", err)
		}
	})
	t.Run("a preview of another model", func(t *testing.T) {
		if err := other(t).Save(file); err != nil {
			t.Fatal(err)
		}
		foreign, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		// It stays until the new one is complete.
		interrupted, cancel := context.WithCancel(ctx)
		defer cancel()
		var out, all bytes.Buffer
		messages := writerFunc(func(p []byte) (int, error) {
			if bytes.Contains(p, []byte("preview: "+file+" is replaced when the new one is complete: to keep it, interrupt this run and move it away\n")) {
				cancel()
			}
			return all.Write(p)
		})
		if status := run(interrupted, fast, &out, messages); status != 130 {
			t.Errorf("found the status %d, %q, expected advice and an interrupt", status, all.String())
		}
		if after, err := os.ReadFile(file); err != nil || !bytes.Equal(foreign, after) {
			t.Errorf("found another preview after an interrupt, %v", err)
		}
		// It stays if the new one has to be kept elsewhere, where later starts find it.
		lock := filepath.Join(filepath.Dir(file), "."+filepath.Base(file)+".lock")
		if err := os.RemoveAll(lock); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(lock, 0o700); err != nil {
			t.Fatal(err)
		}
		in := (&flags{model: model}).previewPaths()[1]
		for i, want := range []bool{true, false} {
			if _, said := runs(t, ctx, 0, fast...); made(said) != want || !strings.Contains(said, "is of another head") || strings.Contains(said, "is replaced") || !strings.Contains(said, "head: preview "+in) {
				t.Errorf("start %d: found %q, expected a preview in the cache, made at the first start", i, said)
			}
		}
		if after, err := os.ReadFile(file); err != nil || !bytes.Equal(foreign, after) {
			t.Errorf("found another preview where nothing can be kept, %v", err)
		}
		for _, path := range []string{lock, in} {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		if text, said := runs(t, ctx, 0, fast...); text != want || !made(said) || !strings.Contains(said, "is of another head") {
			t.Errorf("found %q, %q, expected a word and another preview", text, said)
		}
		if after, err := os.ReadFile(file); err != nil || !bytes.Equal(before, after) {
			t.Errorf("found another preview of the same states, %v", err)
		}
	})
	t.Run("a preview of the same head and another body", func(t *testing.T) {
		// Its figures are of states that this model does not compute.
		if err := os.Remove(model); err != nil {
			t.Fatal(err)
		}
		otherBody(t, model, "blk.2.ffn_down.weight")
		if _, said := runs(t, ctx, 0, fast...); !made(said) || !strings.Contains(said, file+" is of another head, or body, than this model's") {
			t.Errorf("found %q, expected a word and another preview", said)
		}
		if after, err := os.ReadFile(file); err != nil || bytes.Equal(before, after) {
			t.Errorf("found the preview of the other model, %v", err)
		}
		if err := errors.Join(os.Remove(model), os.Symlink(absolute(t, gguf), model), os.WriteFile(file, before, 0o600)); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("while another run makes it", func(t *testing.T) {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		release, err := atomicfile.Hold(file)
		if err != nil {
			t.Fatal(err)
		}
		waited := false
		var all bytes.Buffer
		messages := writerFunc(func(p []byte) (int, error) {
			if bytes.Contains(p, []byte("waiting for it")) {
				waited = true
				if err := os.WriteFile(file, before, 0o600); err != nil {
					t.Error(err)
				}
				release()
			}
			return all.Write(p)
		})
		var out bytes.Buffer
		if status := run(ctx, fast, &out, messages); status != 0 || !waited || out.String() != want || made(all.String()) {
			t.Errorf("found the status %d, %q, expected it to wait and to take the preview of the other run", status, all.String())
		}
	})
	t.Run("interrupted while it waits", func(t *testing.T) {
		release, err := atomicfile.Hold(file)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		ended, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err = other(t), os.Remove(file)
		f := &flags{model: model, stderr: &bytes.Buffer{}}
		if f.newPreview(ended, false) == nil || err != nil {
			t.Errorf("found no error, %v, expected the error of the context", err)
		}
	})
	t.Run("not next to a model", func(t *testing.T) {
		// A folder in the place of the lock: nothing can be kept there.
		lock := filepath.Join(filepath.Dir(file), "."+filepath.Base(file)+".lock")
		if err := os.Mkdir(lock, 0o700); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(lock)
		_, said := runs(t, ctx, 0, fast...)
		in := (&flags{model: model}).previewPaths()[1]
		if after, err := os.ReadFile(in); err != nil || !bytes.Equal(before, after) || !strings.Contains(said, "head: preview "+in) {
			t.Errorf("found %v, %q, expected the preview in the cache", err, said)
		}
		if _, said = runs(t, ctx, 0, fast...); made(said) {
			t.Errorf("found %q, expected the preview of the cache to be opened", said)
		}
	})
}

// other is a preview of another head.
func other(t *testing.T) *l2s.Index {
	t.Helper()
	x := make([]float32, 200*8)
	for i := range x {
		x[i] = float32(math.Sin(float64(i * i)))
	}
	l, err := l2s.New(l2s.Float32(x, 8), nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := preview.Make(context.Background(), l, l2s.Float32(x, l.Dim()), preview.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// An interrupt at any time of the making leaves no preview, and at most the states that the next start
// goes on with. One that comes later leaves the preview.
func TestAnInterruptOfAPreviewLeavesNoHalf(t *testing.T) {
	model := fastModel(t)
	generate := []string{"generate", "--fast", "--model", model, "--threads", "1", "--prompt", "The", "-n", "2", "--ignore-eos", "--temp", "0"}
	for _, after := range []time.Duration{time.Millisecond, 300 * time.Millisecond, time.Second} {
		ctx, cancel := context.WithTimeoutCause(context.Background(), time.Hour, context.Canceled)
		time.AfterFunc(after, cancel)
		var out, said bytes.Buffer
		status := run(ctx, generate, &out, &said)
		cancel()
		left, err := os.ReadDir(filepath.Dir(model))
		if err != nil {
			t.Fatal(err)
		}
		if status == 0 {
			t.Logf("%v: it was done before", after)
			break
		}
		if _, err := l2s.Load(model + ".l2p"); err == nil { // on a fast machine
			t.Logf("%v: the preview was made before", after)
			break
		}
		names := slices.DeleteFunc(left, func(e os.DirEntry) bool { return e.Name() == filepath.Base(keptFile(model+".l2p")) })
		if status != 130 || len(names) != 1 {
			t.Errorf("%v: found the status %d, %s, and %v left, expected an interrupt, and the model and states alone", after, status, said.String(), left)
		}
	}
}

// Tokens that the exact head chose have a reason: an option, which is the reason for all, or each its
// own.
func TestTheReasonForTheExactHead(t *testing.T) {
	some := bitset.New(9)
	for _, c := range []struct {
		name   string
		change func(*engine.Sampling)
		want   string // "" for no option
	}{
		{"greedy", func(s *engine.Sampling) { s.Options.Temperature = 0 }, ""},
		{"top-k", func(s *engine.Sampling) { s.Options.TopK = 40 }, ""},
		{"min-p", func(s *engine.Sampling) { s.Options.TopK, s.Options.MinP = 0, 0.1 }, ""},
		{"all tokens", func(s *engine.Sampling) { s.Options.TopK = 0 }, "neither --top-k nor --min-p"},
		{"top-p first", func(s *engine.Sampling) { s.Options.TopK, s.Options.TopP = 0, 0.9 }, "neither --top-k nor --min-p"},
		{"a large top-k", func(s *engine.Sampling) { s.Options.TopK = 600 }, "--top-k above 512"},
		{"allowed", func(s *engine.Sampling) { s.Options.Temperature, s.Allowed = 0, some }, "--allow"},
	} {
		s := engine.Sampling{Options: sample.DefaultOptions()}
		s.Options.Temperature = 0.8
		c.change(&s)
		got := exactly(7, s.Unpreviewed(), engine.Fallbacks{Far: 4, Crowded: 2})
		parts := []string{"chose: 7, because of ", c.want}
		if c.want == "" {
			parts = []string{"chose: 7; 4 because the text there is unlike", "; 2 because so many tokens look alike", "; 1 because of banned"}
		}
		for _, part := range parts {
			if !strings.Contains(got, part) {
				t.Errorf("%s: found %q, expected %q", c.name, got, part)
			}
		}
	}
	for of, want := range map[engine.Fallbacks]string{{Far: 7}: "chose: 7; 7 because the text", {Crowded: 7}: "chose: 7; 7 because so many", {}: "chose: 7; 7 because of banned"} {
		if got := exactly(7, "", of); !strings.Contains(got, want) || strings.Count(got, "because") != 1 {
			t.Errorf("%+v: found %q, expected %q alone", of, got, want)
		}
	}
}
