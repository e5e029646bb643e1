// Package corpus is the contexts as the stages of training see them: which contexts, their labels,
// and how to work on them.
package corpus

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/files/labelfile"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/router"
	"github.com/learning-to-screen/l2s/internal/search/screening"
)

// Corpus is a view of all or of some contexts.
type Corpus struct {
	rows     kernels.Rows // of Dim elements; only has the ids of the rows that are used
	elements []float32    // of rows if they are float32, else nil
	only     []uint32     // nil for all
	N, Dim   int
	Labels   int      // L, the labels of the layer
	Best     []uint32 // the K best labels of each of rows, best first; nil before they are known
	K        int
	Seed     uint64
	Threads  int
	Report   *Reporter
}

// New returns the view of all contexts of the layer, row-major.
func New(layer *exact.Layer, contexts []float32, threads int) (*Corpus, error) {
	if layer == nil || layer.Labels() == 0 {
		return nil, errNoLayer
	}
	if dim := layer.Dim(); len(contexts)%dim != 0 {
		return nil, fmt.Errorf("contexts: found %d values, expected rows of %d, the dimension of the layer", len(contexts), dim)
	}
	return Of(layer, kernels.Float32Rows(contexts, layer.Dim()), threads)
}

var errNoLayer = errors.New("layer: found none, expected one of l2s.Open or l2s.New")

// Of is New for rows of any type.
func Of(layer *exact.Layer, contexts kernels.Rows, threads int) (*Corpus, error) {
	if layer == nil || layer.Labels() == 0 {
		return nil, errNoLayer
	}
	n, dim := contexts.Len(), layer.Dim()
	switch {
	case n == 0:
		return nil, fmt.Errorf("contexts: found none, expected at least 1 row of %d values", dim)
	case contexts.Dim() != dim:
		return nil, fmt.Errorf("contexts: found rows of %d values, expected %d, the dimension of the layer", contexts.Dim(), dim)
	case uint64(n) > math.MaxUint32:
		return nil, fmt.Errorf("contexts: found %d, expected at most %d", n, uint32(math.MaxUint32))
	}
	c := &Corpus{rows: contexts, N: n, Dim: dim, Labels: layer.Labels(), Threads: parallel.Threads(threads, n), Report: &Reporter{}}
	c.elements, _ = kernels.AsFloat32(contexts)
	return c, nil
}

// Digest returns the digest of all rows in their order. An error names a context that is not
// finite.
func (c *Corpus) Digest(ctx context.Context) (labelfile.Digest, error) {
	return labelfile.DigestOf(ctx, c.rows, 0, c.Threads)
}

// place is the row of rows and Best that context i of the view is.
func (c *Corpus) place(i uint32) int {
	if c.only != nil {
		i = c.only[i]
	}
	return int(i)
}

// Buffer returns the buffer that Row needs to widen a row: nil if rows are float32.
func (c *Corpus) Buffer() []float32 {
	if c.elements != nil {
		return nil
	}
	return make([]float32, c.Dim)
}

// Row is h_i: in place, or in the buffer, until that has another row.
func (c *Corpus) Row(i uint32, buffer []float32) []float32 {
	at := c.place(i)
	if c.elements != nil {
		return c.elements[at*c.Dim : (at+1)*c.Dim]
	}
	c.rows.Widen(buffer, at)
	return buffer
}

// Bytes returns the bytes of a row: equal contexts have equal bytes, except for the sign of a zero.
func Bytes(row []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(row))), 4*len(row))
}

// LabelsOf are the K labels of context i, best first.
func (c *Corpus) LabelsOf(i uint32) []uint32 {
	at := c.place(i)
	return c.Best[at*c.K : (at+1)*c.K]
}

// Ascending are the numbers below n.
func Ascending(n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i)
	}
	return ids
}

// Part is the view of some of the contexts, in this order.
func (c *Corpus) Part(ids []uint32) *Corpus {
	p := *c
	p.N, p.only = len(ids), ids
	if c.only != nil {
		p.only = make([]uint32, len(ids))
		for j, i := range ids {
			p.only[j] = c.only[i]
		}
	}
	return &p
}

// Spaced is the view of at most n contexts, evenly spaced.
func (c *Corpus) Spaced(n int) *Corpus {
	if n >= c.N {
		return c
	}
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i * c.N / n)
	}
	return c.Part(ids)
}

