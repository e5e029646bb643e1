package linear

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Vectors become orthonormal in the inner product of M, images stay M x, and what depends on the
// others becomes zero.
func TestOrthonormalise(t *testing.T) {
	const n, d = 5, 9
	r := rand.New(rand.NewPCG(1, 2))
	diagonal := make([]float64, d) // M
	for j := range diagonal {
		diagonal[j] = 1 + 10*r.Float64()
	}
	x, images := make([][]float64, n), make([][]float64, n)
	for k := range x {
		x[k], images[k] = make([]float64, d), make([]float64, d)
		for j := range x[k] {
			if x[k][j] = r.NormFloat64(); k == 3 {
				x[k][j] = x[0][j] - 2*x[2][j]
			}
		}
	}
	plain := make([][]float64, n)
	for k := range x {
		plain[k] = slices.Clone(x[k])
		for j := range x[k] {
			images[k][j] = diagonal[j] * x[k][j]
		}
	}
	lengths := make([]float64, n)
	Orthonormalise(lengths, x, images)
	check := func(x, images [][]float64) {
		t.Helper()
		for i := range x {
			for k := range x {
				want := 0.0
				if i == k && k != 3 {
					want = 1
				}
				if got := Dot(x[i], images[k]); math.Abs(got-want) > 1e-12 {
					t.Errorf("product of %d and %d: found %v, expected %v", i, k, got, want)
				}
			}
		}
	}
	check(x, images)
	for k := range x {
		for j := range x[k] {
			if math.Abs(images[k][j]-diagonal[j]*x[k][j]) > 1e-12 {
				t.Fatalf("image %d is no image", k)
			}
		}
	}
	first := math.Sqrt(Dot(plain[0], plain[0]))
	if Orthonormalise(lengths, plain, nil); lengths[0] != first || lengths[3] != 0 {
		t.Errorf("found lengths %v, expected %v first and 0 for the fourth", lengths, first)
	}
	check(plain, plain)
}
