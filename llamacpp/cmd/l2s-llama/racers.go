package main

import (
	"container/heap"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hybridgroup/yzma/pkg/llama"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	l2sengine "github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/watch/timing"
	"github.com/learning-to-screen/l2s/llamacpp"
	"github.com/learning-to-screen/l2s/sample"
)

// racer writes tokens by one method: step feeds a token and returns the next one.
type racer struct {
	task, head string
	hooked     bool   // it runs on the model with the hook
	begin      func() // of a round; may be nil
	step       func(id uint32) (uint32, error)
	per        int           // tokens a step
	before     time.Duration // a step of it with fewer threads, 0 if there is none
	warm       turn          // the last one
	turns      []turn        // of the rounds that count
	stopped    bool          // in a hopeless round, the last of turns
}

// turn has the time of a racer's prompt in a round, of a step, and of the model's part of a step.
type turn struct{ prompt, step, model time.Duration }

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

// lineup is the racers of some tasks, and what they share.
type lineup struct {
	b       *bench
	heads   []namedHead
	some    []uint32 // tokens from all over the vocabulary
	allowed *bitset.Set
	list    []*racer
}

type namedHead struct {
	name string
	x    *llamacpp.Head
}

// tasks are the tasks of --tasks: each adds its racers.
var tasks = []struct {
	name string
	add  func(*lineup) error
}{
	{"greedy", (*lineup).greedy}, {"sampled", (*lineup).sampled}, {"logprobs", (*lineup).logprobs},
	{"decision", (*lineup).decision}, {"allowed", (*lineup).among}, {"draft", (*lineup).draft},
	{"json", (*lineup).json},
}

func allTasks() (names []string) {
	for _, t := range tasks {
		names = append(names, t.name)
	}
	return names
}

func (l *lineup) add(task, head string, hooked bool, step func(uint32) (uint32, error)) {
	l.list = append(l.list, &racer{task: task, head: head, hooked: hooked, step: step, per: 1})
}

// racers returns the racers of some tasks.
func (b *bench) racers(names []string) ([]*racer, error) {
	l := &lineup{b: b, heads: []namedHead{{"exact", b.exact}}, some: make([]uint32, 200)}
	if b.preview != nil {
		l.heads = append(l.heads, namedHead{"preview", b.preview})
	}
	if b.screen != nil {
		l.heads = append(l.heads, namedHead{"screen", b.screen})
	}
	labels := min(b.exact.Labels(), b.own.labels)
	for i := range l.some {
		l.some[i] = uint32(i * labels / len(l.some))
	}
	var err error
	if l.allowed, err = bitset.FromIDs(b.exact.Labels(), slices.Compact(slices.Clone(l.some))); err != nil {
		return nil, err
	}
	// Each task also has the time of llama.cpp without its head.
	l.add("none", "none", true, b.with(func([]float32) (uint32, error) { return b.prompt[0], nil }))
	l.add("none", "read", true, b.with(func([]float32) (uint32, error) { return b.prompt[0], b.read() }))
	for _, name := range names {
		at := slices.Index(allTasks(), name)
		if at < 0 {
			return nil, fmt.Errorf("found no task %q", name)
		}
		if err := tasks[at].add(l); err != nil {
			return nil, err
		}
	}
	return l.list, nil
}

// greedy: the best token.
func (l *lineup) greedy() error {
	greedy := llama.SamplerChainInit(llama.SamplerChainDefaultParams())
	llama.SamplerChainAdd(greedy, llama.SamplerInitGreedy())
	l.add("greedy", "llama.cpp", false, l.b.sampled(greedy))
	for _, h := range l.heads {
		var best [1]l2s.Prediction
		l.add("greedy", h.name, true, l.b.with(func(state []float32) (uint32, error) {
			_, err := h.x.Search(best[:], state, l2s.Request{})
			return best[0].ID, err
		}))
	}
	return nil
}

// sampled: draws, each by its own sampler.
func (l *lineup) sampled() error {
	chain := llama.SamplerChainInit(llama.SamplerChainDefaultParams())
	for _, s := range []llama.Sampler{llama.SamplerInitTopK(40), llama.SamplerInitTopP(0.95, 1), llama.SamplerInitTemp(0.8), llama.SamplerInitDist(1)} {
		llama.SamplerChainAdd(chain, s)
	}
	l.add("sampled", "llama.cpp", false, l.b.sampled(chain))
	for _, h := range l.heads {
		o := sample.DefaultOptions()
		o.Temperature, o.TopK, o.TopP, o.Seed = 0.8, 40, 0.95, 1
		draws, err := h.x.Sampler(o)
		if err != nil {
			return err
		}
		l.add("sampled", h.name, true, l.b.with(func(state []float32) (uint32, error) {
			t, err := draws.Draw(state, sample.Edits{})
			return t.ID, err
		}))
	}
	return nil
}

