package labelfile

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/kernels"
)

// Digest identifies contexts by their numbers and their places: the sum over
// the rows of SHA-256(i, h_i), with i as a 64-bit and the elements of h_i as
// 32-bit little-endian words, in four lanes of 64 bits. Being a sum it can be
// had from the digests of parts, whatever the parts are. It finds mistakes;
// against malice it is no guard.
type Digest [sha256.Size]byte

// Add adds the digest of other rows.
func (d *Digest) Add(o Digest) {
	le := binary.LittleEndian
	for at := 0; at < len(d); at += 8 {
		le.PutUint64(d[at:], le.Uint64(d[at:])+le.Uint64(o[at:]))
	}
}

const digestChunk = 512 // rows between two looks at ctx

// DigestOf returns the digest of the values of rows, the first of which is context number first.
// It runs on the given number of goroutines, 0 for all cores; the result does not depend on it.
//
// It returns an error if an element is NaN or infinite, which names the first such context, or if
// ctx ends. If rows are mapped memory that is no longer there the error is [parallel.ErrGone].
func DigestOf(ctx context.Context, rows kernels.Rows, first, threads int) (sum Digest, err error) {
	const exponent = 0x7f800000
	digests := make([]Digest, parallel.Threads(threads, rows.Len()))
	err = parallel.Each(ctx, threads, rows.Len(), digestChunk, nil, func(worker, lo, hi int) error {
		h, text := make([]float32, rows.Dim()), make([]byte, 8+4*rows.Dim())
		for i := lo; i < hi; i++ {
			rows.Widen(h, i)
			binary.LittleEndian.PutUint64(text, uint64(first+i))
			for j, x := range h {
				bits := math.Float32bits(x)
				if bits&exponent == exponent {
					return fmt.Errorf("context %d: found %v at element %d, expected finite numbers", first+i, x, j)
				}
				binary.LittleEndian.PutUint32(text[8+4*j:], bits)
			}
			digests[worker].Add(sha256.Sum256(text))
		}
		return nil
	})
	for _, d := range digests {
		sum.Add(d)
	}
	return sum, err
}
