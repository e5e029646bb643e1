package screen

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// pairs are the pairs of clusters that have sets of their own, by their cells: without
// shells a cell is a cluster. The set of a pair comes behind the sets of the cells, at
// the number of cells plus its place.
type pairs struct {
	starts  []uint32 // of cells + 1: those of first cell t are at starts[t] to starts[t+1]
	seconds []uint32 // ascending in each
}

// newPairs returns nil if there are none.
func newPairs(list []Pair, clusters, cells int) (*pairs, error) {
	if len(list) == 0 {
		return nil, nil
	}
	if uint64(len(list)) > math.MaxUint32 {
		return nil, fmt.Errorf("found %d, expected at most %d", len(list), uint32(math.MaxUint32))
	}
	p := &pairs{make([]uint32, cells+1), make([]uint32, len(list))}
	for i, x := range list {
		if x.First < 0 || x.Second <= x.First || x.Second >= cells {
			return nil, fmt.Errorf("found clusters %d and %d at position %d, expected two ascending below %d", x.First, x.Second, i, cells)
		}
		if x.First/clusters != x.Second/clusters {
			return nil, fmt.Errorf("found cells %d and %d at position %d, expected two of one shell of %d clusters", x.First, x.Second, i, clusters)
		}
		if i > 0 && (x.First < list[i-1].First || x.First == list[i-1].First && x.Second <= list[i-1].Second) {
			return nil, fmt.Errorf("found clusters %d and %d after %d and %d at position %d, expected ascending, distinct pairs", x.First, x.Second, list[i-1].First, list[i-1].Second, i)
		}
		p.starts[x.First+1]++
		p.seconds[i] = uint32(x.Second)
	}
	for t := range cells {
		p.starts[t+1] += p.starts[t]
	}
	return p, nil
}

// find returns the place of the set of two different cells, in any order, false if
// they have none.
func (p *pairs) find(a, b int) (set int, ok bool) {
	if p == nil {
		return 0, false
	}
	a, b = min(a, b), max(a, b)
	start := int(p.starts[a])
	at, ok := slices.BinarySearch(p.seconds[start:p.starts[a+1]], uint32(b))
	return len(p.starts) - 1 + start + at, ok
}

// Pairs returns the pairs of clusters that have a candidate set of their own, see
// Config. The sets must not be changed.
func (m *Model) Pairs() []Pair {
	if m.pairs == nil {
		return nil
	}
	list := make([]Pair, 0, len(m.pairs.seconds))
	r := m.cells()
	for t := range r {
		for i := m.pairs.starts[t]; i < m.pairs.starts[t+1]; i++ {
			list = append(list, Pair{t, int(m.pairs.seconds[i]), m.set(r + int(i))})
		}
	}
	return list
}

// PairCandidates returns the candidate set of the clusters a and b, which differ, if
// the two have one of their own; of cells a and b if there are shells. It must not be
// changed.
func (m *Model) PairCandidates(a, b int) (set []uint32, ok bool) {
	t, ok := m.pairs.find(a, b)
	if !ok {
		return nil, false
	}
	return m.set(t), true
}

func writePairs(m *Model) ([]byte, bool) {
	if m.pairs == nil {
		return nil, false
	}
	list := m.Pairs()
	data := binary.LittleEndian.AppendUint32(nil, uint32(len(list)))
	for _, p := range list {
		data = append(data, encodeIDs([]uint32{uint32(p.First), uint32(p.Second), uint32(len(p.Set))})...)
	}
	return append(data, encodeIDs(m.ids[m.offsets[m.cells()]:])...), true
}

// readPairs leaves the content for finish: what shells there are, which come behind it in
// the file, says what it is to be.
func (p *parts) readPairs(data []byte) error {
	p.pairs = data
	return nil
}

// decodePairs reads the content of the section.
func (p *parts) decodePairs(data []byte) error {
	if len(data) < 4 {
		return fmt.Errorf("length: found %d bytes, expected at least 4", len(data))
	}
	n := uint64(binary.LittleEndian.Uint32(data))
	if n < 1 || n > uint64(len(data)-4)/12 {
		return fmt.Errorf("found %d pairs in %d bytes, expected at least 1, and 12 bytes for each", n, len(data))
	}
	list, sizes := make([]Pair, n), make([]int, n)
	cells := p.header.clusters * uint64(1+len(p.model.shells))
	total := uint64(0) // of fewer than 2^32 sizes below 2^32
	for i := range list {
		x := decodeIDs(data[4+12*i : 16+12*i])
		if size := uint64(x[2]); size > p.labels {
			return fmt.Errorf("pair %d: found %d ids, expected at most the %d labels", i, size, p.labels)
		}
		// If int has 32 bits a cluster may be too large for it.
		list[i] = Pair{First: int(min(uint64(x[0]), cells)), Second: int(min(uint64(x[1]), cells))}
		sizes[i] = int(x[2])
		total += uint64(x[2])
	}
	if want := 4 + 12*n + 4*total; uint64(len(data)) != want {
		return fmt.Errorf("length: found %d bytes, expected %d for %d pairs of %d ids in all", len(data), want, n, total)
	}
	m := p.model
	var err error
	if m.pairs, err = newPairs(list, int(p.header.clusters), int(cells)); err != nil {
		return err
	}
	m.addSizes(sizes)
	m.ids = append(m.ids, decodeIDs(data[4+12*n:])...)
	for i := range list {
		if err := checkIDs(m.set(int(cells)+i), m.labels); err != nil {
			return fmt.Errorf("set %d: %w", i, err)
		}
	}
	return nil
}
