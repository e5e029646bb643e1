package learn

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/files/tensorfile"
	"github.com/learning-to-screen/l2s/internal/ground/float16"
)

// reservoir keeps contexts of a service within a number of bytes: a sample of the contexts that it
// was given, in runs of neighbours, as float16, few of them twice. When it is full a new run
// replaces a random one, so that old contexts disappear: half of them after the half-life. All
// goroutines may use one reservoir. It writes nothing to disk.
type reservoir struct {
	dim, k int
	seed   maphash.Seed

	mu      sync.Mutex
	data    []uint16 // a row of dim for each context, of all runs
	labels  []uint32 // k for each
	runs    []run
	most    int           // runs
	hashes  []uint64      // of the contexts
	again   []uint32      // the number of times that each came again since the last mark
	seen    []uint32      // 1 more than the row of a context, at the place of its hash
	at      int           // the run that is being filled, -1 for none
	skip    int           // contexts that are passed over before the next run
	accept  float64       // the share of runs that are kept when all places are taken
	kept    uint64        // contexts that were taken
	forgets atomic.Uint64 // the number of times that all were forgotten
}

// run describes the contents of a run.
type run struct {
	first uint64 // the number of the first context, in the order in which they were taken
	n     int
	known uint32 // a bit for each context whose labels are known
}

// contextBytes returns the bytes of a context of dim elements with k labels: both, its hash, two
// places of hashes, and a count.
func contextBytes(dim, k int64) int64 { return 2*dim + 4*k + 20 }

// mostHalfLife bounds half-lives: with a longer one hardly a context would be kept once all places
// are taken.
const mostHalfLife = 1e12

// runLength is the number of neighbours that are kept together: bits of run.known.
const runLength = 32

// newReservoir returns a reservoir for contexts of dim elements with k labels each, which takes at
// most the given bytes, and whose contexts have the given half-life, in numbers of contexts that
// are added; 0 is the shortest half-life, with which all contexts are taken. An error names the
// argument that does not fit.
func newReservoir(dim, k int, bytes int64, halfLife float64) (*reservoir, error) {
	const mostElements, mostBytes = 1 << 24, 1 << 40
	if dim < 1 || dim > mostElements || k < 0 || k > mostElements || bytes > mostBytes {
		return nil, fmt.Errorf("learn: reservoir: found dimension %d, %d labels and %d bytes, expected at least 1 and 0, and at most %d, %d and %d", dim, k, bytes, mostElements, mostElements, int64(mostBytes))
	}
	each := contextBytes(int64(dim), int64(k))
	// Places of hashes have 32 bits.
	most := int(min(bytes/(each*runLength+int64(unsafe.Sizeof(run{}))), math.MaxUint32/runLength-1))
	if most < 1 || !(halfLife >= 0 && halfLife <= mostHalfLife) {
		return nil, fmt.Errorf("learn: reservoir: found %d bytes and a half-life of %v contexts, expected room for %d contexts of %d bytes, and 0 to %g", bytes, halfLife, runLength, each, float64(mostHalfLife))
	}
	n := most * runLength
	r := &reservoir{
		dim: dim, k: k, seed: maphash.MakeSeed(), most: most, at: -1, accept: 1,
		data: make([]uint16, n*dim), labels: make([]uint32, n*k), runs: make([]run, 0, most),
		hashes: make([]uint64, n), again: make([]uint32, n), seen: make([]uint32, 2*n),
	}
	if halfLife > 0 {
		r.accept = min(1, math.Ln2*float64(n)/halfLife)
	}
	return r, nil
}

// Add gives it a context, with its k best labels, or nil if they are not known. It copies both. Add
// skips a context that it holds already, or that float16 cannot represent: with an element of
// 65,520 or more, or without one of 2^-14 or more. It returns the number of contexts that it has
// taken so far, or 0 if another goroutine is using the reservoir: then the context is skipped, so
// that no query waits for a copy.
func (r *reservoir) Add(h []float32, labels []uint32) uint64 {
	if !r.mu.TryLock() {
		return 0
	}
	defer r.mu.Unlock()
	if r.skip > 0 {
		r.skip--
	} else {
		r.add(h, labels)
	}
	return r.kept
}

