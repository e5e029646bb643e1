package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/head"
	"github.com/learning-to-screen/l2s/learn"
	"github.com/learning-to-screen/l2s/screen"
	"github.com/learning-to-screen/l2s/softmax"
)

// sources are the files that are served.
type sources struct {
	head, bias, screen, vocab string
	learn                     int64 // bytes to learn a screen in, 0 for a screen that is given
}

// limits bound what one request may cost.
type limits struct {
	body        int64
	contexts, k int
	busy        int64 // requests under way from which on budgets are lowered, 0 for never
	memory      int64 // of all requests under way, in bytes
}

// files are the sources as they were when they were opened: one generation of the pool.
type files struct {
	generation uint64
	head       *head.Head
	layer      *softmax.Layer
	model      *screen.Model
	vocab      []string // nil for none
}

func (s sources) open() (_ *files, err error) {
	f := &files{}
	if f.head, err = head.Open(s.head, head.Options{Bias: s.bias}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.head.Close()
		}
	}()
	if err = f.head.Read(func() (err error) {
		f.layer, err = softmax.NewLayer(f.head.Rows(), f.head.Bias())
		return err
	}); err != nil {
		return nil, fmt.Errorf("%s: %w", s.head, err)
	}
	if err = regular(s.screen); err != nil && !(s.learn > 0 && (s.screen == "" || errors.Is(err, os.ErrNotExist))) {
		return nil, err
	}
	if s.learn == 0 {
		if f.model, err = screen.Load(s.screen); err != nil {
			return nil, err
		}
	}
	if s.vocab == "" {
		return f, nil
	}
	if head.IsTokenizer(s.vocab) {
		tokens, err := head.Tokens(s.vocab)
		if err != nil {
			return nil, fmt.Errorf("-vocab: %w", err)
		}
		f.vocab = make([]string, f.head.Labels())
		named := 0
		for id := range f.vocab {
			text, ok := tokens[uint32(id)] // none for rows that are padding
			if f.vocab[id] = text; ok {
				named++
			}
		}
		// Ids beyond the rows are no labels: a tokenizer may have some, of pictures.
		if more := len(tokens) - named; more > f.head.Labels()/100+1 {
			return nil, fmt.Errorf("-vocab: %s: found %d tokens, expected at most one for each of the %d labels", s.vocab, len(tokens), f.head.Labels())
		}
		return f, nil
	}
	if err = regular(s.vocab); err != nil {
		return nil, fmt.Errorf("-vocab: %w", err)
	}
	text, err := os.ReadFile(s.vocab)
	if err != nil {
		return nil, err
	}
	f.vocab = strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(f.vocab) != f.head.Labels() {
		return nil, fmt.Errorf("%s: found %d lines, expected one for each of the %d labels", s.vocab, len(f.vocab), f.head.Labels())
	}
	return f, nil
}

// regular refuses what a read may wait for without an end, such as a pipe. head.Open
// does so by itself.
func regular(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: found a folder, device or pipe, expected a regular file", path)
	}
	return err
}

// service answers from the newest files. A query ends with the files it began with.
type service struct {
	sources  sources
	limits   limits
	dim      int // of a context
	pool     *screen.Pool
	audit    *screen.Audit    // nil for none
	learner  *learn.Learner   // nil for none
	steps    sync.Map         // of the learner: the kind of an event to the last one, a learn.Event
	kept     *learn.Reservoir // of contexts, nil for none
	fetching sync.Mutex       // a client reads it
	underWay atomic.Int64     // requests that are read, and not answered
	lowered  atomic.Uint64    // contexts whose budget was lowered
	memory   atomic.Int64     // of requests under way, as hold counts it
	only     *files           // of a learner, whose screens come and go: nil for none
	opened   sync.Map         // *screen.Model: *files, until no query uses them
	stopping atomic.Bool
}

