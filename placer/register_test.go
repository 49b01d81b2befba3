// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// If the author purges, stops or edits a job while it is being placed, that is restored afterwards.
// The test plays Nomad's answers, as recorded from 1.11.3.
func TestReplacedWhilePlaced(t *testing.T) {
	for _, tc := range []struct {
		name    string
		version uint64 // the version that our registration made
		create  uint64
		lost    func(*api.Job) // makes the version that it replaced
		want    []string
	}{
		{name: "nothing", version: 2, create: 1},
		{name: "purged", version: 0, create: 100, want: []string{"DELETE /v1/job/j?namespace=default&purge=true"}},
		{name: "stopped", version: 3, create: 1, lost: func(j *api.Job) { yes := true; j.Stop = &yes },
			want: []string{"GET /v1/job/j/versions?diffs=false&namespace=default", "DELETE /v1/job/j?namespace=default&purge=false"}},
		{name: "edited", version: 3, create: 1, lost: func(j *api.Job) { p := 77; j.Priority = &p },
			want: []string{"GET /v1/job/j/versions?diffs=false&namespace=default", "PUT /v1/jobs?namespace=default priority 77"}},
	} {
		for _, ends := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, placer ends: %v", tc.name, ends), func(t *testing.T) {
				var asked []string
				var real api.Job
				gated := rewrite.Gate(benchJob("j", 1))
				first := uint64(1)
				gated.CreateIndex = &first
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					switch {
					case r.Method == "PUT":
						body, _ := io.ReadAll(r.Body)
						var req api.JobRegisterRequest
						if err := json.Unmarshal(body, &req); err != nil {
							t.Error(err)
						}
						asked = append(asked, fmt.Sprintf("PUT %s priority %d", r.URL, *req.Job.Priority))
						fmt.Fprint(w, `{"JobModifyIndex": 200}`)
					case r.URL.Path == "/v1/job/j/versions":
						asked = append(asked, "GET "+r.URL.String())
						lost, version := *gated, tc.version-1
						lost.Version = &version
						tc.lost(&lost)
						_ = json.NewEncoder(w).Encode(map[string]any{"Versions": []*api.Job{&lost}})
					case r.URL.Path == "/v1/job/j" && r.Method == "GET":
						_ = json.NewEncoder(w).Encode(real)
					case r.Method == "DELETE":
						asked = append(asked, "DELETE "+r.URL.String())
						fmt.Fprint(w, `{}`)
					default:
						http.NotFound(w, r)
					}
				}))
				defer server.Close()
				client, err := nomad.NewClient(&api.Config{Address: server.URL}, "default")
				if err != nil {
					t.Fatal(err)
				}
				p := newPlacer(t)
				p.nomad = client
				s, prof, err := benchState(2, 0)
				if err != nil {
					t.Fatal(err)
				}
				p.m.Profile = prof
				s.PutJob(gated)
				now := time.Now()
				actions := pass(t, p, s, now)
				job := p.m.ByID(actions[0].Job)
				pinned, err := p.m.View.Pin(job.Job, p.m.View.Pins(job.Request, actions[0].Placement))
				if err != nil {
					t.Fatal(err)
				}
				p.pretend(job, 100, gang.Start{Job: pinned, Placement: actions[0].Placement, Record: gang.Record{Decision: pal.Decision{Chosen: &pal.Choice{}}}})
				committed := job.Job
				// What really happened, as events show it.
				real = *committed
				real.Version, real.CreateIndex = &tc.version, &tc.create
				if ends {
					if err := p.checkLast(t.Context()); err != nil {
						t.Fatal(err)
					}
				} else {
					tell(s, gated, &real)
					p.track(t.Context())
					p.step(t.Context(), p.m.Jobs[cluster.KeyOf(gated)], gang.Reconcile{})
					if tc.name == "edited" {
						// The edit, registered again, comes back as the next version.
						back, version, index := *gated, tc.version+1, uint64(200)
						back.Version, back.ModifyIndex, back.JobModifyIndex = &version, &index, &index
						e := cluster.Event{Topic: "Job", Type: "JobRegistered", Key: "j", Index: index}
						e.Payload.Job = &back
						s.Apply(e)
						p.track(t.Context())
						if p.m.Jobs[cluster.KeyOf(gated)].Overwrote() {
							t.Error("the restored edit counts as another lost update")
						}
					}
				}
				if d := cmp.Diff(tc.want, asked); d != "" {
					t.Errorf("requests to Nomad (-want +got):\n%s", d)
				}
			})
		}
	}
}

// tell applies the events that show what really happened.
func tell(s *cluster.State, was, is *api.Job) {
	if *is.Version == 0 {
		e := cluster.Event{Topic: "Job", Type: "JobDeregistered", Key: "j", Index: 99}
		e.Payload.Job, e.Payload.Deleted = was, true
		s.Apply(e)
	}
	e := cluster.Event{Topic: "Job", Type: "JobRegistered", Key: "j", Index: 100}
	e.Payload.Job = is
	s.Apply(e)
}

// A placer that is stopped while Nomad registers a job waits for the answer.
func TestRegisterWhole(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != "PUT" {
			http.NotFound(w, r)
			return
		}
		cancel()
		select {
		case <-r.Context().Done(): // the placer does not wait
		case <-time.After(300 * time.Millisecond):
			fmt.Fprint(w, `{"JobModifyIndex": 200}`)
		}
	}))
	defer server.Close()
	p := newPlacer(t)
	var err error
	if p.nomad, err = nomad.NewClient(&api.Config{Address: server.URL}, ""); err != nil {
		t.Fatal(err)
	}
	was := benchJob("j", 1)
	resp, err := p.registerOver(ctx, benchJob("j", 1), nil, was)
	if err != nil || resp.JobModifyIndex != 200 {
		t.Errorf("%+v, %v", resp, err)
	}
	if _, err := p.registerOver(ctx, benchJob("j", 1), nil, was); err == nil {
		t.Error("registered after the end")
	}
}

