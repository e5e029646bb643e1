package engine_test

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s/llamacpp"
	"github.com/learning-to-screen/l2s/llamacpp/internal/engine"
	"github.com/learning-to-screen/l2s/llamacpp/internal/testlib"
)

// copied starts requests of one prompt with the seeds, and returns their jobs and where their tokens are.
func copied(t *testing.T, e *engine.Engine, ctx context.Context, r engine.Request, seeds ...uint64) ([]*engine.Job, []*[]engine.Token) {
	t.Helper()
	var all []engine.Request
	var tokens []*[]engine.Token
	for _, seed := range seeds {
		list := new([]engine.Token)
		r.Options.Seed, r.Write = seed, func(_ string, more []engine.Token) bool {
			*list = append(*list, more...)
			return true
		}
		all, tokens = append(all, r), append(tokens, list)
	}
	p, err := e.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Free()
	jobs, err := p.StartCopies(ctx, all)
	if err != nil {
		t.Fatal(err)
	}
	return jobs, tokens
}

// Copies of a request read its prompt once, draw by their seeds, and go on with their own texts: the
// log-probabilities are those of a loop, in models of full attention and in recurrent ones, with a
// cache and without one.
func TestCopiesOfAPrompt(t *testing.T) {
	if missing != "" {
		t.Skip(missing)
	}
	recurrent := filepath.Join(t.TempDir(), "recurrent.gguf")
	if err := testlib.Mamba(gguf, recurrent); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, file string
		cache      int64
	}{{"full attention", gguf, -1}, {"full attention, no cache", gguf, 0}, {"recurrent", recurrent, -1}} {
		read, written := 0, 0
		m, x := openFile(t, c.file, llamacpp.Options{Context: 160, Sequences: 3, Kept: 3})
		oracle, _ := openFile(t, c.file, llamacpp.Options{Context: 160})
		e, stop := runs(t, m, x, engine.Options{Parallel: 3, Waiting: 8, Cache: c.cache, Step: func(s engine.Step) {
			read, written = read+s.Read, written+s.Written
		}})
		prompt := m.Tokens(prompts[0]+" "+prompts[1]+" "+prompts[2], true)
		r := engine.Request{Prompt: prompt, Most: 4, LogProbs: 0, Sampling: greedy()}
		r.Options.Temperature, r.Options.TopK, r.Options.TopP, r.Options.MinP = 2, 0, 1, 0
		want := map[uint64]uint32{} // the first token of each seed, alone
		for _, seed := range []uint64{5, 6, 7} {
			r.Options.Seed, r.Fresh = seed, true
			job, tokens := collect(t, e, context.Background(), r)
			end(t, job)
			want[seed] = (*tokens)[0].ID
		}
		r.Fresh = false
		jobs, tokens := copied(t, e, context.Background(), r, 5, 6, 7)
		texts := map[string]bool{}
		for i, job := range jobs {
			done := end(t, job)
			if done.Read != len(prompt) || done.Written != 4 || done.Cached != jobs0(t, jobs).Cached {
				t.Errorf("%s, copy %d: found %+v, expected the prompt of %d tokens and 4 written ones", c.name, i, done, len(prompt))
			}
			if first := (*tokens[i])[0].ID; done.Cached == 0 && first != want[uint64(5+i)] {
				t.Errorf("%s, copy %d: found the first token %d, expected %d, as of a request alone", c.name, i, first, want[uint64(5+i)])
			}
			text, ids := slices.Clone(prompt), ""
			for j, token := range *tokens[i] {
				all := logits(t, oracle, x, text)
				if off := math.Abs(token.LogProb - (all[token.ID] - logSum(all))); off > near {
					t.Errorf("%s, copy %d, token %d: found the log-probability %v, expected %v", c.name, i, j, token.LogProb, all[token.ID]-logSum(all))
				}
				text, ids = append(text, token.ID), ids+string(rune(token.ID))
			}
			texts[ids] = true
		}
		if len(texts) != 3 {
			t.Errorf("%s: found %d texts of 3 seeds", c.name, len(texts))
		}
		stop()
		cached := jobs0(t, jobs).Cached
		if n := 4*len(prompt) - cached; read != n || written != 6*4 {
			t.Errorf("%s: found %d tokens read and %d written, expected %d, the prompt once for all copies, and 24", c.name, read, written, n)
		}
	}
}

func jobs0(t *testing.T, jobs []*engine.Job) engine.Result { return end(t, jobs[0]) }

