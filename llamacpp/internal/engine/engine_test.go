package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/files/heads"
	"github.com/learning-to-screen/l2s/llamacpp"
	"github.com/learning-to-screen/l2s/llamacpp/internal/engine"
	"github.com/learning-to-screen/l2s/llamacpp/internal/testlib"
	"github.com/learning-to-screen/l2s/preview"
	"github.com/learning-to-screen/l2s/sample"
)

const (
	shared = "../../../../shared"
	gguf   = shared + "/data/llm-65k-gguf/llm-65k.q8_0.gguf"
)

var missing string

func TestMain(m *testing.M) {
	if _, err := os.Stat(gguf); err != nil {
		missing = "found no model " + gguf + " (CONTRIBUTING.md, Data, describes it)"
	} else if folder, err := testlib.Get(shared+"/llama/get", "../../.."); err != nil {
		missing = err.Error()
	} else if err := llamacpp.Load(folder); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if missing != "" {
		fmt.Fprintln(os.Stderr, "engine: most tests are skipped:", missing)
	}
	os.Exit(m.Run())
}

func open(t *testing.T, o llamacpp.Options) (*llamacpp.Model, *llamacpp.Head) {
	t.Helper()
	return openFile(t, gguf, o)
}

func openFile(t *testing.T, file string, o llamacpp.Options) (*llamacpp.Model, *llamacpp.Head) {
	t.Helper()
	if missing != "" {
		t.Skip(missing)
	}
	o.Threads = 1
	m, err := llamacpp.Open(file, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	x, err := m.Head(llamacpp.HeadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	return m, x
}

func run(t *testing.T, m *llamacpp.Model, x *llamacpp.Head, o engine.Options) *engine.Engine {
	t.Helper()
	e, _ := runs(t, m, x, o)
	return e
}

// runs also returns a function that ends the engine.
func runs(t *testing.T, m *llamacpp.Model, x *llamacpp.Head, o engine.Options) (*engine.Engine, func()) {
	t.Helper()
	e := engine.New(m, x, o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { e.Run(ctx); close(done) }()
	stop := func() { cancel(); <-done }
	t.Cleanup(stop)
	return e, stop
}

func greedy() engine.Sampling {
	s := engine.Sampling{Options: sample.DefaultOptions(), LastN: 64}
	s.Options.Temperature = 0
	return s
}

// collect starts a request, and returns its job and where its tokens are at its end.
func collect(t *testing.T, e *engine.Engine, ctx context.Context, r engine.Request) (*engine.Job, *[]engine.Token) {
	t.Helper()
	var tokens []engine.Token
	r.Write = func(_ string, list []engine.Token) bool {
		tokens = append(tokens, list...)
		return true
	}
	job, err := e.Start(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	return job, &tokens
}

func end(t *testing.T, job *engine.Job) engine.Result {
	t.Helper()
	select {
	case <-job.Done():
	case <-time.After(10 * time.Minute):
		t.Fatal("found a job that does not end")
	}
	r, err := job.Result()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// logits returns all logits of the model after a prompt, by a loop that has no engine: the oracle.
func logits(t *testing.T, m *llamacpp.Model, x *llamacpp.Head, prompt []uint32) []float64 {
	t.Helper()
	m.Clear(0)
	h, err := m.Feed(context.Background(), 0, prompt...)
	if err != nil {
		t.Fatal(err)
	}
	all := make([]float64, x.Labels())
	ids := make([]uint32, x.Labels())
	for i := range ids {
		ids[i] = uint32(i)
	}
	if err := x.Logits(all, h, ids...); err != nil {
		t.Fatal(err)
	}
	return all
}

func logSum(all []float64) float64 {
	largest, sum := slices.Max(all), 0.0
	for _, v := range all {
		sum += math.Exp(v - largest)
	}
	return largest + math.Log(sum)
}

// near is the largest difference of a logit if llama.cpp computes a state in a batch with others,
// where it rounds in another way.
const near = 0.3

var prompts = []string{
	"The configuration file has three sections.",
	"Once upon a time there was",
	"A",
	strings.Repeat("The first names the servers, the second their ports, and the third says which of them may be restarted. ", 8),
}

// Several requests at once each get the best tokens after their own text, with the
// log-probabilities.
func TestSequencesDoNotDisturbEachOther(t *testing.T) {
	m, x := open(t, llamacpp.Options{Context: 256, Sequences: 3})
	oracle, _ := open(t, llamacpp.Options{Context: 256})
	e := run(t, m, x, engine.Options{Parallel: 3, Waiting: 8})
	var jobs []*engine.Job
	var texts []*[]engine.Token
	var ids [][]uint32
	for _, prompt := range prompts {
		ids = append(ids, m.Tokens(prompt, true))
		job, tokens := collect(t, e, context.Background(), engine.Request{Prompt: ids[len(ids)-1], Most: 12, Sampling: greedy(), LogProbs: 3})
		jobs, texts = append(jobs, job), append(texts, tokens)
	}
	for i, job := range jobs {
		if r := end(t, job); r.Reason != engine.Full || r.Written != 12 || r.Read != len(ids[i]) {
			t.Fatalf("prompt %d: found %+v", i, r)
		}
		text := slices.Clone(ids[i])
		for j, token := range *texts[i] {
			all := logits(t, oracle, x, text)
			sum := logSum(all)
			if best := slices.Max(all); all[token.ID] < best-near {
				t.Errorf("prompt %d, token %d: found a logit of %v, expected %v", i, j, all[token.ID], best)
			}
			if d := token.LogProb - (all[token.ID] - sum); math.Abs(d) > near || len(token.Top) != 3 {
				t.Errorf("prompt %d, token %d: found the log-probability %v and %d more, expected %v and 3", i, j, token.LogProb, len(token.Top), all[token.ID]-sum)
			}
			for _, x := range token.Top {
				if d := x.LogProb - (all[x.ID] - sum); math.Abs(d) > near || x.Piece != m.Piece(x.ID) {
					t.Errorf("prompt %d, token %d: found %+v, expected %v", i, j, x, all[x.ID]-sum)
				}
			}
			text = append(text, token.ID)
		}
	}
}

// One request alone gets the tokens of a loop without an engine, bit for bit: the batches are the
// same.
func TestOneSequenceIsThatOfALoop(t *testing.T) {
	m, x := open(t, llamacpp.Options{Context: 256})
	prompt := m.Tokens(prompts[0], true)
	want, text := []uint32{}, slices.Clone(prompt)
	h, err := m.Feed(context.Background(), 0, prompt...)
	for range 16 {
		var best [1]l2s.Prediction
		if err == nil {
			_, err = x.Search(best[:], h, l2s.Request{})
		}
		if err != nil {
			t.Fatal(err)
		}
		want, text = append(want, best[0].ID), append(text, best[0].ID)
		h, err = m.Feed(context.Background(), 0, best[0].ID)
	}
	m.Clear(0)
	e := run(t, m, x, engine.Options{})
	job, tokens := collect(t, e, context.Background(), engine.Request{Prompt: prompt, Most: 16, Sampling: greedy(), LogProbs: -1})
	end(t, job)
	for i, token := range *tokens {
		if token.ID != want[i] {
			t.Fatalf("token %d: found %d, expected %d", i, token.ID, want[i])
		}
	}
}

// A draw among the tokens that a search has found equals the draw of the sampler alone, and the
// best token of a search for several is the best.
func TestDrawsOfASearchForSeveral(t *testing.T) {
	x, err := llamacpp.OpenHead(gguf, llamacpp.HeadOptions{})
	if err != nil {
		t.Skip(err)
	}
	defer x.Close()
	random := rand.New(rand.NewPCG(3, 4))
	states := make([]float32, 20*x.Dim())
	for i := range states {
		states[i] = float32(random.NormFloat64())
	}
	history := make([]uint32, 100)
	for i := range history {
		history[i] = uint32(random.IntN(x.Labels()))
	}
	for name, change := range map[string]func(*engine.Sampling){
		"the best":        func(s *engine.Sampling) { s.Options.Temperature = 0 },
		"top-k":           func(s *engine.Sampling) { s.Options.TopK = 40 },
		"llama.cpp's":     func(s *engine.Sampling) { s.Options.TopK, s.Options.TopP, s.Options.MinP = 40, 0.95, 0.05 },
		"top-k and min-p": func(s *engine.Sampling) { s.Options.TopK, s.Options.MinP = 7, 0.2 },
		"a ban":           func(s *engine.Sampling) { s.Options.TopK, s.Banned = 5, set(x, 1, 2, 3) },
		"penalties": func(s *engine.Sampling) {
			s.Options.TopK, s.Options.TopP, s.LastN, s.Options.Presence, s.Options.Repetition = 20, 0.9, 64, 1, 1.2
		},
		"a gain":                  func(s *engine.Sampling) { s.Options.TopK, s.LastN, s.Options.Repetition = 5, 64, 0.5 },
		"the best with penalties": func(s *engine.Sampling) { s.Options.Temperature, s.LastN, s.Options.Frequency = 0, 64, 2 },
		"biases": func(s *engine.Sampling) {
			s.Options.TopK, s.Biases = 40, []l2s.Bias{{ID: 1, Add: 2}, {ID: 9, Add: 60}, {ID: 11, Add: -60}}
		},
		"vLLM's order": func(s *engine.Sampling) { s.Options.Order, s.Options.TopK, s.Options.TopP = sample.VLLM(), 9, 0.8 },
	} {
		s := engine.Sampling{Options: sample.DefaultOptions()}
		s.Options.Seed = 9
		change(&s)
		alone, err := engine.NewChooser(x, s)
		if err != nil {
			t.Fatal(err)
		}
		several, err := engine.NewChooser(x, s)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(states); i += x.Dim() {
			h := states[i:][:x.Dim()]
			want, _, err := alone.Next(h, history)
			if err != nil {
				t.Fatal(err)
			}
			found, ok, err := engine.NextOfSearch(several, x, h, history)
			if err != nil || !ok || found != want {
				t.Fatalf("%s, state %d: found token %d, by a search: %v, %v, expected %d", name, i/x.Dim(), found, ok, err, want)
			}
		}
	}
	// Options that need more than candidates do not use a search.
	for name, change := range map[string]func(*engine.Sampling){
		"no truncation":     func(s *engine.Sampling) {},
		"top-p first":       func(s *engine.Sampling) { s.Options.TopP = 0.9 },
		"no end of history": func(s *engine.Sampling) { s.Options.TopK, s.Options.Presence, s.LastN = 40, 1, -1 },
		"many penalties":    func(s *engine.Sampling) { s.Options.TopK, s.Options.Presence, s.LastN = 40, 1, 5000 },
		"allowed":           func(s *engine.Sampling) { s.Options.TopK, s.Allowed = 40, set(x, 1, 2) },
		"min-p first":       func(s *engine.Sampling) { s.Options.Order, s.Options.MinP, s.Options.TopK = sample.VLLM(), 0.1, 40 },
	} {
		s := engine.Sampling{Options: sample.DefaultOptions()}
		change(&s)
		c, err := engine.NewChooser(x, s)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok, err := engine.NextOfSearch(c, x, states[:x.Dim()], nil); ok || err != nil {
			t.Errorf("%s: found a search, %v", name, err)
		}
	}
}

// mixed are states and requests of all kinds, together in one step.
func mixed(x *llamacpp.Head, states []float32) (all []engine.Asked) {
	const n = 24
	random := rand.New(rand.NewPCG(5, 6))
	history := make([]uint32, 100)
	for i := range history {
		history[i] = uint32(random.IntN(2000))
	}
	banned := set(x, history[:20]...)
	for i := range n {
		a := engine.Asked{Sampling: engine.Sampling{Options: sample.DefaultOptions(), LastN: 64}, LogProbs: i%5 - 1, H: states[i*x.Dim():][:x.Dim()], History: history}
		o := &a.Options
		o.Seed, o.TopK, o.TopP, o.MinP = uint64(i%3), 40, 0.95, 0.05
		switch i % 12 {
		case 0, 1, 2:
			o.Temperature = 0
		case 3:
			o.TopK = 7
		case 4:
			o.Presence, o.Frequency = 0.5, 0.25
		case 5:
			o.Repetition, o.Temperature = 1.3, 0
		case 6:
			a.Biases = []l2s.Bias{{ID: 3, Add: 100}, {ID: 60000, Add: -5}}
		case 7:
			a.Allowed = set(x, history[30:40]...)
		case 8:
			a.Banned = banned
		case 9:
			a.Banned, o.Temperature, o.Repetition = banned, 0, 0.7
		case 10:
			o.TopK, o.Presence = 0, 1
		case 11:
			o.Temperature, a.Biases = 0, []l2s.Bias{{ID: history[0], Add: 3}}
		}
		all = append(all, a)
	}
	return all
}

// realStates are some of the lab model.
func realStates(t *testing.T, x *llamacpp.Head, n int) []float32 {
	t.Helper()
	rows, release, err := heads.OpenContexts(shared+"/data/llm-65k/contexts_test.npy", x.Dim())
	if err != nil {
		t.Skip(err)
	}
	defer release()
	return slices.Clone(rows[:n*x.Dim()])
}

// Requests of all kinds in one step get the same tokens and log-probabilities as each alone, on any
// number of threads of the model: for an exact head, whose rows are read once for several, and over
// a preview.
func TestOneStepForRequestsOfAllKinds(t *testing.T) {
	m, exact := open(t, llamacpp.Options{Context: 32})
	states := realStates(t, exact, 1500)
	made, err := preview.Make(context.Background(), exact.Layer(), l2s.Float32(states, exact.Layer().Dim()), preview.Options{})
	if err != nil {
		t.Fatal(err)
	}
	fast, err := exact.With(made, l2s.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]*llamacpp.Head{"exact": exact, "preview": fast} {
		all := mixed(x, states)
		var want []engine.Token
		for _, a := range all {
			alone, err := engine.NewChooser(x, a.Sampling)
			if err != nil {
				t.Fatal(err)
			}
			id, _, err := alone.Next(a.H, a.History)
			if err != nil {
				t.Fatal(err)
			}
			named := func(id uint32) string { // of a token without text
				if m.Piece(id) == "" {
					return m.Name(id)
				}
				return ""
			}
			one := engine.Token{ID: id, Piece: m.Piece(id), Special: named(id)}
			if a.LogProbs >= 0 {
				best := make([]llamacpp.Choice, max(a.LogProbs, 1))
				logZ := 0.0
				if _, logZ, err = x.Best(best, a.H, l2s.Request{ExactSum: x == exact}); err != nil {
					t.Fatal(err)
				}
				for _, c := range best[:a.LogProbs] {
					one.Top = append(one.Top, engine.Top{ID: c.ID, Piece: m.Piece(c.ID), Special: named(c.ID), LogProb: c.LogProb})
				}
				var logit [1]float64
				if err := x.Logits(logit[:], a.H, id); err != nil {
					t.Fatal(err)
				}
				one.LogProb = logit[0] - logZ
				if !slices.ContainsFunc(one.Top, func(c engine.Top) bool { return c.ID == id }) { // it is among them always
					one.Top = append(one.Top, engine.Top{ID: id, Piece: one.Piece, Special: one.Special, LogProb: one.LogProb})
				}
			}
			want = append(want, one)
		}
		for _, threads := range []int{1, 2} {
			if err := m.SetThreads(threads); err != nil {
				t.Fatal(err)
			}
			x.SetThreads(threads)
			e := engine.New(m, x, engine.Options{Parallel: len(all)})
			for _, several := range [][]engine.Asked{all, all[:1], all[4:7], all[:12]} {
				found, err := engine.Choices(e, several)
				if err != nil {
					t.Fatal(err)
				}
				for i, token := range found {
					if at := slices.IndexFunc(all, func(a engine.Asked) bool { return &a.H[0] == &several[i].H[0] }); !reflect.DeepEqual(token, want[at]) {
						t.Errorf("%s, %d threads, %d at once, request %d: found %+v, expected %+v", name, threads, len(several), at, token, want[at])
					}
				}
			}
		}
	}
}

// A request that has come when the head changes keeps its own, also where others of the other head share its
// steps.
func TestRequestsKeepTheirHead(t *testing.T) {
	m, exact := open(t, llamacpp.Options{Context: 128, Sequences: 2})
	made, err := preview.Make(context.Background(), exact.Layer(), l2s.Float32(realStates(t, exact, 1500), exact.Layer().Dim()), preview.Options{})
	if err != nil {
		t.Fatal(err)
	}
	fast, err := exact.With(made, l2s.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := run(t, m, exact, engine.Options{Parallel: 2})
	ask := engine.Request{Prompt: m.Tokens(prompts[0], true), Most: 40, Sampling: greedy(), LogProbs: -1}
	change, changed := make(chan bool), make(chan bool)
	first := ask
	first.Write = func(string, []engine.Token) bool { // in the middle of the request
		if change != nil {
			close(change)
			<-changed
			change = nil
		}
		return true
	}
	waits := change
	before, err := e.Start(context.Background(), first)
	if err != nil {
		t.Fatal(err)
	}
	<-waits
	e.Use(fast)
	after, err := e.Start(context.Background(), ask)
	if err != nil {
		t.Fatal(err)
	}
	close(changed)
	a, b := end(t, before), end(t, after)
	if before.Head() != exact || a.Exact != a.Written || a.Written != 40 {
		t.Errorf("before the change: found %+v, expected the exact head for all tokens", a)
	}
	if after.Head() != fast || b.Exact == b.Written || b.Written != 40 || e.Head() != fast {
		t.Errorf("after the change: found %+v, expected the preview", b)
	}
	reasons(t, e, m)
}

func set(x *llamacpp.Head, ids ...uint32) *bitset.Set {
	s, err := engine.Set(x, ids)
	if err != nil {
		panic(err)
	}
	return s
}

func TestWhereWritingEnds(t *testing.T) {
	m, x := open(t, llamacpp.Options{Context: 32, Sequences: 2})
	e := run(t, m, x, engine.Options{Parallel: 2, Waiting: 4})
	prompt := m.Tokens(prompts[0], true)
	ask := func(r engine.Request) (engine.Result, string) {
		t.Helper()
		text := ""
		write := r.Write
		r.Prompt, r.LogProbs = prompt, -1
		r.Write = func(part string, tokens []engine.Token) bool {
			text += part
			return write == nil || write(part, tokens)
		}
		job, err := e.Start(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		return end(t, job), text
	}
	r, all := ask(engine.Request{Most: -1, Sampling: greedy()})
	if r.Reason != engine.Full || r.Written != 32-len(prompt)+1 {
		t.Errorf("a full context: found %+v, expected %d tokens", r, 32-len(prompt)+1)
	}
	if r, text := ask(engine.Request{Most: 60, Sampling: greedy(), Shift: true}); r.Reason != engine.Full || r.Written != 60 || !strings.HasPrefix(text, all) {
		t.Errorf("a context that loses its older half: found %+v, %q, expected 60 tokens that begin with %q", r, text, all)
	}
	stop := all[len(all)/2:][:3]
	if r, text := ask(engine.Request{Most: -1, Sampling: greedy(), Stop: []string{"no such text", stop}}); r.Reason != engine.Stopped || r.By != stop || text != all[:strings.Index(all, stop)] {
		t.Errorf("the stop %q: found %+v, %q, expected the text before it in %q", stop, r, text, all)
	}
	if r, _ := ask(engine.Request{Most: -1, Sampling: greedy(), Write: func(string, []engine.Token) bool { return false }}); r.Reason != engine.Refused || r.Written != 1 {
		t.Errorf("Write ends it: found %+v", r)
	}
	ends := uint32(0)
	for ; !m.Ends(ends); ends++ {
	}
	only := greedy()
	only.Allowed = set(x, ends)
	if r, text := ask(engine.Request{Most: -1, Sampling: only, Ends: true}); r.Reason != engine.Stopped || r.End != ends || r.Written != 0 || text != "" {
		t.Errorf("the end of the text: found %+v, %q", r, text)
	}
	if r, _ := ask(engine.Request{Most: 3, Sampling: only}); r.Reason != engine.Full || r.Written != 3 {
		t.Errorf("an end that is not taken for one: found %+v", r)
	}
	if r, text := ask(engine.Request{Most: 0, Sampling: greedy()}); r.Reason != engine.Full || text != "" {
		t.Errorf("no tokens: found %+v, %q", r, text)
	}
	none := greedy()
	none.Allowed, none.Banned = set(x, 5), set(x, 5)
	if _, err := e.Start(context.Background(), engine.Request{Prompt: prompt, Most: 1, Sampling: none, LogProbs: -1}); !errors.Is(err, engine.ErrNoToken) {
		t.Errorf("nothing may be written: found the error %v", err)
	}
}

// A full context keeps the token that the model begins texts with, and the tokens that the request
// names; it loses the older half of the others. The tokens equal those of a loop that reads what is
// left anew.
func TestWhatAFullContextKeeps(t *testing.T) {
	if missing != "" {
		t.Skip(missing)
	}
	const most, written = 24, 48
	for _, begins := range []bool{false, true} {
		file, err := testlib.Bools(t.TempDir(), gguf, map[string]bool{"tokenizer.ggml.add_bos_token": begins})
		if err != nil {
			t.Fatal(err)
		}
		m, x := openFile(t, file, llamacpp.Options{Context: most})
		prompt := m.Tokens(prompts[0], true)
		begin := 0
		if begins {
			begin = 1
		}
		if id, ok := m.Begins(); ok != begins || begins && prompt[0] != id {
			t.Fatalf("found a prompt that begins with %d, and the model with %d, %v", prompt[0], id, ok)
		}
		cases := []struct{ asked, kept int }{{0, begin}, {2, 2 + begin}, {len(prompt) - begin, len(prompt)}, {-1, len(prompt)}}
		loop := func(kept int) (all []llamacpp.Choice) {
			m.Clear(0)
			context_ := slices.Clone(prompt)
			h, err := m.Feed(context.Background(), 0, context_...)
			for len(all) < written {
				var best [1]llamacpp.Choice
				if err == nil {
					_, _, err = x.Best(best[:], h, l2s.Request{Exact: true, ExactSum: true})
				}
				if err != nil {
					t.Fatal(err)
				}
				next := best[0].ID
				all, context_ = append(all, best[0]), append(context_, next)
				if len(context_) <= most {
					h, err = m.Feed(context.Background(), 0, next)
					continue
				}
				half := (most - kept) / 2
				context_ = slices.Concat(prompt[:kept], context_[len(context_)-half:])
				m.Clear(0)
				h, err = m.Feed(context.Background(), 0, context_...)
			}
			m.Clear(0)
			return all
		}
		var loops [][]llamacpp.Choice
		for _, c := range cases {
			loops = append(loops, loop(c.kept))
		}
		if begins && slices.Equal(loops[0], loop(0)) {
			t.Error("found the same log-probabilities without the beginning, expected others: nothing would show that it is lost")
		}
		e := run(t, m, x, engine.Options{})
		for i, c := range cases {
			job, tokens := collect(t, e, context.Background(), engine.Request{Prompt: prompt, Most: written, Sampling: greedy(), LogProbs: 0, Shift: true, Keep: c.asked})
			r := end(t, job)
			same := slices.EqualFunc(*tokens, loops[i], func(a engine.Token, b llamacpp.Choice) bool { return a.ID == b.ID && a.LogProb == b.LogProb })
			if !same || r.Kept != c.kept || r.Shifts < 2 {
				t.Errorf("begins %v, keep %d: found %v, %d kept in %d shifts, expected %v, and %d", begins, c.asked, *tokens, r.Kept, r.Shifts, loops[i], c.kept)
			}
		}
	}
}

// A prompt that is nearly the context leaves a quarter of it for the text that comes.
func TestAFullContextKeepsThreeQuarters(t *testing.T) {
	for _, c := range []struct{ most, prompt, keep, kept int }{{32, 32, -1, 24}, {32, 28, 26, 24}, {32, 20, -1, 20}, {3, 3, -1, 2}, {2, 2, -1, 1}, {1, 1, -1, 0}} {
		m, x := open(t, llamacpp.Options{Context: c.most})
		e := run(t, m, x, engine.Options{})
		job, tokens := collect(t, e, context.Background(), engine.Request{Prompt: slices.Repeat([]uint32{500}, c.prompt), Most: 2 * c.most, Sampling: greedy(), LogProbs: -1, Shift: true, Keep: c.keep})
		if r := end(t, job); r.Kept != c.kept || r.Written != 2*c.most || r.Reason != engine.Full {
			t.Errorf("%+v: found %+v, %d tokens", c, r, len(*tokens))
		}
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	m, x := open(t, llamacpp.Options{Context: 32, Sequences: 1})
	e := run(t, m, x, engine.Options{})
	bad := greedy()
	bad.Options.Temperature = -1
	for name, c := range map[string]struct {
		r    engine.Request
		want string
	}{
		"no tokens":       {engine.Request{Sampling: greedy()}, "without tokens"},
		"too long":        {engine.Request{Sampling: greedy(), Prompt: make([]uint32, 33)}, "found a prompt of 33 tokens, expected at most 32"},
		"no token":        {engine.Request{Sampling: greedy(), Prompt: []uint32{1 << 30}}, "prompt[0]: found token 1073741824"},
		"bad temperature": {engine.Request{Sampling: bad, Prompt: []uint32{1}}, "temperature: found -1"},
	} {
		job, err := e.Start(context.Background(), c.r)
		if err == nil {
			<-job.Done()
			_, err = job.Result()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: found the error %v, expected %q", name, err, c.want)
		}
	}
	if _, err := e.Score(context.Background(), []uint32{1}, [][]uint32{{2}}); err == nil || !strings.Contains(err.Error(), "without forks") {
		t.Errorf("a score without forks: found the error %v", err)
	}
}

// Places are bounded, and free as soon as nobody waits for the answer; the end of the engine ends
// all.
func TestPlaces(t *testing.T) {
	m, x := open(t, llamacpp.Options{Context: 64, Sequences: 1})
	e := engine.New(m, x, engine.Options{Waiting: 1})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { e.Run(ctx); close(done) }()
	began := make(chan bool, 1)
	var once sync.Once
	endless := engine.Request{Prompt: m.Tokens(prompts[1], true), Most: -1, Sampling: greedy(), LogProbs: -1, Shift: true, Write: func(string, []engine.Token) bool {
		once.Do(func() { began <- true })
		return true
	}}
	one, leave := context.WithCancel(context.Background())
	first, err := e.Start(one, endless)
	if err != nil {
		t.Fatal(err)
	}
	<-began
	two, leave2 := context.WithCancel(context.Background())
	second, err := e.Start(two, endless)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Start(context.Background(), endless); !errors.Is(err, engine.ErrBusy) {
		t.Errorf("a third: found the error %v, expected ErrBusy", err)
	}
	if active, waiting := e.Busy(); active != 1 || waiting != 1 {
		t.Errorf("found %d and %d, expected 1 and 1", active, waiting)
	}
	leave2() // one that waits
	<-second.Done()
	if _, err := second.Result(); !errors.Is(err, context.Canceled) {
		t.Errorf("one that has left: found the error %v", err)
	}
	short := endless
	short.Most = 2
	third, err := e.Start(context.Background(), short)
	if err != nil {
		t.Fatal(err)
	}
	leave() // one that is under way
	<-first.Done()
	if r := end(t, third); r.Written != 2 {
		t.Errorf("the next: found %+v", r)
	}
	fourth, err := e.Start(context.Background(), endless)
	if err != nil {
		t.Fatal(err)
	}
	fifth, err := e.Start(context.Background(), endless)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	<-done
	for i, job := range []*engine.Job{fourth, fifth} {
		<-job.Done()
		if _, err := job.Result(); !errors.Is(err, engine.ErrClosed) {
			t.Errorf("%d at the end: found the error %v", i, err)
		}
	}
	if _, err := e.Start(context.Background(), endless); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("after the end: found the error %v", err)
	}
}

// The log-probabilities of answers equal the results of a loop that reads prompt and answer; the
// prompt is read once.
func TestScores(t *testing.T) {
	m, x := open(t, llamacpp.Options{Context: 256, Sequences: 2, Forks: 3})
	oracle, _ := open(t, llamacpp.Options{Context: 256})
	read := 0
	e, stop := runs(t, m, x, engine.Options{Parallel: 2, Forks: 3, Waiting: 4, Step: func(s engine.Step) { read += s.Read }})
	prompt := m.Tokens(prompts[0], true)
	var answers [][]uint32
	tokens := 0
	for _, text := range []string{" The", " The first names the servers", " a", " Nothing of this", " restarted and so on", " zzz qqq", prompts[3]} {
		answers = append(answers, m.Tokens(text, false))
		tokens += len(answers[len(answers)-1]) - 1
	}
	job, err := e.Score(context.Background(), prompt, answers)
	if err != nil {
		t.Fatal(err)
	}
	other, _ := collect(t, e, context.Background(), engine.Request{Prompt: prompt, Most: 20, Sampling: greedy(), LogProbs: -1}) // which takes part in the batches
	r := end(t, job)
	end(t, other)
	if len(r.Answers) != len(answers) {
		t.Fatalf("found %d answers, expected %d", len(r.Answers), len(answers))
	}
	for i, a := range r.Answers {
		text := slices.Clone(prompt)
		for j, id := range answers[i][:min(len(answers[i]), 6)] {
			all := logits(t, oracle, x, text)
			if want := all[id] - logSum(all); math.Abs(a.LogProbs[j]-want) > near || a.Tokens[j] != id {
				t.Errorf("answer %d, token %d: found %v of token %d, expected %v of %d", i, j, a.LogProbs[j], a.Tokens[j], want, id)
			}
			text = append(text, id)
		}
		if len(a.LogProbs) != len(answers[i]) {
			t.Errorf("answer %d: found %d log-probabilities, expected %d", i, len(a.LogProbs), len(answers[i]))
		}
	}
	for i, c := range []struct {
		answer []uint32
		want   string
	}{{nil, "answers[0]: found 0 tokens"}, {make([]uint32, 256), "expected at most 256"}, {make([]uint32, 600), "found 600 tokens"}, {[]uint32{1 << 30}, "found token"}} {
		if _, err := e.Score(context.Background(), prompt, [][]uint32{c.answer}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("bad answer %d: found the error %v, expected %q", i, err, c.want)
		}
	}
	stop()                                            // a step is told after the end of its jobs
	if want := 2*len(prompt) + tokens; read != want { // of both jobs
		t.Errorf("found %d tokens read, expected %d", read, want)
	}
}

// The same for models that people run, after a prompt that is longer than the window of Gemma's
// sliding attention.
func TestScoresOfRealModels(t *testing.T) {
	folder := os.Getenv("REAL")
	if folder == "" {
		t.Skip("REAL names no folder of models: scripts/real names it")
	}
	for name, length := range map[string]int{"smollm2-135m": 100, "gemma3-270m": 640} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(folder, name+".gguf")
			if _, err := os.Stat(file); err != nil {
				t.Skip(err)
			}
			const room = 768
			m, x := openFile(t, file, llamacpp.Options{Context: room, Sequences: 2, Forks: 2})
			oracle, _ := openFile(t, file, llamacpp.Options{Context: room})
			e := run(t, m, x, engine.Options{Parallel: 2, Forks: 2, Waiting: 4})
			prompt := m.Tokens(strings.Repeat(prompts[3], 8), true)
			prompt = prompt[:min(len(prompt), length)]
			var answers [][]uint32
			for _, text := range []string{" The first names", " restarted.", " Paris is the"} {
				answers = append(answers, m.Tokens(text, false))
			}
			job, err := e.Score(context.Background(), prompt, answers)
			if err != nil {
				t.Fatal(err)
			}
			other, _ := collect(t, e, context.Background(), engine.Request{Prompt: prompt[:20], Most: 8, Sampling: greedy(), LogProbs: -1})
			r := end(t, job)
			end(t, other)
			for i, a := range answers {
				text := slices.Clone(prompt)
				for j, id := range a {
					all := logits(t, oracle, x, text)
					if want := all[id] - logSum(all); math.Abs(r.Answers[i].LogProbs[j]-want) > 2*near {
						t.Errorf("answer %d, token %d: found %v, expected %v", i, j, r.Answers[i].LogProbs[j], want)
					}
					text = append(text, id)
				}
			}
		})
	}
}
