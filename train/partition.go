package train

// partition is a set of contexts grouped by cluster: order holds the contexts
// of cluster t at order[start[t]:start[t+1]], ascending where the contexts
// were given ascending.
type partition struct {
	start []int
	order []uint32
}

// newPartition groups contexts by the cluster of each, cluster[i] for context
// i, by a counting sort.
func newPartition(contexts, cluster []uint32, clusters int) *partition {
	p := &partition{make([]int, clusters+1), make([]uint32, len(contexts))}
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
