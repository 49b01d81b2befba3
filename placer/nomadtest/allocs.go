// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomadtest

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/attr"
)

// alloc is an allocation.
type alloc struct {
	id, name string
	key      Key
	group    string
	number   int // the member's index in its group
	node     string
	eval     string
	job      *api.Job // the job version that the allocation runs
	placedBy *api.Job // the job version for which it was placed
	desired  string
	client   string
	gpus     map[string][]string // by task
	model    string              // model of the GPUs
	tasks    map[string]*api.TaskState
	// migrate is true if the allocation must be stopped and replaced. drained is true if a batch
	// job's member was stopped by a drain and is not replaced at once.
	migrate, drained bool
	next, previous   string
	preemptedBy      string
	preempts         []string
	// reschedules contains the times at which this allocation, or an allocation that it replaced,
	// failed and was rescheduled.
	reschedules []time.Time
	followUp    string // the evaluation that reschedules the allocation
	// deployment is the JobModifyIndex of the job version whose deployment placed or updated the
	// allocation, or 0. healthy and unhealthy are the allocation's state in its deployment.
	// mayReplace is true if Nomad may replace the allocation even during the deployment.
	deployment                     uint64
	healthy, unhealthy, mayReplace bool
	canary, promoted               bool
	failedAt                       time.Time
	restarts                       int
	// run increases whenever the client starts or ends the tasks. Actions that were scheduled for
	// an earlier run are dropped.
	run int
	// killing is true if the allocation is being stopped. signalled is true if the allocation's
	// tasks were asked to end.
	killing, signalled bool
	// unreported is the final status of an allocation that ended while its client had no
	// connection; otherwise "".
	unreported string
	// untold contains the task events that the client could not report because it has no
	// connection.
	untold []*api.TaskEvent
	// unknownSince is the time when Nomad last lost contact with the allocation. toReconnect is
	// true if Nomad has not recorded yet whether the allocation survived.
	unknownSince time.Time
	toReconnect  bool
	began        time.Time // when the tasks last began
	terminated   time.Time // when the tasks ended, unless they have begun again
	score        int       // score of the placement
	// purged is the time when the job was purged.
	purged      time.Time
	purgedIndex uint64
	lostIndex   uint64 // the index at which Nomad counted the allocation as lost
	disk        int
	created     time.Time
	modified    time.Time
	createIndex uint64
	modifyIndex uint64
}

func (a *alloc) clientTerminal() bool { return Ended(a.client) }

// ended reports whether the client has ended the allocation. Even an allocation that Nomad counts
// as lost can still run.
func (a *alloc) ended() bool { return a.clientTerminal() && a.client != api.AllocClientStatusLost }

// LostWithNode is Nomad's description of an allocation that was lost with its node.
const LostWithNode = "alloc is lost since its node is down"

// wasLost reports whether Nomad has ever counted the allocation as lost, even if its client has
// since reported another status.
func (a *alloc) wasLost() bool { return a.lostIndex > 0 }

// Ended reports whether a client status is terminal.
func Ended(client string) bool {
	return client == api.AllocClientStatusComplete || client == api.AllocClientStatusFailed || client == api.AllocClientStatusLost
}

func (a *alloc) terminal() bool { return a.desired != api.AllocDesiredStatusRun || a.clientTerminal() }

// holdsResources reports whether Nomad counts the allocation's resources as used.
func (a *alloc) holdsResources() bool { return !a.clientTerminal() }

func (a *alloc) taskGroup() *api.TaskGroup { return a.job.LookupTaskGroup(a.group) }

// allGPUs returns the GPUs of all tasks, in order.
func (a *alloc) allGPUs() []string {
	var out []string
	for _, ids := range a.gpus {
		out = append(out, ids...)
	}
	slices.Sort(out)
	return out
}

func (s *Server) sortedAllocs() []*alloc {
	return slices.SortedFunc(maps.Values(s.allocs), compareAllocs)
}

func compareAllocs(a, b *alloc) int {
	return cmp.Or(cmp.Compare(a.createIndex, b.createIndex), a.key.Compare(b.key), cmp.Compare(a.name, b.name), cmp.Compare(a.id, b.id))
}

