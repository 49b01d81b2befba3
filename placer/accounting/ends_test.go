// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package accounting

import (
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/ledger"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/request"
)

// A run that follows one that took no time has its own key.
func TestRunAfterOneOfNoTime(t *testing.T) {
	j := batchJob()
	j.SubmitTime, j.Status = new(at(0).Add(300*time.Microsecond).UnixNano()), new("pending")
	was := palapi.Run{Namespace: "research", Job: "job", State: palapi.RunFailed, Submitted: at(0), Ended: at(0)}
	q, err := queue.New(queue.Default())
	if err != nil {
		t.Fatal(err)
	}
	m := &model.Model{Time: at(1), Queue: q, State: cluster.NewState(), View: &request.View{}, Jobs: map[cluster.JobKey]*model.Tracked{}}
	m.State.Jobs[keyOf(was)] = j
	r := NewRecorder([]palapi.Run{was}, nil, 0)
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
	if r := b.Runs[0]; !r.Submitted.Equal(at(1)) || !r.Started.Equal(at(1)) || !r.Ended.Equal(at(4)) || r.State != palapi.RunStopped {
		t.Errorf("run %+v", r)
	}
	for _, a := range b.Allocs {
		if a.Submitted.Equal(at(1)) != (a.ID == "ran") {
			t.Errorf("allocation %+v", a)
		}
	}
}

// one is a recorder and a model with one batch job of one GPU.
type one struct {
	*model.Model
	job *api.Job
	r   *Recorder
	all map[time.Time]palapi.Run // the recorded runs, by their submission
}

func newOne(t *testing.T) *one {
	t.Helper()
	q, err := queue.New(queue.Default())
	if err != nil {
		t.Fatal(err)
	}
	j := batchJob()
	j.SubmitTime, j.CreateIndex, j.ModifyIndex, j.Status = new(at(0).UnixNano()), new(uint64(10)), new(uint64(10)), new("running")
	device := &api.RequestedDevice{Name: "nvidia/gpu", Count: new(uint64(1))}
	j.AddTaskGroup(api.NewTaskGroup("workers", 1).AddTask(api.NewTask("main", "raw_exec").Require(&api.Resources{Devices: []*api.RequestedDevice{device}})))
	m := &model.Model{Queue: q, State: cluster.NewState(), Jobs: map[cluster.JobKey]*model.Tracked{}}
	k := cluster.KeyOf(j)
	m.State.Jobs[k], m.State.ByJob[k] = j, map[string]*cluster.Alloc{}
	if m.View, err = request.NewView(m.State, request.Options{Ledger: ledger.Options{Locality: pal.TwoTier(1.7)}}); err != nil {
		t.Fatal(err)
	}
	return &one{m, j, NewRecorder(nil, nil, 0), map[time.Time]palapi.Run{}}
}

// place starts a member.
func (o *one) place(id string, hours float64) *cluster.Alloc {
	k := cluster.KeyOf(o.job)
	a := &cluster.Alloc{ID: id, Name: "job.workers[0]", Group: "workers", Job: k, Node: "n", GPUs: []string{"g"}, CreateIndex: uint64(11 + 10*hours), ModifyIndex: 20,
		CreateTime: at(hours).UnixNano(), ModifyTime: at(hours).UnixNano(), Client: api.AllocClientStatusRunning, Desired: api.AllocDesiredStatusRun}
	o.State.Allocs[id], o.State.ByJob[k][id] = a, a
	return a
}

// look records what the model shows.
func (o *one) look(hours float64) {
	o.Time = at(hours)
	b := o.r.Look(o.Model, nil)
	for _, run := range b.Runs {
		o.all[run.Submitted] = run
	}
	o.r.Written(b, o.Model)
}

// again submits the job again, and returns its new form.
func (o *one) again(hours float64) *api.Job {
	j := *o.job
	j.SubmitTime, j.Status, j.Stop = new(at(hours).UnixNano()), new("pending"), nil
	o.State.Jobs[cluster.KeyOf(o.job)] = &j
	return &j
}

// A job is stopped or purged, and submitted again before its old member ends. The old member
// belongs to a run of its own, which ends when the member ends.
func TestSubmittedAgainBeforeTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		stop  func(s *cluster.State, j *api.Job)
		again func(s *cluster.State, j *api.Job)
		state palapi.RunState
	}{
		"stopped": {func(_ *cluster.State, j *api.Job) { j.Stop = new(true) }, func(*cluster.State, *api.Job) {}, palapi.RunStopped},
		"stopped, unseen": {func(*cluster.State, *api.Job) {}, func(s *cluster.State, j *api.Job) {
			stopped := *j
			stopped.Stop, stopped.JobModifyIndex, stopped.ModifyIndex = new(true), new(uint64(30)), new(uint64(30))
			s.PutJob(&stopped)
			s.Jobs[cluster.KeyOf(j)] = j
		}, palapi.RunStopped},
		"purged":         {func(s *cluster.State, j *api.Job) { delete(s.Jobs, cluster.KeyOf(j)) }, func(_ *cluster.State, j *api.Job) { j.CreateIndex = new(uint64(30)) }, palapi.RunUnknown},
		"purged, unseen": {func(*cluster.State, *api.Job) {}, func(_ *cluster.State, j *api.Job) { j.CreateIndex = new(uint64(30)) }, palapi.RunUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOne(t)
			old, cut := o.place("old", 0), o.place("on a disconnected node", 0)
			o.look(1)
			cut.Client = api.AllocClientStatusUnknown
			old.Desired, cut.Desired = api.AllocDesiredStatusStop, api.AllocDesiredStatusStop
			c.stop(o.State, o.job)
			o.look(2)
			c.again(o.State, o.again(2.5))
			o.look(3)
			old.Client, old.ModifyTime, old.ModifyIndex = api.AllocClientStatusComplete, at(4).UnixNano(), 60
			o.look(4)
			o.look(4)
			o.place("new", 5)
			o.look(6)
			all := o.all
			if len(all) != 2 {
				t.Fatalf("runs %+v", all)
			}
			if was := all[at(0)]; was.State != c.state || !was.Ended.Equal(at(4)) || was.Reason == "" {
				t.Errorf("the first run: %+v", was)
			}
			if now := all[at(2.5)]; now.State != palapi.RunRunning || !now.Started.Equal(at(5)) || !now.Ended.IsZero() {
				t.Errorf("the second run: %+v", now)
			}
		})
	}
}

// Nomad forgets the members of a purged job at once. A job that was purged and submitted again
// between two looks has two runs nevertheless.
func TestPurgedUnseen(t *testing.T) {
	for name, state := range map[string]palapi.RunState{"running": palapi.RunUnknown, "waiting": palapi.RunUnknown, "stopped": palapi.RunStopped} {
		t.Run(name, func(t *testing.T) {
			o := newOne(t)
			if name != "waiting" {
				o.place("old", 0)
			}
			o.job.Stop = new(name == "stopped")
			o.look(1)
			o.again(1.5).CreateIndex = new(uint64(30))
			delete(o.State.Allocs, "old")
			delete(o.State.ByJob, cluster.KeyOf(o.job))
			o.look(2)
			o.look(3)
			all := o.all
			if len(all) != 2 {
				t.Fatalf("runs %+v", all)
			}
			if was := all[at(0)]; was.State != state || !was.Ended.Equal(at(2)) || was.Reason == "" {
				t.Errorf("the first run: %+v", was)
			}
			if now := all[at(1.5)]; now.State != palapi.RunPending || !now.Ended.IsZero() {
				t.Errorf("the second run: %+v", now)
			}
		})
	}
}
