package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"github.com/learning-to-screen/l2s/internal/ground/progress"
	"github.com/learning-to-screen/l2s/internal/ground/simd"
	"github.com/learning-to-screen/l2s/internal/ground/stage"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/tests/gguftest"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
	"github.com/learning-to-screen/l2s/internal/tests/synthetic"
)

func TestHelpGoesToStandardOutput(t *testing.T) {
	simdtest.Long(t)
	dir := t.TempDir()
	var all [][]string
	for _, v := range verbs() {
		all = append(all, []string{v.name, "-h"}, []string{v.name, "--help"}, []string{"help", v.name})
	}
	all = append(all, []string{"-h"}, []string{"--help"}, []string{"help"}, []string{"help", "-h"}, []string{"help", "sources"})
	for _, a := range all {
		t.Run(strings.Join(a, " "), func(t *testing.T) {
			r := invoke(t, dir, a...)
			if r.code != 0 || r.stderr != "" {
				t.Errorf("found exit status %d and %q on standard error, expected 0 and nothing", r.code, r.stderr)
			}
			if !strings.Contains(r.stdout, "Usage:\n") && a[len(a)-1] != "sources" || !strings.Contains(r.stdout, "Example:\n  l2s ") {
				t.Errorf("found no usage and example in\n%s", r.stdout)
			}
			for _, example := range strings.Split(r.stdout, "\n  l2s ")[1:] {
				if name := strings.Fields(example)[0]; name != "VERB" && name != "help" && !slices.ContainsFunc(verbs(), func(v verb) bool { return v.name == name }) {
					t.Errorf("found the unknown verb %q in\n%s", name, r.stdout)
				}
			}
			if n := strings.Count(r.stdout, "\n"); n > 40 {
				t.Errorf("found %d lines, expected 40 at most, which fit a screen", n)
			}
			for line := range strings.Lines(r.stdout) {
				// Example lines are for copying and may be longer.
				if len(line) > 80 && !strings.HasPrefix(line, "  l2s ") && !strings.HasPrefix(line, "l2s ") {
					t.Errorf("found a line of %d characters, expected at most 79: %s", len(line)-1, line)
				}
			}
		})
	}
	t.Run("every verb is listed", func(t *testing.T) {
		text := succeed(t, dir, "-h")
		for _, v := range verbs() {
			expectIn(t, text, fmt.Sprintf("\n  %-10s %s\n", v.name, v.summary))
		}
	})
	t.Run("numbers equal the numbers in the code", func(t *testing.T) {
		expectIn(t, page("bench"), fmt.Sprintf("on %d different contexts or more", leastContexts))
	})
}

// The doc comment of the command lists the verbs as l2s -h does.
func TestTheDocCommentListsEveryVerb(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "main.go", nil, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		t.Fatal(err)
	}
	var found, want []string
	for line := range strings.Lines(file.Doc.Text()) {
		if rest, ok := strings.CutPrefix(line, "\tl2s "); ok {
			found = append(found, strings.Join(strings.Fields(rest), " "))
		}
	}
	for _, v := range verbs() {
		want = append(want, v.name+" "+v.summary)
	}
	if !slices.Equal(found, want) {
		t.Errorf("found the verbs\n%s\nexpected\n%s", strings.Join(found, "\n"), strings.Join(want, "\n"))
	}
}

func TestVersion(t *testing.T) {
	levels(t, func(t *testing.T, level, env string) {
		cmd := command(t, t.TempDir(), "version", "--json")
		cmd.Env = append(cmd.Env, env)
		o := parseObject(t, finish(t, cmd).stdout)
		expectFields(t, o, "version", "go", "cpu", "level")
		if o["level"] != level {
			t.Errorf("found level %v, expected %s, which %s asks for", o["level"], level, env)
		}
	})
	text := succeed(t, t.TempDir(), "version")
	for _, want := range []string{"l2s", "go", "cpu", "level"} {
		if !strings.Contains(text, want) {
			t.Errorf("found no %s in\n%s", want, text)
		}
	}
}

