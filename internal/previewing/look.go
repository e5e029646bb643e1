package previewing

import (
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/exact"
	"github.com/learning-to-screen/l2s/internal/kernels"
)

// Look finds the labels to score in full by previews: of the centres of all blocks, and of the
// labels of the blocks that may hold one of the best. It is for one goroutine.
type Look struct {
	Stats Stats
	IDs   []uint32 // the labels to score in full

	// Of the context.
	Sigma  float64 // deviation of the part outside the coordinates
	Norm   float64 // ||h||, if the layer has biases
	Length float64 // root mean square of the coordinates
	Rest   float64 // the log-sum over the labels that are not scored in full, if the request wants it

	Centre []float32 // of each block: the preview of its centre
	Reach  []float32 // of each block: the largest preview that its best label may have, in the first look
	Limit  float32   // the reach from which on blocks were looked at
	Scores []float32 // the previews of the rows that were looked at; -Inf without a label that may be answered

	model     *Model
	parts     *Parts
	layer     *exact.Layer
	turner    Turner
	x         []float32 // the context, and 1 if the layer has biases
	z         []float64 // its coordinates and probes
	v         []float64 // the coordinates in steps
	high, low []int8
	codes     []int8
	excess    int32     // of the codes
	scale     float32   // of the codes of labels
	beyond    float32   // the largest of the model
	wide      []float32 // Reach, by the reach of the rung
	picked    []uint32  // blocks
	seen      []bool    // blocks
	scores    []float32 // room for Scores
	panels    []uint32  // the panel of each 16 of them
	rows      []uint32
	scratch   []float32
	ruled     []ruled // labels that were ruled out
}

const (
	firstShare  = 0.004 // of the blocks: looked at first
	secondShare = 0.04  // of the blocks: looked at before all others of a search for more
	firstReach  = 2
	fewestFirst = 8
	// behind is the number of labels, by their previews, between the k-th best and the mark. It
	// shows how close the labels are there, which the best alone do not show.
	behind = 15

	// A context whose part outside the coordinates is larger than in 99 of 100 held-out ones is of a
	// kind that nothing was measured for. So is a shorter one than 99 of 100, if the layer has biases:
	// these decide then. A search about it looks farther than its rung, by a factor, and at least
	// this far.
	FarTimes      = 1.2
	FarReach      = 8
	FarDeviations = 5
	// If that part is larger by another half, the exact layer answers: real texts of languages that
	// nothing was measured for stay below, and the labels of such a context may be alone in it.
	tooFar = 1.5

	// maxLost is the share of the squares of the coordinates, in steps, that the rounding of a context
	// may take: of states it takes a millionth, of a context with one huge element all.
	maxLost = 1e-4

	// A request for many labels may miss a share of them, and its best are far above its mark. So it
	// looks less far than a request for few labels, by these factors from manyLabels on.
	fewLabels, manyLabels = 5, 40
	manyReach             = 0.92
	manyDeviations        = 0.8
)

var none = float32(math.Inf(-1))

// ruled is a label that may not be answered, or has a bias.
type ruled struct {
	row   uint32
	score float32 // its preview
}

func newLook(m *Model) Look {
	p, rows, blocks := m.parts, len(m.slots), kernels.PanelsOf(m.parts.Blocks)*kernels.PanelRows
	l := Look{
		model: m, parts: p, turner: m.turn.Turner(), beyond: slices.Max(p.Beyond),
		x: make([]float32, p.Width()), z: make([]float64, p.Coordinates+p.Probes), v: make([]float64, p.Coordinates),
		high: make([]int8, p.Centred), low: make([]int8, p.Centred), codes: make([]int8, p.Coordinates),
		Centre: make([]float32, blocks), Reach: make([]float32, p.Blocks), wide: make([]float32, p.Blocks),
		picked: make([]uint32, p.Blocks), seen: make([]bool, p.Blocks), scratch: make([]float32, rows),
		scores: make([]float32, rows), panels: make([]uint32, len(m.owner)), rows: make([]uint32, rows),
		IDs: make([]uint32, 0, rows+p.Outliers),
	}
	for i := range p.Biased {
		l.x[p.Dim+i] = 1
	}
	return l
}