// updateAlloc records a change of an allocation at the current index, and publishes the change.
// Nomad publishes no updates from clients about purged jobs (seen on 1.11.3).
func (s *Server) updateAlloc(a *alloc, event string) {
	a.modifyIndex, a.modified = s.index, s.now()
	s.tables["allocs"] = s.index
	if s.jobs[a.key] == nil && event == "AllocationUpdated" {
		return
	}
	out := s.allocation(a)
	out.Job = nil
	s.publish(event, "Allocation", a.id, a.key.Namespace, map[string]any{"Allocation": out})
}

// behaviour describes how a task behaves. The behaviour is read from a command line such as "sleep
// 30; exit 1".
type behaviour struct {
	runs time.Duration
	ever bool
	exit int
	// endsWell is true if the task exits with 0 when it is asked to end ("trap 'exit 0' INT").
	endsWell bool
}

var (
	sleeps = regexp.MustCompile(`\bsleep ([0-9.]+|infinity)`)
	exits  = regexp.MustCompile(`\bexit ([0-9]+)`)
)

// taskBehaviour reads the behaviour of a task from the task's configuration. If "[ $I = n ] &&"
// comes before "exit", only the member whose NOMAD_ALLOC_INDEX is n exits.
func taskBehaviour(t *api.Task, number int) (b behaviour) {
	var text strings.Builder
	text.WriteString(fmt.Sprint(t.Config["command"]))
	switch args := t.Config["args"].(type) {
	case []any:
		for _, a := range args {
			text.WriteString(" " + fmt.Sprint(a))
		}
	case []string:
		text.WriteString(" " + strings.Join(args, " "))
	}
	for part := range strings.SplitSeq(text.String(), ";") {
		if strings.Contains(part, "trap ") {
			b.endsWell = true
			continue
		}
		if when, rest, ok := strings.Cut(part, "] &&"); ok {
			if !strings.HasSuffix(strings.TrimSpace(when), "= "+strconv.Itoa(number)) {
				continue
			}
			part = rest
		}
		if m := sleeps.FindStringSubmatch(part); m != nil {
			if m[1] == "infinity" {
				b.ever = true
				return b
			}
			d, _ := strconv.ParseFloat(m[1], 64) // cannot fail: the expression matches only numbers
			b.runs += time.Duration(d * float64(time.Second))
		}
		if m := exits.FindStringSubmatch(part); m != nil {
			b.exit, _ = strconv.Atoi(m[1])
			return b
		}
	}
	return b
}

// startAlloc starts an allocation on its client.
func (s *Server) startAlloc(a *alloc) {
	a.run++
	run := a.run
	s.afterJitter(s.opts.Client, "client starts "+a.id, func() {
		n := s.client(a.node)
		heard := n == s.nodes[a.node]
		if a.run != run || n == nil || n.cut || a.signalled || a.ended() || heard && a.clientTerminal() {
			return
		}
		if s.previousStillRuns(a) {
			a.run--
			s.startAlloc(a)
			return
		}
		if why := s.reserveError(a); why != "" {
			s.taskEvent(a, &api.TaskEvent{Type: "Task hook failed", Message: why, DisplayMessage: why})
			s.allocEnded(a, api.AllocClientStatusFailed)
			return
		}
		if s.outage != nil && s.outage(a.key) != "" {
			s.taskEvent(a, &api.TaskEvent{Type: api.TaskDriverFailure, DisplayMessage: s.outage(a.key)})
			s.allocEnded(a, api.AllocClientStatusFailed)
			return
		}
		s.useGPUs(a)
		s.taskEvent(a, &api.TaskEvent{Type: api.TaskStarted})
		s.runTasks(a)
		if heard {
			s.tellRunning(a)
			s.reportHealthy(a)
		}
	})
}

// client returns a node that has a client, even if Nomad has forgotten the node. The client still
// starts the allocations that it was told to start, unless it has lost its connection.
func (s *Server) client(id string) *node { return cmp.Or(s.nodes[id], s.forgotten[id]) }

// tellRunning sends the client's report that an allocation runs.
func (s *Server) tellRunning(a *alloc) {
	for _, t := range a.tasks {
		t.State = "running"
	}
	a.client = api.AllocClientStatusRunning
	s.nextIndex("allocs")
	s.updateAlloc(a, "AllocationUpdated")
	s.jobChanged(a.key, "AllocationUpdated")
}

