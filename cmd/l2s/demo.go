package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/learning-to-screen/l2s/head"
	"github.com/learning-to-screen/l2s/internal/atomicfile"
	"github.com/learning-to-screen/l2s/internal/demolm"
	"github.com/learning-to-screen/l2s/internal/dense"
	"github.com/learning-to-screen/l2s/internal/progress"
	"github.com/learning-to-screen/l2s/internal/tensorfile"
	"github.com/learning-to-screen/l2s/internal/vocab"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// demoPrompts are answered at the end.
var demoPrompts = []string{
	"it was the best of",
	"she looked at him and",
	"the old man went to the",
	"i do not know what you",
	"there was a knock at the",
}

// The contexts that the demonstration trains on and measures on, for less than a minute on two
// cores. No stream of the text is in both.
const demoLearnt, demoHeldOut = 136 * demolm.Stream, 20 * demolm.Stream

// demoResult is the JSON of l2s demo: the fields of eval and bench together.
type demoResult struct {
	*evalResult
	*benchResult
	Level   string             `json:"level"` // of both
	Seed    uint64             `json:"seed"`
	Kept    string             `json:"kept,omitempty"` // the folder that holds the files
	Seconds map[string]float64 `json:"seconds"`        // of each stage of the training, and of all

	answers []demoAnswer
}

// demoAnswer are the next words after a prompt.
type demoAnswer struct {
	prompt          string
	exact, screened []string
}

func demoVerb(f *flags) action {
	lm, keep := f.needs("lm"), f.text("keep")
	seed := f.whole("seed", 1, 0)
	return func(ctx context.Context, _ *inputs) (_ fmt.Stringer, err error) {
		made := false
		if *keep != "" {
			if made, err = emptyFolder(*keep); err != nil {
				return nil, err
			}
		}
		r, err := demo(ctx, *lm, demoLearnt, demoHeldOut, uint64(*seed), *keep, f.progress)
		if err == nil {
			return r, nil
		}
		if made {
			os.Remove(*keep) // unless something is in it
		}
		return nil, err
	}
}

// demo trains a screen for the language model in a folder on learn contexts, measures it on measure
// other contexts and asks it, with progress on p. It leaves its files in the folder keep, unless
// that is empty.
func demo(ctx context.Context, lm string, learn, measure int, seed uint64, keep string, p *progress.Printer) (*demoResult, error) {
	start := time.Now()
	model, err := demolm.Load(lm)
	if err != nil {
		return nil, err
	}
	l := &layer{model.Layer, lm, &head.Head{}}
	p.Start("text", "tokens", learn+measure)
	rows, err := model.Contexts(ctx, learn+measure, seed, p.Set)
	p.End()
	if err != nil {
		return nil, err
	}
	learnt, heldOut := rows[:learn*l.Dim()], rows[learn*l.Dim():]
	m, _, seconds, err := trainScreen(ctx, l, learnt, commonOptions(), p)
	if err != nil {
		return nil, err
	}
	if keep != "" {
		if err := keepDemo(keep, l, learnt, heldOut, model.Words, m); err != nil {
			return nil, err
		}
	}
	e, err := evaluate(ctx, m, l, heldOut, nil, []int{1, 5}, 0, p, screen.Options{})
	if err != nil {
		return nil, err
	}
	b, err := bench(ctx, &inputs{screen: m, layer: l}, different(heldOut, l.Dim()), 5, 0, p, screen.Options{})
	if err != nil {
		return nil, err
	}
	r := &demoResult{evalResult: e, benchResult: b, Level: e.Level, Seed: seed, Kept: keep, Seconds: seconds}
	if r.answers, err = demoAnswers(model, l, m); err != nil {
		return nil, err
	}
	r.Seconds["training"] = r.Seconds["total"]
	r.Seconds["total"] = round(time.Since(start).Seconds())
	return r, nil
}

// demoAnswers completes the prompts by the exact layer and by the screen.
func demoAnswers(model *demolm.Model, l *layer, m *screen.Model) ([]demoAnswer, error) {
	voc := model.Words
	s, err := screen.NewSearcher(m, l.Layer, screen.Options{})
	if err != nil {
		return nil, err
	}
	eos, err := voc.Special(vocab.EOSWord)
	if err != nil {
		return nil, err
	}
	words := func(best []softmax.Prediction) (list []string) {
		for _, p := range best {
			list = append(list, voc.Word(p.ID))
		}
		return list
	}
	exact, dst := softmax.NewSearcher(l.Layer), make([]softmax.Prediction, 5)
	var answers []demoAnswer
	for _, prompt := range demoPrompts {
		state := model.NewState()
		h := state.Step(eos) // every line of a text starts in this state
		for word := range strings.FieldsSeq(prompt) {
			id, known := voc.ID(word)
			if !known {
				return nil, fmt.Errorf("%s: found no word %q, expected all words of the prompts", l.name, word)
			}
			h = state.Step(id)
		}
		a := demoAnswer{prompt: prompt}
		_, failed := exact.TopK(dst, h)
		a.exact = words(dst)
		_, err := s.TopK(dst, h)
		a.screened = words(dst)
		if err = errors.Join(failed, err); err != nil {
			return nil, err
		}
		answers = append(answers, a)
	}
	return answers, nil
}

