package screening

import (
	"fmt"
	"io"

	"github.com/learning-to-screen/l2s/internal/files/partfile"
	"github.com/learning-to-screen/l2s/internal/search/tail"
)

// Magic begins the file of a screen.
const Magic = "\x89L2S\r\n\x1a\n"

// format is described in screen/FORMAT.md.
var format = partfile.Format{
	Kind: "screen", Magic: Magic, Version: 7, Renew: "l2s train makes a new file", Header: 104,
}

// rung is a budget of the ladder.
type rung struct {
	Budget, MeanCandidates       float64
	Precision1, PrecisionK       Estimate
	P99Candidates, MaxCandidates uint32
	Share                        uint16
}

// file is a model as its file has it.
type file struct {
	Config                                            // without lists, ladder and tail
	clusters, record                                  int
	ids                                               uint64
	shells, budgets, temperatures, levels, directions uint16

	budget []float64 // of requests without one
	sizes  []uint32  // of the lists
	listed []uint32
	shares []uint16
	ladder []rung
	tail   tail.Config
	model  *Model // after Finish
}

// Code visits the parts of the file in their order. A new part is a line here and in FORMAT.md.
func (f *file) Code(c *partfile.Coder) {
	c.Value(&f.Fingerprint)
	c.Number("labels", &f.Labels, 1, maxCount)
	c.Number("dim", &f.Dim, 1, maxCount)
	c.Number("clusters", &f.clusters, 1, maxCount)
	c.Number("always", &f.Always, 0, maxCount)
	c.Number("k", &f.K, 0, maxCount)
	c.Number("held-out contexts", &f.HeldOut, 0, maxCount)
	c.Number("record", &f.record, 0, maxCount)
	c.Value(&f.ids)
	for _, at := range []*uint16{&f.shells, &f.budgets, &f.tail.Share, &f.temperatures, &f.levels, &f.directions} {
		c.Value(at)
	}
	d, r, m, q := f.Dim, f.clusters, int(f.temperatures), int(f.levels)
	ranges, cosines := 0, 0 // numbers
	if m > 0 {
		ranges, cosines = 2*m+4, 2
	}
	partfile.List(c, "budget", &f.budget, 1)
	partfile.List(c, "clusters", &f.Clusters, r, d)
	partfile.List(c, "shells", &f.Shells, int(f.shells))
	partfile.List(c, "sizes", &f.sizes, uint64(r)*(1+uint64(f.shells)))
	partfile.List(c, "ids", &f.listed, f.ids)
	partfile.List(c, "shares", &f.shares, f.ids)
	partfile.List(c, "ladder", &f.ladder, int(f.budgets))
	partfile.List(c, "temperatures", &f.tail.Temperatures, m)
	partfile.List(c, "levels", &f.tail.Levels, q)
	partfile.List(c, "intercepts", &f.tail.Intercepts, m, r)
	partfile.List(c, "slopes", &f.tail.Slopes, m, r, d)
	partfile.List(c, "squares", &f.tail.Squares, m, r, 2)
	partfile.List(c, "widths", &f.tail.Widths, q, m, r)
	partfile.List(c, "directions", &f.tail.Directions, int(f.directions), d)
	partfile.List(c, "ranges", &f.tail.Ranges, ranges, r)
	partfile.List(c, "cosines", &f.tail.Cosines, cosines, r)
	partfile.List(c, "record", &f.Record, f.record)
}

// Save writes the model's file in the place of path, whole or not at all.
func (m *Model) Save(path string) error { return format.Save(path, m) }

// WriteTo writes the bytes of the model's file to w.
func (m *Model) WriteTo(w io.Writer) (int64, error) {
	if m.router == nil {
		return 0, errNoModel
	}
	n, err := w.Write(format.Encode(m.file()))
	return int64(n), err
}

func (m *Model) file() *file {
	c := m.c
	f := &file{
		Config: c, clusters: m.Clusters(), record: len(c.Record), shells: uint16(len(c.Shells)),
		budgets: uint16(len(c.Ladder)), budget: []float64{c.Budget},
	}
	for _, l := range c.Lists {
		f.sizes = append(f.sizes, uint32(len(l.IDs)))
		f.listed, f.shares = append(f.listed, l.IDs...), append(f.shares, l.Shares...)
	}
	f.ids = uint64(len(f.listed))
	for _, x := range c.Ladder {
		f.ladder = append(f.ladder, rung{x.Budget, x.MeanCandidates, x.Precision1, x.PrecisionK, uint32(x.P99Candidates), uint32(x.MaxCandidates), x.Share})
	}
	if c.Tail != nil {
		f.tail = c.Tail.Config()
		f.temperatures, f.levels = uint16(len(f.tail.Temperatures)), uint16(len(f.tail.Levels))
		f.directions = uint16(len(f.tail.Directions) / c.Dim)
	}
	return f
}

// Read reads the file of a model, of found bytes, below 0 if the number is not known, from r. Errors
// begin with name.
func Read(name string, r io.Reader, found int64) (*Model, error) {
	var f file
	err := format.Read(name, r, found, &f)
	return f.model, err
}

// Finish makes the model.
func (f *file) Finish() (err error) {
	c := f.Config
	c.Budget = f.budget[0]
	if c.Budget == 0 {
		return fmt.Errorf("budget: found 0, expected one of the ladder")
	}
	c.Lists = make([]List, len(f.sizes))
	at := 0
	for t, size := range f.sizes {
		if uint64(size) > uint64(len(f.listed)-at) {
			return fmt.Errorf("sizes: list %d: found %d ids, expected at most the %d that are left", t, size, len(f.listed)-at)
		}
		end := at + int(size)
		c.Lists[t] = List{f.listed[at:end:end], f.shares[at:end:end]}
		at = end
	}
	if at != len(f.listed) {
		return fmt.Errorf("sizes: found %d ids in all lists, expected %d", at, len(f.listed))
	}
	c.Ladder = make([]Rung, len(f.ladder))
	for i, x := range f.ladder {
		if uint64(max(x.P99Candidates, x.MaxCandidates)) > maxCount {
			return fmt.Errorf("ladder: rung %d: found %v, %d and %d candidates, expected a mean, a 99th percentile and a largest number",
				i, x.MeanCandidates, x.P99Candidates, x.MaxCandidates)
		}
		c.Ladder[i] = Rung{x.Budget, x.Share, x.MeanCandidates, int(x.P99Candidates), int(x.MaxCandidates), x.Precision1, x.PrecisionK}
	}
	if f.temperatures > 0 {
		f.tail.Clusters = f.clusters
		if c.Tail, err = tail.New(f.tail); err != nil {
			return err
		}
	} else if f.tail.Share != 0 || f.levels != 0 || f.directions != 0 {
		return fmt.Errorf("tail: found share %d, %d levels and %d directions, expected none without temperatures", f.tail.Share, f.levels, f.directions)
	}
	f.model, err = newModel(c)
	return err
}
