package report_test

import (
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/benchmarks/internal/points"
	"github.com/learning-to-screen/l2s/benchmarks/internal/report"
)

// methods are made-up curves: each has the speedup of its fastest point and the
// nines of it, and grows slower and more precise from there.
var methods = []struct {
	name           string
	fast, nines    float64
	settings       int
	slower, better float64 // from one setting to the next
}{
	{points.Dense, 1, 9, 1, 1, 0},
	{"OpenBLAS sgemv", 1.1, 9, 1, 1, 0},
	{"Exact, certified int8", 6.5, 9, 1, 1, 0},
	{"L2S learned, Gumbel straight-through", 240, 1, 8, 0.85, 0.25},
	{"l2s", 260, 1, 8, 0.85, 0.25},
	{"L2S k-means", 255, 0.8, 8, 0.82, 0.22},
	{"L2S learned, expected loss", 230, 1.2, 8, 0.85, 0.25},
	{"Frequency head", 180, 0.3, 8, 0.5, 0.2},
	{"FGD", 40, 0.7, 8, 0.7, 0.3},
	{"ip-NSW", 45, 0.5, 8, 0.7, 0.28},
	{"SVD-softmax", 9, 1, 6, 0.7, 0.4},
	{"Weighted SVD", 12, 1, 6, 0.8, 0.3},
	{"Adaptive-softmax", 30, 0.4, 6, 0.6, 0.3},
	{"Greedy-MIPS", 20, 0.2, 6, 0.5, 0.3},
	{"PCA-MIPS", 25, 0.1, 6, 0.5, 0.15},
	{"LSH-MIPS", 15, 0.05, 6, 0.5, 0.12},
}

func made() *points.File {
	f := &points.File{
		Schema: points.Schema, Sweep: points.Reduced, Complete: true, Level: "avx512", K: 5, Seed: 1,
		Machine:       points.Machine{CPU: "Some CPU <1 & 2> | 3", OS: "linux", Arch: "amd64", Cores: 2, Go: "go1.26"},
		Layer:         points.Layer{Name: "PTB-Small", Labels: 10000, Dim: 200},
		TrainContexts: 100000, TestContexts: 2000, PrecisionContexts: 2000, Rounds: 7, TurnContexts: 64, Seconds: 345,
		Text: "some.text.txt", Tokens: 82430,
	}
	point := func(method string, speedup, nines float64) points.Point {
		return points.Point{
			Method: method, Build: "r=100", Query: "B=30", BuildSeconds: 12.3, Bytes: 1 << 20,
			Timing: points.Timing{
				Micros: 300 / speedup, MicrosQ1: 290 / speedup, MicrosQ3: 310 / speedup,
				Speedup: speedup, SpeedupQ1: 0.9 * speedup, SpeedupQ3: 1.1 * speedup,
			},
			P1: 1 - math.Pow(10, -nines-0.7), P5: 1 - math.Pow(10, -nines),
		}
	}
	for _, m := range methods {
		speedup, nines := m.fast, m.nines
		for range m.settings {
			f.Points = append(f.Points, point(m.name, speedup, nines), point(m.name, speedup*0.9, nines*0.9))
			speedup, nines = speedup*m.slower, nines+m.better
		}
		if m.settings == 1 { // exact
			for i := range f.Points[len(f.Points)-2:] {
				f.Points[len(f.Points)-1-i].P1, f.Points[len(f.Points)-1-i].P5 = 1, 1
			}
		}
	}
	for _, r := range []int{250, 50, 200, 100} {
		p := point("L2S learned, Gumbel straight-through", 150, 2)
		p.Table, p.Clusters, p.Budget, p.MeanCandidates, p.RowsScanned = points.Clusters, r, 350-float64(r), 349-float64(r), 349
		f.Points = append(f.Points, p)
	}
	for _, name := range []string{"L2S learned, expected loss", "L2S k-means"} {
		p := point(name, 150, 2)
		p.Table, p.Clusters, p.Budget, p.MeanCandidates = points.KMeans, 100, 77, 76.5
		f.Points = append(f.Points, p)
	}
	for i, name := range []string{"Exact", "SVD-softmax", "Adaptive-softmax", "FGD", "l2s", "l2s, with its tail"} {
		f.Perplexity = append(f.Perplexity, points.Perplexity{Method: name, Params: "N=200", Rank: 20 * min(i, 1), Perplexity: 113.3 + float64(i), Timing: points.Timing{Micros: 340, Speedup: 1 + float64(i), SpeedupQ1: 1, SpeedupQ3: 9}})
	}
	return f
}

