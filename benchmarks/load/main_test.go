package main

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/screening"
	"github.com/learning-to-screen/l2s/internal/tests/synthetic"
)

// instance returns a screen with one list of less than k labels.
func instance(t *testing.T) (*screening.Model, *exact.Layer, []float32) {
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
	layer, err := exact.NewLayer(kernels.Float32Rows(normal(labels*dim), dim), normal(labels))
	if err != nil {
		t.Fatal(err)
	}
	lists := make([]screening.List, clusters)
	for c := range lists {
		for id := range uint32(labels) {
			if r.IntN(3) == 0 && (c > 0 || id < 6) {
				lists[c].IDs = append(lists[c].IDs, id)
			}
		}
	}
	m, err := synthetic.Screen(screening.Config{Dim: dim, Labels: labels, Clusters: normal(clusters * dim), Lists: lists})
	if err != nil {
		t.Fatal(err)
	}
	return (*engine.Index)(m).Screen(), layer, normal(50 * dim)
}

// The definition and the screen agree on contexts in shells.
func TestLoadOfAScreenWithShells(t *testing.T) {
	flat, layer, h := instance(t)
	c := screening.Config{
		Dim: flat.Dim(), Labels: flat.Labels(), Clusters: flat.Config().Clusters,
		Shells: []float64{0.4, 0.25},
	}
	for cell := range 4 * 3 {
		c.Lists = append(c.Lists, screening.List{IDs: []uint32{uint32(cell), 20, 21, 22, 23, 24, uint32(30 + cell)}})
	}
	made, err := synthetic.Screen(c)
	if err != nil {
		t.Fatal(err)
	}
	m, cells := (*engine.Index)(made).Screen(), map[int]bool{}
	for i := range 50 {
		cells[cellOf(m, h[i*m.Dim():(i+1)*m.Dim()])] = true
	}
	if len(cells) < 7 {
		t.Errorf("found contexts in %d cells alone, expected some in all shells", len(cells))
	}
	want, err := answers(m, layer, h, 5)
	if err != nil {
		t.Fatal(err)
	}
	r, err := load(m, layer, h, want, 5, 1000, 2)
	if err != nil {
		t.Fatal(err)
	}
	if r.wrong != 0 {
		t.Errorf("found %d wrong answers of %d, expected none", r.wrong, r.queries)
	}
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
