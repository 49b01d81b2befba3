// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

// handler is what an event does in a state. to are the states that the gang may be in
// afterwards, other than the one it was in, once all answers are there.
type handler struct {
	do  func(*Gang, Event, World) []Effect
	say string // what it does, for the drawing; "" if it does nothing
	to  []State
}

// duty is something that may be due in a gang's turn. It returns what is to be done,
// and whether the turn goes on: it ends with an effect that has an answer, and begins
// anew with that answer.
type duty struct {
	say string
	do  func(*Gang, World) (effects []Effect, on bool)
	// always: also while the gang waits after a failure.
	always bool
	// reads: it only reads.
	reads bool
}

// What every gang that is ours begins its turn with.
var (
	dutyPosition = duty{say: "find its place in the queue", do: (*Gang).findPosition, reads: true}
	dutyRecall   = duty{say: "read its record", do: (*Gang).recall, reads: true}
	dutyLookBack = duty{say: "look whether an earlier placer overwrote a change", do: (*Gang).lookBack}
	dutyUndo     = duty{say: "undo a lost update", do: (*Gang).undo}
)

// duties are what may be due in each state, in this order.
var duties = map[State][]duty{
	Waiting:    {dutyPosition, dutyRecall, dutyLookBack, dutyUndo, {say: "stop the job if its members finished while they were stopped", do: (*Gang).stopFinished, always: true}},
	Committing: {dutyPosition, dutyRecall, dutyLookBack, dutyUndo, {say: "stop the job if its members finished while they were stopped", do: (*Gang).stopFinished, always: true}},
	Completing: {dutyPosition, dutyRecall, dutyLookBack, dutyUndo, {say: "stop the job if its members finished while they were stopped", do: (*Gang).stopFinished, always: true}},
	Rejected:   {dutyPosition, dutyRecall, dutyLookBack, dutyUndo, {say: "stop the job if its members finished while they were stopped", do: (*Gang).stopFinished, always: true}},
	Failed:     {dutyPosition, dutyRecall, dutyLookBack, dutyUndo},
	Starting: {
		dutyRecall, dutyLookBack, dutyUndo,
		{say: "record the decision if the members take long", do: (*Gang).saveSlow},
		{say: "give missing members other nodes, or requeue the gang, if it stays incomplete", do: (*Gang).makeWhole},
	},
	Running: {
		dutyRecall, dutyLookBack, dutyUndo,
		{say: "make room for canaries", do: (*Gang).makeCanaryRoom, always: true},
		{say: "requeue the gang if Nomad gave it other GPUs", do: (*Gang).requeueMisplaced, always: true},
		{say: "record that all members are there", do: (*Gang).recordReady, always: true},
	},
	Stopping:    {dutyRecall, dutyLookBack, dutyUndo, {say: "stop the members, or let them run on if a placer died before it stopped them", do: (*Gang).stopOrGoOn}},
	Resubmitted: {dutyRecall, dutyLookBack, dutyUndo, {say: "give it back its pins, or place its new size", do: (*Gang).restorePins}},
	Lost:        {dutyRecall, dutyLookBack, dutyUndo, {say: "requeue it, or give it up", do: (*Gang).requeueLost}},
}

// ignored are handlers of what cannot happen, or changes nothing.
var (
	notOurs   = handler{do: ignore}
	cannot    = handler{do: (*Gang).refuseStart, say: "tell the queue that it does not start"}
	notToStop = handler{do: (*Gang).keep, say: "tell the queue that it is not stopped"}
	turn      = handler{do: (*Gang).takeTurn, say: "do what is due"}
	observed  = handler{do: (*Gang).observe, say: "take in what Nomad shows"}
	outOfLine = handler{do: (*Gang).leaveQueue, say: "leave the queue"}
	inLine    = handler{do: (*Gang).waitInQueue, say: "join the queue, or tell it that the gang has stopped"}
	atWork    = handler{do: (*Gang).runInQueue, say: "tell the queue on which GPUs it runs"}
	unchanged = handler{do: (*Gang).staysInQueue}
	begin     = handler{do: (*Gang).commit, say: "register the job with its pins", to: []State{Committing, Starting}}
	preempt   = handler{do: (*Gang).preempt, say: "gate the job over its pins, and stop its members", to: []State{Stopping, Completing}}
	move      = handler{do: (*Gang).move, say: "gate the job over its pins, and stop its members", to: []State{Stopping, Completing}}
)

// table is what each event does in each state.
var table = map[State]map[Kind]handler{
	Waiting:     {OnObserve: observed, OnTurn: turn, OnSync: inLine, OnStart: begin, OnPreempt: notToStop, OnMove: notToStop},
	Committing:  {OnObserve: observed, OnTurn: turn, OnSync: inLine, OnStart: begin, OnPreempt: notToStop, OnMove: notToStop},
	Completing:  {OnObserve: observed, OnTurn: turn, OnSync: inLine, OnStart: begin, OnPreempt: notToStop, OnMove: notToStop},
	Starting:    {OnObserve: observed, OnTurn: turn, OnSync: atWork, OnStart: cannot, OnPreempt: preempt, OnMove: notToStop},
	Running:     {OnObserve: observed, OnTurn: turn, OnSync: atWork, OnStart: cannot, OnPreempt: preempt, OnMove: move},
	Stopping:    {OnObserve: observed, OnTurn: turn, OnSync: unchanged, OnStart: cannot, OnPreempt: notToStop, OnMove: notToStop},
	Resubmitted: {OnObserve: observed, OnTurn: turn, OnSync: unchanged, OnStart: cannot, OnPreempt: notToStop, OnMove: notToStop},
	Lost:        {OnObserve: observed, OnTurn: turn, OnSync: unchanged, OnStart: cannot, OnPreempt: notToStop, OnMove: notToStop},
	Failed:      {OnObserve: observed, OnTurn: turn, OnSync: outOfLine, OnStart: cannot, OnPreempt: notToStop, OnMove: notToStop},
	Rejected:    {OnObserve: observed, OnTurn: turn, OnSync: outOfLine, OnStart: cannot, OnPreempt: notToStop, OnMove: notToStop},
	Native:      {OnObserve: observed, OnTurn: notOurs, OnSync: outOfLine, OnStart: cannot, OnPreempt: notToStop, OnMove: notToStop},
	Template:    {OnObserve: observed, OnTurn: notOurs, OnSync: outOfLine, OnStart: cannot, OnPreempt: notToStop, OnMove: notToStop},
	Ended:       {OnObserve: observed, OnTurn: notOurs, OnSync: outOfLine, OnStart: cannot, OnPreempt: notToStop, OnMove: notToStop},
}
