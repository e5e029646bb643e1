package previewing

import (
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/codes/kernels"
	"github.com/learning-to-screen/l2s/internal/search/exact"
)

// Look finds the labels to score in full by previews, in stages: each adds some codes of the labels
// of the panels that may still hold one of the best. It is for one goroutine.
type Look struct {
	Stats Stats
	IDs   []uint32 // the labels to score in full

	// Of the context. Scores are in steps: Scale takes them to logits.
	Spread []float64 // stages: deviation of what labels have beyond the codes up to a stage
	Norm   float64   // ||h||, if the layer has biases
	Scale  float32
	Mark   float32   // the score that the others must reach
	Rest   float64   // the log-sum over the labels that are not scored in full, if the request wants it
	Rows   []uint32  // places in Parts.IDs of the labels that all stages looked at
	Scores []float32 // of these; -Inf for a label that may not be answered

	model  *Model
	parts  *Parts
	layer  *exact.Layer
	turner Turner
	x      []float32 // the context, and 1 if the layer has biases
	z      []float64 // its coordinates and probes
	v      []float64 // the coordinates in the steps of codes
	codes  []int8
	panels []float32   // the scores of the centres of panels, and of places that the last panel of centres has besides
	wide   []float32   // of each panel: its score, and how far its labels may be from it
	far    [][]float32 // stages: of each panel, after the later stages: how far its labels may be, in 255ths; zeros for the first
	list   []uint32    // panels
	rows   []uint32    // room for Rows
	room   []float32   // for Scores
	least  []float32   // of each of Rows: the score with which it stays after the next lines
	left   [][]float32 // stages but the last: of a log-sum: the scores of what a stage left out: of panels, and then of rows
	places []uint32
	few    []float32
	ruled  []ruled // labels that were ruled out in the first look
}

const (
	// The first look takes the best panels by the first stage: a share of all panels, and the fewest.
	markShare, fewestMark = 0.02, 48
	// Of their labels it takes so many times the place of the mark by all stages.
	markTimes = 4
	// Behind is the number of labels, by their previews, between the k-th best of these and the mark,
	// which shows how close labels are there. Searches for at most Many labels have the same mark, and
	// find the same labels. In requests with a distance from the best label the one that many places
	// behind stands for it, because the previews of a few labels may be too high.
	Behind, Many = 16, 40
	// maxLost is the share of the squares of the coordinates, in steps, that the rounding of a context
	// may take: of states it takes a millionth, of a context with one huge element all.
	maxLost = 1e-4
)

var none = float32(math.Inf(-1))

// ruled is a label that may not be answered, or has a bias.
type ruled struct {
	row   uint32 // of l.Scores
	score float32
}

func newLook(m *Model) Look {
	p := m.parts
	panels := p.Panels()
	rows, centres := panels*kernels.PanelRows, kernels.PanelsOf(panels)*kernels.PanelRows
	l := Look{
		model: m, parts: p, turner: m.turn.Turner(),
		x: make([]float32, p.Width()), z: make([]float64, p.Coordinates+p.Probes), v: make([]float64, p.Codes), codes: make([]int8, p.Codes),
		panels: make([]float32, centres)[:panels], wide: make([]float32, panels), list: make([]uint32, panels),
		rows: make([]uint32, 2*rows), room: make([]float32, 2*rows), least: make([]float32, 2*rows),
		Spread: make([]float64, p.Stages()), far: make([][]float32, p.Stages()), left: make([][]float32, p.Stages()-1),
		places: make([]uint32, rows), few: make([]float32, rows), IDs: make([]uint32, 0, rows+p.Outliers),
	}
	for i := range p.Biased {
		l.x[p.Dim+i] = 1
	}
	for j := range l.far {
		l.far[j] = make([]float32, panels)
	}
	return l
}

