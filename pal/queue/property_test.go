// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// player drives a Queue at random, and checks its invariants. cluster.Take panics if the Queue
// allocates a GPU twice.
type player struct {
	t       *rapid.T
	queue   *Queue
	c       *pal.Cluster
	now     time.Duration
	opt     Options
	jobs    map[string]Job
	places  map[string]pal.Placement // of running gangs
	ends    map[string]time.Duration
	waiting map[string]time.Duration // waiting gangs, and since when they wait
	n       int
	acts    int
	longest time.Duration            // longest possible run
	stopped map[string]bool          // gangs that were stopped at least once
	changed map[string]time.Duration // when the size of each gang changed last
	parts   bool                     // the cluster's GPUs are parts of shared GPUs; each node has one GPU
	slow    bool                     // stopped gangs take a while to end
	leaving map[string]bool          // gangs that are being stopped
	clone   struct {
		queue *Queue
		c     *pal.Cluster
		at    time.Duration
		waits []Wait
	}
}

func newPlayer(t *rapid.T) *player {
	p := &player{t: t, jobs: map[string]Job{}, places: map[string]pal.Placement{}, ends: map[string]time.Duration{},
		waiting: map[string]time.Duration{}, stopped: map[string]bool{}, changed: map[string]time.Duration{}, leaving: map[string]bool{}, longest: 200 * time.Minute}
	p.opt = Options{
		Order:    rapid.SampledFrom(Orders()).Draw(t, "order"),
		Backfill: rapid.SampledFrom([]Backfill{BackfillNone, BackfillReserved, BackfillBestEffort}).Draw(t, "backfill"),
		Preempt:  rapid.Bool().Draw(t, "preempt"), Migrate: rapid.Bool().Draw(t, "migrate"),
		LocalityWait: rapid.Bool().Draw(t, "locality wait"), FairShare: rapid.Bool().Draw(t, "fair"), JobPriority: rapid.Bool().Draw(t, "by priority"),
		MaxWait: 2 * time.Hour, Patience: rapid.SampledFrom([]float64{0, 2}).Draw(t, "patience"), OverdueShare: 0.5, Quantum: 10 * time.Minute, OutlierThreshold: 1.5, Placement: pal.Policy{Name: pal.PAL},
	}
	nodes := testNodes(3, "5")
	if p.parts = rapid.Bool().Draw(t, "parts"); p.parts {
		for i := range nodes {
			nodes[i].Groups[0].Shared, nodes[i].Groups[0].Name = true, "V100"
		}
		p.opt.Placement.RefuseBad = rapid.Bool().Draw(t, "refuse bad neighbours")
	}
	quotas, most := [2]int{4, 6}, 12
	if p.parts {
		quotas, most = [2]int{1, 2}, 3
	}
	if rapid.Bool().Draw(t, "quotas") {
		p.opt.Tenants = map[string]Tenant{"x": {Quota: quotas[0]}, "y": {Quota: quotas[1]}}
	}
	if rapid.Bool().Draw(t, "users") { // users have limits; the largest request is within them
		p.opt.Tenants = map[string]Tenant{"all/x": p.opt.Tenants["x"], "all/y": p.opt.Tenants["y"], "all": {MaxGPUsPerUser: most, MaxJobsPerUser: 3}}
	}
	q, err := New(p.opt)
	if err != nil {
		t.Fatal(err)
	}
	c, err := pal.NewCluster(nodes, pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	p.queue, p.c = q, c
	return p
}

// asked returns the gang; if the cluster's GPUs are parts, the gang requests parts.
func (p *player) asked(g pal.Gang) pal.Gang {
	if p.parts {
		g.Sharing, g.Share = &pal.Sharing{Beside: pal.AnyClass, Self: true}, p.c.LargestShare(nil)
	}
	return g
}

func (p *player) submit() {
	p.n++
	id := fmt.Sprint(p.n)
	j := Job{ID: id, Name: rapid.SampledFrom([]string{"", "a", "b"}).Draw(p.t, "name"),
		Tenant: rapid.SampledFrom([]string{"x", "y"}).Draw(p.t, "tenant"), User: rapid.SampledFrom([]string{"", "ada"}).Draw(p.t, "user"), Priority: rapid.IntRange(0, 3).Draw(p.t, "priority"),
		Gang:      pal.SingleGPUs(id, rapid.SampledFrom(pal.AppClasses()).Draw(p.t, "class"), rapid.IntRange(1, 12).Draw(p.t, "gpus")),
		Submitted: p.now, Preemptible: rapid.Bool().Draw(p.t, "preemptible"), Migratable: rapid.Bool().Draw(p.t, "migratable"),
		RestartCost: time.Minute, Checkpoint: time.Duration(rapid.IntRange(0, 3).Draw(p.t, "checkpoint")) * 20 * time.Minute, Estimate: time.Duration(rapid.IntRange(0, 100).Draw(p.t, "estimate")) * time.Minute}
	j.Gang = p.asked(j.Gang)
	if rapid.Bool().Draw(p.t, "elastic") {
		j.Least = rapid.IntRange(1, j.Gang.GPUs()).Draw(p.t, "least")
	}
	if err := p.queue.Submit(p.now, j); err != nil {
		p.t.Fatal(err)
	}
	p.jobs[id], p.waiting[id] = j, p.now
}

// act carries out the Queue's decisions until Decide returns none. It fails if the Queue does not
// stop deciding.
func (p *player) act() {
	for range 1000 {
		free := p.c.FreeGPUs()
		p.acts++
		if p.acts%4 == 0 {
			p.checkClone()
		}
		twin, cluster := p.queue.Clone(), p.c.Clone()
		actions := p.queue.Decide(p.now, p.c)
		if same := twin.Decide(p.now, cluster); fmt.Sprint(same) != fmt.Sprint(actions) {
			p.t.Fatalf("a clone decides %v, the queue %v", same, actions)
		}
		if p.acts%4 == 0 {
			p.checkWaiting()
		}
		p.checkCounts()
		if p.c.FreeGPUs() != free {
			p.t.Fatalf("Decide left %d free GPUs, there were %d", p.c.FreeGPUs(), free)
		}
		if len(actions) == 0 {
			return
		}
		for _, a := range actions {
			p.carryOut(a)
		}
	}
	p.t.Fatal("Decide never ends")
}

// checkClone checks that a clone gives the same answers as the queue, and that the clone's answers
// do not change when the queue changes.
func (p *player) checkClone() {
	if p.clone.queue != nil {
		if now := p.clone.queue.Waiting(p.clone.at, p.clone.c); !reflect.DeepEqual(now, p.clone.waits) {
			p.t.Fatalf("a clone's answer was %v, and is %v after the queue changed", p.clone.waits, now)
		}
	}
	p.clone.queue, p.clone.c, p.clone.at = p.queue.Clone(), p.c.Clone(), p.now
	p.clone.waits = p.clone.queue.Waiting(p.now, p.clone.c)
	if waits := p.queue.Waiting(p.now, p.c); !reflect.DeepEqual(p.clone.waits, waits) {
		p.t.Fatalf("a clone answers %v, the queue %v", p.clone.waits, waits)
	}
}

// checkWaiting checks that the sort key and the expected run time of each waiting gang are up to
// date. It also checks that Reasons has all reasons, and that WaitingAt gives the same answers as
// Waiting.
func (p *player) checkWaiting() {
	for id := range p.waiting {
		e := p.queue.entries[id]
		if e.state != waiting {
			continue
		}
		if want := p.queue.keyOf(e); e.memo.key != want || !slices.Contains(p.queue.line, e) {
			p.t.Fatalf("%s: its sort key is %v, want %v", id, e.memo.key, want)
		}
		if left := p.queue.remaining(e, e.wait.since); e.memo.expect != left {
			p.t.Fatalf("%s: expected to run for %v, by current knowledge for %v", id, e.memo.expect, left)
		}
	}
	all := p.queue.Waiting(p.now, p.c)
	for _, w := range all {
		if !slices.Contains(Reasons, w.Reason) {
			p.t.Fatalf("%s waits for the reason %q, which Reasons lacks", w.Job, w.Reason)
		}
	}
	all = slices.DeleteFunc(all, func(w Wait) bool { return w.Reason == reason.Starting })
	for n, w := range p.queue.WaitingAt(p.now, p.c, []float64{0, 0.5}) {
		if want := all[n*len(all)/2]; !reflect.DeepEqual(w, want) {
			p.t.Fatalf("in part %d of 2 of the queue waits %v, want %v", n, w, want)
		}
	}
	if len(all) > 0 && p.n%8 == 0 {
		p.checkWaitsIf(all[len(all)/2].Job)
	}
}

// checkWaitsIf checks that the answer for a hypothetical estimate is the same as the answer of a
// queue in which the gang has this estimate.
func (p *player) checkWaitsIf(id string) {
	said := []time.Duration{time.Minute, 5 * time.Hour}
	for _, d := range said {
		twin := p.queue.Clone()
		e := twin.entries[id]
		job := e.job
		job.Gang, job.Estimate = e.allMembers(), d
		_, got, _ := p.queue.Ask(p.now, p.c, job, p.now)
		twin.dequeue(e)
		e.job.Estimate = d
		twin.breakPromise(e)
		twin.enqueue(e)
		all := twin.Waiting(p.now, p.c.Clone())
		if want := all[slices.IndexFunc(all, func(w Wait) bool { return w.Job == id })]; !reflect.DeepEqual(got, want) {
			p.t.Fatalf("if it runs %v it waits %+v, want %+v", d, got, want)
		}
	}
}

// checkCounts counts again what tenants and users hold, and compares with the counts of the pass. It
// also checks that users are within their limits, and that gangs stop for gangs that wait.
func (p *player) checkCounts() {
	counts := func() (out []string) {
		for _, name := range slices.Sorted(maps.Keys(p.queue.tree.byName)) {
			t := p.queue.tree.byName[name]
			out = append(out, fmt.Sprintf("%s: %.6g held, %.6g promised, %.6g being freed, users %v", name, t.gpus, t.promised, t.freeing, t.sortedUsers()))
		}
		return out
	}
	was := counts()
	if p.queue.count(p.now); !slices.Equal(counts(), was) {
		p.t.Fatalf("the pass counts %q, again %q", was, counts())
	}
	for _, e := range p.queue.entries {
		if by := p.queue.entries[e.stopsFor]; e.stopsFor != "" && (e.state != stopping || by == nil || by.promised == nil || by.state != waiting) {
			p.t.Fatalf("%s stops for %s, which waits for nobody", e.job.ID, e.stopsFor)
		}
	}
	if all := p.queue.tree.byName["all"]; all != nil {
		for _, u := range all.users {
			if u.GPUs > float64(all.MaxGPUsPerUser) || u.Jobs > 3 {
				p.t.Fatalf("a user has more than the limits: %+v", u)
			}
		}
	}
}

func (p *player) carryOut(a Action) {
	j, ok := p.jobs[a.Job]
	if !ok {
		p.t.Fatalf("%s of %q, which is gone", a.Kind, a.Job)
	}
	if a.Kind == Preempt && !j.Preemptible || a.Kind == Migrate && !j.Migratable {
		p.t.Fatalf("%s of %q, which does not allow it", a.Kind, a.Job)
	}
	if a.Kind == Resize {
		p.checkResize(j, a)
	}
	if n := len(a.Placement.Members); a.Kind != Preempt && (n > j.Gang.GPUs() || n < j.Gang.GPUs() && (j.Least == 0 || n < j.Least)) {
		p.t.Fatalf("%s of %q, of %d to %d members, with %d", a.Kind, a.Job, j.Least, j.Gang.GPUs(), n)
	}
	if a.Kind == Preempt && p.slow {
		if p.leaving[a.Job] {
			p.t.Fatalf("%q is stopped twice", a.Job)
		}
		p.leaving[a.Job], p.ends[a.Job] = true, p.now+time.Duration(rapid.IntRange(1, 60).Draw(p.t, "stop"))*time.Minute
		return
	}
	if a.Kind != Start {
		p.c.Release(j.Gang, p.places[a.Job])
		delete(p.places, a.Job)
	}
	if a.Kind == Preempt {
		p.queue.Stopped(p.now, a.Job)
		p.waiting[a.Job], p.stopped[a.Job] = p.now, true
		return
	}
	if a.Kind == Start {
		if _, waits := p.waiting[a.Job]; !waits {
			p.t.Fatalf("%q starts twice", a.Job)
		}
		delete(p.waiting, a.Job)
		run := time.Duration(rapid.IntRange(1, int(p.longest/time.Minute)).Draw(p.t, "run")) * time.Minute
		p.ends[a.Job] = p.now + run
	}
	p.c.Take(j.Gang, a.Placement)
	p.places[a.Job] = a.Placement
	p.queue.Started(p.now, a.Job, a.Placement)
}

// checkResize checks the rules of a change of size. The first members stay, members leave only for
// a waiting gang, and new members are not on outliers.
func (p *player) checkResize(j Job, a Action) {
	was, is := p.places[a.Job], a.Placement
	stay := min(len(was.Members), len(is.Members))
	if !reflect.DeepEqual(was.Members[:stay], is.Members[:stay]) || len(was.Members) == len(is.Members) {
		p.t.Fatalf("%q goes from %v to %v", a.Job, was, is)
	}
	if shrinks := stay == len(is.Members); shrinks {
		if _, waits := p.waiting[a.For]; !waits {
			p.t.Fatalf("%q shrinks for %q, which does not wait", a.Job, a.For)
		}
	} else if is.PMScore > max(was.PMScore, pal.PMScore(p.opt.OutlierThreshold)) {
		p.t.Fatalf("%q grows from PM score %v to %v", a.Job, was.PMScore, is.PMScore)
	}
	if last, changed := p.changed[a.Job]; changed && p.now < last+minRuns*j.RestartCost {
		p.t.Fatalf("%q changes its size again %v after %v", a.Job, p.now-last, last)
	}
	p.changed[a.Job] = p.now
}

// until lets time pass until at, and carries out all ends and wake-ups before.
func (p *player) until(at time.Duration) {
	for {
		next, id := at, ""
		for _, k := range sortedKeys(p.places) {
			if p.ends[k] < next || p.ends[k] == next && id == "" {
				next, id = p.ends[k], k
			}
		}
		if wake, ok := p.queue.Wake(p.now); ok && wake < next {
			next, id = wake, ""
		}
		p.now = max(p.now, next)
		if id != "" {
			p.c.Release(p.jobs[id].Gang, p.places[id])
			delete(p.places, id)
			if p.leaving[id] {
				delete(p.leaving, id)
				p.queue.Stopped(p.now, id)
				p.waiting[id], p.stopped[id] = p.now, true
			} else {
				p.queue.Finished(p.now, id)
				delete(p.jobs, id)
			}
		}
		p.act()
		if p.now >= at && id == "" {
			return
		}
	}
}

func sortedKeys(m map[string]pal.Placement) []string {
	var ks []string
	for k := range m {
		ks = append(ks, k)
	}
	slices.Sort(ks)
	return ks
}

// TestNobodyStarves: under every order, a gang as large as the cluster starts within the bound of
// the package comment, although small gangs keep coming.
func TestNobodyStarves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPlayer(t)
		big := Job{ID: "big", Gang: p.asked(pal.SingleGPUs("big", pal.ClassB, 12)), Estimate: 5 * time.Hour, Priority: -1}
		p.submit()
		p.act()
		if err := p.queue.Submit(p.now, big); err != nil {
			t.Fatal(err)
		}
		p.jobs["big"], p.waiting["big"] = big, p.now
		const longest = 200 * time.Minute // no random run is longer
		turn := p.opt.MaxWait + longest
		// Two turns can come before that of the big gang: the turn of a small gang that began to
		// wait earlier, and the turn of a gang with an estimate that was overdue earlier.
		bound := p.queue.patience(big) + turn + 2*(turn+time.Duration(float64(turn+longest)/p.opt.OverdueShare))
		for p.now < bound {
			p.submit()
			p.act()
			p.until(p.now + 15*time.Minute)
			if _, waits := p.waiting["big"]; !waits {
				return
			}
		}
		t.Errorf("the gang still waits after %v", bound)
	})
}