func newService(s sources, l limits, opts ...screen.Option) (*service, error) {
	f, err := s.open()
	if err != nil {
		return nil, err
	}
	f.generation = 1
	if s.learn > 0 {
		return learning(s, l, f)
	}
	if f.model.Tail() != nil {
		opts = append(opts, screen.OverTail()) // log-sums are over all labels
	}
	v := &service{sources: s, limits: l, dim: f.model.Dim()}
	v.opened.Store(f.model, f)
	if v.pool, err = screen.NewPool(f.model, f.layer, opts...); err != nil {
		f.head.Close()
		return nil, fmt.Errorf("%s: %w", s.screen, err)
	}
	return v, nil
}

// serves says what the newest files are.
func (v *service) serves() string {
	if v.only != nil {
		return fmt.Sprintf("%s: %v; it learns a screen", v.sources.head, v.only.head)
	}
	var m *screen.Model
	_ = v.pool.Do(func(s *screen.Searcher) error { m = s.Model(); return nil })
	f, _ := v.opened.Load(m)
	return fmt.Sprintf("%s: %v; %s: a screen of budget %v", v.sources.head, f.(*files).head, v.sources.screen, m.Budget())
}

// learning is a service without a screen, which learns one.
func learning(s sources, l limits, f *files) (v *service, err error) {
	v = &service{sources: s, limits: l, dim: f.layer.Dim(), only: f}
	v.learner, err = learn.New(f.layer, learn.Options{Bytes: s.learn, Keep: s.screen, Event: func(e learn.Event) {
		log.Printf("learn: %s: %s", e.Kind, e.Text)
		v.steps.Store(e.Kind, e)
	}})
	if err != nil {
		f.head.Close()
		return nil, fmt.Errorf("-learn: %w", err)
	}
	v.pool, v.audit, v.kept = v.learner.Pool(), v.learner.Audit(), v.learner.Contexts()
	return v, nil
}

// reload opens the files anew, and serves them from now on unless that fails. One
// goroutine calls it at a time.
func (v *service) reload() error {
	if v.only != nil {
		return errors.New("-learn takes no new files: it makes its screen itself")
	}
	f, err := v.sources.open()
	if err != nil {
		return err
	}
	f.generation = v.pool.Generation() + 1
	var old *files
	v.opened.Range(func(_, x any) bool {
		if x := x.(*files); x.generation == f.generation-1 {
			old = x
		}
		return true
	})
	if f.model.Dim() != v.dim {
		f.head.Close()
		return fmt.Errorf("%s: dim: found %d, expected %d, as clients send", v.sources.screen, f.model.Dim(), v.dim)
	}
	if tail := f.model.Tail() != nil; tail != (old.model.Tail() != nil) {
		f.head.Close()
		return fmt.Errorf("%s: tail: found %t, expected %t, as at the start", v.sources.screen, tail, !tail)
	}
	if v.kept != nil && f.layer.Fingerprint() != old.layer.Fingerprint() {
		v.kept.Forget() // contexts of another model
	}
	v.opened.Store(f.model, f) // before a query can have the model
	drained, err := v.pool.Swap(f.model, f.layer)
	if err != nil {
		v.opened.Delete(f.model)
		f.head.Close()
		return fmt.Errorf("%s: %w", v.sources.screen, err)
	}
	go func() {
		<-drained
		v.opened.Delete(old.model)
		old.head.Close()
	}()
	return nil
}

// query is the body of a request.
type query struct {
	Contexts [][]float32 `json:"contexts"` // all of the layer's dimension
	K        int         `json:"k"`        // defaultK if it is left out
	// Budget is the mean number of candidates, a number or "exact"; the budget of the screen if
	// it is left out.
	Budget float64 `json:"budget,omitempty"`
	// Ban holds labels that are not answered, and Allow, unless it is left out, those that alone
	// are.
	Ban   []uint32 `json:"ban,omitempty"`
	Allow []uint32 `json:"allow,omitempty"`
}

