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

// Options are how a cluster behaves. Zero values mean the defaults.
type Options struct {
	// Seed decides everything that is left to chance.
	Seed uint64
	// Now is the clock of Nomad's servers; time.Now by default.
	Now func() time.Time
	// Latency is how long a request takes to arrive at least; up to as much is
	// added by chance. 500 µs by default.
	Latency time.Duration
	// Raft is how long a write takes from its check until it is applied, at least;
	// up to as much is added by chance. Nomad checks a job's index before it
	// writes, not while it does, so that another write may come in between. 1 ms
	// by default.
	Raft time.Duration
	// Scheduling is the time from an evaluation's creation to its plan. 5 ms by
	// default.
	Scheduling time.Duration
	// Client is how long a client takes to start a task, and to tell of it. 200 ms
	// by default.
	Client time.Duration
	// Kill is how long a task takes to end after it was asked to. 300 ms by
	// default.
	Kill time.Duration
	// OneWorker: evaluations are tried oldest first, and what is blocked by priority before that, as by a
	// server with one worker (and nearly so with two: scenario "blocked"); else in any order, as if each
	// evaluation had a worker of its own.
	OneWorker bool
	// Stepped: nothing that is due happens by itself, only by [Server.Step].
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

// Key names a job.
type Key = cluster.JobKey

// Server is a Nomad cluster: servers and clients. Its methods are safe for
// concurrent use.
type Server struct {
	opts Options

	mu    sync.Mutex
	index uint64
	// tables are the indexes at which the tables changed last.
	tables map[string]uint64
	nodes  map[string]*node
	// forgotten are nodes that Nomad has forgotten and that do not know of it yet.
	forgotten map[string]*node
	jobs      map[Key]*job
	evals     map[Key][]*api.Evaluation
	allocs    map[string]*alloc
	byJob     map[Key][]*alloc
	// preempts: jobs may preempt others, whatever their type.
	preempts  bool
	preempted int
	// unknown counts the members that were on a node that was away, back those of them that ran on.
	unknown, back int
	// unblocked counts how often what is blocked was to be tried again.
	unblocked int
	// gpuUsers are the tasks that really use a GPU, by instance id: a client that
	// is cut off goes on running what Nomad counts as lost.
	gpuUsers map[string]map[string]bool
	// uses is the utilization of GPUs, by instance id, see SetUse.
	uses map[string]int64
	// progress is what first members have written of it, see SetProgress.
	progress func(k Key, ran time.Duration) string
	// purged are those of purged jobs whose tasks run still, by id.
	purged  map[string]*alloc
	vars    map[string]*variable
	streams []*stream
	refused map[string]bool // clients that get no events, see RefuseEvents
	// namespaces are those that AddNamespace made.
	namespaces []string
	// actions are the things that will happen, the next first.
	actions []action
	timer   *time.Timer
	skew    time.Duration
	closed  bool
	// counts number what is made, by what it is made for, so that chance does not
	// depend on the order in which unrelated things happen.
	counts     map[string]int
	faultRules []*rule
	faultFunc  func(Request) Fault
	acl        map[string]Token
	steps      int
	violations []Violation
	// disconnected are clients that are dead: nothing of theirs arrives.
	disconnected map[string]bool
	observers    []Observer
	// eventFaults are by chance for each event and stream.
	eventFaults EventFaults
	was         uncommitted
	launchers   map[Key]*launcher // of periodic jobs
}

// SetPreemption has jobs preempt others whose priority is lower by ten at least, or not.
func (s *Server) SetPreemption(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.preempts = on
}

// Preempted counts the allocations that were preempted.
func (s *Server) Preempted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.preempted
}

// Unknown counts the members that Nomad knew nothing of for a while (disconnect), and how many of them ran on.
func (s *Server) Unknown() (unknown, back int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unknown, s.back
}

// New makes a cluster without nodes. Close it when the test ends.
func New(o Options) *Server {
	o.setDefaults()
	return &Server{
		opts: o, index: 10, tables: map[string]uint64{}, nodes: map[string]*node{}, forgotten: map[string]*node{}, jobs: map[Key]*job{},
		evals: map[Key][]*api.Evaluation{}, allocs: map[string]*alloc{}, byJob: map[Key][]*alloc{},
		gpuUsers: map[string]map[string]bool{}, purged: map[string]*alloc{}, disconnected: map[string]bool{}, vars: map[string]*variable{}, counts: map[string]int{},
		launchers: map[Key]*launcher{},
	}
}

// Close ends all streams; nothing happens after that.
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

// StepClock moves the servers' clocks, as a person or a time server does.
func (s *Server) StepClock(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skew += by
}

// nextIndex is the index of the next write to the tables.
func (s *Server) nextIndex(tables ...string) uint64 {
	s.index++
	for _, t := range tables {
		s.tables[t] = s.index
	}
	return s.index
}

// count numbers what is made for a name: 1, 2, …
func (s *Server) count(name string) int {
	s.counts[name]++
	return s.counts[name]
}

// random is chance for one thing: the same for the same seed and name, whatever
// else happens.
func (s *Server) random(name string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name))
	return rand.New(rand.NewPCG(s.opts.Seed, h.Sum64()))
}

// jitter is d and up to as much again by chance.
func (s *Server) jitter(d time.Duration, name string) time.Duration {
	if d <= 0 {
		return 0
	}
	return d + time.Duration(s.random(name).Int64N(int64(d)))
}

// id is an id as Nomad makes them, by chance.
func (s *Server) id(name string) string {
	r := s.random("id " + name)
	a, b := r.Uint64(), r.Uint64()
	return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", a>>32, a>>16&0xffff, a&0xffff, b>>48, b&(1<<48-1))
}

// action is something that will happen.
type action struct {
	at  time.Time
	key string
	do  func()
}

func compareActions(a, b action) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.key, b.key)) }

// afterJitter has something happen after d and up to as much again by chance.
func (s *Server) afterJitter(d time.Duration, name string, do func()) {
	s.after(s.jitter(d, fmt.Sprint(name, s.count("after "+name))), name, do)
}

// after has something happen after d.
func (s *Server) after(d time.Duration, name string, do func()) {
	if s.closed {
		return
	}
	a := action{s.opts.Now().Add(d), name, do}
	i, _ := slices.BinarySearchFunc(s.actions, a, compareActions)
	s.actions = slices.Insert(s.actions, i, a)
	s.setTimer()
}

// setTimer sets the timer for what is due next.
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

// runDue does what is due.
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

// Step does what is due next, whatever the time, and says what that was; ok is
// false if nothing is.
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

// Steps counts what has happened by itself and by requests.
func (s *Server) Steps() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.steps
}

// Progress is how far a cluster is: the same for as long as nothing happens in it.
type Progress struct {
	steps int
	index uint64
}

// Progress reports how far the cluster is.
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
