// Command serve answers over HTTP which labels of a layer are the best for a context, by a preview, by
// a screen, or exactly: an example to copy from. README.md in the folder above describes it.
//
//	serve -head W.npy -bias b.npy -index m.l2p -vocab words.txt
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/learning-to-screen/l2s"
)

func main() {
	source := flag.String("head", "", "the layer, required: a Hugging Face folder, a GGUF file, or one tensor, FILE.safetensors:NAME or FILE.npy")
	bias := flag.String("bias", "", "its bias, one tensor, if it is in another file; none for no bias")
	file := flag.String("index", "", "the preview or screen of l2s train; SIGHUP reads it again; without it all answers are exact")
	vocab := flag.String("vocab", "", "texts of the labels, one per line, or a tokenizer; without it answers have ids only")
	addr := flag.String("addr", "127.0.0.1:8080", "the address, host:port")
	timeout := flag.Duration("timeout", 10*time.Second, "the longest time to read a request, and to answer it")
	grace := flag.Duration("grace", 20*time.Second, "the longest time for requests under way at the end")
	var l limits
	flag.Int64Var(&l.body, "max-body", 4<<20, "bytes of a request")
	flag.Int64Var(&l.memory, "max-memory", 128<<20, "bytes of all requests under way: the answer is 503 beyond them")
	flag.Int64Var(&l.contexts, "max-contexts", 256, "contexts of a request")
	flag.Int64Var(&l.k, "max-k", 100, "labels per context")
	flag.Parse()
	if err := checkFlags(); err != nil {
		log.Fatal(err)
	}
	v, err := newService(*source, *bias, *file, *vocab, l)
	if err != nil {
		log.Fatal(err)
	}
	audit, err := v.pool.Audit(l2s.AuditOptions{Alarm: func(x l2s.Alarm) { log.Printf("ALARM: %s: %s", x.Of, x.Text) }})
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Handler: v.routes(audit), ReadTimeout: *timeout, WriteTimeout: *timeout, IdleTimeout: time.Minute}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGTERM, os.Interrupt)
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		if err := server.Serve(listener); err != http.ErrServerClosed {
			log.Fatal(err)
		}
	}()
	log.Printf("%s: %v; http://%s", *source, v.layer, listener.Addr())
	log.Print("answers by ", v.precision())
	for s := range signals {
		if s == syscall.SIGHUP {
			if err := v.reload(); err != nil {
				log.Printf("the old index stays: %v", err)
			} else {
				log.Printf("%s was read again: answers by %s", *file, v.precision())
			}
			continue
		}
		time.AfterFunc(*grace, func() { log.Fatal("requests were still under way after -grace") })
		if err := server.Shutdown(context.Background()); err != nil {
			log.Fatal(err)
		}
		return
	}
}

// checkFlags returns an error that names the first flag that is missing or out of its range.
func checkFlags() error {
	const example = "as in: serve -head W.npy -bias b.npy -index m.l2p -vocab words.txt; -h explains the flags"
	if flag.NArg() > 0 {
		return fmt.Errorf("found the argument %q, expected flags alone, %s", flag.Arg(0), example)
	}
	if flag.Lookup("head").Value.String() == "" {
		return fmt.Errorf("-head: found none, which is required, %s", example)
	}
	for _, name := range []string{"max-body", "max-memory", "max-contexts", "max-k", "timeout"} {
		value := flag.Lookup(name).Value
		n, isInt := value.(flag.Getter).Get().(int64)
		d, isDuration := value.(flag.Getter).Get().(time.Duration)
		if isInt && n < 1 || isDuration && d < 1 {
			return fmt.Errorf("-%s: found %s, expected a limit above 0; -h explains the flags", name, value)
		}
	}
	return nil
}

const seePage = "See examples/README.md."

// audited are the figures of an audit, which are absent until it has samples.
type audited struct{ audit *l2s.Audit }

var (
	precision1 = prometheus.NewDesc("l2s_precision_at_1", seePage, nil, nil)
	expected1  = prometheus.NewDesc("l2s_expected_precision_at_1", seePage, nil, nil)
)

// Describe names the series.
func (audited) Describe(to chan<- *prometheus.Desc) { to <- precision1; to <- expected1 }

// Collect gives their values, if there are some.
func (a audited) Collect(to chan<- prometheus.Metric) {
	if r := a.audit.Report(); r.Window > 0 {
		to <- prometheus.MustNewConstMetric(precision1, prometheus.GaugeValue, r.Precision1.Value)
		to <- prometheus.MustNewConstMetric(expected1, prometheus.GaugeValue, r.Expected1.Value)
	}
}

// routes are the paths of the service.
func (v *service) routes(audit *l2s.Audit) http.Handler {
	registry, mux := prometheus.NewRegistry(), http.NewServeMux()
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "l2s_request_seconds", Help: "Time of a request.",
		Buckets: prometheus.ExponentialBuckets(50e-6, 2, 16)}, []string{"handler", "code"})
	registry.MustRegister(seconds)
	for path, h := range map[string]http.Handler{"POST /topk": v.handler(false), "POST /logprobs": v.handler(true)} {
		mux.Handle(path, promhttp.InstrumentHandlerDuration(seconds.MustCurryWith(prometheus.Labels{"handler": path[5:]}), h))
	}
	for name, value := range map[string]func() float64{
		"l2s_contexts_total": func() float64 { return float64(v.pool.Stats().Queries) },
		"l2s_scored_total":   func() float64 { return float64(v.pool.Stats().Scored) },
		"l2s_exact_total":    func() float64 { return float64(v.pool.Stats().Exact) },
		"l2s_fallback_total": func() float64 { return float64(v.pool.Stats().Fallback) },
		"l2s_memory_bytes":   func() float64 { return float64(v.memory.Load()) },
		"l2s_alarms":         func() float64 { return float64(len(audit.Report().Alarms)) },
	} {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: seePage}, value))
	}
	registry.MustRegister(audited{audit})
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/audit", func(w http.ResponseWriter, _ *http.Request) {
		r := audit.Report()
		if r.Window == 0 {
			fmt.Fprintf(w, "no samples yet: %d queries were looked at, and none was answered exactly too\n", r.Sampled)
			return
		}
		fmt.Fprintf(w, "alarms %v; P@1 %.4f, expected %.4f; P@%d %.4f, expected %.4f; of %d contexts answered exactly too\n",
			r.Alarms, r.Precision1.Value, r.Expected1.Value, r.K, r.PrecisionK.Value, r.ExpectedK.Value, r.Audited)
	})
	mux.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	return mux
}