// edits are the labels that a query bans and allows, as sets of so many labels.
func (q *query) edits(labels int, req *softmax.Request) (err error) {
	set := func(ids []uint32) (*bitset.Set, error) {
		slices.Sort(ids)
		return bitset.FromIDs(labels, slices.Compact(ids))
	}
	ban := slices.DeleteFunc(slices.Clone(q.Ban), func(id uint32) bool { return int64(id) >= int64(labels) }) // which are in no answer
	if len(ban) > 0 {
		if req.Banned, err = set(ban); err != nil {
			return err
		}
	}
	if q.Allow == nil {
		return nil
	}
	for i, id := range q.Allow {
		if int64(id) >= int64(labels) {
			return failed(http.StatusBadRequest, "allow[%d]: found label %d, expected one below %d", i, id, labels)
		}
	}
	req.Allowed, err = set(slices.Clone(q.Allow))
	return err
}

// reply is the body of an answer.
type reply struct {
	Generation uint64 `json:"generation"` // of the files, from 1
	// Budget is the one of the screen that stands for the budget of the request: the largest
	// that is not above it, or the smallest. It is left out if the request has none, or the exact layer's.
	Budget float64 `json:"budget,omitempty"`
	// Lowered says that it is smaller than the one that was asked for, since many requests are under way.
	Lowered bool     `json:"lowered,omitempty"`
	Answers []answer `json:"answers"` // one for each context
}

type answer struct {
	Source string  `json:"source"` // what the labels were chosen among: "set" or "layer"
	Labels []label `json:"labels"` // the best first
}

type label struct {
	ID      uint32   `json:"id"`
	Text    *string  `json:"text,omitempty"` // with a vocabulary
	Logit   float64  `json:"logit"`
	LogProb *float64 `json:"logprob,omitempty"` // for /logprobs
}

// failure is an error with the status of HTTP that it means.
type failure struct {
	status int
	text   string
}

func (f failure) Error() string { return f.text }

func failed(status int, format string, args ...any) error {
	return failure{status, fmt.Sprintf(format, args...)}
}

// defaultK is the number of labels for a request that gives none.
const defaultK = 5

// decode reads a query and the end of the body. It goes over the fields itself, since
// encoding/json takes a name in any case, and the last field of those with one name; and
// over the contexts, so that their limits hold before memory is taken for them.
func (v *service) decode(body io.Reader) (q query, err error) {
	q.K = min(defaultK, v.limits.k)
	d := json.NewDecoder(body)
	d.UseNumber()
	if t, err := d.Token(); err != nil {
		return q, err
	} else if t != json.Delim('{') {
		return q, errors.New("found another value, expected an object")
	}
	seen := map[string]bool{}
	for d.More() {
		name, err := d.Token() // a string
		if err != nil {
			return q, err
		}
		if seen[name.(string)] {
			name = "a second " + name.(string)
		}
		seen[name.(string)] = true
		switch name {
		case "contexts":
			q.Contexts, err = decodeContexts(d, v.limits.contexts, v.dim)
		case "k":
			q.K, err = decodeK(d)
		case "budget":
			q.Budget, err = decodeBudget(d)
		case "ban":
			q.Ban, err = decodeLabels(d, "ban")
		case "allow":
			q.Allow, err = decodeLabels(d, "allow")
		default:
			err = fmt.Errorf("found field %.20q, expected contexts, k, budget, ban and allow, each once", name)
		}
		if err != nil {
			return q, err
		}
	}
	if _, err := d.Token(); err == io.EOF { // without the object's end
		return q, io.ErrUnexpectedEOF
	} else if err != nil {
		return q, err
	}
	_, err = d.Token()
	var syntax *json.SyntaxError
	switch {
	case err == io.EOF:
		return q, nil
	case err == nil, errors.As(err, &syntax), err == io.ErrUnexpectedEOF:
		return q, errors.New("found more after the object")
	}
	return q, err
}

func decodeK(d *json.Decoder) (int, error) {
	var k *int // nil after null
	err := d.Decode(&k)
	var other *json.UnmarshalTypeError
	switch {
	case errors.As(err, &other):
		return 0, fmt.Errorf("k: found %.30s, expected a small whole number, in digits", other.Value)
	case err == nil && k == nil:
		return 0, errors.New("k: found null, expected a small whole number, in digits")
	case err != nil:
		return 0, err
	}
	return *k, nil
}

