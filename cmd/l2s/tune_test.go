package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/tensorfile"
	"github.com/learning-to-screen/l2s/screen"
)

// tuneArgs are the arguments of a short choice on the shared files.
func tuneArgs() []string { return without(goodTune, "--out") }

func TestTune(t *testing.T) {
	notUnderRace(t)
	dir := files(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	before := contentOf(t, dir)
	o := object(t, dir, joined(tuneArgs(), "--target", "0.7", "--json")...)
	expectFields(t, o, "k", "target", "by", "contexts", "held_out", "labels", "dim", "trained", "screens", "recommended", "reached", "command", "dense_f32_us", "dense_f32_median_us", "seconds", "level")
	if number(t, o, "dense_f32_us") <= 0 || number(t, o, "dense_f32_median_us") <= 0 {
		t.Errorf("found %v and %v us for the dense scan, expected its times", o["dense_f32_us"], o["dense_f32_median_us"])
	}
	screens := o["screens"].([]any)
	if trained := number(t, o, "trained"); len(screens) == 0 || float64(len(screens)) > trained {
		t.Errorf("found %d screens of %v, expected some of them", len(screens), trained)
	}
	most, best := -1.0, o["recommended"].(map[string]any)
	for _, s := range screens {
		s := s.(map[string]any)
		expectFields(t, s, "clusters", "groups", "method", "probe_share", "budget", "flags", "precision", "deviation", "mean_candidates", "rows_scanned", "warm_us", "cold_us", "bytes", "frontier")
		precision := number(t, s, "precision", "5")
		if frontier := precision > most; s["frontier"] != frontier {
			t.Errorf("%v: found frontier %v with P@5 %v after %v, expected %v", s["flags"], s["frontier"], precision, most, frontier)
		}
		most = max(most, precision)
		if number(t, s, "warm_us") <= 0 || number(t, s, "cold_us") <= 0 || number(t, s, "rows_scanned") <= number(t, s, "mean_candidates") {
			t.Errorf("found the figures %v, expected times, and more rows than candidates", s)
		}
	}
	if o["reached"] != true || number(t, best, "precision", "5") < 0.7 {
		t.Errorf("found the recommendation %v, expected P@5 of at least 0.7", best)
	}
	if after := contentOf(t, dir); !maps.Equal(before, after) {
		t.Errorf("found the files %v, expected those from before: no screen was asked for", slices.Sorted(maps.Keys(after)))
	}

	t.Run("the screen is the one that its flags give", func(t *testing.T) {
		for _, args := range [][]string{
			joined(goodTune, "--target", "0.7"),
			joined(goodTune, "--target", "0.7", "--by", "cold", "--k", "3", "--seed", "4", "--always", "7,2", "--held-out", "0.15"),
			joined(goodTune, "--target", "0.7", "--kmeans-only", "--probe-share", "0.25", "--clusters", "2x3"),
		} {
			o := object(t, dir, joined(args, "--json")...)
			command := o["command"].(string)
			again := joined(strings.Fields(command)[1:], "--quiet") // no word needs quotes
			again[slices.Index(again, "--out")+1] = "again.l2s"
			succeed(t, dir, again...)
			if !bytes.Equal(readFile(t, at("out.l2s")), readFile(t, at("again.l2s"))) {
				t.Errorf("%v: found another screen with %s, expected the same bytes", args, command)
			}
			if info, err := os.Stat(at("out.l2s")); err != nil || float64(info.Size()) != number(t, o, "recommended", "bytes") {
				t.Errorf("found a file of %v bytes (%v), expected %v", info.Size(), err, number(t, o, "recommended", "bytes"))
			}
			if left, _ := filepath.Glob(at("out.l2s.partial*")); len(left) > 0 {
				t.Errorf("found %v after the end of a run, expected no state", left)
			}
		}
	})
	t.Run("labels from a file", func(t *testing.T) {
		succeed(t, dir, joined("labels", testArgs(), "--quiet", "--out", "T.labels")...)
		r := l2s(t, dir, joined(tuneArgs(), "--labels", "T.labels", "--kmeans-only", "--quiet=false", "--target", "0.7")...)
		if r.code != 0 || strings.Contains(r.stderr, "labels:") {
			t.Errorf("found exit status %d and\n%sexpected no labels to be found anew", r.code, r.stderr)
		}
		for _, want := range []string{"4: 2 budgets", "2x3: 2 budgets", "screens in "} {
			if !strings.Contains(r.stderr, want) {
				t.Errorf("found no %q in the progress\n%s", want, r.stderr)
			}
		}
		for _, want := range []string{"clusters ", "P@1", "P@5", "candidates", "rows", "warm", "cold", "bytes", "  l2s train --weights W.npy --bias b.npy --contexts T.npy --labels T.labels --clusters ", " --out tuned.l2s\n"} {
			if !strings.Contains(r.stdout, want) {
				t.Errorf("found no %q in the table\n%s", want, r.stdout)
			}
		}
	})
	t.Run("a budget that cannot hold the ids of --always", func(t *testing.T) {
		writeFile(t, at("ids.txt"), []byte("1 2 3 4 5 6 7"))
		r := l2s(t, dir, joined(tuneArgs(), "--budget", "6,40", "--always", "@ids.txt", "--kmeans-only", "--target", "0.3")...)
		if want := "l2s tune: note: --budget 6 is left out: it cannot hold 7 labels, by --k and --always\n"; r.code != 0 || !strings.Contains(r.stderr, want) {
			t.Errorf("found exit status %d and\n%sexpected %q", r.code, r.stderr, want)
		}
	})
	t.Run("a target that none reaches", func(t *testing.T) {
		os.Remove(at("out.l2s"))
		r := l2s(t, dir, joined(goodTune, "--target", "0.999999", "--kmeans-only")...)
		if r.code != 1 || !strings.Contains(r.stderr, "found no screen with P@5 of 0.999999 on held-out contexts") || !strings.Contains(r.stdout, "No screen reaches P@5 of 0.999999") {
			t.Errorf("found exit status %d, standard output\n%sand standard error\n%sexpected 1 and what to do", r.code, r.stdout, r.stderr)
		}
		if _, err := os.Stat(at("out.l2s")); err == nil {
			t.Error("found a screen, expected none that misses its target")
		}
		succeed(t, dir, joined(tuneArgs(), "--target", "0.999999", "--kmeans-only")...) // nothing was to be written
	})
}

// Screens take turns with as many others as fit the memory, in their order.
func TestTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bytes := rapid.SliceOfN(rapid.Int64Range(0, 12), 1, 20).Draw(t, "bytes")
		const most = 10
		lengths, at := together(bytes, most), 0
		for i, n := range lengths {
			sum := int64(0)
			for _, b := range bytes[at : at+n] {
				sum += b
			}
			if n < 1 || n > 1 && sum > most {
				t.Fatalf("%v: found %v, a run of %d with the sum %d", bytes, lengths, n, sum)
			}
			if at += n; i < len(lengths)-1 && sum+bytes[at] <= most {
				t.Fatalf("%v: found %v, expected one more in run %d", bytes, lengths, i)
			}
		}
		if at != len(bytes) {
			t.Fatalf("%v: found %v, expected all of them", bytes, lengths)
		}
	})
}

