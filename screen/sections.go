package screen

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/router"
)

// The kinds of sections, in the order of the file.
const (
	kindClusters = 1 + iota
	kindSetSizes
	kindSetIDs
	kindAlways
	kindRecord
	lastKind = kindRecord // of those that every file has

	// Both or neither: without them the screen is flat.
	kindGroups     = lastKind + 1
	kindGroupSizes = lastKind + 2
	// If a margin is not 0.
	kindMargins = lastKind + 3
	// If there is a regression of the tail. TopK does not need it: it is optional.
	kindRegression = lastKind + 4
	// If groups have lists of clusters. Only in a file with groups.
	kindGroupClusters = lastKind + 5
	// If there is a regression with squares, instead of the other. Optional, so that a
	// reader that does not know it has no regression.
	kindSecondOrder = lastKind + 6
	// If pairs of clusters have sets.
	kindPairs = lastKind + 7
	// If clusters have shells.
	kindShells = lastKind + 8
)

// sectionKind is what this version knows of a kind of sections.
type sectionKind struct {
	name  string
	flags uint32
	// write returns the content, and whether the model has such a section.
	write func(m *Model) (data []byte, ok bool)
	// read checks the content, its length before memory is taken for it, and
	// takes it over. Sections come in the order of the file.
	read func(p *parts, data []byte) error
}

// kinds are the kinds of sections by their number, from 1 on. A new kind is an
// entry here and in FORMAT.md.
var kinds = [...]sectionKind{
	kindClusters: {"clusters", 0, func(m *Model) ([]byte, bool) { return encodeFloats(m.ClusterWeights()), true }, (*parts).readClusters},
	kindSetSizes: {"set sizes", 0, writeSetSizes, (*parts).readSetSizes},
	kindSetIDs:   {"set ids", 0, func(m *Model) ([]byte, bool) { return encodeIDs(m.ids[:m.offsets[m.Clusters()]]), true }, (*parts).readSetIDs},
	kindAlways:   {"always ids", 0, func(m *Model) ([]byte, bool) { return encodeIDs(m.always), true }, (*parts).readAlways},
	kindRecord:   {"record", 0, func(m *Model) ([]byte, bool) { return m.record, true }, (*parts).readRecord},

	kindGroups:     {"groups", 0, func(m *Model) ([]byte, bool) { return encodeFloats(m.GroupWeights()), m.Groups() > 0 }, (*parts).readGroups},
	kindGroupSizes: {"group sizes", 0, writeGroupSizes, (*parts).readGroupSizes},
	kindMargins:    {"margins", 0, writeMargins, (*parts).readMargins},
	kindRegression: {"regression", flagOptional, writeRegression, (*parts).readRegression},

	kindGroupClusters: {"group clusters", 0, func(m *Model) ([]byte, bool) { return encodeIDs(m.GroupClusters()), m.GroupClusters() != nil }, (*parts).readGroupClusters},
	kindSecondOrder:   {"regression with squares", flagOptional, writeSecondOrder, (*parts).readSecondOrder},
	kindPairs:         {"pairs", 0, writePairs, (*parts).readPairs},
	kindShells:        {"shells", 0, writeShells, (*parts).readShells},
}

// parts is a model that is being read.
type parts struct {
	header
	model      *Model
	clusters   []float32
	groups     []float32
	groupSizes []int
	lists      []uint32 // group clusters
	pairs      []byte   // the section of pairs, nil for none
}

// finish returns the model of all parts.
func (p *parts) finish() (m *Model, err error) {
	m = p.model
	if p.pairs != nil {
		if err := p.decodePairs(p.pairs); err != nil {
			return nil, fmt.Errorf("pairs: %w", err)
		}
	}
	for t := range len(m.offsets) - 1 {
		set, section, at := m.set(t), "set ids", t
		if r := int(p.header.clusters); t >= r*(1+len(m.shells)) {
			section, at = "pairs", t-r*(1+len(m.shells))
		} else if t >= r {
			section, at = "shells", t-r
		}
		for _, id := range m.always {
			if _, ok := slices.BinarySearch(set, id); !ok {
				return nil, fmt.Errorf("%s: set %d: found no id %d, expected all always ids in every set", section, at, id)
			}
		}
	}
	if err := m.check(int(p.dim), int(p.header.clusters)); err != nil {
		return nil, err
	}
	m.router, err = router.New(p.clusters, p.groups, p.groupSizes, p.lists, int(p.dim))
	return m, err
}

