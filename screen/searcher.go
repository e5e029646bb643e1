package screen

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/learning-to-screen/l2s/internal/grow"
	"github.com/learning-to-screen/l2s/internal/router"
	"github.com/learning-to-screen/l2s/kernels"
	"github.com/learning-to-screen/l2s/softmax"
)

// ErrLayer is the error of NewSearcher, by errors.Is, for a layer that is not the
// one that the model was made for.
var ErrLayer = errors.New("screen: the model was made for another layer")

// Option changes how a Searcher answers.
type Option func(*Searcher)

// Short makes a Searcher answer with fewer than k labels if the candidate set
// holds fewer that may be answered. Without it the exact layer answers then.
func Short() Option { return func(s *Searcher) { s.short = true } }

// OverTail makes the log-sum of an answer from a candidate set a sum over all
// labels. Those outside the set count by the model's regression, for one product and
// the logits of the set a context, as for [Searcher.LogProb]. The labels of the answer are those
// without the option. The exact layer gives the sum if the request asks for ExactSum, has allowed
// labels, or more than 256 banned ones, or a temperature that the regression does not
// know. NewSearcher returns an error if the model has no regression.
func OverTail() Option { return func(s *Searcher) { s.overTail = true } }

// Searcher answers requests with a model and its layer. It is for one
// goroutine; any number of them share the model and the layer. Its memory is
// proportional to r, to the largest candidate set and to d, and grows to the
// largest batch, and to L with the first query that the exact layer answers; beyond
// such growth nothing is allocated.
type Searcher struct {
	// What the short way reads, side by side.
	direct           *softmax.Direct // nil if no request goes that way
	groups, clusters *softmax.Packed // of the router
	packed           *softmax.Packed // the candidate sets; nil if they are not packed
	wanted           int             // clusters that routing is to find
	scored           bool            // their logits say which set is looked at
	profile          *profile
	stats            Stats
	directLines      kernels.Lines // what every query of the short way uses

	model    *Model
	layer    *softmax.Searcher
	router   *router.Searcher
	packUpTo int64 // bytes
	copies   int64 // bytes of the packed sets
	whole    int64 // bytes of all sets, were they packed
	short    bool
	overTail bool

	packedSets int // the first of the model's sets, clusters and then pairs

	queries []*softmax.Query // of the contexts of a batch
	best    []softmax.Prediction
	found   []router.Found
	routes  []route
	union   []uint32 // the set of two clusters
	edited  []uint32 // a set with the edits of a request

	one     [1]softmax.Answer
	share   []*softmax.Query // contexts that are answered together
	top     []softmax.Prediction
	answers []softmax.Answer

	logits []float64 // of a candidate set
	terms  []float64 // of a log-sum
	// Labels beside the labels of a set: what they are, and the set with them.
	asIDs, known, widened []uint32
	asked                 [1]uint32
	oneLogit              [1]float64
	asking                [1]*softmax.Query
	lines                 kernels.Lines // what every other query uses
}

// Stats counts what a Searcher did in TopK, Search and SearchBatch.
type Stats struct {
	// Queries is the number of contexts answered.
	Queries uint64
	// Probes is the number of contexts answered from the candidates of two
	// clusters, their pair's or both sets, because the lead of the best was below Config.ProbeMargin.
	// Contexts that the exact layer answered are not among them.
	Probes uint64
	// Candidates is the sum of the sizes of their candidate sets, before a
	// request edits them, of the best cluster alone if the lead was below
	// Config.ExactMargin. Candidates / Queries is L-bar.
	Candidates uint64
	// Routing is the number of cluster and group vectors scanned to find the
	// clusters: r for each context, or with groups their number and the number of
	// clusters in the best one. (Routing + Candidates) / Queries is the
	// mean number of rows scanned in all, without the rows of the exact layer.
	Routing uint64
	// Exact is the number of contexts that the exact layer answered because
	// the set held fewer than k labels that may be answered, because the lead of
	// the best cluster was below Config.ExactMargin, or because the request names
	// the labels to choose among.
	Exact uint64
	// Short is the number of contexts answered with fewer than k labels.
	Short uint64
}

