package kernels

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/learning-to-screen/l2s/internal/parallel"
)

// maxRecorded is above every float of a record but the bias: a norm of 2^16 weights
// of 2^40 is 2^48.
const maxRecorded = 0x1p49

// Int8RowsOf returns the rows whose records are data, as [Int8Rows.Records] gives
// them, for a bias of one element a row. It takes data over as NewInt8Rows does, and
// makes the same intervals as the rows that the records are from.
//
// It returns an error if the bias cannot be certified, or differs from that in a
// record, or if another float of a record is not one that NewInt8Rows writes. The
// codes may be anything: it is for the caller to know that they belong to the rows.
func Int8RowsOf(data []byte, dim int, bias []float32) (*Int8Rows, error) {
	m := &Int8Rows{codeRows: newCodeRows(data, dim, len(bias), Int8Stride)}
	if err := m.checkRecords(bias); err != nil {
		return nil, err
	}
	return m, nil
}

// Int4RowsOf is Int8RowsOf for the records of Int4Rows.
func Int4RowsOf(data []byte, dim int, bias []float32) (*Int4Rows, error) {
	m := &Int4Rows{newCodeRows(data, dim, len(bias), Int4Stride)}
	if err := m.checkRecords(bias); err != nil {
		return nil, err
	}
	return m, nil
}

// Records returns the records of all rows, one behind the other. They must not be
// changed, and are valid as long as the rows are reachable.
func (m *codeRows) Records() []byte { return m.data }

// checkRecords sets the slack, and checks the floats of all records, on all cores.
func (m *codeRows) checkRecords(bias []float32) error {
	if err := m.setSlack(bias); err != nil {
		return err
	}
	const chunk = 4096
	return parallel.Each(context.Background(), 0, m.n, chunk, nil, func(_, lo, hi int) error {
		for i := lo; i < hi; i++ {
			meta := m.data[(i+1)*m.stride-metaBytes : (i+1)*m.stride]
			if b := math.Float32frombits(binary.LittleEndian.Uint32(meta[4:])); math.Float32bits(b) != math.Float32bits(bias[i]) {
				return fmt.Errorf("kernels: record %d: bias: found %g, expected %g", i, b, bias[i])
			}
			for k, name := range [...]string{"scale", "", "error", "norm"} {
				x := math.Float32frombits(binary.LittleEndian.Uint32(meta[4*k:]))
				if name != "" && !(x >= 0 && x <= maxRecorded) {
					return fmt.Errorf("kernels: record %d: %s: found %g, expected 0 to %g", i, name, x, float32(maxRecorded))
				}
			}
		}
		return nil
	})
}
