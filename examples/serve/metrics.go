package main

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/learning-to-screen/l2s/screen"
)

// metrics are what Prometheus reads of a service.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	reloads  *prometheus.CounterVec
}

func newMetrics(v *service) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "l2s_http_requests_total", Help: "Requests, by handler and status."}, []string{"handler", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "l2s_http_request_seconds", Help: "Time of a request, by handler.",
			Buckets: prometheus.ExponentialBuckets(50e-6, 2, 16)}, []string{"handler"}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "l2s_reloads_total", Help: "Reloads, by result: served or refused."}, []string{"result"}),
	}
	m.registry.MustRegister(m.requests, m.seconds, m.reloads, poolCollector{v.pool}, auditCollector{v},
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "l2s_lowered_total", Help: "Contexts whose budget was lowered, since many requests were under way."}, func() float64 { return float64(v.lowered.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "l2s_under_way", Help: "Requests that are read, and not answered."}, func() float64 { return float64(v.underWay.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "l2s_memory_under_way_bytes", Help: "Memory that requests under way hold, about."}, func() float64 { return float64(v.memory.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "l2s_screened", Help: "1 while a screen answers, 0 while one is learned."}, func() float64 {
			if v.learner != nil && !v.learner.Screened() {
				return 0
			}
			return 1
		}),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// count counts and times the requests of a handler.
func (m *metrics) count(name string, h http.Handler) http.Handler {
	by := prometheus.Labels{"handler": name}
	return promhttp.InstrumentHandlerDuration(m.seconds.MustCurryWith(by), promhttp.InstrumentHandlerCounter(m.requests.MustCurryWith(by), h))
}

// poolCollector tells what a pool counted, all numbers of one moment.
type poolCollector struct{ pool *screen.Pool }

var (
	contexts   = prometheus.NewDesc("l2s_contexts_total", "Contexts answered.", nil, nil)
	candidates = prometheus.NewDesc("l2s_candidates_total", "Candidates that the answers to contexts looked at.", nil, nil)
	routing    = prometheus.NewDesc("l2s_routing_rows_total", "Vectors of clusters that the answers to contexts looked at.", nil, nil)
	exact      = prometheus.NewDesc("l2s_exact_total", "Contexts that the exact layer answered.", nil, nil)
	lacking    = prometheus.NewDesc("l2s_lacking_total", "Contexts that the exact layer answered because they had fewer than k candidates.", nil, nil)
	generation = prometheus.NewDesc("l2s_generation", "Number of the files that are served, from 1.", nil, nil)
)

func (c poolCollector) Describe(d chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, d) }

func (c poolCollector) Collect(m chan<- prometheus.Metric) {
	s := c.pool.Stats()
	for desc, n := range map[*prometheus.Desc]uint64{contexts: s.Queries, candidates: s.Candidates, routing: s.Routing, exact: s.Exact, lacking: s.Lacking} {
		m <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n))
	}
	m <- prometheus.MustNewConstMetric(generation, prometheus.GaugeValue, float64(c.pool.Generation()))
}

// auditCollector tells what the audit found.
type auditCollector struct{ service *service }

var (
	sampled  = prometheus.NewDesc("l2s_audit_sampled", "Contexts of this generation that the audit has looked at.", nil, nil)
	audited  = prometheus.NewDesc("l2s_audit_audited", "Sampled contexts of this generation that the audit has answered exactly too.", nil, nil)
	measured = prometheus.NewDesc("l2s_audit_precision", "Precision of the last audited contexts, by k and by end of its interval: low, value or high.", []string{"k", "end"}, nil)
	expected = prometheus.NewDesc("l2s_audit_precision_expected", "Precision that training leads one to expect of the budgets of the last audited contexts, by k and by end of its interval.", []string{"k", "end"}, nil)
	alarm    = prometheus.NewDesc("l2s_audit_alarm", "1 while there is an alarm: of precision (P@1, P@k) or of geometry (cosine, lead).", []string{"of"}, nil)
)

func (c auditCollector) Describe(d chan<- *prometheus.Desc) {
	for _, x := range []*prometheus.Desc{sampled, audited, measured, expected, alarm} {
		d <- x
	}
}

func (c auditCollector) Collect(m chan<- prometheus.Metric) {
	if c.service.audit == nil {
		return
	}
	r := c.service.audit.Report()
	gauge := func(d *prometheus.Desc, x float64, labels ...string) {
		m <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, x, labels...)
	}
	gauge(sampled, float64(r.Sampled))
	gauge(audited, float64(r.Audited))
	up := map[string]float64{"P@1": 0, "P@k": 0, "cosine": 0, "lead": 0}
	for _, x := range r.Alarms {
		of := x.Of
		if _, ok := up[of]; !ok {
			of = "P@k"
		}
		up[of] = 1
	}
	for of, x := range up {
		gauge(alarm, x, of)
	}
	if r.Window == 0 {
		return
	}
	for _, e := range []struct {
		d *prometheus.Desc
		k string
		e screen.Estimate
	}{{measured, "1", r.Precision1}, {measured, "k", r.PrecisionK}, {expected, "1", r.Expected1}, {expected, "k", r.ExpectedK}} {
		gauge(e.d, e.e.Low, e.k, "low")
		gauge(e.d, e.e.Value, e.k, "value")
		gauge(e.d, e.e.High, e.k, "high")
	}
}
