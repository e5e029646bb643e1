package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/learning-to-screen/l2s"
	"github.com/learning-to-screen/l2s/llamacpp"
	"github.com/learning-to-screen/l2s/llamacpp/internal/engine"
	"github.com/learning-to-screen/l2s/llamacpp/internal/openai"
)

const serveUsage = `
l2s-llama serve --model M.gguf [--fast | --screen M.l2s] [flags]

Serves OpenAI's API over HTTP: /v1/chat/completions, /v1/completions, /v1/models, /v1/score, /health
and /metrics. Requests share the batches of llama.cpp. --fast works as in generate. docs/server.md
has the fields. The port is open at once: answers are 503 until the model is read, and by the exact
head while --fast makes its preview, in a process of the lowest priority. After SIGTERM running
requests have --grace to end; the port is open meanwhile, for 5 seconds at least: /health and new
requests are 503. There is no TLS: put a proxy in front of it before others can reach it.`

// mostConnections bounds connections, each of which takes some kilobytes.
const mostConnections = 1024

func runServe(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := newFlags("serve", serveUsage, stdout, stderr).withHead().withFast("with --fast, a `file` of text like that to come, for the preview too")
	o := openai.Options{}
	addr := f.String("addr", "127.0.0.1:8080", "the address, `host:port`")
	size := f.Int("context", 0, "how `many` tokens a request has, 0 for the model's, at most 4096")
	f.IntVar(&o.Parallel, "parallel", 4, "how `many` requests are under way at once")
	f.IntVar(&o.Waiting, "waiting", 32, "how `many` more wait: the answer is 503 beyond them")
	f.StringVar(&o.Name, "name", "", "the `name` of the model in answers, by default the name of its file")
	f.StringVar(&f.template, "chat-template", "", "a `file` in Jinja, or a name of llama.cpp, for the template of the model")
	grace := f.Duration("grace", 20*time.Second, "the longest `time` that requests under way have at the end")
	f.DurationVar(&o.Timeout, "timeout", 30*time.Second, "the longest `time` to read a request, or for a client to take a part")
	body := f.Int("max-body", 8, "the largest body of a request, in `MiB`")
	memory := f.Int("max-memory", 128, "the memory for all bodies, and for what is read of them, in `MiB`")
	cached := f.Int("cache", -1, "`MiB` of finished texts to keep for others, -1 for all that have room")
	f.Float64Var(&o.Audit, "audit", 0.01, "the `share` of the time that may go to an audit of the head's precision")
	f.BoolVar(&o.Strict, "strict", false, "refuse fields that nothing reads: otherwise a header names them")
	access := f.access()
	format := f.String("log", "", "a line for each request: the `format` text (without --quiet), json or off")
	if err := f.parse(args); err != nil {
		return err
	}
	if err := access.read(&o); err != nil {
		return err
	}
	switch {
	case *format != "" && !slices.Contains([]string{"text", "json", "off"}, *format):
		return wrongUse("--log: found %q, expected text, json or off", *format)
	case f.fast && f.screen != "":
		return wrongUse("found --fast and --screen, expected one of them")
	case f.text != "" && !f.fast:
		return wrongUse("found --text without --fast, expected both")
	case *size < 0 || *size > mostTokens:
		return wrongUse("--context: found %d, expected 0 to %d", *size, mostTokens)
	case o.Parallel < 1 || o.Parallel > 128 || o.Waiting < 0 || o.Waiting > mostConnections:
		return wrongUse("--parallel, --waiting: found %d and %d, expected 1 to 128 and 0 to %d", o.Parallel, o.Waiting, mostConnections)
	case *body < 1 || *memory < 1 || *body > 1024 || *memory > 1<<20:
		return wrongUse("--max-body, --max-memory: found %d and %d, expected 1 to 1024 and 1 or more", *body, *memory)
	case *cached < -1 || *cached > 1<<20:
		return wrongUse("--cache: found %d, expected -1 to %d", *cached, 1<<20)
	case *grace < 0 || o.Timeout <= 0:
		return wrongUse("--grace, --timeout: found %v and %v, expected 0 or more, and more than 0", *grace, o.Timeout)
	case !(o.Audit >= 0 && o.Audit <= 1):
		return wrongUse("--audit: found %v, expected 0 to 1", o.Audit)
	}
	if _, _, err := net.SplitHostPort(*addr); err != nil { // an empty one would be any port of all interfaces
		return wrongUse("--addr: found %q, expected host:port: %v", *addr, err)
	}
	o.Log = f.logger(*format)
	o.Body, o.Memory, o.Budget = int64(*body)<<20, int64(*memory)<<20, f.budget
	if o.Cache = int64(*cached) << 20; *cached < 0 {
		o.Cache = -1
	}
	if o.Name == "" {
		o.Name = strings.TrimSuffix(filepath.Base(f.model), ".gguf")
	}
	// Before the model, which takes long to be opened for an address that is taken.
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	if at, ok := listener.Addr().(*net.TCPAddr); ok {
		o.Local = at.IP.IsLoopback()
	}
	p := f.openPort(listener)
	defer p.close(0)
	if err := llamacpp.Load(f.lib); err != nil {
		return err
	}
	if err := f.early(ctx); err != nil {
		return err
	}
	if f.fast {
		if err := f.readGiven(ctx); err != nil {
			return err
		}
		if err := ownPreview(f.previewPaths()[0]); err != nil {
			return err
		}
		// Without a file the answers need not wait for the fingerprint.
		if slices.ContainsFunc(f.previewPaths(), func(path string) bool { _, err := os.Stat(path); return err == nil }) {
			if err := f.knowBody(ctx); err != nil {
				return err
			}
			f.preview, f.previewFile = f.readPreview()
		}
	}
	m, err := f.openModel(ctx, llamacpp.Options{Context: *size, Sequences: o.Parallel, Forks: openai.Forks, Kept: openai.Kept(o.Parallel)})
	if err != nil {
		return err
	}
	defer f.closes(m)
	k := f.kind()
	if k == previewHead { // over whose layer the preview answers, at once or when it is made
		k = exactHead
	}
	exact, err := f.openHead(ctx, m, k)
	if err != nil {
		return err
	}
	defer f.closes(nil, exact)
	x := exact
	if f.preview != nil {
		switch x, err = exact.With(f.preview, l2s.Options{Budget: f.budget}); {
		case errors.Is(err, l2s.ErrLayer):
			f.say("preview: %s is of another head, or body, than this model's\n", f.previewFile)
			x, f.preview, f.foreign = exact, nil, append(f.foreign, f.previewFile)
		case err != nil:
			return err
		default:
			k = previewHead
		}
	}
	f.say("head: %s\n", f.named(k))
	o.Template = f.template
	o.Step = (&watch{threads: cmp.Or(f.threads, runtime.GOMAXPROCS(0)), say: func() { f.say(waited) }, cpu: cpuTime}).step
	s, err := openai.New(m, x, o)
	if err != nil {
		return otherTemplate(err)
	}
	if m.ChatTemplate() == "" && o.Template == "" {
		f.say("the model has no chat template: /v1/chat/completions needs --chat-template\n")
	}
	f.say("%v\n", s)
	if threads := cmp.Or(f.threads, runtime.GOMAXPROCS(0)); waits(threads, spin(threads)) {
		f.say(busyAtStart)
	}
	p.ready(s)
	if f.fast && (f.preview == nil || f.anew) {
		f.say("preview: it is made while the head above answers\n")
		made := make(chan struct{})
		going, cancel := context.WithCancel(ctx)
		defer func() { cancel(); <-made }() // before the head is closed
		go func() {
			defer close(made)
			if err := (&maker{f: f, s: s, x: exact}).run(going); err != nil && going.Err() == nil {
				f.say("preview: %v: the head above goes on answering\n", err)
			}
		}()
	}
	return p.serve(ctx, s, *grace)
}

