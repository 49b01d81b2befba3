// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Mix says how often each action occurs in a walk, relative to the other actions. Actions with
// frequency 0 do not occur.
type Mix struct {
	Submit, Edit, Stop, Purge, Rerun      int
	Deploy                                int // a new version of a service, which may fail
	Promote, Fail, Pause                  int // the author's actions on a deployment
	Dispatch, Force, EndChild             int // children of templates
	Crash, Cut, Recover, Drain, Sick      int
	Forget                                int // purge a node that still works
	Kill, Second, Restart, Collect, Clock int
	// Requests is the fraction of the placers' requests that fail. Each failing request fails with
	// one of the faults in Faults.
	Requests float64
	Faults   []nomadtest.Fault
	Events   nomadtest.EventFaults
	// Apart is the average time between two actions. 0 means 3 s.
	Apart time.Duration
}

// DefaultMix contains every action and fault that the placer must cope with.
func DefaultMix() Mix {
	return Mix{
		Submit: 40, Edit: 6, Stop: 5, Purge: 4, Rerun: 6, Deploy: 6, Promote: 5, Fail: 2, Pause: 2,
		Dispatch: 6, Force: 2, EndChild: 3,
		Crash: 2, Cut: 2, Recover: 8, Drain: 2, Sick: 3, Forget: 2,
		Kill: 4, Second: 2, Restart: 2, Collect: 1, Clock: 1,
		Requests: 0.03,
		Faults: []nomadtest.Fault{
			nomadtest.TooMany, nomadtest.Failed, nomadtest.Refused, nomadtest.Half, nomadtest.Broken, nomadtest.DoneButFailed,
			nomadtest.Slow, nomadtest.SlowWrite, nomadtest.Lost, nomadtest.Unanswered,
		},
		Events: nomadtest.EventFaults{Lost: 0.001, Late: 0.01, Doubled: 0.01, Early: 0.05, Delay: 2 * time.Second},
	}
}

// walkLimit is the limit of GPUs in walks with a limit. The limit applies to all jobs together, or
// to the jobs of each user.
const walkLimit = 4

// limited returns the limit of GPUs in the walk with this seed, or 0 if the walk has no limit.
func limited(seed uint64) int {
	if seed%4 == 1 || perUser(seed) {
		return walkLimit
	}
	return 0
}

// perUser reports whether, in the walk with this seed, the limit applies to the jobs of each user.
func perUser(seed uint64) bool { return seed%8 == 3 }

// vary returns a function that changes the configuration of the placers in the walk with this seed.
// Half of the walks use the default configuration. In the other half, gangs are moved, stopped and
// overtaken in the queue more often, and three quarters of these walks have a limit.
func vary(seed uint64) func(*model.Config) {
	rng := rand.New(rand.NewPCG(seed, 11))
	restart, resync := time.Duration(1+rng.IntN(30))*time.Second, time.Duration(10+rng.IntN(300))*time.Second
	orders := queue.Orders()
	fills := []queue.Backfill{queue.BackfillNone, queue.BackfillReserved, queue.BackfillBestEffort}
	order, fill := orders[rng.IntN(len(orders))], fills[rng.IntN(len(fills))]
	placement, maxWait := []pal.PolicyName{pal.PAL, pal.PMFirst, pal.Packed}[rng.IntN(3)], time.Duration(1+rng.IntN(60))*time.Minute
	return func(c *model.Config) {
		if seed%2 == 0 {
			return
		}
		c.RestartCost, c.Resync, c.Placement = restart, resync, placement
		c.Queue.Order, c.Queue.Backfill, c.Queue.MaxWait, c.Queue.Preempt, c.Queue.Migrate = order, fill, maxWait, true, true
		if limit := limited(seed); perUser(seed) {
			c.Queue.Tenants = map[string]queue.Tenant{"default": {MaxGPUsPerUser: limit, MaxJobsPerUser: 2}}
		} else if limit > 0 {
			c.Queue.Tenants = map[string]queue.Tenant{"default": {Quota: limit, BorrowingLimit: new(int)}}
		}
	}
}

