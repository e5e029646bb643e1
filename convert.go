package l2s

import (
	"unsafe"

	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// Programs see the data types of this package, the searches have their own: nothing of internal/
// imports this package. All that changes one into the other is here, and copies no slice.

// The memory of these types is the same.
var (
	_ = exact.Prediction(Prediction{})
	_ = exact.Bias(Bias{})
)

// alike returns the same memory as elements of another type, which a conversion above proves to have
// the same fields.
func alike[To, From any](x []From) []To {
	return unsafe.Slice((*To)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// inside returns the predictions as the searches have them.
func inside(dst []Prediction) []exact.Prediction { return alike[exact.Prediction](dst) }

// inside returns the request as the searches have it.
func (r *Request) inside() exact.Request {
	return exact.Request{
		Budget: r.Budget, Within: r.Within, Temperature: r.Temperature,
		Exact: r.Exact, LogSum: r.LogSum, ExactSum: r.ExactSum,
		Also: r.Also, Among: r.Among.set, Allowed: r.Allowed, Banned: r.Banned, Biases: alike[exact.Bias](r.Biases),
	}
}

// outside returns an answer as programs have it.
func outside(a exact.Answer) Answer {
	return Answer{Count: a.Count, LogSum: a.LogSum, Exact: a.Source == exact.FromLayer}
}
