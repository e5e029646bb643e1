package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

// A run reports its decisions while it works, and in the file: the form of the screen, which the
// contexts decide, and the budget, which the target decides.
func TestTrainSaysWhatItDecides(t *testing.T) {
	simdtest.Long(t)
	dir := files(t)
	plain := joined("train", testArgs(), "--out", "x.l2s")
	r := invoke(t, dir, plain...)
	inspected := succeed(t, dir, "inspect", "x.l2s")
	for _, want := range []string{"24 clusters, 50 contexts in each, found by k-means alone: training the vectors helps from 1,000 contexts in each on\n", "budget "} {
		expectIn(t, r.stderr, want)
		expectIn(t, inspected, "                "+want)
	}
	o := object(t, dir, joined(plain, "--json")...)
	if number(t, o, "clusters") != 24 || len(o["decisions"].([]any)) != 2 {
		t.Errorf("found %v, expected 24 clusters and 2 decisions", o)
	}
	o = object(t, dir, joined(plain, "--options", "options.json", "--json")...)
	if o["decisions"] != nil {
		t.Errorf("found the decisions %v, expected none of a run that is told all", o["decisions"])
	}
	t.Run("few contexts", func(t *testing.T) {
		matrixIn("few.npy", 100, tinyDim)(t, dir)
		r := invoke(t, dir, joined("train", layerArgs(), "--contexts", "few.npy", "--out", "x.l2s")...)
		want := "100 contexts are few for 300 labels, 3000 are advised: "
		expectIn(t, r.stderr, "warning: "+want)
		r = invoke(t, dir, joined("train", layerArgs(), "--contexts", "few.npy", "--out", "x.l2s", "--quiet")...)
		expectIn(t, r.stderr, "l2s train: warning: x.l2s: "+want)
	})
	t.Run("a target that is missed by far", func(t *testing.T) {
		for name, shape := range map[string][]int{"W9.npy": {9000, 32}, "H9.npy": {1500, 32}} {
			random := rand.New(rand.NewPCG(1, uint64(shape[0])))
			x := make([]float32, shape[0]*shape[1])
			for i := range x {
				x[i] = float32(random.NormFloat64())
			}
			if err := tensorfile.WriteNPY(filepath.Join(dir, name), x, shape...); err != nil {
				t.Fatal(err)
			}
		}
		args := []string{"train", "--weights", "W9.npy", "--bias", "none", "--contexts", "H9.npy", "--out", "far.l2s"}
		r := invoke(t, dir, args...)
		if r.code != 1 || !strings.Contains(r.stderr, "l2s train: the target is missed by far: found P@1 0.") || !strings.Contains(r.stderr, "the same command with --any-precision keeps the screen, from the work in far.l2s.partial") {
			t.Fatalf("found exit status %d and %q", r.code, r.stderr)
		}
		if _, err := os.Stat(filepath.Join(dir, "far.l2s")); err == nil {
			t.Error("found a screen")
		}
		r = invoke(t, dir, joined(args, "--any-precision")...)
		if r.code != 0 || !strings.Contains(r.stderr, "warning: no budget reaches the target") || strings.Contains(r.stderr, "k-means: ") {
			t.Errorf("found exit status %d and %q, expected a warning, and no clusters anew", r.code, r.stderr)
		}
		for _, name := range []string{"far.l2s.partial", "far.l2s.partial-labels"} {
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
				t.Errorf("found %s after the end", name)
			}
		}
	})
	t.Run("a layer of three labels", func(t *testing.T) {
		matrixIn("W3.npy", 3, tinyDim)(t, dir)
		matrixIn("b3.npy", 3)(t, dir)
		o := object(t, dir, joined(plain, "--weights", "W3.npy", "--bias", "b3.npy", "--json")...)
		if number(t, o, "k") != 3 || number(t, o, "budget") != 3 {
			t.Errorf("found k %v and budget %v, expected 3 and 3", o["k"], o["budget"])
		}
	})
}

