// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/heartbeat"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/hostile"
)

// A job that triggers a bug in the placer is set aside, whether the bug is in reading it, in the
// queue's search for GPUs, or in registering it beside others. Without it the other jobs start.
func TestPanicSetsAside(t *testing.T) {
	bad, good := hostile.Plain("bad", 1, 1, 1), hostile.Plain("good", 1, 1, 2)
	for _, c := range []struct {
		where string
		plant func(p *Placer)
	}{
		{"putting it in the queue", func(p *Placer) { p.m.Jobs[cluster.KeyOf(bad)].Job = &api.Job{} }},
		{"looking for GPUs", func(p *Placer) {
			j := p.m.Jobs[cluster.KeyOf(bad)].QueueJob(0)
			j.Gang.MemberSets = []pal.MemberSet{{Members: 1, GPUs: 1, Eligible: []bool{}}} // an index out of range
			if err := p.m.Queue.Submit(0, j); err != nil {
				t.Fatal(err)
			}
			p.m.Jobs[cluster.KeyOf(bad)].Queued = true
		}},
		{"registering it", func(p *Placer) {
			p.hooks.BeforeCommit = func(k cluster.JobKey) {
				if k == cluster.KeyOf(bad) {
					panic("a bug in registering")
				}
			}
		}},
	} {
		t.Run(c.where, func(t *testing.T) {
			registered := map[string]bool{}
			p := placerAt(t, func(w http.ResponseWriter, r *http.Request) { noteRegistered(t, w, r, registered) })
			now := time.Now()
			once := func() (err error) {
				defer func() {
					if r := recover(); r != nil {
						err = p.recoverFromPanic(r, now)
					}
				}()
				s, prof, err := benchState(2, 0)
				if err != nil {
					return err
				}
				s.PutJob(bad)
				s.PutJob(good)
				p.m.State, p.m.Profile = s, prof
				if err := p.m.UpdateView(now); err != nil {
					return err
				}
				p.track(t.Context())
				if p.m.Jobs[cluster.KeyOf(bad)].Nomad == palapi.Waiting {
					c.plant(p)
				}
				p.m.Time = now
				p.syncQueue(t.Context())
				err = p.decide(t.Context(), now)
				p.publish(now)
				return err
			}
			if err := once(); !errors.Is(err, heartbeat.ErrInvariant) {
				t.Errorf("the first time: %v", err)
			}
			clear(registered)
			if err := once(); err != nil {
				t.Errorf("the second time: %v", err)
			}
			if !registered["good"] || registered["bad"] {
				t.Errorf("registered: %v", registered)
			}
			found := p.m.Jobs[cluster.KeyOf(bad)]
			if found == nil || found.Refused == nil || found.Nomad != palapi.Rejected {
				t.Errorf("the bad job is %+v", found)
			}
		})
	}
}

// placerAt is a placer whose Nomad is h.
func placerAt(t *testing.T, h http.HandlerFunc) *Placer {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	client, err := nomad.NewClient(&api.Config{Address: server.URL}, "default")
	if err != nil {
		t.Fatal(err)
	}
	p := newPlacer(t)
	p.nomad = client
	return p
}

// noteRegistered plays Nomad: it records the ids of registered jobs.
func noteRegistered(t *testing.T, w http.ResponseWriter, r *http.Request, registered map[string]bool) {
	var request api.JobRegisterRequest
	if r.Method != http.MethodPut || r.URL.Path != "/v1/jobs" {
		http.NotFound(w, r)
		return
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		t.Error(err)
		return
	}
	registering.Lock()
	defer registering.Unlock()
	registered[*request.Job.ID] = true
	fmt.Fprint(w, `{"JobModifyIndex": 200}`)
}

var registering sync.Mutex

// A job that was set aside once is served again as soon as its author changes it. If a job triggers
// panics again and again, it is left alone for a while even then, but never for more than an hour.
func TestAsideUntilChanged(t *testing.T) {
	p, now := newPlacer(t), time.Now()
	p.m.State = cluster.NewState()
	job := func(index uint64) *api.Job { return hostile.Plain("bad", 1, 1, index) }
	k := cluster.KeyOf(job(1))
	apart := func(index uint64, at time.Time) bool {
		_, ok := p.m.Isolated(job(index), at)
		return ok
	}
	for times := 1; times <= 100; times++ {
		index := uint64(times)
		p.m.State.PutJob(job(index))
		p.m.IsolateJob(k, errors.New("x"), now)
		if !apart(index, now.Add(24*time.Hour)) {
			t.Errorf("time %d: unchanged, but it is served", times)
		}
		left := map[int]time.Duration{1: 0, 2: model.IsolateFor, 3: 2 * model.IsolateFor}[times]
		if times > 3 {
			left = min(model.IsolateFor<<min(times-2, 20), time.Hour)
		}
		if left > 0 && !apart(index+1, now.Add(left-1)) {
			t.Errorf("time %d: changed, but it is served before %v", times, left)
		}
		if apart(index+1, now.Add(left)) {
			t.Errorf("time %d: changed, but it is not served after %v", times, left)
		}
	}
	if why, _ := p.m.Isolated(job(100), now); why.Kind != reason.PlacerFault {
		t.Errorf("reason: %s", why)
	}
}
