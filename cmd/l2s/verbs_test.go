package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/demolm"
	"github.com/learning-to-screen/l2s/internal/progress"
	"github.com/learning-to-screen/l2s/internal/simd"
	"github.com/learning-to-screen/l2s/internal/simdtest"
	"github.com/learning-to-screen/l2s/internal/tensorfile"
	"github.com/learning-to-screen/l2s/screen"
)

func TestHelpGoesToStandardOutput(t *testing.T) {
	notUnderRace(t)
	dir := t.TempDir()
	var all [][]string
	for _, v := range verbs() {
		all = append(all, []string{v.name, "-h"}, []string{v.name, "--help"}, []string{"help", v.name})
	}
	all = append(all, []string{"-h"}, []string{"--help"}, []string{"help"}, []string{"help", "-h"}, []string{"help", "sources"})
	for _, a := range all {
		t.Run(strings.Join(a, " "), func(t *testing.T) {
			r := l2s(t, dir, a...)
			if r.code != 0 || r.stderr != "" {
				t.Errorf("found exit status %d and %q on standard error, expected 0 and nothing", r.code, r.stderr)
			}
			if !strings.Contains(r.stdout, "Usage:\n") && a[len(a)-1] != "sources" || !strings.Contains(r.stdout, "Example:\n  l2s ") {
				t.Errorf("found no usage and example in\n%s", r.stdout)
			}
			for line := range strings.Lines(r.stdout) {
				// Example lines are for copying and may be longer.
				if len(line) > 101 && !strings.HasPrefix(line, "  l2s ") {
					t.Errorf("found a line of %d characters, expected at most 100: %s", len(line)-1, line)
				}
			}
		})
	}
	t.Run("every verb is listed", func(t *testing.T) {
		text := succeed(t, dir, "-h")
		for _, c := range flagsOfVerbs {
			if !strings.Contains(text, "\n  "+c.verb+" ") {
				t.Errorf("found no verb %s in\n%s", c.verb, text)
			}
		}
	})
}

// What go doc says of the command lists the verbs as l2s -h does.
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

