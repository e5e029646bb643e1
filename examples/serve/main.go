// Command serve answers over HTTP which labels of a layer are the best for a context,
// by a screen: an example to copy from. README.md in the folder above describes it.
//
//	serve -head W.npy -bias b.npy -screen m.l2s -vocab words.txt
//
// service.go is the service, audit.go its page about precision, metrics.go what Prometheus reads of
// it, and this file the program: flags, signals, the server.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/learning-to-screen/l2s/learn"
	"github.com/learning-to-screen/l2s/screen"
)

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGTERM, os.Interrupt)
	if err := run(os.Args[1:], signals); err != nil {
		log.Fatal(err)
	}
}

// size is a flag for a number of bytes: 268435456, or 256MiB.
type size int64

func (n *size) String() string { return strconv.FormatInt(int64(*n), 10) }

func (n *size) Set(text string) error {
	number, unit := text, 0
	for i, name := range []string{"KiB", "MiB", "GiB"} {
		if before, ok := strings.CutSuffix(text, name); ok {
			number, unit = before, 10*(i+1)
		}
	}
	x, err := strconv.ParseInt(number, 0, 64)
	if err != nil || x<<unit>>unit != x {
		return errors.New("expected a number of bytes, or one of KiB, MiB or GiB, such as 512MiB")
	}
	*n = size(x << unit)
	return nil
}

// run opens the files and serves them.
func run(args []string, signals <-chan os.Signal) error {
	var (
		s       sources
		l       limits
		keep    size
		flags   = flag.NewFlagSet("serve", flag.ExitOnError)
		listen  = flags.String("listen", "127.0.0.1:8080", "the `ADDRESS`, host:port")
		timeout = flags.Duration("timeout", 10*time.Second, "the longest `TIME` to read a request, and to answer it")
		grace   = flags.Duration("grace", 20*time.Second, "the longest `TIME` that requests under way have at the end")
		drain   = flags.Duration("drain", 0, "the `TIME` that /readyz fails before connections are refused, so that a load balancer notices")
		audit   = flags.Float64("audit", 0.02, "the part of one core, a `NUMBER`, that may answer a sample of the queries exactly as well, to watch their precision; 0 for no audit")
		profile = flags.Bool("pprof", false, "serve /debug/pprof")
	)
	flags.StringVar(&s.head, "head", "", "the `LAYER`, required: a Hugging Face folder, a GGUF file, or one tensor, FILE.safetensors:NAME or FILE.npy")
	flags.StringVar(&s.bias, "bias", "", "its bias, one `TENSOR`, if it is not beside the weights; none for a layer without a bias")
	flags.StringVar(&s.screen, "screen", "", "the screen `FILE` that l2s train wrote, required without -learn; with it, the file that keeps what was learned, if it is given")
	flags.Var((*size)(&s.learn), "learn", "begin with the exact layer, and learn a screen from the contexts of requests, in so many `BYTES` of memory, such as 512MiB; 0 for no learning")
	flags.StringVar(&s.vocab, "vocab", "", "the `FILE` of the labels' texts, one a line, or a tokenizer: a model's folder, tokenizer.json, tokenizer.model or a GGUF file; without it, answers have ids alone")
	l.body = 4 << 20
	flags.Var((*size)(&l.body), "max-body", "the largest body of a request, in `BYTES`")
	flags.IntVar(&l.contexts, "max-contexts", 256, "the most contexts of a request, a `NUMBER`")
	flags.IntVar(&l.k, "max-k", 100, "the most labels that a request may ask for, a `NUMBER`")
	l.memory = 128 << 20
	flags.Var((*size)(&l.memory), "max-memory", "the most memory of all requests under way, in `BYTES`: the answer is 503 beyond it")
	flags.Int64Var(&l.busy, "busy", 0, "the `NUMBER` of requests under way from which on budgets are lowered, in proportion; 0 for never")
	flags.Var(&keep, "keep", "keep a sample of the contexts of requests in so many `BYTES` of memory; GET /contexts gives it as a .npy file, which l2s train takes")
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "usage: serve -head LAYER (-screen FILE | -learn BYTES [-screen FILE]) [flags]\n\nAnswers POST /topk and POST /logprobs over HTTP; see examples/README.md.\n\n")
		flags.PrintDefaults()
	}
	flags.Parse(args)
	for name, least := range map[string]int64{"learn": s.learn, "keep": int64(keep), "busy": l.busy, "max-body": l.body - 1, "max-memory": l.memory - 1, "max-contexts": int64(l.contexts) - 1, "max-k": int64(l.k) - 1,
		"timeout": int64(*timeout) - 1, "grace": int64(*grace), "drain": int64(*drain)} {
		if least < 0 {
			return fmt.Errorf("-%s: found %s, expected a larger number", name, flags.Lookup(name).Value)
		}
	}
	if s.head == "" || s.screen == "" && s.learn == 0 {
		return errors.New("found no -head, or neither -screen nor -learn, expected -head and one of them: -h explains the flags")
	}

	v, err := newService(s, l)
	if err != nil {
		return err
	}
	if *audit != 0 && v.learner == nil { // which has its own
		if v.audit, err = v.pool.Audit(screen.AuditOptions{Share: *audit, Alarm: func(x screen.Alarm) { log.Printf("audit: ALARM: %s: %s", x.Of, x.Text) }}); err != nil {
			return fmt.Errorf("-audit: %w", err)
		}
	}
	if keep != 0 && v.learner == nil {
		if v.kept, err = learn.NewReservoir(v.dim, 0, int64(keep), 0); err != nil {
			return fmt.Errorf("-keep: %w", err)
		}
	}
	log.Print(v.serves())
	m := newMetrics(v)
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: v.routes(m, *profile), ReadHeaderTimeout: *timeout, ReadTimeout: *timeout, WriteTimeout: *timeout, IdleTimeout: time.Minute}
	return serveUntil(server, listener, signals, func() {
		if err := v.reload(); err != nil {
			m.reloads.WithLabelValues("refused").Inc()
			log.Printf("reload refused, generation %d stays: %v", v.pool.Generation(), err)
		} else {
			m.reloads.WithLabelValues("served").Inc()
			log.Printf("generation %d is served: %s", v.pool.Generation(), v.serves())
		}
	}, func() { v.stopping.Store(true) }, *drain, *grace)
}

