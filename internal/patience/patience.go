// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package patience bounds the waits of tests by progress, not by the clock alone. A wait goes on
// while something moves, and longer on a machine that is busy: a test must not fail because its
// machine is slow.
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

// Limits are how long a wait goes on.
type Limits struct {
	// Still is how long nothing may move, as counted on an idle machine.
	Still time.Duration
	// Longest bounds the wait, whatever moves, as counted on an idle machine, too. Both have defaults.
	Longest time.Duration
	// Moves returns what it never returned before whenever the thing that is waited for has moved, a
	// line for each of its parts. It may be nil.
	Moves func(context.Context) string
}

// The defaults are far above what any step takes: they turn a hang into a message.
const (
	Still   = 90 * time.Second
	Longest = 5 * time.Minute
)

// byTheClock is how many times its longest a wait may go on by the clock, on whatever machine.
const byTheClock = 3

// beat is how often a wait looks at the machine.
const beat = 250 * time.Millisecond

// movesEvery is how often it asks what moves, which costs a few requests.
const movesEvery = 2 * time.Second

// slowest is the least weight of a moment on a starved machine, so that a wait for something
// that hangs ends there, too.
const slowest = 0.1

// Context returns a context that ends when the wait is over. Its cause says why.
func Context(parent context.Context, l Limits) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(parent)
	go watch(ctx, l, end)
	return ctx, func() { end(context.Canceled) }
}

// watch ends a wait that is over.
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

// moves calls the function that tells what moves. If it does not answer for a
// while, nothing moves.
func moves(ctx context.Context, ask func(context.Context) string) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return ask(ctx)
}

// spent is what a wait has used up of its limits. It reads no clock.
type spent struct {
	limits Limits
	began  time.Time
	last   time.Time
	was    machine
	sign   string          // the last one
	seen   map[string]bool // all of them: what comes and goes does not move
	news   string          // what the last move was
	still  time.Duration   // since something moved, as counted on an idle machine
	busy   time.Duration   // of the whole wait, what was not counted
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

// moved reports what the thing that is waited for shows. What cannot be read shows nothing new.
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

// at counts the time since the last call, and returns why the wait is over, if it is. A call that
// comes late counts as one on a starved machine.
func (s *spent) at(now time.Time, m machine) error {
	passed := now.Sub(s.last)
	counts := time.Duration(float64(min(passed, 2*beat)) * max(slowest, 1-starved(s.was, m, passed)))
	s.still, s.busy, s.last, s.was = s.still+counts, s.busy+passed-counts, now, m
	wait := now.Sub(s.began)
	switch {
	case s.still >= s.limits.Still:
		return fmt.Errorf("nothing moved for %v, after %v%s", s.limits.Still, wait.Round(time.Second), s.load())
	case wait-s.busy >= s.limits.Longest, wait >= byTheClock*s.limits.Longest:
		return fmt.Errorf("it is not there after %v, though things move, %q last%s", wait.Round(time.Second), s.news, s.load())
	}
	return nil
}

func (s *spent) load() string {
	if s.busy < time.Second {
		return ""
	}
	return fmt.Sprintf(" (%v do not count, as the machine was busy)", s.busy.Round(time.Second))
}

// A poll comes 25 ms after the one before at the least, which is short against anything that tests
// wait for; later where polls take long, as commands do, and in a wait that is long already: eight
// tests that wait must not keep busy the processors that they wait for.
const pollEvery, pollAtLeast = 25 * time.Millisecond, 500 * time.Millisecond

// pause is how long to wait before the next poll, given how long the last poll took and how long
// the wait may last.
func pause(took, waited time.Duration) time.Duration {
	return min(pollAtLeast, max(pollEvery, 5*took, waited/10))
}

// fatal marks an error that no waiting will cure.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// Fatal makes Poll and Until give up with err at once.
func Fatal(err error) error { return fatal{err} }

// Condition returns what is still missing, in words, and "" when it holds. An error counts as
// missing, too, as what is in motion gives many, unless it comes from Fatal.
type Condition func(context.Context) (missing string, err error)

// Poll polls a condition until it holds or ctx ends. Its error names what was waited for and the
// last word on what was missing.
func Poll(ctx context.Context, what string, condition Condition) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	last, began := "not looked at yet", time.Now()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w; last: %s", what, context.Cause(ctx), last)
		case <-timer.C:
		}
		asked := time.Now()
		missing, err := look(ctx, condition)
		switch {
		case errors.As(err, new(fatal)):
			return fmt.Errorf("wait until %s: %w", what, err)
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

// grace is how long a condition may go on after its context has ended.
const grace = 10 * time.Second

// answer is the outcome of calling a condition. A call that did not return has
// panicked or ended its goroutine, as t.Fatal does.
type answer struct {
	missing  string
	err      error
	returned bool
	panicked any
}

// look calls a condition. If the call hangs, it is abandoned when the wait
// ends.
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
			return "the last look at it does not come to an end", nil
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

// changing are the parts of a word that may change though nothing moves: times, ports, ids, files.
var changing = regexp.MustCompile(`\w*[0-9]\w*`)

// Until polls a condition until it holds, or the wait is over. A new word on what is missing is a
// move, too, unless only its numbers are new.
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

// T is the part of a test that is used here.
type T interface {
	Helper()
	Context() context.Context
	Fatal(args ...any)
}

// Eventually waits until something holds, and fails the test when it does not come.
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

// Over is closed when a test has waited for one thing for too long.
func Over(t T) <-chan struct{} {
	ctx, _ := Context(t.Context(), Limits{}) //nolint:govet // it ends with the test
	return ctx.Done()
}
