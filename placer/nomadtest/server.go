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

// Options determines how a cluster behaves. The fields of Options have defaults, which apply if a
// field is zero.
type Options struct {
	// Seed determines all random choices of the cluster.
	Seed uint64
	// Now is the clock of Nomad's servers. The default is time.Now.
	Now func() time.Time
	// Latency is the minimum time that a request takes to arrive. The actual time is random, up to
	// 2*Latency. Default: 500 µs.
	Latency time.Duration
	// Raft is the minimum time between Nomad's check of a write and the write. The actual time is
	// random, up to 2*Raft. Nomad checks the index of a job before the write and not during the
	// write, so another write can come in between. Default: 1 ms.
	Raft time.Duration
	// Scheduling is the time between the creation of an evaluation and its plan. Default: 5 ms.
	Scheduling time.Duration
	// Client is the time that a client needs to start a task and to report the start. Default: 200
	// ms.
	Client time.Duration
	// Kill is the time that a task needs to end after it was asked to end. Default: 300 ms.
	Kill time.Duration
	// If OneWorker is true, evaluations are processed oldest first, and blocked evaluations in the
	// order of their priority. A server with one worker processes evaluations in the same order. A
	// server with two workers has nearly the same order (scenario "blocked"). If OneWorker is
	// false, evaluations are processed in any order, as if each evaluation had its own worker.
	OneWorker bool
	// If Stepped is true, scheduled actions run only when the test calls [Server.Step].
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

// Server simulates a Nomad cluster with servers and clients. A Server is safe for concurrent use.
type Server struct {
	opts Options

	mu    sync.Mutex
	index uint64
	// tables maps each table to the index of its last change.
	tables map[string]uint64
	nodes  map[string]*node
	// forgotten contains nodes that Nomad has deleted but whose clients have not noticed the
	// deletion yet.
	forgotten map[string]*node
	jobs      map[Key]*job
	evals     map[Key][]*api.Evaluation
	allocs    map[string]*alloc
	byJob     map[Key][]*alloc
	// preempts is true if jobs of all types may preempt other jobs.
	preempts  bool
	preempted int
	// unknown counts the members that have been unknown. back counts how many of these members kept
	// running.
	unknown, back int
	// unblocked counts how often the scheduler was told to retry blocked evaluations.
	unblocked int
	// outage returns the driver's error at the start of a job's task (see SetOutage).
	outage func(Key) string
	// gpuUsers maps the instance id of each GPU to the allocations that actually use it. Nomad's
	// view can differ, because a client without a connection keeps running allocations that Nomad
	// counts as lost.
	gpuUsers map[string]map[string]bool
	// uses maps the instance ids of GPUs to their utilization in percent (see SetUse).
	uses map[string]int64
	// purged maps ids to the allocations of purged jobs whose tasks still run.
	purged  map[string]*alloc
	vars    map[string]*variable
	streams []*stream
	refused map[string]bool // clients that receive no events, see RefuseEvents
	// namespaces contains the namespaces that AddNamespace has created.
	namespaces []string
	// actions contains the scheduled actions. The earliest action comes first.
	actions []action
	timer   *time.Timer
	skew    time.Duration
	closed  bool
	// counts contains a counter for each name of generated things. With these counters, random
	// choices do not depend on the order of unrelated events.
	counts     map[string]int
	faultRules []*rule
	faultFunc  func(Request) Fault
	acl        map[string]Token
	steps      int
	violations []Violation
	// disconnected contains API clients that were killed. The requests of killed clients do not
	// arrive.
	disconnected map[string]bool
	observers    []Observer
	// eventFaults are the faults that happen at random to events and streams.
	eventFaults EventFaults
	was         uncommitted
	launchers   map[Key]*launcher // the launchers of periodic jobs
}

// SetOutage sets what the task driver says when a task of a job starts. The task fails if the driver
// says something. The function nil ends the outage.
func (s *Server) SetOutage(says func(Key) string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outage = says
}

// SetPreemption enables or disables preemption. A job can preempt only jobs whose priority is at
// least ten lower.
func (s *Server) SetPreemption(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.preempts = on
}

// Preempted returns the number of allocations that were preempted.
func (s *Server) Preempted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.preempted
}

// Unknown returns the number of members that have been unknown because of a disconnect block.
// Unknown also returns how many of these members kept running.
func (s *Server) Unknown() (unknown, back int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unknown, s.back
}

// New creates a cluster without nodes. Call [Server.Close] at the end of the test.
func New(o Options) *Server {
	o.setDefaults()
	return &Server{
		opts: o, index: 10, tables: map[string]uint64{}, nodes: map[string]*node{}, forgotten: map[string]*node{}, jobs: map[Key]*job{},
		evals: map[Key][]*api.Evaluation{}, allocs: map[string]*alloc{}, byJob: map[Key][]*alloc{},
		gpuUsers: map[string]map[string]bool{}, purged: map[string]*alloc{}, disconnected: map[string]bool{}, vars: map[string]*variable{}, counts: map[string]int{},
		launchers: map[Key]*launcher{},
	}
}

// Close ends all streams and cancels all actions.
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

// StepClock sets the clocks of the servers forward or back, as a person or a time server can do.
func (s *Server) StepClock(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skew += by
}

// nextIndex returns the index for the next write. nextIndex records this index as the last change
// of the given tables.
func (s *Server) nextIndex(tables ...string) uint64 {
	s.index++
	for _, t := range tables {
		s.tables[t] = s.index
	}
	return s.index
}

// count returns how often it has been called with this name: 1, 2, and so on.
func (s *Server) count(name string) int {
	s.counts[name]++
	return s.counts[name]
}

// random returns a random generator for the choice with this name. The generator depends only on
// the seed and the name.
func (s *Server) random(name string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name))
	return rand.New(rand.NewPCG(s.opts.Seed, h.Sum64()))
}

// jitter returns a random duration between d and 2d. The duration depends on the name.
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

// afterJitter schedules an action after a random duration between d and 2d.
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

// Step runs the next action, even if its time has not come, and returns its name. ok is false if
// there is no action.
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

// Progress identifies the state of a cluster. Two values are equal if nothing has happened in the
// cluster between them.
type Progress struct {
	steps int
	index uint64
}

// Progress returns the present progress of the cluster.
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
