package openai

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/learning-to-screen/l2s/llamacpp/internal/engine"
)

type connKey struct{}

// WithConn is the ConnContext of an http.Server: the server watches the connections of requests
// that run. net/http alone stops to watch a connection as soon as it has a byte after the request,
// and takes a client that has ended its side for one that is gone.
func WithConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// watched is the time between two looks at the connection of a request that runs.
const watched = 200 * time.Millisecond

// caller is the client of a request that runs. ctx ends when it is gone, or with the server.
type caller struct {
	ctx   context.Context
	s     *Server
	w     *notedWriter
	r     *http.Request
	ended chan struct{} // has one when the client has ended its side: then probe
}

// caller begins to watch the client of a request whose body is read. stop ends it.
func (s *Server) caller(w http.ResponseWriter, r *http.Request) (c *caller, stop func()) {
	c = &caller{s: s, r: r, ended: make(chan struct{}, 1)}
	if c.w, _ = w.(*notedWriter); c.w == nil {
		c.w = &notedWriter{ResponseWriter: w}
	}
	conn, ok := r.Context().Value(connKey{}).(net.Conn)
	if ok {
		_, _, ok = look(conn)
	}
	if !ok { // net/http tells when the client is gone, as far as it knows
		c.ctx, stop = context.WithCancel(r.Context())
		return c, stop
	}
	c.ctx, stop = context.WithCancel(context.WithoutCancel(r.Context()))
	go c.watch(conn, stop)
	return c, stop
}

func (c *caller) watch(conn net.Conn, gone func()) {
	tick := time.NewTicker(watched)
	defer tick.Stop()
	defer gone()
	for told := false; ; {
		select {
		case <-tick.C:
		case <-c.ctx.Done():
			return
		case <-c.s.over.Done():
			return
		}
		reset, ended, _ := look(conn)
		if reset {
			return
		}
		if ended && !told {
			told = true
			c.ended <- struct{}{}
		}
	}
}

// probe sends something to a client that has ended its side: if it has closed the socket its system
// answers with a reset, which look finds, and else it waits for its answer. Clients of HTTP 1.1
// pass over a 100 that they have not asked for (RFC 9110, 15.2). Those of 1.0 must not get one: the
// answer itself begins, by begin: its status is 200 then, also if the server ends it.
func (c *caller) probe(begin func()) {
	switch {
	case c.w.status != 0: // parts of an answer come anyway
	case c.r.ProtoAtLeast(1, 1):
		c.s.patient(c.w)
		c.w.ResponseWriter.WriteHeader(http.StatusContinue)
	default:
		c.s.patient(c.w)
		begin()
		_ = http.NewResponseController(c.w).Flush()
	}
}

// wait waits for the end of a job whose answer is in one piece.
func (c *caller) wait(w http.ResponseWriter, job *engine.Job) {
	for {
		select {
		case <-job.Done():
			return
		case <-c.ended:
			c.probe(func() {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusOK)
				_, _ = w.Write([]byte("\n"))
			})
		}
	}
}