// Find leaves the labels to score in full for the k best of a context in l.IDs, by the distances of
// a rung. It reports false if the exact layer is to answer.
//
// The mark does not depend on the rung, nor on a k up to Many. So a rung with larger distances
// keeps what others keep, and searches for few labels and for more find the same ones.
func (l *Look) Find(h []float32, k int, req *exact.Request, rung *Rung) bool {
	k = max(k, 1)
	if !l.Coordinates(h) || l.Norm < l.parts.MinNorm/2 { // by biases more than by coordinates
		return false
	}
	if l.IsFar() {
		l.Stats.Far++
		if req.LogSum {
			return false // no held-out context tells the error of an estimate
		}
	}
	if l.First(k, req); l.Mark == none {
		return false
	}
	l.narrow(rung.Reach, req.LogSum)
	l.permit(req)
	rows := l.Near(rung.Deviations)
	if len(rows) > l.parts.Crowd(k) {
		l.Stats.Crowded++
		return false
	}
	l.choose(rows, req)
	if req.LogSum {
		l.Rest = l.outside(req, rows, rung.Reach)
	}
	return len(l.IDs) >= k || req.Within > 0 && len(l.IDs) > 0
}

// Coordinates computes the coordinates of a context, and its part outside them. It reports false
// for a context whose numbers are too large or too small, or one of which is so large that others
// are lost in its rounding.
func (l *Look) Coordinates(h []float32) bool {
	p := l.parts
	copy(l.x, h)
	if p.Biased > 0 {
		l.Norm = math.Sqrt(kernels.RefDot(h, h))
	}
	lost := l.turner.Turn(l.z, l.x)
	outside := 0.0
	for _, x := range l.z[p.Coordinates:] {
		outside += float64(x * x)
	}
	for j := range l.Spread {
		square := outside
		for r, left := range p.Left[j*p.Coordinates : (j+1)*p.Coordinates] {
			square += float64(float64(l.z[r]*l.z[r]) * float64(left))
		}
		l.Spread[j] = math.Sqrt(square)
	}
	largest, inside := 0.0, 0.0
	for c, step := range p.Steps {
		l.v[c] = float64(l.z[p.Of[c]] * float64(step))
		inside += float64(l.v[c] * l.v[c])
		largest = max(largest, math.Abs(l.v[c]))
	}
	l.Scale = float32(largest / 127)
	if !(lost*l.model.square <= maxLost*inside && l.Spread[0] < 0x1p100 && l.Scale > 0x1p-100 && l.Scale < 0x1p100) {
		return false
	}
	for c, x := range l.v {
		l.codes[c] = int8(math.RoundToEven(x * (127 / largest)))
	}
	return true
}

// last returns the last stage.
func (l *Look) last() int { return len(l.Spread) - 1 }

// Square returns the square of the deviation of what labels have beyond all their codes.
func (l *Look) Square() float64 { return float64(l.Spread[l.last()] * l.Spread[l.last()]) }

// IsFar reports whether a context's part outside the codes is larger than in 99 of 100 held-out
// ones.
func (l *Look) IsFar() bool {
	far := l.parts.Far[l.last()]
	return far > 0 && l.Spread[l.last()] > far
}

// Unit returns the distance after a stage that a setting of 1 means, in steps, for a panel of gauge
// 1. It grows faster than a spread that hardly a held-out context has: such a context is of a kind
// that nothing was measured for.
func (l *Look) Unit(j int) float64 {
	unit := l.Spread[j] / float64(l.Scale)
	if far := l.parts.Far[j]; far > 0 {
		unit *= max(1, l.Spread[j]/far)
	}
	return unit
}

// Gauge returns the gauge of a panel after a stage.
func (l *Look) Gauge(j int, panel uint32) float64 {
	return float64(l.parts.ResidualScale[j*len(l.panels)+int(panel)])
}

// lookFirst scores all panels by their centres.
func (l *Look) lookFirst() {
	from, to := l.parts.Stage(0)
	l.looked(0, len(l.panels))
	kernels.Scores2(l.panels[:cap(l.panels)], l.model.tables[0], l.codes[from:to], kernels.Excess2(l.codes[from:to]))
}

// pick looks at the labels of some panels, ascending, and writes the rows that may reach a mark to the room of
// l.Rows from a place on, with their scores, and with the scores that they stay with after the next stage.
func (l *Look) pick(at int, panels []uint32, mark float32) (found int) {
	from, to := l.parts.Stage(1)
	l.looked(1, len(panels)*kernels.PanelRows)
	now, then := l.near(1), l.near(2)
	if mark == none { // the distances are of an earlier context
		now.Far, then.Far = l.far[0], l.far[0]
	}
	found = kernels.Select2(l.rows[at:], l.room[at:], l.least[at:], l.panels, now, then, l.model.tables[1], panels, l.codes[from:to], kernels.Excess2(l.codes[from:to]), mark)
	for found > 0 && int(l.rows[at+found-1]) >= l.parts.Labels-l.parts.Outliers { // places of the last panel that have no label
		found--
	}
	return found
}

