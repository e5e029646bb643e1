//go:build !amd64 || purego

package main

// streamRead returns a function that reads b once.
func streamRead(b []byte) func() {
	x := float32s(b)
	return func() {
		var s [4]float32
		for i := 0; i+4 <= len(x); i += 4 {
			s[0] += x[i]
			s[1] += x[i+1]
			s[2] += x[i+2]
			s[3] += x[i+3]
		}
		sink = s[0] + s[1] + s[2] + s[3]
	}
}

var sink float32