// tensor reads the array of a file.
func tensor(t *testing.T, path string) gguftest.Array {
	t.Helper()
	m, err := tensorfile.OpenTensor(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	x, err := m.Float32s()
	if err != nil {
		t.Fatal(err)
	}
	return gguftest.Array{Shape: slices.Clone(m.Shape), Data: slices.Clone(x)}
}

// rows reads a matrix.
func rows(t *testing.T, path string) (x []float32, n, dim int) {
	t.Helper()
	a := tensor(t, path)
	if len(a.Shape) != 2 {
		t.Fatalf("%s: found shape %v, expected a matrix", path, a.Shape)
	}
	return a.Data, a.Shape[0], a.Shape[1]
}

// A run makes the same screen with any flags that are none of its options, and its options show in
// the screen.
func TestTrain(t *testing.T) {
	simdtest.Long(t)
	dir := files(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	o := object(t, dir, joined("train", trainArgs(), "--out", "new.l2s", "--json")...)
	expectFields(t, o, "out", "clusters", "dim", "labels", "k", "contexts", "budget", "ladder", "held_out", "tail_error", "seconds", "threads", "level")
	for name, want := range map[string]float64{"clusters": tinyClusters, "contexts": tinyTrain, "budget": 40, "k": 5, "held_out": tinyTrain / 50} {
		if got := number(t, o, name); got != want {
			t.Errorf("%s: found %v, expected %v", name, got, want)
		}
	}
	for _, stage := range append(stage.All(), "total") {
		expectFields(t, o["seconds"].(map[string]any), stage)
	}
	base := readFile(t, at("m.l2s"))
	if !bytes.Equal(readFile(t, at("new.l2s")), base) {
		t.Error("found different bytes for the same arguments, expected the same")
	}

	made := func(t *testing.T, more ...string) (*l2s.Index, []byte) {
		t.Helper()
		succeed(t, dir, joined("train", trainArgs(), "--out", "x.l2s", more)...)
		m, err := l2s.Load(at("x.l2s"))
		if err != nil {
			t.Fatal(err)
		}
		return m, readFile(t, at("x.l2s"))
	}
	if err := tensorfile.WriteNPY(at("zeros.npy"), make([]float32, tinyLabels), tinyLabels); err != nil {
		t.Fatal(err)
	}
	everyListBegins := func(ids ...uint32) func(*l2s.Index) string {
		return func(m *l2s.Index) string {
			for cell := range (*engine.Index)(m).Screen().Cells() {
				if list := (*engine.Index)(m).Screen().List(cell).IDs; !slices.Equal(list[:len(ids)], ids) {
					return fmt.Sprintf("found list %d with %v, expected %v at its head", cell, list, ids)
				}
			}
			return ""
		}
	}
	of := func(what string, found func(*l2s.Index) float64, want float64) func(*l2s.Index) string {
		return func(m *l2s.Index) string {
			if x := found(m); x != want {
				return fmt.Sprintf("found %v %s, expected %v", x, what, want)
			}
			return ""
		}
	}
	budgetOf := func(m *l2s.Index) float64 { return (*engine.Index)(m).Screen().Budget() }
	clusters := func(m *l2s.Index) float64 { return float64((*engine.Index)(m).Screen().Clusters()) }
	for _, c := range []struct {
		name  string
		args  []string
		same  []string                // the arguments of the screen whose bytes it has; nil: no other's
		holds func(*l2s.Index) string // any other fault of the screen
	}{
		{"the number of threads leaves no trace", []string{"--threads", "1"}, []string{}, nil},
		{"nor does the form of the input files", []string{"--weights", "layer.safetensors:weight", "--bias", "layer.safetensors:bias"}, []string{}, nil},
		{"a bias of none is a bias of zeros", []string{"--bias", "none"}, []string{"--bias", "zeros.npy"}, nil},
		{"another seed", options(t, `{"seed": 2}`), nil, nil},
		{"k-means alone", options(t, `{"iterations": 0}`), nil, nil},
		{"another estimator", options(t, `{"learning": {"estimator": "gumbel-st"}}`), nil, nil},
		{"another k", options(t, `{"k": 3}`), nil, nil},
		{"another number of clusters", options(t, `{"clusters": 4}`), nil, of("clusters", clusters, 4)},
		{"shells", options(t, `{"shells": [0.4, 0.1]}`), nil, func(m *l2s.Index) string {
			if len((*engine.Index)(m).Screen().Config().Shells) != 2 {
				return fmt.Sprintf("found the shells %v, expected 2", (*engine.Index)(m).Screen().Config().Shells)
			}
			return ""
		}},
		{"no tail", options(t, `{"tail": null}`), nil, func(m *l2s.Index) string {
			if m.HasTail() {
				return "found a tail, expected none"
			}
			return ""
		}},
		{"options with the defaults", options(t, `{"seed": 1, "tail": {"directions": 8}}`), []string{}, nil},
		{"--budget is one of the ladder, of requests that name none", []string{"--budget", "17.5"}, nil, of("for a budget", budgetOf, 17.5)},
		{"--budget overrides the budget of the options", []string{"--budget", "17.5"}, options(t, `{"budget": 17.5}`), nil},
		{"--target comes before the budget of the options", []string{"--target", "0.5"}, options(t, `{"budget": 0, "target": 0.5}`), nil},
		{"--always begins every list, each once", []string{"--always", "7,0,299,7"}, nil, everyListBegins(0, 7, 299)},
		{"--always comes before the ids of the options", joined(options(t, `{"always": [3]}`), "--always", "4"), []string{"--always", "4"}, everyListBegins(4)},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, data := made(t, c.args...)
			want := base
			if len(c.same) > 0 {
				_, want = made(t, c.same...)
			}
			if bytes.Equal(data, want) != (c.same != nil) {
				t.Errorf("found the same bytes: %v, expected: %v", c.same == nil, c.same != nil)
			}
			if c.holds != nil {
				if wrong := c.holds(m); wrong != "" {
					t.Error(wrong)
				}
			}
		})
	}
	t.Run("a report for people", func(t *testing.T) {
		r := invoke(t, dir, joined("train", trainArgs(), "--out", "x.l2s")...)
		expectIn(t, r.stdout, "x.l2s: a screen of 6 clusters from 900 contexts, budget 40\n", "Budgets on 18 held-out contexts, with 95% intervals", "  *     40 ", " in all, on ")
		expectIn(t, r.stderr, stage.All()...)
	})
}

// The options in a record make the screen again: byte for byte if the run was given all of them; if
// it has decided some, all but the text of its decisions.
func TestOptionsOfARecord(t *testing.T) {
	simdtest.Long(t)
	dir := files(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	modelFolder(t, dir, "model") // whose scale changes the temperatures of the tail
	contexts := []string{"train", "--contexts", "H.npy"}
	// record returns the record of a screen, and writes the options in it to a file.
	record := func(name string) map[string]any {
		r := object(t, dir, "inspect", name, "--json")["record"].(map[string]any)
		text, err := json.Marshal(r["options"])
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, at(name+".json"), text)
		return r
	}
	for name, args := range map[string][]string{
		"a layer": joined(contexts, layerArgs()), "a head with a scale": joined(contexts, "--head", "model"),
		"a target": joined(contexts, layerArgs(), "--target", "0.9", "--always", "7,9"),
	} {
		t.Run(name, func(t *testing.T) {
			succeed(t, dir, joined(args, "--out", "decided.l2s")...)
			decided := record("decided.l2s")
			args := without(without(args, "--target"), "--always")
			succeed(t, dir, joined(args, "--options", "decided.l2s.json", "--out", "told.l2s")...)
			told := record("told.l2s")
			if len(decided["decisions"].([]any)) < 2 || told["decisions"] != nil {
				t.Errorf("found the decisions %v, and then %v, expected some, and then none", decided["decisions"], told["decisions"])
			}
			delete(decided, "decisions")
			if !reflect.DeepEqual(told, decided) {
				t.Errorf("found the record %v, expected %v", told, decided)
			}
			one, other := succeed(t, dir, "inspect", "told.l2s"), succeed(t, dir, "inspect", "decided.l2s")
			if _, one, _ = strings.Cut(one, "\nk-means "); !strings.HasSuffix(other, one) || one == "" {
				t.Errorf("found other figures than in the run that decided:\n%s\nexpected\n%s", one, other)
			}
			succeed(t, dir, joined(args, "--options", "told.l2s.json", "--out", "again.l2s")...)
			if !bytes.Equal(readFile(t, at("again.l2s")), readFile(t, at("told.l2s"))) {
				t.Error("found another screen for the options of a record, expected the same bytes")
			}
		})
	}
}

