package making

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/codes/encode"
	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/codes/linear"
	"github.com/learning-to-screen/l2s/internal/ground/parallel"
	"github.com/learning-to-screen/l2s/internal/search/previewing"
)

// reader computes the coordinates of labels from their rows. It is for one goroutine.
type reader struct {
	m      *maker
	turner previewing.Turner
	offset []float64 // the coordinates of the mean row
	row    []float32
	a      []float64 // the coordinates of a label
}

// readers returns a function that makes readers, for coordinates that are the products of rows,
// less the mean row, with some directions.
func (m *maker) readers(through []float32) func() *reader {
	width := m.Width()
	directions, offset := previewing.NewDirections(through, width), make([]float64, len(through)/width)
	for r := range offset {
		for j, x := range through[r*width : (r+1)*width] {
			offset[r] += float64(float64(x) * float64(m.Mean[j]))
		}
	}
	return func() *reader {
		return &reader{m, directions.Turner(), offset, make([]float32, width), make([]float64, len(offset))}
	}
}

// widen writes the row of a label to row, with its bias at the end if the layer has biases.
func (m *maker) widen(row []float32, id int) {
	m.layer.Weights().Widen(row[:m.Dim], id)
	if m.Biased > 0 {
		row[m.Dim] = m.layer.Bias()[id]
	}
}

// read leaves the coordinates of a label in r.a, and its row in r.row. A huge row counts as the
// mean row.
func (r *reader) read(id int) {
	r.m.widen(r.row, id)
	if r.m.huge[uint32(id)] {
		clear(r.a)
		return
	}
	r.turn()
}

// turn leaves the coordinates of r.row in r.a.
func (r *reader) turn() {
	r.turner.Turn(r.a, r.row)
	for i, x := range r.offset {
		r.a[i] -= x
	}
}

// mean leaves the coordinates of the mean of some labels in r.a.
func (r *reader) mean(ids []uint32) {
	sum := make([]float64, len(r.row))
	for _, id := range ids {
		r.m.widen(r.row, int(id))
		for j, x := range r.row {
			sum[j] += float64(x)
		}
	}
	for j, x := range sum {
		r.row[j] = float32(x / float64(len(ids)))
	}
	r.turn()
}

// eachLabel calls work for each label.
func eachLabel[S any](ctx context.Context, m *maker, fresh func() S, work func(s S, id int)) error {
	return parallel.With(ctx, 0, m.Labels, 256, nil, fresh, func(s S, lo, hi int) error {
		for id := lo; id < hi; id++ {
			work(s, id)
		}
		return nil
	})
}

const (
	someLabels = 4096 // which give the steps of codes
	finest     = 4    // codes of a coordinate
	middle     = 1.5  // the number of a code that means 0
)

// stepsOf are the steps of a code to try, in deviations of what is left of a coordinate.
var stepsOf = []float64{0.8, 0.9, 1, 1.1, 1.2, 1.35}

// code returns the number of a code for x in steps of 1/scale, and what it leaves of x.
func code(x, step, scale float64) (code byte, left float64) {
	const toInt = 3 << 51
	code = byte(math.Float64bits(min(max(float64(x*scale)+middle, 0), 2*middle) + toInt))
	return code, x - float64((float64(code)-middle)*step)
}

// scaleOf returns codes per coordinate.
func scaleOf(step float32) float64 {
	if step > 0 {
		return 1 / float64(step)
	}
	return 0
}

// residuals are what codes leave of each coordinate of some centres or labels.
type residuals struct {
	left    [][]float64 // R x centres or labels
	squares []float64   // their mean squares
	codes   []int       // of each coordinate
}

func newResiduals(coordinates, n int) *residuals {
	s := &residuals{make([][]float64, coordinates), make([]float64, coordinates), make([]int, coordinates)}
	for r := range s.left {
		s.left[r] = make([]float64, n)
	}
	return s
}

// measure finds the mean squares.
func (s *residuals) measure() {
	for r, x := range s.left {
		s.squares[r] = linear.Dot(x, x) / float64(max(len(x), 1))
	}
}