// near returns how far rows may be from their scores after a later stage.
func (l *Look) near(j int) kernels.Near2 {
	n := len(l.panels) * kernels.PanelRows
	return kernels.Near2{Far: l.far[j], Near: l.parts.Near[(j-1)*n : j*n]}
}

// farOf returns how far a row may be from its score.
func farOf(near kernels.Near2, row uint32) float32 {
	return float32(near.Far[row/kernels.PanelRows] * float32(near.Near[row]))
}

// looked counts the codes of a stage of some rows.
func (l *Look) looked(j, rows int) {
	from, to := l.parts.Stage(j)
	l.Stats.Looked += uint64(min(rows, l.parts.Labels) * (to - from) / l.parts.Codes)
}

// refine adds the codes of a later stage to the scores of some rows.
func (l *Look) refine(j int, rows []uint32, scores []float32) {
	p := l.parts
	if from, to := p.Stage(j); from < to {
		l.looked(j, len(rows))
		kernels.Lines2(scores, l.model.tables[j], rows, l.codes[from:to], kernels.Excess2(l.codes[from:to]))
	}
}

// First looks at all panels by the first stage, and at the best labels by all stages, which give the
// mark: the preview of the label some places behind the k-th best, for few as for Many. It is -Inf if
// there are fewer than k. With a distance it is at most that far below the best, about.
func (l *Look) First(k int, req *exact.Request) {
	k = max(k, 1)
	l.lookFirst()
	rank := max(k, Many) + Behind
	for looked := 0; looked < len(l.panels) && rank > kernels.PanelRows*looked/markTimes; {
		looked = min(len(l.panels), max(shareOf(markShare, fewestMark, len(l.panels)), (markTimes*rank+kernels.PanelRows-1)/kernels.PanelRows))
		l.deepen(looked, markTimes*rank)
		l.ruleOut(req)
		rank = l.rank(k)
	}
	if l.Mark = none; len(l.Scores) < k || l.kth(l.Scores, k) == none {
		return
	}
	for _, x := range l.ruled {
		l.Scores[x.row] = x.score
	}
	l.Mark = l.kth(l.Scores, min(rank, len(l.Scores)))
	for _, x := range l.ruled {
		l.Scores[x.row] = none
	}
	if req.Within > 0 && k > 1 {
		l.Mark = max(l.Mark, l.below(l.kth(l.Scores, min(Behind, len(l.Scores))), req.Within))
	}
}

// deepen looks at the best n panels or more by the second stage, and at the best rows of these by all stages.
func (l *Look) deepen(n, rows int) {
	list := l.list[:kernels.SelectAtLeast(l.list, l.panels, l.kth(l.panels, n))]
	found := l.pick(0, list, none)
	bound, kept := max(l.kth(l.room[:found], min(rows, found)), -math.MaxFloat32), 0
	for _, i := range l.places[:kernels.SelectAtLeast(l.places, l.room[:found], bound)] { // i >= kept
		l.rows[kept], l.room[kept] = l.rows[i], l.room[i]
		kept++
	}
	l.Rows, l.Scores = l.rows[:kept], l.room[:kept]
	for j := PanelStages; j <= l.last(); j++ {
		l.refine(j, l.Rows, l.Scores)
	}
}

// rank returns the place of the mark among all labels. Without edits it is some places after the
// k-th. Labels below others that are ruled out lie closer together: the mark is as far below the k
// best that may be answered, on average, if its place is as many times as far down as theirs.
func (l *Look) rank(k int) int {
	rank, above := max(k, Many)+Behind, 0
	if len(l.ruled) == 0 || len(l.Scores) < k {
		return rank
	}
	last := l.kth(l.Scores, k)
	for _, x := range l.ruled {
		if x.score >= last {
			above++
		}
	}
	times := 0.0 // the log of how many times as far down each of the k is
	for j := range k {
		times += kernels.Log(1 + float64(above)/float64(j+1))
	}
	return max(rank, int(float64(k+Behind)*kernels.Exp(times/float64(k))))
}

