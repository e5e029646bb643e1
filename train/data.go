package train

import (
	"context"
	"fmt"
	"math"

	"github.com/learning-to-screen/l2s/internal/labelfile"
	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/softmax"
)

// data is what a stage of a run sees of the contexts: which of them, their
// labels once these are known, and how to work on them.
type data struct {
	contexts []float32 // n x dim, or more rows, of which only names the n that count
	only     []uint32  // ascending; nil for all
	n, dim   int
	universe int      // L
	labels   []uint32 // a row of k for each row of contexts
	k        int
	seed     uint64
	threads  int
	report   *reporter
	digest   labelfile.Digest // of all contexts, once they are identified
}

// newData is the view of all contexts, without labels.
func newData(layer *softmax.Layer, contexts []float32, opt *Options) (*data, error) {
	n, err := contextCount(layer, contexts)
	if err != nil {
		return nil, err
	}
	return &data{
		contexts: contexts, n: n, dim: layer.Dim(), universe: layer.Labels(), k: opt.K,
		seed: opt.Seed, threads: parallel.Threads(opt.Threads, n), report: &reporter{call: opt.Progress},
	}, nil
}

// identifyAndSample finds the digest of all contexts, and what a record keeps of them.
func (d *data) identifyAndSample(ctx context.Context) (sample []byte, err error) {
	workers := parallel.Threads(d.threads, d.n)
	digests, s := make([]labelfile.Digest, workers), newSampler(workers, sampleSize, math.MaxUint64)
	err = labelfile.EachRow(ctx, d.contexts, d.dim, 0, d.threads, func(worker int, row []byte) {
		digests[worker].AddRow(row)
		s.add(worker, row)
	})
	d.digest = labelfile.Sum(digests)
	return s.sample(), err
}

// identify finds the digest of all contexts.
func (d *data) identify(ctx context.Context) (err error) {
	d.digest, err = labelfile.DigestOf(ctx, d.contexts, d.dim, 0, d.threads)
	return err
}

// contextCount returns the number of rows of the contexts, or an error if
// they are not whole rows of the layer's dimension, or if there is no row.
func contextCount(layer *softmax.Layer, contexts []float32) (int, error) {
	dim := layer.Dim()
	switch {
	case len(contexts) == 0:
		return 0, fmt.Errorf("contexts: found none, expected at least 1 row of %d values", dim)
	case len(contexts)%dim != 0:
		return 0, fmt.Errorf("contexts: found %d values, expected rows of %d, the dimension of the layer", len(contexts), dim)
	case uint64(len(contexts)/dim) > math.MaxUint32:
		return 0, fmt.Errorf("contexts: found %d, expected at most %d", len(contexts)/dim, uint32(math.MaxUint32))
	}
	return len(contexts) / dim, nil
}

// place is the row of contexts and labels that context i of the view is.
func (d *data) place(i uint32) int {
	if d.only != nil {
		i = d.only[i]
	}
	return int(i)
}

// row is h_i.
func (d *data) row(i uint32) []float32 {
	at := d.place(i)
	return d.contexts[at*d.dim : (at+1)*d.dim]
}

// labelsOf are the k labels of context i, best first.
func (d *data) labelsOf(i uint32) []uint32 {
	at := d.place(i)
	return d.labels[at*d.k : (at+1)*d.k]
}

// all are the numbers of the contexts.
func (d *data) all() []uint32 {
	ids := make([]uint32, d.n)
	for i := range ids {
		ids[i] = uint32(i)
	}
	return ids
}

// part is the view of some of the contexts, ascending.
func (d *data) part(ids []uint32) *data {
	p := *d
	p.n, p.only = len(ids), ids
	if d.only != nil {
		p.only = make([]uint32, len(ids))
		for j, i := range ids {
			p.only[j] = d.only[i]
		}
	}
	return &p
}

// assignChunk is the number of contexts a goroutine takes at a time if each
// costs about a microsecond.
const assignChunk = 256
