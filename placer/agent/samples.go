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
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

const (
	sampleEvery = time.Minute
	// firstEvery is the polling interval until the placer has read the cluster, which is when the
	// agent takes its first sample.
	firstEvery  = time.Second
	samplesKept = 24 * 60 // one day
)

// Sample is the state of the cluster at one time. Sample must contain no names, because /v1/history
// needs no token.
type Sample struct {
	At        time.Time `json:"at"`
	GPUs      float64   `json:"gpus"`
	Free      float64   `json:"free"`
	Allocated float64   `json:"allocated"`
	Waiting   int       `json:"waiting"`
	Running   int       `json:"running"`
	Requested float64   `json:"requested"` // GPUs that waiting jobs request
	Placed    int       `json:"placed"`    // gangs placed since the previous sample
	// Unhealthy, Quarantined and Degraded count GPUs. Outliers counts GPUs by application class.
	Unhealthy   float64            `json:"unhealthy,omitempty"`
	Quarantined float64            `json:"quarantined,omitempty"`
	Degraded    float64            `json:"degraded,omitempty"`
	Outliers    map[string]float64 `json:"outliers,omitempty"`
	Refused     int                `json:"refused,omitempty"` // jobs that cannot start now
	// Chosen and Packed are the mean predicted slowdowns of running gangs. SlowdownGPUs is the
	// number of GPUs of these gangs.
	Chosen       float64 `json:"slowdown_chosen,omitempty"`
	Packed       float64 `json:"slowdown_packed,omitempty"`
	SlowdownGPUs int     `json:"slowdown_gpus,omitempty"`
}

// samples keeps one day of samples in memory, about 300 bytes each.
type samples struct {
	mu      sync.Mutex
	kept    []Sample // oldest first
	counted uint64   // ID of the last event that is counted in a sample
}

// add appends a sample, and counts in it the gangs placed since the previous sample, even if the
// agent lost the lock or reloaded its configuration in between.
func (h *samples) add(s Sample, events *placer.EventLog) {
	h.mu.Lock()
	defer h.mu.Unlock()
	since, _ := events.After(h.counted)
	for _, e := range since {
		if h.counted = e.ID; e.Kind == placer.Placed {
			s.Placed++
		}
	}
	if len(h.kept) == samplesKept {
		h.kept = slices.Delete(h.kept, 0, 1)
	}
	h.kept = append(h.kept, s)
}

// after returns the samples taken after t, or all samples if t is zero.
func (h *samples) after(t time.Time) []Sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	from := slices.IndexFunc(h.kept, func(s Sample) bool { return t.IsZero() || s.At.After(t) })
	if from < 0 {
		return []Sample{}
	}
	return slices.Clone(h.kept[from:])
}

// remember takes samples while the agent is active, until ctx ends. remember takes the first sample
// as soon as the placer has read the cluster. remember also watches for idle GPUs.
func (a *Agent) remember(ctx context.Context, client *nomad.Client) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { a.watchIdle(ctx, client) })
	tick := time.NewTicker(firstEvery)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			if s, known := sampleOf(a.metrics(now), now); known {
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
func sampleOf(m Metrics, now time.Time) (s Sample, ok bool) {
	s = Sample{
		At: now.UTC(), GPUs: m.GPUs, Free: m.Free, Allocated: m.Allocated,
		Waiting: m.Jobs[gang.Waiting], Running: m.Jobs[gang.Running], Requested: m.Requested,
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
	if text := r.URL.Query().Get("after"); text != "" {
		var err error
		if after, err = time.Parse(time.RFC3339, text); err != nil {
			http.Error(w, fmt.Sprintf("after=%q is not a time such as 2006-01-02T15:04:05Z", text), http.StatusBadRequest)
			return
		}
	}
	writeJSON(w, http.StatusOK, s.agent.samples.after(after))
}

// Use is a period in which a job held GPUs. To is zero if the job still holds the GPUs.
type Use struct {
	Namespace string    `json:"namespace"`
	Job       string    `json:"job"`
	GPUs      []string  `json:"gpus"`
	From      time.Time `json:"from"`
	To        time.Time `json:"to,omitzero"`
}

// uses returns the periods in which jobs held GPUs, according to the placer's events, oldest first.
func uses(events []placer.Event) []Use {
	var out []Use
	open := map[[2]string]int{}
	for _, e := range events {
		k := [2]string{e.Namespace, e.Job}
		switch e.Kind {
		case placer.Placed, placer.Moved, placer.Resized, placer.Requeued, placer.LostMembers, placer.GivenUp, placer.Finished, placer.Refused:
			if i, ok := open[k]; ok {
				out[i].To = e.At
				delete(open, k)
			}
		}
		if len(e.GPUs) > 0 && (e.Kind == placer.Placed || e.Kind == placer.Moved || e.Kind == placer.Resized) {
			open[k] = len(out)
			out = append(out, Use{Namespace: e.Namespace, Job: e.Job, GPUs: e.GPUs, From: e.At})
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
	if nodes := q["node"]; len(nodes) > 0 {
		for _, g := range snapshot.SomeGPUs(query.GPUFilter{Nodes: nodes}) {
			wanted[g.ID] = true
		}
	}
	out, sees := []Use{}, c.sees(r.Context())
	events, _ := s.agent.hooks.Events.After(0)
	for _, u := range uses(events) {
		if job := q.Get("job"); job != "" && (u.Job != job || u.Namespace != cmp.Or(q.Get("namespace"), "default")) {
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
			u.Namespace, u.Job = "", model.Unseen
		}
		out = append(out, u)
	}
	writeJSON(w, http.StatusOK, out)
}
