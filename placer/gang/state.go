// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"slices"

	"github.com/hashicorp/nomad/api"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/request"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// State returns the state of the gang. State starts from the state that Nomad shows, and refines it
// with what the placer remembers. A placer that has just started remembers nothing, so a gang that
// is completing or committing appears to be waiting. The gang's GPUs still count as allocated while
// its members live.
func (g *Lifecycle) State(b Book) palapi.State {
	_, committing := g.pending.(Commit)
	switch {
	case !g.GaveUp().IsZero():
		return palapi.Failed
	case g.Nomad != palapi.Waiting:
		return g.Nomad
	case g.stop != nil || g.Target != nil:
		return palapi.Completing
	case g.Refused != nil:
		return palapi.Rejected
	case committing, len(b.Unanswered(g.Job)) > 0:
		return palapi.Committing
	}
	return palapi.Waiting
}

// Observed holds a job and its members as Nomad shows them, and the state that follows from Nomad's
// objects alone. An Observed is never changed, only replaced. There is one exception: after the
// placer has registered a gate to stop a gang, Members keeps the earlier members, which must still
// be stopped.
type Observed struct {
	Key cluster.JobKey
	Job *api.Job
	// Nomad is the state that Nomad's objects show. The state is one of [palapi.Waiting], [palapi.Starting],
	// [palapi.Running], [palapi.Stopping], [palapi.Resubmitted], [palapi.Lost], [palapi.Native], [palapi.Template] and [palapi.Ended]. The state of
	// an isolated job is [palapi.Rejected]. [Lifecycle.State] refines this state.
	Nomad palapi.State
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
// pins. Observe reports a lost gang as [palapi.Ended]. [Observed.WithLost] distinguishes [palapi.Lost] from
// [palapi.Ended].
func Observe(s *cluster.State, job *api.Job) Observed {
	st := Observed{Key: cluster.KeyOf(job), Job: job}
	pins, pinned := rewrite.Pinned(job)
	st.Pins = pins
	names := map[string][]string{}
	wanted := gpusPerMember(job)
	live := false // names are the names of allocations, by group
	gated := rewrite.Gated(job)
	past := false
	placed := false
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
	st.Nomad = st.state(pinned, gated, past, dropped)
	if st.Nomad == palapi.Running && !live {
		st.Nomad = palapi.Ended
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
		was := last[a.Name]
		if was == nil || a.CreateIndex > was.CreateIndex {
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
func (st *Observed) state(pinned, gated, pastGate, dropped bool) palapi.State {
	switch {
	case cluster.Ended(st.Job) && !dropped:
		return palapi.Ended
	case cluster.Template(st.Job):
		return palapi.Template
	case gated && len(st.Members) == 0 && request.Paused(st.Job):
		return palapi.Ended
	case gated && len(st.Members) == 0:
		return palapi.Waiting
	case gated && pastGate:
		return palapi.Native
	case gated && pinned:
		return palapi.Stopping
	case gated:
		return palapi.Resubmitted
	case !pinned:
		return palapi.Native
	case st.Have < st.Want:
		return palapi.Starting
	}
	return palapi.Running
}

// Holds counts the GPUs that the job's members hold.
func (st Observed) Holds() int {
	n := 0
	for _, a := range st.Members {
		n += len(a.GPUs)
	}
	return n
}
