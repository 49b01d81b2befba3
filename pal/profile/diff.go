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
	before, after := entriesOf(old), entriesOf(cur)
	var events []Event
	for k, a := range after {
		b, had := before[k]
		if kind := changed(b, a, had); kind != "" {
			events = append(events, event(kind, k, a.model, b.Entry, a.Entry))
		}
	}
	for k, b := range before {
		if _, has := after[k]; !has {
			events = append(events, event(Removed, k, b.model, b.Entry, Entry{}))
		}
	}
	slices.SortFunc(events, func(a, b Event) int { return cmp.Or(cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.App, b.App)) })
	return events
}

type entryID struct {
	gpu string
	app pal.AppClass
}

type modelEntry struct {
	model string
	Entry
}

func entriesOf(p *Profile) map[entryID]modelEntry {
	m := map[entryID]modelEntry{}
	if p == nil {
		return m
	}
	for _, g := range p.GPUs {
		for _, e := range g.Entries {
			m[entryID{g.ID, e.App}] = modelEntry{g.Model, e}
		}
	}
	return m
}

// changed returns the kind of event, or "". A score that changes within its class causes no event.
func changed(b, a modelEntry, had bool) EventKind {
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

func event(kind EventKind, k entryID, model string, from, to Entry) Event {
	return Event{Kind: kind, GPU: k.gpu, Model: model, App: k.app,
		From: from.Class, To: to.Class, FromScore: from.Score, ToScore: to.Score}
}
