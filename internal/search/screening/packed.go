package screening

import (
	"maps"
	"weak"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// The memory that packed candidates may take without an option.
const (
	// defaultPacked applies to a layer whose own codes take more than smallLayer.
	defaultPacked = 256 << 20
	smallLayer    = 4 << 20
	// smallPacked applies to a smaller layer, whose codes and copies stay in the caches.
	smallPacked = 8 << 20
)

func packedByDefault(l *exact.Layer) int64 {
	if int64(l.Labels())*int64(kernels.Int8Stride(l.Dim())) > smallLayer {
		return defaultPacked
	}
	return smallPacked
}

// packKey is a layer, and the least share of the candidates that are packed for it.
type packKey struct {
	layer weak.Pointer[exact.Layer]
	share uint16
}

// pack returns the candidates of at least a share, packed for the layer, and the bytes that they
// take and would take. It returns nil if the layer has no codes, or if they would take more than
// most bytes, see Options.Copies.
func (m *Model) pack(l *exact.Layer, share uint16, most int64) (packed *exact.Packed, copies, all int64, err error) {
	if most == 0 {
		most = packedByDefault(l)
	}
	sizes := m.SizesAt(share)
	starts := make([]int, 1, len(sizes)+1)
	for t, n := range sizes {
		starts = append(starts, starts[t]+int(n))
	}
	all = l.PackedBytes(starts)
	if starts[len(sizes)] == 0 || all > most {
		return nil, 0, all, nil
	}
	m.packing.Lock()
	defer m.packing.Unlock()
	key := packKey{weak.Make(l), share}
	if packed = m.packs[key].Value(); packed != nil {
		return packed, all, all, nil
	}
	maps.DeleteFunc(m.packs, func(_ packKey, lists weak.Pointer[exact.Packed]) bool { return lists.Value() == nil })
	ids := make([]uint32, 0, starts[len(sizes)])
	for t := range sizes {
		ids = append(ids, m.first(t, starts[t+1]-starts[t])...)
	}
	if packed, err = l.Pack(ids, starts); err != nil || packed == nil {
		return nil, 0, all, err
	}
	m.packs[key] = weak.Make(packed)
	return packed, all, all, nil
}
