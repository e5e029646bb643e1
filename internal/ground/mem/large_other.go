//go:build !linux

package mem

const hugePage = 2 << 20

func mapLarge(int) (table []byte, release func(), ok bool) { return nil, nil, false }

func collapse([]byte) {}
