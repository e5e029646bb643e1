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
	Spread [Stages]float64 // deviation of what labels have beyond the codes up to a stage
	Norm   float64         // ||h||, if the layer has biases
	Scale  float32
	Mark   float32   // the score that the others must reach
	Rest   float64   // the log-sum over the labels that are not scored in full, if the request wants it
	Rows   []uint32  // places in Parts.IDs of the labels that all stages looked at
	Scores []float32 // of these; -Inf for a label that may not be answered

	model    *Model
	parts    *Parts
	layer    *exact.Layer
	turner   Turner
	x        []float32 // the context, and 1 if the layer has biases
	z        []float64 // its coordinates and probes
	v        []float64 // the coordinates in the steps of codes
	codes    []int8
	scores   []float32 // of all rows, by the stages of panels that looked at them
	best     []float32 // of each panel: its largest score
	wide     []float32 // of each panel: how far its labels may be from their scores, or the largest score with that
	stage    []uint8   // of each panel: the last stage that looked at it
	list     []uint32  // panels
	todo     []uint32  // panels
	early    []uint32  // panels that First looked at by more stages than the first
	top      []float32 // room for the largest scores of listed panels
	rows     []uint32  // room for Rows
	room     []float32 // for Scores
	left     []float32 // scores of rows that the first stage of lines left out
	lost     []uint32  // these rows
	places   []uint32
	gathered []float32
	few      []float32
	ruled    []ruled // labels that were ruled out in the first look
}

