package screen

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/softmax"
)

// Contexts far from the vector of their cluster have labels that are hard to foresee, and
// contexts near it do not: the same budget finds more if the far ones have larger sets.

// MaxShells is the largest number of cosines of Config.Shells.
const MaxShells = 16

func checkShells(cosines []float64) error {
	if len(cosines) > MaxShells {
		return fmt.Errorf("found %d cosines, expected at most %d", len(cosines), MaxShells)
	}
	for i, x := range cosines {
		if !(x > -1 && x < 1) || i > 0 && x >= cosines[i-1] {
			return fmt.Errorf("found cosine %v at position %d, expected descending numbers above -1 and below 1", x, i)
		}
	}
	return nil
}

// oneForEach says how many sets there are.
func oneForEach(clusters int, shells []float64) string {
	text := fmt.Sprintf("one for each of %d clusters", clusters)
	if len(shells) > 0 {
		text += fmt.Sprintf(" in each of %d shells", 1+len(shells))
	}
	return text
}

// cells is the number of cells, which is the number of clusters without shells.
func (m *Model) cells() int { return m.Clusters() * (1 + len(m.shells)) }

// Shells returns the cosines that cut clusters into shells, see Config, nil for none.
// They must not be changed.
func (m *Model) Shells() []float64 { return m.shells }

// Shell returns the shell of the context h, whose best cluster with its product v_t.h is
// given as [Searcher.Nearest] gives it. It is 0 if there are no shells.
func (m *Model) Shell(h []float32, best softmax.Prediction) int {
	if len(m.shells) == 0 {
		return 0
	}
	cosine, n := m.router.Cosine(h, best), 0
	for n < len(m.shells) && cosine < m.shells[n] {
		n++
	}
	return n
}

func writeShells(m *Model) ([]byte, bool) {
	if len(m.shells) == 0 {
		return nil, false
	}
	data := encodeIDs([]uint32{uint32(len(m.shells)), 0})
	for _, x := range m.shells {
		data = binary.LittleEndian.AppendUint64(data, math.Float64bits(x))
	}
	r, cells := m.Clusters(), m.cells()
	sizes := make([]uint32, 0, cells-r)
	for t := r; t < cells; t++ {
		sizes = append(sizes, uint32(len(m.set(t))))
	}
	return slices.Concat(data, encodeIDs(sizes), encodeIDs(m.ids[m.offsets[r]:m.offsets[cells]])), true
}

func (p *parts) readShells(data []byte) error {
	if len(data) < 8 {
		return fmt.Errorf("length: found %d bytes, expected at least 8", len(data))
	}
	n, zero := uint64(binary.LittleEndian.Uint32(data)), binary.LittleEndian.Uint32(data[4:])
	if n < 1 || n > MaxShells || zero != 0 {
		return fmt.Errorf("found %d cosines and %d behind their number, expected 1 to %d and 0", n, zero, MaxShells)
	}
	// Clusters are below 2^32, and so are their sets: no overflow.
	r := int(p.header.clusters)
	sets := n * p.header.clusters
	head := 8 + 8*n + 4*sets
	if uint64(len(data)) < head {
		return fmt.Errorf("length: found %d bytes, expected at least %d for %d cosines and %d sets", len(data), head, n, sets)
	}
	m := p.model
	m.shells = make([]float64, n)
	for i := range m.shells {
		m.shells[i] = math.Float64frombits(binary.LittleEndian.Uint64(data[8+8*i:]))
	}
	if err := checkShells(m.shells); err != nil {
		return err
	}
	sizes, total := make([]int, sets), uint64(0)
	for i, size := range decodeIDs(data[8+8*n : head]) {
		if uint64(size) > p.labels {
			return fmt.Errorf("set %d: found %d ids, expected at most the %d labels", i, size, p.labels)
		}
		sizes[i] = int(size)
		total += uint64(size)
	}
	if want := head + 4*total; uint64(len(data)) != want {
		return fmt.Errorf("length: found %d bytes, expected %d for %d cosines and %d sets of %d ids in all", len(data), want, n, sets, total)
	}
	m.addSizes(sizes)
	m.ids = append(m.ids, decodeIDs(data[head:])...)
	for i := range sizes {
		if err := checkIDs(m.set(r+i), m.labels); err != nil {
			return fmt.Errorf("set %d: %w", i, err)
		}
	}
	return nil
}
