package encode

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"runtime"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/mem"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
)

// NewPanels copies the rows ids[starts[t]:starts[t+1]] of each list t to separate panels, the panels
// of list t after the panels of the earlier lists. If a list does not fill its last panel, the
// lower and upper ends of the other rows are -Inf. The panels are written to data, as for
// kernels.PanelsIn: kernels.PanelBytes(Dim, false) bytes each. Narrow panels leave about the second
// half of it unused. Each id must be less than Len, and starts ascending, from 0 to the number of
// ids. All cores copy. It returns an error if the records are in a mapped file that can no longer
// be read.
func NewPanels(m *kernels.Int8Rows, data []byte, ids []uint32, starts []int) (*kernels.Int8Panels, error) {
	for _, id := range ids {
		if uint64(id) >= uint64(m.Len()) {
			panic("encode: id out of range")
		}
	}
	if len(starts) == 0 || starts[0] != 0 || starts[len(starts)-1] != len(ids) {
		panic("encode: starts are not from 0 to the number of ids")
	}
	firsts, at := firstPanels(starts)
	if len(data) != at*kernels.PanelBytes(m.Dim(), false) {
		panic("encode: length of data is not the number of panels times the bytes of a panel")
	}
	narrow := false
	err := parallel.Each(context.Background(), 1, 1, 1, nil, func(_, _, _ int) error {
		narrow = withinHalves(m, ids)
		return nil
	})
	if err != nil {
		return nil, err
	}
	size := kernels.PanelBytes(m.Dim(), narrow)
	p, none := kernels.PanelsIn(data[:at*size], m, narrow), noRow(m)
	err = parallel.Each(context.Background(), 0, len(starts)-1, 1, nil, func(_, lo, hi int) error {
		for t := lo; t < hi; t++ {
			panels := data[firsts[t]*size:]
			for list := ids[starts[t]:starts[t+1]]; len(list) > 0; panels = panels[size:] {
				n := min(kernels.PanelRows, len(list))
				fill(panels[:size], m, list[:n], none, narrow)
				list = list[n:]
			}
		}
		return nil
	})
	runtime.KeepAlive(m)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// PackLists is NewPanels in memory of its own, with some bytes besides that follow the panels there.
// codes may be nil: then the codes of all rows are made, while they are copied. It returns the first
// panel of each list too.
func PackLists(codes *kernels.Int8Rows, rows kernels.Rows, bias []float32, ids []uint32, starts []int, besides int) (p *kernels.Int8Panels, firsts []int, rest []byte, err error) {
	if codes == nil {
		table, release := mem.Alloc(rows.Len() * kernels.Int8Stride(rows.Dim()))
		defer release()
		if codes, err = NewInt8Rows(table, rows, bias); err != nil {
			return nil, nil, nil, err
		}
	}
	firsts, panels := firstPanels(starts)
	size := panels * kernels.PanelBytes(rows.Dim(), false)
	table, release := mem.Alloc(size + besides)
	p, err = NewPanels(codes, table[:size:size], ids, starts)
	return mem.Own(p, err, release), firsts, table[size:], err
}

// firstPanels returns the first panel of each list, and the number of panels of all.
func firstPanels(starts []int) (firsts []int, panels int) {
	firsts = make([]int, len(starts)-1)
	for t := range firsts {
		if starts[t] > starts[t+1] {
			panic("encode: starts are not ascending")
		}
		firsts[t] = panels
		panels += kernels.PanelsOf(starts[t+1] - starts[t])
	}
	return firsts, panels
}

// noRow returns the record of an unused row of a panel.
func noRow(m *kernels.Int8Rows) []byte {
	rec := bytes.Repeat([]byte{kernels.CodeBias}, kernels.Int8Stride(m.Dim()))
	for i, x := range [...]float32{0, float32(math.Inf(-1)), 0, 0} {
		binary.LittleEndian.PutUint32(rec[len(rec)-kernels.MetaBytes+4*i:], math.Float32bits(x))
	}
	return rec
}

// withinHalves reports whether no code of the rows ids is above kernels.MaxCode4 in magnitude.
func withinHalves(m *kernels.Int8Rows, ids []uint32) bool {
	for _, id := range ids {
		for _, c := range m.Record(int(id))[:m.Dim()] {
			if c-(kernels.CodeBias-kernels.MaxCode4) > 2*kernels.MaxCode4 {
				return false
			}
		}
	}
	return true
}

// fill writes a panel of the rows ids, at most kernels.PanelRows of them, and rows like none.
func fill(panel []byte, m *kernels.Int8Rows, ids []uint32, none []byte, narrow bool) {
	codes, meta := panel[:len(panel)-kernels.MetaBytes/4*kernels.StepBytes], panel[len(panel)-kernels.MetaBytes/4*kernels.StepBytes:]
	for r := range kernels.PanelRows {
		rec := none
		if r < len(ids) {
			rec = m.Record(int(ids[r]))
		}
		for s := range len(codes) / kernels.StepBytes {
			at := codes[s*kernels.StepBytes+r*stepCodes:]
			if narrow {
				eight := binary.LittleEndian.Uint64(rec[2*s*stepCodes:]) - kernels.Narrowed
				binary.LittleEndian.PutUint32(at, uint32(eight)|uint32(eight>>32)<<4)
			} else {
				copy(at[:stepCodes], rec[s*stepCodes:])
			}
		}
		for f := range kernels.MetaBytes / 4 {
			copy(meta[f*kernels.StepBytes+4*r:][:4], rec[len(rec)-kernels.MetaBytes+4*f:])
		}
	}
}
