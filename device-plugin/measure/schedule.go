// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/device-plugin/statedir"
	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/profile"
)

// Mode says in which cases the plugin measures by itself.
type Mode string

// The modes.
const (
	// Off never measures, and does not publish what was measured before.
	Off Mode = "off"
	// Manual measures only what nomad-device-pal remeasure orders.
	Manual Mode = "manual"
	// Idle measures GPUs at first sight and every interval, when they are idle.
	Idle Mode = "idle"
)

// Schedule is the plugin's measure configuration.
type Schedule struct {
	Mode     Mode
	Interval time.Duration // between sessions of a GPU
	IdleFor  time.Duration // a GPU must have been idle for this long
	// Gap is the least time between two sessions of one GPU. Retry is the time
	// after a session that was interrupted or raised a drift alarm.
	Gap, Retry time.Duration
	// Gather is how long a GPU that its own task has measured is idle first: the tasks of the
	// node's other GPUs may be starting, and all are measured together.
	Gather time.Duration
	// Recheck is the least time between two questions to Nomad about a GPU.
	Recheck time.Duration
	// Jitter is a span after the plugin's start. Each node draws a time in it,
	// and unordered sessions begin only after that time. So a cluster whose
	// plugins start together is not measured all at once.
	Jitter time.Duration
	// OneByOne measures one GPU at a time; else all that are due and idle.
	OneByOne bool
	// StateDir keeps results across restarts; "" keeps them in memory.
	StateDir statedir.Dir
	Plan     Plan
	// Tick is how often the schedule is looked at.
	Tick time.Duration
	// Ask is the time between processes that ask whether CUDA starts, AskUnsuspected the same
	// unless something shows that it does not; see readiness.
	Ask, AskUnsuspected time.Duration
}

// DefaultSchedule measures weekly.
func DefaultSchedule() Schedule {
	return Schedule{Mode: Idle, Interval: 168 * time.Hour, IdleFor: time.Minute, Gap: time.Hour, Retry: 10 * time.Minute,
		Gather: 10 * time.Second, Recheck: time.Minute, Plan: DefaultPlan(), Tick: 5 * time.Second, Ask: time.Minute, AskUnsuspected: time.Hour}
}

// identity is what a result depends on beside the kernels: another driver,
// power limit, ECC mode or VBIOS makes it void.
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

// record is what is known of one GPU, kept across restarts.
type record struct {
	Identity identity `json:"identity"`
	// Key and Times are those of the last whole session; Measured its start,
	// zero for none.
	Key      string                   `json:"key,omitempty"`
	Times    map[pal.AppClass]float64 `json:"times,omitempty"`
	Rates    map[pal.AppClass]float64 `json:"rates,omitempty"` // as attr.RateUnit has them
	Measured time.Time                `json:"measured,omitzero"`
	// Provisional: GPUs of the node were not measured beside it.
	Provisional bool `json:"provisional,omitempty"`
	Slow        bool `json:"slow,omitempty"`
	// Sums are the checksums of what was computed; Wrong says that most GPUs like
	// it computed something else.
	Sums  map[pal.AppClass]string `json:"sums,omitempty"`
	Wrong string                  `json:"wrong,omitempty"`
	// Corrupt: in its last session it did not agree with itself.
	Corrupt bool `json:"corrupt,omitempty"`
	// Drift watches each class's time against its own past.
	Drift map[pal.AppClass]profile.Drift `json:"drift,omitempty"`
	Alarm bool                           `json:"alarm,omitempty"` // a drift waits for confirmation
	// Tried is the start of the last session, whole or not; Problem why it was
	// not whole; Failures how many in a row failed for reasons other than being
	// interrupted.
	Tried    time.Time `json:"tried,omitzero"`
	Problem  string    `json:"problem,omitempty"`
	Failures int       `json:"failures,omitempty"`
	// Begun is the start of the session that runs, zero for none. Downs is how many
	// in a row the plugin did not live to see the end of.
	Begun time.Time `json:"begun,omitzero"`
	Downs int       `json:"downs,omitempty"`
	// Refused: CUDA did not start for its last session, as the system was not ready.
	Refused bool `json:"refused,omitempty"`
	// Ticket belongs to the GPU's last reservation, made at Reserved. Shown: a
	// process of its task was seen. Asks: the task wants the GPU measured and
	// that has not happened yet.
	Ticket   string    `json:"ticket,omitempty"`
	Reserved time.Time `json:"reserved,omitzero"`
	Shown    bool      `json:"shown,omitempty"`
	Asks     bool      `json:"asks,omitempty"`
	// Last is the last session that nobody cut short, and LastProblem why it gave no result.
	Last        time.Time `json:"last,omitzero"`
	LastProblem string    `json:"last_problem,omitempty"`
	// Sessions are the last ones, oldest first.
	Sessions []pastSession `json:"sessions,omitempty"`
}

// pastSession is one line of a GPU's history.
type pastSession struct {
	At    time.Time                `json:"at"`
	Key   string                   `json:"key"`
	Times map[pal.AppClass]float64 `json:"times"`
}

// mostDowns is how many sessions in a row may end with a crash of the plugin or the machine. After
// that the GPU is measured only on an operator's order. All GPUs at full power may overload a power
// supply, and a machine must not reboot forever.
const mostDowns = 3

// keptSessions is the length of a GPU's history.
const keptSessions = 50

// condition is what is seen of a GPU at the moment.
type condition struct {
	healthy   bool
	idleSince time.Time // zero when in use
	ordered   bool
	asked     bool // by the task that has the GPU
	early     bool // it is not this node's turn yet after its plugin's start
	// wait: Nomad said a short while ago that an allocation has it, or did not answer.
	wait bool
}

