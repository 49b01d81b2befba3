// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package window evaluates the windows in an operator's configuration. In a window, nodes are
// either kept free for maintenance or reserved for some jobs. The package computes when a window
// begins and ends, and which nodes the window selects. [queue.Window] is the form that the queue
// uses.
//
// Call [Window.Check] first, and use other methods only if it accepts the window. Cron expressions
// mean the same as in Nomad's periodic block. A change of the clocks neither skips nor repeats a
// window.
//
//	w := window.Window{
//		Name: "kernel", Cron: "0 2 * * 0", Duration: 4 * time.Hour, Nodes: []string{"gpu-1*"},
//	}
//	from, to, ok := w.At(time.Now())
package window

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/hashicorp/cronexpr"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/queue"
)

// Window is a time in which nodes are kept free for maintenance, or reserved for some jobs. A
// window occurs either once or repeatedly. The fields with hcl tags appear in the same form in the
// agent's configuration.
type Window struct {
	Name string `json:"name"`
	// Start is the time when a window that occurs once begins. Cron is an expression for the times
	// when a recurring window begins. The expression has the same form as in Nomad's periodic
	// block. The times of Cron are in TimeZone, or in UTC if TimeZone is "".
	Start    time.Time `json:"start,omitzero"`
	Cron     string    `json:"cron,omitempty" hcl:"cron,optional"`
	TimeZone string    `json:"time_zone,omitempty" hcl:"time_zone,optional"`
	// Duration is how long each occurrence lasts.
	Duration time.Duration `json:"duration"`
	// Nodes (names or ids), Racks, NodePools and Datacenters select nodes. The values can be
	// patterns with * and ?. A node must match each of these fields that is set. If none of these
	// fields is set, the window selects all nodes.
	Nodes       []string `json:"nodes,omitempty" hcl:"nodes,optional"`
	Racks       []string `json:"racks,omitempty" hcl:"racks,optional"`
	NodePools   []string `json:"node_pools,omitempty" hcl:"node_pools,optional"`
	Datacenters []string `json:"datacenters,omitempty" hcl:"datacenters,optional"`
	// For lists the namespaces and jobs that may use the nodes during the window (see
	// [queue.Window]). If For is empty, no job may use the nodes during the window.
	For []string `json:"for,omitempty" hcl:"for,optional"`
}

// Check returns an error if the window is invalid.
func (w Window) Check() error {
	if err := w.check(); err != nil {
		return fmt.Errorf("window %q: %w", w.Name, err)
	}
	return nil
}

func (w Window) check() error {
	switch {
	case w.Start.IsZero() == (w.Cron == ""):
		return errors.New("either start or cron is needed, not both")
	case w.Duration <= 0:
		return fmt.Errorf("duration %v is not above 0", w.Duration)
	case w.TimeZone != "" && w.Cron == "":
		return errors.New("time_zone can be set only with cron; start contains its own zone")
	}
	if _, err := w.zone(); err != nil {
		return fmt.Errorf("time_zone: %w", err)
	}
	if w.Cron != "" {
		if _, err := cronexpr.Parse(w.Cron); err != nil {
			return fmt.Errorf("cron %q: %w", w.Cron, err)
		}
	}
	for _, pattern := range slices.Concat(w.Nodes, w.Racks, w.NodePools, w.Datacenters) {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			return fmt.Errorf("%q is not a pattern of nodes", pattern)
		}
	}
	for _, pattern := range w.For {
		if err := queue.CheckFor(pattern); err != nil {
			return fmt.Errorf("for: %w", err)
		}
	}
	return nil
}

func (w Window) zone() (*time.Location, error) { return time.LoadLocation(w.TimeZone) }

// At returns the current occurrence of the window or, if there is none, the next one. ok is false
// if the window does not occur again. If occurrences overlap, At returns the one that ends first. The
// caller must have checked the window.
func (w Window) At(now time.Time) (from, to time.Time, ok bool) {
	if w.Cron == "" {
		to = w.Start.Add(w.Duration)
		return w.Start, to, to.After(now)
	}
	zone, err := w.zone()
	if err != nil {
		return from, to, false
	}
	// The expression sees what the zone's clocks show. Clocks are changed by at most clockChange.
	_, offset := now.In(zone).Zone()
	clock := now.UTC().Add(time.Duration(offset)*time.Second - w.Duration - clockChange)
	for e := cronexpr.MustParse(w.Cron); !to.After(now); to = from.Add(w.Duration) {
		clock = e.Next(clock)
		if clock.IsZero() {
			return from, to, false
		}
		from = time.Date(clock.Year(), clock.Month(), clock.Day(), clock.Hour(), clock.Minute(), clock.Second(), 0, zone)
	}
	return from, to, true
}

// clockChange is longer than any change of a time zone's clocks.
const clockChange = 3 * time.Hour

// Holds reports whether the window selects the node, which belongs to the node pool.
func (w Window) Holds(n pal.Node, pool string) bool {
	return matches(w.Nodes, n.Name, n.ID) && matches(w.Racks, n.Rack) && matches(w.NodePools, pool) && matches(w.Datacenters, n.Datacenter)
}

// matches reports whether one of the names matches one of the patterns, or there is no pattern.
func matches(patterns []string, names ...string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(pattern string) bool {
		return slices.ContainsFunc(names, func(name string) bool { ok, _ := path.Match(pattern, name); return ok })
	})
}
