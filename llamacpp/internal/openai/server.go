// Package openai serves an engine over HTTP, with the paths, fields and errors of OpenAI's API.
package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/llamacpp"
	"github.com/learning-to-screen/l2s/llamacpp/internal/engine"
	"github.com/learning-to-screen/l2s/llamacpp/internal/jinja"
)

// Options are the options of a server.
type Options struct {
	// Step, unless nil, gets each step of the engine. It must not wait.
	Step func(engine.Step)

	Name     string        // of the model
	Template string        // of chats, "" for the model's own: see llamacpp.Model.Chat
	Parallel int           // concurrent requests
	Waiting  int           // that wait, at most
	Body     int64         // bytes of a request, at most
	Memory   int64         // bytes that bodies that are read take together, about
	Timeout  time.Duration // the longest time to read a request, and until a client takes a part of an answer
	Budget   float64       // of the head's preview, 0 for its own
	Audit    float64       // of the engine
	Cache    int64         // of the engine, in bytes
	Local    bool          // refuses requests whose Host is not this machine
	Strict   bool          // refuses fields that nothing reads
	Keys     []string      // of which a request must have one, unless there are none
	Origins  []string      // whose pages may ask, "*" for all
	Log      *slog.Logger  // gets a line for each request, unless nil
}

// Forks is the Forks of the model of a server.
const Forks = 8

// Kept is the Kept of the model of a server of so many concurrent requests: texts of several clients in
// turns, each of some requests.
func Kept(parallel int) int { return 3 * parallel }

// drained is the number of bytes that are read of a body that is too large: clients read an answer
// when they have written all.
const drained = 1 << 30

// Server answers requests. Run runs its engine.
type Server struct {
	*engine.Engine
	m        *llamacpp.Model
	x        *llamacpp.Head
	o        Options
	template *llamacpp.Template // nil if there is none
	// The template renders tools, and their calls in the form that callReader reads.
	rendersTools bool
	banned       *bitset.Set   // tokens that the model's file forbids
	readers      chan struct{} // a place for each text whose tokens are looked for
	started      time.Time
	metrics      *metrics
	memory       atomic.Int64
	stopping     atomic.Bool

	preparing atomic.Pointer[Preparing]

	tokenizing atomic.Int64    // texts that are read by the tokenizer, or wait for it
	over       context.Context // ends with Run: no request may take longer
	end        context.CancelFunc
}

// New returns a server of a model, with a sequence per concurrent request and with Forks, and its
// head.
func New(m *llamacpp.Model, x *llamacpp.Head, o Options) (*Server, error) {
	s := &Server{m: m, x: x, o: o, started: time.Now(), readers: make(chan struct{}, mostReaders)}
	s.over, s.end = context.WithCancel(context.Background())
	var err error
	if s.banned, err = engine.Banned(x, nil); err != nil {
		return nil, err
	}
	if o.Template != "" || m.ChatTemplate() != "" {
		if s.template, err = m.Template(o.Template); err != nil {
			return nil, err
		}
	}
	s.rendersTools = rendersTools(s.template)
	s.metrics = newMetrics(s)
	s.Engine = engine.New(m, x, engine.Options{Parallel: o.Parallel, Forks: Forks, Waiting: o.Waiting, Audit: o.Audit, Cache: o.Cache, Step: func(x engine.Step) {
		s.metrics.step(x)
		if o.Step != nil {
			o.Step(x)
		}
	}})
	return s, nil
}

// Run serves requests until ctx ends. Then requests end: with the step under way, and without more
// time for their bodies or for the clients that take answers.
func (s *Server) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, s.end)()
	s.Engine.Run(ctx)
	s.end()
}

// lastSecond is the time in which clients must take the ends of answers after the end of Run.
const lastSecond = time.Second

// timed gives requests their times: to come whole, from their handler on (read gives more to a
// body), and at the end of the server.
func (s *Server) timed(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Now().Add(s.o.Timeout)) // net/http reads the rest of a body that nobody wants
		defer context.AfterFunc(s.over, func() {
			_ = control.SetReadDeadline(time.Unix(1, 0))
			_ = control.SetWriteDeadline(time.Now().Add(lastSecond))
		})()
		h.ServeHTTP(w, r)
		// What net/http reads of a body that nobody wants, here, where the end of the server ends it.
		if r.Header.Get("Expect") == "" {
			_, _ = io.CopyN(io.Discard, r.Body, 256<<10)
		}
	})
}