// Tails give probabilities over all labels: the probabilities of the screen are near the layer's.
// Without a tail there are none.
func TestTails(t *testing.T) {
	simdtest.Long(t)
	dir := files(t)
	if text, want := succeed(t, dir, "inspect", "m.l2s"), "tail            for probabilities at temperatures 0.7 1\n"; !strings.Contains(text, want) {
		t.Errorf("found no %q in\n%s", want, text)
	}
	logProbs := func(more ...string) (best []float64, share float64) {
		line, _, _ := strings.Cut(succeed(t, dir, joined("topk", "m.l2s", testArgs(), "--logprobs", "--json", more)...), "\n")
		for _, x := range parseObject(t, line)["logprobs"].([]any) {
			best = append(best, x.(float64))
			share += math.Exp(x.(float64))
		}
		return best, share
	}
	all, share := logProbs("--budget", "exact", "--k", strconv.Itoa(tinyLabels))
	if math.Abs(share-1) > 1e-9 {
		t.Errorf("the probabilities of all labels sum to %v, expected 1", share)
	}
	if best, _ := logProbs("--k", "1"); math.Abs(best[0]-all[0]) > 0.5 {
		t.Errorf("found a log-probability of %v by the screen, %v by the layer", best[0], all[0])
	}
	next := make([]int32, tinyTest)
	for i := range next {
		next[i] = int32(i % tinyLabels)
	}
	next[len(next)-1] = -1
	if err := writeInt32s(filepath.Join(dir, "next.npy"), next); err != nil {
		t.Fatal(err)
	}
	o := object(t, dir, joined("eval", "m.l2s", testArgs(), "--targets", "next.npy", "--json")...)
	if p, exact := number(t, o, "perplexity"), number(t, o, "exact_perplexity"); !(p > 1 && exact > 1 && math.Abs(math.Log(p/exact)) < 0.2) {
		t.Errorf("found perplexities %v and %v, expected near ones above 1", p, exact)
	}
	expectIn(t, succeed(t, dir, joined("eval", "m.l2s", testArgs(), "--targets", "next.npy")...), "\nperplexity        ")
	if text := succeed(t, dir, joined(goodEval)...); strings.Contains(text, "perplexity") {
		t.Errorf("found a perplexity without targets in\n%s", text)
	}

	succeed(t, dir, joined("train", trainArgs(), options(t, `{"tail": null}`), "--out", "bare.l2s")...)
	for flag, args := range map[string][]string{
		"--logprobs, or --budget exact": joined("topk", "bare.l2s", testArgs(), "--logprobs"),
		"--targets":                     joined("eval", "bare.l2s", testArgs(), "--targets", "next.npy"),
	} {
		want := "l2s " + args[0] + ": bare.l2s: found a screen without a tail, expected one for " + flag + ": l2s train makes it unless the options have {\"tail\": null}\n"
		if r := invoke(t, dir, args...); r.code != 1 || r.stderr != want || r.stdout != "" {
			t.Errorf("found exit status %d and %q, expected 1 and %q", r.code, r.stderr, want)
		}
	}
	exactly := []string{"--logprobs", "--budget", "exact", "--limit", "9"}
	if succeed(t, dir, joined("topk", "bare.l2s", testArgs(), exactly)...) != succeed(t, dir, joined(goodTopK, exactly)...) {
		t.Error("found other exact log-probabilities of a screen without a tail, expected the same")
	}
	if us := object(t, dir, joined("bench", "bare.l2s", testArgs(), "--json", "--quiet")...)["log_prob_us"]; us != nil {
		t.Errorf("found %v us of a log-probability, expected no time without a tail", us)
	}
}