// NewSearcher returns a searcher with the model m over the layer l. It
// returns an error, for which errors.Is holds with [ErrLayer], if the shapes of
// the two differ or if the model was made for another layer: its fingerprint is
// neither the layer's nor all zero. It returns another error if one of them is nil.
//
// The first call for a layer computes the layer's fingerprint, see
// [softmax.Layer.Fingerprint]. Further calls take little more than the memory of a
// Searcher.
func NewSearcher(m *Model, l *softmax.Layer, opts ...Option) (*Searcher, error) {
	if m == nil {
		return nil, errors.New("screen: model: found nil, expected a model")
	}
	if l == nil {
		return nil, errors.New("screen: layer: found nil, expected a layer")
	}
	if m.Dim() != l.Dim() {
		return nil, otherLayer{fmt.Sprintf("dim: found a layer of dimension %d, expected the model's, %d", l.Dim(), m.Dim())}
	}
	if m.Labels() != l.Labels() {
		return nil, otherLayer{fmt.Sprintf("labels: found a layer of %d labels, expected the model's %d", l.Labels(), m.Labels())}
	}
	if want := m.Fingerprint(); want != [32]byte{} {
		if found := l.Fingerprint(); found != want {
			return nil, otherLayer{fmt.Sprintf("fingerprint: found layer %x, expected %x: the model was made for another layer", found, want)}
		}
	}
	s := &Searcher{model: m, layer: softmax.NewSearcher(l), router: m.router.NewSearcher(), packUpTo: packedByDefault(l)}
	for _, o := range opts {
		o(s)
	}
	if s.overTail && m.regression == nil {
		return nil, errors.New("screen: regression: found a model without one, expected one for OverTail")
	}
	var err error
	if s.packed, s.packedSets, err = m.packs.of(m, l, s.packUpTo); err != nil {
		return nil, err
	}
	s.whole = l.PackedBytes(m.offsets)
	if s.packed != nil {
		s.copies = l.PackedBytes(m.offsets[:s.packedSets+1])
	}
	if err := s.warm(); err != nil {
		return nil, err
	}
	s.shorten()
	s.addLines()
	return s, nil
}

// addLines adds the memory of the searcher and what of the model every query reads.
func (s *Searcher) addLines() {
	kernels.AddLines(&s.lines, math.MaxInt, unsafe.Slice(s, 1))
	kernels.AddLines(&s.lines, math.MaxInt, unsafe.Slice(s.model, 1))
	kernels.AddLines(&s.lines, math.MaxInt, s.queries)
	s.queries[0].AddLines(&s.lines)
	s.router.AddLines(&s.lines)
	s.layer.AddLines(&s.lines)
	kernels.AddLines(&s.lines, math.MaxInt, s.best)
	kernels.AddLines(&s.lines, math.MaxInt, s.found)
	kernels.AddLines(&s.lines, math.MaxInt, s.routes)
	if s.packed != nil {
		s.packed.AddLines(&s.lines)
	}
}

type otherLayer struct{ text string }

func (e otherLayer) Error() string { return "screen: " + e.text }
func (e otherLayer) Unwrap() error { return ErrLayer }

// warm lets all scratch grow to its final size, so that already the first query
// allocates nothing. A context of zeros rules out no row of V, and an answer as
// long as the largest set none of its labels; one of half of them needs the intervals
// of all. No later search needs more memory.
func (s *Searcher) warm() error {
	m := s.model
	qs, err := s.set(1, make([]float32, m.Dim()))
	if err != nil {
		return err
	}
	if _, err := s.route(qs, m.margins); err != nil {
		return err
	}
	for a := range max(m.Groups(), 1) {
		if _, err := s.router.Within(s.best[:1], qs[0], a); err != nil {
			return err
		}
	}
	size := m.LargestSet()
	if m.margins.probe > 0 {
		size = min(2*size, m.labels)
		s.union = make([]uint32, 0, size)
	}
	if size == 0 {
		return nil
	}
	set := make([]uint32, size)
	for i := range set {
		set[i] = uint32(i)
	}
	all := make([]softmax.Prediction, size)
	for _, k := range []int{size, max(size/2, 1)} { // by the weights alone, and by intervals
		if err := s.layer.Find(all[:k], s.one[:], qs, &softmax.Request{K: k, Among: softmax.Only(set)}); err != nil {
			return err
		}
	}
	return nil
}

// reserve makes room for the routes of n contexts, k clusters each.
func (s *Searcher) reserve(n, k int) {
	s.best, s.found, s.routes = grow.Slice(s.best, n*k), grow.Slice(s.found, n), grow.Slice(s.routes, n)
}

