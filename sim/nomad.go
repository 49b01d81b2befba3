// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package sim

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// Nomad is a run under plain Nomad, without a placer. Nomad places every allocation as soon as it
// fits, on a random GPU of the node with the best score. The score depends on CPU and memory only,
// not on GPUs. Allocations that do not fit stay in a blocked evaluation. When GPUs come free, Nomad
// tries all blocked evaluations, oldest first, and reserves nothing for allocations that do not fit
// (seen on 1.11.3). A gang starts to work when all its allocations run; until then, its running
// allocations hold their GPUs.
type Nomad struct {
	Jobs    []trace.Job
	Cluster *pal.Cluster
	// Spread selects Nomad's spread algorithm instead of bin packing.
	Spread bool
	// RendezvousS is how long an incomplete gang holds its GPUs before its program gives up and all
	// its allocations start again; 0 means forever.
	RendezvousS float64
	// StartS is how long a complete gang holds its GPUs before it works.
	StartS float64
	Seed   uint64
}

// nomadCandidates is how many feasible nodes Nomad compares for an allocation
// of a batch job (scheduler: limit iterator, batch).
const nomadCandidates = 2

// nomadJob is the simulated state of one job.
type nomadJob struct {
	gang    pal.Gang
	count   int // number of its allocations
	members []pal.Member
	round   int // number of times that the job gave up
	first   time.Duration
	finish  time.Duration
	done    bool
	tier    pal.Tier
	model   string
	cost    float64
}

type nomadEngine struct {
	Nomad
	rand     *rand.Rand
	jobs     []nomadJob
	blocked  []int
	used     []int // GPUs in use per device group
	withFree []int // by number of GPUs: how many device groups have this number of free GPUs
	events   events
	now      time.Duration
	finished int
	use      usage
	ranS     float64 // GPU seconds for which complete gangs worked
	running  int     // number of complete gangs
	err      error   // see endOf
	givenUp  int     // number of times that gangs gave up since a gang last began or ended
}

// Run simulates until every job has finished, or until all remaining jobs are deadlocked.
// Outcome.Stuck counts the jobs that never finish because of a deadlock.
func (n Nomad) Run() (Outcome, error) {
	e := newNomadEngine(n)
	for _, j := range n.Jobs {
		if j.GPUs > n.Cluster.NumGPUs() {
			return Outcome{}, fmt.Errorf("job %q needs %d GPUs, but the cluster has %d", j.ID, j.GPUs, n.Cluster.NumGPUs())
		}
		e.jobs = append(e.jobs, newNomadJob(j))
	}
	next := 0
	for e.finished < len(e.jobs) && e.err == nil {
		at, ok := e.events.nextAt()
		if next < len(e.jobs) {
			t := seconds(n.Jobs[next].SubmitS)
			if !ok || t <= at {
				e.step(t)
				e.use.wait(1)
				e.evaluate(next)
				next++
				continue
			}
		}
		if !ok {
			break
		}
		if e.running == 0 && next == len(e.jobs) && e.givenUp > hopeless {
			break
		}
		e.step(at)
		ev, _ := e.events.popUntil(at)
		e.happen(ev)
	}
	if e.err != nil {
		return Outcome{}, e.err
	}
	return e.outcome(), nil
}

// hopeless limits how often gangs give up in a row while no gang runs and none arrives. After that,
// the waiting gangs count as stuck: each takes GPUs that another gang freed, and none ever has
// enough.
const hopeless = 10_000

func newNomadEngine(n Nomad) *nomadEngine {
	e := &nomadEngine{Nomad: n, rand: rand.New(rand.NewPCG(n.Seed, 0x40ad)), used: make([]int, n.Cluster.Groups()),
		use: newUsage(n.Cluster.NumGPUs())}
	for g := range e.used {
		_, gpus := n.Cluster.GroupGPUs(g)
		for len(e.withFree) <= gpus {
			e.withFree = append(e.withFree, 0)
		}
		e.withFree[gpus]++
	}
	return e
}

func newNomadJob(t trace.Job) nomadJob {
	j := nomadJob{gang: GangOf(t), first: -1, finish: -1}
	for _, s := range j.gang.MemberSets {
		j.count += s.Members
	}
	return j
}

