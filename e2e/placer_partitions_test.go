// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/internal/long"
	"github.com/nomad-pal/nomad-pal/internal/patience"
)

// TestPlacerPartitions runs the jobs of [TestPlacerChaos] on three servers, four clients and two
// placers, each on its own host (a network namespace). Hosts are cut off from each other, both ways
// or one way, their packets are delayed or lost, clocks differ, and disks are full. Faults come in
// rounds, in which they overlap. After each round the cluster has [repairTime] to settle. The
// invariants are those of [TestPlacerChaos]; also, no task may find its GPU in use by another.
//
// PARTITIONS_FAULTS is the number of faults (default: one of each kind), PARTITIONS_JOBS that of
// jobs, PARTITIONS_SEED the seed, PARTITIONS_MINUTES the time after which no round begins,
// PARTITIONS_KEEP a folder for the logs, PARTITIONS_REPORT the page for the outcome.
func TestPlacerPartitions(t *testing.T) {
	if os.Getenv("PARTITIONS_FAULTS") == "" && !long.All() {
		t.Skip("takes minutes: make partitions, or make test-long")
	}
	if _, err := exec.LookPath("flock"); err != nil { // tasks use it to hold their GPUs
		t.Skip(err)
	}
	if long.Over() {
		t.Skip(long.NoTime)
	}
	p := newPartitions(t, uint64(number("PARTITIONS_SEED", 1)), number("PARTITIONS_FAULTS", len(partitionKinds)), number("PARTITIONS_JOBS", 40))
	defer p.report()
	defer p.watch()()
	p.play()
	p.leftovers()
	p.judgeRanks()
	for _, w := range p.observer.wrongs() {
		t.Error(w)
	}
}

// Limits of a run.
const (
	perRound = 8 // faults, which overlap
	// lostAfter is when a member of a job with a disconnect block counts as lost after its node
	// disconnects.
	lostAfter = 10 * time.Second
	// serverDisk suffices for a server's data of an hour.
	serverDisk = 256 << 20
)

// partitions is one run. Fields that other goroutines use are atomic, or have a lock.
type partitions struct {
	*chaos
	seed          uint64
	faultsToCome  int
	jobsToCome    int
	jobs, planned int
	until         time.Time // after this time no round begins
	began         time.Time
	log           *os.File
	ranks         string // the folder with a file for each GPU, which tasks lock
	deck          []string

	left    int          // faults of this round that have not begun
	nextAt  time.Time    // when the next fault begins
	active  atomic.Int32 // faults that have not ended
	hit     [3]atomic.Int32
	mended  []func() // repairs by the test's goroutine when a round's faults have ended
	settles []time.Duration
	quiet   time.Time // since when the cluster has had time to settle; zero before
	looked  time.Time // when the test last checked whether it has settled
	patient context.Context
	enough  context.CancelFunc
}

func newPartitions(t *testing.T, seed uint64, faults, jobs int) *partitions {
	t.Helper()
	b := newBed(t, placerScores, cluster.Options{HeartbeatTTL: chaosHeartbeat, Servers: 3, Apart: true, Seed: seed, ServerDisk: serverDisk, ServerHCL: chaosServer})
	p := &partitions{seed: seed, faultsToCome: faults, jobsToCome: jobs, jobs: jobs, planned: faults, began: time.Now(), ranks: filepath.Join(b.dir, "ranks")}
	p.until = p.began.Add(time.Duration(number("PARTITIONS_MINUTES", 24*60)) * time.Minute)
	if err := os.Mkdir(p.ranks, 0o755); err != nil {
		t.Fatal(err)
	}
	p.openLog(t)
	p.chaos = chaosOn(b, seed, func(k int, at *bed) {
		at.host = fmt.Sprintf("p%d", k)
		var rpc []string
		for _, s := range b.Servers() {
			rpc = append(rpc, s.RPCAddr())
		}
		at.config = fmt.Sprintf("nomad {\n  address     = %q\n  rpc_address = %q\n}\n", b.Servers()[k].HTTPAddr(), strings.Join(rpc, ",")) + chaosConfig
	})
	p.dress = p.dressed
	p.note("seed %d: %d faults, %d jobs", seed, faults, jobs)
	return p
}

