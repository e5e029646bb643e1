package previewing

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// The mean of e^x over a normal distribution of which nothing is above a limit, by a sum over small
// steps, is at most what its estimate says, and not far below it.
func TestRaisedIsABoundOfTheMean(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		square, far := rapid.Float64Range(1e-3, 400).Draw(t, "square"), rapid.Float64Range(1e-3, 60).Draw(t, "far")
		deviation := math.Sqrt(square)
		const steps = 40000
		from := min(-12*deviation, far-60)
		width := (far - from) / steps
		log := math.Inf(-1)
		for i := range steps {
			x := from + (float64(i)+0.5)*width
			log = kernels.LogAddExp(log, x-x*x/(2*square))
		}
		log += math.Log(width / (deviation * math.Sqrt(2*math.Pi)))
		if got := raised(square, far); got < log-1e-3 || got > log+1+math.Log(1+3*deviation) {
			t.Fatalf("square %v, far %v: found %v, want at least %v, and not much more", square, far, got, log)
		}
	})
}

// A stage has the same scores on one thread and on several, which take parts of its list, whether the
// helpers come or not.
func TestStagesOnSeveralThreads(t *testing.T) {
	const panels, codes = 6000, 48
	layer, err := exact.NewLayer(kernels.Float32Rows([]float32{1, 2, 3, 4}, 2), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	table, lines := make([]byte, panels*kernels.PanelRows*codes/4), make([]byte, panels*kernels.StepBytes)
	vector := make([]int8, kernels.LineCodes)
	for _, x := range [][]byte{table, lines} {
		for i := range x {
			x[i] = byte(r.Uint32())
		}
	}
	for i := range vector {
		vector[i] = int8(r.IntN(255) - 127)
	}
	var list []uint32
	for p := range uint32(panels) {
		if r.IntN(5) > 0 {
			list = append(list, p)
		}
	}
	look := func() *Look {
		l := &Look{layer: layer, scores: make([]float32, panels*kernels.PanelRows)}
		l.take = l.takeParts
		return l
	}
	stages := func(l *Look) (top, rows []float32) {
		top, rows = make([]float32, len(list)), make([]float32, len(list))
		l.run(task{out: top, table: table, list: list, codes: vector[:codes], first: true})
		l.run(task{out: top, table: table, list: list, codes: vector[codes : 2*codes]})
		l.run(task{out: rows, table: lines, list: list, codes: vector, lines: true})
		l.run(task{out: nil, table: lines, codes: vector, lines: true})
		return top, rows
	}
	want := look()
	top, rows := stages(want)
	for _, threads := range []int{2, 3, 7} {
		for _, lazy := range []bool{false, true} { // helpers that never come
			if layer.SetThreads(threads); lazy {
				layer.LendThreads(threads, func(func(int)) {})
			}
			got := look()
			a, b := stages(got)
			if !slices.Equal(got.scores, want.scores) || !slices.Equal(a, top) || !slices.Equal(b, rows) {
				t.Errorf("%d threads, lazy %v: found other scores than with one", threads, lazy)
			}
		}
	}
}
