// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/request"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// State is the state of a gang. The zero value is the state of a gang that was not observed yet.
type State string

// [State.Meaning] describes each of these states.
const (
	Waiting       State = "waiting"
	Committing    State = "committing"
	Starting      State = "starting"
	Running       State = "running"
	Stopping      State = "stopping"
	Completing    State = "completing"
	Resubmitted   State = "resubmitted"
	Lost          State = "lost"
	Failed        State = "failed"
	Rejected      State = "rejected"
	Unschedulable State = "unschedulable"
	Native        State = "native"
	Template      State = "template"
	Ended         State = "ended"
)

var meanings = map[State]string{
	Waiting:       "The job has the gate and waits in the queue. No member runs.",
	Committing:    "nomad-pal has sent the registration with pins, and Nomad has not answered yet.",
	Starting:      "The job has pins, but Nomad has not placed all members yet, or a member is missing.",
	Running:       "The job has pins, and Nomad has placed all members. The members run, are about to run (for example, they pull images), or are complete.",
	Stopping:      "The job has the gate and pins, and members still run. nomad-pal is stopping the gang to make room for another gang, to move the gang, or to requeue it.",
	Completing:    "nomad-pal has told the members to stop, and the members are ending. The GPUs of all members become free at the same time. A gang that is being moved then starts on its new GPUs.",
	Resubmitted:   "The author registered the job again, with the gate, while the gang was running.",
	Lost:          "The gang ended before its members had finished. nomad-pal requeues the gang, or Nomad places the missing members again.",
	Failed:        "nomad-pal has given up on the gang after repeated failures of its members or of the infrastructure.",
	Rejected:      "nomad-pal cannot serve the job as it is written, and does nothing for the job until the author changes it.",
	Unschedulable: "The gang waits, but this cluster could not run it even if nothing else ran. The gang blocks no other gang. Only the queue knows this state. The state machine treats the gang as waiting.",
	Native:        "Nomad alone places the job, because the job has no gate, or because a node satisfies the gate.",
	Template:      "The job is parameterized or periodic. nomad-pal places the runs that Nomad creates from such a job.",
	// After a node was disconnected, Nomad can call a job pending although all its members have
	// succeeded. The job stays pending until an evaluation of type max-disconnect-timeout is due
	// (seen on 1.11.3).
	Ended: "The job is complete, failed or stopped.",
}

// Meaning describes the state.
func (s State) Meaning() string { return meanings[s] }

// States returns all states, in the order of a gang's life.
func States() []State {
	return []State{Waiting, Committing, Starting, Running, Stopping, Completing, Resubmitted, Lost, Failed, Rejected, Unschedulable, Native, Template, Ended}
}

// Ours reports whether the placer is responsible for a job in this state.
func (s State) Ours() bool { return s != Native && s != Template && s != Ended }

// State returns the state of the gang. State starts from the state that Nomad shows, and refines it
// with what the placer remembers. A placer that has just started remembers nothing, so a gang that
// is completing or committing appears to be waiting. The gang's GPUs still count as allocated while
// its members live.
func (g *Lifecycle) State(b Book) State {
	_, committing := g.pending.(Commit)
	switch {
	case !g.GaveUp().IsZero():
		return Failed
	case g.Nomad != Waiting:
		return g.Nomad
	case g.stop != nil || g.Target != nil:
		return Completing
	case g.Refused != nil:
		return Rejected
	case committing, len(b.Unanswered(g.Job)) > 0:
		return Committing
	}
	return Waiting
}

// Observed holds a job and its members as Nomad shows them, and the state that follows from Nomad's
// objects alone. An Observed is never changed, only replaced. There is one exception: after the
// placer has registered a gate to stop a gang, Members keeps the earlier members, which must still
// be stopped.
type Observed struct {
	Key cluster.JobKey
	Job *api.Job
	// Nomad is the state that Nomad's objects show. The state is one of [Waiting], [Starting],
	// [Running], [Stopping], [Resubmitted], [Lost], [Native], [Template] and [Ended]. The state of
	// an isolated job is [Rejected]. [Lifecycle.State] refines this state.
	Nomad State
	Pins  rewrite.Pins
	// Members lists the members that are live and meant to keep running. Members does not include
	// members left behind on a disconnected node ([cluster.Alloc.LeftBehind]), because the placer
	// does not wait for their end. If only some groups have a gate, Members does not include
	// members of the other groups.
	Members []*cluster.Alloc
	// Want, Have and Live count members of the job that request GPUs: Want all of them, Have those
	// that run or have succeeded, and Live those that run.
	Want, Have, Live int
	// Misplaced is true if a member runs on a GPU or node that the pins do not name. Misplaced is
	// also true if a member has fewer GPUs than it requested (Nomad before 1.11.1,
	// hashicorp/nomad#18364). Misplaced is also true if a member still runs where the pins of an
	// earlier version put it. In the last case, a service is still being deployed, or there is no
	// room for the version to which the author reverted.
	Misplaced bool
	// LeftOut is true if Nomad stopped a member of a batch job and did not replace it. See
	// [leftOut]. LeftOutBeside is the same for members of groups without GPUs.
	LeftOut, LeftOutBeside bool
	// CutShort is true if a client killed a member of a service and Nomad did not replace the
	// member. This happens if the node was purged and registered again before Nomad evaluated the
	// job (seen on 1.11.3).
	CutShort bool
}

