// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/meter"
)

// Metrics is the answer to /v1/metrics. Metrics names no job, node, GPU, namespace or user, so it
// needs no token. Each field with a help text is also a Prometheus metric with the same name. The
// keys of a map become the values of a label.
type Metrics struct {
	Leader    int     `json:"leader" help:"1 on the active agent, 0 on standby agents."`
	GPUs      float64 `json:"gpus" help:"GPUs in the cluster. In all metrics that count GPUs, a part of a shared GPU counts as a fraction."`
	Free      float64 `json:"gpus_free" help:"GPUs that a job could get now."`
	Allocated float64 `json:"gpus_allocated" help:"GPUs that are allocated to jobs, or reserved for jobs by nomad-pal. Unhealthy and quarantined GPUs do not count."`
	Idle      int     `json:"gpus_held_idle" help:"Allocated GPUs that have been idle for 15 minutes: their utilization was 0 at each reading, once a minute."`
	// InTrouble counts unhealthy and quarantined GPUs, which are not chosen, and degraded GPUs,
	// which are chosen last.
	InTrouble palapi.GPUsInTrouble `json:"gpus_in_trouble"`
	Outliers  map[string]float64   `json:"gpus_outliers" label:"app_class" help:"GPUs whose PM score for an application class is above the outlier_threshold."`
	// Keys of Speeds and Rates are device group and application class, separated by a comma.
	Speeds map[string]float64 `json:"gpus_model_speed" label:"device,app_class" help:"Measured rate of a GPU model's median GPU for an application class, relative to the cluster's fastest model."`
	Rates  map[string]float64 `json:"gpus_model_rate" label:"device,app_class" help:"Measured rate of a GPU model's median GPU for an application class: TFLOP/s for A and B, GB/s for C, Gload/s (10⁹ gathers a second) for D."`
	// Slowdown has the keys "chosen" and "packed". Slowdown is empty while no running gang has both
	// predictions.
	Slowdown map[string]float64 `json:"gpus_predicted_slowdown" label:"placement" help:"Mean predicted slowdown of running gangs, weighted by GPUs. chosen: on their GPUs. packed: on the GPUs that packing would have chosen. The slowdown of a gang on median GPUs of one node is 1."`
	// PredictedGPUs is the number of GPUs of the gangs in Slowdown.
	PredictedGPUs int                  `json:"gpus_predicted" help:"GPUs of the gangs that gpus_predicted_slowdown covers."`
	Jobs          map[palapi.State]int `json:"jobs" label:"state" help:"Jobs with GPUs by state (docs/design/concepts.md)."`
	Refused       int                  `json:"jobs_refused" help:"Jobs that cannot start now: rejected, unschedulable or failed."`
	Requested     float64              `json:"gpus_requested" help:"GPUs that waiting jobs request. Jobs that are rejected, unschedulable or failed do not count."`
	LongestWait   float64              `json:"longest_wait_seconds" help:"Longest time that a job in the queue has waited since it was submitted or last stopped. 0 if no job waits."`
	StopsLost     float64              `json:"preemption_lost_gpu_seconds_total" help:"GPU seconds that gangs lost when they were stopped for other gangs: restart_cost, and the work since the last checkpoint."`
	StopsWon      float64              `json:"preemption_saved_wait_seconds_total" help:"Seconds by which gangs got GPUs sooner because other gangs were stopped for them. This assumes that the stopped gangs would have run as long as expected."`
	// CycleAge stays at about a second unless the placer's loop hangs, because even an idle loop
	// signals once a second.
	CycleAge        float64 `json:"cycle_age_seconds" help:"Time since the agent's loop last showed progress. -1 before it first did."`
	Cycles          int     `json:"cycles_total" help:"Cycles of the agent's loop."`
	Restarts        int     `json:"restarts_total" help:"Restarts of the agent's loop, for any cause."`
	LostConnections int     `json:"lost_connections_total" help:"Restarts of the agent's loop because of Nomad or the network."`
	Panics          int     `json:"panics_total" help:"Panics after which the agent's loop continued."`
	APIPanics       int64   `json:"api_panics_total" help:"Requests to the API that ended in a panic."`
	// Goroutines is the number of goroutines in the process. Steady growth indicates a leak.
	Goroutines int `json:"go_goroutines"`
}