// decodeLabels reads a list of ids. The bound of the body bounds it.
func decodeLabels(d *json.Decoder, field string) ([]uint32, error) {
	switch t, err := d.Token(); {
	case err != nil:
		return nil, err
	case t != json.Delim('['):
		return nil, fmt.Errorf("%s: found %.30v, expected a list of labels", field, t)
	}
	list := []uint32{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		number, _ := t.(json.Number)
		id, err := strconv.ParseUint(string(number), 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%s[%d]: found %.30v, expected a label, a whole number from 0 on", field, len(list), t)
		}
		list = append(list, uint32(id))
	}
	_, err := d.Token()
	return list, err
}

func decodeBudget(d *json.Decoder) (float64, error) {
	t, err := d.Token()
	if err != nil {
		return 0, err
	}
	if t == "exact" {
		return softmax.Exact, nil
	}
	if n, ok := t.(json.Number); ok {
		if x, err := n.Float64(); err == nil && x > 0 && x < softmax.Exact {
			return x, nil
		}
	}
	return 0, fmt.Errorf("budget: found %.30v, expected a number above 0, or \"exact\"", t)
}

// decodeContexts reads a list of at most so many contexts of dim numbers.
func decodeContexts(d *json.Decoder, most, dim int) (all [][]float32, err error) {
	switch t, err := d.Token(); {
	case err != nil:
		return nil, err
	case t == nil:
		return nil, errors.New("contexts: found null, expected a list of contexts")
	case t != json.Delim('['):
		return nil, fmt.Errorf("contexts: found %.30v, expected a list of contexts", t)
	}
	var text json.RawMessage // one context, whose memory serves the next one too
	for d.More() {
		if len(all) == most {
			return nil, fmt.Errorf("contexts: found more than %d, expected 1 to %[1]d", most)
		}
		if err := d.Decode(&text); err != nil {
			return nil, err
		}
		h, err := parseContext(text, dim)
		if err != nil {
			return nil, fmt.Errorf("contexts[%d]: %w", len(all), err)
		}
		all = append(all, h)
	}
	_, err = d.Token()
	return all, err
}

// parseContext reads a list of numbers, or a text: little-endian float32 in base64, which
// takes less time. encoding/json would read null, which is what JavaScript writes for NaN,
// as 0.
func parseContext(data []byte, dim int) ([]float32, error) {
	if data[0] == '"' {
		var raw []byte // which encoding/json reads from base64
		if err := json.Unmarshal(data, &raw); err != nil || len(raw)%4 != 0 {
			return nil, fmt.Errorf("found %.20s, expected base64 of float32", data)
		}
		if len(raw) != 4*dim {
			return nil, fmt.Errorf("found %d numbers, expected %d", len(raw)/4, dim)
		}
		h := make([]float32, dim)
		if _, err := binary.Decode(raw, binary.LittleEndian, h); err != nil {
			return nil, err
		}
		for j, x := range h {
			if x64 := float64(x); math.IsNaN(x64) || math.IsInf(x64, 0) {
				return nil, fmt.Errorf("found %v at element %d, expected finite numbers", x, j)
			}
		}
		return h, nil
	}
	list, isList := bytes.CutPrefix(bytes.TrimSuffix(data, []byte("]")), []byte("["))
	if !isList {
		return nil, fmt.Errorf("found %.20s, expected a list of numbers", data)
	}
	h := make([]float32, 0, dim)
	for x := range bytes.SplitSeq(list, []byte(",")) {
		if x = bytes.TrimSpace(x); len(x) == 0 {
			break // of an empty list
		}
		f, err := strconv.ParseFloat(string(x), 32)
		if err != nil {
			return nil, fmt.Errorf("found %.20s, expected a number of float32", x)
		}
		if len(h) == dim {
			return nil, fmt.Errorf("found %d numbers, expected %d", bytes.Count(list, []byte(","))+1, dim)
		}
		h = append(h, float32(f))
	}
	if len(h) != dim {
		return nil, fmt.Errorf("found %d numbers, expected %d", len(h), dim)
	}
	return h, nil
}

