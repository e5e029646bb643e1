package linear

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

// With X of normal rows: the factor of the moments gives them back, its product within another
// matrix is that of plain loops, and the leading vectors are orthonormal and eigenvectors, about.
func TestProductsAndFactors(t *testing.T) {
	const n, d = 200, 12
	ctx, r := context.Background(), rand.New(rand.NewPCG(1, 1))
	x := make([]float32, n*d)
	for i := range x {
		x[i] = float32(r.NormFloat64()) * float32(math.Exp2(-float64(i%d)))
	}
	m, err := Moments(ctx, x, d)
	if err != nil {
		t.Fatal(err)
	}
	l, ok := Cholesky(m)
	if !ok {
		t.Fatal("found moments that are not positive")
	}
	g, err := Moments(ctx, x[d:], d)
	if err != nil {
		t.Fatal(err)
	}
	within, err := Within(ctx, l, g)
	if err != nil {
		t.Fatal(err)
	}
	near := func(name string, found, want float64) {
		t.Helper()
		if math.Abs(found-want) > 1e-12*(1+math.Abs(want)) {
			t.Errorf("%s: found %v, expected %v", name, found, want)
		}
	}
	for i := range d {
		for j := range d {
			moment, product, inside := 0.0, 0.0, 0.0
			for k := range n {
				moment += float64(x[k*d+i]) * float64(x[k*d+j]) / n
			}
			for k := range d {
				product += l.Row(i)[k] * l.Row(j)[k]
				for p := range d {
					inside += l.Row(k)[i] * g.Row(k)[p] * l.Row(p)[j]
				}
			}
			near("moments", m.Row(i)[j], moment)
			near("factor", product, moment)
			near("within", within.Row(i)[j], inside)
		}
	}
	v, err := Leading(ctx, m, 3)
	if err != nil {
		t.Fatal(err)
	}
	for i := range v.Rows {
		for j := range v.Rows {
			near("leading", Dot(v.Row(i), v.Row(j)), map[bool]float64{true: 1}[i == j])
		}
		image := make([]float64, d)
		for k, a := range v.Row(i) {
			Axpy(image, a, m.Row(k))
		}
		if cosine := Dot(image, v.Row(i)) / math.Sqrt(Dot(image, image)); cosine < 0.99 {
			t.Errorf("vector %d: found the cosine %v with its image, expected 1, about", i, cosine)
		}
	}
	m.Row(d - 1)[d-1] = -1
	if _, ok := Cholesky(m); ok {
		t.Error("found a factor of a matrix that is not positive")
	}
}

// Of a matrix of low rank the further vectors are any that are orthogonal; a context that has ended stops the search.
func TestLeadingVectorsOfALowRank(t *testing.T) {
	const d = 60
	s := New(d, d)
	for i := range 3 {
		for j := range 3 {
			s.X[i*d+j] = float64(min(i, j) + 1)
		}
	}
	v, err := Leading(t.Context(), s, d)
	if err != nil {
		t.Fatal(err)
	}
	for i := range d {
		for j := range i + 1 {
			want := 0.0
			if i == j {
				want = 1
			}
			if got := Dot(v.Row(i), v.Row(j)); !(math.Abs(got-want) < 1e-9) {
				t.Errorf("product of vectors %d and %d: found %v, want %v", i, j, got, want)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := orthonormalise(ctx, v); !errors.Is(err, context.Canceled) {
		t.Errorf("found error %v, want %v", err, context.Canceled)
	}
}
