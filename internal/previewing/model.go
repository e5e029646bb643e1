package previewing

import (
	"github.com/learning-to-screen/l2s/internal/bigmem"
	"github.com/learning-to-screen/l2s/internal/encode"
	"github.com/learning-to-screen/l2s/internal/kernels"
	"github.com/learning-to-screen/l2s/internal/precision"
)

// Parts are the content of a model besides the codes of its labels, as its file has them.
type Parts struct {
	Labels, Dim int
	Biased      int // 1 if the layer's biases are a further element of each row, and 1 of each context
	Fingerprint [32]byte
	Body        [32]byte // the fingerprint of the source of the contexts, zeros if it is not known

	Coordinates int // R
	Fine        int // the first coordinates, a multiple of 8, have codes of 4 bits; the others, a multiple of 16, of 2
	Probes      int // rows of Turn after the coordinates
	Centred     int // coordinates that blocks have centres in, a multiple of 4
	Blocks      int
	Outliers    int // labels that are always scored in full: what they have outside the coordinates is largest

	Turn    []float32 // (R + probes) x width: for the coordinates of a context, and for its part outside them
	Mean    []float32 // width: of the rows
	Steps   []float32 // R: of the codes of labels
	Noise   []float32 // R: the mean squares that these lose
	Axes    []float32 // centred: the steps of the centres
	Centres []int8    // blocks x centred
	Radii   []float32 // blocks: root mean square distance of a label from the centre
	Gauges  []float32 // blocks: factors of the steps
	Beyond  []float32 // blocks: factors of the part of their labels' logits outside the coordinates
	Sizes   []uint32  // blocks
	IDs     []uint32  // labels, block after block, and the outliers after them

	Tail    float64 // factor of the squared deviations outside, in log-sums
	Far     float64 // deviation outside the coordinates that one in 100 held-out contexts exceeds; 0 if unknown
	Short   float64 // of a layer with biases: ||h|| that one in 100 of these does not reach
	K       int     // of the second precision
	HeldOut int
	Own     int // own states that Rung.Own was measured on
	Normal  int // the rung of requests without a budget
	Rungs   []Rung
}

// Rung is preview.Rung.
type Rung struct {
	Deviations float64            `json:"deviations"`
	Reach      float64            `json:"reach"`
	Looked     float64            `json:"looked"`
	Kept       float64            `json:"kept"`
	Exact      float64            `json:"exact"`
	Precision1 precision.Estimate `json:"precision_1"`
	PrecisionK precision.Estimate `json:"precision_k"`
	Own        precision.Estimate `json:"own"`
	LogSumOff  float64            `json:"log_sum_off"`
}

// Width is the number of elements of a row with its bias, if the layer has biases.
func (p *Parts) Width() int { return p.Dim + p.Biased }

// RowBytes is the size of the packed codes of a label.
func (p *Parts) RowBytes() int { return kernels.RowBytes42(p.Coordinates, p.Fine) }

// rungOf returns the rung of a budget, which is not negative: the last one whose Kept is not above
// it, or the first. A request that one model takes is not refused by another one, which may take
// its place.
func (p *Parts) rungOf(budget float64) *Rung {
	if budget == 0 {
		return &p.Rungs[p.Normal]
	}
	at := 0
	for i, r := range p.Rungs {
		if r.Kept <= budget {
			at = i
		}
	}
	return &p.Rungs[at]
}

// MaxKeptShare is the share of labels scored in full above which the exact search is as fast.
var MaxKeptShare = 1.0 / 8 // tests change it

// Crowd is the largest number of labels that a search for the k best scores in full.
func (p *Parts) Crowd(k int) int { return max(int(MaxKeptShare*float64(p.Labels)), 4*k) }

// Model is the l2s.Index of a preview. Its codes are in panels, each block in its own ones.
type Model struct {
	parts   *Parts
	turn    *Directions
	codes   []byte   // of all labels
	first   []uint32 // the first panel of each block, and the panel after the last block
	owner   []uint32 // the block of each panel
	slots   []uint32 // the label of each row of the panels, noLabel for none
	centres []byte   // in panels
	square  float64  // the sum of the squared lengths of the directions of coordinates, in steps
}

const noLabel = 1<<32 - 1

// New returns the model of some parts, which are kept, and the packed codes of all labels of
// blocks, in the order of Parts.IDs.
func New(p *Parts, codes []byte) *Model {
	m := &Model{parts: p, turn: NewDirections(p.Turn, p.Width()), first: make([]uint32, p.Blocks+1)}
	for r, step := range p.Steps {
		m.square += float64(m.turn.square[r] * float64(float64(step)*float64(step)))
	}
	for b, size := range p.Sizes {
		m.first[b+1] = m.first[b] + uint32(kernels.PanelsOf(int(size)))
	}
	panels, size := int(m.first[p.Blocks]), p.RowBytes()
	codeBytes, centreBytes := panels*kernels.PanelRows*size, kernels.PanelsOf(p.Blocks)*kernels.PanelRows*p.Centred
	table, release := bigmem.Alloc(codeBytes + centreBytes)
	bigmem.Own(m, nil, release)
	m.codes, m.centres = table[:codeBytes:codeBytes], table[codeBytes:]
	m.owner, m.slots = make([]uint32, panels), make([]uint32, panels*kernels.PanelRows)
	ids := p.IDs
	for b, n := range p.Sizes {
		for panel := m.first[b]; panel < m.first[b+1]; panel++ {
			m.owner[panel] = uint32(b)
		}
		for row := m.first[b] * kernels.PanelRows; row < m.first[b+1]*kernels.PanelRows; row++ {
			m.slots[row] = noLabel
			if n > 0 {
				m.slots[row] = ids[0]
				encode.PutPacked(m.codes, int(row), codes[:size])
				ids, codes, n = ids[1:], codes[size:], n-1
			}
		}
		for j, c := range p.Centres[b*p.Centred : (b+1)*p.Centred] {
			encode.PutCode7(m.centres, p.Centred, b, j, c)
		}
	}
	return m
}

// Parts returns the parts of the model. They must not be changed once it is in use.
func (m *Model) Parts() *Parts { return m.parts }

// packed returns the codes that New takes.
func (m *Model) packed() []byte {
	size := m.parts.RowBytes()
	codes := make([]byte, 0, (m.parts.Labels-m.parts.Outliers)*size)
	for row, id := range m.slots {
		if id != noLabel {
			codes = codes[:len(codes)+size]
			encode.Packed(codes[len(codes)-size:], m.codes, row)
		}
	}
	return codes
}