// Find leaves the labels to score in full for the k best of a context in l.IDs, by the distances of
// a rung. It reports false if the exact layer is to answer.
func (l *Look) Find(h []float32, k int, req *exact.Request, rung *Rung) bool {
	k = max(k, 1)
	if !l.Coordinates(h) || l.Norm < l.parts.Short/2 { // by biases more than by coordinates
		return false
	}
	far := l.IsFar()
	if far && (req.LogSum || l.parts.Far > 0 && l.Sigma > tooFar*l.parts.Far) {
		return false // no held-out context tells what is missed, or the error of an estimate
	}
	reach, deviations := rung.distances(k, far)
	if far {
		l.Stats.Far++
	}
	// The first look gives the mark, the preview that the others must reach.
	l.First(k, req)
	mark := l.Mark(k, req)
	if mark == none {
		return false
	}
	if rank := l.rank(k); rank > k+behind {
		l.nearest(min(len(l.Reach), max(shareOf(firstShare, len(l.Reach)), rank/8)), req)
		mark = l.Mark(k, req)
	}
	// The second look is at the blocks that may reach it. The best of many of these raise it first.
	distance := float32(min(reach*l.Length, math.MaxFloat32))
	for b, c := range l.Centre[:len(l.wide)] {
		l.wide[b] = c + float32(distance*l.parts.Radii[b])
	}
	n := kernels.SelectAtLeast(l.picked, l.wide, mark)
	if some := shareOf(secondShare, len(l.wide)); n > some {
		l.nearest(some, req)
		mark = l.Mark(k, req)
		n = kernels.SelectAtLeast(l.picked, l.wide, mark)
	}
	before := len(l.Scores)
	l.scan(l.unseen(n), req)
	for len(l.Scores) > before {
		looked := mark
		if mark = l.Mark(k, req); mark >= looked {
			break
		}
		// More labels are ruled out, and lower the mark.
		before, n = len(l.Scores), kernels.SelectAtLeast(l.picked, l.wide, mark)
		l.scan(slices.DeleteFunc(l.unseen(n), func(b uint32) bool { return l.wide[b] >= looked }), req)
	}
	l.Stats.Looked += uint64(min(len(l.Scores), l.parts.Labels)) // rows without a label are among them
	// The labels near the mark.
	rows := l.Near(mark, float64(deviations*l.Sigma))
	if len(rows) > l.parts.Crowd(k) {
		l.Stats.Crowded++
		return false
	}
	l.choose(rows, req)
	if req.LogSum {
		l.Rest = l.outside(req, rows, mark)
	}
	return len(l.IDs) >= k || req.Within > 0 && len(l.IDs) > 0
}

// Coordinates computes the coordinates of a context, its part outside them, and the previews of the
// centres of all blocks. It reports false for a context whose numbers are too large or too small,
// or one of which is so large that others are lost in its rounding.
func (l *Look) Coordinates(h []float32) bool {
	p := l.parts
	copy(l.x, h)
	if p.Biased > 0 {
		l.Norm = math.Sqrt(kernels.RefDot(h, h))
	}
	lost := l.turner.Turn(l.z, l.x)
	square := 0.0
	for _, x := range l.z[p.Coordinates:] {
		square += float64(x * x)
	}
	largest, inside := 0.0, 0.0
	for r, z := range l.z[:p.Coordinates] {
		square += float64(float64(z*z) * float64(p.Noise[r]))
		l.v[r] = float64(z * float64(p.Steps[r]))
		inside += float64(l.v[r] * l.v[r])
		largest = max(largest, math.Abs(l.v[r]))
	}
	l.Sigma, l.scale = math.Sqrt(square), float32(largest/127)
	if !(lost*l.model.square <= maxLost*inside && l.Sigma < 0x1p100 && l.scale > 0x1p-100 && l.scale < 0x1p100) {
		return false
	}
	for r, x := range l.v {
		l.codes[r] = int8(math.RoundToEven(x * (127 / largest)))
	}
	l.excess = kernels.Excess42(l.codes, p.Fine)
	square = 0
	for j, z := range l.z[:p.Centred] {
		square += float64(z * z)
		l.v[j] = float64(z * float64(p.Axes[j]))
	}
	l.Length = math.Sqrt(square / float64(p.Centred))
	step := kernels.Planes7(l.high, l.low, l.v[:p.Centred])
	kernels.Scores7(l.Centre, l.model.centres, l.high, l.low, step)
	return step > 0
}

