// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package patience

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// after lets a wait see n beats, and returns after how many it was over, and why.
func after(s *spent, n int, m func(i int) machine, signs func(i int) string) (int, error) {
	for i := range n {
		s.moved(signs(i))
		if err := s.at(s.last.Add(beat), m(i)); err != nil {
			return i + 1, err
		}
	}
	return n, nil
}

func idle(int) machine { return machine{counted: true} }

// starvedBy is a machine on which processes wait for so much of each beat.
func starvedBy(share float64) func(int) machine {
	return func(i int) machine {
		return machine{counted: true, waited: time.Duration(float64(i+1) * share * float64(beat))}
	}
}

func quiet(int) string { return "" }

func TestWaits(t *testing.T) {
	moving := func(until int) func(int) string {
		return func(i int) string { return strings.Repeat("x", min(i, until)+1) }
	}
	for name, tc := range map[string]struct {
		machine func(int) machine
		signs   func(int) string
		beats   int // after which it is over
		why     string
	}{
		"an idle machine":              {idle, quiet, 40, "nothing moved for 10s, after 10s"},
		"a move after half the time":   {idle, moving(20), 60, "nothing moved for 10s, after 15s"},
		"something moves all the time": {idle, moving(1000), 400, "it is not there after 1m40s, though things move"},
		"half of the time is taken":    {starvedBy(0.5), quiet, 80, "nothing moved for 10s, after 20s (10s do not count, as the machine was busy)"},
		"all of it is taken":           {starvedBy(1), quiet, 400, "nothing moved for 10s, after 1m40s (1m30s do not count"},
		"twenty want two processors": {func(int) machine { return machine{runnable: 8, running: 2} }, quiet, 160,
			"nothing moved for 10s, after 40s (30s do not count"},
	} {
		s := newSpent(Limits{Still: 10 * time.Second, Longest: 100 * time.Second}, time.Unix(0, 0), machine{counted: true})
		if beats, err := after(s, 1000, tc.machine, tc.signs); beats != tc.beats || err == nil || !strings.Contains(err.Error(), tc.why) {
			t.Errorf("%s: over after %d beats: %v; want %d: %s", name, beats, err, tc.beats, tc.why)
		}
	}
}

// A process that was not run for a minute was not patient for a minute.
func TestALateBeatCountsAsOne(t *testing.T) {
	s := newSpent(Limits{Still: 10 * time.Second}, time.Unix(0, 0), machine{})
	if err := s.at(s.last.Add(time.Minute), machine{}); err != nil {
		t.Error(err)
	}
	if s.still > time.Second {
		t.Errorf("%v count", s.still)
	}
}

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits, began := Limits{Still: 5 * time.Second, Longest: time.Minute}, time.Now()
		words := func(changes time.Duration) Condition {
			return func(context.Context) (string, error) {
				return min(time.Since(began), changes).Truncate(time.Second).String(), nil
			}
		}
		err := Until(t.Context(), limits, "it is there", words(0))
		if err == nil || !strings.Contains(err.Error(), "wait until it is there: nothing moved for 5s") {
			t.Error(err)
		}
		began = time.Now()
		if err = Until(t.Context(), limits, "it is there", words(20*time.Second)); err == nil || time.Since(began) < 25*time.Second {
			t.Errorf("over after %v: %v", time.Since(began), err)
		}
		polls := 0
		_ = Until(t.Context(), Limits{Still: 20 * time.Second}, "it is there", func(context.Context) (string, error) { polls++; return "no", nil })
		if polls < 50 || polls > 200 {
			t.Errorf("%d polls in 20 s", polls)
		}
		broken := errors.New("broken")
		if err = Until(t.Context(), limits, "x", func(context.Context) (string, error) { return "", Fatal(broken) }); !errors.Is(err, broken) {
			t.Error(err)
		}
	})
}
