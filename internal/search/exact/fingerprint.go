package exact

import (
	"context"
	"crypto/sha256"
	"encoding/binary"

	"github.com/learning-to-screen/l2s/internal/ground/parallel"
)

// hashedRows is the number of rows that are hashed at a time.
const hashedRows = 256

// fingerprintOf returns the fingerprint of a layer, see l2s.Layer.Fingerprint. widen writes a row of W, of
// dim elements. All cores call it. The bias has an element for each label.
func fingerprintOf(dim int, widen func(row []float32, label int), bias []float32) [32]byte {
	labels := len(bias)
	sums := make([][sha256.Size]byte, (labels+hashedRows-1)/hashedRows)
	hash := func(_, lo, hi int) error {
		h, row, bytes := sha256.New(), make([]float32, dim), make([]byte, 4*dim)
		for i := lo; i < hi; i++ {
			widen(row, i)
			_, _ = binary.Encode(bytes, binary.LittleEndian, row) // which has room: no error
			h.Write(bytes)
		}
		h.Sum(sums[lo/hashedRows][:0])
		return nil
	}
	if parallel.Each(context.Background(), 0, labels, hashedRows, nil, hash) != nil {
		// A mapped file is gone. Like any other read of W, that is a fault in the caller's
		// goroutine.
		for lo := 0; lo < labels; lo += hashedRows {
			_ = hash(0, lo, min(lo+hashedRows, labels))
		}
	}
	biases, _ := binary.Append(nil, binary.LittleEndian, bias)
	all := binary.LittleEndian.AppendUint64(nil, uint64(labels))
	all = binary.LittleEndian.AppendUint64(all, uint64(dim))
	for _, sum := range append(sums, sha256.Sum256(biases)) {
		all = append(all, sum[:]...)
	}
	return sha256.Sum256(all)
}
