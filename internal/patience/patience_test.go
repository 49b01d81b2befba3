// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package patience

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// after passes n beats to a wait. It returns after how many beats the wait was over, and why.
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

// starvedBy returns a machine on which processes wait for this share of each beat.
func starvedBy(share float64) func(int) machine {
	return func(i int) machine {
		return machine{counted: true, waited: time.Duration(float64(i+1) * share * float64(beat))}
	}
}

func quiet(int) string { return "" }

func TestWaits(t *testing.T) {
	turns := func(i int) string { return []string{"it is", "it is not"}[i%2] }
	moving := func(until int) func(int) string {
		return func(i int) string { return strings.Repeat("x", min(i, until)+1) }
	}
	for name, tc := range map[string]struct {
		machine func(int) machine
		signs   func(int) string
		beats   int // number of beats after which the wait is over
		why     string
	}{
		"an idle machine":              {idle, quiet, 40, "no progress for 10s, after 10s"},
		"a move after half the time":   {idle, moving(20), 60, "no progress for 10s, after 15s"},
		"something moves all the time": {idle, moving(1000), 400, `the condition is not met after 1m40s, although there is still progress (last change: "xxx`},
		"something comes and goes":     {idle, turns, 41, "no progress for 10s, after 10s"},
		"all moves, half is taken":     {starvedBy(0.5), moving(2000), 800, "the condition is not met after 3m20s"},
		"all moves, all is taken":      {starvedBy(1), moving(2000), 1200, "the condition is not met after 5m0s"},
		"half of the time is taken":    {starvedBy(0.5), quiet, 80, "no progress for 10s, after 20s (not counting 10s for which the machine was busy)"},
		"all of it is taken":           {starvedBy(1), quiet, 400, "no progress for 10s, after 1m40s (not counting 1m30s"},
		"twenty want two processors": {func(int) machine { return machine{runnable: 8, running: 2} }, quiet, 160,
			"no progress for 10s, after 40s (not counting 30s"},
	} {
		s := newSpent(Limits{Still: 10 * time.Second, Longest: 100 * time.Second}, time.Unix(0, 0), machine{counted: true})
		if beats, err := after(s, 2000, tc.machine, tc.signs); beats != tc.beats || err == nil || !strings.Contains(err.Error(), tc.why) {
			t.Errorf("%s: over after %d beats: %v; want %d: %s", name, beats, err, tc.beats, tc.why)
		}
	}
}

// A process that did not run for a minute has not waited patiently for a minute.
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
				return "it is " + strings.Repeat("nearly ", int(min(time.Since(began), changes).Seconds())), nil
			}
		}
		err := Until(t.Context(), limits, "it is there", words(0))
		if err == nil || !strings.Contains(err.Error(), "waiting until it is there: no progress for 5s") {
			t.Error(err)
		}
		began = time.Now()
		if err = Until(t.Context(), limits, "it is there", words(20*time.Second)); err == nil || time.Since(began) < 25*time.Second {
			t.Errorf("over after %v: %v", time.Since(began), err)
		}
		began = time.Now()
		if err = Until(t.Context(), limits, "it is there", func(context.Context) (string, error) {
			return fmt.Sprintf("job-%d of /tmp/%x failed after %v", time.Now().Unix(), time.Now().UnixNano(), time.Since(began)), nil
		}); time.Since(began) > 10*time.Second {
			t.Errorf("a word with new numbers is a move: over after %v: %v", time.Since(began), err)
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

// If the condition does not answer, fails the test or panics, the wait still ends.
func TestAConditionThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, stuck := time.Now(), make(chan struct{})
		err := Until(t.Context(), Limits{Still: 5 * time.Second}, "it is there", func(context.Context) (string, error) {
			<-stuck
			return "", nil
		})
		if took := time.Since(began); took > 5*time.Second+2*grace || err == nil || !strings.Contains(err.Error(), "has not finished") {
			t.Errorf("over after %v: %v", took, err)
		}
		close(stuck)
		went := func(condition Condition) (panicked any, returned bool) {
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				defer func() { panicked = recover() }()
				_ = Until(t.Context(), Limits{}, "it is there", condition)
				returned = true
			}()
			<-ended
			return panicked, returned
		}
		if p, returned := went(func(context.Context) (string, error) { runtime.Goexit(); return "", nil }); p != nil || returned {
			t.Errorf("a condition that ends its goroutine: %v, returned %v", p, returned)
		}
		if p, _ := went(func(context.Context) (string, error) { panic("lost") }); p != "lost" {
			t.Errorf("a condition that panics: %v", p)
		}
	})
}