// Search answers a request about the context h, as [softmax.Searcher.Search]
// does, but among the candidate set of h's cluster instead of all labels. The
// labels that the request biases belong to the set. The exact layer answers if
// fewer than req.K labels of the set may be answered, unless Short was given, if
// the lead of the cluster is below the exact margin, and if the request says
// among which labels to choose. Answer.Source says what the labels were chosen
// among.
//
// The length of dst is req.K exactly. It returns an error, and writes nothing, if h
// is not a context (softmax.ErrContext) or if the request or the length of dst does
// not fit the layer (softmax.ErrRequest).
func (s *Searcher) Search(dst []softmax.Prediction, h []float32, req softmax.Request) (softmax.Answer, error) {
	if err := s.search(dst, s.one[:], h, &req); err != nil {
		return softmax.Answer{}, err
	}
	return s.one[0], nil
}

// SearchBatch answers the same request about each of n contexts, row-major, n x
// d. dst has exactly req.K elements a context, the answer to context i is
// dst[i*req.K:][:answers[i].Count], and answers has n elements. The answers are
// the same as from Search, bit for bit. Errors are as from Search.
//
// Contexts are answered cluster by cluster, several at a time, so that rows
// are read once for all of them. That pays if several contexts fall into one
// cluster: beam search, and services that gather requests. Memory of some six
// bytes for each element of the contexts stays with the searcher.
func (s *Searcher) SearchBatch(dst []softmax.Prediction, answers []softmax.Answer, contexts []float32, req softmax.Request) error {
	return s.search(dst, answers, contexts, &req)
}

func (s *Searcher) search(dst []softmax.Prediction, answers []softmax.Answer, contexts []float32, req *softmax.Request) error {
	s.profile.begin()
	defer s.profile.end()
	n := len(answers)
	if n <= fewContexts && s.direct != nil && len(dst) == req.K*n && s.plain(req) {
		done := s.each(dst, answers, contexts, req)
		if done == n {
			return nil
		}
		// Search answers the others, if they are contexts.
		if done > 0 {
			dst, answers, contexts = dst[done*req.K:], answers[done:], contexts[done*s.model.Dim():]
			n -= done
		}
	}
	if err := req.Check(s.model.labels); err != nil {
		return err
	}
	if len(dst) != req.K*n {
		if n == 1 {
			return invalid{softmax.ErrRequest, fmt.Sprintf("screen: dst: found room for %d labels, expected k = %d", len(dst), req.K)}
		}
		return invalid{softmax.ErrRequest, fmt.Sprintf("screen: found room for %d labels, expected k = %d for each of %d contexts", len(dst), req.K, n)}
	}
	s.lines.Prefetch()
	qs, err := s.set(n, contexts)
	if err != nil {
		return err
	}
	if req.Among.Some() {
		s.stats.Queries += uint64(n)
		s.stats.Exact += uint64(n)
		s.profile.from(softmax.FromLayer)
		return s.layer.Find(dst, answers, qs, req)
	}
	routes, err := s.route(qs, s.model.margins)
	if err != nil {
		return err
	}
	if n > 1 {
		slices.SortFunc(routes, compareRoutes)
	}
	for len(routes) > 0 {
		end := 1
		for end < len(routes) && routes[end].with(routes[0]) {
			end++
		}
		if err := s.answer(dst, answers, routes[:end], req); err != nil {
			return err
		}
		routes = routes[end:]
	}
	return nil
}

// plain reports whether a request asks for nothing but labels of a set, and their log-sum.
func (s *Searcher) plain(req *softmax.Request) bool {
	return !(req.LogSum && (s.overTail || req.ExactSum)) && req.Temperature == 0 && !req.Among.Some() && !req.Edits()
}

// invalid is an error of a kind that package softmax exports.
type invalid struct {
	kind error
	text string
}

func (e invalid) Error() string { return e.text }
func (e invalid) Unwrap() error { return e.kind }

// set gives the n contexts to the searcher's queries.
func (s *Searcher) set(n int, contexts []float32) ([]*softmax.Query, error) {
	d := s.model.Dim()
	for len(s.queries) < max(n, 1) {
		s.queries = append(s.queries, softmax.NewQuery(d))
	}
	if n == 1 {
		return s.queries[:1], s.queries[0].Set(contexts)
	}
	if len(contexts) != n*d {
		return nil, invalid{softmax.ErrContext, fmt.Sprintf("screen: contexts: found %d elements, expected dimension %d for each of %d answers", len(contexts), d, n)}
	}
	for i, q := range s.queries[:n] {
		if err := q.Set(contexts[i*d : (i+1)*d]); err != nil {
			return nil, fmt.Errorf("screen: contexts: row %d: %w", i, err)
		}
	}
	return s.queries[:n], nil
}

