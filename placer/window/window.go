// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package window evaluates the windows in an operator's configuration: times in which nodes are
// kept for maintenance, or reserved for some jobs. It computes when a window begins and ends, and
// which nodes it selects. [queue.Window] is the form that the queue uses.
//
// [Window.Check] must accept a window before other methods use it. Cron expressions have the same
// meaning as in Nomad's periodic block. A change of the clocks neither skips nor repeats a window.
//
//	w := window.Window{
//		Name: "kernel", Cron: "0 2 * * 0", Duration: 4 * time.Hour, Nodes: []string{"gpu-1*"},
//	}
//	from, to, ok := w.At(time.Now())
package window

import (
	"errors"
	"fmt"
	"iter"
	"path"
	"slices"
	"time"

	"github.com/hashicorp/cronexpr"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// Window is a single or recurring time in which nodes are kept for maintenance or for some jobs.
// Fields with hcl tags have the same form in the configuration.
type Window struct {
	Name string `json:"name"`
	// Start is when a single window begins. Cron is when a recurring window begins, as in Nomad's
	// periodic block. The times of Cron are in TimeZone, or in UTC if TimeZone is "".
	Start    time.Time `json:"start,omitzero"`
	Cron     string    `json:"cron,omitempty" hcl:"cron,optional"`
	TimeZone string    `json:"time_zone,omitempty" hcl:"time_zone,optional"`
	// Duration is how long each occurrence lasts.
	Duration time.Duration `json:"duration"`
	// Nodes (by name or id), Racks, NodePools and Datacenters select the nodes, by names or by
	// patterns with * and ?. A node must match each of these fields that is set. If none is set,
	// all nodes are selected.
	Nodes       []string `json:"nodes,omitempty" hcl:"nodes,optional"`
	Racks       []string `json:"racks,omitempty" hcl:"racks,optional"`
	NodePools   []string `json:"node_pools,omitempty" hcl:"node_pools,optional"`
	Datacenters []string `json:"datacenters,omitempty" hcl:"datacenters,optional"`
	// For lists the namespaces and jobs that can use the nodes during the window (see
	// [queue.Window]). If For is empty, no job can use the nodes during the window.
	For []string `json:"for,omitempty" hcl:"for,optional"`
}

// Node has the fields by which a window selects nodes.
type Node struct{ ID, Name, Rack, Pool, Datacenter string }

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
		e, err := cronexpr.Parse(w.Cron)
		if err != nil {
			return fmt.Errorf("cron %q: %w", w.Cron, err)
		}
		if gap := longestGap(e); len(w.For) == 0 && gap > 0 && w.Duration >= gap {
			return fmt.Errorf("duration %v is not shorter than the longest interval between its starts (%v), so the window would never end, and nothing would start on its nodes", w.Duration, gap)
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

// longestGap returns the longest interval between two consecutive times of a cron expression, or 0
// if it has fewer than two. All days of an expression have the same times of day. So longestGap
// checks the intervals within one day, and the intervals between days.
func longestGap(e *cronexpr.Expression) (longest time.Duration) {
	const days = 400 // more than a year
	first := e.Next(time.Date(2026, 1, 1, 0, 0, -1, 0, time.UTC))
	if first.IsZero() {
		return 0
	}
	day, last := first.Truncate(24*time.Hour), first
	for at := e.Next(last); !at.IsZero() && at.Before(day.Add(24*time.Hour)); at = e.Next(at) {
		longest, last = max(longest, at.Sub(last)), at
	}
	for range days {
		at := e.Next(last)
		if at.IsZero() {
			break
		}
		longest, last = max(longest, at.Sub(last)), at.Truncate(24*time.Hour).Add(last.Sub(day))
		day = at.Truncate(24 * time.Hour)
	}
	return longest
}

func (w Window) zone() (*time.Location, error) { return time.LoadLocation(w.TimeZone) }

// At returns the current occurrence of the window, or the next one. ok is false if there are no
// more. Overlapping occurrences count as one, which begins with the first and ends with the last of
// them. The window must be valid.
func (w Window) At(now time.Time) (from, to time.Time, ok bool) {
	from, to = w.Start, w.Start.Add(w.Duration)
	if w.Cron != "" {
		zone, err := w.zone()
		if err != nil {
			return from, to, false
		}
		from, to = w.joined(cronexpr.MustParse(w.Cron), now, zone)
	}
	return from, to, !from.IsZero() && to.After(now)
}

const (
	// At searches the start of an active window as far back as the window's duration plus lookBack.
	lookBack = 24 * time.Hour
	// Overlapping occurrences can go on forever. At looks only lookAhead into the future, and at
	// most at mostTimes occurrences. So the end that At returns for such a window moves on with
	// time.
	lookAhead = 366 * 24 * time.Hour
	mostTimes = 100_000
)

// joined returns the first period of overlapping occurrences that has not ended.
func (w Window) joined(e *cronexpr.Expression, now time.Time, zone *time.Location) (from, to time.Time) {
	seen := 0
	for at := range times(e, now.Add(-w.Duration-lookBack), zone) {
		if at.After(to) {
			if to.After(now) {
				break
			}
			from = at
		}
		to = at.Add(w.Duration)
		if seen++; to.After(now) && (seen >= mostTimes || to.After(now.Add(lookAhead))) {
			break
		}
	}
	return from, to
}

// Over returns why the window will not occur again, or "" if it is active or will occur. The window
// must be valid.
func (w Window) Over(now time.Time) string {
	_, to, ok := w.At(now)
	switch {
	case ok:
		return ""
	case w.Cron != "":
		return fmt.Sprintf("%q never occurs", w.Cron)
	}
	return "it ended on " + reason.Moment(to)
}

// farthest is longer than any single change of a zone's clocks.
const farthest = 3 * time.Hour

// times returns the times after now at which the clocks of a zone match the expression. A time that
// the clocks skip still counts, and a time that the clocks show twice counts once. Both matter
// because most windows are on Sunday night, when clocks change.
func times(e *cronexpr.Expression, now time.Time, zone *time.Location) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		last := now
		for clock := e.Next(shown(now.In(zone)).Add(-farthest)); !clock.IsZero(); clock = e.Next(clock) {
			if t := when(clock, zone); t.After(last) {
				if last = t; !yield(t) {
					return
				}
			}
		}
	}
}