// What is one thing has one name: in help, in the results and in their JSON.
func TestOneNameForOneThing(t *testing.T) {
	dir := files(t)
	var texts []string
	for _, v := range verbs() {
		texts = append(texts, succeed(t, dir, v.name, "-h"))
	}
	r := l2s(t, dir, joined("train", trainArgs(), "--quiet=false", "--out", "x.l2s")...)
	texts = append(texts, r.stdout+r.stderr, succeed(t, dir, joined("train", trainArgs(), "--out", "x.l2s", "--json")...),
		succeed(t, dir, "inspect", "x.l2s"), succeed(t, dir, "inspect", "x.l2s", "--json"),
		succeed(t, dir, joined("eval", "x.l2s", testArgs())...), succeed(t, dir, joined("eval", "x.l2s", testArgs(), "--json")...))
	for _, text := range texts {
		for other, name := range map[string]string{
			"L-bar": "candidates", "avg_candidates": "mean_candidates", "validation": "held-out", "held out": "held-out", "judge": "held-out contexts",
			"gumbel,": "gumbel-st",
		} {
			if strings.Contains(text, other) {
				t.Errorf("found %q, expected %q alone, in\n%s", other, name, text)
			}
		}
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
func tensor(t *testing.T, path string) tensorfile.Array {
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
	return tensorfile.Array{Shape: slices.Clone(m.Shape), Data: slices.Clone(x)}
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

func TestTrain(t *testing.T) {
	notUnderRace(t)
	dir := files(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	o := object(t, dir, joined("train", trainArgs(), "--out", "new.l2s", "--json")...)
	expectFields(t, o, "clusters", "dim", "labels", "contexts", "budget", "mean_candidates", "seconds", "level")
	if c := number(t, o, "clusters"); c != tinyClusters {
		t.Errorf("found %v clusters, expected %d", c, tinyClusters)
	}
	if n := number(t, o, "contexts"); n != tinyTrain {
		t.Errorf("found %v contexts, expected %d", n, tinyTrain)
	}
	if a := number(t, o, "mean_candidates"); a > 40 || a < 5 {
		t.Errorf("found %v candidates, expected at least k = 5 and at most the budget, 40", a)
	}
	if !bytes.Equal(readFile(t, at("new.l2s")), readFile(t, at("m.l2s"))) {
		t.Error("found different bytes for the same arguments, expected the same")
	}

	train := func(t *testing.T, more ...string) (*screen.Model, []byte) {
		t.Helper()
		succeed(t, dir, joined("train", trainArgs(), "--out", "x.l2s", more)...)
		m, err := screen.Load(at("x.l2s"))
		if err != nil {
			t.Fatal(err)
		}
		return m, readFile(t, at("x.l2s"))
	}
	base := readFile(t, at("m.l2s"))
	if err := tensorfile.WriteNPY(at("zeros.npy"), make([]float32, tinyLabels), tinyLabels); err != nil {
		t.Fatal(err)
	}
	clusters := func(groups, clusters int) func(*screen.Model) string {
		return func(m *screen.Model) string {
			if m.Groups() != groups || m.Clusters() != clusters {
				return fmt.Sprintf("found %d groups and %d clusters, expected %d and %d", m.Groups(), m.Clusters(), groups, clusters)
			}
			return ""
		}
	}
	everySetHolds := func(ids ...uint32) func(*screen.Model) string {
		return func(m *screen.Model) string {
			if !slices.Equal(m.Always(), ids) {
				return fmt.Sprintf("found always %v, expected %v", m.Always(), ids)
			}
			for c := range m.Clusters() {
				for _, id := range ids {
					if !slices.Contains(m.Candidates(c), id) {
						return fmt.Sprintf("found no id %d in set %d, expected it in every set", id, c)
					}
				}
			}
			return ""
		}
	}
	for _, c := range []struct {
		name  string
		args  []string
		same  []string                   // the arguments of the screen whose bytes it has; nil: no other's
		holds func(*screen.Model) string // what else is wrong with it
	}{
		{"the number of threads leaves no trace", []string{"--threads", "1"}, []string{}, nil},
		{"nor does the form of the input files", []string{"--weights", "layer.safetensors:weight", "--bias", "layer.safetensors:bias"}, []string{}, nil},
		{"nor does the progress", []string{"--quiet=false"}, []string{}, nil},
		{"a bias of none is a bias of zeros", []string{"--bias", "none"}, []string{"--bias", "zeros.npy"}, nil},
		{"--seed makes another screen", []string{"--seed", "2"}, nil, nil},
		{"--kmeans-only", []string{"--kmeans-only"}, nil, nil},
		{"--estimator", []string{"--estimator", "gumbel-st"}, nil, nil},
		{"--k", []string{"--k", "3"}, nil, nil},
		{"--lambda", []string{"--lambda", "0.01"}, nil, nil},
		{"--gamma", []string{"--gamma", "1"}, nil, nil},
		{"--budget", []string{"--budget", "30"}, nil, nil},
		{"--clusters", []string{"--clusters", "4"}, nil, clusters(0, 4)},
		{"--clusters of two levels", []string{"--clusters", "3x4"}, nil, clusters(3, 12)},
		{"--clusters of two levels without learning", []string{"--clusters", "3x4", "--kmeans-only"}, nil, clusters(3, 12)},
		{"--iterations", []string{"--iterations", "1"}, nil, nil},
		{"--patience", []string{"--patience", "1"}, nil, nil},
		{"--kmeans-iterations", []string{"--kmeans-iterations", "1"}, nil, nil},
		{"--kmeans-batch", []string{"--kmeans-batch", "100"}, nil, nil},
		{"--always is in every set, once", []string{"--always", "7,0,299,7"}, nil, everySetHolds(0, 7, 299)},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, data := train(t, c.args...)
			same := c.same
			want := base
			if len(same) > 0 {
				_, want = train(t, same...)
			}
			if bytes.Equal(data, want) != (same != nil) {
				t.Errorf("found the same bytes: %v, expected: %v", same == nil, same != nil)
			}
			if c.holds != nil {
				if wrong := c.holds(m); wrong != "" {
					t.Error(wrong)
				}
			}
		})
	}
	t.Run("--clusters through groups that overlap", func(t *testing.T) {
		for _, c := range []struct {
			args    []string
			overlap string
		}{{nil, "2"}, {[]string{"--kmeans-only"}, "2"}, {[]string{"--overlap", "1.5"}, "1.5"}} {
			m, _ := train(t, append(c.args, "--clusters", "12/3")...)
			if m.Clusters() != 12 || m.Groups() != 3 || len(m.GroupClusters()) < 3 {
				t.Errorf("%v: found %d clusters, %d groups, %d clusters in their lists; expected 12 and 3 with lists", c.args, m.Clusters(), m.Groups(), len(m.GroupClusters()))
			}
			if want := `"overlap":` + c.overlap; !strings.Contains(string(m.Record()), want) {
				t.Errorf("%v: found the record %s, expected %s in it", c.args, m.Record(), want)
			}
		}
	})
	t.Run("--kmeans-only has the clusters of no iterations", func(t *testing.T) {
		a, _ := train(t, "--kmeans-only")
		b, _ := train(t, "--iterations", "0")
		if !slices.Equal(a.ClusterWeights(), b.ClusterWeights()) {
			t.Error("found different clusters, expected the same")
		}
	})
	for _, c := range []struct {
		name           string
		args           []string
		code           int
		stdout, stderr []string // parts
		silent         bool     // on standard error
	}{
		{"a report for people", []string{"--quiet=false"}, 0, []string{"x.l2s: 6 clusters", "P@1 "}, []string{"labels", "k-means"}, false},
		{"--quiet", nil, 0, []string{"x.l2s: 6 clusters"}, nil, true},
		{"a tail of standard input", []string{"--tail-contexts", "-"}, 2, nil, []string{"--tail-contexts is not for standard input"}, false},
		{"no contexts for a tail", []string{"--tail-contexts", "none-*.npy"}, 1, nil, []string{"none-*.npy: "}, false},
		{"a tail of another kind", []string{"--tail", "low-rank"}, 2, nil, []string{"expected regression or none"}, false},
		{"contexts for a tail that is not wanted", []string{"--tail", "none", "--tail-contexts", "T.npy"}, 2, nil, []string{"--tail-contexts is for --tail regression"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := l2s(t, dir, joined("train", trainArgs(), "--out", "x.l2s", c.args)...)
			if r.code != c.code || c.silent && r.stderr != "" {
				t.Errorf("found exit status %d and %q on standard error, expected %d, silent: %v", r.code, r.stderr, c.code, c.silent)
			}
			expectIn(t, r.stdout, c.stdout...)
			expectIn(t, r.stderr, c.stderr...)
		})
	}
}

// Tails are for probabilities over all labels: the screen's are near the layer's,
// and inspect names the kind.
func TestTails(t *testing.T) {
	dir := files(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"regression", []string{"--tail", "regression"}, "tail            by regression, for probabilities at temperatures 0.7 1"},
		{"contexts for it imply it, by a pattern", []string{"--tail-contexts", "[T].npy", "--tail-contexts", "T.npy"}, "tail            by regression, for probabilities at temperatures 0.7 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			succeed(t, dir, joined("train", trainArgs(), "--out", "x.l2s", c.args)...)
			if text := succeed(t, dir, "inspect", "x.l2s"); !strings.Contains(text, c.want) {
				t.Errorf("found no %q in\n%s", c.want, text)
			}
		})
	}
	// The screen with the regression remains.
	logProbs := func(more ...string) (best []float64, share float64) {
		line, _, _ := strings.Cut(succeed(t, dir, joined("topk", "x.l2s", testArgs(), "--logprobs", "--json", more)...), "\n")
		for _, x := range parseObject(t, line)["logprobs"].([]any) {
			best = append(best, x.(float64))
			share += math.Exp(x.(float64))
		}
		return best, share
	}
	all, share := logProbs("--exact", "--k", strconv.Itoa(tinyLabels))
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
	if err := tensorfile.WriteNPYInt32s(at("next.npy"), next); err != nil {
		t.Fatal(err)
	}
	o := object(t, dir, joined("eval", "x.l2s", testArgs(), "--targets", "next.npy", "--json")...)
	if p, exact := number(t, o, "perplexity"), number(t, o, "exact_perplexity"); !(p > 1 && exact > 1 && math.Abs(math.Log(p/exact)) < 0.2) {
		t.Errorf("found perplexities %v and %v, expected near ones above 1", p, exact)
	}
	// A screen without a tail leaves log-probabilities to the exact layer, and says so.
	t.Run("topk of a screen without a tail", func(t *testing.T) {
		r := l2s(t, dir, joined("topk", "m.l2s", testArgs(), "--k", "1", "--logprobs", "--json")...)
		want := l2s(t, dir, joined("topk", "m.l2s", testArgs(), "--k", "1", "--logprobs", "--json", "--exact")...)
		if r.code != 0 || !strings.Contains(r.stderr, "l2s topk: note: m.l2s: the screen has no tail: the exact layer gives the log-probabilities, which takes longer; l2s train --tail regression makes one that has a tail\n") {
			t.Errorf("found exit status %d and %q, expected 0 and the note", r.code, r.stderr)
		}
		lines, exact := strings.Split(strings.TrimSpace(r.stdout), "\n"), strings.Split(strings.TrimSpace(want.stdout), "\n")
		equal := 0
		for i, line := range lines {
			if line == exact[i] {
				equal++
			}
		}
		if len(lines) != tinyTest || len(exact) != tinyTest || equal < tinyTest*9/10 { // all whose best label the screen finds
			t.Errorf("found %d of %d answers equal to the answers of the exact layer, expected at least nine tenths", equal, len(lines))
		}
	})
	t.Run("eval of a screen without a tail", func(t *testing.T) {
		r := l2s(t, dir, joined("eval", "m.l2s", testArgs(), "--targets", "next.npy")...)
		if r.code != 0 || !strings.Contains(r.stderr, "l2s eval: note: m.l2s: the screen has no tail: its probabilities are over the candidate set alone") {
			t.Errorf("found exit status %d and %q, expected 0 and the note", r.code, r.stderr)
		}
		if !strings.Contains(r.stdout, "perplexity        by the layer ") {
			t.Errorf("found no perplexity of the layer in\n%s", r.stdout)
		}
		if o := object(t, dir, joined("eval", "m.l2s", testArgs(), "--targets", "next.npy", "--json")...); o["perplexity"] != nil || number(t, o, "exact_perplexity") < 1 {
			t.Errorf("found %v, expected the perplexity of the layer alone", o)
		}
	})
}