// allot gives a code to the coordinate of which most is left, at most four to one of them, and returns its
// step. There is none if no coordinate is left: the code is always 0 steps.
func (s *residuals) allot() (coordinate uint32, step float32) {
	r := -1
	for i, x := range s.squares {
		if s.codes[i] < finest && (r < 0 || x > s.squares[r]) {
			r = i
		}
	}
	if r < 0 {
		return 0, 0
	}
	least := math.Inf(1)
	for _, of := range stepsOf {
		trial, square := float32(math.Sqrt(s.squares[r])*of), 0.0
		scale := scaleOf(trial)
		for _, x := range s.left[r] {
			_, x = code(x, float64(trial), scale)
			square += float64(x * x)
		}
		if square < least {
			step, least = trial, square
		}
	}
	s.codes[r]++
	scale := scaleOf(step)
	for i, x := range s.left[r] {
		_, s.left[r][i] = code(x, float64(step), scale)
	}
	s.squares[r] = linear.Dot(s.left[r], s.left[r]) / float64(max(len(s.left[r]), 1))
	return uint32(r), step
}

// allot finds the coordinates and steps of codes, those of centres by some of these, which are coded, and the
// others by what these leave of some labels, and what each stage leaves.
func (m *maker) allot(ctx context.Context, centres []float32) error {
	m.Of, m.Steps = make([]uint32, m.Codes), make([]float32, m.Codes)
	m.Left = make([]float32, m.Stages()*m.Coordinates)
	panels := m.Panels()
	some := newResiduals(m.Coordinates, min(panels, someLabels))
	for i := range min(panels, someLabels) {
		for r, x := range centres[i*panels/len(some.left[0])*m.Coordinates:][:m.Coordinates] {
			some.left[r][i] = float64(x)
		}
	}
	some.measure()
	for c := range previewing.PanelCodes {
		m.Of[c], m.Steps[c] = some.allot()
	}
	m.encodeCentres(centres)
	inside := len(m.IDs)
	n := min(inside, someLabels)
	some = newResiduals(m.Coordinates, n)
	err := parallel.With(ctx, 0, n, 64, nil, m.readers(m.through), func(read *reader, lo, hi int) error {
		for i := lo; i < hi; i++ {
			row := i * inside / n
			read.read(int(m.IDs[row]))
			for r, x := range centres[row/kernels.PanelRows*m.Coordinates:][:m.Coordinates] {
				some.left[r][i] = read.a[r] - float64(x)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	some.measure()
	for stage := range m.Stages() {
		if stage > 0 {
			from, to := m.Stage(stage)
			for c := from; c < to; c++ {
				m.Of[c], m.Steps[c] = some.allot()
			}
		}
		for r, x := range some.squares {
			m.Left[stage*m.Coordinates+r] = float32(x)
		}
	}
	return nil
}

// centres returns the coordinates of the centres of panels: the means of their labels.
func (m *maker) centres(ctx context.Context) ([]float32, error) {
	centres := make([]float32, m.Panels()*m.Coordinates)
	return centres, parallel.With(ctx, 0, m.Panels(), 16, nil, m.readers(m.through), func(r *reader, lo, hi int) error {
		for panel := lo; panel < hi; panel++ {
			r.mean(m.IDs[panel*kernels.PanelRows : min((panel+1)*kernels.PanelRows, len(m.IDs))])
			for i, a := range r.a {
				centres[panel*m.Coordinates+i] = float32(a)
			}
		}
		return nil
	})
}

// encodeCentres makes the codes of centres, and leaves in centres what these stand for.
func (m *maker) encodeCentres(centres []float32) {
	m.Centres = make([]byte, m.Panels()*previewing.CentreBytes)
	codes := make([]byte, previewing.PanelCodes)
	for panel := range m.Panels() {
		of := centres[panel*m.Coordinates:][:m.Coordinates]
		left := make([]float64, len(of))
		for r, x := range of {
			left[r] = float64(x)
		}
		for c := range codes {
			r, step := m.Of[c], m.Steps[c]
			codes[c], left[r] = code(left[r], float64(step), scaleOf(step))
		}
		for r, x := range left {
			of[r] = float32(float64(of[r]) - x)
		}
		encode.PackCodes2(m.Centres[panel*previewing.CentreBytes:], codes)
	}
}

// coded is what codes leave of the labels of panels, in the order of Parts.IDs.
type coded struct {
	left   [][]float64 // stages: the squares of what codes leave
	rises  [][]rise    // stages
	beyond []float64   // the same, outside the coordinates
}

// rise is how what the codes of a label leave of its logit rises with the logit, in contexts that
// move along the label's own direction: the share of the logit, and what it is at the usual mark. It is
// the largest in contexts of any kind.
type rise struct{ share, atMark float32 }

// kind is what contexts of a kind have in coordinates: their mean, their covariance, and the sum of the
// variances over the one of all contexts, which stands for the part outside the coordinates too.
type kind struct {
	mean       []float64
	covariance *previewing.Directions
	variance   float64
}

// kindCoordinates is the number of coordinates that a kind has at most. It takes the further ones, which
// differ little between contexts, for the part outside the coordinates.
const kindCoordinates = 384

// kinds returns the kinds of contexts: all of the states, and each part of them.
func (m *maker) kinds(ctx context.Context, states []float32) (kinds []kind, err error) {
	n, width := min(m.Coordinates, kindCoordinates), m.Width()
	turner := previewing.NewDirections(m.Turn[:n*width], width).Turner()
	states = m.extended(states)
	all := make([]float64, len(states)/width*n) // the coordinates of all states
	for i := range len(states) / width {
		turner.Turn(all[i*n:(i+1)*n], states[i*width:(i+1)*width])
	}
	for _, part := range append([][]float64{all}, partsOf(all, n, leastOfKind)...) {
		x, mean := make([]float32, len(part)), make([]float64, n)
		for i, v := range part {
			mean[i%n] += v / float64(len(part)/n)
		}
		for i, v := range part {
			x[i] = float32(v - mean[i%n])
		}
		c, err := linear.Moments(ctx, x, n)
		if err != nil {
			return nil, err
		}
		rows, sum := make([]float32, n*n), 0.0
		for i, v := range c.X {
			if rows[i] = float32(v); i%(n+1) == 0 {
				sum += v
			}
		}
		kinds = append(kinds, kind{mean, previewing.NewDirections(rows, n), sum})
	}
	whole := kinds[0].variance
	for i := range kinds {
		kinds[i].variance /= max(whole, math.SmallestNonzeroFloat64)
	}
	return append(kinds[:1], slices.DeleteFunc(kinds[1:], func(k kind) bool { return k.variance < leastVariance })...), nil
}

const (
	// mostParts is the number of parts of the states that stand for kinds of contexts.
	mostParts = 6
	// leastOfKind is the number of states that tell the covariance of a kind along a label.
	leastOfKind = 512
	// leastVariance is the variance of a kind, over the one of all contexts, below which no label can lead in
	// it: contexts differ by rounding, or by less than a thousandth.
	leastVariance = 1e-6
)

// partsOf returns parts of row-major states or their coordinates, of at least so many rows that follow each
// other. A text to come is of one kind, as such a part is. There are none if there are too few for two.
func partsOf[F float32 | float64](x []F, dim, least int) (parts [][]F) {
	n := len(x) / dim
	if most := min(mostParts, n/least); most > 1 {
		for i := range most {
			parts = append(parts, x[i*n/most*dim:(i+1)*n/most*dim])
		}
	}
	return parts
}

// encode makes the codes of the labels of panels, and finds how what they leave rises. The direction of a
// label is M w', M the covariance of contexts of a kind.
func (m *maker) encode(ctx context.Context, kinds []kind, mark float32, centres []float32) (*coded, error) {
	n, size, inKind := len(m.IDs), m.RowBytes(), min(m.Coordinates, kindCoordinates)
	m.codes = make([]byte, n*size)
	x := &coded{left: make([][]float64, m.Stages()), rises: make([][]rise, m.Stages()), beyond: make([]float64, n)}
	for j := range x.left {
		x.left[j], x.rises[j] = make([]float64, n), make([]rise, n)
	}
	readers := m.readers(slices.Concat(m.through, m.outside))
	scales := make([]float64, len(m.Steps))
	for c, step := range m.Steps {
		scales[c] = scaleOf(step)
	}
	type worker struct {
		*reader
		codes        []byte
		along        []float32 // the coordinates of the label
		turners      []previewing.Turner
		moved        [][]float64 // the coordinates of the label's direction, by kinds
		usual, slope []float64   // the mean logit, and how it grows along the direction
	}
	fresh := func() worker {
		w := worker{readers(), make([]byte, m.Codes), make([]float32, inKind), nil, nil, make([]float64, len(kinds)), make([]float64, len(kinds))}
		for _, k := range kinds {
			w.turners, w.moved = append(w.turners, k.covariance.Turner()), append(w.moved, make([]float64, inKind))
		}
		return w
	}
	one := func(w worker, row int) {
		w.read(int(m.IDs[row]))
		a, more := w.a[:m.Coordinates], w.a[m.Coordinates:]
		for _, y := range more {
			x.beyond[row] += float64(y * y)
		}
		inside, further := a[:inKind], a[inKind:]
		for r, y := range inside {
			w.along[r] = float32(y)
		}
		outside := x.beyond[row] + linear.Dot(further, further)
		for i, k := range kinds {
			w.turners[i].Turn(w.moved[i], w.along)
			w.usual[i], w.slope[i] = linear.Dot(inside, k.mean), linear.Dot(inside, w.moved[i])+float64(outside*k.variance)
		}
		for r, y := range centres[row/kernels.PanelRows*m.Coordinates:][:m.Coordinates] {
			a[r] -= float64(y)
		}
		for j := range x.left {
			if from, to := m.Stage(j); j > 0 {
				for c := from; c < to; c++ {
					r := m.Of[c]
					w.codes[c], a[r] = code(a[r], float64(m.Steps[c]), scales[c])
				}
			}
			x.left[j][row] = linear.Dot(a, a)
			most, outside := rise{0, -math.MaxFloat32}, x.beyond[row]+linear.Dot(further, further)
			for i, k := range kinds {
				share := 0.0
				if w.slope[i] > 0 {
					share = min(max((linear.Dot(inside, w.moved[i])+float64(outside*k.variance))/w.slope[i], 0), 1)
				}
				at := linear.Dot(inside, k.mean) + float64(share*(float64(mark)-w.usual[i]))
				most = rise{max(most.share, float32(min(otherRise*share, 1))), max(most.atMark, float32(otherRise*at))}
			}
			x.rises[j][row] = most
		}
		to, from := m.codes[row*size:(row+1)*size], previewing.PanelCodes
		end := min(from+previewing.PanelCodes, m.Codes)
		encode.PackCodes2(to, w.codes[from:end])
		for c := end; c < m.Codes; c += kernels.LineCodes {
			encode.PackLine2(to[(c-from)/4:], w.codes[c:])
		}
	}
	return x, parallel.With(ctx, 0, n, 256, nil, fresh, func(w worker, lo, hi int) error {
		for row := lo; row < hi; row++ {
			one(w, row)
		}
		return nil
	})
}

const leastGauge = 0.25

// otherRise is how many times as large rises count: in texts of other kinds codes miss more of them.
const otherRise = 1.1

// nearIn is the number of coordinates, the first ones, by which labels are alike: their scores are, in all
// contexts.
const nearIn = 64

// arrange puts labels that are alike into panels, and the outliers after them: labels of which codes tell
// little. They are the huge ones, those whose coordinates are longest, and those whose rows have the longest
// part outside the coordinates. Such a row has a direction almost for itself: contexts along it are rare, so
// the coordinates leave it out. It returns the outliers.
func (m *maker) arrange(ctx context.Context) (outliers []uint32, err error) {
	width, dim := m.Width(), min(nearIn, m.Coordinates)
	near, long, far := make([]float32, m.Labels*dim), make([]float64, m.Labels), make([]float64, m.Labels)
	err = eachLabel(ctx, m, m.readers(slices.Concat(m.through[:dim*width], m.rest)), func(r *reader, id int) {
		r.read(id)
		for i, a := range r.a[:dim] {
			near[id*dim+i] = float32(a)
		}
		long[id], far[id] = linear.Dot(r.a[:dim], r.a[:dim]), linear.Dot(r.a[dim:], r.a[dim:])
	})
	if err != nil {
		return nil, err
	}
	apart := make([]bool, m.Labels)
	for id := range m.huge {
		apart[id] = true
	}
	n := min(mostOutliers, m.Labels/labelsPerOutlier) / 2
	for _, id := range append(m.farthest(far, n), largest(m.all(), long, n)...) {
		apart[id] = true
	}
	for id, is := range apart {
		if !is {
			m.IDs = append(m.IDs, uint32(id))
		} else {
			outliers = append(outliers, uint32(id))
		}
	}
	m.Outliers = m.Labels - len(m.IDs)
	alike(m.IDs, near, dim)
	for panel := range slices.Chunk(m.IDs, kernels.PanelRows) {
		slices.Sort(panel)
	}
	return outliers, nil
}

// bound finds how far the labels of panels may be from their scores after a stage: of a panel the largest
// gauge, share and level, and of each label after the first stage its part of the panel's distance. The
// rise of a panel is the largest one of its labels in a context of a usual mark, and above that.
func (m *maker) bound(x *coded, j int, mark float32) {
	panels, left, rises := m.Panels(), x.left[j], x.rises[j]
	mean := 0.0
	for row, y := range left {
		mean += (y + x.beyond[row]) / float64(len(left))
	}
	gauge := func(row int) float32 {
		if mean > 0 {
			return max(leastGauge, float32(math.Sqrt((left[row]+x.beyond[row])/mean)))
		}
		return leastGauge
	}
	near := make([]byte, panels*kernels.PanelRows)
	for panel := range panels {
		first, end := panel*kernels.PanelRows, min((panel+1)*kernels.PanelRows, len(left))
		most, largest := rise{0, -math.MaxFloat32}, float32(leastGauge)
		for row := first; row < end; row++ {
			largest = max(largest, gauge(row))
			most = rise{max(most.share, rises[row].share), max(most.atMark, rises[row].atMark)}
		}
		level := float32(0)
		if most.share > 0 {
			level = max(mark-most.atMark/most.share, -math.MaxFloat32)
		}
		m.ResidualScale, m.Shares, m.Levels = append(m.ResidualScale, largest), append(m.Shares, most.share), append(m.Levels, level)
		for row := first; row < end; row++ {
			part := float64(gauge(row) / largest)
			if most.share > 0 {
				part = max(part, float64(rises[row].share/most.share))
			}
			if most.atMark > 0 {
				part = max(part, float64(rises[row].atMark/most.atMark))
			}
			near[row] = byte(min(math.Ceil(float64(part*previewing.Farthest)), previewing.Farthest))
		}
	}
	if j > 0 {
		m.Near = append(m.Near, near...)
	}
}

// alike puts labels that are alike next to each other, in places that whole panels share: it splits
// them into halves along the direction in which they differ most, and each half again.
func alike(ids []uint32, x []float32, dim int) {
	if len(ids) <= kernels.PanelRows {
		return
	}
	axis := principal(ids, x, dim)
	list := make([]along, len(ids))
	for i, id := range ids {
		list[i] = along{id: id}
		for r, v := range x[int(id)*dim:][:dim] {
			list[i].at += float64(axis[r] * float64(v))
		}
	}
	half := (len(ids)/2 + kernels.PanelRows - 1) / kernels.PanelRows * kernels.PanelRows
	halve(list, half)
	for i, a := range list {
		ids[i] = a.id
	}
	alike(ids[:half], x, dim)
	alike(ids[half:], x, dim)
}

// along is a label on a line.
type along struct {
	id uint32
	at float64
}

func (a along) less(b along) bool { return a.at < b.at || a.at == b.at && a.id < b.id }

const (
	sampledIn  = 512 // labels that tell in which direction a half differs most
	axisRounds = 6
)

// principal returns the direction in which labels differ most, about: a few rounds of the power method,
// from the coordinate in which they do.
func principal(ids []uint32, x []float32, dim int) (axis []float64) {
	n := min(len(ids), sampledIn)
	rows, mean := make([]float64, n*dim), make([]float64, dim)
	for i := range n {
		for r, v := range x[int(ids[i*len(ids)/n])*dim:][:dim] {
			rows[i*dim+r] = float64(v)
			mean[r] += float64(v) / float64(n)
		}
	}
	squares := make([]float64, dim)
	for i := range rows {
		rows[i] -= mean[i%dim]
		squares[i%dim] += float64(rows[i] * rows[i])
	}
	axis = make([]float64, dim)
	axis[slices.Index(squares, slices.Max(squares))] = 1
	for range axisRounds {
		next := make([]float64, dim)
		for row := range slices.Chunk(rows, dim) {
			linear.Axpy(next, linear.Dot(row, axis), row)
		}
		length := math.Sqrt(linear.Dot(next, next))
		if !(length > 0) || math.IsInf(length, 1) {
			break
		}
		for r := range next {
			axis[r] = next[r] / length
		}
	}
	return axis
}

// halve puts the n smallest labels before the others.
func halve(list []along, n int) {
	for len(list) > 1 && n > 0 && n < len(list) {
		pivot := list[len(list)/2]
		i, j := 0, len(list)-1
		for i <= j {
			for list[i].less(pivot) {
				i++
			}
			for pivot.less(list[j]) {
				j--
			}
			if i <= j {
				list[i], list[j] = list[j], list[i]
				i, j = i+1, j-1
			}
		}
		switch {
		case n <= j:
			list = list[:j+1]
		case n >= i:
			list, n = list[i:], n-i
		default:
			return
		}
	}
}

// all returns all labels.
func (m *maker) all() []uint32 {
	ids := make([]uint32, m.Labels)
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

const (
	hugeLength    = 16 // times the median
	labelsPerHuge = 64 // at least
)

// findHuge finds labels whose rows, with their biases, are much longer than most: a few of them
// would decide the mean row, the coordinates and the panels of all others.
func (m *maker) findHuge(ctx context.Context) error {
	n := m.Labels / labelsPerHuge
	if n == 0 {
		return nil
	}
	squares := make([]float64, m.Labels)
	err := eachLabel(ctx, m, func() []float32 { return make([]float32, m.Width()) }, func(row []float32, id int) {
		m.widen(row, id)
		for _, x := range row {
			squares[id] += float64(float64(x) * float64(x))
		}
	})
	if err != nil {
		return err
	}
	median := slices.Sorted(slices.Values(squares))[m.Labels/2]
	m.huge = map[uint32]bool{}
	for _, id := range largest(m.all(), squares, n) {
		if median > 0 && squares[id] > hugeLength*hugeLength*median {
			m.huge[id] = true
		}
	}
	return nil
}

const (
	mostOutliers     = 64
	labelsPerOutlier = 512 // at least
)

// farthest returns the n labels whose rows have the longest part outside the coordinates, some of
// those of which probes say so.
func (m *maker) farthest(squares []float64, n int) []uint32 {
	if n == 0 {
		return nil
	}
	ids := largest(m.all(), squares, 16*n)
	width, r := m.Width(), m.readers(m.through)()
	rest := make([]float64, width)
	for _, id := range ids {
		r.read(int(id))
		for j, x := range r.row {
			rest[j] = float64(x) - float64(m.Mean[j])
		}
		for i, a := range r.a {
			for j, x := range m.Turn[i*width : (i+1)*width] {
				rest[j] -= float64(a * float64(x))
			}
		}
		squares[id] = 0
		for _, x := range rest {
			squares[id] += float64(x * x)
		}
	}
	return largest(ids, squares, n)
}
