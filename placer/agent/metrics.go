// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"context"
	"net/http"
	"runtime"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/meter"
	"github.com/nomad-pal/nomad-pal/placer/model"
)

// Metrics is what /v1/metrics answers: numbers only, no names, so it needs no
// token.
type Metrics struct {
	// Leader is 1 on the agent that places, 0 on those that wait.
	Leader int `json:"leader"`
	// GPUs and Free count all GPUs and those that a job could get now.
	GPUs int `json:"gpus"`
	Free int `json:"gpus_free"`
	// Allocated are GPUs that jobs hold, or are promised.
	Allocated int `json:"gpus_allocated"`
	// InTrouble are GPUs that are not chosen: unhealthy, quarantined; and degraded ones,
	// which are chosen last.
	InTrouble model.GPUsInTrouble `json:"gpus_in_trouble"`
	// Outliers are GPUs whose PM score for an application class is above the
	// outlier_threshold, by class.
	Outliers map[string]int `json:"gpus_outliers"`
	// Jobs counts jobs by state; Refused are those that will not start as things
	// are: rejected, unschedulable and failed.
	Jobs    map[gang.State]int `json:"jobs"`
	Refused int                `json:"jobs_refused"`
	// Requested is the number of GPUs that waiting jobs request.
	Requested int `json:"gpus_requested"`
	// CycleAge is the time since the placer's loop last showed that it works, in
	// seconds; -1 before it first did. It does each second, also with nothing to
	// do.
	CycleAge float64 `json:"cycle_age_seconds"`
	// Cycles counts the placer's cycles, Restarts how often its work was started again,
	// LostConnections those of them for which Nomad or the network was to blame,
	// Panics broken invariants that were survived, APIPanics those of requests.
	Cycles          int   `json:"cycles_total"`
	Restarts        int   `json:"restarts_total"`
	LostConnections int   `json:"lost_connections_total"`
	Panics          int   `json:"panics_total"`
	APIPanics       int64 `json:"api_panics_total"`
	// Goroutines of the process: more and more of them is a leak.
	Goroutines int `json:"go_goroutines"`
}

// metrics are those of the agent now.
func (a *Agent) metrics(now time.Time) Metrics {
	m := Metrics{Jobs: map[gang.State]int{}, Outliers: map[string]int{}, CycleAge: -1, APIPanics: a.panics.Load(), Goroutines: runtime.NumGoroutine()}
	for _, state := range gang.States() {
		if state.Ours() {
			m.Jobs[state] = 0
		}
	}
	if a.leads.Load() {
		m.Leader = 1
	}
	p := a.current.Load()
	if p == nil {
		return m
	}
	st, v := p.Status(), p.Vitals()
	if age, ok := v.Age(now); ok {
		m.CycleAge = age.Seconds()
	}
	m.Cycles, m.Restarts, m.LostConnections, m.Panics = v.Cycles, v.Restarts, v.Lost, v.Panics
	m.GPUs, m.Free, m.Allocated, m.InTrouble = st.GPUs, st.Free, st.Allocated, st.InTrouble
	for class, n := range st.Outliers {
		m.Outliers[string(class)] = n
	}
	for _, j := range st.Jobs {
		m.Jobs[j.State]++
		switch j.State {
		case gang.Waiting, gang.Committing, gang.Completing:
			m.Requested += j.GPUs
		case gang.Rejected, gang.Unschedulable, gang.Failed:
			m.Refused++
		}
	}
	return m
}

// serveMetrics answers numbers to everybody. Series that name namespaces are for
// operators.
func (s *server) serveMetrics(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("format") != "prometheus" {
		writeJSON(w, http.StatusOK, s.agent.metrics(time.Now()))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), warningsTimeout)
	defer cancel()
	c, err := s.caller(r)
	text, err := s.agent.meter.Gather(err == nil && c.operates(ctx))
	if err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(text)
}

// gauges are what is read when metrics are asked for.
func (a *Agent) gauges() []meter.Gauge {
	of := func(read func(Metrics) float64) func() map[string]float64 {
		return func() map[string]float64 { return meter.One(read(a.metrics(time.Now()))) }
	}
	gauge := func(name, help string, read func(Metrics) float64) meter.Gauge {
		return meter.Gauge{Name: name, Help: help, Read: of(read)}
	}
	counter := func(name, help string, read func(Metrics) float64) meter.Gauge {
		return meter.Gauge{Name: name, Help: help, Counter: true, Read: of(read)}
	}
	return []meter.Gauge{
		gauge("leader", "1 on the agent that places, 0 on those that wait.", func(m Metrics) float64 { return float64(m.Leader) }),
		gauge("gpus", "GPUs in the cluster.", func(m Metrics) float64 { return float64(m.GPUs) }),
		gauge("gpus_free", "GPUs that a job could get now.", func(m Metrics) float64 { return float64(m.Free) }),
		gauge("gpus_allocated", "GPUs that jobs hold, or are promised.", func(m Metrics) float64 { return float64(m.Allocated) }),
		gauge("gpus_requested", "GPUs that waiting jobs request. Jobs that are rejected, unschedulable or failed do not count.", func(m Metrics) float64 { return float64(m.Requested) }),
		gauge("gpus_unhealthy", "GPUs that are not chosen because they are unhealthy.", func(m Metrics) float64 { return float64(m.InTrouble.Unhealthy) }),
		gauge("gpus_quarantined", "GPUs that are not chosen because jobs failed on them.", func(m Metrics) float64 { return float64(m.InTrouble.Quarantined) }),
		gauge("gpus_degraded", "GPUs that work, but not as they should, and are chosen last.", func(m Metrics) float64 { return float64(m.InTrouble.Degraded) }),
		{Name: "gpus_outliers", Help: "GPUs whose PM score for an application class is above the outlier_threshold.", Label: "app_class", Read: func() map[string]float64 {
			out := map[string]float64{}
			for class, n := range a.metrics(time.Now()).Outliers {
				out[class] = float64(n)
			}
			return out
		}},
		gauge("jobs_refused", "Jobs that will not start as things are: rejected, unschedulable, failed.", func(m Metrics) float64 { return float64(m.Refused) }),
		{Name: "jobs", Help: "Jobs with GPUs by state (docs/design/gang-states.md).", Label: "state", Read: func() map[string]float64 {
			out := map[string]float64{}
			for state, n := range a.metrics(time.Now()).Jobs {
				out[state.String()] = float64(n)
			}
			return out
		}},
		gauge("cycle_age_seconds", "Time since the placer's loop last showed that it works, -1 before it first did.", func(m Metrics) float64 { return m.CycleAge }),
		gauge("trouble", "1 while the placer does not do its work, as /v1/health says.", func(Metrics) float64 {
			if a.health(time.Now()).Trouble != "" {
				return 1
			}
			return 0
		}),
		gauge("warnings", "Things that operators should look at: /v1/health names them.", func(Metrics) float64 { return float64(a.health(time.Now()).WarningCount) }),
		counter("cycles_total", "Cycles of the placer.", func(m Metrics) float64 { return float64(m.Cycles) }),
		counter("restarts_total", "Times the placer's work was started again.", func(m Metrics) float64 { return float64(m.Restarts) }),
		counter("lost_connections_total", "Restarts for which Nomad or the network was to blame.", func(m Metrics) float64 { return float64(m.LostConnections) }),
		counter("panics_total", "Panics that the placer survived.", func(m Metrics) float64 { return float64(m.Panics) }),
		counter("api_panics_total", "Requests to the API that ended in a panic.", func(m Metrics) float64 { return float64(m.APIPanics) }),
	}
}