// TestLayerFormats reads one layer and the same contexts in every format and
// type that numpy and PyTorch write.
func TestLayerFormats(t *testing.T) {
	notUnderRace(t)
	dir := files(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	want := succeed(t, dir, joined("topk", "m.l2s", testArgs())...)
	w, _, _ := rows(t, at("W.npy"))

	var f64 []byte
	for _, x := range w {
		f64 = binary.LittleEndian.AppendUint64(f64, math.Float64bits(float64(x)))
	}
	writeFile(t, at("W64.npy"), append(npyHead("<f8", false, tinyLabels, tinyDim), f64...))
	var columns []byte
	for j := range tinyDim {
		for i := range tinyLabels {
			columns = binary.LittleEndian.AppendUint32(columns, math.Float32bits(w[i*tinyDim+j]))
		}
	}
	writeFile(t, at("Wf.npy"), append(npyHead("<f4", true, tinyLabels, tinyDim), columns...))
	writeFile(t, at("layer.npz"), npz(t, map[string][]byte{
		"weight.npy": readFile(t, at("W.npy")), "bias.npy": readFile(t, at("b.npy")), "H.npy": readFile(t, at("T.npy")),
	}))
	for _, c := range []struct{ name, weights, bias, contexts string }{
		{"safetensors", "layer.safetensors:weight", "layer.safetensors:bias", "T.npy"},
		{"npz", "layer.npz:weight", "layer.npz:bias", "layer.npz:H"},
		{"float64", "W64.npy", "b.npy", "T.npy"},
		{"Fortran order", "Wf.npy", "b.npy", "T.npy"},
		{"absolute path", at("W.npy"), at("b.npy"), at("T.npy")},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := succeed(t, dir, "topk", "--weights", c.weights, "--bias", c.bias, "--contexts", c.contexts, "m.l2s"); got != want {
				t.Error("found other answers, expected the same")
			}
		})
	}
}

