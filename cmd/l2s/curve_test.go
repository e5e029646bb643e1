package main

import (
	"bytes"
	"encoding/xml"
	"image/png"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/screen"
	"pgregory.net/rapid"
)

var goodCurve = joined("curve", "m.l2s", testArgs())

// With several budgets one run writes a screen for each.
func TestTrainForSeveralBudgets(t *testing.T) {
	dir := files(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	several := joined(goodTrain, "--budget", "40,12.5,80", "--json")
	o := object(t, dir, several...)
	screens, _ := o["screens"].([]any)
	if len(screens) != 3 {
		t.Fatalf("found %d screens, expected 3: %v", len(screens), o)
	}
	for i, want := range []struct {
		file               string
		budget, learnedFor float64
	}{{"out-12.5.l2s", 12.5, 40}, {"out-40.l2s", 40, 0}, {"out-80.l2s", 80, 40}} {
		s := screens[i].(map[string]any)
		if s["out"] != want.file || number(t, s, "budget") != want.budget {
			t.Errorf("found %v for budget %v, expected %s for %v", s["out"], s["budget"], want.file, want.budget)
		}
		if found, _ := s["learned_for"].(float64); found != want.learnedFor {
			t.Errorf("%s: found it learned for %v, expected %v", want.file, found, want.learnedFor)
		}
		if p := number(t, s, "held_out", "precision", "5"); p <= 0 || p > 1 {
			t.Errorf("%s: found P@5 %v on held-out contexts", want.file, p)
		}
		if c := number(t, s, "mean_candidates"); c > want.budget || c < 5 {
			t.Errorf("%s: found %v candidates, expected at most the budget", want.file, c)
		}
		if _, err := screen.Load(at(want.file)); err != nil {
			t.Error(err)
		}
	}
	if !bytes.Equal(readFile(t, at("out-40.l2s")), readFile(t, at("m.l2s"))) {
		t.Error("found another screen for the budget that was learned for, expected the screen of a run of its own")
	}
	for _, name := range listFolder(t, dir) {
		if name == "out.l2s" || strings.Contains(name, "partial") {
			t.Errorf("found %s, expected a screen for each budget alone", name)
		}
	}
	t.Run("--learn-for", func(t *testing.T) {
		succeed(t, dir, joined(several, "--learn-for", "80", "--out", "x.l2s")...)
		succeed(t, dir, joined(goodTrain, "--budget", "80", "--out", "y.l2s")...)
		if !bytes.Equal(readFile(t, at("x-80.l2s")), readFile(t, at("y.l2s"))) {
			t.Error("found another screen for the budget that was learned for, expected the screen of a run of its own")
		}
	})
	t.Run("a report for people", func(t *testing.T) {
		text := succeed(t, dir, joined(goodTrain, "--budget", "40,80")...)
		for _, want := range []string{"out-40.l2s: 6 clusters", "budget 40", "out-80.l2s: 6 clusters", "budget 80"} {
			if strings.Count(text, want) != 1 {
				t.Errorf("found, expected %q in it once:\n%s", want, text)
			}
		}
	})
}

func TestCurve(t *testing.T) {
	notUnderRace(t)
	t.Parallel()
	dir := files(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	succeed(t, dir, joined(goodTrain, "--budget", "10,20,40", "--out", "l.l2s")...)
	succeed(t, dir, joined(goodTrain, "--budget", "10,20", "--out", "k.l2s", "--kmeans-only")...)
	all := []string{"curve", "l-40.l2s", "l-10.l2s", "k-20.l2s", "k-10.l2s"}
	r := l2s(t, dir, joined(all, testArgs(), "--json", "--svg", "c.svg", "--png", "c.png")...)
	if r.code != 0 {
		t.Fatalf("found exit status %d: %s", r.code, r.stderr)
	}
	if !strings.Contains(r.stderr, "eval: 4,800 contexts") || !strings.Contains(r.stderr, "bench: 30 rounds") {
		t.Errorf("found no progress of the work in\n%s", r.stderr)
	}
	o := parseObject(t, r.stdout)
	expectFields(t, o, "k", "contexts", "queries", "labels", "dim", "dense_f32_us", "dense_f32_median_us", "dense_f32_p99_us",
		"exact_us", "exact_median_us", "exact_p99_us", "screens", "level")
	var order []string
	for _, s := range o["screens"].([]any) {
		s := s.(map[string]any)
		file := s["file"].(string)
		order = append(order, file)
		if want := map[byte]string{'k': "k-means", 'l': "l2s"}[file[0]]; s["method"] != want {
			t.Errorf("%s: found method %v, expected %s", file, s["method"], want)
		}
		if number(t, s, "screened_us") <= 0 || number(t, s, "speedup") <= 0 {
			t.Errorf("%s: found times %v", file, s)
		}
		// The figures are the figures of l2s eval.
		e := object(t, dir, joined("eval", file, testArgs(), "--json")...)
		for _, path := range [][]string{{"precision", "1"}, {"precision", "5"}, {"mean_candidates"}, {"rows_scanned"}, {"clusters"}} {
			if found, want := number(t, s, path...), number(t, e, path...); found != want {
				t.Errorf("%s: %v: found %v, expected %v as of l2s eval", file, path, found, want)
			}
		}
	}
	if want := []string{"k-10.l2s", "k-20.l2s", "l-10.l2s", "l-40.l2s"}; !slices.Equal(order, want) {
		t.Errorf("found the screens in the order %v, expected %v", order, want)
	}

	t.Run("PNG", func(t *testing.T) {
		picture, err := png.Decode(bytes.NewReader(readFile(t, at("c.png"))))
		if err != nil {
			t.Fatal(err)
		}
		if size := picture.Bounds().Size(); size.X < 1000 || size.Y < 1000 {
			t.Errorf("found a picture of %v, expected at least 1000 pixels each way", size)
		}
		colors := map[any]int{}
		for y := range picture.Bounds().Dy() {
			for x := range picture.Bounds().Dx() {
				colors[picture.At(x, y)]++
			}
		}
		if n := colors[curveColors[0]]; n < 1000 {
			t.Errorf("found %d pixels in the colour of the curves, expected curves", n)
		}
	})
	t.Run("SVG", func(t *testing.T) {
		svg := string(readFile(t, at("c.svg")))
		d := xml.NewDecoder(strings.NewReader(svg))
		for {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		for _, want := range []string{"P@1", "P@5", "candidates", "µs", "spherical k-means, 6 clusters", "L2S, 6 clusters", "1,200 contexts"} {
			if !strings.Contains(svg, want) {
				t.Errorf("found no %q in the picture", want)
			}
		}
	})
}

// made is a result with a few screens.
func made(k int, points ...curvePoint) *curveResult {
	return &curveResult{K: k, Contexts: 1200, Queries: 1100, Labels: 300, Dim: 12, DenseF32: 21, DenseF32Median: 20, Exact: 9, ExactMedian: 8.5, Screens: points, Level: "generic"}
}

func TestCurveTable(t *testing.T) {
	text := made(5,
		curvePoint{File: "a-name-that-is-long.l2s", Method: methodKMeans, Clusters: 100, MeanCandidates: 149.96, MaxCandidates: 714, RowsScanned: 249.96,
			Precision: map[string]float64{"1": 0.9876, "5": 0.9654}, Screened: 2.165, Median: 2.044, P99: 3.5, Speedup: 9.238},
		curvePoint{File: "b.l2s", Method: methodL2S, Clusters: 1024, Groups: 32, MeanCandidates: 7, RowsScanned: 71,
			Precision: map[string]float64{"1": 1, "5": 0.5}, Screened: 10, Median: 9, P99: 11, Speedup: 2},
	).String()
	for _, want := range []string{
		"1,200 contexts, 300 labels, one thread, level generic\n",
		"\nscreen                   method   clusters  candidates    most      rows     P@1     P@5     median       mean        p99   against dense\n",
		"\na-name-that-is-long.l2s  k-means       100       150.0     714     250.0  0.9876  0.9654    2.04 us    2.17 us    3.50 us            9.8x\n",
		"\nb.l2s                    l2s         32x32         7.0       0      71.0  1.0000  0.5000    9.00 us   10.00 us   11.00 us            2.2x\n",
		"the median of the dense float32 scan is 20.00 us, of the exact layer 8.50 us.\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("found no %q in\n%s", want, text)
		}
	}
	if text := made(1, curvePoint{File: "b.l2s", Method: methodL2S, Clusters: 8, Precision: map[string]float64{"1": 1}}).String(); strings.Contains(text, "P@5") || !strings.Contains(text, "P@1 ") {
		t.Errorf("found, expected P@1 alone:\n%s", text)
	}
}

// Cold times have a table of their own, with a pair of columns for each size.
func TestCurveTableOfColdTimes(t *testing.T) {
	a := curvePoint{File: "a-long-name.l2s", Cold: []coldTimes{{MiB: 8, DenseF32: 100, Screened: 5}, {MiB: 64, DenseF32: 300, Screened: 20}}}
	b := curvePoint{File: "b.l2s", Cold: []coldTimes{{MiB: 8, DenseF32: 100, Screened: 4}, {MiB: 64, DenseF32: 300, Screened: 25}}}
	want := "\ncold                    8 MiB   against dense        64 MiB   against dense\n" +
		"a-long-name.l2s       5.00 us           20.0x      20.00 us           15.0x\n" +
		"b.l2s                 4.00 us           25.0x      25.00 us           12.0x\n"
	if text := made(5, a, b).String(); !strings.Contains(text, want) {
		t.Errorf("found no\n%s in\n%s", want, text)
	}
}

func TestCurveCold(t *testing.T) {
	notUnderRace(t)
	dir := files(t)
	args := joined(goodCurve, "--quiet", "--json")
	for _, s := range object(t, dir, joined(args, "--cold", "2,1,2")...)["screens"].([]any) {
		expectCold(t, s.(map[string]any))
	}
	for _, s := range object(t, dir, args...)["screens"].([]any) {
		if found := s.(map[string]any)["cold"]; found != nil {
			t.Errorf("found %v, expected no cold queries without --cold", found)
		}
	}
}

// Shares of contexts that look further have columns if any is not 0.
func TestCurveTableOfMargins(t *testing.T) {
	plain := curvePoint{File: "p.l2s", Method: methodL2S, Clusters: 8}
	probed, calibrated := plain, plain
	probed.ProbeShare = 0.125
	calibrated.ExactShare = 0.0625
	for _, c := range []struct {
		points     []curvePoint
		want, none []string
	}{
		{[]curvePoint{plain}, nil, []string{"2 clusters", "exact  "}},
		{[]curvePoint{plain, probed}, []string{"2 clusters     median", "       0.00%  ", "      12.50%  "}, []string{"exact  "}},
		{[]curvePoint{calibrated}, []string{"    exact     median", "    6.25%  "}, []string{"2 clusters"}},
		{[]curvePoint{probed, calibrated}, []string{"2 clusters    exact     median", "      12.50%    0.00%  ", "       0.00%    6.25%  "}, nil},
	} {
		text := made(5, c.points...).String()
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("found no %q in\n%s", want, text)
			}
		}
		for _, none := range c.none {
			if strings.Contains(text, none) {
				t.Errorf("found, expected no %q in\n%s", none, text)
			}
		}
	}
}

