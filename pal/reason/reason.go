// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package reason is why a job waits, runs where it runs, or does not run: a value, made where
// the decision is made. Code branches on its kind, redacts its fields ([Reason.For]), and writes
// it as text in one place (text.go) for commands, JSON, logs and the web page. Nothing reads that
// text again.
//
// It relies on nothing: the core and everything above may use it.
package reason

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kind is what kind of reason it is. Its value is part of the JSON output.
type Kind string

// Reason is why something is as it is. The zero value is no reason. A kind uses few of the
// fields: text.go shows which.
type Reason struct {
	Kind Kind `json:"kind"`
	// Text is the reason for people: a clause without a period, to follow a state and a colon. JSON
	// has it for readers; when JSON is read back, a known kind makes its text again.
	Text string `json:"text,omitempty"`
	// Ahead is the job that goes first or that gets the GPUs, and Jobs are those that are stopped
	// for it or that it comes after: namespace/id.
	Ahead string   `json:"ahead,omitempty"`
	Jobs  []string `json:"jobs,omitempty"`
	// Shrinking are elastic jobs that give members back for it, namespace/id.
	Shrinking []string `json:"shrinking,omitempty"`
	// Group is a task group, Members how many members it has and Each the GPUs of each of them;
	// Room is for how many of them there would be room at most.
	Group   string `json:"group,omitempty"`
	Members int    `json:"members,omitempty"`
	Each    int    `json:"each,omitempty"`
	Room    int    `json:"room,omitempty"`
	// Tier is how close together its GPUs have to be.
	Tier string `json:"tier,omitempty"`
	// Rackless: no node names its rack.
	Rackless bool `json:"rackless,omitempty"`
	// Needs are the GPUs that it needs, or has, Match those that it could use, Free those of them
	// that are free, and FreeOthers those that are free and that it could not use.
	Needs      int `json:"needs,omitempty"`
	Match      int `json:"match,omitempty"`
	Free       int `json:"free,omitempty"`
	FreeOthers int `json:"free_others,omitempty"`
	// Small are those of Match that are of GPU models with too few for the gang.
	Small int `json:"small,omitempty"`
	// Used says what the GPUs are that match and cannot be chosen.
	Used *Used `json:"used,omitempty"`
	// Tenant is whose limit it is.
	Tenant string `json:"tenant,omitempty"`
	// User is whose limit it is in the tenant: each user has one. Without Needs it limits his jobs.
	User string `json:"user,omitempty"`
	// Counts is for how many GPUs Needs count towards Limit if they are parts of shared GPUs, and Held is
	// how many GPUs the tenant, or the user, has.
	Counts float64 `json:"counts,omitempty"`
	Held   float64 `json:"held,omitempty"`
	// Limit is the most that it, its tenant, its user or its array may have.
	Limit int `json:"limit,omitempty"`
	// Have and Want count the job's members: those that exist, and all.
	Have int `json:"have,omitempty"`
	Want int `json:"want,omitempty"`
	// Doing is what the existing members do.
	Doing *Doing `json:"doing,omitempty"`
	// Nodes of Total nodes are concerned.
	Nodes int `json:"nodes,omitempty"`
	Total int `json:"total,omitempty"`
	// Version is one of the job in Nomad.
	Version uint64 `json:"version,omitempty"`
	// Class is a variability class.
	Class int `json:"class,omitempty"`
	// Device is a GPU model, as Nomad names the device group, and Percent how much less time the job
	// would take there.
	Device  string `json:"device,omitempty"`
	Percent int    `json:"percent,omitempty"`
	// Tries is how often something was tried, and Minutes how long it took.
	Tries   int `json:"tries,omitempty"`
	Minutes int `json:"minutes,omitempty"`
	// Until is the time when it ends, or when it happened.
	Until time.Time `json:"until,omitzero"`
	// Try is a change of the job that explain -what-if takes: "count=2".
	Try string `json:"try,omitempty"`
	// Key is the field by which the job says how many members it has: "count", "min".
	Key string `json:"key,omitempty"`
	// Window is a maintenance window or a reservation.
	Window string `json:"window,omitempty"`
	// Member is one of the job's members: its group and number.
	Member string `json:"member,omitempty"`
	// Node is a node by name, if there is one to name.
	Node string `json:"node,omitempty"`
	// Cause is a message of somebody else: Nomad, a driver, an error. It is shown unchanged.
	Cause string `json:"cause,omitempty"`
	// Because are reasons that this one rests on, Also others that hold beside it.
	Because []Reason `json:"because,omitempty"`
	Also    []Reason `json:"also,omitempty"`
}

