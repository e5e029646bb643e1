package main

import (
	"cmp"
	"container/heap"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/hybridgroup/yzma/pkg/llama"

	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/cmdline"
	"github.com/learning-to-screen/l2s/internal/kernels"
	"github.com/learning-to-screen/l2s/internal/stream"
	"github.com/learning-to-screen/l2s/llamacpp"
	"github.com/learning-to-screen/l2s/llamacpp/internal/engine"
	"github.com/learning-to-screen/l2s/preview"
	"github.com/learning-to-screen/l2s/sample"
	"github.com/learning-to-screen/l2s/softmax"
)

const benchUsage = `
l2s-llama bench --model M.gguf [--fast] [--screen M.l2s] [flags]
l2s-llama bench --model M.gguf --learn --text FILE --tokens 5000 --rounds 30 [--svg FILE] [flags]

Measures tokens per second with llama.cpp's own head and sampler, with the exact head, with a
preview (--fast, see generate -h) and with a screen, in turns on one model, warmed up: with one
thread and with all, unless --threads is given. A time is the median over the rounds of the mean per
token, with the least and the largest; a speedup is over llama.cpp. After an interrupt bench prints
the lines of the numbers of threads that are complete. The head "none" is llama.cpp without a head;
"read" reads the bytes of the head's rows once and does no more: no exact head can take less time.
Tasks:
  greedy    the best token
  sampled   temperature 0.8, top-k 40, top-p 0.95, each by its own sampler
  logprobs  the best 20 tokens and their log-probabilities; a preview estimates the sum
  decision  the logits of 3 tokens
  allowed   a draw among 200 tokens
  draft     4 tokens in one batch, and the best token after each
--learn asks for the best 5 tokens after each token of --text, in --rounds lines of --tokens tokens,
and prints the speed and llama.cpp's, the precision of one answer in four, and the memory added.`

// row is a line of the table. Times are of one token, or of one draft.
type row struct {
	Task                  string  `json:"task"`
	Head                  string  `json:"head"`
	Threads               int     `json:"threads"`
	TokensPerSecond       float64 `json:"tokens_per_second"`
	Microseconds          float64 `json:"microseconds"`
	Least                 float64 `json:"least_microseconds"` // of a round
	Largest               float64 `json:"largest_microseconds"`
	Speedup               float64 `json:"speedup"`
	PromptTokensPerSecond float64 `json:"prompt_tokens_per_second,omitempty"`
}

const benchPrompt = "The configuration file has three sections. The first names the servers, the second their ports, and the third says which of them may be restarted while others answer. Each section begins with its name in brackets, and ends where the next one begins. "

// bench runs tasks on a number of threads.
type bench struct {
	m             *llamacpp.Model
	exact, screen *llamacpp.Head // screen may be nil, or one that learns
	preview       *llamacpp.Head // nil without --fast
	own           *plain
	prompt        []uint32
	tokens        int
	threads       int
}

// setThreads changes the threads of all heads.
func (b *bench) setThreads(n int) error {
	b.threads = n
	if err := b.m.SetThreads(n); err != nil {
		return err
	}
	if err := b.own.setThreads(n); err != nil {
		return err
	}
	for _, x := range []*llamacpp.Head{b.exact, b.screen, b.preview} {
		if x != nil {
			x.SetThreads(n)
		}
	}
	return nil
}

// racer writes tokens by one method: step feeds a token and returns the next one.
type racer struct {
	task, head string
	hooked     bool // it runs on the model with the hook
	step       func(id uint32) (uint32, error)
	per        int // tokens a step
	// For each round, the time of all steps and the time of the prompt.
	times, prompts []time.Duration
}

func (r *racer) name() string {
	switch {
	case r.head == "read":
		return "a plain read of the head"
	case r.task == "none":
		return "no head"
	case r.head == "none":
		return r.task + " without a head"
	}
	return r.task + " by " + r.head
}