// The command that l2s tune prints names all sources, in quotes where a shell needs them.
func TestTrainCommandIsForAShell(t *testing.T) {
	for word, want := range map[string]string{
		"W.npy": "W.npy", "m.safetensors:decoder.weight": "m.safetensors:decoder.weight", "/data/x-1_2/W@3.npy": "/data/x-1_2/W@3.npy",
		"": "''", "my layer.npy": "'my layer.npy'", "it's.npy": `'it'\''s.npy'`, "a*b?.npy": "'a*b?.npy'", "$HOME/~": "'$HOME/~'", "größe.npy": "'größe.npy'", "a\\b": `'a\b'`,
	} {
		if got := shellQuoted(word); got != want {
			t.Errorf("%q: found %s, expected %s", word, got, want)
		}
	}
	text := func(s string) *string { return &s }
	none := text("")
	for _, c := range []struct {
		lf                    layerFlags
		contexts              []string
		labels, out, expected string
	}{
		{layerFlags{weights: text("W.npy"), bias: text("none"), head: none, ids: none}, []string{"a.npy", "b c.npy"}, "", "",
			"l2s train --weights W.npy --bias none --contexts a.npy --contexts 'b c.npy' --clusters 7 --out tuned.l2s"},
		{layerFlags{weights: none, bias: none, head: text("my model"), ids: text("ids.npy")}, []string{"-"}, "T.labels", "x y.l2s",
			"l2s train --head 'my model' --ids ids.npy --contexts - --labels T.labels --clusters 7 --out 'x y.l2s'"},
	} {
		if got := trainCommand(c.lf, c.contexts, c.labels, c.out, "--clusters 7"); got != c.expected {
			t.Errorf("found\n%s, expected\n%s", got, c.expected)
		}
	}
}

