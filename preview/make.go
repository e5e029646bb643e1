package preview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/floats"
	"github.com/learning-to-screen/l2s/internal/kernels"
	"github.com/learning-to-screen/l2s/internal/parallel"
	"github.com/learning-to-screen/l2s/softmax"
)

// Options are the options of Make. The zero value has the defaults.
type Options struct {
	// Coordinates is R, rounded up to a multiple of 16 and at most the dimension: 0 for 384. The
	// codes of the first 64 have 4 bits, the others 2.
	Coordinates int
	// K is the k of the second precision: 0 for 5.
	K int
	// HeldOut are states, row-major, that the rungs are measured on, in the order of their text.
	// None: every fourth run of the states that the model is made from, which it is then not made from.
	HeldOut []float32
	// Precision1 and PrecisionK are the least precision of the rung for requests that name no
	// budget: 0 for 0.9995 and 0.998. If no rung has it, requests use the rung that scores most
	// labels; Rungs returns its precision. If that one misses ten times the number, Make returns
	// [ErrTarget].
	Precision1, PrecisionK float64
	// Threads is the number of threads, 0 for all CPUs. The model does not depend on it.
	Threads int
	// Progress, unless nil, gets the stage and its finished share, 0 to 1.
	Progress func(stage string, done float64)
}

// LeastLabels is the number of labels from which on a preview pays: of fewer the exact search takes
// little time.
const LeastLabels = 16384

const (
	mostStates  = 8192  // for the moments
	mostRows    = 16384 // for the moments
	mostHeldOut = 2048
	leastStates = 64
	heldRuns    = 64 // of states
	clusteredIn = 128
	mostProbes  = 64
	someBlocks  = 512  // in which the error of codes is measured, about
	ridge       = 1e-4 // of the mean square of an element of a context
	clip        = 3.5  // deviations of a coordinate that codes of 4 bits reach to
	coarseStep  = 1.0  // deviations from a code of 2 bits to the next: the best for a normal distribution
	mostFine    = 64   // coordinates with codes of 4 bits: the others have hardly more variance than is left outside
	mostBeyond  = 16   // labels of a block that give its part outside the coordinates
	leastBeyond = 0.25

	mostOutliers     = 64
	labelsPerOutlier = 512 // at least
	hugeLength       = 16  // times the median
	labelsPerHuge    = 64  // at least
)

