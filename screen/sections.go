package screen

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"

	"github.com/learning-to-screen/l2s/internal/router"
)

// The kinds of sections, in the order of the file. Every file has the first ones.
const (
	kindClusters = 1 + iota
	kindCells
	kindSizes
	kindIDs
	kindShares
	kindLadder
	kindRecord
	lastKind = kindRecord

	// If there is a tail. Searches for the best labels do not need it: it is optional.
	kindTail = lastKind + 1
)

// sectionKind is what this version knows of a kind of sections.
type sectionKind struct {
	name  string
	flags uint32
	// write returns the content, nil if the model has no such section.
	write func(m *Model) []byte
	// read checks the content, its length before memory is taken for it, and
	// takes it over. Sections come in the order of the file.
	read func(p *parts, data []byte) error
}

// kinds are the kinds of sections by their number, from 1 on. A new kind is an
// entry here and in FORMAT.md.
var kinds = [...]sectionKind{
	kindClusters: {"clusters", 0, func(m *Model) []byte { return encodeFloats(m.ClusterWeights()) }, (*parts).readClusters},
	kindCells:    {"cells", 0, writeCells, (*parts).readCells},
	kindSizes:    {"sizes", 0, writeSizes, (*parts).readSizes},
	kindIDs:      {"ids", 0, func(m *Model) []byte { return encodeIDs(m.ids) }, (*parts).readIDs},
	kindShares:   {"shares", 0, writeShares, (*parts).readShares},
	kindLadder:   {"ladder", 0, writeLadder, (*parts).readLadder},
	kindRecord:   {"record", 0, func(m *Model) []byte { return m.record }, (*parts).readRecord},
	kindTail:     {"tail", flagOptional, writeTail, (*parts).readTail},
}

// parts is a model that is being read.
type parts struct {
	header
	model    *Model
	clusters []float32
}

// finish returns the model of all parts.
func (p *parts) finish() (*Model, error) { return p.model, p.model.check() }

func (p *parts) readClusters(data []byte) error {
	// The product of two counts is below 2^64, four times it need not be.
	n := p.header.clusters * p.dim
	if n > math.MaxInt/4 || uint64(len(data)) != 4*n {
		return fmt.Errorf("length: found %d bytes, expected 4 for each of %d x %d elements", len(data), p.header.clusters, p.dim)
	}
	p.clusters = decodeFloats(data)
	return nil
}

const cellsHead = 16 // bytes

func writeCells(m *Model) []byte {
	rule := m.router.Rule()
	data := encodeIDs([]uint32{uint32(len(rule.Shells)), uint32(len(rule.Pairs))})
	data = appendFloat64(data, rule.PairMargin)
	data = appendFloat64(data, rule.Shells...)
	for _, p := range rule.Pairs {
		data = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(data, p.First), p.Second)
	}
	return data
}

func (p *parts) readCells(data []byte) error {
	if len(data) < cellsHead {
		return fmt.Errorf("length: found %d bytes, expected at least %d", len(data), cellsHead)
	}
	le := binary.LittleEndian
	shells, pairs := uint64(le.Uint32(data)), uint64(le.Uint32(data[4:]))
	if want := cellsHead + 8*shells + 8*pairs; uint64(len(data)) != want {
		return fmt.Errorf("length: found %d bytes, expected %d for %d shells and %d pairs", len(data), want, shells, pairs)
	}
	rule := router.Rule{PairMargin: decodeFloat64(data[8:16])[0], Shells: decodeFloat64(data[cellsHead : cellsHead+8*shells])}
	ids := decodeIDs(data[cellsHead+8*shells:])
	rule.Pairs = make([]Pair, pairs)
	for i := range rule.Pairs {
		rule.Pairs[i] = Pair{First: ids[2*i], Second: ids[2*i+1]}
	}
	// The cells of clusters take memory: each has a size in the next section.
	if p.header.clusters*(1+shells) > uint64(p.header.size)/4 {
		return fmt.Errorf("found %d clusters in each of %d shells, expected a file with a size for each", p.header.clusters, 1+shells)
	}
	var err error
	p.model.router, err = router.New(router.Config{Dim: int(p.dim), Clusters: p.clusters, Rule: rule})
	return err
}

