// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomadtest

import (
	"fmt"
	"path"
	"strings"
	"time"
)

// Fault is a way in which a request fails.
type Fault int

// The faults.
const (
	None Fault = iota
	// TooMany means that Nomad does not carry out the request and answers 429.
	TooMany
	// Failed means that Nomad does not carry out the request and answers 500.
	Failed
	// DoneButFailed means that Nomad carries out the request, but answers 500.
	DoneButFailed
	// Refused means that the connection is refused.
	Refused
	// Broken means that Nomad carries out the request, but the connection breaks before the answer.
	Broken
	// Half means that Nomad carries out the request, but only half of the answer arrives.
	Half
	// Lost means that Nomad neither carries out nor answers the request.
	Lost
	// Unanswered means that Nomad carries out the request, but never answers.
	Unanswered
	// Slow means that Nomad carries out the request, and answers after ten seconds.
	Slow
	// SlowWrite means that Nomad checks the request at once, but writes the change only ten seconds
	// later.
	SlowWrite
	// LateWrite means that Nomad checks the request at once, but writes the change only twenty
	// seconds later. Twenty seconds is longer than the placer waits for an answer.
	LateWrite
)

var faultNames = [...]string{
	None: "none", TooMany: "429", Failed: "500", DoneButFailed: "done, but 500", Refused: "refused", Broken: "broken",
	Half: "half an answer", Lost: "lost", Unanswered: "unanswered", Slow: "slow", SlowWrite: "slow write",
	LateWrite: "late write",
}

func (f Fault) String() string { return faultNames[f] }

// EveryFault returns all faults of a single request.
func EveryFault() (all []Fault) {
	for f := range faultNames {
		if Fault(f) != None {
			all = append(all, Fault(f))
		}
	}
	return all
}

// slowAnswerDelay is the delay of slow answers and slow writes.
const slowAnswerDelay = 10 * time.Second

// lateWriteDelay is the delay of late writes.
const lateWriteDelay = 20 * time.Second

// Request describes a request when it arrives.
type Request struct {
	Client, Method, Path string
	// Query is the raw query string of the request.
	Query string
	// Job is the id of the job that the request registers.
	Job string
	// Number counts, from 1, the requests of this client that have the same method, path, query and
	// job.
	Number int
}

func (r Request) String() string {
	about := ""
	if r.Query != "" {
		about = "?" + r.Query
	}
	if r.Job != "" {
		about += " of " + r.Job
	}
	return fmt.Sprintf("%s: %s %s%s (%d)", r.Client, r.Method, r.Path, about, r.Number)
}

// Write reports whether the request changes something.
func (r Request) Write() bool { return r.Method != "GET" }

// Match reports whether the request matches a pattern, for example "PUT /v1/jobs" or "GET
// /v1/job/*".
func (r Request) Match(pattern string) bool {
	method, p, ok := strings.Cut(pattern, " ")
	if !ok {
		return false
	}
	matched, err := path.Match(p, r.Path)
	return err == nil && matched && (method == "*" || method == r.Method)
}

// rule makes some requests fail.
type rule struct {
	client, pattern string
	fault           Fault
	times           int // how many more requests fail; -1 means all
	used            int
}

// Fail applies the fault to the next requests of a client that match the pattern. The client ""
// means any client. times is the number of requests that fail; -1 means all requests. end ends the
// rule, and returns how often the rule applied.
func (s *Server) Fail(client, pattern string, f Fault, times int) (end func() int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &rule{client: client, pattern: pattern, fault: f, times: times}
	s.faultRules = append(s.faultRules, r)
	return func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		r.times = 0
		return r.used
	}
}

// FailBy sets a function f that decides for each request whether and how it fails. A rule of
// [Server.Fail] takes precedence. If f is nil, the faults from earlier calls of FailBy end. f must
// be deterministic (see [Server.Roll]).
func (s *Server) FailBy(f func(Request) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faultFunc = f
}

// faultOf returns the fault that applies to a request.
func (s *Server) faultOf(r Request) Fault {
	for _, f := range s.faultRules {
		if f.times != 0 && (f.client == "" || f.client == r.Client) && r.Match(f.pattern) {
			f.times--
			f.used++
			s.count("fault: " + f.fault.String())
			return f.fault
		}
	}
	if s.faultFunc != nil {
		f := s.faultFunc(r)
		if f != None {
			s.count("fault: " + f.String())
		}
		return f
	}
	return None
}

// Roll returns a number in [0, 1) that depends only on the seed and the request. Roll is meant for
// the function that is passed to [Server.FailBy].
func (s *Server) Roll(r Request) float64 { return s.random("fault " + r.String()).Float64() }

// Faults returns how often each fault affected a request or an event.
func (s *Server) Faults() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]int{}
	for name, n := range s.counts {
		if fault, ok := strings.CutPrefix(name, "fault: "); ok {
			out[fault] = n
		}
	}
	return out
}
