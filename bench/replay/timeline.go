// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/nomad-pal/nomad-pal/bench/rank"
)

// Moment is the use of the GPUs from At until the next Moment; in JSON, [seconds, busy, held].
type Moment struct {
	At   time.Duration // since the start of the run
	Busy int           // GPUs of running gangs
	Held int           // GPUs of ranks that wait for the rest of their gang
}

// MarshalJSON implements [json.Marshaler].
func (m Moment) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "[%.2f,%d,%d]", m.At.Seconds(), m.Busy, m.Held), nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (m *Moment) UnmarshalJSON(text []byte) error {
	var v [3]float64
	if err := json.Unmarshal(text, &v); err != nil {
		return fmt.Errorf("reading moment %s: %w", text, err)
	}
	*m = Moment{time.Duration(v[0] * float64(time.Second)), int(v[1]), int(v[2])}
	return nil
}

// sample records the states at a time. d is the time since the last sample; it counts as spent in
// these states.
func (r *Result) sample(states []rank.State, at, d time.Duration) {
	half, m := 0, Moment{At: at}
	for _, s := range states {
		switch {
		case s.Finished:
		case s.Running:
			m.Busy += s.GPUs
		default:
			m.Held += s.GPUs
			if s.Present > 0 && s.Present < s.Ranks {
				half++
			}
		}
	}
	r.HalfPlaced += time.Duration(half) * d
	r.HeldInVain += time.Duration(m.Held) * d
	if half > 0 && m.Busy == 0 {
		r.Deadlocked += d
	}
	if n := len(r.Timeline); n == 0 || r.Timeline[n-1].Busy != m.Busy || r.Timeline[n-1].Held != m.Held {
		r.Timeline = append(r.Timeline, m)
	}
}

// stuckAfter is how long ranks must wait without any event before a run counts as deadlocked. Ranks
// give up sooner.
const stuckAfter = 30 * time.Second

// stillness detects deadlocks.
type stillness struct {
	since  time.Time
	before []rank.State
}

// over reports whether, for at least stuckAfter, no gang has run, nothing has changed, and some
// ranks have held GPUs.
func (s *stillness) over(now time.Time, states []rank.State) bool {
	still, held := len(s.before) == len(states), 0
	for i, g := range states {
		still = still && !g.Running && s.before[i] == g
		if !g.Finished {
			held += g.GPUs
		}
	}
	s.before = states
	if !still || held == 0 {
		s.since = now
	}
	return now.Sub(s.since) >= stuckAfter
}
