package preview

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"github.com/learning-to-screen/l2s/internal/exact"
	"github.com/learning-to-screen/l2s/internal/kernels"
	"github.com/learning-to-screen/l2s/softmax"
)

// Stats has the counts of a Searcher's work.
type Stats struct {
	// Queries is the number of contexts answered.
	Queries uint64
	// Looked is the sum of the numbers of labels whose previews were computed, and Kept the sum of
	// the numbers of labels scored in full after them. Queries that the exact layer answered by
	// request do not count.
	Looked, Kept uint64
	// Exact is the number of contexts that the exact layer answered, Crowded the contexts among
	// them that had too many labels to score in full. For the others the request asked for it, or
	// allowed too few labels.
	Exact, Crowded uint64
	// Far is the number of contexts whose part outside the coordinates is larger than in 99 of 100
	// held-out ones, or, with biases, which are shorter: for them the search looked farther. If it is
	// large, as for a text of another kind than the model's, a model made from such texts is faster.
	Far uint64
}

// Searcher answers requests by a model and its layer. It is for one goroutine; any number of
// searchers share the model, its codes and the layer. It takes some 20 bytes per label, and the
// memory of an exact search once there is one; beyond such growth nothing is allocated.
//
// [NewSearcher] makes one: a zero value has no use, and its methods may panic.
type Searcher struct {
	model  *Model
	tables *tables
	exact  *exact.Searcher
	query  [1]*exact.Query
	one    [1]softmax.Answer
	summed [16]softmax.Prediction // the best of a log-sum, whose logits are exact in it
	stats  Stats

	turner    turner
	x         []float32 // the context, and 1 if the layer has biases
	z         []float64 // its coordinates and probes
	v         []float64
	high, low []int8
	codes     []int8
	excess    int32     // of the codes
	centre    []float32 // of each block: z.centre
	reach     []float32 // for each block: the largest preview that its best label may have
	wide      []float32 // the same, within the reach of the rung
	scratch   []float32
	picked    []uint32  // blocks
	scores    []float32 // of the labels that were looked at
	panels    []uint32  // the panel of each 16 of them
	rows      []uint32
	ids       []uint32
	ruled     []float32 // previews of labels that were ruled out in the first look

	sigma  float64 // deviation of the part outside the coordinates
	norm   float64 // of a context, if the layer has biases
	length float64 // root mean square of the coordinates
	rest   float64 // the log-sum over the labels that were not kept
	seen   []bool  // blocks
	scale  float32 // of the codes of labels
	beyond float32 // the largest of the model
}

const (
	firstShare  = 0.004 // of the labels: in the blocks that are looked at first
	secondShare = 0.04
	firstReach  = 2
	fewestFirst = 8
)

// maxKeptShare is the share of labels scored in full above which the exact search is as fast.
var maxKeptShare = 1.0 / 8 // tests change it

func (m *Model) crowd(k int) int { return max(int(maxKeptShare*float64(m.labels)), 4*k) }

// NewSearcher returns a searcher with the model m over the layer l. It returns an error, for which
// errors.Is holds with [softmax.ErrLayer], if the model was made for another layer.
//
// The first call for a layer computes the layer's fingerprint, see [softmax.Layer.Fingerprint], on
// all cores. Further calls take little more than the memory of a Searcher.
func NewSearcher(m *Model, l *softmax.Layer) (*Searcher, error) {
	if m == nil || l == nil || m.tables == nil {
		return nil, errors.New("preview: found no model or no layer, expected both")
	}
	if m.labels != l.Labels() || m.dim != l.Dim() {
		return nil, exact.Invalid(exact.ErrLayer, "preview: shape: found a model of %d labels x %d, expected the layer's %d x %d", m.labels, m.dim, l.Labels(), l.Dim())
	}
	if own := l.Fingerprint(); own != m.fingerprint {
		return nil, exact.Invalid(exact.ErrLayer, "preview: fingerprint: found %x, expected the layer's, %x: the model was made for another layer", m.fingerprint, own)
	}
	return m.newSearcher(l), nil
}

