package learn

import (
	"math"
	"testing"

	"github.com/learning-to-screen/l2s/internal/exact"
	"github.com/learning-to-screen/l2s/internal/screening"
)

// The exact layer answers contexts that float16 cannot hold: too short, too long, and zeros.
func TestLengths(t *testing.T) {
	const dim = 16
	l, q := lengthsOf(dim), exact.NewQuery(dim)
	for _, c := range []struct {
		each float64 // of the elements
		want screening.Wish
	}{
		{1, 0}, {-1, 0}, {0x1p-14 * 1.001, 0}, {-65519 / 4.01, 0},
		{0, screening.Refuses}, {0x1p-14 * 0.999, screening.Refuses}, {65519 / 3.99, screening.Refuses}, {math.MaxFloat32, screening.Refuses},
	} {
		h := make([]float32, dim)
		for i := range h {
			h[i] = float32(c.each)
		}
		if err := q.Set(h); err != nil {
			t.Fatal(err)
		}
		if got := l.Before(q); got != c.want {
			t.Errorf("elements of %v: found %b, expected %b", c.each, got, c.want)
		}
	}
}
