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

// Record describes the last decision on a job. A record is stored in one Nomad variable.
type Record struct {
	Namespace string `json:"namespace"`
	Job       string `json:"job"`
	// Submitted is the time when the author registered the job. This time is the job's place in the
	// queue; our own registrations must not change it.
	Submitted time.Time `json:"submitted"`
	Decided   time.Time `json:"decided"`
	// Ready is the time when all members were seen on their GPUs; zero before.
	Ready time.Time `json:"ready,omitzero"`
	// Restarted is the time when Nomad restarted all members, for example after the author had
	// scaled the job to zero for a while.
	Restarted time.Time `json:"restarted,omitzero"`
	// JobModifyIndex is the JobModifyIndex of the version that the record describes.
	JobModifyIndex uint64 `json:"job_modify_index"`
	// Index is the ModifyIndex of the variable that the record was read from; 0
	// if it was not read.
	Index uint64 `json:"-"`
	// Unverified is set if, when the record was written, it was unknown whether our last
	// registration had replaced a change by the author, or such a change was not restored yet.
	Unverified bool         `json:"unverified,omitempty"`
	Mode       rewrite.Mode `json:"mode"`
	// Decision.Chosen is what the gang got. Predicted is the original choice, if the pins let Nomad
	// give the gang other GPUs.
	Decision  pal.Decision `json:"decision"`
	Predicted *pal.Choice  `json:"predicted,omitempty"`
	// UserFailures counts the gang's own failures. GivenUp is why the gang is not retried.
	UserFailures int           `json:"user_failures,omitempty"`
	GivenUp      reason.Reason `json:"given_up,omitzero"`
	// InfraFailures counts how often the gang was retried after a failure of the infrastructure.
	InfraFailures int `json:"infra_failures,omitempty"`
	// CountedFor is the JobModifyIndex of the start whose failure UserFailures or InfraFailures
	// counts. Each start counts once, even if the placer crashes before it has stopped the rest of
	// the gang.
	CountedFor uint64 `json:"counted_for,omitempty"`
	// Attained is how long the gang ran before it was last stopped or resized; Done is the work
	// done in that time, as run time at cost 1. Waited is how long the gang waited in all before
	// its last start. Stopped is the time when the gang was stopped.
	Attained time.Duration `json:"attained,omitempty"`
	Done     time.Duration `json:"done,omitempty"`
	Waited   time.Duration `json:"waited,omitempty"`
	Stopped  time.Time     `json:"stopped,omitzero"`
	// StoppedWhy is why the gang was stopped.
	StoppedWhy reason.Reason `json:"stopped_why,omitzero"`
	// StoppedFor is the job (namespace/id) for which the gang made room, if it is in the same
	// namespace. Some readers of the record must not see jobs of other namespaces.
	StoppedFor string `json:"stopped_for,omitempty"`
	// Note is additional information about the decision.
	Note Note `json:"note,omitempty"`
	// MembersOmitted counts members that do not fit into the record's size
	// limit.
	MembersOmitted int `json:"members_omitted,omitempty"`
}

// Note is additional information in a record.
type Note string

// The notes.
const (
	NoteMoved    Note = "moved to better GPUs"
	NoteResized  Note = "changed by its author while running"
	NoteKept     Note = "the queue kept some of the free GPUs for a gang that goes first or for a window"
	NoteReadBack Note = "the placer restarted before it recorded the decision, so the GPUs were read from Nomad, and the alternatives are unknown"
)

// stop records that the gang was stopped, why, how long it ran, and how many times slower it was
// than with all its members.
func (r *Record) stop(now time.Time, why reason.Reason, ran time.Duration, slower float64) {
	cost := slower
	if c := r.Decision.Chosen; c != nil && c.Cost > 0 {
		cost *= c.Cost
	}
	r.Attained, r.Done, r.Stopped = r.Attained+ran, r.Done+time.Duration(float64(ran)/cost), now
	r.StoppedWhy, r.StoppedFor = why, ""
}

// startsAgain records that the job has started again for an unrecorded reason, so the decision in
// the record no longer applies. Run time, wait time and failures keep counting.
func (r *Record) startsAgain(job *api.Job) {
	switch at := time.Unix(0, *job.SubmitTime); { // count the wait as NewRecord does
	case r.Attained > 0 && !r.Stopped.IsZero():
		r.Waited += max(0, at.Sub(r.Stopped))
	case r.Attained == 0 && r.Ready.IsZero():
		r.Waited = max(0, at.Sub(r.Submitted))
	}
	r.Decided, r.Ready, r.Restarted, r.Stopped = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	r.Decision, r.Predicted, r.MembersOmitted = pal.Decision{}, nil, 0
	r.StoppedWhy, r.StoppedFor, r.Note = reason.Reason{}, "", ""
}

// chose reports whether the GPUs that the record names as chosen are those of the pins. chose also
// returns true if the record has no choice, or omits members to keep its size limit.
func (r *Record) chose(pins rewrite.Pins) bool {
	c := r.Decision.Chosen
	if c == nil || r.MembersOmitted > 0 {
		return true
	}
	return slices.Equal(slices.Sorted(slices.Values(c.GPUIDs())), slices.Sorted(slices.Values(pins.GPUs())))
}

// Got records which GPUs the gang got, because its pins can allow other GPUs than the chosen ones.
// Got keeps the prediction for the chosen GPUs. If the gang has fewer GPUs than the record, the
// missing GPUs belonged to finished members, and nothing changes. If the record has more GPUs than
// the gang requested, some of these belonged to members that were ending.
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

// Resized records that the gang is complete with another number of GPUs than the placer gave it,
// because its author changed its size. The earlier search and prediction no longer apply.
func (r *Record) Resized(is *pal.Choice) {
	d := &r.Decision
	if n := len(is.GPUIDs()); n != d.Demand {
		d.Chosen, d.Demand, d.Walk, d.WalkOmitted, d.Packed, r.Predicted = is, n, nil, 0, nil, nil
	}
}

// among reports whether all GPUs of one choice are also in another.
func among(is, of *pal.Choice) bool {
	all := map[string]bool{}
	for _, id := range of.GPUIDs() {
		all[id] = true
	}
	return !slices.ContainsFunc(is.GPUIDs(), func(id string) bool { return !all[id] })
}

// Pinned returns the GPUs that the placer gave the job, according to the record; nil if the record
// does not show them. If members were omitted for size, Pinned trusts the pins, provided that the
// record describes this version of the job and the numbers match.
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
