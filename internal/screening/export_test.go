package screening

import (
	"math"

	"github.com/learning-to-screen/l2s/internal/exact"
	"github.com/learning-to-screen/l2s/internal/precision"
)

// Everything are the ranges of a tail, that includes all contexts.
func Everything(clusters, temperatures int) (ranges []float64) {
	for range clusters * (temperatures + 2) {
		ranges = append(ranges, math.Inf(-1), math.Inf(1))
	}
	return ranges
}

func (m *Model) Outcome(cell int, best []exact.Prediction) precision.Outcome {
	return m.outcome(cell, best)
}

func (m *Model) Measure(outcomes []precision.Outcome, k int) []Rung { return m.measure(outcomes, k) }
