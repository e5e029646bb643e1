package report

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/learning-to-screen/l2s/benchmarks/internal/points"
)

// The goals of a screen in translation, with the widest beam.
const (
	mostLoss  = 0.05 // of BLEU, against the exact layer
	leastGain = 90   // speedup
)

// paperBLEU is the paper's Table 2 for DE-EN: speedup and BLEU of the full layer,
// of FGD and of L2S, by the width of the beam.
var paperBLEU = map[int]map[string][2]float64{
	1: {points.Dense: {1, 29.50}, fgd: {2.7, 29.43}, l2s: {14.0, 29.46}},
	5: {points.Dense: {1, 30.33}, fgd: {2.9, 30.13}, l2s: {13.4, 30.19}},
}

// WriteTranslation writes TRANSLATE.md, the report of t, into the folder dir, which
// it makes where it is not there.
func WriteTranslation(dir string, t *points.Translation) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, "TRANSLATE.md"), func(w io.Writer) error {
		var b bytes.Buffer
		fmt.Fprintf(&b, "# Translation with %s: beam search on the screen\n\n%s\n", t.Layer.Name, strings.Join(translationMeasured(t), "\n\n"))
		return markdown(w, &b, translationTables(t))
	})
}

// TranslationSummary writes the table of speedups and BLEU as text.
func TranslationSummary(w io.Writer, t *points.Translation) error {
	main := translationTables(t)[0]
	return main.plain(w)
}

// TranslatorName is the method with its parameters.
func TranslatorName(r points.Translator) string {
	name := r.Method
	if r.Build != "" {
		name += ", " + r.Build
	}
	if r.Query != "" {
		name += ", " + r.Query
	}
	return name
}

// ExactRow is the place of the exact layer among the rows of a translation.
const ExactRow = 1

// widest is the decoding of row r with the widest beam.
func widest(r points.Translator) points.Decoding { return r.Decodings[len(r.Decodings)-1] }

// Representative returns the place of the screen that represents L2S: of the screens that reach the
// goal of speed, one sentence at a time with the widest beam, the screen with the largest P@5 on
// contexts held out, with sums over all labels if it has them. If none reaches the goal it is the
// fastest; -1 if there is no screen. The choice does not use the test text.
func Representative(t *points.Translation) int {
	best := -1
	for i, r := range t.Rows {
		if !screened(r.Method) {
			continue
		}
		if best < 0 {
			best = i
			continue
		}
		other := t.Rows[best]
		gain, least := widest(r).Speedup, widest(other).Speedup
		switch {
		case gain >= leastGain && least >= leastGain:
			if r.HeldP5 > other.HeldP5 || r.HeldP5 == other.HeldP5 && r.OverAll && !other.OverAll {
				best = i
			}
		case gain > least:
			best = i
		}
	}
	return best
}

// translationVerdict names the screen that represents L2S, the reason, and whether it reaches the
// goals.
func translationVerdict(t *points.Translation) string {
	at := Representative(t)
	if at < 0 {
		return "There is no screen."
	}
	r := t.Rows[at]
	var losses, gains, intervals []string
	for i, d := range r.Decodings {
		losses = append(losses, fmt.Sprintf("%+.2f", difference(t, r, i)))
		intervals = append(intervals, interval(d))
		gains = append(gains, times(d.Speedup))
	}
	last := len(t.Widths) - 1
	reached := "it is not reached"
	if difference(t, r, last) >= -mostLoss && widest(r).Speedup >= leastGain {
		reached = "it is reached"
	}
	return fmt.Sprintf("%s has BLEU %s against the exact layer at beam %s (%s), %s over the dense scan, P@1 %s. "+
		"It was chosen without the test text: of the screens that are at least %d times as fast as the dense scan at beam %d, it has the largest P@5 on held-out contexts, %s (with a tail, if equal). "+
		"The aim is a loss of at most %g BLEU and %[7]dx at beam %[8]d: %[11]s.",
		TranslatorName(r), strings.Join(losses, " and "), strings.Trim(strings.ReplaceAll(fmt.Sprint(t.Widths), " ", " and "), "[]"), strings.Join(intervals, " and "),
		strings.Join(gains, " and "), share(r.P1), leastGain, t.Widths[last], share(r.HeldP5), mostLoss, reached)
}

// difference is the BLEU of row r minus the BLEU of the exact layer, at a place of the widths of
// the beam, to the two decimals that the table has.
func difference(t *points.Translation, r points.Translator, at int) float64 {
	hundredths := func(x float64) float64 { return math.Round(100 * x) }
	return (hundredths(r.Decodings[at].BLEU) - hundredths(t.Rows[ExactRow].Decodings[at].BLEU)) / 100
}

