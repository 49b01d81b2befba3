// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"fmt"
	"slices"
)

// State is where a gang stands. Its zero value is none.
type State uint8

// The states; what each is, [State.Meaning] says.
const (
	_ State = iota
	Waiting
	Committing
	Starting
	Running
	Stopping
	Completing
	Resubmitted
	Lost
	Failed
	Rejected
	Unschedulable
	Native
	Template
	Ended
	numStates
)

var names = [numStates]string{
	Waiting: "waiting", Committing: "committing", Starting: "starting", Running: "running", Stopping: "stopping",
	Completing: "completing", Resubmitted: "resubmitted", Lost: "lost", Failed: "failed", Rejected: "rejected",
	Unschedulable: "unschedulable", Native: "native", Template: "template", Ended: "ended",
}

// String is the state's name, as people see it.
func (s State) String() string {
	if s < numStates {
		return names[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// MarshalText is the state's name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a name.
func (s *State) UnmarshalText(name []byte) error {
	i := slices.Index(names[:], string(name))
	if i < 0 {
		return fmt.Errorf("state %q of a job is unknown", name)
	}
	*s = State(i)
	return nil
}

var meanings = [numStates]string{
	Waiting:       "Gated, nothing runs: the job is in the queue.",
	Committing:    "Its registration with pins was sent, and Nomad has not said what became of it.",
	Starting:      "Pinned; not all members are there yet.",
	Running:       "Pinned; all members are there, or are complete.",
	Stopping:      "Gated over its pins and members: the gang is being stopped to wait again, for another gang, to move, or because it was not whole.",
	Completing:    "The members that were stopped end; their GPUs come free together.",
	Resubmitted:   "Gated again by its author while it runs.",
	Lost:          "Ended before its members had finished; it is queued again.",
	Failed:        "Given up after its members failed again and again by themselves, or it was lost again and again.",
	Rejected:      "Cannot be served as it is written, and is left alone until its author changes it.",
	Unschedulable: "Waits, and this cluster could not hold it even if nothing else ran. It holds nobody up. The queue finds this out; the state machine treats the gang as waiting.",
	Native:        "Placed by Nomad alone: without a gate, or past an opened one.",
	Template:      "Parameterized or periodic; its children are placed.",
	// Nomad may call a job whose members have all done their work pending still: after a
	// node was disconnected, until an evaluation of type max-disconnect-timeout is due
	// (seen on 1.11.3).
	Ended: "Complete, failed or stopped: explain says which.",
}

// Meaning says what a gang in this state is.
func (s State) Meaning() string { return meanings[s] }

// States are all of them, in the order of a gang's life.
func States() []State {
	var out []State
	for s := Waiting; s < numStates; s++ {
		out = append(out, s)
	}
	return out
}

// Ours says whether a job in this state is the placer's to place.
func (s State) Ours() bool { return s != Native && s != Template && s != Ended }

// State is where the gang stands: what Nomad shows, refined by what the placer
// remembers. A placer that was just started knows the first part alone: then a gang
// that completes, or whose start is under way, looks as if it waited. Its GPUs still
// count as taken for as long as its members live.
func (g *Gang) State() State {
	_, committing := g.pending.(Commit)
	switch {
	case g.GaveUp() != nil:
		return Failed
	case g.Nomad != Waiting:
		return g.Nomad
	case g.stop != nil || g.Target != nil:
		return Completing
	case g.Refused != nil:
		return Rejected
	case len(g.sent) > 0, committing:
		return Committing
	}
	return Waiting
}
