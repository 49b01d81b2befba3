// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package api

import "time"

// LongestWhy is the maximum length of the reason of a command, in bytes.
const LongestWhy = 200

// ControlRequest is an operator's or author's command about one job.
type ControlRequest struct {
	// Why is the reason, for people who later read about the command.
	Why string `json:"why,omitempty"`
	// By names the sender if Nomad has no access control. With access control, the agent uses the
	// token's name instead.
	By string `json:"by,omitempty"`
	// Priority replaces the jobspec's priority; 0 restores the jobspec's priority.
	Priority int `json:"priority,omitempty"`
}

// Health is the answer to /v1/health. The HTTP status is 200 if the agent works or stands by,
// otherwise 503.
type Health struct {
	// Leader is set if this agent is the active one. Ready is set if this agent has read the
	// cluster.
	Leader bool `json:"leader"`
	Ready  bool `json:"ready"`
	// Trouble is why the agent does not work. LastError is the agent's last error while the agent
	// is in trouble; only operators see it.
	Trouble   string    `json:"trouble,omitempty"`
	LastError string    `json:"last_error,omitempty"`
	At        time.Time `json:"last_cycle,omitzero"`
	// Warnings are problems of the agent, of Nomad and of its nodes, and failures of the placer
	// that do not stop it from placing. Warnings can name nodes and jobs of any namespace, so only
	// operators see them. Other callers see only how many warnings there are.
	Warnings     []string `json:"warnings,omitempty"`
	WarningCount int      `json:"warning_count,omitempty"`
	// Configuration lists configuration keys that no longer have an effect.
	Configuration []string `json:"configuration,omitempty"`
}
