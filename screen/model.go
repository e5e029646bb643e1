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
	// Clusters is V: r rows of Dim elements, row-major, r >= 1. Row t is v_t.
	Clusters []float32
	// Groups is nil for the flat screen of the paper, where the cluster of a
	// context is the best of all r. Otherwise it holds g rows of Dim elements,
	// row-major, g >= 1, and the cluster is found through them: the group with
	// the largest u.h first, then the best cluster of that group. So g rows and
	// the rows of one group are scanned instead of r.
	Groups []float32
	// GroupSizes holds the number of clusters in each group, if there are
	// groups: g numbers of at least 1.
	GroupSizes []int
	// GroupClusters holds the clusters of group 0, then the clusters of group 1, and
	// so on, in each group ascending. A cluster may be in several groups. If it is
	// nil, each cluster is in one group, the sum of GroupSizes is r, and the
	// clusters of a group are neighbours: group 0 has the first
	// GroupSizes[0].
	GroupClusters []uint32
	// ProbeMargin is the lead of the best cluster, v_z.h - v_y.h with y the
	// second best, below which a context has the candidates of both, or of their pair.
	// With groups both are of the best group. 0: one cluster always.
	ProbeMargin float64
	// ExactMargin is the lead below which the exact layer answers. 0: never for
	// that reason. Neither margin is negative.
	ExactMargin float64
	// Regression, unless nil, estimates the sum over the labels outside the
	// candidate set, for log-probabilities over all labels at the cost of one
	// product. It has the shape of Clusters, and is kept, not copied.
	Regression *Regression
	// Shells, unless empty, cuts the contexts of each cluster into shells, by how far they
	// lie from it: descending cosines, each above -1 and below 1. A context whose cosine
	// with v_t, t its best cluster, is below n of them is in shell n. The parts
	// of clusters are cells: cell n r + t is shell n of cluster t.
	Shells []float64
	// Sets holds the candidate set of each cluster: r lists of distinct ids
	// below Labels, ascending. With shells it holds the set of each cell instead. A set
	// may be empty.
	Sets [][]uint32
	// Pairs lists pairs of clusters that have a candidate set of their own, ascending
	// by First, then by Second. A context whose two best clusters are such a pair, in
	// either order, and whose lead is below ProbeMargin has this set, and not the
	// sets of both. Other pairs have both sets. With shells First and Second are the
	// cells of the two clusters in the shell of the context.
	Pairs []Pair
	// Always lists ids that every set gets, such as the ids of <unk> and
	// <eos>. Any order; repeated ids count once.
	Always []uint32
	// Fingerprint is softmax.Layer.Fingerprint of the layer that the sets
	// were made for. All zero: the model goes with any layer of its shape.
	Fingerprint [32]byte
	// Record says how the model came about: a JSON object, or nil for {}.
	// It is kept byte for byte.
	Record json.RawMessage
}

// Pair is a pair of clusters, First below Second, and its candidate set, as
// [Config].Sets has one for a cluster.
type Pair struct {
	First, Second int
	Set           []uint32
}

// Model is a screen: the cluster vectors v_1, ..., v_r and the candidate sets
// c_1, ..., c_r (Section 3 of the paper). It is immutable and safe for use by
// many goroutines.
type Model struct {
	labels      int
	router      *router.Router // V, and U with groups
	margins     margins
	regression  *Regression // nil for none
	shells      []float64   // cosines; nil for none
	pairs       *pairs      // that have sets; nil for none
	offsets     []int       // of cells + 1, and of pairs; set t is ids[offsets[t]:offsets[t+1]]
	ids         []uint32
	always      []uint32
	fingerprint [32]byte
	record      json.RawMessage
	largest     int
	packs       *packs    // shared with all models that have the same sets
	extra       []section // optional sections of the file that this version does not know
}

// NewModel returns the model of c. It copies what it needs of it, and quantises the
// vectors of the clusters: a byte or more for each number of V. An error
// names the field, what was found and what was expected.
func NewModel(c Config) (*Model, error) {
	m, err := newModel(c)
	if err != nil {
		return nil, fmt.Errorf("screen: %w", err)
	}
	return m, nil
}

