package screening

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sync"
	"weak"

	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/ground/jsonscan"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/router"
	"github.com/learning-to-screen/l2s/internal/search/tail"
)

// maxCount bounds labels and clusters: ids are uint32 and counts are int.
const maxCount = min(math.MaxInt, math.MaxUint32)

// maxDepth bounds how deep a record is nested: one of a few bytes a level would take many
// times its size to be shown.
const maxDepth = 32

// Config has the parts of a Model.
type Config struct {
	// Dim is d, the dimension of a context, at least 1.
	Dim int
	// Labels is L, the number of labels of the softmax layer, at least 1.
	Labels int
	// Clusters is V: r rows of Dim elements, row-major, r >= 1. Row t is v_t. The cluster
	// of a context h is z(h), the t with the largest v_t.h (Eq. 2 of the paper).
	Clusters []float32
	// Shells, unless empty, cuts the contexts of each cluster by their cosines with its
	// vector: these descend, above -1 and below 1. A context whose cosine is below j of
	// them is in shell j; cell j r + t is for cluster t in shell j.
	Shells []float64
	// Lists holds the candidates of each cell, in the order of the cells.
	Lists []List
	// Always is the number of ids at the start of every list by decree, such as the ids of <unk>
	// and <eos>: in every list the same, ascending.
	Always int
	// Ladder holds the budgets that the model knows, 1 to 64 of them, ascending. Nil means one
	// budget, which takes whole lists.
	Ladder []Rung
	// Budget is the budget of requests without a budget: one of the ladder. 0: the largest.
	Budget float64
	// K and HeldOut are the basis of the figures of the ladder: PrecisionK is P@K, and HeldOut is
	// the number of contexts. 0 and 0 if nothing was measured.
	K, HeldOut int
	// Tail, unless nil, gives log-probabilities over all labels.
	Tail *tail.Tail
	// Fingerprint is exact.Layer.Fingerprint of the layer that the lists
	// were made for. All zero: the model goes with any layer of its shape.
	Fingerprint [32]byte
	// Record describes the training of the model: a JSON object, or nil for {}. It is kept byte for
	// byte.
	Record json.RawMessage
}

// List holds the candidates of a cell, best first: the order in which the knapsack of the
// paper (Section 3) takes them.
type List struct {
	// IDs are distinct.
	IDs []uint32
	// Shares has, for each id, the probability that it is among the best labels of a context of the
	// cell: 65,535 for 1, see screen/FORMAT.md. They do not ascend; of equals the lower id comes
	// first, after the ids by decree. Nil means the largest share for all: then the ids ascend.
	Shares []uint16
}

// Model is a trained screen: clusters, and ranked lists of their cells. It does not change, and is for
// any number of goroutines.
type Model struct {
	c      Config   // with a ladder, a budget of it, a record, and shares in all lists
	heads  []uint32 // of each cell, the number of candidates that are not in the tail; nil without one
	router *router.Router

	mu      sync.Mutex // of sizes
	sizes   map[uint16][]uint32
	packing sync.Mutex                             // of packs
	packs   map[packKey]weak.Pointer[exact.Packed] // which searchers keep alive
}

// NewModel returns the model of c, whose slices it keeps. It quantises the vectors of the clusters: a
// byte or more per number of V. An error names the field, the value found and the value expected.
func NewModel(c Config) (*Model, error) {
	c.Lists = slices.Clone(c.Lists) // in which shares are filled in
	m, err := newModel(c)
	if err != nil {
		return nil, fmt.Errorf("screen: %w", err)
	}
	return m, nil
}

// newModel is NewModel for a caller that tells the file in errors.
func newModel(c Config) (*Model, error) {
	if c.Labels < 1 || uint64(c.Labels) > maxCount {
		return nil, fmt.Errorf("labels: found %d, expected 1 to %d", c.Labels, uint64(maxCount))
	}
	r, err := router.New(c.Dim, c.Clusters, c.Shells)
	if err != nil {
		return nil, err
	}
	if len(c.Lists) != r.Cells() {
		return nil, fmt.Errorf("lists: found %d, expected one for each of %d cells", len(c.Lists), r.Cells())
	}
	for t, l := range c.Lists {
		if l.Shares == nil {
			c.Lists[t].Shares = slices.Repeat([]uint16{math.MaxUint16}, len(l.IDs))
		} else if len(l.Shares) != len(l.IDs) {
			return nil, fmt.Errorf("lists: list %d: found %d shares, expected one for each of %d ids", t, len(l.Shares), len(l.IDs))
		}
	}
	m := &Model{c: c, router: r, sizes: map[uint16][]uint32{}, packs: map[packKey]weak.Pointer[exact.Packed]{}}
	if c.Ladder == nil {
		m.c.Ladder = []Rung{{Budget: float64(max(m.largestList(), 1))}}
	}
	if c.Record == nil {
		m.c.Record = json.RawMessage("{}")
	}
	if err := m.checkLists(); err != nil {
		return nil, fmt.Errorf("lists: %w", err)
	}
	if err := m.checkLadder(); err != nil {
		return nil, fmt.Errorf("ladder: %w", err)
	}
	if c.Budget == 0 {
		m.c.Budget = m.c.Ladder[len(m.c.Ladder)-1].Budget
	}
	if !slices.ContainsFunc(m.c.Ladder, func(x Rung) bool { return x.Budget == m.c.Budget }) {
		return nil, fmt.Errorf("budget: found %v, expected one of the ladder", m.c.Budget)
	}
	if uint64(len(m.c.Record)) > maxCount {
		return nil, fmt.Errorf("record: found %d bytes, expected at most %d", len(m.c.Record), uint64(maxCount))
	}
	record, err := jsonscan.ParseNested(m.c.Record, maxDepth)
	if err == nil && record[0] != '{' {
		err = record.Found("an object")
	}
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	if t := c.Tail; t != nil {
		if clusters, dim := t.Fits(); clusters != m.Clusters() || dim != m.Dim() {
			return nil, fmt.Errorf("tail: found one for %d clusters of dim %d, expected %d of %d", clusters, dim, m.Clusters(), m.Dim())
		}
		m.heads = m.SizesAt(t.Config().Share)
	}
	return m, nil
}

