package openai

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/learning-to-screen/l2s/internal/ground/precision"
	l2sengine "github.com/learning-to-screen/l2s/internal/search/engine"
	"github.com/learning-to-screen/l2s/llamacpp/internal/engine"
)

// metrics are the metrics of a server for Prometheus. Its client library would double the size of
// the command and add nine modules for a simple text format:
// https://prometheus.io/docs/instrumenting/exposition_formats.
type metrics struct {
	s        *Server
	mu       sync.Mutex
	requests map[answered]uint64
	seconds  map[string]*histogram // by handler
	token    histogram
	steps    engine.Step // sums
}

// answered are requests of a handler that have a status.
type answered struct {
	handler string
	code    int
}

// histogram counts times by bounds in seconds, each a factor above the one before.
type histogram struct {
	first, factor float64
	counts        [12]uint64 // the last is above all bounds
	sum           float64
}

func (h *histogram) observe(seconds float64) {
	i, bound := 0, h.first
	for ; i < len(h.counts)-1 && seconds > bound; i++ {
		bound *= h.factor
	}
	h.counts[i]++
	h.sum += seconds
}

func newMetrics(s *Server) *metrics {
	return &metrics{s: s, requests: map[answered]uint64{}, seconds: map[string]*histogram{}, token: histogram{first: 0.0005, factor: 2}}
}

// step counts a step of the engine.
func (m *metrics) step(s engine.Step) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.steps.Read += s.Read
	m.steps.Cached += s.Cached
	m.steps.Written += s.Written
	m.steps.Exact += s.Exact
	m.steps.Audited += s.Audited
	m.steps.Agreed += s.Agreed
	m.steps.Reading += s.Reading
	m.steps.Model += s.Model
	m.steps.Head += s.Head
	if s.Written > 0 {
		m.token.observe(s.Took.Seconds())
	}
}

// count counts and times the requests of a handler.
func (m *metrics) count(handler string, h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		noted, ok := w.(*notedWriter)
		if !ok {
			noted = &notedWriter{ResponseWriter: w}
		}
		defer func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.requests[answered{handler, cmp.Or(noted.status, http.StatusOK)}]++
			of := m.seconds[handler]
			if of == nil {
				of = &histogram{first: 0.001, factor: 4}
				m.seconds[handler] = of
			}
			of.observe(time.Since(start).Seconds())
		}()
		h(noted, r)
	})
}

// notedWriter notes the status.
type notedWriter struct {
	http.ResponseWriter
	status int
	note   note
}

// WriteHeader does nothing if the answer has begun already: see caller.probe.
func (w *notedWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
		w.ResponseWriter.WriteHeader(status)
	}
}

