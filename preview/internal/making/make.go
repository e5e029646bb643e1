// Package making makes the models of package previewing: coordinates from contexts, codes of
// labels in panels of alike ones, and rungs from the needs of held-out contexts. Package preview has
// the comments for what is exported.
package making

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
	"github.com/learning-to-screen/l2s/internal/search/exact"
	"github.com/learning-to-screen/l2s/internal/search/previewing"
)

// Options are preview.Options.
type Options struct {
	Coordinates, K         int
	HeldOut                []float32
	Precision1, PrecisionK float64
	LeastOwn               float64
	Threads                int
	Body                   [32]byte
	Progress               func(stage string, done float64)
}

// LeastLabels is preview.LeastLabels.
const LeastLabels = 16384

const (
	mostStates  = 8192 // for the moments
	mostHeldOut = 2048
	leastStates = 64
	heldRuns    = 16 // of states
	markStates  = 64
)

// maker makes a model of a layer, step by step.
type maker struct {
	*previewing.Parts
	layer *exact.Layer
	opt   *Options

	through []float32       // R x width: the coordinates of a label
	outside []float32       // probes x width: for the part of a label outside them
	rest    []float32       // the same, for contexts of any direction
	huge    map[uint32]bool // labels that count as the mean row
	codes   []byte          // packed, of the labels of panels
}

// Make is preview.Make.
func Make(ctx context.Context, l *exact.Layer, states []float32, opt Options) (*previewing.Model, error) {
	m, states, held, err := begin(l, states, &opt)
	if err != nil {
		return nil, fmt.Errorf("preview: %w", err)
	}
	model, err := m.make(parallel.Limit(ctx, opt.Threads), states, held)
	if err != nil {
		return nil, fmt.Errorf("preview: %w", err)
	}
	if err := m.Check(); err != nil {
		return nil, fmt.Errorf("preview: found weights, biases or states too large for a preview, expected smaller numbers: %w", err)
	}
	return model, nil
}

// begin checks what a model is to be made of, and returns the samples of states to make it from and
// to hold out.
func begin(l *exact.Layer, states []float32, opt *Options) (m *maker, from, held []float32, err error) {
	if l == nil {
		return nil, nil, nil, errors.New("layer: found nil, expected a layer")
	}
	d := l.Dim()
	if l.Labels() == 0 || d == 0 {
		return nil, nil, nil, errors.New("layer: found an empty one, expected one of l2s.Open or l2s.New")
	}
	if opt.Progress == nil {
		opt.Progress = func(string, float64) {}
	}
	if opt.Coordinates < 0 || opt.K < 0 || opt.K > l.Labels() || opt.Threads < 0 {
		return nil, nil, nil, fmt.Errorf("options: found %d coordinates, k %d and %d threads, expected 0 or more, and k at most the %d labels", opt.Coordinates, opt.K, opt.Threads, l.Labels())
	}
	for _, p := range []float64{opt.Precision1, opt.PrecisionK, opt.LeastOwn} {
		if !(p >= 0 && p <= 1) {
			return nil, nil, nil, fmt.Errorf("options: found precision %v, expected 0 to 1", p)
		}
	}
	for name, x := range map[string][]float32{"states": states, "held-out states": opt.HeldOut} {
		if len(x)%d != 0 {
			return nil, nil, nil, fmt.Errorf("%s: found %d elements, expected rows of %d", name, len(x), d)
		}
	}
	from, held = split(states, opt.HeldOut, d)
	if n := len(from) / d; n < leastStates {
		return nil, nil, nil, fmt.Errorf("states: found %d to make the model from, besides %d held out, expected at least %d", n, len(held)/d, leastStates)
	}
	for _, x := range [][]float32{from, held} {
		if i, j, found := kernels.FirstNotFinite(kernels.Float32Rows(x, d)); found {
			return nil, nil, nil, fmt.Errorf("states: found %v at element %d of one, expected finite numbers", x[i*d+j], j)
		}
	}
	m = &maker{Parts: &previewing.Parts{Labels: l.Labels(), Dim: d, K: min(cmp.Or(opt.K, 5), l.Labels())}, layer: l, opt: opt}
	for _, b := range l.Bias() {
		if b != 0 {
			m.Biased = 1
		}
	}
	m.Coordinates = min(cmp.Or(opt.Coordinates, usualCoordinates(m.Width())), m.Width())
	m.Codes = codesOf(m.Coordinates)
	return m, from, held, nil
}

