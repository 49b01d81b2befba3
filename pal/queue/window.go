// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Window keeps GPUs free for a time, for maintenance or for some jobs. A gang that the window does
// not admit starts on the window's GPUs only if the gang ends before the window begins. Gangs that
// already run there continue.
type Window struct {
	Name string
	// From and To are the beginning and the end of the window, since the caller's epoch.
	From, To time.Duration
	// GPUs are the numbers of the window's GPUs in the cluster, in ascending order.
	GPUs []int
	// For is a list of the namespaces, and of the jobs in the form namespace/job, that can use the
	// GPUs during the window. The elements of For can be patterns with * and ?.
	For []string
}

// WindowChance is a minimum probability. A gang can start on the GPUs of a window only if it ends
// before the window begins with at least this probability.
const WindowChance = 0.9

// admits reports whether the job can use the window's GPUs during the window.
func (w Window) admits(j Job) bool {
	return slices.ContainsFunc(w.For, func(pattern string) bool {
		name := j.Tenant
		if strings.Contains(pattern, "/") {
			name = j.ID
		}
		ok, _ := path.Match(flat(pattern), flat(name))
		return ok
	})
}

// flat replaces the slashes in a string, because the * of [path.Match] does not match slashes.
func flat(s string) string { return strings.ReplaceAll(s, "/", "\x01") }

// CheckFor returns an error if the pattern is not valid in [Window.For].
func CheckFor(pattern string) error {
	if _, err := path.Match(flat(pattern), ""); err != nil || pattern == "" || strings.HasPrefix(pattern, "/") {
		return fmt.Errorf("%q is neither a namespace nor namespace/job", pattern)
	}
	return nil
}

// SetWindows replaces the windows. Call it again after a window has ended, and after the cluster
// was rebuilt, because GPU numbers have then changed.
func (q *Queue) SetWindows(ws []Window) {
	q.windows = ws
	for _, e := range q.all { // the windows that admit a gang are part of its signature
		q.sign(e)
	}
}

// admitted names the windows whose GPUs the job can use.
func (q *Queue) admitted(j Job) (names string) {
	for _, w := range q.windows {
		if w.admits(j) {
			names += w.Name + "\n"
		}
	}
	return names
}

// quantile returns a remaining run time, at cost 1, that the gang does not exceed with the given
// probability. Each known run ends at a known time. After the time x, the fraction x / (again + x)
// of the unknown part has ended. Between the ends of two known runs, quantile computes x from this
// formula.
func (o remainingRunTime) quantile(chance float64) time.Duration {
	need := chance * o.weight()
	ended, at := 0.0, 0.0
	for i := 0; ; i++ {
		x := math.Inf(1)
		lack := need - ended
		switch { // the unknown part must have ended by then
		case lack <= 0: // enough of the known runs have ended
			x = at
		case lack < o.rest:
			x = o.again * lack / (o.rest - lack)
		}
		if i == len(o.of) || x <= o.of[i].left {
			return seconds(max(x, at))
		}
		at, ended = o.of[i].left, ended+o.of[i].weight
	}
}

// reach returns when the gang ends that starts at startTime on GPUs of this cost. It ends by then
// with the probability [WindowChance].
func (p *finder) reach(e *entry, cost float64) time.Duration {
	left := e.limit(p.now)
	if left <= 0 || p.knowsRunTime(e) {
		left = p.remainingRunTime(e, p.now).quantile(WindowChance)
	}
	left = stretched(left, cost)
	if e.job.Limit > 0 {
		left = min(left, e.job.Limit) // Nomad ends the gang then, however slow the gang is
	}
	return later(p.startTime(), left)
}

// startTime returns the time at which searches let a gang start: now, or startsAt.
func (p *finder) startTime() time.Duration { return max(p.now, p.startsAt) }

// closed returns the windows into which the gang could run if it started at this cost. The windows
// contain only those GPUs that the gang could use.
func (p *finder) closed(e *entry, cost float64) (ws []Window) {
	from, to := p.startTime(), p.reach(e, cost)
	for _, w := range p.windows {
		if from >= w.To || to <= w.From || w.admits(e.job) {
			continue
		}
		w.GPUs = slices.DeleteFunc(slices.Clone(w.GPUs), func(u int) bool { return !e.job.Gang.MayUse(p.c.GroupOf(u)) })
		if len(w.GPUs) > 0 {
			ws = append(ws, w)
		}
	}
	return ws
}

// inWay returns the windows with a GPU of the placement into which a gang on the placement could run.
func (p *finder) inWay(e *entry, pl pal.Placement) []Window {
	if len(p.windows) == 0 {
		return nil
	}
	return slices.DeleteFunc(p.closed(e, e.cost(pl)), func(w Window) bool {
		return !slices.ContainsFunc(pl.GPUs(), func(u int) bool { _, on := slices.BinarySearch(w.GPUs, u); return on })
	})
}

// find returns a placement for the gang at startTime, on which the gang runs into no window.
func (p *finder) find(e *entry) (f pal.Found, ok bool) {
	var kept []int
	before := time.Duration(0)
	for {
		p.besides(kept, func() { f, ok = p.search(e) })
		if !ok {
			p.slack = max(p.slack, before) // a gang that ends before these windows may fit
			return f, false
		}
		inWay := p.inWay(e, f.Placement)
		if len(inWay) == 0 {
			return f, true
		}
		for _, w := range inWay {
			kept = append(kept, w.GPUs...)
			before = max(before, w.From-p.startTime())
		}
	}
}

// barring returns the window that keeps a gang from starting even on an empty cluster. If there are
// several, it returns the one that ends first. It returns nil if there is none. A gang that is
// barred does not become the head, and gets no turn.
func (p *finder) barring(e *entry) (first *Window) {
	if len(p.windows) == 0 {
		return nil
	}
	fits := false
	p.on(p.ever(), func() { _, fits = p.find(e) })
	if fits {
		return nil
	}
	for _, w := range p.closed(e, max(1, p.leastCost(e))*e.slower()) {
		if first == nil || w.To < first.To {
			first = &w
		}
	}
	return first
}

// KeptFrom returns the windows into which a waiting job could run, with those of their GPUs that the
// job could use without windows.
func (q *Queue) KeptFrom(now time.Duration, id string, c *pal.Cluster) []Window {
	e := q.entries[id]
	if e == nil {
		return nil
	}
	return q.newPass(now, c).closed(e, 1)
}
