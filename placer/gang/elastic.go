// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"errors"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// resize changes the number of members of a running elastic gang by changing the count of the job.
// To grow the gang, Nomad starts more members; to shrink the gang, Nomad ends the last members. All
// other members keep running.
func (g *Lifecycle) resize(e Event, w World) []Effect {
	r := e.(Resize)
	if g.MayHaveOverwritten() || g.Request.Elastic == nil || g.Have > g.Live || len(w.Holds(g.Key)) > g.Request.Gang.GPUs() {
		return g.refuseStop(e, w) // the last registration is unverified, or some members have completed or are still ending
	}
	es, err := g.beginResize(r.To, r.For, w)
	if err != nil {
		return []Effect{g.log(Info, "cannot change the number of members", "error", err), QueueSettled{}, QueueKept{}}
	}
	return append([]Effect{g.log(Info, "changing the number of members", "from", g.Want, "to", len(r.To.Members), "for", r.For)}, es...)
}

// sizing is a change of an elastic gang's size that is not finished.
type sizing struct {
	to       pal.Placement
	told     Sized
	register Register
}

// beginResize begins to change the gang to the size of the given placement. If the gang shrinks in
// favour of another job, forJob is that job.
//
// If a job is registered again, Nomad reruns members that have finished. So the placer looks for
// finished members immediately before and after the registration. If the gang finished between
// these two looks, the placer stops the job.
func (g *Lifecycle) beginResize(to pal.Placement, forJob string, w World) ([]Effect, error) {
	pins, err := w.Resized(g, to)
	if err != nil {
		return nil, err
	}
	job, err := w.Pin(g.Job, pins)
	if err != nil {
		return nil, err
	}
	why := ToGrow
	if len(to.Members) < g.Want {
		why = ToShrink
	}
	g.sizing = &sizing{to, Sized{g.Want, len(to.Members), w.GPUIDs(to.GPUs()), forJob}, Register{Why: why, Job: job}}
	return []Effect{ReadSource{}}, nil // read the source before the allocations, because reading it can take long
}

// goOnResizing takes the next step of a resize after an answer from Nomad.
func (g *Lifecycle) goOnResizing(e Event) []Effect {
	err := errors.New("the change was postponed")
	switch a := e.(type) {
	case SourceRead:
		g.sizing.register.Source = &a
		return []Effect{ReadAllocs{}}
	case AllocsRead:
		if g.allRun(a.Allocs) {
			return []Effect{g.sizing.register}
		}
		err = errors.New("some members of the gang no longer run")
	case Failure:
		err = a.Err
	}
	g.sizing = nil
	return []Effect{QueueKept{}, g.log(Debug, "could not change the number of members", "error", err)}
}

// allRun reports whether all known members run, according to the given allocations.
func (g *Observed) allRun(as []*cluster.Alloc) bool {
	runs := map[string]bool{}
	for _, a := range as {
		runs[a.ID] = a.Member()
	}
	return !slices.ContainsFunc(g.Members, func(a *cluster.Alloc) bool { return !runs[a.ID] })
}

// lookAgain reads the members again after a registration, because some may have ended before Nomad
// stored the job.
func (g *Lifecycle) lookAgain() Effect {
	g.read = readings{}
	return ReadAllocs{}
}

// resizeDone records that the job's count has changed.
func (g *Lifecycle) resizeDone(why Purpose, w World) []Effect {
	to, told := g.sizing.to, g.sizing.told
	g.sizing = nil
	if g.Record != nil {
		r := *g.Record
		g.addRunTime(&r, reason.Reason{}, g.Live, w) // the gang runs at another speed from now on
		// The new GPUs are recorded once all members run. The decision at the gang's start does not
		// explain the new GPUs.
		r.Ready, r.Predicted = time.Time{}, nil
		r.Decision = pal.Decision{Gang: r.Decision.Gang, Class: r.Decision.Class, Policy: r.Decision.Policy, Demand: len(to.GPUs()), Placed: true, Chosen: w.Describe(g.Request.Gang, to)}
		g.Record = &r
	}
	if why == ToShrink {
		g.Reserved = nil
		return []Effect{told} // the queue learns the new size when the members have ended
	}
	g.Reserved = w.GPUIDs(to.GPUs())
	return []Effect{told, Keep{to}, QueueStarted{to}}
}

// slower returns the run time with the given number of members, divided by the run time with the
// maximum number of members.
func (g *known) slower(members int) float64 {
	if g.Request.Elastic == nil {
		return 1
	}
	return queue.Slower(members, g.Request.Elastic.Most)
}
