package train

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"hash/crc64"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/labelfile"
	"github.com/learning-to-screen/l2s/internal/parallel"
)

// sampleSize is the number of contexts that a record remembers. A file with a tenth of a
// million contexts of training then shows by a hundred of them.
const sampleSize = 1024

// hashTable is the polynomial of the hashes in a record, which must never change.
var hashTable = crc64.MakeTable(crc64.ECMA)

// hashesUpTo returns the different hashes of rows, row-major with dim elements each, that
// are at most limit, ascending. With least > 0 it may leave out any but the least so many.
// The result does not depend on the number of threads.
func hashesUpTo(ctx context.Context, rows []float32, dim int, limit uint64, least, threads int) ([]uint64, error) {
	n := len(rows) / dim
	type worker struct {
		limit  uint64
		hashes []uint64
	}
	workers := make([]worker, parallel.Threads(threads, n))
	err := parallel.Each(ctx, threads, n, 512, nil, func(id, lo, hi int) error {
		w := &workers[id]
		if w.hashes == nil {
			w.limit = limit
		}
		buf := make([]byte, 4*dim)
		for i := lo; i < hi; i++ {
			for j, x := range rows[i*dim : (i+1)*dim] {
				binary.LittleEndian.PutUint32(buf[4*j:], math.Float32bits(x))
			}
			if h := crc64.Checksum(buf, hashTable); h <= w.limit {
				w.hashes = append(w.hashes, h)
			}
		}
		if least > 0 && len(w.hashes) > 4*least {
			if w.hashes = smallest(w.hashes, least); len(w.hashes) == least {
				w.limit = w.hashes[least-1]
			}
		}
		return nil
	})
	var all []uint64
	for _, w := range workers {
		all = append(all, w.hashes...)
	}
	slices.Sort(all)
	return slices.Compact(all), err
}

// smallest returns the n smallest of the hashes, ascending and each once, or all of them.
func smallest(hashes []uint64, n int) []uint64 {
	slices.Sort(hashes)
	hashes = slices.Compact(hashes)
	return hashes[:min(n, len(hashes))]
}

// sampleOf returns the sample of contexts that a record keeps: the sampleSize smallest
// hashes, as little-endian words. Which contexts these are does not depend on their
// order, nor on what else is among them, so that samples of two lists can be compared.
func sampleOf(ctx context.Context, contexts []float32, dim, threads int) ([]byte, error) {
	all, err := hashesUpTo(ctx, contexts, dim, math.MaxUint64, sampleSize, threads)
	var sample []byte
	for _, h := range smallest(all, sampleSize) {
		sample = binary.LittleEndian.AppendUint64(sample, h)
	}
	return sample, err
}

// TrainedOn estimates which share of these contexts, row-major with dim elements each, are
// among the contexts of the run, its held-out ones included. Figures on contexts of training
// flatter a screen, and a calibration with them promises nothing. A context that occurs
// several times counts once.
//
// The share is 1 if all of them are, and 0 if none is. Else it is estimated from the
// contexts that the record remembers, [Record.ContextsSample]. If n contexts are given and
// N were trained on, that sees some 1,024 n/N of those that are in both, and one alone counts
// for nothing. So it may miss a file that is much smaller than what the screen was trained on.
//
// The record of an earlier release, without a sample, knows its contexts as a whole only:
// the share is 1 for all of them in the same order, and else 0. All contexts are read, on
// the given number of goroutines, 0 for all cores. The error is the error of ctx, or says
// that a mapped file is not there any more.
func (r *Record) TrainedOn(ctx context.Context, contexts []float32, dim, threads int) (share float64, err error) {
	if len(r.ContextsSample) < 8 {
		if r.ContextsDigest == "" || len(contexts) != r.Contexts*dim {
			return 0, nil
		}
		digest, err := labelfile.DigestOf(ctx, contexts, dim, 0, threads)
		if err == nil && hex.EncodeToString(digest[:]) == r.ContextsDigest {
			share = 1
		}
		return share, err
	}
	sample := map[uint64]bool{}
	limit := uint64(0)
	for at := 0; at+8 <= len(r.ContextsSample); at += 8 {
		limit = binary.LittleEndian.Uint64(r.ContextsSample[at:])
		sample[limit] = true
	}
	if len(sample) < sampleSize { // these are all
		limit = math.MaxUint64
	}
	hashes, err := hashesUpTo(ctx, contexts, dim, limit, 0, threads)
	if err != nil {
		return 0, err
	}
	met := 0
	for _, h := range hashes {
		if sample[h] {
			met++
		}
	}
	if met < 2 && met < len(hashes) {
		return 0, nil
	}
	return float64(met) / float64(max(len(hashes), 1)), nil
}