// Screens of different kinds are different lines: none joins plain, probed and
// calibrated ones, nor those whose clusters were learned for different budgets, nor those
// with other shells or another bound on their sets.
func TestCurveSeries(t *testing.T) {
	point := func(budget, learnedFor, probe, exact float64) curvePoint {
		return curvePoint{Method: methodL2S, Clusters: 64, Groups: 8, Budget: budget, LearnedFor: learnedFor, MeanCandidates: budget, ProbeMargin: probe, ExactMargin: exact}
	}
	r := made(5,
		point(50, 100, 0, 0), point(100, 0, 0, 0), point(150, 100, 0, 0), // of one run
		point(50, 100, 3, 0), point(150, 100, 5, 0), // with probes
		point(100, 0, 3, 1),                    // calibrated
		point(60, 0, 0, 0), point(70, 0, 0, 0), // of runs of their own
	)
	bounded, shelled := point(80, 0, 0, 0), point(90, 0, 0, 0)
	bounded.Largest, shelled.Shells = 1200, []float64{0.4, 0.1}
	others := shelled
	others.Shells = []float64{0.6, 0.2}
	own := point(100, 0, 0, 0) // not of the run that was learned for 100, which has no shells
	own.Shells = shelled.Shells
	r.Screens = append(r.Screens, bounded, shelled, others, own)
	findFamilies(r.Screens)
	slices.SortStableFunc(r.Screens, curvePoint.order)
	const base = "L2S, 64 clusters in 8 groups"
	want := map[string]int{
		base: 2, base + ", sets of at most 1,200": 1, base + ", shells 0.4,0.1": 2, base + ", shells 0.6,0.2": 1, base + ", learned for 100": 3, base + ", second probes, learned for 100": 2,
		base + ", second probes, exact answers, learned for 100": 1,
	}
	found := map[string]int{}
	for _, s := range seriesOf(r) {
		found[s.name] += len(s.points)
	}
	if !maps.Equal(found, want) {
		t.Errorf("found %v, expected %v", found, want)
	}
}

