// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package scenario contains scripts of the actions of authors and a placer in a Nomad cluster. Each
// script prints the resulting jobs, evaluations and allocations. The scripts run on the in-memory
// Nomad and on a real Nomad (e2e). Both outputs are compared with the same file. A difference is a
// bug in the in-memory Nomad.
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

// Cluster is the Nomad cluster on which a scenario runs. The cluster has three nodes, node-0 to
// node-2. Node n has the GPUs GPU-n-0 and GPU-n-1.
type Cluster interface {
	API() *api.Client
	// NodeID returns the ID of the n-th node.
	NodeID(n int) string
	// SetHealth marks a GPU as healthy or unhealthy, and waits until Nomad has noticed the change.
	SetHealth(gpu string, healthy bool)
	// Cut and Hang disconnect a node, and wait until Nomad has noticed the disconnection. The tasks
	// of the node keep running. Recover reconnects the node. Cut also restarts the client of the
	// node.
	Cut(n int)
	Hang(n int)
	Recover(n int)
	// Crash ends a node and its tasks, and waits until Nomad has noticed the crash. Reboot restarts
	// a node before Nomad notices the crash.
	Crash(n int)
	Reboot(n int)
	// Drain drains a node immediately, and waits until the node is empty. DrainGently begins to
	// drain a node without a deadline. Undrain makes a node eligible again.
	Drain(n int)
	DrainGently(n int)
	Undrain(n int)
	// Purge deletes a working node from Nomad, and waits until the node has registered again.
	Purge(n int)
	// Finish lets the tasks of an allocation end successfully. The tasks must run until they are
	// told to end, like the tasks of untilTold.
	Finish(alloc string)
	// Until waits until ok returns true. If the wait takes too long, Until fails the scenario.
	Until(what string, ok func() bool)
}

// Scenario is one script.
type Scenario struct {
	Name string
	Run  func(*Script)
}

// Script is one run of a scenario.
type Script struct {
	Cluster
	out    strings.Builder
	prefix string         // prefix of the IDs of its jobs
	seen   map[string]int // by ID: numbers of allocations, in the order of their first output
	// byNode is true if show must order allocations by node. The nodes of the members differ
	// between runs, because Nomad chooses them at random.
	byNode bool
	names  map[string]string // names of jobs whose IDs Nomad makes
}

// named returns the name that a job has in the output.
func (x *Script) named(id string) string { return cmp.Or(x.names[id], x.short(id)) }

// Play runs a scenario and returns its output. If there is an error, Play returns the output up to
// the error. The IDs of the scenario's jobs begin with prefix. At the end, Play purges the jobs. If
// Play returns no error, nothing from the scenario is left.
func Play(c Cluster, s Scenario, prefix string) (seen string, err error) {
	x := &Script{Cluster: c, seen: map[string]int{}, prefix: prefix}
	defer func() { seen = x.out.String() }()
	if err := attempt(func() { s.Run(x) }); err != nil {
		return "", errors.Join(err, attempt(x.cleanUp))
	}
	return "", attempt(func() { x.cleanUp(); x.untouched() })
}

// failure contains the error that ends a scenario.
type failure struct{ error }

// Fail ends the current scenario, so that Play returns err.
func Fail(err error) { panic(failure{err}) }

// attempt calls a function, and returns the error that the function passed to Fail, or nil.
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

// id returns the ID of the job that has this short name in the scenario.
func (x *Script) id(name string) string { return x.prefix + strings.TrimPrefix(name, x.prefix) }

// short replaces the IDs in a text by the scenario's short names.
func (x *Script) short(text string) string {
	if x.prefix == "" {
		return text
	}
	return strings.ReplaceAll(text, x.prefix, "")
}

// cleanUp purges all jobs of the scenario, and waits until their allocations have ended.
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

// untouched waits until the cluster is as it was before the scenario. The wait ends when no jobs
// exist, and all nodes and GPUs are ready, eligible and healthy.
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

// leaves returns a description of something that the scenario left behind: a job, or a node or GPU
// that is not usable. leaves returns "" if there is nothing.
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

// say prints a heading for the next step.
func (x *Script) say(format string, args ...any) {
	fmt.Fprintf(&x.out, "# "+format+"\n", args...)
}

// register registers a job. If the caller passes an index, Nomad enforces the index. If Nomad
// refuses the job, register prints the error.
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

