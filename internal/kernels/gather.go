package kernels

import "github.com/learning-to-screen/l2s/kernels/asm"

func CheckIDs(ids []uint32, n int) {
	if len(ids) > 0 && uint64(maxID(ids)) >= uint64(n) {
		panic("kernels: id out of range")
	}
}

func maxID(ids []uint32) uint32 {
	whole := len(ids) &^ 15
	m := maxIDGeneric(ids[whole:])
	for c := callsOf(whole, MaxCallBytes/4); c.at < c.n; c = c.next() {
		part := ids[c.at:c.end]
		RaceReads(part)
		id, ok := asm.MaxID(&part[0], len(part))
		if !ok {
			id = maxIDGeneric(part)
		}
		m = max(m, id)
	}
	return m
}

func maxIDGeneric(ids []uint32) uint32 {
	var m uint32
	for _, id := range ids {
		m = max(m, id)
	}
	return m
}