func writeSizes(m *Model) []byte {
	sizes := make([]uint32, 1, len(m.starts))
	sizes[0] = uint32(m.always)
	for t := range len(m.starts) - 1 {
		sizes = append(sizes, uint32(m.starts[t+1]-m.starts[t]))
	}
	return encodeIDs(sizes)
}

func (p *parts) readSizes(data []byte) error {
	m := p.model
	if cells := m.Cells(); uint64(len(data)) != 4*(1+uint64(cells)) {
		return fmt.Errorf("length: found %d bytes, expected 4, and 4 for each of %d cells", len(data), cells)
	}
	sizes := decodeIDs(data)
	m.always = int(min(uint64(sizes[0]), p.labels+1)) // if int has 32 bits it may be too large
	m.starts = make([]int, len(sizes))
	total := uint64(0)
	for t, size := range sizes[1:] {
		if uint64(size) > p.labels {
			return fmt.Errorf("list %d: found %d ids, expected at most the %d labels", t, size, p.labels)
		}
		if total += uint64(size); total > math.MaxInt/4 {
			return fmt.Errorf("found more than %d ids in all, expected at most that", math.MaxInt/4)
		}
		m.starts[t+1] = int(total)
	}
	return nil
}

func (p *parts) readIDs(data []byte) error {
	if n, total := len(data), p.model.starts[len(p.model.starts)-1]; n != 4*total {
		return fmt.Errorf("length: found %d bytes, expected 4 for each of %d ids in the lists", n, total)
	}
	p.model.ids = decodeIDs(data)
	return nil
}

func writeShares(m *Model) []byte {
	data := make([]byte, 0, 2*len(m.shares))
	for _, x := range m.shares {
		data = binary.LittleEndian.AppendUint16(data, x)
	}
	return data
}

func (p *parts) readShares(data []byte) error {
	if n, total := len(data), len(p.model.ids); n != 2*total {
		return fmt.Errorf("length: found %d bytes, expected 2 for each of %d ids in the lists", n, total)
	}
	p.model.shares = make([]uint16, len(data)/2)
	for i := range p.model.shares {
		p.model.shares[i] = binary.LittleEndian.Uint16(data[2*i:])
	}
	return nil
}

const (
	ladderHead = 24 // bytes
	ladderRung = 80
)

func writeLadder(m *Model) []byte {
	data := encodeIDs([]uint32{uint32(len(m.ladder)), uint32(m.rung), uint32(m.k), uint32(m.heldOut)})
	data = appendFloat64(data, m.exactMargin)
	for _, x := range m.ladder {
		data = appendFloat64(data, x.Budget)
		data = append(data, encodeIDs([]uint32{uint32(x.Share), uint32(x.P99Candidates), uint32(x.MaxCandidates), 0})...)
		data = appendFloat64(data, x.MeanCandidates)
		for _, e := range []Estimate{x.Precision1, x.PrecisionK} {
			data = appendFloat64(data, e.Value, e.Low, e.High)
		}
	}
	return data
}