// own returns a copy of the job with an ID that belongs to this scenario. The tasks of the copy
// write no logs, because a real Nomad starts a process for the logs of each task.
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

// now returns the job that Nomad has now.
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

// deployment prints the status of a job's newest deployment, and whether Nomad will retry a failed
// member.
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

// versions prints the versions of a job. A version is stable if Nomad can revert to it. If a
// version has the submit time of an earlier version, it is a copy of the earlier version.
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

// untilRunning waits until at least the given number of the job's allocations run.
func (x *Script) untilRunning(id string, members int) {
	x.untilAllocs(id+" runs", id, members, func(a *api.AllocationListStub) bool {
		return a.ClientStatus == api.AllocClientStatusRunning && a.DesiredStatus == api.AllocDesiredStatusRun
	})
}

// untilAllocs waits until at least the given number of the job's allocations meet a condition.
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

// settle waits until no evaluation, start or stop of the job is in progress.
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

// show calls settle, and prints the job and its allocations. show prints only the number of GPUs,
// because Nomad can choose different GPUs in each run.
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

// byTheKill is the output for a killed task whose client reports the end before the kill.
const byTheKill = api.TaskTerminated + " 137"

// events returns the events of an allocation's tasks, except events that depend on timing.
func events(a *api.AllocationListStub) string {
	var out []string
	for _, t := range a.TaskStates {
		for _, e := range t.Events {
			switch e.Type {
			case api.TaskStarted, api.TaskRestarting:
				out = append(out, e.Type)
			case api.TaskKilling:
				if n := len(out); n > 0 && out[n-1] == byTheKill { // the client reported the end first
					out[n-1] = e.Type
					out = append(out, api.TaskTerminated)
				} else if !slices.Contains(out, e.Type) { // a node that is back can have two
					out = append(out, e.Type)
				}
			case api.TaskClientReconnected:
				if !over(a) { // ended allocations may lack this event
					out = append(out, e.Type)
				}
			case api.TaskTerminated:
				if slices.Contains(out, api.TaskKilling) { // the exit code depends on the shell
					out = append(out, e.Type)
					continue
				}
				out = append(out, fmt.Sprintf("%s %s", e.Type, e.Details["exit_code"]))
			}
		}
	}
	// After a crash, a client may report a failed restore for a task that no longer exists.
	if n := len(out); n > 0 && out[n-1] == api.TaskKilling && over(a) {
		out = out[:n-1]
	}
	return ": " + strings.Join(out, ", ")
}

// order prints whether the tasks of one allocation (later) started only after the tasks of another
// (earlier) had ended.
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
		Fail(fmt.Errorf("allocation %d did not begin, or allocation %d did not end: %v", later, earlier, times))
	}
	which := "before"
	if began >= ended {
		which = "after"
	}
	fmt.Fprintf(&x.out, "%d began %s %d had ended\n", later, which, earlier)
}

// preemption enables or disables preemption for batch jobs and services.
func (x *Script) preemption(on bool) {
	now, _, err := x.API().Operator().SchedulerGetConfiguration(nil)
	x.must(err)
	c := now.SchedulerConfig
	c.PreemptionConfig.BatchSchedulerEnabled, c.PreemptionConfig.ServiceSchedulerEnabled = on, on
	_, _, err = x.API().Operator().SchedulerSetConfiguration(c, nil)
	x.must(err)
}

// gpus returns the GPUs of an allocation.
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

// gpusOf prints the GPUs of the members that should keep running.
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

// stopMembers stops all members that should keep running, one by one, as the placer does.
func (x *Script) stopMembers(id string) {
	for _, a := range x.allocs(id) {
		if a.DesiredStatus == api.AllocDesiredStatusRun && !over(a) {
			_, err := x.API().Allocations().Stop(&api.Allocation{ID: a.ID}, nil)
			x.must(err)
		}
	}
}

// pinned returns the job with pins to exactly the given GPUs.
func (x *Script) pinned(job *api.Job, gpus ...string) *api.Job {
	return x.pinnedTo(job, nil, gpus...)
}

// pinnedTo is like pinned, but the pins also name the nodes in more.
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

// File returns the name of the file with the expected output of a scenario.
func File(s Scenario) string { return strings.ReplaceAll(s.Name, " ", "-") + ".txt" }