func (e *nomadEngine) step(at time.Duration) {
	e.use.add(e.now, at)
	e.now = at
}

// happen processes an event. ev.round is -1 for the end of a job, and the number of the attempt for a
// rendezvous timeout.
func (e *nomadEngine) happen(ev event) {
	j := &e.jobs[ev.job]
	switch {
	case ev.round < 0:
		j.done, j.finish = true, e.now
		e.finished++
		e.running--
		e.givenUp = 0
		work := e.Jobs[ev.job].WorkS()
		e.use.work(j.gang.GPUs(), work)
		e.ranS += work * j.cost * float64(j.gang.GPUs())
		e.free(j)
		e.unblock(-1)
	case ev.round == j.round && !e.complete(j) && len(j.members) > 0:
		e.free(j)
		e.givenUp++
		j.round++
		e.unblock(ev.job)
	}
}

func (e *nomadEngine) complete(j *nomadJob) bool { return len(j.members) == j.count }

// placed counts the allocations of a task group.
func (j *nomadJob) placed(set int) int {
	n := 0
	for _, m := range j.members {
		if m.MemberSet == set {
			n++
		}
	}
	return n
}

func (e *nomadEngine) free(j *nomadJob) {
	for _, m := range j.members {
		for _, u := range m.GPUs {
			e.Cluster.SetTaken(u, false)
		}
		e.occupy(m.Group, -len(m.GPUs))
	}
	j.members = nil
}

// occupy records that GPUs of a device group are taken or, if gpus is negative, freed.
func (e *nomadEngine) occupy(g, gpus int) {
	_, n := e.Cluster.GroupGPUs(g)
	e.withFree[n-e.used[g]]--
	e.used[g] += gpus
	e.withFree[n-e.used[g]]++
	e.use.hold(gpus)
}

// anyHas reports whether any node has at least this number of free GPUs.
func (e *nomadEngine) anyHas(gpus int) bool {
	return gpus < len(e.withFree) && slices.ContainsFunc(e.withFree[gpus:], func(groups int) bool { return groups > 0 })
}

// unblock tries every blocked evaluation, oldest first. If `again` is not -1, the evaluation of
// that job comes last. unblock stops when no GPU is free. evaluate appends jobs that block again to
// e.blocked, which reuses the slice.
func (e *nomadEngine) unblock(again int) {
	waiting := e.blocked
	i := slices.Index(waiting, again)
	if i >= 0 {
		waiting = append(slices.Delete(waiting, i, i+1), again)
	}
	e.blocked = waiting[:0]
	for n, i := range waiting {
		if !e.anyHas(1) {
			e.blocked = append(e.blocked, waiting[n:]...)
			break
		}
		e.evaluate(i)
	}
}

// evaluate places the allocations of a job that fit. If some do not fit, the job's evaluation is
// blocked.
func (e *nomadEngine) evaluate(i int) {
	j := &e.jobs[i]
	before := len(j.members)
	var nodes *nodeOrder
	for set, s := range j.gang.MemberSets {
		for n := j.placed(set); n < s.Members && e.anyHas(s.GPUs); n++ {
			if nodes == nil {
				nodes = &nodeOrder{order: e.rand.Perm(e.Cluster.Groups())}
			}
			e.place(j, set, e.bestNode(j, set, nodes))
		}
	}
	if e.complete(j) {
		e.begin(i)
		return
	}
	e.blocked = append(e.blocked, i)
	if before == 0 && len(j.members) > 0 && e.RendezvousS > 0 {
		e.events.push(event{at: e.now + seconds(e.RendezvousS), job: i, round: j.round})
	}
}

func (e *nomadEngine) begin(i int) {
	j := &e.jobs[i]
	p := pal.Predict(e.Cluster, j.gang, j.members)
	j.first = e.now
	j.tier, j.model = p.Tier, p.Model
	j.cost = p.Cost()
	e.running++
	e.givenUp = 0
	e.use.wait(-1)
	at, err := endOf(e.now, e.StartS+e.Jobs[i].WorkS()*j.cost, e.Jobs[i].ID)
	e.err = cmp.Or(e.err, err)
	e.events.push(event{at: at, job: i, round: -1})
}