func (m *Model) newSearcher(l *softmax.Layer) *Searcher {
	t := m.tables
	blocks := panelsOf(m.blocks()) * kernels.PanelRows
	s := &Searcher{
		model: m, tables: t, exact: exact.NewSearcher((*exact.Layer)(l)), query: [1]*exact.Query{exact.NewQuery(m.dim)},
		turner: t.turn.turner(), x: make([]float32, m.width()), z: make([]float64, m.coordinates+m.probes), v: make([]float64, m.coordinates),
		high: make([]int8, m.centred), low: make([]int8, m.centred), codes: make([]int8, m.coordinates),
		centre: make([]float32, blocks), reach: make([]float32, blocks), wide: make([]float32, blocks), scratch: make([]float32, max(blocks, len(t.slots))),
		picked: make([]uint32, blocks), scores: make([]float32, len(t.slots)), panels: make([]uint32, len(t.slots)/kernels.PanelRows),
		beyond: slices.Max(m.beyond),
		rows:   make([]uint32, len(t.slots)), ids: make([]uint32, 0, len(t.slots)+m.outliers), seen: make([]bool, m.blocks()),
	}
	if m.biased {
		s.x[m.dim] = 1
	}
	return s
}

// TopK writes the labels with the k = len(dst) largest logits that the preview leaves to dst, in
// order, and returns their number. Errors are as from Search.
func (s *Searcher) TopK(dst []softmax.Prediction, h []float32) (n int, err error) {
	a, err := s.Search(dst, h, softmax.Request{})
	return a.Count, err
}

// Search answers a request about the context h as [softmax.Searcher.Search] does, but without
// labels whose previews are far from the best: it may miss a label, as rarely as the rungs of the
// model tell. Logits and their order are exact. The exact layer answers if the request is Exact, if
// a log-sum is at a temperature below 0.5 or above 2 or of a context far from the held-out ones, if
// a context of a layer with biases is less than half as long as these, if the request names the
// labels to choose among, if it wants an exact sum or a sum over edited labels, if too few labels
// may be answered, if k is above 512, and if too many labels look alike: Answer.Source tells so. An answer depends on the context, the request and the model alone.
//
// A log-sum is over all labels: exact for the labels scored in full, as in [softmax.Answer], and
// estimated for the others by their previews, or by the spread of their block: [Rung] has the error
// on held-out contexts.
func (s *Searcher) Search(dst []softmax.Prediction, h []float32, req softmax.Request) (softmax.Answer, error) {
	m := s.model
	if err := exact.Check(&req, m.labels, len(dst)); err != nil {
		return softmax.Answer{}, err
	}
	if err := s.query[0].Set(h); err != nil {
		return softmax.Answer{}, err
	}
	if exact.IsList(req.Among) || req.Exact {
		s.stats.Queries++
		return s.exactly(dst, &req)
	}
	return s.search(dst, &req, &m.rungs[m.rungOf(req.Budget)])
}

// search answers about the query's context by a rung.
func (s *Searcher) search(dst []softmax.Prediction, req *softmax.Request, rung *Rung) (softmax.Answer, error) {
	m := s.model
	s.stats.Queries++
	if len(dst) > maxPreviewed || req.LogSum && (req.ExactSum || exact.Edits(req) || !estimated(req.Temperature)) || !s.look(len(dst), req, rung) {
		return s.exactly(dst, req)
	}
	s.stats.Kept += uint64(len(s.ids))
	ask := softmax.Request{Within: req.Within, LogSum: req.LogSum, Temperature: req.Temperature, Among: softmax.Only(s.ids), Biases: req.Biases}
	found := dst
	if req.LogSum && len(dst) < len(s.summed) {
		found = s.summed[:min(len(s.summed), len(s.ids))]
	}
	if err := s.exact.Find(found, s.one[:], s.query[:], &ask); err != nil {
		return softmax.Answer{}, err
	}
	a := s.one[0]
	a.Source, a.Count = softmax.FromSet, min(a.Count, len(dst))
	copy(dst, found[:a.Count])
	if req.LogSum {
		// No label is above the best: a larger estimate is wrong.
		best := a.LogSum // at least
		if a.Count > 0 {
			best = dst[0].Logit / cmp.Or(req.Temperature, 1)
		}
		if a.LogSum = kernels.LogAddExp(a.LogSum, s.rest); !(a.LogSum <= best+math.Log(float64(m.labels))) {
			return s.exactly(dst, req)
		}
	}
	return a, nil
}

