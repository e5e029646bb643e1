package methods

import "github.com/learning-to-screen/l2s/softmax"

// exactSearch finds the best of some labels of a layer as every method here does: by
// softmax.Searcher, which scans int8 codes and scores the remaining labels by the reference
// arithmetic. Contexts are checked where they are read.
type exactSearch struct {
	*softmax.Searcher
	labels int
}

func newExactSearch(l *softmax.Layer) exactSearch {
	return exactSearch{softmax.NewSearcher(l), l.Labels()}
}

// topK writes the best of the labels to dst and returns their number.
func (s exactSearch) topK(dst []softmax.Prediction, h []float32, among softmax.Labels) int {
	n, _ := s.ask(dst, h, softmax.Request{Among: among})
	return n
}

// topKLogSum is topK, and returns the log of the sum of e^x over the labels.
func (s exactSearch) topKLogSum(dst []softmax.Prediction, h []float32, among softmax.Labels) (n int, sum float64) {
	return s.ask(dst, h, softmax.Request{Among: among, LogSum: true})
}

func (s exactSearch) ask(dst []softmax.Prediction, h []float32, req softmax.Request) (int, float64) {
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