// Used counts GPUs that match and cannot be chosen.
type Used struct {
	Allocated   int `json:"allocated,omitempty"`
	Unhealthy   int `json:"unhealthy,omitempty"`
	Quarantined int `json:"quarantined,omitempty"`
	Unavailable int `json:"unavailable,omitempty"`
	Outliers    int `json:"outliers,omitempty"` // free, but too slow
	Kept        int `json:"kept,omitempty"`     // free, but kept for jobs that go first
}

// Doing counts members by what they do.
type Doing struct {
	Run        int `json:"run,omitempty"`
	Restarting int `json:"restarting,omitempty"` // ended, and started again by their client
	Replacing  int `json:"replacing,omitempty"`  // placed, until those that they replace have ended
	Pending    int `json:"pending,omitempty"`
	Complete   int `json:"complete,omitempty"`
	Preempted  int `json:"preempted,omitempty"` // by Nomad
	Ending     int `json:"ending,omitempty"`    // told to stop, and still there
}

// Unread is a reason of which all that is known is what somebody says: an error, Nomad.
func Unread(cause string) Reason { return Reason{Kind: Error, Cause: cause} }

// IsZero reports whether there is no reason.
func (r Reason) IsZero() bool { return r.Kind == "" }

// Or is the first of two reasons, or the second if there is no first.
func (r Reason) Or(o Reason) Reason {
	if r.IsZero() {
		return o
	}
	return r
}

// And is the reason with others that hold beside it.
func (r Reason) And(others ...Reason) Reason {
	if r.IsZero() && len(others) > 0 {
		return others[0].And(others[1:]...)
	}
	others = slices.DeleteFunc(slices.Clone(others), Reason.IsZero)
	r.Also = append(slices.Clone(r.Also), others...)
	return r
}

// Over is the reason resting on others.
func (r Reason) Over(others ...Reason) Reason {
	others = slices.DeleteFunc(slices.Clone(others), Reason.IsZero)
	r.Because = append(slices.Clone(r.Because), others...)
	return r
}

// Same reports whether two reasons read the same, so that there is nothing new to say.
func (r Reason) Same(o Reason) bool { return r.Kind == o.Kind && r.String() == o.String() }

// For is the reason as somebody may know it: name is a job's name, namespace/id, as he may.
func (r Reason) For(name func(job string) string) Reason {
	all := func(jobs []string) (names []string) {
		for _, job := range jobs {
			names = append(names, name(job))
		}
		return names
	}
	of := func(rs []Reason) (known []Reason) {
		for _, r := range rs {
			known = append(known, r.For(name))
		}
		return known
	}
	if r.Ahead != "" {
		r.Ahead = name(r.Ahead)
	}
	r.Jobs, r.Shrinking, r.Because, r.Also = all(r.Jobs), all(r.Shrinking), of(r.Because), of(r.Also)
	return r
}

// Shorten cuts short what others say in the reason, and reports whether there was something to cut.
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

// Error makes a reason an error.
func (r Reason) Error() string { return r.String() }

// String returns the reason for people: a clause without a period, to follow a state and a colon.
// For a kind that this version does not know, it is the text that came with it.
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

// Sentence is the reason as a sentence of its own.
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

// UnmarshalJSON reads the fields. The text is kept only of a kind that is not known here: a newer
// placer's.
func (r *Reason) UnmarshalJSON(text []byte) error {
	type fields Reason
	var f fields
	if err := json.Unmarshal(text, &f); err != nil {
		return fmt.Errorf("reading a reason: %w", err)
	}
	if _, known := texts[f.Kind]; known {
		f.Text = ""
	}
	*r = Reason(f)
	return nil
}