// metrics returns the agent's current metrics.
func (a *Agent) metrics(now time.Time) Metrics {
	m := Metrics{Jobs: map[palapi.State]int{}, Outliers: map[string]float64{}, Slowdown: map[string]float64{}, Speeds: map[string]float64{}, Rates: map[string]float64{}, CycleAge: -1, APIPanics: a.panics.Load(), Goroutines: runtime.NumGoroutine()}
	for _, state := range palapi.States() {
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
	m.Cycles = v.Cycles
	m.Restarts = v.Restarts
	m.LostConnections = v.Lost
	m.Panics = v.Panics
	m.Idle = a.idle.count(now)
	m.GPUs = st.GPUs
	m.Free = st.Free
	m.Allocated = st.Allocated
	m.InTrouble = st.InTrouble
	if !st.WaitsSince.IsZero() {
		m.LongestWait = max(0, now.Sub(st.WaitsSince).Seconds())
	}
	m.StopsLost, m.StopsWon = st.Stopped.LostGPUSeconds, st.Stopped.SavedSeconds
	s := st.Slowdown
	if s.GPUs > 0 {
		m.Slowdown["chosen"], m.Slowdown["packed"] = s.Chosen, s.Packed
		m.PredictedGPUs = s.GPUs
	}
	for _, s := range st.Speeds {
		of := s.Device + "," + string(s.Class)
		m.Speeds[of], m.Rates[of] = s.Speed, s.Rate
	}
	for class, n := range st.Outliers {
		m.Outliers[string(class)] = n
	}
	for _, j := range st.Jobs {
		m.Jobs[j.State]++
		switch j.State {
		case palapi.Waiting, palapi.Committing, palapi.Completing:
			m.Requested = reason.Rounded(m.Requested + j.Amount(j.GPUs))
		case palapi.Rejected, palapi.Unschedulable, palapi.Failed:
			m.Refused++
		}
	}
	return m
}

// serveMetrics serves metrics to everybody. Only operators get series that name namespaces.
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

// gauges returns the metrics that are computed at each scrape.
func (a *Agent) gauges() []meter.Gauge {
	read := func(of func(Metrics) any) func() map[string]float64 {
		return func() map[string]float64 { return readings(reflect.ValueOf(of(a.metrics(time.Now())))) }
	}
	out := []meter.Gauge{
		{Name: "gpus_unhealthy", Help: "Unhealthy GPUs. They get no new jobs.", Read: read(func(m Metrics) any { return m.InTrouble.Unhealthy })},
		{Name: "gpus_quarantined", Help: "GPUs in quarantine. They get no new jobs.", Read: read(func(m Metrics) any { return m.InTrouble.Quarantined })},
		{Name: "gpus_degraded", Help: "GPUs that work, but not as they should. nomad-pal chooses them last.", Read: read(func(m Metrics) any { return m.InTrouble.Degraded })},
		{Name: "trouble", Help: "1 while the agent has a problem, otherwise 0. /v1/health names the problem.", Read: read(func(Metrics) any { return min(1, len(a.health(time.Now()).Trouble)) })},
		{Name: "warnings", Help: "Number of problems that operators should look at. /v1/health lists them.", Read: read(func(Metrics) any { return a.health(time.Now()).WarningCount })},
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Metrics]()) {
		help, name := f.Tag.Get("help"), f.Tag.Get("json")
		if help != "" {
			of := func(m Metrics) any { return reflect.ValueOf(m).FieldByIndex(f.Index).Interface() }
			out = append(out, meter.Gauge{Name: name, Help: help, Label: f.Tag.Get("label"), Counter: strings.HasSuffix(name, "_total"), Read: read(of)})
		}
	}
	return out
}

// readings returns the values of a metric by label: one value for a number, and one for each key of
// a map.
func readings(v reflect.Value) map[string]float64 {
	number := func(v reflect.Value) float64 { return v.Convert(reflect.TypeFor[float64]()).Float() }
	if v.Kind() != reflect.Map {
		return meter.One(number(v))
	}
	out := map[string]float64{}
	for label, n := range v.Seq2() {
		out[fmt.Sprint(label)] = number(n)
	}
	return out
}
