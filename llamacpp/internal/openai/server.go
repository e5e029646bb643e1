// Package openai serves an engine over HTTP, with the paths, fields and errors of OpenAI's API.
package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/learning-to-screen/l2s/bitset"
	"github.com/learning-to-screen/l2s/llamacpp"
	"github.com/learning-to-screen/l2s/llamacpp/internal/engine"
)

// Options are the options of a server.
type Options struct {
	Name     string        // of the model
	Template string        // of chats, "" for the model's own: see llamacpp.Model.Chat
	Parallel int           // concurrent requests
	Waiting  int           // that wait, at most
	Body     int64         // bytes of a request, at most
	Memory   int64         // bytes that bodies that are read take together, about
	Timeout  time.Duration // the longest time to read a request, and until a client takes a part of an answer
	Budget   float64       // of the head's preview, 0 for its own
	Audit    float64       // of the engine
	Local    bool          // refuses requests whose Host is not this machine
}

// Forks is the Forks of the model of a server.
const Forks = 8

// drained is the number of bytes that are read of a body that is too large: clients read an answer
// when they have written all.
const drained = 1 << 30

// Server answers requests. Run runs its engine.
type Server struct {
	*engine.Engine
	m        *llamacpp.Model
	x        *llamacpp.Head
	o        Options
	banned   *bitset.Set   // tokens that the model's file forbids
	readers  chan struct{} // a place for each text whose tokens are looked for
	started  time.Time
	metrics  *metrics
	memory   atomic.Int64
	stopping atomic.Bool
}

// New returns a server of a model, with a sequence per concurrent request and with Forks, and its
// head.
func New(m *llamacpp.Model, x *llamacpp.Head, o Options) (*Server, error) {
	s := &Server{m: m, x: x, o: o, started: time.Now(), readers: make(chan struct{}, mostReaders)}
	var err error
	if s.banned, err = engine.Banned(x, nil); err != nil {
		return nil, err
	}
	s.metrics = newMetrics(s)
	s.Engine = engine.New(m, x, engine.Options{Parallel: o.Parallel, Forks: Forks, Waiting: o.Waiting, Audit: o.Audit, Step: s.metrics.step})
	return s, nil
}

// Stop has /health fail: the server is about to end.
func (s *Server) Stop() { s.stopping.Store(true) }

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
		return s.answer(w, map[string]string{"status": "ok"})
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
	// A page of another site, in a browser on this machine, may not ask.
	guard := http.NewCrossOriginProtection()
	guard.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.refuse(w, wrong("", "found a request of a page of another site, expected none").with(http.StatusForbidden).code("cross_origin"))
	}))
	if s.o.Local {
		return s.local(guard.Handler(mux))
	}
	return guard.Handler(mux)
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
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.o.Timeout)) // if the writer supports it
}

// read reads the fields of a request. The memory of its body is held until release.
func (s *Server) read(w http.ResponseWriter, r *http.Request) (f *fields, release func(), failed *failure) {
	if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return nil, nil, wrong("", "Content-Encoding: found %.40q, expected a body without one", e).with(http.StatusUnsupportedMediaType).code("content_encoding")
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(s.o.Timeout))
	h := hold{of: s}
	body, err := io.ReadAll(io.LimitReader(heldReader{r.Body, &h}, s.o.Body+1))
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
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, nil, f.with(http.StatusRequestTimeout)
		}
		return nil, nil, f.code("invalid_body") // of a client that is not heard any more, or of wrong chunks
	}
	_ = control.SetReadDeadline(time.Time{}) // its end would count as the end of the client
	if found := notUnicode(body); found != "" {
		failed = wrong("", "body: found %s, expected JSON in UTF-8", found).code("invalid_json")
	} else if f, failed = parse(body); failed == nil && f.has("prompt") && f.has("messages") {
		failed = wrong("prompt", "found prompt and messages, expected one of both")
	}
	if failed != nil {
		h.release()
		return nil, nil, failed
	}
	return f, h.release, nil
}

// bodyTimes is the memory of a body while it is read, in multiples of its size: for the bytes, the
// JSON and the values.
const bodyTimes = 4

// hold is the part of a request in the memory for the bodies of all requests.
type hold struct {
	of    *Server
	bytes int64
}

func (h *hold) release() {
	h.of.memory.Add(-h.bytes)
	h.bytes = 0
}

// heldReader takes memory for the bytes that it reads.
type heldReader struct {
	io.Reader
	h *hold
}

func (r heldReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	more := int64(bodyTimes * n)
	if now := r.h.of.memory.Add(more); now > r.h.of.o.Memory && now > r.h.bytes+more { // a request alone has room
		r.h.of.memory.Add(-more)
		return 0, unavailable("other requests take the memory that there is for all: try again later")
	}
	r.h.bytes += more
	return n, err
}

// start starts a job, or returns the reason why it does not.
func (s *Server) start(job *engine.Job, err error) (*engine.Job, *failure) {
	var long *engine.TooLongError
	switch {
	case err == nil:
		return job, nil
	case errors.As(err, &long):
		return nil, wrong("", "%v", err).code(tooLong)
	case errors.Is(err, engine.ErrBusy):
		return nil, unavailable(s.full())
	case errors.Is(err, engine.ErrClosed):
		return nil, unavailable(err.Error())
	case errors.Is(err, engine.ErrNoToken):
		return nil, wrong("logit_bias", "%v", err)
	}
	return nil, wrong("", "%v", err)
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

// ended is the failure of a job that did not end well, nil if it did.
func ended(err error) *failure {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, engine.ErrClosed), errors.Is(err, context.Canceled):
		return unavailable("the server ended the request")
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
