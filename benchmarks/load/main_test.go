package main

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// instance returns a screen with one set of less than k labels.
func instance(t *testing.T) (*screen.Model, *softmax.Layer, []float32) {
	t.Helper()
	const labels, dim, clusters = 60, 17, 4
	r := rand.New(rand.NewPCG(1, 2))
	normal := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	layer, err := softmax.NewLayer(kernels.Float32Rows(normal(labels*dim), dim), normal(labels))
	if err != nil {
		t.Fatal(err)
	}
	sets := make([][]uint32, clusters)
	for c := range sets {
		for id := range uint32(labels) {
			if r.IntN(3) == 0 && (c > 0 || id < 6) {
				sets[c] = append(sets[c], id)
			}
		}
	}
	m, err := screen.NewModel(screen.Config{Dim: dim, Labels: labels, Clusters: normal(clusters * dim), Sets: sets})
	if err != nil {
		t.Fatal(err)
	}
	return m, layer, normal(50 * dim)
}

func TestLoad(t *testing.T) {
	const k = 5
	m, layer, h := instance(t)
	want, err := answers(m, layer, h, k)
	if err != nil {
		t.Fatal(err)
	}
	r, err := load(m, layer, h, want, k, 4000, 3)
	if err != nil {
		t.Fatal(err)
	}
	if r.wrong != 0 || len(r.times) != 4000 || !strings.Contains(r.String(), ": 0 wrong answers") {
		t.Errorf("%d queries:\n%s", len(r.times), r)
	}
	for p := 0.1; p < 1; p += 0.1 {
		if r.quantile(p) > r.quantile(p+0.1) {
			t.Errorf("quantile %v is above the next", p)
		}
	}

	// One answer among 50 that is off by the last bit.
	want[7*k+4].Logit *= 1 + 0x1p-52
	if r, err = load(m, layer, h, want, k, 4000, 2); err != nil {
		t.Fatal(err)
	}
	if r.wrong != 80 || r.check() == nil {
		t.Errorf("found %d wrong answers and error %v, expected 80 and one", r.wrong, r.check())
	}
}

func TestReportSaysWhatIsNotKept(t *testing.T) {
	for want, r := range map[string]report{
		"wrong answers":   {wrong: 1},
		"allocations":     {allocs: 5000, goroutines: 2},
		"resident memory": {growth: 1 << 30},
	} {
		if err := r.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("found %v, expected a word of %s", err, want)
		}
	}
	if err := (&report{goroutines: 2}).check(); err != nil {
		t.Error(err)
	}
}

func TestMemoryIsKnown(t *testing.T) {
	m, err := newMemory()
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	if m.file != nil && m.resident() < 1<<20 {
		t.Errorf("found %d bytes resident, expected a MiB at least", m.resident())
	}
	if n := testing.AllocsPerRun(20, func() { m.resident() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
