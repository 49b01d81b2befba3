// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/gang"
)

// While the infrastructure fails, for example a server of artifacts or a driver, each start of a
// gang fails within seconds. So a gang waits longer after each failure ([gang.Outage]). One of the
// gangs that failed for the same cause is tried for all. The others wait until its members run, or
// until it has failed again and the next gang is due. Everything follows from the gangs' records.

// standsForAll is the longest time for which a gang that has started and whose members do not run
// yet keeps the others waiting.
const standsForAll = 10 * time.Minute

// outage describes the gangs that failed for the same cause.
type outage struct {
	waiting  []*Tracked
	failures int       // the failures in a row
	last     time.Time // the last failure
	ranSince time.Time // the last start of a gang whose members run
	tried    time.Time // the last start of a gang whose members do not run yet
	started  bool      // a gang starts in this cycle
}

// outages holds the outages by their cause.
type outages map[string]*outage

// DelayRetries keeps gangs out of the queue whose next try is not due, or that may be given up.
func DelayRetries(m *Model) {
	m.Outages = outages{}
	for _, t := range m.Sorted() {
		o := t.Outage()
		waits := t.Nomad == palapi.Waiting
		switch {
		case waits && !t.InDoubt(m.Cfg.Retries).IsZero():
			t.waitFor(t.InDoubt(m.Cfg.Retries))
		case o.Failures == 0:
		case o.Cause == "" && waits:
			t.delay(o.RetryAt(), m.Time)
		case o.Cause != "" && m.Outages[o.Cause] == nil:
			m.Outages[o.Cause] = &outage{}
			fallthrough
		case o.Cause != "":
			m.Outages[o.Cause].add(t, waits)
		}
	}
	for _, o := range m.Outages {
		o.delayAll(m.Time)
	}
}

// add adds a gang that failed for the outage's cause.
func (o *outage) add(t *Tracked, waits bool) {
	decided := t.Record.Decided
	switch {
	case waits:
		o.waiting = append(o.waiting, t)
	case !decided.After(t.Outage().Last): // the gang failed and is being stopped
	case membersRun(t):
		o.ranSince = latest(o.ranSince, decided)
	default:
		o.tried = latest(o.tried, decided)
	}
}

// membersRun reports whether the clients have started all members of a gang. The state Running is
// no proof, because members also count that are about to run.
func membersRun(t *Tracked) bool {
	for _, a := range t.Members {
		if a.Client != api.AllocClientStatusRunning && a.Client != api.AllocClientStatusComplete {
			return false
		}
	}
	return len(t.Members) > 0 && t.Have >= t.Want
}

// delayAll delays the gangs that wait. The more failures in a row, the longer they wait. The gangs
// with the fewest failures are due first, so that the gangs take turns.
func (o *outage) delayAll(now time.Time) {
	o.waiting = slices.DeleteFunc(o.waiting, func(t *Tracked) bool { return !t.Outage().Last.After(o.ranSince) })
	o.failures = 1
	fewest := 0
	for _, t := range o.waiting {
		of := t.Outage()
		o.failures += of.Failures - 1
		o.last = latest(o.last, of.Last)
		if fewest == 0 || of.Failures < fewest {
			fewest = of.Failures
		}
	}
	for _, t := range o.waiting {
		if o.tried.After(o.last) && now.Sub(o.tried) < standsForAll {
			t.waitFor(reason.Reason{Kind: reason.OneTried, Tries: t.Outage().Failures, Cause: t.Outage().Why})
			continue
		}
		due := o.last.Add(gang.RetryWait(o.failures))
		if t.Outage().Failures > fewest {
			due = due.Add(gang.RetryWait(o.failures))
		}
		t.delay(due, now)
	}
}

// delay keeps a gang out of the queue until the given time. A time that is too far away was computed
// from the clock of an earlier placer that was ahead.
func (t *Tracked) delay(until, now time.Time) {
	if now.Before(until) && until.Sub(now) <= 2*gang.RetryWait(1<<10) {
		t.waitFor(reason.Reason{Kind: reason.RetriesAt, Tries: t.Outage().Failures, Cause: t.Outage().Why, Until: until})
	}
}

func (t *Tracked) waitFor(why reason.Reason) {
	if t.After == nil && t.Refused == nil && t.GaveUp().IsZero() {
		t.After, t.Idle = &why, false
	}
}

// StandsForAll reports whether a gang may start in this cycle: at most one gang of those that failed
// for the same cause starts.
func (os outages) StandsForAll(t *Tracked) bool {
	o := os[t.Outage().Cause]
	if o == nil || !slices.Contains(o.waiting, t) {
		return true
	}
	first := !o.started
	o.started = true
	return first
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
