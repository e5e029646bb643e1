package report_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/benchmarks/internal/report"
)

// The table has a row for each head, with its figures for both widths of the beam, and the picture its
// names beside those of the paper.
func TestTheReportOfATranslation(t *testing.T) {
	x := &report.Translation{
		Model: "some-model", Labels: 32000, Dim: 256, Note: "Measured so.",
		Heads: []report.Head{
			{Name: "dense float32", P1: 1, Labels: 32000, Micros: [2]float64{930, 900}, Speedup: [2]float64{1, 1}, Same: [2]float64{1, 1}, ChrF: [2]float64{100, 100}, Words: [2]float64{700, 150}},
			{Name: "a screen", P1: .9995, Labels: 411.6, Micros: [2]float64{9.25, 8}, Speedup: [2]float64{100.5, 112}, Same: [2]float64{.991, .97}, ChrF: [2]float64{99.8, 99.5}, Words: [2]float64{5000, 1100}},
		},
		Rivals: []report.Rival{{Name: "another program", Words: 321, ChrF: 98.5}},
	}
	dir := t.TempDir()
	if err := report.WriteTranslation(dir, x); err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	for _, want := range []string{
		"# Translation with some-model", "32,000 labels, dimension 256", "Measured so.",
		"| a screen | 412 | 0.9995 | 9.25 | 100x | 99.1 % | 99.80 | 5000 | 8.00 | 112x | 97.0 % | 99.50 | 1100 |",
		"| another program | 321 | 98.50 |",
	} {
		if got := read("TRANSLATE.md"); !strings.Contains(got, want) {
			t.Errorf("found no %q in %s", want, got)
		}
	}
	for _, want := range []string{"a screen", "dense float32", "paper: FGD"} {
		if !strings.Contains(read("translate.svg"), want) {
			t.Errorf("found no %q in the picture", want)
		}
	}
	if !strings.HasPrefix(read("translate.png"), "\x89PNG") {
		t.Error("found no picture in translate.png")
	}
}