// TestEverybodyEnds: when no more jobs are submitted, all jobs run to their end. This holds even if
// stopped gangs take a while to end, if windows keep GPUs free, if the cluster is rebuilt, and if
// waiting gangs are removed.
func TestEverybodyEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPlayer(t)
		p.slow = rapid.Bool().Draw(t, "slow")
		if rapid.Bool().Draw(t, "windows") {
			hour := func(name string) time.Duration { return time.Duration(rapid.IntRange(0, 8).Draw(t, name)) * time.Hour }
			of := func(name string) []int { return rapid.SliceOfDistinct(rapid.IntRange(0, 11), rapid.ID).Draw(t, name) }
			p.queue.SetWindows([]Window{{Name: "for x", From: hour("x from"), To: 9 * time.Hour, GPUs: of("x GPUs"), For: []string{"x"}},
				{Name: "kernel", From: hour("from"), To: 9 * time.Hour, GPUs: of("GPUs")}})
		}
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			p.submit()
			p.act()
			p.upset()
			p.until(p.now + time.Duration(rapid.IntRange(0, 60).Draw(t, "gap"))*time.Minute)
		}
		p.until(p.now + 9*time.Hour + p.opt.MaxWait + time.Duration(p.n+1)*200*time.Minute)
		for id := range p.waiting {
			t.Errorf("job %q of %d GPUs never starts", id, p.jobs[id].Gang.GPUs())
		}
	})
}

