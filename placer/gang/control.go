// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"cmp"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Control holds the orders about a job that people give with nomad-pal hold, priority and requeue,
// not in the jobspec. The placer stores a Control under the job's name, so the orders survive a new
// registration of the job. The zero value holds no orders.
type Control struct {
	// Held is set while the job is on hold. A job on hold does not start.
	Held *Said `json:"held,omitempty"`
	// Priority is the job's priority in the queue, or 0 if the priority in the jobspec applies.
	Priority int `json:"priority,omitempty"`
	// Requeue is the order to stop the gang if the gang was placed before the order. The stopped
	// job then waits in the queue again.
	Requeue *Said `json:"requeue,omitempty"`
	// Release is the order to hand the job over to Nomad as soon as all its members are placed. The
	// placer deletes the order when the job is Nomad's alone, or has ended.
	Release *Said `json:"release,omitempty"`
}

// Said records who gave an order, when, and for what reason.
type Said struct {
	// By is the name of the sender's token. Without access control, By is the name that the sender
	// gave.
	By  string    `json:"by,omitempty"`
	At  time.Time `json:"at"`            // when the order was given
	Why string    `json:"why,omitempty"` // the reason given, if any
}

// Controlled replaces the orders about the job with c.
func (g *memory) Controlled(c Control) {
	if c.Priority != g.Control.Priority {
		g.edited = true // the queue must learn the new priority
	}
	g.Control = c
}

// Hold returns who holds the job, since when and why; zero if nobody does.
func (c Control) Hold() reason.Reason {
	if c.Held == nil {
		return reason.Reason{}
	}
	held := reason.Reason{Kind: reason.Held, Cause: c.Held.By, Until: c.Held.At}
	if c.Held.Why != "" {
		held = held.Over(reason.Unread(c.Held.Why))
	}
	return held
}

// QueuePriority returns the gang's priority in the queue.
func (g *known) QueuePriority() int {
	return cmp.Or(g.Control.Priority, *g.Job.Priority)
}

// byWhom returns the name of the person who gave the order, or "" if there is no order.
func (s *Said) byWhom() string {
	if s == nil {
		return ""
	}
	return s.By
}

// requeueAsked stops a gang that was placed before somebody asked to requeue it.
func (g *Lifecycle) requeueAsked(w World) ([]Effect, bool) {
	asked := g.Control.Requeue
	if asked == nil || g.Record == nil || !g.Record.Decided.Before(asked.At) || len(g.Members) == 0 || g.MayHaveOverwritten() {
		return nothing()
	}
	said := g.log(Info, "requeueing the gang on request", "by", asked.By)
	return append([]Effect{said}, g.stopFor(stopping{why: Requeued, asked: true}, g.Record, w)...), false
}

// handOverReplicas hands a job over to Nomad although members are missing, if the members do not need
// each other and ran before: Nomad alone replaces them.
func handOverReplicas(g *Lifecycle, w World) ([]Effect, bool) {
	if g.NeedsAll() || g.Record == nil || g.Record.Ready.IsZero() {
		return nothing()
	}
	return handOver(g, w)
}

// handOver hands the placed gang over to Nomad if somebody has asked for this. handOver waits for
// the end of a deployment, because a new version of the job would cancel the deployment.
func handOver(g *Lifecycle, _ World) ([]Effect, bool) {
	switch {
	case g.Control.Release == nil, g.read.deploys:
		return nothing()
	case *g.Job.Type == api.JobTypeService && !g.read.hasDeployment:
		return await(ReadDeployment{})
	}
	said := g.log(Info, "handing the gang over to Nomad on request", "by", g.Control.Release.By)
	return []Effect{said, Register{Why: ToRelease, Job: rewrite.HandOver(g.Job)}}, false
}