// interval prints the interval of the difference of BLEU to the exact layer.
func interval(d points.Decoding) string { return fmt.Sprintf("%+.2f to %+.2f", d.Low, d.High) }

func translationMeasured(t *points.Translation) []string {
	m := t.Machine
	return []string{
		fmt.Sprintf("Model: %s, German to English; softmax layer of %s labels, dimension %s. Machine: %s, %d cores, %s/%s, %s, kernels at level %s.",
			t.Layer.Name, thousands(t.Layer.Labels), thousands(t.Layer.Dim), m.CPU, m.Cores, m.OS, m.Arch, m.Go, t.Level),
		fmt.Sprintf("Times are of the softmax layer alone, on one thread: best labels and log-probabilities of the hypotheses of a step, for %s sentences, %d rounds in turns, caches warm. "+
			"A time is per context, the median over rounds; a speedup is the median ratio to the dense scan of the same round, with quartiles.",
			thousands(t.TimedSentences), t.Rounds),
		fmt.Sprintf("BLEU is corpus BLEU-4 over %s tokenised sentences with one reference; each method decodes by itself, with length exponent %g, at most %d words. "+
			"Log-probabilities are normalised over the labels that a method looks at, with a tail over all labels. The difference is to the exact layer: 95 %% by the paired bootstrap, %s resamples.",
			thousands(t.Sentences), t.Alpha, t.MaxLen, thousands(t.Resamples)),
		fmt.Sprintf("P@k is over %s contexts of the test references. Screens learned from %s contexts of references and %s of the model's own greedy decoding, both of training sentences; "+
			"%s contexts of other training sentences are held out.",
			thousands(t.TestContexts), thousands(t.References), thousands(t.Own), thousands(t.Calibration)),
		fmt.Sprintf("Seed %d.", t.Seed),
	}
}

func translationTables(t *points.Translation) []table {
	main := table{
		title: "Table 2: speedup and BLEU",
		note:  translationVerdict(t) + " The paper measured IWSLT-14 with another model on another machine.",
		head:  []string{"method", "rows scanned", "exact", "held-out P@5", "P@1", "P@5"}, text: 1,
	}
	for _, width := range t.Widths {
		main.head = append(main.head, fmt.Sprintf("beam %d: µs", width), "speedup", "BLEU", "difference", "differ", "paper: speedup", "BLEU")
	}
	represents := Representative(t)
	said := map[string]bool{}
	for i, r := range t.Rows {
		name := TranslatorName(r)
		rows, exact, held := none, none, none
		if r.RowsScanned > 0 {
			rows, exact, held = fmt.Sprintf("%.0f", r.RowsScanned), fmt.Sprintf("%.2f %%", 100*r.ExactShare), share(r.HeldP5)
		}
		row := []string{name, rows, exact, held, share(r.P1), share(r.P5)}
		// The paper's figures are printed in one row of each of its methods.
		base := r.Method
		switch {
		case i == represents:
			base = l2s
		case screened(base):
			base = ""
		}
		has := !said[base]
		for j, d := range r.Decodings {
			row = append(row, micros(d.Micros), spread(d.Speedup, d.SpeedupQ1, d.SpeedupQ3), fmt.Sprintf("%.2f", d.BLEU), interval(d), fmt.Sprint(d.Differ))
			if f, ok := paperBLEU[t.Widths[j]][base]; ok && has {
				row = append(row, fmt.Sprintf("%gx", f[0]), fmt.Sprintf("%.2f", f[1]))
			} else {
				row = append(row, none, none)
			}
		}
		said[base] = said[base] || has
		if i == represents {
			main.best = append(main.best, len(main.rows))
		}
		main.rows = append(main.rows, row)
	}
	list := []table{main}
	if len(t.Examples) > 0 {
		list = append(list, exampleTable(t))
	}
	return list
}

// exampleTable shows sentences with two translations.
func exampleTable(t *points.Translation) table {
	e := table{
		title: "Translations that differ",
		note:  fmt.Sprintf("Sentences that %s and the exact layer translate differently, at beam %d.", t.Example, t.Widths[len(t.Widths)-1]),
		head:  []string{"source", "reference", "exact", "screened"}, text: 4,
	}
	for _, x := range t.Examples[:min(3, len(t.Examples))] {
		cells := []string{x.Source, x.Reference, x.Exact, x.Screened}
		for i, c := range cells {
			cells[i] = strings.NewReplacer("<", "&lt;", ">", "&gt;").Replace(c)
		}
		e.rows = append(e.rows, cells)
	}
	return e
}