// usualCoordinates returns the number of coordinates of layers of a width: the wider, the more they leave of labels.
func usualCoordinates(width int) int {
	if width > 1024 {
		return 896
	}
	return 640
}

// codesOf returns the number of codes of a centre and of a label with some coordinates: of a label at most
// finest for each, and as many lines as have one for each, about, or two.
func codesOf(coordinates int) int {
	codes := (finest*coordinates + 15) &^ 15
	if codes > previewing.PanelCodes {
		lines := (codes - previewing.PanelCodes + kernels.LineCodes - 1) / kernels.LineCodes
		most := (coordinates - previewing.PanelCodes + kernels.LineCodes/2) / kernels.LineCodes
		codes = previewing.PanelCodes + min(lines, max(most, 2), previewing.MostStages-previewing.PanelStages)*kernels.LineCodes
	}
	return previewing.PanelCodes + codes
}

// split returns samples of states to make the model from and to hold out.
func split(states, held []float32, d int) (rest, out []float32) {
	if len(held) == 0 {
		n := len(states) / d
		for run := range heldRuns {
			part := states[run*n/heldRuns*d : (run+1)*n/heldRuns*d]
			if run%4 == 3 {
				out = append(out, part...)
			} else {
				rest = append(rest, part...)
			}
		}
		states, held = rest, out
	}
	return sample(states, d, mostStates), sample(held, d, mostHeldOut)
}

// sample returns at most that many of the rows of x, from all parts of it.
func sample(x []float32, d, most int) []float32 {
	n := len(x) / d
	if n <= most {
		return x
	}
	some := make([]float32, 0, most*d)
	for i := range most {
		at := i * n / most
		some = append(some, x[at*d:(at+1)*d]...)
	}
	return some
}

func (m *maker) make(ctx context.Context, states, held []float32) (*previewing.Model, error) {
	m.opt.Progress("coordinates", 0)
	if err := m.findHuge(ctx); err != nil {
		return nil, err
	}
	if err := m.turns(ctx, m.extended(states)); err != nil {
		return nil, err
	}
	m.opt.Progress("codes", 0)
	outliers, err := m.arrange(ctx)
	if err != nil {
		return nil, err
	}
	m.opt.Progress("codes", 0.2)
	if err := m.encodeAll(ctx, states); err != nil {
		return nil, err
	}
	m.IDs = append(m.IDs, outliers...)
	m.opt.Progress("codes", 0.9)
	model := previewing.New(m.Parts, m.codes)
	m.opt.Progress("fingerprint", 0)
	m.Fingerprint, m.Body = previewing.FingerprintOf(m.layer), m.opt.Body
	m.opt.Progress("precision", 0)
	return model, m.measure(ctx, model, states, held)
}

// encodeAll makes the codes of panels and their labels, and finds how far these may be from their scores.
func (m *maker) encodeAll(ctx context.Context, states []float32) error {
	centres, err := m.centres(ctx)
	if err != nil {
		return err
	}
	if err := m.allot(ctx, centres); err != nil {
		return err
	}
	mark := m.usualMark(states)
	kinds, err := m.kinds(ctx, states)
	if err != nil {
		return err
	}
	labels, err := m.encode(ctx, kinds, mark, centres)
	if err != nil {
		return err
	}
	for j := range m.Stages() {
		m.bound(labels, j, mark)
	}
	return nil
}

// extended returns contexts with a 1 after each if the layer has biases.
func (m *maker) extended(states []float32) []float32 {
	if m.Biased == 0 {
		return states
	}
	x := make([]float32, 0, len(states)/m.Dim*m.Width())
	for at := 0; at < len(states); at += m.Dim {
		x = append(append(x, states[at:at+m.Dim]...), 1)
	}
	return x
}

// usualMark returns the logit, less the mean row's, of the mark in the median of some contexts, by
// some labels.
func (m *maker) usualMark(states []float32) float32 {
	width := m.Width()
	rows := kernels.Float32Rows(m.someRows(), width)
	n := rows.Len()
	contexts := m.extended(sample(states, m.Dim, markStates))
	marks, logits := make([]float64, len(contexts)/width), make([]float64, n)
	rank := min(n-1, (previewing.Many+previewing.Behind)*n/m.Labels)
	for i := range marks {
		rows.RefScan(logits, nil, contexts[i*width:(i+1)*width])
		slices.Sort(logits)
		marks[i] = logits[n-1-rank]
	}
	slices.Sort(marks)
	return float32(min(max(marks[len(marks)/2], -math.MaxFloat32), math.MaxFloat32))
}