// below returns a score that is a distance of final logits below another one, or more.
func (l *Look) below(score float32, distance float64) float32 {
	if l.layer.SoftCap() != 0 {
		return float32(l.layer.Down(float32(score*l.Scale), distance) / l.Scale)
	}
	return score - float32(min(distance/(l.layer.Scale()*float64(l.Scale)), math.MaxFloat32))
}

// shareOf returns a share of n panels, at least a few.
func shareOf(share float64, few, n int) int { return min(n, max(few, int(share*float64(n)))) }

// reach writes to l.far how far the labels of each panel may be from their scores after a later stage.
func (l *Look) reach(j int, reach float64) {
	clear(l.far[j])
	l.addReach(l.far[j], j, reach, Farthest)
}

// addReach adds to dst how far the labels of each panel may be from their scores after a stage, by the
// reach, or after the last stage by the deviations, in parts of a number. It is the larger one of two
// distances. What codes leave of a label in any context is like a normal deviation. A context in which a
// label leads has more of the label's own direction: its logit rose from a level to the mark, and codes
// miss a share of that.
func (l *Look) addReach(dst []float32, j int, reach, parts float64) {
	p, n := l.parts, len(l.panels)
	gauge, share, level := p.ResidualScale[j*n:(j+1)*n], p.Shares[j*n:(j+1)*n], p.Levels[j*n:(j+1)*n]
	unit := l.Unit(j) / parts
	margin := p.Margins[j]
	if !p.rises(j, l.Spread[0]) {
		margin = -0x1p20 // of no label
	}
	kernels.AddReach(dst, gauge, share, level, bounded(p.reachAfter(j, reach, l.Spread[0])*unit), bounded(margin*unit), float32(l.Mark*l.Scale), float32(1/(float64(l.Scale)*parts)))
}

// rises reports whether rises count after a stage, in a context of a spread after the first stage. Codes miss
// a part of a label's own direction, so a context in which a rare label leads by it has a large spread: with
// a smaller one the stages of panels, which take most of the time, find labels by the reach.
func (p *Parts) rises(j int, spread float64) bool { return j >= PanelStages || spread >= p.Rising }

// LeastReach is the least reach of the stages of panels where rises do not count: it finds the few labels
// that lead there by their own directions.
const LeastReach = 5.25

// reachAfter returns how far a search with a reach looks after a stage, in spreads.
func (p *Parts) reachAfter(j int, reach, spread float64) float64 {
	if !p.rises(j, spread) {
		reach = max(reach, LeastReach)
	}
	return float64(reach * p.OfReach(j, spread))
}

// OfReach returns the part of the reach, or after the last stage of the deviations, that a search looks: the
// factor of the stage, and less if the spread after the first stage is above the usual. The best labels of such
// contexts are no farther from their scores.
func (p *Parts) OfReach(j int, spread float64) float64 {
	part := 1.0
	if j < p.Stages()-1 {
		part = p.Factors[j]
	}
	if p.Usual > 0 && spread > p.Usual {
		part *= p.Usual / spread
	}
	return part
}

// Farthest is the number of Parts.Near of a label that may be as far from its score as any of its panel.
const Farthest = 255

// bounded returns a finite distance: of NaN, which the zeros of a file may give, a large one.
func bounded(x float64) float32 {
	if x < 0x1p120 {
		return float32(max(x, -0x1p120))
	}
	return 0x1p120
}