// watch watches the steps of the engine for threads that wait for a CPU, and says so once.
type watch struct {
	threads     int
	say         func()
	cpu         func() time.Duration
	before      time.Duration // the CPU time of the process after the last step
	busy, spent time.Duration // of the steps since the last look: their length, and their CPU time
	said        bool
}

// step gets a step, of the engine's goroutine. CPU time between the steps counts too, and makes the
// hint come later, not sooner.
func (w *watch) step(x engine.Step) {
	if w.said {
		return
	}
	now := w.cpu()
	w.busy, w.spent, w.before = w.busy+x.Took, w.spent+now-w.before, now
	if w.busy < 10*time.Second {
		return
	}
	if w.said = starved(w.threads, w.spent, w.busy); w.said {
		w.say()
	}
	w.busy, w.spent = 0, 0
}

// port is an open port: it answers by 503 until there is a server.
type port struct {
	f        *flags
	listener net.Listener
	conns    *bounded
	server   *http.Server
	handler  atomic.Pointer[http.Handler] // of the server
	running  context.Context
	end      func()
	served   chan error
	ended    chan struct{} // is closed when the server has ended; nil without one
	grace    time.Duration
}

// openPort answers the requests of a listener.
func (f *flags) openPort(listener net.Listener) *port {
	p := &port{f: f, listener: listener, served: make(chan error, 1)}
	p.running, p.end = context.WithCancel(context.Background())
	p.server = &http.Server{ReadHeaderTimeout: headTime, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return p.running }, ConnContext: openai.WithConn,
		ConnState: func(c net.Conn, state http.ConnState) { c.(*boundedConn).state.Store(int32(state)) },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if h := p.handler.Load(); h != nil {
				(*h).ServeHTTP(w, r)
			} else {
				openai.Starting(w, r)
			}
		})}
	p.conns = &bounded{Listener: listener, free: make(chan struct{}, mostConnections), open: map[*boundedConn]bool{}}
	go func() { p.served <- p.server.Serve(p.conns) }()
	f.say("the port is open, %s: answers are 503 until the model is read\n", listener.Addr())
	return p
}