// nodeOrder is an evaluation's random order of nodes. Each search continues where the search for
// the previous allocation stopped (scheduler: StaticIterator).
type nodeOrder struct {
	order  []int
	offset int
}

// nomadSkips is the maximum number of nodes with a score of at most 0 that Nomad sets aside while
// it looks for better nodes (scheduler: LimitIterator).
const nomadSkips = 3

// bestNode returns the best of the first feasible nodes; on ties, the first one. The caller ensures
// that there is a feasible node.
func (e *nomadEngine) bestNode(j *nomadJob, set int, nodes *nodeOrder) int {
	want := j.gang.MemberSets[set].GPUs
	var looked, skipped []int
	for n := len(nodes.order); n > 0 && len(looked) < nomadCandidates; n-- {
		g := nodes.order[nodes.offset%len(nodes.order)]
		nodes.offset++
		_, gpus := e.Cluster.GroupGPUs(g)
		if e.used[g]+want > gpus {
			continue
		}
		if len(skipped) < nomadSkips && e.score(j, set, g) <= 0 {
			skipped = append(skipped, g)
			continue
		}
		looked = append(looked, g)
	}
	for len(looked) < nomadCandidates && len(skipped) > 0 {
		looked, skipped = append(looked, skipped[0]), skipped[1:]
	}
	best, bestScore := -1, math.Inf(-1)
	for _, g := range looked {
		s := e.score(j, set, g)
		if s > bestScore {
			best, bestScore = g, s
		}
	}
	return best
}

// score returns Nomad's score of the node after the allocation is placed. Usually, the score is the
// fit, from 0 to 1: structs.ScoreFitBinPack or ScoreFitSpread, divided by 18. If the node already
// runs allocations of the task group, the score is the mean of the fit and the job anti-affinity.
// The model assumes that an allocation needs the same share of the node's CPU and memory as of its
// GPUs.
func (e *nomadEngine) score(j *nomadJob, set, g int) float64 {
	_, n := e.Cluster.GroupGPUs(g)
	group := j.gang.MemberSets[set]
	free := 1 - float64(e.used[g]+group.GPUs)/float64(n)
	fit := (20 - 2*math.Pow(10, free)) / 18
	if e.Spread {
		fit = (2*math.Pow(10, free) - 2) / 18
	}
	same := 0
	for _, m := range j.members {
		if m.Group == g && m.MemberSet == set {
			same++
		}
	}
	if same == 0 {
		return fit
	}
	return (fit - float64(same+1)/float64(group.Members)) / 2
}

// place puts an allocation of a task group on random free GPUs of the device group.
func (e *nomadEngine) place(j *nomadJob, set, g int) {
	want := j.gang.MemberSets[set].GPUs
	first, n := e.Cluster.GroupGPUs(g)
	m := pal.Member{MemberSet: set, Group: g}
	for u, free := first, n-e.used[g]; len(m.GPUs) < want; u++ {
		if !e.Cluster.Available(u) {
			continue
		}
		if e.rand.IntN(free) < want-len(m.GPUs) {
			m.GPUs = append(m.GPUs, u)
		}
		free--
	}
	for _, u := range m.GPUs {
		e.Cluster.SetTaken(u, true)
	}
	e.occupy(g, want)
	j.members = append(j.members, m)
}

func (e *nomadEngine) outcome() Outcome {
	o := Outcome{Samples: e.use.samples}
	for i := range e.jobs {
		j, t := &e.jobs[i], e.Jobs[i]
		r := JobResult{ID: t.ID, Class: t.Class, GPUs: t.GPUs, WorkS: t.WorkS(), Submit: t.SubmitS,
			Start: -1, Finish: -1, Wait: -1, Runs: j.round + 1}
		if j.done {
			r.Start, r.Finish = j.first.Seconds(), j.finish.Seconds()
			r.Wait = (j.first - seconds(t.SubmitS)).Seconds()
			r.HeldS = r.Finish - r.Start
			r.Tier, r.Model = j.tier, j.model
		} else {
			o.Stuck++
		}
		o.Jobs = append(o.Jobs, r)
		o.Preemptions += j.round
	}
	o.LostGPUh = max(0, e.use.busyS-e.ranS) / 3600 // rounding can make the difference negative
	o.totals(&e.use)
	return o
}