func (p *parts) readLadder(data []byte) error {
	if len(data) < ladderHead {
		return fmt.Errorf("length: found %d bytes, expected at least %d", len(data), ladderHead)
	}
	m, head := p.model, decodeIDs(data[:16])
	n := uint64(head[0])
	if want := ladderHead + ladderRung*n; uint64(len(data)) != want {
		return fmt.Errorf("length: found %d bytes, expected %d for %d budgets", len(data), want, n)
	}
	if n < 1 || n > maxRungs || uint64(head[1]) >= n {
		return fmt.Errorf("found %d budgets and the default one at %d, expected 1 to %d, and one of them", n, head[1], maxRungs)
	}
	for i, x := range head[2:] {
		if uint64(x) > math.MaxInt32 {
			return fmt.Errorf("found %d in word %d, expected at most %d", x, i+2, math.MaxInt32)
		}
	}
	m.rung, m.k, m.heldOut = int(head[1]), int(head[2]), int(head[3])
	m.exactMargin = decodeFloat64(data[16:24])[0]
	m.ladder = make([]Rung, n)
	for i := range m.ladder {
		rung := data[ladderHead+ladderRung*i:][:ladderRung]
		words, x := decodeIDs(rung[8:24]), decodeFloat64(rung[24:])
		if words[0] > math.MaxUint16 || words[1] > math.MaxInt32 || words[2] > math.MaxInt32 || words[3] != 0 {
			return fmt.Errorf("rung %d: found the words %d, expected a share of at most %d, two numbers of at most %d, and 0", i, words, math.MaxUint16, math.MaxInt32)
		}
		m.ladder[i] = Rung{
			Budget: decodeFloat64(rung[:8])[0], Share: uint16(words[0]), P99Candidates: int(words[1]), MaxCandidates: int(words[2]),
			MeanCandidates: x[0], Precision1: Estimate{x[1], x[2], x[3]}, PrecisionK: Estimate{x[4], x[5], x[6]},
		}
	}
	return nil
}

func (p *parts) readRecord(data []byte) error {
	p.model.record = json.RawMessage(bytes.Clone(data))
	return checkRecord(p.model.record)
}

const tailHead = 16 // bytes

func writeTail(m *Model) []byte {
	if m.tail == nil {
		return nil
	}
	c := m.tail.c
	data := encodeIDs([]uint32{uint32(c.Share), uint32(len(c.Temperatures)), uint32(len(c.Levels)), uint32(len(c.Directions) / m.Dim())})
	data = appendFloat64(data, c.Temperatures...)
	data = appendFloat64(data, c.Levels...)
	for _, list := range [][]float32{c.Intercepts, c.Slopes, c.Squares, c.Widths, c.Directions} {
		data = append(data, encodeFloats(list)...)
	}
	return data
}

func (p *parts) readTail(data []byte) error {
	if len(data) < tailHead {
		return fmt.Errorf("length: found %d bytes, expected at least %d", len(data), tailHead)
	}
	head := decodeIDs(data[:tailHead])
	m, q, n := uint64(head[1]), uint64(head[2]), uint64(head[3])
	if head[0] > math.MaxUint16 || m < 1 || m > MaxFits || q > MaxFits || n < 1 || n > MaxFits {
		return fmt.Errorf("found share %d, %d temperatures, %d levels and %d directions, expected at most %d, 1 to %d, 0 to %[6]d and 1 to %[6]d", head[0], m, q, n, math.MaxUint16, MaxFits)
	}
	// Clusters and dim are below 2^32, and their vectors were read: no overflow.
	cells, rows := uint64(p.model.Cells()), m*p.header.clusters
	floats := tailHead + 8*(m+q)
	if want := floats + 4*(m*cells+rows*(p.dim+2+q)+n*p.dim); uint64(len(data)) != want {
		return fmt.Errorf("length: found %d bytes, expected %d for %d temperatures, %d levels and %d directions, %d cells of %d clusters and dim %d", len(data), want, m, q, n, cells, p.header.clusters, p.dim)
	}
	numbers, x := decodeFloat64(data[tailHead:floats]), decodeFloats(data[floats:])
	take := func(n uint64) (part []float32) {
		part, x = x[:n:n], x[n:]
		return part
	}
	t, err := newTail(TailConfig{
		Share: uint16(head[0]), Cells: int(cells), Clusters: int(p.header.clusters), Temperatures: numbers[:m], Levels: numbers[m:],
		Intercepts: take(m * cells), Slopes: take(rows * p.dim), Squares: take(2 * rows), Widths: take(rows * q), Directions: take(n * p.dim),
	})
	p.model.tail = t
	return err
}

func appendFloat64(b []byte, x ...float64) []byte {
	for _, v := range x {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}
	return b
}

func decodeFloat64(b []byte) []float64 {
	x := make([]float64, len(b)/8)
	for i := range x {
		x[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return x
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