func (p *partitions) openLog(t *testing.T) {
	t.Helper()
	dir := os.Getenv("PARTITIONS_KEEP")
	if dir == "" {
		return
	}
	var err error
	if p.log, err = os.Create(filepath.Join(dir, "partitions.log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.keep(dir)
		for _, a := range slices.Concat(p.Servers(), p.Clients()) {
			if err := os.WriteFile(filepath.Join(dir, a.Name+".log"), []byte(a.LogTail(1_000_000)), 0o644); err != nil {
				t.Log(err)
			}
		}
		_ = p.log.Close()
	})
}

// note logs an event with its time.
func (p *partitions) note(format string, args ...any) {
	line := fmt.Sprintf("%s %6.1f s: %s", time.Now().Format(time.TimeOnly), time.Since(p.began).Seconds(), fmt.Sprintf(format, args...))
	p.t.Log(line)
	if p.log != nil {
		fmt.Fprintln(p.log, line)
	}
}

// holdGPUs makes a task lock a file for each of its GPUs while one of its processes lives, and
// report a GPU whose file another task has locked.
const holdGPUs = `n=3; for g in $(echo "$NVIDIA_VISIBLE_DEVICES" | tr , ' '); do f=%[1]s/$g; eval "exec $n<>$f"; if flock -n $n; then echo $NOMAD_ALLOC_ID >$f; else echo "$g $NOMAD_ALLOC_ID $(cat $f)" >>%[1]s/twice; fi; n=$((n+1)); done; `

// dressed makes the tasks of a job lock their GPUs, and gives a third of the jobs a disconnect
// block.
func (p *partitions) dressed(j job) job {
	j.script = fmt.Sprintf(holdGPUs, p.ranks) + j.script
	sum := fnv.New32()
	fmt.Fprint(sum, j.id)
	if sum.Sum32()%3 > 0 {
		return j
	}
	j.groups = slices.Clone(j.groups)
	for i := range j.groups {
		j.groups[i].extra += fmt.Sprintf("\ndisconnect {\n lost_after = %q\n replace = %v\n}\n", lostAfter, sum.Sum32()%2 == 0)
	}
	return j
}

// judgeRanks checks the reports of tasks whose GPUs others held.
func (p *partitions) judgeRanks() {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(p.ranks, "twice"))
	if err != nil {
		return // no task reported one
	}
	for line := range strings.Lines(string(text)) {
		if why := p.observer.rank(strings.Fields(line)); why != "" {
			p.observer.wrong("%s", why)
		}
	}
}

