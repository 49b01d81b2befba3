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

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/heartbeat"
)

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
			h.Warnings = nil
			h.Configuration = nil
			h.LastError = ""
		}
	}
	status := http.StatusOK
	if h.Trouble != "" || h.Leader && !h.Ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, h)
}

func (a *Agent) health(now time.Time) palapi.Health {
	p := a.current.Load()
	h := palapi.Health{Leader: a.leads.Load(), Warnings: a.warnings.All(now)}
	h.WarningCount = len(h.Warnings)
	if p == nil {
		failed := a.lockError.Load()
		if failed != nil && *failed != "" {
			h.Trouble, h.LastError = "the agent cannot hold the lock in Nomad, so it cannot take over: see the agent's log", *failed
		}
		return h
	}
	var warnings []string
	last := p.Picture()
	if last != nil { // Status would wait for the placer
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
			a.log.Error("a bug: the agent's loop hangs", "goroutines", stacks.String())
			return fmt.Errorf("the agent's loop has made no progress for %s, so the agent ends: a standby agent takes over, or this agent works again after a restart", a.hungAfter)
		}
		suspected = true
	}
	return nil
}

// If the agent could not write its heartbeat, hear adds a warning. After a while, it sets Trouble:
// silent is then true, and commands report that no placer is active.
func hear(h *palapi.Health, silent bool, err error) {
	switch {
	case err == nil || h.Trouble != "":
	case silent:
		h.Trouble, h.LastError = "the agent cannot write its heartbeat in Nomad, so commands report that no agent is active: see the agent's log", err.Error()
	default:
		h.Warnings = append(h.Warnings, fmt.Sprintf("the agent cannot write its heartbeat; if this continues, commands report that no agent is active: %v", err))
		h.WarningCount++
	}
}

// withPlacer adds the health and the warnings of the placer.
func withPlacer(h palapi.Health, warnings []string, v heartbeat.VitalSigns, now time.Time) palapi.Health {
	h.At, h.Ready = v.LastCycle, !v.LastCycle.IsZero()
	h.Trouble = v.Trouble(now)
	if h.Trouble != "" {
		h.LastError = v.LastError
	}
	again := v.Recovers()
	if again != "" {
		h.Warnings = append(h.Warnings, again)
	}
	h.Warnings = slices.Concat(h.Warnings, warnings)
	h.WarningCount = len(h.Warnings)
	return h
}
