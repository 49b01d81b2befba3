// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"cmp"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// Tracked is a gang that the placer deals with.
type Tracked struct {
	gang.Gang
	// Unregistered: Nomad does not have the job yet.
	Unregistered bool
	// Idle: nothing is due for it until it, or an allocation of it, changes.
	Idle bool
	// PassedOver: the cycle had no time to find out its place in the queue, or whether anything of its
	// author's was overwritten.
	PassedOver        bool
	EvaluationQueries EvaluationQueries
	// After is which job it waits for that is to finish first, "" for none; Eligible is
	// since when it need not.
	After    string
	Eligible time.Time
}

// EvaluationQueries counts the queries for one job since it was committed at index.
type EvaluationQueries struct {
	Index uint64
	Last  time.Time
	Count int
}

// Dependencies are the jobs that a waiting job comes after. One that ran already has waited
// for them.
func (t *Tracked) Dependencies() []nomad.JobKey {
	if t.Nomad != gang.Waiting || t.Refused != nil || len(t.Pins.Groups) > 0 {
		return nil
	}
	var keys []nomad.JobKey
	for _, id := range t.Request.Hints.Jobs() {
		keys = append(keys, nomad.JobKey{Namespace: t.Key.Namespace, ID: id})
	}
	return keys
}

// status is what is shown of the job. w is what the queue says of it, nil where
// it says nothing.
func (t *Tracked) status(w *Wait) JobStatus {
	j := JobStatus{Namespace: t.Key.Namespace, Job: t.Key.ID, State: t.Shown(w), Reason: t.Trouble}
	switch {
	case t.Nomad == gang.Rejected: // set aside: nothing else of it is looked at
		j.Reason = t.Refused.Error()
		return j
	case j.State == gang.Failed:
		j.Reason = t.GaveUp().Error()
	case t.Refused != nil:
		j.Reason = "cannot be served: " + t.Refused.Error()
	case t.After != "":
		j.Reason = t.After
	case w != nil:
		j.Wait(w)
		j.Reason = cmp.Or(t.Trouble, j.Reason)
	}
	j.GPUs, j.Class, j.Submitted = t.Request.Gang.GPUs(), string(t.Request.Gang.Class), t.Submitted()
	return j
}

// Shown is the state of a job as people see it: w is what the queue says of it, nil
// if it says nothing.
func (t *Tracked) Shown(w *Wait) gang.State {
	if s := t.State(); s != gang.Waiting || w == nil || !w.never {
		return s
	}
	return gang.Unschedulable
}