// previousStillRuns reports whether the client must wait before it starts an allocation. The client
// waits for the end of the allocation that the new one replaces, and of allocations that were
// preempted for the new one (scenarios "destructive" and "preempted"). The client does not wait for
// other allocations, even if they still use the GPUs of the new allocation. The client also does
// not wait for a lost allocation that it must still end after the node is back (scenario "node
// down"). Both rules were seen on real clients of 1.11.3, except that a client that had only hung
// waited for a lost allocation.
func (s *Server) previousStillRuns(a *alloc) bool {
	for _, id := range a.preempts {
		if o := s.allocs[id]; o != nil && !o.clientTerminal() {
			return true
		}
	}
	o := s.allocs[a.previous]
	return o != nil && o.node == a.node && o.desired != api.AllocDesiredStatusRun && !o.clientTerminal()
}

// reserveError returns the device plugin's error if a GPU of the allocation is unhealthy when the
// task starts.
func (s *Server) reserveError(a *alloc) string {
	for _, d := range s.client(a.node).NodeResources.Devices {
		for _, in := range d.Instances {
			if !in.Healthy && slices.Contains(a.allGPUs(), in.ID) {
				return fmt.Sprintf("devices: failed to reserve: GPU %s is unhealthy", in.ID)
			}
		}
	}
	return ""
}

// runTasks lets the tasks run for their run time, and then ends them.
func (s *Server) runTasks(a *alloc) {
	g := a.taskGroup()
	if g == nil {
		return
	}
	var b behaviour
	for _, t := range g.Tasks {
		one := taskBehaviour(t, a.number)
		b.runs, b.ever, b.exit = max(b.runs, one.runs), b.ever || one.ever, max(b.exit, one.exit)
	}
	if b.ever {
		return
	}
	run := a.run
	s.after(b.runs+s.jitter(10*time.Millisecond, "end of "+a.id), "tasks of "+a.id+" end", func() { s.tasksEnded(a, run, b.exit) })
}

// tasksEnded handles tasks that ended although nobody stopped them.
func (s *Server) tasksEnded(a *alloc, run, exit int) {
	if a.run != run || a.ended() {
		return
	}
	s.taskEvent(a, &api.TaskEvent{Type: api.TaskTerminated, ExitCode: exit, Details: map[string]string{"exit_code": strconv.Itoa(exit)}})
	policy := a.taskGroup().RestartPolicy
	switch {
	case exit == 0 && value(a.job.Type) == api.JobTypeBatch:
		s.allocEnded(a, api.AllocClientStatusComplete)
	case policy != nil && a.restarts < value(policy.Attempts) && !a.signalled:
		a.restarts++
		a.run++
		again := a.run
		s.taskEvent(a, &api.TaskEvent{Type: api.TaskRestarting})
		s.nextIndex("allocs")
		s.reportUpdate(a)
		s.after(value(policy.Delay), "task of "+a.id+" restarts", func() {
			if a.run == again && !a.ended() && !a.signalled {
				s.taskEvent(a, &api.TaskEvent{Type: api.TaskStarted})
				s.nextIndex("allocs")
				s.reportUpdate(a)
				s.runTasks(a)
				s.reportHealthy(a)
			}
		})
	default:
		s.taskEvent(a, &api.TaskEvent{Type: api.TaskNotRestarting})
		s.allocEnded(a, api.AllocClientStatusFailed)
	}
}

// reportUpdate sends the client's update to the servers, unless the client has no connection.
func (s *Server) reportUpdate(a *alloc) {
	if n := s.nodes[a.node]; n != nil && !n.cut {
		s.updateAlloc(a, "AllocationUpdated")
	}
}

