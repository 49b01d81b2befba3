// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/query"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// registry plays Nomad: it records the registrations.
type registry struct {
	pinned []bool
	isNew  []bool
	err    error
	// refuseAll: err answers all registrations, not only those with pins.
	refuseAll bool
}

func (r *registry) register(_ context.Context, job *api.Job, isNew bool) (*api.JobRegisterResponse, error) {
	_, pinned := rewrite.Pinned(job)
	r.pinned, r.isNew = append(r.pinned, pinned), append(r.isNew, isNew)
	if r.err != nil && (isNew || r.refuseAll) {
		return nil, r.err
	}
	return &api.JobRegisterResponse{JobModifyIndex: 5000}, nil
}

// submitOne submits a job and returns the answer.
func submitOne(t *testing.T, p *Placer, job *api.Job, r *registry) submitted {
	t.Helper()
	s := &submission{job: job, register: r.register, answer: make(chan submitted, 1)}
	p.arriving = append(p.arriving, s)
	p.hooks.AfterCommit = func(cluster.JobKey) {
		if s.answered {
			t.Error("the author got the answer before AfterCommit ran, at which tests kill the placer")
		}
	}
	now := time.Now()
	p.track(t.Context())
	p.m.Time = now
	p.syncQueue(t.Context())
	p.enqueueSubmissions(t.Context(), now)
	if err := p.decide(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	select {
	case a := <-s.answer:
		return a
	default:
		t.Fatal("not answered")
	}
	return submitted{}
}

// A submitted job is registered with its pins if it starts at once. It is registered with its gate
// if it has to wait, or if Nomad already has a job with that name. A job that Nomad refuses holds
// no GPUs.
func TestSubmission(t *testing.T) {
	denied := errors.New("permission denied")
	for _, c := range []struct {
		name   string
		full   bool  // no GPU is free
		there  bool  // Nomad has a job with that id, and the placer knows it
		err    error // the answer to its registration with pins
		pinned []bool
		want   error
		phase  gang.State // afterwards; "" if the placer does not know the job
	}{
		{"starts", false, false, nil, []bool{true}, nil, gang.Starting},
		{"waits", true, false, nil, []bool{false}, nil, gang.Waiting},
		{"exists already", true, true, nil, []bool{false}, nil, gang.Waiting},
		{"exists when it is registered", false, false, nomad.ErrConflict, []bool{true, false}, nil, gang.Waiting},
		{"is refused", false, false, denied, []bool{true}, denied, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, prof, err := benchState(2, 0)
			if err != nil {
				t.Fatal(err)
			}
			if c.full {
				fill(s, 0, 2)
			}
			job := rewrite.Gate(benchJob("j", 1))
			if c.there {
				s.PutJob(job)
			}
			p := newPlacer(t)
			p.m.Profile, p.m.State = prof, s
			free := p.freeAfterLook(t)
			r := &registry{err: c.err}
			a := submitOne(t, p, job, r)
			if !errors.Is(a.err, c.want) {
				t.Errorf("answer: %v, want %v", a.err, c.want)
			}
			if len(r.pinned) != len(c.pinned) {
				t.Fatalf("registered %v, want %v", r.pinned, c.pinned)
			}
			for i, pinned := range c.pinned {
				if r.pinned[i] != pinned || r.isNew[i] != pinned {
					t.Errorf("registration %d: pinned %v, new only %v, want %v", i, r.pinned[i], r.isNew[i], pinned)
				}
			}
			known := p.m.Jobs[cluster.KeyOf(job)]
			switch {
			case c.phase == "" && (known != nil || p.m.View.Cluster.FreeGPUs() != free):
				t.Errorf("it is tracked, or holds GPUs: %v, %d of %d free", known, p.m.View.Cluster.FreeGPUs(), free)
			case c.phase != "" && (known == nil || known.Nomad != c.phase || known.Unregistered):
				t.Errorf("it is %+v, want %s", known, c.phase)
			}
			if len(p.joined) != 0 {
				t.Error("an author has no answer yet")
			}
		})
	}
}

func (p *Placer) freeAfterLook(t *testing.T) int {
	t.Helper()
	if err := p.m.UpdateView(time.Now()); err != nil {
		t.Fatal(err)
	}
	return p.m.View.Cluster.FreeGPUs()
}

// If an author stops waiting, the job is not submitted. Authors who still wait get an answer when
// the placer's session ends.
func TestSubmitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlacer(t)
		submit := func(ctx context.Context) chan error {
			done := make(chan error, 1)
			go func() {
				_, err := p.Submit(ctx, benchJob("j", 1), func(context.Context, *api.Job, bool) (*api.JobRegisterResponse, error) {
					t.Error("registered")
					return nil, nil
				})
				done <- err
			}()
			synctest.Wait()
			return done
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		before := submit(short) // no placer runs
		if err := <-before; !errors.Is(err, ErrNotSubmitted) {
			t.Errorf("no placer: %v", err)
		}
		short, cancel2 := context.WithTimeout(t.Context(), time.Second)
		defer cancel2()
		waited := submit(short)
		p.takeSubmissions()
		if err := <-waited; !errors.Is(err, ErrNotSubmitted) {
			t.Errorf("given up: %v", err)
		}
		p.enqueueSubmissions(t.Context(), time.Now())
		if len(p.joined) != 0 {
			t.Error("the placer accepted a job whose author has stopped waiting")
		}
		ended := submit(t.Context())
		p.interruptSubmissions()
		if err := <-ended; !errors.Is(err, ErrNotSubmitted) {
			t.Errorf("the session ended: %v", err)
		}
	})
}

