package previewing

import (
	"github.com/learning-to-screen/l2s/internal/codes/encode"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
	"github.com/learning-to-screen/l2s/internal/ground/precision"
)

// MostStages is the largest number of stages of a search. The first scores the centres of all panels, the
// second the labels of some panels, the others single labels: each adds some codes.
const (
	MostStages  = 5
	PanelStages = 2
)

// PanelCodes is the number of codes of a centre, and of the first stage of labels. Each other stage has those
// of a line.
const PanelCodes = 80

// stageEnds are the first code of each stage, and the end of the last.
var stageEnds = [MostStages + 1]int{0, PanelCodes, PanelStages * PanelCodes, PanelStages*PanelCodes + kernels.LineCodes, PanelStages*PanelCodes + 2*kernels.LineCodes, MostCodes}

// MostCodes is the largest number of codes of a centre and a label.
const MostCodes = PanelStages*PanelCodes + (MostStages-PanelStages)*kernels.LineCodes

// Parts are the content of a model besides the codes of its labels, as its file has them.
type Parts struct {
	Labels, Dim int
	Biased      int // 1 if the layer's biases are a further element of each row, and 1 of each context
	Fingerprint [32]byte
	Body        [32]byte // the fingerprint of the source of the contexts, zeros if it is not known

	Coordinates int // R
	Codes       int // of a centre, PanelCodes, and of a label, of 2 bits
	Probes      int // rows of Turn after the coordinates
	Outliers    int // labels that are always scored in full: their codes tell little of them

	Turn          []float32 // (R + probes) x width: for the coordinates of a context, and for its part outside them
	Mean          []float32 // width: of the rows
	Of            []uint32  // codes: the coordinate of each; a further code of one refines the earlier ones
	Steps         []float32 // codes
	Left          []float32 // stages x R: the mean squares of what labels have beyond the codes up to a stage
	ResidualScale []float32 // stages x panels: the largest such part of a label of a panel, over the mean one
	Shares        []float32 // stages x panels: the largest share that codes up to a stage miss of the rise of a label
	Levels        []float32 // stages x panels: the logit, less the mean row's, that the rise begins at
	Near          []byte    // stages but the first x rows of panels: how far a label may be from its score, in 255ths of the panel
	Centres       []byte    // the packed codes of the centre of each panel
	IDs           []uint32  // labels, panel after panel, and the outliers after them

	Factors [MostStages - 1]float64 // of the reach, after each stage but the last
	Margins [MostStages]float64     // beyond the rise of labels in their own states, in spreads
	Rising  float64                 // the spread after the first stage from which on rises count
	Usual   float64                 // the one from which on the reach does not grow; 0 if unknown
	Tail    float64                 // factor of the squared deviations outside, in log-sums
	Far     [MostStages]float64     // spreads that one in 100 held-out contexts exceeds; 0 if unknown
	MinNorm float64                 // of a layer with biases: ||h|| that one in 100 of these does not reach
	K       int                     // of the second precision
	HeldOut int
	Own     int // own states that Rung.Own was measured on
	Normal  int // the rung of requests without a budget
	Rungs   []Rung
}

// Rung is a step of a model, from the fastest on, with its figures on held-out contexts and own states:
// FORMAT.md of package preview has each field.
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
func (p *Parts) RowBytes() int { return p.Codes/4 - CentreBytes }

// CentreBytes is the size of the packed codes of a centre.
const CentreBytes = PanelCodes / 4

// Panels is the number of panels of labels.
func (p *Parts) Panels() int { return kernels.PanelsOf(p.Labels - p.Outliers) }

// Stages returns the number of stages of a search: as many as lines take, and two of these at least, which may
// have no codes.
func (p *Parts) Stages() int {
	n := PanelStages + 2
	for n < MostStages && p.Codes > stageEnds[n] {
		n++
	}
	return n
}

// Stage returns the codes of a stage.
func (p *Parts) Stage(j int) (from, to int) {
	return min(stageEnds[j], p.Codes), min(stageEnds[j+1], p.Codes)
}

// stageBytes returns the part of a packed row that a stage has, which is not the first.
func (p *Parts) stageBytes(j int) (from, to int) {
	from, to = p.Stage(j)
	return from/4 - CentreBytes, to/4 - CentreBytes
}

// RungOf returns the rung of a budget, which is not negative: the last one whose Kept is not above
// it, or the first. A request that one model takes is not refused by another one, which may take
// its place.
func (p *Parts) RungOf(budget float64) *Rung {
	if budget == 0 {
		return &p.Rungs[p.Normal]
	}
	return &p.Rungs[precision.StepOf(len(p.Rungs), func(i int) float64 { return p.Rungs[i].Kept }, budget)]
}

// MaxKeptShare is the share of labels scored in full above which the exact search is as fast.
var MaxKeptShare = 1.0 / 8 // tests change it

// Crowd is the largest number of labels that a search for the k best scores in full.
func (p *Parts) Crowd(k int) int {
	return max(int(MaxKeptShare*float64(p.Labels)), 4*max(k, Many))
}

// Model is the l2s.Index of a preview. Its codes are in a table for each stage: of centres in panels of
// these, of labels in panels, or in lines of the rows of panels.
type Model struct {
	parts  *Parts
	turn   *Directions
	tables [MostStages][]byte
	all    []uint32 // the panels
	square float64  // the sum of the squared lengths of the directions of codes, in steps
}

// New returns the model of some parts, which are kept, and the packed codes of all labels of
// panels, in the order of Parts.IDs.
func New(p *Parts, codes []byte) *Model {
	m := &Model{parts: p, turn: NewDirections(p.Turn, p.Width())}
	for c, step := range p.Steps {
		m.square += float64(m.turn.square[p.Of[c]] * float64(float64(step)*float64(step)))
	}
	panels, size := p.Panels(), p.RowBytes()
	m.all = make([]uint32, panels)
	for i := range m.all {
		m.all[i] = uint32(i)
	}
	centres := kernels.PanelsOf(panels) * kernels.PanelRows * CentreBytes
	table, release := mem.Alloc(centres + panels*kernels.PanelRows*size)
	mem.Own(m, nil, release)
	m.tables[0], table = table[:centres:centres], table[centres:]
	for i := range panels {
		encode.PutPacked(m.tables[0], i, p.Centres[i*CentreBytes:][:CentreBytes])
	}
	for j := 1; j < p.Stages(); j++ {
		from, to := p.stageBytes(j)
		n := panels * kernels.PanelRows * (to - from)
		m.tables[j], table = table[:n:n], table[n:]
	}
	for row := range p.Labels - p.Outliers {
		for j := 1; j < p.Stages(); j++ {
			if from, to := p.stageBytes(j); j < PanelStages {
				encode.PutPacked(m.tables[j], row, codes[row*size:][from:to])
			} else {
				copy(m.tables[j][row*(to-from):], codes[row*size:][from:to])
			}
		}
	}
	return m
}

// Parts returns the parts of the model. They must not be changed once it is in use.
func (m *Model) Parts() *Parts { return m.parts }

// packed returns the codes that New takes.
func (m *Model) packed() []byte {
	p := m.parts
	size := p.RowBytes()
	codes := make([]byte, (p.Labels-p.Outliers)*size)
	for row := range p.Labels - p.Outliers {
		for j := 1; j < p.Stages(); j++ {
			if from, to := p.stageBytes(j); j < PanelStages {
				encode.Packed(codes[row*size:][from:to], m.tables[j], row)
			} else {
				copy(codes[row*size:][from:to], m.tables[j][row*(to-from):])
			}
		}
	}
	return codes
}
