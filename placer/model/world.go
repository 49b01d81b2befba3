// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/failure"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// world is what a gang may ask of the placer while it decides: see [gang.World].
type world struct{ *Model }

var _ gang.World = world{}

// World is what the gangs may ask.
func (m *Model) World() gang.World { return world{m} }

func (w world) Now() time.Time              { return w.Time }
func (w world) ReadyTimeout() time.Duration { return w.Cfg.GangReadyTimeout }
func (w world) Retries() int                { return w.Cfg.Retries }
func (w world) RestartCost() time.Duration  { return w.Cfg.RestartCost }
func (w world) Policy() string              { return string(w.Cfg.Placement) }

func (w world) Allocs(k nomad.JobKey) []*nomad.Alloc         { return w.State.AllocsOf(k) }
func (w world) Holds(k nomad.JobKey) []int                   { return w.View.Holds(k) }
func (w world) GPUIDs(gpus []int) []string                   { return GPUIDs(w.View, gpus) }
func (w world) Forbids(job *api.Job, on []*nomad.Alloc) bool { return w.View.Forbids(job, on) }
func (w world) Promised(k nomad.JobKey) bool                 { return w.View.Promised(k) }

// LastFailure is the newest failure of a member that Nomad has not replaced, of this
// version of the job or a later one; nil for none.
func (w world) LastFailure(job *api.Job) *failure.Failure {
	k := nomad.KeyOf(job)
	for i := len(w.Failures) - 1; i >= 0; i-- {
		f := &w.Failures[i]
		a := w.State.Allocs[f.Alloc]
		if a == nil || a.Job != k || a.Next != "" || a.ModifyIndex <= *job.JobModifyIndex {
			continue
		}
		if a.Version == nil || *a.Version >= *job.Version { // not one of an earlier version
			return f
		}
	}
	return nil
}

// Request is what the job asks for, with nodes to avoid after failures.
func (w world) Request(o gang.Observed) (nomad.Request, error) { return w.RequestOf(o) }

func (w world) Running(r nomad.Request, gpus []int) pal.Placement { return w.View.Running(r, gpus) }

func (w world) Describe(g pal.Gang, p pal.Placement) *pal.Choice {
	return pal.Describe(w.View.Cluster, g, p)
}

func (w world) Pin(job *api.Job, p rewrite.Pins) (*api.Job, error) { return w.View.Pin(job, p) }

func (w world) Resized(g *gang.Gang, to pal.Placement) (rewrite.Pins, error) {
	return w.View.Resized(g.Request, g.Pins, to)
}

// RoomForMissing is where the members fit that a running gang lacks. Its pins are
// widened, never replaced: the members that run must stay where they are.
func (w world) RoomForMissing(g *gang.Gang) (gang.Room, error) {
	r, err := w.View.Missing(g.Job)
	if err != nil {
		return gang.Room{}, err
	}
	return w.room(w.View, r, func(more rewrite.Pins) rewrite.Pins { return w.View.Widen(r, g.Pins, more) }), nil
}

// RoomForCanaries is where the canaries of a new version fit, beside the old members.
// Pins to GPUs name all that the old version may use, so they are first cut to what it
// does use.
func (w world) RoomForCanaries(g *gang.Gang) (gang.Room, error) {
	r, err := w.View.Canaries(g.Job)
	if err != nil || r.Gang.GPUs() == 0 {
		return gang.Room{}, err
	}
	return w.room(w.View, r, func(more rewrite.Pins) rewrite.Pins {
		pins := g.Pins
		if pins.Mode == rewrite.ModeGPU {
			pins = w.View.HeldPins(g.Job)
		}
		return w.View.Widen(r, pins, more)
	}), nil
}

// RoomForAll is where the whole gang would fit if it held nothing now: in a view of its
// own without its holdings.
func (w world) RoomForAll(g *gang.Gang) (gang.Room, error) {
	v, err := w.State.View(w.ViewOptions(w.Time), g.Key)
	if err != nil {
		return gang.Room{}, err
	}
	r, err := v.Request(g.Job)
	if err != nil {
		return gang.Room{}, err
	}
	room := w.room(v, r, func(p rewrite.Pins) rewrite.Pins { return p })
	room.Decision = pal.Explain(v.Cluster, r.Gang, w.Cfg.Policy())
	return room, nil
}

// room is where the gang of a request fits in a view. pins makes the job's pins of
// those of the placement.
func (w world) room(v *nomad.View, r nomad.Request, pins func(rewrite.Pins) rewrite.Pins) gang.Room {
	pl, ok := pal.Place(v.Cluster, r.Gang, w.Cfg.Policy())
	if !ok {
		return gang.Room{Gang: r.Gang, Reason: pal.Explain(v.Cluster, r.Gang, w.Cfg.Policy()).Reason}
	}
	return gang.Room{Fits: true, Gang: r.Gang, Placement: pl, Pins: pins(v.Pins(r, pl)), Mode: r.Mode}
}