// logprobs: the best 20 tokens and their log-probabilities.
func (l *lineup) logprobs() error {
	l.add("logprobs", "llama.cpp", false, l.b.looked(func(logits []float32) (uint32, error) { return bestByHeap(logits, 20), nil }))
	for _, h := range l.heads {
		best := make([]llamacpp.Choice, 20)
		l.add("logprobs", h.name, true, l.b.with(func(state []float32) (uint32, error) {
			_, _, err := h.x.Best(best, state, l2s.Request{})
			return best[0].ID, err
		}))
	}
	return nil
}

// decision: the best of 3 tokens, by their logits.
func (l *lineup) decision() error {
	ids := l.some[50:53]
	l.add("decision", "llama.cpp", false, l.b.looked(func(logits []float32) (uint32, error) {
		best := ids[0]
		for _, id := range ids {
			if logits[id] > logits[best] {
				best = id
			}
		}
		return best, nil
	}))
	logits := make([]float64, len(ids))
	l.add("decision", "exact", true, l.b.with(func(state []float32) (uint32, error) {
		err := l.b.exact.Logits(logits, state, ids...)
		best := 0
		for i := range ids {
			if logits[i] > logits[best] {
				best = i
			}
		}
		return ids[best], err
	}))
	return nil
}

// among: a draw among 200 tokens.
func (l *lineup) among() error {
	random := rand.New(rand.NewPCG(1, 1))
	l.add("allowed", "llama.cpp", false, l.b.looked(func(logits []float32) (uint32, error) {
		for i := range logits { // a grammar's mask
			if !l.allowed.Has(uint32(i)) {
				logits[i] = float32(math.Inf(-1))
			}
		}
		return drawAll(logits, 0.8, random.Float64()), nil
	}))
	o := sample.DefaultOptions()
	o.Temperature, o.TopK, o.Seed = 0.8, len(l.some), 1
	draws, err := l.b.exact.Sampler(o)
	if err != nil {
		return err
	}
	l.add("allowed", "exact", true, l.b.with(func(state []float32) (uint32, error) {
		t, err := draws.Draw(state, sample.Edits{Allowed: l.allowed})
		return t.ID, err
	}))
	return nil
}

// draft: 4 tokens in one batch, and the best token after each.
func (l *lineup) draft() error {
	const n = 4
	l.add("draft", "llama.cpp", false, func(id uint32) (uint32, error) {
		if err := l.b.own.feed(n, id, id, id, id); err != nil {
			return 0, err
		}
		for i := range n {
			logits, err := l.b.own.logits(i)
			if err != nil {
				return 0, err
			}
			id = uint32(argmax(logits))
		}
		return id, nil
	})
	for _, h := range l.heads {
		best, answers := make([]l2s.Prediction, n), make([]l2s.Answer, n)
		l.add("draft", h.name, true, func(id uint32) (uint32, error) {
			t := llamacpp.Token{ID: id, State: true}
			states, err := l.b.decode(t, t, t, t)
			if err != nil {
				return 0, err
			}
			err = h.x.SearchBatch(best, answers, states, l2s.Request{})
			return best[n-1].ID, err
		})
	}
	l.add("draft", "none", true, func(id uint32) (uint32, error) {
		t := llamacpp.Token{ID: id, State: true}
		_, err := l.b.decode(t, t, t, t)
		return id, err
	})
	for _, r := range l.list {
		if r.task == "draft" {
			r.per = n
		}
	}
	return nil
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
		start := time.Now()
		h, err := b.m.Feed(context.Background(), 0, id)
		if b.model += time.Since(start); err != nil {
			return 0, err
		}
		return f(h)
	}
}

// decode is the model up to its head for several tokens.
func (b *bench) decode(t ...llamacpp.Token) ([]float32, error) {
	start := time.Now()
	states, err := b.m.Decode(context.Background(), t...)
	b.model += time.Since(start)
	return states, err
}

// read reads the rows of the head once, on the threads of the model.
func (b *bench) read() error {
	layer := (*l2sengine.Layer)(b.exact.Layer())
	return layer.Read(func() error {
		kernels.Advise(layer.Exact().Weights(), func(rows []byte) {
			const part = 1 << 20
			var next atomic.Int64
			b.m.Lend(b.threads, func(int) {
				for end := int(next.Add(part)); end-part < len(rows); end = int(next.Add(part)) {
					timing.ReadMemory(rows[end-part : min(end, len(rows))])
				}
			})
		})
		return nil
	})
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