func (b *bench) racers(tasks []string) ([]*racer, error) {
	var list []*racer
	ctx := context.Background()
	add := func(task, head string, hooked bool, step func(uint32) (uint32, error)) {
		list = append(list, &racer{task: task, head: head, hooked: hooked, step: step, per: 1})
	}
	type named struct {
		name string
		x    *llamacpp.Head
	}
	heads := []named{{"exact", b.exact}}
	if b.preview != nil {
		heads = append(heads, named{"preview", b.preview})
	}
	if b.screen != nil {
		heads = append(heads, named{"screen", b.screen})
	}
	// Each task also has the time of llama.cpp without its head.
	add("none", "none", true, func(id uint32) (uint32, error) {
		_, err := b.m.Feed(ctx, 0, id)
		return id, err
	})
	add("none", "read", true, b.with(func([]float32) (uint32, error) { return b.prompt[0], b.read() }))
	labels := min(b.exact.Labels(), b.own.labels)
	some := make([]uint32, 200)
	for i := range some {
		some[i] = uint32(i * labels / len(some))
	}
	allowed, err := bitset.FromIDs(b.exact.Labels(), slices.Compact(slices.Clone(some)))
	if err != nil {
		return nil, err
	}
	for _, task := range tasks {
		switch task {
		case "greedy":
			greedy := llama.SamplerChainInit(llama.SamplerChainDefaultParams())
			llama.SamplerChainAdd(greedy, llama.SamplerInitGreedy())
			add(task, "llama.cpp", false, b.sampled(greedy))
			for _, h := range heads {
				var best [1]softmax.Prediction
				add(task, h.name, true, b.with(func(state []float32) (uint32, error) {
					_, err := h.x.Search(best[:], state, softmax.Request{})
					return best[0].ID, err
				}))
			}
		case "sampled":
			chain := llama.SamplerChainInit(llama.SamplerChainDefaultParams())
			for _, s := range []llama.Sampler{llama.SamplerInitTopK(40), llama.SamplerInitTopP(0.95, 1), llama.SamplerInitTemp(0.8), llama.SamplerInitDist(1)} {
				llama.SamplerChainAdd(chain, s)
			}
			add(task, "llama.cpp", false, b.sampled(chain))
			for _, h := range heads {
				o := sample.DefaultOptions()
				o.Temperature, o.TopK, o.TopP, o.Seed = 0.8, 40, 0.95, 1
				draws, err := h.x.Sampler(o)
				if err != nil {
					return nil, err
				}
				add(task, h.name, true, b.with(func(state []float32) (uint32, error) {
					t, err := draws.Draw(state, sample.Edits{})
					return t.ID, err
				}))
			}
		case "logprobs":
			add(task, "llama.cpp", false, b.looked(func(logits []float32) (uint32, error) { return bestByHeap(logits, 20), nil }))
			for _, h := range heads {
				best := make([]llamacpp.Choice, 20)
				add(task, h.name, true, b.with(func(state []float32) (uint32, error) {
					_, _, err := h.x.Best(best, state, softmax.Request{})
					return best[0].ID, err
				}))
			}
		case "decision":
			ids := some[50:53]
			add(task, "llama.cpp", false, b.looked(func(logits []float32) (uint32, error) {
				best := ids[0]
				for _, id := range ids {
					if logits[id] > logits[best] {
						best = id
					}
				}
				return best, nil
			}))
			logits := make([]float64, len(ids))
			add(task, "exact", true, b.with(func(state []float32) (uint32, error) {
				err := b.exact.Logits(logits, state, ids...)
				best := 0
				for i := range ids {
					if logits[i] > logits[best] {
						best = i
					}
				}
				return ids[best], err
			}))
		case "allowed":
			random := rand.New(rand.NewPCG(1, 1))
			add(task, "llama.cpp", false, b.looked(func(logits []float32) (uint32, error) {
				for i := range logits { // a grammar's mask
					if !allowed.Has(uint32(i)) {
						logits[i] = float32(math.Inf(-1))
					}
				}
				return drawAll(logits, 0.8, random.Float64()), nil
			}))
			o := sample.DefaultOptions()
			o.Temperature, o.TopK, o.Seed = 0.8, len(some), 1
			draws, err := b.exact.Sampler(o)
			if err != nil {
				return nil, err
			}
			add(task, "exact", true, b.with(func(state []float32) (uint32, error) {
				t, err := draws.Draw(state, sample.Edits{Allowed: allowed})
				return t.ID, err
			}))
		case "draft":
			const n = 4
			add(task, "llama.cpp", false, func(id uint32) (uint32, error) {
				if err := b.own.feed(n, id, id, id, id); err != nil {
					return 0, err
				}
				for i := range n {
					logits, err := b.own.logits(i)
					if err != nil {
						return 0, err
					}
					id = uint32(argmax(logits))
				}
				return id, nil
			})
			for _, h := range heads {
				best, answers := make([]softmax.Prediction, n), make([]softmax.Answer, n)
				add(task, h.name, true, func(id uint32) (uint32, error) {
					t := llamacpp.Token{ID: id, State: true}
					states, err := b.m.Decode(ctx, t, t, t, t)
					if err != nil {
						return 0, err
					}
					err = h.x.SearchBatch(best, answers, states, softmax.Request{})
					return best[n-1].ID, err
				})
			}
			add(task, "none", true, func(id uint32) (uint32, error) {
				t := llamacpp.Token{ID: id, State: true}
				_, err := b.m.Decode(ctx, t, t, t, t)
				return id, err
			})
			for _, r := range list {
				if r.task == task {
					r.per = n
				}
			}
		default:
			return nil, fmt.Errorf("found no task %q", task)
		}
	}
	return list, nil
}

