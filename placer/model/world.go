// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/failure"
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
func (w world) LastFailure(job *api.Job) (last *failure.Failure) {
	for _, f := range w.failuresOf(cluster.KeyOf(job)) {
		if a := w.State.Allocs[f.Alloc]; a == nil || !failedAsItIs(job, a) {
			continue
		}
		if last == nil || cmp.Or(infrastructure(f)-infrastructure(*last), cmp.Compare(f.Index, last.Index), cmp.Compare(f.Alloc, last.Alloc)) > 0 {
			last = &f
		}
	}
	return last
}

func infrastructure(f failure.Failure) int {
	if f.Cause == failure.Infrastructure {
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

// RoomForMissing returns GPUs for the missing members of a running gang. RoomForMissing only adds
// to the gang's pins, because running members must stay on their GPUs. Lost members get GPUs before
// other gangs start. If the members do not need each other, RoomForMissing returns GPUs for as many
// lost members as possible. Members that the author has added with nomad job scale get GPUs
// according to [queue.Queue.RoomFor].
func (w world) RoomForMissing(g *gang.Lifecycle) (gang.Room, error) {
	r, err := w.View.Missing(g.Job)
	if err != nil {
		return gang.Room{}, err
	}
	r.Mode = g.Pins.Mode // a gang that is to be handed over has pins to nodes instead of GPUs
	widen := func(more rewrite.Pins) rewrite.Pins { return w.View.Widen(r, g.Pins, more) }
	if g.Record == nil || g.Record.Decision.Demand == 0 || g.Request.Gang.GPUs() <= g.Record.Decision.Demand {
		if !g.NeedsAll() {
			r = w.mostThatFit(r)
		}
		return w.room(w.View, r, widen), nil
	}
	room := w.roomFor(g, r, w.View, queue.Change{Keeps: len(w.View.Holds(g.Key))})
	room.Pins = widen(room.Pins)
	return room, nil
}

// mostThatFit reduces the request to the largest number of members that fit. If no member fits,
// mostThatFit returns the request unchanged.
func (w world) mostThatFit(r request.Request) request.Request {
	lacks := 0
	for _, set := range r.Gang.MemberSets {
		lacks += set.Members
	}
	most := sort.Search(lacks, func(n int) bool {
		_, fits := pal.Place(w.View.Cluster, fewer(r, n+1).Gang, w.Cfg.Policy())
		return !fits
	})
	if most == 0 {
		return r
	}
	return fewer(r, most)
}

// fewer returns the request with at most this number of members, and drops the last members.
func fewer(r request.Request, members int) request.Request {
	r.Gang.MemberSets = slices.Clone(r.Gang.MemberSets)
	for i := range r.Gang.MemberSets {
		set := &r.Gang.MemberSets[i]
		set.Members = min(set.Members, members)
		members -= set.Members
	}
	return r
}

// RoomForCanaries returns GPUs for the canaries of a new version, which run beside the old members.
// The canaries soon replace the old members, so they need not wait for other jobs, but the limits
// of the tenant apply. Pins to GPUs name all GPUs that the old version may use. RoomForCanaries
// first drops the GPUs that the old version does not use.
func (w world) RoomForCanaries(g *gang.Lifecycle) (gang.Room, error) {
	r, err := w.View.Canaries(g.Job)
	if err != nil || r.Gang.GPUs() == 0 {
		return gang.Room{}, err
	}
	if _, why := w.CanariesBarred(g, r); !why.IsZero() {
		return gang.Room{Gang: r.Gang, Reason: why}, nil
	}
	return w.room(w.View, r, func(more rewrite.Pins) rewrite.Pins {
		pins := g.Pins
		if pins.Mode == rewrite.ModeGPU {
			pins = w.View.HeldPins(g.Job)
		}
		return w.View.Widen(r, pins, more)
	}), nil
}

// CanariesBarred returns a reason if a limit of the tenant forbids the canaries in r in addition to
// the GPUs that the gang holds. CanariesBarred returns no reason if no limit forbids the canaries.
func (m *Model) CanariesBarred(g *gang.Lifecycle, r request.Request) (wait queue.Wait, why reason.Reason) {
	job := g.QueueJob(m.Cfg.RestartCost)
	job.Gang, job.Least = r.Gang, 0
	_, wait, _ = m.Queue.RoomFor(gang.QueueTime(m.Time), m.View.Cluster, queue.Change{Job: job, Keeps: len(m.View.Holds(g.Key))})
	if wait.Reason == reason.Limit || wait.Reason == reason.Quota {
		why = wait.Why()
	}
	return wait, why
}

// RoomForAll asks the queue for GPUs for all members of a running gang that its author has edited.
func (m *Model) RoomForAll(g *gang.Lifecycle) gang.Room {
	own, back := m.View.Without(g.Key)
	defer back()
	return m.roomFor(g, g.Request, m.View, queue.Change{Own: own})
}

// RoomForPlan is like RoomForAll, for `nomad-pal plan` of a running job with a new request. v is a
// view in which the gang's GPUs are free.
func (m *Model) RoomForPlan(g *gang.Lifecycle, v *request.View) gang.Room {
	return m.roomFor(g, g.Request, v, queue.Change{Own: m.View.Holds(g.Key)})
}

// roomFor asks the queue for GPUs for a running gang with a new request.
func (m *Model) roomFor(g *gang.Lifecycle, r request.Request, v *request.View, ch queue.Change) gang.Room {
	ch.Job = g.QueueJob(m.Cfg.RestartCost)
	ch.Job.Gang, ch.Job.Least = r.Gang, 0
	f, wait, ok := m.Queue.RoomFor(gang.QueueTime(m.Time), v.Cluster, ch)
	room := gang.Room{Fits: ok, Gang: r.Gang, Mode: r.Mode}
	switch wait.Reason {
	case reason.Next:
		room.Placement, room.Pins = f.Placement, v.Pins(r, f.Placement)
		room.Decision, _ = pal.ExplainFound(v.Cluster, r.Gang, f.By(), f)
	case reason.GPUs, reason.Scattered:
		room.Decision = pal.Explain(v.Cluster, r.Gang, m.Cfg.Policy())
		room.Reason = room.Decision.Reason
	default:
		wait.Ahead = "a waiting job" // not every user may see the job's name
		room.Reason = wait.Why()
	}
	return room
}

// room chooses GPUs for the gang of a request in a view. pins converts the pins of this placement
// to the pins of the job.
func (w world) room(v *request.View, r request.Request, pins func(rewrite.Pins) rewrite.Pins) gang.Room {
	pl, ok := pal.Place(v.Cluster, r.Gang, w.Cfg.Policy())
	if !ok {
		return gang.Room{Gang: r.Gang, Reason: pal.Explain(v.Cluster, r.Gang, w.Cfg.Policy()).Reason}
	}
	return gang.Room{Fits: true, Gang: r.Gang, Placement: pl, Pins: pins(v.Pins(r, pl)), Mode: r.Mode}
}
