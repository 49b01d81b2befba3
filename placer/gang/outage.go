// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"time"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/failure"
)

const (
	// firstRetry is the wait after a gang's first failure. The wait doubles after each further
	// failure, up to slowestRetry.
	firstRetry   = 5 * time.Second
	slowestRetry = 10 * time.Minute
	// The placer gives up on a gang after more than maxInfraFailures failures of the infrastructure,
	// but not within giveUpAfter of the first: an outage of minutes delays jobs and ends none. The
	// count starts over once the gang has run for steadyAfter.
	maxInfraFailures = 5
	giveUpAfter      = time.Hour
	steadyAfter      = time.Hour
)

// Outage describes a gang's last failures that the infrastructure caused. The zero value means that
// there was no such failure, or that the gang has run for steadyAfter since.
type Outage struct {
	Failures int       `json:"failures,omitempty"`
	Since    time.Time `json:"since,omitzero"` // the first failure
	Last     time.Time `json:"last,omitzero"`  // the last failure
	// Cause is equal for all gangs that failed for the same cause. Cause is "" if the placer avoids
	// the cause when it chooses other GPUs ([failure.SharedCause]).
	Cause string `json:"cause,omitempty"`
	// Why is the message of the last failure.
	Why string `json:"why,omitempty"`
}

// after returns the outage with one more failure.
func (o Outage) after(f *palapi.Failure, now time.Time) Outage {
	if o.Failures == 0 {
		o.Since = now
	}
	o.Failures++
	o.Last = now
	o.Cause = failure.SharedCause(f)
	o.Why = f.Reason
	return o
}

// hopeless reports whether the placer gives up after the outage's last failure.
func (o Outage) hopeless() bool {
	return o.Failures > maxInfraFailures && o.Last.Sub(o.Since) >= giveUpAfter
}

// RetryAt returns the time before which the gang does not start again, if no other gang failed for
// the same cause. After a failure that the placer avoids on other GPUs, the first retry is due at
// once.
func (o Outage) RetryAt() time.Time {
	n := o.Failures
	if o.Cause == "" {
		n--
	}
	return o.Last.Add(RetryWait(n))
}

// RetryWait returns the wait after the n-th failure in a row.
func RetryWait(n int) time.Duration {
	if n <= 0 {
		return 0
	}
	return min(firstRetry<<min(n-1, 10), slowestRetry)
}

// Outage returns the outage because of which a waiting gang may have to wait, or the zero value.
// After an edit of the gang, which may have removed the cause, the gang does not wait.
func (g *known) Outage() Outage {
	if g.Record == nil || len(g.Pins.Groups) == 0 {
		return Outage{}
	}
	return g.Record.Outage
}

// countOutage records a failure that the infrastructure caused.
func (g *memory) countOutage(r *Record, f *palapi.Failure, w World) []Effect {
	if g.ranFor(steadyAfter, f.At) {
		r.Outage = Outage{}
	}
	r.Outage = r.Outage.after(f, w.Now())
	if !r.Outage.hopeless() {
		return nil
	}
	g.giveUp(r, reason.Reason{Kind: reason.LostTooOften, Tries: r.Outage.Failures, Cause: f.Reason})
	return []Effect{g.log(Warn, "giving up", "reason", r.GivenUp)}
}
