//go:build unix

package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"github.com/learning-to-screen/l2s/internal/ground/progress"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

// watcher is a standard error that calls a function once its text has a
// given part.
type watcher struct {
	text strings.Builder
	part string
	call func()
}

func (w *watcher) Write(b []byte) (int, error) {
	n, err := w.text.Write(b)
	if w.call != nil && strings.Contains(w.text.String(), w.part) {
		w.call()
		w.call = nil
	}
	return n, err
}

// noiseIn writes contexts to noise.npy that no screen serves well, so that learning continues to
// its limit and an alternation takes long.
func noiseIn(t *testing.T, dir string) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	x := make([]float32, 1<<15*tinyDim)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	if err := tensorfile.WriteNPY(filepath.Join(dir, "noise.npy"), x, len(x)/tinyDim, tinyDim); err != nil {
		t.Fatal(err)
	}
}

// An interrupt ends the long verbs at once: exit status 130, one line that reports it, and in the
// folder only the earlier files and the state of a run of training.
func TestInterrupt(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		// The sign that the work is under way: a part of the output, or a temporary file.
		said, file string
	}{
		{"train", joined(goodTrain, "--contexts", "noise.npy", options(t, `{"iterations": 1000000}`)), "P@1", ""},
		{"labels", joined(goodLabels, "--contexts", "many.npy", "--k", "300", "--threads", "1"), "", ".out.labels.tmp-"},
	} {
		signals := []os.Signal{os.Interrupt} // which all verbs handle in one place
		if c.name == "train" {
			signals = append(signals, syscall.SIGTERM, syscall.SIGHUP)
		}
		for _, sent := range signals {
			t.Run(c.name+": "+sent.String(), func(t *testing.T) {
				t.Parallel()
				if signal.Ignored(sent) {
					t.Skip("the tests were started with this signal switched off, as by nohup, and so is the command")
				}
				dir := files(t)
				out := slices.IndexFunc(c.args, func(s string) bool { return s == "--out" || s == "--png" })
				writeFile(t, filepath.Join(dir, c.args[out+1]), []byte("precious"))
				if c.name == "labels" {
					matrixIn("many.npy", 1<<18, tinyDim)(t, dir)
				}
				if c.name == "train" {
					noiseIn(t, dir)
				}
				before := contentOf(t, dir)
				cmd := command(t, dir, c.args...)
				interrupt := func() { cmd.Process.Signal(sent) }
				stderr := &watcher{part: c.said}
				if c.said != "" {
					stderr.call = interrupt
					hold(t, cmd, c.said)
				}
				cmd.Stderr = stderr
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				if c.file != "" {
					begun := func(name string) bool { return strings.HasPrefix(name, c.file) }
					for wait := 0; !slices.ContainsFunc(listFolder(t, dir), begun); wait++ {
						if wait == 6000 {
							t.Error("found no temporary file after a minute")
							break
						}
						time.Sleep(10 * time.Millisecond)
					}
					interrupt()
				}
				err := cmd.Wait()
				if code := cmd.ProcessState.ExitCode(); code != 130 {
					t.Errorf("found exit status %d (%v), expected 130; standard error:\n%s", code, err, stderr.text.String())
				}
				if !strings.Contains(stderr.text.String(), "l2s "+c.name+": interrupted") {
					t.Errorf("found no word of the interrupt on standard error:\n%s", stderr.text.String())
				}
				after := contentOf(t, dir)
				if c.name == "train" {
					if !strings.Contains(stderr.text.String(), "out.l2s.partial keeps the work so far") {
						t.Errorf("found no word of the state of the run on standard error:\n%s", stderr.text.String())
					}
					for _, kept := range []string{"out.l2s.partial", "out.l2s.partial-labels"} {
						if after[kept] == "" {
							t.Errorf("found no %s, expected the state of the run", kept)
						}
						delete(after, kept)
					}
				}
				if !maps.Equal(before, after) {
					t.Errorf("found the files %v afterwards, expected those from before, unchanged", listFolder(t, dir))
				}
			})
		}
	}
}

