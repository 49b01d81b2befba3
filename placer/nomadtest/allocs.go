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
)

// alloc is an allocation.
type alloc struct {
	id, name string
	key      Key
	group    string
	number   int // of the group's members
	node     string
	eval     string
	job      *api.Job // the version that it runs
	desired  string
	client   string
	gpus     map[string][]string // by task
	model    string              // of the GPUs
	tasks    map[string]*api.TaskState
	// migrate: it is to be stopped and replaced; drained: not replaced at once
	// where it is of a batch job.
	migrate, drained bool
	next, previous   string
	// tries are when it, and those before it, failed and were tried elsewhere.
	tries    []time.Time
	followUp string // the evaluation that tries it elsewhere
	canary   bool
	healthy  bool // for its deployment
	failedAt time.Time
	restarts int
	// run counts what the client does: what was to happen in an earlier run does
	// not any more.
	run int
	// killing: it is being stopped; signalled: its tasks were asked to end.
	killing, signalled bool
	// unheard is how it ended while its client was cut off, "" if it did not.
	unheard string
	// purged is when its job was.
	purged      time.Time
	purgedIndex uint64
	lostIndex   uint64 // at which its node was found down
	disk        int
	created     time.Time
	modified    time.Time
	createIndex uint64
	modifyIndex uint64
}

func (a *alloc) clientTerminal() bool {
	switch a.client {
	case api.AllocClientStatusComplete, api.AllocClientStatusFailed, api.AllocClientStatusLost:
		return true
	}
	return false
}

func (a *alloc) terminal() bool { return a.desired != api.AllocDesiredStatusRun || a.clientTerminal() }

// holds says whether Nomad counts the allocation's resources as used.
func (a *alloc) holds() bool { return !a.clientTerminal() }

func (a *alloc) taskGroup() *api.TaskGroup { return a.job.LookupTaskGroup(a.group) }

// allGPUs are the GPUs of all tasks, sorted.
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
	return cmp.Or(cmp.Compare(a.createIndex, b.createIndex), compareKeys(a.key, b.key), cmp.Compare(a.name, b.name), cmp.Compare(a.id, b.id))
}

// putAlloc notes a change of an allocation at the present index, and tells of it.
// Nomad tells nothing of what its clients say of purged jobs (seen on 1.11.3).
func (s *Server) putAlloc(a *alloc, event string) {
	a.modifyIndex, a.modified = s.index, s.now()
	s.tables["allocs"] = s.index
	if s.jobs[a.key] == nil && event == "AllocationUpdated" {
		return
	}
	out := s.allocation(a)
	out.Job = nil
	s.tell(event, "Allocation", a.id, a.key.Namespace, map[string]any{"Allocation": out})
}

// behaviour is what a task does, read from its command line: "sleep 30; exit 1".
type behaviour struct {
	runs time.Duration
	ever bool
	exit int
}

var (
	sleeps = regexp.MustCompile(`\bsleep ([0-9.]+|infinity)`)
	exits  = regexp.MustCompile(`\bexit ([0-9]+)`)
)

// behaviourOf reads a task's configuration. NOMAD_ALLOC_INDEX is known, and "[ $I = n ] &&"
// before "exit" limits it to one member.
func behaviourOf(t *api.Task, number int) (b behaviour) {
	text := fmt.Sprint(t.Config["command"])
	switch args := t.Config["args"].(type) {
	case []any:
		for _, a := range args {
			text += " " + fmt.Sprint(a)
		}
	case []string:
		text += " " + strings.Join(args, " ")
	}
	for part := range strings.SplitSeq(text, ";") {
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
			d, _ := strconv.ParseFloat(m[1], 64) // by the expression
			b.runs += time.Duration(d * float64(time.Second))
		}
		if m := exits.FindStringSubmatch(part); m != nil {
			b.exit, _ = strconv.Atoi(m[1])
			return b
		}
	}
	return b
}