// upset sometimes rebuilds the cluster, or removes a waiting gang.
func (p *player) upset() {
	if rapid.IntRange(0, 9).Draw(p.t, "rebuild") == 0 {
		p.queue.Rebase(func(id string, _ pal.Gang, pl pal.Placement) (pal.Gang, pal.Placement) { return p.jobs[id].Gang, pl })
		p.act()
	}
	id := fmt.Sprint(rapid.IntRange(1, 5*p.n).Draw(p.t, "goes"))
	if _, waits := p.waiting[id]; waits {
		p.queue.Removed(p.now, id)
		delete(p.waiting, id)
		delete(p.jobs, id)
		p.act()
	}
}

func TestNewRefuses(t *testing.T) {
	good := Default()
	_, noOrder := ParseOrder("best") // the error lists all orders
	_, noPolicy := pal.ParsePolicy("best")
	for name, tc := range map[string]struct {
		spoil func(*Options)
		want  string
	}{
		"order":     {func(o *Options) { o.Order = "best" }, noOrder.Error()},
		"placement": {func(o *Options) { o.Placement.Name = "best" }, noPolicy.Error()},
		"pass":      {func(o *Options) { o.MaxWait = -1 }, `queue: max_wait -1ns, quantum 1h0m0s and default_runtime 10m0s must not be negative`},
		"guess":     {func(o *Options) { o.DefaultRuntime = -1 }, `queue: max_wait 36h0m0s, quantum 1h0m0s and default_runtime -1ns must not be negative`},
		"slices":    {func(o *Options) { o.Quantum = 1 }, "queue: quantum 1ns is below 1s"},
		"half-life": {func(o *Options) { o.HalfLife = -1 }, "queue: usage_half_life -1ns must not be negative"},
		"name":      {func(o *Options) { o.Tenants = map[string]Tenant{"a//b": {}} }, `queue: tenant "a//b": a name consists of words separated by slashes, such as research/vision`},
		"twice": {func(o *Options) { o.Tenants = map[string]Tenant{"a": {}, "b/a": {}} },
			`queue: namespace "a" belongs to both tenant "a" and tenant "b/a"`},
		"parts": {func(o *Options) { o.Tenants = map[string]Tenant{"a": {Quota: 4}, "a/b": {Quota: 3}, "a/c": {Quota: 2}} },
			`queue: tenant "a": the quotas of its children add up to 5 GPUs, more than its own quota of 4`},
		"pattern": {func(o *Options) { o.Tenants = map[string]Tenant{"a": {Namespaces: []string{"[x"}}} },
			`queue: tenant "a": "[x" is not a pattern of namespaces`},
		"quota": {func(o *Options) { o.Tenants = map[string]Tenant{"a": {Quota: -1}} }, `queue: tenant "a": quota -1 is negative`},
		"users": {func(o *Options) { o.Tenants = map[string]Tenant{"a": {MaxJobsPerUser: -1}} }, `queue: tenant "a": max_gpus_per_user 0 and max_jobs_per_user -1 must not be negative`},
	} {
		t.Run(name, func(t *testing.T) {
			o := good
			tc.spoil(&o)
			if _, err := New(o); err == nil || err.Error() != tc.want {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
