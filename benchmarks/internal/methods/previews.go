package methods

import (
	"context"
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"

	"github.com/learning-to-screen/l2s/internal/router"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// Previews are what a screen would be whose queries look at previews of the candidates before their
// codes: the coordinates of [WeightedSVD]. The cell of a context and its candidates are those of the
// screen. The labels that the previews leave go through the codes of the layer and the reference
// arithmetic, as in a screen.
//
// h is quantised twice here, for the screen's router and for its coordinates, which a product
// would not do: some 50 ns.
type Previews struct {
	layer  *softmax.Layer
	model  *screen.Model
	router *router.Router
	view   *view
	// inside turns z into what has the length of the part of h that z depends on, width x width, and
	// outside is the root mean square of the length of the other part over contexts.
	inside  []float32
	outside float64
}

// Rule says which labels the previews of a list leave.
type Rule struct {
	// Best, unless 0, is the number of labels with the best previews that are left, and some more.
	Best int
	// Factor is that of WeightedSVD otherwise: intervals of factor ||z|| r_s on each side.
	Factor float64
	// Length makes that factor sqrt(width) q r_s, q the length of what z does not depend on of
	// this context, as a part of the root mean square over contexts.
	Length bool
}

func (r Rule) String() string {
	switch {
	case r.Best > 0:
		return fmt.Sprintf("m=%d", r.Best)
	case r.Length:
		return fmt.Sprintf("g=%g", r.Factor)
	}
	return fmt.Sprintf("f=%g", r.Factor)
}

// NewPreviews returns the previews of a screen of a layer, for the widest of some settings and the
// second moments of contexts.
func NewPreviews(ctx context.Context, l *softmax.Layer, m *screen.Model, contexts []float32, width int) (*Previews, error) {
	if m.ExactMargin() > 0 {
		return nil, errors.New("methods: exact margin: found one, expected a screen without")
	}
	r, err := router.New(router.Config{Dim: m.Dim(), Clusters: m.ClusterWeights(), Rule: router.Rule{
		Shells: m.Shells(), Pairs: m.Pairs(), PairMargin: m.PairMargin(),
	}})
	if err != nil {
		return nil, err
	}
	v, err := newView(ctx, l, contexts, min(width, l.Dim()))
	if err != nil {
		return nil, err
	}
	p := &Previews{layer: l, model: m, router: r, view: v}
	return p, p.measure(contexts)
}

// First returns the previews with the first columns alone.
func (p *Previews) First(width int, contexts []float32) (*Previews, error) {
	x := *p
	x.view = p.view.first(min(width, p.view.width))
	return &x, x.measure(contexts)
}

// first is the view with fewer columns.
func (v *view) first(width int) *view {
	labels, d := len(v.rest), len(v.to)/v.width
	x := &view{width: width, to: v.to[:width*d], rows: make([]float32, 0, labels*width), rest: make([]float64, labels)}
	for s, r := range v.rest {
		row := v.rows[s*v.width : (s+1)*v.width]
		x.rows = append(x.rows, row[:width]...)
		square := r * r
		for _, a := range row[width:] {
			square += float64(a) * float64(a)
		}
		x.rest[s] = math.Sqrt(square)
	}
	return x
}

// measure sets inside and outside.
func (p *Previews) measure(contexts []float32) error {
	width, d := p.view.width, p.layer.Dim()
	// The part of h in the span of the rows of z's matrix Z has the length of L^-1 z, Z Z^T = L L^T.
	square := mat.NewSymDense(width, nil)
	for i := range width {
		for j := i; j < width; j++ {
			square.SetSym(i, j, kernels.RefDot(p.view.to[i*d:(i+1)*d], p.view.to[j*d:(j+1)*d]))
		}
	}
	var c mat.Cholesky
	if !c.Factorize(square) {
		return errors.New("methods: the coordinates of contexts depend on each other")
	}
	var lower mat.TriDense
	c.LTo(&lower)
	if err := lower.InverseTri(&lower); err != nil {
		return fmt.Errorf("methods: the coordinates of contexts: %w", err)
	}
	p.inside = make([]float32, width*width)
	for i := range p.inside {
		p.inside[i] = float32(lower.At(i/width, i%width))
	}
	z, u, sum, n := make([]float32, width), make([]float32, width), 0.0, 0
	step := max(1, len(contexts)/d/momentContexts) * d
	for at := 0; at < len(contexts); at += step {
		h := contexts[at : at+d]
		kernels.Scan(z, p.view.to, nil, h)
		sum += p.left(u, z, h)
		n++
	}
	p.outside = math.Sqrt(sum / float64(n))
	return nil
}

// left returns the square of the length of what z does not depend on of h; u is scratch.
func (p *Previews) left(u, z, h []float32) float64 {
	kernels.Scan(u, p.inside, nil, z)
	return max(0, float64(kernels.Dot(h, h))-float64(kernels.Dot(u, u)))
}

// mostCopies bounds the copies of the previews of all lists, in bytes.
const mostCopies = 256 << 20

// lengthColumns is the number of coordinates of z that set its length.
const lengthColumns = 4

// Setting returns the search with one of the budgets of the screen and a rule. If copied, the previews of
// each list lie one behind the other, as the codes of candidates do in a screen, unless these copies take more than
// 256 MiB. Otherwise they are gathered from one table of all labels, which may stay in the caches.
func (p *Previews) Setting(budget float64, rule Rule, copied bool) (Setting, error) {
	s := &previewed{Previews: p, budget: budget, rule: rule, starts: []int{0}}
	for cell := range p.model.Cells() {
		ids, err := p.model.Candidates(cell, budget)
		if err != nil {
			return nil, err
		}
		s.ids = append(s.ids, ids...)
		s.starts = append(s.starts, len(s.ids))
		s.panel = append(s.panel, s.panels)
		s.panels += (len(ids) + kernels.PanelRows - 1) / kernels.PanelRows
		s.largest = max(s.largest, len(ids))
	}
	v := p.view
	rows, rest := v.rows, make([]float64, len(v.rest))
	if s.width = v.width; rule.Length {
		s.width += lengthColumns
		rows = make([]float32, 0, len(v.rest)*s.width)
		for i := range v.rest {
			rows = append(append(rows, v.rows[i*v.width:(i+1)*v.width]...), make([]float32, lengthColumns)...)
		}
		// ||z|| is made sqrt(2 width) q, so that it has room for the columns that set it.
		rule.Factor /= math.Sqrt2
	}
	for i, r := range v.rest {
		if rule.Best == 0 {
			rest[i] = rule.Factor * r
		}
	}
	var err error
	if s.to, err = allPanels(v.to, nil, p.layer.Dim(), nil); err != nil {
		return nil, err
	}
	if s.rows, err = codesOf(rows, p.layer.Bias(), s.width, rest); err != nil {
		return nil, err
	}
	if copied && s.panels*kernels.Int8PanelBytes(s.width) <= mostCopies {
		s.packed, err = panelsOf(s.rows, s.ids, s.starts)
	}
	return s, err
}

type previewed struct {
	*Previews
	budget        float64
	rule          Rule
	width         int // with the columns that set the length
	to            *kernels.Int8Panels
	rows          *kernels.Int8Rows
	packed        *kernels.Int8Panels // of all lists; nil for none
	ids           []uint32
	starts, panel []int // of each list, in ids and in packed
	panels        int
	largest       int // list
}

func (s *previewed) Params() string {
	if s.packed == nil {
		return fmt.Sprintf("w=%d %s", s.view.width, s.rule)
	}
	return fmt.Sprintf("w=%d %s, copied", s.view.width, s.rule)
}

func (s *previewed) Searcher() Searcher {
	sr, err := screen.NewSearcher(s.model, s.layer, screen.Budget(s.budget))
	if err != nil {
		panic(err) // the screen was made for the layer
	}
	room := (s.largest + kernels.PanelRows - 1) / kernels.PanelRows * kernels.PanelRows
	elements := s.to.Len() * kernels.PanelRows
	x := &previewSearcher{
		previewed: s, screened: sr, by: softmax.NewSearcher(s.layer), routing: s.router.NewSearcher(),
		query: [1]*softmax.Query{softmax.NewQuery(s.layer.Dim())},
		h:     kernels.NewInt8Vector(s.layer.Dim()), z: kernels.NewInt8Vector(s.width),
		lowerZ: make([]float32, max(elements, s.width)), upperZ: make([]float32, elements), u: make([]float32, s.view.width),
		lower: make([]float32, room), upper: make([]float32, room), left: make([]uint32, room), logits: make([]float64, room),
	}
	x.query[0].Reserve(max(s.largest, s.model.Clusters()))
	x.query[0].AddLines(&x.lines)
	x.routing.AddLines(&x.lines)
	x.by.AddLines(&x.lines)
	s.to.AddLines(&x.lines)
	x.h.AddLines(&x.lines)
	x.z.AddLines(&x.lines)
	if s.packed != nil {
		s.packed.AddLines(&x.lines)
	}
	return x
}

type previewSearcher struct {
	*previewed
	screened       *screen.Searcher // of what has no short way
	by             *softmax.Searcher
	routing        *router.Searcher
	query          [1]*softmax.Query
	h, z           *kernels.Int8Vector
	lowerZ, upperZ []float32
	u              []float32
	lower, upper   []float32
	left           []uint32
	logits         []float64
	lines          kernels.Lines
}

// straight is the number of labels up to which logits are computed without a look at codes.
const straight = 16

func (s *previewSearcher) TopK(dst []softmax.Prediction, h []float32) int {
	s.lines.Prefetch()
	if s.query[0].Set(h) == nil {
		var found [1]router.Found
		if s.routing.Find(found[:], s.query[:], router.Need{Floor: -1}) == nil {
			cell, _ := s.router.Cell(found[0])
			ids := s.ids[s.starts[cell]:s.starts[cell+1]]
			if k := len(dst); k > 0 && len(ids) > 2*k && s.preview(k, h, cell, ids) && s.best(dst, h) {
				return k
			}
		}
	}
	n, err := s.screened.TopK(dst, h)
	if err != nil {
		panic(err)
	}
	return n
}

// preview leaves in s.left what the previews of a list leave. It reports false if there are none.
func (s *previewSearcher) preview(k int, h []float32, cell int, ids []uint32) bool {
	if s.h.Set(h) != kernels.Certified {
		return false
	}
	s.to.Bounds(s.lowerZ[:len(s.upperZ)], s.upperZ, 0, s.to.Len(), s.h)
	z := s.lowerZ[:s.width]
	for j, x := range s.upperZ[:s.view.width] {
		z[j] = (z[j] + x) / 2
	}
	if s.rule.Length {
		s.setLength(z, h)
	}
	if s.z.Set(z) != kernels.Certified {
		return false
	}
	n, left := len(ids), s.left[:cap(s.left)]
	lower, upper := s.lower[:n], s.upper[:n]
	switch {
	case s.packed != nil && s.rule.Best == 0:
		s.left = left[:s.packed.Survivors(s.lower, s.upper, left, s.panel[cell], n, k, s.z)]
		s.label(ids)
		return true
	case s.packed != nil:
		panels := (n + kernels.PanelRows - 1) / kernels.PanelRows
		s.packed.Bounds(s.lower[:panels*kernels.PanelRows], s.upper[:panels*kernels.PanelRows], s.panel[cell], panels, s.z)
	default:
		s.rows.GatherBounds(lower, upper, ids, s.z)
	}
	scores, want := lower, k
	if s.rule.Best > 0 {
		scores, want = upper, s.rule.Best
	}
	threshold, ok := kernels.KthBound(scores, want)
	if !ok {
		s.left = append(left[:0], ids...)
		return true
	}
	s.left = left[:kernels.SelectAtLeast(left[:n], upper, threshold)]
	s.label(ids)
	return true
}

// label turns the places of a list that are left into labels.
func (s *previewSearcher) label(ids []uint32) {
	for i, at := range s.left {
		s.left[i] = ids[at]
	}
}

// setLength gives z the length of what it does not depend on of h, by columns in which rows have
// nothing.
func (s *previewSearcher) setLength(z, h []float32) {
	own := z[:s.view.width]
	square := s.Previews.left(s.u, own, h) / (s.outside * s.outside) * float64(2*len(own))
	x := float32(math.Sqrt(max(0, square-float64(kernels.Dot(own, own))) / lengthColumns))
	for j := range lengthColumns {
		z[len(own)+j] = x
	}
}

// best writes the best of the labels that are left to dst.
func (s *previewSearcher) best(dst []softmax.Prediction, h []float32) bool {
	if len(s.left) > max(straight, 2*len(dst)) {
		var answers [1]softmax.Answer
		return s.by.Find(dst, answers[:], s.query[:], &softmax.Request{K: len(dst), Among: softmax.Only(s.left)}) == nil
	}
	rows, logits := s.layer.Weights(), s.logits[:len(s.left)]
	rows.Prefetch(s.left)
	rows.RefGatherDot(logits, s.layer.Bias(), s.left, h)
	n := 0
	for i, x := range logits {
		p := softmax.Prediction{ID: s.left[i], Logit: x}
		before := func(o softmax.Prediction) bool { return p.Logit > o.Logit || p.Logit == o.Logit && p.ID < o.ID }
		j := n
		if n < len(dst) {
			n++
		} else if j--; !before(dst[j]) {
			continue
		}
		for ; j > 0 && before(dst[j-1]); j-- {
			dst[j] = dst[j-1]
		}
		dst[j] = p
	}
	return true
}
