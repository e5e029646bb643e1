package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/learning-to-screen/l2s/benchmarks/internal/methods"
	"github.com/learning-to-screen/l2s/benchmarks/internal/points"
	"github.com/learning-to-screen/l2s/benchmarks/internal/report"
	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"github.com/learning-to-screen/l2s/internal/search/dense"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/tests/synthetic"
)

// files writes a layer of 1,000 labels and 4,000 contexts, and returns the
// flags that name them.
func files(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	d := synthetic.Structured(1000, 16, 20, 4000, 1)
	flags := []string{}
	for _, f := range []struct {
		flag  string
		data  []float32
		shape []int
	}{
		{"--weights", dense.Weights(d.Exact), []int{1000, 16}},
		{"--bias", d.Exact.Bias(), []int{1000}},
		{"--contexts", d.Contexts[:3000*16], []int{3000, 16}},
		{"--test-contexts", d.Contexts[3000*16:], []int{1000, 16}},
	} {
		path := filepath.Join(dir, f.flag[2:]+".npy")
		if err := tensorfile.WriteNPY(path, f.data, f.shape...); err != nil {
			t.Fatal(err)
		}
		flags = append(flags, f.flag, path)
	}
	return flags
}

func with(flags []string, more ...string) []string { return slices.Concat(flags, more) }

func TestAComparisonOfALayerInFiles(t *testing.T) {
	out := t.TempDir()
	var stdout bytes.Buffer
	err := run(context.Background(), with(files(t), "--quick", "--rounds", "2", "--out", out, "--least", "0.5"), &stdout, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(out, "points.json"))
	if err != nil {
		t.Fatal(err)
	}
	f := new(points.File)
	if err := json.Unmarshal(data, f); err != nil {
		t.Fatal(err)
	}
	if text := stdout.String(); !strings.Contains(text, "| "+points.Dense+" | 1.00x ") {
		t.Errorf("the summary has no row of the dense scan:\n%s", text)
	}
	if !f.Complete || f.Rounds != 2 || f.Sweep != points.Quick || f.Layer.Labels != 1000 || f.Layer.Dim != 16 ||
		f.TrainContexts != 3000 || f.TestContexts != 1000 || f.PrecisionContexts != 1000 || f.TurnContexts != leastQueries || f.K != 5 {
		t.Errorf("the head of the file: %+v", f)
	}
	if p := f.Points[0]; p.Method != points.Dense || p.Speedup != 1 || p.P5 < 0.99 {
		t.Errorf("the first point: %+v", p)
	}
	for _, m := range []methods.Method{methods.Certified{}, methods.L2S{}, methods.L2S{Form: methods.KMeans}, methods.L2S{Form: methods.Gumbel}, methods.L2S{Form: methods.Expected}, methods.Frequency{}, methods.GreedyMIPS{}, methods.PCAMIPS{}, methods.LSHMIPS{}, methods.FGD{}, methods.IPNSW{}, methods.SVDSoftmax{}, methods.WeightedSVD{}, methods.AdaptiveSoftmax{}} {
		if !slices.Contains(f.Methods(points.Curves), m.Name()) {
			t.Errorf("no point of %s", m.Name())
		}
	}
	for _, p := range f.Points {
		if p.MicrosQ1 > p.Micros || p.Micros > p.MicrosQ3 || p.SpeedupQ1 > p.Speedup || p.Speedup > p.SpeedupQ3 {
			t.Errorf("quartiles out of order: %+v", p)
		}
		if isScreen := strings.HasPrefix(strings.ToLower(p.Method), "l2s"); isScreen != (p.Clusters > 0) ||
			isScreen && (p.RowsScanned < p.MeanCandidates+1 || p.Budget == 0 || p.Bytes == 0 || !strings.HasPrefix(p.Build, "r=")) {
			t.Errorf("figures of a screen: %+v", p)
		}
		if p.Method == (methods.Certified{}).Name() && (p.P1 != 1 || p.P5 != 1) {
			t.Errorf("the exact layer has P@1 %v and P@5 %v", p.P1, p.P5)
		}
	}
	if len(f.Of(points.KMeans)) == 0 {
		t.Error("the table of k-means is empty")
	}
	// The dense scan, and at least the fastest setting of each method that is precise enough, were
	// measured with cold caches.
	if f.ColdRounds != sweeps[points.Quick].cold || f.ColdMiB != coldMiB || f.Points[0].Cold == nil {
		t.Errorf("found %d rounds with cold caches, %d MiB, %v", f.ColdRounds, f.ColdMiB, f.Points[0].Cold)
	}
	cold := map[string]bool{}
	for _, p := range f.Points {
		if p.Cold != nil {
			cold[p.Method] = true
			if p.P5 < report.Levels[0] {
				t.Errorf("found a cold time of %+v, expected none below P@5 %v", p, report.Levels[0])
			}
		}
	}
	for _, p := range f.Of(points.Curves) {
		if p.P5 >= report.Levels[0] && !cold[p.Method] {
			t.Errorf("found no cold time of %s", p.Method)
		}
	}
}