// outside returns the estimate of the log-sum over the labels that are not scored in full: by their
// previews, or by the spread of their block. The part outside the coordinates is taken for normal,
// and no label of a block that was not looked at is above the mark. The kept rows lose their
// previews.
func (s *Searcher) outside(temperature float64, looked int, kept []uint32, mark float32) float64 {
	m, none := s.model, float32(math.Inf(-1))
	for _, row := range kept {
		s.scores[row] = none
	}
	scale := float32(min(max(1/temperature, 0x1p-126), math.MaxFloat32))
	most, sum := kernels.SumExpCentres(s.scores[:looked], s.scores[:looked], scale)
	rest := float64(most)/temperature + kernels.Log(sum)
	// The blocks that were looked at are those with rows in panels.
	for _, panel := range s.panels[:looked/kernels.PanelRows] {
		s.seen[s.tables.owner[panel]] = true
	}
	size, spread := float32(0), s.length
	for b := range m.blocks() {
		if s.seen[b] {
			s.seen[b] = false
			s.wide[b] = none
			continue
		}
		size = float32(kernels.Log(float64(m.sizes[b])) * temperature)
		off := float64(spread * float64(m.radii[b]))
		square, far := float64(off*off)/temperature, float64(mark-s.centre[b])
		s.wide[b] = s.centre[b] + size + float32(raised(square, far))
	}
	most, sum = kernels.SumExpCentres(s.wide[:m.blocks()], s.wide[:m.blocks()], scale)
	rest = kernels.LogAddExp(rest, float64(most)/temperature+kernels.Log(sum))
	return rest + s.meanLogit()/temperature + float64(m.tail*float64(s.sigma*s.sigma))/(2*temperature*temperature)
}

// raised returns by how much a normal distribution raises the log of the mean of e^x above its
// centre, if no x is more than far above it, which is above 0: half the square of its deviation, as
// long as the x that matter most, which are a square above the centre, are there. It returns a bound
// if they are not.
func raised(square, far float64) float64 {
	if square <= far {
		return square / 2
	}
	return far - float64(far*far)/(2*square)
}

// estimated reports whether a log-sum at a temperature, 0 for 1, may be estimated: labels that are
// not scored in full count as a normal distribution, whose sums at low temperatures come from
// logits that no label has.
func estimated(t float64) bool { return t == 0 || t >= 0.5 && t <= 2 }

// maxPreviewed is the largest k that is not answered exactly.
const maxPreviewed = 512

func (s *Searcher) exactly(dst []softmax.Prediction, req *softmax.Request) (softmax.Answer, error) {
	s.stats.Exact++
	if err := s.exact.Find(dst, s.one[:], s.query[:], req); err != nil {
		return softmax.Answer{}, err
	}
	return s.one[0], nil
}

// turn computes the coordinates of the context and its part outside them, and quantises them. It
// reports false for a context whose numbers are too large or too small.
func (s *Searcher) turn() bool {
	m := s.model
	copy(s.x, s.query[0].Vector())
	if m.biased {
		s.norm = math.Sqrt(kernels.RefDot(s.x[:m.dim], s.x[:m.dim]))
	}
	s.turner.turn(s.z, s.x)
	square := 0.0
	for _, p := range s.z[m.coordinates:] {
		square += float64(p * p)
	}
	for r, z := range s.z[:m.coordinates] {
		square += float64(float64(z*z) * float64(m.noise[r]))
	}
	s.sigma = math.Sqrt(square)
	square = 0
	for _, z := range s.z[:m.centred] {
		square += float64(z * z)
	}
	s.length = math.Sqrt(square / float64(m.centred))
	for j, step := range m.axes {
		s.v[j] = float64(s.z[j] * float64(step))
	}
	step := planes(s.high, s.low, s.v[:m.centred])
	if step == 0 || !(s.sigma < 0x1p100) {
		return false
	}
	largest := 0.0
	for r, step := range m.steps {
		s.v[r] = float64(s.z[r] * float64(step))
		largest = max(largest, math.Abs(s.v[r]))
	}
	if s.scale = float32(largest / 127); !(s.scale > 0x1p-100 && s.scale < 0x1p100) {
		return false
	}
	for r, x := range s.v {
		s.codes[r] = int8(math.RoundToEven(x * (127 / largest)))
	}
	s.excess = kernels.Excess42(s.codes, m.fine)
	kernels.Scores7(s.centre, s.tables.panels, s.high, s.low, step)
	return true
}