// Observe derives the state of a job from Nomad's objects: the job's allocations, the gate and the
// pins. Observe reports a lost gang as [Ended]. [Observed.WithLost] distinguishes [Lost] from
// [Ended].
func Observe(s *cluster.State, job *api.Job) Observed {
	st := Observed{Key: cluster.KeyOf(job), Job: job}
	pins, pinned := rewrite.Pinned(job)
	st.Pins = pins
	names, wanted, live := map[string][]string{}, gpusPerMember(job), false // names are the names of allocations, by group
	gated, past, placed := rewrite.Gated(job), false, false
	open, as := rewrite.OpenGroups(job), s.AllocsOf(st.Key)
	for _, a := range as {
		if a.LeftBehind(job) || gated && slices.Contains(open, a.Group) {
			continue
		}
		if a.Member() {
			st.Members = append(st.Members, a)
			st.Live += min(1, wanted[a.Group])
			past = past || a.PlacedFor(job) && (!pinned || s.Nodes.GateOpen(a.Node))
		}
		placed = placed || a.PlacedFor(job) && a.Desired == api.AllocDesiredStatusRun
		if a.Member() || a.FinishedIn(job) {
			names[a.Group] = append(names[a.Group], a.Name)
		}
		live = live || a.Live()
		if gp, ok := pins.Of(a.Group); ok && a.Member() {
			st.Misplaced = st.Misplaced || misplaced(a, pins.Mode, gp, wanted[a.Group])
		}
	}
	for _, g := range job.TaskGroups {
		if slices.ContainsFunc(g.Tasks, func(t *api.Task) bool { return len(rewrite.GPURequests(t)) > 0 }) {
			st.Want += rewrite.Members(g)
			st.Have += min(rewrite.Members(g), distinct(names[*g.Name]))
			// If a group has more members than its count, for example because a lost member has
			// reconnected, Nomad stops the surplus. Until Nomad has stopped the surplus, no member
			// counts as misplaced.
			st.Misplaced = st.Misplaced && len(names[*g.Name]) <= rewrite.Members(g)
		}
	}
	st.LeftOut, st.LeftOutBeside = leftOut(job, as)
	st.CutShort = cutShort(job, as)
	dropped := (gated && !placed || st.CutShort) && !rewrite.Stopped(job)
	if st.Nomad = st.state(pinned, gated, past, dropped); st.Nomad == Running && !live {
		st.Nomad = Ended
	}
	return st
}

// cutShort is [Observed.CutShort].
func cutShort(job *api.Job, as []*cluster.Alloc) bool {
	if *job.Type != api.JobTypeService {
		return false
	}
	for _, a := range newestOfEach(as) {
		if a.Client == api.AllocClientStatusComplete && a.Desired == api.AllocDesiredStatusRun && a.ModifyIndex > *job.JobModifyIndex && wasKilled(a.Tasks) {
			return true
		}
	}
	return false
}

// newestOfEach returns the newest allocation of each allocation name.
func newestOfEach(as []*cluster.Alloc) map[string]*cluster.Alloc {
	last := map[string]*cluster.Alloc{}
	for _, a := range as {
		if was := last[a.Name]; was == nil || a.CreateIndex > was.CreateIndex {
			last[a.Name] = a
		}
	}
	return last
}

