package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/command/cmdline"
	l2sengine "github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/previewing"
	"github.com/learning-to-screen/l2s/llamacpp"
	"github.com/learning-to-screen/l2s/llamacpp/internal/engine"
)

const benchUsage = `
l2s-llama bench --model M.gguf [--fast] [--screen M.l2s] [flags]
l2s-llama bench --model M.gguf --learn --text FILE --tokens 5000 --rounds 30 [--svg FILE] [flags]

Measures tokens per second with llama.cpp's own head and sampler, with the exact head, with a
preview (--fast, see generate -h) and with a screen, in turns on one model, warmed up: with one
thread and with all, unless --threads is given. A time is the median over the rounds of the mean per
token, with the least and the largest, and for the heads of l2s the model's part and the head's; a
speedup is over llama.cpp. A line whose round takes 10 times as long as with fewer threads, or as
llama.cpp's, stops there and has no speedup. After an interrupt bench prints the lines of the
numbers of threads that are complete. The head "none" is llama.cpp without a head;
"read" reads the bytes of the head's rows once and no more: no exact head can take less time. Tasks:
  greedy    the best token
  sampled   temperature 0.8, top-k 40, top-p 0.95, each by its own sampler
  logprobs  the best 20 tokens and their log-probabilities; a preview estimates the sum
  decision  the logits of 3 tokens
  allowed   a draw among 200 tokens
  draft     4 tokens in one batch, and the best token after each
  json      texts by a JSON schema of ten fields; llama.cpp judges tokens as its server does
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
	Model                 float64 `json:"model_microseconds,omitempty"` // up to the head; the heads of l2s
	HeadTime              float64 `json:"head_microseconds,omitempty"`
	Stopped               bool    `json:"stopped,omitempty"` // a round was hopeless: there is no speedup
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
	model         time.Duration // of the steps so far: of the model up to its head
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

// hopeless is the number of times as long as before that a round may take: with more threads than
// with fewer, and as llama.cpp's round of the same task. Threads that wait for CPUs which other
// programs use, and for each other, take hundreds of times as long.
const hopeless = 10

// run lets all racers write their tokens, in turns; told gets the progress. A racer whose round is
// hopeless stops within it, and has no more turns.
func (b *bench) run(ctx context.Context, list []*racer, rounds int, told func(r *racer, turns int)) error {
	last, turns := b.prompt[len(b.prompt)-1], 0
	for round := range rounds + 1 { // the first warms up
		for i := range list {
			r := list[(i+round)%len(list)]
			if err := ctx.Err(); err != nil {
				return err
			}
			told(r, turns)
			if turns++; r.stopped {
				continue
			}
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
			prompt, most := time.Since(start), r.most(list)
			if r.begin != nil {
				r.begin()
			}
			id, n := last, 0
			for start, b.model = time.Now(), 0; n < b.tokens && !r.stopped; n++ {
				if id, err = r.step(id); err != nil {
					return fmt.Errorf("%s, %s: %w", r.task, r.head, err)
				}
				r.stopped = most > 0 && time.Since(start) > most*time.Duration(b.tokens)
			}
			each := turn{prompt, time.Since(start) / time.Duration(n), b.model / time.Duration(n)}
			if r.warm = each; round > 0 || r.stopped {
				r.turns = append(r.turns, each)
			}
		}
	}
	return nil
}

// most is the longest time of a step that is not hopeless, 0 if nothing tells.
func (r *racer) most(list []*racer) time.Duration {
	before := r.before
	if before == 0 && r.head != "llama.cpp" {
		for _, own := range list {
			if own.task == r.task && own.head == "llama.cpp" && !own.stopped {
				before = own.warm.step
			}
		}
	}
	return hopeless * before
}

// median returns the times that of gives for the turns, in order, and the middle one.
func (r *racer) median(of func(turn) time.Duration) (all []time.Duration, middle time.Duration) {
	for _, t := range r.turns {
		all = append(all, of(t))
	}
	slices.Sort(all)
	return all, all[len(all)/2]
}

func micros(t time.Duration) float64 { return float64(t.Nanoseconds()) / 1e3 }

func (b *bench) rows(list []*racer, threads int) []row {
	rows := make([]row, len(list))
	own := map[string]float64{}
	for i, r := range list {
		all, t := r.median(func(t turn) time.Duration { return t.step })
		_, prompt := r.median(func(t turn) time.Duration { return t.prompt })
		rows[i] = row{Task: r.task, Head: r.head, Threads: threads, Microseconds: micros(t), Stopped: r.stopped,
			Least: micros(all[0]), Largest: micros(all[len(all)-1]),
			TokensPerSecond:       float64(r.per) / t.Seconds(),
			PromptTokensPerSecond: float64(len(b.prompt)) / prompt.Seconds()}
		if r.hooked {
			_, model := r.median(func(t turn) time.Duration { return t.model })
			_, head := r.median(func(t turn) time.Duration { return t.step - t.model })
			rows[i].Model, rows[i].HeadTime = micros(model), micros(head)
		}
		if r.head == "llama.cpp" && !r.stopped {
			own[r.task] = rows[i].Microseconds
		}
	}
	for i, r := range rows {
		if t := own[r.Task]; t > 0 && !r.Stopped {
			rows[i].Speedup = t / r.Microseconds
		}
	}
	return rows
}

func parseTasks(list string) ([]string, error) {
	if list == "all" {
		return allTasks(), nil
	}
	tasks := strings.Split(list, ",")
	for i, task := range tasks {
		if !slices.Contains(allTasks(), task) {
			return nil, wrongUse("--tasks: found %q, expected some of %s, or all", task, strings.Join(allTasks(), ","))
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
	if err := f.checkOutputs(ctx, []cmdline.Output{{Flag: "--svg", Path: *picture}, {Flag: "--learned", Path: f.learned}}); err != nil {
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
	var before []*racer // with fewer threads
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
		for i := range before {
			_, list[i].before = before[i].median(func(t turn) time.Duration { return t.step })
		}
		before = list
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
	fmt.Fprintln(w, "threads\ttask\thead\ttokens/s\tus\tleast to largest\tmodel us\thead us\tspeedup\tprompt tokens/s")
	for _, r := range rows {
		speedup, model, head := "", "", ""
		switch {
		case r.Stopped:
			speedup = "stopped"
		case r.Speedup > 0:
			speedup = fmt.Sprintf("%.2f", r.Speedup)
		}
		if r.Model > 0 {
			model, head = fmt.Sprintf("%.0f", r.Model), fmt.Sprintf("%.0f", r.HeadTime)
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%.1f\t%.0f\t%.0f to %.0f\t%s\t%s\t%s\t%.0f\n", r.Threads, r.Task, r.Head, r.TokensPerSecond, r.Microseconds, r.Least, r.Largest, model, head, speedup, r.PromptTokensPerSecond)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if slices.ContainsFunc(rows, func(r row) bool { return r.Stopped }) {
		f.say("lines that are stopped: a round took more than %d times as long as with fewer threads, or as llama.cpp's; the threads wait for CPUs that other programs use, and for each other: --threads N, one per idle CPU, is faster\n", hopeless)
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
func writeJSON(w io.Writer, m *llamacpp.Model, rows []row, threads int, gains []gain, p *l2s.Index, budget float64) error {
	type precision struct {
		previewing.Rung
		K       int `json:"k"` // of precision_k
		HeldOut int `json:"held_out_states"`
		Own     int `json:"own_states"`
	}
	var of *precision
	if p != nil {
		of = &precision{Rung: engine.Rung(p, budget)}
		of.K, of.HeldOut = p.Measured()
		of.Own = (*l2sengine.Index)(p).Preview().Parts().Own
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
		CPU          string `json:"cpu"`
		Model        string `json:"model"`
		Architecture string `json:"architecture"`
		Labels       int    `json:"labels"`
		Dim          int    `json:"dim"`
		Heads        []row  `json:"heads"`
		Rows         []row  `json:"rows"`

		Gains   []gain     `json:"gains,omitempty"`
		Preview *precision `json:"preview,omitempty"`
	}{cmdline.CPU(), m.Path(), m.Architecture(), m.Labels(), m.Dim(), heads, rows, gains, of})
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
		if p.Stopped {
			continue
		}
		var own, none float64
		var exact row
		for _, r := range rows {
			switch {
			case r.Threads != p.Threads || r.Stopped:
			case r.Head == "llama.cpp" && r.Task == p.Task:
				own = r.Microseconds
			case r.Head == "exact" && r.Task == p.Task:
				exact = r
			case r.Head == "none" && (r.Task == p.Task || r.Task == "none" && none == 0):
				none = r.Microseconds
			}
		}
		if own == 0 || none == 0 || exact.Microseconds == 0 { // a line of which was stopped
			continue
		}
		gains = append(gains, gain{p.Threads, p.Task, 1 - none/own, own / none, own / p.Microseconds, none / p.Microseconds, own / exact.Microseconds, exact.Largest < p.Least})
	}
	return gains
}