// l2s train --clusters auto and --budget auto are the same choice.
func TestTrainChooses(t *testing.T) {
	notUnderRace(t)
	dir := files(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, c := range []struct {
		name        string
		args        []string
		code        int
		want, chose string
	}{
		{"the budget", []string{"--clusters", "6", "--budget", "auto", "--target", "0.7"}, 0, "", "--clusters 6 --budget "},
		{"the clusters", []string{"--clusters", "auto", "--budget", "60", "--target", "0.7"}, 0, "", "--budget 60"},
		{"by cold times", []string{"--clusters", "auto", "--budget", "60", "--target", "0.7", "--by", "cold", "--kmeans-only"}, 0, "", "by the times with cold caches: "},
		{"the budget, with a tail", []string{"--clusters", "2x3", "--budget", "auto", "--target", "0.7", "--tail", "regression", "--kmeans-only", "--lambda", "0"}, 0, "", "--clusters 2x3 --budget "},
		{"for a target that none reaches", []string{"--clusters", "6", "--budget", "auto", "--target", "0.999999", "--geometry", "0"}, 1, "found no screen with P@5 of 0.999999", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			os.Remove(at("a.l2s"))
			r := l2s(t, dir, joined("train", testArgs(), c.args, "--iterations", "3", "--out", "a.l2s", "--json", "--quiet")...)
			if r.code != c.code || !strings.Contains(r.stderr, c.want) {
				t.Fatalf("found exit status %d and %q, expected %d and %q", r.code, r.stderr, c.code, c.want)
			}
			if left, _ := filepath.Glob(at("a.l2s.partial*")); len(left) > 0 {
				t.Errorf("found %v, expected no state of a run that has ended", left)
			}
			if c.code != 0 {
				if _, err := os.Stat(at("a.l2s")); err == nil {
					t.Error("found a screen, expected none")
				}
				return
			}
			o := parseObject(t, r.stdout)
			chosen := fmt.Sprint(o["chosen"])
			if !strings.Contains(chosen, c.chose) || !strings.Contains(chosen, "the fastest of ") {
				t.Errorf("found the choice %s, expected %q and why", chosen, c.chose)
			}
			if p := number(t, o, "held_out", "precision", "5"); p < 0.7 {
				t.Errorf("found P@5 %v on held-out contexts, expected at least 0.7", p)
			}
			m, err := screen.Load(at("a.l2s"))
			if err != nil {
				t.Fatal(err)
			}
			if tail := slices.Contains(c.args, "--tail"); (m.Regression() != nil) != tail {
				t.Errorf("found a regression: %v, expected %v", m.Regression() != nil, tail)
			}
		})
	}
}

// Without flags the clusters and the budget go by the contexts and the labels, and the
// run says so.
func TestTrainSaysWhatItChose(t *testing.T) {
	dir := files(t)
	plain := joined("train", testArgs(), "--kmeans-only", "--out", "x.l2s")
	r := l2s(t, dir, plain...)
	for _, want := range []string{"--clusters 12, for 1,200 contexts", "--budget 30, for 300 labels"} {
		if !strings.Contains(r.stderr, want) || !strings.Contains(r.stdout, "chosen: "+want) {
			t.Errorf("found no %q in\n%sand\n%s", want, r.stderr, r.stdout)
		}
	}
	o := object(t, dir, joined(plain, "--quiet", "--json")...)
	if number(t, o, "clusters") != 12 || number(t, o, "budget") != 30 || len(o["chosen"].([]any)) != 2 {
		t.Errorf("found %v, expected 12 clusters and a budget of 30, chosen", o)
	}
	again := readFile(t, filepath.Join(dir, "x.l2s"))
	o = object(t, dir, joined(plain, "--clusters", "12", "--budget", "30", "--quiet", "--json")...)
	if _, chosen := o["chosen"]; chosen || !bytes.Equal(again, readFile(t, filepath.Join(dir, "x.l2s"))) {
		t.Errorf("found the choice %v or another screen, expected no choice and the same bytes", o["chosen"])
	}
	t.Run("few contexts in a cluster are not learned from", func(t *testing.T) {
		without := joined("train", testArgs(), "--quiet", "--json", "--out", "x.l2s")
		o := object(t, dir, without...)
		if text := fmt.Sprint(o["chosen"]); !strings.Contains(text, "--kmeans-only, for 1,200 contexts of 12 clusters") || !bytes.Equal(again, readFile(t, filepath.Join(dir, "x.l2s"))) {
			t.Errorf("found the choice %s or another screen, expected k-means alone", text)
		}
		for _, asked := range [][]string{{"--kmeans-only=false", "--patience", "1"}, {"--iterations", "1"}, {"--geometry", "0"}} {
			if o := object(t, dir, joined(without, asked)...); number(t, o, "alternations") == 0 {
				t.Errorf("%v: found the choice %v, expected learning", asked, o["chosen"])
			}
		}
	})
	t.Run("a layer of three labels", func(t *testing.T) {
		matrixIn("W3.npy", 3, tinyDim)(t, dir)
		matrixIn("b3.npy", 3)(t, dir)
		o := object(t, dir, joined(plain, "--weights", "W3.npy", "--bias", "b3.npy", "--quiet", "--json")...)
		if number(t, o, "k") != 3 || number(t, o, "budget") != 3 {
			t.Errorf("found k %v and budget %v, expected 3 and 3", o["k"], o["budget"])
		}
	})
}