// Unwrap is for http.ResponseController.
func (w *notedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// page writes one metric after the other.
type page struct{ w io.Writer }

func (p page) head(name, kind, help string) {
	fmt.Fprintf(p.w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func (p page) value(name, labels string, x float64) {
	if labels != "" {
		labels = "{" + labels + "}"
	}
	fmt.Fprintf(p.w, "%s%s %s\n", name, labels, strconv.FormatFloat(x, 'g', -1, 64))
}

func (p page) one(name, kind, help string, x float64) {
	p.head(name, kind, help)
	p.value(name, "", x)
}

func (p page) histogram(name, labels string, h *histogram) {
	comma := ""
	if labels != "" {
		comma = labels + ","
	}
	count, bound := uint64(0), h.first
	for i, n := range h.counts {
		count += n
		le := strconv.FormatFloat(bound, 'g', -1, 64)
		if i == len(h.counts)-1 {
			le = "+Inf"
		}
		p.value(name+"_bucket", fmt.Sprintf("%sle=%q", comma, le), float64(count))
		bound *= h.factor
	}
	p.value(name+"_sum", labels, h.sum)
	p.value(name+"_count", labels, float64(count))
}

func (m *metrics) serve(w http.ResponseWriter, _ *http.Request) {
	var b bytes.Buffer // a client that reads slowly keeps nobody from counting
	m.write(&b)
	m.s.patient(w)
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(b.Bytes())
}

func (m *metrics) write(w io.Writer) {
	p := page{w}
	active, waiting := m.s.Busy()
	p.one("l2s_requests_active", "gauge", "Requests under way.", float64(active))
	p.one("l2s_requests_waiting", "gauge", "Requests that wait for a place.", float64(waiting))
	p.one("l2s_requests_tokenizing", "gauge", "Requests whose long texts the tokenizer reads or that wait for it; they count as waiting too.", float64(m.s.tokenizing.Load()))
	kept := m.s.Cache()
	p.one("l2s_cache_sequences", "gauge", "Sequences of finished requests that are kept.", float64(kept.Sequences))
	p.one("l2s_cache_tokens", "gauge", "Tokens of these.", float64(kept.Tokens))
	p.one("l2s_cache_bytes", "gauge", "Memory of these, in the context of llama.cpp; sequences that share tokens count them each.", float64(kept.Bytes))
	p.one("l2s_body_bytes", "gauge", "Memory of bodies, and of what was read of them, about.", float64(m.s.memory.Load()))
	x, by := m.s.Head(), m.s.kind()
	p.head("l2s_head", "gauge", "The head of requests that come: exact, preview or screen.")
	for _, kind := range []string{"exact", "preview", "screen"} {
		on := 0.0
		if kind == by {
			on = 1
		}
		p.value("l2s_head", fmt.Sprintf("kind=%q", kind), on)
	}
	if at := m.s.preparing.Load(); at != nil {
		p.one("l2s_preparing_share", "gauge", "The share that is done of the preview that is being made; there is no such metric otherwise.", at.Done)
	}
	if x.Previews() {
		rung := engine.Rung(x.Index(), m.s.o.Budget)
		for _, of := range []struct {
			name, help string
			e          precision.Estimate
		}{
			{"l2s_precision_held_out", "P@1 of the preview on the states that were held out when it was made", rung.Precision1},
			{"l2s_own_states_found", "The share of tokens that the preview found when it was made, each in a state in which it leads", rung.Own},
		} {
			p.head(of.name, "gauge", of.help+", and the ends of its 95% interval.")
			p.value(of.name, `end="low"`, of.e.Low)
			p.value(of.name, `end="value"`, of.e.Value)
			p.value(of.name, `end="high"`, of.e.High)
		}
		p.one("l2s_own_states", "gauge", "The number of these tokens.", float64((*l2sengine.Index)(x.Index()).Preview().Parts().Own))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p.one("l2s_prompt_tokens_total", "counter", "Tokens that were read of prompts and of answers to score.", float64(m.steps.Read))
	p.one("l2s_prompt_cached_tokens_total", "counter", "Tokens of prompts that were in the cache, and so not read.", float64(m.steps.Cached))
	p.one("l2s_written_tokens_total", "counter", "Tokens that were written.", float64(m.steps.Written))
	p.one("l2s_exact_tokens_total", "counter", "Written tokens that the exact layer answered: without a preview or a screen all, but for those to which a grammar left few choices.", float64(m.steps.Exact))
	p.one("l2s_audited_tokens_total", "counter", "States that the exact layer was asked about too, to watch the precision of a preview or a screen.", float64(m.steps.Audited))
	p.one("l2s_audited_agreed_total", "counter", "Audited states of which the best token was found.", float64(m.steps.Agreed))
	p.one("l2s_prompt_seconds_total", "counter", "Time of the model for tokens of prompts; a step for these and for written tokens counts by its tokens.", m.steps.Reading.Seconds())
	p.one("l2s_model_seconds_total", "counter", "Time of the model, up to its head, for written tokens.", m.steps.Model.Seconds())
	p.one("l2s_head_seconds_total", "counter", "Time of the head: the choice of tokens, log-probabilities and scores.", m.steps.Head.Seconds())
	p.head("l2s_token_seconds", "histogram", "Time of a step, which writes a token for each request under way.")
	p.histogram("l2s_token_seconds", "", &m.token)
	p.head("l2s_http_requests_total", "counter", "Requests, by handler and status.")
	for _, of := range slices.SortedFunc(maps.Keys(m.requests), func(a, b answered) int {
		return cmp.Or(cmp.Compare(a.handler, b.handler), cmp.Compare(a.code, b.code))
	}) {
		p.value("l2s_http_requests_total", fmt.Sprintf("handler=%q,code=\"%d\"", of.handler, of.code), float64(m.requests[of]))
	}
	p.head("l2s_http_request_seconds", "histogram", "Time of a request, by handler.")
	for _, handler := range slices.Sorted(maps.Keys(m.seconds)) {
		p.histogram("l2s_http_request_seconds", fmt.Sprintf("handler=%q", handler), m.seconds[handler])
	}
}
