// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/device-plugin/statedir"
	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
)

// Mode selects when the plugin measures by itself.
type Mode string

// The modes.
const (
	// Off means that the plugin never measures, and does not publish earlier results.
	Off Mode = "off"
	// Manual means that the plugin measures only on request (jobspecs/measure.nomad.hcl).
	Manual Mode = "manual"
	// Idle means that the plugin measures idle GPUs: when they first appear, and then every
	// interval.
	Idle Mode = "idle"
)

// Schedule configures when and how the plugin measures.
type Schedule struct {
	Mode     Mode
	Interval time.Duration // between sessions of one GPU
	IdleFor  time.Duration // how long a GPU must have been idle
	// Gap is the minimum time between two sessions of one GPU. Retry replaces Gap after an alarm.
	// After an interrupted session, only IdleFor counts.
	Gap, Retry time.Duration
	// Gather is the minimum idle time of a GPU whose own task requested the measurement. During
	// this time, tasks can start on the node's other GPUs, so that all GPUs are measured together.
	Gather time.Duration
	// Recheck is the minimum time between two queries to Nomad, unless all GPUs were free.
	Recheck time.Duration
	// Jitter is the maximum delay, from the plugin's start, of sessions that nobody requested. Each
	// node draws its own delay, so that the GPUs of a cluster are not measured all at once.
	Jitter time.Duration
	// StateDir keeps results across restarts; "" keeps them in memory.
	StateDir statedir.Dir
	Plan     Plan
	// Tick is the time between two checks for due GPUs.
	Tick time.Duration
	// Ask is the time between processes that test whether CUDA starts, after CUDA did not start.
	// AskUnsuspected is the time otherwise.
	Ask, AskUnsuspected time.Duration
}

// DefaultSchedule measures weekly.
func DefaultSchedule() Schedule {
	return Schedule{Mode: Idle, Interval: 168 * time.Hour, IdleFor: time.Minute, Gap: time.Hour, Retry: 10 * time.Minute,
		Gather: 10 * time.Second, Recheck: time.Minute, Plan: DefaultPlan(), Tick: 5 * time.Second, Ask: time.Minute, AskUnsuspected: time.Hour}
}

// identity holds the properties that a result depends on, besides the kernels.
type identity struct {
	Model  string `json:"model"`
	Driver string `json:"driver"`
	PowerW int64  `json:"power_limit_w,omitempty"`
	ECC    bool   `json:"ecc,omitempty"`
	VBIOS  string `json:"vbios,omitempty"`
}

func identityOf(d gpu.Device, driver string) identity {
	id := identity{Model: d.Model, Driver: driver, VBIOS: d.Chip.VBIOS}
	if d.PowerLimitW != nil {
		id.PowerW = *d.PowerLimitW
	}
	if d.ECC != nil {
		id.ECC = *d.ECC
	}
	return id
}

// record is the scheduler's knowledge about one GPU, kept across restarts.
type record struct {
	Identity identity `json:"identity"`
	// Key and Times are from the last complete session, which began at Measured.
	Key      string                   `json:"key,omitempty"`
	Times    map[pal.AppClass]float64 `json:"times,omitempty"`
	Rates    map[pal.AppClass]float64 `json:"rates,omitempty"` // in attr.RateUnit
	Measured time.Time                `json:"measured,omitzero"`
	// Provisional means that some GPUs of the node were not measured at the same time.
	Provisional bool `json:"provisional,omitempty"`
	// Uncapped means that nothing limited the clocks in class A.
	Uncapped bool `json:"uncapped,omitempty"`
	Slow     bool `json:"slow,omitempty"`
	// Corrupt means that the same work gave different results in the GPU's last session.
	Corrupt bool `json:"corrupt,omitempty"`
	// Alarm means that the latest times are far from the previous times, so another session follows
	// soon. The placer moves a GPU to another class only after two sessions.
	Alarm bool `json:"alarm,omitempty"`
	// Tried is the start of the last session that was not interrupted. Problem is the reason why that
	// session is not complete. Failures is the number of sessions in a row that failed.
	Tried    time.Time `json:"tried,omitzero"`
	Problem  string    `json:"problem,omitempty"`
	Failures int       `json:"failures,omitempty"`
	// Begun is the start of the running session, or zero.
	Begun time.Time `json:"begun,omitzero"`
	// Ticket is the ticket of the GPU's last reservation, at the time Reserved. Shown means that
	// the reservation's task has had a process. Asks means that the task has requested a
	// measurement that has not happened yet.
	Ticket   string    `json:"ticket,omitempty"`
	Reserved time.Time `json:"reserved,omitzero"`
	Shown    bool      `json:"shown,omitempty"`
	Asks     bool      `json:"asks,omitempty"`
}

// wentDown is the problem of a session during which the plugin or the machine went down. All GPUs at
// full power can overload a power supply, and a machine must not reboot again and again.
const wentDown = "the plugin or the machine went down during the measurement"

// condition is the present state of a GPU.
type condition struct {
	healthy   bool
	idleSince time.Time // zero while the GPU is in use
	asked     bool      // the GPU's own task requested a measurement
	early     bool      // the time that this node drew after the plugin's start is not over
}

