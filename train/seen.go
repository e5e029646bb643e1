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

// sampleSize is the number of contexts that a record remembers. A file of ten thousand out
// of a million contexts of training then shows by some ten.
const sampleSize = 1024

// hashTable is the polynomial of the hashes in a record, which must never change.
var hashTable = crc64.MakeTable(crc64.ECMA)

// sampler collects hashes of rows, those up to a limit.
type sampler struct {
	workers []hashes
	keep    int // so many of the smallest suffice; 0 for all
}

// hashes are those that one goroutine has met.
type hashes struct {
	limit uint64
	found []uint64
}

func newSampler(workers, keep int, limit uint64) *sampler {
	s := &sampler{make([]hashes, workers), keep}
	for i := range s.workers {
		s.workers[i].limit = limit
	}
	return s
}

// add adds a row, as [labelfile.EachRow] gives it.
func (s *sampler) add(worker int, row []byte) {
	w := &s.workers[worker]
	h := crc64.Checksum(row[8:], hashTable) // the elements, whatever their place
	if h > w.limit {
		return
	}
	w.found = append(w.found, h)
	if s.keep > 0 && len(w.found) > 4*s.keep {
		if w.found = smallest(w.found, s.keep); len(w.found) == s.keep {
			w.limit = w.found[s.keep-1]
		}
	}
}

// all returns what was collected, ascending and each once.
func (s *sampler) all() []uint64 {
	var all []uint64
	for _, w := range s.workers {
		all = append(all, w.found...)
	}
	return smallest(all, len(all))
}

// smallest returns the n smallest of the hashes, ascending and each once, or all of them.
func smallest(hashes []uint64, n int) []uint64 {
	slices.Sort(hashes)
	hashes = slices.Compact(hashes)
	return hashes[:min(n, len(hashes))]
}

// sample returns what a record keeps of the rows that were added: the sampleSize smallest
// hashes, as little-endian words. Which rows these are does not depend on their order, nor
// on what else is among them, so that two lists of contexts can be compared.
func (s *sampler) sample() (sample []byte) {
	for _, h := range smallest(s.all(), sampleSize) {
		sample = binary.LittleEndian.AppendUint64(sample, h)
	}
	return sample
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
// the given number of goroutines, 0 for all cores. The error names a context with an element
// that is NaN or infinite, or is the error of ctx.
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
	given := newSampler(parallel.Threads(threads, len(contexts)/dim), 0, limit)
	if err := labelfile.EachRow(ctx, contexts, dim, 0, threads, given.add); err != nil {
		return 0, err
	}
	all, met := given.all(), 0
	for _, h := range all {
		if sample[h] {
			met++
		}
	}
	if met < 2 && met < len(all) {
		return 0, nil
	}
	return float64(met) / float64(max(len(all), 1)), nil
}
