// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Phase is where a job with GPUs stands. It follows from the job and its
// allocations alone:
//
//	            gate, no members        Waiting ──commit──▶ Starting ──▶ Running
//	            gate over members:         ▲                   │            │
//	              placed past the gate  Native                 │ repair     │ preempt
//	              pins too              Stopping ◀─────────────┴────────────┘
//	              no pins               Rerun ──same pins──▶ Starting
//	no gate, no pins                    Native
type Phase string

// The phases.
const (
	// Waiting: gated, nothing runs: the job is in the queue.
	Waiting Phase = "waiting"
	// Starting: pinned; not all members are there yet.
	Starting Phase = "starting"
	// Running: pinned, all members are there or have finished.
	Running Phase = "running"
	// Stopping: gated over its pins and members: the gang is being stopped to
	// wait again.
	Stopping Phase = "stopping"
	// Rerun: gated again by its author while it runs.
	Rerun Phase = "rerun"
	// Native: placed by Nomad alone: without a gate, or past an opened one.
	Native Phase = "native"
	// Template: parameterized or periodic; its children are placed.
	Template Phase = "template"
	// Lost: ended before its members had finished, by no fault of its own: it is
	// taken back into the queue.
	Lost Phase = "lost"
	// Rejected: cannot be served as it is written, and is left alone until its
	// author changes it.
	Rejected Phase = "rejected"
	// Unschedulable: waits, and this cluster could not hold it even if nothing else
	// ran. It holds nobody up.
	Unschedulable Phase = "unschedulable"
	// Failed: given up after its members failed again and again by themselves.
	Failed Phase = "failed"
	// Ended: stopped or done. Nomad may call a job whose members have all done
	// their work pending still: after a node was disconnected, until an
	// evaluation of type max-disconnect-timeout is due (seen on 1.11.3).
	Ended Phase = "ended"
)

// Standing is a job's phase and what it was derived from.
type Standing struct {
	Key     nomad.JobKey
	Job     *api.Job
	Phase   Phase
	Pins    rewrite.Pins
	Members []*nomad.Alloc // live and to go on
	// Want and Have are members that the groups with GPUs want, and have or had.
	Want, Have int
	// Astray is set where a member runs on a GPU that its pins do not name, or on
	// fewer than it asked for (Nomad before 1.11.1 does that,
	// hashicorp/nomad#18364).
	Astray bool
}

// StandingOf works out where a job stands.
func StandingOf(s *nomad.State, job *api.Job) Standing {
	st := Standing{Key: nomad.KeyOf(job), Job: job}
	pins, pinned := rewrite.Pinned(job)
	st.Pins = pins
	byGroup, wanted, live := map[string]int{}, gpusPerMember(job), false
	gated, past, placed := rewrite.Gated(job), false, false
	for _, a := range s.AllocsOf(st.Key) {
		if a.Member() {
			st.Members = append(st.Members, a)
			past = past || a.PlacedFor(job) && (!pinned || s.GateOpen(a.Node))
		}
		placed = placed || a.PlacedFor(job)
		if a.Member() || a.FinishedIn(job) {
			byGroup[a.Group]++
		}
		live = live || a.Live()
		if gp, ok := pins.Of(a.Group); ok && a.Member() && pins.Mode == rewrite.ModeGPU {
			st.Astray = st.Astray || len(a.GPUs) != wanted[a.Group] || slices.ContainsFunc(a.GPUs, func(id string) bool { return !slices.Contains(gp.GPUs, id) })
		}
	}
	for _, g := range job.TaskGroups {
		if slices.ContainsFunc(g.Tasks, func(t *api.Task) bool { return len(rewrite.GPURequests(t)) > 0 }) {
			st.Want += rewrite.Members(g)
			st.Have += min(rewrite.Members(g), byGroup[*g.Name])
		}
	}
	dropped := gated && !placed && !stopped(job)
	if st.Phase = st.phase(pinned, gated, past, dropped); st.Phase == Running && !live {
		st.Phase = Ended
	}
	return st
}

// gpusPerMember are the GPUs of one member of each group.
func gpusPerMember(job *api.Job) map[string]int {
	n := map[string]int{}
	for _, g := range job.TaskGroups {
		n[*g.Name] = rewrite.GPUsPerMember(g)
	}
	return n
}

// phase is the phase by the job's constraints. pastGate: Nomad has placed a
// member past the gate. Where the job is pinned, too, the gate must stand open:
// a member that Nomad was about to place when the gate came is one to stop.
// dropped: behind its gate nothing of the job was ever placed, so that it cannot
// have ended. Nomad calls it dead for all that where it has dropped its blocked
// evaluation, as when the members of a batch job are drained.
func (st *Standing) phase(pinned, gated, pastGate, dropped bool) Phase {
	switch {
	case nomad.Ended(st.Job) && !dropped:
		return Ended
	case nomad.Template(st.Job):
		return Template
	case gated && len(st.Members) == 0:
		return Waiting
	case gated && pastGate:
		return Native
	case gated && pinned:
		return Stopping
	case gated:
		return Rerun
	case !pinned:
		return Native
	case st.Have < st.Want:
		return Starting
	}
	return Running
}
