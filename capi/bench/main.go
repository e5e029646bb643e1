// Command bench prints the time of the CPU that a call takes beyond the same call in Go: from C through
// libl2s.so, and from Python through the package l2s. The three take turns in one run, over the same
// layer and contexts, and their answers must be equal bit for bit. It compares the least turns: what
// else runs on the same core doubles the time of any of them. It prints the throughput of two threads,
// too, per that of one, which needs two idle CPUs.
//
//	bench -c bin/capi/test -python bin/wheel/venv/bin/python [-head model.gguf -index m.l2p -contexts H.npy]
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"github.com/learning-to-screen/l2s/preview"
)

const (
	k      = 5
	batch  = 64
	mostOf = 4 * batch // contexts that are asked
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("bench: ")
	program := flag.String("c", "", "the `program` of test/test.c")
	python := flag.String("python", "", "the Python `program` of an environment with l2s")
	script := flag.String("script", "python/bench/calls.py", "the `file` that Python runs")
	head := flag.String("head", "", "the `source` of the layer: made up without it")
	index := flag.String("index", "", "the preview or screen `file` of it")
	contexts := flag.String("contexts", "", "the `file` of its contexts")
	rounds := flag.Int("rounds", 21, "the `number` of rounds, ten times as many where a call takes next to nothing")
	flag.Parse()
	folder, err := os.MkdirTemp("", "l2s-bench-")
	check(err)
	defer os.RemoveAll(folder)
	commands := map[string][]string{"C": {*program, "bench"}, "Python": {*python, *script}}
	for name, command := range commands {
		if command[0] == "" {
			delete(commands, name)
		}
	}

	one := subject{source: filepath.Join(folder, "one.npy"), dim: 1}
	check(tensorfile.WriteNPY(one.source, []float32{1}, 1, 1))
	one.contexts = slices.Repeat([]float32{1}, 64*mostOf) // so that a turn is long
	fmt.Println("a layer of one label with one number, where a search takes next to nothing:")
	one.measure(folder, commands, 10**rounds)

	real := subject{source: *head, index: *index}
	if *head == "" {
		real = madeUp(folder)
	} else {
		layer, err := l2s.Open(*head, l2s.OpenOptions{})
		check(err)
		h, err := l2s.OpenContexts(*contexts, layer.Dim())
		check(err)
		real.dim = layer.Dim()
		real.contexts = slices.Clone(h.Rows()[:min(len(h.Rows())/real.dim, mostOf)/batch*batch*real.dim])
	}
	fmt.Println()
	real.measure(folder, commands, *rounds)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// subject is a layer in a file, an index of it, and contexts.
type subject struct {
	source, index string
	dim           int
	contexts      []float32
}

// madeUp returns a layer of 60,000 x 256 with a preview: contexts are near rows, so that some label leads.
func madeUp(folder string) subject {
	const labels, states = 60_000, 4_000
	s := subject{source: filepath.Join(folder, "W.npy"), index: filepath.Join(folder, "m.l2p"), dim: 256}
	r := rand.New(rand.NewPCG(1, 1))
	w := make([]float32, labels*s.dim)
	for i := range w {
		w[i] = float32(r.NormFloat64())
	}
	h := make([]float32, 0, (states+mostOf)*s.dim)
	for range states + mostOf {
		for _, x := range w[r.IntN(labels)*s.dim:][:s.dim] {
			h = append(h, x+float32(0.3*r.NormFloat64()))
		}
	}
	check(tensorfile.WriteNPY(s.source, w, labels, s.dim))
	layer, err := l2s.New(l2s.Float32(w, s.dim), nil)
	check(err)
	x, err := preview.Make(context.Background(), layer, l2s.Float32(h[:states*s.dim], s.dim), preview.Options{})
	check(err)
	check(x.Save(s.index))
	s.contexts = h[states*s.dim:]
	return s
}

// A way answers commands: "one", each context by itself; "batches", 64 at a time; "threads N", N threads that
// ask all contexts one by one, each of them: the nanoseconds, of the CPU for the first two. "sum" is the hash of
// all answers.
type way func(command string) (answer uint64)

func (s subject) measure(folder string, commands map[string][]string, rounds int) {
	pool, layer := s.open()
	fmt.Println(layer)
	raw := filepath.Join(folder, "contexts.f32")
	f, err := os.Create(raw)
	check(err)
	check(binary.Write(f, binary.LittleEndian, s.contexts))
	check(f.Close())
	names, ways := []string{"Go"}, map[string]way{"Go": s.inGo(pool, min(k, layer.Labels()))}
	for _, name := range []string{"C", "Python"} {
		if command := commands[name]; command != nil {
			ask, end := child(append(slices.Clone(command), s.source, s.index, raw, fmt.Sprint(s.dim), fmt.Sprint(min(k, layer.Labels()))))
			defer end()
			names, ways[name] = append(names, name), ask
		}
	}
	want := ways["Go"]("sum")
	for _, name := range names {
		if got := ways[name]("sum"); got != want {
			log.Fatalf("%s: found the hash %x of the answers, expected that of Go, %x", name, got, want)
		}
	}
	n := float64(len(s.contexts) / s.dim)
	found := map[string][]float64{}
	commanded := []string{"one", "batches"}
	if layer.Labels() > 1 {
		commanded = append(commanded, "threads 1", "threads 2")
	}
	for range rounds {
		for _, command := range commanded {
			for _, name := range names {
				found[name+command] = append(found[name+command], float64(ways[name](command))/n/1000)
			}
		}
	}
	for _, command := range []string{"one", "batches"} {
		least := func(name string) float64 { return slices.Min(found[name+command]) }
		fmt.Printf("%s: Go %.2f us a context", map[string]string{"one": "one context a call", "batches": "64 contexts a call"}[command], least("Go"))
		for _, name := range names[1:] {
			more, ratio := []float64{}, []float64{}
			for i, x := range found[name+command] {
				more, ratio = append(more, x-found["Go"+command][i]), append(ratio, x/found["Go"+command][i])
			}
			fmt.Printf("; %s %+.2f (median %+.2f), times %.3f (%.3f)", name, least(name)-least("Go"), quartiles(more)[1], least(name)/least("Go"), quartiles(ratio)[1])
		}
		fmt.Println()
	}
	if layer.Labels() == 1 { // its calls are shorter than the start of a thread
		return
	}
	fmt.Print("two threads, throughput per that of one:")
	for _, name := range names {
		ratio := []float64{}
		for i, x := range found[name+"threads 2"] {
			ratio = append(ratio, 2*found[name+"threads 1"][i]/x) // each thread asks all contexts
		}
		q := quartiles(ratio)
		fmt.Printf(" %s %.2f (%.2f to %.2f)", name, q[1], q[0], q[2])
	}
	fmt.Println()
}

func (s subject) open() (*l2s.Pool, *l2s.Layer) {
	layer, err := l2s.Open(s.source, l2s.OpenOptions{})
	check(err)
	var x *l2s.Index
	if s.index != "" {
		x, err = l2s.Load(s.index)
		check(err)
	}
	pool, err := l2s.NewPool(layer, x, l2s.Options{})
	check(err)
	return pool, layer
}

// inGo answers by the library of Go.
func (s subject) inGo(pool *l2s.Pool, most int) way {
	n := len(s.contexts) / s.dim
	ones := func(dst []l2s.Prediction) {
		for i := range n {
			_, err := pool.TopK(dst[i*most:][:most], s.contexts[i*s.dim:][:s.dim])
			check(err)
		}
	}
	batches := func(dst []l2s.Prediction) {
		answers := make([]l2s.Answer, batch)
		for i := 0; i < n; i += batch {
			check(pool.SearchBatch(dst[i*most:][:batch*most], answers, s.contexts[i*s.dim:][:batch*s.dim], l2s.Request{}))
		}
	}
	return func(command string) uint64 {
		dst := make([]l2s.Prediction, n*most)
		begin, cpu := time.Now(), ofTheCPU()
		switch command {
		case "one":
			ones(dst)
			return ofTheCPU() - cpu
		case "batches":
			batches(dst)
			return ofTheCPU() - cpu
		case "threads 1", "threads 2":
			var threads sync.WaitGroup
			for range command[len("threads ")] - '0' {
				threads.Go(func() { ones(make([]l2s.Prediction, n*most)) })
			}
			threads.Wait()
		case "sum":
			sum := fnv.New64a()
			for _, ask := range []func([]l2s.Prediction){ones, batches} {
				ask(dst)
				for _, p := range dst {
					check(binary.Write(sum, binary.LittleEndian, int64(p.ID)))
					check(binary.Write(sum, binary.LittleEndian, p.Logit))
				}
			}
			return sum.Sum64()
		}
		return uint64(time.Since(begin))
	}
}

// ofTheCPU is the time that this process has had of the CPU, in nanoseconds.
func ofTheCPU() uint64 {
	var use syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &use))
	return uint64(use.Utime.Nano() + use.Stime.Nano())
}

// child starts a program that reads commands, a line each, and writes their answers, a line each. end ends it.
func child(command []string) (ask way, end func()) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	to, err := cmd.StdinPipe()
	check(err)
	from, err := cmd.StdoutPipe()
	check(err)
	check(cmd.Start())
	lines := bufio.NewReader(from)
	ask = func(command string) (answer uint64) {
		_, err := io.WriteString(to, command+"\n")
		check(err)
		line, err := lines.ReadString('\n')
		if err != nil {
			log.Fatalf("%s: found its end after %q: %v", cmd, command, cmd.Wait())
		}
		_, err = fmt.Sscan(line, &answer)
		check(err)
		return answer
	}
	return ask, func() {
		to.Close()
		check(cmd.Wait())
	}
}

func quartiles(x []float64) [3]float64 {
	x = slices.Sorted(slices.Values(x))
	return [3]float64{x[len(x)/4], x[len(x)/2], x[3*len(x)/4]}
}