func TestEval(t *testing.T) {
	dir := files(t)
	o := object(t, dir, joined("eval", "m.l2s", testArgs(), "--json")...)
	expectFields(t, o, "precision", "mean_candidates", "p99_candidates", "max_candidates", "exact_answers", "level")
	for name, want := range map[string]float64{"clusters": tinyClusters, "dim": tinyDim, "labels": tinyLabels, "contexts": tinyTest, "budget": 40} {
		if got := number(t, o, name); got != want {
			t.Errorf("%s: found %v, expected %v", name, got, want)
		}
	}
	if keys := slices.Sorted(maps.Keys(o["precision"].(map[string]any))); !slices.Equal(keys, []string{"1", "5"}) {
		t.Errorf("precision: found %v, expected 1 and 5", keys)
	}
	if level := o["level"]; level != simd.Current().String() {
		t.Errorf("level: found %v, expected %v", level, simd.Current())
	}
	if p1, p5 := number(t, o, "precision", "1"), number(t, o, "precision", "5"); p1 < 0.9 || p5 < 0.8 || p1 > 1 || p5 > 1 {
		t.Errorf("found P@1 %v, P@5 %v on contexts in clusters, expected more and at most 1", p1, p5)
	}

	t.Run("contexts of training are noticed", func(t *testing.T) {
		const note = "l2s eval: note: m.l2s: the screen was trained on these contexts: on others its figures are lower\n"
		for contexts, want := range map[string]string{"H.npy": note, "T.npy": ""} {
			r := invoke(t, dir, joined("eval", "m.l2s", layerArgs(), "--contexts", contexts, "--quiet")...)
			if r.code != 0 || r.stderr != want {
				t.Errorf("%s: found exit status %d and %q, expected %q", contexts, r.code, r.stderr, want)
			}
		}
		for contexts, want := range map[string]any{"H.npy": true, "T.npy": nil} {
			if o := object(t, dir, joined("eval", "m.l2s", layerArgs(), "--contexts", contexts, "--json", "--quiet")...); o["trained_on"] != want {
				t.Errorf("%s: found %v, expected %v", contexts, o["trained_on"], want)
			}
		}
	})
	t.Run("precision is the share of the exact answers among the answers of topk", func(t *testing.T) {
		for k, name := range map[int]string{1: "1", 5: "5"} {
			ids := func(more ...string) [][]string {
				var all [][]string
				for line := range strings.Lines(succeed(t, dir, joined("topk", "m.l2s", testArgs(), "--k", name, more)...)) {
					all = append(all, strings.Fields(strings.Split(line, "\t")[0]))
				}
				return all
			}
			screened, exact := ids(), ids("--budget", "exact")
			found := 0
			for i := range exact {
				for _, id := range exact[i] {
					if slices.Contains(screened[i], id) {
						found++
					}
				}
			}
			want := float64(found) / float64(k*len(exact))
			if got := number(t, o, "precision", name); math.Abs(got-want) > 1e-9 {
				t.Errorf("P@%s: found %v, expected %v", name, got, want)
			}
		}
	})
	t.Run("--k", func(t *testing.T) {
		o := object(t, dir, joined("eval", "m.l2s", testArgs(), "--json", "--k", "10, 3")...)
		if keys := slices.Sorted(maps.Keys(o["precision"].(map[string]any))); !slices.Equal(keys, []string{"10", "3"}) {
			t.Errorf("precision: found %v, expected 10 and 3", keys)
		}
	})
	t.Run("the ladder has the figures of every budget", func(t *testing.T) {
		ladder := ladderOf(t, o)
		for i, rung := range ladder {
			budget := strconv.FormatFloat(number(t, rung, "budget"), 'g', -1, 64)
			if i%5 != 0 && budget != "40" {
				continue
			}
			at := object(t, dir, joined("eval", "m.l2s", testArgs(), "--json", "--quiet", "--budget", budget)...)
			for _, name := range []string{"budget", "mean_candidates", "p99_candidates", "max_candidates"} {
				if found, want := number(t, at, name), number(t, rung, name); found != want {
					t.Errorf("--budget %s: %s: found %v, expected %v, as in the ladder", budget, name, found, want)
				}
			}
			for _, k := range []string{"1", "5"} {
				p, low, high := number(t, rung, "precision", k, "value"), number(t, rung, "precision", k, "low"), number(t, rung, "precision", k, "high")
				if found := number(t, at, "precision", k); math.Abs(found-p) > 1e-12 || !(0 <= low && low <= p && p <= high && high <= 1 && low < high) {
					t.Errorf("--budget %s: P@%s: found %v, expected %v between %v and %v", budget, k, found, p, low, high)
				}
			}
			if !reflect.DeepEqual(ladderOf(t, at), ladder) {
				t.Errorf("--budget %s: found another ladder, expected the same", budget)
			}
			if i > 0 && number(t, rung, "mean_candidates") < number(t, ladder[i-1], "mean_candidates") {
				t.Errorf("budget %s: found fewer candidates than with the budget before", budget)
			}
		}
		least := number(t, ladder[0], "budget")
		most := number(t, ladder[len(ladder)-1], "budget")
		for _, c := range []struct {
			asked, used float64
			note        string
		}{
			{least, least, ""},
			{least + 0.3, least, fmt.Sprintf("l2s eval: note: m.l2s: --budget %v: the screen's budget %v is used, the largest that is not above it\n", least+0.3, least)},
			{most, most, ""},
			{least / 2, least, fmt.Sprintf("l2s eval: note: m.l2s: --budget %v: the smallest budget of the screen, %v, is used\n", least/2, least)},
			{1e6, most, fmt.Sprintf("l2s eval: note: m.l2s: --budget 1e+06: the largest budget of the screen, %v, is used; larger ones would find hardly more labels, and l2s topk --budget exact finds all\n", most)},
		} {
			r := invoke(t, dir, joined("eval", "m.l2s", testArgs(), "--quiet", "--budget", fmt.Sprint(c.asked))...)
			if r.code != 0 || r.stderr != c.note {
				t.Errorf("--budget %v: found exit status %d and %q, expected 0 and %q", c.asked, r.code, r.stderr, c.note)
			}
			expectIn(t, r.stdout, fmt.Sprintf("\nbudget            %v\n", c.used), fmt.Sprintf("\n  * %6v ", c.used))
		}
	})
	t.Run("the rows scanned are printed for each k", func(t *testing.T) {
		// No list holds all labels: the exact layer answers a query for all.
		all := strconv.Itoa(tinyLabels)
		args := joined("eval", "m.l2s", testArgs(), "--quiet", "--k", "1,"+all)
		o := object(t, dir, append(args, "--json")...)
		one, most := number(t, o, "rows_scanned_at_k", "1"), number(t, o, "rows_scanned_at_k", all)
		if c := number(t, o, "mean_candidates"); one >= most || one < c || most != tinyClusters+tinyLabels || most != number(t, o, "rows_scanned") {
			t.Errorf("found %v rows for k = 1 and %v for k = %s, expected more than the %v candidates, and all", one, most, all, c)
		}
		text := succeed(t, dir, args...)
		for k, rows := range map[string]float64{"1": one, all: most} {
			if want := fmt.Sprintf(" %.1f rows scanned", rows); !slices.ContainsFunc(strings.Split(text, "\n"), func(line string) bool {
				return strings.HasPrefix(line, "P@"+k+" ") && strings.Contains(line, want)
			}) {
				t.Errorf("found no %q in the line of P@%s:\n%s", want, k, text)
			}
		}
	})
}

