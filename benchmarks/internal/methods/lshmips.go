package methods

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/learning-to-screen/l2s/internal/codes/floats"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// LSHMIPS is the hashing of "On Symmetric and Asymmetric LSHs for Inner Product Search" (Neyshabur
// and Srebro, ICML 2015), Simple-LSH: sign random projections of the reduction to nearest
// neighbours, with the bias as one more dimension.
//
// A table hashes a point to the signs of its products with Bits random normal vectors. The
// candidates of a context are the points that share its bucket in any of the tables. With more than
// one probe, each table is searched in further buckets, in the order of the cost of the changed
// signs: the sum of the squares of the context's products with their vectors (multi-probe, Lv et
// al., VLDB 2007).
//
// In the paper's table this method reads as a random selection. The program that measured that row
// hashes contexts with other projections than the points, so that points in the bucket of a context
// have nothing in common with it. Here they are hashed alike.
type LSHMIPS struct {
	// Tables is the number of tables, at least 1, and Bits the number of
	// projections of each, 1 to 20.
	Tables, Bits int
	// Probes are the settings, ascending: the number of buckets looked up in
	// each table, 1 to 2^Bits.
	Probes []int
}

// Name returns "LSH-MIPS".
func (LSHMIPS) Name() string { return "LSH-MIPS" }

// Params returns such as "tables=16 bits=8".
func (m LSHMIPS) Params() string { return fmt.Sprintf("tables=%d bits=%d", m.Tables, m.Bits) }

