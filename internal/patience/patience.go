// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package patience bounds the waits of tests by progress, not by the clock alone. A wait continues
// while something moves, up to a limit. On a busy machine all limits are longer, so that a slow
// machine makes no test fail.
package patience

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Limits bound a wait.
type Limits struct {
	// Still is the maximum time without a move. On a busy machine, time counts less.
	Still time.Duration
	// Longest is the maximum time of the whole wait, counted like Still. Still and Longest have
	// defaults.
	Longest time.Duration
	// Moves returns the state of the awaited thing, one line for each of its parts. A text that
	// Moves has not returned before is a move. Moves may be nil.
	Moves func(context.Context) string
}

// The defaults are far above the time of any step, and only turn a hang into an error message.
const (
	Still   = 90 * time.Second
	Longest = 5 * time.Minute
)

// byTheClock × Longest is the maximum wall-clock time of a wait, on any machine.
const byTheClock = 3

// beat is the time between two checks of the machine.
const beat = 250 * time.Millisecond

// movesEvery is the time between two calls of Moves, each of which costs a few requests.
const movesEvery = 2 * time.Second

// slowest is the minimum weight of time on a starved machine, so that a wait for something that
// hangs ends on any machine.
const slowest = 0.1

// Context returns a context that ends when the wait is over. The context's cause says why.
func Context(parent context.Context, l Limits) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(parent)
	go watch(ctx, l, end)
	return ctx, func() { end(context.Canceled) }
}

// watch ends a wait when its limits are reached.
func watch(ctx context.Context, l Limits, end context.CancelCauseFunc) {
	s := newSpent(l, time.Now(), readMachine())
	tick := time.NewTicker(beat)
	defer tick.Stop()
	asked := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if l.Moves != nil && time.Since(asked) >= movesEvery {
			s.moved(moves(ctx, l.Moves))
			asked = time.Now()
		}
		if err := s.at(time.Now(), readMachine()); err != nil {
			end(err)
			return
		}
	}
}

// moves calls Moves. If Moves does not answer in time, nothing has moved.
func moves(ctx context.Context, ask func(context.Context) string) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return ask(ctx)
}

// spent is the time that a wait has used. Callers pass the time; spent reads no clock.
type spent struct {
	limits Limits
	began  time.Time
	last   time.Time
	was    machine
	sign   string          // the latest state
	seen   map[string]bool // all states so far: a state that comes back is not a move
	news   string          // what was new in the last move
	still  time.Duration   // time since the last move, as counted on an idle machine
	busy   time.Duration   // time of the whole wait that did not count
}

func newSpent(l Limits, now time.Time, m machine) *spent {
	if l.Still == 0 {
		l.Still = Still
	}
	if l.Longest == 0 {
		l.Longest = Longest
	}
	return &spent{limits: l, began: now, last: now, was: m, seen: map[string]bool{}}
}

// moved records the state of the awaited thing. A state that cannot be read ("") is not a move.
func (s *spent) moved(sign string) {
	if sign == "" || s.seen[sign] {
		return
	}
	before := strings.Split(s.sign, "\n")
	s.news = strings.Join(slices.DeleteFunc(strings.Split(sign, "\n"), func(line string) bool {
		return line == "" || slices.Contains(before, line)
	}), ", ")
	s.seen[sign], s.sign, s.still = true, sign, 0
}

// at counts the time since the previous call. at returns an error when the wait is over. If a call
// comes late, the machine counts as starved.
func (s *spent) at(now time.Time, m machine) error {
	passed := now.Sub(s.last)
	counts := time.Duration(float64(min(passed, 2*beat)) * max(slowest, 1-starved(s.was, m, passed)))
	s.still, s.busy, s.last, s.was = s.still+counts, s.busy+passed-counts, now, m
	wait := now.Sub(s.began)
	switch {
	case s.still >= s.limits.Still:
		return fmt.Errorf("no progress for %v, after %v%s", s.limits.Still, wait.Round(time.Second), s.load())
	case wait-s.busy >= s.limits.Longest, wait >= byTheClock*s.limits.Longest:
		return fmt.Errorf("the condition is not met after %v, although there is still progress (last change: %q)%s", wait.Round(time.Second), s.news, s.load())
	}
	return nil
}

func (s *spent) load() string {
	if s.busy < time.Second {
		return ""
	}
	return fmt.Sprintf(" (not counting %v for which the machine was busy)", s.busy.Round(time.Second))
}