func write(t *testing.T, f *points.File) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "made", "results")
	if err := save(dir, f); err != nil {
		t.Fatal(err)
	}
	if err := report.Page(filepath.Join(dir, "figures.md"), "", dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func save(dir string, f *points.File) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	return f.Save(filepath.Join(dir, "points.json"))
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// rows returns the cells of the table below a title of figures.md, without the
// head, stripped of stress.
func rows(t *testing.T, md, title string) (list [][]string) {
	t.Helper()
	_, body, ok := strings.Cut(md, "\n### "+title+"\n")
	if !ok {
		t.Fatalf("no table %s", title)
	}
	body, _, _ = strings.Cut(body, "\n### ")
	width := 0
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		cells := strings.Split(strings.ReplaceAll(strings.Trim(strings.TrimSpace(line), "|"), "**", ""), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if width == 0 {
			width = len(cells)
		}
		if len(cells) != width {
			t.Errorf("%s: %d cells, the head has %d: %s", title, len(cells), width, line)
		}
		list = append(list, cells)
	}
	if len(list) < 3 {
		t.Fatalf("%s: no rows", title)
	}
	return list[2:]
}

func TestReport(t *testing.T) {
	dir := write(t, made())
	t.Run("every method has a row", func(t *testing.T) { checkRows(t, dir) })
	t.Run("the tables are the paper's", func(t *testing.T) { checkTables(t, dir) })
	t.Run("both figures are there", func(t *testing.T) { checkFigures(t, dir) })
	t.Run("equal points give equal files", func(t *testing.T) {
		again := write(t, made())
		for _, name := range []string{"figures.md", "p1.svg", "p1.png", "p5.svg", "p5.png"} {
			if read(t, dir, name) != read(t, again, name) {
				t.Errorf("%s differs", name)
			}
		}
	})
}

func checkRows(t *testing.T, dir string) {
	md := read(t, dir, "figures.md")
	for _, title := range []string{"Table 1: speedup and precision", "Speedup at equal precision"} {
		list := rows(t, md, title)
		if len(list) != len(methods) {
			t.Errorf("%s: %d rows, want %d", title, len(list), len(methods))
		}
		for _, m := range methods {
			if !slices.ContainsFunc(list, func(r []string) bool { return r[0] == m.name }) {
				t.Errorf("%s: no row of %s", title, m.name)
			}
		}
	}
}

func checkTables(t *testing.T, dir string) {
	md := read(t, dir, "figures.md")
	one := rows(t, md, "Table 1: speedup and precision")
	said := map[string]string{"L2S learned, Gumbel straight-through": "10.6x 0.998 0.990", "l2s": "– – –", "L2S learned, expected loss": "– – –", "FGD": "1.3x 0.980 0.989", "SVD-softmax": "0.8x 0.987 0.990", "Adaptive-softmax": "1.9x 0.972 0.981",
		"Greedy-MIPS": "0.5x 0.998 0.972", "PCA-MIPS": "0.14x 0.322 0.341", "LSH-MIPS": "1.3x 0.165 0.330", "L2S k-means": "4x 0.988 0.992", "ip-NSW": "– – –"}
	for _, r := range one {
		if want, ok := said[r[0]]; ok && strings.Join(r[len(r)-3:], " ") != want {
			t.Errorf("%s: the paper has %v, want %s", r[0], r[len(r)-3:], want)
		}
	}
	// P@1 0.998 and P@5 0.990 are 2.7 and 2 nines: the fifth point of l2s has
	// them.
	if r := one[0]; r[0] != "l2s" || r[4] != "0.9900" || !strings.HasPrefix(r[2], "136x (122–149)") {
		t.Errorf("operating point of l2s: %v", r)
	}
	// The paper's precisions of these methods are no goal: their points are the points nearest to
	// its L2S, the most precise of this test.
	for _, r := range one {
		if want := map[string]string{"PCA-MIPS": "0.8587", "LSH-MIPS": "0.7761"}[r[0]]; want != "" && r[4] != want {
			t.Errorf("%s: P@5 %s, want the value of the most precise point, %s", r[0], r[4], want)
		}
	}
	if !strings.Contains(md, "7 rounds, methods in random order, turns of at least 64 of 2,000 contexts") {
		t.Error("the report does not name the contexts of the times")
	}
	if !strings.Contains(md, "both get the same transform") {
		t.Error("the report does not explain why the paper's PCA-MIPS and LSH-MIPS read as random")
	}
	var clusters []string
	for _, r := range rows(t, md, "Numbers of clusters") {
		clusters = append(clusters, r[0]+":"+r[len(r)-3])
	}
	if got := strings.Join(clusters, " "); got != "50:0.12 100:0.17 200:0.14 250:0.12" {
		t.Errorf("clusters and the paper's times: %s", got)
	}
	if list := rows(t, md, "Learned clusters against spherical k-means"); len(list) != 2 || list[0][2] != "L2S learned, expected loss" || list[1][2] != "L2S k-means" {
		t.Errorf("k-means: %v", list)
	}
	var ppl []string
	for _, r := range rows(t, md, "Perplexity") {
		ppl = append(ppl, r[3]+"/"+r[6])
	}
	if got := strings.Join(ppl, " "); got != "113.30/112.28 114.30/116.64 115.30/121.43 116.30/116.49 117.30/115.91 118.30/–" {
		t.Errorf("perplexities: %s", got)
	}
}

// The fastest point of a precision, and the report's words on L2S there.
func TestTheVerdictIsThatOfThePoints(t *testing.T) {
	f := made()
	if md := read(t, write(t, f), "figures.md"); !strings.Contains(md, "Screens are ahead of every other method: ") || strings.Contains(md, "Screens are not ahead") {
		t.Error("a screen is the fastest at every precision: the report does not tell it")
	}
	for i := range f.Points {
		if f.Points[i].Method == "FGD" {
			f.Points[i].Speedup *= 20
		}
	}
	md := read(t, write(t, f), "figures.md")
	if !strings.Contains(md, "Screens are not ahead: ") || !strings.Contains(md, "where FGD has") {
		t.Error("FGD is faster: the report does not tell it")
	}
	for _, r := range rows(t, md, "Speedup at equal precision") {
		if r[0] != "LSH-MIPS" {
			continue
		}
		if got := strings.Join(r[1:], " "); got != "– – – – –" {
			t.Errorf("LSH-MIPS reaches none of the precisions: %s", got)
		}
	}
}

// sqrt(.98 * .02 / 2000) is .00313, and that over sqrt(5) .00140.
func TestTheStandardErrorOfThePrecisionIsStated(t *testing.T) {
	md := read(t, write(t, made()), "figures.md")
	if !strings.Contains(md, "The same 2,000 contexts") || !strings.Contains(md, "is 0.0014 to 0.0031.") {
		t.Error("no standard error, or another one")
	}
}

func checkFigures(t *testing.T, dir string) {
	for _, name := range []string{"p1", "p5"} {
		picture, err := png.Decode(strings.NewReader(read(t, dir, name+".png")))
		if err != nil {
			t.Fatalf("%s.png: %v", name, err)
		}
		colors := map[[3]uint32]bool{}
		for y := range picture.Bounds().Dy() {
			for x := range picture.Bounds().Dx() {
				r, g, b, _ := picture.At(x, y).RGBA()
				colors[[3]uint32{r, g, b}] = true
			}
		}
		if len(colors) < len(methods) {
			t.Errorf("%s.png: %d colours", name, len(colors))
		}
		svg := read(t, dir, name+".svg")
		checkXML(t, name+".svg", svg)
		for _, m := range methods {
			if !strings.Contains(svg, ">"+m.name+"<") {
				t.Errorf("%s.svg: no legend of %s", name, m.name)
			}
		}
		for _, tick := range []string{"0.9", "0.99", "0.999", "1x", "100x"} {
			if !strings.Contains(svg, ">"+tick+"<") {
				t.Errorf("%s.svg: no tick %s", name, tick)
			}
		}
	}
}

func checkXML(t *testing.T, name, text string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

func TestOtherLayersAndPartsOfAComparison(t *testing.T) {
	f := made()
	f.Layer.Name, f.Complete, f.Perplexity = "books-lm", false, nil
	f.Points = slices.DeleteFunc(f.Points, func(p points.Point) bool { return p.Table != points.Curves || p.Method == "l2s" })
	f.Points = append(f.Points, points.Point{Method: "A method of its own", Timing: points.Timing{Micros: 1, Speedup: 2, SpeedupQ1: 1, SpeedupQ3: 3}})
	md := read(t, write(t, f), "figures.md")
	for _, want := range []string{"## Comparison on books-lm, 10,000 x 200", "The run was interrupted", "The paper has no such layer"} {
		if !strings.Contains(md, want) {
			t.Errorf("not there: %s", want)
		}
	}
	for _, title := range []string{"### Numbers of clusters", "### Perplexity", "### Learned clusters"} {
		if strings.Contains(md, title) {
			t.Errorf("a table without points: %s", title)
		}
	}
	f.Points = nil
	dir := t.TempDir()
	if err := save(dir, f); err != nil {
		t.Fatal(err)
	}
	if err := report.Page(filepath.Join(dir, "figures.md"), "", dir); err == nil {
		t.Error("no points: no error")
	}
}

// Each library of the table is a line of the picture, with its settings.
func TestThePictureOfPeers(t *testing.T) {
	dir := t.TempDir()
	table := "method\tsetting\tP@1\tP@5\tmedian, us\nl2s preview\tstep 1\t0.9900\t0.9816\t470\nl2s preview\tstep 2 of 2, the default\t1.0000\t1.0000\t5,100\nhnswlib\tef 50\t0.8320\t0.8276\t1,278\n"
	if err := os.WriteFile(filepath.Join(dir, "peers.tsv"), []byte(table), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := report.Page(filepath.Join(dir, "figures.md"), "", dir); err != nil {
		t.Fatal(err)
	}
	svg := read(t, dir, "peers.svg")
	checkXML(t, "peers.svg", svg)
	for _, want := range []string{">l2s preview<", ">hnswlib<", ">0.99<", ">1<", ">500<", ">5000<"} {
		if !strings.Contains(svg, want) {
			t.Errorf("found no %s", want)
		}
	}
	if page := read(t, dir, "figures.md"); !strings.Contains(page, "| **l2s preview** | **step 2 of 2, the default** | **1.0000** |") || !strings.Contains(page, "| hnswlib | ef 50 | 0.8320 |") {
		t.Errorf("found no rows of it in %s", page)
	}
}