// A registration is not answered, and the placer looks the job up.
func TestLookUp(t *testing.T) {
	was, ours := benchJob("j", 4), benchJob("j", 0)
	for name, c := range map[string]struct {
		version uint64
		want    error
	}{
		"done":               {version: 5},
		"done, over an edit": {version: 7}, // the gap in the versions shows it
	} {
		t.Run(name, func(t *testing.T) {
			now, index := *ours, uint64(9)
			now.Version, now.JobModifyIndex = &c.version, &index
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_ = json.NewEncoder(w).Encode(now)
			}))
			defer server.Close()
			p := newPlacer(t)
			var err error
			if p.nomad, err = nomad.NewClient(&api.Config{Address: server.URL}, ""); err != nil {
				t.Fatal(err)
			}
			resp, err := p.lookUp(t.Context(), ours, was, nomad.ErrUnknownOutcome)
			if !errors.Is(err, c.want) || err == nil && resp.JobModifyIndex != index {
				t.Errorf("%+v, %v", resp, err)
			}
		})
	}
}

// Before the placer gives GPUs to a job, to start it or to let it grow, it checks the events since
// its cycle began: tasks of a purged job that it never saw may still use GPUs, or Nomad has given one
// of the GPUs to another job.
func TestAdditionAfterNews(t *testing.T) {
	const theirs = `{"Topic": "Allocation", "Index": 5, "Payload": {"Allocation": {"ID": "a", "Namespace": "default", "JobID": "other", "ClientStatus": "running", "ModifyIndex": 5,
		"AllocatedResources": {"Tasks": {"t": {"Devices": [{"Vendor": "nvidia", "Type": "gpu", "Name": "m", "DeviceIDs": ["g2"]}]}}}}}}`
	job, err := rewrite.Pin(benchJob("j", 1), rewrite.Pins{Mode: rewrite.ModeGPU, Groups: []rewrite.GroupPins{{Group: "g", Nodes: []string{"n"}, GPUs: []string{"g1"}}}}, rewrite.Racks{})
	if err != nil {
		t.Fatal(err)
	}
	larger, err := rewrite.Pin(job, rewrite.Pins{Mode: rewrite.ModeGPU, Groups: []rewrite.GroupPins{{Group: "g", Nodes: []string{"n"}, GPUs: []string{"g1", "g2"}}}}, rewrite.Racks{})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		events []string
		to     *api.Job
		want   string // "" if the job may get the GPUs
	}{
		"nothing": {nil, larger, ""},
		"a purge": {[]string{
			`{"Topic": "Allocation", "Index": 5, "Payload": {"Allocation": {"ID": "a", "Namespace": "default", "JobID": "gone", "ClientStatus": "running"}}}`,
			`{"Topic": "Job", "Type": "JobDeregistered", "Index": 6, "Payload": {"Job": {"ID": "gone", "Namespace": "default"}, "Deleted": true}}`,
		}, larger, "another job was purged meanwhile"},
		"a GPU that another job got":         {[]string{theirs}, larger, `job "other" got GPU g2`},
		"a GPU that the job does not add to": {[]string{theirs}, job, ""},
	} {
		p := newPlacer(t)
		s, _, err := benchState(1, 0)
		if err != nil {
			t.Fatal(err)
		}
		p.m.State = s
		p.meanwhile.begin()
		for _, text := range c.events {
			var e cluster.Event
			if err := json.Unmarshal([]byte(text), &e); err != nil {
				t.Fatal(err)
			}
			p.heard = append(p.heard, e)
		}
		if why := p.forbids(t.Context(), addition{cluster.KeyOf(job), addedGPUs(job, c.to), true, false}); (why == "") != (c.want == "") || !strings.Contains(why, c.want) {
			t.Errorf("%s: %q, want %q", name, why, c.want)
		}
		g := &model.Tracked{Lifecycle: gang.Of(gang.Observed{Key: cluster.KeyOf(job), Job: job})}
		if c.want == "" {
			continue
		}
		to := *c.to
		to.Version = nil // of a job without a version, no source is read
		if _, err := p.register(t.Context(), g, gang.Register{Why: gang.ToSize, Job: &to}); !errors.Is(err, nomad.ErrConflict) || !p.again {
			t.Errorf("%s: registered: %v, again %v", name, err, p.again)
		}
	}
}

// A registration that must not rerun finished members fails if one of the members has ended.
func TestRegisterWhileAllRun(t *testing.T) {
	job := benchJob("j", 1)
	job.Version = nil
	for client, want := range map[string]error{"running": nil, "complete": nomad.ErrConflict} {
		registered := false
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/allocations") {
				fmt.Fprintf(w, `[{"ID": "a", "JobID": "j", "JobVersion": 0, "ClientStatus": %q, "DesiredStatus": "run"}]`, client)
				return
			}
			registered = true
			http.Error(w, "no", http.StatusForbidden)
		}))
		p := newPlacer(t)
		var err error
		if p.nomad, err = nomad.NewClient(&api.Config{Address: server.URL}, ""); err != nil {
			t.Fatal(err)
		}
		g := &model.Tracked{Lifecycle: gang.Of(gang.Observed{Key: cluster.KeyOf(job), Job: job})}
		_, err = p.register(t.Context(), g, gang.Register{Why: gang.ToSize, Job: job, While: []string{"a"}})
		if errors.Is(err, nomad.ErrConflict) != (want != nil) || registered != (want == nil) {
			t.Errorf("%s: registered %v: %v", client, registered, err)
		}
		server.Close()
	}
}
