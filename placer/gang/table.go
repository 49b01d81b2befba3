// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

// handler describes how an event is handled in a state. to lists the other states that the gang can
// reach while it handles the event and the answers that follow.
type handler struct {
	do  func(*Lifecycle, Event, World) []Effect
	say string // what do does, for testdata/table.txt; "" if do does nothing
	to  []palapi.State
}

// duty is a task that can be due in a reconcile. do returns the effects, and whether the reconcile
// continues. If an effect has an answer, the reconcile ends, and begins again after the answer.
type duty struct {
	say string
	do  func(*Lifecycle, World) (effects []Effect, on bool)
	// always is true if the duty is due even while the gang backs off after a failure.
	always bool
	// registers is true if the duty changes the job. Duties that change the job wait until Nomad
	// has shown the result of the placer's last registration, and until the placer has restored a
	// change by the author that it overwrote.
	registers bool
	to        []palapi.State
	// common is true if the duty is due in nearly all states.
	common bool
}

// Duties of several states. In nearly all states, the reconcile begins with the common duties.
var (
	dutyRecord     = duty{say: "read the record of the gang's last decision", do: (*Lifecycle).readRecord, to: []palapi.State{palapi.Failed}, common: true}
	dutyPosition   = duty{say: "find the gang's place in the queue, and whether the author has started the job again", do: (*Lifecycle).findPosition, to: []palapi.State{palapi.Waiting}, common: true}
	dutyFinished   = duty{say: "stop the job if its members finished in an earlier version of the job", do: (*Lifecycle).stopFinished, always: true, to: []palapi.State{palapi.Rejected}}
	atWorkFinished = duty{say: dutyFinished.say, do: (*Lifecycle).stopFinished, always: true}
	dutyDoubt      = duty{say: "decide whether the program's last failure counts, or follows from the loss of a node", do: (*Lifecycle).resolveDoubt, always: true, to: []palapi.State{palapi.Failed}}
	dutyPending    = duty{say: "if Nomad reports the job as dead, ask Nomad to evaluate the job again", do: (*Lifecycle).keepPending}
	dutyRequeue    = duty{say: "requeue the gang if a user has requested this (nomad-pal requeue) since the gang was placed", do: (*Lifecycle).requeueAsked, always: true, registers: true, to: []palapi.State{palapi.Stopping}}
	dutyUndo       = duty{say: "if nomad-pal overwrote a change that the author made, make that change again: stop or purge the job, or restore the author's version", do: (*Lifecycle).undo, to: []palapi.State{palapi.Waiting, palapi.Starting, palapi.Running, palapi.Resubmitted, palapi.Ended}, common: true}
)

// duties lists the duties of each state in the order in which they are carried out. The duty that
// reads the records of earlier placers comes first, because the other duties depend on these
// records. The next duties restore overwritten changes, before any other duty registers the job.
var duties = map[palapi.State][]duty{
	palapi.Waiting:    {dutyRecord, dutyPosition, dutyUndo, dutyDoubt, dutyFinished, dutyPending},
	palapi.Committing: {dutyRecord, dutyPosition, dutyUndo, dutyFinished},
	palapi.Completing: {dutyRecord, dutyPosition, dutyUndo, dutyFinished},
	palapi.Rejected:   {dutyRecord, dutyPosition, dutyUndo, dutyFinished},
	palapi.Failed:     {dutyRecord, dutyPosition, dutyUndo},
	palapi.Starting: {
		dutyRecord, dutyPosition, dutyUndo,
		dutyDoubt, atWorkFinished, dutyRequeue,
		{say: "record the decision if the members take long to start", do: (*Lifecycle).saveSlow},
		{say: "hand a job whose members do not need each other over to Nomad if a user has requested this (nomad-pal release) and all members ran before", do: handOverReplicas, registers: true, to: []palapi.State{palapi.Native}},
		{say: "add the gate if the author now requests more members (nomad job scale) than the pins have GPUs for; the gang keeps running until all members fit", do: (*Lifecycle).askAgain, registers: true, to: []palapi.State{palapi.Resubmitted}},
		{say: "if the gang stays incomplete: continue without the missing members, requeue the gang, or ask Nomad to evaluate the job; if the members do not need each other, leave the missing members to Nomad", do: (*Lifecycle).requeueIncomplete, registers: true, to: []palapi.State{palapi.Stopping, palapi.Completing, palapi.Running, palapi.Failed}},
	},
	palapi.Running: {
		dutyRecord, dutyPosition, dutyUndo, dutyDoubt, atWorkFinished, dutyRequeue,
		{say: "requeue the gang if Nomad gave it other GPUs", do: (*Lifecycle).requeueMisplaced, always: true, registers: true, to: []palapi.State{palapi.Stopping}},
		{say: "if a drain stopped members without GPUs, ask Nomad to replace them", do: (*Lifecycle).placeLeftOut},
		{say: "record that all members run", do: (*Lifecycle).recordReady, always: true},
		{say: "hand the gang over to Nomad if a user has requested this (nomad-pal release)", do: handOver, registers: true, to: []palapi.State{palapi.Native}},
	},
	palapi.Stopping:    {dutyRecord, dutyPosition, dutyUndo, {say: "stop the members, unless an earlier agent crashed before it stopped any of them", do: (*Lifecycle).stopOrGoOn, to: []palapi.State{palapi.Starting, palapi.Running}}},
	palapi.Resubmitted: {dutyRecord, dutyPosition, dutyUndo, {say: "restore the pins; if a gang now requests other GPUs, ask the queue for room, and requeue the gang if a member is missing", do: (*Lifecycle).restorePins, registers: true, to: []palapi.State{palapi.Starting, palapi.Running, palapi.Native}}},
	palapi.Ended:       {dutyUndo},
	palapi.Lost:        {dutyRecord, dutyPosition, dutyUndo, dutyDoubt, {say: "requeue the gang, give up on it, or ask Nomad to place the stopped members again", do: (*Lifecycle).requeueLost, registers: true, to: []palapi.State{palapi.Completing, palapi.Failed}}},
}