// launch has the client start what it was given.
func (s *Server) launch(a *alloc) {
	a.run++
	run := a.run
	s.after(s.opts.Client, "client starts "+a.id, func() {
		if n := s.nodes[a.node]; a.run != run || n == nil || n.cut || a.signalled || a.clientTerminal() {
			return
		}
		if s.waitsForOld(a) {
			a.run--
			s.launch(a)
			return
		}
		if why := s.unusable(a); why != "" {
			s.taskEvent(a, &api.TaskEvent{Type: "Task hook failed", Message: why, DisplayMessage: why})
			s.ended(a, api.AllocClientStatusFailed)
			return
		}
		s.occupy(a)
		s.taskEvent(a, &api.TaskEvent{Type: api.TaskStarted})
		for _, t := range a.tasks {
			t.State = "running"
		}
		a.client = api.AllocClientStatusRunning
		s.next("allocs")
		s.putAlloc(a, "AllocationUpdated")
		s.jobChanged(a.key, "AllocationUpdated")
		s.work(a)
		s.noteHealthy(a)
	})
}

// waitsForOld says whether what the allocation replaces has not ended yet.
func (s *Server) waitsForOld(a *alloc) bool {
	return slices.ContainsFunc(s.byJob[a.key], func(o *alloc) bool {
		return o != a && o.node == a.node && o.desired != api.AllocDesiredStatusRun && !o.clientTerminal()
	})
}

// unusable is what the device plugin says where GPUs fell sick before the task
// was started.
func (s *Server) unusable(a *alloc) string {
	for _, d := range s.nodes[a.node].NodeResources.Devices {
		for _, in := range d.Instances {
			if !in.Healthy && slices.Contains(a.allGPUs(), in.ID) {
				return fmt.Sprintf("devices: failed to reserve: GPU %s is unhealthy", in.ID)
			}
		}
	}
	return ""
}

// work has the tasks run as long as they do, and end.
func (s *Server) work(a *alloc) {
	g := a.taskGroup()
	if g == nil {
		return
	}
	var b behaviour
	for _, t := range g.Tasks {
		one := behaviourOf(t, a.number)
		b.runs, b.ever, b.exit = max(b.runs, one.runs), b.ever || one.ever, max(b.exit, one.exit)
	}
	if b.ever {
		return
	}
	run := a.run
	s.later(b.runs+s.spread(10*time.Millisecond, "end of "+a.id), "tasks of "+a.id+" end", func() { s.workDone(a, run, b.exit) })
}

// workDone takes in that the tasks have ended by themselves.
func (s *Server) workDone(a *alloc, run, exit int) {
	if a.run != run || a.clientTerminal() {
		return
	}
	s.taskEvent(a, &api.TaskEvent{Type: api.TaskTerminated, ExitCode: exit, Details: map[string]string{"exit_code": strconv.Itoa(exit)}})
	policy := a.taskGroup().RestartPolicy
	switch {
	case exit == 0 && value(a.job.Type) == api.JobTypeBatch:
		s.ended(a, api.AllocClientStatusComplete)
	case policy != nil && a.restarts < value(policy.Attempts) && !a.signalled:
		a.restarts++
		a.run++
		again := a.run
		s.taskEvent(a, &api.TaskEvent{Type: api.TaskRestarting})
		s.next("allocs")
		s.tellOf(a)
		s.later(value(policy.Delay), "task of "+a.id+" restarts", func() {
			if a.run == again && !a.clientTerminal() && !a.signalled {
				s.taskEvent(a, &api.TaskEvent{Type: api.TaskStarted})
				s.next("allocs")
				s.tellOf(a)
				s.work(a)
			}
		})
	default:
		s.taskEvent(a, &api.TaskEvent{Type: api.TaskNotRestarting})
		s.ended(a, api.AllocClientStatusFailed)
	}
}