// IsFar reports whether a search about the context looks farther.
func (l *Look) IsFar() bool {
	return l.parts.Far > 0 && l.Sigma > l.parts.Far || l.Norm < l.parts.Short
}

// distances returns the reach and the deviations of a rung for k labels.
func (r *Rung) distances(k int, far bool) (reach, deviations float64) {
	x := float64(min(max(k-fewLabels, 0), manyLabels-fewLabels)) / (manyLabels - fewLabels)
	reach = float64(r.Reach * (1 - float64((1-manyReach)*x)))
	deviations = float64(r.Deviations * (1 - float64((1-manyDeviations)*x)))
	if far {
		return max(float64(reach*FarTimes), FarReach), max(float64(deviations*FarTimes), FarDeviations)
	}
	return reach, deviations
}

// shareOf returns a share of n blocks, at least a few.
func shareOf(share float64, n int) int { return min(n, max(fewestFirst, int(share*float64(n)))) }

// First looks at the blocks that reach farthest in the first look, whose best labels give the mark.
func (l *Look) First(k int, req *exact.Request) {
	near := float32(firstReach * l.Length)
	for b, c := range l.Centre[:len(l.Reach)] {
		l.Reach[b] = c + float32(near*l.parts.Radii[b])
	}
	l.Scores, l.ruled = l.scores[:0], l.ruled[:0]
	l.nearest(min(len(l.Reach), max(shareOf(firstShare, len(l.Reach)), k/8)), req)
}

// nearest looks at the n blocks of the largest Reach, unless they were looked at.
func (l *Look) nearest(n int, req *exact.Request) {
	limit := l.kth(l.Reach, n)
	if len(l.Scores) > 0 {
		limit = min(limit, l.Limit)
	}
	n = kernels.SelectAtLeast(l.picked, l.Reach, limit)
	l.scan(l.unseen(n), req)
	l.Limit = limit
}

// unseen returns the first n picked blocks, without the blocks that were looked at.
func (l *Look) unseen(n int) []uint32 {
	if len(l.Scores) == 0 {
		return l.picked[:n]
	}
	left := l.picked[:0]
	for _, b := range l.picked[:n] {
		if l.Reach[b] < l.Limit {
			left = append(left, b)
		}
	}
	return left
}

// All looks at all blocks, in their order.
func (l *Look) All() {
	for b := range l.picked {
		l.picked[b] = uint32(b)
	}
	l.Scores = l.scores[:0]
	l.scan(l.picked, &exact.Request{})
}

// scan adds the previews of the labels of some blocks to Scores.
func (l *Look) scan(blocks []uint32, req *exact.Request) {
	m, p := l.model, l.parts
	size, before := p.RowBytes()*kernels.PanelRows, len(l.Scores)
	for i, b := range blocks {
		first, end, from := int(m.first[b]), int(m.first[b+1]), len(l.Scores)
		next := m.codes[first*size:]
		if i+1 < len(blocks) {
			next = m.codes[int(m.first[blocks[i+1]])*size:]
		}
		l.Scores = l.scores[:from+(end-first)*kernels.PanelRows]
		scores := l.Scores[from:]
		kernels.Scores42(scores, m.codes[first*size:end*size], next, l.codes, p.Fine, l.excess, l.Centre[b], float32(l.scale*p.Gauges[b]))
		for j := int(p.Sizes[b]); j < len(scores); j++ {
			scores[j] = none
		}
		for panel := first; panel < end; panel++ {
			l.panels[from/kernels.PanelRows+panel-first] = uint32(panel)
		}
	}
	if exact.Edits(req) {
		l.permit(req, before)
	}
}

// permit rules out the labels of the rows from one on that may not be answered, or have biases.
func (l *Look) permit(req *exact.Request, from int) {
	for at := from; at < len(l.Scores); at += kernels.PanelRows {
		for j, id := range l.model.slots[l.panels[at/kernels.PanelRows]*kernels.PanelRows:][:kernels.PanelRows] {
			if id == noLabel {
				continue
			}
			if _, biased := exact.BiasOf(req, id); biased || !exact.Permits(req, id) {
				l.ruled = append(l.ruled, ruled{uint32(at + j), l.Scores[at+j]})
				l.Scores[at+j] = none
			}
		}
	}
}

