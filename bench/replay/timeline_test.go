// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/bench/rank"
)

// Two gangs: the first is complete after the second sample, the second never is.
func TestSample(t *testing.T) {
	t.Parallel()
	r := &Result{}
	a, b := rank.State{Job: "a", Ranks: 2, Present: 1, GPUs: 4}, rank.State{Job: "b", Ranks: 4, Present: 3, GPUs: 3}
	states := func() []rank.State { return []rank.State{a, b} }
	r.sample(states(), time.Second, time.Second)
	r.sample(states(), 2*time.Second, time.Second)
	a.Present, a.GPUs, a.Running = 2, 8, true
	r.sample(states(), 3*time.Second, time.Second)
	a.Running, a.Finished = false, true // its processes have not ended yet
	r.sample(states(), 4*time.Second, time.Second)
	want := []Moment{{time.Second, 0, 7}, {3 * time.Second, 8, 3}, {4 * time.Second, 0, 3}}
	if !cmp.Equal(r.Timeline, want) {
		t.Error(cmp.Diff(want, r.Timeline))
	}
	if r.HeldInVain != 20*time.Second || r.Deadlocked != 3*time.Second || r.HalfPlaced != 6*time.Second {
		t.Errorf("held %v GPU time, deadlocked %v, half placed %v", r.HeldInVain, r.Deadlocked, r.HalfPlaced)
	}
	r.Took = 5 * time.Second
	if got := r.HeldShare(8); got != 0.5 {
		t.Errorf("share %v of 40 GPU s, want half", got)
	}
}

func TestMomentJSON(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal([]Moment{{1250 * time.Millisecond, 3, 4}})
	if want := "[[1.25,3,4]]"; err != nil || string(text) != want {
		t.Fatalf("%s, %v; want %s", text, err, want)
	}
	var got []Moment
	if err := json.Unmarshal(text, &got); err != nil || got[0] != (Moment{1250 * time.Millisecond, 3, 4}) {
		t.Errorf("read %v, %v", got, err)
	}
	if err := json.Unmarshal([]byte(`[{"at":1}]`), &got); err == nil {
		t.Error("other JSON is read as a moment")
	}
}

// A deadlock is 30 s in which ranks hold GPUs, none runs and nothing changes.
func TestStillness(t *testing.T) {
	t.Parallel()
	waits := rank.State{Job: "a", Ranks: 2, Present: 1, GPUs: 4}
	with := func(change func(*rank.State)) rank.State {
		s := waits
		change(&s)
		return s
	}
	for _, c := range []struct {
		name string
		at   func(second int) rank.State
		want int // the second in which the run is over; 0: never
	}{
		{"waits", func(int) rank.State { return waits }, 30},
		{"runs", func(int) rank.State { return with(func(s *rank.State) { s.Running = true }) }, 0},
		{"ran first", func(i int) rank.State { return with(func(s *rank.State) { s.Running = i < 10 }) }, 40},
		{"holds nothing", func(int) rank.State { return with(func(s *rank.State) { s.GPUs, s.Present = 0, 0 }) }, 0},
		{"gives up and comes back", func(i int) rank.State { return with(func(s *rank.State) { s.Ended = i / 7 }) }, 0},
		{"has finished", func(int) rank.State { return with(func(s *rank.State) { s.Finished = true }) }, 0},
	} {
		var s stillness
		got := 0
		for i := range 100 {
			if s.over(time.Unix(int64(i), 0), []rank.State{c.at(i)}) {
				got = i
				break
			}
		}
		if got != c.want {
			t.Errorf("%s: over after %d s, want %d", c.name, got, c.want)
		}
	}
}