// read checks all of a request but what depends on the generation.
func (v *service) read(w http.ResponseWriter, r *http.Request, m *hold) (q query, err error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return q, failed(http.StatusMethodNotAllowed, "method: found %s, expected POST", r.Method)
	}
	body := http.MaxBytesReader(w, r.Body, v.limits.body)
	q, err = v.decode(heldReader{body, m})
	if err != nil {
		io.Copy(io.Discard, body) // a client that cannot send its body may not read the answer
	}
	var large *http.MaxBytesError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return q, failed(http.StatusBadRequest, "body: found its end, expected an object with contexts and k, up to its closing brace")
	case errors.Is(err, errFull):
		return q, err
	case errors.As(err, &large):
		return q, failed(http.StatusRequestEntityTooLarge, "body: found more than %d bytes", large.Limit)
	case err != nil:
		return q, failed(http.StatusBadRequest, "body: %v", err)
	case len(q.Contexts) == 0:
		return q, failed(http.StatusBadRequest, "contexts: found 0, expected 1 to %d", v.limits.contexts)
	case q.K < 1 || q.K > v.limits.k:
		return q, failed(http.StatusBadRequest, "k: found %d, expected 1 to %d", q.K, v.limits.k)
	}
	return q, nil
}

// ask answers a query from the pool, with log-probabilities if they are wanted.
func (v *service) ask(q query, logProbs bool) (*reply, error) {
	req := softmax.Request{K: q.K, Budget: q.Budget, LogSum: logProbs}
	best, answers := make([]softmax.Prediction, q.K*len(q.Contexts)), make([]softmax.Answer, len(q.Contexts))
	flat := slices.Concat(q.Contexts...)
	underWay := v.underWay.Add(1)
	defer v.underWay.Add(-1)
	var f *files
	var m *screen.Model
	var lowered float64
	var generation uint64
	err := v.pool.Do(func(s *screen.Searcher) error {
		m = s.Model()
		if f, generation = v.only, v.pool.Generation(); f == nil {
			x, _ := v.opened.Load(m)
			f = x.(*files)
			generation = f.generation
		}
		if logProbs {
			if f.head.SoftCap() != 0 {
				return failed(http.StatusNotImplemented, "logprobs: found a head with a soft cap, expected one without")
			}
			req.Temperature = 1 / f.head.LogitScale()
			if m.Tail() == nil {
				req.Budget = softmax.Exact // only the exact layer knows the others
			}
		}
		if lowered = v.lower(m, req, underWay); lowered > 0 {
			req.Budget = lowered
		}
		req.ExactSum = logProbs && req.Budget == softmax.Exact
		if err := q.edits(f.head.Labels(), &req); err != nil {
			return err
		}
		// A fault of a mapped file is an error within Read, and no end of the program.
		return f.head.Read(func() error { return s.SearchBatch(best, answers, flat, req) })
	})
	switch {
	case errors.Is(err, softmax.ErrContext), errors.Is(err, softmax.ErrRequest):
		return nil, failed(http.StatusBadRequest, "%v", err)
	case err != nil:
		return nil, err
	}
	if lowered > 0 {
		v.lowered.Add(uint64(len(answers)))
	}
	for i, h := range q.Contexts {
		if v.learner != nil {
			labels := best[i*q.K:][:answers[i].Count]
			if req.Edits() { // they are not the best of all
				labels = nil
			}
			v.learner.Add(h, labels, answers[i].Source)
		} else if v.kept != nil {
			v.kept.Add(h, nil)
		}
	}
	r := &reply{Generation: generation, Lowered: lowered > 0, Answers: make([]answer, len(answers))}
	if req.Budget > 0 && req.Budget < softmax.Exact && (v.learner == nil || v.learner.Screened()) {
		for i, x := range m.Ladder() {
			if i == 0 || x.Budget <= req.Budget {
				r.Budget = x.Budget
			}
		}
	}
	for i, a := range answers {
		r.Answers[i] = answer{a.Source.String(), make([]label, a.Count)}
		for j, p := range best[i*q.K:][:a.Count] {
			l := label{ID: p.ID, Logit: f.head.Logit(p.Logit)}
			if f.vocab != nil {
				l.Text = &f.vocab[p.ID]
			}
			if logProbs {
				x := p.Logit/req.Temperature - a.LogSum // in the arithmetic of the sum
				l.LogProb = &x
			}
			r.Answers[i].Labels[j] = l
		}
	}
	return r, nil
}

