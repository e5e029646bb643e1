//go:build unix

package learn

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/train"
)

// A process that learns, keeps its screen, gives it up and learns again without end is killed at
// some moment, again and again. Its file is absent, or has a screen that the next start tries.
func TestKeepingSurvivesAKill(t *testing.T) {
	const inChild = "L2S_TEST_KEEPS"
	if path := os.Getenv(inChild); path != "" {
		keepWithoutEnd(t, path)
	}
	n := 4
	if text := os.Getenv("L2S_KILLS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 {
			t.Fatalf("L2S_KILLS: found %q, expected a number of at least 1", text)
		}
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "m.l2s")
	var absent, kept int
	for i := range n {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestKeepingSurvivesAKill$")
		cmd.Env = append(os.Environ(), inChild+"="+path)
		if err := cmd.Start(); errors.Is(err, syscall.ENOEXEC) {
			t.Skip("an emulated program cannot start itself")
		} else if err != nil {
			t.Fatal(err)
		}
		for wait := 0; wait < 120_000 && !exists(path); wait++ { // it may be slow to begin
			time.Sleep(time.Millisecond / 2)
		}
		time.Sleep(time.Duration(rand.IntN(40_000)) * time.Microsecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		if cmd.ProcessState.Exited() {
			t.Fatalf("kill %d: the process ended of itself: %v", i, cmd.ProcessState)
		}
		events := make(chan Event, 1000)
		o := testOptions(events)
		o.Keep = path
		there := exists(path)
		l := newTest(t, testData().Layer, o)
		told := false
		if there {
			select {
			case e := <-events:
				told = e.Kind == tried && strings.Contains(e.Text, path)
			case <-time.After(time.Minute):
			}
		}
		if l.Screened() || told != there || len(events) > 0 {
			t.Errorf("kill %d: found a file: %t, a screen that answers before its trial: %t, a trial of it: %t, %d other events", i, there, l.Screened(), told, len(events))
		}
		if absent++; there {
			absent, kept = absent-1, kept+1
		}
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if f.Name() != "m.l2s" && !strings.HasPrefix(f.Name(), ".m.l2s.tmp-") {
				t.Errorf("found %s", f.Name())
			}
			os.Remove(filepath.Join(dir, f.Name()))
		}
	}
	t.Logf("%d kills: the file was whole %d times, absent %d times", n, kept, absent)
	if n >= 50 && (kept == 0 || absent == 0) {
		t.Error("no kill left a screen, or none left none: the test has not tested")
	}
}

// keepWithoutEnd has a learner keep a screen, which took one training, and give it up, in turns.
func keepWithoutEnd(t *testing.T, path string) {
	events := make(chan Event, 1000)
	o := testOptions(events)
	o.Keep, o.Least = path, 1000
	l, err := newLearner(testData().Layer, o)
	if err != nil {
		t.Fatal(err)
	}
	var m *l2s.Index
	learned := l.run
	l.run = func(ctx context.Context, s sample, o train.Options) (_ *l2s.Index, err error) {
		if m == nil {
			m, err = learned(ctx, s, o)
		}
		return m, err
	}
	if err := l.begin(); err != nil {
		t.Fatal(err)
	}
	top, h := make([]l2s.Prediction, 5), make([]float32, testDim)
	for i := 0; ; i++ {
		copy(h, testData().Context(i%testData().Len()))
		h[0] *= 1 + 1e-3*rand.Float32() // so that no context comes twice
		if l.Screened() {
			slices.Reverse(h) // contexts that the screen does not know
		}
		if _, err := l.TopK(top, h); err != nil {
			t.Fatal(err)
		}
		for len(events) > 0 {
			<-events
		}
	}
}
