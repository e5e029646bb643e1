package train

// partition is a set of contexts grouped by cluster: order holds the contexts
// of cluster t at order[start[t]:start[t+1]], ascending if the contexts
// were given ascending.
type partition struct {
	start []int
	order []uint32

	// If contexts count in several clusters (see neighbours.partition),
	// unit is what each counts for in all, and parts what order[j] counts for
	// in its cluster. Else unit is 1 and parts is nil.
	unit  uint32
	parts []uint8
}

// newPartition groups contexts by the cluster of each, cluster[i] for context
// i, by a counting sort.
func newPartition(contexts, cluster []uint32, clusters int) *partition {
	p := &partition{start: make([]int, clusters+1), order: make([]uint32, len(contexts)), unit: 1}
	for _, i := range contexts {
		p.start[cluster[i]+1]++
	}
	for t := range clusters {
		p.start[t+1] += p.start[t]
	}
	place := append([]int(nil), p.start[:clusters]...)
	for _, i := range contexts {
		t := cluster[i]
		p.order[place[t]] = i
		place[t]++
	}
	return p
}

func (p *partition) clusters() int          { return len(p.start) - 1 }
func (p *partition) size(t int) int         { return p.start[t+1] - p.start[t] }
func (p *partition) members(t int) []uint32 { return p.order[p.start[t]:p.start[t+1]] }

// partsOf is what the j-th member of cluster t counts for there.
func (p *partition) partsOf(t, j int) uint32 {
	if p.parts == nil {
		return 1
	}
	return uint32(p.parts[p.start[t]+j])
}

// sizes are the numbers of members.
func (p *partition) sizes() []uint32 {
	n := make([]uint32, p.clusters())
	for t := range n {
		n[t] = uint32(p.size(t))
	}
	return n
}