// The figures are measured on contexts outside training: on a part of --contexts, or on
// --validation, without its contexts of training, which are counted. Warnings name the faults.
func TestTrainMeasuresOnHeldOutContexts(t *testing.T) {
	simdtest.Long(t)
	dir := files(t)
	h, _, dim := rows(t, filepath.Join(dir, "H.npy"))
	v, n, _ := rows(t, filepath.Join(dir, "T.npy"))
	if err := tensorfile.WriteNPY(filepath.Join(dir, "V.npy"), append(slices.Clone(v), h[:30*dim]...), n+30, dim); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name          string
		more          []string
		held, leftOut float64
	}{
		{"learned", nil, tinyTrain / 50, 0},
		{"k-means alone", options(t, `{"iterations": 0}`), tinyTrain / 50, 0},
		{"shells", options(t, `{"shells": [0.4, 0.1]}`), tinyTrain / 50, 0},
		{"counts alone", options(t, `{"geometry": 0}`), tinyTrain / 50, 0},
		{"a number of them", options(t, `{"held_out": 300}`), 300, 0},
		{"other text", []string{"--validation", "T.npy"}, tinyTest, 0},
		{"other text in several files", []string{"--validation", "V.npy", "--validation", "[T].npy"}, 2 * tinyTest, 30},
		{"none", options(t, `{"held_out": 0, "budget": 0}`), 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := object(t, dir, joined(goodTrain, "--out", "v.l2s", c.more, "--json")...)
			left, _ := o["left_out"].(float64)
			if held := number(t, o, "held_out"); held != c.held || left != c.leftOut {
				t.Fatalf("found %v held-out contexts and %v left out, expected %v and %v", held, left, c.held, c.leftOut)
			}
			ladder := ladderOf(t, o)
			for _, rung := range ladder {
				if c.held == 0 {
					if rung["precision"] != nil {
						t.Errorf("budget %v: found the precision %v of no contexts", rung["budget"], rung["precision"])
					}
				} else if p := number(t, rung, "precision", "5", "value"); p <= 0 || p > 1 {
					t.Errorf("budget %v: found P@5 %v on %v contexts", rung["budget"], p, c.held)
				}
			}
			if !reflect.DeepEqual(ladderOf(t, object(t, dir, "inspect", "v.l2s", "--json")), ladder) {
				t.Error("found another ladder in the file than train printed, expected the same")
			}
			r := invoke(t, dir, joined(goodTrain, "--out", "v.l2s", c.more)...)
			if text := r.stderr; r.code != 0 || strings.Contains(text, "warning: there are no contexts to measure on") != (c.held == 0) {
				t.Errorf("found in\n%sa warning that none were held out, or none, of %v", text, c.held)
			}
			if said := fmt.Sprintf("precision is measured on %s contexts: %v others are equal to contexts of training\n", progress.Count(int(c.held)), c.leftOut); strings.Contains(r.stderr, said) != (c.leftOut > 0) {
				t.Errorf("found in\n%sthe words %q, expected: %v", r.stderr, said, c.leftOut > 0)
			}
		})
	}
	for want, args := range map[string][]string{
		"l2s train: V13.npy: shape: found [50 13], expected [any 12]":         {"--validation", "V13.npy"},
		"l2s train: none-*.npy: found no such file, expected at least one":    {"--validation", "none-*.npy"},
		"l2s train: --out V.npy would replace the input V.npy: give another ": {"--validation", "V.npy", "--out", "V.npy"},
	} {
		matrixIn("V13.npy", 50, 13)(t, dir)
		if r := invoke(t, dir, joined(goodTrain, args)...); r.code == 0 || !strings.HasPrefix(r.stderr, want) {
			t.Errorf("found exit status %d and %q, expected a failure and %q", r.code, r.stderr, want)
		}
	}
}

// ladderOf are the figures of the budgets in a result.
func ladderOf(t *testing.T, o map[string]any) (ladder []map[string]any) {
	t.Helper()
	list, _ := o["ladder"].([]any)
	for _, x := range list {
		rung := x.(map[string]any)
		expectFields(t, rung, "budget", "mean_candidates", "p99_candidates", "max_candidates", "rows_scanned")
		ladder = append(ladder, rung)
	}
	if len(ladder) == 0 {
		t.Fatalf("found the ladder %v, expected budgets", o["ladder"])
	}
	return ladder
}

// The smallest budget that reaches the target on held-out contexts is the budget of requests that
// name none. If no budget reaches the target there is a warning.
func TestTheTargetDecidesTheBudget(t *testing.T) {
	simdtest.Long(t)
	dir := files(t)
	args := joined("train", layerArgs(), "--contexts", "H.npy", "--validation", "T.npy", "--out", "x.l2s", "--json")
	for _, c := range []struct {
		target  string
		reached bool
	}{{"0.9", true}, {"0.95", true}, {"0.99999", false}, {"", false}} {
		t.Run("target "+c.target, func(t *testing.T) {
			target, more := 0.0, []string(nil)
			if c.target != "" {
				target, _ = strconv.ParseFloat(c.target, 64)
				more = []string{"--target", c.target}
			}
			if c.target != "" && !c.reached { // by lists without the labels outside training
				writeFile(t, filepath.Join(dir, "o.json"), []byte(`{"geometry": 0}`))
				more = append(more, "--options", "o.json")
			}
			o := object(t, dir, joined(args, more)...)
			ladder := ladderOf(t, o)
			reaches := func(x map[string]any) bool {
				p1, p5 := number(t, x, "precision", "1", "value"), number(t, x, "precision", "5", "value")
				if c.target != "" {
					return p5 >= target
				}
				return p1 >= 0.9995 && p5 >= 0.998
			}
			at := slices.IndexFunc(ladder, reaches)
			if c.target != "" && (at >= 0) != c.reached {
				t.Fatalf("found the ladder %v: not the case to be tested", ladder)
			}
			if at < 0 {
				expectIn(t, fmt.Sprint(o["warnings"]), "no budget reaches the target: ")
			} else if got := number(t, o, "budget"); got != ladder[at]["budget"] || o["warnings"] != nil {
				t.Errorf("found the budget %v and the warnings %v, expected the budget of %v", got, o["warnings"], ladder[at])
			}
		})
	}
}

