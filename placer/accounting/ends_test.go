// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package accounting

import (
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/ledger"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/request"
)

// A run that follows one that took no time has its own key.
func TestRunAfterOneOfNoTime(t *testing.T) {
	j := batchJob()
	j.SubmitTime, j.Status = new(at(0).Add(300*time.Microsecond).UnixNano()), new("pending")
	was := Run{Namespace: "research", Job: "job", State: Failed, Submitted: at(0), Ended: at(0)}
	q, err := queue.New(queue.Default())
	if err != nil {
		t.Fatal(err)
	}
	m := &model.Model{Time: at(1), Queue: q, State: cluster.NewState(), View: &request.View{}, Jobs: map[cluster.JobKey]*model.Tracked{}}
	m.State.Jobs[was.key()] = j
	r := NewRecorder([]Run{was}, nil, 0)
	b := r.Look(m, nil)
	if len(b.Runs) != 1 || !b.Runs[0].Submitted.After(was.Ended) {
		t.Errorf("the run after %+v is written as: %+v", was, b.Runs)
	}
}

// A job was submitted, ran and was stopped while no history was kept. Its run begins no later than
// the placement of its member, and ends when its member ended.
func TestStoppedUnseen(t *testing.T) {
	q, err := queue.New(queue.Default())
	if err != nil {
		t.Fatal(err)
	}
	j := batchJob()
	j.SubmitTime, j.CreateIndex, j.Status, j.Stop = new(at(3).UnixNano()), new(uint64(10)), new("dead"), new(true)
	m := &model.Model{Time: at(9), Queue: q, State: cluster.NewState(), Jobs: map[cluster.JobKey]*model.Tracked{}}
	device := &api.RequestedDevice{Name: "nvidia/gpu", Count: new(uint64(1))}
	j.AddTaskGroup(api.NewTaskGroup("workers", 1).AddTask(api.NewTask("main", "raw_exec").Require(&api.Resources{Devices: []*api.RequestedDevice{device}})))
	k := cluster.KeyOf(j)
	m.State.Jobs[k], m.State.ByJob[k] = j, map[string]*cluster.Alloc{}
	for id, a := range map[string]*cluster.Alloc{
		"purged": {CreateIndex: 5, CreateTime: at(0).UnixNano(), ModifyTime: at(0.5).UnixNano()},
		"ran":    {CreateIndex: 12, CreateTime: at(1).UnixNano(), ModifyTime: at(4).UnixNano()},
	} {
		a.Name, a.Group = "job.workers[0]", "workers"
		a.ID, a.Job, a.Node, a.GPUs, a.ModifyIndex, a.Client, a.Desired = id, k, "n", []string{"g"}, 20, api.AllocClientStatusComplete, api.AllocDesiredStatusStop
		m.State.Allocs[id], m.State.ByJob[k][id] = a, a
	}
	if m.View, err = request.NewView(m.State, request.Options{Ledger: ledger.Options{Locality: pal.TwoTier(1.7)}}); err != nil {
		t.Fatal(err)
	}
	b := NewRecorder(nil, nil, 0).Look(m, nil)
	if len(b.Runs) != 1 || len(b.Allocs) != 2 {
		t.Fatalf("%+v", b)
	}
	if r := b.Runs[0]; !r.Submitted.Equal(at(1)) || !r.Started.Equal(at(1)) || !r.Ended.Equal(at(4)) || r.State != Stopped {
		t.Errorf("run %+v", r)
	}
	for _, a := range b.Allocs {
		if a.Submitted.Equal(at(1)) != (a.ID == "ran") {
			t.Errorf("allocation %+v", a)
		}
	}
}

