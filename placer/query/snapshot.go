// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package query answers the questions of commands, the API and the page. Where does a job run, and
// why? What does it wait for, and until when? Who holds the GPUs?
//
// Most of an answer comes from one [Snapshot], which the active placer makes from a copy of its
// model. Some answers also read from Nomad what the model lacks: a job's record, evaluations,
// deployments and versions, jobs that the model does not have, and Nomad's dry run of a job that
// would wait or start. [AddLive] reads the load of GPUs from their nodes.
//
// What must stay true:
//   - An answer changes nothing in Nomad. An answer undoes what it tries on the snapshot's cluster
//     before it releases the lock (Snapshot.mu); [Snapshot.Plan] works on a copy.
//   - An answer holds mu while it uses the queue or the view, because trial changes alter both. An answer
//     does not hold mu during requests to Nomad. Nomad's state, the time and the failures never
//     change in a snapshot.
//   - An answer contains data of all namespaces. Before a user gets the answer, the agent redacts
//     the names of jobs that the user may not see, with [palapi.Explanation.RedactedFor],
//     [palapi.GPU.RedactedFor] and [palapi.JobStatus.RedactedFor]. These functions must redact each new
//     field that names jobs of others, and each reason; a test finds reasons that they leave out.
//     [Snapshot.Tenants] redacts its answer itself.
package query

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Snapshot is the cluster and the queue at one time, with the configuration of the active placer.
// The agent answers from a Snapshot. The content of a Snapshot stays the same, and a Snapshot is
// safe for concurrent use.
type Snapshot struct {
	m     *model.Model
	nomad *nomad.Client
	// Activity reports whether a placer was active.
	Activity palapi.Activity

	// mu guards the queue and the view, because answers try changes on them. mu is not held during
	// requests to Nomad.
	mu    sync.Mutex
	waits map[string]*model.Wait // by job; computed on demand
	// warned are the warnings of the active placer. counted is the result of Status, computed on
	// demand.
	warned  []string
	counted *model.Status
}

// summary describes the runs and members of jobs. Callers of its methods hold the snapshot's mu.
type summary struct{ m *model.Model }

// New returns a snapshot that answers from m. The snapshot uses c only for data of single jobs.
func New(m *model.Model, c *nomad.Client, a palapi.Activity) *Snapshot {
	return &Snapshot{m: m, nomad: c, Activity: a}
}

// Picture returns the snapshot of an active placer; m is its cloned model.
func Picture(m *model.Model, c *nomad.Client, warned []string) *Snapshot {
	return &Snapshot{m: m, nomad: c, Activity: palapi.Activity{Working: true}, warned: warned}
}

// Warned returns the warnings of the active placer.
func (s *Snapshot) Warned() []string { return s.warned }

// Status returns the summary of the placer's work, including the warnings of the active placer.
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

// With returns a copy on which changes can be tried. The copy has the activity a, because the
// placer that made the snapshot may no longer be active.
func (s *Snapshot) With(a palapi.Activity) *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Snapshot{m: s.m.Clone(), nomad: s.nomad, Activity: a, warned: s.warned}
}

// Read calls f with the model. While f runs, no answer tries changes on the model.
func (s *Snapshot) Read(f func(*model.Model)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.m)
}

// Model returns the model behind the snapshot. Callers must not change the model.
func (s *Snapshot) Model() *model.Model { return s.m }

// waiting returns what each waiting job waits for. Callers hold mu.
func (s *Snapshot) waiting() map[string]*model.Wait {
	for s.waits == nil {
		s.m.IsolatePanics(func() { s.waits = s.waitsOf(s.m.View.Cluster) })
	}
	return s.waits
}

// waitsOf returns what each waiting job waits for. While no placer is active, jobs can also wait
// for a placer.
func (s *Snapshot) waitsOf(c *pal.Cluster) map[string]*model.Wait {
	waits := s.m.WaitsOf(s.m.Queue.Waiting(gang.QueueTime(s.m.Time), c), c)
	if s.Activity.Idle() {
		for _, w := range waits {
			w.Idle()
		}
	}
	return waits
}