// narrow looks at the panels that may reach the mark, and then, stage by stage, at their rows that may, and
// adds the ones that are left to l.Rows, with l.Scores. For a sum it keeps the scores of the others.
func (l *Look) narrow(reach float64, sum bool) {
	copy(l.wide, l.panels)
	l.addReach(l.wide, 0, reach, 1)
	list := l.list[:kernels.SelectAtLeast(l.list, l.wide, l.Mark)]
	for j := 1; j < l.last(); j++ {
		l.reach(j, reach)
	}
	done := len(l.Rows)
	if sum {
		l.left[1] = append(l.left[1][:0], l.room[done:done+l.pick(done, list, none)]...)
	}
	found := done + l.pick(done, list, l.Mark)
	rows, scores, least := l.rows[done:found], l.room[done:found], l.least[done:found]
	if sum {
		l.leave(list, rows)
	}
	at := 0
	for _, row := range l.Rows { // ascending, as rows are: they are there
		i, again := slices.BinarySearch(rows[at:], row)
		if at += i; again {
			scores[at] = none
		}
	}
	last := l.last()
	for j := PanelStages; j < last; j++ {
		l.refine(j, rows, scores)
		if near := l.near(j); j > PanelStages { // pick has found it for the first line
			for i, row := range rows {
				least[i] = l.Mark - farOf(near, row)
			}
		}
		if sum {
			l.left[j] = l.left[j][:0]
			for i, x := range scores {
				if x < least[i] {
					l.left[j] = append(l.left[j], x)
				}
			}
		}
		n := kernels.KeepRows(rows, scores, least)
		rows, scores, least = rows[:n], scores[:n], least[:n]
	}
	l.refine(last, rows, scores)
	l.Rows, l.Scores = l.rows[:done+len(rows)], l.room[:done+len(rows)]
}

// leave keeps the scores of what the stages of panels left out: of the panels that are not in a list, and of
// the labels of those that are, besides some rows and l.Rows.
func (l *Look) leave(list, rows []uint32) {
	l.left[0] = append(l.left[0][:0], l.panels...)
	for _, panel := range list {
		l.left[0][panel] = none
	}
	for _, rows := range [][]uint32{rows, l.Rows} {
		at := 0
		for _, row := range rows {
			i, listed := slices.BinarySearch(list[at:], row/kernels.PanelRows)
			if at += i; listed {
				l.left[1][at*kernels.PanelRows+int(row%kernels.PanelRows)] = none
			}
		}
	}
}

// All looks at all labels by a stage, after the stages before it, and returns the scores of their rows, in
// the order of Parts.IDs, which are in l.Scores too. After the first stage a row has its panel's.
func (l *Look) All(j int) (scores []float32) {
	switch {
	case j == 0:
		l.lookFirst()
		l.Scores = l.room[:l.parts.Labels-l.parts.Outliers]
		for row := range l.Scores {
			l.Scores[row] = l.panels[row/kernels.PanelRows]
		}
	case j < PanelStages:
		n := l.pick(0, l.model.all, none)
		l.Rows, l.Scores = l.rows[:n], l.room[:n]
	default:
		l.refine(j, l.Rows, l.Scores)
	}
	return l.Scores
}

// permit takes the labels that may not be answered, or have biases, from l.Scores.
func (l *Look) permit(req *exact.Request) {
	if !exact.Edits(req) {
		return
	}
	for i, row := range l.Rows {
		if id, ok := l.idOf(row); ok {
			if _, biased := exact.BiasOf(req, id); biased || !exact.Permits(req, id) {
				l.Scores[i] = none
			}
		}
	}
}

// ruleOut is permit, and keeps what it takes.
func (l *Look) ruleOut(req *exact.Request) {
	l.ruled = l.ruled[:0]
	if !exact.Edits(req) {
		return
	}
	copy(l.few, l.Scores)
	l.permit(req)
	for row, x := range l.Scores {
		if x == none && l.few[row] > none {
			l.ruled = append(l.ruled, ruled{uint32(row), l.few[row]})
		}
	}
}

// kth returns the k-th largest of some scores.
func (l *Look) kth(scores []float32, k int) float32 {
	few := l.few[:0]
	if bound, ok := kernels.KthBound(scores, k); ok && bound != none {
		for _, row := range l.places[:kernels.SelectAtLeast(l.places, scores, bound)] {
			few = append(few, scores[row])
		}
	} else {
		few = append(few, scores...)
	}
	return kernels.KthLargest(few, k)
}

// Near returns the places in l.Scores of labels that may reach the mark, within some deviations of
// what labels have beyond their codes, or by their rise.
func (l *Look) Near(deviations float64) []uint32 {
	l.reach(l.last(), deviations)
	near, n := l.near(l.last()), 0
	for i, x := range l.Scores {
		if row := l.Rows[i]; x > none && x+farOf(near, row) >= l.Mark {
			l.places[n] = uint32(i)
			n++
		}
	}
	return l.places[:n]
}