// shown returns the clock time of t in its zone, as if this time were UTC.
func shown(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// when returns the moment at which the zone's clocks first show the time clock, or skip it. clock
// is given as if it were UTC.
func when(clock time.Time, zone *time.Location) time.Time {
	_, offset := time.Date(clock.Year(), clock.Month(), clock.Day(), clock.Hour(), clock.Minute(), clock.Second(), 0, zone).Add(-farthest).Zone()
	// Start with the offset that was in force well before clock. If the clocks have been put
	// forward since, they skip clock or show it sooner. If they have been put back, they show it
	// later.
	at := clock.Add(-time.Duration(offset) * time.Second).In(zone)
	for {
		late := clock.Sub(shown(at))
		switch {
		case late == 0:
			return at
		case late < 0: // the clocks were put forward
			changed, _ := at.ZoneBounds()
			return slices.MaxFunc([]time.Time{changed, at.Add(late)}, time.Time.Compare)
		}
		at = at.Add(late)
	}
}

// Holds reports whether the window selects the node.
func (w Window) Holds(n Node) bool {
	for _, choice := range []struct {
		patterns []string
		names    []string
	}{{w.Nodes, []string{n.Name, n.ID}}, {w.Racks, []string{n.Rack}}, {w.NodePools, []string{n.Pool}}, {w.Datacenters, []string{n.Datacenter}}} {
		if len(choice.patterns) > 0 && !slices.ContainsFunc(choice.patterns, func(pattern string) bool {
			return slices.ContainsFunc(choice.names, func(name string) bool { ok, _ := path.Match(pattern, name); return ok })
		}) {
			return false
		}
	}
	return true
}

// ToQueue converts the active and future windows for the queue. gpus returns the numbers of a
// window's GPUs, and since converts times to the queue's times. next is when the first of these
// windows ends, or zero if there are no windows. empty has the names of windows without a GPU.
func ToQueue(ws []Window, now time.Time, since func(time.Time) time.Duration, gpus func(Window) []int) (out []queue.Window, next time.Time, empty []string) {
	for _, w := range ws {
		from, to, ok := w.At(now)
		if !ok {
			continue
		}
		q := queue.Window{Name: w.Name, From: since(from), To: since(to), GPUs: gpus(w), For: w.For}
		if len(q.GPUs) == 0 {
			empty = append(empty, w.Name)
		}
		out = append(out, q)
		if next.IsZero() || to.Before(next) {
			next = to
		}
	}
	return out, next, empty
}
