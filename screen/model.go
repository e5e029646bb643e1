package screen

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/learning-to-screen/l2s/internal/router"
)

// maxCount bounds the number of labels and of clusters: ids are uint32 and
// counts are int.
const maxCount = min(math.MaxInt, math.MaxUint32)

// Config is what a Model is made of.
type Config struct {
	// Dim is d, the dimension of a context, at least 1.
	Dim int
	// Labels is L, the number of labels of the softmax layer, at least 1.
	Labels int
	// Clusters is V: r rows of Dim elements, row-major, r >= 1. Row t is v_t. The cluster
	// of a context h is z(h), the t with the largest v_t.h (Eq. 2 of the paper).
	Clusters []float32
	// Shells, unless empty, cuts the contexts of each cluster by how far they lie from it:
	// descending cosines of a context and the vector of its cluster, above -1 and below 1.
	// A context whose cosine is below j of them is in shell j; cell j r + t is for cluster
	// t in shell j.
	Shells []float64
	// Pairs are pairs of these cells, of two clusters in one shell, First below Second,
	// ascending. Behind the cells of the clusters each is a cell of its own: for contexts
	// whose two best clusters are the pair's, in either order, and whose lead v_z.h - v_y.h,
	// y the second best cluster, is below PairMargin. A context whose clusters are no such
	// pair is in the cell of z(h).
	Pairs []Pair
	// PairMargin is finite and not negative.
	PairMargin float64
	// Lists holds the candidates of each cell, in the order of the cells. They are kept, not
	// copied.
	Lists []List
	// Always is the number of ids at the head of every list that are there by decree, such
	// as the ids of <unk> and <eos>: in every list the same, ascending.
	Always int
	// Ladder holds the budgets that the model knows, 1 to 64 of them, ascending. Nil
	// stands for one, which takes whole lists.
	Ladder []Rung
	// Budget is the budget of requests that name none: one of the ladder. 0: the largest.
	Budget float64
	// K and HeldOut say what the figures of the ladder are of: PrecisionK is P@K, and
	// HeldOut is the number of contexts. 0 and 0 if nothing was measured.
	K, HeldOut int
	// ExactMargin is the lead below which the exact layer answers: finite, not negative. 0:
	// never for that reason.
	ExactMargin float64
	// Tail, unless nil, estimates the sum over the labels that are not looked at, for
	// log-probabilities over all labels ([Searcher.LogProb]). It is kept, not copied.
	Tail *Tail
	// Fingerprint is softmax.Layer.Fingerprint of the layer that the lists
	// were made for. All zero: the model goes with any layer of its shape.
	Fingerprint [32]byte
	// Record says how the model came about: a JSON object, or nil for {}.
	// It is kept byte for byte.
	Record json.RawMessage
}

// Pair is a pair of cells, see [Config].
type Pair = router.Pair

// List holds the candidates of a cell, best first: the order in which the knapsack of the
// paper (Section 3) takes them.
type List struct {
	// IDs are distinct.
	IDs []uint32
	// Shares says how likely each of the ids is among the best labels of a context of the cell, see
	// [Share]. They do not ascend; of equals the lower id comes first, behind the ids that
	// are there by decree. Nil stands for the largest share for all: the ids ascend then.
	Shares []uint16
}

// Model is a screen: the vectors of clusters v_1, ..., v_r and for each cell its candidates,
// in an order of which every budget takes the first ones. It is immutable and safe
// for use by many goroutines.
type Model struct {
	labels      int
	router      *router.Router
	starts      []int // of cells + 1: list c is ids[starts[c]:starts[c+1]]
	ids         []uint32
	shares      []uint16
	always      int
	ladder      []Rung
	rung        int // the default one
	k, heldOut  int
	exactMargin float64
	tail        *Tail // nil for none
	fingerprint [32]byte
	record      json.RawMessage
	extra       []section // optional sections of the file that this version does not know
	*derived
}

// NewModel returns the model of c. It copies what it needs of it, if nothing else is said, and
// quantises the vectors of the clusters: a byte or more for each number of V. An error
// names the field, what was found and what was expected.
func NewModel(c Config) (*Model, error) {
	m, err := newModel(c)
	if err != nil {
		return nil, fmt.Errorf("screen: %w", err)
	}
	return m, nil
}

