package train

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
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

// add adds a row, as [labelfile.EachRow] gives it, and may change it.
func (s *sampler) add(worker int, row []byte) {
	const negativeZero = 1 << 31
	elements := row[8:] // whatever their place
	for at := 0; at < len(elements); at += 4 {
		if binary.LittleEndian.Uint32(elements[at:]) == negativeZero { // which equals 0
			elements[at+3] = 0
		}
	}
	w := &s.workers[worker]
	h := crc64.Checksum(elements, hashTable)
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

// all returns what was collected, in no order.
func (s *sampler) all() []uint64 {
	var all []uint64
	for _, w := range s.workers {
		all = append(all, w.found...)
	}
	return all
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

// Overlap says which share of some contexts a screen was trained on.
type Overlap struct {
	// Share is the share of the contexts, each as often as it occurs.
	Share float64 `json:"share"`
	// Compared is the number of different contexts that the share rests on, and Exact says
	// that these are all. If they are not, the share is an estimate, whose standard error
	// is at most .5/sqrt(Compared).
	Compared int  `json:"compared"`
	Exact    bool `json:"exact"`
}

// TrainedOn finds out which share of these contexts, row-major with dim elements each, are
// among the contexts of the run, its held-out ones included. Figures on contexts of training
// flatter a screen, and a calibration with them promises nothing. The contexts of the tail
// ([Options.TailContexts]) are not among those of the run, and a context that was rounded to
// another type is another context.
//
// The share is exact for the contexts of the run in their order, and if the run had fewer than
// 1,024 different contexts. Else it is estimated from the contexts that the record
// remembers, [Record.ContextsSample]: some 1,024 n/N of n contexts if the run had N. It is 0
// if fewer than two of them are among those of the run. So it may miss a file that is much
// smaller than what the screen was trained on.
//
// The record of an earlier release has no sample: then the share is 1 for the contexts of the
// run in their order, and else 0. All contexts are read, on the given number of goroutines,
// 0 for all cores.
//
// Errors: contexts that are not whole rows, a NaN or Inf (the context is named), ctx cancelled.
func (r *Record) TrainedOn(ctx context.Context, contexts []float32, dim, threads int) (Overlap, error) {
	if dim < 1 || len(contexts)%dim != 0 {
		return Overlap{}, fmt.Errorf("train: contexts: found %d values, expected rows of %d", len(contexts), dim)
	}
	n := len(contexts) / dim
	sample, limit := r.sampled()
	workers := parallel.Threads(threads, n)
	given, digests := newSampler(workers, 0, limit), make([]labelfile.Digest, workers)
	sameNumber := n == r.Contexts && r.ContextsDigest != ""
	if sample == nil && !sameNumber {
		return Overlap{}, nil
	}
	if err := labelfile.EachRow(ctx, contexts, dim, 0, threads, func(worker int, row []byte) {
		if sameNumber {
			digests[worker].AddRow(row)
		}
		given.add(worker, row)
	}); err != nil {
		return Overlap{}, fmt.Errorf("train: contexts: %w", err)
	}
	if sum := labelfile.Sum(digests); sameNumber && hex.EncodeToString(sum[:]) == r.ContextsDigest {
		return Overlap{1, n, true}, nil
	}
	known := func(hashes []uint64) (n int) {
		for _, h := range hashes {
			if sample[h] {
				n++
			}
		}
		return n
	}
	all := given.all()
	met := known(all)
	different := smallest(slices.Clone(all), len(all))
	o := Overlap{Compared: len(different), Exact: sample != nil && limit == math.MaxUint64}
	if o.Exact || known(different) > 1 {
		o.Share = float64(met) / float64(max(len(all), 1))
	}
	return o, nil
}

// sampled returns the hashes in the record, nil for none, and the largest hash up to which
// the hashes of all contexts of the run are among them.
func (r *Record) sampled() (sample map[uint64]bool, limit uint64) {
	for at := 0; at+8 <= len(r.ContextsSample); at += 8 {
		if sample == nil {
			sample = map[uint64]bool{}
		}
		limit = binary.LittleEndian.Uint64(r.ContextsSample[at:])
		sample[limit] = true
	}
	if sample != nil && len(sample) < sampleSize { // these are all
		limit = math.MaxUint64
	}
	return sample, limit
}