func (r *reservoir) add(h []float32, labels []uint32) {
	if len(h) != r.dim || len(labels) != 0 && len(labels) != r.k {
		return
	}
	hash := maphash.Bytes(r.seed, unsafe.Slice((*byte)(unsafe.Pointer(&h[0])), 4*len(h)))
	place := &r.seen[hash%uint64(len(r.seen))]
	if held := int(*place) - 1; held >= 0 && r.hashes[held] == hash {
		if r.again[held] < math.MaxUint32 {
			r.again[held]++
		}
		return
	}
	if r.at < 0 && !r.begin() {
		return
	}
	x := &r.runs[r.at]
	row := r.at*runLength + x.n
	codes := r.data[row*r.dim : (row+1)*r.dim]
	if !narrow(codes, h) || !slices.ContainsFunc(codes, func(x uint16) bool { return x>>10&31 > 0 }) {
		return
	}
	*place, r.hashes[row], r.again[row] = uint32(row+1), hash, 0
	if len(labels) > 0 {
		copy(r.labels[row*r.k:], labels)
		x.known |= 1 << x.n
	}
	r.kept++
	if x.n++; x.n == runLength {
		r.at = -1
	}
}

// begin finds the place of a run. It reports false if the next run is passed over.
func (r *reservoir) begin() bool {
	if len(r.runs) < r.most {
		r.at = len(r.runs)
		r.runs = append(r.runs, run{first: r.kept})
		return true
	}
	if rand.Float64() >= r.accept {
		r.skip = runLength - 1
		return false
	}
	r.at = rand.IntN(r.most)
	clear(r.hashes[r.at*runLength : (r.at+1)*runLength]) // the overwritten contexts may come again
	r.runs[r.at] = run{first: r.kept}
	return true
}

// Kept returns the number of contexts that it took since it was made: later ones have higher
// numbers, from 0 on.
func (r *reservoir) Kept() uint64 { r.mu.Lock(); defer r.mu.Unlock(); return r.kept }

// sample is a copy of the contexts of a reservoir, in the order in which they were taken.
type sample struct {
	Contexts []uint16 // rows of float16
	Labels   []uint32 // k of each
	Known    []bool   // whether they are known
	Numbers  []uint64

	again []uint32 // the number of times that they came again since the last mark
}

// since returns a copy of its contexts from a number on.
func (r *reservoir) since(number uint64) sample { return r.those(number, false) }

// mark begins to count the repetitions of contexts.
func (r *reservoir) mark() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.again)
}

// those returns the contexts of since, with repeated also the earlier contexts that came again
// since the last mark.
func (r *reservoir) those(number uint64, repeated bool) (s sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	wanted := func(i, j int) bool { // context j of run i
		return r.runs[i].first+uint64(j) >= number || repeated && r.again[i*runLength+j] > 0
	}
	var places []int // of runs
	n := 0
	for i, x := range r.runs {
		before := n
		for j := range x.n {
			if wanted(i, j) {
				n++
			}
		}
		if n > before {
			places = append(places, i)
		}
	}
	slices.SortFunc(places, func(a, b int) int { return cmp.Compare(r.runs[a].first, r.runs[b].first) })
	s = sample{make([]uint16, 0, n*r.dim), make([]uint32, 0, n*r.k), make([]bool, 0, n), make([]uint64, 0, n), make([]uint32, 0, n)}
	for _, i := range places {
		x := r.runs[i]
		for j := range x.n {
			if !wanted(i, j) {
				continue
			}
			row := i*runLength + j
			s.Contexts = append(s.Contexts, r.data[row*r.dim:(row+1)*r.dim]...)
			s.Labels = append(s.Labels, r.labels[row*r.k:(row+1)*r.k]...)
			s.Known, s.Numbers, s.again = append(s.Known, x.known>>j&1 == 1), append(s.Numbers, x.first+uint64(j)), append(s.again, r.again[row])
		}
	}
	return s
}

// Forget is [Learner.Forget].
func (r *reservoir) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.data[:len(r.runs)*runLength*r.dim])
	clear(r.labels)
	clear(r.hashes)
	clear(r.again)
	clear(r.seen)
	r.runs, r.at, r.skip = r.runs[:0], -1, 0
	r.forgets.Add(1)
}

// WriteNPY writes the contexts as a .npy file of float16, rows in the order of the text, which l2s
// train takes. It returns their number.
func (r *reservoir) WriteNPY(w io.Writer) (int, error) {
	s := r.since(0)
	n := len(s.Known)
	if _, err := w.Write(tensorfile.NPYHeader("f2", n, r.dim)); err != nil {
		return 0, err
	}
	for block := range slices.Chunk(s.Contexts, 1<<16) {
		if err := binary.Write(w, binary.LittleEndian, block); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// widen is float32 of rows of float16.
func widen(rows []uint16) []float32 {
	wide := make([]float32, len(rows))
	if len(rows) > 0 {
		kernels.Float16Rows(rows, len(rows)).Widen(wide, 0)
	}
	return wide
}

// narrow rounds numbers to float16, ties to even. It reports false if one is too large, or NaN.
func narrow(dst []uint16, x []float32) bool {
	for i, f := range x {
		var ok bool
		if dst[i], ok = float16.Narrow(f); !ok {
			return false
		}
	}
	return true
}
