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

// Mode is when the plugin measures by itself.
type Mode string

// The modes.
const (
	// Off never measures, and does not publish earlier results.
	Off Mode = "off"
	// Manual measures only on request (nomad-pal measure, nomad-device-pal remeasure).
	Manual Mode = "manual"
	// Idle measures idle GPUs: when they first appear, and then every interval.
	Idle Mode = "idle"
)

// Schedule is the plugin's measure configuration.
type Schedule struct {
	Mode     Mode
	Interval time.Duration // between sessions of one GPU
	IdleFor  time.Duration // how long a GPU must have been idle
	// Gap is the minimum time between two sessions of one GPU. Retry replaces Gap after a session
	// that was interrupted, or whose times are far from those before.
	Gap, Retry time.Duration
	// Gather is how long a GPU must have been idle if its own task requested the measurement. In
	// this time, the tasks of the node's other GPUs can start, so that all are measured together.
	Gather time.Duration
	// Recheck is the minimum time between two queries to Nomad about a GPU.
	Recheck time.Duration
	// Jitter is the maximum delay after the plugin's start before sessions that nobody requested
	// begin. Each node has its own delay, so that a cluster whose plugins start together is not
	// measured all at once.
	Jitter time.Duration
	// OneByOne measures one GPU at a time, instead of all that are due and idle.
	OneByOne bool
	// StateDir keeps results across restarts; "" keeps them in memory.
	StateDir statedir.Dir
	Plan     Plan
	// Tick is how often the scheduler checks what is due.
	Tick time.Duration
	// Ask is the time between processes that test whether CUDA starts. AskUnsuspected replaces Ask
	// as long as nothing indicates that CUDA does not start; see readiness.
	Ask, AskUnsuspected time.Duration
}

// DefaultSchedule measures weekly.
func DefaultSchedule() Schedule {
	return Schedule{Mode: Idle, Interval: 168 * time.Hour, IdleFor: time.Minute, Gap: time.Hour, Retry: 10 * time.Minute,
		Gather: 10 * time.Second, Recheck: time.Minute, Plan: DefaultPlan(), Tick: 5 * time.Second, Ask: time.Minute, AskUnsuspected: time.Hour}
}

// identity is what a result depends on, apart from the kernels. A result becomes invalid if the
// driver, power limit, ECC mode or VBIOS changes.
type identity struct {
	Model  string `json:"model"`
	Driver string `json:"driver"`
	PowerW int64  `json:"power_limit_w,omitempty"`
	ECC    bool   `json:"ecc,omitempty"`
	VBIOS  string `json:"vbios,omitempty"`
}

func identityOf(d gpu.Device, driver string) identity {
	id := identity{Model: d.Model, Driver: driver, VBIOS: d.VBIOS}
	if d.PowerLimitW != nil {
		id.PowerW = *d.PowerLimitW
	}
	if d.ECC != nil {
		id.ECC = *d.ECC
	}
	return id
}

