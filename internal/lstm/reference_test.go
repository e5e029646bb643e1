package lstm

import (
	"math"
	"testing"

	"github.com/learning-to-screen/l2s/internal/simd"
	"github.com/learning-to-screen/l2s/internal/simdtest"
)

// Contexts of the reference arithmetic have the same bits on every level, and are those of
// State but for rounding. The second model reads embeddings of another dimension.
func TestReferenceIsEqualBitForBit(t *testing.T) {
	for seed, m := range []*Model{newSpec(1, 30, 24, 24, 2, true).read(t, "F32"), newSpec(2, 30, 7, 35, 3, false).read(t, "F16")} {
		tokens := randomTokens(uint64(seed), 40, m.Vocab())
		var want []float32
		restore := simd.Set(simd.Generic)
		r := m.NewReference()
		for _, token := range tokens {
			want = append(want, r.Step(token)...)
		}
		restore()
		simdtest.EachLevel(t, func(t *testing.T) {
			r, s := m.NewReference(), m.NewState()
			for i, token := range tokens {
				got, near := r.Step(token), s.Step(token)
				for j, x := range got {
					if x != want[i*m.Dim()+j] {
						t.Fatalf("model %d, token %d, element %d: found %v, expected %v, that of the plain form", seed, i, j, x, want[i*m.Dim()+j])
					}
					if math.Abs(float64(x-near[j])) > 1e-4 {
						t.Fatalf("model %d, token %d, element %d: found %v, expected about %v, that of State", seed, i, j, x, near[j])
					}
				}
			}
		})
	}
}

func TestReferenceDoesNotAllocate(t *testing.T) {
	r := newSpec(1, 30, 24, 24, 2, true).read(t, "F32").NewReference()
	if n := simdtest.AllocsPerRun(20, func() { r.Step(3) }); n != 0 {
		t.Errorf("%v allocations a step, expected none", n)
	}
}
