package learn

import (
	"math"

	"github.com/learning-to-screen/l2s/internal/exact"
	"github.com/learning-to-screen/l2s/internal/screening"
)

// lengths has the exact layer answer contexts whose length ||h|| may be below shortest, or above
// longest, or has no bounds, as for a context of zeros. Lengths are compared to one in a million. A
// reservoir may pass over such contexts, so that no training and no trial has them.
type lengths struct{ shortest, longest float64 }

func lengthsOf(dim int) lengths { return lengths{0x1p-14 * math.Sqrt(float64(dim)), 65519} }

// Before refuses contexts of other lengths.
func (l lengths) Before(q *exact.Query) screening.Wish {
	if low, high := q.Length(); low >= l.shortest && high <= l.longest { // or NaN
		return 0
	}
	return screening.Refuses
}

// After sees no query.
func (lengths) After(*screening.View) error { return nil }
