// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package meter counts the placer's actions and exports the counts to Prometheus. Names and units
// follow Prometheus' conventions: seconds, _total for counters.
//
// What must stay true when you change this package: The metrics that /v1/metrics shows to everybody
// name no job, node, GPU or namespace. Metrics that name namespaces are for operators only.
// [Meter.Gather] includes them if its parameter "named" is true. Every other label must have few
// possible values.
package meter

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"

	"github.com/nomad-pal/nomad-pal/pal"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/gang"
)

// Meter holds the counters of one agent. If the agent starts another placer, the counters continue.
type Meter struct {
	public, named *prometheus.Registry
	metrics       []Metric

	// The labels of the metrics are purpose and outcome for Registrations, reason for Stops, cause
	// for Failures, and application class for Accuracy.
	Registrations, Stops, Failures *prometheus.CounterVec
	Accuracy, Cycles               *prometheus.HistogramVec

	placements                          *prometheus.CounterVec
	wait, waitNamed, slowdown, requests *prometheus.HistogramVec
}

// Metric describes one metric of the placer, for the reference.
type Metric struct {
	Name, Kind, Help string
	Labels           []string
	// Named is true if the metric names namespaces. Metrics that name namespaces are for operators
	// only.
	Named bool
}

// Metrics returns all metrics of the placer, except the metrics of the Go runtime and the process.
func (m *Meter) Metrics() []Metric { return slices.Clone(m.metrics) }

const prefix = "nomad_pal_"

// Gauge is a value that is read whenever Prometheus scrapes the metrics.
type Gauge struct {
	Name, Help string
	// Label is the name of the label. Label is "" if the gauge has a single value, which Read
	// returns under the key "". If there are several labels, commas separate their names in Label,
	// and their values in the keys of Read. Only the value of the first label may contain commas.
	Label string
	// Counter is true if the value can only grow.
	Counter bool
	Read    func() map[string]float64
}

// One returns the reading of a gauge that has no label.
func One(v float64) map[string]float64 { return map[string]float64{"": v} }

// New returns a meter for a program of this version. The meter reads the gauges at each scrape.
func New(version, revision string, gauges []Gauge) *Meter {
	m := &Meter{public: prometheus.NewRegistry(), named: prometheus.NewRegistry()}
	note := func(kind, name, help string, labels []string, named bool) {
		m.metrics = append(m.metrics, Metric{prefix + name, kind, help, labels, named})
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		note("counter", name, help, labels, false)
		return register(m.public, prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, labels))
	}
	histogram := func(r *prometheus.Registry, name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		note("histogram", name, help, labels, r == m.named)
		return register(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: buckets}, labels))
	}
	m.placements = counter("placements_total", "Gangs placed, by application class.", "app_class")
	m.Registrations = counter("registrations_total", "Registrations of jobs by nomad-pal, by purpose and outcome (done, conflict, unknown, failed).", "purpose", "outcome")
	m.Stops = counter("stops_total", "Gangs that nomad-pal stopped, by reason: preempted, moved, resized by the author, or requeued for another reason.", "reason")
	m.Failures = counter("allocation_failures_total", "Failed allocations, by cause: user, infrastructure or unknown.", "cause")
	waits := []float64{1, 5, 15, 60, 5 * 60, 15 * 60, 3600, 4 * 3600, 12 * 3600, 36 * 3600, 7 * 24 * 3600}
	m.wait = histogram(m.public, "wait_seconds", "Total time that each gang waited before it was placed, by application class.", waits, "app_class")
	m.waitNamed = histogram(m.named, "namespace_wait_seconds", "Total time that each gang waited before it was placed, by namespace.", waits, "namespace")
	m.slowdown = histogram(m.public, "predicted_slowdown_ratio", "Predicted slowdown of placed gangs, by application class: run time divided by the run time on median GPUs of one node.",
		[]float64{0.9, 0.95, 1, 1.05, 1.1, 1.2, 1.5, 2, 3}, "app_class")
	m.Accuracy = histogram(m.public, "observed_slowdown_ratio", "Run time of finished gangs divided by their pal_duration, by application class.",
		[]float64{0.25, 0.5, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.2, 1.5, 2, 3}, "app_class")
	m.Cycles = histogram(m.public, "cycle_duration_seconds", "How long the cycles of the agent's loop took.", []float64{0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 60})
	m.requests = histogram(m.public, "nomad_request_duration_seconds", "Time from a request to Nomad until Nomad begins to answer, by method, kind of object and status (0: no answer).",
		[]float64{0.002, 0.01, 0.05, 0.25, 1, 5, 30}, "method", "object", "code")
	const help = "Always 1. The labels contain the version and revision of the agent."
	note("gauge", "build_info", help, []string{"version", "revision"}, false)
	info := register(m.public, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + "build_info", Help: help}, []string{"version", "revision"}))
	info.WithLabelValues(version, revision).Set(1)
	m.begin()
	m.public.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, g := range gauges {
		m.public.MustRegister(reader{g, prometheus.NewDesc(prefix+g.Name, g.Help, g.labels(), nil)})
		note(g.kind(), g.Name, g.Help, g.labels(), false)
	}
	return m
}

