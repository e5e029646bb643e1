package corpus

import "slices"

// Partition is the contexts grouped by cell.
type Partition struct {
	start []int // order[start[t]:start[t+1]] are the contexts of cell t, ascending
	order []uint32
}

// NewPartition groups contexts by the cell of each, cell[i] for context i, by a
// counting sort.
func NewPartition(cell []uint32, cells int) *Partition {
	p := &Partition{start: make([]int, cells+1), order: make([]uint32, len(cell))}
	for _, t := range cell {
		p.start[t+1]++
	}
	for t := range cells {
		p.start[t+1] += p.start[t]
	}
	place := slices.Clone(p.start)
	for i, t := range cell {
		p.order[place[t]] = uint32(i)
		place[t]++
	}
	return p
}

// Cells is the number of cells.
func (p *Partition) Cells() int { return len(p.start) - 1 }

// Size is the number of contexts of a cell.
func (p *Partition) Size(t int) int { return p.start[t+1] - p.start[t] }

// Members are the contexts of a cell. They must not be changed.
func (p *Partition) Members(t int) []uint32 { return p.order[p.start[t]:p.start[t+1]] }

// Sizes are the numbers of members.
func (p *Partition) Sizes() []uint32 {
	n := make([]uint32, p.Cells())
	for t := range n {
		n[t] = uint32(p.Size(t))
	}
	return n
}