// sampled returns the steps of llama.cpp with its own sampler.
func (b *bench) sampled(s llama.Sampler) func(uint32) (uint32, error) {
	return func(id uint32) (uint32, error) {
		if err := b.own.feed(1, id); err != nil {
			return 0, err
		}
		return uint32(llama.SamplerSample(s, b.own.ctx, -1)), nil
	}
}

// looked is llama.cpp with a look at all its logits in Go.
func (b *bench) looked(f func([]float32) (uint32, error)) func(uint32) (uint32, error) {
	return func(id uint32) (uint32, error) {
		if err := b.own.feed(1, id); err != nil {
			return 0, err
		}
		logits, err := b.own.logits(-1)
		if err != nil {
			return 0, err
		}
		return f(logits)
	}
}

// with is the model up to its head, and f.
func (b *bench) with(f func([]float32) (uint32, error)) func(uint32) (uint32, error) {
	return func(id uint32) (uint32, error) {
		h, err := b.m.Feed(context.Background(), 0, id)
		if err != nil {
			return 0, err
		}
		return f(h)
	}
}

// read reads the rows of the head once, on the threads of the model.
func (b *bench) read() error {
	return b.exact.File().Read(func() error {
		kernels.Advise(b.exact.Layer().Weights(), func(rows []byte) {
			const part = 1 << 20
			var next atomic.Int64
			b.m.Lend(b.threads, func(int) {
				for end := int(next.Add(part)); end-part < len(rows); end = int(next.Add(part)) {
					stream.Read(rows[end-part : min(end, len(rows))])
				}
			})
		})
		return nil
	})
}

