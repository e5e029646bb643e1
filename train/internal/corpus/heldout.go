package corpus

const (
	// Runs is the largest number of runs of neighbouring contexts among held-out contexts.
	// Neighbours in a text resemble each other: runs, not contexts, are independent.
	Runs = 50
	// leastRun is the least number of contexts of a run, unless fewer are held out.
	leastRun = 5
)

// HeldOut is the number of contexts of n that are held out: 4,000 of 40,000 or more, which can
// distinguish precisions of .9995 and .998, and 2% of fewer, but at least 200 of 4,000 or more.
func HeldOut(n int) int {
	switch {
	case n >= 40000:
		return 4000
	case n >= 4000:
		return max(200, n/50)
	}
	return n / 50
}

// Split splits n contexts into contexts to learn from and held contexts to measure on, in runs that
// are evenly spaced. Both lists ascend.
func Split(n, held int) (pool, out []uint32) {
	rest := n - held
	pool, out = make([]uint32, 0, rest), make([]uint32, 0, held)
	runs := RunsOf(held)
	at := uint32(0)
	for b := 1; b <= runs; b++ {
		for ; len(pool) < b*rest/runs; at++ {
			pool = append(pool, at)
		}
		for ; len(out) < b*held/runs; at++ {
			out = append(out, at)
		}
	}
	return pool, out
}

// RunsOf returns the number of runs that n contexts are cut into.
func RunsOf(n int) int { return max(1, min(Runs, n/leastRun)) }