func TestTheLeastPrecisionOfAScreenIsDemanded(t *testing.T) {
	f := &points.File{Layer: points.Layer{Labels: 1000}, Points: []points.Point{
		{Method: "l2s", P5: 0.97, RowsScanned: 150},
		{Method: "l2s", P5: 0.98, RowsScanned: 200},
		{Method: "l2s", P5: 1, RowsScanned: 900},       // no screen but a scan
		{Method: "L2S k-means", P5: 1, RowsScanned: 1}, // another method
		{Method: "l2s", P5: 1, RowsScanned: 1, Table: points.Clusters},
	}}
	if err := checkLeast(f, 0.98); err != nil {
		t.Error(err)
	}
	if err := checkLeast(f, 0.99); err == nil || !strings.Contains(err.Error(), "0.98") {
		t.Errorf("error %v, want one that names 0.98", err)
	}
}

func TestWrongUse(t *testing.T) {
	for want, args := range map[string][]string{
		"expected flags only":           {"file"},
		"--quick and --full":            {"--quick", "--full", "--demo"},
		"exclude each other":            {"--demo", "--weights", "w.npy"},
		"give all of them":              {"--weights", "w.npy"},
		"--rounds":                      {"--rounds", "-1", "--demo"},
		"--cold":                        {"--cold", "0", "--demo"},
		"no-such-folder":                {"--lm", "no-such-folder"},
		"--demo":                        {"--lm", "no-such-folder"},
		"none.npy":                      {"--weights", "none.npy", "--bias", "none", "--contexts", "none.npy"},
		"flag provided but not defined": {"--nothing"},
	} {
		t.Run(want, func(t *testing.T) {
			err := run(context.Background(), append(args, "--out", t.TempDir()), io.Discard, io.Discard)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q in it", err, want)
			}
		})
	}
}

// Results belong to the layer that was named, or there are no results.
func TestNothingTakesThePlaceOfAnAbsentLayer(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "absent")
	for _, given := range []bool{false, true} {
		f := sourceFlags{lm: absent, lmGiven: given}
		if _, err := f.open(context.Background(), 1000, 1000, nil); err == nil || !strings.Contains(err.Error(), "--demo") || !strings.Contains(err.Error(), absent) {
			t.Errorf("given %v: error %v, want one that names the folder and --demo", given, err)
		}
	}
}

// fake is a method that answers with given labels and tells when it is asked.
type fake struct {
	name    string
	answers func(h []float32) []uint32
	asked   func()
}

func (f fake) Name() string                                                 { return f.name }
func (fake) Params() string                                                 { return "" }
func (f fake) Build(context.Context, *methods.Input) (methods.Index, error) { return f, nil }
func (fake) Bytes() int64                                                   { return 0 }
func (f fake) Settings() []methods.Setting                                  { return []methods.Setting{f} }
func (f fake) Searcher() methods.Searcher                                   { return f }
func (f fake) TopK(dst []exact.Prediction, h []float32) int {
	if f.asked != nil {
		f.asked()
	}
	n := 0
	for i, id := range f.answers(h) {
		if i < len(dst) {
			dst[i] = exact.Prediction{ID: id}
			n++
		}
	}
	return n
}

