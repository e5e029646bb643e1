package main

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/bitset"
)

// limits bounds the cost of one request, and the memory of all requests.
type limits struct{ body, memory, contexts, k int64 }

// service answers for one head. Its index may change.
type service struct {
	layer  *l2s.Layer
	vocab  []string // nil without one
	file   string   // of the index; "" for exact answers
	pool   *l2s.Pool
	limits limits
	memory atomic.Int64 // of requests under way, about
}

// newService opens the files. The vocabulary is a text of one label per line, or a tokenizer; ""
// for none.
func newService(source, bias, indexFile, vocab string, l limits) (_ *service, err error) {
	v := &service{file: indexFile, limits: l}
	if v.layer, err = l2s.Open(source, l2s.OpenOptions{Bias: bias}); err != nil {
		return nil, err
	}
	index, err := v.load()
	if err != nil {
		return nil, err
	}
	if v.pool, err = l2s.NewPool(v.layer, index, options(index)); err != nil || vocab == "" {
		return v, err
	}
	tokens, err := l2s.Tokens(vocab)
	v.vocab = make([]string, v.layer.Labels())
	named := 0
	for id, text := range tokens { // a tokenizer may have ids above the rows, for pictures
		if int64(id) < int64(len(v.vocab)) {
			v.vocab[id] = text
			named++
		}
	}
	if err == nil && named < len(v.vocab)/2 {
		err = fmt.Errorf("%s: found %d tokens, expected one for each of the %d labels", vocab, named, len(v.vocab))
	}
	return v, err
}

// options are the options of a pool: log-sums are over all labels if the index can tell them.
func options(x *l2s.Index) l2s.Options { return l2s.Options{OverTail: x != nil && x.HasTail()} }

// load opens the index, nil without a file. A pipe in its place could keep a read waiting without an
// end.
func (v *service) load() (*l2s.Index, error) {
	if v.file == "" {
		return nil, nil
	}
	if info, err := os.Stat(v.file); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: found a folder, device or pipe, expected a regular file", v.file)
	}
	return l2s.Load(v.file)
}

// reload serves the index that its file has now, unless that fails. Queries under way keep the old
// one.
func (v *service) reload() error {
	index, err := v.load()
	if err == nil {
		_, err = v.pool.Swap(v.layer, index)
	}
	return err
}

// lowPrecision is the P@1 below which the log warns.
const lowPrecision = 0.95

// precision describes the precision of the index that answers.
func (v *service) precision() (text string) {
	v.pool.Do(func(s *l2s.Searcher) error {
		text = precisionOf(s.Index())
		return nil
	})
	return text
}

func precisionOf(x *l2s.Index) string {
	if x == nil {
		return "exact answers, which miss no label"
	}
	steps, normal := x.Steps()
	step := steps[normal]
	k, heldOut := x.Measured()
	if heldOut == 0 {
		return fmt.Sprintf("a %s of unknown precision: nothing was held out when it was made", x.Kind())
	}
	text := fmt.Sprintf("a %s with P@1 %.4f and P@%d %.4f on %d contexts that it was not made from", x.Kind(), step.Precision1.Value, k, step.PrecisionK.Value, heldOut)
	if step.Precision1.Value < lowPrecision {
		text = "WARNING: " + text + fmt.Sprintf(": below %v another index, or exact answers, may serve better", lowPrecision)
	}
	return text
}

// query is the body of a request.
type query struct {
	contexts []vector      // lists of numbers, or base64 of little-endian float32
	k        int           // 5 if absent
	budget   float64       // mean number of labels scored in full; the index's own if absent
	exact    bool          // all labels, for any budget
	ban      []json.Number // labels that may not be answers
	allow    []json.Number // the only answers
}

// read reads the object in a body. encoding/json alone would take fields in another case, and would
// join a list to one that came before.
func (q *query) read(body io.Reader) error {
	fields := map[string]any{"contexts": &q.contexts, "k": &q.k, "budget": &q.budget, "exact": &q.exact, "ban": &q.ban, "allow": &q.allow}
	d := json.NewDecoder(body)
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return cmp.Or(err, bad("body: found %v, expected an object", t))
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		switch field, known := fields[name.(string)]; {
		case !known:
			return bad("%.40q: found an unknown field, expected contexts, k, budget, exact, ban or allow", name)
		case field == nil:
			return bad("%s: found the field twice, expected it once", name)
		default:
			if err := d.Decode(field); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			fields[name.(string)] = nil
		}
	}
	if _, err := d.Token(); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return cmp.Or(err, bad("body: found more after the object"))
	}
	return nil
}

// reply is the body of an answer, with an answer for each context.
type reply struct {
	Answers []answer `json:"answers"`
}

type answer struct {
	Source string  `json:"source"` // "set": the candidates; "layer": all labels
	Labels []label `json:"labels"` // best first
}

type label struct {
	ID      uint32   `json:"id"`
	Text    *string  `json:"text,omitempty"` // with a vocabulary
	Logit   float64  `json:"logit"`
	LogProb *float64 `json:"logprob,omitempty"` // of /logprobs
}

// failure is an error with its HTTP status.
type failure struct {
	status int
	text   string
}

func (f failure) Error() string { return f.text }