// begin exports all counters with the value 0, except the counters of registrations. Prometheus's
// functions rate and increase ignore the first value of a series. Without the value 0, these
// functions would miss the first event.
func (m *Meter) begin() {
	for _, class := range pal.AppClasses() {
		m.placements.WithLabelValues(string(class))
	}
	for _, reason := range []gang.StopReason{gang.Preempted, gang.Moved, gang.Resized, gang.Requeued} {
		m.Stops.WithLabelValues(string(reason))
	}
	for _, cause := range []palapi.Cause{palapi.CauseUser, palapi.CauseInfrastructure, palapi.CauseUnknown} {
		m.Failures.WithLabelValues(string(cause))
	}
}

func register[C prometheus.Collector](r *prometheus.Registry, c C) C {
	r.MustRegister(c)
	return c
}

// reader reads a gauge whenever Prometheus scrapes it.
type reader struct {
	Gauge
	desc *prometheus.Desc
}

func (g Gauge) kind() string {
	if g.Counter {
		return "counter"
	}
	return "gauge"
}

func (g Gauge) labels() []string {
	if g.Label == "" {
		return nil
	}
	return strings.Split(g.Label, ",")
}

// Describe implements [prometheus.Collector].
func (r reader) Describe(to chan<- *prometheus.Desc) { to <- r.desc }

// Collect implements [prometheus.Collector].
func (r reader) Collect(to chan<- prometheus.Metric) {
	kind := prometheus.GaugeValue
	if r.Counter {
		kind = prometheus.CounterValue
	}
	for label, v := range r.Read() {
		var values []string
		for n := len(r.labels()); n > 0; n-- { // split off the last value first
			at := -1
			if n > 1 {
				at = strings.LastIndex(label, ",")
			}
			values = append(values, label[at+1:])
			label = label[:max(0, at)]
		}
		slices.Reverse(values)
		to <- prometheus.MustNewConstMetric(r.desc, kind, v, values...)
	}
}

// Gather returns the metrics as text in Prometheus' format. If named is true, Gather includes the
// metrics that name namespaces.
func (m *Meter) Gather(named bool) ([]byte, error) {
	sources := prometheus.Gatherers{m.public}
	if named {
		sources = append(sources, m.named)
	}
	families, err := sources.Gather()
	if err != nil {
		return nil, fmt.Errorf("gathering metrics: %w", err)
	}
	var b bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			return nil, fmt.Errorf("writing metric %s: %w", f.GetName(), err)
		}
	}
	return b.Bytes(), nil
}

// Placed counts a gang that was placed. waited is how long the gang waited, and slowdown is the
// predicted slowdown on its GPUs.
func (m *Meter) Placed(namespace, class string, waited time.Duration, slowdown float64) {
	m.placements.WithLabelValues(class).Inc()
	m.wait.WithLabelValues(class).Observe(waited.Seconds())
	m.waitNamed.WithLabelValues(namespace).Observe(waited.Seconds())
	if slowdown > 0 {
		m.slowdown.WithLabelValues(class).Observe(slowdown)
	}
}

// Transport returns a transport that passes requests to next and measures them.
func (m *Meter) Transport(next http.RoundTripper) http.RoundTripper { return transport{m, next} }

type transport struct {
	m    *Meter
	next http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	resp, err := t.next.RoundTrip(r)
	path := strings.TrimPrefix(r.URL.Path, "/v1/")
	if path != "event/stream" { // it answers only when events happen
		code := "0"
		if err == nil {
			code = fmt.Sprint(resp.StatusCode)
		}
		t.m.requests.WithLabelValues(r.Method, object(path), code).Observe(time.Since(began).Seconds())
	}
	return resp, err
}

// object returns the kind of object at a path below /v1/, for the labels of metrics. There are few
// kinds of objects, and no kind contains the name of an object.
func object(path string) string {
	kind, _, _ := strings.Cut(path, "/")
	switch kind {
	case "job", "jobs", "node", "nodes", "allocation", "allocations", "evaluation", "evaluations", "var", "vars", "validate", "client", "system", "deployment", "deployments", "operator", "agent", "status", "scaling", "acl", "namespaces":
		return kind
	}
	return "other"
}