func newModel(c Config) (*Model, error) {
	if c.Labels < 1 || uint64(c.Labels) > maxCount {
		return nil, fmt.Errorf("labels: found %d, expected 1 to %d", c.Labels, uint64(maxCount))
	}
	rule := router.Rule{Shells: slices.Clone(c.Shells), Pairs: slices.Clone(c.Pairs), PairMargin: c.PairMargin}
	r, err := router.New(router.Config{Dim: c.Dim, Clusters: slices.Clone(c.Clusters), Rule: rule})
	if err != nil {
		return nil, err
	}
	if len(c.Lists) != r.Cells() {
		return nil, fmt.Errorf("lists: found %d, expected one for each of %d cells", len(c.Lists), r.Cells())
	}
	m := &Model{
		labels: c.Labels, router: r, always: c.Always, exactMargin: c.ExactMargin, tail: c.Tail,
		ladder: slices.Clone(c.Ladder), k: c.K, heldOut: c.HeldOut,
		fingerprint: c.Fingerprint, record: bytes.Clone(c.Record),
	}
	if m.record == nil {
		m.record = json.RawMessage("{}")
	}
	m.starts = make([]int, 1, len(c.Lists)+1)
	for t, l := range c.Lists {
		if l.Shares != nil && len(l.Shares) != len(l.IDs) {
			return nil, fmt.Errorf("lists: list %d: found %d shares, expected one for each of %d ids", t, len(l.Shares), len(l.IDs))
		}
		m.starts = append(m.starts, m.starts[t]+len(l.IDs))
	}
	m.ids, m.shares = make([]uint32, 0, m.starts[len(c.Lists)]), make([]uint16, 0, m.starts[len(c.Lists)])
	for _, l := range c.Lists {
		m.ids = append(m.ids, l.IDs...)
		if m.shares = append(m.shares, l.Shares...); l.Shares == nil {
			for range l.IDs {
				m.shares = append(m.shares, math.MaxUint16)
			}
		}
	}
	if m.ladder == nil {
		m.ladder = []Rung{{Budget: float64(max(m.largestList(), 1))}}
	}
	m.rung = len(m.ladder) - 1
	if c.Budget != 0 {
		m.rung = slices.IndexFunc(m.ladder, func(x Rung) bool { return x.Budget == c.Budget })
		if m.rung < 0 {
			return nil, fmt.Errorf("budget: found %v, expected one of the ladder", c.Budget)
		}
	}
	return m, m.check()
}

// check returns an error unless the parts are valid that the router does not check.
func (m *Model) check() error {
	if err := m.checkLists(); err != nil {
		return fmt.Errorf("lists: %w", err)
	}
	if err := m.checkLadder(); err != nil {
		return fmt.Errorf("ladder: %w", err)
	}
	if err := checkExactMargin(m.exactMargin); err != nil {
		return err
	}
	if err := checkRecord(m.record); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	m.derived = &derived{}
	return m.checkTail(m.tail)
}

func checkExactMargin(x float64) error {
	if !(x >= 0) || math.IsInf(x, 1) || math.Signbit(x) {
		return fmt.Errorf("exact margin: found %v, expected a finite number that is not negative", x)
	}
	return nil
}

// checkLists returns an error unless the lists are what Config says. Its time is in proportion
// to the number of ids, times its logarithm where L is large beside it.
func (m *Model) checkLists() error {
	cells := len(m.starts) - 1
	if m.always < 0 || cells > 0 && m.always > m.starts[1] {
		return fmt.Errorf("found %d ids in every list by decree, expected 0 to the %d of list 0", m.always, m.starts[1])
	}
	distinct := newDistinct(m.labels, len(m.ids))
	for t := range cells {
		ids, shares := m.ids[m.starts[t]:m.starts[t+1]], m.shares[m.starts[t]:m.starts[t+1]]
		if len(ids) < m.always || !slices.Equal(ids[:m.always], m.ids[:m.always]) {
			return fmt.Errorf("list %d: found other ids at its head than at the head of list 0, expected the same %d", t, m.always)
		}
		for i, id := range ids {
			switch {
			case uint64(id) >= uint64(m.labels):
				return fmt.Errorf("list %d: found id %d at position %d, expected ids below %d labels", t, id, i, m.labels)
			case i < m.always && shares[i] != math.MaxUint16:
				return fmt.Errorf("list %d: found share %d at position %d, expected %d of an id that is there by decree", t, shares[i], i, math.MaxUint16)
			case i > 0 && shares[i] > shares[i-1]:
				return fmt.Errorf("list %d: found share %d after %d at position %d, expected shares that do not ascend", t, shares[i], shares[i-1], i)
			case i > 0 && i != m.always && shares[i] == shares[i-1] && id <= ids[i-1]:
				return fmt.Errorf("list %d: found id %d after %d at position %d, expected ascending, distinct ids of one share", t, id, ids[i-1], i)
			}
		}
		if id, found := distinct.repeated(ids); found {
			return fmt.Errorf("list %d: found id %d twice, expected distinct ids", t, id)
		}
	}
	return nil
}

// distinct finds ids that occur twice in a list.
type distinct struct {
	seen   []uint64 // a bit a label, all 0 between lists; nil if labels are many
	sorted []uint32
}

func newDistinct(labels, ids int) *distinct {
	if labels/8 > 4*ids+1<<12 {
		return &distinct{}
	}
	return &distinct{seen: make([]uint64, labels/64+1)}
}