func TestBench(t *testing.T) {
	simdtest.Long(t)
	dir := files(t)
	o := object(t, dir, joined("bench", "m.l2s", testArgs(), "--json", "--quiet")...)
	for _, name := range []string{"dense_f32_us", "exact_us", "screened_us", "screened_median_us", "dense_f32_median_us", "exact_median_us", "speedup"} {
		if x := number(t, o, name); x <= 0 {
			t.Errorf("%s: found %v, expected more than 0", name, x)
		}
	}
	ratio := number(t, o, "dense_f32_us") / number(t, o, "screened_us")
	if s := number(t, o, "speedup"); math.Abs(s/ratio-1) > 0.01 {
		t.Errorf("speedup: found %v, expected dense_f32_us / screened_us, %v", s, ratio)
	}
	ratio = number(t, o, "dense_f32_median_us") / number(t, o, "screened_median_us")
	if s := number(t, o, "speedup_median"); math.Abs(s/ratio-1) > 0.01 {
		t.Errorf("speedup_median: found %v, expected the ratio of the medians, %v", s, ratio)
	}
	for _, name := range []string{"dense_f32", "exact", "screened"} {
		if number(t, o, name+"_p99_us") < number(t, o, name+"_median_us") {
			t.Errorf("%s: found the 99th percentile below the median", name)
		}
	}
	if level := o["level"]; level != simd.Current().String() {
		t.Errorf("level: found %v, expected %v", level, simd.Current())
	}
	expectSteps(t, o, map[string][]string{
		"exact":  {"quantise", "scan", "rank"},
		"screen": {"quantise", "route", "scan", "select", "exact logits", "exact answers"},
	})
	e := object(t, dir, joined("eval", "m.l2s", testArgs(), "--json", "--quiet")...)
	for _, k := range []string{"1", "5"} {
		if got, want := number(t, o, "precision", k), number(t, e, "precision", k); got != want {
			t.Errorf("P@%s: found %v, expected %v, as l2s eval prints", k, got, want)
		}
	}
}

// expectSteps expects the steps of searches in their order, whose times sum to the time of a query.
func expectSteps(t *testing.T, o map[string]any, want map[string][]string) {
	t.Helper()
	list, _ := o["steps"].([]any)
	found, sums, shares := map[string][]string{}, map[string]float64{}, map[string]float64{}
	for _, x := range list {
		step := x.(map[string]any)
		search := step["search"].(string)
		found[search] = append(found[search], step["step"].(string))
		sums[search] += number(t, step, "us")
		shares[search] += number(t, step, "share")
	}
	for search := range want {
		if !slices.Equal(found[search], want[search]) || len(found) != len(want) {
			t.Errorf("%s: found the steps %q, expected %q", search, found[search], want[search])
		}
		if sums[search] <= 0 || math.Abs(shares[search]-1) > 0.01 {
			t.Errorf("%s: found steps of %v us and shares that sum to %v, expected more than 0 and 1", search, sums[search], shares[search])
		}
	}
}

func TestBenchSaysWhatIsCopied(t *testing.T) {
	simdtest.Long(t)
	dir := files(t)
	args := joined("bench", "m.l2s", testArgs(), "--quiet")
	o := object(t, dir, joined(args, "--json")...)
	if all := number(t, o, "all_copies_bytes"); all <= 0 || number(t, o, "copies_bytes") != all {
		t.Errorf("found copies of %v of %v bytes, expected copies of all lists of a small layer", o["copies_bytes"], all)
	}
	if o := object(t, dir, joined(args, "--json", "--pack", "0")...); number(t, o, "copies_bytes") != 0 {
		t.Errorf("found copies of %v bytes, expected none with --pack 0", o["copies_bytes"])
	}
	expectIn(t, succeed(t, dir, joined(args, "--pack", "0")...), "Copies of candidates take 0.0 MiB; copies of all would take ", " (--pack 1).\n")
}

func TestBenchCold(t *testing.T) {
	simdtest.Long(t)
	dir := files(t)
	args := joined("bench", "m.l2s", testArgs(), "--quiet")
	if o := object(t, dir, joined(args, "--json")...); o["cold"] != nil {
		t.Errorf("found %v, expected no cold queries without --cold", o["cold"])
	}
	// Each size once, ascending.
	expectCold(t, object(t, dir, joined(args, "--json", "--cold", "2,1,2")...))
	expectIn(t, succeed(t, dir, joined(args, "--cold", "1")...), "1 MiB read", "Steps of a query ", "\nexact layer quantise ", "\nscreen      quantise ", "            exact logits ")
}

// expectCold expects the times of --cold 2,1,2 in an object.
func expectCold(t *testing.T, o map[string]any) {
	t.Helper()
	list, ok := o["cold"].([]any)
	if !ok || len(list) != 2 {
		t.Fatalf("cold: found %v, expected a list of 2", o["cold"])
	}
	for i, item := range list {
		times := item.(map[string]any)
		if got := number(t, times, "mib"); got != float64(i+1) {
			t.Errorf("cold[%d]: mib: found %v, expected %d", i, got, i+1)
		}
		for _, name := range []string{"dense_f32_us", "exact_us", "screened_us"} {
			if x := number(t, times, name); x <= 0 {
				t.Errorf("cold[%d]: %s: found %v, expected more than 0", i, name, x)
			}
		}
		if median, p99 := number(t, times, "screened_us"), number(t, times, "screened_p99_us"); p99 < median {
			t.Errorf("cold[%d]: found the 99th percentile %v below the median %v", i, p99, median)
		}
		if len(times) != 5 {
			t.Errorf("cold[%d]: found %v, expected 5 fields", i, times)
		}
	}
}

// For any --threads, the number of started threads is at most the number that helps.
func TestThreadsAreBounded(t *testing.T) {
	most := max(mostThreads, runtime.GOMAXPROCS(0))
	for _, c := range []struct {
		given string
		want  int
	}{
		{"0", 0}, {"1", 1}, {strconv.Itoa(most), most}, {strconv.Itoa(most + 1), most}, {"100000", most}, {"9223372036854775807", most},
	} {
		t.Run("--threads "+c.given, func(t *testing.T) {
			f := newFlags("train", io.Discard, io.Discard)
			threads := f.threads()
			if err := f.parse([]string{"--threads", c.given}); err != nil || *threads != c.want {
				t.Errorf("found %d, %v, expected %d", *threads, err, c.want)
			}
		})
	}
	dir := files(t)
	o := object(t, dir, joined(goodTrain, "--threads", "100000", "--json")...)
	if n := number(t, o, "threads"); int(n) != most {
		t.Errorf("found a training on %v threads, expected %d", n, most)
	}
	succeed(t, dir, joined(goodTrain, "--out", "one.l2s", "--threads", "1")...)
	if !bytes.Equal(readFile(t, filepath.Join(dir, "out.l2s")), readFile(t, filepath.Join(dir, "one.l2s"))) {
		t.Error("found another screen on one thread, expected the same")
	}
}

