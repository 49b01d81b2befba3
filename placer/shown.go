// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"cmp"
	"errors"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// wait is what the queue says of a waiting job, as people see it.
type wait struct {
	queue.Wait
	// never: the cluster could not hold it even if all GPUs were free and healthy.
	never bool
	// Why is what it waits for, as a sentence without its subject.
	why string
}

// Why replaces the queue's where that does not know the reason.
func (w *wait) Why() string { return cmp.Or(w.why, w.Wait.Why()) }

// idle is what it waits for while no placer is at work: nothing can be foretold.
func (w *wait) idle() {
	w.From, w.To = 0, 0
	if w.Reason == queue.ReasonNext || w.Reason == queue.ReasonNear {
		w.why = "waits for a placer: its GPUs are free, but none is at work"
	}
}

// shown is the phase of a job as people see it: Rejected, Failed and Unschedulable
// are not to be seen in Nomad, where such a job is one that waits. w is what the
// queue says of it, nil where it says nothing.
func (t *tracked) shown(w *wait) Phase {
	switch {
	case t.gaveUp() != nil:
		return Failed
	case t.Phase != Waiting:
		return t.Phase
	case t.refused != nil:
		return Rejected
	case w != nil && w.never:
		return Unschedulable
	}
	return Waiting
}

// gaveUp is why the gang is not tried any more, nil where it is.
func (t *tracked) gaveUp() error {
	if (t.Phase == Waiting || t.Phase == Lost) && t.record != nil && t.record.GivenUp != "" && len(t.Pins.Groups) > 0 {
		return errors.New(t.record.GivenUp)
	}
	return nil
}

// standing is where a job stands; one that was set aside is not looked into.
func (p *Placer) standing(job *api.Job) Standing {
	if _, ok := p.asideNow(job, p.now); ok {
		return asideStanding(job)
	}
	return StandingOf(p.state, job)
}

func asideStanding(job *api.Job) Standing {
	return Standing{Key: nomad.KeyOf(job), Job: job, Phase: Rejected}
}

// waitsOf is what each waiting job waits for, by its id in the queue. Those that
// could never run have no position: the others are counted without them. The queue
// takes GPUs that jobs of others hold for ones that are not there.
func (p *Placer) waitsOf(ws []queue.Wait, c *pal.Cluster) map[string]*wait {
	out := map[string]*wait{}
	position := 0
	for _, w := range ws {
		shown := &wait{Wait: w}
		if t := p.byID(w.Job); t != nil && w.Reason == queue.ReasonTooLarge {
			shown.never, shown.why = pal.WhyNot(c, t.request.Gang)
		}
		if shown.Position = 0; !shown.never {
			position++
			shown.Position = position
		}
		out[w.Job] = shown
	}
	return out
}