// A signal that the caller has switched off, as nohup does and as shells do for background
// processes, does not end a run.
func TestSignalsThatAreSwitchedOff(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("no shell here")
	}
	for _, c := range []struct {
		name   string
		signal os.Signal
	}{{"HUP", syscall.SIGHUP}, {"INT", os.Interrupt}} {
		t.Run(c.name, func(t *testing.T) {
			dir := files(t)
			cmd := command(t, dir, goodTrain...)
			script := exec.Command("sh", append([]string{"-c", `trap "" ` + c.name + `; exec "$0" "$@"`}, cmd.Args...)...)
			release := hold(t, cmd, "k-means")
			script.Dir, script.Env = cmd.Dir, cmd.Env
			stderr := &watcher{part: "k-means", call: func() {
				if err := script.Process.Signal(c.signal); err != nil {
					t.Error(err)
				}
				release()
			}}
			script.Stderr = stderr
			err := script.Run()
			if stderr.call != nil || err != nil {
				t.Errorf("found %v, signal sent: %v, expected that the run ends well; standard error:\n%s", err, stderr.call == nil, stderr.text.String())
			}
		})
	}
}

// An interrupt while cold queries are measured keeps the times of warm queries, which are printed.
func TestInterruptedColdQueriesLeaveTheOthers(t *testing.T) {
	simdtest.Long(t)
	dir := files(t)
	cmd := command(t, dir, joined(goodBench, "--quiet=false", "--json", "--cold", "64")...)
	hold(t, cmd, "bench: 30 rounds")
	var stdout strings.Builder
	stderr := &watcher{part: "bench: 30 rounds", call: func() { cmd.Process.Signal(os.Interrupt) }}
	cmd.Stdout, cmd.Stderr = &stdout, stderr
	err := cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != 130 || !strings.HasSuffix(stderr.text.String(), "interrupted; the times of --cold from 64 on and of the steps are missing\n") {
		t.Errorf("found %v and\n%sexpected exit status 130 and the missing text", err, stderr.text.String())
	}
	o := parseObject(t, stdout.String())
	if text := fmt.Sprint(o["warnings"]); !strings.Contains(text, "from 64 on and of the steps are missing") {
		t.Errorf("found the warnings %s, expected the missing ones", text)
	}
	if us := number(t, o, "dense_f32_us"); us <= 0 {
		t.Errorf("found %v us of a dense scan, expected the times of warm caches", us)
	}
}

// After an interrupt of topk standard output has whole lines, and the message gives their number.
func TestInterruptedTopKSaysWhatIsThere(t *testing.T) {
	dir := files(t)
	matrixIn("many.npy", 1<<18, tinyDim)(t, dir)
	cmd := command(t, dir, joined(goodTopK, "--contexts", "many.npy")...)
	stdout := &watcher{part: "\n", call: func() { cmd.Process.Signal(os.Interrupt) }}
	var stderr strings.Builder
	cmd.Stdout, cmd.Stderr = stdout, &stderr
	if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != 130 {
		t.Fatalf("found %v, expected exit status 130; standard error:\n%s", err, stderr.String())
	}
	lines := strings.Count(stdout.text.String(), "\n")
	want := fmt.Sprintf("l2s topk: interrupted; standard output has the answers to the first %s of 262,144 contexts\n", progress.Count(lines))
	if stderr.String() != want || !strings.HasSuffix(stdout.text.String(), "\n") {
		t.Errorf("found %d lines on standard output and\n%sexpected\n%s", lines, stderr.String(), want)
	}
}

