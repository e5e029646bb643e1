package methods

import "github.com/learning-to-screen/l2s/internal/search/exact"

// exactSearch finds the best of some labels of a layer as every method here does: by
// exact.Searcher, which scans int8 codes and scores the remaining labels by the reference
// arithmetic. Contexts are checked where they are read.
type exactSearch struct {
	*exact.Searcher
	labels int
}

func newExactSearch(l *exact.Layer) exactSearch {
	return exactSearch{exact.NewSearcher(l), l.Labels()}
}

// topK writes the best of the labels to dst and returns their number.
func (s exactSearch) topK(dst []exact.Prediction, h []float32, among exact.Labels) int {
	n, _ := s.ask(dst, h, exact.Request{Among: among})
	return n
}

// topKLogSum is topK, and returns the log of the sum of e^x over the labels.
func (s exactSearch) topKLogSum(dst []exact.Prediction, h []float32, among exact.Labels) (n int, sum float64) {
	return s.ask(dst, h, exact.Request{Among: among, LogSum: true})
}

func (s exactSearch) ask(dst []exact.Prediction, h []float32, req exact.Request) (int, float64) {
	k := min(len(dst), s.labels)
	if k == 0 && !req.LogSum {
		return 0, 0
	}
	a, err := s.Search(dst[:k], h, req)
	if err != nil {
		panic(err)
	}
	return a.Count, a.LogSum
}
