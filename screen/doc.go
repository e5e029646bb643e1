// Package screen measures screens: the prediction process of "Learning to Screen for Fast Softmax
// Inference on Large Vocabulary Neural Networks", Section 3.
//
// A screen is an l2s.Index that package train makes: r cluster vectors v_t, and a ranked list of
// candidates for each cell. The cluster of a context is z(h) = argmax_t v_t.h (Eq. 2). A cell is a
// cluster, or a part of it: shells separate contexts by their distance from the vector of their
// cluster. A search finds the cell of h, and then the best labels among the candidates of the cell,
// by r + |candidates| inner products instead of L.
//
// Each label of a list has a share: how likely it is among the best. A budget is a threshold of
// shares, so that the candidates of a smaller budget are the first candidates of a larger one, and
// one screen serves all budgets of its ladder (l2s.Index.Steps), with the precision that each has on
// contexts held out from training.
//
// Among the candidates the answer is exact. If the k best labels of the layer are all candidates, it
// equals the answer without an index. A label that is no candidate is missed: [Evaluate] measures
// the number of missed labels, for every budget at once.
//
// FORMAT.md in the folder of this package describes the file of a screen byte by byte.
package screen
