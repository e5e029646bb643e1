package previewing

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/files/partfile"
	"github.com/learning-to-screen/l2s/internal/ground/precision"
)

// Magic begins the file of a preview.
const Magic = "\x89L2P\r\n\x1a\n"

// format is described in preview/FORMAT.md.
var format = partfile.Format{Kind: "preview", Magic: Magic, Version: 13, Renew: "make the preview again", Header: 280}

const (
	mostProbes   = 1 << 12
	mostRungs    = 64
	mostDistance = 1e6 // of a rung; of one that is measured it is below 20
)

// file is a model as its file has it.
type file struct {
	p     *Parts
	rungs int
	codes []byte // the packed codes of all labels
	model *Model // after Finish
}

// Code visits the parts of the file in their order. A new part is a line here and in FORMAT.md.
func (f *file) Code(c *partfile.Coder) {
	p := f.p
	c.Value(&p.Fingerprint)
	c.Value(&p.Body)
	c.Number("labels", &p.Labels, 1, min(math.MaxUint32, math.MaxInt))
	c.Number("dim", &p.Dim, 1, kernels.MaxInt8Dim-1)
	c.Number("biased", &p.Biased, 0, 1)
	c.Number("coordinates", &p.Coordinates, 1, kernels.MaxInt8Dim)
	c.Number("codes", &p.Codes, PanelCodes+16, MostCodes)
	const panels = PanelStages * PanelCodes
	c.Check(p.Codes%16 == 0 && (p.Codes <= panels || (p.Codes-panels)%kernels.LineCodes == 0), "codes: found %d, expected a multiple of 16 up to %d, and of %d more", p.Codes, panels, kernels.LineCodes)
	c.Number("probes", &p.Probes, 0, mostProbes)
	c.Number("k", &p.K, 1, p.Labels)
	c.Number("held-out contexts", &p.HeldOut, 0, math.MaxInt32)
	c.Number("own states", &p.Own, 0, p.Labels)
	c.Number("rungs", &f.rungs, 1, mostRungs)
	c.Number("normal rung", &p.Normal, 0, f.rungs-1)
	c.Number("outliers", &p.Outliers, 0, p.Labels-1)
	c.Value(&p.Factors)
	c.Value(&p.Margins)
	c.Value(&p.Rising)
	c.Value(&p.Usual)
	c.Value(&p.Far)
	c.Value(&p.MinNorm)
	c.Value(&p.Tail)
	partfile.List(c, "rungs", &p.Rungs, f.rungs)
	partfile.List(c, "turn", &p.Turn, p.Coordinates+p.Probes, p.Width())
	partfile.List(c, "mean", &p.Mean, p.Width())
	partfile.List(c, "of", &p.Of, p.Codes)
	partfile.List(c, "steps", &p.Steps, p.Codes)
	partfile.List(c, "left", &p.Left, p.Stages(), p.Coordinates)
	partfile.List(c, "gauges", &p.ResidualScale, p.Stages(), p.Panels())
	partfile.List(c, "shares", &p.Shares, p.Stages(), p.Panels())
	partfile.List(c, "levels", &p.Levels, p.Stages(), p.Panels())
	partfile.List(c, "near", &p.Near, p.Stages()-1, p.Panels()*kernels.PanelRows)
	partfile.List(c, "centres", &p.Centres, p.Panels(), CentreBytes)
	partfile.List(c, "ids", &p.IDs, p.Labels)
	partfile.List(c, "codes", &f.codes, p.Labels-p.Outliers, p.RowBytes())
}

// Save is l2s.Index.Save.
func (m *Model) Save(path string) error { return format.Save(path, m) }

// WriteTo is l2s.Index.WriteTo.
func (m *Model) WriteTo(w io.Writer) (int64, error) {
	if m.parts == nil {
		return 0, errors.New("model: found none, expected one of Load, Read or Make")
	}
	n, err := w.Write(m.parts.encode(m.packed()))
	return int64(n), err
}

// encode returns the file of a model with some codes.
func (p *Parts) encode(codes []byte) []byte {
	return format.Encode(&file{p: p, rungs: len(p.Rungs), codes: codes})
}

// Read reads the file of a model, of found bytes, below 0 if the number is not known, from r. Errors
// begin with name.
func Read(name string, r io.Reader, found int64) (*Model, error) {
	f := file{p: new(Parts)}
	err := format.Read(name, r, found, &f)
	return f.model, err
}

// Finish makes the model.
func (f *file) Finish() error {
	if err := f.p.Check(); err != nil {
		return err
	}
	f.model = New(f.p, f.codes)
	return nil
}

