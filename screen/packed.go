package screen

import (
	"sync"
	"weak"

	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
)

// The memory that the packed candidate sets of a model and a layer may take unless an
// option says otherwise.
const (
	// defaultPacked is for a layer whose own codes take more than smallLayer.
	defaultPacked = 256 << 20
	smallLayer    = 4 << 20
	// smallPacked is for a smaller layer: its own codes stay in the caches, so its copies
	// are to do so too.
	smallPacked = 8 << 20
)

// packedByDefault returns the memory that copies for the layer may take.
func packedByDefault(l *softmax.Layer) int64 {
	if int64(l.Labels())*int64(kernels.Int8Stride(l.Dim())) > smallLayer {
		return defaultPacked
	}
	return smallPacked
}

// Pack bounds the memory that copies of the codes of all candidate sets may take, in
// bytes: 0 for no copies. A set takes d+16 bytes for each of its labels, whose number is
// rounded up to 16 ([softmax.Layer.PackedBytes]). If all sets together take more, the sets
// of pairs of clusters are not copied, and if the others take more, none is. Without the
// option there are copies of up to 256 MiB for a layer whose own codes take more than 4
// MiB, and of up to 8 MiB for a smaller one.
//
// Copies make a query faster, most of all if its data are not in the caches, as between
// two steps of a decoder. If the codes of the layer fit the caches and the copies are many
// times as large as the caches, they make a query slower that follows another. A model with a
// probe margin gains most from copies of all sets, those of pairs among them. All
// searchers of a model and a layer share them. The answers are the same.
func Pack(bytes int64) Option { return func(s *Searcher) { s.packUpTo = bytes } }

// packs are the packed sets of a model, by their layers. Searchers keep them alive.
type packs struct {
	mu   sync.Mutex
	sets map[packKey]weak.Pointer[softmax.Packed]
}

// packKey is a layer, and the number of sets that are packed for it.
type packKey struct {
	layer weak.Pointer[softmax.Layer]
	sets  int
}

// of returns the sets of m packed for the layer, or the sets of its clusters alone, and
// their number. It returns nil if the layer has no codes, or if they would take more than
// most bytes.
func (p *packs) of(m *Model, l *softmax.Layer, most int64) (*softmax.Packed, int, error) {
	sets := len(m.offsets) - 1
	if l.PackedBytes(m.offsets) > most {
		sets = m.cells()
	}
	ids, starts := m.ids[:m.offsets[sets]], m.offsets[:sets+1]
	if len(ids) == 0 || l.PackedBytes(starts) > most {
		return nil, 0, nil
	}
	packed, err := p.pack(packKey{weak.Make(l), sets}, l, ids, starts)
	return packed, sets, err
}

func (p *packs) pack(key packKey, l *softmax.Layer, ids []uint32, starts []int) (*softmax.Packed, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if sets := p.sets[key].Value(); sets != nil {
		return sets, nil
	}
	for key, sets := range p.sets {
		if sets.Value() == nil {
			delete(p.sets, key)
		}
	}
	sets, err := l.Pack(ids, starts)
	if err != nil || sets == nil {
		return nil, err
	}
	if p.sets == nil {
		p.sets = map[packKey]weak.Pointer[softmax.Packed]{}
	}
	p.sets[key] = weak.Make(sets)
	return sets, nil
}

// among is the candidate set of a route, as candidates returned it.
func (s *Searcher) among(r route, set []uint32) softmax.Labels {
	if s.packed == nil || r.set < 0 || r.set >= s.packedSets {
		return softmax.Only(set)
	}
	return s.packed.List(r.set)
}
