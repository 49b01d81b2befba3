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

// Window keeps GPUs free for a time, for maintenance or for some jobs (a reservation). The rule: a
// gang that the window does not admit starts on the window's GPUs only if it ends before the window
// begins. Gangs that already run there continue.
type Window struct {
	Name string
	// From and To are the beginning and the end of the window, since the caller's epoch.
	From, To time.Duration
	// GPUs are the numbers of the window's GPUs in the cluster.
	GPUs []int
	// For is a list of the namespaces, and of the jobs in the form namespace/job, that can use the
	// GPUs during the window. The elements of For can be patterns with * and ?.
	For []string
	on  map[int]bool // GPUs as a set
}

// WindowChance is a minimum probability. A gang can start on the GPUs of a window only if it ends
// before the window begins with at least this probability.
const WindowChance = 0.9

// admits reports whether the job can use the window's GPUs during the window.
func (w *Window) admits(j Job) bool {
	_, id, _ := strings.Cut(j.ID, "/")
	return slices.ContainsFunc(w.For, func(pattern string) bool {
		namespace, job, named := strings.Cut(pattern, "/")
		if ok, _ := path.Match(namespace, j.Tenant); !ok {
			return false
		}
		ok, _ := path.Match(flat(job), flat(id))
		return !named || ok
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
	q.windows = nil
	for _, w := range ws {
		w.on = setOf(w.GPUs)
		q.windows = append(q.windows, &w)
	}
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

// longest returns a remaining run time, at cost 1, that the gang does not exceed with probability
// [WindowChance].
func (fs *foresight) longest(e *entry, now time.Duration) time.Duration {
	left := e.limit(now)
	if left > 0 && !fs.knowsRunTime(e) {
		return left
	}
	return fs.remainingRunTime(e, now).quantile(WindowChance)
}

// quantile returns a remaining run time, at cost 1, that the gang does not exceed with the given
// probability. Each known run ends at a known time. After the time x, the fraction x / (again + x)
// of the unknown part has ended. Between the ends of two known runs, quantile computes x from this
// formula.
func (o remainingRunTime) quantile(chance float64) time.Duration {
	need, ended, at := chance*o.weight(), 0.0, 0.0
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
	d := stretched(p.longest(e, p.now), cost)
	if e.job.Limit > 0 { // Nomad ends the gang after the limit, however slow the gang is
		left := e.job.Limit
		if e.state >= running {
			left = max(0, left-(p.now-e.startedAt))
		}
		d = min(d, left)
	}
	return later(p.startTime(), d)
}

// startTime returns the time at which searches let a gang start: now, or startsAt.
func (p *finder) startTime() time.Duration { return max(p.now, p.startsAt) }

// closed returns the windows on whose GPUs the gang must not start at this cost.
func (p *finder) closed(e *entry, cost float64) (ws []*Window) {
	if len(p.windows) == 0 {
		return nil
	}
	at, until := p.startTime(), p.reach(e, cost)
	for _, w := range p.windows {
		if at < w.To && until > w.From && !w.admits(e.job) {
			ws = append(ws, w)
		}
	}
	return ws
}

// crosses reports whether a gang that starts on the placement can run into a window on its GPUs.
func (p *finder) crosses(e *entry, pl pal.Placement) bool {
	return slices.ContainsFunc(p.closed(e, e.cost(pl)), func(w *Window) bool { return touches(pl, w.on) })
}

// find returns a placement for the gang at startTime. It leaves out the GPUs of windows that could
// begin before the gang ends. On slow GPUs the gang ends later, so more windows can matter.
func (p *finder) find(e *entry) (pal.Found, bool) {
	for cost := e.slower(); ; {
		closed := p.closed(e, cost)
		f, ok := p.besideWindows(e, closed)
		if !ok {
			for _, w := range closed { // a gang that ends before the window could start
				p.slack = max(p.slack, w.From-p.startTime())
			}
			return f, false
		}
		if !p.crosses(e, f.Placement) {
			return f, true
		}
		cost = e.cost(f.Placement)
	}
}

// besideWindows does the same as search, but leaves out the GPUs of the closed windows.
func (p *finder) besideWindows(e *entry, closed []*Window) (f pal.Found, ok bool) {
	if len(closed) == 0 {
		return p.search(e)
	}
	var kept []int
	for _, w := range closed {
		kept = append(kept, w.GPUs...)
	}
	p.besides(kept, func() { f, ok = p.search(e) })
	return f, ok
}

// barring returns the window that keeps a gang from starting even on an empty cluster. If there are
// several, it returns the one that ends first. It returns nil if there is none. A gang that is
// barred does not become the head, and gets no turn.
func (p *finder) barring(e *entry) (first *Window) {
	if len(p.windows) == 0 {
		return nil
	}
	closed := p.closed(e, max(1, p.leastCost(e))*e.slower())
	if len(closed) == 0 {
		return nil
	}
	fits := false
	p.on(p.ever(), func() { _, fits = p.besideWindows(e, closed) })
	if fits {
		return nil
	}
	for _, w := range closed {
		if (first == nil || w.To < first.To) && len(w.usable(e.job, p.c)) > 0 {
			first = w
		}
	}
	return first
}

// usable returns the window's GPUs that the job may use.
func (w *Window) usable(j Job, c *pal.Cluster) []int {
	return slices.DeleteFunc(slices.Clone(w.GPUs), func(u int) bool { return !j.Gang.MayUse(c.GroupOf(u)) })
}

// WindowConflict is a window that a waiting gang avoids.
type WindowConflict struct {
	Window string
	// On are the numbers of the window's GPUs that the gang could use.
	On []int
	// From and To are the beginning and the end of the window.
	From, To time.Duration
}

// KeptFrom returns the windows whose GPUs a waiting job cannot get now, because the job could still
// run when the windows begin. GPUs that the job could not use without windows, either, do not count.
func (q *Queue) KeptFrom(now time.Duration, id string, c *pal.Cluster) (out []WindowConflict) {
	e := q.entries[id]
	if e == nil {
		return nil
	}
	for _, w := range q.newPass(now, nil).closed(e, 1) {
		on := w.usable(e.job, c)
		if len(on) > 0 {
			out = append(out, WindowConflict{w.Name, on, w.From, w.To})
		}
	}
	return out
}