// shared is the number of contexts of one candidate set that are answered
// together.
const shared = 64

// answer answers contexts that are looked up in the same labels.
func (s *Searcher) answer(dst []softmax.Prediction, answers []softmax.Answer, routes []route, req *softmax.Request) error {
	r, k := routes[0], req.K
	all := s.candidates(r)
	set, among := all, s.among(r, all)
	s.count(routes, len(set))
	source := r.source()
	if req.Edits() {
		set = s.edit(set, req) // none is left that may not be answered
		among = softmax.Only(set)
	}
	ask := &softmax.Request{K: k, LogSum: req.LogSum, ExactSum: req.ExactSum, Temperature: req.Temperature, Among: among, Biases: req.Biases}
	quick := s.overTail && s.quick(r, req)
	if s.overTail && k > 0 && !quick {
		ask.LogSum = false // it is not the one that is wanted
	}
	if r.exact || len(set) < k && !s.short {
		source, ask = softmax.FromLayer, req
	}
	s.profile.from(source)
	if len(routes) == 1 {
		i := r.context
		if err := s.layer.Find(dst[i*k:(i+1)*k], answers[i:i+1], s.queries[i:i+1], ask); err != nil {
			return err
		}
	} else if err := s.together(dst, answers, routes, ask); err != nil {
		return err
	}
	for _, r := range routes {
		a := &answers[r.context]
		if a.Source = source; quick && req.LogSum && source != softmax.FromLayer {
			a.LogSum = kernels.LogAddExp(a.LogSum, s.tailOf(s.queries[r.context], r, all, temperatureOf(req)))
		} else if s.overTail && req.LogSum && source != softmax.FromLayer {
			sum, err := s.sumOverTail(s.queries[r.context], r, req)
			if err != nil {
				return err
			}
			a.LogSum = sum
		}
		s.countAnswer(a, k)
	}
	return nil
}

// together answers contexts by the layer, some at a time.
func (s *Searcher) together(dst []softmax.Prediction, answers []softmax.Answer, routes []route, req *softmax.Request) error {
	k := req.K
	for len(routes) > 0 {
		m := min(shared, len(routes))
		s.top, s.answers, s.share = grow.Slice(s.top, m*k), grow.Slice(s.answers, m), s.share[:0]
		for _, r := range routes[:m] {
			s.share = append(s.share, s.queries[r.context])
		}
		if err := s.layer.Find(s.top, s.answers, s.share, req); err != nil {
			return err
		}
		for j, r := range routes[:m] {
			answers[r.context] = s.answers[j]
			copy(dst[r.context*k:], s.top[j*k:][:s.answers[j].Count])
		}
		routes = routes[m:]
	}
	return nil
}

// edit returns the set with the labels that the request biases, and without
// those that may not be answered.
func (s *Searcher) edit(set []uint32, req *softmax.Request) []uint32 {
	s.edited = s.edited[:0]
	biases := req.Biases
	add := func(id uint32) {
		if req.Permits(id) {
			s.edited = append(s.edited, id)
		}
	}
	for _, id := range set {
		for len(biases) > 0 && biases[0].ID < id {
			add(biases[0].ID)
			biases = biases[1:]
		}
		if len(biases) > 0 && biases[0].ID == id {
			biases = biases[1:]
		}
		add(id)
	}
	for _, b := range biases {
		add(b.ID)
	}
	return s.edited
}

// count counts the routes of contexts with a set of that size.
func (s *Searcher) count(routes []route, size int) {
	s.stats.Queries += uint64(len(routes))
	s.stats.Candidates += uint64(len(routes)) * uint64(size)
	for _, r := range routes {
		s.stats.Routing += uint64(r.rows)
	}
}

// countAnswer counts an answer to a request for k labels.
func (s *Searcher) countAnswer(a *softmax.Answer, k int) {
	switch a.Source {
	case softmax.FromLayer:
		s.stats.Exact++
	case softmax.FromTwoSets:
		s.stats.Probes++
	}
	if a.Count < k {
		s.stats.Short++
	}
}

// PackedBytes returns the memory that the copies of candidate sets take, see [Pack], and the
// memory that copies of all sets would take. If the two differ, Pack does not allow so much, or
// the layer has no codes to copy.
func (s *Searcher) PackedBytes() (copies, all int64) { return s.copies, s.whole }

// Model returns the searcher's model.
func (s *Searcher) Model() *Model { return s.model }

// Stats returns what the searcher did so far. Like every method it is for
// the searcher's own goroutine.
func (s *Searcher) Stats() Stats { return s.stats }
