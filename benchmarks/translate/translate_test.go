package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/beam"
	"github.com/learning-to-screen/l2s/benchmarks/internal/methods"
	"github.com/learning-to-screen/l2s/benchmarks/internal/points"
	"github.com/learning-to-screen/l2s/benchmarks/internal/seq2seq"
	"github.com/learning-to-screen/l2s/internal/exact"
	"github.com/learning-to-screen/l2s/internal/gguftest"
	"github.com/learning-to-screen/l2s/internal/kernels"
	"github.com/learning-to-screen/l2s/internal/progress"
	"github.com/learning-to-screen/l2s/internal/screening"
	"github.com/learning-to-screen/l2s/internal/synthetic"
)

// The sizes of the random model of the tests.
const (
	words = 80 // of either language
	dim   = 12
	embed = 6
)

// folder writes a random model with texts of n pairs each.
func folder(t testing.TB, n int) string {
	t.Helper()
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(7, 1))
	var arrays []gguftest.Array
	add := func(name string, scale float32, shape ...int) {
		size := 1
		for _, s := range shape {
			size *= s
		}
		data := make([]float32, size)
		for i := range data {
			data[i] = scale * float32(r.NormFloat64())
		}
		arrays = append(arrays, gguftest.Array{Name: name, Shape: shape, Data: data})
	}
	for _, half := range []string{"encoder", "decoder"} {
		add(half+".embeddings.weight", 1, words, embed)
		in := embed
		for l := range 2 {
			add(fmt.Sprintf("%s.rnn.weight_ih_l%d", half, l), 0.7, 4*dim, in)
			add(fmt.Sprintf("%s.rnn.weight_hh_l%d", half, l), 0.7, 4*dim, dim)
			add(fmt.Sprintf("%s.rnn.bias_ih_l%d", half, l), 0.5, 4*dim)
			add(fmt.Sprintf("%s.rnn.bias_hh_l%d", half, l), 0.5, 4*dim)
			in = dim
		}
	}
	add("decoder.attn.linear_in.weight", 0.5, dim, dim)
	add("decoder.attn.linear_out.weight", 0.5, dim, 2*dim)
	add("generator.weight", 1, words, dim)
	add("generator.bias", 1, words)
	if err := gguftest.WriteSafetensors(filepath.Join(dir, "model.safetensors"), arrays...); err != nil {
		t.Fatal(err)
	}
	vocabulary := "<pad>\n<unk>\n<s>\n</s>\n"
	for i := 4; i < words; i++ {
		vocabulary += fmt.Sprintf("w%d\n", i)
	}
	write(t, dir, "vocab.de", vocabulary)
	write(t, dir, "vocab.en", vocabulary)
	for _, name := range []string{"train", "test"} {
		for _, language := range []string{from, to} {
			var text strings.Builder
			for range n {
				for j := range 1 + r.IntN(8) {
					if j > 0 {
						text.WriteByte(' ')
					}
					fmt.Fprintf(&text, "w%d", 4+r.IntN(words-4))
				}
				text.WriteByte('\n')
			}
			write(t, dir, name+"."+language, text.String())
		}
	}
	return dir
}