// run lets all racers write their tokens, in turns; told gets the progress.
func (b *bench) run(ctx context.Context, list []*racer, rounds int, told func(r *racer, turns int)) error {
	last, turns := b.prompt[len(b.prompt)-1], 0
	for round := range rounds + 1 { // the first warms up
		for i := range list {
			r := list[(i+round)%len(list)]
			if err := ctx.Err(); err != nil {
				return err
			}
			told(r, turns)
			turns++
			start := time.Now()
			var err error
			if r.hooked {
				b.m.Clear(0)
				_, err = b.m.Feed(ctx, 0, b.prompt...)
			} else {
				b.own.cut(0)
				err = b.own.feed(1, b.prompt...)
			}
			if err != nil {
				return err
			}
			if round > 0 {
				r.prompts = append(r.prompts, time.Since(start))
			}
			id := last
			start = time.Now()
			for range b.tokens {
				if id, err = r.step(id); err != nil {
					return fmt.Errorf("%s, %s: %w", r.task, r.head, err)
				}
			}
			if round > 0 {
				r.times = append(r.times, time.Since(start))
			}
		}
	}
	return nil
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

func (b *bench) rows(list []*racer, threads int) []row {
	rows := make([]row, len(list))
	own := map[string]float64{}
	for i, r := range list {
		t := median(r.times) / time.Duration(b.tokens)
		us := func(round time.Duration) float64 { return float64(round.Nanoseconds()) / 1e3 / float64(b.tokens) }
		rows[i] = row{Task: r.task, Head: r.head, Threads: threads, Microseconds: float64(t.Nanoseconds()) / 1e3,
			Least: us(r.times[0]), Largest: us(r.times[len(r.times)-1]), // which median has sorted
			TokensPerSecond:       float64(r.per) / t.Seconds(),
			PromptTokensPerSecond: float64(len(b.prompt)) / median(r.prompts).Seconds()}
		if r.head == "llama.cpp" {
			own[r.task] = rows[i].Microseconds
		}
	}
	for i, r := range rows {
		if t := own[r.Task]; t > 0 {
			rows[i].Speedup = t / r.Microseconds
		}
	}
	return rows
}

// allTasks are the tasks of --tasks.
var allTasks = []string{"greedy", "sampled", "logprobs", "decision", "allowed", "draft"}

func parseTasks(list string) ([]string, error) {
	if list == "all" {
		return allTasks, nil
	}
	tasks := strings.Split(list, ",")
	for i, task := range tasks {
		if !slices.Contains(allTasks, task) {
			return nil, wrongUse("--tasks: found %q, expected some of %s, or all", task, strings.Join(allTasks, ","))
		}
		if slices.Contains(tasks[:i], task) {
			return nil, wrongUse("--tasks: found %q twice, expected each once", task)
		}
	}
	return tasks, nil
}

func runBench(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := newFlags("bench", benchUsage, stdout, stderr).withLearn().withFast("with --learn, a `file` of text; with --fast, as for generate")
	picture := f.String("svg", "", "with --learn, the `file` of a picture to write")
	n := f.Int("tokens", 32, "how `many` tokens to write in a round")
	rounds := f.Int("rounds", 5, "how `many` rounds")
	prompt := f.String("prompt", "", "the `text` to continue, by default one of the command")
	tasks := f.String("tasks", "greedy,sampled", "the `tasks`, separated by commas, or all")
	asJSON := f.Bool("json", false, "write JSON")
	if err := f.parse(args); err != nil {
		return err
	}
	if *n < 1 || *rounds < 1 || *n > mostTokens || *rounds > mostTokens {
		return wrongUse("--tokens, --rounds: found %d and %d, expected 1 to %d", *n, *rounds, mostTokens)
	}
	chosen, err := parseTasks(*tasks)
	if err != nil {
		return err
	}
	if f.learn && f.text == "" || !f.learn && !f.fast && f.text != "" || *picture != "" && !f.learn {
		return wrongUse("--learn, --text, --svg: expected the first two together, or none of the three; --text alone goes with --fast")
	}
	const size = 512
	if most := (size - 1) / 4; !f.learn && *n > most {
		return wrongUse("--tokens: found %d, expected 1 to %d, which the context has room for after a prompt", *n, most)
	}
	threads := []int{1, runtime.GOMAXPROCS(0)}
	if f.threads > 0 {
		threads = []int{f.threads}
	}
	f.threads = threads[0]
	if err := f.checkOutputs(ctx, []cmdline.Output{{Flag: "--svg", Path: *picture}, {Flag: "--keep", Path: f.keep}}); err != nil {
		return err
	}
	var content string
	if f.learn {
		if content, err = f.readText(ctx, f.text); err != nil {
			return err
		}
	}
	if *picture != "" {
		if err := cmdline.CheckWritable([]cmdline.Output{{Flag: "--svg", Path: *picture}}); err != nil {
			return err
		}
	}
	m, err := f.open(ctx, llamacpp.Options{Context: size})
	if err != nil {
		return err
	}
	defer f.closes(m)
	b := &bench{m: m, tokens: *n}
	if b.prompt, err = f.tokens(ctx, m, cmp.Or(*prompt, benchPrompt), true); err != nil {
		return err
	}
	if most := size - 4*b.tokens; !f.learn && (len(b.prompt) < 1 || len(b.prompt) > most) {
		return wrongUse("--prompt, --tokens: found a prompt of %d tokens, expected 1 to %d", len(b.prompt), most)
	}
	if b.exact, err = f.openHead(ctx, m, exactHead); err != nil {
		return err
	}
	defer f.closes(nil, b.exact)
	if f.fast {
		if b.preview, err = f.openHead(ctx, m, previewHead); err != nil {
			return err
		}
		defer f.closes(nil, b.preview)
		f.say("head: %s\n", f.named(previewHead))
	}
	if f.screen != "" || f.learn {
		if b.screen, err = f.openHead(ctx, m, f.kind()); err != nil {
			return err
		}
		defer f.closes(nil, b.screen)
	}
	if b.own, err = newPlain(m, size, 512, threads[0]); err != nil {
		return err
	}
	defer b.own.close()
	if f.learn {
		return f.runLearn(ctx, b, content, *picture, *rounds, *asJSON)
	}
	p := f.progress()
	defer p.Close()
	var rows []row
	var failed error
	for i, t := range threads {
		if i > 0 && t == threads[0] {
			break
		}
		if err := b.setThreads(t); err != nil {
			return err
		}
		list, err := b.racers(chosen)
		if err != nil {
			return err
		}
		p.Start("bench, "+threadsOf(t), "percent", len(list)*(*rounds+1))
		if failed = b.run(ctx, list, *rounds, func(r *racer, turns int) {
			p.Part(r.name())
			p.Set(turns)
		}); failed != nil {
			break
		}
		p.EndWith(fmt.Sprintf("rounds: %d, of %d tokens for each of %d lines", *rounds, *n, len(list)))
		rows = append(rows, b.rows(list, t)...)
	}
	p.Close()
	if failed != nil && len(rows) == 0 {
		return failed
	} else if failed != nil {
		f.say("bench: not all was measured: the lines are of %s alone\n", threadsOf(threads[0]))
	}
	return cmp.Or(failed, f.writeRows(m, rows, threads[0], *asJSON))
}

// writeRows writes the measurements; threads is the first number of threads.
func (f *flags) writeRows(m *llamacpp.Model, rows []row, threads int, asJSON bool) error {
	stdout, gains := f.stdout, gainsOf(rows)
	if asJSON {
		return writeJSON(stdout, m, rows, threads, gains, f.preview, f.budget)
	}
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "threads\ttask\thead\ttokens/s\tus\tleast to largest\tspeedup\tprompt tokens/s")
	for _, r := range rows {
		speedup := ""
		if r.Speedup > 0 {
			speedup = fmt.Sprintf("%.2f", r.Speedup)
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%.1f\t%.0f\t%.0f to %.0f\t%s\t%.0f\n", r.Threads, r.Task, r.Head, r.TokensPerSecond, r.Microseconds, r.Least, r.Largest, speedup, r.PromptTokensPerSecond)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, g := range gains {
		fmt.Fprint(stdout, g.text(f.measured()))
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		one, _, _ := strings.Cut(string(load), " ")
		f.say("load of the machine in the last minute: %s on %d cores\n", one, runtime.NumCPU())
	}
	return nil
}

// writeJSON writes all rows, and as heads the rows of the first task with the first number of
// threads.
func writeJSON(w io.Writer, m *llamacpp.Model, rows []row, threads int, gains []gain, p *preview.Model, budget float64) error {
	type precision struct {
		preview.Rung
		K       int `json:"k"` // of precision_k
		HeldOut int `json:"held_out_states"`
		Own     int `json:"own_states"`
	}
	var of *precision
	if p != nil {
		of = &precision{Rung: engine.Rung(p, budget)}
		of.K, of.HeldOut = p.RungsOf()
		of.Own = p.OwnStates()
	}
	var heads []row
	first := ""
	for _, r := range rows {
		if r.Task == "none" || r.Head == "none" || r.Threads != threads {
			continue
		}
		if first == "" {
			first = r.Task
		}
		if r.Task == first {
			heads = append(heads, r)
		}
	}
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(struct {
		Model        string `json:"model"`
		Architecture string `json:"architecture"`
		Labels       int    `json:"labels"`
		Dim          int    `json:"dim"`
		Heads        []row  `json:"heads"`
		Rows         []row  `json:"rows"`

		Gains   []gain     `json:"gains,omitempty"`
		Preview *precision `json:"preview,omitempty"`
	}{m.Path(), m.Architecture(), m.Labels(), m.Dim(), heads, rows, gains, of})
}

// gain has the gain of a preview in a task: over llama.cpp, and compared with no head at all.
type gain struct {
	Threads   int     `json:"threads"`
	Task      string  `json:"task"`
	HeadShare float64 `json:"head_share"` // of the time of a token of llama.cpp
	Most      float64 `json:"most"`       // times llama.cpp's tokens per second, without a head
	Preview   float64 `json:"preview"`    // the same, by the preview
	OfMost    float64 `json:"of_most"`
	Exact     float64 `json:"exact"` // the same, by the exact head

	apart bool // no round of the exact head was slower than a round of the preview
}

// text describes the gain in a line or two, with the precision of the preview.
func (g gain) text(precision string) string {
	where := threadsOf(g.Threads) + ", " + g.Task
	if !(g.Most > 1) {
		return where + ": a token without a head took as long as one of llama.cpp: other programs use the CPUs, or --rounds is too small to measure\n"
	}
	const noise = 1.1                               // of medians on an idle machine
	if g.OfMost > noise || g.Exact > noise*g.Most { // no head can be faster than none
		return fmt.Sprintf("%s: a token with a head took less time than a token without one: the rounds differ by more than the heads, and these figures say nothing; measure on an idle machine, or with more --rounds\n", where)
	}
	text := fmt.Sprintf("%s: the head takes %.0f%% of the time of a token of llama.cpp: a head that takes no time makes it %.2f times as fast, and the preview %.2f times, which is %.0f%% of that, at a measured %s\n",
		where, 100*g.HeadShare, g.Most, g.Preview, 100*min(g.OfMost, 1), precision)
	if g.Exact > g.Preview {
		why := "by less than rounds differ"
		if g.apart {
			why = "in each round"
		}
		text += fmt.Sprintf("%s: the exact head is faster than the preview, %s: it is %.2f times as fast as llama.cpp\n", where, why, g.Exact)
	}
	return text
}

func gainsOf(rows []row) (gains []gain) {
	for _, p := range rows {
		if p.Head != "preview" {
			continue
		}
		var own, none float64
		var exact row
		for _, r := range rows {
			switch {
			case r.Threads != p.Threads:
			case r.Head == "llama.cpp" && r.Task == p.Task:
				own = r.Microseconds
			case r.Head == "exact" && r.Task == p.Task:
				exact = r
			case r.Head == "none" && (r.Task == p.Task || r.Task == "none" && none == 0):
				none = r.Microseconds
			}
		}
		gains = append(gains, gain{p.Threads, p.Task, 1 - none/own, own / none, own / p.Microseconds, none / p.Microseconds, own / exact.Microseconds, exact.Largest < p.Least})
	}
	return gains
}

func argmax(x []float32) int {
	best := 0
	for i := range x {
		if x[i] > x[best] {
			best = i
		}
	}
	return best
}

// small is a heap of the best logits, the least first.
type small []struct {
	id    int
	logit float32
}

func (s small) Len() int           { return len(s) }
func (s small) Less(i, j int) bool { return s[i].logit < s[j].logit }
func (s small) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *small) Push(x any)        { panic("not pushed") }
func (s *small) Pop() any          { panic("not popped") }

