package learn

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/screening"
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
		if got := l.keeps(h); got != (c.want == 0) {
			t.Errorf("elements of %v: found keeps = %v, expected %v", c.each, got, c.want == 0)
		}
	}
}

// A context that a reservoir passes over has a length that the exact layer answers, by both forms of
// the rule.
func TestWhatIsNotKeptIsRefused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dim := rapid.IntRange(1, 40).Draw(t, "dim")
		h := make([]float32, dim)
		scale := rapid.SampledFrom([]float64{0, 0x1p-20, 0x1p-14, 1, 65519, 65520, 1e20}).Draw(t, "scale")
		for i := range h {
			h[i] = float32(scale * rapid.Float64Range(-1, 1).Draw(t, "element"))
		}
		if rapid.Bool().Draw(t, "one at the bound") {
			h[0] = float32(scale)
		}
		r, err := newReservoir(dim, 1, 1<<20, 0)
		if err != nil {
			t.Fatal(err)
		}
		if r.Add(h, nil) == 1 {
			return
		}
		q := exact.NewQuery(dim)
		if err := q.Set(h); err != nil {
			t.Fatal(err)
		}
		if l := lengthsOf(dim); l.keeps(h) || l.Before(q) != screening.Refuses {
			t.Fatalf("%v is not kept: found keeps = %v and the wish %b, expected it refused", h, l.keeps(h), l.Before(q))
		}
	})
}
