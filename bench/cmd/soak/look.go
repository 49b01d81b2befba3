// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// world has the holder of each GPU and the state of each job, as either the placer or Nomad sees
// them.
type world struct {
	holder    map[string]string // GPU → job
	phase     map[string]string // job → "waiting" or "running"; the placer has more states
	unhealthy map[string]bool   // GPUs that the placer regards as unhealthy
	twice     []string          // GPUs that two allocations hold
}

func newWorld() world {
	return world{holder: map[string]string{}, phase: map[string]string{}, unhealthy: map[string]bool{}}
}

// waiting returns the number of waiting jobs.
func (w world) waiting() int {
	n := 0
	for _, p := range w.phase {
		if p == "waiting" {
			n++
		}
	}
	return n
}

// believed returns the placer's view of the world.
func believed(ctx context.Context, url string) (world, metrics, error) {
	w := newWorld()
	var gpus []struct {
		ID, Job string
		Healthy bool
	}
	var jobs []struct{ Namespace, Job, State string }
	var m metrics
	for path, into := range map[string]any{"/v1/gpus": &gpus, "/v1/queue": &jobs, "/v1/metrics": &m} {
		if err := read(ctx, url+path, into); err != nil {
			return w, m, err
		}
	}
	for _, g := range gpus {
		if g.Job != "" {
			w.holder[g.ID] = g.Job
		}
		w.unhealthy[g.ID] = !g.Healthy
	}
	for _, j := range jobs {
		w.phase[j.Namespace+"/"+j.Job] = j.State
	}
	return w, m, nil
}

// metrics are values of /v1/metrics from the agent's stored state. The agent computes /v1/gpus and
// /v1/queue for each request.
type metrics struct {
	Leader     int            `json:"leader"`
	Jobs       map[string]int `json:"jobs"`
	Goroutines int            `json:"go_goroutines"` // 0 if the placer does not report it
}

// patience is the time limit of an answer. On a machine that also does other work, an agent once
// took more than 10 s.
const patience = time.Minute

func read(ctx context.Context, url string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	status, text, err := cluster.Request(ctx, http.DefaultClient, http.MethodGet, url, "", "")
	switch {
	case err != nil:
		return err
	case status != http.StatusOK:
		return fmt.Errorf("reading %q: status %d", url, status)
	}
	return json.Unmarshal([]byte(text), into)
}

// actual returns Nomad's view of the world. An allocation holds its GPUs until its client reports
// the allocation's end.
func actual(ctx context.Context, c *api.Client) (world, error) {
	w := newWorld()
	jobs, _, err := c.Jobs().List((&api.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return w, fmt.Errorf("listing jobs: %w", err)
	}
	for _, j := range jobs {
		if !j.Stop && j.Status != "dead" && wanted(j) {
			w.phase["default/"+j.ID] = "waiting"
		}
	}
	q := &api.QueryOptions{Params: map[string]string{"resources": "true"}}
	allocs, _, err := c.Allocations().List(q.WithContext(ctx))
	if err != nil {
		return w, fmt.Errorf("listing allocations: %w", err)
	}
	for _, a := range allocs {
		if cluster.Ended(a) {
			continue
		}
		job := "default/" + a.JobID
		if w.phase[job] != "" {
			w.phase[job] = "running"
		}
		w.hold(job, a)
	}
	return w, nil
}

// wanted reports whether, according to Nomad, members of the job run or must still be placed. The
// job's status is not enough: it is also pending while a delayed evaluation exists. For example,
// Nomad delays an evaluation until the time limit of a disconnected node.
func wanted(j *api.JobListStub) bool {
	if j.JobSummary == nil {
		return true
	}
	for _, g := range j.JobSummary.Summary {
		if g.Queued+g.Starting+g.Running+g.Unknown > 0 || g.Complete+g.Failed+g.Lost == 0 {
			return true
		}
	}
	return false
}

func (w *world) hold(job string, a *api.AllocationListStub) {
	for _, id := range cluster.DeviceIDs(a.AllocatedResources) {
		if w.holder[id] != "" {
			w.twice = append(w.twice, id)
		}
		w.holder[id] = job
	}
}

// differences returns, by subject, how the placer's and Nomad's views differ.
func differences(placer, nomad world, m metrics) map[string]string {
	out := map[string]string{}
	for gpu := range union(placer.holder, nomad.holder) {
		if p, n := placer.holder[gpu], nomad.holder[gpu]; p != n {
			out["gpu "+gpu] = fmt.Sprintf("placer: %q, Nomad: %q", p, n)
		}
	}
	for job := range union(placer.phase, nomad.phase) {
		p, n := placer.phase[job], nomad.phase[job]
		if p != n && (p == "" || n == "" || p == "waiting" || p == "running") {
			out["job "+job] = fmt.Sprintf("placer: %q, Nomad: %q", p, n)
		}
	}
	if got, want := m.Jobs["waiting"], nomad.waiting(); got != want {
		out["metrics"] = fmt.Sprintf("the placer counts %d waiting jobs, but Nomad counts %d", got, want)
	}
	return out
}

// union returns a map with the keys of both.
func union(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// settle is how long the placer and Nomad may disagree about a GPU or job, because allocations
// start and end.
const settle = 20 * time.Second

// compare queries the placer and Nomad until they have agreed at least once about each GPU, job and
// metric, or until settle is over. compare returns the remaining differences, and the GPUs that two
// allocations hold.
func compare(ctx context.Context, url string, c *api.Client) (drift map[string]string, seen world, m metrics, err error) {
	end := time.Now().Add(settle)
	for first := true; ; first = false {
		var placer, nomad world
		placer, m, err = believed(ctx, url)
		if err == nil {
			nomad, err = actual(ctx, c)
		}
		if err != nil {
			return drift, seen, m, err
		}
		d := differences(placer, nomad, m)
		for _, id := range nomad.twice {
			d["twice "+id] = "two allocations hold it"
		}
		if first {
			drift = d
		}
		maps.DeleteFunc(drift, func(subject, _ string) bool { return d[subject] == "" })
		seen = nomad
		if len(drift) == 0 || time.Now().After(end) {
			return drift, seen, m, nil
		}
		if err := cluster.Pause(ctx, time.Second); err != nil {
			return drift, seen, m, err
		}
	}
}

// both returns the differences in a whose subjects are also in b, sorted.
func both(a, b map[string]string) []string {
	var out []string
	for _, subject := range slices.Sorted(maps.Keys(a)) {
		if b[subject] != "" {
			out = append(out, subject+": "+a[subject])
		}
	}
	return out
}