// tellOf has the servers hear of the client's change, unless it is cut off.
func (s *Server) tellOf(a *alloc) {
	if n := s.nodes[a.node]; n != nil && !n.cut {
		s.putAlloc(a, "AllocationUpdated")
	}
}

// ended takes in on the client that an allocation is over, and on the servers
// where the client can be heard.
func (s *Server) ended(a *alloc, status string) {
	a.run++
	s.release(a)
	n := s.nodes[a.node]
	if n == nil || n.cut {
		a.unheard = status // the servers are told when the node is back
		return
	}
	for _, t := range a.tasks {
		t.State, t.Failed = "dead", status == api.AllocClientStatusFailed
	}
	a.client, a.failedAt = status, s.now()
	s.next("allocs")
	s.putAlloc(a, "AllocationUpdated")
	s.noteEnd(a)
	if s.jobs[a.key] == nil {
		a.desired = api.AllocDesiredStatusStop
		s.evaluate(a.key, "job-deregister")
	} else if _, again := s.tryAgain(a); again && status == api.AllocClientStatusFailed && a.followUp == "" {
		s.evaluate(a.key, "alloc-failure")
	}
	s.jobChanged(a.key, "AllocationUpdated")
	s.capacityChanged()
}

// jobChanged brings a job's status up to date after a change of its allocations.
func (s *Server) jobChanged(k Key, event string) {
	if s.updateStatus(k) {
		s.tellJob(event, k)
	}
}

func (s *Server) taskEvent(a *alloc, e *api.TaskEvent) {
	e.Time = s.now().UnixNano()
	for _, name := range slices.Sorted(maps.Keys(a.tasks)) {
		t := *a.tasks[name]
		t.Events = append(slices.Clone(t.Events), e)
		a.tasks[name] = &t
	}
}

// kill has the client end an allocation that the servers want stopped: it hears
// of that a moment later, says so, and asks the tasks to end.
func (s *Server) kill(a *alloc) {
	if a.killing || a.clientTerminal() {
		return
	}
	a.killing = true
	reach := func() bool {
		n := s.nodes[a.node]
		a.killing = n != nil && !n.cut // else it is told when it is back
		return a.killing && !a.clientTerminal() && a.unheard == ""
	}
	s.after(s.opts.Client/4, "client is to end "+a.id, func() {
		if !reach() {
			return
		}
		if a.client == api.AllocClientStatusRunning {
			s.taskEvent(a, &api.TaskEvent{Type: api.TaskKilling})
		}
		a.signalled = true
		s.after(s.killTime(a), "client ends "+a.id, func() {
			if !reach() {
				return
			}
			if a.client == api.AllocClientStatusRunning {
				s.taskEvent(a, &api.TaskEvent{Type: api.TaskTerminated, ExitCode: 130, Details: map[string]string{"exit_code": "130"}})
				s.taskEvent(a, &api.TaskEvent{Type: api.TaskKilled})
			}
			s.ended(a, api.AllocClientStatusComplete)
		})
	})
}

// killTime is how long the tasks take to end, at least: what goes on after half of
// its kill_timeout is as good as killed when that is over.
func (s *Server) killTime(a *alloc) time.Duration {
	d := s.opts.Kill
	for _, t := range a.taskGroup().Tasks {
		if t.KillTimeout != nil {
			d = min(d, max(time.Millisecond, *t.KillTimeout/2))
		}
	}
	return d
}

