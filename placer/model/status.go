// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/ledger"
)

// Status summarizes the placer's work for the agent to show.
type Status struct {
	At   time.Time   `json:"at"`
	Jobs []JobStatus `json:"jobs"`
	// GPUs counts all GPUs. In this field and the following ones, a part of a shared GPU counts as
	// its share of the GPU.
	GPUs float64 `json:"gpus"`
	Free float64 `json:"free"`
	// InTrouble counts the GPUs that the placer does not choose, or chooses last. Outliers counts,
	// for each class, the GPUs whose PM score is above the outlier threshold.
	InTrouble GPUsInTrouble            `json:"in_trouble"`
	Allocated float64                  `json:"allocated"`
	Outliers  map[pal.AppClass]float64 `json:"outliers,omitempty"`
	// Speeds are the speeds of the GPU models.
	Speeds []ledger.ModelSpeed `json:"-"`
	// WaitsSince is the time when the gang that has waited longest began to wait, or zero if the
	// queue is empty.
	WaitsSince time.Time `json:"-"`
	// Slowdown is the predicted slowdown of the running gangs.
	Slowdown Slowdown `json:"-"`
	// Stopped summarizes the gangs that were stopped in favour of other gangs.
	Stopped queue.Stops `json:"-"`
	// Warnings describe, for operators, problems of Nomad and its nodes.
	Warnings []string `json:"warnings,omitempty"`
}

// JobStatus is the status of one job that the placer manages.
type JobStatus struct {
	Namespace string     `json:"namespace"` // the job's namespace
	Job       string     `json:"job"`       // the job's id
	State     gang.State `json:"state"`     // the job's state
	// Position is the job's position in the queue, counted from 1. Position is 0 if the job does
	// not wait, waits outside the queue (for its pal_after, for example), or could never run.
	Position int `json:"position,omitempty"`
	// User is the user from the job's pal_user.
	User string `json:"user,omitempty"`
	// Held reports whether somebody has put the job on hold.
	Held bool `json:"held,omitempty"`
	// Priority is the job's priority in the queue: the jobspec's priority, unless somebody has set
	// another priority.
	Priority int `json:"priority"`
	// GPUs is the number of GPUs that the job has or requests. Share is set if the job's GPUs are
	// parts of shared GPUs. Share is the fraction of a whole GPU that each part counts.
	GPUs  int     `json:"gpus"`
	Share float64 `json:"share,omitempty"`
	Class string  `json:"class,omitempty"` // application class; "" if the placer does not know it
	// Reason is the reason why the job waits or cannot be served. For a running job, Reason lists
	// the drained or disconnected nodes and the unhealthy GPUs of its members. Reason also mentions
	// canaries that run beside the old version.
	Reason reason.Reason `json:"reason,omitzero"`
	// Submitted is the time when the author submitted the job, or zero if the placer has isolated
	// the job after an internal error.
	Submitted time.Time `json:"submitted"`
	// StartFrom and StartTo are the range of the job's expected start, if there is a forecast.
	StartFrom time.Time `json:"start_from,omitzero"`
	StartTo   time.Time `json:"start_to,omitzero"`
	// Elastic is the size of an elastic gang.
	Elastic *queue.Size `json:"elastic,omitempty"`
	// Nodes is the number of nodes on which the job's members run. Started is the time when the
	// first member was placed.
	Nodes   int       `json:"nodes,omitempty"`
	Started time.Time `json:"started,omitzero"`
	// EndFrom and EndTo are the range of the job's expected end, if there is a forecast.
	EndFrom time.Time `json:"end_from,omitzero"`
	EndTo   time.Time `json:"end_to,omitzero"`
	// Parent is the parameterized or periodic job that created this job. Runs counts the runs of an
	// array, which are the jobs that Nomad has created from a parameterized or periodic job.
	Parent string `json:"parent,omitempty"`
	Runs   *Runs  `json:"runs,omitempty"`
}

// GPUsInTrouble counts, for each kind of trouble, the GPUs that have it. The placer does not choose
// unhealthy and quarantined GPUs, and chooses degraded GPUs last.
type GPUsInTrouble struct {
	Unhealthy   float64 `json:"unhealthy"`
	Quarantined float64 `json:"quarantined"`
	Degraded    float64 `json:"degraded"`
}