// lower returns the budget of a request while so many are under way, 0 for what it asks for. It falls in
// proportion to their number, but not so far that the exact layer would answer for want of candidates.
func (v *service) lower(m *screen.Model, req softmax.Request, underWay int64) float64 {
	if v.limits.busy == 0 || underWay <= v.limits.busy || req.Budget >= softmax.Exact {
		return 0
	}
	asked := req.Budget
	if asked == 0 {
		asked = m.Budget()
	}
	rungs := m.Ladder()
	usual := 0
	for usual+1 < len(rungs) && rungs[usual+1].Budget <= asked {
		usual++
	}
	at := usual
	wanted := max(rungs[usual].Budget*float64(v.limits.busy)/float64(underWay), float64(2*req.K))
	for at > 0 && rungs[at-1].Budget >= wanted {
		at--
	}
	if at == usual {
		return 0
	}
	return rungs[at].Budget
}

// contexts answers GET /contexts: a .npy file of the contexts that are kept.
func (v *service) contexts(w http.ResponseWriter, r *http.Request) {
	switch {
	case v.kept == nil:
		respond(w, r, nil, failed(http.StatusNotFound, "contexts: found no -keep, expected a number of bytes"))
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", http.MethodGet)
		respond(w, r, nil, failed(http.StatusMethodNotAllowed, "method: found %s, expected GET", r.Method))
	default:
		if !v.fetching.TryLock() { // each holds a copy
			respond(w, r, nil, failed(http.StatusServiceUnavailable, "contexts: found another client that fetches them, expected one at a time"))
			return
		}
		defer v.fetching.Unlock()
		w.Header().Set("Content-Type", "application/octet-stream")
		v.kept.WriteNPY(w) // an error is the client's that has gone
	}
}

// handler answers POST /topk and, with log-probabilities, POST /logprobs.
func (v *service) handler(logProbs bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		m := &hold{of: v}
		defer m.release()
		var q query
		var text []byte
		err := m.grow(requestBytes)
		if err == nil {
			q, err = v.read(w, r, m)
		}
		if err == nil {
			text, err = v.answer(q, logProbs, m)
		}
		write(w, r, text, err)
	}
}

// answer returns the body of the answer to a query. The memory is that of the body alone then: however slowly
// the client reads, nothing else is held for it.
func (v *service) answer(q query, logProbs bool, m *hold) ([]byte, error) {
	if err := m.grow(labelBytes * int64(len(q.Contexts)) * int64(q.K)); err != nil {
		return nil, err
	}
	body, err := v.ask(q, logProbs)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return text, m.grow(requestBytes + int64(len(text)) - m.bytes)
}

// unknown answers requests for paths that the service does not have.
func unknown(w http.ResponseWriter, r *http.Request) {
	respond(w, r, nil, failed(http.StatusNotFound, "path: found %.80q, expected /topk, /logprobs, /audit, /contexts, /healthz, /readyz or /metrics", r.URL.Path))
}

// respond writes a body, or the error in its place, as JSON. A body that has no JSON,
// since a number in it is NaN or infinite, is an error of the service.
func respond(w http.ResponseWriter, r *http.Request, body any, err error) {
	var text []byte
	if err == nil {
		text, err = json.Marshal(body)
	}
	write(w, r, text, err)
}

func write(w http.ResponseWriter, r *http.Request, text []byte, err error) {
	status := http.StatusOK
	if err != nil {
		f := failure{http.StatusInternalServerError, "internal error"} // whose text is for the log alone
		if !errors.As(err, &f) {
			log.Printf("%s: %v", r.URL.Path, err)
		}
		if status = f.status; status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "1")
		}
		text, _ = json.Marshal(map[string]string{"error": f.text}) // a text always has JSON
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(text)
	io.WriteString(w, "\n")
}