// A job is stopped or purged, and submitted again before its old member ends. The old member
// belongs to a run of its own, which ends when the member ends.
func TestSubmittedAgainBeforeTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		stop  func(s *cluster.State, j *api.Job)
		again func(s *cluster.State, j *api.Job)
		state State
	}{
		"stopped": {func(_ *cluster.State, j *api.Job) { j.Stop = new(true) }, func(_ *cluster.State, j *api.Job) { j.Stop = nil }, Stopped},
		"stopped, unseen": {func(*cluster.State, *api.Job) {}, func(s *cluster.State, j *api.Job) {
			stopped := *j
			stopped.Stop, stopped.JobModifyIndex, stopped.ModifyIndex = new(true), new(uint64(30)), new(uint64(30))
			s.PutJob(&stopped)
		}, Stopped},
		"purged":         {func(s *cluster.State, j *api.Job) { delete(s.Jobs, cluster.KeyOf(j)) }, func(_ *cluster.State, j *api.Job) { j.CreateIndex = new(uint64(30)) }, Unknown},
		"purged, unseen": {func(*cluster.State, *api.Job) {}, func(_ *cluster.State, j *api.Job) { j.CreateIndex = new(uint64(30)) }, Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			q, err := queue.New(queue.Default())
			if err != nil {
				t.Fatal(err)
			}
			j := batchJob()
			j.SubmitTime, j.CreateIndex, j.ModifyIndex, j.Status = new(at(0).UnixNano()), new(uint64(10)), new(uint64(10)), new("running")
			device := &api.RequestedDevice{Name: "nvidia/gpu", Count: new(uint64(1))}
			j.AddTaskGroup(api.NewTaskGroup("workers", 1).AddTask(api.NewTask("main", "raw_exec").Require(&api.Resources{Devices: []*api.RequestedDevice{device}})))
			m := &model.Model{Queue: q, State: cluster.NewState(), Jobs: map[cluster.JobKey]*model.Tracked{}}
			k, r := cluster.KeyOf(j), NewRecorder(nil, nil, 0)
			m.State.Jobs[k], m.State.ByJob[k] = j, map[string]*cluster.Alloc{}
			if m.View, err = request.NewView(m.State, request.Options{Ledger: ledger.Options{Locality: pal.TwoTier(1.7)}}); err != nil {
				t.Fatal(err)
			}
			place := func(id string, hours float64) *cluster.Alloc {
				a := &cluster.Alloc{ID: id, Name: "job.workers[0]", Group: "workers", Job: k, Node: "n", GPUs: []string{"g"}, CreateIndex: uint64(11 + 10*hours), ModifyIndex: 20,
					CreateTime: at(hours).UnixNano(), ModifyTime: at(hours).UnixNano(), Client: api.AllocClientStatusRunning, Desired: api.AllocDesiredStatusRun}
				m.State.Allocs[id], m.State.ByJob[k][id] = a, a
				return a
			}
			all := map[time.Time]Run{}
			look := func(hours float64) {
				m.Time = at(hours)
				b := r.Look(m, nil)
				for _, run := range b.Runs {
					all[run.Submitted] = run
				}
				r.Written(b, m)
			}
			old := place("old", 0)
			cut := place("on a disconnected node", 0)
			look(1)
			cut.Client = api.AllocClientStatusUnknown
			old.Desired, cut.Desired = api.AllocDesiredStatusStop, api.AllocDesiredStatusStop
			c.stop(m.State, j)
			look(2)
			again := *j
			again.SubmitTime, again.Status = new(at(2.5).UnixNano()), new("pending")
			c.again(m.State, &again)
			m.State.Jobs[k] = &again
			look(3)
			old.Client, old.ModifyTime, old.ModifyIndex = api.AllocClientStatusComplete, at(4).UnixNano(), 60
			look(4)
			look(4)
			place("new", 5)
			look(6)
			if len(all) != 2 {
				t.Fatalf("runs %+v", all)
			}
			if was := all[at(0)]; was.State != c.state || !was.Ended.Equal(at(4)) || was.Reason == "" {
				t.Errorf("the first run: %+v", was)
			}
			if now := all[at(2.5)]; now.State != Running || !now.Started.Equal(at(5)) || !now.Ended.IsZero() {
				t.Errorf("the second run: %+v", now)
			}
		})
	}
}
