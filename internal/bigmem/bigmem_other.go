//go:build !linux

package bigmem

func mapLarge(int) (table []byte, release func(), ok bool) { return nil, nil, false }