func TestAnInterruptKeepsTheRoundsThatAreComplete(t *testing.T) {
	d := synthetic.Structured(1000, 16, 20, 4000, 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	// 100 queries are of the precisions, three are to find the length of a turn,
	// and each turn has the least number, after a tenth of it and one.
	const judged, turn = 100, leastQueries/10 + 1 + leastQueries
	var queries atomic.Int64
	s := sweep{
		name: points.Quick, precision: judged, rounds: 1 << 20, block: time.Nanosecond,
		screens: func(int) []methods.Method { return nil },
		rivals: func(int) []methods.Method {
			return []methods.Method{fake{name: "Fake", answers: func([]float32) []uint32 { return []uint32{1} }, asked: func() {
				if queries.Add(1) == judged+3+3*turn+1 {
					cancel()
				}
			}}}
		},
	}
	data := &source{name: "test", layer: d.Exact, train: d.Contexts[:2000*16], test: d.Contexts[2000*16:]}
	f, err := compare(ctx, data, s, 20, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	// The round of the interrupt is complete if the interrupt came in its last turn. A coarse clock
	// takes more queries to find the length of a turn, so that fewer rounds come before it.
	if f.Complete || f.Rounds < 1 || f.Rounds > 4 {
		t.Errorf("complete %v, %d rounds, want 1 to 4", f.Complete, f.Rounds)
	}
}

func TestAnInterruptBeforeTheFirstRoundLeavesNothing(t *testing.T) {
	out := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := run(ctx, with(files(t), "--quick", "--out", out), io.Discard, io.Discard); err == nil {
		t.Error("no error")
	}
	if _, err := os.Stat(filepath.Join(out, "points.json")); err == nil {
		t.Error("there is a file of points")
	}
}

func TestTheKMeansTableIsOfEqualClustersAndBudgets(t *testing.T) {
	const gumbel, expected, kmeans = "L2S learned, Gumbel straight-through", "L2S learned, expected loss", "L2S k-means"
	screen := func(method string, clusters int, budget float64) points.Point {
		return points.Point{Method: method, Clusters: clusters, Budget: budget, P5: 0.9}
	}
	poor := screen(kmeans, 100, 20)
	poor.P5 = 0.89
	table := kmeansTable([]points.Point{
		{Method: points.Dense, P5: 1},
		screen(gumbel, 200, 70), screen(gumbel, 100, 50), screen(gumbel, 100, 60), screen(gumbel, 100, 20),
		screen(expected, 100, 50), screen(expected, 200, 80), screen(expected, 200, 70), screen(expected, 100, 20),
		screen(kmeans, 100, 50), screen(kmeans, 100, 70), screen(kmeans, 200, 70), screen(kmeans, 50, 70), poor,
		screen("l2s", 100, 60), screen("l2s", 200, 80), // lists of another kind
	})
	var got []string
	for _, p := range table {
		if p.Table != points.KMeans {
			t.Errorf("a point of the table %q", p.Table)
		}
		got = append(got, fmt.Sprint(p.Method, " ", p.Clusters, " ", p.Budget))
	}
	want := []string{gumbel + " 100 50", expected + " 100 50", kmeans + " 100 50", gumbel + " 200 70", expected + " 200 70", kmeans + " 200 70"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSettingsThatMakeNoSenseForALayerAreLeftOut(t *testing.T) {
	for name, s := range sweeps {
		for _, size := range []struct{ labels, contexts int }{{10, 1000}, {300, 1000}, {10_000, 300_000}} {
			list := s.methods(size.labels, size.contexts)
			if list[0].Name() != points.Dense {
				t.Errorf("%s: the first is %s", name, list[0].Name())
			}
			for _, m := range list {
				switch m := m.(type) {
				case methods.L2S:
					if m.Clusters > size.contexts/contextsPerCluster || m.Budget > float64(size.labels)/2 {
						t.Errorf("%s: %+v for %+v", name, m, size)
					}
				case methods.PCAMIPS:
					if size.labels>>m.Depth < labelsPerLeaf {
						t.Errorf("%s: %+v for %+v", name, m, size)
					}
				case methods.Frequency:
					if slices.Min(m.Sizes) < 1 || slices.Max(m.Sizes) > size.labels {
						t.Errorf("%s: %+v for %+v", name, m, size)
					}
				}
			}
		}
	}
}

// The table has the paper's four rows, from the screens of the sweeps that have
// it.
func TestTheClusterTableIsPartOfTheCurves(t *testing.T) {
	for _, name := range []string{points.Reduced, points.Full} {
		curves := []points.Point{{Method: points.Dense}}
		for _, m := range sweeps[name].methods(10_000, 300_000) {
			if m, ok := m.(methods.L2S); ok {
				for _, b := range []float64{60, m.Budget, 450} {
					curves = append(curves, points.Point{Method: m.Name(), Clusters: m.Clusters, Budget: b})
				}
			}
		}
		var got []string
		for _, p := range clusterTable(curves) {
			if p.Table != points.Clusters {
				t.Errorf("a point of the table %q", p.Table)
			}
			got = append(got, fmt.Sprint(p.Clusters, " ", p.Budget))
		}
		if want := []string{"50 300", "100 250", "200 150", "250 100"}; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestCutoffsAscend(t *testing.T) {
	for _, c := range [][2][]int{
		{{200, 1000, 3333}, {200, 1000, 3333}},
		{{0, 0, 1}, {1, 2, 3}},
		{{5, 3}, {5, 6}},
	} {
		if got := ascending(slices.Clone(c[0])...); !slices.Equal(got, c[1]) {
			t.Errorf("ascending(%v) = %v, want %v", c[0], got, c[1])
		}
	}
}

func TestGeometric(t *testing.T) {
	for _, c := range []struct {
		first, last int
		factor      float64
		want        []int
	}{
		{10, 80, 2, []int{10, 20, 40}},
		{0, 5, 1.5, []int{1, 2, 3}},
		{7, 7, 2, []int{7}},
	} {
		if got := geometric(c.first, c.last, c.factor); !slices.Equal(got, c.want) {
			t.Errorf("geometric(%d, %d, %v) = %v, want %v", c.first, c.last, c.factor, got, c.want)
		}
	}
}