// rank returns the place of the mark among all labels. Without edits it is some places after the
// k-th. Labels below others that are ruled out lie closer together: the mark is as far below the k
// best that may be answered, on average, if its place is as many times as far down as theirs.
func (l *Look) rank(k int) int {
	if len(l.ruled) == 0 {
		return k + behind
	}
	last, above := l.kth(l.Scores, k), 0
	for _, x := range l.ruled {
		if x.score >= last {
			above++
		}
	}
	if above == 0 {
		return k + behind
	}
	times := 0.0 // the log of how many times as far down each of the k is
	for j := range k {
		times += kernels.Log(1 + float64(above)/float64(j+1))
	}
	return int(float64(k+behind) * kernels.Exp(times/float64(k)))
}

// Mark returns the preview of the label of that rank, of those that were looked at: of a request
// with a distance at least as far above as this is from the best. It is -Inf if there are fewer
// than k.
func (l *Look) Mark(k int, req *exact.Request) float32 {
	if len(l.Scores) < k {
		return none
	}
	rank := l.rank(k)
	if rank > k+behind {
		for _, x := range l.ruled {
			l.Scores[x.row] = x.score
		}
	}
	mark := l.kth(l.Scores, min(rank, len(l.Scores)))
	if rank > k+behind {
		for _, x := range l.ruled {
			l.Scores[x.row] = none
		}
	}
	if req.Within > 0 && k > 1 {
		best := l.Mark(1, req)
		if l.layer.SoftCap() != 0 {
			return max(mark, l.layer.Down(best, req.Within))
		}
		mark = max(mark, best-float32(min(req.Within/l.layer.Scale(), math.MaxFloat32)))
	}
	return mark
}

// kth returns the k-th largest of some scores.
func (l *Look) kth(scores []float32, k int) float32 {
	few := l.scratch[:0]
	if bound, ok := kernels.KthBound(scores, k); ok && bound != none {
		for _, row := range l.rows[:kernels.SelectAtLeast(l.rows, scores, bound)] {
			few = append(few, scores[row])
		}
	} else {
		few = append(few, scores...)
	}
	return kernels.KthLargest(few, k)
}

// Near returns the rows whose labels may reach the mark: their distance below it is at most far
// times the factor of their block. Rows without a label, and labels that may not be answered, are
// at -Inf.
func (l *Look) Near(mark float32, far float64) []uint32 {
	least := func(factor float32) float32 {
		return float32(max(float64(mark)-float64(far*float64(factor)), -math.MaxFloat32))
	}
	rows := l.rows[:kernels.SelectAtLeast(l.rows, l.Scores, least(l.beyond))]
	n := 0
	for _, row := range rows {
		rows[n] = row
		if l.Scores[row] >= least(l.parts.Beyond[l.BlockOf(row)]) {
			n++
		}
	}
	return rows[:n]
}

// choose leaves the labels of rows in l.IDs, with the outliers and the labels with biases, which
// permit has left out.
func (l *Look) choose(rows []uint32, req *exact.Request) {
	l.IDs = l.IDs[:0]
	for _, row := range rows {
		l.IDs = append(l.IDs, l.idOf(row))
	}
	for _, id := range l.parts.IDs[l.parts.Labels-l.parts.Outliers:] {
		if _, biased := exact.BiasOf(req, id); !biased && exact.Permits(req, id) {
			l.IDs = append(l.IDs, id)
		}
	}
	for _, b := range req.Biases {
		if exact.Permits(req, b.ID) {
			l.IDs = append(l.IDs, b.ID)
		}
	}
}

// idOf returns the label of a row.
func (l *Look) idOf(row uint32) uint32 {
	return l.model.slots[l.panels[row/kernels.PanelRows]*kernels.PanelRows+row%kernels.PanelRows]
}

// BlockOf returns the block of a row.
func (l *Look) BlockOf(row uint32) uint32 { return l.model.owner[l.panels[row/kernels.PanelRows]] }