func write(t testing.TB, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, n int) *data {
	t.Helper()
	d, err := load(context.Background(), folder(t, n), 0)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// smallSweep is for the model of the tests.
var smallSweep = sweep{
	plans: []plan{
		{L2S: methods.L2S{Form: methods.KMeans, Clusters: 4, Budget: 40}},
		{budgets: []float64{12, 10}, tail: true},
		{L2S: methods.L2S{Form: methods.Expected, Clusters: 5, Budget: 20}},
	},
	rivals: []rival{{methods.FGD{M: 4, EfConstruction: 20}, []string{"ef=16"}}},
	widths: []int{1, 3}, timed: 5, rounds: 2, block: time.Microsecond, examples: 3,
}

// quiet returns a printer of progress that shows nothing.
func quiet(t *testing.T) *progress.Printer {
	p := progress.New(io.Discard)
	t.Cleanup(p.Close)
	return p
}

func TestTheTableOfASmallModel(t *testing.T) {
	d := open(t, 150)
	o := options{cache: t.TempDir(), out: filepath.Join(t.TempDir(), "new"), seed: 1, alpha: 1, longest: 12}
	measured := func() *points.Translation {
		if err := translate(context.Background(), d, smallSweep, o, io.Discard, quiet(t)); err != nil {
			t.Fatal(err)
		}
		saved, err := os.ReadFile(filepath.Join(o.out, "translate.json"))
		if err != nil {
			t.Fatal(err)
		}
		f := new(points.Translation)
		if err := json.Unmarshal(saved, f); err != nil {
			t.Fatal(err)
		}
		return f
	}
	f := measured()
	var names []string
	at := map[string]points.Translator{}
	for _, r := range f.Rows {
		name := strings.TrimSpace(r.Method + " " + r.Query)
		at[name] = r
		if r.Method == "l2s" { // its default budget is train's
			_, more, _ := strings.Cut(r.Query, ",")
			name = "l2s" + more
		}
		names = append(names, name)
		if len(r.Decodings) != 2 {
			t.Fatalf("%s: %+v, expected two widths", r.Method, r.Decodings)
		}
		for _, x := range r.Decodings {
			if !(x.Micros > 0 && x.Speedup > 0) {
				t.Errorf("%s: %+v, expected times above 0", r.Method, x)
			}
		}
	}
	want := []string{"Dense float32", exactName, togetherName, "FGD ef=16", "L2S k-means B=40", "l2s", "l2s with its tail", "L2S learned, expected loss B=20"}
	if found := slices.Compact(names); !slices.Equal(found, want) {
		t.Fatalf("found the rows %q, want %q", found, want)
	}
	for _, r := range f.Rows[:3] {
		if r.P1 < 0.999 || r.P5 < 0.999 || r.Decodings[0].Differ > 2 || r.Decodings[1].Differ > 2 {
			t.Errorf("%s: %+v, want the labels of the exact layer, except for near-ties", r.Method, r)
		}
	}
	if r := f.Rows[1]; r.P1 != 1 || r.P5 != 1 || r.Decodings[0].Differ != 0 || r.Decodings[1].Differ != 0 {
		t.Errorf("the exact layer: %+v, want no difference to itself", r)
	}
	small := at["l2s B=10"]
	if small.P5 >= 1 || small.Decodings[1].Differ == 0 || !(small.RowsScanned > 5 && small.RowsScanned < words) {
		t.Errorf("10 candidates: %+v, expected a loss", small)
	}
	for _, r := range f.Rows {
		if screened := strings.HasPrefix(strings.ToLower(r.Method), "l2s"); screened != (r.HeldP1 > 0 && r.HeldP5 > 0) {
			t.Errorf("%s: precision %v and %v on held-out contexts, want one of screens alone", r.Method, r.HeldP1, r.HeldP5)
		}
		for i, x := range r.Decodings {
			if d := x.BLEU - f.Rows[1].Decodings[i].BLEU; d < x.Low-0.001 || d > x.High+0.001 || d != 0 && x.Low == x.High {
				t.Errorf("%s: BLEU differs by %v, outside of %v to %v", r.Method, d, x.Low, x.High)
			}
		}
	}
	// A tail changes sums, not labels.
	for name, r := range at {
		budget, tailed := strings.CutSuffix(name, ", with its tail")
		if plain := at[budget]; tailed && (plain.P5 == 0 || r.P5 != plain.P5 || r.RowsScanned != plain.RowsScanned || !r.OverAll || plain.OverAll) {
			t.Errorf("%s: %+v, want the precision of the screen without a tail", name, r)
		}
	}
	if f.Sentences != 150 || f.TimedSentences != 5 || f.TestContexts == 0 || f.References == 0 || f.Own == 0 || f.Calibration == 0 {
		t.Errorf("counts: %+v", f)
	}
	// The times decide which row is stressed.
	if text, err := os.ReadFile(filepath.Join(o.out, "TRANSLATE.md")); err != nil || !strings.Contains(strings.ReplaceAll(string(text), "**", ""), "| L2S learned, expected loss, r=5 learned for B=20, B=20 |") {
		t.Errorf("TRANSLATE.md: %v\n%s", err, text)
	}

	// The next run finds the contexts, and has the same figures.
	before := modified(t, o.cache)
	again := measured()
	if !slices.Equal(modified(t, o.cache), before) {
		t.Error("the second run wrote contexts")
	}
	for i, r := range again.Rows {
		for j, x := range r.Decodings {
			if was := f.Rows[i].Decodings[j]; x.BLEU != was.BLEU || x.Differ != was.Differ || r.P5 != f.Rows[i].P5 {
				t.Errorf("%s: %+v, and %+v the first time", r.Method, x, was)
			}
		}
	}
}

// modified returns the names and times of the files in a folder.
func modified(t *testing.T, dir string) (list []string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, f.Name()+info.ModTime().String())
	}
	return list
}

