package exact

import (
	"fmt"
	"math"
	"runtime"
	"unsafe"

	"github.com/learning-to-screen/l2s/internal/codes/encode"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
)

// Packed holds lists of labels of a layer, and the codes of each list's labels one after the other.
// A search among a list then reads one stream of bytes, which the CPU reads ahead: several times as
// fast as scattered rows if the codes are not in the caches. The labels and logits are the same as
// for the list without it, bit for bit; so are log-sums, except over rows that the layer has in
// blocks (see [NewLayer]), whose intervals are narrower than the intervals of packed codes. It is
// immutable and safe for use by many goroutines.
type Packed struct {
	hot   hot
	codes *kernels.Int8Panels
}

// hot holds copies of the memory that each short search reads, together and without further
// pointers.
type hot struct {
	layer *Layer
	codes kernels.Int8Panels
	rows  kernels.Rows // of the layer
	all   []uint32     // the ids as the caller has them
	// These follow the codes, on their large pages. codes of Packed keeps them.
	lists []packedList
	ids   []uint32
}

// packedList is the place of a list: ids[first:end], whose codes are from a panel on.
type packedList struct{ first, end, panel int }

// PackedBytes returns the memory that the codes of lists take, where list t has
// starts[t+1]-starts[t] labels: a byte per element and 16 per label, with Dim rounded up to 4 and
// the labels of a list to 16.
func (l *Layer) PackedBytes(starts []int) int64 {
	panels := 0
	for t := 1; t < len(starts); t++ {
		panels += kernels.PanelsOf(starts[t] - starts[t-1])
	}
	return int64(panels) * int64(kernels.PanelBytes(l.Dim(), false))
}

// Pack returns the lists ids[starts[t]:starts[t+1]] with copies of their codes. The slices are
// kept, not copied, and must not be changed. It returns nil if the layer has no intervals, as a
// dimension above 65,536 or a weight above 2^40 leaves. It panics if an id is not below L, or starts
// do not ascend from 0 to the number of ids.
func (l *Layer) Pack(ids []uint32, starts []int) (*Packed, error) {
	if l.codes == nil && l.blocks == nil {
		return nil, nil
	}
	where := make([]packedList, len(starts)-1)
	lists := len(where) * int(unsafe.Sizeof(packedList{}))
	codes, firsts, rest, err := encode.PackLists(l.codes, l.rows, l.bias, ids, starts, lists+4*len(ids))
	if err != nil {
		return nil, fmt.Errorf("l2s: codes: %w", err)
	}
	for t, first := range firsts {
		where[t] = packedList{starts[t], starts[t+1], first}
	}
	p := &Packed{hot{l, *codes, l.rows, ids, where, ids}, codes}
	if len(ids) > 0 {
		p.hot.lists = unsafe.Slice((*packedList)(unsafe.Pointer(&rest[0])), len(where))
		p.hot.ids = unsafe.Slice((*uint32)(unsafe.Pointer(&rest[lists])), len(ids))
		copy(p.hot.lists, where)
		copy(p.hot.ids, ids)
	}
	return p, nil
}

// List is the set of the labels of list t, as [Only] is of any. Only searchers of the
// layer that packed them take it.
func (p *Packed) List(t int) Labels { return p.First(t, p.Size(t)) }

// First is the set of the first n labels of list t.
func (p *Packed) First(t, n int) Labels {
	l := &p.hot.lists[t]
	ids := p.hot.all[l.first:l.end:l.end]
	return Labels{listed: true, ids: ids[:n:n], packed: p, list: l}
}

// Size returns the number of labels of list t.
func (p *Packed) Size(t int) int {
	l := &p.hot.lists[t]
	n := l.end - l.first
	runtime.KeepAlive(p)
	return n
}

// AddLines adds the places of the lists, and some of their codes.
func (p *Packed) AddLines(l *kernels.Lines) {
	kernels.AddLines(l, math.MaxInt, unsafe.Slice(&p.hot, 1))
	kernels.AddLines(l, scratchBytes, p.hot.lists)
	p.codes.AddLines(l)
}