// serveUntil serves until a signal other than SIGHUP comes, for which it calls stopping.
// SIGHUP calls reload, in a goroutine and once at a time: a file system that hangs must
// not keep the other signals waiting.
func serveUntil(server *http.Server, listener net.Listener, signals <-chan os.Signal, reload, stopping func(), drain, grace time.Duration) error {
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	log.Printf("listening on %s", listener.Addr())
	reloads := make(chan struct{}, 1)
	defer close(reloads)
	go func() {
		for range reloads {
			reload()
		}
	}()
	for {
		select {
		case err := <-served:
			return err
		case sig := <-signals:
			if sig != syscall.SIGHUP {
				stopping()
				log.Printf("%v: stopping", sig)
				select {
				case <-time.After(drain):
				case <-signals: // a second one: at once
				}
				ctx, cancel := context.WithTimeout(context.Background(), grace)
				defer cancel()
				err := server.Shutdown(ctx)
				if errors.Is(err, context.DeadlineExceeded) {
					err = fmt.Errorf("connections were still open after -grace %v, and were cut", grace)
				}
				return err
			}
			log.Printf("%v: reloading", sig)
			select {
			case reloads <- struct{}{}:
			default: // one that has not begun yet will read the newest files
			}
		}
	}
}

// routes are the paths of the service.
func (v *service) routes(m *metrics, profile bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", unknown)
	mux.Handle("/topk", m.count("topk", v.handler(false)))
	mux.Handle("/logprobs", m.count("logprobs", v.handler(true)))
	mux.Handle("/metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/audit", v.audited)
	mux.HandleFunc("/contexts", v.contexts)
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, r *http.Request) {
		if v.stopping.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintf(w, "generation %d\n", v.pool.Generation())
	})
	if profile {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	}
	return mux
}
