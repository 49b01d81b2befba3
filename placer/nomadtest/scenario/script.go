// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package scenario holds scripts of what authors and a placer do to a Nomad, and
// shows what is then seen of its jobs, evaluations and allocations. They run against
// the in-memory Nomad and against a real one (e2e), and what they print is
// compared with the same file: what differs is a bug of the model.
package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Cluster is a Nomad under test: three nodes, node-0 to node-2, with GPUs GPU-n-0
// and GPU-n-1 each.
type Cluster interface {
	API() *api.Client
	// NodeID is the id of the n-th node.
	NodeID(n int) string
	// SetHealth makes a GPU healthy or not, and waits until Nomad knows.
	SetHealth(gpu string, healthy bool)
	// Cut cuts a node off, whose tasks run on, and waits until Nomad knows; Recover
	// brings it back, with a client that was restarted. That of Hang was not.
	Cut(n int)
	Hang(n int)
	Recover(n int)
	// Crash ends a node and what runs on it, and waits until Nomad knows; Reboot
	// brings it back before that.
	Crash(n int)
	Reboot(n int)
	// Drain drains a node at once, and waits until it is empty; DrainGently begins to drain one without a
	// deadline. Undrain makes it eligible again.
	Drain(n int)
	DrainGently(n int)
	Undrain(n int)
	// Purge has Nomad forget a node that is there, and waits until it has come back by itself.
	Purge(n int)
	// Finish ends the tasks of an allocation well that works until it is told to end.
	Finish(alloc string)
	// Until waits for a condition, and fails the scenario where it does not come.
	Until(what string, ok func() bool)
}

// Scenario is one script.
type Scenario struct {
	Name string
	Run  func(*Script)
}

// Script is a run of a scenario.
type Script struct {
	Cluster
	out    strings.Builder
	prefix string         // of the ids of its jobs
	seen   map[string]int // allocations by id, numbered as they are first seen
	// byNode: which member is where is chance; they are told by their nodes.
	byNode bool
	names  map[string]string // of jobs whose ids Nomad makes
}

// named is what a job is called.
func (x *Script) named(id string) string { return cmp.Or(x.names[id], x.short(id)) }

// Play runs a scenario and returns what was seen, all of it or until it could not go on. The ids of
// its jobs begin with a prefix of its own. They are purged: if there is no error, nothing is left.
func Play(c Cluster, s Scenario, prefix string) (seen string, err error) {
	x := &Script{Cluster: c, seen: map[string]int{}, prefix: prefix}
	defer func() { seen = x.out.String() }()
	if err := attempt(func() { s.Run(x) }); err != nil {
		return "", errors.Join(err, attempt(x.cleanUp))
	}
	return "", attempt(func() { x.cleanUp(); x.untouched() })
}

// failure is why a scenario cannot go on.
type failure struct{ error }

// Fail ends the scenario that is played: Play returns the error.
func Fail(err error) { panic(failure{err}) }

// attempt returns the error with which something failed.
func attempt(do func()) (err error) {
	defer func() {
		why := recover()
		if failed, is := why.(failure); is {
			err = failed.error
		} else if why != nil {
			panic(why)
		}
	}()
	do()
	return nil
}

// id is the id of a job that the scenario knows by a short name.
func (x *Script) id(name string) string { return x.prefix + strings.TrimPrefix(name, x.prefix) }

// short has ids as the scenario knows them.
func (x *Script) short(text string) string {
	if x.prefix == "" {
		return text
	}
	return strings.ReplaceAll(text, x.prefix, "")
}

// cleanUp purges all its jobs, and waits until none of them holds a GPU.
func (x *Script) cleanUp() {
	jobs, _, err := x.API().Jobs().List(&api.QueryOptions{Prefix: x.prefix})
	x.must(err)
	for _, j := range jobs {
		_, _, err := x.API().Jobs().Deregister(j.ID, true, nil)
		x.must(err)
	}
	x.Until("all allocations of the scenario have ended", func() bool {
		as, _, err := x.API().Allocations().List(nil)
		x.must(err)
		return !slices.ContainsFunc(as, func(a *api.AllocationListStub) bool { return strings.HasPrefix(a.JobID, x.prefix) && !over(a) })
	})
}

// untouched waits until the cluster is as it was before: no job, and nodes with GPUs that are all
// ready, eligible and healthy.
func (x *Script) untouched() {
	left := "nothing"
	defer func() {
		if why := recover(); why != nil {
			if failed, is := why.(failure); is {
				why = failure{fmt.Errorf("%w; it leaves %s", failed.error, left)}
			}
			panic(why)
		}
	}()
	x.Until("nothing of the scenario is left", func() bool {
		left = x.leaves()
		return left == ""
	})
}