func (r *demoResult) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "The five likeliest next words, by the exact layer and by the screen:\n")
	for _, a := range r.answers {
		fmt.Fprintf(&b, "\n  %s ...\n", a.prompt)
		fmt.Fprintf(&b, "     %-18s    %s\n", "EXACT", "SCREEN")
		for i, word := range a.exact {
			fmt.Fprintf(&b, "     %-18s    %s\n", word, a.screened[i])
		}
	}
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %-22s %s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(&b, "\n%s contexts that were not trained on, one thread, level %s:\n\n", progress.Count(r.Contexts), r.Level)
	line("clusters", "%8d", r.Clusters)
	line("budget", "%8v", r.Budget)
	line("candidates", "%8.1f     a context on average, of %s words", r.MeanCandidates, progress.Count(r.Labels))
	line("P@1", "%8.4f     share of the exact best words found", r.Precision["1"])
	line("P@5", "%8.4f     share of the exact five best found", r.Precision["5"])
	line("dense float32 scan", "%8.1f us  a query, the median (mean %.1f us)", r.DenseF32Median, r.DenseF32)
	line("exact layer", "%8.1f us  (mean %.1f us)", r.ExactMedian, r.Exact)
	line("screen", "%8.2f us  (mean %.2f us; 99 of 100 take at most %.2f us)", r.ScreenedMedian, r.Screened, r.ScreenedP99)
	line("speedup", "%8.1f x   against the dense scan, by the medians", r.DenseF32Median/r.ScreenedMedian)
	if note := r.busyNote(); note != "" {
		b.WriteString("\n" + note)
	}
	b.WriteString("\nThis small model draws its words from few: the screen of a large one has more candidates.\n")
	if r.Kept != "" {
		b.WriteString(keptText(r.Kept))
	}
	fmt.Fprintf(&b, "\nAll this took %s.\n", progress.Duration(time.Duration(r.Seconds["total"]*1e9)))
	return b.String()
}

// emptyFolder makes the folder dir, or checks that it is there and empty: nothing is replaced.
func emptyFolder(dir string) (made bool, err error) {
	err = os.Mkdir(dir, 0o777)
	if !errors.Is(err, fs.ErrExist) {
		return err == nil, err
	}
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) > 0 {
		err = fmt.Errorf("%s: found a folder that holds %s, expected a new or an empty one", dir, entries[0].Name())
	}
	return false, err
}

// keepDemo leaves in a folder the files of the demonstration: the layer, the contexts of training
// and of measurement, the vocabulary and the screen.
func keepDemo(dir string, l *layer, learnt, heldOut []float32, voc *vocab.Vocab, m *screen.Model) error {
	in := func(name string) string { return filepath.Join(dir, name) }
	dim := l.Dim()
	err := tensorfile.WriteSafetensors(in("layer.safetensors"),
		tensorfile.Array{Name: "weight", Shape: []int{l.Labels(), dim}, Data: dense.Weights(l.Layer)},
		tensorfile.Array{Name: "bias", Shape: []int{l.Labels()}, Data: l.Bias()})
	if err != nil {
		return err
	}
	for name, rows := range map[string][]float32{"train.npy": learnt, "test.npy": heldOut} {
		if err := tensorfile.WriteNPY(in(name), rows, len(rows)/dim, dim); err != nil {
			return err
		}
	}
	err = atomicfile.WriteFile(in("vocab.txt"), func(w io.Writer) error {
		for id := range voc.Len() {
			fmt.Fprintln(w, voc.Word(uint32(id)))
		}
		return nil
	})
	if err != nil {
		return err
	}
	return m.Save(in("m.l2s"))
}

// keptText lists the files and gives commands that use them. Its command of training makes the same
// screen.
func keptText(dir string) string {
	layer := fmt.Sprintf("--weights %s:weight --bias %[1]s:bias", filepath.Join(dir, "layer.safetensors"))
	in := func(name string) string { return filepath.Join(dir, name) }
	return fmt.Sprintf(`
%s holds the layer, the contexts, the vocabulary and the screen:

  l2s eval %s %s --contexts %s
  l2s topk %[2]s %[3]s --contexts %[4]s --vocab %[5]s
  l2s train --kind screen %[3]s --contexts %[6]s --out %[7]s

The last makes the screen once more, byte for byte.
`, dir, in("m.l2s"), layer, in("test.npy"), in("vocab.txt"), in("train.npy"), in("mine.l2s"))
}
