//go:build unix

package screening_test

import (
	"bytes"
	"errors"
	"io/fs"
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

	"github.com/learning-to-screen/l2s/internal/search/screening"
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

// savedModels returns two models of different sizes, large enough for several
// writes.
func savedModels(t *testing.T) [2]*screening.Model {
	t.Helper()
	var m [2]*screening.Model
	for i := range m {
		clusters := make([]float32, (64+i)*500)
		for j := range clusters {
			clusters[j] = float32((j+i)%17) - 8
		}
		lists := make([]screening.List, 64+i)
		for c := range lists {
			for id := range uint32(500) {
				lists[c].IDs = append(lists[c].IDs, 2*id+uint32(i))
			}
		}
		var err error
		if m[i], err = screening.NewModel(screening.Config{Dim: 500, Labels: 1001, Clusters: clusters, Lists: lists}); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// A process that saves one model over the other without end is killed at some moment, again and
// again. The file is one of the two, complete.
func TestSaveSurvivesAKill(t *testing.T) {
	const inChild = "L2S_TEST_SAVES"
	models := savedModels(t)
	if path := os.Getenv(inChild); path != "" {
		for i := 0; ; i++ {
			if err := models[i%2].Save(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := [2][]byte{encode(t, models[0]), encode(t, models[1])}
	dir := t.TempDir()
	path := filepath.Join(dir, "model.l2s")
	r := rand.New(rand.NewPCG(6, 7))
	n := kills(t, 25)
	var absent, saved, within int
	for i := range n {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestSaveSurvivesAKill$")
		cmd.Env = append(os.Environ(), inChild+"="+path)
		if err := cmd.Start(); errors.Is(err, syscall.ENOEXEC) {
			t.Skip("an emulated program cannot start itself")
		} else if err != nil {
			t.Fatal(err)
		}
		// Of four kills one comes after the process has begun to save, and one after it has saved,
		// also on a slow machine.
		awaited := map[int]func(name string) bool{
			0: func(name string) bool { return name != "model.l2s" }, 2: func(name string) bool { return name == "model.l2s" },
		}[i%4]
		for wait := 0; awaited != nil && wait < 120_000 && !slices.ContainsFunc(list(t, dir), awaited); wait++ {
			time.Sleep(time.Millisecond / 2)
		}
		time.Sleep(time.Duration(r.IntN(20_000)) * time.Microsecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		if cmd.ProcessState.Exited() {
			t.Fatalf("the process ended of itself: %v", cmd.ProcessState)
		}
		switch got, err := os.ReadFile(path); {
		case errors.Is(err, fs.ErrNotExist):
			absent++
		case err != nil:
			t.Fatal(err)
		case bytes.Equal(got, want[0]) || bytes.Equal(got, want[1]):
			saved++
			if _, err := load(path); err != nil {
				t.Error(err)
			}
			if r.IntN(4) == 0 { // the next starts without a file
				os.Remove(path)
			}
		default:
			t.Fatalf("found a file of %d bytes that is neither model", len(got))
		}
		for _, name := range list(t, dir) {
			if name != "model.l2s" {
				if !strings.HasPrefix(name, ".model.l2s.tmp-") {
					t.Errorf("found %s", name)
				}
				within++
				os.Remove(filepath.Join(dir, name))
			}
		}
	}
	t.Logf("%d kills, %d within a save: the file was whole %d times, absent %d times", n, within, saved, absent)
	if saved == 0 || within == 0 {
		t.Error("no kill came after or within a save: the test has not tested")
	}
}
