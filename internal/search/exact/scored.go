package exact

// Scored, unless nil, gets the number of rows that a search scores by the reference arithmetic, for
// each of its contexts: benchmarks count them. It must not be set while a layer is searched.
var Scored func(n int)

func countScored(n int) {
	if Scored != nil {
		Scored(n)
	}
}