// elsewhere has one handler for each event, which applies if [own] has no handler for the event in
// the gang's state. Even events that cannot happen in a state or that change nothing have handlers,
// because the queue waits for an answer to each of its decisions.
var elsewhere = map[Kind]handler{
	OnObserve:   {do: (*Lifecycle).observe, say: "apply what Nomad shows"},
	OnReconcile: {do: (*Lifecycle).reconcile, say: "do what is due"},
	OnSync:      {do: (*Lifecycle).leaveQueue, say: "leave the queue"},
	OnStart:     {do: (*Lifecycle).refuseStart, say: "refuse"},
	OnPreempt:   {do: (*Lifecycle).refuseStop, say: "refuse"},
	OnMove:      {do: (*Lifecycle).refuseStop, say: "refuse"},
	OnResize:    {do: (*Lifecycle).refuseStop, say: "refuse"},
	OnRoom:      {do: ignore},
}

// The following handlers belong to single states.
var (
	inLine        = handler{do: (*Lifecycle).waitInQueue, say: "join the queue, or tell the queue that the gang has stopped", to: []palapi.State{palapi.Waiting, palapi.Rejected}}
	atWork        = handler{do: (*Lifecycle).runInQueue, say: "tell the queue that the gang runs"}
	whileStopping = handler{do: (*Lifecycle).staysInQueue}
	whileEdited   = handler{do: (*Lifecycle).runsOnInQueue, say: "if the gang is not in the queue: tell the queue that the gang still runs with its present members"}
	begin         = handler{do: (*Lifecycle).commit, say: "register the job with its pins", to: []palapi.State{palapi.Committing, palapi.Starting, palapi.Waiting, palapi.Completing}}
	preempt       = handler{do: (*Lifecycle).preempt, say: "add the gate, keep the pins, and stop the members", to: []palapi.State{palapi.Stopping, palapi.Completing}}
	makesRoom     = handler{do: (*Lifecycle).preemptChanged, say: "if the gang still runs while its new request waits for room: stop the members", to: []palapi.State{palapi.Completing}}
	resize        = handler{do: (*Lifecycle).resize, say: "register the job with its new number of members", to: []palapi.State{palapi.Starting}}
	change        = handler{do: (*Lifecycle).change, say: "register the job with pins to the offered GPUs; if the gang holds some of these GPUs, first stop the gang", to: []palapi.State{palapi.Starting, palapi.Running}}
	move          = handler{do: (*Lifecycle).move, say: "add the gate, keep the pins, and stop the members", to: []palapi.State{palapi.Stopping, palapi.Completing}}
)

// own lists the handlers that replace those of [elsewhere] in a state.
var own = map[palapi.State]map[Kind]handler{
	palapi.Waiting:     {OnSync: inLine, OnStart: begin},
	palapi.Committing:  {OnSync: inLine, OnStart: begin},
	palapi.Completing:  {OnSync: inLine, OnStart: begin},
	palapi.Starting:    {OnSync: atWork, OnPreempt: preempt},
	palapi.Running:     {OnSync: atWork, OnPreempt: preempt, OnMove: move, OnResize: resize},
	palapi.Stopping:    {OnSync: whileStopping},
	palapi.Resubmitted: {OnSync: whileEdited, OnPreempt: makesRoom, OnRoom: change},
}

// handlerOf returns the handler for an event in a state.
func handlerOf(s palapi.State, k Kind) handler {
	if h, ok := own[s][k]; ok {
		return h
	}
	return elsewhere[k]
}
