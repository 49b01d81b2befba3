// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/placer/cluster/clustertest"
)

// If an allocation vanished while it was live, its GPUs are held for its task's kill_timeout, up to
// the clients' maximum. That is so whether an event or a full read showed that it is gone.
func TestPurged(t *testing.T) {
	for name, c := range map[string]struct {
		kill time.Duration // -1: not set
		want time.Duration
	}{
		"Nomad's default": {-1, 6 * time.Second},
		"as said":         {20 * time.Second, 21 * time.Second},
		"capped":          {time.Hour, 31 * time.Second},
	} {
		for _, read := range []bool{false, true} {
			k, now := JobKey{"default", "j"}, time.Unix(1000, 0)
			job := clustertest.SmallJob("j", 5, true)
			if c.kill >= 0 {
				job.TaskGroups[0].Tasks[0].KillTimeout = &c.kill
			}
			live := &Alloc{ID: "a", Job: k, Node: "id-0", Client: "running", Desired: "run", GPUs: []string{"n0-1"}, CreateIndex: 6, ModifyIndex: 6}
			done := &Alloc{ID: "b", Job: k, Node: "id-0", Client: "complete", Desired: "run", GPUs: []string{"n0-2"}, CreateIndex: 6, ModifyIndex: 6}
			s := world(1)
			s.PutJob(job)
			s.PutAlloc(live)
			s.PutAlloc(done)
			if read {
				next := world(1)
				next.purgedAfter(s)
				s = next
			} else {
				s.DropJob(k)
				for _, a := range []*Alloc{live, done} {
					s.noteVanished(a)
					s.dropAlloc(a)
				}
			}
			if got := s.Purged(now); !got["n0-1"] || got["n0-2"] {
				t.Errorf("%s, read again: %v: at once: %v", name, read, got)
			}
			s.Elapse(now)
			for _, at := range []struct {
				after time.Duration
				want  bool
			}{{c.want - time.Millisecond, true}, {c.want, false}} {
				if got := s.Purged(now.Add(at.after)); got["n0-1"] != at.want {
					t.Errorf("%s, read again: %v: after %v: %v", name, read, at.after, got)
				}
			}
			if s.Elapse(now.Add(c.want)); len(s.purged)+len(s.kills) > 0 {
				t.Errorf("%s, read again: %v: entries are never removed", name, read)
			}
		}
	}
}

// A placer starts and reads everything, which takes a while. Meanwhile a job is placed and purged,
// and its tasks are still ending. Only events show the job; the lists do not.
func TestPurgedWhileReading(t *testing.T) {
	event := func(client string, index uint64) Event {
		a := AllocPayload{ID: "a", Namespace: "default", JobID: "j", NodeID: "id-0", ClientStatus: client, DesiredStatus: "run"}
		a.AllocatedResources = &api.AllocatedResources{Tasks: map[string]*api.AllocatedTaskResources{"t": {
			Devices: []*api.AllocatedDeviceResource{{Vendor: attr.Vendor, Type: attr.Type, DeviceIDs: []string{"n0-1"}}},
		}}}
		return Event{Topic: "Allocation", Index: index, Payload: Payload{Allocation: &a}}
	}
	purge := func(index uint64) Event {
		job := &api.Job{ID: new("j"), Namespace: new("default"), ModifyIndex: new(uint64(1))}
		return Event{Topic: "Job", Type: "JobDeregistered", Index: index, Payload: Payload{Job: job, Deleted: true}}
	}
	for _, c := range []struct {
		name   string
		events []Event
		known  uint64
		kept   bool
	}{
		{"it was live", []Event{event("pending", 5), event("running", 7), purge(8)}, 0, true},
		{"the jobs were listed before, the allocations after", []Event{event("running", 7), purge(9)}, 0, true},
		{"it ended before", []Event{event("running", 5), event("complete", 7), purge(8)}, 0, false},
		{"the purge is not known yet", []Event{event("pending", 5)}, 0, false},
		{"events after the lists count as usual", []Event{event("running", 11)}, 0, false},
		{"the previous state knew that it was gone", []Event{event("running", 7), purge(8)}, 8, false},
		{"purged before the placer subscribed", []Event{event("running", 2), purge(3)}, 0, false},
		{"it ended after all", []Event{event("running", 5), purge(6), event("complete", 7)}, 0, false},
	} {
		s, now := world(1), time.Unix(1000, 0)
		s.at.allocs, s.at.jobs = 10, 8
		s.at.known = c.known
		s.Begun(4)
		for _, e := range c.events {
			s.Apply(e)
		}
		if got := s.Purged(now)["n0-1"]; got != c.kept {
			t.Errorf("%s: held: %v", c.name, got)
		}
	}
}

// After a full read the placer remembers up to which index it knew everything: events from Nomad's
// buffer up to there are not new.
func TestKnownAfterReadingAnew(t *testing.T) {
	old, s := world(1), world(1)
	old.at.allocs = 10
	a := AllocPayload{ID: "a", Namespace: "default", JobID: "j", NodeID: "id-0", ClientStatus: "running", DesiredStatus: "run"}
	old.Apply(Event{Topic: "Allocation", Index: 12, Payload: Payload{Allocation: &a}})
	s.purgedAfter(old)
	if s.at.known != 12 {
		t.Errorf("known up to %d, want 12", s.at.known)
	}
}
