package softmax

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/learning-to-screen/l2s/internal/bigmem"
	"github.com/learning-to-screen/l2s/kernels"
)

// Packed holds lists of labels of a layer, and the codes of each list's labels
// one behind the other. A search among a list then reads one stream of bytes, which
// the CPU reads ahead, instead of a row here and a row there: that is several times
// as fast if the codes are not in the caches. The answers are those for the same list
// without it, bit for bit. It is immutable and safe for use by many goroutines.
type Packed struct {
	layer  *Layer
	ids    []uint32
	starts []int // list t is ids[starts[t]:starts[t+1]]
	codes  *kernels.Int8Rows
}

// PackedBytes returns the memory that the codes of so many labels take, all lists
// together: a byte for each of Dim elements and 16, rounded up to whole cache lines
// as the layer's own are.
func (l *Layer) PackedBytes(labels int) int64 {
	return int64(labels) * int64(kernels.Int8Stride(l.Dim()))
}

// Pack returns the lists ids[starts[t]:starts[t+1]] with copies of their codes. The
// slices are kept, not copied, and must not be changed. It returns nil if the layer
// has no codes, as a dimension above 65,536 or a weight above 2^40 leaves. It returns
// an error if an id is not below L, or the lists are not one behind the other from the
// first id to the last.
func (l *Layer) Pack(ids []uint32, starts []int) (*Packed, error) {
	among := Only(ids)
	if err := among.check(l.Labels()); err != nil {
		return nil, err
	}
	if len(starts) == 0 || starts[0] != 0 || starts[len(starts)-1] != len(ids) {
		return nil, invalid(ErrRequest, fmt.Sprintf("softmax: starts: found %v, expected 0 to the %d ids", starts, len(ids)))
	}
	for t := range starts[1:] {
		if starts[t] > starts[t+1] {
			return nil, invalid(ErrRequest, fmt.Sprintf("softmax: starts[%d]: found %d after %d, expected at least that", t+1, starts[t+1], starts[t]))
		}
	}
	if l.codes == nil {
		return nil, nil
	}
	table, release := bigmem.Alloc(len(ids) * kernels.Int8Stride(l.Dim()))
	return &Packed{l, ids, starts, own(l.codes.Gather(table, ids), nil, release)}, nil
}

// List is the set of the labels of list t, as [Only] is of any. Only searchers of the
// layer that packed them take it.
func (p *Packed) List(t int) Labels {
	first, end := p.starts[t], p.starts[t+1]
	return Labels{kind: listOfLabels, ids: p.ids[first:end:end], packed: p, first: first, end: end}
}

// AddLines adds what says where the lists are, and some of their codes.
func (p *Packed) AddLines(l *kernels.Lines) {
	kernels.AddLines(l, math.MaxInt, unsafe.Slice(p, 1))
	kernels.AddLines(l, scratchBytes, p.starts)
	p.codes.AddLines(l)
}