// look leaves the labels to score in full in s.ids, and reports false if the exact layer is to
// answer.
func (s *Searcher) look(k int, req *softmax.Request, rung *Rung) bool {
	m := s.model
	k = max(k, 1)
	if !s.turn() {
		return false
	}
	nearer, closer := ofMany(k)
	reach, deviations := float64(rung.Reach*nearer), float64(rung.Deviations*closer)
	if s.norm < m.short/2 {
		return false // by biases more than by coordinates
	}
	if s.isFar() {
		if req.LogSum {
			return false // no held-out context tells the error of an estimate
		}
		s.stats.Far++
		reach, deviations = max(float64(reach*farTimes), farReach), max(float64(deviations*farTimes), farDeviations)
	}
	s.ruled = s.ruled[:0]
	first, looked := s.begin(k, req)
	best := s.reached(looked, k, req)
	if math.IsInf(float64(best), -1) {
		return false
	}
	doublings := s.ruledOut(best)
	reach += float64(doublings * reachPerDoubling)
	deviations += float64(doublings * deviationsPerDoubling)
	// Then the blocks that may reach it.
	blocks, far := m.blocks(), float32(min(reach*s.length, math.MaxFloat32))
	for b, c := range s.centre[:blocks] {
		s.wide[b] = c + float32(far*m.radii[b])
	}
	n := kernels.SelectAtLeast(s.picked, s.wide[:blocks], best)
	if n > m.second() { // the best of these raise the mark for the others
		first, looked = s.further(first, looked, req)
		best = s.reached(looked, k, req)
		n = kernels.SelectAtLeast(s.picked, s.wide[:blocks], best)
	}
	n = keepBelow(s.picked[:n], s.reach, first)
	from := looked
	looked = s.scan(s.picked[:n], from)
	s.permit(req, from, looked)
	s.stats.Looked += uint64(min(looked, m.labels)) // rows without a label are among them
	if looked > from {
		best = s.reached(looked, k, req)
	}
	// Rows without a label, and labels that may not be answered, are at -Inf.
	n = s.near(looked, best, float64(deviations*s.sigma))
	if n > m.crowd(k) {
		s.stats.Crowded++
		return false
	}
	s.ids = s.ids[:0]
	for _, row := range s.rows[:n] {
		s.ids = append(s.ids, s.idOf(row))
	}
	for _, id := range m.ids[m.labels-m.outliers:] {
		if _, biased := exact.BiasOf(req, id); !biased && exact.Permits(req, id) {
			s.ids = append(s.ids, id)
		}
	}
	for _, b := range req.Biases { // which permit left out
		if exact.Permits(req, b.ID) {
			s.ids = append(s.ids, b.ID)
		}
	}
	if req.LogSum {
		s.rest = s.outside(cmp.Or(req.Temperature, 1), looked, s.rows[:n], best)
	}
	return len(s.ids) >= k || req.Within > 0 && len(s.ids) > 0
}

// near writes to s.rows those of the first n rows whose labels may reach the mark: their distance
// below it is at most far times the factor of their block. It returns their number.
func (s *Searcher) near(n int, mark float32, far float64) int {
	least := func(factor float32) float32 {
		return float32(max(float64(mark)-float64(far*float64(factor)), -math.MaxFloat32))
	}
	rows := s.rows[:kernels.SelectAtLeast(s.rows, s.scores[:n], least(s.beyond))]
	n = 0
	for _, row := range rows {
		rows[n] = row
		if s.scores[row] >= least(s.model.beyond[s.blockOf(row)]) {
			n++
		}
	}
	return n
}