// allocEnded records the end of an allocation on the client, and on the servers if the client can
// reach them.
func (s *Server) allocEnded(a *alloc, status string) {
	a.run++
	s.releaseGPUs(a)
	n := s.nodes[a.node]
	if n == nil || n.cut {
		a.unreported = status // will be reported when the node is back
		return
	}
	for _, t := range a.tasks {
		t.State, t.Failed = "dead", status == api.AllocClientStatusFailed
	}
	unknown := a.client == api.AllocClientStatusUnknown
	a.client, a.failedAt = status, s.now()
	s.nextIndex("allocs")
	s.forgetFollowUp(a)
	s.updateAlloc(a, "AllocationUpdated")
	s.notifyEnded(a)
	if s.jobs[a.key] == nil {
		a.desired = api.AllocDesiredStatusStop
		s.evaluate(a.key, "job-deregister")
	} else if unknown {
		if status == api.AllocClientStatusFailed {
			s.reportUnhealthy(a)
		}
		s.evaluate(a.key, "reconnect")
	} else if s.reportUnhealthy(a) {
		// the deployment watcher handles the failure
	} else if _, again := s.rescheduleTime(a); again && status == api.AllocClientStatusFailed && a.followUp == "" {
		s.evaluate(a.key, "alloc-failure")
	}
	s.jobChanged(a.key, "AllocationUpdated")
	s.capacityChanged()
}

// jobChanged updates the status of a job after a change of one of its allocations.
func (s *Server) jobChanged(k Key, event string) {
	if s.updateStatus(k) {
		s.publishJob(event, k)
	}
}

func (s *Server) taskEvent(a *alloc, e *api.TaskEvent) {
	e.Time = s.now().UnixNano()
	switch e.Type {
	case api.TaskStarted:
		a.began, a.terminated = s.now(), time.Time{}
	case api.TaskTerminated:
		a.terminated = s.now()
	}
	if n := s.nodes[a.node]; n == nil || n.cut {
		a.untold = append(a.untold, e)
		return
	}
	s.tellUntold(a)
	s.tellEvent(a, e)
}

// tellUntold reports the task events from the time when the client had no connection.
func (s *Server) tellUntold(a *alloc) {
	for _, e := range a.untold {
		s.tellEvent(a, e)
	}
	a.untold = nil
}

func (s *Server) tellEvent(a *alloc, e *api.TaskEvent) {
	for _, name := range slices.Sorted(maps.Keys(a.tasks)) {
		t := *a.tasks[name]
		t.Events = append(slices.Clone(t.Events), e)
		a.tasks[name] = &t
	}
}

// stopTasks ends an allocation that the servers have stopped, on its client. The client learns of
// the stop a moment later. The client reports that it is ending the allocation, and asks the tasks
// to end.
func (s *Server) stopTasks(a *alloc) {
	if a.killing || a.clientTerminal() {
		return
	}
	a.killing = true
	reach := func() bool {
		n := s.nodes[a.node]
		a.killing = n != nil && !n.cut // otherwise the client learns of it when it is back
		return a.killing && !a.clientTerminal() && a.unreported == ""
	}
	s.afterJitter(s.opts.Client/4, "client is to end "+a.id, func() {
		if !reach() {
			return
		}
		if a.tasksRun() {
			s.taskEvent(a, &api.TaskEvent{Type: api.TaskKilling})
		}
		a.signalled = true
		s.afterJitter(s.killTime(a), "client ends "+a.id, func() {
			if !reach() {
				return
			}
			if a.tasksRun() {
				exit := onSignal(a)
				s.taskEvent(a, &api.TaskEvent{Type: api.TaskTerminated, ExitCode: exit, Details: map[string]string{"exit_code": strconv.Itoa(exit)}})
				s.taskEvent(a, &api.TaskEvent{Type: api.TaskKilled})
			}
			s.allocEnded(a, api.AllocClientStatusComplete)
		})
	})
}

// killTime returns the minimum time that the tasks need to end. The tasks may need up to twice this
// time, and must not run beyond kill_timeout. So killTime returns at most half of kill_timeout.
func (s *Server) killTime(a *alloc) time.Duration {
	d := s.opts.Kill
	for _, t := range a.taskGroup().Tasks {
		if t.KillTimeout != nil {
			d = min(d, max(time.Millisecond, *t.KillTimeout/2))
		}
	}
	return d
}

