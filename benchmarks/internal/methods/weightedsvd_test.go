package methods

import (
	"context"
	"math"
	"testing"

	"github.com/learning-to-screen/l2s/internal/codes/floats"
)

// The elements of z have second moments of 1 and are uncorrelated, the columns of A are orthogonal
// and their norms descend, and with all of them the products are the logits less a number that all
// labels share. With fewer columns, rest is the norm of the missing ones.
func TestTheViewOfALayer(t *testing.T) {
	in, contexts := small(t)
	l, d := in.Layer, in.Layer.Dim()
	const width = 10
	whole, err := newView(context.Background(), l, in.Contexts, d)
	if err != nil {
		t.Fatal(err)
	}
	part, err := newView(context.Background(), l, in.Contexts, width)
	if err != nil {
		t.Fatal(err)
	}
	n := len(in.Contexts) / d
	moments, z := make([]float64, d*d), make([]float32, d)
	for i := range n {
		floats.Scan(z, whole.to, nil, in.Contexts[i*d:(i+1)*d])
		for j := range moments {
			moments[j] += float64(z[j/d]) * float64(z[j%d]) / float64(n)
		}
	}
	squares := make([]float64, d*d)
	for s := range l.Labels() {
		row := whole.rows[s*d : (s+1)*d]
		for j := range squares {
			squares[j] += float64(row[j/d]) * float64(row[j%d])
		}
		rest := 0.0
		for _, x := range row[width:] {
			rest += float64(x) * float64(x)
		}
		if got := part.rest[s]; math.Abs(got-math.Sqrt(rest)) > 1e-5*math.Sqrt(rest) {
			t.Fatalf("label %d: found a rest of %v, expected %v", s, got, math.Sqrt(rest))
		}
		for j, x := range part.rows[s*width : (s+1)*width] {
			if math.Abs(float64(x-row[j])) > 1e-6 {
				t.Fatalf("label %d: found %v in column %d, expected %v", s, x, j, row[j])
			}
		}
	}
	for i := range d {
		for j := range d {
			want := 0.0
			if i == j {
				want = 1
			}
			if got := moments[i*d+j]; math.Abs(got-want) > 1e-3 {
				t.Errorf("moment of z_%d and z_%d: found %v, expected %v", i, j, got, want)
			}
			if got := squares[i*d+j]; i != j && math.Abs(got) > 1e-4*math.Sqrt(squares[i*d+i]*squares[j*d+j]) {
				t.Errorf("columns %d and %d of A are not orthogonal", i, j)
			}
		}
		if i > 0 && squares[i*d+i] > squares[(i-1)*d+i-1]*(1+1e-6) {
			t.Errorf("singular value %d is larger than the one before", i)
		}
	}
	for _, h := range contexts[:20] {
		floats.Scan(z, whole.to, nil, h)
		products := make([]float32, l.Labels())
		floats.Scan(products, whole.rows, l.Bias(), z)
		shared := logitOf(l, 0, h) - float64(products[0])
		for s, x := range products {
			if got, want := float64(x)+shared, logitOf(l, uint32(s), h); math.Abs(got-want) > 1e-3 {
				t.Fatalf("label %d: found %v, expected the logit %v", s, got, want)
			}
		}
	}
}
