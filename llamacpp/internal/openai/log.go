package openai

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/learning-to-screen/l2s/llamacpp/internal/engine"
)

// note is what the log has of a request: no text of its client.
type note struct {
	id      string // of the answer too
	stream  bool
	written bool // it asked for text, or a score
	total   engine.Result
	choices int
}

// paths are the paths of the server that are no texts of clients.
var paths = []string{"/v1/completions", "/v1/chat/completions", "/v1/score", "/v1/models", "/health", "/metrics"}

// noteOf returns the note of a request.
func noteOf(w http.ResponseWriter) *note {
	if n, ok := w.(*notedWriter); ok {
		return &n.note
	}
	return &note{id: rand.Text()}
}

// results notes the work of a request that has its answer.
func (n *note) results(results ...engine.Result) {
	n.written, n.total, n.choices = true, total(results), len(results)
}

// logged gives each request an id, which answers have in the header X-Request-Id, and logs a line of it.
// Probes of /health and /metrics that are answered well are of the level debug.
func (s *Server) logged(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start, n := time.Now(), &notedWriter{ResponseWriter: w, note: note{id: rand.Text()}}
		w.Header().Set("X-Request-Id", n.note.id)
		if s.o.Log == nil {
			h.ServeHTTP(n, r)
			return
		}
		defer func() { s.log(n, r, time.Since(start)) }()
		h.ServeHTTP(n, r)
	})
}

func (s *Server) log(n *notedWriter, r *http.Request, took time.Duration) {
	// The path that a client has made up would be a text of its own.
	_, path, _ := strings.Cut(r.Pattern, " ")
	if path == "" && slices.Contains(paths, r.URL.Path) { // it was refused before
		path = r.URL.Path
	}
	path = cmp.Or(path, "other")
	status := cmp.Or(n.status, http.StatusOK)
	if r.Context().Err() != nil && n.note.total.Reason == "" && !s.stopping.Load() { // the end of the server ends contexts too
		status = clientGone
	}
	level := slog.LevelInfo
	switch {
	case (path == "/health" || path == "/metrics") && status < 300:
		level = slog.LevelDebug
	case status >= 500:
		level = slog.LevelWarn
	}
	list := []slog.Attr{slog.String("id", n.note.id), slog.String("method", r.Method), slog.String("path", path), slog.Int("status", status), slog.Float64("ms", milliseconds(took))}
	if t := n.note.total; n.note.written {
		list = append(list, slog.Bool("stream", n.note.stream), slog.Int("choices", n.note.choices), slog.String("finish", string(t.Reason)),
			slog.Int("prompt_tokens", t.Read), slog.Int("cached_tokens", t.Cached), slog.Int("predicted_tokens", t.Written), slog.Int("exact_tokens", t.Exact),
			slog.Float64("queue_ms", milliseconds(t.Queue)), slog.Float64("prompt_ms", milliseconds(t.Reading)), slog.Float64("head_ms", milliseconds(t.Head)), slog.Float64("model_ms", milliseconds(t.Model)))
	}
	s.o.Log.LogAttrs(context.Background(), level, "request", list...)
}

// clientGone is the status in the log of a request whose client went away, as other servers have it.
const clientGone = 499
