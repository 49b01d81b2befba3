// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package profile

import "math"

const (
	// minSigma is the smallest session-to-session standard deviation that drift detection uses.
	// Without this minimum, very stable GPUs would cause false alarms.
	minSigma = 0.0015
	// ewmaWeight and ewmaLimit are parameters of the moving average of session scores (EWMA). The
	// average raises an alarm when it exceeds 3 of its own standard deviations. EWMA detects sudden
	// changes early.
	ewmaWeight = 0.3
	ewmaLimit  = 3
	// cusumSlack and cusumLimit, in standard deviations, are parameters of the sum of all
	// deviations beyond the slack (CUSUM). The sum raises an alarm when it exceeds the limit. CUSUM
	// detects slow changes.
	cusumSlack = 0.5
	cusumLimit = 5
	// confirmations is the number of sessions after the alarm that must confirm the change. For a
	// change of at least largeStep, one session is enough.
	confirmations = 2
	largeStep     = 0.01
	// confirmSigmas is the minimum distance between the baseline and a session that confirms the
	// alarm, in standard deviations.
	confirmSigmas = 1.5
	// Degraded is the minimum relative slowdown at which a confirmed drift makes a GPU degraded.
	Degraded = 0.03
)

// Drift watches the score of one GPU and one application for changes that are more than noise.
// Start with [NewDrift], call [Drift.Observe] once per session, and store the Drift as JSON between
// sessions.
//
// Two detectors, EWMA and CUSUM, raise alarms. The next sessions confirm or clear an alarm. A
// confirmed change sets a new baseline.
type Drift struct {
	Baseline float64 `json:"baseline"` // the expected score
	Sigma    float64 `json:"sigma"`    // relative session-to-session standard deviation
	EWMA     float64 `json:"ewma"`     // moving average of relative deviations
	High     float64 `json:"high"`     // CUSUM upward, relative
	Low      float64 `json:"low"`      // CUSUM downward, relative
	// Alarm is +1 while a slowdown waits for confirmation, −1 while a speed-up does, and otherwise
	// 0. Seen is the sum of the deviations from the baseline since the alarm. Sessions is the
	// number of deviations in this sum.
	Alarm    int     `json:"alarm,omitempty"`
	Seen     float64 `json:"seen,omitempty"`
	Sessions int     `json:"sessions,omitempty"`
}

// DriftState is the state of a Drift after a session.
type DriftState string

// The states after a session.
const (
	Steady    DriftState = "steady"
	Alarmed   DriftState = "alarm"     // a change, or noise: measure again soon
	Cleared   DriftState = "cleared"   // the alarm was noise
	Confirmed DriftState = "confirmed" // the GPU's speed has changed
)

// DriftEvent is the result of one session. From and To are the baselines before and after; they
// differ only if State is Confirmed.
type DriftEvent struct {
	State    DriftState `json:"state"`
	From     float64    `json:"from"`
	To       float64    `json:"to"`
	Degraded bool       `json:"degraded,omitempty"` // confirmed, and at least [Degraded] slower
}

// NewDrift starts with this score as the baseline. The parameter sigma is the GPU's own relative
// session-to-session standard deviation, or 0 if unknown.
func NewDrift(score, sigma float64) Drift {
	return Drift{Baseline: score, Sigma: math.Max(minSigma, sigma)}
}

// Observe processes the score of the next session.
func (d *Drift) Observe(score float64) DriftEvent {
	dev := score/d.Baseline - 1
	if d.Alarm != 0 {
		return d.confirm(dev)
	}
	d.EWMA += ewmaWeight * (dev - d.EWMA)
	d.High = math.Max(0, d.High+dev-cusumSlack*d.Sigma)
	d.Low = math.Max(0, d.Low-dev-cusumSlack*d.Sigma)
	limit := ewmaLimit * d.Sigma * math.Sqrt(ewmaWeight/(2-ewmaWeight))
	switch {
	case d.EWMA > limit || d.High > cusumLimit*d.Sigma:
		d.Alarm = 1
	case d.EWMA < -limit || d.Low > cusumLimit*d.Sigma:
		d.Alarm = -1
	default:
		return DriftEvent{State: Steady, From: d.Baseline, To: d.Baseline}
	}
	d.Seen, d.Sessions = dev, 1
	return DriftEvent{State: Alarmed, From: d.Baseline, To: d.Baseline}
}

// confirm processes a session after an alarm. If a session is on the other side of the baseline, or
// too near to the baseline, confirm clears the alarm and resets both detectors.
func (d *Drift) confirm(dev float64) DriftEvent {
	from := d.Baseline
	side := float64(d.Alarm)
	if side*dev < confirmSigmas*d.Sigma {
		*d = Drift{Baseline: d.Baseline, Sigma: d.Sigma}
		return DriftEvent{State: Cleared, From: from, To: from}
	}
	d.Seen += dev
	d.Sessions++
	mean := d.Seen / float64(d.Sessions)
	need := 1 + confirmations
	if side*mean >= largeStep && side*dev >= largeStep {
		need = 2
	}
	if d.Sessions < need {
		return DriftEvent{State: Alarmed, From: from, To: from}
	}
	*d = Drift{Baseline: from * (1 + mean), Sigma: d.Sigma}
	return DriftEvent{State: Confirmed, From: from, To: d.Baseline, Degraded: mean >= Degraded}
}
