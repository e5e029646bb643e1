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
	if err := x.Save(filepath.Join(dir, "translation.json")); err != nil {
		t.Fatal(err)
	}
	if err := report.Page(filepath.Join(dir, "figures.md"), "", dir); err != nil {
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
		"## Translation with some-model", "32,000 labels, dimension 256", "Measured so.",
		"| a screen | 412 | 0.9995 | 9.25 | 100x | 99.1 % | 99.80 | 5000 | 8.00 | 112x | 97.0 % | 99.50 | 1100 |",
		"| another program | 321 | 98.50 |",
	} {
		if got := read("figures.md"); !strings.Contains(got, want) {
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

// The page of the repository is what the command writes from the measurements beside it.
func TestThePageOfFigures(t *testing.T) {
	const results = "../../results"
	files, err := filepath.Glob(results + "/*/about.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("found %d folders of results: %v", len(files), err)
	}
	page, err := os.ReadFile("../../../docs/figures.md")
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "benchmarks", "results")
	if err := os.CopyFS(copied, os.DirFS(results)); err != nil {
		t.Fatal(err)
	}
	docs := filepath.Join(copied, "..", "..", "docs")
	if err := os.Mkdir(docs, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := report.Page(filepath.Join(docs, "figures.md"), copied, report.Folders(copied)...); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(docs, "figures.md"))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(page) {
		t.Error("docs/figures.md is not what `make figures` writes from benchmarks/results")
	}
	for _, name := range []string{"gemma3-270m/peers.png", "token.png"} {
		if strings.Count(string(page), name) > 1 {
			t.Errorf("found %s more than once in the page", name)
		}
		if _, err := os.Stat(filepath.Join(results, name)); err != nil {
			t.Error(err)
		}
	}
}

// What is missing or broken is named.
func TestFoldersThatArePages(t *testing.T) {
	for _, c := range []struct{ what, file, text, want string }{
		{"nothing", "", "", "found no measurements"},
		{"a file cut off", "tokens.json", "{", "tokens.json"},
		{"a table of rows of other lengths", "peers.tsv", "method\tsetting\tP@1\tP@5\tmedian, us\nl2s\n", "found 1 cells"},
		{"a table of one column", "peers.tsv", "a\nb\n", "found 1 columns"},
		{"a token without its time", "tokens.json", `{"rows": [{"threads": 1, "task": "greedy", "head": "llama.cpp"}]}`, "expected numbers of a measurement"},
		{"a token that takes for ever", "tokens.json", `{"rows": [{"threads": 1, "task": "greedy", "head": "exact", "tokens_per_second": 1, "microseconds": 1e308}]}`, "expected numbers of a measurement"},
		{"times that are not there", "times-a.json", `{"cold": [{}]}`, "found a time that no measurement has"},
		{"times without cold ones", "times-preview.json", "{}", "found 0 cold measurements"},
	} {
		dir := t.TempDir()
		if c.file != "" {
			if err := os.WriteFile(filepath.Join(dir, c.file), []byte(c.text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if err := report.Page(filepath.Join(dir, "figures.md"), "", dir); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: found the error %v, expected one with %q", c.what, err, c.want)
		}
	}
}

// The table of searches has the exact search of the first file, and each index over the exact search of its
// own run; that of tokens a line for each task and number of threads.
func TestThePageOfOneLayer(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"about.txt": "# A layer\n\nOf words.\n",
		"times-preview.json": `{"cpu": "Some CPU", "level": "avx2", "kind": "preview", "k": 5, "queries": 1000, "dense_f32_median_us": 4000, "exact_median_us": 800, "screened_median_us": 100,
			"screened_p99_us": 300.5, "cold": [{"dense_f32_us": 5000, "exact_us": 900, "screened_us": 150, "screened_p99_us": 400}], "precision": {"1": 1, "5": 0.998}, "precision_contexts": 2000}`,
		"times-screen.json": `{"kind": "screen", "k": 5, "exact_median_us": 820, "screened_median_us": 8.2, "cold": [{"exact_us": 900, "screened_us": 18}], "precision": {"1": 0.99, "5": 0.98}}`,
		"tokens.json": `{"cpu": "Some CPU", "rows": [{"task": "none", "head": "none", "threads": 1, "tokens_per_second": 100, "microseconds": 10000}, {"task": "greedy", "head": "llama.cpp", "threads": 1, "tokens_per_second": 40, "microseconds": 25000, "speedup": 1},
			{"task": "greedy", "head": "preview", "threads": 1, "tokens_per_second": 90, "microseconds": 11111, "speedup": 2.25}]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := report.Page(filepath.Join(dir, "figures.md"), "", dir); err != nil {
		t.Fatal(err)
	}
	page := read(t, dir, "figures.md")
	for _, want := range []string{
		"## A layer\n\nOf words.\n",
		"| task | threads | llama.cpp | preview | none |",
		"| greedy | 1 | 40.0 | 90.0 (2.25) | 100.0 |",
		"| dense float32 | 4,000 | 0.0 | 5,000 | – | 0.20x | 0.18x | 1.0000 | 1.0000 |",
		"| exact | 800 | 0.0 | 900 | – | 1.00x | 1.00x | 1.0000 | 1.0000 |",
		"| preview | 100 | 301 | 150 | 400 | 8.00x | 6.00x | 1.0000 | 0.9980 |",
		"| screen | 8.2 | 0.0 | 18.0 | 0.0 | 100x | 50.0x | 0.9900 | 0.9800 |",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("found no %q in %s", want, page)
		}
	}
}