// A request for many labels may miss a share of them, and its best are far above its mark. So it
// looks less far than a request for few labels, by these factors from manyLabels on.
const (
	fewLabels, manyLabels = 5, 40
	manyReach             = 0.92
	manyDeviations        = 0.8
)

// ofMany returns the factors of a rung's reach and deviations for k labels.
func ofMany(k int) (reach, deviations float64) {
	x := float64(min(max(k-fewLabels, 0), manyLabels-fewLabels)) / (manyLabels - fewLabels)
	return 1 - float64((1-manyReach)*x), 1 - float64((1-manyDeviations)*x)
}

// meanLogit returns the product of the context with the mean row.
func (s *Searcher) meanLogit() float64 {
	mean := 0.0
	for j, x := range s.x {
		mean += float64(float64(x) * float64(s.model.mean[j]))
	}
	return mean
}

// idOf returns the label of a row.
func (s *Searcher) idOf(row uint32) uint32 {
	return s.tables.slots[s.panels[row/kernels.PanelRows]*kernels.PanelRows+row%kernels.PanelRows]
}

// blockOf returns the block of a row.
func (s *Searcher) blockOf(row uint32) uint32 {
	return s.tables.owner[s.panels[row/kernels.PanelRows]]
}

// begin looks at some blocks, whose best labels give the preview that the others must reach. It
// returns the largest preview that these blocks may reach, and the number of their rows.
func (s *Searcher) begin(k int, req *softmax.Request) (first float32, looked int) {
	m := s.model
	blocks, near := m.blocks(), float32(firstReach*s.length)
	for b, c := range s.centre[:blocks] {
		s.reach[b] = c + float32(near*m.radii[b])
	}
	first = s.kth(s.reach[:blocks], min(blocks, max(fewestFirst, int(firstShare*float64(blocks)), k/8)))
	looked = s.scan(s.picked[:kernels.SelectAtLeast(s.picked, s.reach[:blocks], first)], 0)
	s.permit(req, 0, looked)
	return first, looked
}

// further looks at the blocks after those that begin has looked at, up to a larger share of them. It
// returns the same as begin.
func (s *Searcher) further(first float32, looked int, req *softmax.Request) (float32, int) {
	m := s.model
	reach := s.reach[:m.blocks()]
	limit := min(s.kth(reach, m.second()), first)
	n := kernels.SelectAtLeast(s.picked, reach, limit)
	from := looked
	looked = s.scan(s.picked[:keepBelow(s.picked[:n], reach, first)], from)
	s.permit(req, from, looked)
	return limit, looked
}

// second is the number of blocks that are looked at before the others of a search for more.
func (m *Model) second() int {
	return min(m.blocks(), max(fewestFirst, int(secondShare*float64(m.blocks()))))
}

// scan computes the previews of the labels of some blocks, to scores from a row on, and returns the
// row after them.
func (s *Searcher) scan(blocks []uint32, from int) int {
	m, t := s.model, s.tables
	size := m.rowBytes() * kernels.PanelRows
	none := float32(math.Inf(-1))
	for i, b := range blocks {
		first, end := int(t.first[b]), int(t.first[b+1])
		next := t.codes[first*size:]
		if i+1 < len(blocks) {
			next = t.codes[int(t.first[blocks[i+1]])*size:]
		}
		rows := (end - first) * kernels.PanelRows
		scores := s.scores[from : from+rows]
		kernels.Scores42(scores, t.codes[first*size:end*size], next, s.codes, m.fine, s.excess, s.centre[b], float32(s.scale*m.gauges[b]))
		for j := int(m.sizes[b]); j < rows; j++ {
			scores[j] = none
		}
		for p := first; p < end; p++ {
			s.panels[from/kernels.PanelRows+p-first] = uint32(p)
		}
		from += rows
	}
	return from
}