// Copies take as many places as they are: they wait until these are free, and nobody overtakes them.
// They end together when their client goes away, waiting, reading and writing, and leave all places.
func TestPlacesOfCopies(t *testing.T) {
	m, x := open(t, llamacpp.Options{Context: 512, Sequences: 3, Kept: 3})
	e := run(t, m, x, engine.Options{Parallel: 3, Waiting: 4, Cache: -1})
	endless := engine.Request{Prompt: m.Tokens(prompts[0], true), Most: 400, LogProbs: -1, Sampling: greedy()}
	busy := func(what string, active, waiting int) {
		t.Helper()
		for start := time.Now(); ; time.Sleep(time.Millisecond) {
			a, w := e.Busy()
			if a == active && w == waiting {
				return
			}
			if time.Since(start) > 5*time.Minute {
				t.Fatalf("%s: found %d under way and %d waiting, expected %d and %d", what, a, w, active, waiting)
			}
		}
	}
	one, leave := context.WithCancel(context.Background())
	first, _ := collect(t, e, one, endless)
	busy("one", 1, 0)
	three, gone := context.WithCancel(context.Background())
	jobs, _ := copied(t, e, three, endless, 1, 2, 3)
	last, _ := collect(t, e, context.Background(), engine.Request{Prompt: endless.Prompt, Most: 1, LogProbs: -1, Sampling: greedy()})
	busy("three wait, and one behind them", 1, 2)
	leave()
	<-first.Done()
	busy("three under way", 3, 1)
	gone()
	for _, job := range jobs {
		<-job.Done()
		if _, err := job.Result(); !errors.Is(err, context.Canceled) {
			t.Errorf("found %v, expected the end of the client", err)
		}
	}
	end(t, last)
	busy("all gone", 0, 0)
	// While they wait.
	one, leave = context.WithCancel(context.Background())
	first, _ = collect(t, e, one, endless)
	busy("one", 1, 0)
	three, gone = context.WithCancel(context.Background())
	jobs, _ = copied(t, e, three, endless, 1, 2, 3)
	gone()
	for _, job := range jobs {
		<-job.Done()
	}
	busy("the first alone", 1, 0)
	leave()
	<-first.Done()
	// Before their prompt is read.
	long := endless
	for len(long.Prompt) < 500 {
		long.Prompt = append(slices.Clone(long.Prompt), long.Prompt...)[:min(500, 2*len(long.Prompt))]
	}
	three, gone = context.WithCancel(context.Background())
	jobs, _ = copied(t, e, three, long, 1, 2, 3)
	for a, _ := e.Busy(); a == 0; a, _ = e.Busy() {
		time.Sleep(time.Millisecond)
	}
	gone()
	for _, job := range jobs {
		<-job.Done()
	}
	busy("all gone again", 0, 0)
	p, err := e.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Free()
	for name, all := range map[string][]engine.Request{"none": {}, "four": {endless, endless, endless, endless}, "other prompts": {endless, long}, "alone": {{Prompt: endless.Prompt, Alone: true, Sampling: greedy()}, {Prompt: endless.Prompt, Sampling: greedy()}}} {
		if _, err := p.StartCopies(context.Background(), all); err == nil {
			t.Errorf("%s: found no error", name)
		}
	}
}

// Named tokens come with each token in place of the best ones, with the written one, and with the
// log-probabilities that a loop has.
func TestNamedTokens(t *testing.T) {
	m, x := open(t, llamacpp.Options{Context: 128, Sequences: 1})
	oracle, _ := open(t, llamacpp.Options{Context: 128})
	e := run(t, m, x, engine.Options{})
	prompt := m.Tokens(prompts[0], true)
	all := logits(t, oracle, x, prompt)
	best := uint32(0)
	for id, v := range all {
		if v > all[best] {
			best = uint32(id)
		}
	}
	other, rare := uint32(777), uint32(40_000)
	for _, c := range []struct {
		named, want []uint32
	}{{[]uint32{rare, other}, []uint32{rare, other, best}}, {[]uint32{rare, best}, []uint32{rare, best}}, {nil, []uint32{best}}} {
		job, tokens := collect(t, e, context.Background(), engine.Request{Prompt: prompt, Most: 1, LogProbs: 1, Named: c.named, Sampling: greedy(), Fresh: true})
		end(t, job)
		var ids []uint32
		for _, top := range (*tokens)[0].Top {
			ids = append(ids, top.ID)
			if want := all[top.ID] - logSum(all); math.Abs(top.LogProb-want) > 1e-3 {
				t.Errorf("%v: found the log-probability %v of token %d, expected %v", c.named, top.LogProb, top.ID, want)
			}
		}
		if !slices.Equal(ids, c.want) {
			t.Errorf("%v: found the tokens %v, expected %v", c.named, ids, c.want)
		}
	}
}