// misplaced reports whether a member runs outside the nodes and GPUs in its group's pins.
func misplaced(a *cluster.Alloc, mode rewrite.Mode, gp rewrite.GroupPins, wanted int) bool {
	switch {
	case mode == rewrite.ModePrefer:
		return false
	case mode == rewrite.ModeGPU && len(a.GPUs) != wanted:
		return true
	case mode == rewrite.ModeClass && gp.GPUs == nil: // any GPU of the pinned nodes
		return !slices.Contains(gp.Nodes, a.Node)
	}
	return slices.ContainsFunc(a.GPUs, func(id string) bool {
		_, found := slices.BinarySearch(gp.GPUs, id) // the placer sorts the GPUs, but pins that an author wrote may be unsorted
		return !found && !slices.Contains(gp.GPUs, id)
	})
}

// distinct returns the number of different names. A member on a disconnected node and its
// replacement have the same name.
func distinct(names []string) int {
	slices.Sort(names)
	return len(slices.Compact(names))
}

// stopped returns the stopped members of a batch job that Nomad does not replace and does not
// report as unplaceable. After a drain, Nomad replaces such members only if it evaluates the job
// for another reason. stopped omits members that the author no longer requests, and failed members
// that Nomad does not retry.
func stopped(job *api.Job, as []*cluster.Alloc) (out []*cluster.Alloc) {
	is := func(a *cluster.Alloc) bool {
		return !a.Live() && a.Desired == api.AllocDesiredStatusStop && a.Next == "" && a.ModifyIndex > *job.JobModifyIndex
	}
	if *job.Type != api.JobTypeBatch || !slices.ContainsFunc(as, is) {
		return nil
	}
	there := map[string]int{} // running, complete or failed, by group
	for _, a := range newestOfEach(as) {
		switch {
		case is(a):
			out = append(out, a)
		case a.Member() || a.FinishedIn(job) || a.Client == api.AllocClientStatusFailed && a.Desired == api.AllocDesiredStatusRun && a.ModifyIndex > *job.JobModifyIndex:
			there[a.Group]++
		}
	}
	return slices.DeleteFunc(out, func(a *cluster.Alloc) bool {
		g := job.LookupTaskGroup(a.Group)
		return g == nil || there[a.Group] >= rewrite.Members(g)
	})
}

// leftOut reports whether Nomad must place stopped members again. withGPUs is true if a stopped
// member with GPUs must be placed. beside is true if a stopped member without GPUs must be placed.
// A member that had succeeded before it was stopped needs no replacement.
func leftOut(job *api.Job, as []*cluster.Alloc) (withGPUs, beside bool) {
	for _, a := range stopped(job, as) {
		gpus := rewrite.GPUsPerMember(job.LookupTaskGroup(a.Group)) > 0
		withGPUs = withGPUs || gpus && !endedByThemselves(a.Tasks)
		beside = beside || !gpus && !endedByThemselves(a.Tasks)
	}
	return withGPUs, beside
}

// gpusPerMember returns how many GPUs one member of each group requests.
func gpusPerMember(job *api.Job) map[string]int {
	n := map[string]int{}
	for _, g := range job.TaskGroups {
		n[*g.Name] = rewrite.GPUsPerMember(g)
	}
	return n
}

// state derives the state from the job's constraints and members.
//
// pastGate is set if Nomad has placed a member in spite of the gate. If the job also has pins, the
// member counts only if an operator has opened the gate. Otherwise Nomad was about to place the
// member when the gate was registered, and the member must be stopped.
//
// dropped is set if Nomad has placed no member of this gated version that is meant to run, so the
// job cannot have ended. Nomad still calls such a job dead after it has dropped the blocked
// evaluation. Nomad drops the blocked evaluation of a batch job when the job's members are drained.
// Nomad also drops the blocked evaluation of a service whose deployment waits for promotion, if the
// gate was registered just as members were placed and these members are then stopped. A service
// that is [Observed.CutShort] has not ended either.
func (st *Observed) state(pinned, gated, pastGate, dropped bool) State {
	switch {
	case cluster.Ended(st.Job) && !dropped:
		return Ended
	case cluster.Template(st.Job):
		return Template
	case gated && len(st.Members) == 0 && request.Paused(st.Job):
		return Ended
	case gated && len(st.Members) == 0:
		return Waiting
	case gated && pastGate:
		return Native
	case gated && pinned:
		return Stopping
	case gated:
		return Resubmitted
	case !pinned:
		return Native
	case st.Have < st.Want:
		return Starting
	}
	return Running
}

// Holds counts the GPUs that the job's members hold.
func (st Observed) Holds() int {
	n := 0
	for _, a := range st.Members {
		n += len(a.GPUs)
	}
	return n
}