const (
	// The first look takes the panels with the best labels by the first stage, and of these by the
	// second: shares of all panels, and the fewest.
	wideShare, fewestWide = 0.06, 128
	markShare, fewestMark = 0.01, 48
	// Of the labels of the latter the first look takes so many times the place of the mark by all stages.
	markTimes = 4
	// sampledPanels is the number of panels, about, that tell how good the best ones are.
	sampledPanels = 1024
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
	rows := panels * kernels.PanelRows
	l := Look{
		model: m, parts: p, turner: m.turn.Turner(),
		x: make([]float32, p.Width()), z: make([]float64, p.Coordinates+p.Probes), v: make([]float64, p.Codes), codes: make([]int8, p.Codes),
		scores: make([]float32, rows), best: make([]float32, panels), wide: make([]float32, panels), stage: make([]uint8, panels), list: make([]uint32, panels),
		todo: make([]uint32, panels), early: make([]uint32, 0, panels), top: make([]float32, panels), rows: make([]uint32, 2*rows), room: make([]float32, 2*rows),
		left: make([]float32, 0, rows), lost: make([]uint32, 0, rows), places: make([]uint32, rows), gathered: make([]float32, rows), few: make([]float32, rows), IDs: make([]uint32, 0, rows+p.Outliers),
	}
	for i := range p.Biased {
		l.x[p.Dim+i] = 1
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

// Square returns the square of the deviation of what labels have beyond all their codes.
func (l *Look) Square() float64 { return float64(l.Spread[Stages-1] * l.Spread[Stages-1]) }

// IsFar reports whether a context's part outside the codes is larger than in 99 of 100 held-out
// ones.
func (l *Look) IsFar() bool {
	far := l.parts.Far[Stages-1]
	return far > 0 && l.Spread[Stages-1] > far
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
	return float64(l.parts.ResidualScale[j*len(l.best)+int(panel)])
}

// look adds the codes of a stage of panels to the scores of some panels.
func (l *Look) look(j int, panels []uint32) {
	l.add(j, panels, l.top)
	for i, panel := range panels {
		l.best[panel], l.stage[panel] = l.top[i], uint8(j)
	}
}

// lookFirst adds the codes of the first stage to the scores of all panels.
func (l *Look) lookFirst() {
	l.add(0, l.model.all, l.best)
	clear(l.stage)
}

// add adds the codes of a stage of panels to the scores of some panels, and writes the largest of each to
// top. The first stage begins the scores.
func (l *Look) add(j int, panels []uint32, top []float32) {
	p := l.parts
	from, to := p.Stage(j)
	if from == to {
		for i, panel := range panels {
			top[i] = slices.Max(l.scores[panel*kernels.PanelRows:][:kernels.PanelRows])
		}
		return
	}
	l.looked(j, len(panels)*kernels.PanelRows)
	kernels.Scores2(l.scores, top, l.model.tables[j], panels, l.codes[from:to], kernels.Excess2(l.codes[from:to]), j == 0)
	if j == 0 {
		l.empty(panels, top)
	}
}

// keep adds the codes of a later stage of panels to the scores of some panels, and leaves those of which a
// score is at most that far below the mark.
func (l *Look) keep(j int, panels []uint32, far []float32) []uint32 {
	p := l.parts
	from, to := p.Stage(j)
	if from == to {
		return slices.DeleteFunc(panels, func(panel uint32) bool {
			return slices.Max(l.scores[panel*kernels.PanelRows:][:kernels.PanelRows])+far[panel] < l.Mark
		})
	}
	l.looked(j, len(panels)*kernels.PanelRows)
	return panels[:kernels.Keep2(l.scores, panels, far, l.model.tables[j], panels, l.codes[from:to], kernels.Excess2(l.codes[from:to]), l.Mark)]
}

// looked counts the codes of a stage of some rows.
func (l *Look) looked(j, rows int) {
	from, to := l.parts.Stage(j)
	l.Stats.Looked += uint64(min(rows, l.parts.Labels) * (to - from) / l.parts.Codes)
}

// empty takes the rows of the last panel that have no label out, if it is the last of some.
func (l *Look) empty(panels []uint32, top []float32) {
	last, i := len(l.best)-1, len(panels)-1
	if n := l.parts.Labels - l.parts.Outliers; n < len(l.scores) && int(panels[i]) == last {
		top[i] = none
		for row := last * kernels.PanelRows; row < len(l.scores); row++ {
			if row >= n {
				l.scores[row] = none
			}
			top[i] = max(top[i], l.scores[row])
		}
	}
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
	l.early = l.early[:0]
	rank := max(k, Many) + Behind
	for looked := 0; looked < len(l.best) && rank > kernels.PanelRows*looked/markTimes; {
		looked = min(len(l.best), max(shareOf(markShare, fewestMark, len(l.best)), (markTimes*rank+kernels.PanelRows-1)/kernels.PanelRows))
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

// deepen looks at the best n panels or more by the stages of panels, found by the second stage among
// more by the first, and at the best rows of these and earlier ones by all stages.
func (l *Look) deepen(n, rows int) {
	wide := max(shareOf(wideShare, fewestWide, len(l.best)), n)
	list := l.list[:kernels.SelectAtLeast(l.list, l.best, l.about(wide))]
	if len(list) < n {
		list = l.list[:kernels.SelectAtLeast(l.list, l.best, l.kth(l.best, wide))]
	}
	before := len(l.early)
	for _, p := range list {
		if l.stage[p] == 0 {
			l.early = append(l.early, p)
		}
	}
	l.look(1, l.early[before:])
	for i, p := range list {
		l.few[i] = l.best[p]
	}
	bound := kernels.KthLargest(l.few[:len(list)], min(n, len(list)))
	some := l.todo[:0]
	for _, p := range list {
		if l.best[p] >= bound && l.stage[p] < PanelStages-1 {
			some = append(some, p)
		}
	}
	for j := 2; j < PanelStages; j++ {
		l.look(j, some)
	}
	some = some[:0]
	for _, p := range l.early {
		if l.stage[p] == PanelStages-1 {
			some = append(some, p)
		}
	}
	scores := l.gather(some)
	bound = max(l.kth(scores, min(rows, len(scores))), -math.MaxFloat32)
	l.Rows, l.Scores = l.rows[:0], l.room[:0]
	for _, i := range l.places[:kernels.SelectAtLeast(l.places, scores, bound)] {
		row := some[i/kernels.PanelRows]*kernels.PanelRows + i%kernels.PanelRows
		l.Rows, l.Scores = append(l.Rows, row), append(l.Scores, scores[i])
	}
	for j := PanelStages; j < Stages; j++ {
		l.refine(j, l.Rows, l.Scores)
	}
}

// about returns about the n-th largest of the best scores of panels, by a sample of them.
func (l *Look) about(n int) float32 {
	step := max(1, len(l.best)/sampledPanels)
	few := l.few[:0]
	for i := 0; i < len(l.best); i += step {
		few = append(few, l.best[i])
	}
	return kernels.KthLargest(few, min(max(n/step, 1), len(few)))
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

// reaches writes to l.wide how far the best label of each panel may be from its score after a stage, by
// the reach, or after the last stage by the deviations. It is the larger one of two distances. What codes
// leave of a label in any context is like a normal deviation. A context in which a label leads has more
// of the label's own direction: its logit rose from a level to the mark, and codes miss a share of that.
func (l *Look) reaches(j int, reach float64) (wide []float32) {
	clear(l.wide)
	l.addReach(j, reach)
	return l.wide
}

// addReach adds these distances to l.wide.
func (l *Look) addReach(j int, reach float64) {
	p, n := l.parts, len(l.best)
	gauge, share, level := p.ResidualScale[j*n:(j+1)*n], p.Shares[j*n:(j+1)*n], p.Levels[j*n:(j+1)*n]
	kernels.AddReach(l.wide, gauge, share, level, bounded(float64(reach*p.factor(j))*l.Unit(j)), bounded(p.Margins[j]*l.Unit(j)), float32(l.Mark*l.Scale), 1/l.Scale)
}

// factor returns the factor of the reach after a stage.
func (p *Parts) factor(j int) float64 {
	if j < len(p.Factors) {
		return p.Factors[j]
	}
	return 1
}

func bounded(x float64) float32 { return float32(min(x, 0x1p120)) }

// narrow looks at the panels that may reach the mark, stage by stage, and then at their rows that may,
// and adds the ones that are left to l.Rows, with l.Scores. For a sum it keeps the others of the last
// stages.
func (l *Look) narrow(reach float64, sum bool) {
	copy(l.wide, l.best)
	l.addReach(0, reach)
	deep := l.todo[:0]
	for _, panel := range l.early { // more stages looked at these
		if l.wide[panel] = none; l.stage[panel] == PanelStages-1 {
			deep = append(deep, panel)
		}
	}
	list := l.list[:kernels.SelectAtLeast(l.list, l.wide, l.Mark)]
	for j := 1; j < PanelStages; j++ {
		if sum {
			for _, panel := range list {
				l.stage[panel] = uint8(j)
			}
		}
		far := l.reaches(j, reach)
		list = l.keep(j, list, far)
		for _, panel := range l.early {
			if j < PanelStages-1 && int(l.stage[panel]) == j && l.best[panel]+far[panel] >= l.Mark {
				list = append(list, panel)
			}
		}
	}
	list = append(list, deep...)
	done := len(l.Rows)
	for _, row := range l.Rows { // they are there
		l.scores[row] = none
	}
	for i, panel := range list { // l.wide is of the last stage of panels
		l.top[i] = max(l.Mark-l.wide[panel], -math.MaxFloat32)
	}
	found := kernels.SelectRows(l.rows[done:], l.room[done:], l.scores, list, l.top)
	l.Rows, l.Scores = l.rows[:done+found], l.room[:done+found]
	l.left, l.lost = l.left[:0], l.lost[:0]
	for j := PanelStages; j < Stages; j++ {
		rows, scores := l.Rows[done:], l.Scores[done:]
		l.refine(j, rows, scores)
		if j == Stages-1 {
			break
		}
		far, n := l.reaches(j, reach), done
		for i, row := range rows {
			x := scores[i]
			stays := x+far[row/kernels.PanelRows] >= l.Mark
			if sum && !stays {
				l.left, l.lost = append(l.left, x), append(l.lost, row)
			}
			l.Rows[n], l.Scores[n] = row, x
			n += one(stays)
		}
		l.Rows, l.Scores = l.Rows[:n], l.Scores[:n]
	}
}

// one is 1 for true: a branch would be guessed wrong half of the time.
func one(is bool) (n int) {
	if is {
		n = 1
	}
	return n
}

// gather copies the scores of some panels to one place.
func (l *Look) gather(panels []uint32) []float32 {
	for i, p := range panels {
		copy(l.gathered[i*kernels.PanelRows:(i+1)*kernels.PanelRows], l.scores[int(p)*kernels.PanelRows:])
	}
	return l.gathered[:len(panels)*kernels.PanelRows]
}

// All looks at all labels by a stage, after the stages before it, and returns the scores of their
// rows, in the order of Parts.IDs. After the last stage they are in l.Scores too.
func (l *Look) All(j int) (scores []float32) {
	if j == 0 {
		l.lookFirst()
		return l.scores
	} else if j < PanelStages {
		l.look(j, l.model.all)
		return l.scores
	}
	l.Rows, l.Scores = l.rows[:len(l.scores)], l.room[:len(l.scores)]
	for row := range l.Rows {
		l.Rows[row] = uint32(row)
	}
	l.refine(j, l.Rows, l.scores)
	copy(l.Scores, l.scores)
	return l.scores
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
	far, n := l.reaches(Stages-1, deviations), 0
	for i, x := range l.Scores {
		if x > none && x+far[l.Rows[i]/kernels.PanelRows] >= l.Mark {
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
// enough, the reach, without its factor, or after the last the deviations, and the margin. They may be
// negative.
type Need struct{ Reach, Margin [Stages]float64 }

// Takes returns the reach and the deviations that the search for a label takes.
func (p *Parts) Takes(n *Need) (reach, deviations float64) {
	reach, deviations = math.Inf(-1), math.Inf(-1)
	for j, x := range n.Reach {
		switch {
		case n.Margin[j] <= p.Margins[j]:
		case j < Stages-1:
			reach = max(reach, x/p.Factors[j])
		default:
			deviations = x
		}
	}
	return reach, deviations
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
	panel := place / kernels.PanelRows
	n, row, stage := Found(), [1]uint32{uint32(place)}, l.stage[panel]
	var score [1]float32
	deep := slices.Contains(l.Rows, row[0])
	for j := range Stages {
		x := score[:]
		if j < PanelStages {
			l.look(j, append(l.todo[:0], uint32(panel)))
			if x = l.best[panel : panel+1]; j == PanelStages-1 {
				score[0] = l.scores[place]
				x = score[:]
			}
		} else {
			l.refine(j, row[:], score[:])
		}
		seen := j < PanelStages-1 && stage == PanelStages-1 || j < Stages-1 && deep
		if !seen {
			n.Reach[j], n.Margin[j] = l.need(j, panel, x[0])
		}
	}
	l.stage[panel] = stage // as the first look left it, for another label of the panel
	return n
}

// roundings is more than the roundings of float32 make of needs.
const roundings = 0x1p-12

// need returns the reach, without its factor, and the margin that a score of a panel takes after a
// stage.
func (l *Look) need(j, panel int, score float32) (reach, margin float64) {
	n := len(l.best)
	share, level := float64(l.parts.Shares[j*n+panel]), float64(l.parts.Levels[j*n+panel])
	scale := float64(l.Scale)
	rise := float64(share*(float64(float64(l.Mark)*scale)-level)) / scale
	unit := max(float64(l.Unit(j)*l.Gauge(j, uint32(panel))), 1e-30)
	below := float64(l.Mark) - float64(score)
	return below/unit + roundings, (below-rise)/unit + roundings
}

// Reaches adds to req, of each row, what reach a search takes to look at it after a stage but the
// last, given what it takes before. All has looked at the stage. After the last stage it returns
// deviations instead.
func (l *Look) Reaches(j int, req []float32) {
	of := func(panel int, score float32) float32 {
		if reach, margin := l.need(j, panel, score); margin > l.parts.Margins[j] {
			return float32(reach / l.parts.factor(j))
		}
		return float32(math.Inf(-1))
	}
	for panel, best := range l.best {
		rows := req[panel*kernels.PanelRows : (panel+1)*kernels.PanelRows]
		x := float32(0)
		if j < PanelStages-1 {
			x = of(panel, best)
		}
		for i := range rows {
			if j >= PanelStages-1 {
				x = of(panel, l.scores[panel*kernels.PanelRows+i])
			}
			rows[i] = max(rows[i], x)
		}
	}
}
