package labelfile

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"sync"
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

// digestStride is the number of rows between two looks at the context for
// cancellation.
const digestStride = 512

// DigestOf returns the digest of rows, row-major with dim elements each, the
// first of which is context number first. It runs on the given number of
// goroutines, at least 1; the result does not depend on it.
//
// It returns an error where an element is NaN or infinite, which names the
// context, or where ctx ends.
func DigestOf(ctx context.Context, rows []float32, dim, first, threads int) (Digest, error) {
	n := len(rows) / dim
	digests, errs := make([]Digest, threads), make([]error, threads)
	var wg sync.WaitGroup
	for w := range threads {
		wg.Add(1)
		go func() {
			defer wg.Done()
			digests[w], errs[w] = digestRange(ctx, rows, dim, first, w*n/threads, (w+1)*n/threads)
		}()
	}
	wg.Wait()
	var sum Digest
	for w := range threads {
		if errs[w] != nil {
			return Digest{}, errs[w]
		}
		sum.Add(digests[w])
	}
	return sum, nil
}

func digestRange(ctx context.Context, rows []float32, dim, first, lo, hi int) (sum Digest, err error) {
	const exponent = 0x7f800000
	buf := make([]byte, 8+4*dim)
	for i := lo; i < hi; i++ {
		if (i-lo)%digestStride == 0 && ctx.Err() != nil {
			return sum, fmt.Errorf("interrupted: %w", ctx.Err())
		}
		binary.LittleEndian.PutUint64(buf, uint64(first+i))
		for j, x := range rows[i*dim : (i+1)*dim] {
			bits := math.Float32bits(x)
			if bits&exponent == exponent {
				return sum, fmt.Errorf("context %d: found %v at element %d, expected finite numbers", first+i, x, j)
			}
			binary.LittleEndian.PutUint32(buf[8+4*j:], bits)
		}
		sum.Add(sha256.Sum256(buf))
	}
	return sum, nil
}
