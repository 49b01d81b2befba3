// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"context"
	"fmt"
	"net/http"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/heartbeat"
)

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

// warningsTimeout is the time limit for the check whether the caller is an operator. The answer
// about the agent's health must not wait for Nomad.
const warningsTimeout = time.Second

func (s *server) serveHealth(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	h := s.agent.health(now)
	h.Configuration = s.cfg.Warnings(now)
	if h.WarningCount > 0 || h.LastError != "" || len(h.Configuration) > 0 {
		ctx, cancel := context.WithTimeout(r.Context(), warningsTimeout)
		defer cancel()
		if c, err := s.caller(r); err != nil || !c.operates(ctx) {
			h.Warnings, h.Configuration, h.LastError = nil, nil, ""
		}
	}
	status := http.StatusOK
	if h.Trouble != "" || h.Leader && !h.Ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, h)
}

func (a *Agent) health(now time.Time) Health {
	p := a.current.Load()
	h := Health{Leader: a.leads.Load(), Warnings: a.warnings.All(now)}
	h.WarningCount = len(h.Warnings)
	if p == nil {
		if failed := a.lockError.Load(); failed != nil && *failed != "" {
			h.Trouble, h.LastError = "the agent cannot hold the lock in Nomad, so it cannot take over: see the agent's log", *failed
		}
		return h
	}
	var warnings []string
	if last := p.Picture(); last != nil { // Status would wait for the placer
		warnings = last.Warned()
	}
	h = withPlacer(h, warnings, p.Vitals(), now)
	silent, err := a.warnings.Unwritten(now)
	hear(&h, silent, err)
	return h
}

// untilHung returns an error once the placer's loop hangs, or nil when ctx ends. Without this error
// the agent would keep the lock forever, and no standby could take over. The first time that the
// loop seems to hang does not count: the process may have been suspended.
func (a *Agent) untilHung(ctx context.Context) error {
	for suspected := false; ctx.Err() == nil; pause(ctx, a.hungAfter/10) {
		p := a.current.Load()
		if p == nil || p.Vitals().Still(time.Now()) <= a.hungAfter {
			suspected = false
			continue
		}
		if suspected {
			var stacks strings.Builder
			_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
			a.log.Error("a bug: the placer's loop hangs", "goroutines", stacks.String())
			return fmt.Errorf("the placer's loop has made no progress for %s, so the agent ends: a standby agent takes over, or this agent works again after a restart", a.hungAfter)
		}
		suspected = true
	}
	return nil
}

// If the agent could not write its heartbeat, hear sets Trouble or adds a warning. silent is true
// if the heartbeat has been missing for so long that commands report that no placer is active.
func hear(h *Health, silent bool, err error) {
	switch {
	case err == nil || h.Trouble != "":
	case silent:
		h.Trouble, h.LastError = "the agent cannot write its heartbeat in Nomad, so commands report that no placer is active: see the agent's log", err.Error()
	default:
		h.Warnings = append(h.Warnings, fmt.Sprintf("the agent cannot write its heartbeat; if this continues, commands report that no placer is active: %v", err))
		h.WarningCount++
	}
}

// withPlacer adds the health and the warnings of the placer.
func withPlacer(h Health, warnings []string, v heartbeat.VitalSigns, now time.Time) Health {
	h.At, h.Ready = v.LastCycle, !v.LastCycle.IsZero()
	if h.Trouble = v.Trouble(now); h.Trouble != "" {
		h.LastError = v.LastError
	}
	if again := v.Recovers(); again != "" {
		h.Warnings = append(h.Warnings, again)
	}
	h.Warnings = slices.Concat(h.Warnings, warnings)
	h.WarningCount = len(h.Warnings)
	return h
}