// Whatever the figures, there is a picture with an entry for each group.
func TestCurvePictures(t *testing.T) {
	notUnderRace(t)
	point := func(method string, clusters int, candidates, p1, p5, us float64) curvePoint {
		return curvePoint{File: "m.l2s", Method: method, Clusters: clusters, MeanCandidates: candidates, RowsScanned: candidates + float64(clusters),
			Precision: map[string]float64{"1": p1, "5": p5}, Screened: us, Speedup: 1}
	}
	many := made(5)
	for _, clusters := range []int{10, 100, 1000, 10000} {
		for _, method := range []string{methodKMeans, methodL2S} {
			many.Screens = append(many.Screens, point(method, clusters, 30, 0.9, 0.8, 2), point(method, clusters, 60, 0.95, 0.85, 3))
		}
	}
	for _, c := range []struct {
		name    string
		result  *curveResult
		entries []string
	}{
		{"one screen, k of 1", made(1, point(methodL2S, 8, 10, 0.9, 0, 1.5)), []string{"L2S, 8 clusters"}},
		{"all found", made(5, point(methodKMeans, 8, 10, 1, 1, 1.5), point(methodKMeans, 8, 20, 1, 1, 1.5)), []string{"spherical k-means, 8 clusters"}},
		{"no record", made(5, point(methodUnknown, 8, 0, 0, 0, 0.1)), []string{"screen, 8 clusters"}},
		{"many", many, []string{"spherical k-means, 10 clusters", "L2S, 10,000 clusters"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var svg, bitmap bytes.Buffer
			if err := drawCurve(&svg, "svg", c.result); err != nil {
				t.Fatal(err)
			}
			for _, entry := range c.entries {
				if strings.Count(svg.String(), entry) != 1 {
					t.Errorf("found %q %d times, expected one entry", entry, strings.Count(svg.String(), entry))
				}
			}
			if err := drawCurve(&bitmap, "png", c.result); err != nil {
				t.Fatal(err)
			}
			if _, err := png.Decode(&bitmap); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestBadCurves(t *testing.T) {
	kept := func(name string) func(t *testing.T, dir string) { return inFile(name, []byte("precious")) }
	runCases(t, []badCase{
		{name: "no screen", args: joined("curve", testArgs()), code: 2, want: []string{"one or more screen files", "l2s curve m.l2s..."}},
		{name: "no --contexts", args: joined("curve", "m.l2s", layerArgs()), code: 2, want: []string{"missing --contexts"}},
		{name: "a missing screen", args: joined(goodCurve, "n.l2s"), code: 1, want: []string{"n.l2s", "no such file"}},
		{name: "a foreign screen", args: joined(goodCurve, "W.npy"), code: 1, want: []string{"W.npy", "not a screen file"}},
		{name: "a screen of another layer", files: poisoned("b.npy", 3, 0.125), args: goodCurve, code: 1, want: []string{"m.l2s: fingerprint: found"}},
		{name: "k above the labels", args: joined(goodCurve, "--k", "301"), code: 1, want: []string{"W.npy", "300", "301"}},
		{name: "too few contexts", args: joined(goodCurve, "--contexts", "H.npy"), code: 1, want: []string{"H.npy", "900 different contexts", "1000"}},
		{name: "NaN", files: poisoned("T.npy", 5, math.NaN()), args: goodCurve, code: 1, want: []string{"T.npy", "NaN"}},
		{name: "a picture over a screen", args: joined(goodCurve, "--svg", "m.l2s"), code: 2, want: []string{"--svg m.l2s would replace"}},
		{name: "a picture over the contexts", args: joined(goodCurve, "--png", "T.npy"), code: 2, want: []string{"--png T.npy would replace"}},
		{name: "two pictures in one file", args: joined(goodCurve, "--png", "c", "--svg", "c"), code: 2, want: []string{"--svg c and --png c are the same file"}},
		{name: "a picture in a missing folder", args: joined(goodCurve, "--png", "no/c.png"), code: 1, want: []string{"no/c.png: cannot be written"}},
		{name: "an old picture stays after a failure", files: kept("c.png"), args: joined(goodCurve, "--png", "c.png", "--svg", "no/c.svg"), code: 1, want: []string{"no/c.svg: cannot be written"}},
		{name: "train: a budget below k among several", args: joined(goodTrain, "--budget", "4.5,40"), code: 2, want: []string{"--budget 4.5", "--k 5"}},
		{name: "train: a list of budgets with a hole", args: joined(goodTrain, "--budget", "40,,50"), code: 2, want: []string{`"40,,50"`, "--budget", "finite"}},
		{name: "train: --learn-for below k", args: joined(goodTrain, "--learn-for", "4"), code: 2, want: []string{"--learn-for 4", "--k 5"}},
		{name: "train: --learn-for below the ids of --always", args: joined(goodTrain, "--learn-for", "5", "--always", "1,2,3,4,5,6"), code: 2, want: []string{"--learn-for 5", "6", "--always"}},
		{name: "train: one of several outputs is an input", files: func(t *testing.T, dir string) {
			if err := os.Rename(filepath.Join(dir, "H.npy"), filepath.Join(dir, "out-30.l2s")); err != nil {
				t.Fatal(err)
			}
		}, args: joined(goodTrain, "--contexts", "out-30.l2s", "--budget", "30,40"), code: 2, want: []string{"--out out-30.l2s would replace"}},
		{name: "train: one of several outputs is a folder", files: func(t *testing.T, dir string) {
			if err := os.Mkdir(filepath.Join(dir, "out-40.l2s"), 0o777); err != nil {
				t.Fatal(err)
			}
		}, args: joined(goodTrain, "--budget", "30,40"), code: 1, want: []string{"out-40.l2s: cannot be written: found a folder"}},
	})
}

func TestRoundTicks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lo := rapid.Float64Range(0, 1000).Draw(t, "lo")
		hi := lo + rapid.Float64Range(0.001, 1000).Draw(t, "width")
		ticks := roundTicks(lo, hi)
		if len(ticks) < 4 || len(ticks) > 14 {
			t.Fatalf("found %d ticks from %v to %v, expected about five to ten", len(ticks), lo, hi)
		}
		for i, tick := range ticks {
			if tick.Value < lo || tick.Value > hi || i > 0 && tick.Label == ticks[i-1].Label {
				t.Fatalf("found %+v from %v to %v, expected it within, each once", ticks, lo, hi)
			}
		}
	})
}