// rank checks one task's report: the GPU, its own allocation, and the holder's.
func (e *observer) rank(told []string) string {
	if len(told) != 3 {
		return fmt.Sprintf("a task reported a GPU in use: %v", told)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	name := func(id string) string {
		if a := e.known[id]; a != nil {
			return fmt.Sprintf("%s (%s, %s, %s, %s)", a.Name, id[:8], a.DesiredStatus, a.ClientStatus, a.DesiredDescription)
		}
		return id
	}
	a, holder := e.known[told[1]], e.known[told[2]]
	if a != nil && holder != nil && e.bypassed(a, holder) {
		return ""
	}
	return fmt.Sprintf("a task of %s found its GPU %s in use by %s", name(told[1]), told[0], name(told[2]))
}

// play submits jobs and causes rounds of faults until all jobs have ended.
func (p *partitions) play() {
	p.t.Helper()
	p.parents()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for since := patience.Stopwatch(); p.jobsToCome > 0 || len(p.stories) > 0 || p.faultsToCome > 0 || p.inRound(); {
		<-tick.C
		if p.active.Load() > 0 || !p.quiet.IsZero() {
			p.excuse()
		}
		if p.follow() > 0 || p.active.Load() > 0 || !p.quiet.IsZero() { // settling has its own time limit
			since = patience.Stopwatch()
		}
		p.turn()
		if p.jobsToCome > 0 && len(p.stories) < openJobs && p.jobs-p.jobsToCome < p.due(perRound) {
			p.submit(p.jobs - p.jobsToCome)
			p.jobsToCome--
		}
		if since() > stalled {
			p.giveUp()
			return
		}
	}
}

// due is how many jobs should be submitted by now: in proportion to the faults so far, and some
// more, so that jobs run during all faults.
func (p *partitions) due(more int) int {
	if p.faultsToCome == 0 {
		return p.jobs
	}
	return min(p.jobs, p.jobs*(p.planned-p.faultsToCome-p.left+more)/p.planned)
}

// inRound reports whether faults have begun and the cluster has not settled since.
func (p *partitions) inRound() bool { return len(p.settles)*perRound < p.planned-p.faultsToCome }

// excuse makes the stories of dead jobs wait for their placer, which may be cut off. Jobs that may
// fail do not wait: Nomad garbage-collects them after minutes.
func (p *partitions) excuse() {
	for _, s := range p.stories {
		if !slices.Contains(s.ends, "failed") {
			s.since = time.Now()
		}
	}
}

// turn begins the next fault or the next round, or checks whether the cluster has settled after a
// round.
func (p *partitions) turn() {
	p.t.Helper()
	switch {
	case !p.quiet.IsZero():
		p.settle()
	case p.left > 0 && time.Now().After(p.nextAt):
		p.left--
		p.begin()
		p.nextAt = time.Now().Add(time.Duration(1000+p.rng.IntN(5000)) * time.Millisecond)
	case p.left > 0 || p.active.Load() > 0:
	case p.inRound():
		for _, mend := range p.mended {
			mend()
		}
		p.mended, p.quiet = nil, time.Now()
		p.patient, p.enough = patience.Context(p.t.Context(), 3*repairTime)
	case p.faultsToCome > 0 && time.Now().After(p.until):
		p.note("the time is over: %d faults and %d jobs are left out", p.faultsToCome, p.jobsToCome)
		p.planned, p.faultsToCome = p.planned-p.faultsToCome, 0
		p.jobs, p.jobsToCome = p.jobs-p.jobsToCome, 0
	case p.faultsToCome > 0 && p.jobs-p.jobsToCome >= p.due(0):
		p.left = min(perRound, p.faultsToCome)
		p.faultsToCome -= p.left
	}
}

// settle waits until the cluster has recovered after a round.
func (p *partitions) settle() {
	p.t.Helper()
	if time.Since(p.looked) < time.Second {
		return
	}
	p.looked = time.Now()
	missing := p.unsettled()
	took := time.Since(p.quiet)
	switch {
	case missing == "":
		p.note("settled after %.0f s", took.Seconds())
	case p.patient.Err() != nil:
		p.observer.wrong("not settled after %.0f s: %s", took.Seconds(), missing)
		p.note("not settled: %s", missing)
	default:
		return
	}
	p.enough()
	p.settles, p.quiet = append(p.settles, took), time.Time{}
	p.lift()
}

// unsettled says what is missing: a leader that all servers know, ready nodes, a leading placer, or
// members of a gang.
func (p *partitions) unsettled() string {
	ctx, cancel := context.WithTimeout(p.t.Context(), 5*time.Second)
	defer cancel()
	leader := ""
	for _, s := range p.Servers() {
		var now string
		if _, err := s.API().Raw().Query("/v1/status/leader", &now, (&api.QueryOptions{}).WithContext(ctx)); err != nil {
			return fmt.Sprintf("server %s: %v", s.Name, err)
		}
		if now == "" || leader != "" && now != leader {
			return fmt.Sprintf("server %s follows %q, others %q", s.Name, now, leader)
		}
		leader = now
	}
	nodes, _, err := p.API().Nodes().List((&api.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return err.Error()
	}
	for _, n := range nodes {
		if n.Status != api.NodeStatusReady {
			return fmt.Sprintf("node %s is %s", n.Name, n.Status)
		}
	}
	if p.leads() < 0 {
		return "no placer leads"
	}
	return p.observer.half(p.quiet)
}

// half names a gang that has been incomplete for longer than its start or end takes, once Nomad has
// answered after a given time.
func (e *observer) half(after time.Time) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.looked.After(after) {
		return "Nomad does not answer"
	}
	for id, since := range e.partly {
		if e.looked.Sub(since) > 6*time.Second {
			return fmt.Sprintf("gang %s has been incomplete since %s", id, since.Format(time.TimeOnly))
		}
	}
	return ""
}

// restart makes the observer count from now how long gangs are incomplete.
func (e *observer) restart() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id := range e.partly {
		e.partly[id] = time.Now()
	}
}

func pick[T any](rng *rand.Rand, all []T) T { return all[rng.IntN(len(all))] }
