package train

// heldOutBlocks is the number of runs of neighbouring contexts that the
// held-out slice consists of. Neighbours in a text resemble each other:
// whole runs are more like new text than single contexts would be.
const heldOutBlocks = 20

// holdOut splits the contexts into those to learn from and those that choose
// the best alternation, share of them, in evenly spaced runs. Both ascending.
func holdOut(n int, share float64) (pool, held []uint32) {
	size := int(float64(share * float64(n)))
	rest := n - size
	pool, held = make([]uint32, 0, rest), make([]uint32, 0, size)
	blocks := max(1, min(heldOutBlocks, size))
	at := uint32(0)
	for b := 1; b <= blocks; b++ {
		for ; len(pool) < b*rest/blocks; at++ {
			pool = append(pool, at)
		}
		for ; len(held) < b*size/blocks; at++ {
			held = append(held, at)
		}
	}
	return pool, held
}
