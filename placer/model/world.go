// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"cmp"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/request"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// world answers the questions of a gang that decides what to do (see [gang.World]).
type world struct{ *Model }

var _ gang.World = world{}

// World returns a [gang.World] that is based on the model.
func (m *Model) World() gang.World { return world{m} }

func (w world) Now() time.Time              { return w.Time }
func (w world) ReadyTimeout() time.Duration { return w.Cfg.GangReadyTimeout }
func (w world) Retries() int                { return w.Cfg.Retries }
func (w world) RestartCost() time.Duration  { return w.Cfg.RestartCost }
func (w world) NodeChanges() uint64         { return w.State.NodeChanges() }
func (w world) Policy() string              { return string(w.Cfg.Placement) }

func (w world) Allocs(k cluster.JobKey) []*cluster.Alloc       { return w.State.AllocsOf(k) }
func (w world) Holds(k cluster.JobKey) []int                   { return w.View.Holds(k) }
func (w world) GPUIDs(gpus []int) []string                     { return GPUIDs(w.View, gpus) }
func (w world) Forbids(job *api.Job, on []*cluster.Alloc) bool { return w.View.Forbids(job, on) }
func (w world) Reserved(k cluster.JobKey) bool                 { return w.View.Reserved(k) }

func (w world) OthersHold(k cluster.JobKey, gpus []string) bool {
	return slices.ContainsFunc(gpus, func(id string) bool {
		u := w.View.Cluster.Find(id)
		return u >= 0 && w.View.Owner(u) != k && w.View.Owner(u) != cluster.JobKey{}
	})
}

// LastFailure returns the newest failure of a member that Nomad has not replaced, or nil if there
// is none. A failure of the infrastructure comes before failures of the program, because programs
// also fail when another member does. The member must have run this version of the job or a later one. A failed member of a
// service counts until Nomad replaces the member, even if the job changes.
func (w world) LastFailure(job *api.Job) (last *palapi.Failure) {
	for _, f := range w.failuresOf(cluster.KeyOf(job)) {
		a := w.State.Allocs[f.Alloc]
		if a == nil || !failedAsItIs(job, a) {
			continue
		}
		if last == nil || cmp.Or(infrastructure(f)-infrastructure(*last), cmp.Compare(f.Index, last.Index), cmp.Compare(f.Alloc, last.Alloc)) > 0 {
			last = &f
		}
	}
	return last
}

func infrastructure(f palapi.Failure) int {
	if f.Cause == palapi.CauseInfrastructure {
		return 1
	}
	return 0
}

func (w world) NodeLost(a *cluster.Alloc) bool {
	if a.Client == api.AllocClientStatusLost || a.Client == api.AllocClientStatusUnknown {
		return true
	}
	n := w.State.Nodes[a.Node]
	return n != nil && (n.Status == api.NodeStatusDown || n.Status == api.NodeStatusDisconnected)
}

// failedAsItIs reports whether an allocation failed when it ran the current version of the job.
func failedAsItIs(job *api.Job, a *cluster.Alloc) bool {
	switch {
	case a.Next != "":
		return false
	case *job.Type == api.JobTypeService && a.Desired == api.AllocDesiredStatusRun:
		return true
	}
	return a.ModifyIndex > *job.JobModifyIndex && (a.Version == nil || *a.Version >= *job.Version) // not of an earlier version
}

// Request returns what the job requests, and the nodes to avoid after failures.
func (w world) Request(o gang.Observed) (request.Request, error) { return w.RequestOf(o) }

func (w world) Running(r request.Request, gpus []int) pal.Placement { return w.View.Running(r, gpus) }

func (w world) Describe(g pal.Gang, p pal.Placement) *pal.Choice {
	return pal.Describe(w.View.Cluster, g, p)
}

func (w world) Pin(job *api.Job, p rewrite.Pins) (*api.Job, error) { return w.View.Pin(job, p) }

func (w world) Resized(g *gang.Lifecycle, to pal.Placement) (rewrite.Pins, error) {
	return w.View.Resized(g.Request, g.Pins, to)
}

// RoomForAll asks the queue for GPUs for all members of a running gang that its author has edited.
func (m *Model) RoomForAll(g *gang.Lifecycle) gang.Room {
	_, back := m.View.Without(g.Key)
	defer back()
	return m.roomFor(g, g.Request, m.View)
}

// RoomForPlan is like RoomForAll, for `nomad-pal plan` of a running job with a new request. v is a
// view in which the gang's GPUs are free.
func (m *Model) RoomForPlan(g *gang.Lifecycle, v *request.View) gang.Room {
	return m.roomFor(g, g.Request, v)
}

// roomFor asks the queue for GPUs for a running gang with a new request.
func (m *Model) roomFor(g *gang.Lifecycle, r request.Request, v *request.View) gang.Room {
	job := g.QueueJob(m.Cfg.RestartCost)
	job.Gang, job.Least = r.Gang, 0
	f, wait, ok := m.Queue.RoomFor(gang.QueueTime(m.Time), v.Cluster, job)
	room := gang.Room{Fits: ok, Gang: r.Gang, Mode: r.Mode}
	switch wait.Reason {
	case reason.Next:
		room.Placement, room.Pins = f.Placement, v.Pins(r, f.Placement)
		room.Decision, _ = pal.ExplainFound(v.Cluster, r.Gang, f.By(), f)
	case reason.TooLarge, reason.GPUs, reason.Scattered:
		room.Decision = pal.Explain(v.Cluster, r.Gang, m.Cfg.Policy())
		room.Reason = room.Decision.Reason
	default:
		wait.Ahead = "a waiting job" // not every user may see the job's name
		room.Reason = wait.Why()
	}
	return room
}