// permit rules out the labels of some rows that may not be answered, or have biases.
func (s *Searcher) permit(req *softmax.Request, from, to int) {
	if !exact.Edits(req) {
		return
	}
	none := float32(math.Inf(-1))
	for row := from; row < to; row++ {
		id := s.idOf(uint32(row))
		if id == noLabel {
			continue
		}
		if _, biased := exact.BiasOf(req, id); biased || !exact.Permits(req, id) {
			if from == 0 {
				s.ruled = append(s.ruled, s.scores[row])
			}
			s.scores[row] = none
		}
	}
}

// Labels below many that are ruled out lie close together, and more of them are missed within the
// same distances: each doubling of the number adds this to the distances of a rung.
const (
	reachPerDoubling      = 0.4
	deviationsPerDoubling = 0.2
)

// ruledOut returns how often a number doubles that is 1 more than that of the labels that are ruled
// out above the mark.
func (s *Searcher) ruledOut(mark float32) float64 {
	n := 1
	for _, x := range s.ruled {
		if x >= mark {
			n++
		}
	}
	return kernels.Log(float64(n)) / math.Ln2
}

// behind is the number of labels, by their previews, between the k-th best and the mark. It shows
// how close the labels are there, which the best alone do not show.
const behind = 15

// mark returns the preview of the label that many places after the k-th best of the first n, -Inf
// if there are fewer than k.
func (s *Searcher) mark(n, k int) float32 {
	if n < k {
		return float32(math.Inf(-1))
	}
	return s.kth(s.scores[:n], min(k+behind, n))
}

// reached returns the mark of a request over the first n: its labels are at most Within below the
// best.
func (s *Searcher) reached(n, k int, req *softmax.Request) float32 {
	mark := s.mark(n, k)
	if req.Within > 0 && k > 1 {
		mark = max(mark, s.mark(n, 1)-float32(min(req.Within, math.MaxFloat32)))
	}
	return mark
}

// kth returns the k-th largest of some scores.
func (s *Searcher) kth(scores []float32, k int) float32 {
	few := s.scratch[:0]
	if bound, ok := kernels.KthBound(scores, k); ok && !math.IsInf(float64(bound), -1) {
		for _, row := range s.rows[:kernels.SelectAtLeast(s.rows, scores, bound)] {
			few = append(few, scores[row])
		}
	} else {
		few = append(few, scores...)
	}
	return kernels.KthLargest(few, k)
}

func keepBelow(blocks []uint32, x []float32, limit float32) int {
	n := 0
	for _, b := range blocks {
		blocks[n] = b
		if x[b] < limit {
			n++
		}
	}
	return n
}

// SearchBatch answers the same request about each of n contexts, row-major, n x d, as Search does,
// bit for bit. answers has n elements, and dst has k elements per context: the answer to context i is
// dst[i*k:][:answers[i].Count]. Errors are as from Search.
func (s *Searcher) SearchBatch(dst []softmax.Prediction, answers []softmax.Answer, contexts []float32, req softmax.Request) error {
	d, n := s.model.dim, len(answers)
	if len(contexts) != n*d {
		return exact.Invalid(exact.ErrContext, "preview: contexts: found %d elements, expected dimension %d for each of %d answers", len(contexts), d, n)
	}
	k, err := exact.Each(len(dst), n)
	if err != nil {
		return err
	}
	if err := exact.Check(&req, s.model.labels, k); err != nil {
		return err
	}
	if i, j, found := kernels.FirstNotFinite(kernels.Float32Rows(contexts, d)); found {
		return exact.Invalid(exact.ErrContext, "preview: contexts: row %d: found %v at element %d, expected finite numbers", i, contexts[i*d+j], j)
	}
	if exact.IsList(req.Among) || req.Exact {
		s.stats.Queries += uint64(n)
		s.stats.Exact += uint64(n)
		return s.exact.SearchBatch(dst, answers, contexts, req)
	}
	for i := range answers {
		if answers[i], err = s.Search(dst[i*k:(i+1)*k], contexts[i*d:(i+1)*d], req); err != nil {
			return err
		}
	}
	return nil
}

// Model returns the searcher's model.
func (s *Searcher) Model() *Model { return s.model }

// Stats returns the counts of the searcher's work so far.
func (s *Searcher) Stats() Stats { return s.stats }
