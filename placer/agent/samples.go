// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/nomad-pal/nomad-pal/placer"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

const (
	sampleEvery = time.Minute
	// firstEvery is the polling interval until the placer has read the cluster, which is when the
	// agent takes its first sample.
	firstEvery  = time.Second
	samplesKept = 24 * 60 // one day
)

// samples keeps one day of samples in memory, about 300 bytes each.
type samples struct {
	mu      sync.Mutex
	kept    []palapi.Sample // oldest first
	counted uint64          // ID of the last event that is counted in a sample
}

// add appends a sample, and counts in it the gangs placed since the previous sample, even if the
// agent lost the lock or reloaded its configuration in between.
func (h *samples) add(s palapi.Sample, events *placer.EventLog) {
	h.mu.Lock()
	defer h.mu.Unlock()
	since, _ := events.After(h.counted)
	for _, e := range since {
		h.counted = e.ID
		if e.Kind == palapi.EventPlaced {
			s.Placed++
		}
	}
	if len(h.kept) == samplesKept {
		h.kept = slices.Delete(h.kept, 0, 1)
	}
	h.kept = append(h.kept, s)
}

// after returns the samples taken after t, or all samples if t is zero.
func (h *samples) after(t time.Time) []palapi.Sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	from := slices.IndexFunc(h.kept, func(s palapi.Sample) bool { return t.IsZero() || s.At.After(t) })
	if from < 0 {
		return []palapi.Sample{}
	}
	return slices.Clone(h.kept[from:])
}

// remember takes samples and watches for idle GPUs while the agent is active, until ctx ends. It
// begins as soon as the placer has read the cluster.
func (a *Agent) remember(ctx context.Context, client *nomad.Client) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { a.watchIdle(ctx, client) })
	tick := time.NewTicker(firstEvery)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			s, known := sampleOf(a.metrics(now), now)
			if known {
				a.samples.add(s, a.hooks.Events)
				tick.Reset(sampleEvery)
			}
		case <-ctx.Done():
			return
		}
	}
}

// sampleOf converts metrics to a sample; ok is false while the placer has not read the cluster, or
// if the cluster has no GPU.
func sampleOf(m Metrics, now time.Time) (s palapi.Sample, ok bool) {
	s = palapi.Sample{
		At: now.UTC(), GPUs: m.GPUs, Free: m.Free, Allocated: m.Allocated,
		Waiting: m.Jobs[palapi.Waiting], Running: m.Jobs[palapi.Running], Requested: m.Requested,
		Unhealthy: m.InTrouble.Unhealthy, Quarantined: m.InTrouble.Quarantined,
		Degraded: m.InTrouble.Degraded, Outliers: maps.Clone(m.Outliers), Refused: m.Refused,
		Chosen: m.Slowdown["chosen"], Packed: m.Slowdown["packed"], SlowdownGPUs: m.PredictedGPUs,
	}
	maps.DeleteFunc(s.Outliers, func(_ string, n float64) bool { return n == 0 })
	return s, m.CycleAge >= 0 && m.GPUs > 0
}

// serveSamples returns the samples of the last day, one per minute, oldest first. Samples contain
// no names, so the request needs no token.
//
//	GET /v1/history?after=<time of a sample>
func (s *server) serveSamples(w http.ResponseWriter, r *http.Request) {
	var after time.Time
	text := r.URL.Query().Get("after")
	if text != "" {
		var err error
		if after, err = time.Parse(time.RFC3339, text); err != nil {
			http.Error(w, fmt.Sprintf("after=%q is not a time such as 2006-01-02T15:04:05Z", text), http.StatusBadRequest)
			return
		}
	}
	writeJSON(w, http.StatusOK, s.agent.samples.after(after))
}

// uses returns the periods in which jobs held GPUs, according to the placer's events, oldest first.
func uses(events []palapi.Event) []palapi.Use {
	var out []palapi.Use
	open := map[[2]string]int{}
	for _, e := range events {
		k := [2]string{e.Namespace, e.Job}
		switch e.Kind {
		case palapi.EventPlaced, palapi.EventMoved, palapi.EventResized, palapi.EventRequeued, palapi.EventLostMembers, palapi.EventGivenUp, palapi.EventFinished, palapi.EventRefused:
			if i, ok := open[k]; ok {
				out[i].To = e.At
				delete(open, k)
			}
		}
		if len(e.GPUs) > 0 && (e.Kind == palapi.EventPlaced || e.Kind == palapi.EventMoved || e.Kind == palapi.EventResized) {
			open[k] = len(out)
			out = append(out, palapi.Use{Namespace: e.Namespace, Job: e.Job, GPUs: e.GPUs, From: e.At})
		}
	}
	return out
}

// serveUses returns which jobs held GPUs of nodes, or which GPUs a job held:
//
//	GET /v1/uses?node=<name>&node=…
//	GET /v1/uses?job=<id>&namespace=<namespace>
//
// The agent derives the answer from the events that it keeps (see [server.serveEvents]), so
// placements before the oldest kept event are missing. A job that the caller may not see has no
// name in the answer for nodes, and is missing in the answer for a job.
func (s *server) serveUses(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	c, snapshot, ok := s.snapshotFor(w, r, (*caller).readsNodes)
	if !ok {
		return
	}
	wanted := map[string]bool{}
	nodes := q["node"]
	if len(nodes) > 0 {
		for _, g := range snapshot.SomeGPUs(palapi.GPUFilter{Nodes: nodes}) {
			wanted[g.ID] = true
		}
	}
	out, sees := []palapi.Use{}, c.sees(r.Context())
	events, _ := s.agent.hooks.Events.After(0)
	for _, u := range uses(events) {
		job := q.Get("job")
		if job != "" && (u.Job != job || u.Namespace != cmp.Or(q.Get("namespace"), "default")) {
			continue
		}
		if q.Has("node") {
			u.GPUs = slices.DeleteFunc(slices.Clone(u.GPUs), func(id string) bool { return !wanted[id] })
		}
		if len(u.GPUs) == 0 {
			continue
		}
		if !sees(u.Namespace) {
			if q.Has("job") {
				continue
			}
			u.Namespace, u.Job = "", palapi.Unseen
		}
		out = append(out, u)
	}
	writeJSON(w, http.StatusOK, out)
}