// Walk performs random actions. The seed determines the actions of authors, machines and faults.
type Walk struct {
	*World
	Mix Mix
	// Counts contains the number of times that each event happened.
	Counts map[string]int

	rng  *rand.Rand
	made int
	gone map[int]bool // nodes that are lost or drained
	sick map[string]bool
	// left contains jobs whose end is not up to the placer, such as jobs that fail in any case and
	// ungated jobs.
	left map[nomadtest.Key]bool
	gpus int // number of GPUs of each node
	// sharing chooses the jobs that request parts of shared GPUs. If sharing is nil, no job
	// requests parts of GPUs.
	sharing *rand.Rand
	// people chooses the commands that people type about jobs. told contains the jobs of these
	// commands. If people is nil, nobody types commands.
	people *rand.Rand
	told   map[nomadtest.Key]bool
	// released contains the jobs that people have released to Nomad.
	released map[nomadtest.Key]bool
	// fault is the last time when a request failed or a placer was killed.
	fault time.Time
}

// NewWalk prepares a walk in a world without nodes.
func NewWalk(w *World, mix Mix) *Walk {
	x := &Walk{World: w, Mix: mix, Counts: map[string]int{}, rng: rand.New(rand.NewPCG(w.opts.Seed, 7)), gone: map[int]bool{}, sick: map[string]bool{}, left: map[nomadtest.Key]bool{}, people: peopleOf(w.opts.Seed), told: map[nomadtest.Key]bool{}, released: map[nomadtest.Key]bool{}}
	x.gpus = 2 + x.rng.IntN(3)
	if w.opts.Seed%4 == 1 {
		x.Parts, x.sharing = 3, rand.New(rand.NewPCG(w.opts.Seed, 49))
	}
	x.AddNodes(2+x.rng.IntN(3), x.gpus)
	x.Nomad.SetPreemption(w.opts.Seed%4 >= 2)
	x.Disturb()
	x.StartPlacerOfChildren()
	return x
}

// Disturb makes requests and events fail, as often as the mix says, until [Walk.Settle] is called.
func (x *Walk) Disturb() {
	x.Nomad.SetEventFaults(x.Mix.Events)
	x.Nomad.FailBy(func(r nomadtest.Request) nomadtest.Fault {
		if !strings.HasPrefix(r.Client, "placer") || len(x.Mix.Faults) == 0 {
			return nomadtest.None
		}
		roll := x.Nomad.Roll(r)
		if roll >= x.Mix.Requests {
			return nomadtest.None
		}
		f := x.Mix.Faults[int(roll/x.Mix.Requests*float64(len(x.Mix.Faults)))]
		x.say("fault: %s: %s", r, f)
		x.fault = time.Now()
		x.rules.disturbs(r)
		return f
	})
}

// Go runs the walk for d.
func (x *Walk) Go(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		x.RunFor(time.Duration(x.rng.ExpFloat64() * float64(cmp.Or(x.Mix.Apart, 3*time.Second))))
		x.act()
		x.peopleType()
		x.Excuse()
	}
}

type act struct {
	name   string
	weight int
	do     func()
}

func (x *Walk) act() {
	m := x.Mix
	acts := []act{
		{"submit", m.Submit, x.submit},
		{"edit", m.Edit, func() { x.withJob(x.edit) }},
		{"update a service", m.Deploy, x.deploy},
		{"promote", m.Promote, x.decide("promote: done", x.promote)},
		{"fail a deployment", m.Fail, x.decide("fail a deployment: done", x.failDeployment)},
		{"pause a deployment", m.Pause, x.decide("pause a deployment: done", x.pause)},
		{"dispatch", m.Dispatch, x.dispatch},
		{"force", m.Force, x.force},
		{"end a child", m.EndChild, x.endChild},
		{"stop", m.Stop, func() { x.withJob(func(k nomadtest.Key) { x.try(x.Stop(k)) }) }},
		{"purge", m.Purge, func() { x.withJob(func(k nomadtest.Key) { x.try(x.Purge(k)) }) }},
		{"re-run", m.Rerun, func() { x.withJob(func(k nomadtest.Key) { x.try(x.Rerun(k)) }) }},
		{"crash", m.Crash, func() { x.lose(x.Nomad.CrashNode) }},
		{"cut", m.Cut, func() { x.lose(x.Nomad.CutNode) }},
		{"forget a node", m.Forget, x.forget},
		{"recover", m.Recover, x.recover},
		{"drain", m.Drain, x.drain},
		{"sick GPU", m.Sick, x.sicken},
		{"kill the placer", m.Kill, x.kill},
		{"a second placer", m.Second, x.second},
		{"restart the servers", m.Restart, x.Nomad.Restart},
		{"collect garbage", m.Collect, x.collect},
		{"step the clock", m.Clock, func() { x.Nomad.StepClock(time.Duration(x.rng.IntN(7200)-3600) * time.Second) }},
	}
	sum := 0
	for _, a := range acts {
		sum += a.weight
	}
	roll := x.rng.IntN(sum)
	for _, a := range acts {
		if roll < a.weight {
			x.Counts[a.name]++
			x.say("act: %s", a.name)
			a.do()
			return
		}
		roll -= a.weight
	}
}