// After an interrupt the same command continues, writes the same file as without an interrupt, and
// leaves nothing else.
func TestTrainContinuesAfterAnInterrupt(t *testing.T) {
	dir := files(t)
	noiseIn(t, dir)
	in := func(name string) string { return filepath.Join(dir, name) }
	long := joined(goodTrain, "--contexts", "noise.npy", options(t, `{"iterations": 40}`))
	succeed(t, dir, joined(long, "--out", "want.l2s")...)
	if _, err := os.Stat(in("want.l2s.partial")); err == nil {
		t.Error("found the state of a run that has ended, expected none")
	}
	stop := func(part string) {
		cmd := command(t, dir, long...)
		hold(t, cmd, part)
		stderr := &watcher{part: part, call: func() { cmd.Process.Signal(os.Interrupt) }}
		cmd.Stderr = stderr
		if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != 130 {
			t.Fatalf("found %v, expected exit status 130; standard error:\n%s", err, stderr.text.String())
		}
	}
	stop("alternation 2 of 40")
	stop("alternation 5 of 40")

	before := contentOf(t, dir)
	for want, wrong := range map[string][]string{
		"remove out.l2s.partial and out.l2s.partial-labels to start anew": joined(long, "--contexts", "H.npy"),
		"W.npy: magic: found": joined(long, "--labels", "W.npy"),
		"b.npy: shape: found": joined(long, "--validation", "b.npy"),
	} {
		r := invoke(t, dir, wrong...)
		if after := contentOf(t, dir); r.code != 1 || !strings.Contains(r.stderr, want) || !maps.Equal(before, after) {
			t.Errorf("found exit status %d and the files %v, expected 1, %q and the state as it was; standard error:\n%s", r.code, listFolder(t, dir), want, r.stderr)
		}
	}
	r := invoke(t, dir, long...)
	if r.code != 0 || strings.Contains(r.stderr, "labels: ") || strings.Contains(r.stderr, "k-means: ") {
		t.Fatalf("found exit status %d and\n%s", r.code, r.stderr)
	}
	if string(readFile(t, in("out.l2s"))) != string(readFile(t, in("want.l2s"))) {
		t.Error("found another screen than a run makes that is not interrupted, expected the same")
	}
	// A run with other options takes the labels.
	writeFile(t, in("out.l2s.partial"), []byte(before["out.l2s.partial"]))
	writeFile(t, in("out.l2s.partial-labels"), []byte(before["out.l2s.partial-labels"]))
	r = invoke(t, dir, joined(long, options(t, `{"iterations": 40, "seed": 9}`))...)
	if r.code != 0 || !strings.Contains(r.stderr, "its labels are kept") || strings.Contains(r.stderr, "labels: ") || !strings.Contains(r.stderr, "k-means: ") {
		t.Errorf("other options: found exit status %d and\n%s", r.code, r.stderr)
	}
	for _, name := range listFolder(t, dir) {
		if strings.Contains(name, "partial") {
			t.Errorf("found %s, expected it removed", name)
		}
	}
}

// A second training with the same output is refused while the first one runs, and does not disturb
// it: an interrupt still keeps the work of the first.
func TestASecondTrainingOfOneScreen(t *testing.T) {
	simdtest.Long(t)
	needLocks(t)
	dir := files(t)
	noiseIn(t, dir)
	long := joined(goodTrain, "--contexts", "noise.npy", options(t, `{"iterations": 1000000}`))
	cmd := command(t, dir, long...)
	hold(t, cmd, "P@1")
	stderr := &watcher{part: "P@1", call: func() {
		for name, args := range map[string][]string{
			"the same": long, "another": joined(goodTrain, "--budget", "20"),
		} {
			r := invoke(t, dir, args...)
			want := "l2s " + args[0] + ": out.l2s.partial: found another run that works on it, expected none: wait for its end, or give another --out\n"
			if r.code != 1 || !strings.HasSuffix(r.stderr, want) {
				t.Errorf("%s: found exit status %d and %q, expected 1 and %q", name, r.code, r.stderr, want)
			}
		}
		cmd.Process.Signal(os.Interrupt)
	}}
	cmd.Stderr = stderr
	err := cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != 130 || stderr.call != nil {
		t.Errorf("found exit status %d (%v), expected 130; standard error:\n%s", code, err, stderr.text.String())
	}
	for _, name := range []string{"out.l2s.partial", "out.l2s.partial-labels"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Errorf("found no %s (%v), expected the state of the first run", name, err)
		}
	}
	if names := listFolder(t, dir); slices.Contains(names, ".out.l2s.partial.lock") {
		t.Errorf("found the files %v, expected no lock", names)
	}
}

