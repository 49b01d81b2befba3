// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

func events(types ...string) map[string]*api.TaskState {
	s := &api.TaskState{}
	for _, kind := range types {
		e := &api.TaskEvent{Type: kind}
		if kind == "failed" {
			e = &api.TaskEvent{Type: api.TaskTerminated, Details: map[string]string{"exit_code": "1"}}
		}
		s.Events = append(s.Events, e)
	}
	return map[string]*api.TaskState{"t": s}
}

// If all members of a gang finished before the placer stopped it to requeue it, the gang does not
// run again.
func TestFinishedWhileStopping(t *testing.T) {
	look, compare, stop := "ReadAllocs", "ReadVersions", "Deregister"
	stopped := []string{look, compare, stop}
	done, killed := events(api.TaskStarted, api.TaskTerminated), events(api.TaskStarted, api.TaskKilling, api.TaskTerminated)
	for _, c := range []struct {
		name    string
		version int // of the second member; the gate is version 100
		ended   int64
		tasks   map[string]*api.TaskState // of the second member
		seen    string                    // the second member's desired status and client status
		pinned  bool
		want    []string
	}{
		{"all done", 99, 100, done, "run complete", true, stopped},
		{"one was stopped", 99, 100, killed, "stop complete", true, nil},
		{"its client killed one", 99, 100, killed, "run complete", true, stopped},
		{"one failed and was not retried", 99, 100, events(api.TaskStarted, "failed"), "run failed", true, nil},
		{"one failed and was retried", 99, 100, events(api.TaskStarted, "failed", api.TaskRestarting, api.TaskTerminated), "run complete", true, stopped},
		{"no task of one ran", 99, 100, nil, "stop complete", true, nil},
		{"a leader ended before it", 99, 100, events(api.TaskStarted, api.TaskLeaderDead, api.TaskKilling, api.TaskTerminated), "run complete", true, stopped},
		{"one is of an earlier version", 98, 100, done, "run complete", true, []string{look}},
		{"its author ran it again", 99, 100, done, "run complete", false, nil},
		{"somebody reverted to the gate", 99, -int64(time.Minute), done, "run complete", true, []string{look, compare}},
		{"not reported for a minute", 99, -int64(time.Minute), done, "run complete", true, stopped},
		{"not reported for a minute, after an edit", 99, -int64(time.Minute), done, "run complete", true, stopped},
		{"the servers' clock was stepped back", 99, -int64(time.Minute), done, "run complete", true, stopped},
	} {
		job := plainJob("j", 100)
		versions := map[uint64]*api.Job{}
		if c.pinned {
			var err error
			if job, err = rewrite.Pin(job, somePins("g1"), rewrite.Racks{}); err != nil {
				t.Fatal(err)
			}
		}
		was := *job
		before := uint64(99)
		was.Version = &before
		job = rewrite.Gate(job)
		versions[99], versions[100] = &was, job
		s, k := cluster.NewState(), cluster.KeyOf(job)
		s.PutJob(job)
		var listed []*cluster.Alloc
		told := uint64(150) // after the gate
		switch c.name {
		case "somebody reverted to the gate":
			told, versions[98] = 90, job
		case "not reported for a minute":
			told = 90
		case "not reported for a minute, after an edit":
			told, versions[98] = 90, rewrite.Gate(plainJob("j", 98))
			versions[98].Priority = new(int)
		}
		for i, tasks := range []map[string]*api.TaskState{done, c.tasks} {
			version := uint64([]int{99, c.version}[i])
			desired, client, _ := strings.Cut([]string{"run complete", c.seen}[i], " ")
			a := &cluster.Alloc{
				ID: fmt.Sprint("a", i), Job: k, Group: "g", Client: client, Desired: desired, GPUs: []string{fmt.Sprint(i)}, Tasks: tasks,
				CreateIndex: 50, ModifyIndex: told, ModifyTime: c.ended, Version: &version,
			}
			listed = append(listed, a)
			seen := *a
			seen.Version = nil
			s.PutAlloc(&seen)
		}
		w := newFakeWorld()
		w.state = s
		g := &Lifecycle{memory: memory{known: known{Observed: Observe(s, job), Record: &Record{}, position: position{index: 100}}}}
		if g.State(w) != palapi.Waiting {
			t.Fatalf("%s: it is %s", c.name, g.State(w))
		}
		var asked []string
		for range 2 { // the second reconcile asks nothing
			for e := Event(Reconcile{}); e != nil; {
				todo := g.Step(e, w)
				e = nil
				for _, effect := range todo {
					if AwaitsAnswer(effect) {
						asked = append(asked, nameOf(effect))
					}
					switch effect := effect.(type) {
					case ReadAllocs:
						e = AllocsRead{listed}
					case ReadVersions:
						e = VersionsRead{versions}
					case Deregister:
						e = Done{effect}
					}
				}
			}
			if g.Refused != nil {
				break
			}
		}
		if d := cmp.Diff(c.want, asked); d != "" {
			t.Errorf("%s: requests to Nomad (-want +got):\n%s", c.name, d)
		}
		if over := g.State(w) == palapi.Rejected; over != slices.Contains(c.want, stop) {
			t.Errorf("%s: it is %s", c.name, g.State(w))
		}
	}
}

