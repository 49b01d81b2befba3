// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

// State is where a gang stands.
type State string

// The states.
const (
	// Waiting: gated, nothing runs: the job is in the queue.
	Waiting State = "waiting"
	// Committing: its registration with pins was sent, and Nomad has not said what
	// became of it.
	Committing State = "committing"
	// Starting: pinned; not all members are there yet.
	Starting State = "starting"
	// Running: pinned, all members are there or have finished.
	Running State = "running"
	// Stopping: gated over its pins and members: the gang is being stopped to
	// wait again.
	Stopping State = "stopping"
	// Completing: the members that were stopped end; their GPUs come free together.
	Completing State = "completing"
	// Resubmitted: gated again by its author while it runs.
	Resubmitted State = "resubmitted"
	// Lost: ended before its members had finished; it is queued again.
	Lost State = "lost"
	// Failed: given up after its members failed again and again by themselves.
	Failed State = "failed"
	// Rejected: cannot be served as it is written, and is left alone until its
	// author changes it.
	Rejected State = "rejected"
	// Unschedulable: waits, and this cluster could not hold it even if nothing else
	// ran. It holds nobody up. This is the queue's verdict: to the machine it waits.
	Unschedulable State = "unschedulable"
	// Native: placed by Nomad alone: without a gate, or past an opened one.
	Native State = "native"
	// Template: parameterized or periodic; its children are placed.
	Template State = "template"
	// Ended: stopped or done. Nomad may call a job whose members have all done
	// their work pending still: after a node was disconnected, until an
	// evaluation of type max-disconnect-timeout is due (seen on 1.11.3).
	Ended State = "ended"
)

// States are all of them, in the order of a gang's life.
func States() []State {
	return []State{Waiting, Committing, Starting, Running, Stopping, Completing, Resubmitted, Lost, Failed, Rejected, Unschedulable, Native, Template, Ended}
}

// Ours says whether a job in this state is the placer's to place.
func (s State) Ours() bool { return s != Native && s != Template && s != Ended }

// State is where the gang stands: what Nomad shows, and what the placer remembers.
func (g *Gang) State() State {
	switch {
	case g.GaveUp() != nil:
		return Failed
	case g.Nomad != Waiting:
		return g.Nomad
	case g.stop != nil || g.Target != nil:
		return Completing
	case g.Refused != nil:
		return Rejected
	case g.sent:
		return Committing
	}
	return Waiting
}
