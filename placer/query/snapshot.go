// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package query answers what the commands, the API and the page ask: where a job stands and
// why, what it waits for and until when, who holds the GPUs, what would change that. All
// answers come from one [Snapshot] of the cluster; placer.ReadSnapshot makes them.
//
// Answering changes nothing. Only what Nomad keeps of a single job, its record and its
// evaluations, is read when somebody asks for it.
package query

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/heartbeat"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Snapshot is the cluster and the queue as they are now, seen through the rules
// of the agent in charge. It is what the commands ask; it changes nothing. It is safe
// for concurrent use.
type Snapshot struct {
	m     *model.Model
	nomad *nomad.Client
	// Activity is whether a placer was at work.
	Activity heartbeat.Activity
	// ProfileStamp is that of the profile that lay in Nomad.
	ProfileStamp string

	// mu guards the queue and the view, which try things out to answer. It is held
	// for no request to Nomad.
	mu    sync.Mutex
	waits map[string]*model.Wait // by job, once worked out
	// told: a placer at work has told what only it knows.
	told bool
	// warned are what the placer at work warned of, counted what is counted, once it was.
	warned  []string
	counted *model.Status
	// same is when Nomad was last found to show the same still; zero: not since it was read.
	same time.Time
}

// New makes a snapshot that answers from m, and asks c for what is kept of single
// jobs only. profileStamp is that of the stored profile.
func New(m *model.Model, c *nomad.Client, a heartbeat.Activity, profileStamp string) *Snapshot {
	return &Snapshot{m: m, nomad: c, Activity: a, ProfileStamp: profileStamp}
}

// Picture is how a placer at work sees things: m is its model, cloned.
func Picture(m *model.Model, c *nomad.Client, warned []string) *Snapshot {
	return &Snapshot{m: m, nomad: c, Activity: heartbeat.Activity{Working: true}, told: true, warned: warned}
}

// Warned is what the placer at work warned of.
func (s *Snapshot) Warned() []string { return s.warned }

// Status is what is counted.
func (s *Snapshot) Status() model.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.counted == nil {
		s.m.IsolatePanics(func() {
			waits := s.waiting()
			st := s.m.Status(waits)
			st.Warnings = s.warned
			s.counted = &st
		})
	}
	return *s.counted
}

// With is the same, to try things out on, with another activity: what a placer saw last that is
// not at work any more.
func (s *Snapshot) With(a heartbeat.Activity) *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Snapshot{m: s.m.Clone(), nomad: s.nomad, Activity: a, told: s.told, warned: s.warned}
}

// Model is what the snapshot answers from; not to be changed.
func (s *Snapshot) Model() *model.Model { return s.m }

// Close lets go of the connections that answering has opened. The snapshot can be
// asked again after it.
func (s *Snapshot) Close() {
	if !s.told { // else they are the placer's
		s.nomad.API().Close()
	}
}

// waiting is what each waiting job waits for. Callers hold mu.
func (s *Snapshot) waiting() map[string]*model.Wait {
	for s.waits == nil {
		s.m.IsolatePanics(func() { s.waits = s.waitsOf(s.m.View.Cluster) })
	}
	return s.waits
}

// waitsOf is what each waiting job waits for: also for a placer, where none is at
// work.
func (s *Snapshot) waitsOf(c *pal.Cluster) map[string]*model.Wait {
	waits := s.m.WaitsOf(s.m.Queue.Waiting(gang.QueueTime(s.m.Time), c), c)
	if s.Activity.Idle() {
		for _, w := range waits {
			w.Idle()
		}
	}
	return waits
}

// Tell takes over what only the placer at work knows: see [model.Status.Troubles].
func (s *Snapshot) Tell(troubles map[nomad.JobKey]model.Trouble) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits, s.told = nil, true
	for k, of := range troubles {
		if t := s.m.Jobs[k]; t != nil && (t.Nomad == gang.Waiting || t.Nomad == gang.Starting) {
			if t.Trouble, t.Never = of.Why, of.Never; t.Never != nil { // it is out of the queue
				s.m.Queue.Removed(gang.QueueTime(s.m.Time), k.String())
			}
		}
	}
}

// Unchanged says whether a snapshot would show the same nodes, jobs and allocations now,
// and a placer at work, or none.
func (s *Snapshot) Unchanged(ctx context.Context, c *nomad.Client) (bool, error) {
	a, err := heartbeat.ReadActivity(ctx, c, time.Now())
	if err != nil || a.Working != s.Activity.Working || a.Idle() != s.Activity.Idle() {
		return false, err
	}
	at := time.Now()
	same, err := c.Unchanged(ctx, s.m.State)
	if same {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.same = at
	}
	return same, err
}

// Seen is when Nomad last showed what the snapshot shows, as far as is known; zero for a
// snapshot of nothing.
func (s *Snapshot) Seen() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.same.After(s.m.Time) {
		return s.same
	}
	return s.m.Time
}

// Jobs lists every job with GPUs that has not ended.
func (s *Snapshot) Jobs() []model.JobStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	var js []model.JobStatus
	waits := s.waiting()
	for _, k := range s.m.State.SortedJobs() {
		job := s.m.State.Jobs[k]
		st := s.m.Observed(job)
		if st.Nomad == gang.Ended {
			continue
		}
		j := model.JobStatus{Namespace: k.Namespace, Job: k.ID, State: st.Nomad, GPUs: st.Holds(), Submitted: time.Unix(0, *job.SubmitTime)}
		if t := s.m.Jobs[k]; t != nil {
			j = s.m.StatusOf(t, waits)
			j.Reason = s.tooLarge(t).Or(j.Reason)
		}
		if st.Nomad == gang.Native && 0 < st.Have && st.Have < st.Want {
			j.Reason = reason.Reason{Kind: reason.PartNative, Have: st.Have, Want: st.Want}
		}
		if wrong := rewrite.MistypedGate(job); st.Nomad == gang.Native && wrong != nil && len(st.Members) == 0 {
			j.Reason = model.Refused(wrong)
		}
		js = append(js, j)
	}
	return js
}

// Warnings are about the agent at work, Nomad itself and its nodes, for operators.
func (s *Snapshot) Warnings() []string {
	return slices.Concat(s.Activity.Warnings, s.m.State.Queues.Warnings(), s.m.State.NodeWarnings(), s.m.Windows.Warnings())
}

// FindJob finds a job among those that are known. One that is not may have no GPUs,
// or have ended.
func FindJob(known []nomad.JobKey, namespace, id string) (nomad.JobKey, error) {
	var found []nomad.JobKey
	for _, k := range known {
		if namespace != "*" && namespace != k.Namespace {
			continue
		}
		if k.ID == id {
			return k, nil
		}
		if id != "" && strings.HasPrefix(k.ID, id) {
			found = append(found, k)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return nomad.JobKey{}, fmt.Errorf("job prefix %q is not unique: %v", id, found)
	case namespace == "*":
		namespace = "default"
	}
	return nomad.JobKey{Namespace: namespace, ID: id}, nil
}
