// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomadtest

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// Options configures a cluster's behaviour. Zero values mean the defaults.
type Options struct {
	// Seed determines all random choices.
	Seed uint64
	// Now is the clock of Nomad's servers; time.Now by default.
	Now func() time.Time
	// Latency is the minimum time until a request arrives. The actual time is up to twice as long,
	// at random. Default: 500 µs.
	Latency time.Duration
	// Raft is the minimum time between the check of a write and the write. The actual time is up to
	// twice as long, at random. Nomad checks a job's index before the write and not during the
	// write, so another write can happen in between. Default: 1 ms.
	Raft time.Duration
	// Scheduling is the time from an evaluation's creation to its plan. Default: 5 ms.
	Scheduling time.Duration
	// Client is how long a client takes to start a task and to report the start. Default: 200 ms.
	Client time.Duration
	// Kill is how long a task takes to end after it was asked to. Default: 300 ms.
	Kill time.Duration
	// If OneWorker is set, evaluations are processed oldest first, and blocked evaluations in the
	// order of priority, as on a server with one worker. A server with two workers has nearly the
	// same order (scenario "blocked"). If OneWorker is not set, evaluations are processed in any
	// order, as if each had its own worker.
	OneWorker bool
	// If Stepped is set, due actions run only when [Server.Step] is called.
	Stepped bool
}

func (o *Options) setDefaults() {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Latency, o.Raft = cmp.Or(o.Latency, 500*time.Microsecond), cmp.Or(o.Raft, time.Millisecond)
	o.Scheduling = cmp.Or(o.Scheduling, 5*time.Millisecond)
	o.Client, o.Kill = cmp.Or(o.Client, 200*time.Millisecond), cmp.Or(o.Kill, 300*time.Millisecond)
}

// Key identifies a job.
type Key = cluster.JobKey

// Server is a Nomad cluster with servers and clients. Its methods are safe for concurrent use.
type Server struct {
	opts Options

	mu    sync.Mutex
	index uint64
	// tables maps each table to the index of its last change.
	tables map[string]uint64
	nodes  map[string]*node
	// forgotten holds nodes that Nomad has removed but whose clients have not noticed the removal
	// yet.
	forgotten map[string]*node
	jobs      map[Key]*job
	evals     map[Key][]*api.Evaluation
	allocs    map[string]*alloc
	byJob     map[Key][]*alloc
	// preempts is set if jobs of all types may preempt other jobs.
	preempts  bool
	preempted int
	// unknown counts the members that have been unknown, and back those members of them that kept
	// running.
	unknown, back int
	// unblocked counts how often the scheduler was told to retry blocked evaluations.
	unblocked int
	// gpuUsers holds the allocations that really use a GPU, by instance id. They can differ from
	// what Nomad knows, because a client that is cut off keeps running allocations that Nomad
	// counts as lost.
	gpuUsers map[string]map[string]bool
	// uses is the utilization of GPUs in percent, by instance id (see SetUse).
	uses map[string]int64
	// progress returns the content of progress files (see SetProgress).
	progress func(k Key, ran time.Duration) string
	// purged holds the allocations of purged jobs whose tasks still run, by id.
	purged  map[string]*alloc
	vars    map[string]*variable
	streams []*stream
	refused map[string]bool // clients that receive no events, see RefuseEvents
	// namespaces are the namespaces that AddNamespace has created.
	namespaces []string
	// actions holds the scheduled actions, earliest first.
	actions []action
	timer   *time.Timer
	skew    time.Duration
	closed  bool
	// counts has a number for each name of generated things, so that random choices do not depend
	// on the order of unrelated events.
	counts     map[string]int
	faultRules []*rule
	faultFunc  func(Request) Fault
	acl        map[string]Token
	steps      int
	violations []Violation
	// disconnected holds dead API clients, whose requests do not arrive.
	disconnected map[string]bool
	observers    []Observer
	// eventFaults happen at random to each event and stream.
	eventFaults EventFaults
	was         uncommitted
	launchers   map[Key]*launcher // the launchers of periodic jobs
}

// SetPreemption enables or disables preemption of jobs with a priority lower by at least ten.
func (s *Server) SetPreemption(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.preempts = on
}

// Preempted returns how many allocations were preempted.
func (s *Server) Preempted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.preempted
}

// Unknown returns how many members have been unknown (disconnect block), and how many of these
// members kept running.
func (s *Server) Unknown() (unknown, back int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unknown, s.back
}