// Make makes a model of a layer from contexts of the text to come: states, row-major, n x d. Some
// 4,000 are enough for one language, and another 4,000 for each further one. It takes
// some ten seconds on all cores for 262,144 labels, and the same input gives the same model on every
// CPU. A layer of fewer than [LeastLabels] labels gets a model too, with which it is hardly faster.
//
// It returns an error if the states are fewer than 64 besides the held-out ones, or no finite rows
// of the layer's dimension, [ErrTarget] if too many labels are missed, and one that wraps ctx.Err()
// if ctx is done before.
func Make(ctx context.Context, l *softmax.Layer, states []float32, opt Options) (*Model, error) {
	if l == nil {
		return nil, errors.New("preview: layer: found nil, expected a layer")
	}
	d := l.Dim()
	if l.Labels() == 0 || d == 0 {
		return nil, errors.New("preview: layer: found an empty one, expected one of softmax.NewLayer")
	}
	if opt.Progress == nil {
		opt.Progress = func(string, float64) {}
	}
	if opt.Coordinates < 0 || opt.K < 0 || opt.K > l.Labels() || opt.Threads < 0 {
		return nil, fmt.Errorf("preview: options: found %d coordinates, k %d and %d threads, expected 0 or more, and k at most the %d labels", opt.Coordinates, opt.K, opt.Threads, l.Labels())
	}
	for _, p := range []float64{opt.Precision1, opt.PrecisionK} {
		if !(p >= 0 && p <= 1) {
			return nil, fmt.Errorf("preview: options: found precision %v, expected 0 to 1", p)
		}
	}
	for name, x := range map[string][]float32{"states": states, "held-out states": opt.HeldOut} {
		if len(x)%d != 0 {
			return nil, fmt.Errorf("preview: %s: found %d elements, expected rows of %d", name, len(x), d)
		}
	}
	ctx = parallel.Limit(ctx, opt.Threads)
	states, held := split(states, opt.HeldOut, d)
	if n := len(states) / d; n < leastStates {
		return nil, fmt.Errorf("preview: states: found %d to make the model from, besides %d held out, expected at least %d", n, len(held)/d, leastStates)
	}
	for _, x := range [][]float32{states, held} {
		if i, j, found := kernels.FirstNotFinite(kernels.Float32Rows(x, d)); found {
			return nil, fmt.Errorf("preview: states: found %v at element %d of one, expected finite numbers", x[i*d+j], j)
		}
	}
	m := &Model{labels: l.Labels(), dim: d, k: min(cmp.Or(opt.K, 5), l.Labels())}
	for _, b := range l.Bias() {
		m.biased = m.biased || b != 0
	}
	m.coordinates = min(cmp.Or(opt.Coordinates, 384), m.width())
	m.fine = min((m.coordinates+7)&^7, mostFine)
	m.coordinates = m.fine + (max(m.coordinates-m.fine, 0)+15)&^15
	m.centred = min(clusteredIn, m.coordinates)
	if err := m.make(ctx, l, states, held, &opt); err != nil {
		return nil, fmt.Errorf("preview: %w", err)
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("preview: found weights, biases or states too large for a preview, expected smaller numbers: %w", err)
	}
	return m, nil
}

// split returns samples of states to make the model from and to hold out.
func split(states, held []float32, d int) (rest, out []float32) {
	sample := func(x []float32, most int) []float32 {
		n := len(x) / d
		if n <= most {
			return x
		}
		some := make([]float32, 0, most*d)
		for i := range most {
			at := i * n / most
			some = append(some, x[at*d:(at+1)*d]...)
		}
		return some
	}
	if len(held) == 0 {
		n := len(states) / d
		for run := range heldRuns {
			part := states[run*n/heldRuns*d : (run+1)*n/heldRuns*d]
			if run%4 == 3 {
				out = append(out, part...)
			} else {
				rest = append(rest, part...)
			}
		}
		states, held = rest, out
	}
	return sample(states, mostStates), sample(held, mostHeldOut)
}

func (m *Model) make(ctx context.Context, l *softmax.Layer, states, held []float32, opt *Options) error {
	opt.Progress("coordinates", 0)
	if err := m.findHuge(ctx, l); err != nil {
		return err
	}
	if err := m.turns(ctx, l, states, opt); err != nil {
		return err
	}
	opt.Progress("blocks", 0)
	if err := m.group(ctx, l, opt); err != nil {
		return err
	}
	m.arrange()
	lost := make([]float64, m.labels)
	if err := m.encodeAll(ctx, l, lost); err != nil {
		return err
	}
	if err := m.setApart(ctx, l, lost); err != nil {
		return err
	}
	opt.Progress("fingerprint", 0)
	m.fingerprint = l.Fingerprint()
	opt.Progress("precision", 0)
	return m.measure(ctx, l, held, opt)
}

// extended returns contexts with a 1 after each if the layer has biases.
func (m *Model) extended(states []float32) []float32 {
	if !m.biased {
		return states
	}
	x := make([]float32, 0, len(states)/m.dim*m.width())
	for at := 0; at < len(states); at += m.dim {
		x = append(append(x, states[at:at+m.dim]...), 1)
	}
	return x
}