// record is what the scheduler knows about one GPU, kept across restarts.
type record struct {
	Identity identity `json:"identity"`
	// Key and Times are from the last complete session. Measured is the start of that session; zero
	// if there was none. Before is the start of the complete session before that.
	Key      string                   `json:"key,omitempty"`
	Times    map[pal.AppClass]float64 `json:"times,omitempty"`
	Rates    map[pal.AppClass]float64 `json:"rates,omitempty"` // in attr.RateUnit
	Measured time.Time                `json:"measured,omitzero"`
	Before   time.Time                `json:"before,omitzero"`
	// Provisional means that some GPUs of the node were not measured at the same time.
	Provisional bool `json:"provisional,omitempty"`
	Slow        bool `json:"slow,omitempty"`
	// Sums are the checksums of the results. Wrong is set if most GPUs like this one
	// computed other results.
	Sums  map[pal.AppClass]string `json:"sums,omitempty"`
	Wrong string                  `json:"wrong,omitempty"`
	// Corrupt means that the same work gave different results in the GPU's last session.
	Corrupt bool `json:"corrupt,omitempty"`
	// Alarm means that the last times are far from those before, so another session follows soon: a
	// session can go wrong, and the placer moves a GPU to another class only after two sessions.
	Alarm bool `json:"alarm,omitempty"`
	// Tried is the start of the last session, complete or not. Problem is why that session was
	// incomplete. Failures is how many sessions in a row failed; interrupted ones do not count.
	Tried    time.Time `json:"tried,omitzero"`
	Problem  string    `json:"problem,omitempty"`
	Failures int       `json:"failures,omitempty"`
	// Begun is the start of the running session, zero if none runs. Downs is how many
	// sessions in a row ended because the plugin or the machine went down.
	Begun time.Time `json:"begun,omitzero"`
	Downs int       `json:"downs,omitempty"`
	// Refused means that CUDA did not start in the GPU's last session because the system was not
	// ready.
	Refused bool `json:"refused,omitempty"`
	// Ticket belongs to the GPU's last reservation, made at Reserved. Shown means that a
	// process of its task was seen. Asks means that the task requested a measurement that
	// has not happened yet.
	Ticket   string    `json:"ticket,omitempty"`
	Reserved time.Time `json:"reserved,omitzero"`
	Shown    bool      `json:"shown,omitempty"`
	Asks     bool      `json:"asks,omitempty"`
	// Last is the start of the last session that was not interrupted. LastProblem is why that
	// session gave no result.
	Last        time.Time `json:"last,omitzero"`
	LastProblem string    `json:"last_problem,omitempty"`
}

// mostDowns limits the crashes of the plugin or the machine, in a row, while a GPU is measured.
// After that, the GPU is measured only if an operator or the GPU's own task requests it. All GPUs
// at full power can overload a power supply, and a machine must not reboot forever.
const mostDowns = 3

// condition is the present state of a GPU.
type condition struct {
	healthy   bool
	idleSince time.Time // zero while the GPU is in use
	ordered   bool
	asked     bool // the GPU's own task requested a measurement
	early     bool // the time that this node drew after the plugin's start is not over
	// wait means that it is too early to ask Nomad again. At the last query, an allocation held the
	// GPU, or Nomad did not answer.
	wait bool
}

// due returns why a GPU's next session cannot begin now; "" if it can.
func (s Schedule) due(now time.Time, r record, id identity, c condition) (wait string) {
	if wait := s.wanted(now, r, id, c); wait != "" {
		return wait
	}
	switch {
	case c.idleSince.IsZero():
		return "in use"
	case c.asked && now.Sub(c.idleSince) >= min(s.Gather, s.IdleFor):
		return ""
	case now.Sub(c.idleSince) < s.IdleFor:
		return "not idle for long enough"
	case c.wait:
		return "the GPU is not free according to Nomad, or Nomad did not answer"
	}
	return ""
}

// wanted returns why a GPU needs no session now, whether the GPU is idle or not. It returns "" if
// the GPU needs a session.
func (s Schedule) wanted(now time.Time, r record, id identity, c condition) (wait string) {
	switch {
	case s.Mode == Off || s.Mode == Manual && !c.ordered && !c.asked:
		return "not requested"
	case !c.healthy:
		return "unhealthy"
	case r.Downs > 0 && now.Sub(r.Tried) < s.pause(r):
		return "the plugin or the machine went down while the GPU was measured" // even if ordered
	case c.ordered || c.asked:
		return ""
	case r.Downs >= mostDowns:
		return "the plugin or the machine goes down when the GPU is measured"
	case c.early:
		return "not its node's turn"
	case !r.Measured.IsZero() && r.Problem == "" && r.Identity != id && !r.often(now, s.Gap):
		return "" // the last result is out of date
	case !r.Tried.IsZero() && now.Sub(r.Tried) < s.pause(r):
		return "tried a short while ago"
	case r.Measured.IsZero() || r.Identity != id || r.Alarm:
		return ""
	case now.Sub(r.Measured) < s.Interval+spread(s.Interval/10, r.Measured.UTC().Format(time.RFC3339)):
		// Up to a tenth of the interval is added, so that a cluster that started at once is
		// not measured at once.
		return "measured"
	}
	return ""
}

