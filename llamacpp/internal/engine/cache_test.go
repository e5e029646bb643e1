package engine_test

import (
	"context"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s/llamacpp"
	"github.com/learning-to-screen/l2s/llamacpp/internal/engine"
	"github.com/learning-to-screen/l2s/llamacpp/internal/testlib"
)

// Requests that continue cached tokens get the tokens and the log-probabilities of their own text, of
// models that can be cut anywhere, in a window, and not at all. Several at once begin in all ways: like others
// under way, like the whole text of a finished one, like a part of it, and like none; some
// end early, and sequences give way to others.
func TestCachedTextsAreTheirOwn(t *testing.T) {
	if missing != "" {
		t.Skip(missing)
	}
	window, recurrent := filepath.Join(t.TempDir(), "window.gguf"), filepath.Join(t.TempDir(), "recurrent.gguf")
	if err := testlib.Gemma2(gguf, window, 30, 24); err != nil {
		t.Fatal(err)
	}
	if err := testlib.Mamba(gguf, recurrent); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, file string
		near       float64 // the most that a log-probability changes by the rounding of other batches
	}{{"recurrent", recurrent, near}, {"sliding window", window, 0.1}, {"full attention", gguf, near}} {
		m, x := openFile(t, c.file, llamacpp.Options{Context: 160, Sequences: 3, Kept: 3})
		oracle, _ := openFile(t, c.file, llamacpp.Options{Context: 160})
		e := run(t, m, x, engine.Options{Parallel: 3, Waiting: 8, Cache: -1})
		r := rand.New(rand.NewPCG(1, 57))
		random := func(n int) []uint32 {
			ids := make([]uint32, n)
			for i := range ids {
				ids[i] = uint32(1000 + r.IntN(3000))
			}
			return ids
		}
		texts := [][]uint32{random(70)}
		cached, most, whole := 0, 0.0, 0
		for range 16 {
			var jobs []*engine.Job
			var written []*[]engine.Token
			var prompts [][]uint32
			var stops []func()
			for range 3 {
				before := texts[r.IntN(len(texts))]
				if r.IntN(6) == 0 {
					before = random(20)
				}
				part := before
				if r.IntN(3) == 0 {
					part = before[:1+r.IntN(len(before))]
				}
				prompt := append(slices.Clone(part[:min(len(part), 130)]), random(1+r.IntN(20))...)
				ctx, stop := context.WithCancel(context.Background())
				job, tokens := collect(t, e, ctx, engine.Request{Prompt: prompt, Most: 4, Sampling: greedy(), LogProbs: 0, Fresh: r.IntN(8) == 0})
				if r.IntN(8) == 0 {
					stop() // somewhere before its end
				}
				jobs, written, prompts, stops = append(jobs, job), append(written, tokens), append(prompts, prompt), append(stops, stop)
			}
			for i, job := range jobs {
				<-job.Done()
				stops[i]()
				result, err := job.Result()
				if err != nil {
					continue
				}
				cached += result.Cached
				if result.Cached >= len(prompts[i]) || job.Fresh && result.Cached > 0 || result.Cached > 0 && !result.Shared {
					t.Errorf("%s: found %+v of a prompt of %d tokens", c.name, result, len(prompts[i]))
				}
				text := slices.Clone(prompts[i])
				for j, token := range *written[i] {
					all := logits(t, oracle, x, text)
					sum := logSum(all)
					off := max(math.Abs(token.LogProb-(all[token.ID]-sum)), slices.Max(all)-all[token.ID])
					if most = max(most, off); off > c.near {
						t.Fatalf("%s: token %d after %d tokens, %d of them cached: found the log-probability %v, expected %v, and the best is %v above", c.name, j, len(prompts[i]), result.Cached, token.LogProb, all[token.ID]-sum, slices.Max(all)-all[token.ID])
					}
					text = append(text, token.ID)
				}
				texts = append(texts, text[:len(text)-1])
				whole++
			}
			if len(texts) > 12 {
				texts = texts[len(texts)-12:]
			}
		}
		t.Logf("%s: %d requests, %d tokens of prompts cached, the largest difference %.4f", c.name, whole, cached, most)
		if whole < 30 || cached < 100 {
			t.Errorf("%s: found %d requests that ended, and %d cached tokens, expected more", c.name, whole, cached)
		}
		if kept := e.Cache(); kept.Tokens > 3*160 || kept.Sequences == 0 || kept.Bytes <= 0 {
			t.Errorf("%s: found %+v kept, expected at most the room of the model", c.name, kept)
		}
	}
}

// Turn by turn a chat reads only what is new, and a second request with the same prompt its last token; with
// little memory nothing is kept.
func TestTheCacheOfAChat(t *testing.T) {
	m, x := open(t, llamacpp.Options{Context: 512, Sequences: 2, Kept: 2})
	for _, c := range []struct {
		name  string
		bytes int64
		kept  bool
	}{{"as much as there is room for", -1, true}, {"more than that", 1 << 40, true}, {"none", 0, false}, {"less than a sequence takes", 1000, false}} {
		e, stop := runs(t, m, x, engine.Options{Parallel: 2, Cache: c.bytes})
		text, more := m.Tokens(prompts[3], true), m.Tokens(" And then?", false)
		for turn := range 4 {
			job, tokens := collect(t, e, context.Background(), engine.Request{Prompt: text, Most: 8, Sampling: greedy(), LogProbs: -1})
			r := end(t, job)
			want := 0
			if turn > 0 && c.kept {
				want = len(text) - len(more) - 1 // nor has anyone read the last token of the answer
			}
			if r.Cached != want || r.Read != len(text) || r.Written != 8 {
				t.Errorf("%s, turn %d: found %+v, expected %d cached tokens of %d", c.name, turn, r, want, len(text))
			}
			for _, token := range *tokens {
				text = append(text, token.ID)
			}
			text = append(text, more...)
		}
		prompt := m.Tokens(prompts[3], true)
		for i, want := range []int{len(prompt) - 1, len(prompt) - 1} {
			if !c.kept {
				want = 0
			}
			job, _ := collect(t, e, context.Background(), engine.Request{Prompt: prompt, Most: 1, Sampling: greedy(), LogProbs: -1})
			if r := end(t, job); r.Cached != want {
				t.Errorf("%s, prompt again, %d: found %d cached tokens, expected %d", c.name, i, r.Cached, want)
			}
		}
		if kept := e.Cache(); (kept.Sequences > 0) != c.kept || c.bytes > 0 && kept.Bytes > c.bytes {
			t.Errorf("%s: found %+v kept", c.name, kept)
		}
		stop()
		for i := range 4 {
			m.Clear(i)
		}
	}
}