// Labels of every list come from the command line, from files of both kinds, and from
// the special tokens of a model; an id may be named several times.
func TestAlwaysFrom(t *testing.T) {
	simdtest.Long(t)
	dir := files(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	writeFile(t, at("ids.txt"), []byte("7, 0\n299\n7\t12\r\n"))
	if err := writeInt32s(at("ids.npy"), []int32{5, 299, 5}); err != nil {
		t.Fatal(err)
	}
	modelFolder(t, dir, "model")
	writeFile(t, filepath.Join(dir, "model", "tokenizer_config.json"), []byte(`{"added_tokens_decoder":{"2":{"special":true},"3":{"special":false},"100000":{"special":true}}}`))
	inModel := joined("train", "--head", "model", "--contexts", "H.npy", "--options", "options.json")
	inLayer := joined("train", trainArgs())
	for _, c := range []struct {
		name  string
		train []string
		value string
		want  []uint32
	}{
		{"a text file", inLayer, "@ids.txt", []uint32{0, 7, 12, 299}},
		{"an array", inLayer, "@ids.npy", []uint32{5, 299}},
		{"all together", inLayer, "9,@ids.npy,@ids.txt,7", []uint32{0, 5, 7, 9, 12, 299}},
		{"special tokens, without those that have no row", inModel, "specials", []uint32{2}},
		{"and others", inModel, "specials,4", []uint32{2, 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			succeed(t, dir, joined(c.train, "--always", c.value, "--out", "x.l2s")...)
			m, err := l2s.Load(at("x.l2s"))
			if err != nil {
				t.Fatal(err)
			}
			made := (*engine.Index)(m).Screen().Config()
			if always := made.Lists[0].IDs[:made.Always]; !slices.Equal(always, c.want) {
				t.Errorf("found always %v, expected %v", always, c.want)
			}
			for cell := range (*engine.Index)(m).Screen().Cells() {
				if list := (*engine.Index)(m).Screen().List(cell).IDs; !slices.Equal(list[:len(c.want)], c.want) {
					t.Errorf("found list %d with %v, expected %v at its head", cell, list, c.want)
				}
			}
		})
	}
}

// A request for more labels than a screen was trained for gives a note, only on standard error.
func TestNoteOfALargerK(t *testing.T) {
	simdtest.Long(t)
	dir := files(t)
	succeed(t, dir, joined("train", trainArgs(), options(t, `{"k": 3}`), "--out", "k3.l2s")...)
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"more by topk", joined("topk", "k3.l2s", testArgs(), "--k", "5"), "l2s topk: note: k3.l2s: the screen was trained for the 3 best labels and is asked for 5: one trained for 5 finds more of them\n"},
		{"more by eval", joined("eval", "k3.l2s", testArgs(), "--quiet"), "l2s eval: note: k3.l2s: the screen was trained for the 3 best labels and is asked for 5: one trained for 5 finds more of them\n"},
		{"fewer by eval", joined("eval", "k3.l2s", testArgs(), "--k", "1,2", "--quiet"), ""},
		{"fewer by bench", joined("bench", "k3.l2s", testArgs(), "--k", "1", "--quiet"), ""},
		{"the same by topk", joined("topk", "k3.l2s", testArgs(), "--k", "3"), ""},
		{"the same by eval", joined("eval", "k3.l2s", testArgs(), "--k", "1,3", "--quiet"), ""},
	} {
		r := invoke(t, dir, c.args...)
		if r.code != 0 || c.want == "" && r.stderr != "" || !strings.Contains(r.stderr, c.want) || strings.Contains(r.stdout, "note") {
			t.Errorf("%s: found exit status %d and %q on standard error, expected %q", c.name, r.code, r.stderr, c.want)
		}
	}
}

// With --quiet a verb without a note prints nothing on standard error, and its result is the same.
func TestQuiet(t *testing.T) {
	dir := files(t)
	for _, args := range [][]string{joined(goodTrain, "--budget", "40"), goodEval, goodTopK, {"inspect", "m.l2s"}, {"version"}} {
		loud, quiet := invoke(t, dir, joined(args, "--json")...), invoke(t, dir, joined(args, "--json", "--quiet")...)
		if loud.code != 0 || quiet.code != 0 || quiet.stderr != "" {
			t.Errorf("%s: found exit status %d and %d, and %q with --quiet, expected 0 and nothing", args[0], loud.code, quiet.code, quiet.stderr)
		}
		if args[0] == "train" {
			if loud.stderr == "" {
				t.Error("train: found nothing on standard error without --quiet, expected its progress")
			}
			continue // whose result has times
		}
		if quiet.stdout != loud.stdout {
			t.Errorf("%s: found another result with --quiet, expected the same", args[0])
		}
	}
}
