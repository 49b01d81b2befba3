// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package reason has the reasons why a job waits, runs on its nodes, or does not run. A reason is a
// value, made by the code that decides. Other code branches on the kind of a reason, and redacts
// its fields ([Reason.RedactedFor]). Only text.go turns a reason into text, for commands, JSON,
// logs and the web page, and no code parses that text.
//
// When you change the package: a kind's value is part of the JSON output and must not change. A
// field that names jobs must be redacted by [Reason.RedactedFor], which leaves Cause unchanged.
// Each kind needs a text in a table and an example in the test.
//
// The package imports no other package of nomad-pal, so every package of nomad-pal can import it.
package reason

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kind is the kind of a reason. The value of a kind is part of the JSON output.
type Kind string

// Reason explains the state of a job or of one of its members. The zero value means no reason.
// text.go shows which fields a kind uses.
type Reason struct {
	Kind Kind `json:"kind"` // the kind of reason, for programs
	// Text is the reason as text for people. The text is a clause without a period, and is shown
	// after a state and a colon. A program that parses the JSON into a Reason of a known kind
	// computes the text again from the other fields.
	Text string `json:"text,omitempty"`
	// Ahead is the job that goes first or that gets the GPUs, as namespace/id. Jobs are the jobs
	// that are stopped for this job, or the jobs that this job must wait for (pal_after).
	Ahead string   `json:"ahead,omitempty"`
	Jobs  []string `json:"jobs,omitempty"`
	// Shrinking are the elastic jobs that give up members for this job, as namespace/id.
	Shrinking []string `json:"shrinking,omitempty"`
	// Group is a task group, Members is its number of members, and Each is the number of GPUs per
	// member. Room is the maximum number of members that would fit or, for the kind spread-out, the
	// largest number of members on one node.
	Group   string `json:"group,omitempty"`
	Members int    `json:"members,omitempty"`
	Each    int    `json:"each,omitempty"`
	Room    int    `json:"room,omitempty"`
	// Tier is how close together the job's GPUs must be.
	Tier string `json:"tier,omitempty"`
	// Rackless is true if no node has a rack in its meta.
	Rackless bool `json:"rackless,omitempty"`
	// Needs is the number of GPUs that the job needs, or already has. Match is the number of GPUs
	// that the job could use. Free is the number of GPUs that are free now and that the job could
	// use. FreeOthers is the number of free GPUs that the job cannot use.
	Needs      int `json:"needs,omitempty"`
	Match      int `json:"match,omitempty"`
	Free       int `json:"free,omitempty"`
	FreeOthers int `json:"free_others,omitempty"`
	// Small counts the GPUs of Match whose model has too few GPUs for the gang.
	Small int `json:"small,omitempty"`
	// Used counts the GPUs that match but cannot be chosen, by cause.
	Used *Used `json:"used,omitempty"`
	// Tenant is the tenant whose limit applies.
	Tenant string `json:"tenant,omitempty"`
	// User is the user whose limit applies, because each user of the tenant has a limit. If Needs
	// is 0, the limit is on the number of the user's jobs, otherwise on the user's GPUs.
	User string `json:"user,omitempty"`
	// Counts is the number of whole GPUs that count towards Limit, if the job requests parts of
	// shared GPUs: two quarters of a GPU count as 0.5. If Counts is 0, Needs is the number that
	// counts. Held is the number of GPUs that the tenant, or the user, holds.
	Counts float64 `json:"counts,omitempty"`
	Held   float64 `json:"held,omitempty"`
	// Limit is the maximum for the job, its tenant, its user or its array.
	Limit int `json:"limit,omitempty"`
	// Have is how many members of the job exist, and Want is how many members it should have. For
	// kind array, Have counts the running jobs of the array.
	Have int `json:"have,omitempty"`
	Want int `json:"want,omitempty"`
	// Doing counts the existing members by their state.
	Doing *Doing `json:"doing,omitempty"`
	// Nodes is the number of nodes to which the reason applies, out of Total nodes.
	Nodes int `json:"nodes,omitempty"`
	Total int `json:"total,omitempty"`
	// Version is a version of the job in Nomad.
	Version uint64 `json:"version,omitempty"`
	// Tries is the number of tries, failures or unhealthy members, depending on the kind of the
	// reason. Minutes is the time after a failure within which the placer retries the job.
	Tries   int `json:"tries,omitempty"`
	Minutes int `json:"minutes,omitempty"`
	// From is when a window begins, if it has not begun yet.
	From time.Time `json:"from,omitzero"`
	// Until is when the state ends, or when the event happened.
	Until time.Time `json:"until,omitzero"`
	// Try is a change of the job in the form that explain -what-if accepts: "count=2".
	Try string `json:"try,omitempty"`
	// Key is the field of the job that sets its number of members: "count", "min".
	Key string `json:"key,omitempty"`
	// Window is a maintenance window or a reservation.
	Window string `json:"window,omitempty"`
	// Member is one of the job's members: its group and its number.
	Member string `json:"member,omitempty"`
	// Node is the name of a node.
	Node string `json:"node,omitempty"`
	// Cause is a message that comes from elsewhere: Nomad, a driver, an error. The message is shown
	// unchanged.
	Cause string `json:"cause,omitempty"`
	// Because lists the causes of this reason. Also lists further reasons that apply at the same
	// time.
	Because []Reason `json:"because,omitempty"`
	Also    []Reason `json:"also,omitempty"`
}

