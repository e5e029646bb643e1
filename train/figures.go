package train

import "fmt"

// figures are P@1, P@k and L-bar of candidate sets on some contexts. The true
// labels of a context that are in its set are exactly those that the screen
// returns, so that both precisions are shares of labels.
type figures struct {
	precision1, precisionK, meanCandidates float64
	hits                                   int // labels in their sets
}

// newFigures counts the labels of the contexts that are in their sets, which
// holds tells.
func newFigures(d *data, contexts []uint32, meanCandidates float64, holds func(i, label uint32) bool) figures {
	var first, all int
	for _, i := range contexts {
		for j, s := range d.labelsOf(i) {
			if holds(i, s) {
				all++
				if j == 0 {
					first++
				}
			}
		}
	}
	n := float64(len(contexts))
	return figures{float64(first) / n, float64(all) / (n * float64(d.k)), meanCandidates, all}
}

// measure gives the figures of the sets on contexts in the given clusters.
func (m *membership) measure(d *data, contexts, cluster []uint32) figures {
	size := 0
	for _, i := range contexts {
		size += m.sizes[cluster[i]]
	}
	return newFigures(d, contexts, float64(size)/float64(len(contexts)), func(i, label uint32) bool {
		return m.has(int(cluster[i]), label)
	})
}

func (f figures) text(k int) string {
	return fmt.Sprintf("P@1 %.4f P@%d %.4f candidates %.1f", f.precision1, k, f.precisionK, f.meanCandidates)
}
