// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/hostile"
)

// Only Nomad's dry run can check a gang's constraint. The gang finds the nodes that Nomad accepts,
// although other nodes have better GPUs and each dry run reveals only some of the unfit ones.
func TestRefusedByDryRunGoesElsewhere(t *testing.T) {
	good := []string{"node-id-00001", "node-id-00004"}
	var registered []string
	p := placerAt(t, func(w http.ResponseWriter, r *http.Request) {
		var request struct{ Job *api.Job }
		if r.Method != http.MethodPut || json.NewDecoder(r.Body).Decode(&request) != nil {
			http.NotFound(w, r)
			return
		}
		g := request.Job.TaskGroups[0]
		if len(g.Constraints) == 0 { // the job without pins: some nodes accept it
			_, _ = w.Write([]byte("{}"))
			return
		}
		_, nodes, _ := strings.Cut(g.Constraints[len(g.Constraints)-1].RTarget, ",")
		on := strings.Split(nodes, ",")
		if *g.Count > len(on) {
			t.Errorf("%d members on %v", *g.Count, on)
		}
		if r.URL.Path == "/v1/jobs" {
			registered = on
		}
		refused := map[string]*api.AllocationMetric{}
		if slices.ContainsFunc(on, func(n string) bool { return !slices.Contains(good, n) }) {
			refused["g"] = nil
		}
		if err := json.NewEncoder(w).Encode(map[string]any{"FailedTGAllocs": refused, "JobModifyIndex": 300}); err != nil {
			t.Error(err)
		}
	})
	job := withCores(t, p, 6, hostile.Plain("j", 2, 4, 1))
	now := time.Now()
	for range 4 { // each try reveals two unfit nodes, and the next try follows soon
		decideAt(t, p, now)
		if registered != nil {
			break
		}
		p.publish(now)
		seen, asked := p.m.Jobs[cluster.KeyOf(job)], p.Picture()
		const why = "Nomad cannot place group \"g\" on the chosen nodes: no reason given"
		if e, err := asked.Explain(t.Context(), seen.Key); err != nil || e.Reason.String() != why || !e.StartFrom.IsZero() {
			t.Errorf("explain: %v, %+v", err, e)
		}
		if js := asked.Jobs(); len(js) != 1 || js[0].Reason.String() != why {
			t.Errorf("queue: %+v", js)
		}
		now = now.Add(1100 * time.Millisecond)
	}
	if state := p.m.Jobs[cluster.KeyOf(job)].Nomad; state != palapi.Starting || !slices.Equal(registered, good) {
		t.Errorf("it is %s on %v, want it on %v", state, registered, good)
	}
}

// Only the active placer knows why an incomplete gang gets no further members; explain and status
// show it.
func TestWhyItIsNotWhole(t *testing.T) {
	p := placerAt(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/var") {
			http.NotFound(w, r)
			return
		}
		if err := json.NewEncoder(w).Encode(map[string]any{"JobModifyIndex": 300}); err != nil {
			t.Error(err)
		}
	})
	job := withCores(t, p, 6, hostile.Plain("j", 2, 4, 1))
	now := time.Now()
	decideAt(t, p, now)
	why := reason.Reason{Kind: reason.Incomplete, Want: 2}.Over(reason.Reason{Kind: reason.GPUs, Needs: 4})
	g := p.m.Jobs[cluster.KeyOf(job)]
	g.SetTrouble(why)
	p.publish(now.Add(time.Minute))
	asked := p.Picture()
	if e, err := asked.Explain(t.Context(), g.Key); err != nil || e.State != palapi.Starting || !strings.HasSuffix(e.Reason.String(), "; "+why.String()) {
		t.Errorf("explain: %v, %+v", err, e)
	}
	if js := asked.Jobs(); len(js) != 1 || js[0].Reason.String() != why.String() {
		t.Errorf("status: %+v", js)
	}
}

// If Nomad refuses a gang on every node, the gang is tried again within half a minute, even after
// many tries: the obstacle may end without an event.
func TestRefusedByDryRunIsTriedAgain(t *testing.T) {
	p := placerAt(t, func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewEncoder(w).Encode(map[string]any{"FailedTGAllocs": map[string]any{"g": nil}}); err != nil {
			t.Error(err)
		}
	})
	job := withCores(t, p, 1, hostile.Plain("j", 1, 1, 1))
	now, tried := time.Now(), 0
	for range 12 {
		decideAt(t, p, now)
		g := p.m.Jobs[cluster.KeyOf(job)]
		if wait := g.RetryAt.Sub(now); wait <= 0 || wait > 30*time.Second {
			t.Fatalf("after %d tries it is tried again in %v", tried, wait)
		}
		tried, now = tried+1, g.RetryAt
	}
}

// withCores queues a job that only Nomad can check, on a cluster of n nodes.
func withCores(t *testing.T, p *Placer, nodes int, job *api.Job) *api.Job {
	t.Helper()
	s, prof, err := benchState(nodes, 0)
	if err != nil {
		t.Fatal(err)
	}
	p.m.Profile, p.m.State = prof, s
	job.TaskGroups[0].Tasks[0].Resources.Cores = new(1)
	s.PutJob(job)
	return job
}

// decideAt runs a cycle up to its decisions.
func decideAt(t *testing.T, p *Placer, now time.Time) {
	t.Helper()
	p.m.Time = now
	if err := p.m.UpdateView(now); err != nil {
		t.Fatal(err)
	}
	p.track(t.Context())
	p.syncQueue(t.Context())
	if err := p.decide(t.Context(), now); err != nil {
		t.Fatal(err)
	}
}

// Nomad makes no dry runs for workload identities, and the agent may run with one. A gang starts
// without the dry run then.
func TestWorkloadIdentityStartsWithoutDryRun(t *testing.T) {
	planned, registered := false, false
	p := placerAt(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/plan"): // as Nomad 1.11.3 answers
			planned = true
			http.Error(w, "acl token lookup failed: index error: UUID must be 36 characters", http.StatusInternalServerError)
		case r.URL.Path == "/v1/jobs" && r.Method == http.MethodPut:
			registered = true
			_, _ = w.Write([]byte(`{"JobModifyIndex": 300}`))
		default:
			http.NotFound(w, r)
		}
	})
	job := withCores(t, p, 6, hostile.Plain("j", 2, 4, 1))
	decideAt(t, p, time.Now())
	if is := p.m.Jobs[cluster.KeyOf(job)]; !planned || !registered || is.Nomad != palapi.Starting {
		t.Errorf("planned %v, registered %v, %s", planned, registered, is.Nomad)
	}
}
