// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package heartbeat reports whether a placer is active. The agent of the placer reads the [Vitals]
// of the placer's loop. All other programs read a heartbeat in one of Nomad's variables.
//
// What must stay true when you change this package: Only an agent that holds the lock writes the
// variable ([Heart.Holds]). Commands and agents of other versions read the variable, and decide
// from the age of a heartbeat whether a placer is active. So the interval between heartbeats can
// shrink, but it must not exceed the age that older readers accept (heartbeatLapses).
package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

const (
	// HeartbeatEvery is the time between two heartbeats. Each of the 4,320 heartbeats a day adds
	// about 300 bytes to Nomad's Raft log.
	HeartbeatEvery = 20 * time.Second
	// heartbeatLapses is the age beyond which a heartbeat no longer counts. At this age, the placer
	// has missed three heartbeats.
	heartbeatLapses = 3 * HeartbeatEvery
	// beatWithin limits the time for writing a heartbeat. The first heartbeat needs three requests,
	// and Nomad can be slow.
	beatWithin = 2 * HeartbeatEvery
	// retryEvery is the pause after a failed attempt to write a heartbeat.
	retryEvery = 5 * time.Second
	// firstLook is the interval at which the agent checks whether the placer has started to work.
	firstLook = 100 * time.Millisecond
	// handover is the longest time between the clean stop of an agent and the moment when the next
	// agent places jobs. The next agent can be the same agent with a new configuration.
	handover = 10 * time.Second
)

// Fresh reports whether the last heartbeat is so recent that the agent that wrote it should answer
// requests. The agent can still be in trouble, or have just started.
func Fresh(a palapi.Activity, now time.Time) bool {
	return (a.Working || a.Trouble != "" || a.Unknown != "") && now.Sub(a.Beaten) <= heartbeatLapses
}

// activityOf derives the [palapi.Activity] from a heartbeat and the time when the heartbeat was written.
func activityOf(b store.Heartbeat, written, now time.Time) palapi.Activity {
	a := palapi.Activity{Agent: b.Agent, Version: b.Version, Address: b.Address, Trouble: b.Trouble, Since: b.Since, Warnings: b.Warnings, Beaten: written}
	age := now.Sub(written)
	switch {
	case b.Trouble != "":
		a.Since = b.Worked
	case b.Starting && !b.Stopped && age <= heartbeatLapses && written.Sub(b.Since) <= heartbeatLapses:
		a.Unknown = fmt.Sprintf("agent %s has just started and is reading the cluster", b.Agent)
	case b.Starting:
		a.Since, a.Trouble = time.Time{}, "has not finished its first read of the cluster: see its log"
	case b.Stopped && age > handover, age > heartbeatLapses:
		a.Since = written
	default:
		a.Working = true
	}
	return a
}

// ReadActivity reads the heartbeat, and returns whether a placer is active. now is the caller's
// time. ReadActivity computes the heartbeat's age from the time in Nomad's answer, because the
// caller's clock can be wrong.
func ReadActivity(ctx context.Context, c *nomad.Client, now time.Time) (palapi.Activity, error) {
	beat, date := store.In(c).Heartbeat(), now
	is, err := beat.Read(nomad.WithDate(ctx, &date))
	switch {
	case nomad.Refused(err):
		return palapi.Activity{Unknown: fmt.Sprintf("the token cannot read the variable %q", beat.Path)}, nil
	case store.Unreadable(err):
		return palapi.Activity{Unknown: err.Error()}, nil
	case err != nil || !is.There:
		return palapi.Activity{}, err
	}
	a := activityOf(is.Of, is.Written, date)
	a.Beaten = a.Beaten.Add(now.Sub(date))
	return a, nil
}

