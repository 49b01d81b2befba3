// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"cmp"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Record is what is kept of the last decision on a job, in one Nomad Variable.
type Record struct {
	Namespace string `json:"namespace"`
	Job       string `json:"job"`
	// Submitted is when the author registered the job; it is the job's place in
	// the queue, which our own registering must not change.
	Submitted time.Time `json:"submitted"`
	Decided   time.Time `json:"decided"`
	// Ready is when all members were seen on their GPUs; zero before.
	Ready time.Time `json:"ready,omitzero"`
	// Restarted is when Nomad started all members anew since: its author had given it none for a while, say.
	Restarted time.Time `json:"restarted,omitzero"`
	// JobModifyIndex is that of the job as it was committed.
	JobModifyIndex uint64 `json:"job_modify_index"`
	// Index is the ModifyIndex of the variable that it was read from; 0: it was not.
	Index uint64 `json:"-"`
	// Unverified: when it was written, Nomad had not told yet whether that registration replaced
	// a change of the author's, or it had, and that was still to be undone.
	Unverified bool         `json:"unverified,omitempty"`
	Mode       rewrite.Mode `json:"mode"`
	// Decision has as chosen what the gang got; Predicted is what was decided, if its pins
	// let Nomad give it other GPUs.
	Decision  pal.Decision `json:"decision"`
	Predicted *pal.Choice  `json:"predicted,omitempty"`
	// UserFailures counts how often the gang failed by its own fault; GivenUp is why it is
	// not tried any more.
	UserFailures int           `json:"user_failures,omitempty"`
	GivenUp      reason.Reason `json:"given_up,omitzero"`
	// InfraFailures counts how often the gang was lost to the infrastructure, and tried again.
	InfraFailures int `json:"infra_failures,omitempty"`
	// CountedFor is the JobModifyIndex of the start whose failure the two count. Each start
	// counts once, also if the placer dies before it has stopped what is left of it.
	CountedFor uint64 `json:"counted_for,omitempty"`
	// Attained is how long the gang ran before it was last stopped, or resized, Done how much
	// of its work that did, in time at cost 1, and Waited how long it waited in
	// all before it was last started. Stopped is when that was.
	Attained time.Duration `json:"attained,omitempty"`
	Done     time.Duration `json:"done,omitempty"`
	Waited   time.Duration `json:"waited,omitempty"`
	Stopped  time.Time     `json:"stopped,omitzero"`
	// StoppedWhy is why.
	StoppedWhy reason.Reason `json:"stopped_why,omitzero"`
	// StoppedFor is the job for which, namespace/id, if it is of the same namespace: who may read
	// the record need not know of others.
	StoppedFor string `json:"stopped_for,omitempty"`
	// Note is what happened besides.
	Note Note `json:"note,omitempty"`
	// MembersOmitted counts members left out of the decision for size.
	MembersOmitted int `json:"members_omitted,omitempty"`
}

// Note is what a record tells besides.
type Note string

// The notes.
const (
	NoteMoved    Note = "moved to better GPUs"
	NoteResized  Note = "changed by its author while running"
	NoteKept     Note = "the queue kept some of the free GPUs from it, for a gang that goes first or for a window"
	NoteReadBack Note = "the placer restarted before it recorded this: the GPUs are read back from Nomad, the alternatives are lost"
)

// stop takes in that the gang was stopped, and why, after it ran so long, slower by so much than
// with all its members.
func (r *Record) stop(now time.Time, why reason.Reason, ran time.Duration, slower float64) {
	cost := slower
	if c := r.Decision.Chosen; c != nil && c.Cost > 0 {
		cost *= c.Cost
	}
	r.Attained, r.Done, r.Stopped = r.Attained+ran, r.Done+time.Duration(float64(ran)/cost), now
	r.StoppedWhy, r.StoppedFor = why, ""
}

// startsAgain takes in that the job has been started since, and nobody has written down why there:
// what the record tells of is over. What the gang has run, waited and failed counts on.
func (r *Record) startsAgain(job *api.Job) {
	switch at := time.Unix(0, *job.SubmitTime); { // as NewRecord counts
	case r.Attained > 0 && !r.Stopped.IsZero():
		r.Waited += max(0, at.Sub(r.Stopped))
	case r.Attained == 0 && r.Ready.IsZero():
		r.Waited = max(0, at.Sub(r.Submitted))
	}
	r.Decided, r.Ready, r.Restarted, r.Stopped = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	r.Decision, r.Predicted, r.MembersOmitted = pal.Decision{}, nil, 0
	r.StoppedWhy, r.StoppedFor, r.Note = reason.Reason{}, "", ""
}

// chose reports whether the GPUs that were chosen are those of the pins: not known where some were left out for
// size.
func (r *Record) chose(pins rewrite.Pins) bool {
	c := r.Decision.Chosen
	if c == nil || r.MembersOmitted > 0 {
		return true
	}
	return slices.Equal(slices.Sorted(slices.Values(c.GPUIDs())), slices.Sorted(slices.Values(pins.GPUs())))
}

// Got takes in which GPUs the gang has: its pins may allow others than were chosen. What
// was predicted for those is kept. Fewer are those of members that have not finished; but
// where more are noted than the gang was given, some were of members that were ending.
func (r *Record) Got(is *pal.Choice) {
	was, predicted := r.Decision.Chosen, cmp.Or(r.Predicted, r.Decision.Chosen)
	switch {
	case was != nil && among(is, was) && len(was.GPUIDs()) <= max(r.Decision.Demand, len(is.GPUIDs())):
	case predicted == nil || r.MembersOmitted > 0 || among(is, predicted):
		r.Decision.Chosen, r.Predicted, r.MembersOmitted = is, nil, 0
	default:
		r.Decision.Chosen, r.Predicted = is, predicted
	}
}

// Resized takes in that the gang is whole with another number of GPUs than it was given: its
// author has changed its size since. What was tried and predicted then says nothing of it.
func (r *Record) Resized(is *pal.Choice) {
	d := &r.Decision
	if n := len(is.GPUIDs()); n != d.Demand {
		d.Chosen, d.Demand, d.Walk, d.WalkOmitted, d.Packed, r.Predicted = is, n, nil, 0, nil, nil
	}
}

// among reports whether all GPUs of one choice are those of another one.
func among(is, of *pal.Choice) bool {
	all := map[string]bool{}
	for _, id := range of.GPUIDs() {
		all[id] = true
	}
	return !slices.ContainsFunc(is.GPUIDs(), func(id string) bool { return !all[id] })
}

// Pinned are the GPUs that the record says the job was given, nil when it says
// nothing. If members were left out for size, the pins are believed as they
// stand if the job is the one that was committed, and they are as many.
func (r *Record) Pinned(job *api.Job, pins rewrite.Pins) []string {
	c := r.Decision.Chosen
	if c == nil || pins.Mode != rewrite.ModeGPU {
		return nil
	}
	if r.MembersOmitted > 0 {
		if all := pins.GPUs(); r.JobModifyIndex == *job.JobModifyIndex && len(all) == r.Decision.Demand {
			return all
		}
		return nil
	}
	return c.GPUIDs()
}