// Stop has /health and requests that come fail, by 503: the server is about to end. Those that are under
// way go on.
func (s *Server) Stop() { s.stopping.Store(true) }

// Preparing describes the making of a preview, beside requests that the exact layer answers.
type Preparing struct {
	Stage   string   `json:"stage"`
	Done    float64  `json:"done"`         // the share, 0 to 1
	Seconds *float64 `json:"seconds_left"` // about, nil if nobody knows
}

// Prepare has /health and /metrics show the making of a preview, or none if p is nil.
func (s *Server) Prepare(p *Preparing) { s.preparing.Store(p) }

// kind is the kind of the head of requests that come.
func (s *Server) kind() string {
	if index := s.Head().Index(); index != nil {
		return index.Kind()
	}
	return "exact"
}

// Starting answers as long as there is no Server, while the model is read: by 503, with Retry-After.
func Starting(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(5 * time.Second)) // net/http reads the rest of a body
	_ = control.SetWriteDeadline(time.Now().Add(10 * time.Second))
	f := unavailable("the server begins: it reads the model").code("starting")
	w.Header().Set("Retry-After", "1")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.status)
	encode(w, object{"error": f})
}

// Handler are the paths of the server.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern, name string, h func(w http.ResponseWriter, r *http.Request) *failure) {
		mux.Handle(pattern, s.metrics.count(name, func(w http.ResponseWriter, r *http.Request) {
			if f := h(w, r); f != nil {
				s.refuse(w, f)
			}
		}))
	}
	handle("POST /v1/completions", "completions", func(w http.ResponseWriter, r *http.Request) *failure { return s.complete(w, r, false) })
	handle("POST /v1/chat/completions", "chat", func(w http.ResponseWriter, r *http.Request) *failure { return s.complete(w, r, true) })
	handle("POST /v1/score", "score", s.score)
	handle("GET /v1/models", "models", func(w http.ResponseWriter, r *http.Request) *failure {
		return s.answer(w, map[string]any{"object": "list", "data": []any{s.model()}})
	})
	handle("GET /v1/models/{name...}", "models", func(w http.ResponseWriter, r *http.Request) *failure {
		if name := r.PathValue("name"); name != s.o.Name {
			return wrong("model", "found %.80q, expected %q", name, s.o.Name).with(http.StatusNotFound).code("model_not_found")
		}
		return s.answer(w, s.model())
	})
	handle("GET /health", "health", func(w http.ResponseWriter, r *http.Request) *failure {
		if s.stopping.Load() {
			return unavailable("the server is about to end")
		}
		health := object{"status": "ok", "head": s.kind()}
		if p := s.preparing.Load(); p != nil {
			health["preparing"] = p
		}
		return s.answer(w, health)
	})
	mux.HandleFunc("GET /metrics", s.metrics.serve)
	handle("/", "other", func(w http.ResponseWriter, r *http.Request) *failure {
		method := ""
		switch path := r.URL.Path; {
		case path == "/v1/completions" || path == "/v1/chat/completions" || path == "/v1/score":
			method = http.MethodPost
		case path == "/v1/models" || strings.HasPrefix(path, "/v1/models/") || path == "/health" || path == "/metrics":
			method = http.MethodGet
		}
		if method != "" {
			f := wrong("", "%.80s: found the method %.20q, expected %s", r.URL.Path, r.Method, method).with(http.StatusMethodNotAllowed)
			if f.allow = method; method == http.MethodGet {
				f.allow += ", " + http.MethodHead
			}
			return f
		}
		return wrong("", "found the path %.80q, expected one of /v1/chat/completions, /v1/completions, /v1/score, /v1/models, /health and /metrics", r.URL.Path).with(http.StatusNotFound).code("unknown_url")
	})
	h := s.crossOrigin(s.keyed(mux))
	if s.o.Local {
		h = s.local(h)
	}
	return s.timed(s.logged(h))
}