// choose leaves the labels at places of l.Rows in l.IDs, with the outliers and the labels with biases, which
// permit has left out.
func (l *Look) choose(places []uint32, req *exact.Request) {
	l.IDs = l.IDs[:0]
	for _, i := range places {
		id, _ := l.idOf(l.Rows[i])
		l.IDs = append(l.IDs, id)
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
func (l *Look) idOf(row uint32) (id uint32, ok bool) {
	if int(row) >= l.parts.Labels-l.parts.Outliers {
		return 0, false
	}
	return l.parts.IDs[row], true
}

// Need is what the search for a label takes, after a first look: after each stage, where either is
// enough, the reach, in spreads, or after the last the deviations, and the margin. They may be negative.
type Need struct {
	Reach, Margin [MostStages]float64
	Spread        float64 // of the context, after the first stage
}

// Takes returns the reach and the deviations that the search for a label takes.
func (p *Parts) Takes(n *Need) (reach, deviations float64) {
	reach, deviations = math.Inf(-1), math.Inf(-1)
	for j, x := range n.Reach[:p.Stages()] {
		switch {
		case math.IsInf(x, -1) || p.finds(j, x, n.Margin[j], n.Spread):
		case j < p.Stages()-1:
			reach = max(reach, x/p.OfReach(j, n.Spread))
		default:
			deviations = x / p.OfReach(j, n.Spread)
		}
	}
	return reach, deviations
}

// finds reports whether every search finds a label after a stage that takes one of a reach, in spreads, and a
// margin.
func (p *Parts) finds(j int, reach, margin, spread float64) bool {
	if p.rises(j, spread) {
		return margin <= p.Margins[j]
	}
	return reach <= LeastReach*p.OfReach(j, spread)
}

// UsualReach returns the reach that a need takes after a stage if its factor is 1.
func (p *Parts) UsualReach(n *Need, j int) float64 {
	return n.Reach[j] * p.Factors[j] / p.OfReach(j, n.Spread)
}

// Found is the need of a label that every search finds.
func Found() (n Need) {
	for j := range n.Reach {
		n.Reach[j], n.Margin[j] = math.Inf(-1), math.Inf(-1)
	}
	return n
}

// Needs returns the needs of the label at a place of Parts.IDs, after First.
func (l *Look) Needs(place int) Need {
	n, row := Found(), [1]uint32{uint32(place)}
	n.Spread = l.Spread[0]
	score := [1]float32{l.panels[place/kernels.PanelRows]}
	deep := slices.Contains(l.Rows, row[0])
	at := len(l.Rows)
	for j := range l.parts.Stages() {
		switch {
		case j == 0:
		case j < PanelStages:
			l.list[0] = uint32(place / kernels.PanelRows)
			l.pick(at, l.list[:1], none)
			score[0] = l.room[at+place%kernels.PanelRows]
		default:
			l.refine(j, row[:], score[:])
		}
		if !deep || j == l.last() {
			n.Reach[j], n.Margin[j] = l.need(j, place, score[0])
		}
	}
	return n
}

// roundings is more than the roundings of float32 make of needs.
const roundings = 0x1p-12

// need returns the reach, in spreads, and the margin that the score of a row takes after a stage, or after the
// first the score of its panel.
func (l *Look) need(j, row int, score float32) (reach, margin float64) {
	n, panel := len(l.panels), row/kernels.PanelRows
	share, level := float64(l.parts.Shares[j*n+panel]), float64(l.parts.Levels[j*n+panel])
	scale := float64(l.Scale)
	rise := float64(share*(float64(float64(l.Mark)*scale)-level)) / scale
	unit := max(float64(l.Unit(j)*l.Gauge(j, uint32(panel))), 1e-30)
	below := float64(l.Mark) - float64(score)
	if j > 0 {
		below *= Farthest / float64(max(l.parts.Near[(j-1)*n*kernels.PanelRows+row], 1))
	}
	return below/unit + roundings, (below-rise)/unit + roundings
}

// Reaches adds to req, of each row of a label, what reach a search takes to look at it after a stage but
// the last, given what it takes before. All has looked at the stage. After the last stage it returns
// deviations instead.
func (l *Look) Reaches(j int, req []float32) {
	p := l.parts
	for row := range req {
		if reach, margin := l.need(j, row, l.Scores[row]); !p.finds(j, reach, margin, l.Spread[0]) {
			req[row] = max(req[row], float32(reach/p.OfReach(j, l.Spread[0])))
		}
	}
}
