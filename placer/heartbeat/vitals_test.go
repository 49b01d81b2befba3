// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package heartbeat

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// TestVitals replays the reports of loops, and checks Trouble after them.
func TestVitals(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	lost, broken := errors.New("connection refused"), fmt.Errorf("%w: index out of range", ErrInvariant)
	for _, c := range []struct {
		name   string
		report func(v *Vitals)
		now    int
		want   string
	}{
		{"nothing yet", func(*Vitals) {}, 1000, ""},
		{"nothing to do for an hour", func(v *Vitals) {
			v.CycleBegan(at(0))
			v.CycleEnded(at(1))
			for s := range 3600 {
				v.LoopAlive(at(s))
			}
		}, 3601, ""},
		{"a long cycle", func(v *Vitals) { v.CycleBegan(at(0)) }, 59, ""},
		{"a cycle hangs", func(v *Vitals) { v.LoopAlive(at(0)); v.CycleBegan(at(5)) }, 85, "a cycle has not ended for 1m20s"},
		{"the loop hangs between cycles", func(v *Vitals) { v.CycleBegan(at(0)); v.CycleEnded(at(1)) }, 91, "the agent's loop has made no progress for 1m30s"},
		{"a full read is slow", func(v *Vitals) { v.LoopAlive(at(0)); v.Moved(at(70)) }, 91, "a full read of the cluster has not ended for 1m31s, because Nomad answers slowly"},
		{"a full read hangs", func(v *Vitals) { v.LoopAlive(at(0)); v.Moved(at(20)) }, 91, "the agent's loop has made no progress for 1m11s"},
		{"two restarts", func(v *Vitals) { v.Restarted(at(1), lost); v.Restarted(at(2), lost) }, 3, ""},
		{"Nomad is down", func(v *Vitals) {
			for s := range 5 {
				v.Restarted(at(15*s), lost)
			}
		}, 61, "the agent's loop had to restart 5 times in a row, most recently 1s ago, because it lost its connection to Nomad, or got no usable answer: see its log"},
		{"each first cycle panics", func(v *Vitals) {
			for s := range 3 {
				v.LoopAlive(at(20 * s))
				v.CycleBegan(at(20 * s))
				v.Panicked()
				v.Restarted(at(20*s+1), broken)
			}
		}, 42, "the agent's loop had to restart 3 times in a row, most recently 1s ago, because of a fault of its own: see its log"},
		{"each cycle fails after a minute", func(v *Vitals) {
			for s := range 3 {
				v.CycleBegan(at(70 * s))
				v.Restarted(at(70*s+60), lost)
			}
		}, 201, "the agent's loop had to restart 3 times in a row, most recently 1s ago, because it lost its connection to Nomad, or got no usable answer: see its log"},
		{"better again", func(v *Vitals) {
			for s := range 4 {
				v.Restarted(at(s), lost)
			}
			for s := range 31 {
				v.CycleBegan(at(4 + s))
				v.CycleEnded(at(4 + s))
			}
		}, 35, ""},
		{"Nomad is back", func(v *Vitals) {
			for s := range 5 {
				v.Restarted(at(15*s), lost)
			}
			v.CycleBegan(at(60))
			v.CycleEnded(at(61))
		}, 62, ""},
		{"each second cycle panics", func(v *Vitals) {
			for s := range 3 {
				v.CycleBegan(at(20 * s))
				v.CycleEnded(at(20*s + 1))
				v.Restarted(at(20*s+2), broken)
			}
			v.CycleEnded(at(43))
		}, 44, "the agent's loop had to restart 3 times in a row, most recently 2s ago, because of a fault of its own: see its log"},
		{"one restart an hour", func(v *Vitals) {
			for h := range 5 {
				v.LoopAlive(at(3600 * h))
				v.LoopAlive(at(3600*h + 3000))
				v.Restarted(at(3600*h+3001), lost)
			}
		}, 4*3600 + 3002, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var v Vitals
			c.report(&v)
			if got := v.Status().Trouble(at(c.now)); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// A placer that works again after it lost Nomad reports its recovery for a while.
func TestVitalsRecovers(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var v Vitals
	for range 10 {
		v.Restarted(now, errors.New("connection refused"))
	}
	if got := v.Status().Recovers(); got != "" {
		t.Errorf("it is in trouble: %q", got)
	}
	v.CycleEnded(now.Add(time.Second))
	if got := v.Status().Recovers(); got != "the agent's loop works again, after it had to restart 10 times in a row because it lost its connection to Nomad, or got no usable answer" {
		t.Errorf("%q", got)
	}
	v.LoopAlive(now.Add(time.Minute))
	if got := v.Status().Recovers(); got != "" {
		t.Errorf("later: %q", got)
	}
}

// Lost connections and faults are counted separately, and the age does not grow while the loop
// runs.
func TestVitalsCount(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var v Vitals
	if _, ok := v.Status().Age(now); ok {
		t.Error("a loop that has not begun has an age")
	}
	v.Panicked()
	v.Restarted(now, fmt.Errorf("%w: nil map", ErrInvariant))
	v.Restarted(now, errors.New("EOF"))
	v.CycleBegan(now)
	v.CycleEnded(now)
	v.LoopAlive(now.Add(time.Hour))
	s := v.Status()
	if s.Panics != 1 || s.Restarts != 2 || s.Lost != 1 || s.Cycles != 1 || s.LastError != "EOF" {
		t.Errorf("%+v", s)
	}
	if age, ok := s.Age(now.Add(time.Hour + time.Second)); !ok || age != time.Second {
		t.Errorf("age %s, %v", age, ok)
	}
}

// A placer rests from the end of a cycle until the next one begins.
func TestVitalsRest(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var v Vitals
	for _, c := range []struct {
		report func(time.Time)
		after  time.Duration
		want   bool
	}{
		{v.LoopAlive, time.Hour, false}, {v.CycleBegan, time.Hour, false}, {v.CycleEnded, time.Second - 1, false},
		{v.LoopAlive, time.Second, true}, {v.CycleBegan, time.Hour, false},
	} {
		if c.report(now); v.Status().RestsFor(now.Add(c.after), time.Second) != c.want {
			t.Errorf("it rests after %v: %v", c.after, !c.want)
		}
	}
}
