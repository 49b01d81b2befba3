// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package profile

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/nomad-pal/nomad-pal/pal"
)

// EventKind says what happened to a GPU between two profiles.
type EventKind string

// The kinds of events.
const (
	ClassChanged  EventKind = "class"    // its variability class changed
	BecameOutlier EventKind = "outlier"  // it is an outlier now
	Recovered     EventKind = "recovery" // it is no longer an outlier
	Added         EventKind = "added"    // it was measured for the first time
	Removed       EventKind = "removed"  // it is no longer in the profile
)

// Event is one change that operators should see.
type Event struct {
	Kind  EventKind    `json:"kind"`  // class, outlier, recovery, added or removed
	GPU   string       `json:"gpu"`   // the GPU's id
	Model string       `json:"model"` // its model
	App   pal.AppClass `json:"app"`   // application class, or an application that was timed
	// From and To are variability classes; 0 for none.
	From int `json:"from,omitempty"`
	To   int `json:"to,omitempty"`
	// FromScore and ToScore are the PM scores; 0 for none.
	FromScore pal.PMScore `json:"from_score,omitempty"`
	ToScore   pal.PMScore `json:"to_score,omitempty"`
}

// String describes the event in one line.
func (e Event) String() string {
	what := fmt.Sprintf("GPU %s (%s), application %s", e.GPU, e.Model, e.App)
	switch e.Kind {
	case Added:
		return fmt.Sprintf("%s: measured, PM score %.3f, class %d", what, e.ToScore, e.To)
	case Removed:
		return fmt.Sprintf("%s: no longer measured, previously class %d", what, e.From)
	case BecameOutlier:
		return fmt.Sprintf("%s: outlier, PM score %.3f, class %d", what, e.ToScore, e.To)
	case Recovered:
		return fmt.Sprintf("%s: no longer an outlier, PM score %.3f → %.3f, class %d", what, e.FromScore, e.ToScore, e.To)
	default:
		return fmt.Sprintf("%s: class %d → %d, PM score %.3f → %.3f (%+.1f %%)", what, e.From, e.To,
			e.FromScore, e.ToScore, 100*(float64(e.ToScore)/math.Max(float64(e.FromScore), 1e-9)-1))
	}
}

// Diff lists what changed from one profile to the next, by GPU and then application. If old is nil,
// every GPU is new.
func Diff(old, cur *Profile) []Event {
	if old == nil {
		old = &Profile{}
	}
	var events []Event
	for _, g := range cur.GPUs {
		for _, e := range g.Entries {
			before, had := old.Lookup(g.ID, e.App)
			if !had {
				before = Entry{}
			}
			kind := changed(before, e, had)
			if kind != "" {
				events = append(events, event(kind, g, before, e))
			}
		}
	}
	for _, g := range old.GPUs {
		for _, e := range g.Entries {
			_, has := cur.Lookup(g.ID, e.App)
			if !has {
				events = append(events, event(Removed, g, e, Entry{App: e.App}))
			}
		}
	}
	slices.SortFunc(events, func(a, b Event) int { return cmp.Or(cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.App, b.App)) })
	return events
}

// changed returns the kind of event, or "". A score that changes within its class causes no event.
func changed(b, a Entry, had bool) EventKind {
	switch {
	case a.Outlier && !b.Outlier:
		return BecameOutlier
	case !had:
		return Added
	case b.Outlier && !a.Outlier:
		return Recovered
	case a.Class != b.Class:
		return ClassChanged
	}
	return ""
}

func event(kind EventKind, g GPU, from, to Entry) Event {
	return Event{Kind: kind, GPU: g.ID, Model: g.Model, App: to.App,
		From: from.Class, To: to.Class, FromScore: from.Score, ToScore: to.Score}
}