func (s *Server) model() any {
	return map[string]any{"id": s.o.Name, "object": "model", "created": s.started.Unix(), "owned_by": "l2s", "context_length": s.m.Context()}
}

// unavailable is the failure of a request that may come again.
func unavailable(why string) *failure {
	f := &failure{status: http.StatusServiceUnavailable, Message: why, Type: "server_error"}
	return f.code("unavailable")
}

// refuse answers with a failure.
func (s *Server) refuse(w http.ResponseWriter, f *failure) {
	if f.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	if f.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	if f.allow != "" {
		w.Header().Set("Allow", f.allow)
	}
	s.reply(w, f.status, map[string]any{"error": f})
}

// answer answers with JSON.
func (s *Server) answer(w http.ResponseWriter, x any) *failure {
	s.reply(w, http.StatusOK, x)
	return nil
}

func (s *Server) reply(w http.ResponseWriter, status int, x any) {
	s.patient(w)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	encode(w, x)
}

func encode(w io.Writer, x any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(x)
}

// patient sets the time limit of a client for a part of an answer.
func (s *Server) patient(w http.ResponseWriter) {
	control := http.NewResponseController(w)
	// Longer than the time for the rest of a body that nobody wants, which net/http reads before.
	_ = control.SetWriteDeadline(time.Now().Add(s.o.Timeout + s.o.Timeout/8)) // if the writer supports it
	if s.over.Err() != nil {
		_ = control.SetWriteDeadline(time.Now().Add(lastSecond))
	}
}

// read reads the fields of a request, which keep its body. Its memory is held until h.release.
func (s *Server) read(w http.ResponseWriter, r *http.Request) (f *fields, h *hold, failed *failure) {
	for _, e := range r.Header.Values("Content-Encoding") {
		if e != "" && !strings.EqualFold(e, "identity") {
			return nil, nil, wrong("", "Content-Encoding: found %.40q, expected a body without one", e).with(http.StatusUnsupportedMediaType).code("content_encoding")
		}
	}
	control := http.NewResponseController(w)
	until := time.Now().Add(s.o.Timeout)
	_ = control.SetReadDeadline(until)
	if s.over.Err() != nil || s.stopping.Load() {
		w.Header().Set("Connection", "close")
		return nil, nil, unavailable("the server is about to end")
	}
	h = &hold{of: s}
	body, err := h.read(r.Body, r.ContentLength)
	if long := int64(len(body)) > s.o.Body; long || err != nil && r.ContentLength > s.o.Body {
		h.release()
		if long && r.Header.Get("Expect") == "" {
			_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, drained))
		}
		return nil, nil, wrong("", "body: found more than %d bytes, expected at most %[1]d", s.o.Body).with(http.StatusRequestEntityTooLarge).code("body_too_large")
	}
	if err != nil {
		h.release()
		if f := (*failure)(nil); errors.As(err, &f) {
			_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, drained))
			return nil, nil, f
		}
		f := wrong("", "body: it did not come whole: %v", err)
		switch {
		case s.over.Err() != nil:
			return nil, nil, unavailable("the server ended the request")
		case errors.Is(err, os.ErrDeadlineExceeded), !time.Now().Before(until): // net/http hides it of trailers
			return nil, nil, f.with(http.StatusRequestTimeout)
		}
		return nil, nil, f.code("invalid_body") // of a client that is not heard any more, or of wrong chunks
	}
	_ = control.SetReadDeadline(time.Time{}) // its end would count as the end of the client
	if found := jinja.NotUnicode(body); found != "" {
		failed = wrong("", "body: found %s, expected JSON in UTF-8", found).code("invalid_json")
	} else if f, failed = parse(body); failed == nil && f.has("prompt") && f.has("messages") {
		failed = wrong("prompt", "found prompt and messages, expected one of both")
	}
	if failed != nil {
		h.release()
		return nil, nil, failed
	}
	return f, h, nil
}