// often reports whether there were two sessions within a gap. If somebody changes the power
// limit all day, the GPU must not be measured all day.
func (r record) often(now time.Time, gap time.Duration) bool {
	return !r.Before.IsZero() && now.Sub(r.Before) < gap
}

// early returns the rules that apply when one GPU of a node is due. The node's GPUs share cooling
// and power, so GPUs that are due soon are measured at the same time.
func (s Schedule) early() Schedule {
	s.Interval -= s.Interval / 5
	return s
}

// pause returns the minimum time between a session and the next. It is longer after failures, up to
// a day, and shorter after an interruption or an alarm.
func (s Schedule) pause(r record) time.Duration {
	switch {
	case r.Failures > 0:
		return min(24*time.Hour, s.Gap<<min(r.Failures-1, 10))
	case r.Problem != "" || r.Alarm:
		return s.Retry
	default:
		return s.Gap
	}
}

// spread returns a time below span that depends only on the text.
func spread(span time.Duration, text string) time.Duration {
	if span <= 0 {
		return 0
	}
	h := sha256.Sum256([]byte(text))
	return time.Duration(binary.BigEndian.Uint64(h[:8]) % uint64(span))
}

// recover records the end of a session that was running when the plugin ended. It reports whether
// there was such a session.
func (r *record) recover() bool {
	if r.Begun.IsZero() {
		return false
	}
	r.Tried, r.Begun = r.Begun, time.Time{}
	r.Problem = "the plugin or the machine went down during the measurement"
	r.Failures++
	r.Downs++
	return true
}

// notAfter corrects the record after the clock was set back: times in the future become
// now. Otherwise a GPU that was measured while the clock was a year ahead would not be
// measured for a year.
func (r record) notAfter(now time.Time) record {
	for _, at := range []*time.Time{&r.Tried, &r.Measured, &r.Before, &r.Reserved} {
		if at.After(now) {
			*at = now.UTC().Truncate(time.Second)
		}
	}
	return r
}

// accept adds the outcome of a session to the record.
func (r *record) accept(res Result, id identity) {
	r.Tried, r.Begun = res.Started, time.Time{}
	r.Problem, r.Refused = res.Problem, res.refused
	if res.Problem != interrupted {
		r.Downs = 0
		r.Last, r.LastProblem, r.Asks = res.Started, res.Problem, false
	}
	m, ok := res.Measurement()
	if res.Partial || !ok {
		r.Corrupt = r.Corrupt || res.Corrupt
		if res.Problem != interrupted {
			r.Failures++
		}
		return
	}
	// After an alarm, the next times count, however far they are. Otherwise a GPU whose times
	// scatter would be measured all the time.
	r.Alarm = !r.Alarm && r.Identity == id && r.Key == m.Key && far(r.Times, m.Times)
	r.Identity, r.Key, r.Times, r.Failures = id, m.Key, m.Times, 0
	r.Before, r.Measured = r.Measured, res.Started
	r.Rates = res.rates()
	r.Provisional = res.Provisional()
	r.Sums = ballotOf(res).sums
	r.Slow, r.Corrupt = slices.ContainsFunc(res.Apps, func(a App) bool { return a.Slow }), res.Corrupt
}

// farFrom is the relative change of a class's time after which another session follows soon. Times
// of one GPU usually repeat within a third of it.
const farFrom = 0.01

// far reports whether a class's time is far from its time before.
func far(before, now map[pal.AppClass]float64) bool {
	for class, ms := range now {
		if b := before[class]; b > 0 && math.Abs(ms/b-1) >= farFrom {
			return true
		}
	}
	return false
}

// measurement returns what to publish for a GPU, if its last result is still valid.
func (r record) measurement(gpuID string, id identity) (attr.Measurement, bool) {
	if r.Measured.IsZero() || r.Identity != id || r.Wrong != "" {
		return attr.Measurement{}, false
	}
	return attr.Measurement{GPU: gpuID, Key: r.Key, Times: r.Times}, true
}