// Slowdown is the mean predicted slowdown of gangs. A gang's weight in the mean is its number of
// GPUs. Chosen is the mean slowdown of the actual placements. Packed is the mean slowdown of the
// placements that the policy "packed" would have chosen at the same times. A gang counts only if
// both Chosen and Packed are known for it.
type Slowdown struct {
	GPUs           int
	Chosen, Packed float64
}

// add includes the gang of a decision in the means.
func (s *Slowdown) add(d pal.Decision) {
	if d.Chosen == nil || d.Packed == nil || d.Chosen.Cost <= 0 || d.Packed.Cost <= 0 || d.Demand <= 0 {
		return
	}
	all := float64(s.GPUs + d.Demand)
	share := float64(d.Demand) / all
	s.Chosen += (d.Chosen.Cost - s.Chosen) * share
	s.Packed += (d.Packed.Cost - s.Packed) * share
	s.GPUs += d.Demand
}

// Size returns the number of GPUs that the job has or requests. For a waiting elastic gang, Size
// returns a range, such as "2–8".
func (j JobStatus) Size() string {
	return InRange(j.LeastGPUs(), j.GPUs)
}

// LeastGPUs returns the number of GPUs that the job has, or the number that it needs to start.
func (j JobStatus) LeastGPUs() int {
	s := j.Elastic
	if s != nil && s.Members == 0 {
		return j.GPUs / s.Most * s.Least
	}
	return j.GPUs
}

// Amount converts a number of the job's GPUs, which can be parts of shared GPUs, to a number of
// whole GPUs.
func (j JobStatus) Amount(gpus int) float64 { return float64(gpus) * cmp.Or(j.Share, 1) }

// InRange formats a range as "2–8", or as "8" if both ends are equal.
func InRange(least, most int) string {
	if least == most {
		return strconv.Itoa(most)
	}
	return fmt.Sprintf("%d–%d", least, most)
}

// GPURange formats a range of GPUs.
func GPURange(least, most float64) string {
	if least == most {
		return reason.Amount(most)
	}
	return reason.Number(least) + "–" + reason.Number(most) + " GPUs"
}

// StatusOf returns the job's status. waits is the result of [Model.WaitsOf].
func (m *Model) StatusOf(t *Tracked, waits map[string]*Wait) JobStatus {
	j := m.statusOf(t, waits[t.Key.String()])
	j.Elastic = m.SizeOf(t)
	ending := m.Ending(t.Observed)
	if !ending.IsZero() && (j.State == gang.Waiting || j.State == gang.Completing) {
		j.State, j.Reason = gang.Completing, ending
	}
	if j.Reason.IsZero() && (t.Nomad == gang.Running || t.Nomad == gang.Starting) {
		j.Reason = j.Reason.And(m.Leaving(t.Observed)...).And(CanariesRun(t.Observed))
	}
	return j
}

// CanariesRun returns a reason if canaries of a service's new version run beside the old version,
// and no reason otherwise.
func CanariesRun(st gang.Observed) reason.Reason {
	if !gang.HasCanaries(st.Job) {
		return reason.Reason{}
	}
	r := reason.Reason{Kind: reason.CanariesRun}
	for _, a := range st.Members {
		if a.PlacedFor(st.Job) {
			r.Have++
		} else {
			r.Want++
		}
	}
	if r.Have == 0 || r.Want == 0 || r.Have+r.Want <= st.Want {
		return reason.Reason{}
	}
	return r
}

// Tell sets the position, the reason and the forecast of a waiting job. w can be nil.
func (w *Wait) Tell(j *JobStatus) {
	if w == nil {
		return
	}
	j.Position, j.Reason = w.Position, w.Why()
	if w.To > 0 {
		j.StartFrom, j.StartTo = time.Unix(0, int64(w.From)), time.Unix(0, int64(w.To))
	}
}

// Status returns the status of all jobs and counts the GPUs. waits is the result of
// [Model.WaitsOf].
func (m *Model) Status(waits map[string]*Wait) Status {
	s := Status{At: m.Time, Jobs: make([]JobStatus, 0, len(m.Jobs))}
	s.CountGPUs(m)
	s.Stopped, s.Speeds = m.Queue.Stops(), m.View.ModelSpeeds()
	for _, t := range m.Sorted() {
		m.BeginJob(t.Key)
		j := m.StatusOf(t, waits)
		s.Jobs = append(s.Jobs, j)
		if j.Position > 0 && (s.WaitsSince.IsZero() || t.WaitsSince().Before(s.WaitsSince)) {
			s.WaitsSince = t.WaitsSince()
		}
		if t.Record != nil && t.Nomad == gang.Running {
			s.Slowdown.add(t.Record.Decision)
		}
	}
	m.EndJob()
	return s
}