// Registering an unchanged job makes no new version, so the known job stays as it is. In walk 18 a
// finished gang was gated a second time and then ran again, because its members did not belong to
// the supposed previous version.
func TestRegisteredAgain(t *testing.T) {
	was, index, version := plainJob("j", 100), uint64(100), uint64(2)
	was.JobModifyIndex, was.Version = &index, &version
	again := *was
	if got := RegisteredJob(&again, was, 100, time.Now()); *got.Version != 2 {
		t.Errorf("version %d after an unchanged registration", *got.Version)
	}
	if got := RegisteredJob(&again, was, 101, time.Now()); *got.Version != 3 || *got.JobModifyIndex != 101 {
		t.Errorf("version %d at index %d after a write", *got.Version, *got.JobModifyIndex)
	}
}

// Members that Nomad has updated in place to a version of ours are older than that version. They
// count nevertheless when they end (walk 100478); members of an earlier run do not.
func TestEndedAfterUpdateInPlace(t *testing.T) {
	t.Parallel()
	job, err := rewrite.Pin(plainJob("j", 200), somePins("g1", "g2"), rewrite.Racks{})
	if err != nil {
		t.Fatal(err)
	}
	job = rewrite.Gate(job)
	for _, c := range []struct {
		modified uint64
		want     bool
	}{{190, true}, {140, false}} {
		w := newFakeWorld()
		w.state.PutJob(job)
		for i := range 2 {
			w.state.PutAlloc(&cluster.Alloc{
				ID: fmt.Sprint("a", i), Job: cluster.KeyOf(job), Group: "g", Client: "complete", Desired: "stop", Tasks: events(api.TaskStarted, api.TaskTerminated),
				CreateIndex: 50, ModifyIndex: c.modified,
			})
		}
		g := &Lifecycle{memory: memory{known: known{Observed: Observe(w.state, job)}, lineage: lineage{version: 150, index: 150}}}
		if got := g.finishUnknown(w); got != c.want {
			t.Errorf("ended at %d, our version since 150: must be checked: %t", c.modified, got)
		}
	}
}

// A job that comes after another may start when all members of the other's last version have
// succeeded.
func TestFinishedWell(t *testing.T) {
	t.Parallel()
	done := events(api.TaskStarted, api.TaskTerminated)
	of := func(member int, version uint64, client string, tasks map[string]*api.TaskState) *cluster.Alloc {
		return &cluster.Alloc{Name: fmt.Sprintf("j.g[%d]", member), Group: "g", Version: &version, Client: client, Tasks: tasks, ModifyTime: int64(member)}
	}
	for _, c := range []struct {
		name    string
		stopped bool
		as      []*cluster.Alloc // allocations of version 5 of the job
		want    bool
	}{
		{"both have", false, []*cluster.Alloc{of(7, 5, "complete", done), of(8, 5, "complete", done)}, true},
		{"one has, twice", false, []*cluster.Alloc{of(7, 5, "complete", done), of(7, 5, "complete", done)}, false},
		{"one runs", false, []*cluster.Alloc{of(7, 5, "complete", done), of(8, 5, "running", events(api.TaskStarted))}, false},
		{"one was lost when its task had ended", false, []*cluster.Alloc{of(7, 5, "complete", done), of(8, 5, "lost", done)}, false},
		{"one has before its author ran it again", false, []*cluster.Alloc{of(7, 5, "complete", done), of(8, 4, "complete", done)}, false},
		{"both have, then it was stopped", true, []*cluster.Alloc{of(7, 4, "complete", done), of(8, 4, "complete", done)}, true},
		{"both have before that", true, []*cluster.Alloc{of(7, 3, "complete", done), of(8, 3, "complete", done)}, false},
	} {
		job := plainJob("j", 5)
		job.Stop = &c.stopped
		at, ok := FinishedWell(job, c.as)
		if ok != c.want || ok && at.UnixNano() != 8 {
			t.Errorf("%s: finished %v, at %d", c.name, ok, at.UnixNano())
		}
	}
	kind := api.JobTypeSysbatch // it runs on as many nodes as Nomad decides
	for name, as := range map[string][]*cluster.Alloc{
		"":              {},
		"one runs":      {of(0, 5, "complete", done), of(0, 5, "running", events(api.TaskStarted))},
		"one of before": {of(0, 4, "failed", nil), of(0, 5, "complete", done), of(0, 5, "complete", done), of(0, 5, "complete", done)},
	} {
		job := plainJob("j", 5)
		job.Type = &kind
		if _, ok := FinishedWell(job, as); ok != (name == "one of before") {
			t.Errorf("on every node, %s: finished %v", name, ok)
		}
	}
}
