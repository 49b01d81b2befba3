// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// resize changes the number of members of a running elastic gang by changing the count of the job.
// To grow the gang, Nomad starts more members; to shrink the gang, Nomad ends the last members. All
// other members keep running.
//
// If a job is registered again, Nomad reruns members that have finished. So the job is registered
// only while all members run, and the gang looks at its members once more after the registration.
// If the gang finished in between, the placer stops the job.
func (g *Lifecycle) resize(e Event, w World) []Effect {
	to := e.(Resize)
	if g.MayHaveOverwritten() || g.Request.Elastic == nil || g.Have > g.Live || len(w.Holds(g.Key)) > g.Request.Gang.GPUs() {
		return g.refuseStop(e, w) // the last registration is unverified, or some members have completed or are still ending
	}
	pins, err := w.Resized(g, to.To)
	if err != nil {
		return []Effect{g.log(Info, "cannot change the number of members", "error", err), QueueSettled{}, QueueKept{}}
	}
	job, err := w.Pin(g.Job, pins)
	if err != nil {
		return g.refuseStop(e, w)
	}
	return []Effect{
		g.log(Info, "changing the number of members", "from", g.Want, "to", len(to.To.Members), "for", to.For),
		Register{Why: ToSize, Job: job, While: g.memberIDs(), size: &to},
	}
}

// resizeDone records that the job's count has changed, from the given number of members.
func (g *Lifecycle) resizeDone(from int, size Resize, w World) []Effect {
	to := size.To
	if g.Record != nil {
		r := *g.Record
		g.addRunTime(&r, reason.Reason{}, g.Live, w) // the gang runs at another speed from now on
		// The new GPUs are recorded once all members run. The decision at the gang's start does not
		// explain the new GPUs.
		r.Ready = time.Time{}
		r.Predicted = nil
		r.Decision = pal.Decision{Gang: r.Decision.Gang, Class: r.Decision.Class, Policy: r.Decision.Policy, Demand: len(to.GPUs()), Placed: true, Chosen: w.Describe(g.Request.Gang, to)}
		g.Record = &r
	}
	out := []Effect{Sized{from, len(to.Members), w.GPUIDs(to.GPUs()), size.For}}
	if len(to.Members) > from { // when the gang shrinks, the queue learns the new size when the members have ended
		g.Reserved = w.GPUIDs(to.GPUs())
		out = append(out, Keep{to}, QueueStarted{to})
	}
	return append(out, g.lookAgain())
}

// lookAgain reads the members again after a registration, because some may have ended before Nomad
// stored the job.
func (g *Lifecycle) lookAgain() Effect {
	g.read = readings{}
	return ReadAllocs{}
}

// slower returns the run time with the given number of members, divided by the run time with the
// maximum number of members.
func (g *known) slower(members int) float64 {
	if g.Request.Elastic == nil {
		return 1
	}
	return queue.Slower(members, g.Request.Elastic.Most)
}