// Build hashes the points.
func (m LSHMIPS) Build(ctx context.Context, in *Input) (Index, error) {
	switch {
	case m.Tables < 1:
		return nil, fmt.Errorf("methods: hash tables: found %d, expected at least 1", m.Tables)
	case m.Bits < 1 || m.Bits > 20:
		return nil, fmt.Errorf("methods: bits of a hash: found %d, expected 1 to 20", m.Bits)
	}
	for _, p := range m.Probes {
		if p < 1 || p > 1<<m.Bits {
			return nil, fmt.Errorf("methods: probes of a hash table: found %d, expected 1 to %d", p, 1<<m.Bits)
		}
	}
	r := newReduction(in.Layer)
	n, buckets := in.Layer.Labels(), 1<<m.Bits
	rng := rand.New(rand.NewPCG(in.Seed, 0x15a))
	directions := make([]float32, m.Tables*m.Bits*r.dim)
	for i := range directions {
		directions[i] = float32(rng.NormFloat64())
	}
	x := &lshIndex{layer: in.Layer, tables: m.Tables, bits: m.Bits, probes: m.Probes,
		ids: make([]uint32, m.Tables*n), firsts: make([]uint32, m.Tables*(buckets+1))}
	x.directions, x.ones = r.split(directions)
	err := parallel.Each(ctx, 0, m.Tables, 1, nil, func(_, t, _ int) error {
		hash, products := make([]uint32, n), make([]float32, n)
		for i := range m.Bits {
			at := (t*m.Bits + i) * r.dim
			floats.Scan(products, r.points, nil, directions[at:at+r.dim])
			for s, v := range products {
				if v >= 0 {
					hash[s] |= 1 << i
				}
			}
		}
		// A counting sort by bucket, labels ascending within each.
		firsts, ids := x.firsts[t*(buckets+1):(t+1)*(buckets+1)], x.ids[t*n:(t+1)*n]
		for _, b := range hash {
			firsts[b+1]++
		}
		for b := range buckets {
			firsts[b+1] += firsts[b]
		}
		next := slices.Clone(firsts)
		for s, b := range hash {
			ids[next[b]] = uint32(s)
			next[b]++
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return x, nil
}

type lshIndex struct {
	layer        *exact.Layer
	tables, bits int
	probes       []int

	directions []float32 // tables*bits x d: the part of the projections that is multiplied with h
	ones       []float32 // and the part for the 1 of a context
	ids        []uint32  // of each table L labels, bucket by bucket
	firsts     []uint32  // of each table, where each bucket begins, and the end
}

func (x *lshIndex) Bytes() int64 {
	return 4*int64(len(x.directions)+len(x.ones)+len(x.ids)+len(x.firsts)) + layerCodes(x.layer)
}

func (x *lshIndex) Settings() []Setting { return settings("probes=%d", x.probes, x.searcher) }

func (x *lshIndex) searcher(probes int) Searcher {
	return &lshSearcher{candidates: newCandidates(x.layer), index: x, probes: probes,
		products: make([]float32, x.tables*x.bits), order: make([]signBit, x.bits), heap: make([]probe, 0, probes+1)}
}

type lshSearcher struct {
	*candidates
	index    *lshIndex
	probes   int
	products []float32
	order    []signBit // of one table, the cheapest to change first
	heap     []probe
}

// signBit is a bit of a hash and the cost of changing it.
type signBit struct {
	bit  uint32
	cost float32
}

// probe is a set of bits to change: flips has these bits of the hash, cost is the sum of their
// costs, last the index of the most expensive bit in the order of cost.
type probe struct {
	flips uint32
	cost  float32
	last  int32
}

func (s *lshSearcher) TopK(dst []exact.Prediction, h []float32) int {
	s.begin(h)
	x := s.index
	floats.Scan(s.products, x.directions, x.ones, h)
	for t := range x.tables {
		products := s.products[t*x.bits : (t+1)*x.bits]
		var hash uint32
		for i, v := range products {
			if v >= 0 {
				hash |= 1 << i
			}
		}
		s.bucket(t, hash)
		if s.probes > 1 {
			s.more(t, hash, products)
		}
	}
	return s.topK(dst)
}

// bucket adds the labels of a bucket.
func (s *lshSearcher) bucket(t int, hash uint32) {
	x := s.index
	firsts := x.firsts[t*(1<<x.bits+1):]
	ids := x.ids[t*x.layer.Labels():]
	for _, id := range ids[firsts[hash]:firsts[hash+1]] {
		s.add(id)
	}
}

// more adds the labels of the next best buckets. With bits in the order of cost, every set of bits
// comes from one other, whose cost is no larger, by one of two steps: the next bit instead of the
// last (shift), or in addition to it (expand). So a heap that starts with the cheapest bit gives
// all sets by cost.
func (s *lshSearcher) more(t int, hash uint32, products []float32) {
	for i, v := range products {
		s.order[i] = signBit{1 << i, v * v}
	}
	slices.SortFunc(s.order, func(a, b signBit) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.bit, b.bit))
	})
	s.heap = append(s.heap[:0], probe{s.order[0].bit, s.order[0].cost, 0})
	for range s.probes - 1 {
		p := s.pop()
		s.bucket(t, hash^p.flips)
		if next := p.last + 1; int(next) < len(s.order) {
			last, b := s.order[p.last], s.order[next]
			s.push(probe{p.flips ^ last.bit ^ b.bit, p.cost - last.cost + b.cost, next})
			s.push(probe{p.flips ^ b.bit, p.cost + b.cost, next})
		}
	}
}

func (s *lshSearcher) push(p probe) {
	h := append(s.heap, p)
	i := len(h) - 1
	for i > 0 && p.cost < h[(i-1)/2].cost {
		h[i] = h[(i-1)/2]
		i = (i - 1) / 2
	}
	h[i] = p
	s.heap = h
}

func (s *lshSearcher) pop() probe {
	h := s.heap
	top, p := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	for i := 0; len(h) > 0; {
		c := 2*i + 1
		if c+1 < len(h) && h[c+1].cost < h[c].cost {
			c++
		}
		if c >= len(h) || h[c].cost >= p.cost {
			h[i] = p
			break
		}
		h[i] = h[c]
		i = c
	}
	s.heap = h
	return top
}
