package dense

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/tests/simdtest"
)

// If logits are integers, float32 holds them exactly: the answers are the same as by
// the exact search, for every type of weights.
func TestAnswersAreExactForIntegers(t *testing.T) {
	const labels, dim, k = 500, 33, 7
	w, narrow := make([]float32, labels*dim), make([]uint16, labels*dim)
	for i, p := range rand.New(rand.NewPCG(1, 2)).Perm(labels) {
		w[i*dim] = float32(p%256 - 128)
		narrow[i*dim] = uint16(math.Float32bits(w[i*dim]) >> 16)
	}
	h, bias := make([]float32, dim), make([]float32, labels)
	h[0] = 3
	for i := range bias {
		bias[i] = float32(i % 3)
	}
	for _, rows := range []kernels.Rows{kernels.Float32Rows(w, dim), kernels.BFloat16Rows(narrow, dim)} {
		l, err := exact.NewLayer(rows, bias)
		if err != nil {
			t.Fatal(err)
		}
		whole := exact.NewSearcher(l)
		simdtest.EachLevel(t, func(t *testing.T) {
			s := New(l)
			want, got := make([]exact.Prediction, k), make([]exact.Prediction, k)
			n := s.TopK(got, h)
			if found, err := whole.TopK(want, h); err != nil || n != found || !slices.Equal(got, want) {
				t.Errorf("%s: found %v, expected %v, %v", rows.Element(), got[:n], want[:found], err)
			}
			top := make([]exact.Prediction, k)
			if n := simdtest.AllocsPerRun(10, func() { s.TopK(top, h) }); n != 0 {
				t.Errorf("%v allocations, want none", n)
			}
		})
	}
}