// leaves is what is not as it was before.
func (x *Script) leaves() string {
	jobs, _, err := x.API().Jobs().List(nil)
	x.must(err)
	for _, j := range jobs {
		return "job " + j.ID
	}
	nodes, _, err := x.API().Nodes().List(nil)
	x.must(err)
	for _, n := range nodes {
		if n.Status != api.NodeStatusReady || n.Drain || n.SchedulingEligibility != api.NodeSchedulingEligible {
			return fmt.Sprintf("node %s %s, draining %v, %s", n.Name, n.Status, n.Drain, n.SchedulingEligibility)
		}
		node, _, err := x.API().Nodes().Info(n.ID, nil)
		x.must(err)
		for _, d := range node.NodeResources.Devices {
			for _, gpu := range d.Instances {
				if !gpu.Healthy {
					return fmt.Sprintf("GPU %s unhealthy", gpu.ID)
				}
			}
		}
	}
	return ""
}

func over(a *api.AllocationListStub) bool { return nomadtest.Ended(a.ClientStatus) }

func (x *Script) must(err error) {
	if err != nil {
		Fail(err)
	}
}

var (
	numbers    = regexp.MustCompile(`[0-9]+`)
	identities = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`)
	identity8  = regexp.MustCompile(`-[0-9a-f]{8}$`)
)

// say prints what is done next.
func (x *Script) say(format string, args ...any) {
	fmt.Fprintf(&x.out, "# "+format+"\n", args...)
}

// register registers a job, with an index to be enforced where one is given, and
// prints what Nomad says against it.
func (x *Script) register(job *api.Job, index ...uint64) {
	job = x.own(job)
	opts := &api.RegisterOptions{}
	if len(index) > 0 {
		opts.EnforceIndex, opts.ModifyIndex = true, index[0]
	}
	_, _, err := x.API().Jobs().RegisterOpts(job, opts, nil)
	var unexpected api.UnexpectedResponseError
	switch {
	case errors.As(err, &unexpected):
		fmt.Fprintf(&x.out, "refused, %d: %s\n", unexpected.StatusCode(), numbers.ReplaceAllString(x.short(unexpected.Body()), "N"))
	default:
		x.must(err)
	}
}

// own is a job under the id that is the scenario's own. Its tasks write no logs, which takes a process
// of a real Nomad for each.
func (x *Script) own(job *api.Job) *api.Job {
	named := *job
	named.ID, named.Name = new(x.id(*job.ID)), new(x.id(*job.Name))
	for _, g := range named.TaskGroups {
		for _, t := range g.Tasks {
			t.LogConfig = &api.LogConfig{Disabled: new(true)}
		}
	}
	return &named
}

// now is the job as Nomad has it.
func (x *Script) now(id string) *api.Job {
	job, _, err := x.API().Jobs().Info(x.id(id), nil)
	x.must(err)
	return job
}

func (x *Script) allocs(id string) []*api.AllocationListStub {
	as, _, err := x.API().Jobs().Allocations(x.id(id), false, nil)
	x.must(err)
	return as
}

func (x *Script) evals(id string) []*api.Evaluation {
	es, _, err := x.API().Jobs().Evaluations(x.id(id), nil)
	x.must(err)
	return es
}

// deployment prints what the newest deployment of a job does, and whether Nomad is to try a failed
// member again.
func (x *Script) deployment(id string) {
	d, _, err := x.API().Jobs().LatestDeployment(x.id(id), nil)
	x.must(err)
	fmt.Fprintf(&x.out, "deployment: %s", d.Status)
	for _, e := range x.evals(id) {
		if !e.WaitUntil.IsZero() && e.Status == api.EvalStatusPending {
			fmt.Fprint(&x.out, ", a member is tried again later")
		}
	}
	fmt.Fprintln(&x.out)
}

// versions prints the versions of a job: which of them Nomad may put back, and which one another is by its
// submit time.
func (x *Script) versions(id string) {
	all, _, _, err := x.API().Jobs().Versions(x.id(id), false, nil)
	x.must(err)
	slices.SortFunc(all, func(a, b *api.Job) int { return cmp.Compare(*a.Version, *b.Version) })
	submitted := map[int64]uint64{}
	for _, v := range all {
		fmt.Fprintf(&x.out, "version %d:", *v.Version)
		if *v.Stable {
			fmt.Fprint(&x.out, " stable")
		}
		if first, again := submitted[*v.SubmitTime]; again {
			fmt.Fprintf(&x.out, " submitted with version %d", first)
		} else {
			submitted[*v.SubmitTime] = *v.Version
		}
		fmt.Fprintln(&x.out)
	}
}

// stop stops a job.
func (x *Script) stop(id string) {
	_, _, err := x.API().Jobs().Deregister(x.id(id), false, nil)
	x.must(err)
	x.show(id)
}

// untilDeployed waits until a job's deployment has succeeded.
func (x *Script) untilDeployed(id string) {
	x.Until("the deployment is over", func() bool {
		d, _, err := x.API().Jobs().LatestDeployment(x.id(id), nil)
		x.must(err)
		return d != nil && d.Status == api.DeploymentStatusSuccessful
	})
}

// untilRunning waits until n of a job's allocations run.
func (x *Script) untilRunning(id string, members int) {
	x.untilAllocs(id+" runs", id, members, func(a *api.AllocationListStub) bool {
		return a.ClientStatus == api.AllocClientStatusRunning && a.DesiredStatus == api.AllocDesiredStatusRun
	})
}

// untilAllocs waits until at least n of a job's allocations fit the condition.
func (x *Script) untilAllocs(what, id string, members int, so func(*api.AllocationListStub) bool) {
	x.Until(what, func() bool {
		n := 0
		for _, a := range x.allocs(id) {
			if so(a) {
				n++
			}
		}
		return n >= members
	})
}

// settle waits until nothing is under way for the job.
func (x *Script) settle(id string) {
	x.Until(id+" settles", func() bool {
		busy := slices.ContainsFunc(x.evals(id), func(e *api.Evaluation) bool {
			return e.Status == api.EvalStatusPending && e.WaitUntil.IsZero()
		})
		return !busy && !slices.ContainsFunc(x.allocs(id), func(a *api.AllocationListStub) bool {
			return a.ClientStatus == api.AllocClientStatusPending && a.DesiredStatus == api.AllocDesiredStatusRun ||
				a.DesiredStatus != api.AllocDesiredStatusRun && !over(a) && a.ClientStatus != api.AllocClientStatusUnknown
		})
	})
}

// show prints the job and its allocations, once nothing is under way. GPUs are
// named where the pins leave no choice.
func (x *Script) show(id string) {
	x.settle(id)
	job, _, err := x.API().Jobs().Info(x.id(id), nil)
	if err != nil {
		fmt.Fprintf(&x.out, "no job %s\n", x.named(id))
	} else {
		fmt.Fprintf(&x.out, "%s: %s, version %d", x.named(id), *job.Status, *job.Version)
		if *job.Stop {
			fmt.Fprint(&x.out, ", stopped")
		}
		for _, e := range x.evals(id) {
			if e.Status == api.EvalStatusBlocked {
				fmt.Fprint(&x.out, ", blocked")
			}
		}
		fmt.Fprintln(&x.out)
	}
	as := x.allocs(id)
	slices.SortFunc(as, func(a, b *api.AllocationListStub) int {
		if x.byNode {
			return cmp.Or(cmp.Compare(a.CreateIndex, b.CreateIndex), cmp.Compare(a.NodeName, b.NodeName))
		}
		return cmp.Or(cmp.Compare(a.CreateIndex, b.CreateIndex), cmp.Compare(a.Name, b.Name))
	})
	for _, a := range as {
		if x.seen[a.ID] == 0 {
			x.seen[a.ID] = len(x.seen) + 1
		}
		canary := ""
		if d := a.DeploymentStatus; d != nil && d.Canary {
			canary = ", a canary"
		}
		status := a.ClientStatus
		if a.DesiredDescription == nomadtest.LostWithNode && status != api.AllocClientStatusLost {
			status = "lost and then " + status
		}
		fmt.Fprintf(&x.out, "  %d %s %s, to %s, version %d%s, %d GPUs%s\n", x.seen[a.ID], x.name(a), status, a.DesiredStatus, a.JobVersion, canary, len(x.gpus(a.ID)), events(a))
	}
}

func (x *Script) name(a *api.AllocationListStub) string {
	if x.byNode {
		return "on " + a.NodeName
	}
	return strings.TrimPrefix(a.Name, a.JobID+".")
}

// byTheKill is how a task ends that is killed, where it is not said that it is.
const byTheKill = api.TaskTerminated + " 137"

// events are what the tasks have gone through, without what differs by timing.
func events(a *api.AllocationListStub) string {
	var out []string
	for _, t := range a.TaskStates {
		for _, e := range t.Events {
			switch e.Type {
			case api.TaskStarted, api.TaskRestarting:
				out = append(out, e.Type)
			case api.TaskKilling:
				if n := len(out); n > 0 && out[n-1] == byTheKill { // the client told of the end first
					out[n-1] = e.Type
					out = append(out, api.TaskTerminated)
				} else if !slices.Contains(out, e.Type) { // it has two reasons where a node is back that was to stop it anyhow
					out = append(out, e.Type)
				}
			case api.TaskClientReconnected:
				if !over(a) { // an ended one is reported with it or without
					out = append(out, e.Type)
				}
			case api.TaskTerminated:
				if slices.Contains(out, api.TaskKilling) { // how a shell takes it is its affair
					out = append(out, e.Type)
					continue
				}
				out = append(out, fmt.Sprintf("%s %s", e.Type, e.Details["exit_code"]))
			}
		}
	}
	if n := len(out); n > 0 && out[n-1] == api.TaskKilling && over(a) { // a client that has crashed may say so of what is gone
		out = out[:n-1]
	}
	return ": " + strings.Join(out, ", ")
}

// order prints whether the tasks of the one numbered later began when those of the other had
// ended.
func (x *Script) order(later, earlier int, jobs ...string) {
	times := map[int]map[string]int64{}
	for _, id := range jobs {
		for _, a := range x.allocs(id) {
			at := map[string]int64{}
			for _, e := range a.TaskStates["work"].Events {
				at[e.Type] = e.Time
			}
			times[x.seen[a.ID]] = at
		}
	}
	began, ended := times[later][api.TaskStarted], times[earlier][api.TaskTerminated]
	if began == 0 || ended == 0 {
		Fail(fmt.Errorf("%d did not begin, or %d did not end: %v", later, earlier, times))
	}
	which := "before"
	if began >= ended {
		which = "after"
	}
	fmt.Fprintf(&x.out, "%d began %s %d had ended\n", later, which, earlier)
}

// preemption has Nomad preempt, or not, for batch jobs and services.
func (x *Script) preemption(on bool) {
	now, _, err := x.API().Operator().SchedulerGetConfiguration(nil)
	x.must(err)
	c := now.SchedulerConfig
	c.PreemptionConfig.BatchSchedulerEnabled, c.PreemptionConfig.ServiceSchedulerEnabled = on, on
	_, _, err = x.API().Operator().SchedulerSetConfiguration(c, nil)
	x.must(err)
}

// gpus are those of an allocation.
func (x *Script) gpus(id string) (ids []string) {
	a, _, err := x.API().Allocations().Info(id, nil)
	x.must(err)
	for _, t := range a.AllocatedResources.Tasks {
		for _, d := range t.Devices {
			ids = append(ids, d.DeviceIDs...)
		}
	}
	return ids
}

// gpusOf prints which GPUs the members have that are to go on.
func (x *Script) gpusOf(id string) {
	var ids []string
	for _, a := range x.allocs(id) {
		if a.DesiredStatus == api.AllocDesiredStatusRun && !over(a) {
			ids = append(ids, x.gpus(a.ID)...)
		}
	}
	slices.Sort(ids)
	fmt.Fprintf(&x.out, "on %s\n", strings.Join(ids, " "))
}

// stopMembers stops all that is to go on, one by one, as the placer does.
func (x *Script) stopMembers(id string) {
	for _, a := range x.allocs(id) {
		if a.DesiredStatus == api.AllocDesiredStatusRun && !over(a) {
			_, err := x.API().Allocations().Stop(&api.Allocation{ID: a.ID}, nil)
			x.must(err)
		}
	}
}

// pinned is the job with pins to exactly these GPUs.
func (x *Script) pinned(job *api.Job, gpus ...string) *api.Job {
	return x.pinnedTo(job, nil, gpus...)
}

// pinnedTo has pins to further nodes, too.
func (x *Script) pinnedTo(job *api.Job, more []int, gpus ...string) *api.Job {
	var nodes []string
	for _, g := range gpus {
		var n, k int
		_, err := fmt.Sscanf(g, "GPU-%d-%d", &n, &k)
		x.must(err)
		nodes = append(nodes, x.NodeID(n))
	}
	for _, n := range more {
		nodes = append(nodes, x.NodeID(n))
	}
	slices.Sort(nodes)
	pins := rewrite.Pins{Mode: rewrite.ModeGPU, Groups: []rewrite.GroupPins{{Group: "workers", Nodes: slices.Compact(nodes), GPUs: gpus}}}
	out, err := rewrite.Pin(job, pins, rewrite.Racks{})
	x.must(err)
	return out
}

// File is the name of the file with what is seen of a scenario.
func File(s Scenario) string { return strings.ReplaceAll(s.Name, " ", "-") + ".txt" }