// Used counts GPUs that match but cannot be chosen.
type Used struct {
	Allocated   int `json:"allocated,omitempty"`   // allocated to jobs or promised to them
	Unhealthy   int `json:"unhealthy,omitempty"`   // unhealthy, whether allocated or not
	Quarantined int `json:"quarantined,omitempty"` // healthy, but in quarantine
	// Unavailable counts GPUs on nodes that accept no jobs, and GPUs on which unreported tasks may
	// still run.
	Unavailable int `json:"unavailable,omitempty"`
	Outliers    int `json:"outliers,omitempty"` // free, but too slow
	Kept        int `json:"kept,omitempty"`     // free, but kept for jobs ahead
}

// Doing counts members by their state.
type Doing struct {
	Run        int `json:"run,omitempty"`        // running; also on a disconnected node
	Restarting int `json:"restarting,omitempty"` // ended, and being restarted by their client
	Replacing  int `json:"replacing,omitempty"`  // placed, and waiting for the members that they replace to end
	Pending    int `json:"pending,omitempty"`    // placed, and not yet running
	Complete   int `json:"complete,omitempty"`   // ended with success
	Preempted  int `json:"preempted,omitempty"`  // preempted by Nomad
	Ending     int `json:"ending,omitempty"`     // told to stop, and not yet ended
}

// Unread is a reason that is known only as a message from an error or from Nomad.
func Unread(cause string) Reason { return Reason{Kind: Error, Cause: cause} }

// IsZero reports whether there is no reason.
func (r Reason) IsZero() bool { return r.Kind == "" }

// Or returns r, or o if r is no reason.
func (r Reason) Or(o Reason) Reason {
	if r.IsZero() {
		return o
	}
	return r
}

// And adds other reasons that apply at the same time, and returns the result. If r is no reason,
// And returns the first of the other reasons, with the rest added to it.
func (r Reason) And(others ...Reason) Reason {
	if r.IsZero() && len(others) > 0 {
		return others[0].And(others[1:]...)
	}
	others = slices.DeleteFunc(slices.Clone(others), Reason.IsZero)
	r.Also = append(slices.Clone(r.Also), others...)
	return r
}

// Over adds the other reasons as causes of r, and returns the result.
func (r Reason) Over(others ...Reason) Reason {
	others = slices.DeleteFunc(slices.Clone(others), Reason.IsZero)
	r.Because = append(slices.Clone(r.Because), others...)
	return r
}

// Same reports whether two reasons have the same kind and text.
func (r Reason) Same(o Reason) bool { return r.Kind == o.Kind && r.String() == o.String() }

// Includes reports whether r is the same reason as o, or names o among the reasons in Also.
func (r Reason) Includes(o Reason) bool {
	return r.Same(o) || slices.ContainsFunc(r.Also, func(also Reason) bool { return also.Includes(o) })
}

// RedactedFor returns the reason with each job (namespace/id) replaced by what `name` returns for
// the job. The function `name` returns the job itself, or a placeholder if the reader must not see
// the job. It leaves Cause unchanged.
func (r Reason) RedactedFor(name func(job string) string) Reason {
	all := func(jobs []string) (names []string) {
		for _, job := range jobs {
			names = append(names, name(job))
		}
		return names
	}
	if r.Ahead != "" {
		r.Ahead = name(r.Ahead)
	}
	r.Jobs, r.Shrinking = all(r.Jobs), all(r.Shrinking)
	r.Because, r.Also = AllRedactedFor(r.Because, name), AllRedactedFor(r.Also, name)
	return r
}

// AllRedactedFor returns the reasons, each redacted by [Reason.RedactedFor].
func AllRedactedFor(rs []Reason, name func(job string) string) (redacted []Reason) {
	for _, r := range rs {
		redacted = append(redacted, r.RedactedFor(name))
	}
	return redacted
}

// Shorten applies `cut` to all messages in the reason that come from elsewhere. It reports whether
// `cut` changed any of them.
func (r *Reason) Shorten(cut func(string) string) bool {
	was := r.Cause
	r.Cause = cut(was)
	shorter := r.Cause != was
	for _, rs := range []*[]Reason{&r.Because, &r.Also} {
		*rs = slices.Clone(*rs)
		for i := range *rs {
			shorter = (*rs)[i].Shorten(cut) || shorter
		}
	}
	return shorter
}

// Error makes a reason usable as an error.
func (r Reason) Error() string { return r.String() }

// String returns the reason as text for people. For an unknown kind, String returns the text that
// was in the JSON.
func (r Reason) String() string {
	write, known := texts[r.Kind]
	switch {
	case r.IsZero():
		return ""
	case !known:
		return r.Text
	}
	r.Cause = foreign(r.Cause)
	text := write(r)
	for _, also := range r.Also {
		text += "; " + also.String()
	}
	return text
}

// Sentence returns the reason as a sentence of its own.
func (r Reason) Sentence() string {
	text := r.String()
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// MarshalJSON writes the fields and the text.
func (r Reason) MarshalJSON() ([]byte, error) {
	type fields Reason
	r.Text = r.String()
	return json.Marshal(fields(r))
}

// UnmarshalJSON reads the fields. UnmarshalJSON keeps the text only if the kind is unknown.
func (r *Reason) UnmarshalJSON(text []byte) error {
	type fields Reason
	var f fields
	if err := json.Unmarshal(text, &f); err != nil {
		return fmt.Errorf("reading a reason: %w", err)
	}
	_, known := texts[f.Kind]
	if known {
		f.Text = ""
	}
	*r = Reason(f)
	return nil
}
