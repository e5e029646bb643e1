package encode

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
)

// NewInt8Rows quantises the rows and their bias (nil for none), on all cores. The codes are written
// to data, as for kernels.Int8RowsIn. The rows and the bias are not kept.
//
// It returns an error if the float32 arithmetic of the envelope could not
// certify anything: a dimension above kernels.MaxInt8Dim, or a weight or bias that is not
// a number or above 2^40 in magnitude. The content of data is undefined then.
func NewInt8Rows(data []byte, rows kernels.Rows, bias []float32) (*kernels.Int8Rows, error) {
	m, _, err := NewInt8And4Rows(data, nil, rows, bias)
	return m, err
}

// NewInt8And4Rows is NewInt8Rows, and makes 4-bit codes of the rows in the same pass:
// kernels.Int4Stride(Dim) bytes of data4 a row. There are none if data4 is nil.
func NewInt8And4Rows(data8, data4 []byte, rows kernels.Rows, bias []float32) (*kernels.Int8Rows, *kernels.Int4Rows, error) {
	slack, err := slackOf(rows.Len(), rows.Dim(), bias)
	m8, m4 := kernels.Int8RowsIn(data8, rows.Dim(), slack), (*kernels.Int4Rows)(nil)
	checkLen(m8.Len(), rows)
	tables := []encoding{{m8, scales8, (*encoder).pack8}}
	if data4 != nil {
		m4 = kernels.Int4RowsIn(data4, rows.Dim(), slack)
		checkLen(m4.Len(), rows)
		tables = append(tables, encoding{m4, scales4, (*encoder).pack4})
	}
	if err == nil {
		err = encode(rows, bias, tables...)
	}
	if err != nil {
		return nil, nil, err
	}
	return m8, m4, nil
}

func checkLen(n int, rows kernels.Rows) {
	if n != rows.Len() {
		panic("encode: length of data is not the number of rows times the stride")
	}
}

// scale is a scale that encode tries for a row. The one that leaves the least error is taken.
type scale struct {
	most  float32 // the largest code
	share float64 // of the row's largest magnitude, to be at the largest code
}

// With few codes it pays to clip. Rows that are 4-bit codes times a number keep these codes.
var (
	scales8 = []scale{{kernels.MaxCode4, 1}, {kernels.MaxCode, 1}}
	scales4 = []scale{{kernels.MaxCode4, 1}, {kernels.MaxCode4, 0.88}, {kernels.MaxCode4, 0.76}, {kernels.MaxCode4, 0.64}}
)

// encoding is a table of records that encode makes.
type encoding struct {
	m      interface{ Record(i int) []byte }
	scales []scale
	// pack writes the best codes in front of the four floats of a record.
	pack func(e *encoder, rec []byte)
}

// encodeChunk is the number of rows that a goroutine encodes at a time.
const encodeChunk = 128

// encode makes the records of all tables in one pass over the rows, on all cores.
// An error is about the lowest row that has one.
func encode(rows kernels.Rows, bias []float32, tables ...encoding) error {
	fresh := func() *encoder { return newEncoder(rows.Dim()) }
	return parallel.With(context.Background(), 0, rows.Len(), encodeChunk, nil, fresh, func(e *encoder, lo, hi int) error {
		for i := lo; i < hi; i++ {
			rows.Widen(e.row[:rows.Dim()], i)
			largest := math.Float32frombits(kernels.MaxAbsBits(e.row))
			if !(largest <= kernels.MaxCertified) {
				return fmt.Errorf("encode: row %d: found magnitude %g, expected at most %g", i, largest, kernels.MaxCertified)
			}
			var b float32
			if bias != nil {
				b = bias[i]
			}
			for _, t := range tables {
				scale, err, norm := e.quantize(largest, t.scales)
				rec := t.m.Record(i)
				meta := rec[len(rec)-kernels.MetaBytes:]
				t.pack(e, rec[:len(rec)-kernels.MetaBytes])
				for k, f := range [...]float32{scale, b, err, norm} {
					binary.LittleEndian.PutUint32(meta[4*k:], math.Float32bits(f))
				}
			}
		}
		return nil
	})
}

// encoder is the scratch of one goroutine.
type encoder struct {
	dim         int
	row         []float32 // w, padded with zeros to a multiple of 16
	codes, best []int8    // padded with zeros to kernels.Int8Stride(dim)
	low, high   []byte    // the two halves of best, padded so
}

func newEncoder(dim int) *encoder {
	n := kernels.Int8Stride(dim)
	return &encoder{
		dim:   dim,
		row:   make([]float32, (dim+15)&^15),
		codes: make([]int8, n), best: make([]int8, n),
		low: make([]byte, n), high: make([]byte, n),
	}
}