// Jobs returns every job with GPUs that has not ended, and stopped jobs whose children still run or
// wait.
func (s *Snapshot) Jobs() []palapi.JobStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	var js []palapi.JobStatus
	waits, runs := s.waiting(), map[cluster.JobKey]*palapi.Runs{}
	for _, k := range s.m.State.SortedJobs() {
		job := s.m.State.Jobs[k]
		st := s.m.Observed(job)
		if st.Nomad == palapi.Ended && !cluster.Template(job) {
			summary{s.m}.countRun(runs, st, st.Nomad)
			continue
		}
		j := palapi.JobStatus{Namespace: k.Namespace, Job: k.ID, State: st.Nomad, GPUs: st.Holds(), User: rewrite.UserOf(job), Submitted: time.Unix(0, *job.SubmitTime)}
		if job.Priority != nil {
			j.Priority = *job.Priority
		}
		t := s.m.Jobs[k]
		if t != nil {
			j = s.m.StatusOf(t, waits)
			j.Reason = summary{s.m}.tooLarge(t).Or(j.Reason).Or(membersLack(s.m.State, st))
		}
		if st.Nomad == palapi.Native && 0 < st.Have && st.Have < st.Want {
			j.Reason = reason.Reason{Kind: reason.PartNative, Have: st.Have, Want: st.Want}
		}
		wrong := rewrite.MistypedGate(job)
		if st.Nomad == palapi.Native && wrong != nil && len(st.Members) == 0 {
			j.Reason = model.Refused(wrong)
		}
		if cluster.Child(job) {
			j.Parent = *job.ParentID
		}
		summary{s.m}.countRun(runs, st, j.State)
		summary{s.m}.progress(&j, st)
		js = append(js, j)
	}
	for i, j := range js {
		js[i].Runs = runs[cluster.JobKey{Namespace: j.Namespace, ID: j.Job}]
	}
	return slices.DeleteFunc(js, func(j palapi.JobStatus) bool { return j.State == palapi.Ended && !j.Runs.GoOn() })
}

// countRun counts a job as a run of the parameterized or periodic job that made it, if there is
// one.
func (s summary) countRun(runs map[cluster.JobKey]*palapi.Runs, st gang.Observed, state palapi.State) {
	if !cluster.Child(st.Job) {
		return
	}
	k, outcome := cluster.TemplateOf(st.Job), ""
	if runs[k] == nil {
		runs[k] = &palapi.Runs{}
	}
	if state == palapi.Ended {
		outcome = OutcomeOf(s.m, st).Status
	}
	runs[k].Count(state, outcome)
}

// runsOf counts the jobs that a parameterized or periodic job has made; nil if there are none.
func (s summary) runsOf(k cluster.JobKey) *palapi.Runs {
	runs := map[cluster.JobKey]*palapi.Runs{}
	for _, job := range s.m.State.Jobs {
		if cluster.TemplateOf(job) != k {
			continue
		}
		st := s.m.Observed(job)
		state := st.Nomad
		t := s.m.Jobs[st.Key]
		if t != nil {
			state = t.State(s.m)
		}
		s.countRun(runs, st, state)
	}
	return runs[k]
}

// progress sets a job's start, its number of nodes, and its expected end. If members are older than
// the job's last registration, the job was submitted earlier: as its record says, or no later than the
// members were placed.
func (s summary) progress(j *palapi.JobStatus, st gang.Observed) {
	nodes := map[string]bool{}
	for _, a := range st.Members {
		nodes[a.Node] = true
		at := time.Unix(0, a.CreateTime)
		if j.Started.IsZero() || at.Before(j.Started) {
			j.Started = at
		}
	}
	j.Nodes = len(nodes)
	if j.Nodes > 0 && j.Started.Before(j.Submitted) {
		j.Submitted = j.Started
		t := s.m.Jobs[st.Key]
		if t != nil && t.Record != nil && t.Record.Submitted.Before(j.Started) {
			j.Submitted = t.Record.Submitted
		}
	}
	if j.Nodes > 0 {
		j.EndFrom, j.EndTo = s.ends(st.Key)
	}
}

// ends returns the range in which a running job is expected to end; zero if unknown.
func (s summary) ends(k cluster.JobKey) (from, to time.Time) {
	if from, to, ok := s.m.Queue.Ends(gang.QueueTime(s.m.Time), k.String()); ok {
		return time.Unix(0, int64(from)), time.Unix(0, int64(to))
	}
	return from, to
}

// Warnings returns warnings about the active agent, Nomad itself and its nodes, for operators.
func (s *Snapshot) Warnings() []string {
	return slices.Concat(s.Activity.Warnings, s.m.State.NodeWarnings(), s.m.Windows.Warnings())
}

// FindJob finds a job among the known jobs by its id or a unique prefix. If no known job matches,
// FindJob returns a key with exactly this id: known omits jobs without GPUs and jobs that have
// ended.
func FindJob(known []cluster.JobKey, namespace, id string) (cluster.JobKey, error) {
	var found []cluster.JobKey
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
		var names []string
		for _, k := range found {
			names = append(names, k.String())
		}
		return cluster.JobKey{}, fmt.Errorf("job prefix %q is not unique: %s", id, some(names))
	case namespace == "*":
		namespace = "default"
	}
	return cluster.JobKey{Namespace: namespace, ID: id}, nil
}