// notIdleLong is the reason of a GPU that only needs to stay idle for a while.
const notIdleLong = "not idle for long enough"

// due returns the reason why a GPU's next session cannot begin now; "" if it can begin.
func (s Schedule) due(now time.Time, r record, id identity, c condition) (wait string) {
	wait = s.wanted(now, r, id, c)
	if wait != "" {
		return wait
	}
	switch {
	case c.idleSince.IsZero():
		return "in use"
	case c.asked && now.Sub(c.idleSince) >= min(s.Gather, s.IdleFor):
		return ""
	case now.Sub(c.idleSince) < s.IdleFor:
		return notIdleLong
	}
	return ""
}

// wanted returns the reason why a GPU needs no session now, even if the GPU is idle. It returns ""
// if the GPU needs a session.
func (s Schedule) wanted(now time.Time, r record, id identity, c condition) (wait string) {
	switch {
	case s.Mode == Off || s.Mode == Manual && !c.asked:
		return "not requested"
	case !c.healthy:
		return "unhealthy"
	case r.Problem == wentDown && now.Sub(r.Tried) < s.pause(r):
		return wentDown // even if asked
	case c.asked:
		return ""
	case c.early:
		return "not its node's turn"
	case !r.Measured.IsZero() && r.Problem == "" && r.Identity != id:
		return "" // the last result is out of date
	case !r.Tried.IsZero() && now.Sub(r.Tried) < s.pause(r):
		return "tried a short while ago"
	case r.Measured.IsZero() || r.Identity != id || r.Alarm:
		return ""
	case now.Sub(r.Measured) < s.Interval+spread(s.Interval/10, r.Measured.UTC().Format(time.RFC3339)):
		// Up to a tenth of the interval is added, so that the GPUs of a cluster are not measured
		// all at once.
		return "measured"
	}
	return ""
}

// early returns a schedule with a shorter interval, which applies when one GPU of a node is due.
// The node's GPUs share cooling and power, so GPUs that are due soon are measured at the same time.
func (s Schedule) early() Schedule {
	s.Interval -= s.Interval / 5
	return s
}

// pause returns the minimum time between a session and the next. The pause is longer after
// failures, up to a day, and shorter after a drift alarm.
func (s Schedule) pause(r record) time.Duration {
	switch {
	case r.Failures > 0:
		return min(24*time.Hour, s.Gap<<min(r.Failures-1, 10))
	case r.Alarm:
		return s.Retry
	default:
		return s.Gap
	}
}

// spread returns a time below span that depends only on text.
func spread(span time.Duration, text string) time.Duration {
	if span <= 0 {
		return 0
	}
	h := sha256.Sum256([]byte(text))
	return time.Duration(binary.BigEndian.Uint64(h[:8]) % uint64(span))
}

// recover records the end of a session that was running when the plugin ended. recover reports
// whether a session was running.
func (r *record) recover() bool {
	if r.Begun.IsZero() {
		return false
	}
	r.Tried, r.Begun = r.Begun, time.Time{}
	r.Problem = wentDown
	r.Failures++
	return true
}

// accept adds the outcome of a session to the record.
func (r *record) accept(res Result, id identity) {
	r.Begun = time.Time{}
	if res.Problem == interrupted { // what interrupted the session may be gone, so the next can begin at once
		r.Corrupt = r.Corrupt || res.Corrupt
		return
	}
	r.Tried = res.Started
	r.Problem = res.Problem
	r.Asks = false
	m, ok := res.Measurement()
	if res.Partial || !ok {
		r.Corrupt = r.Corrupt || res.Corrupt
		r.Failures++
		return
	}
	// The session after an alarm raises no alarm. Otherwise a GPU whose times scatter would be
	// measured all the time.
	r.Alarm = !r.Alarm && r.Identity == id && r.Key == m.Key && far(r.Times, m.Times)
	r.Identity = id
	r.Key = m.Key
	r.Times = m.Times
	r.Failures = 0
	r.Measured = res.Started
	r.Rates = res.rates()
	r.Provisional = res.Provisional()
	r.Uncapped = slices.ContainsFunc(res.Apps, func(a App) bool { return a.App == pal.ClassA && a.LimitedBy == LimitNone })
	r.Slow, r.Corrupt = slices.ContainsFunc(res.Apps, func(a App) bool { return a.Slow }), res.Corrupt
}

// farFrom is the relative change of a class's time that causes an alarm. The times of a GPU usually
// differ by at most a third of this change.
const farFrom = 0.01

// far reports whether a class's time is far from the previous time.
func far(before, now map[pal.AppClass]float64) bool {
	for class, ms := range now {
		b := before[class]
		if b > 0 && math.Abs(ms/b-1) >= farFrom {
			return true
		}
	}
	return false
}

// measurement returns a GPU's last result for publication, if the result is still valid.
func (r record) measurement(gpuID string, id identity) (attr.Measurement, bool) {
	if r.Measured.IsZero() || r.Identity != id {
		return attr.Measurement{}, false
	}
	return attr.Measurement{GPU: gpuID, Key: r.Key, Times: r.Times}, true
}
