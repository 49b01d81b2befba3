// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package api

import (
	"strings"
	"time"
)

// Activity describes whether a placer is active, according to its heartbeat.
type Activity struct {
	// Unknown is the reason why it is not known whether a placer is active, or "" if this is known.
	Unknown string `json:"unknown,omitempty"`
	// Working is true if a placer is known to be active.
	Working bool `json:"working"`
	// Since is the time when the active placer started to work, or when the last placer stopped.
	// Since is zero if there was no placer.
	Since time.Time `json:"since,omitzero"`
	// Trouble is the reason why the agent did not place jobs when it wrote its last heartbeat, or
	// "" if the agent placed jobs.
	Trouble string `json:"trouble,omitempty"`
	// Agent is the agent that wrote the last heartbeat, in the form host/process id-suffix. The
	// suffix is random.
	Agent   string `json:"agent,omitempty"`
	Version string `json:"version,omitempty"` // version and commit of the agent
	Address string `json:"address,omitempty"` // URL of the agent's API, if the agent publishes it
	// Warnings are only for operators. The other fields are for everybody who may query an agent.
	Warnings []string `json:"-"`
	// Beaten is the time when the last heartbeat was written, by the clock of the reader, or zero if
	// there is no heartbeat.
	Beaten time.Time `json:"-"`
}

// Host returns the agent's machine, which is a part of the agent's name.
func (a Activity) Host() string {
	host, _, _ := strings.Cut(a.Agent, "/")
	return host
}

// Idle reports whether no placer is active. Idle returns false if nobody knows whether a placer is
// active.
func (a Activity) Idle() bool { return !a.Working && a.Unknown == "" }