func bad(format string, args ...any) error {
	return failure{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// vector is one context.
type vector []float32

// UnmarshalJSON refuses null, which JavaScript writes for NaN.
func (v *vector) UnmarshalJSON(text []byte) error {
	if text[0] == '"' {
		var raw []byte // from base64
		if err := json.Unmarshal(text, &raw); err != nil || len(raw)%4 != 0 {
			return bad("contexts: found %.20s, expected base64 of float32", text)
		}
		*v = make(vector, len(raw)/4)
		_, err := binary.Decode(raw, binary.LittleEndian, []float32(*v))
		return err
	}
	if text[0] != '[' {
		return bad("contexts: found %.20s, expected a list of numbers", text)
	}
	for x := range bytes.SplitSeq(text[1:len(text)-1], []byte(",")) {
		f, err := strconv.ParseFloat(string(bytes.TrimSpace(x)), 32)
		if err != nil {
			return bad("contexts: found %.20q, expected a number of float32", x)
		}
		*v = append(*v, float32(f))
	}
	return nil
}

// set returns the set of the given labels.
func set(name string, ids []json.Number, labels int) (*bitset.Set, error) {
	if ids == nil {
		return nil, nil
	}
	s := bitset.New(labels)
	for i, text := range ids {
		id, err := strconv.ParseUint(string(text), 10, 32)
		if err != nil || id >= uint64(labels) {
			return nil, bad("%s[%d]: found %.30q, expected a label, a whole number below %d", name, i, text, labels)
		}
		s.Add(uint32(id))
	}
	return s, nil
}

// ask answers the query in a body, with log-probabilities if they are wanted, as JSON.
func (v *service) ask(body io.Reader, logProbs bool, hold func(int64) error) ([]byte, error) {
	q := query{k: int(min(5, v.limits.k))}
	var large *http.MaxBytesError
	switch err := q.read(body); {
	case errors.As(err, &large):
		return nil, failure{http.StatusRequestEntityTooLarge, fmt.Sprintf("body: found more than %d bytes", large.Limit)}
	case errors.As(err, new(failure)):
		return nil, err
	case err != nil:
		return nil, bad("body: %v", err)
	case q.k < 1 || int64(q.k) > v.limits.k:
		return nil, bad("k: found %d, expected 1 to %d", q.k, v.limits.k)
	case len(q.contexts) < 1 || int64(len(q.contexts)) > v.limits.contexts:
		return nil, bad("contexts: found %d, expected 1 to %d", len(q.contexts), v.limits.contexts)
	}
	req := l2s.Request{Budget: q.budget, LogSum: logProbs, Exact: q.exact}
	n, dim := len(q.contexts), v.layer.Dim()
	var flat []float32
	for i, h := range q.contexts {
		if flat = append(flat, h...); len(h) != dim {
			return nil, bad("contexts[%d]: found %d numbers, expected %d", i, len(h), dim)
		}
	}
	var err, err2 error
	req.Banned, err = set("ban", q.ban, v.layer.Labels())
	req.Allowed, err2 = set("allow", q.allow, v.layer.Labels())
	if err = cmp.Or(err, err2, hold(int64(n*q.k)*labelBytes)); err != nil {
		return nil, err
	}
	best, answers := make([]l2s.Prediction, n*q.k), make([]l2s.Answer, n)
	err = v.pool.Do(func(s *l2s.Searcher) error {
		if logProbs && (s.Index() == nil || !s.Index().HasTail()) {
			req.Exact = true // only the exact layer knows the sum over all labels
		}
		req.ExactSum = logProbs && req.Exact
		return s.SearchBatch(best, answers, flat, req)
	})
	switch {
	case errors.Is(err, l2s.ErrContext) || errors.Is(err, l2s.ErrRequest):
		return nil, bad("%v", err)
	case err != nil:
		return nil, err
	case answers[0].Count == 0:
		return nil, bad("allow, ban: found no label that may be an answer, expected one at least")
	}
	r := reply{make([]answer, n)}
	for i, a := range answers {
		source := "set"
		if a.Exact {
			source = "layer"
		}
		r.Answers[i] = answer{source, make([]label, a.Count)}
		for j, p := range best[i*q.k:][:a.Count] {
			l := &r.Answers[i].Labels[j]
			if l.ID, l.Logit = p.ID, p.Logit; v.vocab != nil {
				l.Text = &v.vocab[p.ID]
			}
			if logProbs {
				x := p.Logit - a.LogSum
				l.LogProb = &x
			}
		}
	}
	return json.Marshal(r)
}

// Bytes of a request, about: a constant, its body several times, and each label of its answer.
const (
	requestBytes = 64 << 10
	bodyTimes    = 10
	labelBytes   = 300
)

// handler answers POST /topk and, with log-probabilities, POST /logprobs. A request that is alone
// may exceed the memory limit.
func (v *service) handler(logProbs bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var held int64
		hold := func(n int64) error {
			if now := v.memory.Add(n); n > 0 && now > v.limits.memory && now > held+n {
				v.memory.Add(-n)
				return failure{http.StatusServiceUnavailable, "memory: found no room besides the requests under way, expected this one later"}
			}
			held += n
			return nil
		}
		defer func() { v.memory.Add(-held) }()
		var text []byte
		size := min(uint64(v.limits.body), uint64(r.ContentLength)) // -1, of an unknown length, is the largest
		body, err := http.MaxBytesReader(w, r.Body, v.limits.body), hold(requestBytes+bodyTimes*int64(size))
		if err == nil {
			text, err = v.ask(body, logProbs, hold)
		}
		io.Copy(io.Discard, body) // a client that still sends may not read the answer
		if err == nil {
			err = hold(requestBytes + int64(len(text)) - held) // until the client has read it
		}
		write(w, r, text, err)
	}
}

// write writes a body, or the error in its place, as JSON. Only the log has the text of internal
// errors.
func write(w http.ResponseWriter, r *http.Request, text []byte, err error) {
	status := http.StatusOK
	if err != nil {
		f := failure{http.StatusInternalServerError, "internal error"}
		if !errors.As(err, &f) {
			log.Printf("%s: %v", r.URL.Path, err)
		}
		if status = f.status; status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "1")
		}
		text, _ = json.Marshal(map[string]string{"error": f.text})
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(text, '\n'))
}