func TestTopK(t *testing.T) {
	dir := files(t)
	topk := func(t *testing.T, more ...string) string {
		t.Helper()
		return succeed(t, dir, joined("topk", "m.l2s", testArgs(), more)...)
	}
	text := topk(t, "--k", "3")

	t.Run("a context alone may be a vector, a bias a row or a column", func(t *testing.T) {
		h, _, _ := rows(t, filepath.Join(dir, "T.npy"))
		bias := tensor(t, filepath.Join(dir, "b.npy")).Data
		for _, err := range []error{
			tensorfile.WriteNPY(filepath.Join(dir, "h.npy"), h[:tinyDim], tinyDim),
			tensorfile.WriteNPY(filepath.Join(dir, "row.npy"), bias, 1, tinyLabels),
			tensorfile.WriteNPY(filepath.Join(dir, "column.npy"), bias, tinyLabels, 1),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		first, _, _ := strings.Cut(text, "\n")
		for _, b := range []string{"b.npy", "row.npy", "column.npy"} {
			if got := topk(t, "--k", "3", "--contexts", "h.npy", "--bias", b); got != first+"\n" {
				t.Errorf("%s: found %q, expected the first answer %q", b, got, first)
			}
		}
	})
	t.Run("--limit answers the first contexts", func(t *testing.T) {
		beginning := func(text string, lines int) string { return strings.Join(strings.SplitAfter(text, "\n")[:lines], "") }
		for _, more := range [][]string{nil, {"--json"}, {"--logprobs", "--budget", "exact"}} {
			all := topk(t, more...)
			count := strings.Count(all, "\n")
			for limit, lines := range map[string]int{"1": 1, "257": 257, "100000": count, "0": count} {
				if got := topk(t, joined(more, "--limit", limit)...); got != beginning(all, lines) {
					t.Errorf("%v --limit %s: found %d lines, expected the first %d of %d", more, limit, strings.Count(got, "\n"), lines, count)
				}
			}
		}
		if got := topk(t, "--k", "3", "--header", "--limit", "2"); got != "ids\tlogits\n"+beginning(text, 2) {
			t.Errorf("found %q, expected the names of the columns, and 2 answers", got)
		}
	})
	t.Run("--header names the columns, and changes nothing else", func(t *testing.T) {
		for want, more := range map[string][]string{
			"ids\tlogits\n": nil, "ids\tlogits\twords\n": {"--vocab", "words.txt"},
			"ids\tlogits\tlogprobs\n": {"--logprobs", "--budget", "exact"},
		} {
			plain := topk(t, joined(more, "--k", "3")...)
			if got := topk(t, joined(more, "--k", "3", "--header")...); got != want+plain {
				t.Errorf("%v: found %.80q, expected %q before the answers", more, got, want)
			}
			first, _, _ := strings.Cut(plain, "\n")
			if found, named := strings.Count(first, "\t"), strings.Count(want, "\t"); found != named {
				t.Errorf("%v: found %d tabs in the answers, and %d in the header", more, found, named)
			}
		}
	})
	t.Run("--budget exact finds the best label of a scan", func(t *testing.T) {
		w, _, _ := rows(t, filepath.Join(dir, "W.npy"))
		h, _, _ := rows(t, filepath.Join(dir, "T.npy"))
		bias := tensor(t, filepath.Join(dir, "b.npy")).Data
		i := 0
		for line := range strings.SplitSeq(strings.TrimSpace(topk(t, "--budget", "exact", "--k", "1")), "\n") {
			best, at := math.Inf(-1), 0
			for s := range tinyLabels {
				x := float64(bias[s])
				for j := range tinyDim {
					x += float64(w[s*tinyDim+j]) * float64(h[i*tinyDim+j])
				}
				if x > best {
					best, at = x, s
				}
			}
			columns := strings.Split(line, "\t")
			logit, _ := strconv.ParseFloat(columns[1], 64)
			if columns[0] != strconv.Itoa(at) || math.Abs(logit-best) > 1e-9 {
				t.Fatalf("context %d: found %s (%s), expected %d (%v)", i, columns[0], columns[1], at, best)
			}
			i++
		}
	})
	t.Run("--json gives the same", func(t *testing.T) {
		lines := strings.Split(text, "\n")
		i := 0
		for line := range strings.Lines(topk(t, "--k", "3", "--json")) {
			o := parseObject(t, line)
			expectFields(t, o, "ids", "logits")
			columns := strings.Split(lines[i], "\t")
			var ids, logits []string
			for j, id := range o["ids"].([]any) {
				ids = append(ids, strconv.FormatFloat(id.(float64), 'f', -1, 64))
				logits = append(logits, strconv.FormatFloat(o["logits"].([]any)[j].(float64), 'g', -1, 64))
			}
			if got := strings.Join(ids, " ") + "\t" + strings.Join(logits, " "); got != lines[i] {
				t.Fatalf("line %d: found %q, expected %q", i+1, got, strings.Join(columns, "\t"))
			}
			i++
		}
		if i != tinyTest {
			t.Errorf("found %d lines, expected %d", i, tinyTest)
		}
	})
	t.Run("--vocab adds the words", func(t *testing.T) {
		words := strings.Fields(string(readFile(t, filepath.Join(dir, "words.txt"))))
		check := func(ids, got []string) {
			t.Helper()
			for j, id := range ids {
				if n, _ := strconv.Atoi(id); got[j] != words[n] {
					t.Fatalf("found the word %s for id %s, expected %s", got[j], id, words[n])
				}
			}
		}
		for line := range strings.Lines(topk(t, "--vocab", "words.txt")) {
			columns := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
			if len(columns) != 3 {
				t.Fatalf("found %d columns, expected 3: %s", len(columns), line)
			}
			check(strings.Split(columns[0], " "), strings.Split(columns[2], " "))
		}
		first, _, _ := strings.Cut(topk(t, "--vocab", "words.txt", "--json"), "\n")
		var ids, got []string
		o := parseObject(t, first)
		expectFields(t, o, "words")
		for j, id := range o["ids"].([]any) {
			ids = append(ids, strconv.Itoa(int(id.(float64))))
			got = append(got, o["words"].([]any)[j].(string))
		}
		check(ids, got)
	})
	t.Run("every level gives the same bytes", func(t *testing.T) {
		for _, more := range [][]string{{"--k", "3"}, {"--k", "3", "--budget", "exact"}, {"--k", "20", "--json"}} {
			want := topk(t, more...)
			levels(t, func(t *testing.T, _, env string) {
				cmd := command(t, dir, joined("topk", "m.l2s", testArgs(), more)...)
				cmd.Env = append(cmd.Env, env)
				if got := finish(t, cmd).stdout; got != want {
					t.Errorf("%v: found other bytes, expected the same", more)
				}
			})
		}
	})
	t.Run("flags may come before and after the screen", func(t *testing.T) {
		for _, a := range [][]string{
			joined("topk", testArgs(), "--k", "3", "m.l2s"), joined("topk", testArgs(), "--k=3", "--", "m.l2s"), joined("topk", testArgs(), "-k", "3", "m.l2s"),
		} {
			if succeed(t, dir, a...) != text {
				t.Errorf("%v: found other bytes, expected the same", a)
			}
		}
	})
}

func TestInspect(t *testing.T) {
	dir := files(t)
	m, err := l2s.Load(filepath.Join(dir, "m.l2s"))
	if err != nil {
		t.Fatal(err)
	}
	o := object(t, dir, "inspect", "m.l2s", "--json")
	for name, want := range map[string]float64{"clusters": tinyClusters, "dim": tinyDim, "labels": tinyLabels} {
		if got := number(t, o, name); got != want {
			t.Errorf("%s: found %v, expected %v", name, got, want)
		}
	}
	if n := number(t, o, "record", "contexts"); n != tinyTrain {
		t.Errorf("record: found %v contexts, expected %d", n, tinyTrain)
	}
	if b := number(t, o, "record", "options", "budget"); b != 40 {
		t.Errorf("record: found budget %v, expected 40", b)
	}
	expectFields(t, o, "file", "bytes", "fingerprint", "always", "shells", "budget", "ladder", "held_out", "tail_temperatures")
	sum, most := 0, 0
	for cell := range (*engine.Index)(m).Screen().Cells() {
		list, err := (*engine.Index)(m).Screen().Candidates(cell, (*engine.Index)(m).Screen().Budget())
		if err != nil {
			t.Fatal(err)
		}
		sum, most = sum+len(list), max(most, len(list))
	}
	for name, want := range map[string]float64{"cells": float64((*engine.Index)(m).Screen().Cells()), "mean": float64(sum) / float64((*engine.Index)(m).Screen().Cells()), "max": float64(most)} {
		if got := number(t, o, "lists", name); got != want {
			t.Errorf("lists: %s: found %v, expected %v", name, got, want)
		}
	}
	for i, rung := range ladderOf(t, o) {
		if x := (*engine.Index)(m).Screen().Ladder()[i]; number(t, rung, "budget") != x.Budget || number(t, rung, "precision", "5", "low") != x.PrecisionK.Low {
			t.Errorf("ladder[%d]: found %v, expected %v", i, rung, x)
		}
	}
	text := succeed(t, dir, "inspect", "m.l2s")
	expectIn(t, text, "m.l2s", "clusters", "cells", "at budget 40 with ", "training", "seed 1", "alternation", "  *     40 ")

	t.Run("a screen without a record", func(t *testing.T) {
		bare, err := synthetic.Screen(screening.Config{Dim: 2, Labels: 3, Clusters: []float32{1, 0, 0, 1}, Lists: []screening.List{{IDs: []uint32{0, 2}}, {}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := bare.Save(filepath.Join(dir, "bare.l2s")); err != nil {
			t.Fatal(err)
		}
		if text := succeed(t, dir, "inspect", "bare.l2s"); !strings.Contains(text, "no record") {
			t.Errorf("found no word about the record in\n%s", text)
		}
		object(t, dir, "inspect", "--json", "bare.l2s")
	})
	t.Run("memory follows the file, with any number of labels in its header", func(t *testing.T) {
		path := filepath.Join(dir, "wide.l2s")
		most := min(math.MaxInt, math.MaxUint32) // labels of an int
		wide, err := synthetic.Screen(screening.Config{Dim: 1, Labels: most, Clusters: []float32{1, -1}, Lists: []screening.List{{IDs: []uint32{0, 7}}, {IDs: []uint32{7, uint32(most - 1)}}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := wide.Save(path); err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		code := run(t.Context(), []string{"inspect", path, "--json"}, &out, &errs)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; code != 0 || used > 1<<20 {
			t.Errorf("found exit status %d (%s) and %d bytes allocated for a file of %d, expected 0 and at most 1 MiB", code, errs.String(), used, len(readFile(t, path)))
		}
		if union := number(t, parseObject(t, out.String()), "lists", "labels"); union != 3 {
			t.Errorf("found %v labels that are in a list, expected 3", union)
		}
	})
}

// The text of a run names the stages that took a second or more, in their order.
func TestTrainSaysWhatTookLong(t *testing.T) {
	for _, c := range []struct {
		name    string
		seconds map[string]float64
		want    string
	}{
		{"a short run", map[string]float64{"labels": 0.4, "k-means": 0.5, "total": 0.9}, "0.9s in all, on 2 threads at level avx2\n"},
		{"a long run", map[string]float64{"learn": 61, "labels": 2, "k-means": 0.9, "total": 63.9},
			"1m04s in all, on 2 threads at level avx2\nof it: labels 2.0s, learn 1m01s\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := (trainResult{Seconds: c.seconds, Threads: 2, Level: "avx2"}).time(); got != c.want {
				t.Errorf("found %q, expected %q", got, c.want)
			}
		})
	}
}

// Each line about a stage names the stage.
func TestLinesOfTrainNameTheirStage(t *testing.T) {
	dir := files(t)
	for _, more := range [][]string{nil, options(t, `{"clusters": 0}`), options(t, `{"shells": [0.5], "iterations": 0}`)} {
		r := invoke(t, dir, joined("train", trainArgs(), more, "--out", "named.l2s")...)
		if r.code != 0 {
			t.Fatal(r.stderr)
		}
		for line := range strings.Lines(r.stderr) {
			if strings.HasPrefix(line, ":") {
				t.Errorf("%v: found %q, expected a name", more, line)
			}
		}
	}
}
