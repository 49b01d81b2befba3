// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/gang"
)

// Metrics is what /v1/metrics answers: numbers only, no names, so it needs no
// token.
type Metrics struct {
	// Leader is 1 on the agent that places, 0 on those that wait.
	Leader int `json:"leader"`
	// GPUs and Free count all GPUs and those that a job could get now.
	GPUs int `json:"gpus"`
	Free int `json:"gpus_free"`
	// Jobs counts jobs by state; Refused are those that will not start as things
	// are: rejected, unschedulable and failed.
	Jobs    map[gang.State]int `json:"jobs"`
	Refused int                `json:"jobs_refused"`
	// Demand is the number of GPUs that waiting jobs want.
	Demand int `json:"gpus_wanted"`
	// CycleAge is the time since the placer's loop last showed that it works, in
	// seconds; -1 before it first did. It does each second, also with nothing to
	// do.
	CycleAge float64 `json:"cycle_age_seconds"`
	// Cycles counts the placer's cycles, Restarts how often its work began anew,
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

func (s *site) metrics(now time.Time) Metrics {
	m := Metrics{Jobs: map[gang.State]int{}, CycleAge: -1, APIPanics: s.agent.panics.Load(), Goroutines: runtime.NumGoroutine()}
	for _, state := range gang.States() {
		if state.Ours() {
			m.Jobs[state] = 0
		}
	}
	if s.agent.leads.Load() {
		m.Leader = 1
	}
	p := s.agent.current.Load()
	if p == nil {
		return m
	}
	st, v := p.Status(), p.Vitals()
	if age, ok := v.Age(now); ok {
		m.CycleAge = age.Seconds()
	}
	m.Cycles, m.Restarts, m.LostConnections, m.Panics = v.Cycles, v.Restarts, v.Lost, v.Panics
	m.GPUs, m.Free = st.GPUs, st.Free
	for _, j := range st.Jobs {
		m.Jobs[j.Phase]++
		switch j.Phase {
		case gang.Waiting, gang.Committing, gang.Completing:
			m.Demand += j.GPUs
		case gang.Rejected, gang.Unschedulable, gang.Failed:
			m.Refused++
		}
	}
	return m
}

func (s *site) serveMetrics(w http.ResponseWriter, r *http.Request) {
	m := s.metrics(time.Now())
	if r.URL.Query().Get("format") != "prometheus" {
		writeJSON(w, http.StatusOK, m)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	fmt.Fprint(w, m.prometheus())
}

// prometheus is the text form of the metrics.
func (m Metrics) prometheus() string {
	var b strings.Builder
	metric := func(kind, name, help string, value float64) {
		fmt.Fprintf(&b, "# HELP nomad_pal_%s %s\n# TYPE nomad_pal_%s %s\nnomad_pal_%s %g\n", name, help, name, kind, name, value)
	}
	gauge := func(name, help string, value float64) { metric("gauge", name, help, value) }
	counter := func(name, help string, value float64) { metric("counter", name, help, value) }
	gauge("leader", "1 on the agent that places, 0 on those that wait.", float64(m.Leader))
	gauge("gpus", "GPUs in the cluster.", float64(m.GPUs))
	gauge("gpus_free", "GPUs that a job could get now.", float64(m.Free))
	gauge("gpus_wanted", "GPUs that waiting jobs want, those that cannot start apart.", float64(m.Demand))
	gauge("jobs_refused", "Jobs that will not start as things are: rejected, unschedulable, failed.", float64(m.Refused))
	gauge("cycle_age_seconds", "Time since the placer's loop last showed that it works, -1 before it first did.", m.CycleAge)
	counter("cycles_total", "Cycles of the placer.", float64(m.Cycles))
	counter("restarts_total", "Times the placer's work began anew.", float64(m.Restarts))
	counter("lost_connections_total", "Restarts for which Nomad or the network was to blame.", float64(m.LostConnections))
	counter("panics_total", "Broken invariants that the placer survived.", float64(m.Panics))
	counter("api_panics_total", "Requests to the API that broke an invariant.", float64(m.APIPanics))
	fmt.Fprint(&b, "# HELP nomad_pal_jobs Jobs with GPUs by state.\n# TYPE nomad_pal_jobs gauge\n")
	for _, state := range gang.States() {
		if state.Ours() {
			fmt.Fprintf(&b, "nomad_pal_jobs{phase=%q} %d\n", state, m.Jobs[state])
		}
	}
	fmt.Fprintf(&b, "# HELP go_goroutines Number of goroutines that currently exist.\n# TYPE go_goroutines gauge\ngo_goroutines %d\n", m.Goroutines)
	return b.String()
}