// due is why a GPU's next session may not begin now; "" when it may.
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
		return "idle for too short"
	case c.wait:
		return "not free by Nomad's books, or not known to be"
	}
	return ""
}

// wanted is why no session of a GPU is wanted now, idle or not; "" when one is.
func (s Schedule) wanted(now time.Time, r record, id identity, c condition) (wait string) {
	switch {
	case s.Mode == Off || s.Mode == Manual && !c.ordered && !c.asked:
		return "not asked for"
	case !c.healthy:
		return "unhealthy"
	case r.Downs > 0 && now.Sub(r.Tried) < s.pause(r):
		return "the plugin or the machine went down while it was measured" // ordered or not
	case c.ordered || c.asked:
		return ""
	case r.Downs >= mostDowns:
		return "the plugin or the machine goes down when it is measured"
	case c.early:
		return "not its node's turn"
	case !r.Measured.IsZero() && r.Problem == "" && r.Identity != id && !r.often(now, s.Gap):
		return "" // the last result is out of date
	case !r.Tried.IsZero() && now.Sub(r.Tried) < s.pause(r):
		return "tried a short while ago"
	case r.Measured.IsZero() || r.Identity != id || r.Alarm:
		return ""
	case now.Sub(r.Measured) < s.Interval+spread(s.Interval/10, r.Measured.UTC().Format(time.RFC3339)):
		// A tenth of the interval: a cluster that was started at once is not measured at once.
		return "measured"
	}
	return ""
}

// often reports whether there were two sessions within a gap: a power limit that somebody
// changes all day must not have the GPU measured all day.
func (r record) often(now time.Time, gap time.Duration) bool {
	n := len(r.Sessions)
	return n > 1 && now.Sub(r.Sessions[n-2].At) < gap
}

// early are the rules once one GPU of a node is due: GPUs share the node's
// cooling and power, so those that are due before long are measured at the same
// time.
func (s Schedule) early() Schedule {
	s.Interval = s.Interval * 4 / 5
	return s
}

// pause is the least time after a session before the next: longer after
// failures, up to a day, shorter after an interruption or an alarm.
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

// spread is a time below span, always the same for a text.
func spread(span time.Duration, text string) time.Duration {
	if span <= 0 {
		return 0
	}
	h := sha256.Sum256([]byte(text))
	return time.Duration(binary.BigEndian.Uint64(h[:8]) % uint64(span))
}

// recover takes note of a session that the plugin did not live to see the end of.
// It reports whether there was one.
func (r *record) recover() bool {
	if r.Begun.IsZero() {
		return false
	}
	r.Tried, r.Begun = r.Begun, time.Time{}
	r.Problem = "the plugin or the machine went down meanwhile"
	r.Failures++
	r.Downs++
	return true
}

// notAfter is the record after the clock was set back: what it says of the future
// happened now. Else a GPU that was measured while the clock was a year ahead would
// not be measured for a year.
func (r record) notAfter(now time.Time) record {
	for _, at := range []*time.Time{&r.Tried, &r.Measured, &r.Reserved} {
		if at.After(now) {
			*at = now.UTC().Truncate(time.Second)
		}
	}
	return r
}

// accept takes the outcome of a session into the record. It returns the drift
// events, by class, that people should see.
func (r *record) accept(res Result, id identity) map[pal.AppClass]profile.DriftEvent {
	r.Tried, r.Begun = res.Started, time.Time{}
	if res.Problem != interrupted {
		r.Downs = 0
	}
	r.Problem, r.Refused = res.Problem, res.refused
	if res.Problem != interrupted {
		r.Last, r.LastProblem, r.Asks = res.Started, res.Problem, false
	}
	m, ok := res.Measurement()
	if res.Partial || !ok {
		r.Corrupt = r.Corrupt || res.Corrupt
		if res.Problem == interrupted {
			return nil
		}
		r.Failures++
		return nil
	}
	if r.Identity != id || r.Key != m.Key {
		r.Drift = nil // the key or GPU changed: not comparable
	}
	r.Identity, r.Key, r.Times, r.Measured, r.Failures = id, m.Key, m.Times, res.Started, 0
	r.Rates = res.rates()
	r.Provisional = res.Provisional()
	r.Sums = ballotOf(res).sums
	r.Slow, r.Corrupt = false, res.Corrupt
	events := map[pal.AppClass]profile.DriftEvent{}
	r.Alarm = false
	for _, a := range res.Apps {
		r.Slow = r.Slow || a.Slow
		e, known := r.observe(a)
		if known {
			events[a.App] = e
		}
		r.Alarm = r.Alarm || e.State == profile.Alarmed
	}
	r.Sessions = append(r.Sessions, pastSession{res.Started, m.Key, m.Times})
	if n := len(r.Sessions); n > keptSessions {
		r.Sessions = r.Sessions[n-keptSessions:]
	}
	return events
}

// observe puts a time to the GPU's own past; known is false for the first.
func (r *record) observe(a App) (e profile.DriftEvent, known bool) {
	d, known := r.Drift[a.App]
	if !known {
		if r.Drift == nil {
			r.Drift = map[pal.AppClass]profile.Drift{}
		}
		r.Drift[a.App] = profile.NewDrift(a.Ms, a.CI/1.96)
		return e, false
	}
	e = d.Observe(a.Ms)
	r.Drift[a.App] = d
	return e, true
}

// measurement is what is to be published of a GPU, if what was measured is
// still true of it.
func (r record) measurement(gpuID string, id identity) (attr.Measurement, bool) {
	if r.Measured.IsZero() || r.Identity != id || r.Wrong != "" {
		return attr.Measurement{}, false
	}
	return attr.Measurement{GPU: gpuID, Key: r.Key, Times: r.Times}, true
}