func TestEval(t *testing.T) {
	dir := files(t)
	o := object(t, dir, joined("eval", "m.l2s", testArgs(), "--json")...)
	expectFields(t, o, "precision", "mean_candidates", "clusters", "dim", "labels", "contexts", "level")
	for name, want := range map[string]float64{"clusters": tinyClusters, "dim": tinyDim, "labels": tinyLabels, "contexts": tinyTest} {
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
			r := l2s(t, dir, joined("eval", "m.l2s", layerArgs(), "--contexts", contexts, "--quiet")...)
			if r.code != 0 || r.stderr != want {
				t.Errorf("%s: found exit status %d and %q, expected %q", contexts, r.code, r.stderr, want)
			}
		}
		o := object(t, dir, joined("eval", "m.l2s", layerArgs(), "--contexts", "H.npy", "--json", "--quiet")...)
		if share := number(t, o, "trained_on", "share"); share != 1 || number(t, o, "trained_on", "compared") != number(t, o, "contexts") {
			t.Errorf("found %v, expected a share of 1 of all contexts", o["trained_on"])
		}
		// Of both files a part was trained on.
		for _, verb := range []string{"eval", "bench"} {
			r := l2s(t, dir, append(joined(verb, "m.l2s", testArgs(), "--quiet"), "--contexts", "H.npy")...)
			if want := "l2s " + verb + ": note: m.l2s: the screen was trained on 43% of these contexts: on others its figures are lower\n"; r.code != 0 || !strings.Contains(r.stderr, want) {
				t.Errorf("%s: found exit status %d and %q, expected %q", verb, r.code, r.stderr, want)
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
			screened, exact := ids(), ids("--exact")
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
	t.Run("the rows scanned are said for each k", func(t *testing.T) {
		// No set holds as many labels as there are: the exact layer answers all.
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
	t.Run("a report for people", func(t *testing.T) {
		text := succeed(t, dir, joined("eval", "m.l2s", testArgs(), "--quiet")...)
		for _, want := range []string{"P@1", "P@5", "candidates", "clusters"} {
			if !strings.Contains(text, want) {
				t.Errorf("found no %s in\n%s", want, text)
			}
		}
	})
	t.Run("the level changes nothing but its name", func(t *testing.T) {
		levels(t, func(t *testing.T, level, env string) {
			cmd := command(t, dir, joined("eval", "m.l2s", testArgs(), "--json")...)
			cmd.Env = append(cmd.Env, env)
			got := parseObject(t, finish(t, cmd).stdout)
			if got["level"] != level {
				t.Errorf("level: found %v, expected %s", got["level"], level)
			}
			for _, k := range []string{"1", "5"} {
				if a, b := number(t, got, "precision", k), number(t, o, "precision", k); a != b {
					t.Errorf("P@%s: found %v, expected %v", k, a, b)
				}
			}
		})
	})
}

// Figures on held-out contexts stand beside the figures of training in every mode, and
// warnings say what is wrong.
func TestTrainTellsOfHeldOutContexts(t *testing.T) {
	dir := files(t)
	for _, c := range []struct {
		name string
		more []string
	}{
		{"learned", nil},
		{"k-means alone", []string{"--kmeans-only"}},
		{"spread", []string{"--spread", "0.3"}},
		{"a second probe", []string{"--probe-share", "0.2"}},
		{"shells", []string{"--probe-share", "0.2", "--shells", "0.4,0.1"}},
		{"counts alone", []string{"--geometry", "0"}},
	} {
		o := object(t, dir, joined(goodTrain, "--out", "v.l2s", c.more, "--json")...)
		if n, p := number(t, o, "held_out", "contexts"), number(t, o, "held_out", "precision", "5"); n < 1 || p <= 0 || p > 1 {
			t.Errorf("%s: found P@5 %v on %v held-out contexts, expected figures", c.name, p, n)
		}
	}
	text := succeed(t, dir, joined(goodTrain, "--out", "v.l2s", "--kmeans-only", "--budget", "6")...)
	expectIn(t, text, "held-out contexts", "warning: ", "held-out contexts are few", "a larger budget than 6")
}

func TestBench(t *testing.T) {
	notUnderRace(t)
	dir := files(t)
	o := object(t, dir, joined("bench", "m.l2s", testArgs(), "--json", "--quiet")...)
	for _, name := range []string{"dense_f32_us", "exact_us", "screened_us", "screened_median_us", "dense_f32_median_us", "exact_median_us", "speedup"} {
		if x := number(t, o, name); x <= 0 {
			t.Errorf("%s: found %v, expected more than 0", name, x)
		}
	}
	if a := number(t, o, "allocs_per_query"); a != 0 && !simdtest.Race {
		t.Errorf("allocs_per_query: found %v, expected 0", a)
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
	e := object(t, dir, joined("eval", "m.l2s", testArgs(), "--json", "--quiet")...)
	for _, k := range []string{"1", "5"} {
		if got, want := number(t, o, "precision", k), number(t, e, "precision", k); got != want {
			t.Errorf("P@%s: found %v, expected %v, as l2s eval says", k, got, want)
		}
	}
}

// No set has more labels than --largest.
func TestTrainBoundsTheLargestSet(t *testing.T) {
	dir := files(t)
	largest := func(more ...string) float64 {
		succeed(t, dir, joined("train", "--clusters", "6", "--budget", "20", testArgs(), "--out", "bounded.l2s", "--quiet", more)...)
		return number(t, object(t, dir, "inspect", "bounded.l2s", "--json"), "sets", "max")
	}
	if free := largest(); free <= 24 {
		t.Errorf("found at most %v labels in a set without --largest, expected more than 24", free)
	}
	if most := largest("--largest", "24"); most > 24 {
		t.Errorf("found a set of %v labels with --largest 24", most)
	}
}

// A flag that changes nothing beside the others is said, and is no error.
func TestTrainSaysWhichFlagsHaveNoEffect(t *testing.T) {
	dir := files(t)
	const note = "note: found a flag without effect: "
	for _, c := range []struct {
		args []string
		want []string
	}{
		{nil, nil},
		{[]string{"--kmeans-only"}, []string{"--iterations is for learning, which --kmeans-only leaves out"}}, // goodTrain has it
		{[]string{"--kmeans-only", "--patience", "3"}, []string{"--iterations is for", "--patience is for"}},
		{[]string{"--iterations", "0", "--gamma", "3"}, []string{"--gamma is for learning, which --iterations 0 leaves out"}},
		{[]string{"--kmeans-only=false", "--patience", "3"}, nil},
		{[]string{"--pair-weight", "3"}, []string{"--pair-weight is for --probe-share above 0"}},
		{[]string{"--pair-weight", "3", "--probe-share", "0.2"}, nil},
	} {
		r := l2s(t, dir, joined(goodTrain, c.args)...)
		if r.code != 0 || strings.Count(r.stderr, note) != len(c.want) {
			t.Errorf("%v: found exit status %d and\n%sexpected %d notes", c.args, r.code, r.stderr, len(c.want))
		}
		for _, want := range c.want {
			if !strings.Contains(r.stderr, note+want) {
				t.Errorf("%v: found no %q in\n%s", c.args, note+want, r.stderr)
			}
		}
	}
}

func TestBenchSaysWhatIsCopied(t *testing.T) {
	notUnderRace(t)
	dir := files(t)
	args := joined("bench", "m.l2s", testArgs(), "--quiet")
	o := object(t, dir, joined(args, "--json")...)
	if all := number(t, o, "all_copies_bytes"); all <= 0 || number(t, o, "copies_bytes") != all {
		t.Errorf("found copies of %v of %v bytes, expected copies of all sets of a small layer", o["copies_bytes"], all)
	}
	if o := object(t, dir, joined(args, "--json", "--pack", "0")...); number(t, o, "copies_bytes") != 0 {
		t.Errorf("found copies of %v bytes, expected none with --pack 0", o["copies_bytes"])
	}
	for want, pack := range map[string]string{"Copies of the candidate sets take": "1", "No candidate set is copied: all would take": "0"} {
		if text := succeed(t, dir, joined(args, "--pack", pack)...); !strings.Contains(text, want) {
			t.Errorf("--pack %s: found no %q in\n%s", pack, want, text)
		}
	}
}

func TestBenchCold(t *testing.T) {
	notUnderRace(t)
	dir := files(t)
	args := joined("bench", "m.l2s", testArgs(), "--quiet")
	if o := object(t, dir, joined(args, "--json")...); o["cold"] != nil {
		t.Errorf("found %v, expected no cold queries without --cold", o["cold"])
	}
	// Each size once, ascending.
	expectCold(t, object(t, dir, joined(args, "--json", "--cold", "2,1,2")...), "plain_read_us")
	text := succeed(t, dir, joined(args, "--cold", "1")...)
	expectIn(t, text, "1 MiB read", "KB alone")
	// The bytes of a screened query say nothing of queries that the exact layer answers.
	args = joined(args, "--k", "200")
	if o := object(t, dir, joined(args, "--json", "--cold", "1")...); o["codes_bytes"] != nil || o["cold"].([]any)[0].(map[string]any)["plain_read_us"] != nil {
		t.Errorf("found codes_bytes or plain_read_us in %v, expected neither if the exact layer answers", o)
	}
	if text := succeed(t, dir, joined(args, "--cold", "1")...); !strings.Contains(text, "1 MiB read") || strings.Contains(text, "KB alone") {
		t.Errorf("found a column of bytes alone, or no cold queries, in\n%s", text)
	}
}

// expectCold expects the times of --cold 2,1,2 in an object, and more times of those names.
func expectCold(t *testing.T, o map[string]any, more ...string) {
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
		for _, name := range append(more, "dense_f32_us", "exact_us", "screened_us") {
			if x := number(t, times, name); x <= 0 {
				t.Errorf("cold[%d]: %s: found %v, expected more than 0", i, name, x)
			}
		}
		if median, p99 := number(t, times, "screened_us"), number(t, times, "screened_p99_us"); p99 < median {
			t.Errorf("cold[%d]: found the 99th percentile %v below the median %v", i, p99, median)
		}
		if want := 5 + len(more); len(times) != want {
			t.Errorf("cold[%d]: found %v, expected %d fields", i, times, want)
		}
	}
}

// Whatever number --threads has, no more threads are started than help.
func TestThreadsAreBounded(t *testing.T) {
	most := max(mostThreads, runtime.GOMAXPROCS(0))
	for _, c := range []struct {
		given string
		want  int
	}{
		{"0", 0}, {"1", 1}, {strconv.Itoa(most), most}, {strconv.Itoa(most + 1), most}, {"100000", most}, {"9223372036854775807", most},
	} {
		t.Run("--threads "+c.given, func(t *testing.T) {
			f := newFlags("train", description{}, io.Discard, io.Discard)
			threads := f.threads("run")
			if err := f.parse([]string{"--threads", c.given}, nil); err != nil || *threads != c.want {
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
		for _, more := range [][]string{nil, {"--json"}, {"--logprobs", "--exact"}} {
			all := topk(t, more...)
			count := strings.Count(all, "\n")
			for limit, lines := range map[string]int{"1": 1, "257": 257, "100000": count, "0": count} {
				if got := topk(t, joined(more, "--limit", limit)...); got != beginning(all, lines) {
					t.Errorf("%v --limit %s: found %d lines, expected the first %d of %d", more, limit, strings.Count(got, "\n"), lines, count)
				}
			}
		}
		if got := topk(t, "--k", "3", "--header", "--limit", "2"); got != "ids\tlogits\tcluster\n"+beginning(text, 2) {
			t.Errorf("found %q, expected the names of the columns, and 2 answers", got)
		}
	})
	t.Run("--header names the columns, and changes nothing else", func(t *testing.T) {
		for want, more := range map[string][]string{
			"ids\tlogits\tcluster\n": nil, "ids\tlogits\tcluster\twords\n": {"--vocab", "words.txt"},
			"ids\tlogits\tlogprobs\tcluster\n": {"--logprobs", "--exact"},
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
	t.Run("a line for each context, of ids, logits and cluster", func(t *testing.T) {
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		if len(lines) != tinyTest {
			t.Fatalf("found %d lines, expected %d", len(lines), tinyTest)
		}
		for i, line := range lines {
			columns := strings.Split(line, "\t")
			if len(columns) != 3 {
				t.Fatalf("line %d: found %d columns, expected 3: %s", i+1, len(columns), line)
			}
			ids, logits := strings.Split(columns[0], " "), strings.Split(columns[1], " ")
			if len(ids) != 3 || len(logits) != 3 {
				t.Fatalf("line %d: found %d ids and %d logits, expected 3 each", i+1, len(ids), len(logits))
			}
			last := math.Inf(1)
			for j, s := range logits {
				x, err := strconv.ParseFloat(s, 64)
				if err != nil || x > last {
					t.Fatalf("line %d: found logits %v, expected numbers in descending order", i+1, logits)
				}
				if id, err := strconv.Atoi(ids[j]); err != nil || id < 0 || id >= tinyLabels {
					t.Fatalf("line %d: found id %s, expected 0 to %d", i+1, ids[j], tinyLabels-1)
				}
				last = x
			}
			if c, err := strconv.Atoi(columns[2]); err != nil || c < 0 || c >= tinyClusters {
				t.Fatalf("line %d: found cluster %s, expected 0 to %d", i+1, columns[2], tinyClusters-1)
			}
		}
	})
	t.Run("--exact finds the best label of a scan", func(t *testing.T) {
		w, _, _ := rows(t, filepath.Join(dir, "W.npy"))
		h, _, _ := rows(t, filepath.Join(dir, "T.npy"))
		bias := tensor(t, filepath.Join(dir, "b.npy")).Data
		i := 0
		for line := range strings.Lines(topk(t, "--exact", "--k", "1")) {
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
	t.Run("--exact and the screen agree about the cluster", func(t *testing.T) {
		third := func(text string) (list []string) {
			for line := range strings.Lines(text) {
				list = append(list, strings.Split(line, "\t")[2])
			}
			return list
		}
		if !slices.Equal(third(topk(t, "--exact")), third(text)) {
			t.Error("found different clusters, expected the same")
		}
	})
	t.Run("--json gives the same", func(t *testing.T) {
		lines := strings.Split(text, "\n")
		i := 0
		for line := range strings.Lines(topk(t, "--k", "3", "--json")) {
			o := parseObject(t, line)
			expectFields(t, o, "ids", "logits", "cluster")
			columns := strings.Split(lines[i], "\t")
			var ids, logits []string
			for j, id := range o["ids"].([]any) {
				ids = append(ids, strconv.FormatFloat(id.(float64), 'f', -1, 64))
				logits = append(logits, strconv.FormatFloat(o["logits"].([]any)[j].(float64), 'g', -1, 64))
			}
			if got := strings.Join(ids, " ") + "\t" + strings.Join(logits, " ") + "\t" + strconv.Itoa(int(number(t, o, "cluster"))); got != lines[i] {
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
			if len(columns) != 4 {
				t.Fatalf("found %d columns, expected 4: %s", len(columns), line)
			}
			check(strings.Split(columns[0], " "), strings.Split(columns[3], " "))
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
		for _, more := range [][]string{{"--k", "3"}, {"--k", "3", "--exact"}, {"--k", "20", "--json"}} {
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
	t.Run("flags may stand before and after the screen", func(t *testing.T) {
		for _, a := range [][]string{
			joined("topk", testArgs(), "--k", "3", "m.l2s"), joined("topk", testArgs(), "--k=3", "--", "m.l2s"), joined("topk", testArgs(), "-k", "3", "m.l2s"),
		} {
			if succeed(t, dir, a...) != text {
				t.Errorf("%v: found other bytes, expected the same", a)
			}
		}
	})
	t.Run("more labels than a set holds are answered by the exact layer", func(t *testing.T) {
		k := strconv.Itoa(tinyLabels)
		if topk(t, "--k", k) != topk(t, "--k", k, "--exact") {
			t.Error("found other answers than the exact layer's, expected the same")
		}
	})
}

func TestInspect(t *testing.T) {
	dir := files(t)
	m, err := screen.Load(filepath.Join(dir, "m.l2s"))
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
	if mean := number(t, o, "sets", "mean"); math.Abs(mean-m.MeanSetSize()) > 1e-9 {
		t.Errorf("sets: found mean %v, expected %v", mean, m.MeanSetSize())
	}
	if size := number(t, o, "sets", "max"); int(size) != m.LargestSet() {
		t.Errorf("sets: found max %v, expected %d", size, m.LargestSet())
	}
	text := succeed(t, dir, "inspect", "m.l2s")
	expectIn(t, text, "m.l2s", "clusters", "set sizes", "training", "seed 1", "alternation")

	t.Run("a screen without a record", func(t *testing.T) {
		bare, err := screen.NewModel(screen.Config{Dim: 2, Labels: 3, Clusters: []float32{1, 0, 0, 1}, Sets: [][]uint32{{0, 2}, {}}})
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
	t.Run("memory follows the file, whatever number of labels its header has", func(t *testing.T) {
		path := filepath.Join(dir, "wide.l2s")
		most := min(math.MaxInt, math.MaxUint32) // labels of an int
		wide, err := screen.NewModel(screen.Config{Dim: 1, Labels: most, Clusters: []float32{1, -1}, Sets: [][]uint32{{0, 7}, {7, uint32(most - 1)}}})
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
		if union := number(t, parseObject(t, out.String()), "sets", "union"); union != 3 {
			t.Errorf("found %v labels that are in a set, expected 3", union)
		}
	})
}

// TestDemoInSmall runs the demonstration with few contexts.
func TestDemoInSmall(t *testing.T) {
	notUnderRace(t)
	if testing.Short() {
		t.Skip("takes some seconds: not with -short")
	}
	size := demoSize{train: 4 * 512, heldOut: 2 * 512, clusters: 10, iterations: 1, budget: 500, rounds: 2}
	var progressText strings.Builder
	keep := filepath.Join(t.TempDir(), "kept")
	if err := os.Mkdir(keep, 0o777); err != nil {
		t.Fatal(err)
	}
	r, err := demo(t.Context(), size, 3, keep, progress.New(&progressText))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := printJSON(&b, r); err != nil {
		t.Fatal(err)
	}
	o := parseObject(t, b.String())
	expectDemoFields(t, o)
	for name, want := range map[string]float64{"clusters": 10, "dim": 200, "labels": 20000, "contexts": 2 * 512, "seed": 3, "k": 5} {
		if got := number(t, o, name); got != want {
			t.Errorf("%s: found %v, expected %v", name, got, want)
		}
	}
	if p1, p5 := number(t, o, "precision", "1"), number(t, o, "precision", "5"); p1 < 0.8 || p5 < 0.7 {
		t.Errorf("found P@1 %v and P@5 %v, expected at least 0.8 and 0.7", p1, p5)
	}
	if n, l := number(t, o, "frequent_words", "candidates"), number(t, o, "mean_candidates"); math.Abs(n-10-l) > 1 {
		t.Errorf("found %v frequent words, expected as many as clusters and candidates, 10 + %v", n, l)
	}
	if p := number(t, o, "frequent_words", "precision", "5"); p <= 0 || p > 1 {
		t.Errorf("found P@5 %v of the frequent words, expected above 0 and at most 1", p)
	}
	if c := number(t, o, "mean_candidates"); c > 600 {
		t.Errorf("found %v candidates on held-out contexts, expected about the budget, 500", c)
	}
	text := r.String()
	for _, want := range append([]string{"clusters", "candidates", "P@1", "P@5", "dense float32 scan", "exact layer", "screen", "speedup"}, demoPrompts...) {
		if !strings.Contains(text, want) {
			t.Errorf("found no %q in\n%s", want, text)
		}
	}
	t.Run("the commands that it ends with work on the files that it keeps", func(t *testing.T) {
		commands := 0
		for line := range strings.Lines(text) {
			args, ok := strings.CutPrefix(line, "  l2s ")
			if !ok {
				continue
			}
			commands++
			words := strings.Fields(args)
			switch words[0] {
			case "eval":
				o := object(t, keep, append(words, "--json")...)
				for _, path := range [][]string{{"precision", "1"}, {"precision", "5"}, {"mean_candidates"}} {
					if found, want := number(t, o, path...), number(t, parseObject(t, b.String()), path...); found != want {
						t.Errorf("%v: found %v by the files kept, expected %v", path, found, want)
					}
				}
			case "train":
				succeed(t, keep, append(words, "--quiet")...)
				if !bytes.Equal(readFile(t, filepath.Join(keep, "mine.l2s")), readFile(t, filepath.Join(keep, "m.l2s"))) {
					t.Error("train: found another screen than the one of the demonstration")
				}
			default:
				succeed(t, keep, words...)
			}
		}
		if commands != 3 {
			t.Errorf("found %d commands, expected 3, in\n%s", commands, text)
		}
	})
	for _, a := range r.answers {
		if len(a.exact) != 5 || len(a.screened) != 5 {
			t.Errorf("%s: found %d and %d words, expected 5 each", a.prompt, len(a.exact), len(a.screened))
		}
	}
	for _, want := range []string{"text: 3,072 tokens", "labels: 2,048 contexts", "k-means", "eval: 1,024 contexts", "bench", "frequent words"} {
		if !strings.Contains(progressText.String(), want) {
			t.Errorf("found no %q in the progress\n%s", want, progressText.String())
		}
	}
}

// What is in a folder is not replaced, and what cannot be written is found first.
func TestDemoKeepsNothingOverOtherFiles(t *testing.T) {
	dir := files(t)
	for _, c := range []struct{ keep, want string }{
		{".", "l2s demo: .: found a folder that holds H.npy, expected a new or an empty one\n"},
		{"W.npy", "l2s demo: W.npy: cannot "},
		{"no/such/folder", "l2s demo: no/such/folder: cannot mkdir: no such file or directory\n"},
	} {
		before := contentOf(t, dir)
		r := l2s(t, dir, "demo", "--quiet", "--keep", c.keep)
		if r.code != 1 || !strings.HasPrefix(r.stderr, c.want) {
			t.Errorf("%s: found exit status %d and %q, expected 1 and %q", c.keep, r.code, r.stderr, c.want)
		}
		if !maps.Equal(before, contentOf(t, dir)) {
			t.Errorf("%s: found other files than before", c.keep)
		}
	}
}

// The prompts are there to show words that the model knows.
func TestDemoPromptsAreInTheVocabulary(t *testing.T) {
	m, err := demolm.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, prompt := range demoPrompts {
		for word := range strings.FieldsSeq(prompt) {
			if _, ok := m.Words.ID(word); !ok {
				t.Errorf("found no word %q of the prompt %q in the vocabulary", word, prompt)
			}
		}
	}
}

func expectDemoFields(t *testing.T, o map[string]any) {
	t.Helper()
	expectFields(t, o, "precision", "mean_candidates", "clusters", "dim", "labels", "contexts", "level",
		"dense_f32_us", "exact_us", "screened_us", "screened_p99_us", "speedup", "allocs_per_query")
	if a := number(t, o, "allocs_per_query"); a != 0 && !simdtest.Race {
		t.Errorf("allocs_per_query: found %v, expected 0", a)
	}
}

// TestDemo runs the whole demonstration.
func TestDemo(t *testing.T) {
	if os.Getenv("L2S_TEST_DEMO") == "" {
		t.Skip("takes most of a minute: set L2S_TEST_DEMO=1 to run it")
	}
	o := object(t, t.TempDir(), "demo", "--json")
	expectDemoFields(t, o)
	if p1, p5 := number(t, o, "precision", "1"), number(t, o, "precision", "5"); p1 < 0.95 || p5 < 0.9 {
		t.Errorf("found P@1 %v and P@5 %v, expected at least 0.95 and 0.9", p1, p5)
	}
}

// The text of a run names the stages that took a second or more, in their order.
func TestTrainSaysWhatTookLong(t *testing.T) {
	for _, c := range []struct {
		name    string
		seconds map[string]float64
		want    string
	}{
		{"a short run", map[string]float64{"labels": 0.4, "k-means": 0.5, "total": 0.9}, "  0.9s in all, on 2 threads at level avx2\n"},
		{"a long run", map[string]float64{"learn": 61, "labels": 2, "k-means": 0.9, "total": 63.9},
			"  1m04s in all, on 2 threads at level avx2\n  of it: labels 2.0s, learn 1m01s\n"},
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
	for _, more := range [][]string{nil, {"--clusters", "2x3"}, {"--probe-share", "0.5"}, {"--kmeans-only"}} {
		r := l2s(t, dir, joined("train", trainArgs(), more, "--quiet=false", "--out", "named.l2s")...)
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