// try counts an author's request that failed.
func (x *Walk) try(err error) {
	if err != nil {
		x.Counts["refused to an author"]++
	}
}

func (x *Walk) submit() {
	x.made++
	g := Gang{
		Name: fmt.Sprintf("job-%03d", x.made), Members: 1 + x.rng.IntN(3), GPUs: 1 + x.rng.IntN(min(2, x.gpus)),
		Runs: time.Duration(1+x.rng.IntN(60)) * time.Second, Priority: 20 + 10*x.rng.IntN(6), Reschedules: x.rng.IntN(2), Restarts: x.rng.IntN(2),
		Meta: map[string]string{"pal_preempt": fmt.Sprint(x.rng.IntN(3) == 0), "pal_migrate": fmt.Sprint(x.rng.IntN(3) == 0)},
	}
	for g.Members > x.room(g.GPUs) {
		g.Members--
	}
	if user := x.made % 3; user > 0 { // every third job has no user
		g.Meta["pal_user"] = []string{"", "ada", "grace"}[user]
	}
	switch x.rng.IntN(12) {
	case 0:
		g.Exit, g.OneExit, g.Runs = 1, x.rng.IntN(2) == 0, g.Runs/8 // to fail several times
		x.left[Key(g.Name)] = true
	case 1:
		g.Ungated = true
		x.left[Key(g.Name)] = true
	case 2:
		g.Service, g.Runs, g.Change = true, 0, x.deploys()
	case 3, 4:
		g.Change = elastic(1, int64(x.room(g.GPUs)))
	}
	x.share(&g)
	x.hint(&g)
	if x.rng.IntN(8) == 0 {
		x.template(&g)
	}
	x.disconnects(&g)
	x.try(x.Register(g.Job()))
}

// share makes some jobs request parts of GPUs.
func (x *Walk) share(g *Gang) {
	if x.sharing == nil || g.Change != nil && !g.Service || x.sharing.IntN(2) == 0 {
		return
	}
	x.Counts["submit: parts of GPUs"]++
	g.Device = "nvidia/gpu.shared"
	g.Meta["pal_class"] = string(pal.AppClasses()[x.sharing.IntN(pal.NumClasses)])
	g.GPUs = 1 + x.sharing.IntN(4)/3
	g.Members = max(1, min(g.Members, x.nodes, x.room(g.GPUs))) // on different nodes
	if g.Service {
		return
	}
	if with := []string{"", "any,self", "A,B", "none"}[x.sharing.IntN(4)]; with != "" {
		g.Meta["pal_neighbours"] = with
	}
}

// disconnects gives some jobs a disconnect block.
func (x *Walk) disconnects(g *Gang) {
	d := &api.DisconnectStrategy{LostAfter: new(time.Duration(5+x.rng.IntN(600)) * time.Second)}
	reconcile := []api.ReconcileOption{api.ReconcileOptionBestScore, api.ReconcileOptionKeepOriginal, api.ReconcileOptionKeepReplacement, api.ReconcileOptionLongestRunning}
	if x.rng.IntN(2) == 0 {
		d.Reconcile = &reconcile[x.rng.IntN(len(reconcile))]
	}
	switch x.rng.IntN(6) {
	case 0:
		d.LostAfter, d.StopOnClientAfter = nil, new(time.Duration(1+x.rng.IntN(20))*time.Second)
	case 1:
		d.Replace = new(false)
	case 2:
		d.Replace = new(false)
		d.LostAfter = nil
	}
	if x.rng.IntN(4) > 0 {
		return
	}
	x.Counts["submit: disconnect"]++
	change := g.Change
	g.Change = func(j *api.Job) {
		if change != nil {
			change(j)
		}
		for _, group := range j.TaskGroups {
			group.Disconnect = d
		}
	}
}

