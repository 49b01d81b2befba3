// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"testing"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/request"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// If somebody has registered a gang's job since its record was written, the gang must not start
// before its versions show its place in the queue.
func TestPastKnown(t *testing.T) {
	job := plainJob("j", 300)
	version := uint64(3)
	job.Version = &version
	pins := rewrite.Pins{Groups: []rewrite.GroupPins{{Group: "g"}}}
	for name, c := range map[string]struct {
		gang Lifecycle
		want bool
	}{
		"its record is not read": {Lifecycle{}, false},
		"registered since":       {Lifecycle{memory: memory{known: known{Record: &Record{JobModifyIndex: 200}}}}, false},
		"its place is not known": {Lifecycle{memory: memory{known: known{Record: &Record{JobModifyIndex: 200}}}}, false},
		"registered last by us":  {Lifecycle{memory: memory{known: known{Record: &Record{JobModifyIndex: 300}}}}, true},
		"the versions were read": {Lifecycle{memory: memory{known: known{Record: &Record{JobModifyIndex: 200}, position: position{index: 300}}}}, true},
	} {
		c.gang.Observed = Observed{Job: job, Nomad: palapi.Waiting, Pins: pins}
		if got := c.gang.PastKnown(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// After each registration the gang has the request of the registered job, so the placer can act on
// a restored change in the same cycle.
func TestRequestIsThatOfTheJob(t *testing.T) {
	for _, why := range []Purpose{ToStop, ToGoOn, ToAsk, ToRestore, ToResize, ToUndo} {
		w := newFakeWorld()
		was, now := plainJob("j", 100), plainJob("j", 200)
		g := &Lifecycle{memory: memory{known: known{Observed: Observed{Job: was, Nomad: palapi.Waiting}, Request: request.Request{Job: was}}}, stop: &stopping{}, read: readings{room: &Room{}}}
		g.pending = Register{Why: why, Job: now}
		g.Step(Registered{Observed{Job: now, Nomad: palapi.Waiting}}, w)
		if g.Request.Job != now {
			t.Errorf("to %s: the request belongs to an earlier version", why)
		}
	}
}
