package engine

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/learning-to-screen/l2s/internal/ground/precision"
	"github.com/learning-to-screen/l2s/internal/search/previewing"
	"github.com/learning-to-screen/l2s/internal/search/screening"
)

// Index is l2s.Index: a screen or a preview, and what both tell of themselves.
type Index struct {
	screen  *screening.Model // one of the two is nil
	preview *previewing.Model
	file    interface {
		Save(path string) error
		WriteTo(w io.Writer) (int64, error)
	} // nil for an empty index

	kind        string
	labels, dim int
	k, heldOut  int
	fingerprint [32]byte
	hasTail     bool
	record      json.RawMessage
	steps       []Step
	normal      int
}

// Step is l2s.Step.
type Step struct {
	Budget, MeanScored     float64
	Precision1, PrecisionK precision.Estimate
	Own                    precision.Estimate
}

// OfScreen returns the index that is a screen.
func OfScreen(m *screening.Model) *Index {
	if m == nil || m.Labels() == 0 {
		return &Index{}
	}
	c := m.Config()
	x := &Index{
		screen: m, file: m, kind: "screen", labels: c.Labels, dim: c.Dim, k: c.K, heldOut: c.HeldOut, fingerprint: c.Fingerprint, hasTail: c.Tail != nil, record: c.Record,
	}
	for i, r := range m.Ladder() {
		if r.Budget == m.Budget() {
			x.normal = i
		}
		x.steps = append(x.steps, StepOfRung(r))
	}
	return x
}

// StepOfRung returns the step of a rung of a screen.
func StepOfRung(r screening.Rung) Step {
	return Step{Budget: r.Budget, MeanScored: r.MeanCandidates, Precision1: r.Precision1, PrecisionK: r.PrecisionK}
}

// OfPreview returns the index that is a preview.
func OfPreview(m *previewing.Model) *Index {
	if m == nil || m.Parts() == nil {
		return &Index{}
	}
	p := m.Parts()
	x := &Index{
		preview: m, file: m, kind: "preview", labels: p.Labels, dim: p.Dim, k: p.K, heldOut: p.HeldOut, fingerprint: p.Fingerprint, hasTail: true, record: json.RawMessage("{}"), normal: p.Normal,
	}
	for _, r := range p.Rungs {
		x.steps = append(x.steps, Step{r.Kept, r.Kept, r.Precision1, r.PrecisionK, r.Own})
	}
	return x
}

// Screen returns the screen, nil for a preview.
func (x *Index) Screen() *screening.Model { return x.screen }

// Preview returns the preview, nil for a screen.
func (x *Index) Preview() *previewing.Model { return x.preview }

// Steps is l2s.Index.Steps. The steps must not be changed.
func (x *Index) Steps() (steps []Step, normal int) { return x.steps, x.normal }

// StepOf returns the step of a budget, which is not negative: the last one whose budget is not
// above it, or the first; the normal one for 0.
func (x *Index) StepOf(budget float64) int {
	if budget == 0 {
		return x.normal
	}
	return precision.StepOf(len(x.steps), func(i int) float64 { return x.steps[i].Budget }, budget)
}

// Measured is l2s.Index.Measured.
func (x *Index) Measured() (k, heldOut int) { return x.k, x.heldOut }

// Labels returns L of the layer.
func (x *Index) Labels() int { return x.labels }

// Dim returns d of the layer.
func (x *Index) Dim() int { return x.dim }

// Fingerprint is l2s.Index.Fingerprint.
func (x *Index) Fingerprint() [32]byte { return x.fingerprint }

// HasTail is l2s.Index.HasTail.
func (x *Index) HasTail() bool { return x.hasTail }

// Record is l2s.Index.Record.
func (x *Index) Record() json.RawMessage { return x.record }

// Kind is l2s.Index.Kind.
func (x *Index) Kind() string { return x.kind }

// String is l2s.Index.String.
func (x *Index) String() string {
	switch {
	case x == nil:
		return "the exact search"
	case x.file == nil:
		return "an empty index"
	}
	step := x.steps[x.normal]
	text := fmt.Sprintf("%s of %d labels x %d, %.1f scored", x.kind, x.labels, x.dim, step.MeanScored)
	if x.heldOut > 0 {
		text += fmt.Sprintf(", P@1 %.4f, P@%d %.4f", step.Precision1.Value, x.k, step.PrecisionK.Value)
		if step.Own.High > 0 {
			text += fmt.Sprintf(", finds %.4f (%.4f to %.4f) of own states", step.Own.Value, step.Own.Low, step.Own.High)
		}
	}
	return text
}

// Save is l2s.Index.Save.
func (x *Index) Save(path string) error {
	if x.file == nil {
		return errNoIndex
	}
	return x.file.Save(path)
}

// WriteTo is l2s.Index.WriteTo.
func (x *Index) WriteTo(w io.Writer) (int64, error) {
	if x.file == nil {
		return 0, errNoIndex
	}
	return x.file.WriteTo(w)
}

var errNoIndex = errors.New("l2s: index: found an empty one, expected one of Load, Read, preview.Make or train.Run, or nil for the exact search")

// Load is l2s.Load.
func Load(path string) (*Index, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("l2s: %w", err)
	}
	defer file.Close()
	size := int64(-1)
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
		size = info.Size()
	}
	return read(": "+path, file, size)
}

// Read is l2s.Read.
func Read(r io.Reader) (*Index, error) { return read("", r, -1) }

// read reads a file of a number of bytes, below 0 if it is not known. Errors begin with a name and
// the place.
func read(place string, r io.Reader, size int64) (*Index, error) {
	in := bufio.NewReader(r)
	magic, err := in.Peek(len(previewing.Magic))
	switch {
	case err != nil && err != io.EOF:
		return nil, fmt.Errorf("l2s%s: %w", place, err)
	case string(magic) == previewing.Magic:
		m, err := previewing.Read("preview"+place, in, size)
		if err != nil {
			return nil, err
		}
		return OfPreview(m), nil
	case string(magic) == screening.Magic:
		m, err := screening.Read("screen"+place, in, size)
		if err != nil {
			return nil, err
		}
		return OfScreen(m), nil
	}
	return nil, fmt.Errorf("l2s%s: magic: found % x, expected a preview, % x, or a screen, % x", place, magic, previewing.Magic, screening.Magic)
}

// Check returns an error unless the index is nil or was made for the layer.
func (x *Index) Check(l *Layer) error {
	if x == nil {
		return nil
	}
	if x.file == nil {
		return errNoIndex
	}
	var other [32]byte // of a screen for any layer of its shape
	if x.preview != nil {
		other = previewing.FingerprintOf(l.exact)
	}
	return l.exact.Fits(x.kind, x.labels, x.dim, x.fingerprint, other)
}