// reconnectAlloc updates an allocation after its client has reconnected. The client ends the
// allocations that the servers stopped while the client was away. If forgotten is true, the machine
// crashed, and its tasks no longer exist.
func (s *Server) reconnectAlloc(a *alloc, forgotten bool) {
	running := s.gpuUsers != nil && s.usesGPU(a)
	s.tellUntold(a)
	if running && a.client == api.AllocClientStatusPending {
		s.tellRunning(a)
	}
	switch {
	case a.clientTerminal() && running:
		if s.random("client tells of "+a.id).IntN(2) == 0 { // before the client has ended a
			s.afterJitter(s.opts.Client, "client tells that what was lost runs, "+a.id, func() {
				if s.usesGPU(a) && a.client == api.AllocClientStatusLost {
					s.tellRunning(a)
				}
			})
		}
		s.afterJitter(s.opts.Client+s.opts.Kill, "client ends what was lost, "+a.id, func() {
			if !s.usesGPU(a) { // the tasks have ended by themselves
				return
			}
			a.run++
			s.releaseGPUs(a)
			s.nextIndex("allocs")
			s.taskEvent(a, &api.TaskEvent{Type: api.TaskKilling})
			s.taskEvent(a, &api.TaskEvent{Type: api.TaskTerminated, ExitCode: 130, Details: map[string]string{"exit_code": "130"}})
			a.client = api.AllocClientStatusComplete
			s.updateAlloc(a, "AllocationUpdated")
		})
	case a.client == api.AllocClientStatusLost && (a.unreported != "" || forgotten && !a.began.IsZero()):
		s.afterJitter(s.opts.Client, "client tells how what was lost ended, "+a.id, func() {
			s.allocEnded(a, cmp.Or(a.unreported, api.AllocClientStatusComplete))
		})
	case a.clientTerminal():
	case forgotten && a.client != api.AllocClientStatusPending && a.desired == api.AllocDesiredStatusRun:
		s.startOver(a)
	case forgotten && a.client != api.AllocClientStatusPending:
		a.signalled = true // the tasks did not end by themselves
		s.allocEnded(a, api.AllocClientStatusComplete)
	case a.unreported != "":
		s.allocEnded(a, a.unreported)
	case a.desired != api.AllocDesiredStatusRun:
		s.stopTasks(a) // unless the client already stops them
	case a.client == api.AllocClientStatusPending:
		s.startAlloc(a)
	case a.client == api.AllocClientStatusUnknown:
		s.tellReconnected(a)
		s.reportHealthy(a)
	default:
		s.reportHealthy(a)
	}
}

// killUnknown ends the allocations on the client of a node that Nomad had forgotten. The client
// ends the allocations because Nomad sent it no allocations while the node was unknown. If the
// client ends the allocations before Nomad has evaluated the jobs, members of batch jobs count as
// finished, and Nomad does not evaluate services again. Both effects were seen on 1.11.3 with a
// paused evaluation broker. A client that reconnects late enough ends no allocation.
func (s *Server) killUnknown(a *alloc) {
	if a.desired != api.AllocDesiredStatusRun || !a.tasksRun() || s.random("client ends "+a.id).IntN(2) == 0 {
		return
	}
	s.afterJitter(s.killTime(a), "client ends what it was not told of, "+a.id, func() {
		if n := s.nodes[a.node]; n == nil || n.cut || a.desired != api.AllocDesiredStatusRun || !a.tasksRun() {
			return
		}
		exit := onSignal(a)
		s.taskEvent(a, &api.TaskEvent{Type: api.TaskKilling})
		s.taskEvent(a, &api.TaskEvent{Type: api.TaskTerminated, ExitCode: exit, Details: map[string]string{"exit_code": strconv.Itoa(exit)}})
		s.taskEvent(a, &api.TaskEvent{Type: api.TaskKilled})
		s.allocEnded(a, api.AllocClientStatusComplete)
	})
}

// startOver starts the allocations of a crashed machine again (scenarios "rebooted" and "away and
// crashed").
func (s *Server) startOver(a *alloc) {
	a.run++
	run := a.run
	s.taskEvent(a, &api.TaskEvent{Type: "Failed Restoring Task"})
	if a.client == api.AllocClientStatusUnknown {
		s.tellReconnected(a)
	}
	s.afterJitter(s.opts.Client, "client starts "+a.id+" again", func() { // even while cut off
		if a.run != run || s.nodes[a.node] == nil || a.signalled || a.clientTerminal() {
			return
		}
		if why := s.reserveError(a); why != "" {
			s.taskEvent(a, &api.TaskEvent{Type: "Task hook failed", Message: why, DisplayMessage: why})
			s.allocEnded(a, api.AllocClientStatusFailed)
			return
		}
		s.useGPUs(a)
		s.taskEvent(a, &api.TaskEvent{Type: api.TaskStarted})
		s.nextIndex("allocs")
		s.reportUpdate(a)
		s.runTasks(a)
		s.reportHealthy(a)
	})
}

