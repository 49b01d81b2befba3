// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/heartbeat"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/query"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// pass runs a cycle without requests to Nomad, and returns the queue's decisions.
func pass(t *testing.T, p *Placer, s *cluster.State, now time.Time) []queue.Action {
	t.Helper()
	p.m.State = s
	if err := p.m.UpdateView(now); err != nil {
		t.Fatal(err)
	}
	p.track(t.Context())
	p.m.Time = now
	p.syncQueue(t.Context())
	return p.m.Queue.Decide(gang.QueueTime(now), p.m.View.Cluster)
}

func newPlacer(t *testing.T) *Placer {
	t.Helper()
	p, err := New(nil, model.DefaultConfig(), hclog.NewNullLogger(), Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// No GPUs at all, or none that match: the job is unschedulable, with the reason.
func TestEmptyCluster(t *testing.T) {
	p, s := newPlacer(t), cluster.NewState()
	s.PutJob(rewrite.Gate(benchJob("lonely", 1)))
	if as := pass(t, p, s, time.Now()); len(as) != 0 {
		t.Fatalf("started without GPUs: %v", as)
	}
	p.publish(time.Now())
	if js := p.Status().Jobs; len(js) != 1 || js[0].State != palapi.Unschedulable || js[0].Reason.IsZero() {
		t.Errorf("status: %+v", js)
	}
	e, err := query.Picture(p.m, p.nomad, nil).Explain(t.Context(), cluster.JobKey{Namespace: "default", ID: "lonely"})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(e.Reason.String(), "needs 8 GPUs; the cluster has none that match") {
		t.Errorf("reason: %s", e.Reason.String())
	}
}

// firstStarts starts the first of two gangs of 2 × 4 GPUs on the free half of two nodes, at index
// 1000; the other one waits.
func firstStarts(t *testing.T, p *Placer, now time.Time) (s *cluster.State, first *model.Tracked, committed *api.Job) {
	t.Helper()
	s, prof, err := benchState(2, 2)
	if err != nil {
		t.Fatal(err)
	}
	p.m.Profile = prof
	as := pass(t, p, s, now)
	if len(as) != 1 {
		t.Fatalf("2 nodes with 4 free GPUs each start %d gangs of 2 × 4", len(as))
	}
	first = p.m.ByID(as[0].Job)
	pins := p.m.View.Pins(first.Request, as[0].Placement)
	pinned, err := rewrite.Pin(first.Job, pins, rewrite.Racks{})
	if err != nil {
		t.Fatal(err)
	}
	p.pretend(first, 1000, gang.Start{Job: pinned, Pins: pins, Placement: as[0].Placement, Record: gang.Record{Decision: pal.Decision{Chosen: &pal.Choice{}}}})
	return s, first, s.Jobs[first.Key]
}

// pretend sends an event to a gang, and answers its effects as if Nomad had done them, with the
// given JobModifyIndex.
func (p *Placer) pretend(t *model.Tracked, index uint64, e gang.Event) {
	for e != nil {
		todo := t.Step(e, p.m.World())
		e = nil
		for _, effect := range todo {
			switch effect := effect.(type) {
			case gang.Register:
				e = p.registered(t, effect.Job, index)
			case gang.Commit:
				e = p.registered(t, effect.Job, index)
			case gang.WriteRecord, gang.StopMembers:
				e = gang.Done{Of: effect}
			default:
				p.carryOutHere(t, effect)
			}
		}
	}
}

// The queue learns that a gang has stopped when its GPUs are free in the view. So the gang for
// which it was stopped finds them, and the queue stops no other gang instead. Meanwhile the
// author's edit applies.
func TestStoppedWhenFree(t *testing.T) {
	cfg := model.DefaultConfig()
	cfg.Queue.Order, cfg.Queue.MaxWait = queue.FIFO, 100*365*24*time.Hour // the jobs were submitted in 1970
	p, err := New(nil, cfg, hclog.NewNullLogger(), Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	s, first, committed := firstStarts(t, p, now)
	pins := first.Pins
	members := func(client, desired string, index uint64) {
		for i, node := range pins.Groups[0].Nodes {
			s.PutAlloc(&cluster.Alloc{ID: node, Job: first.Key, Group: "g", Node: node, Desired: desired, Client: client,
				GPUs: pins.GPUs()[4*i : 4*i+4], CreateIndex: 1001, ModifyIndex: index})
		}
	}
	members("running", "run", 1002)
	shown := *committed
	s.PutJob(&shown) // Nomad shows the result of the registration
	if as := pass(t, p, s, now.Add(time.Minute)); len(as) != 0 {
		t.Fatalf("no GPU is free, but %v", as)
	}
	p.pretend(first, 2000, gang.Preempt{For: "another"})
	edited := *rewrite.Gate(committed)
	priority := 10
	edited.Priority = &priority
	s.PutJob(gang.RegisteredJob(&edited, s.Jobs[first.Key], 2001, now))
	members("complete", "stop", 2002)
	for step, want := range []int{0, 1} {
		as := pass(t, p, s, now.Add(2*time.Minute))
		if len(as) != want || first.Placed == (want > 0) || p.again != (want == 0) {
			t.Errorf("pass %d: %v; the queue knows it as running: %v; another pass is due: %v", step+1, as, first.Placed, p.again)
		}
		if want > 0 && as[0].Job == first.Key.String() {
			t.Error("the first starts, although its priority is lower now")
		}
		p.again = false
	}
}

// A bug that is not known to come from a job ends the session, not the placer.
func TestSafely(t *testing.T) {
	p := newPlacer(t) // no client: the first call panics
	if err := p.safely(t.Context()); err == nil || !strings.Contains(err.Error(), "broken invariant") {
		t.Errorf("error: %v", err)
	}
	if p.m.View != nil || p.m.State != nil || len(p.m.Jobs) != 0 {
		t.Error("the model keeps old data")
	}
}

// A full read of a large cluster on a slow Nomad takes long. It counts as progress, so that the agent
// does not take the loop for hung.
func TestSlowFullReadIsProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := make([]map[string]any, 1000)
		for i := range nodes {
			nodes[i] = map[string]any{"ID": fmt.Sprintf("%08d-4d6e-c0de-26d0-e383c49be941", i), "ModifyIndex": 1}
		}
		list, err := json.Marshal(nodes)
		if err != nil {
			t.Fatal(err)
		}
		client, err := nomad.NewClient(&api.Config{Address: "http://nomad.test", HttpClient: &http.Client{Transport: answering(func(r *http.Request) (int, string) {
			time.Sleep(10 * time.Second)
			switch {
			case r.URL.Path == "/v1/nodes":
				return http.StatusOK, string(list)
			case strings.HasPrefix(r.URL.Path, "/v1/node/"):
				return http.StatusNotFound, "node not found"
			}
			return http.StatusOK, "[]"
		})}}, "")
		if err != nil {
			t.Fatal(err)
		}
		p, err := New(client, model.DefaultConfig(), hclog.NewNullLogger(), Hooks{})
		if err != nil {
			t.Fatal(err)
		}
		p.vitals.LoopAlive(time.Now())
		ended := make(chan error, 1)
		go func() { ended <- p.resync(t.Context()) }()
		for range 10 {
			time.Sleep(time.Minute)
			select {
			case err := <-ended:
				t.Fatalf("the full read ended early: %v", err)
			default:
			}
			if still := p.Vitals().Still(time.Now()); still > heartbeat.HungAfter/2 {
				t.Fatalf("no progress for %s", still)
			}
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// answering is a transport that stands in for Nomad. It returns the status and body of each answer.
type answering func(*http.Request) (int, string)

func (f answering) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body := f(r)
	return &http.Response{StatusCode: status, ContentLength: -1, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}
