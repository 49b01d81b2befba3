// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package api

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
	Rejected:      "The job has a mistake. nomad-pal ignores the job until the author changes it.",
	Unschedulable: "The gang waits, but this cluster could not run it even if nothing else ran. It blocks no other gang.",
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