// bestByHeap finds the k best tokens and their log-probabilities as services do that have all
// logits, and returns the best token.
func bestByHeap(logits []float32, k int) uint32 {
	s := make(small, 0, k)
	largest := float32(math.Inf(-1))
	for i, x := range logits {
		largest = max(largest, x)
		if len(s) < k {
			if s = append(s, struct {
				id    int
				logit float32
			}{i, x}); len(s) == k {
				heap.Init(&s)
			}
		} else if x > s[0].logit {
			s[0].id, s[0].logit = i, x
			heap.Fix(&s, 0)
		}
	}
	sum := 0.0
	for _, x := range logits {
		sum += math.Exp(float64(x - largest))
	}
	logZ := float64(largest) + math.Log(sum)
	best := s[0]
	for _, c := range s {
		if float64(c.logit)-logZ > float64(best.logit)-logZ {
			best = c
		}
	}
	return uint32(best.id)
}

// drawAll draws from all logits.
func drawAll(logits []float32, temperature, u float64) uint32 {
	largest := logits[argmax(logits)]
	sum := 0.0
	for _, x := range logits {
		sum += math.Exp(float64(x-largest) / temperature)
	}
	u *= sum
	for i, x := range logits {
		if u -= math.Exp(float64(x-largest) / temperature); u < 0 {
			return uint32(i)
		}
	}
	return uint32(argmax(logits))
}
