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

// Record describes the last decision on a job, and what has happened to the job since then. A
// record is stored in one Nomad variable.
type Record struct {
	Namespace string `json:"namespace"`
	Job       string `json:"job"`
	// Submitted is the time when the author registered the job. Submitted determines the job's
	// place in the queue, so the placer's own registrations must not change it.
	Submitted time.Time `json:"submitted"`
	Decided   time.Time `json:"decided"`
	// Ready is the time when the placer saw that all members run on their GPUs, or zero before that
	// time.
	Ready time.Time `json:"ready,omitzero"`
	// Restarted is the time when Nomad restarted all members. For example, Nomad restarts all
	// members if the author scales the job to zero for a while.
	Restarted time.Time `json:"restarted,omitzero"`
	// JobModifyIndex is the JobModifyIndex of the version that the record describes.
	JobModifyIndex uint64 `json:"job_modify_index"`
	// Index is the ModifyIndex of the Nomad variable from which the record was read, or 0 if the
	// record was not read.
	Index uint64       `json:"-"`
	Mode  rewrite.Mode `json:"mode"`
	// Decision.Chosen contains the GPUs that the gang got. Predicted is the original choice, if the
	// pins allowed Nomad to give the gang other GPUs.
	Decision  pal.Decision `json:"decision"`
	Predicted *pal.Choice  `json:"predicted,omitempty"`
	// UserFailures counts the failures that the gang itself caused. GivenUp is the reason why the
	// placer does not retry the gang.
	UserFailures int           `json:"user_failures,omitempty"`
	GivenUp      reason.Reason `json:"given_up,omitzero"`
	Doubt        Doubt         `json:"doubt,omitzero"`
	// Outage describes the failures that the infrastructure caused.
	Outage Outage `json:"outage,omitzero"`
	// CountedFor is the JobModifyIndex of the start whose failure is counted in UserFailures or
	// Outage, which count each start at most once, even if the placer crashes before it has stopped
	// the rest of the gang.
	CountedFor uint64 `json:"counted_for,omitempty"`
	// Attained is how long the gang ran before its last stop or resize. Done is the work that the
	// gang did while it ran: its run time divided by its cost. Waited is the gang's total wait time
	// before its last start. Stopped is the time when the gang was stopped.
	Attained time.Duration `json:"attained,omitempty"`
	Done     time.Duration `json:"done,omitempty"`
	Waited   time.Duration `json:"waited,omitempty"`
	Stopped  time.Time     `json:"stopped,omitzero"`
	// StoppedWhy is the reason for which the gang was stopped.
	StoppedWhy reason.Reason `json:"stopped_why,omitzero"`
	// StoppedFor is the job (namespace/id) for which the placer stopped the gang, if both jobs are
	// in the same namespace. StoppedFor never names jobs of other namespaces, because some readers
	// of the record must not see them.
	StoppedFor string `json:"stopped_for,omitempty"`
	// Note is additional information about the decision.
	Note Note `json:"note,omitempty"`
	// MembersOmitted counts members that do not fit into the record's size
	// limit.
	MembersOmitted int `json:"members_omitted,omitempty"`
}

// forgetFailures makes the record that of a gang that has never failed.
func (r *Record) forgetFailures() {
	r.UserFailures = 0
	r.Doubt = Doubt{}
	r.Outage = Outage{}
}

// Note is additional information in a record.
type Note string

// The notes.
const (
	NoteMoved    Note = "moved to better GPUs"
	NoteResized  Note = "changed by its author while running"
	NoteKept     Note = "the queue kept some of the free GPUs for a gang that goes first or for a window, or chose GPUs that a window reserves for this job"
	NoteReadBack Note = "the agent restarted before it recorded the decision, so the GPUs were read from Nomad, and the alternatives are unknown"
)

// stop records that the gang was stopped. why is the reason, ran is how long the gang ran, and
// slower is the factor by which missing members slowed the gang.
func (r *Record) stop(now time.Time, why reason.Reason, ran time.Duration, slower float64) {
	cost := slower
	c := r.Decision.Chosen
	if c != nil && c.Cost > 0 {
		cost *= c.Cost
	}
	r.Attained = r.Attained + ran
	r.Done = r.Done + time.Duration(float64(ran)/cost)
	r.Stopped = now
	r.StoppedWhy, r.StoppedFor = why, ""
}