// hint gives some jobs hints (pal_…).
func (x *Walk) hint(g *Gang) {
	if g.Runs > 0 && x.rng.IntN(3) == 0 {
		g.Meta["pal_duration"] = (g.Runs * time.Duration(1+x.rng.IntN(4)) / 2).String()
	}
	batch := g.Runs > 0 && g.Change == nil
	switch x.rng.IntN(20) {
	case 0:
		if !g.Service {
			g.Meta["pal_pin"] = "class"
		}
	case 2:
		if g.Members*g.GPUs <= x.gpus && (g.Device == "" || g.Members == 1) { // each node has only one shared GPU
			g.Meta["pal_locality"] = "node"
		}
	case 4:
		g.Meta["pal_on_failure"] = "none"
	case 5:
		if x.made > 1 { // the other job may never succeed
			g.Meta["pal_after"] = fmt.Sprintf("job-%03d", x.made-1)
			x.left[Key(g.Name)] = true
		}
	case 6, 7:
		if batch { // such members need not start together, so make them end at different times
			g.Meta["pal_on_failure"] = "member"
			x.Counts["submit: members apart"]++
			g.Change = staggered
		}
	case 8:
		if !g.Service && g.Change == nil {
			g.Meta["pal_pin"] = "gpu"
		}
	case 9, 10:
		if batch {
			g.Change = withHelper
			x.Counts["submit: a group without GPUs"]++
		}
	case 11, 12:
		if batch && g.Members > 1 && (g.Device == "" || g.GPUs == 1) { // a chief has one GPU
			g.Change = withChief
			x.Counts["submit: two groups with GPUs"]++
		}
	}
}

// withChief moves one member into a new group. The moved member then has one GPU.
func withChief(j *api.Job) {
	workers := j.TaskGroups[0]
	chief := *workers
	task := *chief.Tasks[0]
	resources, device := *task.Resources, *task.Resources.Devices[0]
	device.Count = new(uint64(1))
	resources.Devices, task.Resources = []*api.RequestedDevice{&device}, &resources
	chief.Name, chief.Count, chief.Tasks = new("chief"), new(1), []*api.Task{&task}
	workers.Count = new(*workers.Count - 1)
	j.TaskGroups = append(j.TaskGroups, &chief)
}

// staggered changes a batch job so that all members except the first run for longer.
func staggered(j *api.Job) {
	args := j.TaskGroups[0].Tasks[0].Config["args"].([]string)
	first, end, _ := strings.Cut(args[1], ";")
	args[1] = first + "; [ $NOMAD_ALLOC_INDEX = 0 ] &&" + end + "; sleep 40;" + end
}

// withHelper adds a group without GPUs. The member of this group runs for as long as the members of
// the first group.
func withHelper(j *api.Job) {
	helper := *j.TaskGroups[0]
	task := *helper.Tasks[0]
	task.Resources = &api.Resources{CPU: new(100), MemoryMB: new(100)}
	helper.Name, helper.Count, helper.Tasks = new("helper"), new(1), []*api.Task{&task}
	j.TaskGroups = append(j.TaskGroups, &helper)
}

// room returns how many members with this number of GPUs fit into both the cluster and the limit.
func (x *Walk) room(gpus int) int {
	n := x.nodes * (x.gpus / gpus)
	if limit := limited(x.opts.Seed); limit > 0 {
		n = min(n, limit/gpus)
	}
	return n
}

// withJob calls f with a random job among the eight jobs that were registered last.
func (x *Walk) withJob(f func(nomadtest.Key)) {
	if x.made > 0 {
		f(Key(fmt.Sprintf("job-%03d", max(1, x.made-x.rng.IntN(min(x.made, 8))))))
	}
}

// runsScript changes a group so that its task runs a shell script.
func runsScript(g *api.TaskGroup, script string) {
	g.Tasks[0].Config = map[string]any{"command": "/bin/sh", "args": []string{"-c", script}}
}