// heldTimes is the memory of a request in multiples of its live bytes: Go's collector begins when
// as much again is garbage, and texts are copied once when they are decoded.
const heldTimes = 3

// hold is the part of a request in the memory for all requests.
type hold struct {
	of    *Server
	bytes int64
}

// become changes the live bytes of the request, and fails if there is no memory for more. A request
// alone has all that it needs.
func (h *hold) become(bytes int64) *failure {
	more := heldTimes*bytes - h.bytes
	if now := h.of.memory.Add(more); more > 0 && now > h.of.o.Memory && now > h.bytes+more {
		h.of.memory.Add(-more)
		return unavailable("other requests take the memory that there is for all: try again later")
	}
	h.bytes += more
	return nil
}

func (h *hold) release() {
	h.of.memory.Add(-h.bytes)
	h.bytes = 0
}

// read reads a body of at most one byte more than the server takes. Memory is held before it is
// allocated, and allocated as bytes come: a client may promise more than it sends.
func (h *hold) read(r io.Reader, length int64) ([]byte, error) {
	most := h.of.o.Body + 1
	if length >= 0 {
		most = min(most, length+1)
	}
	var body []byte
	for {
		if int64(len(body)) == most {
			return body, nil
		}
		if len(body) == cap(body) {
			size := min(max(2*int64(cap(body)), 4096), most)
			if failed := h.become(size); failed != nil {
				return nil, failed
			}
			body = append(make([]byte, 0, size), body...)
		}
		n, err := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if err == io.EOF {
			return body, nil
		} else if err != nil {
			return body, err
		}
	}
}

// reserve takes a place of the engine, before the work for a request.
func (s *Server) reserve() (*engine.Place, *failure) {
	place, err := s.Reserve()
	if err != nil {
		_, failed := s.start(nil, err)
		return nil, failed
	}
	return place, nil
}

// off is the error of log-probabilities in answers: nil for tokens that were computed together with
// other requests, which change them by as much as nobody has measured.
func (s *Server) off(x *llamacpp.Head, shared bool) any {
	if shared {
		return nil
	}
	return engine.LogProbError(x, s.o.Budget)
}

// start starts a job, or returns the reason why it does not.
func (s *Server) start(job *engine.Job, err error) (*engine.Job, *failure) {
	return job, s.notStarted(err, "")
}

// notStarted is the failure of a job that did not start, nil if it did. form is the field of its grammar.
func (s *Server) notStarted(err error, form string) *failure {
	var long *engine.TooLongError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &long):
		return wrong("", "%v", err).code(tooLong)
	case errors.Is(err, engine.ErrBusy):
		return unavailable(s.full())
	case errors.Is(err, engine.ErrClosed):
		return unavailable(err.Error())
	case errors.Is(err, engine.ErrNoToken):
		return wrong(cmp.Or(form, "logit_bias"), "%v", err)
	}
	return wrong("", "%v", err)
}

// full returns the message that there is no place for a request.
func (s *Server) full() string {
	text := "the only place is taken"
	if n := s.o.Parallel; n > 1 {
		text = fmt.Sprintf("all %d places are taken", n)
	}
	if n := s.o.Waiting; n == 1 {
		text += " and 1 request waits already"
	} else if n > 1 {
		text += fmt.Sprintf(" and %d requests wait already", n)
	}
	return text + ": try again later"
}

// ended is the failure of a job that did not end well, nil if it did. form is the field of its grammar.
func ended(err error, form string) *failure {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, engine.ErrClosed), errors.Is(err, context.Canceled):
		return unavailable("the server ended the request")
	case errors.Is(err, engine.ErrNoToken): // of a grammar that no text has
		return wrong(form, "%v", err)
	}
	f := &failure{status: http.StatusInternalServerError, Message: err.Error(), Type: "server_error"}
	return f
}

func (s *Server) String() string {
	at := "one request at a time"
	if s.o.Parallel > 1 {
		at = fmt.Sprintf("%d requests at once", s.o.Parallel)
	}
	return fmt.Sprintf("%s: %s, up to %d more wait, %d tokens each", cmp.Or(s.o.Name, "model"), at, s.o.Waiting, s.m.Context())
}
