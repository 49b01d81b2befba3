// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Window keeps GPUs free for a time, for maintenance or for some jobs (a reservation). Other gangs
// do not start on the window's GPUs if they could still run when the window begins. Gangs that
// already run on the window's GPUs continue.
type Window struct {
	Name string
	// From and To are the beginning and the end of the window, since the caller's epoch.
	From, To time.Duration
	// GPUs are the numbers of the window's GPUs in the cluster.
	GPUs []int
	// For is a list of the namespaces, and of the jobs in the form namespace/job, that can use the
	// GPUs during the window. The elements of For can be patterns with * and ?.
	For []string
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

// windows are the windows of a Queue.
type windows struct {
	list   []*indexedWindow
	nextTo time.Duration         // when the next window ends
	alone  map[beside]*pal.Found // see aloneBesideWindows; a nil value: the gang does not fit
}

// indexedWindow is a window with precomputed fields. In sets of windows, the field bit stands for
// the window.
type indexedWindow struct {
	Window
	bit uint64
	on  map[int]bool // its GPUs
}

// MaxWindows is the maximum number of windows. A set of windows is a uint64, with one bit for each
// window.
const MaxWindows = 64

// SetWindows replaces the windows. If there are more than MaxWindows windows, only the MaxWindows
// windows that begin first are used. Call SetWindows again after a window has ended. Call
// SetWindows also after the cluster was rebuilt, because GPU numbers have then changed.
func (q *Queue) SetWindows(ws []Window) {
	ws = slices.Clone(ws)
	slices.SortStableFunc(ws, func(a, b Window) int { return cmp.Compare(a.From, b.From) })
	ws = ws[:min(len(ws), MaxWindows)] // the windows that begin first
	before := q.windows.list
	q.windows = windows{nextTo: math.MaxInt64, alone: map[beside]*pal.Found{}}
	for i, w := range ws {
		q.windows.list = append(q.windows.list, &indexedWindow{Window: w, bit: 1 << i, on: setOf(w.GPUs)})
		q.windows.nextTo = min(q.windows.nextTo, w.To)
	}
	q.version++
	if !slices.EqualFunc(before, q.windows.list, func(a, b *indexedWindow) bool { return slices.Equal(a.For, b.For) }) {
		q.Reconsider(func(_ string, g pal.Gang) pal.Gang { return g }) // signatures may have changed, and with them the buckets of gangs
	}
}

// admitted returns the set of windows whose GPUs the job can use.
func (ws *windows) admitted(j Job) uint64 {
	var bits uint64
	for _, w := range ws.list {
		if len(w.For) > 0 && w.admits(j) {
			bits |= w.bit
		}
	}
	return bits
}

// longest returns a remaining run time, at cost 1, that the gang does not exceed with probability
// [WindowChance].
func (fs *foresight) longest(e *entry, now time.Duration) time.Duration {
	if left := e.limit(now); left > 0 && !fs.knowsRunTime(e) {
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
		switch lack := need - ended; { // the unknown part must have ended by then
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

// reach returns when a gang ends if it starts at the given time, on GPUs of this cost. The
// parameter `long` is its run time at cost 1. The gang's limit can end it earlier.
func (p *finder) reach(e *entry, at, long time.Duration, cost float64) time.Duration {
	d := stretched(long, cost)
	if e.job.Limit > 0 { // Nomad ends the gang after the limit, however slow the gang is
		left := e.job.Limit
		if e.state >= running {
			left = max(0, left-(p.now-e.startedAt))
		}
		d = min(d, left)
	}
	return later(at, d)
}

// startTime returns the time at which searches let a gang start: now, or the time set by
// startingAt.
func (p *finder) startTime() time.Duration { return max(p.now, p.startsAt) }

// closed returns the windows that do not admit the gang and overlap with a run from startTime to
// `until`.
func (p *finder) closed(e *entry, until time.Duration) []*indexedWindow {
	var ws []*indexedWindow
	at := p.startTime()
	for _, w := range p.windows.list {
		if at < w.To && until > w.From && !w.admits(e.job) {
			ws = append(ws, w)
		}
	}
	return ws
}

// find returns a placement for the gang at startTime. It leaves out GPUs of windows that could
// begin before the gang ends, and prefers GPUs of open windows that admit the gang.
func (p *finder) find(e *entry) (pal.Found, bool) {
	if len(p.windows.list) == 0 || p.windowless {
		return p.search(e)
	}
	return p.reservedFirst(e, p.besideWindows)
}

// reservedFirst returns the result of a search that leaves out the windows that the gang can run
// into. If the whole gang fits on GPUs that open windows reserve for it, it gets these GPUs, unless
// it would then be much slower (muchWorse) than on the best free GPUs. Otherwise the reserved GPUs
// would be idle, and the gang would take GPUs that other gangs can use. reservedFirst always
// returns the result of its last call of search.
func (p *finder) reservedFirst(e *entry, search func(*entry, []*indexedWindow) (pal.Found, bool)) (pal.Found, bool) {
	long := p.longest(e, p.now)
	closed := p.closed(e, p.reach(e, p.startTime(), long, e.slower))
	off := slices.Clone(closed)
	f, ok := p.offWindows(e, long, &off, search)
	reserved := p.reserved(e)
	if !ok || len(reserved) == 0 || within(f.Placement, reserved) {
		return f, ok
	}
	others := slices.DeleteFunc(p.freeNow(), func(u int) bool { return reserved[u] })
	besides := &indexedWindow{Window: Window{From: p.startTime(), GPUs: others}, on: setOf(others)}
	off = append(slices.Clone(closed), besides)
	own, fits := p.offWindows(e, long, &off, search)
	if fits && own.Cost() < muchWorse*f.Cost() {
		return own, true
	}
	return p.offWindows(e, long, &closed, search)
}

// reserved returns the GPUs of the windows that are open at startTime and admit the gang.
func (p *finder) reserved(e *entry) map[int]bool {
	gpus := map[int]bool{}
	for _, w := range p.windows.list {
		if at := p.startTime(); w.From <= at && at < w.To && w.admits(e.job) {
			maps.Copy(gpus, w.on)
		}
	}
	return gpus
}

// within reports whether all GPUs of the placement are in the set.
func within(pl pal.Placement, set map[int]bool) bool {
	return !slices.ContainsFunc(pl.GPUs(), func(u int) bool { return !set[u] })
}

// offWindows returns the result of a search that leaves out the GPUs of windows that the gang can
// run into. The first search leaves out the windows in `closed`. If the gang can run into other
// windows on the GPUs found, offWindows adds these windows to `closed`, and searches again.
func (p *finder) offWindows(e *entry, long time.Duration, closed *[]*indexedWindow, search func(*entry, []*indexedWindow) (pal.Found, bool)) (pal.Found, bool) {
	at := p.startTime()
	for {
		f, ok := search(e, *closed)
		if !ok {
			for _, w := range *closed { // a gang that ends before the window could start
				p.slack = max(p.slack, w.From-at)
			}
			return f, false
		}
		before := len(*closed)
		for _, w := range p.closed(e, p.reach(e, at, long, e.cost(f.Placement))) {
			if !slices.Contains(*closed, w) && touches(f.Placement, w.on) {
				*closed = append(*closed, w)
			}
		}
		if len(*closed) == before {
			return f, true
		}
	}
}

// besideWindows does the same as search, but leaves out the GPUs of the closed windows.
func (p *finder) besideWindows(e *entry, closed []*indexedWindow) (pal.Found, bool) {
	for _, w := range closed {
		if len(w.on) >= p.c.NumGPUs() {
			return pal.Found{}, false
		}
		_, free := p.hold(w.GPUs)
		defer free()
	}
	if p.c.FreeGPUs() < e.gpus {
		return pal.Found{}, false
	}
	return p.search(e)
}

// withoutWindows makes searches ignore windows until `back` is called. Use it for questions that do
// not depend on the time, such as whether a gang could ever run.
func (p *finder) withoutWindows() (back func()) {
	was := p.windowless
	p.windowless = true
	return func() { p.windowless = was }
}

// startingAt sets the start time (startTime) until `back` is called.
func (p *finder) startingAt(at time.Duration) (back func()) {
	p.startsAt = at
	return func() { p.startsAt = 0 }
}

// crosses reports whether a gang that starts on the placement can run into a window on its GPUs.
func (p *finder) crosses(e *entry, pl pal.Placement) bool {
	if len(p.windows.list) == 0 {
		return false
	}
	closed := p.closed(e, p.reach(e, p.startTime(), p.longest(e, p.now), e.cost(pl)))
	return slices.ContainsFunc(closed, func(w *indexedWindow) bool { return touches(pl, w.on) })
}

// barring returns a window that keeps a gang from starting even on an empty cluster, or nil if there
// is none: the window after whose end the gang could start. A gang that a window bars in this way
// does not become the head, and gets no turn.
func (p *finder) barring(e *entry) *indexedWindow {
	if len(p.windows.list) == 0 || p.windowless {
		return nil
	}
	long := p.longest(e, p.now)
	closed := p.closed(e, p.reach(e, p.startTime(), long, max(1, p.leastCost(e))*e.slower))
	if len(closed) == 0 {
		return nil
	}
	if _, fits := p.offWindows(e, long, &closed, p.aloneBesideWindows); fits {
		return nil
	}
	slices.SortStableFunc(closed, func(a, b *indexedWindow) int { return cmp.Compare(a.To, b.To) })
	last := len(closed) - 1
	for i := range last {
		if _, fits := p.aloneBesideWindows(e, closed[i+1:]); fits {
			return closed[i]
		}
	}
	return closed[last]
}

// aloneBesideWindows does the same as besideWindows, on a cluster on which no gang of the Queue
// runs. The result is cached by kind of gang.
func (p *finder) aloneBesideWindows(e *entry, closed []*indexedWindow) (pal.Found, bool) {
	key := beside{kind: e.empty()}
	for _, w := range closed {
		key.closed |= w.bit
	}
	known := p.windows.alone
	if !p.opt.Exclusive {
		known = p.alone
	}
	f, asked := known[key]
	if !asked {
		p.withoutRunning(func() {
			if found, ok := p.besideWindows(e, closed); ok {
				f = &found
			}
		})
		known[key] = f
	}
	if f == nil {
		return pal.Found{}, false
	}
	return *f, true
}

// beside is the key of the cache that aloneBesideWindows uses.
type beside struct {
	kind   signature
	closed uint64
}

// ended reports whether a window has ended since the previous call.
func (ws *windows) ended(now time.Duration) bool {
	if len(ws.list) == 0 || now < ws.nextTo {
		return false
	}
	ws.nextTo = math.MaxInt64
	for _, w := range ws.list {
		if w.To > now {
			ws.nextTo = min(ws.nextTo, w.To)
		}
	}
	return true
}

// WindowConflict is a window that a waiting gang avoids, or that a running gang can run into.
type WindowConflict struct {
	Window string
	// GPUs is the number of the window's GPUs that a waiting gang could use, or that a running gang
	// holds.
	GPUs int
	// On contains the numbers of these GPUs in the cluster. On is set only for a waiting gang.
	On []int
	// From and To are the beginning and the end of the window. Until is the time by which the gang
	// has ended with the probability [WindowChance]. If the gang waits, it is assumed to start now.
	From, To, Until time.Duration
}

// KeptFrom returns the windows whose GPUs a waiting job cannot get now, because the job could still
// run when the windows begin. GPUs that the job could not use without windows, either, do not count.
func (q *Queue) KeptFrom(now time.Duration, id string, c *pal.Cluster) []WindowConflict {
	e := q.entries[id]
	if e == nil {
		return nil
	}
	p := q.at(now, nil)
	until := p.reach(e, now, p.longest(e, now), 1)
	var out []WindowConflict
	for _, w := range p.closed(e, until) {
		on := slices.DeleteFunc(slices.Clone(w.GPUs), func(u int) bool { return !e.job.Gang.MayUse(c.GroupOf(u)) })
		if len(on) > 0 {
			out = append(out, WindowConflict{w.Name, len(on), on, w.From, w.To, until})
		}
	}
	return out
}

// RunsInto returns the windows that a running job can run into. For each window, it returns the
// number of the job's GPUs in the window. Windows that begin after `begin` are left out. If the job
// is a service, Until in the results is the latest possible time.
func (q *Queue) RunsInto(now, begin time.Duration, id string) (out []WindowConflict) {
	e := q.entries[id]
	if e == nil || e.state < running {
		return nil
	}
	p := q.at(now, nil)
	until := p.reach(e, now, p.longest(e, now), e.cost(e.placement))
	if e.job.Endless {
		until = math.MaxInt64
	}
	for _, w := range p.closed(e, until) {
		n := 0
		for _, u := range e.placement.GPUs() {
			if w.on[u] {
				n++
			}
		}
		if n > 0 && w.From <= begin {
			out = append(out, WindowConflict{w.Name, n, nil, w.From, w.To, until})
		}
	}
	return out
}

// Beside marks as taken the GPUs that a waiting job does not use: GPUs of windows that it could run
// into and, if it prefers the GPUs that windows reserve for it, all other GPUs. The function `back`
// marks them as free again. The result `by` is the policy of the search among the GPUs that are
// left. It is not set if there are no windows.
func (q *Queue) Beside(now time.Duration, id string, c *pal.Cluster, g pal.Gang) (by pal.Policy, back func()) {
	back = func() {}
	e := q.entries[id]
	if e == nil || len(q.windows.list) == 0 {
		return by, back
	}
	p := q.at(now, c)
	p.reservedFirst(e, func(_ *entry, closed []*indexedWindow) (pal.Found, bool) {
		back()
		var gpus []int
		for _, w := range closed {
			gpus = append(gpus, w.GPUs...)
		}
		_, back = p.hold(gpus)
		f, used, ok := p.look(g)
		by = used
		return f, ok
	})
	return by, back
}