func (x *Walk) edit(k nomadtest.Key) {
	how := x.rng.IntN(3)
	x.try(x.Edit(k, func(j *api.Job) {
		switch how {
		case 0:
			j.Priority = new(20 + 10*x.rng.IntN(6))
		case 1:
			device := j.TaskGroups[0].Tasks[0].Resources.Devices[0]
			gpus := int(*device.Count)
			most, onNode := min(3, x.room(gpus)-chiefs(j)), x.gpus/gpus
			if rewrite.IsPart(device.Name) { // each node has only one shared GPU
				most, onNode = min(most, x.nodes-chiefs(j)), 1
			}
			if j.Meta["pal_locality"] == "node" {
				most = min(most, onNode)
			}
			n := 1 + x.rng.IntN(most)
			j.TaskGroups[0].Count = &n
			if s := j.TaskGroups[0].Scaling; s != nil {
				s.Max = new(int64(n))
			}
		case 2:
			j.Meta = maps.Clone(j.Meta)
			j.Meta["edited"] = fmt.Sprint(x.rng.IntN(1000))
		}
	}))
}

// chiefs returns the number of the job's groups with GPUs, not counting the first group.
func chiefs(j *api.Job) (n int) {
	for _, g := range j.TaskGroups[1:] {
		n += min(1, rewrite.GPUsPerMember(g))
	}
	return n
}

// there reports whether a node is registered, and is neither lost nor drained.
func (x *Walk) there(n int) bool { return !x.gone[n] && x.Nomad.HasNode(NodeID(n)) }

// lose makes a random node unusable with the function how, unless half of the nodes are already
// lost or drained.
func (x *Walk) lose(how func(string)) {
	if n := x.rng.IntN(x.nodes); x.there(n) && len(x.gone) < x.nodes/2 {
		x.gone[n] = true
		how(NodeID(n))
	}
}

// forget purges a node whose machine still works, as an operator can do by mistake.
func (x *Walk) forget() {
	if n := x.rng.IntN(x.nodes); x.there(n) {
		heartbeat, scheduler := time.Duration(1+x.rng.IntN(20))*time.Second, time.Duration(0)
		if x.rng.IntN(2) == 0 { // the scheduler is late, as on a busy cluster
			heartbeat, scheduler = 20*time.Millisecond, time.Duration(x.rng.IntN(2000))*time.Millisecond
		}
		x.Nomad.ForgetNode(NodeID(n), heartbeat, scheduler)
	}
}

func (x *Walk) recover() {
	for _, n := range slices.Sorted(maps.Keys(x.gone)) {
		delete(x.gone, n)
		x.Nomad.RecoverNode(NodeID(n))
		x.Nomad.SetEligible(NodeID(n), true)
		return
	}
	for _, id := range slices.Sorted(maps.Keys(x.sick)) {
		delete(x.sick, id)
		x.Nomad.SetHealth(true, id)
		return
	}
}

func (x *Walk) drain() {
	if n := x.rng.IntN(x.nodes); x.there(n) && len(x.gone) < x.nodes/2 {
		x.gone[n] = true
		if x.rng.IntN(2) == 0 {
			x.Nomad.DrainWithin(NodeID(n), time.Duration(x.rng.IntN(120))*time.Second)
			return
		}
		x.Nomad.Drain(NodeID(n))
	}
}

func (x *Walk) sicken() {
	id := fmt.Sprintf("GPU-%d-%d", x.rng.IntN(x.nodes), x.rng.IntN(x.gpus))
	if !x.sick[id] && len(x.sick) < x.nodes {
		x.sick[id] = true
		x.Nomad.SetHealth(false, id)
	}
}

// forcedAfter is the longest time that a placer may need to requeue a drained gang while Nomad does
// not answer. During this time, the job of the gang is dead.
const forcedAfter = 2 * time.Minute

// collect runs `nomad system gc`. A drain can end a job. If Nomad does not answer, or the placer is
// new, the garbage collection can delete such a job before a placer has asked Nomad to evaluate the
// job again. The deleted job then looks like a purged job.
func (x *Walk) collect() {
	ended := map[nomadtest.Key]bool{}
	if time.Since(x.fault) < forcedAfter {
		ended = x.rules.endedSince(time.Now().Add(-forcedAfter))
	}
	for _, k := range slices.Collect(maps.Keys(ended)) {
		if job := x.Nomad.Job(k); job == nil || *job.Status != "dead" || x.Finished(k) {
			delete(ended, k)
		}
	}
	x.Nomad.Collect(time.Minute)
	for k := range ended {
		if x.Nomad.Job(k) == nil {
			x.Counts["collected while Nomad did not answer"]++
			x.left[k] = true
		}
	}
}