// A job that is submitted to the agent has its place in the queue behind jobs that were registered
// with their gate before. So does a job that is planned.
func TestSubmissionQueuesBehind(t *testing.T) {
	t.Parallel()
	cfg := model.DefaultConfig()
	cfg.Queue.Order, cfg.Queue.Backfill = queue.FIFO, queue.BackfillNone
	p, err := New(nil, cfg, hclog.NewNullLogger(), Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	if p.m.State, p.m.Profile, err = benchState(2, 0); err != nil {
		t.Fatal(err)
	}
	fill(p.m.State, 0, 2)
	p.m.State.PutJob(rewrite.Gate(benchJob("first", 1)))
	p.freeAfterLook(t)
	var order []string
	r := &registry{}
	if a := submitOne(t, p, rewrite.Gate(benchJob("late", 2)), r); a.err != nil {
		t.Fatal(a.err)
	}
	for _, w := range p.m.Queue.Waiting(gang.QueueTime(time.Now()), p.m.View.Cluster) {
		order = append(order, w.Job)
	}
	if d := cmp.Diff([]string{"default/first", "default/late"}, order); d != "" {
		t.Errorf("the queue (-want +got):\n%s", d)
	}
	s := query.Picture(p.m, p.nomad, nil)
	planned := benchJob("planned", 0)
	e, err := s.Plan(t.Context(), planned)
	if err != nil || e.Wait == nil || e.Wait.Position != 3 {
		t.Errorf("planned: %+v, %v", e, err)
	}
}

// A submitted job preempts no gang before it is registered, because only Nomad knows whether its
// author may register it. It is registered with its gate, and preempts after that.
func TestSubmissionPreemptsOnceRegistered(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error // the answer to its registration
		want []string
	}{
		{"taken in", nil, []string{"PUT /v1/var/" + "nomad-pal/decisions/default/low", "PUT /v1/jobs", "PUT /v1/allocation/m0/stop", "PUT /v1/allocation/m1/stop"}},
		{"refused", errors.New("permission denied"), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var asked []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet {
					asked = append(asked, r.Method+" "+r.URL.Path)
				}
				fmt.Fprint(w, `{"JobModifyIndex": 200}`)
			}))
			defer server.Close()
			p := preemptible(t, server.URL)
			high := benchJob("high", 1)
			priority := 90
			high.Priority = &priority
			r := &registry{err: c.err, refuseAll: true}
			a := submitOne(t, p, rewrite.Gate(high), r)
			if !errors.Is(a.err, c.err) || len(r.pinned) != 1 || r.pinned[0] {
				t.Errorf("answer %v, registered %v", a.err, r.pinned)
			}
			if len(asked) > 0 {
				t.Errorf("before the job was registered, Nomad got %v", asked)
			}
			now := time.Now()
			p.track(t.Context())
			p.m.Time = now
			p.syncQueue(t.Context())
			if err := p.decide(t.Context(), now); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, asked); d != "" {
				t.Errorf("after that (-want +got):\n%s", d)
			}
		})
	}
}

// preemptible is a placer with a full cluster: a preemptible gang of low priority holds the GPUs
// that others do not.
func preemptible(t *testing.T, address string) *Placer {
	t.Helper()
	client, err := nomad.NewClient(&api.Config{Address: address}, "default")
	if err != nil {
		t.Fatal(err)
	}
	cfg := model.DefaultConfig()
	cfg.Queue.Order, cfg.Queue.Preempt = queue.FIFO, true
	p, err := New(client, cfg, hclog.NewNullLogger(), Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	if p.m.State, p.m.Profile, err = benchState(2, 0); err != nil {
		t.Fatal(err)
	}
	job := benchJob("low", 1)
	job.Meta = map[string]string{"pal_preempt": "true"}
	pins := rewrite.Pins{Mode: rewrite.ModeGPU, Groups: []rewrite.GroupPins{{Group: "g"}}}
	for n := range 2 {
		pins.Groups[0].Nodes = append(pins.Groups[0].Nodes, fmt.Sprintf("node-id-%05d", n))
		for k := 4; k < 8; k++ {
			pins.Groups[0].GPUs = append(pins.Groups[0].GPUs, fmt.Sprintf("GPU-%05d-%d", n, k))
		}
	}
	if job, err = rewrite.Pin(job, pins, rewrite.Racks{}); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-2 * time.Hour).UnixNano()
	job.SubmitTime = &long
	p.m.State.PutJob(job)
	for n := range 2 {
		p.m.State.PutAlloc(&cluster.Alloc{
			ID: fmt.Sprint("m", n), Job: cluster.KeyOf(job), Group: "g", Node: pins.Groups[0].Nodes[n], Desired: "run", Client: "running",
			GPUs: pins.Groups[0].GPUs[4*n : 4*n+4], CreateIndex: 10, ModifyIndex: 10, CreateTime: long, ModifyTime: long,
		})
	}
	if free := p.freeAfterLook(t); free != 0 {
		t.Fatalf("%d GPUs are free", free)
	}
	p.track(t.Context())
	for _, t := range p.m.Jobs {
		t.Record = &gang.Record{Namespace: t.Key.Namespace, Job: t.Key.ID, JobModifyIndex: 1, Decided: time.Unix(0, long), Ready: time.Unix(0, long)}
	}
	return p
}