// New creates a cluster without nodes. Close it at the end of the test.
func New(o Options) *Server {
	o.setDefaults()
	return &Server{
		opts: o, index: 10, tables: map[string]uint64{}, nodes: map[string]*node{}, forgotten: map[string]*node{}, jobs: map[Key]*job{},
		evals: map[Key][]*api.Evaluation{}, allocs: map[string]*alloc{}, byJob: map[Key][]*alloc{},
		gpuUsers: map[string]map[string]bool{}, purged: map[string]*alloc{}, disconnected: map[string]bool{}, vars: map[string]*variable{}, counts: map[string]int{},
		launchers: map[Key]*launcher{},
	}
}

// Close ends all streams, and stops all actions.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	for _, st := range s.streams {
		st.end(errServerClosed)
	}
	s.streams = nil
}

func (s *Server) now() time.Time { return s.opts.Now().Add(s.skew) }

// StepClock sets the servers' clocks forward or back, as a person or a time server can do.
func (s *Server) StepClock(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skew += by
}

// nextIndex returns the index of the next write, and records it as the last change of these tables.
func (s *Server) nextIndex(tables ...string) uint64 {
	s.index++
	for _, t := range tables {
		s.tables[t] = s.index
	}
	return s.index
}

// count returns how often it was called with a name: 1, 2, …
func (s *Server) count(name string) int {
	s.counts[name]++
	return s.counts[name]
}

// random returns a random generator for one purpose. It depends only on the seed and the name, and
// not on anything else that happens.
func (s *Server) random(name string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name))
	return rand.New(rand.NewPCG(s.opts.Seed, h.Sum64()))
}

// jitter returns a random duration from d to 2d, which depends on the name.
func (s *Server) jitter(d time.Duration, name string) time.Duration {
	if d <= 0 {
		return 0
	}
	return d + time.Duration(s.random(name).Int64N(int64(d)))
}

// id returns a random id in Nomad's format.
func (s *Server) id(name string) string {
	r := s.random("id " + name)
	a, b := r.Uint64(), r.Uint64()
	return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", a>>32, a>>16&0xffff, a&0xffff, b>>48, b&(1<<48-1))
}

// action is a scheduled action.
type action struct {
	at  time.Time
	key string
	do  func()
}

func compareActions(a, b action) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.key, b.key)) }

// afterJitter schedules an action after a random duration from d to 2d.
func (s *Server) afterJitter(d time.Duration, name string, do func()) {
	s.after(s.jitter(d, fmt.Sprint(name, s.count("after "+name))), name, do)
}

// after schedules an action after d.
func (s *Server) after(d time.Duration, name string, do func()) {
	if s.closed {
		return
	}
	a := action{s.opts.Now().Add(d), name, do}
	i, _ := slices.BinarySearchFunc(s.actions, a, compareActions)
	s.actions = slices.Insert(s.actions, i, a)
	s.setTimer()
}

// setTimer sets the timer for the next action.
func (s *Server) setTimer() {
	if s.opts.Stepped || s.closed || len(s.actions) == 0 {
		return
	}
	d := max(0, s.actions[0].at.Sub(s.opts.Now()))
	if s.timer == nil {
		s.timer = time.AfterFunc(d, s.runDue)
	} else {
		s.timer.Reset(d)
	}
}

// runDue runs the actions that are due.
func (s *Server) runDue() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed && len(s.actions) > 0 && !s.actions[0].at.After(s.opts.Now()) {
		s.step()
	}
	s.setTimer()
}

func (s *Server) step() {
	a := s.actions[0]
	s.actions = slices.Delete(s.actions, 0, 1)
	s.steps++
	a.do()
}

// Step runs the next action, whatever the time, and returns its name. ok is false if there is no
// action.
func (s *Server) Step() (what string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.actions) == 0 {
		return "", false
	}
	what = s.actions[0].key
	s.step()
	return what, true
}

// Steps returns the number of actions and requests so far.
func (s *Server) Steps() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.steps
}

// Progress identifies the state of a cluster. Two values are equal if nothing has happened between
// them.
type Progress struct {
	steps int
	index uint64
}

// Progress returns the current progress.
func (s *Server) Progress() Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Progress{s.steps, s.index}
}

func sortedKeys(m map[Key]*job) []Key { return slices.SortedFunc(maps.Keys(m), Key.Compare) }

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
