package learn

import (
	"math"

	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/screening"
)

// lengths has the exact layer answer contexts whose length ||h|| may be below shortest, or above
// longest, or has no bounds, as for a context of zeros. Lengths are compared to one in a million. A
// reservoir may pass over such contexts, so that no training, no trial and no check of a preview
// has them.
type lengths struct{ shortest, longest float64 }

func lengthsOf(dim int) lengths { return lengths{0x1p-14 * math.Sqrt(float64(dim)), 65519} }

// Before refuses contexts of other lengths.
func (l lengths) Before(q *exact.Query) screening.Wish {
	if l.within(q.Length()) {
		return 0
	}
	return screening.Refuses
}

// within reports whether all lengths from low to high are inside. NaN is outside.
func (l lengths) within(low, high float64) bool { return low >= l.shortest && high <= l.longest }

// keeps reports whether every reservoir keeps the context, by its length. The rounding of the
// length is far below the distance of two float32 numbers.
func (l lengths) keeps(h []float32) bool {
	sum := 0.0
	for _, x := range h {
		sum += float64(float64(x) * float64(x))
	}
	length := math.Sqrt(sum)
	return l.within(length, length)
}

// After sees no query.
func (lengths) After(*screening.View) error { return nil }
