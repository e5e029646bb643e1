// Command instructions counts the instructions that a query executes on an arm64 with
// dot products, beside the count for plain Go. It needs no such CPU, no performance
// counters and no plugin: user-mode qemu logs each block of instructions when it is
// translated, with what it consists of, and each time that it is executed.
//
// The program builds itself for arm64, in the folder of benchmarks, and runs itself under
// scripts/qemu.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/learning-to-screen/l2s/internal/dense"
	"github.com/learning-to-screen/l2s/internal/synthetic"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// The layer is as wide as the layer of PTB-Small and shorter, since building it is
// emulated too; its candidate sets are as large.
const (
	labels, dim, clusters, candidates = 2000, 200, 100, 280
	k                                 = 5
	queries                           = 8
)

func main() {
	guest := flag.Bool("guest", false, "run the queries, as the emulated program")
	least := flag.Float64("least", 0, "fail if plain Go executes less than so many times the instructions")
	flag.Parse()
	run := host
	if *guest {
		run = func(float64) error { return ask() }
	}
	if err := run(*least); err != nil {
		fmt.Fprintln(os.Stderr, "instructions:", err)
		os.Exit(1)
	}
}

// forms are the queries that are counted.
var forms = []string{"screened", "exact", "dense float32 scan"}

//go:noinline
func mark() {}

// ask runs queries of each form between two marks, all of them on one thread.
func ask() error {
	runtime.LockOSThread()
	data := synthetic.Structured(labels, dim, clusters, queries, 1)
	model, err := data.Screen(candidates)
	if err != nil {
		return err
	}
	screened, err := screen.NewSearcher(model, data.Layer)
	if err != nil {
		return err
	}
	exact, scan, top := softmax.NewSearcher(data.Layer), dense.New(data.Layer), make([]softmax.Prediction, k)
	for _, form := range forms {
		query := func(h []float32) (err error) {
			switch form {
			case "screened":
				_, err = screened.TopK(top, h)
			case "exact":
				_, err = exact.TopK(top, h)
			default:
				scan.TopK(top, h)
			}
			return err
		}
		// The first query makes what the others use.
		if err := query(data.Context(0)); err != nil {
			return err
		}
		mark()
		for i := range queries {
			if err := query(data.Context(i)); err != nil {
				return err
			}
		}
		mark()
	}
	return nil
}

// cpu is the emulated CPU, and levels what its kernels run on.
const cpu = "neoverse-n1"

var levels = []string{"generic", "neondot"}

// host prints the instructions of each form on each level, as a table.
func host(least float64) error {
	dir, err := os.MkdirTemp("", "instructions")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program := filepath.Join(dir, "instructions")
	build := exec.Command("go", "build", "-o", program, "./instructions")
	build.Env = append(os.Environ(), "GOOS=linux", "GOARCH=arm64")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("building for arm64: %w", err)
	}
	counts := map[string][]int64{}
	for _, level := range levels {
		if counts[level], err = emulate(program, level); err != nil {
			return fmt.Errorf("level %s: %w", level, err)
		}
	}
	fmt.Printf("Instructions a query, %d x %d, r %d, %d candidates, k %d, qemu's %s:\n\n", labels, dim, clusters, candidates, k, cpu)
	fmt.Printf("| query | %s | ratio |\n|---|---:|---:|---:|\n", strings.Join(levels, " | "))
	var failed error
	for i, form := range forms {
		slow, fast := counts[levels[0]][i]/queries, counts[levels[1]][i]/queries
		ratio := float64(slow) / float64(fast)
		fmt.Printf("| %s | %d | %d | %.1f |\n", form, slow, fast, ratio)
		if ratio < least {
			failed = fmt.Errorf("%s: found %.1f times the instructions on %s, expected at least %g times", form, ratio, levels[0], least)
		}
	}
	return failed
}

// emulate runs the guest and returns the instructions between the marks of each form.
func emulate(program, level string) ([]int64, error) {
	log, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	// The log goes to descriptor 3.
	cmd := exec.Command("../scripts/qemu", "aarch64", "-cpu", cpu, "-d", "in_asm,exec,nochain", "-D", "/dev/fd/3", program, "-guest")
	cmd.Env = append(os.Environ(), "L2S_SIMD="+level, "GOGC=off", "GODEBUG=asyncpreemptoff=1")
	cmd.Stderr, cmd.ExtraFiles = os.Stderr, []*os.File{w}
	err = cmd.Start()
	_ = w.Close()
	if err != nil {
		return nil, err
	}
	between, err := count(log, "main.mark")
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return nil, err
	}
	if len(between) != 2*len(forms)-1 {
		return nil, fmt.Errorf("found %d spans between marks, expected %d", len(between), 2*len(forms)-1)
	}
	var sums []int64
	for i := 0; i < len(between); i += 2 {
		sums = append(sums, between[i])
	}
	return sums, nil
}

// count reads qemu's log and returns how many instructions are executed between one
// block of the function mark and the next, on the thread that executes them.
//
// A translated block is logged as
//
//	IN: function
//	0x00093490:  d65f03c0  ret
//
// with an empty line behind it, and each execution of it as
//
//	Trace 0: 0x7f6244b33d00 [.../0000000000093490/...] function
//
// where 0 is the thread.
func count(log io.Reader, mark string) (between []int64, err error) {
	sizes := map[string]int64{} // by the block's address
	sums := map[string]int64{}  // by thread, since its last mark
	marked := map[string]bool{} // threads that have executed mark
	var block string            // that is being listed
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "IN: "):
			block = "?"
		case block != "" && strings.HasPrefix(line, "0x"):
			at, _, _ := strings.Cut(line[2:], ":")
			at = strings.TrimLeft(at, "0")
			if block == "?" {
				block = at
				sizes[block] = 0
			}
			sizes[block]++
		case strings.HasPrefix(line, "Trace "):
			block = ""
			thread, rest, _ := strings.Cut(line, ":")
			parts := strings.SplitN(rest, "/", 3)
			_, function, ok := strings.Cut(rest, "] ")
			if len(parts) < 3 || !ok {
				return nil, fmt.Errorf("qemu's log: found %q, expected the trace of a block", line)
			}
			size := sizes[strings.TrimLeft(parts[1], "0")]
			if size == 0 {
				return nil, fmt.Errorf("qemu's log: found %q, expected a block that was listed", line)
			}
			if function == mark {
				if marked[thread] {
					between = append(between, sums[thread])
				}
				marked[thread], sums[thread] = true, 0
				continue
			}
			sums[thread] += size
		default:
			if line == "" {
				block = ""
			}
		}
	}
	return between, lines.Err()
}