// needLocks skips a test where the system has no locks.
func needLocks(t *testing.T) {
	t.Helper()
	switch runtime.GOOS {
	case "darwin", "dragonfly", "freebsd", "linux", "netbsd", "openbsd":
	default:
		t.Skip("no locks here")
	}
}

// A verb that waits for the other end of a pipe, or for data from it, ends with the first
// interrupt.
func TestInterruptWhileWaitingForAPipe(t *testing.T) {
	dir := files(t)
	t.Chdir(dir)
	fifo := func() string {
		name := "pipe"
		os.Remove(name)
		if err := syscall.Mkfifo(name, 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for _, c := range []struct {
		name string
		args []string
	}{
		{"inspect", []string{"inspect", "pipe"}},
		{"eval: the screen", joined("eval", "pipe", testArgs())},
		{"topk: the vocabulary", joined("topk", "m.l2s", testArgs(), "--vocab", "pipe")},
	} {
		for _, connected := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, connected: %v", c.name, connected), func(t *testing.T) {
				name := fifo()
				before := contentOf(t, dir)
				ctx, interrupt := context.WithCancel(t.Context())
				defer interrupt()
				var stdout, stderr strings.Builder
				code := make(chan int)
				go func() { code <- run(ctx, c.args, &stdout, &stderr) }()
				if connected {
					// This waits until the other end is open. Nothing is ever written.
					w, err := os.OpenFile(name, os.O_WRONLY, 0)
					if err != nil {
						t.Fatal(err)
					}
					defer w.Close()
				} else {
					time.Sleep(20 * time.Millisecond) // long enough to wait, mostly
				}
				interrupt()
				select {
				case code := <-code:
					if code != 130 || !strings.Contains(stderr.String(), ": interrupted; nothing was written") {
						t.Errorf("found exit status %d and %q, expected 130 and that it was interrupted", code, stderr.String())
					}
				case <-time.After(time.Minute):
					t.Fatal("found that it still waits a minute after the interrupt")
				}
				if after := contentOf(t, dir); !maps.Equal(before, after) {
					t.Errorf("found the files %v afterwards, expected those from before, unchanged", listFolder(t, dir))
				}
			})
		}
	}
}

// The size of a file of labels is checked: a pipe in its place is refused, not
// waited for.
func TestLabelsFromAPipe(t *testing.T) {
	dir := files(t)
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"merge", "--out", "out.labels", "pipe"}, joined(goodTrain, "--labels", "pipe")} {
		r := invoke(t, dir, args...)
		if want := "l2s " + args[0] + ": pipe: found a device or a pipe, expected a regular file\n"; r.code != 1 || r.stderr != want {
			t.Errorf("found exit status %d and %q, expected 1 and %q", r.code, r.stderr, want)
		}
	}
}

// For a run that has learned, inspect tells which alternation it has kept.
func TestInspectSaysWhichAlternationIsKept(t *testing.T) {
	simdtest.Long(t)
	dir := files(t)
	noiseIn(t, dir)
	succeed(t, dir, joined(goodTrain, "--contexts", "noise.npy", options(t, `{"iterations": 4}`))...)
	kept := number(t, object(t, dir, "inspect", "out.l2s", "--json"), "record", "learning", "best")
	text := succeed(t, dir, "inspect", "out.l2s")
	if kept < 1 || kept > 4 || !strings.Contains(text, fmt.Sprintf(" the vectors after %v of 4 alternations\n", kept)) {
		t.Errorf("found alternation %v of 4 kept, and\n%s", kept, text)
	}
}