// checkLists returns an error unless the lists are as Config requires. Its time is in proportion to
// the number of ids, times its logarithm if L is much larger.
func (m *Model) checkLists() error {
	always := m.c.Always
	if first := len(m.c.Lists[0].IDs); always < 0 || always > first {
		return fmt.Errorf("found %d ids in every list by decree, expected 0 to the %d of list 0", always, first)
	}
	ids := 0
	for _, l := range m.c.Lists {
		ids += len(l.IDs)
	}
	var seen *bitset.Set
	if m.c.Labels/32 <= ids+1024 {
		seen = bitset.New(m.c.Labels)
	}
	for t, l := range m.c.Lists {
		if len(l.IDs) < always || !slices.Equal(l.IDs[:always], m.c.Lists[0].IDs[:always]) {
			return fmt.Errorf("list %d: found other ids at its head than at the head of list 0, expected the same %d", t, always)
		}
		for i, id := range l.IDs {
			switch share := l.Shares[i]; {
			case uint64(id) >= uint64(m.c.Labels):
				return fmt.Errorf("list %d: found id %d at position %d, expected ids below %d labels", t, id, i, m.c.Labels)
			case i < always && share != math.MaxUint16:
				return fmt.Errorf("list %d: found share %d at position %d, expected %d of an id that is there by decree", t, share, i, math.MaxUint16)
			case i > 0 && share > l.Shares[i-1]:
				return fmt.Errorf("list %d: found share %d after %d at position %d, expected shares that do not ascend", t, share, l.Shares[i-1], i)
			case i > 0 && i != always && share == l.Shares[i-1] && id <= l.IDs[i-1]:
				return fmt.Errorf("list %d: found id %d after %d at position %d, expected ascending, distinct ids of one share", t, id, l.IDs[i-1], i)
			}
		}
		if id, found := repeated(l.IDs, seen); found {
			return fmt.Errorf("list %d: found id %d twice, expected distinct ids", t, id)
		}
	}
	return nil
}

// repeated returns an id that occurs twice. seen is an empty set of all labels, nil if there are
// many.
func repeated(ids []uint32, seen *bitset.Set) (id uint32, found bool) {
	if seen == nil {
		sorted := slices.Sorted(slices.Values(ids))
		for i := 1; i < len(sorted); i++ {
			if sorted[i] == sorted[i-1] {
				return sorted[i], true
			}
		}
		return 0, false
	}
	for _, id := range ids {
		if seen.Has(id) {
			return id, true
		}
		seen.Add(id)
	}
	for _, id := range ids {
		seen.Remove(id)
	}
	return 0, false
}

// Tail returns the model's tail, or nil if it has none.
func (m *Model) Tail() *tail.Tail { return m.c.Tail }

// Head returns the candidates of a cell that are not in the tail, best first, not to be changed.
func (m *Model) Head(cell int) []uint32 { return m.first(cell, int(m.heads[cell])) }

// Config returns the parts of the model, which must not be changed: with some of them replaced, they
// make another model.
func (m *Model) Config() Config { return m.c }

// Dim returns d, the dimension of a context.
func (m *Model) Dim() int { return m.c.Dim }

// Labels returns L, the number of labels of the layer that the model is for.
func (m *Model) Labels() int { return m.c.Labels }

// Clusters returns r, the number of clusters.
func (m *Model) Clusters() int { return m.router.Clusters() }

// Cells returns the number of cells.
func (m *Model) Cells() int { return m.router.Cells() }

// List returns the candidates of a cell, 0 <= cell < Cells(). They must not be changed.
func (m *Model) List(cell int) List {
	l := m.c.Lists[cell]
	return List{slices.Clip(l.IDs), slices.Clip(l.Shares)}
}

func (m *Model) largestList() (largest int) {
	for _, l := range m.c.Lists {
		largest = max(largest, len(l.IDs))
	}
	return largest
}

// Record returns the training record, a JSON object. It must not be changed.
func (m *Model) Record() json.RawMessage { return m.c.Record }
