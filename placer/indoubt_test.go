// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/hostile"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// The placer looks up a registration that Nomad does not answer. If Nomad has it, the gang starts.
// If somebody else was first, the placer reads the job again. Until the outcome is known, nobody
// else gets its GPUs.
func TestUnansweredRegistering(t *testing.T) {
	for _, c := range []struct {
		name  string
		found func(sent *api.Job) *api.Job // what Nomad has afterwards; nil: unchanged
		phase palapi.State
		kept  bool // its GPUs stay reserved
	}{
		{"done", func(sent *api.Job) *api.Job { return sent }, palapi.Starting, true},
		{"overtaken", func(*api.Job) *api.Job { return hostile.Plain("j", 2, 1, 300) }, palapi.Waiting, false},
		{"done, and stopped by its author since", func(sent *api.Job) *api.Job {
			stopped := *sent
			yes := true
			stopped.Stop = &yes
			return &stopped
		}, palapi.Waiting, false},
		{"not done, or not yet", nil, palapi.Waiting, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			gated := hostile.Plain("j", 2, 2, 1)
			has := gated
			p := placerAt(t, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method == http.MethodPut && r.URL.Path == "/v1/jobs":
					var request api.JobRegisterRequest
					if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
						t.Error(err)
					}
					if index := uint64(300); c.found != nil {
						request.Job.JobModifyIndex = &index
						has = c.found(request.Job)
					}
					http.Error(w, "rpc error: EOF", http.StatusInternalServerError)
				case r.Method == http.MethodGet && r.URL.Path == "/v1/job/j":
					if err := json.NewEncoder(w).Encode(has); err != nil {
						t.Error(err)
					}
				default:
					http.NotFound(w, r)
				}
			})
			s, prof, err := benchState(1, 0) // 4 of the 8 GPUs are free
			if err != nil {
				t.Fatal(err)
			}
			p.m.Profile = prof
			s.PutJob(gated)
			now := time.Now()
			cycle := func(now time.Time) {
				t.Helper()
				p.m.State = s
				if err := p.m.UpdateView(now); err != nil {
					t.Fatal(err)
				}
				p.track(t.Context())
				p.m.Time = now
				p.syncQueue(t.Context())
				if err := p.decide(t.Context(), now); err != nil {
					t.Fatal(err)
				}
			}
			cycle(now)
			j := p.m.Jobs[cluster.KeyOf(gated)]
			if got := j.Nomad; got != c.phase {
				t.Errorf("it is %s, want %s", got, c.phase)
			}
			if err := p.m.UpdateView(now.Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			free := func() string { return fmt.Sprint(p.m.View.Cluster.FreeGPUs(), " free") }
			if want := map[bool]string{true: "0 free", false: "4 free"}[c.kept]; free() != want {
				t.Errorf("%s, want %s", free(), want)
			}
			if c.found != nil {
				return
			}
			if err := p.m.UpdateView(now.Add(model.UnansweredFor)); err != nil {
				t.Fatal(err)
			}
			if free() != "4 free" {
				t.Errorf("after %v: %s", model.UnansweredFor, free())
			}
			if is := j.State(p.m); is != palapi.Committing {
				t.Errorf("it is %s, though Nomad may have written the start and not shown it yet", is)
			}
			if err := p.m.UpdateView(now.Add(model.UnansweredFor + p.m.Cfg.Resync)); err != nil {
				t.Fatal(err)
			}
			if is := j.State(p.m); is != palapi.Waiting {
				t.Errorf("it stays %s, though Nomad can no longer write its start", is)
			}
		})
	}
}

// When a registration succeeds late, its pins hold its GPUs. Before that, every start that may
// still succeed holds its GPUs.
func TestLimboEndsWithTheJob(t *testing.T) {
	p := newPlacer(t)
	s, _, err := benchState(1, 0)
	if err != nil {
		t.Fatal(err)
	}
	now, job := time.Now(), hostile.Plain("j", 1, 1, 1)
	s.PutJob(job)
	p.m.State, p.m.Time = s, now
	if err := p.m.UpdateView(now); err != nil {
		t.Fatal(err)
	}
	sent, err := rewrite.Pin(job, rewrite.Pins{Mode: rewrite.ModeGPU, Groups: []rewrite.GroupPins{{Group: *job.TaskGroups[0].Name, Nodes: []string{"n"}, GPUs: []string{"g"}}}}, rewrite.Racks{})
	if err != nil {
		t.Fatal(err)
	}
	k := cluster.KeyOf(job)
	held := func() int { return len(p.m.ReservedGPUs(now)[k]) }
	for u := range 2 {
		p.m.NoteUnanswered(sent, job, &gang.Start{Placement: pal.Placement{Members: []pal.Member{{GPUs: []int{u}}}}})
	}
	p.m.NoteUnanswered(sent, job, nil)
	if n := held(); n != 2 {
		t.Errorf("%d GPUs are held for two unanswered starts of one GPU each", n)
	}
	s.PutJob(hostile.Plain("j", 1, 1, 2))
	if n := held(); n != 0 {
		t.Errorf("%d GPUs are held though the job has changed", n)
	}
}