// CountGPUs counts all GPUs, and the GPUs in each state. If a job holds an unhealthy or quarantined
// GPU, the GPU does not count as allocated (see [GPUState]). A degraded GPU can also count as free
// or allocated.
func (s *Status) CountGPUs(m *Model) {
	c := m.View.Cluster
	s.Outliers = map[pal.AppClass]float64{}
	for _, class := range pal.AppClasses() {
		s.Outliers[class] = 0
	}
	in := &s.InTrouble
	for i := range c.NumGPUs() {
		u, n := c.GPU(i), c.Amount(i)
		s.GPUs += n
		state := m.GPUState(i, m.Time)
		switch {
		case state == GPUUnhealthy:
			in.Unhealthy += n
		case state == GPUQuarantined:
			in.Quarantined += n
		case u.Degraded != "":
			in.Degraded += n
		}
		if c.Available(i) {
			s.Free += n
		}
		if state == GPUAllocated {
			s.Allocated += n
		}
		for _, class := range m.OutlierFor(i) {
			s.Outliers[class] += n
		}
	}
	for _, n := range []*float64{&s.GPUs, &s.Free, &s.Allocated, &in.Unhealthy, &in.Quarantined, &in.Degraded} {
		*n = reason.Rounded(*n)
	}
}

// OutlierFor returns the application classes for which GPU i of the cluster is an outlier, because
// its PM score is above the threshold.
func (m *Model) OutlierFor(i int) (classes []pal.AppClass) {
	above := cmp.Or(m.Cfg.Queue.OutlierThreshold, queue.DefaultOutlierThreshold)
	for k, score := range m.View.Cluster.GPU(i).Scores {
		if float64(score) > above {
			classes = append(classes, pal.AppClasses()[k])
		}
	}
	return classes
}

// GPUState returns the state of GPU i of the cluster.
func (m *Model) GPUState(i int, now time.Time) GPUState {
	c := m.View.Cluster
	u := c.GPU(i)
	switch {
	case u.Unhealthy:
		return GPUUnhealthy
	case u.Quarantined && now.Before(m.Quarantine[attr.GPUOf(u.ID)].Until):
		return GPUQuarantined
	case c.Taken(i):
		return GPUAllocated
	case !c.Available(i):
		return GPUUnavailable
	}
	return GPUFree
}

// GPUState is the state of a GPU. If a GPU is in several states, only one of them counts: the state
// that comes first in the list of constants below. For example, an allocated GPU that is unhealthy
// counts as unhealthy.
type GPUState string

// RedactedFor returns the status for a user who may see this job. RedactedFor hides the names of
// jobs in namespaces that the user may not see.
func (j JobStatus) RedactedFor(sees Sees) JobStatus {
	j.Reason = j.Reason.RedactedFor(sees.Name)
	return j
}

// Sees reports whether a user may see the jobs of a namespace.
type Sees func(namespace string) bool

// Unseen replaces the names of jobs that the user may not see.
const Unseen = "(a job that the token cannot see)"

// Name returns a job's name (namespace/id), or Unseen if the user may not see the job.
func (sees Sees) Name(job string) string {
	namespace, _, ok := strings.Cut(job, "/") // no namespace has a slash
	if job == "" || ok && sees(namespace) {
		return job
	}
	return Unseen
}

// Wait hides, in the queue's answer, the names of jobs that the user may not see.
func (sees Sees) Wait(w queue.Wait) queue.Wait {
	w.Ahead = sees.Name(w.Ahead)
	w.Stopping, w.Shrinking = sees.names(w.Stopping), sees.names(w.Shrinking)
	return w
}

func (sees Sees) names(jobs []string) (names []string) {
	for _, job := range jobs {
		names = append(names, sees.Name(job))
	}
	return names
}

// These are the states of a GPU. A GPU is unavailable if its node accepts no jobs or has just come
// back, or if tasks of a purged job may still run on the GPU.
const (
	GPUUnhealthy   GPUState = "unhealthy"
	GPUQuarantined GPUState = "quarantined"
	GPUAllocated   GPUState = "allocated"
	GPUUnavailable GPUState = "unavailable"
	GPUFree        GPUState = "free"
)