// Heart writes heartbeats to Nomad to show that a placer is active.
type Heart struct {
	Nomad *nomad.Client
	Log   hclog.Logger
	// Of contains the agent's identity, which is part of each heartbeat. The Heart adds times and
	// trouble to each heartbeat.
	Of store.Heartbeat
	// Elected is true if agents elect the placer. If agents elect the placer, another placer may
	// have been active until this placer started.
	Elected bool
	// Holds reports whether this agent still holds the lock. While the agent holds the lock, no
	// other agent can hold it. Holds is nil if there is no lock. Without Holds, an agent that hung
	// would notice too late that it has lost the lock.
	Holds func(now time.Time) bool
	// Vitals returns the state of the placer's loop.
	Vitals func() VitalSigns
	// Warnings are written with the heartbeat.
	Warnings *Warnings

	last   store.Value[store.Heartbeat] // the value last written or read
	at     time.Time
	wrote  bool
	failed string // the last error, which is logged once
}

// Run writes heartbeats until ctx ends. Run writes a heartbeat at the start, after the first cycle,
// at regular intervals, and whenever the placer gets into or out of trouble. The last heartbeat
// tells readers that the placer has stopped.
func (h *Heart) Run(ctx context.Context) {
	h.Of.Since = time.Now().UTC()
	defer h.Warnings.rested()
	tick := time.NewTicker(firstLook)
	defer tick.Stop()
	h.Of.Starting = true
	for ctx.Err() == nil {
		starting := h.Of.Starting
		h.beat(ctx, time.Now())
		if starting && !h.Of.Starting {
			tick.Reset(time.Second)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	if !h.at.IsZero() && h.holds(time.Now()) {
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		h.Of.Stopped = true
		_ = h.write(short, time.Now())
	}
}

// beat writes a heartbeat if one is due.
func (h *Heart) beat(ctx context.Context, now time.Time) {
	signs := h.Vitals()
	trouble, starting := signs.Trouble(now), h.Of.Starting && signs.LastCycle.IsZero()
	if trouble == "" && !starting {
		h.Of.Worked = now.UTC()
	}
	every := HeartbeatEvery
	if h.failed != "" {
		every = retryEvery
	}
	if !h.holds(now) || (trouble == "") == (h.Of.Trouble == "") && starting == h.Of.Starting && now.Sub(h.at) < every {
		return
	}
	h.Of.Trouble = trouble
	h.Of.Starting = starting
	h.at = now
	short, cancel := context.WithTimeout(ctx, beatWithin)
	defer cancel()
	h.note(h.write(short, now), now)
}

// holds reports whether this agent may write heartbeats because no other agent can be the elected
// placer.
func (h *Heart) holds(now time.Time) bool { return h.Holds == nil || h.Holds(now) }

// errOther means that another agent now writes the heartbeat, so this agent must not write it.
var errOther = errors.New("another agent is active")

// write writes the heartbeat. An agent that has stopped or lost the lock does not overwrite the
// heartbeat of another agent.
func (h *Heart) write(ctx context.Context, now time.Time) (err error) {
	h.last, err = store.In(h.Nomad).Heartbeat().Change(ctx, h.last, func(is store.Value[store.Heartbeat]) (store.Heartbeat, error) {
		other := is.There && is.Of.Agent != h.Of.Agent
		switch {
		case other && (h.Of.Stopped || !h.holds(time.Now())):
			return h.Of, errOther
		case other && !is.Of.Stopped && !(h.Elected && !h.wrote) && activityOf(is.Of, is.Written, now).Working:
			if h.wrote { // both agents have written since this one started
				h.Warnings.beside(h.Of.Agent, is.Of.Agent, now)
			}
			h.Log.Warn("another agent was active until now; two active agents disturb each other: see high_availability", "agent", is.Of.Agent, "since", is.Of.Since)
		}
		h.Of.Warnings = h.Warnings.All(now)
		return h.Of, nil
	})
	h.wrote = h.wrote || err == nil
	return err
}

func (h *Heart) note(err error, now time.Time) {
	if errors.Is(err, errOther) { // this agent has stopped or lost the lock, so another agent writes the heartbeat
		return
	}
	h.Warnings.beaten(err, now)
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != h.failed && err != nil {
		h.Log.Warn("cannot write the heartbeat; commands will report that no agent is active", "error", err)
	}
	h.failed = text
}