const (
	// Chunk is the number of contexts a goroutine takes at a time if each costs about a microsecond.
	Chunk = 256
	// batch is the number of contexts that are routed together, so that the vectors are read once
	// for them.
	batch = 64
)

// NewQueries returns queries for contexts of dim elements.
func NewQueries(n, dim int) []*exact.Query {
	qs := make([]*exact.Query, n)
	for i := range qs {
		qs[i] = exact.NewQuery(dim)
	}
	return qs
}

// Set gives the contexts from lo on to the queries. An error names a context that is
// not finite.
func (c *Corpus) Set(qs []*exact.Query, lo int) error {
	buffer := c.Buffer()
	for j, q := range qs {
		if err := q.Set(c.Row(uint32(lo+j), buffer)); err != nil {
			return fmt.Errorf("context %d: %w", lo+j, err)
		}
	}
	return nil
}

// Route finds the clusters of every context by r, so that training and queries agree
// on them. It returns them in found if there is room.
func (c *Corpus) Route(ctx context.Context, r *router.Router, found []router.Found, done func(int)) ([]router.Found, error) {
	type scratch struct {
		*router.Searcher
		queries []*exact.Query
	}
	found = slices.Grow(found[:0], c.N)[:c.N]
	fresh := func() scratch { return scratch{r.NewSearcher(), NewQueries(batch, c.Dim)} }
	err := parallel.With(ctx, c.Threads, c.N, Chunk, done, fresh, func(w scratch, lo, hi int) error {
		for ; lo < hi; lo += batch {
			n := min(batch, hi-lo)
			if err := c.Set(w.queries[:n], lo); err != nil {
				return err
			}
			if err := w.Find(found[lo:lo+n], w.queries[:n], true); err != nil {
				return err
			}
		}
		return nil
	})
	return found, err
}

// RouteTo is Route by a new router, to clusters with these vectors.
func (c *Corpus) RouteTo(ctx context.Context, v []float32, found []router.Found, done func(int)) (*router.Router, []router.Found, error) {
	r, err := router.New(c.Dim, v, nil)
	if err != nil {
		return nil, nil, err
	}
	found, err = c.Route(ctx, r, found, done)
	return r, found, err
}

// RouteBy is Route by the router of a model. It reports the stage.
func (c *Corpus) RouteBy(ctx context.Context, m *screening.Model, stage string) (*router.Router, []router.Found, error) {
	r, err := router.New(m.Dim(), m.Config().Clusters, m.Config().Shells)
	if err != nil {
		return nil, nil, err
	}
	found, err := c.Route(ctx, r, nil, c.Report.Stage(stage, 0, c.N))
	return r, found, err
}

// Search is a search for the best labels of N vectors.
type Search struct {
	Layer   *exact.Layer
	Threads int
	N, K    int
	Chunk   int // vectors that are searched together
	// Set writes the vectors from lo on to the queries of a chunk.
	Set func(qs []*exact.Query, lo int) error
	// Take gets the K best labels of vector i.
	Take func(i int, best []exact.Prediction)
	// Done, unless nil, gets the number of further vectors that are done.
	Done func(int)
}

// Run searches, on all threads. A screen goes with any scale and cap, so logits are without.
func (x *Search) Run(ctx context.Context) error {
	type scratch struct {
		*exact.Searcher
		queries []*exact.Query
		top     []exact.Prediction
		answers []exact.Answer
	}
	plain := x.Layer.Plain()
	fresh := func() scratch {
		return scratch{exact.NewSearcher(plain), NewQueries(x.Chunk, plain.Dim()), make([]exact.Prediction, x.Chunk*x.K), make([]exact.Answer, x.Chunk)}
	}
	return parallel.With(ctx, x.Threads, x.N, x.Chunk, x.Done, fresh, func(w scratch, lo, hi int) error {
		n := hi - lo
		if err := x.Set(w.queries[:n], lo); err != nil {
			return err
		}
		if err := w.Find(w.top[:n*x.K], w.answers[:n], w.queries[:n], &exact.Request{}); err != nil {
			return err
		}
		for i := range n {
			x.Take(lo+i, w.top[i*x.K:][:x.K])
		}
		return nil
	})
}