// startsAgain records that the job has started again for a reason that no record shows, so the
// decision in the record no longer applies. The record keeps the job's run time, wait time and
// failures.
func (r *Record) startsAgain(job *api.Job) {
	at := time.Unix(0, *job.SubmitTime)
	switch { // count the wait as NewRecord does
	case r.Attained > 0 && !r.Stopped.IsZero():
		r.Waited += max(0, at.Sub(r.Stopped))
	case r.Attained == 0 && r.Ready.IsZero():
		r.Waited = max(0, at.Sub(r.Submitted))
	}
	r.Decided = time.Time{}
	r.Ready = time.Time{}
	r.Restarted = time.Time{}
	r.Stopped = time.Time{}
	r.Decision = pal.Decision{}
	r.Predicted = nil
	r.MembersOmitted = 0
	r.StoppedWhy = reason.Reason{}
	r.StoppedFor = ""
	r.Note = ""
}

// chose reports whether the pins name the same GPUs as the record's decision. chose also returns
// true if the record has no decision, or omits members to keep its size limit.
func (r *Record) chose(pins rewrite.Pins) bool {
	c := r.Decision.Chosen
	if c == nil || r.MembersOmitted > 0 {
		return true
	}
	return slices.Equal(slices.Sorted(slices.Values(c.GPUIDs())), slices.Sorted(slices.Values(pins.GPUs())))
}

// Got records which GPUs the gang got. The pins may have allowed GPUs that the placer did not
// choose. Got keeps the prediction for the GPUs that the placer chose. If the gang has fewer GPUs
// than the record names, the missing GPUs belonged to finished members, and Got changes nothing. If
// the record has more GPUs than the gang requested, some of the GPUs belonged to members that were
// ending.
func (r *Record) Got(is *pal.Choice) {
	was, predicted := r.Decision.Chosen, cmp.Or(r.Predicted, r.Decision.Chosen)
	switch {
	case was != nil && among(is, was) && len(was.GPUIDs()) <= max(r.Decision.Demand, len(is.GPUIDs())):
	case predicted == nil || r.MembersOmitted > 0 || among(is, predicted):
		r.Decision.Chosen = is
		r.Predicted = nil
		r.MembersOmitted = 0
	default:
		r.Decision.Chosen, r.Predicted = is, predicted
	}
}

// Resized records that the gang is complete with a different number of GPUs, because the author
// changed the gang's size. Resized drops the alternatives and the prediction of the earlier
// decision, because they no longer apply.
func (r *Record) Resized(is *pal.Choice) {
	d := &r.Decision
	n := len(is.GPUIDs())
	if n != d.Demand {
		d.Chosen = is
		d.Demand = n
		d.Candidates = pal.Candidates{}
		r.Predicted = nil
		d.Walk = nil
		d.WalkOmitted = 0
		d.Packed = nil
	}
}

// among reports whether all GPUs of the first choice are also in the second choice.
func among(is, of *pal.Choice) bool {
	all := map[string]bool{}
	for _, id := range of.GPUIDs() {
		all[id] = true
	}
	return !slices.ContainsFunc(is.GPUIDs(), func(id string) bool { return !all[id] })
}

// Pinned returns the GPUs that the placer gave the job, according to the record. Pinned returns nil
// if the record does not show these GPUs. A record of limited size can omit members. Pinned then
// returns the GPUs in the pins, if the record describes this version of the job, and the pins name
// as many GPUs as the decision.
func (r *Record) Pinned(job *api.Job, pins rewrite.Pins) []string {
	c := r.Decision.Chosen
	if c == nil || pins.Mode != rewrite.ModeGPU {
		return nil
	}
	if r.MembersOmitted > 0 {
		all := pins.GPUs()
		if r.JobModifyIndex == *job.JobModifyIndex && len(all) == r.Decision.Demand {
			return all
		}
		return nil
	}
	return c.GPUIDs()
}
