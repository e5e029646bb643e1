package preview

import "github.com/learning-to-screen/l2s/internal/precision"

// Model is a preview of a layer: coordinates, blocks of labels, and rungs. It is immutable and safe
// for use by many goroutines.
//
// [Load], [Read] and [Make] make one: a zero value has no use, and its methods may panic.
type Model struct {
	labels, dim int
	fingerprint [32]byte
	biased      bool // the layer's biases are a further element of each row, and 1 of each context

	coordinates int // R
	fine        int // the first coordinates, a multiple of 8, have codes of 4 bits; the others, a multiple of 16, of 2
	probes      int // rows of turn after the coordinates
	centred     int // coordinates that blocks have centres in, a multiple of 4

	turn    []float32       // (R + probes) x width: for the coordinates of a context, and for its part outside them
	through []float32       // R x width: the coordinates of a label, of a model that was just made
	outside []float32       // probes x width: for the part of a label outside them, in such a model
	rest    []float32       // the same, for contexts of any direction
	mean    []float32       // width: of the rows
	huge    map[uint32]bool // labels that count as the mean row, in such a model
	steps   []float32       // R: of the codes of labels
	noise   []float32       // R: the mean squares that these lose
	axes    []float32       // centred: the steps of the centres
	centres []int8          // blocks x centred
	radii   []float32       // blocks: root mean square distance of a label from the centre
	gauges  []float32       // blocks: factors of the steps
	beyond  []float32       // blocks: factors of the part of their labels' logits outside the coordinates
	sizes   []uint32        // blocks
	ids     []uint32        // labels, block after block, and the outliers after them

	outliers int // labels that are always scored in full: what they have outside the coordinates is largest

	tail    float64 // factor of the squared deviations outside, in log-sums
	far     float64 // deviation outside the coordinates that one in 100 held-out contexts exceeds; 0 if unknown
	short   float64 // of a layer with biases: ||h|| that one in 100 of these does not reach
	k       int     // of the second precision
	heldOut int
	normal  int // the rung of requests without a budget
	rungs   []Rung

	*tables
}

// Rung is a level of precision, with its figures on held-out contexts.
type Rung struct {
	// Deviations is the largest distance below the mark at which the preview of a label is still
	// scored in full. The mark is the preview some places after the k-th best. The unit is the
	// deviation of the context's part outside the coordinates, for the labels of the block.
	Deviations float64 `json:"deviations"`
	// Reach is the largest distance of a block below the mark at which it is still looked at, in
	// root mean square distances of its labels from its centre. Both distances are larger by a fifth
	// for a context whose part outside the coordinates is larger than in 99 of 100 held-out ones.
	Reach float64 `json:"reach"`
	// Looked is the mean share of labels that was looked at, and Kept the mean number of labels
	// scored in full, which is the budget of a [softmax.Request]. It ascends over the rungs.
	Looked float64 `json:"looked"`
	Kept   float64 `json:"kept"`
	// Exact is the share of contexts that were answered by the exact layer.
	Exact float64 `json:"exact"`
	// Precision1 and PrecisionK are P@1 and P@k.
	Precision1 precision.Estimate `json:"precision_1"`
	PrecisionK precision.Estimate `json:"precision_k"`
	// LogSumOff is the largest error of 95 in 100 log-sums at temperature 1.
	LogSumOff float64 `json:"log_sum_off"`
}

// Labels returns the number of labels of the layer.
func (m *Model) Labels() int { return m.labels }

// Dim returns the dimension of a context.
func (m *Model) Dim() int { return m.dim }

// Fingerprint returns softmax.Layer.Fingerprint of the layer that the model was made for.
func (m *Model) Fingerprint() [32]byte { return m.fingerprint }

// Rungs returns the levels of precision, by ascending Kept, and which of them requests have that
// name no budget. They must not be changed.
func (m *Model) Rungs() (rungs []Rung, normal int) { return m.rungs, m.normal }

// RungsOf returns the basis of the figures of the rungs: the k of PrecisionK, and the number of
// held-out contexts.
func (m *Model) RungsOf() (k, heldOut int) { return m.k, m.heldOut }

func (m *Model) width() int {
	if m.biased {
		return m.dim + 1
	}
	return m.dim
}

func (m *Model) blocks() int { return len(m.sizes) }

// rungOf returns the place of the rung of a budget, which is not negative: the last one whose Kept
// is not above it, or the first. A request that one model takes is not refused by another one,
// which may take its place.
func (m *Model) rungOf(budget float64) int {
	if budget == 0 {
		return m.normal
	}
	at := 0
	for i, r := range m.rungs {
		if r.Kept <= budget {
			at = i
		}
	}
	return at
}

// A context whose part outside the coordinates is larger than in 99 of 100 held-out ones is of a kind
// that nothing was measured for. So is a shorter one than 99 of 100, if the layer has biases: these
// decide then. A search about it looks farther than its rung, by a factor, and at least this far.
const (
	farTimes      = 1.2
	farReach      = 8
	farDeviations = 5
)

func (s *Searcher) isFar() bool {
	m := s.model
	return m.far > 0 && s.sigma > m.far || s.norm < m.short
}
