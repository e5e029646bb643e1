package crc32c

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// The examples of RFC 3720, B.4.
func TestSum(t *testing.T) {
	ascending := make([]byte, 32)
	for i := range ascending {
		ascending[i] = byte(i)
	}
	for _, c := range []struct {
		name string
		data []byte
		want uint32
	}{
		{"nothing", nil, 0},
		{"32 zeros", make([]byte, 32), 0x8a9136aa},
		{"32 ones", bytes.Repeat([]byte{0xff}, 32), 0x62a8ab43},
		{"0 to 31", ascending, 0x46dd794e},
		{"the nine digits", []byte("123456789"), 0xe3069283},
	} {
		if got := Sum(c.data); got != c.want {
			t.Errorf("%s: found %08x, want %08x", c.name, got, c.want)
		}
	}
}

func TestUpdateContinues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.SliceOf(rapid.Byte()).Draw(t, "a"), rapid.SliceOf(rapid.Byte()).Draw(t, "b")
		if got, want := Update(Sum(a), b), Sum(append(bytes.Clone(a), b...)); got != want {
			t.Fatalf("found %08x, want %08x", got, want)
		}
	})
}
