package screen

import (
	"math"
	"strings"
	"testing"

	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
)

// A record of a few bytes a level would take many times its size to be shown.
func TestDeepRecordsAreRefused(t *testing.T) {
	nested := func(deep int) []byte {
		return []byte(`{"a":` + strings.Repeat("[", deep-1) + `"\"[[["` + strings.Repeat("]", deep-1) + "}")
	}
	c := Config{Dim: 1, Labels: 2, Clusters: []float32{1}, Lists: []List{{IDs: []uint32{0}}}}
	c.Record = nested(maxDepth)
	if _, err := NewModel(c); err != nil {
		t.Errorf("%d deep: %v", maxDepth, err)
	}
	c.Record = nested(maxDepth + 1)
	if _, err := NewModel(c); err == nil || !strings.Contains(err.Error(), "record: found JSON nested 33 deep") {
		t.Errorf("%d deep: error %v", maxDepth+1, err)
	}
}

// The inverse of a temperature below softmax.MinTemperature may be infinite, and an interval between
// it and another then says nothing true.
func TestTailsAtTemperaturesWithoutAnInverseAreRefused(t *testing.T) {
	c := TailConfig{
		Cells: 1, Clusters: 1, Temperatures: []float64{1e-309, 1}, Intercepts: make([]float32, 2), Slopes: make([]float32, 2),
		Squares: make([]float32, 4), Directions: make([]float32, 1), Levels: []float64{0.5}, Widths: []float32{float32(math.Inf(1)), 0},
	}
	if _, err := NewTail(c); err == nil {
		t.Error("found a tail at 1e-309, expected an error")
	}
	c.Temperatures[0] = softmax.MinTemperature
	if _, err := NewTail(c); err != nil {
		t.Error(err)
	}
}

// The searcher's own budget is one of the model: the exact layer answers requests that ask for it.
func TestASearcherHasABudgetOfTheModel(t *testing.T) {
	l, err := softmax.NewLayer(kernels.Float32Rows([]float32{1, 1}, 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewModel(Config{Dim: 1, Labels: 2, Clusters: []float32{1}, Lists: []List{{IDs: []uint32{0}}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewSearcher(m, l, Budget(softmax.Exact)); err == nil || !strings.Contains(err.Error(), "softmax.Exact") {
		t.Errorf("error %v, expected one that names the exact searcher", err)
	}
}