func (d *distinct) repeated(ids []uint32) (id uint32, found bool) {
	if d.seen == nil {
		d.sorted = append(d.sorted[:0], ids...)
		slices.Sort(d.sorted)
		for i := 1; i < len(d.sorted); i++ {
			if d.sorted[i] == d.sorted[i-1] {
				return d.sorted[i], true
			}
		}
		return 0, false
	}
	for _, x := range ids {
		if w := &d.seen[x/64]; *w>>(x%64)&1 == 1 {
			id, found = x, true
		} else {
			*w |= 1 << (x % 64)
		}
	}
	for _, x := range ids {
		d.seen[x/64] = 0
	}
	return id, found
}

// checkIDs returns an error unless the ids are ascending, distinct and below
// labels.
func checkIDs(ids []uint32, labels int) error {
	for i, id := range ids {
		if uint64(id) >= uint64(labels) {
			return fmt.Errorf("found id %d at position %d, expected ids below %d labels", id, i, labels)
		}
		if i > 0 && id <= ids[i-1] {
			return fmt.Errorf("found id %d after %d at position %d, expected ascending, distinct ids", id, ids[i-1], i)
		}
	}
	return nil
}

var errNoObject = errors.New("expected a JSON object")

// maxDepth bounds how deep a record is nested: one of a few bytes a level would take many
// times its size to be shown.
const maxDepth = 32

// depth returns how deep JSON is nested, which is valid.
func depth(text []byte) (most int) {
	at, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			at++
			most = max(most, at)
		case c == '}' || c == ']':
			at--
		}
	}
	return most
}

func checkRecord(record []byte) error {
	if !utf8.Valid(record) {
		return fmt.Errorf("found bytes that are not UTF-8, %w", errNoObject)
	}
	var value json.RawMessage
	if err := json.Unmarshal(record, &value); err != nil {
		return fmt.Errorf("found %w, %w", err, errNoObject)
	}
	if found := depth(record); found > maxDepth {
		return fmt.Errorf("found JSON nested %d deep, expected at most %d", found, maxDepth)
	}
	if head := bytes.TrimLeft(record, " \t\r\n"); head[0] != '{' {
		return fmt.Errorf("found JSON that starts with %q, %w", head[0], errNoObject)
	}
	return nil
}

// withRecord returns a copy of the model with that record, its own if it is nil. The copy
// shares the memory of the model.
func (m *Model) withRecord(record json.RawMessage) (*Model, error) {
	c := *m
	if record != nil {
		if err := checkRecord(record); err != nil {
			return nil, fmt.Errorf("screen: record: %w", err)
		}
		c.record = bytes.Clone(record)
	}
	return &c, nil
}

// Dim returns d, the dimension of a context.
func (m *Model) Dim() int { return m.router.Dim() }

// Labels returns L, the number of labels of the layer that the model is for.
func (m *Model) Labels() int { return m.labels }

// Clusters returns r, the number of clusters.
func (m *Model) Clusters() int { return m.router.Clusters() }

// Cells returns the number of cells.
func (m *Model) Cells() int { return m.router.Cells() }

// ClusterWeights returns V, r x d, row-major. It must not be changed.
func (m *Model) ClusterWeights() []float32 { return m.router.Vectors() }

// Shells returns the cosines that cut clusters into shells, Pairs the pairs of cells, and
// PairMargin the lead below which a context belongs to one, see Config. The slices must not
// be changed.
func (m *Model) Shells() []float64   { return m.router.Rule().Shells }
func (m *Model) Pairs() []Pair       { return m.router.Rule().Pairs }
func (m *Model) PairMargin() float64 { return m.router.Rule().PairMargin }

// ExactMargin returns the lead of the best cluster below which the exact layer
// answers, 0 for never.
func (m *Model) ExactMargin() float64 { return m.exactMargin }

// List returns the candidates of a cell, 0 <= cell < Cells(). They must not be changed.
func (m *Model) List(cell int) List {
	start, end := m.starts[cell], m.starts[cell+1]
	return List{m.ids[start:end:end], m.shares[start:end:end]}
}

// largestList returns the length of the longest list.
func (m *Model) largestList() int {
	largest := 0
	for t := range len(m.starts) - 1 {
		largest = max(largest, m.starts[t+1]-m.starts[t])
	}
	return largest
}

// Always returns the ids that are in every list by decree, ascending. It must not be
// changed.
func (m *Model) Always() []uint32 { return m.ids[:m.always:m.always] }

// Fingerprint returns the fingerprint of the layer that the model is for, all
// zero if it goes with any layer of its shape.
func (m *Model) Fingerprint() [32]byte { return m.fingerprint }

// Record returns the training record, a JSON object. It must not be changed.
func (m *Model) Record() json.RawMessage { return m.record }