// narrow returns a screen that lacks some labels in each cluster, so that some
// searches with it differ from the exact one.
func narrow(t *testing.T, l *exact.Layer, end uint32) searchers {
	t.Helper()
	r := rand.New(rand.NewPCG(3, 3))
	config := screening.Config{Dim: l.Dim(), Labels: l.Labels(), Clusters: make([]float32, 3*l.Dim())}
	for i := range config.Clusters {
		config.Clusters[i] = float32(r.NormFloat64())
	}
	for range 3 {
		set := []uint32{end}
		for _, id := range r.Perm(words)[:words-3] {
			if uint32(id) != end {
				set = append(set, uint32(id))
			}
		}
		slices.Sort(set)
		config.Lists = append(config.Lists, screening.List{IDs: set})
	}
	m, err := synthetic.Screen(config)
	if err != nil {
		t.Fatal(err)
	}
	return over(l, m, l2s.Options{})
}

// A search may copy the steps that it has in common with the exact search.
func TestKnownStepsChangeNothing(t *testing.T) {
	d := open(t, 40)
	c := newDecoder(d, 1, 12)
	l := d.model.Layer()
	exact := exactly(l)
	for _, width := range []int{1, 4} {
		known, err := c.translate(context.Background(), width, exact, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		differ := 0
		for name, searcher := range map[string]searchers{"exact": exact, "screened": narrow(t, l, d.model.End())} {
			want, err := c.translate(context.Background(), width, searcher, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.translate(context.Background(), width, searcher, known, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i := range got {
				if !slices.Equal(got[i].words, want[i].words) || got[i].cut != want[i].cut {
					t.Errorf("beam %d, %s, sentence %d: %v, want %v", width, name, i, got[i], want[i].words)
				}
				if !slices.Equal(got[i].words, known[i].words) {
					differ++
				}
			}
		}
		if differ == 0 || differ == len(known) {
			t.Errorf("beam %d: the screen changes %d of %d translations, expected some", width, differ, len(known))
		}
	}
}

// recorder is a Decoder that records the contexts of its steps.
type recorder struct {
	d     *seq2seq.Decoder
	asked [][]float32
}

func (j *recorder) Step(parents []int, tokens []uint32) ([]float32, error) {
	j.d.Reorder(parents)
	h := j.d.Step(tokens)
	j.asked = append(j.asked, slices.Clone(h))
	return h, nil
}

func TestBatchesAreTheStepsOfASearch(t *testing.T) {
	d := open(t, 30)
	c := newDecoder(d, 1, 12)
	m := d.model
	exact := exactly(m.Layer())
	for _, width := range []int{1, 3} {
		known, err := c.translate(context.Background(), width, exact, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		const stride = 2
		var want [][]float32
		for i := 0; i < len(c.sources); i += stride {
			j := &recorder{d: m.NewDecoder()}
			j.d.Start(c.sources[i : i+1])
			asker, err := exact()
			if err != nil {
				t.Fatal(err)
			}
			search, err := beam.New(j, asker, beam.Options{Width: width, MaxLen: 12, Start: m.Start(), End: m.End(), Alpha: 1})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := search.Run(context.Background(), 1); err != nil {
				t.Fatal(err)
			}
			want = append(want, j.asked...)
		}
		if got := batches(known, stride); !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("beam %d: %d batches, want the %d of a search", width, len(got), len(want))
		}
	}
}

// All exact searchers give the labels of the reference, except for near-ties, and a sum over all
// labels; graphs give a sum over the labels that they found.
func TestSearchersNormalise(t *testing.T) {
	l := open(t, 2).model.Layer()
	const n, k = 30, 5
	r := rand.New(rand.NewPCG(5, 5))
	h := make([]float32, n*dim)
	for i := range h {
		h[i] = float32(2*r.Float64() - 1)
	}
	x, err := methods.FGD{}.Build(context.Background(), &methods.Input{Layer: l, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	all := x.Settings()[len(x.Settings())-1] // a list of most labels
	certified, err := exactly(l)()
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]l2s.Asker{
		"dense": newOneScan(l), "shared": newShared(l), "certified": certified,
		"FGD": &oneByOne{by: all.Searcher().(methods.Normaliser), dim: dim},
	} {
		dst, answers := make([]l2s.Prediction, n*k), make([]l2s.Answer, n)
		if err := s.SearchBatch(dst, answers, h, l2s.Request{LogSum: true}); err != nil {
			t.Fatal(err)
		}
		logits := make([]float64, words)
		for i := range n {
			l.Weights().RefScan(logits, l.Bias(), h[i*dim:(i+1)*dim])
			best := slices.Sorted(slices.Values(logits))
			if answers[i].Count != k {
				t.Fatalf("%s: context %d: %d labels, want %d", name, i, answers[i].Count, k)
			}
			for j, p := range dst[i*k : (i+1)*k] {
				if math.Abs(p.Logit-best[words-1-j]) > 1e-4 || math.Abs(p.Logit-logits[p.ID]) > 1e-4 {
					t.Errorf("%s: context %d: label %d is %v, want the logit %v", name, i, j, p, best[words-1-j])
				}
			}
			if want := kernels.LogSumExp(logits); math.Abs(answers[i].LogSum-want) > 0.05 {
				t.Errorf("%s: context %d: sum %v, want %v", name, i, answers[i].LogSum, want)
			}
		}
	}
}

func TestWhatIsRefused(t *testing.T) {
	dir := folder(t, 4)
	broken := func(name, content string) string {
		other := t.TempDir()
		if err := os.CopyFS(other, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		write(t, other, name, content)
		return other
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"more"}, `found the argument "more"`},
		{[]string{"--alpha", "-1"}, "--alpha: found -1"},
		{[]string{"--alpha", "NaN"}, "--alpha: found NaN"},
		{[]string{"--longest", "0"}, "--longest: found 0"},
		{[]string{"--limit", "-1"}, "--limit: found -1"},
		{[]string{"--rounds", "-1"}, "--rounds: found -1"},
		{[]string{"--model", filepath.Join(dir, "none")}, "no such file"},
		{[]string{"--model", broken("test.en", "w4\n")}, "test.en: found 1 lines, expected 4"},
		{[]string{"--model", broken("train.de", "\n\n\n\n")}, "train.de: found no pair"},
		{[]string{"--model", broken("vocab.en", "<unk>\n<s>\n</s>\n")}, "vocab.en: found 3 words, expected 80"},
		{[]string{"--model", dir, "--limit", "1"}, "found 1 pairs, expected at least 2"},
	} {
		out := filepath.Join(t.TempDir(), "out")
		err := run(context.Background(), append([]string{"--out", out, "--cache", t.TempDir()}, c.args...), io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		}
		if _, err := os.Stat(out); err == nil {
			t.Errorf("%v: the folder of the results was made", c.args)
		}
	}
}

func TestAnInterruptLeavesNoTable(t *testing.T) {
	d := open(t, 20)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	o := options{cache: t.TempDir(), out: t.TempDir(), seed: 1, alpha: 1, longest: 12}
	if err := translate(ctx, d, smallSweep, o, io.Discard, quiet(t)); err == nil {
		t.Error("no error")
	}
	if _, err := os.Stat(filepath.Join(o.out, "translate.json")); err == nil {
		t.Error("there is a table")
	}
}