func newModel(c Config) (*Model, error) {
	if c.Dim < 1 {
		return nil, fmt.Errorf("dim: found %d, expected at least 1", c.Dim)
	}
	if c.Labels < 1 || uint64(c.Labels) > maxCount {
		return nil, fmt.Errorf("labels: found %d, expected 1 to %d", c.Labels, uint64(maxCount))
	}
	if len(c.Clusters) == 0 || len(c.Clusters)%c.Dim != 0 {
		return nil, fmt.Errorf("clusters: found %d elements, expected a positive multiple of dim %d", len(c.Clusters), c.Dim)
	}
	r := len(c.Clusters) / c.Dim
	if err := checkShells(c.Shells); err != nil {
		return nil, fmt.Errorf("shells: %w", err)
	}
	cells := r * (1 + len(c.Shells))
	if len(c.Sets) != cells {
		return nil, fmt.Errorf("sets: found %d, expected %s", len(c.Sets), oneForEach(r, c.Shells))
	}
	always := slices.Clone(c.Always)
	slices.Sort(always)
	always = slices.Compact(always)
	if err := checkIDs(always, c.Labels); err != nil {
		return nil, fmt.Errorf("always: %w", err)
	}
	total := 0
	for t, set := range c.Sets {
		if err := checkIDs(set, c.Labels); err != nil {
			return nil, fmt.Errorf("sets: set %d: %w", t, err)
		}
		total += len(set)
	}
	ids := make([]uint32, 0, total)
	sizes := make([]int, cells)
	for t, set := range c.Sets {
		before := len(ids)
		ids = appendUnion(ids, set, always)
		sizes[t] = len(ids) - before
	}
	indexed, err := newPairs(c.Pairs, r, cells)
	if err != nil {
		return nil, fmt.Errorf("pairs: %w", err)
	}
	for i, p := range c.Pairs {
		if err := checkIDs(p.Set, c.Labels); err != nil {
			return nil, fmt.Errorf("pairs: set %d: %w", i, err)
		}
		before := len(ids)
		ids = appendUnion(ids, p.Set, always)
		sizes = append(sizes, len(ids)-before)
	}
	record := c.Record
	if record == nil {
		record = json.RawMessage("{}")
	}
	m := &Model{
		labels: c.Labels, shells: slices.Clone(c.Shells), pairs: indexed, margins: margins{c.ProbeMargin, c.ExactMargin}, regression: c.Regression, ids: ids, always: always,
		fingerprint: c.Fingerprint, record: bytes.Clone(record),
	}
	m.setSizes(sizes)
	if err := m.check(c.Dim, r); err != nil {
		return nil, err
	}
	m.router, err = router.New(slices.Clone(c.Clusters), slices.Clone(c.Groups), c.GroupSizes, slices.Clone(c.GroupClusters), c.Dim)
	return m, err
}

// setSizes sets the offsets of the sets, which no searcher has packed.
func (m *Model) setSizes(sizes []int) {
	m.packs = &packs{}
	m.offsets = make([]int, 1, len(sizes)+1)
	m.addSizes(sizes)
}

// addSizes adds the offsets of further sets.
func (m *Model) addSizes(sizes []int) {
	for _, size := range sizes {
		m.offsets = append(m.offsets, m.offsets[len(m.offsets)-1]+size)
		m.largest = max(m.largest, size)
	}
}

// check returns an error unless the parts are valid that are checked neither by
// checkIDs nor by the router.
func (m *Model) check(dim, clusters int) error {
	if err := checkRecord(m.record); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	if err := checkRegression(m.regression, clusters, dim); err != nil {
		return err
	}
	return m.margins.check()
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

func checkRecord(record []byte) error {
	if !utf8.Valid(record) {
		return fmt.Errorf("found bytes that are not UTF-8, %w", errNoObject)
	}
	var value json.RawMessage
	if err := json.Unmarshal(record, &value); err != nil {
		return fmt.Errorf("found %w, %w", err, errNoObject)
	}
	if head := bytes.TrimLeft(record, " \t\r\n"); head[0] != '{' {
		return fmt.Errorf("found JSON that starts with %q, %w", head[0], errNoObject)
	}
	return nil
}

// appendUnion appends the union of two ascending lists of distinct ids.
func appendUnion(dst, a, b []uint32) []uint32 {
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] < b[0]:
			dst, a = append(dst, a[0]), a[1:]
		case a[0] > b[0]:
			dst, b = append(dst, b[0]), b[1:]
		default:
			dst, a, b = append(dst, a[0]), a[1:], b[1:]
		}
	}
	return append(append(dst, a...), b...)
}

// Clusters returns r, the number of clusters.
func (m *Model) Clusters() int { return m.router.Clusters() }

// Dim returns d, the dimension of a context.
func (m *Model) Dim() int { return m.router.Dim() }

// Labels returns L, the number of labels of the layer that the model is for.
func (m *Model) Labels() int { return m.labels }

// ClusterWeights returns V, r x d, row-major. It must not be changed.
func (m *Model) ClusterWeights() []float32 { return m.router.ClusterVectors() }

// Candidates returns the candidate set of cluster t, 0 <= t < r, or of a cell if there
// are shells, see Config: ascending ids, the always included ones among them. It must
// not be changed.
func (m *Model) Candidates(t int) []uint32 { return m.set(t) }

// set returns the set of a cell, or of a pair by the place that pairs.find gives.
func (m *Model) set(t int) []uint32 {
	start, end := m.offsets[t], m.offsets[t+1]
	return m.ids[start:end:end]
}

// Always returns the ids that are in every candidate set by decree,
// ascending. It must not be changed.
func (m *Model) Always() []uint32 { return m.always }

// Fingerprint returns the fingerprint of the layer that the model is for, all
// zero if it goes with any layer of its shape.
func (m *Model) Fingerprint() [32]byte { return m.fingerprint }

// Record returns the training record, a JSON object. It must not be changed.
func (m *Model) Record() json.RawMessage { return m.record }

// MeanSetSize returns the mean size of the candidate sets, each cluster
// counted once, or each cell if there are shells. It is not L-bar, which counts each cluster as often as
// contexts fall into it: that is Evaluation.MeanCandidates.
func (m *Model) MeanSetSize() float64 {
	return float64(m.offsets[m.cells()]) / float64(m.cells())
}

// LargestSet returns the size of the largest candidate set of a cluster or a pair.
func (m *Model) LargestSet() int { return m.largest }
