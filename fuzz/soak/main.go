// Command soak runs the parts that answer, and attacks on them, for long and at the same time: a
// head that learns under traffic that changes and is meant to spoil it, its audit, tails of
// contexts of other lengths, the example service under slow and odd clients while its files are
// swapped, libl2s.so under threads in C that open, search, swap and close, the commands while they are killed, a disk that is full, and, if a model and llama.cpp's
// libraries are there, the bridge and its server. Every answer is compared with one by the definition or the exact
// layer. It ends with the exit status 1 if an answer was wrong, a file torn, a process ended in a
// wrong way, or memory grew. make soak builds the programs that it starts.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"github.com/learning-to-screen/l2s/internal/tests/synthetic"
)

const (
	labels, dim, topics = 3000, 32, 20
	trained, asked      = 20000, 4000 // contexts
)

// soak is the state that the parts share.
type soak struct {
	dir, bin   string
	gguf, lib  string
	data       *synthetic.Data
	long       bool
	faults     atomic.Int64
	mu         sync.Mutex
	counts     map[string]int64
	steadyHeap int64 // bytes, at a quarter of the time
}

// part runs until ctx ends. It reports faults by soak.fault.
type part struct {
	name string
	run  func(ctx context.Context, s *soak) error
}

var parts = []part{{"learner", learner}, {"tail", tails}, {"service", service}, {"kills", kills}, {"disk", disk}, {"library", library}, {"bridge", bridge}, {"server", server}}

func main() {
	var s soak
	length := flag.Duration("time", time.Hour, "how `long`")
	only := flag.String("only", "", "the `parts` to run, with commas between them; all if it is empty")
	flag.StringVar(&s.bin, "bin", "", "the `folder` with l2s, serve and l2s-llama")
	flag.StringVar(&s.gguf, "gguf", "", "a `model` for the bridge")
	flag.StringVar(&s.lib, "lib", os.Getenv("YZMA_LIB"), "the `folder` of llama.cpp's libraries")
	flag.Parse()
	s.long = *length >= 10*time.Minute
	s.counts = map[string]int64{}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := s.prepare(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
	s.all(ctx, *length, *only)
	os.RemoveAll(s.dir)
	if n := s.faults.Load(); n > 0 {
		fmt.Printf("soak: %d faults\n", n)
		os.Exit(1)
	}
	fmt.Println("soak: no wrong answer, no growth, no file torn")
}

func (s *soak) fault(format string, args ...any) {
	if n := s.faults.Add(1); n < 50 {
		fmt.Printf("FAULT: "+format+"\n", args...)
	}
}

func (s *soak) count(what string, n int) {
	s.mu.Lock()
	s.counts[what] += int64(n)
	s.mu.Unlock()
}

// prepare makes a layer, contexts and two screens of them.
func (s *soak) prepare(ctx context.Context) (err error) {
	if s.dir, err = os.MkdirTemp("", "l2s-soak-"); err != nil {
		return err
	}
	s.data = synthetic.Structured(labels, dim, topics, trained+asked, 1)
	w := make([]float32, labels*dim)
	for i := range labels {
		s.data.Exact.Weights().Widen(w[i*dim:(i+1)*dim], i)
	}
	bias := make([]float32, labels)
	for i := range bias {
		bias[i] = s.data.Exact.Bias()[i]
	}
	for name, x := range map[string][]float32{"W.npy": w, "train.npy": s.data.Contexts[:trained*dim], "half.npy": s.data.Contexts[:trained*dim/2]} {
		if err := tensorfile.WriteNPY(s.path(name), x, len(x)/dim, dim); err != nil {
			return err
		}
	}
	if err := tensorfile.WriteNPY(s.path("b.npy"), bias, labels); err != nil {
		return err
	}
	for name, contexts := range map[string]string{"a.l2s": "train.npy", "b.l2s": "half.npy"} {
		if text, err := s.train(ctx, name, contexts).CombinedOutput(); err != nil {
			return fmt.Errorf("l2s train: %w: %s", err, text)
		}
	}
	return nil
}

func (s *soak) path(name string) string { return filepath.Join(s.dir, name) }

func (s *soak) program(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, filepath.Join(s.bin, name), args...)
}

func (s *soak) train(ctx context.Context, out, contexts string) *exec.Cmd {
	if !filepath.IsAbs(out) {
		out = s.path(out)
	}
	return s.program(ctx, "l2s", "train", "--quiet", "--weights", s.path("W.npy"), "--bias", s.path("b.npy"), "--contexts", s.path(contexts), "--threads", "1", "--out", out)
}

// h returns a context outside all trainings, slightly changed.
func (s *soak) h(i int) []float32 {
	h := slices.Clone(s.data.Context(trained + i%asked))
	for j := range h {
		h[j] *= 1 + 1e-3*rand.Float32()
	}
	return h
}

func (s *soak) load(name string) (*l2s.Index, error) { return l2s.Load(s.path(name)) }

// all runs the parts side by side.
func (s *soak) all(ctx context.Context, length time.Duration, only string) {
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	begin := time.Now()
	var wait sync.WaitGroup
	for _, p := range parts {
		if only != "" && !slices.Contains(strings.Split(only, ","), p.name) {
			continue
		}
		wait.Go(func() {
			if err := p.run(ctx, s); err != nil && ctx.Err() == nil {
				s.fault("%s: %v", p.name, err)
			}
		})
	}
	ended := make(chan struct{})
	go func() { wait.Wait(); close(ended) }()
	tick := time.NewTicker(length / 8)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ended:
			s.tell(begin)
			return
		case <-tick.C:
			runtime.GC()
			debug.FreeOSMemory()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			const slack = 48 << 20 // for the contents of a learner within its bytes, and for clients
			if heap := int64(m.HeapAlloc); n == 2 {
				s.steadyHeap = heap
			} else if n > 2 && heap > s.steadyHeap+slack {
				s.fault("memory: found %d MiB of the heap in use, %d MiB at a quarter of the time", heap>>20, s.steadyHeap>>20)
			}
			s.tell(begin)
		}
	}
}

func (s *soak) tell(begin time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name := range s.counts {
		names = append(names, name)
	}
	slices.Sort(names)
	fmt.Printf("%s, %d faults:", time.Since(begin).Round(time.Second), s.faults.Load())
	for _, name := range names {
		fmt.Printf(" %s %d;", name, s.counts[name])
	}
	fmt.Println()
}

// ended reports how a program that was not killed has ended: its exit status, or an error if a
// signal or the run time ended it.
func ended(err error, output []byte) (code int, bad error) {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case !errors.As(err, &exit):
		return 0, err
	case !exit.Exited() || exit.ExitCode() > 2 && exit.ExitCode() != 130 || strings.Contains(string(output), "goroutine "):
		return 0, fmt.Errorf("%w: %.2000s", err, output)
	}
	return exit.ExitCode(), nil
}