// findHuge finds labels whose rows, with their biases, are much longer than most: a few of them would
// decide the mean row, the coordinates and the blocks of all others.
func (m *Model) findHuge(ctx context.Context, l *softmax.Layer) error {
	n := m.labels / labelsPerHuge
	if n == 0 {
		return nil
	}
	squares := make([]float64, m.labels)
	fresh := func() []float32 { return make([]float32, m.width()) }
	err := parallel.With(ctx, 0, m.labels, 256, nil, fresh, func(row []float32, lo, hi int) error {
		for id := lo; id < hi; id++ {
			widen(row, l, id)
			for _, x := range row {
				squares[id] += float64(float64(x) * float64(x))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	sorted := slices.Sorted(slices.Values(squares))
	median := sorted[len(sorted)/2]
	m.huge = map[uint32]bool{}
	for _, id := range largest(m.all(), squares, n) {
		if median > 0 && squares[id] > hugeLength*hugeLength*median {
			m.huge[id] = true
		}
	}
	return nil
}

// turns finds the coordinates. With M = E[hh^T] = L L^T of contexts and G = W'^T W'/labels of the
// rows less their mean, let the rows of Q be the first eigenvectors of L^T G L. Then z = Q L^-1 h
// has E[zz^T] = 1, the coordinates of a label are a = Q L^T w', and w'.h = a.z + the part outside.
func (m *Model) turns(ctx context.Context, l *softmax.Layer, states []float32, opt *Options) error {
	width, d := m.width(), m.dim
	contexts, err := moments(ctx, m.extended(states), width)
	if err != nil {
		return err
	}
	trace := 0.0
	for i := range width {
		trace += contexts.x[i*width+i]
	}
	if !(trace > 0) || math.IsInf(trace, 1) {
		return fmt.Errorf("states: found a mean square of %v, expected a finite number above 0", trace)
	}
	for i := range width {
		contexts.x[i*width+i] += ridge * trace / float64(width)
	}
	lower, ok := cholesky(contexts)
	if !ok {
		return errors.New("states: found second moments that are not positive, expected smaller numbers")
	}
	opt.Progress("coordinates", 0.1)
	rows := make([]float32, 0, min(l.Labels(), mostRows)*width)
	sum := make([]float64, width)
	for i := range cap(rows) / width {
		id := i * l.Labels() / (cap(rows) / width)
		if m.huge[uint32(id)] {
			continue
		}
		rows = rows[:len(rows)+width]
		row := rows[len(rows)-width:]
		widen(row, l, id)
		for j, x := range row {
			sum[j] += float64(x)
		}
	}
	n := len(rows) / width
	m.mean = make([]float32, width)
	for j, x := range sum {
		m.mean[j] = float32(x / float64(n))
	}
	for i := range n {
		for j, x := range m.mean {
			rows[i*width+j] -= x
		}
	}
	gram, err := moments(ctx, rows, width)
	if err != nil {
		return err
	}
	opt.Progress("coordinates", 0.4)
	both, err := within(ctx, lower, gram)
	if err != nil {
		return err
	}
	opt.Progress("coordinates", 0.6)
	most := min(m.coordinates, width)
	q, _, err := leading(ctx, both, most)
	if err != nil {
		return err
	}
	opt.Progress("coordinates", 0.9)
	m.probes = mostProbes
	m.turn = make([]float32, (m.coordinates+m.probes)*width)
	m.through = make([]float32, m.coordinates*width)
	x, y := make([]float64, width), make([]float64, width)
	for r := range most {
		// x L = q: back substitution from the last.
		copy(x, q.row(r))
		for i := width - 1; i >= 0; i-- {
			x[i] /= lower.x[i*width+i]
			axpy(x[:i], -x[i], lower.row(i)[:i])
		}
		clear(y)
		for i := range width { // y = L q
			y[i] = dot(lower.row(i)[:i+1], q.row(r)[:i+1])
		}
		for i := range width {
			m.turn[r*width+i], m.through[r*width+i] = float32(x[i]), float32(y[i])
		}
	}
	m.probe(ctx, rows, n)
	m.outside = m.contextProbes(ctx, m.extended(states), len(states)/d)
	units := make([]float32, width*width)
	for i := range width {
		units[i*width+i] = 1
	}
	m.rest = m.contextProbes(ctx, units, width)
	for _, x := range [][]float32{m.turn, m.through} {
		if _, _, found := kernels.FirstNotFinite(kernels.Float32Rows(x, width)); found {
			return errors.New("states: found coordinates that are not finite, expected states and weights of smaller numbers")
		}
	}
	return nil
}

// probe makes probes: sums of rows with random signs, without their part in the coordinates. The
// sum of the squares of their products with a context is about the mean square, over the labels, of
// the part of the logits outside the coordinates.
func (m *Model) probe(ctx context.Context, rows []float32, n int) {
	width := m.width()
	m.signed(ctx, m.turn[m.coordinates*width:], rows, n, m.through, m.turn)
}

// contextProbes returns the same for contexts: the sum of the squares of their products with a row,
// less the mean row, is about the mean square, over the contexts, of the part of its logit outside
// the coordinates.
func (m *Model) contextProbes(ctx context.Context, contexts []float32, n int) []float32 {
	out := make([]float32, m.probes*m.width())
	m.signed(ctx, out, contexts, n, m.turn, m.through)
	return out
}

// signed writes sums of n rows with random signs to out, each without its part along the directions
// of to; the products of a row with the directions of from are its coordinates along these.
func (m *Model) signed(ctx context.Context, out, rows []float32, n int, from, to []float32) {
	width := m.width()
	_ = parallel.Each(parallel.Limit(context.Background(), parallel.Limited(ctx)), 0, m.probes, 1, nil, func(_, p, _ int) error {
		state := uint64(p + 1)
		sum := make([]float64, width)
		bits := uint64(0)
		for i := range n {
			if i%32 == 0 {
				state = state*6364136223846793005 + 1442695040888963407
				bits = state >> 32
			}
			floats.Axpy(sum, float32(1-2*int(bits&1)), rows[i*width:(i+1)*width])
			bits >>= 1
		}
		rest := slices.Clone(sum)
		for r := range m.coordinates {
			a := 0.0
			for j, x := range from[r*width : (r+1)*width] {
				a += float64(float64(x) * sum[j])
			}
			for j, x := range to[r*width : (r+1)*width] {
				rest[j] -= float64(a * float64(x))
			}
		}
		scale := 1 / math.Sqrt(float64(n)*float64(m.probes))
		for j, x := range rest {
			out[p*width+j] = float32(x * scale)
		}
		return nil
	})
}

// group makes the blocks, and the scales of their codes.
func (m *Model) group(ctx context.Context, l *softmax.Layer, opt *Options) error {
	c := m.coder(l, m.through)
	p := &points{n: m.labels, dim: m.centred, x: make([]int16, m.labels*m.centred), step: make([]float32, m.centred)}
	// The steps of the points, from a sample.
	some, r := min(m.labels, 4096), c.reader()
	for i := range some {
		r.read(i * m.labels / some)
		for j := range p.step {
			p.step[j] += float32(r.a[j] * r.a[j])
		}
	}
	const fine = 2000 // steps of a deviation
	for j, x := range p.step {
		p.step[j] = float32(math.Sqrt(float64(x)/float64(some)) / fine)
	}
	err := parallel.With(ctx, 0, m.labels, 256, nil, c.reader, func(r *reader, lo, hi int) error {
		for id := lo; id < hi; id++ {
			r.read(id)
			for j, step := range p.step {
				if step > 0 {
					p.x[id*p.dim+j] = int16(min(max(math.RoundToEven(r.a[j]/float64(step)), -32767), 32767))
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	to, x, err := cluster(ctx, p, func(share float64) { opt.Progress("blocks", 0.1+0.7*share) })
	if err != nil {
		return err
	}
	blocks := len(x) / m.centred
	m.sizes, m.ids = make([]uint32, blocks), make([]uint32, m.labels)
	for _, t := range to {
		m.sizes[t]++
	}
	starts := make([]int, blocks+1)
	for t, n := range m.sizes {
		starts[t+1] = starts[t] + int(n)
	}
	next := slices.Clone(starts)
	for id, t := range to {
		m.ids[next[t]] = uint32(id)
		next[t]++
	}
	q := newCentres(x, m.centred)
	m.axes, m.centres = q.step, make([]int8, blocks*m.centred)
	for i, v := range x {
		if step := q.step[i%m.centred]; step > 0 {
			m.centres[i] = int8(math.RoundToEven(v / float64(step)))
		}
	}
	// The spread of the labels around the centres: by blocks and by coordinates.
	m.radii, m.gauges = make([]float32, blocks), slices.Repeat([]float32{1}, blocks)
	m.steps, m.noise = slices.Repeat([]float32{1}, m.coordinates), make([]float32, m.coordinates)
	squares := newMatrix(blocks, m.coordinates)
	each := func(step int, work func(s *around, b int)) error {
		fresh := func() *around { return &around{c.reader(), m.encoder(), m} }
		return parallel.With(ctx, 0, blocks, 8, nil, fresh, func(s *around, lo, hi int) error {
			for b := lo; b < hi; b++ {
				if b%step > 0 {
					continue
				}
				s.begin(b)
				for _, id := range m.ids[starts[b]:starts[b+1]] {
					s.read(int(id))
					work(s, b)
				}
			}
			return nil
		})
	}
	err = each(1, func(s *around, b int) {
		row := squares.row(b)
		for r, a := range s.a {
			off := a - s.centre[r]
			row[r] += float64(off * off)
		}
	})
	if err != nil {
		return err
	}
	mean := make([]float64, m.coordinates)
	for b, size := range m.sizes {
		sum := 0.0
		for r, x := range squares.row(b) {
			mean[r] += x / float64(m.labels)
			if r < m.centred {
				sum += x
			}
		}
		m.radii[b] = float32(math.Sqrt(sum / float64(size)))
	}
	for b, size := range m.sizes {
		sum, n := 0.0, 0
		for r, x := range squares.row(b) {
			if mean[r] > 0 {
				sum += x / mean[r]
				n++
			}
		}
		m.gauges[b] = float32(max(math.Sqrt(sum/float64(size)/float64(max(n, 1))), 1e-3))
	}
	for r, x := range mean {
		m.steps[r] = float32(math.Sqrt(x) * m.stepOf(r))
	}
	opt.Progress("blocks", 0.9)
	lost, labels := newMatrix(blocks, m.coordinates), 0
	step := max(1, blocks/someBlocks)
	err = each(step, func(s *around, b int) {
		s.encode(s.a)
		row := lost.row(b)
		for r, a := range s.a {
			off := a - s.centre[r] - s.value(b, r)
			row[r] += float64(off * off)
		}
	})
	for b := 0; b < blocks; b += step {
		labels += int(m.sizes[b])
	}
	for r := range m.noise {
		sum := 0.0
		for b := 0; b < blocks; b += step {
			sum += lost.x[b*m.coordinates+r]
		}
		m.noise[r] = float32(sum / float64(labels))
	}
	if err != nil {
		return err
	}
	return m.findBeyond(ctx, l, starts)
}

// setApart takes the outliers out of their blocks: labels with previews that tell little of their
// logits. They are the huge ones, those whose codes lose most (lost has the squares), since
// coordinates are too large for them, and those whose rows have the longest part outside the
// coordinates. Such a row has a direction almost for itself: contexts along it are rare, so the
// coordinates leave it out.
func (m *Model) setApart(ctx context.Context, l *softmax.Layer, lost []float64) error {
	n := min(mostOutliers, m.labels/labelsPerOutlier) / 2
	if n == 0 && len(m.huge) == 0 {
		return nil
	}
	longest, err := m.farthest(ctx, l, n)
	if err != nil {
		return err
	}
	apart := maps.Clone(m.huge)
	for _, id := range slices.Concat(longest, largest(m.all(), lost, n)) {
		apart[id] = true
	}
	size := m.rowBytes()
	codes := m.rows(size)
	var ids, outliers []uint32
	var rows []byte
	at := 0
	for b, n := range m.sizes {
		for range n {
			id := m.ids[at]
			if apart[id] && m.sizes[b] > 1 { // no block is empty
				outliers = append(outliers, id)
				m.sizes[b]--
			} else {
				ids, rows = append(ids, id), append(rows, codes[at*size:(at+1)*size]...)
			}
			at++
		}
	}
	slices.Sort(outliers)
	m.ids, m.outliers = append(ids, outliers...), len(outliers)
	m.arrange()
	m.put(rows, size)
	return nil
}

// all returns all labels.
func (m *Model) all() []uint32 {
	ids := make([]uint32, m.labels)
	for id := range ids {
		ids[id] = uint32(id)
	}
	return ids
}

// largest returns the n labels of ids with the largest numbers.
func largest(ids []uint32, of []float64, n int) []uint32 {
	slices.SortFunc(ids, func(a, b uint32) int { return cmp.Or(cmp.Compare(of[b], of[a]), cmp.Compare(a, b)) })
	return ids[:min(n, len(ids))]
}

// farthest returns the n labels whose rows have the longest part outside the coordinates. Probes
// estimate the length for all labels, and some of the longest are measured.
func (m *Model) farthest(ctx context.Context, l *softmax.Layer, n int) ([]uint32, error) {
	c, squares := m.coder(l, m.rest), make([]float64, m.labels)
	err := parallel.With(ctx, 0, m.labels, 256, nil, c.reader, func(r *reader, lo, hi int) error {
		for id := lo; id < hi; id++ {
			r.read(id)
			for _, x := range r.a {
				squares[id] += float64(x * x)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	ids := largest(m.all(), squares, 16*n)
	width, r := m.width(), m.coder(l, m.through).reader()
	rest := make([]float64, width)
	for _, id := range ids {
		r.read(int(id))
		for j, x := range r.row {
			rest[j] = float64(x) - float64(m.mean[j])
		}
		for i, a := range r.a {
			for j, x := range m.turn[i*width : (i+1)*width] {
				rest[j] -= float64(a * float64(x))
			}
		}
		squares[id] = 0
		for _, x := range rest {
			squares[id] += float64(x * x)
		}
	}
	return largest(ids, squares, n), nil
}

// findBeyond finds, for each block, the part of its labels' logits outside the coordinates, from
// some of the labels.
func (m *Model) findBeyond(ctx context.Context, l *softmax.Layer, starts []int) error {
	c := m.coder(l, m.outside)
	squares := make([]float64, m.blocks())
	err := parallel.With(ctx, 0, m.blocks(), 8, nil, c.reader, func(r *reader, lo, hi int) error {
		for b := lo; b < hi; b++ {
			ids := m.ids[starts[b]:starts[b+1]]
			n := min(len(ids), mostBeyond)
			for i := range n {
				r.read(int(ids[i*len(ids)/n]))
				for _, x := range r.a {
					squares[b] += float64(x*x) / float64(n)
				}
			}
		}
		return nil
	})
	mean := 0.0
	for b, x := range squares {
		mean += x * float64(m.sizes[b]) / float64(m.labels)
	}
	m.beyond = slices.Repeat([]float32{1}, m.blocks())
	for b, x := range squares {
		if mean > 0 {
			m.beyond[b] = float32(max(math.Sqrt(x/mean), leastBeyond))
		}
	}
	return err
}

// around has the memory of a goroutine that looks at the labels of a block.
type around struct {
	*reader
	*encoder
	m *Model
}