// Check returns an error unless the parts are as FORMAT.md describes, besides their lengths.
func (p *Parts) Check() error {
	for name, list := range map[string][]float64{"factor": p.Factors[:], "far": p.Far[:], "rising": {p.Rising}, "usual": {p.Usual}, "short": {p.MinNorm}} {
		for i, x := range list {
			if !(x >= 0 && x <= math.MaxFloat64) || math.Signbit(x) {
				return fmt.Errorf("%s: found %v at %d, expected a finite number that is not negative", name, x, i)
			}
		}
	}
	for i, x := range append(p.Margins[:], p.Tail) {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return fmt.Errorf("%s: found %v, expected a finite number", []string{"margin", "tail"}[i/MostStages], x)
		}
	}
	for name, list := range map[string][]float64{"factor": p.Factors[p.Stages()-1:], "margin": p.Margins[p.Stages():], "far": p.Far[p.Stages():]} {
		if i := slices.IndexFunc(list, func(x float64) bool { return math.Float64bits(x) != 0 }); i >= 0 {
			return fmt.Errorf("%s: found %v for a stage of more than %d, expected 0", name, list[i], p.Stages())
		}
	}
	for _, x := range []struct {
		name  string
		list  []float32
		least float32
	}{
		{"turn", p.Turn, -math.MaxFloat32}, {"mean", p.Mean, -math.MaxFloat32}, {"steps", p.Steps, 0}, {"left", p.Left, 0}, {"gauges", p.ResidualScale, 0},
		{"shares", p.Shares, 0}, {"levels", p.Levels, -math.MaxFloat32},
	} {
		for i, v := range x.list {
			if !(v >= x.least && v <= math.MaxFloat32) {
				return fmt.Errorf("%s: found %v at %d, expected finite numbers of at least %v", x.name, v, i, x.least)
			}
		}
	}
	for i, r := range p.Of {
		if uint64(r) >= uint64(p.Coordinates) {
			return fmt.Errorf("of: found %d at %d, expected a coordinate below %d", r, i, p.Coordinates)
		}
	}
	for i, x := range p.Near {
		if x != 0 && i%(len(p.Near)/(p.Stages()-1)) >= p.Labels-p.Outliers {
			return fmt.Errorf("near: found %d at %d, expected 0 where a panel has no label", x, i)
		}
	}
	if err := p.checkIDs(); err != nil {
		return err
	}
	for i, r := range p.Rungs {
		for _, x := range []struct {
			name              string
			found, least, top float64
		}{
			{"deviations", r.Deviations, 0, mostDistance}, {"reach", r.Reach, 0, mostDistance}, {"looked", r.Looked, 0, 2},
			{"kept", r.Kept, math.SmallestNonzeroFloat64, math.MaxFloat64}, {"exact", r.Exact, 0, 1}, {"log-sum off", r.LogSumOff, 0, math.MaxFloat64},
		} {
			if !(x.found >= x.least && x.found <= x.top) || math.Signbit(x.found) {
				return fmt.Errorf("rungs: rung %d: %s: found %v, expected %v to %v", i, x.name, x.found, x.least, x.top)
			}
		}
		if i > 0 && r.Kept < p.Rungs[i-1].Kept {
			return fmt.Errorf("rungs: rung %d: found %v labels after %v, expected numbers that do not descend", i, r.Kept, p.Rungs[i-1].Kept)
		}
		for _, e := range []precision.Estimate{r.Precision1, r.PrecisionK, r.Own} {
			if !(0 <= e.Low && e.Low <= e.Value && e.Value <= e.High && e.High <= 1) {
				return fmt.Errorf("rungs: rung %d: found precision %v within %v and %v, expected numbers from 0 to 1 in order", i, e.Value, e.Low, e.High)
			}
		}
		if p.Own == 0 && r.Own != (precision.Estimate{}) {
			return fmt.Errorf("rungs: rung %d: found a share of own states of %v, expected none of no states", i, r.Own.Value)
		}
	}
	return nil
}

// checkIDs checks that each label is there once, ascending within each panel and in the outliers.
func (p *Parts) checkIDs() error {
	seen, inside := bitset.New(p.Labels), p.Labels-p.Outliers
	for i, id := range p.IDs {
		first := i == inside || i < inside && i%kernels.PanelRows == 0
		if uint64(id) >= uint64(p.Labels) || seen.Has(id) {
			return fmt.Errorf("ids: found %d at %d, expected each label below %d once", id, i, p.Labels)
		}
		if !first && id < p.IDs[i-1] {
			return fmt.Errorf("ids: found %d after %d at %d, expected ascending ids in a panel", id, p.IDs[i-1], i)
		}
		seen.Add(id)
	}
	return nil
}