func (p *parts) readClusters(data []byte) error {
	// The product of two counts is below 2^64, four times it need not be.
	n := p.header.clusters * p.dim
	if n > math.MaxInt/4 || uint64(len(data)) != 4*n {
		return fmt.Errorf("length: found %d bytes, expected 4 for each of %d x %d elements", len(data), p.header.clusters, p.dim)
	}
	p.clusters = decodeFloats(data)
	return nil
}

func writeSetSizes(m *Model) ([]byte, bool) {
	sizes := make([]uint32, m.Clusters())
	for t := range sizes {
		sizes[t] = uint32(m.offsets[t+1] - m.offsets[t])
	}
	return encodeIDs(sizes), true
}

func (p *parts) readSetSizes(data []byte) error {
	if n := len(data); uint64(n) != 4*p.header.clusters {
		return fmt.Errorf("length: found %d bytes, expected 4 for each of %d clusters", n, p.header.clusters)
	}
	sizes := make([]int, p.header.clusters)
	var total uint64
	for t, size := range decodeIDs(data) {
		if uint64(size) > p.labels {
			return fmt.Errorf("set %d: found %d ids, expected at most the %d labels", t, size, p.labels)
		}
		sizes[t] = int(size)
		total += uint64(size)
	}
	if total > math.MaxInt/4 {
		return fmt.Errorf("found %d ids in all, expected at most %d", total, math.MaxInt/4)
	}
	p.model.setSizes(sizes)
	return nil
}

func (p *parts) readSetIDs(data []byte) error {
	m := p.model
	if n, total := len(data), m.offsets[len(m.offsets)-1]; n != 4*total {
		return fmt.Errorf("length: found %d bytes, expected 4 for each of %d ids in the sets", n, total)
	}
	m.ids = decodeIDs(data)
	for t := range len(m.offsets) - 1 {
		if err := checkIDs(m.Candidates(t), m.labels); err != nil {
			return fmt.Errorf("set %d: %w", t, err)
		}
	}
	return nil
}

func (p *parts) readAlways(data []byte) error {
	if n := len(data); n%4 != 0 {
		return fmt.Errorf("length: found %d bytes, expected a multiple of 4", n)
	}
	p.model.always = decodeIDs(data)
	return checkIDs(p.model.always, p.model.labels)
}

func (p *parts) readRecord(data []byte) error {
	p.model.record = json.RawMessage(bytes.Clone(data))
	return checkRecord(p.model.record)
}

func (p *parts) readGroups(data []byte) error {
	// A group has a cluster at least.
	row := 4 * p.dim
	if n := uint64(len(data)) / row; uint64(len(data))%row != 0 || n < 1 || n > p.header.clusters {
		return fmt.Errorf("length: found %d bytes, expected 4 for each of 1 to %d x %d elements", len(data), p.header.clusters, p.dim)
	}
	p.groups = decodeFloats(data)
	return nil
}

func writeGroupSizes(m *Model) ([]byte, bool) {
	var sizes []uint32
	for _, size := range m.GroupSizes() {
		sizes = append(sizes, uint32(size))
	}
	return encodeIDs(sizes), len(sizes) > 0
}

func (p *parts) readGroupSizes(data []byte) error {
	if n := len(p.groups) / int(p.dim); len(data) != 4*n {
		return fmt.Errorf("length: found %d bytes, expected 4 for each of %d groups", len(data), n)
	}
	for _, size := range decodeIDs(data) {
		// If int has 32 bits a size may be too large for it.
		p.groupSizes = append(p.groupSizes, int(min(uint64(size), p.header.clusters+1)))
	}
	return nil
}

func (p *parts) readGroupClusters(data []byte) error {
	if p.groups == nil {
		return errors.New("found a file without groups, expected no section of this kind then")
	}
	total := uint64(0) // of fewer than 2^32 sizes of at most 2^32
	for _, size := range p.groupSizes {
		total += uint64(size)
	}
	if total > math.MaxInt/4 || uint64(len(data)) != 4*total {
		return fmt.Errorf("length: found %d bytes, expected 4 for each of %d clusters of the groups", len(data), total)
	}
	p.lists = decodeIDs(data)
	return nil
}

func writeMargins(m *Model) ([]byte, bool) {
	var data []byte
	for _, x := range []float64{m.margins.probe, m.margins.exact} {
		data = binary.LittleEndian.AppendUint64(data, math.Float64bits(x))
	}
	return data, m.margins != (margins{})
}

