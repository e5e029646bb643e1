//go:build unix

package main

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

// kills is the number of processes that a test kills: L2S_KILLS, or a few.
func kills(t *testing.T, few int) int {
	t.Helper()
	text := os.Getenv("L2S_KILLS")
	if text == "" {
		return few
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("L2S_KILLS: found %q, expected a number of at least 1", text)
	}
	return n
}

// A training is killed at random times, and the same command runs again, many times. The screen at
// its destination is always the old one, the screen of a run left alone, or absent. In the end it
// is the screen of a run left alone.
func TestTrainSurvivesAKill(t *testing.T) {
	simdtest.Long(t)
	t.Parallel()
	dir := files(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	train := joined(goodTrain, options(t, `{"iterations": 12}`))
	start := time.Now()
	succeed(t, dir, joined(train, "--out", "want.l2s")...)
	whole := time.Since(start)
	want := string(readFile(t, in("want.l2s")))
	const old = "precious"
	before := slices.Sorted(maps.Keys(contentOf(t, dir)))

	r := rand.New(rand.NewPCG(4, 5))
	n := kills(t, 25)
	killed, finished, resumed := 0, 0, 0
	for killed < n || resumed == 0 {
		// A new run: over an old file, or none.
		expected := map[string]bool{want: true}
		if finished%2 == 0 {
			writeFile(t, in("out.l2s"), []byte(old))
			expected[old] = true
		}
		for done := false; !done; {
			if _, err := os.Stat(in("out.l2s.partial")); err == nil {
				resumed++
			}
			cmd := command(t, dir, train...)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			timer := time.AfterFunc(time.Duration(r.Int64N(int64(whole)*6/5)), func() { cmd.Process.Kill() })
			err := cmd.Wait()
			timer.Stop()
			// Kills follow the speed of the machine, which other work may change: about as many runs
			// are killed as come to their end.
			switch code := cmd.ProcessState.ExitCode(); code {
			case 0:
				done = true
				finished++
				whole = max(whole*9/10, time.Millisecond)
			case -1:
				killed++
				whole = whole*10/9 + 1
			default:
				t.Fatalf("found exit status %d (%v), expected an end or a kill; standard error:\n%s", code, err, stderr.String())
			}
			got, err := os.ReadFile(in("out.l2s"))
			switch {
			case err != nil && (done || expected[old]):
				t.Fatalf("found no screen (%v)", err)
			case err == nil && !expected[string(got)], done && string(got) != want:
				t.Fatalf("found a screen of %d bytes that is neither the old one nor the one of a run left alone", len(got))
			}
			for _, name := range listFolder(t, dir) {
				// The files of a killed run are gone at the end of the next run.
				left := strings.HasPrefix(name, "out.l2s.partial") || strings.HasPrefix(name, ".out.l2s.") && strings.Contains(name, ".tmp-") || name == ".out.l2s.partial.lock"
				if !slices.Contains(before, name) && name != "out.l2s" && !(left && !done) {
					t.Errorf("found the file %s, done: %v", name, done)
				}
			}
		}
		os.Remove(in("out.l2s"))
	}
	t.Logf("%d kills, %d runs went on from a checkpoint, %d came to their end", killed, resumed, finished)
}

// The command copies the layer, so that its file may be cut off while training runs. The contexts
// may be larger than memory and are read from their file: if it is cut off, the run returns an
// error and writes nothing.
func TestInputsThatAreCutOffWhileTraining(t *testing.T) {
	for _, c := range []struct {
		names []string
		gone  string
	}{{[]string{"W.npy", "b.npy"}, ""}, {[]string{"H.npy"}, "l2s train: H.npy: found memory that cannot be read any more"}} {
		t.Run(strings.Join(c.names, " "), func(t *testing.T) { trainWhileCut(t, c.names, c.gone) })
	}
}

func trainWhileCut(t *testing.T, names []string, gone string) {
	t.Parallel()
	dir := files(t)
	long := joined(goodTrain, options(t, `{"iterations": 6}`))
	succeed(t, dir, joined(long, "--out", "want.l2s")...)
	cmd := command(t, dir, long...)
	release := hold(t, cmd, "alternation 0")
	cut := false
	stderr := &watcher{part: "alternation 0", call: func() {
		cut = true
		for _, name := range names {
			if err := os.Truncate(filepath.Join(dir, name), 1); err != nil {
				t.Error(err)
			}
		}
		release()
	}}
	cmd.Stderr = stderr
	err := cmd.Run()
	if !cut {
		t.Error("the files were not cut")
	}
	if gone != "" {
		if text := stderr.text.String(); err == nil || !strings.Contains(text, gone) || strings.Contains(text, "goroutine") {
			t.Errorf("found %v, standard error:\n%s", err, text)
		}
		if _, err := os.Stat(filepath.Join(dir, "out.l2s")); err == nil {
			t.Error("a screen was written")
		}
		return
	}
	if err != nil {
		t.Fatalf("%v; standard error:\n%s", err, stderr.text.String())
	}
	if !bytes.Equal(readFile(t, filepath.Join(dir, "out.l2s")), readFile(t, filepath.Join(dir, "want.l2s"))) {
		t.Error("found another screen")
	}
}