// Labels of every set come from the command line, from files of both kinds, and from
// the special tokens of a model; an id may be named several times.
func TestAlwaysFrom(t *testing.T) {
	dir := files(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"ids.txt", "a,b.txt"} {
		writeFile(t, at(name), []byte("7, 0\n299\n7\t12\r\n"))
	}
	if err := tensorfile.WriteNPYInt32s(at("ids.npy"), []int32{5, 299, 5}); err != nil {
		t.Fatal(err)
	}
	modelFolder(t, dir, "model")
	writeFile(t, filepath.Join(dir, "model", "tokenizer_config.json"), []byte(`{"added_tokens_decoder":{"2":{"special":true},"3":{"special":false},"100000":{"special":true}}}`))
	inModel := joined("train", "--head", "model", "--contexts", "H.npy", "--clusters", "3", "--budget", "40")
	inLayer := joined("train", trainArgs())
	for _, c := range []struct {
		name  string
		train []string
		value string
		want  []uint32
	}{
		{"a text file", inLayer, "@ids.txt", []uint32{0, 7, 12, 299}},
		{"an array", inLayer, "@ids.npy", []uint32{5, 299}},
		{"a name with a comma, between quotes", inLayer, `9,@"a,b.txt",5`, []uint32{0, 5, 7, 9, 12, 299}},
		{"all together", inLayer, "9,@ids.npy,@ids.txt,7", []uint32{0, 5, 7, 9, 12, 299}},
		{"special tokens, without those that have no row", inModel, "specials", []uint32{2}},
		{"and others", inModel, "specials,4", []uint32{2, 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			succeed(t, dir, joined(c.train, "--always", c.value, "--kmeans-only", "--quiet", "--out", "x.l2s")...)
			m, err := screen.Load(at("x.l2s"))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(m.Always(), c.want) {
				t.Errorf("found always %v, expected %v", m.Always(), c.want)
			}
			for cluster := range m.Clusters() {
				for _, id := range c.want {
					if !slices.Contains(m.Candidates(cluster), id) {
						t.Errorf("found no id %d in set %d, expected it in every set", id, cluster)
					}
				}
			}
		})
	}
}

// Who asks for another number of labels than a screen was trained for is told so, on
// standard error alone.
func TestNoteOfAnotherK(t *testing.T) {
	notUnderRace(t)
	dir := files(t)
	succeed(t, dir, joined("train", trainArgs(), "--k", "3", "--kmeans-only", "--out", "k3.l2s")...)
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"more by topk", joined("topk", "k3.l2s", testArgs(), "--k", "5"), "l2s topk: note: k3.l2s: the screen was trained for the 3 best labels and is asked for 5: one trained with --k 5 finds more of them\n"},
		{"more by eval", joined("eval", "k3.l2s", testArgs(), "--quiet"), "l2s eval: note: k3.l2s: the screen was trained for the 3 best labels and is asked for 5: one trained with --k 5 finds more of them\n"},
		{"fewer by eval", joined("eval", "k3.l2s", testArgs(), "--k", "1,2", "--quiet"), "asked for 2: one trained with --k 2 needs fewer candidates\n"},
		{"fewer by bench", joined("bench", "k3.l2s", testArgs(), "--k", "1", "--quiet"), "l2s bench: note: k3.l2s: the screen was trained for the 3 best labels and is asked for 1: "},
		{"the same by topk", joined("topk", "k3.l2s", testArgs(), "--k", "3"), ""},
		{"the same by eval", joined("eval", "k3.l2s", testArgs(), "--k", "1,3", "--quiet"), ""},
	} {
		r := l2s(t, dir, c.args...)
		if r.code != 0 || c.want == "" && r.stderr != "" || !strings.Contains(r.stderr, c.want) || strings.Contains(r.stdout, "note") {
			t.Errorf("%s: found exit status %d and %q on standard error, expected %q", c.name, r.code, r.stderr, c.want)
		}
	}
}