// pollEvery is the first pause between polls, and is short compared with anything that tests wait
// for. The pause grows up to pollAtLeast if polls take long, or if the wait is already long.
// Polling tests must not use up the CPUs that the awaited processes need.
const pollEvery, pollAtLeast = 25 * time.Millisecond, 500 * time.Millisecond

// pause returns how long to wait before the next poll, given how long the previous poll and the
// wait so far took.
func pause(took, waited time.Duration) time.Duration {
	return min(pollAtLeast, max(pollEvery, 5*took, waited/10))
}

// fatal marks an error that waiting cannot cure.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// Fatal makes Poll and Until return err at once.
func Fatal(err error) error { return fatal{err} }

// Condition returns what is still missing, in words, or "" when the condition holds. An error means
// that the condition does not hold yet, because systems that are starting or stopping return many
// errors. Only an error from Fatal ends the wait.
type Condition func(context.Context) (missing string, err error)

// Poll polls a condition until it holds or ctx ends. The error names what Poll waited for, and what
// was missing last.
func Poll(ctx context.Context, what string, condition Condition) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	last, began := "not looked at yet", time.Now()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w; last: %s", what, context.Cause(ctx), last)
		case <-timer.C:
		}
		asked := time.Now()
		missing, err := look(ctx, condition)
		switch {
		case errors.As(err, new(fatal)):
			return fmt.Errorf("waiting until %s: %w", what, err)
		case err != nil && ctx.Err() == nil:
			last = err.Error()
		case err == nil && missing == "":
			return nil
		case missing != "":
			last = missing
		}
		timer.Reset(pause(time.Since(asked), time.Since(began)))
	}
}

// grace is how long look waits for a condition that still runs after its context has ended.
const grace = 10 * time.Second

// answer is the result of calling a condition. If returned is false, the condition panicked or
// ended its goroutine, as t.Fatal does.
type answer struct {
	missing  string
	err      error
	returned bool
	panicked any
}

// look calls a condition. If the call hangs, look abandons it when the wait ends.
func look(ctx context.Context, condition Condition) (missing string, err error) {
	answers := make(chan answer, 1)
	go func() {
		var a answer
		defer func() {
			if !a.returned {
				a.panicked = recover()
			}
			answers <- a
		}()
		a.missing, a.err = condition(ctx)
		a.returned = true
	}()
	var a answer
	select {
	case a = <-answers:
	case <-ctx.Done():
		select {
		case a = <-answers:
		case <-time.After(grace):
			return "the check of the condition has not finished", nil
		}
	}
	if a.panicked != nil {
		panic(a.panicked)
	}
	if !a.returned {
		runtime.Goexit()
	}
	return a.missing, a.err
}

// changing matches words with digits (times, ports, ids, files), whose changes do not count as
// moves.
var changing = regexp.MustCompile(`\w*[0-9]\w*`)

// Until polls a condition until it holds, or the wait is over. If the condition reports something
// else as missing, this also counts as a move, unless only numbers differ.
func Until(parent context.Context, l Limits, what string, condition Condition) error {
	var said atomic.Pointer[string]
	said.Store(new(string))
	more := l.Moves
	l.Moves = func(ctx context.Context) string {
		sign := changing.ReplaceAllString(*said.Load(), "N") + "\n"
		if more != nil {
			sign += more(ctx)
		}
		return sign
	}
	ctx, cancel := Context(parent, l)
	defer cancel()
	return Poll(ctx, what, func(ctx context.Context) (string, error) {
		missing, err := condition(ctx)
		said.Store(&missing)
		return missing, err
	})
}

// T is the part of testing.T that this package uses.
type T interface {
	Helper()
	Context() context.Context
	Fatal(args ...any)
}

// Eventually waits until something holds, and fails the test if the wait ends first.
func Eventually(t T, what string, ok func() bool) {
	t.Helper()
	if err := Until(t.Context(), Limits{}, what, func(context.Context) (string, error) {
		if ok() {
			return "", nil
		}
		return "not yet", nil
	}); err != nil {
		t.Fatal(err)
	}
}

// Over returns a channel that closes when a test has waited too long for one thing.
func Over(t T) <-chan struct{} {
	ctx, _ := Context(t.Context(), Limits{}) //nolint:govet // it ends with the test
	return ctx.Done()
}
