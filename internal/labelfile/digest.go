package labelfile

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/learning-to-screen/l2s/internal/parallel"
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

// digestChunk is the number of rows between two looks at the context for
// cancellation.
const digestChunk = 512

// DigestOf returns the digest of rows, row-major with dim elements each, the
// first of which is context number first. It runs on the given number of
// goroutines; the result does not depend on it. Errors are as from [EachRow].
func DigestOf(ctx context.Context, rows []float32, dim, first, threads int) (Digest, error) {
	digests := make([]Digest, parallel.Threads(threads, len(rows)/dim))
	err := EachRow(ctx, rows, dim, first, threads, func(worker int, row []byte) {
		digests[worker].AddRow(row)
	})
	return Sum(digests), err
}

// AddRow adds the digest of a row, as EachRow gives it.
func (d *Digest) AddRow(row []byte) { d.Add(sha256.Sum256(row)) }

// Sum returns the digest of what parts are the digests of.
func Sum(parts []Digest) (sum Digest) {
	for _, d := range parts {
		sum.Add(d)
	}
	return sum
}

// EachRow calls f with the bytes of each row, which hold until f returns: its number as a
// 64-bit and its elements as 32-bit little-endian words. The rows are row-major with dim
// elements each, the first of them number first. Up to the given number of goroutines, 0
// for all cores, call f at once, each with the number of its own, as [parallel.Each] has it.
//
// It returns an error if an element is NaN or infinite, which names the
// first such context, or if ctx ends. If rows are mapped memory that is
// no longer there the error is [parallel.ErrGone].
func EachRow(ctx context.Context, rows []float32, dim, first, threads int, f func(worker int, row []byte)) error {
	const exponent = 0x7f800000
	return parallel.Each(ctx, threads, len(rows)/dim, digestChunk, nil, func(worker, lo, hi int) error {
		buf := make([]byte, 8+4*dim)
		for i := lo; i < hi; i++ {
			binary.LittleEndian.PutUint64(buf, uint64(first+i))
			for j, x := range rows[i*dim : (i+1)*dim] {
				bits := math.Float32bits(x)
				if bits&exponent == exponent {
					return fmt.Errorf("context %d: found %v at element %d, expected finite numbers", first+i, x, j)
				}
				binary.LittleEndian.PutUint32(buf[8+4*j:], bits)
			}
			f(worker, buf)
		}
		return nil
	})
}