// quantize finds the codes, e.best, and the scale of the row, whose largest
// magnitude is given, and bounds of ||w - w^|| and of ||w^||.
//
// Proof. With u = 2^-24, and m = share largest, scale = fl(m/most) and inv =
// fl(most/m) are within 1.01u, relatively, of their exact values, so that u_i =
// fl(w_i inv) is within 3.1u of w_i/scale (or within 2^-149). u_i - q_i is exact:
// above 1 both are multiples of u_i's last place and the difference is no larger than
// u_i; between 1/2 and 1 it is by Sterbenz's lemma, below q_i is 0. So
//
//	||w - w^|| <= scale sqrt(sum (u_i - q_i)^2) + 3.1u ||w||
//	||w||      <= ||w^|| + ||w - w^||
//
// and with e the first term and n a bound of ||w^||, ||w - w^|| is at most e + 4u(n
// + e). The sums are of 16 lanes of dim/16 squares, combined by halves: they are
// within (dim/16+5)u, relatively, which grow covers, and within dim 2^-149 if
// squares underflow. As a code is at most, one of magnitude 7 or more, n is at least
// 6 scale, and the rest of the 8u(n + e) covers every underflow.
func (e *encoder) quantize(largest float32, scales []scale) (scale, err, norm float32) {
	if largest < kernels.MinCertified {
		// All codes are zero and the row is all error.
		clear(e.best)
		var sum float64
		for _, w := range e.row {
			sum += float64(float64(w) * float64(w))
		}
		return 0, kernels.RoundUp(math.Sqrt(sum)), 0
	}
	var bestErr2, bestNorm2 float32
	least := math.Inf(1)
	for _, s := range scales {
		top := float64(largest) * s.share
		by := float32(top / float64(s.most))
		codes := e.codes[:len(e.row)]
		err2, norm2 := kernels.Encode(codes, e.row, float32(float64(s.most)/top), s.most)
		if total := float64(by) * float64(by) * float64(err2); total < least {
			scale, bestErr2, bestNorm2, least = by, err2, norm2, total
			e.best, e.codes = e.codes, e.best
		}
		if err2 <= 0x1p-40*norm2 {
			break // of rounding alone
		}
	}
	grow := 1 + float64(len(e.row)/16+32)*0x1p-24
	n := float64(scale) * math.Sqrt(float64(bestNorm2)) * grow
	x := float64(scale) * math.Sqrt(float64(bestErr2)) * grow
	return scale, kernels.RoundUp(x + float64(0x1p-21*(n+x))), kernels.RoundUp(n)
}

// Round4 replaces each row, dim elements long, by 4-bit codes times a number, the nearest of a few:
// [kernels.Int8Panels] of such rows are narrow. Rows that the envelope does not certify, or of almost
// zeros, are not changed.
func Round4(rows []float32, dim int) {
	e := newEncoder(dim)
	for row := range slices.Chunk(rows, dim) {
		copy(e.row, row)
		largest := math.Float32frombits(kernels.MaxAbsBits(e.row))
		if !(largest >= 2*kernels.MinCertified && largest <= kernels.MaxCertified) {
			continue
		}
		scale, _, _ := e.quantize(largest, scales4)
		for j := range row {
			row[j] = float32(scale * float32(e.best[j]))
		}
	}
}

// pack8 writes the codes, each plus 128.
func (e *encoder) pack8(rec []byte) {
	const flip = 0x8080808080808080
	codes := asBytes(e.best)[:len(rec)]
	for ; len(rec) >= 8; rec, codes = rec[8:], codes[8:] {
		binary.LittleEndian.PutUint64(rec, binary.LittleEndian.Uint64(codes)^flip)
	}
}

// pack4 writes the codes, each plus 8: the first half of them to the low halves of the
// bytes, the others to the high halves.
func (e *encoder) pack4(rec []byte) {
	const mask, flip = 0x0f0f0f0f0f0f0f0f, 0x0808080808080808
	dim, codes := e.dim, asBytes(e.best)
	half := (dim + 1) / 2
	copy(e.low, codes[:half])
	copy(e.high, codes[half:dim])
	low, high := e.low[:len(rec)], e.high[:len(rec)]
	for ; len(rec) >= 8; rec, low, high = rec[8:], low[8:], high[8:] {
		x, y := binary.LittleEndian.Uint64(low), binary.LittleEndian.Uint64(high)
		binary.LittleEndian.PutUint64(rec, (x&mask^flip)|(y&mask^flip)<<4)
	}
}

func asBytes(codes []int8) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(codes))), len(codes))
}
