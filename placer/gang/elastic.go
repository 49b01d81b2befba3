// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
)

// resize has a running elastic gang go on with more members, or fewer: its job gets
// another count. Nomad starts those that are missing, and ends the last if there are too
// many; the others run on.
func (g *Gang) resize(e Event, w World) []Effect {
	r := e.(Resize)
	if g.unconfirmed() || g.Request.Elastic == nil || g.Have > len(g.Members) || len(w.Holds(g.Key)) > g.Request.Gang.GPUs() {
		return g.keep(e, w) // not known yet, some have done their work, or some are still ending
	}
	es, err := g.resizeTo(r.To, w)
	if err != nil {
		return []Effect{g.log(Info, "the gang cannot grow", "error", err), QueueSettled{}, QueueKept{}}
	}
	return append([]Effect{g.log(Info, "changing the number of members", "from", g.Want, "to", len(r.To.Members), "for", r.For)}, es...)
}

// resizeTo registers the job with as many members as the placement has.
func (g *Gang) resizeTo(to pal.Placement, w World) ([]Effect, error) {
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
	g.sizing = to
	return []Effect{Register{why, job}}, nil
}

// doWithout has an elastic gang go on with the members that are there, if they are enough
// and Nomad cannot place the others; nil otherwise.
func (g *Gang) doWithout(blocked bool, w World) []Effect {
	e := g.Request.Elastic
	if e == nil || !blocked || g.Have > len(g.Members) || g.Have < e.Least {
		return nil
	}
	to := w.Running(g.Request, w.Holds(g.Key)) // those that are not there come last
	if len(to.Members) < g.Have {
		return nil
	}
	to.Members = to.Members[:g.Have]
	es, err := g.resizeTo(to, w)
	if err != nil {
		return nil
	}
	return es
}

// sized takes in that the job has another count.
func (g *Gang) sized(why Purpose, w World) []Effect {
	to := g.sizing
	if g.Record != nil {
		r := *g.Record
		r.Ready, r.Decision.Demand = time.Time{}, len(to.GPUs()) // where they are is recorded once all are there
		g.Record = &r
	}
	if why == ToShrink {
		g.Held = nil
		return nil // the queue hears of it when they have ended
	}
	g.Held = w.GPUIDs(to.GPUs())
	return []Effect{Keep{to}, QueueStarted{to}}
}

// slower is how many times as long as with all its members a gang takes with those that it
// has now. What it did with others before is taken as done at this pace.
func (g *Gang) slower() float64 {
	if g.Request.Elastic == nil {
		return 1
	}
	return queue.Job{Efficiency: g.Request.Hints.Efficiency}.Slower(g.Want, g.Request.Elastic.Most)
}
