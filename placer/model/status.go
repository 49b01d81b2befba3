// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"cmp"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
)

// Status summarizes the placer's work for the agent to show.
type Status struct {
	At   time.Time          `json:"at"`
	Jobs []palapi.JobStatus `json:"jobs"`
	// GPUs counts all GPUs. In this field and the following ones, a part of a shared GPU counts as
	// its share of the GPU.
	GPUs float64 `json:"gpus"`
	Free float64 `json:"free"`
	// InTrouble counts the GPUs that the placer does not choose, or chooses last. Outliers counts,
	// for each class, the GPUs whose PM score is above the outlier threshold.
	InTrouble palapi.GPUsInTrouble     `json:"in_trouble"`
	Allocated float64                  `json:"allocated"`
	Outliers  map[pal.AppClass]float64 `json:"outliers,omitempty"`
	// Speeds are the speeds of the GPU models.
	Speeds []palapi.ModelSpeed `json:"-"`
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

// StatusOf returns the job's status. waits is the result of [Model.WaitsOf].
func (m *Model) StatusOf(t *Tracked, waits map[string]*Wait) palapi.JobStatus {
	j := m.statusOf(t, waits[t.Key.String()])
	j.Elastic = m.SizeOf(t)
	ending := m.Ending(t.Observed)
	if !ending.IsZero() && (j.State == palapi.Waiting || j.State == palapi.Completing) {
		j.State, j.Reason = palapi.Completing, ending
	}
	if j.Reason.IsZero() && (t.Nomad == palapi.Running || t.Nomad == palapi.Starting) {
		j.Reason = j.Reason.And(m.Leaving(t.Observed)...).And(CanariesRun(t.Observed))
	}
	return j
}

// CanariesRun returns a reason if canaries of a service's new version run beside the old version,
// and no reason otherwise. The members beyond the count are the canaries: Nomad also replaces members
// of the old version meanwhile.
func CanariesRun(st gang.Observed) reason.Reason {
	canaries := st.Live - st.Want
	isNew := func(a *cluster.Alloc) bool { return a.PlacedFor(st.Job) }
	isOld := func(a *cluster.Alloc) bool { return !isNew(a) }
	if !gang.HasCanaries(st.Job) || canaries <= 0 || !slices.ContainsFunc(st.Members, isNew) || !slices.ContainsFunc(st.Members, isOld) {
		return reason.Reason{}
	}
	return reason.Reason{Kind: reason.CanariesRun, Have: canaries, Want: st.Want}
}

// Tell sets the position, the reason and the forecast of a waiting job. w can be nil.
func (w *Wait) Tell(j *palapi.JobStatus) {
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
	s := Status{At: m.Time, Jobs: make([]palapi.JobStatus, 0, len(m.Jobs))}
	s.CountGPUs(m)
	s.Stopped, s.Speeds = m.Queue.Stops(), m.View.ModelSpeeds()
	for _, t := range m.Sorted() {
		m.BeginJob(t.Key)
		j := m.StatusOf(t, waits)
		s.Jobs = append(s.Jobs, j)
		if j.Position > 0 && (s.WaitsSince.IsZero() || t.WaitsSince().Before(s.WaitsSince)) {
			s.WaitsSince = t.WaitsSince()
		}
		if t.Record != nil && t.Nomad == palapi.Running {
			s.Slowdown.add(t.Record.Decision)
		}
	}
	m.EndJob()
	return s
}

// CountGPUs counts all GPUs, and the GPUs in each state. If a job holds an unhealthy or quarantined
// GPU, the GPU does not count as allocated (see [palapi.GPUState]). A degraded GPU can also count as free
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
		case state == palapi.GPUUnhealthy:
			in.Unhealthy += n
		case state == palapi.GPUQuarantined:
			in.Quarantined += n
		case u.Degraded != "":
			in.Degraded += n
		}
		if c.Available(i) {
			s.Free += n
		}
		if state == palapi.GPUAllocated {
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
func (m *Model) GPUState(i int, now time.Time) palapi.GPUState {
	c := m.View.Cluster
	u := c.GPU(i)
	switch {
	case u.Health.Unhealthy:
		return palapi.GPUUnhealthy
	case u.Health.Quarantined && now.Before(m.Quarantine[attr.GPUOf(u.ID)].Until):
		return palapi.GPUQuarantined
	case c.Taken(i):
		return palapi.GPUAllocated
	case !c.Available(i):
		return palapi.GPUUnavailable
	}
	return palapi.GPUFree
}
