package screentest

import "math"

// AnyCosine are the cosines of a tail that includes all contexts, and has one half-width for all.
func AnyCosine(clusters int) (cosines []float64) {
	for range clusters {
		cosines = append(cosines, math.Inf(-1), math.Inf(-1))
	}
	return cosines
}

// Everything are the ranges of a tail, that includes all contexts.
func Everything(clusters, temperatures int) (ranges []float64) {
	for range clusters * (temperatures + 2) {
		ranges = append(ranges, math.Inf(-1), math.Inf(1))
	}
	return ranges
}