// useGPUs records which allocations actually use a GPU.
func (s *Server) useGPUs(a *alloc) {
	for _, id := range a.allGPUs() {
		if s.gpuUsers[id] == nil {
			s.gpuUsers[id] = map[string]bool{}
		}
		for _, other := range slices.Sorted(maps.Keys(s.gpuUsers[id])) {
			if o := cmp.Or(s.allocs[other], s.purged[other]); o != nil {
				s.notifyShared(id, o, a)
			}
		}
		s.gpuUsers[id][a.id] = true
	}
}

func (s *Server) releaseGPUs(a *alloc) {
	delete(s.purged, a.id)
	for _, id := range a.allGPUs() {
		delete(s.gpuUsers[id], a.id)
	}
}

func (s *Server) usesGPU(a *alloc) bool {
	return slices.ContainsFunc(a.allGPUs(), func(id string) bool { return s.gpuUsers[id][a.id] })
}

// stopAlloc handles the request of nomad alloc stop.
func (s *Server) stopAlloc(id string) (*api.AllocStopResponse, error) {
	a := s.allocs[id]
	if a == nil {
		return nil, httpError(404, "alloc not found")
	}
	a.migrate = true
	s.nextIndex("allocs", "evals")
	s.updateAlloc(a, "AllocationUpdateDesiredStatus")
	e := s.evaluate(a.key, "alloc-stop")
	return &api.AllocStopResponse{EvalID: e.ID}, nil
}

// resources returns an allocation's resources as they appear in lists and events.
func (a *alloc) resources() *api.AllocatedResources {
	out := &api.AllocatedResources{Tasks: map[string]*api.AllocatedTaskResources{}, Shared: api.AllocatedSharedResources{DiskMB: int64(a.disk)}}
	for _, t := range a.taskGroup().Tasks {
		r := &api.AllocatedTaskResources{
			Cpu: api.AllocatedCpuResources{CpuShares: int64(value(t.Resources.CPU))}, Memory: api.AllocatedMemoryResources{MemoryMB: int64(value(t.Resources.MemoryMB))},
		}
		if ids := a.gpus[t.Name]; len(ids) > 0 {
			kind := attr.Type
			if attr.GPUOf(ids[0]) != ids[0] {
				kind = attr.SharedType
			}
			r.Devices = []*api.AllocatedDeviceResource{{Vendor: attr.Vendor, Type: kind, Name: a.model, DeviceIDs: ids}}
		}
		out.Tasks[t.Name] = r
	}
	return out
}

// allocation returns an allocation in the form in which Nomad's API returns it.
func (s *Server) allocation(a *alloc) *api.Allocation {
	var health *api.AllocDeploymentStatus
	if a.deployment != 0 {
		if health = (&api.AllocDeploymentStatus{Canary: a.waitingCanary()}); a.healthy || a.unhealthy {
			health.Healthy = &a.healthy
		}
	}
	why := ""
	if a.wasLost() {
		why = LostWithNode
	}
	return &api.Allocation{
		DeploymentStatus: health, DesiredDescription: why,
		ID: a.id, Namespace: a.key.Namespace, EvalID: a.eval, Name: a.name, NodeID: a.node, NodeName: s.nodeName(a.node), JobID: a.key.ID, Job: a.job,
		TaskGroup: a.group, AllocatedResources: a.resources(), DesiredStatus: a.desired, ClientStatus: a.client, TaskStates: maps.Clone(a.tasks),
		PreviousAllocation: a.previous, NextAllocation: a.next, FollowupEvalID: a.followUp, PreemptedByAllocation: a.preemptedBy,
		CreateIndex: a.createIndex, ModifyIndex: a.modifyIndex, CreateTime: a.created.UnixNano(), ModifyTime: a.modified.UnixNano(),
	}
}

// stub returns an allocation as it appears in lists.
func (s *Server) stub(a *alloc, resources bool) *api.AllocationListStub {
	full := s.allocation(a)
	out := full.Stub()
	if resources {
		out.AllocatedResources = full.AllocatedResources
	}
	return out
}

func (s *Server) nodeName(id string) string {
	if n := s.nodes[id]; n != nil {
		return n.Name
	}
	return ""
}