func (p *parts) readMargins(data []byte) error {
	if len(data) != 16 {
		return fmt.Errorf("length: found %d bytes, expected 16", len(data))
	}
	m := margins{math.Float64frombits(binary.LittleEndian.Uint64(data)), math.Float64frombits(binary.LittleEndian.Uint64(data[8:]))}
	if m == (margins{}) {
		return fmt.Errorf("found zeros, expected no section of this kind then")
	}
	p.model.margins = m
	return m.check()
}

func writeRegression(m *Model) ([]byte, bool) {
	if m.regression == nil || m.regression.directions() > 0 {
		return nil, false
	}
	return m.regression.encode(nil), true
}

func writeSecondOrder(m *Model) ([]byte, bool) {
	if m.regression == nil || m.regression.directions() == 0 {
		return nil, false
	}
	return m.regression.encode([]uint32{uint32(m.regression.directions()), 0}), true
}

// encode returns the content of a section, with counts behind the numbers of temperatures
// and levels.
func (r *Regression) encode(counts []uint32) []byte {
	c := r.c
	data := encodeIDs(append([]uint32{uint32(len(c.Temperatures)), uint32(len(c.Levels))}, counts...))
	for _, list := range [][]float64{c.Temperatures, c.Levels} {
		for _, x := range list {
			data = binary.LittleEndian.AppendUint64(data, math.Float64bits(x))
		}
	}
	for _, list := range [][]float32{c.Intercepts, c.Slopes, c.Widths, c.Directions, c.Squares} {
		data = append(data, encodeFloats(list)...)
	}
	return data
}

func (p *parts) readRegression(data []byte) error  { return p.decodeRegression(data, false) }
func (p *parts) readSecondOrder(data []byte) error { return p.decodeRegression(data, true) }

// decodeRegression reads either kind of section.
func (p *parts) decodeRegression(data []byte, squares bool) error {
	if p.model.regression != nil {
		return errors.New("found two regressions of the tail, expected at most one")
	}
	head := uint64(8)
	if squares {
		head = 16
	}
	if uint64(len(data)) < head {
		return fmt.Errorf("length: found %d bytes, expected at least %d", len(data), head)
	}
	counts := decodeIDs(data[:head])
	m, q, n := uint64(counts[0]), uint64(counts[1]), uint64(0)
	if m < 1 || m > maxFits || q > maxFits {
		return fmt.Errorf("found %d temperatures and %d levels, expected 1 to %d and 0 to %[3]d", m, q, maxFits)
	}
	// Clusters and dim are below 2^32, and their vectors were read: no overflow.
	rows, list, pairs := m*p.header.clusters, m+q, uint64(0)
	if squares {
		if n, pairs = uint64(counts[2]), 2*rows; n < 1 || n > maxFits || counts[3] != 0 {
			return fmt.Errorf("found %d directions and %d behind their number, expected 1 to %d and 0", n, counts[3], maxFits)
		}
	}
	floats := head + 8*list
	if want := floats + 4*(rows*(1+p.dim+q)+n*p.dim+pairs); uint64(len(data)) != want {
		return fmt.Errorf("length: found %d bytes, expected %d for %d temperatures, %d levels and %d directions of %d clusters of dim %d", len(data), want, m, q, n, p.header.clusters, p.dim)
	}
	numbers := make([]float64, list)
	for i := range numbers {
		numbers[i] = math.Float64frombits(binary.LittleEndian.Uint64(data[head+8*uint64(i):]))
	}
	x := decodeFloats(data[floats:])
	take := func(n uint64) (part []float32) {
		part, x = x[:n:n], x[n:]
		return part
	}
	r, err := newRegression(RegressionConfig{
		Clusters: int(p.header.clusters), Temperatures: numbers[:m], Levels: numbers[m:],
		Intercepts: take(rows), Slopes: take(rows * p.dim), Widths: take(rows * q), Directions: take(n * p.dim), Squares: take(pairs),
	})
	p.model.regression = r
	return err
}

func encodeFloats(x []float32) []byte {
	b := make([]byte, 0, 4*len(x))
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

func decodeFloats(b []byte) []float32 {
	x := make([]float32, len(b)/4)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return x
}

func encodeIDs(ids []uint32) []byte {
	b := make([]byte, 0, 4*len(ids))
	for _, id := range ids {
		b = binary.LittleEndian.AppendUint32(b, id)
	}
	return b
}

func decodeIDs(b []byte) []uint32 {
	ids := make([]uint32, len(b)/4)
	for i := range ids {
		ids[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return ids
}
