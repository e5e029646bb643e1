package methods

import (
	"slices"
	"testing"
)

// On the reduction the nearest point is the label with the largest logit.
func TestTheReductionTurnsInnerProductsIntoDistances(t *testing.T) {
	in, contexts := small(t)
	r := newReduction(in.Layer)
	for i, h := range contexts[:20] {
		point := append(slices.Clone(h), 1, 0) // except for the factor
		c := float64(r.scale(h))
		nearest, least := 0, 0.0
		for s := range in.Layer.Labels() {
			p := r.points[s*r.dim : (s+1)*r.dim]
			dist := 0.0
			for j, v := range p {
				diff := float64(v) - c*float64(point[j])
				dist += diff * diff
			}
			if s == 0 || dist < least {
				nearest, least = s, dist
			}
		}
		if want := exactOf(in.Layer, h, nil)[0].ID; uint32(nearest) != want {
			t.Errorf("context %d: the nearest point is %d, the largest logit has %d", i, nearest, want)
		}
	}
}
