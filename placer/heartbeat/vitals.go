// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package heartbeat

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// Vitals records whether a placer's loop works. The loop reports its progress to Vitals. The
// agent's health and metrics read Vitals. Vitals is safe for concurrent use. The zero value
// describes a loop that has not started.
type Vitals struct {
	mu sync.Mutex
	s  VitalSigns
	// began is the time when the work started, either after the last restart or after the first
	// report.
	began time.Time
}

// VitalSigns is a snapshot of [Vitals].
type VitalSigns struct {
	// Alive is the time when the loop last reported that it works. The loop reports every second,
	// even when it is idle.
	Alive time.Time
	// Moved is the time when the loop last made any progress: when it reported that it works, or
	// when a request of a full read ended.
	Moved time.Time
	// Cycle is the start of the current cycle, or zero between cycles. LastCycle is the end of the
	// last completed cycle.
	Cycle, LastCycle time.Time
	// Cycles counts completed cycles.
	Cycles int
	// Restarts counts how often the loop restarted its work. Lost counts the restarts that a lost
	// connection to Nomad or a bad answer caused.
	Restarts, Lost int
	// Panics counts broken invariants.
	Panics int
	// InARow counts consecutive restarts with less than [steadyAfter] of work between them. Last is
	// the time of the last restart, and LastError its cause. LastOurs is true if the cause was a
	// broken invariant of the placer.
	InARow    int
	Last      time.Time
	LastError string
	LastOurs  bool
}

const (
	// overdueAfter is the maximum time for a cycle, a full read, or the pause between cycles. After
	// this time, the loop counts as in trouble, because it places nothing meanwhile.
	overdueAfter = time.Minute
	// HungAfter is how long the loop can go without any progress before it counts as hung. A cycle
	// takes at most 2 min, and all requests before a full read together take at most 4 min.
	HungAfter = 5 * overdueAfter
	// restartsInARow is how many consecutive restarts count as trouble. The trouble ends after
	// steadyAfter of work without a restart. If the cause was a lost connection to Nomad, one
	// complete cycle already ends the trouble. The pause before each restart grows to at most 15 s.
	restartsInARow = 3
	steadyAfter    = 30 * time.Second
)

// Moved records that the loop has made progress without a call of LoopAlive.
func (v *Vitals) Moved(now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.s.Moved = now
}

// LoopAlive reports that the loop is running.
func (v *Vitals) LoopAlive(now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.alive(now)
}

func (v *Vitals) alive(now time.Time) {
	v.s.Alive, v.s.Moved = now, now
	if v.began.IsZero() {
		v.began = now
	}
	if v.s.InARow > 0 && now.Sub(v.began) >= steadyAfter {
		v.s.InARow = 0
	}
}

// CycleBegan reports that a cycle begins.
func (v *Vitals) CycleBegan(now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.alive(now)
	v.s.Cycle = now
}

// CycleEnded reports that a cycle has completed. If a cycle fails, the loop calls Restarted
// instead.
func (v *Vitals) CycleEnded(now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.alive(now)
	v.s.Cycle, v.s.LastCycle = time.Time{}, now
	v.s.Cycles++
}

// Restarted records a restart of the work, and its cause. An [ErrInvariant] is a fault of the
// placer. All other errors come from Nomad or the network.
func (v *Vitals) Restarted(now time.Time, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.began.IsZero() && now.Sub(v.began) >= steadyAfter && v.s.Cycle.IsZero() {
		v.s.InARow = 0 // the work had continued for steadyAfter
	}
	v.s.Restarts++
	v.s.InARow++
	v.s.LastOurs = errors.Is(err, ErrInvariant)
	if !v.s.LastOurs {
		v.s.Lost++
	}
	v.s.Alive = now
	v.s.Moved = now
	v.s.Cycle = time.Time{}
	v.s.Last = now
	v.began = now
	v.s.LastError = fmt.Sprint(err)
}

// Panicked reports a broken invariant.
func (v *Vitals) Panicked() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.s.Panics++
}

// Status returns a snapshot.
func (v *Vitals) Status() VitalSigns {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.s
}

// ErrInvariant means that an invariant of the placer is broken: the placer panicked and recovered.
var ErrInvariant = errors.New("broken invariant")

// Age returns the time since the loop last reported that it works. ok is false if the loop has
// never reported.
func (s VitalSigns) Age(now time.Time) (age time.Duration, ok bool) {
	return max(0, now.Sub(s.Alive)), !s.Alive.IsZero()
}

// Still returns the time since the loop last made any progress, or 0 if the loop has not started.
func (s VitalSigns) Still(now time.Time) time.Duration {
	if s.Moved.IsZero() {
		return 0
	}
	return now.Sub(s.Moved)
}

// RestsFor reports whether the last cycle ended at least d ago and no cycle has begun since.
func (s VitalSigns) RestsFor(now time.Time, d time.Duration) bool {
	return !s.LastCycle.IsZero() && s.Cycle.IsZero() && now.Sub(s.LastCycle) >= d
}

// Trouble returns the reason why the placer does not work, or "" if it works. The text names no
// job, because anybody who may query an agent's health can read it.
func (s VitalSigns) Trouble(now time.Time) string {
	if age, ok := s.Age(now); ok && age > overdueAfter {
		if !s.Cycle.IsZero() {
			return fmt.Sprintf("a cycle has not ended for %s", now.Sub(s.Cycle).Round(time.Second))
		}
		if s.Still(now) <= overdueAfter {
			return fmt.Sprintf("a full read of the cluster has not ended for %s, because Nomad answers slowly", age.Round(time.Second))
		}
		return fmt.Sprintf("the agent's loop has made no progress for %s", s.Still(now).Round(time.Second))
	}
	if s.InARow >= restartsInARow && !s.recovers() {
		return fmt.Sprintf("the agent's loop had to restart %d times in a row, most recently %s ago, %s: see its log", s.InARow, max(0, now.Sub(s.Last)).Round(time.Second), s.why())
	}
	return ""
}

// why describes the cause of the restarts in words.
func (s VitalSigns) why() string {
	if s.LastOurs {
		return "because of a fault of its own"
	}
	return "because it lost its connection to Nomad, or got no usable answer"
}

// recovers reports whether a cycle has completed since the connection to Nomad was lost. After a
// fault of the placer, recovers returns false, because the next cycle can have the same fault.
func (s VitalSigns) recovers() bool { return !s.LastOurs && s.LastCycle.After(s.Last) }

// Recovers returns a message if the placer has just recovered from repeated restarts, and ""
// otherwise.
func (s VitalSigns) Recovers() string {
	if s.InARow < restartsInARow || !s.recovers() {
		return ""
	}
	return fmt.Sprintf("the agent's loop works again, after it had to restart %d times in a row %s", s.InARow, s.why())
}