func (x *Walk) kill() {
	x.fault = time.Now()
	for _, p := range x.placers {
		p.Kill()
	}
	x.RunFor(time.Duration(x.rng.IntN(3000)) * time.Millisecond)
	x.StartPlacerOfChildren()
}

// second runs a second placer for a while. The second placer does not know about the first one.
func (x *Walk) second() {
	p := x.StartPlacerOfChildren()
	x.RunFor(time.Duration(x.rng.IntN(10)) * time.Second)
	p.Stop()
}

// Settle ends all faults, waits for the given time, and returns the jobs that are still open. A job
// is open if it has not finished although its author wants it to run. A job is also open if it
// differs from what its author wrote.
func (x *Walk) Settle(within time.Duration) (open []string) {
	x.Nomad.FailBy(nil)
	x.Nomad.SetEventFaults(nomadtest.EventFaults{})
	for len(x.gone)+len(x.sick) > 0 {
		x.recover()
	}
	x.liftQuarantine()
	x.liftAll()
	x.Excuse()
	x.stopServices()
	x.stopTemplates()
	lift, seen := time.Now(), nomadtest.Progress{}
	x.until(within, time.Second, func() bool {
		if time.Since(lift) > time.Minute { // jobs can still fail and cause quarantines
			lift = time.Now()
			x.liftQuarantine()
		}
		if at := x.Nomad.Progress(); at != seen {
			open, seen = x.open(), at
		}
		return len(open) == 0
	})
	return open
}

func (x *Walk) liftQuarantine() {
	c, err := nomad.NewClient(x.Nomad.Config("operator", ""), "default")
	if err == nil {
		_, err = placer.LiftQuarantine(context.Background(), c)
	}
	if err != nil {
		x.T.Errorf("lifting the quarantine: %v", err)
	}
}

func (x *Walk) stopServices() {
	for _, k := range x.Nomad.Jobs() {
		if *x.Nomad.Job(k).Type == api.JobTypeService {
			x.try(x.Stop(k))
		}
	}
}

func (x *Walk) open() (out []string) {
	for _, k := range x.rules.authoredJobs() {
		if why := x.openJob(k); why != "" {
			out = append(out, fmt.Sprintf("%s: %s", k, why))
		}
	}
	return out
}

// failedAlone reports whether the job cannot get any further, because some members have finished,
// and Nomad does not retry a failed member that the finished members do not need. Either the job's
// author has said that members do not need each other, or the failed member has no GPUs. A member
// without GPUs can also have been stopped after the other members ended.
func (x *Walk) failedAlone(k nomadtest.Key, job *api.Job) bool {
	h, err := rewrite.ParseHints(job)
	failed, done := false, false
	for _, m := range x.Nomad.Members(k) {
		alone := err == nil && h.OnFailure == rewrite.ReplaceMember || len(m.GPUs) == 0
		failed = failed || alone && m.Client == api.AllocClientStatusFailed || len(m.GPUs) == 0 && m.Desired == api.AllocDesiredStatusStop
		done = done || m.Done
	}
	return failed && done
}

func (x *Walk) openJob(k nomadtest.Key) string {
	job, live := x.Nomad.Job(k), len(x.Members(k))
	failedAlone := job != nil && live == 0 && x.failedAlone(k, job)
	x.rules.mu.Lock()
	defer x.rules.mu.Unlock()
	switch s := x.rules.jobs[k]; {
	case s.unknown, x.rules.forgotten(s):
		return ""
	case s.gone && live > 0:
		return "stopped by its author, but still there"
	case s.gone && job != nil && (job.Stop == nil || !*job.Stop):
		return "stopped by its author, but started again"
	case s.gone:
		return ""
	case (x.left[k] || x.left[s.template]) && live == 0:
		return ""
	case job == nil && !s.whole && !s.gpusDone: // otherwise Nomad collected it without its helper
		return "lost"
	case job == nil || s.whole:
		return ""
	case x.released[k] && live == 0 && Carries(job) == "free": // Nomad alone decided what to do after a drain or a failure
		return ""
	case x.rules.formOf(job) != s.form:
		return "not the author's latest version"
	case isTemplate(job):
		return ""
	case failedAlone:
		return ""
	}
	return "not finished"
}
