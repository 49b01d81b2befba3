// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomadtest

import (
	"fmt"
	"path"
	"strings"
	"time"
)

// Fault is what goes wrong with a request.
type Fault int

// The faults.
const (
	None Fault = iota
	// TooMany is answered with 429.
	TooMany
	// Failed is answered with 500, and not done.
	Failed
	// DoneButFailed is done, and answered with 500.
	DoneButFailed
	// Refused is a connection that is not made.
	Refused
	// Broken is done, and the connection breaks before the answer.
	Broken
	// Half is done, and answered with the first half of the answer.
	Half
	// Lost is not done and never answered.
	Lost
	// Unanswered is done and never answered.
	Unanswered
	// Slow is done and answered after ten seconds.
	Slow
	// SlowWrite is done, but ten seconds after Nomad has checked it.
	SlowWrite
	// LateWrite is done twenty seconds after that: longer than the placer waits for an answer.
	LateWrite
)

var faultNames = [...]string{
	None: "none", TooMany: "429", Failed: "500", DoneButFailed: "done, but 500", Refused: "refused", Broken: "broken",
	Half: "half an answer", Lost: "lost", Unanswered: "unanswered", Slow: "slow", SlowWrite: "slow write",
	LateWrite: "late write",
}

func (f Fault) String() string { return faultNames[f] }

// EveryFault are the faults that may befall a single request.
func EveryFault() (all []Fault) {
	for f := range faultNames {
		if Fault(f) != None {
			all = append(all, Fault(f))
		}
	}
	return all
}

// slowAnswerDelay is how long a slow answer takes.
const slowAnswerDelay = 10 * time.Second

// lateWriteDelay is how long a late write takes.
const lateWriteDelay = 20 * time.Second

// Request is a request as it arrives.
type Request struct {
	Client, Method, Path string
	// Query is its raw query.
	Query string
	// Job is the id of the job that is to be registered.
	Job string
	// Number counts the requests of this client with this method, path, query and job: 1,
	// 2, …
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

// Write reports whether the request is to change something.
func (r Request) Write() bool { return r.Method != "GET" }

// Match reports whether the request is one such as "PUT /v1/jobs" or
// "GET /v1/job/*".
func (r Request) Match(pattern string) bool {
	method, p, ok := strings.Cut(pattern, " ")
	if !ok {
		return false
	}
	matched, err := path.Match(p, r.Path)
	return err == nil && matched && (method == "*" || method == r.Method)
}

// rule is a fault for some requests.
type rule struct {
	client, pattern string
	fault           Fault
	times           int // -1: always
	used            int
}

// Fail has the next requests of a client ("" for any) that match fail, times
// times, -1 for always. It returns a function that ends it, and says how often
// it came to pass.
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

// FailBy has f decide for each request; nil for no faults. It must be
// deterministic; [Server.Roll] helps.
func (s *Server) FailBy(f func(Request) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faultFunc = f
}

// faultOf decides on a request.
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

// Roll is a number in [0, 1) that is the same for the same seed and request. It
// is for the function of [Server.FailBy].
func (s *Server) Roll(r Request) float64 { return s.random("fault " + r.String()).Float64() }

// Faults reports how often each fault befell a request or an event.
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
