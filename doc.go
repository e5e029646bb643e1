// Package l2s finds the k largest logits of a large softmax layer, such as the head of a language
// model, on a CPU, without computing them all.
//
//	layer, err := l2s.Open("model.gguf", l2s.OpenOptions{}) // or l2s.New(l2s.Float32(w, dim), bias)
//	s, err := l2s.NewSearcher(layer, nil, l2s.Options{})    // nil: the exact search
//	n, err := s.TopK(top, h)                                // the best labels of the context h, best first
//
// A [Layer] has W, one row a label, and the bias b. The logits of a context h are W h + b. An
// [Index] makes the search faster: a preview, which preview.Make makes of the layer and some
// thousand contexts, or a screen, which train.Run learns from 100,000 ("Learning to Screen for Fast
// Softmax Inference on Large Vocabulary Neural Networks", Chen et al., ICLR 2019). [Load] reads
// either from its file. Without an index the search is exact: no label is missed. With one a label
// may be missed, as rarely as [Index.Steps] tells, and every logit is exact nevertheless.
//
// A [Searcher] answers a [Request] about a context. It is for one goroutine; layers and indexes are
// shared. A [Pool] serves all goroutines, changes its layer and its index while they ask, and can
// watch its precision by an [Audit]. Both are an [Asker], as is the Learner of package learn, which
// makes the index while it answers. Package sample draws tokens, package beam translates, package
// screen measures a screen.
//
// # Logits
//
// A logit is defined: the exact products of the elements of the row and of h, summed in float64 in
// a fixed order, plus the bias; [Layer.Scaled] has the scale and the soft cap of some models. Order is by larger logit; of equal ones the lower label is first. So the
// same layer, index and context give the same labels and logits, bit for bit, on every CPU, for
// every type of the elements of W, and with any number of threads.
//
// # Errors
//
// An error names the field, the value found and the value expected. errors.Is knows [ErrContext],
// [ErrRequest], [ErrLayer] and [ErrNoTail]. A searcher must not be used again after another error,
// such as a read of a file that was cut off: its scratch may be in any state. A query allocates
// nothing once the memory of its searcher has grown to the largest query.
package l2s