// reconnect settles what a client that is back runs: what the servers have given
// up meanwhile is ended; what it has forgotten is gone.
func (s *Server) reconnect(a *alloc, forgotten bool) {
	running := s.physical != nil && s.uses(a)
	switch {
	case a.clientTerminal() && running:
		s.after(s.opts.Client+s.opts.Kill, "client ends what was lost, "+a.id, func() {
			s.release(a)
			s.next("allocs")
			s.taskEvent(a, &api.TaskEvent{Type: api.TaskKilling})
			s.taskEvent(a, &api.TaskEvent{Type: api.TaskTerminated, ExitCode: 130, Details: map[string]string{"exit_code": "130"}})
			a.client = api.AllocClientStatusComplete
			s.putAlloc(a, "AllocationUpdated")
		})
	case a.clientTerminal():
	case forgotten:
		s.taskEvent(a, &api.TaskEvent{Type: "Failed Restoring Task"})
		s.ended(a, api.AllocClientStatusFailed)
	case a.unheard != "":
		s.ended(a, a.unheard)
	case a.desired != api.AllocDesiredStatusRun:
		a.killing = false
		s.kill(a)
	case a.client == api.AllocClientStatusPending:
		s.launch(a)
	}
}

// occupy notes which tasks really use a GPU.
func (s *Server) occupy(a *alloc) {
	for _, id := range a.allGPUs() {
		if s.physical[id] == nil {
			s.physical[id] = map[string]bool{}
		}
		for _, other := range slices.Sorted(maps.Keys(s.physical[id])) {
			if o := cmp.Or(s.allocs[other], s.purged[other]); o != nil {
				s.noteShared(id, o, a)
			}
		}
		s.physical[id][a.id] = true
	}
}

func (s *Server) release(a *alloc) {
	delete(s.purged, a.id)
	for _, id := range a.allGPUs() {
		delete(s.physical[id], a.id)
	}
}

func (s *Server) uses(a *alloc) bool {
	return slices.ContainsFunc(a.allGPUs(), func(id string) bool { return s.physical[id][a.id] })
}

// stopAlloc is `nomad alloc stop`.
func (s *Server) stopAlloc(id string) (*api.AllocStopResponse, error) {
	a := s.allocs[id]
	if a == nil {
		return nil, refuse(404, "alloc not found")
	}
	a.migrate = true
	s.next("allocs", "evals")
	s.putAlloc(a, "AllocationUpdateDesiredStatus")
	e := s.evaluate(a.key, "alloc-stop")
	return &api.AllocStopResponse{EvalID: e.ID}, nil
}

// resources are what a list or an event says of an allocation's resources.
func (a *alloc) resources() *api.AllocatedResources {
	out := &api.AllocatedResources{Tasks: map[string]*api.AllocatedTaskResources{}, Shared: api.AllocatedSharedResources{DiskMB: int64(a.disk)}}
	for _, t := range a.taskGroup().Tasks {
		r := &api.AllocatedTaskResources{
			Cpu: api.AllocatedCpuResources{CpuShares: int64(value(t.Resources.CPU))}, Memory: api.AllocatedMemoryResources{MemoryMB: int64(value(t.Resources.MemoryMB))},
		}
		if ids := a.gpus[t.Name]; len(ids) > 0 {
			r.Devices = []*api.AllocatedDeviceResource{{Vendor: "nvidia", Type: "gpu", Name: a.model, DeviceIDs: ids}}
		}
		out.Tasks[t.Name] = r
	}
	return out
}

// allocation is the allocation as Nomad tells it by itself.
func (s *Server) allocation(a *alloc) *api.Allocation {
	return &api.Allocation{
		ID: a.id, Namespace: a.key.Namespace, EvalID: a.eval, Name: a.name, NodeID: a.node, NodeName: s.nodeName(a.node), JobID: a.key.ID, Job: a.job,
		TaskGroup: a.group, AllocatedResources: a.resources(), DesiredStatus: a.desired, ClientStatus: a.client, TaskStates: maps.Clone(a.tasks),
		PreviousAllocation: a.previous, NextAllocation: a.next, FollowupEvalID: a.followUp,
		CreateIndex: a.createIndex, ModifyIndex: a.modifyIndex, CreateTime: a.created.UnixNano(), ModifyTime: a.modified.UnixNano(),
	}
}

// stub is the allocation as lists have it.
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
