package report_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/benchmarks/internal/points"
	"github.com/learning-to-screen/l2s/benchmarks/internal/report"
)

// translation returns figures with a dense scan, an exact layer and the given rows.
func translation(rows ...points.Translator) *points.Translation {
	return &points.Translation{
		Layer: points.Layer{Name: "test", Labels: 10_000, Dim: 500}, Sentences: 1000, Widths: []int{1, 5},
		Rows: append([]points.Translator{
			translator(points.Dense, 1, 1, 30, 31), translator("Exact", 1, 4, 30, 31),
		}, rows...),
	}
}

// translator is a row with one speedup for all, one precision on all contexts, and the BLEU
// of both widths.
func translator(method string, precision, speedup, one, five float64) points.Translator {
	r := points.Translator{Method: method, P1: precision, P5: precision}
	if strings.HasPrefix(method, "L2S") || strings.HasPrefix(method, "l2s") {
		r.RowsScanned, r.HeldP5 = 300, precision
	}
	for _, b := range []float64{one, five} {
		x := points.Timing{Micros: 1000 / speedup, MicrosQ1: 1, MicrosQ3: 2, Speedup: speedup, SpeedupQ1: speedup, SpeedupQ3: speedup}
		r.Decodings = append(r.Decodings, points.Decoding{BLEU: b, Low: -0.25, High: 0.125, Timing: x})
	}
	return r
}

func TestTheScreenThatStandsForAll(t *testing.T) {
	for _, c := range []struct {
		name    string
		rows    []points.Translator
		want    int
		verdict string
	}{
		{"the most precise of those that are fast, whatever their BLEU", []points.Translator{
			translator("L2S, a", 0.991, 120, 30, 31), translator("L2S, b", 0.995, 95, 29.9, 30.96), translator("L2S, c", 0.999, 80, 30, 31), translator("L2S, d", 0.99, 95, 30.5, 31.5),
		}, 3, "L2S, b has BLEU -0.10 and -0.04 against the exact layer at beam 1 and 5 (-0.25 to +0.12 and -0.25 to +0.12), 95.0x and 95.0x over the dense scan, P@1 0.9950. " +
			"It was chosen without the test text: of the screens that are at least 90 times as fast as the dense scan at beam 5, it has the largest P@5 on held-out contexts, 0.9950 (with a tail, if equal). " +
			"The aim is a loss of at most 0.05 BLEU and 90x at beam 5: it is reached."},
		{"it loses too much", []points.Translator{translator("L2S, a", 0.99, 95, 30, 30.94), translator("L2S, b", 0.98, 95, 30, 31)}, 2, "it is not reached."},
		{"the fastest where none is fast", []points.Translator{
			translator("L2S, a", 0.98, 50, 30, 31), translator("L2S, b", 0.985, 10, 30, 31), translator("FGD", 0.999, 99, 30, 31),
		}, 2, "it is not reached."},
		{"no screen", []points.Translator{translator("FGD", 0.999, 99, 30, 31)}, -1, "There is no screen."},
	} {
		f := translation(c.rows...)
		if got := report.Representative(f); got != c.want {
			t.Errorf("%s: row %d, want %d", c.name, got, c.want)
		}
		var b strings.Builder
		if err := report.TranslationSummary(&b, f); err != nil || !strings.Contains(b.String(), c.verdict) {
			t.Errorf("%s: %v, %q, want %q", c.name, err, b.String(), c.verdict)
		}
	}
}

func TestTheReportOfATranslation(t *testing.T) {
	f := translation(
		translator("FGD", 0.97, 10, 29.5, 30.5), translator("FGD", 0.99, 5, 29.9, 30.9),
		translator("L2S k-means", 0.985, 120, 29, 30), translator("l2s", 0.993, 100, 29.95, 31.1),
	)
	f.Rows[5].Query = "B=300"
	f.Example = "l2s"
	f.Examples = []points.Differently{{Source: "ein <unk> | zwei", Reference: "one two", Exact: "one <unk>", Screened: "two"}}
	dir := filepath.Join(t.TempDir(), "new")
	if err := report.WriteTranslation(dir, f); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(dir, "TRANSLATE.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(content)
	for _, want := range []string{
		"# Translation with test: beam search on the screen\n",
		"| Dense float32 | – | – | – | 1.0000 | 1.0000 | 1000 | 1.00x (1.00–1.00) | 30.00 | -0.25 to +0.12 | 0 | 1x | 29.50 |",
		"| Exact | – | – | – | 1.0000 | 1.0000 | 250 | 4.00x (4.00–4.00) | 30.00 | -0.25 to +0.12 | 0 | – | – |",
		"| FGD | – | – | – | 0.9700 | 0.9700 | 100 | 10.0x (10.0–10.0) | 29.50 | -0.25 to +0.12 | 0 | 2.7x | 29.43 | 100 | 10.0x (10.0–10.0) | 30.50 | -0.25 to +0.12 | 0 | 2.9x | 30.13 |",
		"| FGD | – | – | – | 0.9900 | 0.9900 | 200 | 5.00x (5.00–5.00) | 29.90 | -0.25 to +0.12 | 0 | – | – |",
		"| **l2s, B=300** | **300** | **0.00 %** | **0.9930** | **0.9930** | **0.9930** | **10.00** | **100x (100–100)** | **29.95** | **-0.25 to +0.12** | **0** | **14x** | **29.46** |",
		"it is reached.",
		"| ein &lt;unk&gt; \\| zwei | one two | one &lt;unk&gt; | two |",
		"## Translations that differ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
}