// ready has a server answer, which runs until the end of the port.
func (p *port) ready(s *openai.Server) {
	p.ended = make(chan struct{})
	go func() { s.Run(p.running); close(p.ended) }()
	h := s.Handler()
	p.handler.Store(&h)
	p.f.say("listening on http://%s\n", p.listener.Addr())
}

// lingers is the time for which the port stays open after SIGTERM though there is no request: those who
// send requests learn by then that the server ends.
const lingers = 5 * time.Second

// serve serves until ctx ends, and then until all requests are answered, for the time of grace at
// most. The port is open meanwhile, and requests that come are 503.
func (p *port) serve(ctx context.Context, s *openai.Server, grace time.Duration) error {
	select {
	case err := <-p.served:
		p.close(0)
		return err
	case <-ctx.Done():
	}
	p.grace = grace
	s.Stop()
	begin, least := time.Now(), time.Duration(0)
	if of := (*signalled)(nil); errors.As(context.Cause(ctx), &of) && of.signal == syscall.SIGTERM {
		least = min(grace, lingers)
	}
	active, waiting := s.Busy()
	p.f.say("stopping: requests under way: %d, waiting: %d\n", active, waiting)
	for active+waiting > 0 || time.Since(begin) < least {
		left := grace - time.Since(begin)
		if left <= 0 {
			break
		}
		time.Sleep(min(left, 20*time.Millisecond))
		active, waiting = s.Busy()
	}
	return p.close(max(0, grace-time.Since(begin)))
}

// close ends the port, when all requests are answered or the time of grace is over, and then the
// server.
func (p *port) close(grace time.Duration) error {
	late, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	err := p.server.Shutdown(late)
	if errors.Is(err, context.DeadlineExceeded) {
		p.end() // streams end after the current step, which is slow on a busy machine
		p.conns.closeNew()
		late, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if p.server.Shutdown(late) != nil {
			p.server.Close()
		}
		err = fmt.Errorf("found requests under way after --grace %v, and ended them", p.grace)
	}
	p.end()
	if p.ended != nil {
		<-p.ended
	}
	return err
}

// headTime is the time in which the head of a request must come.
const headTime = 10 * time.Second

// bounded is a listener that has a bounded number of connections: more wait in the system's queue.
type bounded struct {
	net.Listener
	free chan struct{}
	mu   sync.Mutex
	open map[*boundedConn]bool
}

func (b *bounded) Accept() (net.Conn, error) {
	b.free <- struct{}{}
	c, err := b.Listener.Accept()
	if err != nil {
		<-b.free
		return nil, err
	}
	bc := &boundedConn{Conn: c, of: b}
	b.mu.Lock()
	b.open[bc] = true
	b.mu.Unlock()
	return bc, nil
}

// closeNew closes connections whose first request has no whole head yet, for which Shutdown waits
// some seconds.
func (b *bounded) closeNew() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.open {
		if c.state.Load() == int32(http.StateNew) {
			c.Conn.Close()
		}
	}
}

type boundedConn struct {
	net.Conn
	of     *bounded
	closed sync.Once
	state  atomic.Int32 // http.ConnState
	read   atomic.Int64 // bytes in this state
}

// SyscallConn is for those who watch the socket.
func (c *boundedConn) SyscallConn() (syscall.RawConn, error) {
	if s, ok := c.Conn.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// Read answers for net/http, which says nothing to a client whose head does not come in time.
func (c *boundedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.state.Load() == int32(http.StateActive) {
		c.read.Store(0)
		return n, err
	}
	if c.read.Add(int64(n)) > 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		_ = c.Conn.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = io.WriteString(c.Conn, lateHead)
	}
	return n, err
}

const lateHead = "HTTP/1.1 408 Request Timeout\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" +
	`{"error":{"message":"the head of the request did not come in time","type":"invalid_request_error","param":null,"code":null}}` + "\n"

func (c *boundedConn) Close() error {
	c.closed.Do(func() {
		c.of.mu.Lock()
		delete(c.of.open, c)
		c.of.mu.Unlock()
		<-c.of.free
	})
	return c.Conn.Close()
}
